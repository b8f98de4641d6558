//! The ledger's [`Store`] in DynamoDB: a session's rows, read and written.

use async_trait::async_trait;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};
use keel_kernel::decision::Decision;
use keel_kernel::event::KeyName;
use keel_kernel::partial::PartialChunk;
use keel_kernel::{DedupeKey, Head, KeyRow, Millis, Seq, Session, SessionDescription, SessionId, Transition};

use super::Dynamo;
use super::convert::{read_item, sdk_key};
use super::reads::PartitionPrefix;
use super::transact::{failure, units};
use crate::items::{self, Reader, read_row};
use crate::keys;
use crate::plan::plan;
use crate::port::{
    Consistency, DuePage, DuePlace, EventPage, PartialPage, SessionKey, Store, StoreError, Written,
};
use crate::value::{Item, Value};

/// The largest position that a sort key of 16 digits can name.
const LAST_EVENT: Seq = Seq(9_999_999_999_999_999);

#[async_trait]
impl Store for Dynamo {
    async fn head(&self, at: &SessionKey, consistency: Consistency) -> Result<Option<Head>, StoreError> {
        let got = self.get(&self.tables.state, keys::head(at), consistency).await?;
        got.as_ref().map(items::read_head).transpose()
    }

    async fn description(&self, at: &SessionKey) -> Result<Option<SessionDescription>, StoreError> {
        let got = self.get(&self.tables.state, keys::description(at), Consistency::Strong).await?;
        got.as_ref().map(read_row).transpose()
    }

