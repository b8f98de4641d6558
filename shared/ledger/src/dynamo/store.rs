//! The verbs of [`Store`]: strongly read heads, guarded writes, key look-ups, pages of events.

use async_trait::async_trait;
use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes, ReturnConsumedCapacity};
use keel_kernel::event::KeyName;
use keel_kernel::{DedupeKey, Head, Seq, Transition};

use super::transact::{failure, key, units};
use super::{Dynamo, items, keys};
use crate::plan::plan;
use crate::port::{Consistency, EventPage, KeyRow, SessionKey, Store, StoreError, Written};

/// After every event's sort key.
const LAST_EVENT: Seq = Seq(9_999_999_999_999_999);

#[async_trait]
impl Store for Dynamo {
    async fn head(&self, at: &SessionKey) -> Result<Option<Head>, StoreError> {
        self.read_head(at, Consistency::Strong).await
    }

    async fn head_eventual(&self, at: &SessionKey) -> Result<Option<Head>, StoreError> {
        self.read_head(at, Consistency::Eventual).await
    }

    async fn write(
        &self,
        at: &SessionKey,
        before: &Head,
        transition: &Transition,
        token: &str,
    ) -> Result<Written, StoreError> {
        self.send(plan(at, before, transition), token).await
    }

    async fn keys(
        &self,
        at: &SessionKey,
        wanted: &[(KeyName, DedupeKey)],
    ) -> Result<Vec<KeyRow>, StoreError> {
        let sort_keys = wanted.iter().map(|(name, key)| keys::dedupe_key(*name, key));
        let mut rows = Vec::new();
        for sk in sort_keys {
            let place = (at.to_string(), sk);
            if let Some(item) = self.get(&self.tables.events, place, Consistency::Strong).await? {
                rows.push(items::read_key(&item)?);
            }
        }
        Ok(rows)
    }

    async fn events(
        &self,
        at: &SessionKey,
        after: Seq,
        limit: usize,
        consistency: Consistency,
    ) -> Result<EventPage, StoreError> {
        let from = keys::event(Seq(after.0.min(LAST_EVENT.0 - 1)).next());
        let got = self
            .retrying_client
            .query()
            .table_name(&self.tables.events)
            .key_condition_expression("pk = :pk AND sk BETWEEN :from AND :to")
            .expression_attribute_values(":pk", AttributeValue::S(at.to_string()))
            .expression_attribute_values(":from", AttributeValue::S(from))
            .expression_attribute_values(":to", AttributeValue::S(keys::event(LAST_EVENT)))
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .consistent_read(consistency == Consistency::Strong)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|e| failure("Query", e))?;
        self.meter.read("Query", units(got.consumed_capacity()));
        let events = got.items().iter().map(items::read_event).collect::<Result<_, _>>()?;
        Ok(EventPage { events, has_more: got.last_evaluated_key().is_some() })
    }
}

impl Dynamo {
    /// The head as of now, or possibly a moment ago for half the price.
    pub async fn read_head(
        &self,
        at: &SessionKey,
        consistency: Consistency,
    ) -> Result<Option<Head>, StoreError> {
        let got = self.get(&self.tables.state, keys::head(at), consistency).await?;
        got.as_ref().map(items::read_head).transpose()
    }

    /// The heads of many sessions, at most 100, possibly a moment old, in no order.
    pub async fn read_heads(&self, at: &[SessionKey]) -> Result<Vec<(SessionKey, Head)>, StoreError> {
        if at.is_empty() {
            return Ok(Vec::new());
        }
        let mut wanted = KeysAndAttributes::builder();
        for session in at {
            wanted = wanted.keys(key(keys::head(session)));
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
        let mut heads = Vec::new();
        for item in got.responses().and_then(|tables| tables.get(&self.tables.state)).into_iter().flatten() {
            let pk = item.get("pk").and_then(|pk| pk.as_s().ok());
            if let Some(session) = at.iter().find(|session| Some(&session.to_string()) == pk) {
                heads.push((session.clone(), items::read_head(item)?));
            }
        }
        // What the batch left out for its size is read one by one: the caller asked for all of them.
        if heads.len() < at.len() {
            let missing: Vec<_> = at
                .iter()
                .filter(|session| !heads.iter().any(|(known, _)| known == *session))
                .cloned()
                .collect();
            for session in missing {
                if let Some(head) = self.read_head(&session, Consistency::Eventual).await? {
                    heads.push((session, head));
                }
            }
        }
        Ok(heads)
    }
}
