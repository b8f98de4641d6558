//! The reads that most others are made of: one item by its key, and the items of a partition under a prefix.

use aws_sdk_dynamodb::operation::query::QueryOutput;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};

use super::Dynamo;
use super::items::Read;
use super::transact::{failure, key, units};
use crate::port::{Consistency, StoreError};

/// Items of the state table in one partition whose sort keys begin alike.
#[derive(Clone, Copy)]
pub(super) struct PartitionPrefix<'a> {
    /// The partition.
    pub(super) pk: &'a str,
    /// How the sort keys begin.
    pub(super) prefix: &'a str,
}

impl Dynamo {
    /// An item of a table.
    pub(super) async fn get(
        &self,
        table: &str,
        at: (String, String),
        consistency: Consistency,
    ) -> Result<Option<Read>, StoreError> {
        let got = self
            .retrying_client
            .get_item()
            .table_name(table)
            .set_key(Some(key(at)))
            .consistent_read(consistency == Consistency::Strong)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|e| failure("GetItem", e))?;
        self.meter.read("GetItem", units(got.consumed_capacity()));
        Ok(got.item)
    }

    /// The first so many of them, or all, in order, strongly read. A page ends at 1 MiB, which is a few large plugins.
    pub(super) async fn all(
        &self,
        under: PartitionPrefix<'_>,
        most: Option<usize>,
    ) -> Result<Vec<Read>, StoreError> {
        let (mut items, mut after) = (Vec::new(), None);
        loop {
            let left = most.map(|most| most - items.len());
            let got = self.query(under, after, left, Consistency::Strong, true).await?;
            items.extend(got.items.unwrap_or_default());
            after = got.last_evaluated_key;
            if after.is_none() || most.is_some_and(|most| items.len() >= most) {
                return Ok(items);
            }
        }
    }

    /// A page of them, possibly a moment old, from behind a sort key; and where the next one begins.
    pub(super) async fn page(
        &self,
        under: PartitionPrefix<'_>,
        after: Option<&str>,
        limit: usize,
        oldest_first: bool,
    ) -> Result<(Vec<Read>, Option<String>), StoreError> {
        let after = after.map(|sk| key((under.pk.to_owned(), sk.to_owned())));
        let got = self.query(under, after, Some(limit), Consistency::Eventual, oldest_first).await?;
        let next =
            got.last_evaluated_key().and_then(|key| key.get("sk")).and_then(|sk| sk.as_s().ok()).cloned();
        Ok((got.items.unwrap_or_default(), next))
    }

    async fn query(
        &self,
        under: PartitionPrefix<'_>,
        after: Option<Read>,
        limit: Option<usize>,
        consistency: Consistency,
        oldest_first: bool,
    ) -> Result<QueryOutput, StoreError> {
        let got = self
            .retrying_client
            .query()
            .table_name(&self.tables.state)
            .key_condition_expression("pk = :pk AND begins_with(sk, :prefix)")
            .expression_attribute_values(":pk", AttributeValue::S(under.pk.to_owned()))
            .expression_attribute_values(":prefix", AttributeValue::S(under.prefix.to_owned()))
            .scan_index_forward(oldest_first)
            .set_exclusive_start_key(after)
            .set_limit(limit.map(|limit| i32::try_from(limit).unwrap_or(i32::MAX)))
            .consistent_read(consistency == Consistency::Strong)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|e| failure("Query", e))?;
        self.meter.read("Query", units(got.consumed_capacity()));
        Ok(got)
    }
}