    async fn session(&self, at: &SessionKey) -> Result<Option<Session>, StoreError> {
        let got = self
            .retrying_client
            .query()
            .table_name(&self.tables.state)
            // The sort keys of decisions and children are smaller than these two.
            .key_condition_expression("pk = :pk AND sk BETWEEN :head AND :meta")
            .expression_attribute_values(":pk", AttributeValue::S(at.to_string()))
            .expression_attribute_values(":head", AttributeValue::S(keys::HEAD.to_owned()))
            .expression_attribute_values(":meta", AttributeValue::S(keys::DESCRIPTION.to_owned()))
            .consistent_read(true)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|e| failure("Query", e))?;
        self.meter.read("Query", units(got.consumed_capacity()));
        let found: Vec<Item> = got.items.into_iter().flatten().map(read_item).collect();
        let find = |sk: &str| found.iter().find(|item| item.get("sk").and_then(Value::as_text) == Some(sk));
        match (find(keys::HEAD), find(keys::DESCRIPTION)) {
            (Some(head), Some(description)) => {
                Ok(Some(Session { description: read_row(description)?, head: items::read_head(head)? }))
            }
            _ => Ok(None),
        }
    }

    async fn sessions(&self, at: &[SessionKey]) -> Result<Vec<Session>, StoreError> {
        let mut sessions = Vec::with_capacity(at.len());
        // Heads and descriptions are read in one call each; a call takes up to 100 keys.
        for chunk in at.chunks(50) {
            let heads = self.heads(chunk).await?;
            let described = self.get_many(chunk.iter().map(keys::description)).await?;
            let described: Vec<SessionDescription> =
                described.iter().map(read_row).collect::<Result<_, _>>()?;
            for session in chunk {
                let head = heads.iter().find(|(known, _)| known == session).map(|(_, head)| head.clone());
                let description = described.iter().find(|row| row.session_id == session.session).cloned();
                match (head, description) {
                    (Some(head), Some(description)) => sessions.push(Session { description, head }),
                    // The batch left it out because of its size, or an eventual read does not show it yet.
                    _ => sessions.extend(self.session(session).await?),
                }
            }
        }
        Ok(sessions)
    }

    async fn write(
        &self,
        at: &SessionKey,
        before: Option<&Head>,
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
        let mut rows = Vec::new();
        for (name, key) in wanted {
            let place = keys::dedupe_key(at, *name, key);
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
        let from = keys::event_sk(Seq(after.0.min(LAST_EVENT.0 - 1)).next());
        let got = self
            .retrying_client
            .query()
            .table_name(&self.tables.events)
            .key_condition_expression("pk = :pk AND sk BETWEEN :from AND :to")
            .expression_attribute_values(":pk", AttributeValue::S(at.to_string()))
            .expression_attribute_values(":from", AttributeValue::S(from))
            .expression_attribute_values(":to", AttributeValue::S(keys::event_sk(LAST_EVENT)))
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .consistent_read(consistency == Consistency::Strong)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|e| failure("Query", e))?;
        self.meter.read("Query", units(got.consumed_capacity()));
        let has_more = got.last_evaluated_key().is_some();
        let read = |item| items::read_event(&read_item(item));
        let events = got.items.into_iter().flatten().map(read).collect::<Result<_, _>>()?;
        Ok(EventPage { events, has_more })
    }

    async fn decision(
        &self,
        at: &SessionKey,
        id: &str,
        consistency: Consistency,
    ) -> Result<Option<Decision>, StoreError> {
        let got = self.get(&self.tables.state, keys::decision(at, id), consistency).await?;
        got.as_ref().map(read_row).transpose()
    }

    async fn decisions(&self, at: &SessionKey) -> Result<Vec<Decision>, StoreError> {
        let under = PartitionPrefix { pk: &at.to_string(), prefix: keys::DECISION_PREFIX };
        self.all(under, None).await?.iter().map(read_row).collect()
    }

    async fn children(&self, at: &SessionKey) -> Result<Vec<SessionKey>, StoreError> {
        let under = PartitionPrefix { pk: &at.to_string(), prefix: keys::CHILD_PREFIX };
        let child = |item: &Item| {
            let id = |sk: &str| sk.strip_prefix(keys::CHILD_PREFIX).map(SessionId::parse);
            let session = Reader::versioned(item)?.parse("sk", |sk| id(sk).and_then(Result::ok).ok_or(()))?;
            Ok(SessionKey { tenant: at.tenant.clone(), session })
        };
        self.all(under, None).await?.iter().map(child).collect()
    }

    async fn due(
        &self,
        shard: u8,
        now: Millis,
        limit: usize,
        after: Option<DuePlace>,
    ) -> Result<DuePage, StoreError> {
        let shard = AttributeValue::S(keys::due_shard_name(shard));
        let start = after.map(|place| {
            let mut key = sdk_key(keys::head(&place.at));
            key.insert(items::attr::DUE_SHARD.to_owned(), shard.clone());
            key.insert(items::attr::DUE_AT.to_owned(), AttributeValue::N(place.due.0.to_string()));
            key
        });
        let got = self
            .retrying_client
            .query()
            .table_name(&self.tables.state)
            .index_name("due")
            .key_condition_expression("dueShard = :shard AND dueAt <= :now")
            .expression_attribute_values(":shard", shard)
            .expression_attribute_values(":now", AttributeValue::N(now.0.to_string()))
            .set_exclusive_start_key(start)
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|e| failure("Query", e))?;
        self.meter.read("Query", units(got.consumed_capacity()));
        let session = |item: &Item| Reader(item).parse("pk", |pk| SessionKey::parse(pk).ok_or(()));
        let next = match got.last_evaluated_key {
            None => None,
            Some(key) => {
                let key = read_item(key);
                let due = Millis(Reader(&key).number(items::attr::DUE_AT)?);
                Some(DuePlace { at: session(&key)?, due })
            }
        };
        let mut at = Vec::new();
        for item in got.items.into_iter().flatten() {
            at.push(session(&read_item(item))?);
        }
        let mut sessions = Vec::with_capacity(at.len());
        for chunk in at.chunks(100) {
            sessions.extend(self.heads(chunk).await?);
        }
        Ok(DuePage { sessions, next })
    }

    async fn put_partial(
        &self,
        at: &SessionKey,
        now: Millis,
        chunk: &PartialChunk,
    ) -> Result<(), StoreError> {
        self.write_partial(at, now, chunk).await
    }

    async fn partials(&self, at: &SessionKey, after: &str) -> Result<PartialPage, StoreError> {
        self.read_partials(at, after).await
    }

    async fn partials_from_now(&self, at: &SessionKey) -> Result<String, StoreError> {
        self.newest_generation(at).await
    }
}

impl Dynamo {
    /// The heads of many sessions (at most 100), eventually read, in no order.
    async fn heads(&self, at: &[SessionKey]) -> Result<Vec<(SessionKey, Head)>, StoreError> {
        if at.is_empty() {
            return Ok(Vec::new());
        }
        let mut heads = Vec::new();
        for item in self.get_many(at.iter().map(keys::head)).await? {
            let session = Reader(&item).parse("pk", |pk| SessionKey::parse(pk).ok_or(()))?;
            heads.push((session, items::read_head(&item)?));
        }
        // What the batch left out because of its size is read one by one, for the caller asked for all of them.
        if heads.len() < at.len() {
            let missing = |session: &&SessionKey| !heads.iter().any(|(known, _)| known == *session);
            let missing: Vec<SessionKey> = at.iter().filter(missing).cloned().collect();
            for session in missing {
                if let Some(head) = self.head(&session, Consistency::Eventual).await? {
                    heads.push((session, head));
                }
            }
        }
        Ok(heads)
    }
}
