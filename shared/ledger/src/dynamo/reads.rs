//! The reads that others are made of: one item by its key, many items by their keys, and the items of a partition whose
//! sort keys have a prefix.

use aws_sdk_dynamodb::operation::query::QueryOutput;
use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes, ReturnConsumedCapacity};

use super::Dynamo;
use super::convert::{SdkItem, read_item, sdk_key};
use super::transact::{failure, units};
use crate::port::{Consistency, StoreError};
use crate::value::{Item, Key};

/// Items of the state table in one partition whose sort keys begin alike.
#[derive(Clone, Copy)]
pub(super) struct PartitionPrefix<'a> {
    /// The partition.
    pub(super) pk: &'a str,
    /// How the sort keys begin.
    pub(super) prefix: &'a str,
}

impl Dynamo {
    /// The item of a table with this key.
    pub(super) async fn get(
        &self,
        table: &str,
        key: Key,
        consistency: Consistency,
    ) -> Result<Option<Item>, StoreError> {
        let got = self
            .retrying_client
            .get_item()
            .table_name(table)
            .set_key(Some(sdk_key(key)))
            .consistent_read(consistency == Consistency::Strong)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|e| failure("GetItem", e))?;
        self.meter.read("GetItem", units(got.consumed_capacity()));
        Ok(got.item.map(read_item))
    }

    /// Items of the state table by their keys (at most 100), eventually read, in no order. DynamoDB may leave some out
    /// because of their size.
    pub(super) async fn get_many(
        &self,
        keys: impl IntoIterator<Item = Key>,
    ) -> Result<Vec<Item>, StoreError> {
        let mut wanted = KeysAndAttributes::builder();
        for key in keys {
            wanted = wanted.keys(sdk_key(key));
        }
        let wanted = wanted.build().map_err(|e| StoreError::NotWritten("BatchGetItem", Box::new(e)))?;
        let got = self
            .retrying_client
            .batch_get_item()
            .request_items(&self.tables.state, wanted)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|e| failure("BatchGetItem", e))?;
        self.meter.read("BatchGetItem", units(got.consumed_capacity()));
        let tables = got.responses.unwrap_or_default();
        Ok(tables.into_values().flatten().map(read_item).collect())
    }

    /// The first `most` items under a prefix, or all of them, in order, strongly read. More than one call is made where
    /// they have more than 1 MB together, as a few large plugins have.
    pub(super) async fn all(
        &self,
        under: PartitionPrefix<'_>,
        most: Option<usize>,
    ) -> Result<Vec<Item>, StoreError> {
        let (mut items, mut after) = (Vec::new(), None);
        loop {
            let left = most.map(|most| most - items.len());
            let got = self.query(under, after, left, Consistency::Strong, true).await?;
            items.extend(got.items.unwrap_or_default().into_iter().map(read_item));
            after = got.last_evaluated_key;
            if after.is_none() || most.is_some_and(|most| items.len() >= most) {
                return Ok(items);
            }
        }
    }

    /// A page of the items under a prefix, eventually read, after a sort key; and the sort key after which the next page
    /// begins.
    pub(super) async fn page(
        &self,
        under: PartitionPrefix<'_>,
        after: Option<&str>,
        limit: usize,
        oldest_first: bool,
    ) -> Result<(Vec<Item>, Option<String>), StoreError> {
        let after = after.map(|sk| sdk_key(Key::new(under.pk, sk)));
        let got = self.query(under, after, Some(limit), Consistency::Eventual, oldest_first).await?;
        let next =
            got.last_evaluated_key().and_then(|key| key.get("sk")).and_then(|sk| sk.as_s().ok()).cloned();
        Ok((got.items.into_iter().flatten().map(read_item).collect(), next))
    }

    async fn query(
        &self,
        under: PartitionPrefix<'_>,
        after: Option<SdkItem>,
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
