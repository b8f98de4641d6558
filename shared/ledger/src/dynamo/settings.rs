//! What a tenant has set: rows of JSON under its partition, which no rule of the ledger depends on.

use aws_sdk_dynamodb::types::{ReturnConsumedCapacity, ReturnValue};
use keel_kernel::TenantId;
use keel_kernel::event::Spent;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::items::{self, Reader};
use super::reads::PartitionPrefix;
use super::row::{read_row, row_item};
use super::transact::{failure, item, key, units};
use super::{Dynamo, keys};
use crate::port::{Consistency, StoreError};

const TOTAL: ReturnConsumedCapacity = ReturnConsumedCapacity::Total;
/// Rows of one kind that a tenant may have; more are not read.
pub(super) const ROWS_MAX: usize = 200;

impl Dynamo {
    /// Writes a tenant's row in the place of an older one.
    pub async fn put_setting<T: Serialize>(
        &self,
        tenant: &TenantId,
        sk: String,
        row: &T,
    ) -> Result<(), StoreError> {
        let new = row_item(tenant.as_str(), sk, row);
        let put = self.retrying_client.put_item().table_name(&self.tables.state).set_item(Some(item(new)));
        let done = put.return_consumed_capacity(TOTAL).send().await.map_err(|e| failure("PutItem", e))?;
        self.meter.wrote("PutItem", units(done.consumed_capacity()));
        Ok(())
    }

    /// A tenant's row, strongly read.
    pub async fn setting<T: DeserializeOwned>(
        &self,
        tenant: &TenantId,
        sk: String,
    ) -> Result<Option<T>, StoreError> {
        let got = self.get(&self.tables.state, (tenant.to_string(), sk), Consistency::Strong).await?;
        got.as_ref().map(read_row).transpose()
    }

    /// A tenant's rows whose sort keys begin with this, with what follows in their keys, in order, 200 at most.
    pub async fn settings<T: DeserializeOwned>(
        &self,
        tenant: &TenantId,
        prefix: &str,
    ) -> Result<Vec<(String, T)>, StoreError> {
        let under = PartitionPrefix { pk: tenant.as_str(), prefix };
        let named = |item: &items::Read| {
            let name = Reader::versioned(item)?.parse("sk", |sk| sk.strip_prefix(prefix).ok_or(()))?;
            Ok((name.to_owned(), read_row(item)?))
        };
        self.all(under, Some(ROWS_MAX)).await?.iter().map(named).collect()
    }

    /// Removes a tenant's row. True where there was one.
    pub async fn remove_setting(&self, tenant: &TenantId, sk: String) -> Result<bool, StoreError> {
        let done = self
            .retrying_client
            .delete_item()
            .table_name(&self.tables.state)
            .set_key(Some(key((tenant.to_string(), sk))))
            .return_values(ReturnValue::AllOld)
            .return_consumed_capacity(TOTAL)
            .send()
            .await
            .map_err(|e| failure("DeleteItem", e))?;
        self.meter.wrote("DeleteItem", units(done.consumed_capacity()));
        Ok(done.attributes().is_some_and(|old| !old.is_empty()))
    }

    /// H5: adds to what a tenant spent in a month; the sum.
    pub async fn spend(&self, tenant: &TenantId, month: &str, spent: Spent) -> Result<Spent, StoreError> {
        // Not retried: a sum must not count twice what it may have counted.
        let done = self
            .client
            .update_item()
            .table_name(&self.tables.state)
            .set_key(Some(key((tenant.to_string(), keys::spent(month)))))
            .update_expression("ADD #tokens :tokens, #micros :micros SET #v = :v")
            .expression_attribute_names("#tokens", "tokens")
            .expression_attribute_names("#micros", "micros")
            .expression_attribute_names("#v", items::attr::VERSION)
            .expression_attribute_values(":tokens", items::number(spent.tokens))
            .expression_attribute_values(":micros", items::number(spent.micros))
            .expression_attribute_values(":v", items::number(items::VERSION))
            .return_values(ReturnValue::AllNew)
            .return_consumed_capacity(TOTAL)
            .send()
            .await
            .map_err(|e| failure("UpdateItem", e))?;
        self.meter.wrote("UpdateItem", units(done.consumed_capacity()));
        done.attributes().map_or(Ok(Spent::default()), read_spent)
    }

    /// H5: what a tenant spent in a month so far.
    pub async fn spent(&self, tenant: &TenantId, month: &str) -> Result<Spent, StoreError> {
        let place = (tenant.to_string(), keys::spent(month));
        let got = self.get(&self.tables.state, place, Consistency::Strong).await?;
        got.as_ref().map_or(Ok(Spent::default()), read_spent)
    }
}

fn read_spent(item: &items::Read) -> Result<Spent, StoreError> {
    let r = Reader::versioned(item)?;
    Ok(Spent { tokens: r.number("tokens")?, micros: r.number("micros")? })
}
