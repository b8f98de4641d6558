//! Rows of the state table that are no heads: sessions as described, a tenant's list of them, API keys, and what is due.

use std::collections::HashMap;

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, KeysAndAttributes, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure,
};
use keel_kernel::{Head, Millis, SessionId, TenantId};

use super::items::{self, Item, Reader, attr};
use super::reads::PartitionPrefix;
use super::row::{ROW, read_row, row_item};
use super::transact::{Transacted, failure, key, units};
use super::{Dynamo, keys};
use crate::port::{Consistency, SessionKey, StoreError};
use crate::sessions::{ApiKeyRow, Created, Meta, Patched, Session, SessionPage};

/// A session's revision, beside its row so that a condition can see it.
const REVISION: &str = "rev";
const TOTAL: ReturnConsumedCapacity = ReturnConsumedCapacity::Total;

fn meta_item(at: &SessionKey, meta: &Meta) -> Item {
    let mut item = row_item(&at.to_string(), keys::META.to_owned(), meta);
    item.insert(REVISION.to_owned(), items::number(meta.revision));
    item
}

/// A page of the index of due sessions.
#[derive(Debug)]
pub struct DuePage {
    /// The sessions, with their heads as they are.
    pub sessions: Vec<(SessionKey, Head)>,
    /// Where the next page begins, if there may be more.
    pub next: Option<DuePlace>,
}

/// A place in the index of due sessions. Good for as long as anybody keeps it: what is gone by then is passed over.
#[derive(Clone, Debug)]
pub struct DuePlace(HashMap<String, AttributeValue>);

impl Dynamo {
    /// Writes a new session: head, description, its place in the tenant's list and, of a child, in its parent's; or
    /// nothing.
    pub async fn create(&self, at: &SessionKey, meta: &Meta, head: &Head) -> Result<Created, StoreError> {
        let listed = Item::from([
            ("pk".to_owned(), AttributeValue::S(at.tenant.to_string())),
            ("sk".to_owned(), AttributeValue::S(keys::session_row(meta.created(), &at.session))),
            (attr::VERSION.to_owned(), items::number(items::VERSION)),
        ]);
        let mut actions = Vec::new();
        let mut news = vec![items::head_attributes(at, head), meta_item(at, meta), listed];
        news.extend(meta.child_of.as_ref().map(|child_of| super::waits::child_item(at, child_of)));
        for new in news {
            actions.push(self.new_row(new)?);
        }
        match self.transact(actions).await? {
            Transacted::Done => Ok(Created::Now(Session { meta: meta.clone(), head: head.clone() })),
            Transacted::Refused => match self.session(at).await? {
                Some(session) => Ok(Created::Before(session)),
                None => Err(StoreError::NotWritten("TransactWriteItems", "a row of it was there".into())),
            },
            Transacted::Conflict => Err(StoreError::NotWritten("TransactWriteItems", "conflict".into())),
        }
    }

    /// A session, strongly read.
    pub async fn session(&self, at: &SessionKey) -> Result<Option<Session>, StoreError> {
        let got = self
            .retrying_client
            .query()
            .table_name(&self.tables.state)
            // Decisions and children sort before.
            .key_condition_expression("pk = :pk AND sk BETWEEN :head AND :meta")
            .expression_attribute_values(":pk", AttributeValue::S(at.to_string()))
            .expression_attribute_values(":head", AttributeValue::S(keys::HEAD.to_owned()))
            .expression_attribute_values(":meta", AttributeValue::S(keys::META.to_owned()))
            .consistent_read(true)
            .return_consumed_capacity(TOTAL)
            .send()
            .await
            .map_err(|e| failure("Query", e))?;
        self.meter.read("Query", units(got.consumed_capacity()));
        let find = |sk: &str| {
            got.items()
                .iter()
                .find(|item| item.get("sk").and_then(|v| v.as_s().ok()).is_some_and(|s| s == sk))
        };
        match (find(keys::HEAD), find(keys::META)) {
            (Some(head), Some(meta)) => {
                Ok(Some(Session { head: items::read_head(head)?, meta: read_row(meta)? }))
            }
            _ => Ok(None),
        }
    }

