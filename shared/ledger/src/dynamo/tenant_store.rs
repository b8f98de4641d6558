//! The rows of a [`TenantStore`] in DynamoDB: a tenant's settings, spending, API keys and lists.

use aws_sdk_dynamodb::types::{ReturnConsumedCapacity, ReturnValue};
use keel_kernel::TenantId;
use keel_kernel::event::Spent;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::convert::{read_item, sdk_item, sdk_key, sdk_value};
use super::reads::PartitionPrefix;
use super::transact::{failure, units};
use crate::items::{self, Reader, read_row, row_item};
use crate::keys;
use crate::port::{Consistency, SessionKey, Store as _, StoreError};
use crate::tenant_store::{ApiKeyRow, SessionPage, TenantStore};
use crate::value::{Item, Key, Value};

const TOTAL: ReturnConsumedCapacity = ReturnConsumedCapacity::Total;
/// Rows of one kind that a tenant may have; more are not read.
const ROWS_MAX: usize = 200;

impl TenantStore {
    /// Writes a tenant's row with this sort key, and replaces an older one.
    pub async fn put_setting<T: Serialize>(
        &self,
        tenant: &TenantId,
        sk: String,
        row: &T,
    ) -> Result<(), StoreError> {
        let new = sdk_item(row_item(Key::new(tenant.as_str(), sk), row));
        let put = self.0.retrying_client.put_item().table_name(&self.0.tables.state).set_item(Some(new));
        let done = put.return_consumed_capacity(TOTAL).send().await.map_err(|e| failure("PutItem", e))?;
        self.0.meter.wrote("PutItem", units(done.consumed_capacity()));
        Ok(())
    }

    /// The tenant's row with this sort key, strongly read.
    pub async fn setting<T: DeserializeOwned>(
        &self,
        tenant: &TenantId,
        sk: String,
    ) -> Result<Option<T>, StoreError> {
        let key = Key::new(tenant.as_str(), sk);
        let got = self.0.get(&self.0.tables.state, key, Consistency::Strong).await?;
        got.as_ref().map(read_row).transpose()
    }

    /// A tenant's rows whose sort keys begin with `prefix`, each with the rest of its sort key, in order, strongly read: at
    /// most 200.
    pub async fn settings<T: DeserializeOwned>(
        &self,
        tenant: &TenantId,
        prefix: &str,
    ) -> Result<Vec<(String, T)>, StoreError> {
        let under = PartitionPrefix { pk: tenant.as_str(), prefix };
        let named = |item: &Item| {
            let name = Reader::versioned(item)?.parse("sk", |sk| sk.strip_prefix(prefix).ok_or(()))?;
            Ok((name.to_owned(), read_row(item)?))
        };
        self.0.all(under, Some(ROWS_MAX)).await?.iter().map(named).collect()
    }

    /// Removes the tenant's row with this sort key. True: there was one.
    pub async fn remove_setting(&self, tenant: &TenantId, sk: String) -> Result<bool, StoreError> {
        let done = self
            .0
            .retrying_client
            .delete_item()
            .table_name(&self.0.tables.state)
            .set_key(Some(sdk_key(Key::new(tenant.as_str(), sk))))
            .return_values(ReturnValue::AllOld)
            .return_consumed_capacity(TOTAL)
            .send()
            .await
            .map_err(|e| failure("DeleteItem", e))?;
        self.0.meter.wrote("DeleteItem", units(done.consumed_capacity()));
        Ok(done.attributes().is_some_and(|old| !old.is_empty()))
    }

    /// H5: adds to what a tenant spent in a month (`2026-12`), and returns the sum.
    pub async fn spend(&self, tenant: &TenantId, month: &str, spent: Spent) -> Result<Spent, StoreError> {
        let number = |n| sdk_value(Value::Number(n));
        // Not retried: a sum must not count twice what it may have counted.
        let done = self
            .0
            .client
            .update_item()
            .table_name(&self.0.tables.state)
            .set_key(Some(sdk_key(keys::spent(tenant, month))))
            .update_expression("ADD #tokens :tokens, #micros :micros SET #v = :v")
            .expression_attribute_names("#tokens", "tokens")
            .expression_attribute_names("#micros", "micros")
            .expression_attribute_names("#v", items::attr::VERSION)
            .expression_attribute_values(":tokens", number(spent.tokens))
            .expression_attribute_values(":micros", number(spent.micros))
            .expression_attribute_values(":v", number(items::VERSION))
            .return_values(ReturnValue::AllNew)
            .return_consumed_capacity(TOTAL)
            .send()
            .await
            .map_err(|e| failure("UpdateItem", e))?;
        self.0.meter.wrote("UpdateItem", units(done.consumed_capacity()));
        match done.attributes {
            None => Ok(Spent::default()),
            Some(attributes) => read_spent(&read_item(attributes)),
        }
    }

    /// H5: what a tenant spent in a month (`2026-12`) so far, strongly read.
    pub async fn spent(&self, tenant: &TenantId, month: &str) -> Result<Spent, StoreError> {
        let key = keys::spent(tenant, month);
        let got = self.0.get(&self.0.tables.state, key, Consistency::Strong).await?;
        got.as_ref().map_or(Ok(Spent::default()), read_spent)
    }

    /// Writes an API key's row, and replaces an older one with its id.
    pub async fn put_api_key(&self, tenant: &TenantId, id: &str, row: &ApiKeyRow) -> Result<(), StoreError> {
        self.put_setting(tenant, keys::api_key(tenant, id).sk, row).await
    }

    /// The row of the API key with this id, eventually read.
    pub async fn api_key(&self, tenant: &TenantId, id: &str) -> Result<Option<ApiKeyRow>, StoreError> {
        let key = keys::api_key(tenant, id);
        let got = self.0.get(&self.0.tables.state, key, Consistency::Eventual).await?;
        got.as_ref().map(read_row).transpose()
    }

    /// A page of a tenant's sessions, newest first, after the row with the sort key `after`. The list is eventually read.
    pub async fn sessions(
        &self,
        tenant: &TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        let under = PartitionPrefix { pk: tenant.as_str(), prefix: keys::SESSION_PREFIX };
        let (rows, next) = self.0.page(under, after, limit, false).await?;
        let mut at = Vec::new();
        for item in &rows {
            let id = Reader::versioned(item)?
                .parse("sk", |sk| keel_kernel::SessionId::parse(sk.rsplit('#').next().unwrap_or("")))?;
            at.push(SessionKey { tenant: tenant.clone(), session: id });
        }
        Ok(SessionPage { sessions: self.0.sessions(&at).await?, next })
    }

    /// The ids of a tenant's open decisions, oldest first, after the row with the sort key `after`; and the sort key after
    /// which the next page begins. The list is eventually read, and decisions that have expired may still be on it.
    pub async fn open_decisions(
        &self,
        tenant: &TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<String>, Option<String>), StoreError> {
        let under = PartitionPrefix { pk: tenant.as_str(), prefix: keys::OPEN_PREFIX };
        let (items, next) = self.0.page(under, after, limit, true).await?;
        Ok((items.iter().map(read_row).collect::<Result<_, _>>()?, next))
    }
}

fn read_spent(item: &Item) -> Result<Spent, StoreError> {
    let r = Reader::versioned(item)?;
    Ok(Spent { tokens: r.number("tokens")?, micros: r.number("micros")? })
}