    /// Writes a description that was read with the revision before `meta`'s.
    pub async fn patch(&self, at: &SessionKey, meta: &Meta) -> Result<Patched, StoreError> {
        let mut row = meta_item(at, meta);
        let take = |row: &mut Item, name: &str| row.remove(name).expect("put there above");
        let sent = self
            .client
            .update_item()
            .table_name(&self.tables.state)
            .set_key(Some(key((at.to_string(), keys::META.to_owned()))))
            .update_expression("SET #row = :row, #rev = :rev")
            .condition_expression("#rev = :old")
            .expression_attribute_names("#row", ROW)
            .expression_attribute_names("#rev", REVISION)
            .expression_attribute_values(":row", take(&mut row, ROW))
            .expression_attribute_values(":rev", take(&mut row, REVISION))
            .expression_attribute_values(":old", items::number(meta.revision - 1))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .return_consumed_capacity(TOTAL)
            .send()
            .await;
        match sent {
            Ok(done) => {
                self.meter.wrote("UpdateItem", units(done.consumed_capacity()));
                Ok(Patched::Now(meta.clone()))
            }
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                    let found: Option<Meta> = failed.item().map(read_row).transpose()?;
                    Ok(Patched::Stale(found.map_or(0, |meta| meta.revision)))
                }
                _ => Err(failure("UpdateItem", error)),
            },
        }
    }

    /// A page of a tenant's sessions, newest first, from behind the row with sort key `after`.
    pub async fn list(
        &self,
        tenant: &TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        let under = PartitionPrefix { pk: tenant.as_str(), prefix: keys::SESSION_PREFIX };
        let (rows, next) = self.page(under, after, limit, false).await?;
        let mut at = Vec::new();
        for item in &rows {
            let id = Reader::versioned(item)?
                .parse("sk", |sk| SessionId::parse(sk.rsplit('#').next().unwrap_or("")))?;
            at.push(SessionKey { tenant: tenant.clone(), session: id });
        }
        let mut sessions = Vec::with_capacity(at.len());
        for chunk in at.chunks(50) {
            sessions.extend(self.sessions(chunk).await?);
        }
        Ok(SessionPage { sessions, next })
    }

    /// Head and description of each session, at most 100, in the order asked for.
    pub async fn sessions(&self, at: &[SessionKey]) -> Result<Vec<Session>, StoreError> {
        if at.is_empty() {
            return Ok(Vec::new());
        }
        let heads = self.read_heads(at).await?;
        let mut wanted = KeysAndAttributes::builder();
        for session in at {
            wanted = wanted.keys(key((session.to_string(), keys::META.to_owned())));
        }
        let wanted = wanted.build().map_err(|e| StoreError::NotWritten("BatchGetItem", Box::new(e)))?;
        let got = self
            .retrying_client
            .batch_get_item()
            .request_items(&self.tables.state, wanted)
            .return_consumed_capacity(TOTAL)
            .send()
            .await
            .map_err(|e| failure("BatchGetItem", e))?;
        self.meter.read("BatchGetItem", units(got.consumed_capacity()));
        let metas: Vec<Meta> = got
            .responses()
            .and_then(|tables| tables.get(&self.tables.state))
            .into_iter()
            .flatten()
            .map(read_row)
            .collect::<Result<_, _>>()?;
        let mut sessions = Vec::with_capacity(at.len());
        for session in at {
            let head = heads.iter().find(|(known, _)| known == session).map(|(_, head)| head.clone());
            let meta = metas.iter().find(|meta| meta.session_id == session.session).cloned();
            match (head, meta) {
                (Some(head), Some(meta)) => sessions.push(Session { meta, head }),
                // Left out of a batch for its size, or listed a moment before it could be read.
                _ => sessions.extend(self.session(session).await?),
            }
        }
        Ok(sessions)
    }

    /// Writes an API key's row, in the place of an older one with its id.
    pub async fn put_api_key(&self, tenant: &TenantId, id: &str, row: &ApiKeyRow) -> Result<(), StoreError> {
        self.put_setting(tenant, keys::api_key(id), row).await
    }

    /// An API key's row.
    pub async fn api_key(&self, tenant: &TenantId, id: &str) -> Result<Option<ApiKeyRow>, StoreError> {
        let place = (tenant.to_string(), keys::api_key(id));
        let got = self.get(&self.tables.state, place, Consistency::Eventual).await?;
        got.as_ref().map(read_row).transpose()
    }

    /// At most `limit` sessions of an index partition that are due, the longest due first, with their heads. `after` goes
    /// on where an earlier page ended.
    pub async fn due(
        &self,
        shard: u8,
        now: Millis,
        limit: usize,
        after: Option<DuePlace>,
    ) -> Result<DuePage, StoreError> {
        let got = self
            .retrying_client
            .query()
            .table_name(&self.tables.state)
            .index_name("due")
            .key_condition_expression("dueShard = :shard AND dueAt <= :now")
            .expression_attribute_values(":shard", AttributeValue::S(keys::due_shard_name(shard)))
            .expression_attribute_values(":now", items::number(now.0))
            .set_exclusive_start_key(after.map(|place| place.0))
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .return_consumed_capacity(TOTAL)
            .send()
            .await
            .map_err(|e| failure("Query", e))?;
        self.meter.read("Query", units(got.consumed_capacity()));
        let mut at = Vec::new();
        for item in got.items() {
            let (tenant, session) = Reader(item).parse("pk", |pk| pk.split_once('#').ok_or(()))?;
            let bad = |_| StoreError::Corrupt("the key of a due session".to_owned());
            at.push(SessionKey {
                tenant: TenantId::parse(tenant).map_err(bad)?,
                session: SessionId::parse(session).map_err(bad)?,
            });
        }
        let mut sessions = Vec::with_capacity(at.len());
        for chunk in at.chunks(100) {
            sessions.extend(self.read_heads(chunk).await?);
        }
        Ok(DuePage { sessions, next: got.last_evaluated_key.map(DuePlace) })
    }

    /// The head as a stream or a watcher may see it: possibly a moment old.
    pub async fn head_eventual(&self, at: &SessionKey) -> Result<Option<Head>, StoreError> {
        self.read_head(at, Consistency::Eventual).await
    }
}
