//! What runs wait for (H): decisions and children, as rows beside the head.

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{AttributeValue, Delete, Put, ReturnConsumedCapacity, TransactWriteItem};
use keel_kernel::approval::Approval;
use keel_kernel::{Decision, Head, SessionId, TenantId};

use super::items::{self, Item, Reader, attr};
use super::row::{read_row, row_item};
use super::transact::{failure, item, key, units};
use super::{Dynamo, keys};
use crate::plan::plan;
use crate::port::{SessionKey, StoreError};
use crate::sessions::ChildOf;

const TOTAL: ReturnConsumedCapacity = ReturnConsumedCapacity::Total;
const NOTHING_THERE: &str = "attribute_not_exists(pk)";
/// Present on a decision's row while nobody has answered it, so that a condition can see it.
const OPEN: &str = "open";

/// A child's place in its parent's list.
pub(super) fn child_item(child: &SessionKey, of: &ChildOf) -> Item {
    let parent = SessionKey { tenant: child.tenant.clone(), session: of.parent.clone() };
    Item::from([
        ("pk".to_owned(), AttributeValue::S(parent.to_string())),
        ("sk".to_owned(), AttributeValue::S(format!("{}{}", keys::CHILD_PREFIX, child.session))),
        (attr::VERSION.to_owned(), items::number(items::VERSION)),
    ])
}

fn unbuilt(e: aws_sdk_dynamodb::error::BuildError) -> StoreError {
    StoreError::NotWritten("TransactWriteItems", Box::new(e))
}

impl Dynamo {
    /// H2: opens a decision and puts it into the tenant's list. One that is there already stays as it is.
    pub async fn open_approval(&self, at: &SessionKey, approval: &Approval) -> Result<(), StoreError> {
        let mut row = row_item(&at.to_string(), keys::approval(&approval.id), approval);
        row.insert(OPEN.to_owned(), AttributeValue::Bool(true));
        let listed =
            row_item(at.tenant.as_str(), keys::open_approval(approval.opened_ms, &approval.id), &approval.id);
        let mut actions = Vec::new();
        for new in [row, listed] {
            let put = Put::builder()
                .table_name(&self.tables.state)
                .set_item(Some(item(new)))
                .condition_expression(NOTHING_THERE)
                .build()
                .map_err(unbuilt)?;
            actions.push(TransactWriteItem::builder().put(put).build());
        }
        match self.transact(actions).await? {
            Transacted::Done | Transacted::Refused => Ok(()),
            Transacted::Conflict => Err(StoreError::NotWritten("TransactWriteItems", "conflict".into())),
        }
    }

    /// A decision, strongly read.
    pub async fn approval(&self, at: &SessionKey, id: &str) -> Result<Option<Approval>, StoreError> {
        let got = self
            .patient
            .get_item()
            .table_name(&self.tables.state)
            .set_key(Some(key((at.to_string(), keys::approval(id)))))
            .consistent_read(true)
            .return_consumed_capacity(TOTAL)
            .send()
            .await
            .map_err(|e| failure("GetItem", e))?;
        self.meter.read("GetItem", units(got.consumed_capacity()));
        got.item().map(read_row).transpose()
    }

    /// A session's decisions, answered ones too, strongly read: those of its last calls among the first 1 MB.
    pub async fn approvals(&self, at: &SessionKey) -> Result<Vec<Approval>, StoreError> {
        let mut approvals = Vec::new();
        let mut start = None;
        loop {
            let got = self
                .patient
                .query()
                .table_name(&self.tables.state)
                .key_condition_expression("pk = :pk AND begins_with(sk, :prefix)")
                .expression_attribute_values(":pk", AttributeValue::S(at.to_string()))
                .expression_attribute_values(":prefix", AttributeValue::S(keys::APPROVAL_PREFIX.to_owned()))
                .consistent_read(true)
                .set_exclusive_start_key(start)
                .return_consumed_capacity(TOTAL)
                .send()
                .await
                .map_err(|e| failure("Query", e))?;
            self.meter.read("Query", units(got.consumed_capacity()));
            for item in got.items() {
                approvals.push(read_row(item)?);
            }
            start = got.last_evaluated_key;
            if start.is_none() {
                return Ok(approvals);
            }
        }
    }

    /// The names of a tenant's open decisions, oldest first, from behind a sort key; and where the next page begins.
    pub async fn open_approvals(
        &self,
        tenant: &TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<String>, Option<String>), StoreError> {
        let got = self
            .patient
            .query()
            .table_name(&self.tables.state)
            .key_condition_expression("pk = :pk AND begins_with(sk, :prefix)")
            .expression_attribute_values(":pk", AttributeValue::S(tenant.to_string()))
            .expression_attribute_values(":prefix", AttributeValue::S(keys::OPEN_PREFIX.to_owned()))
            .set_exclusive_start_key(after.map(|sk| key((tenant.to_string(), sk.to_owned()))))
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .return_consumed_capacity(TOTAL)
            .send()
            .await
            .map_err(|e| failure("Query", e))?;
        self.meter.read("Query", units(got.consumed_capacity()));
        let ids = got.items().iter().map(read_row).collect::<Result<_, _>>()?;
        let next = got.last_evaluated_key().and_then(|key| key.get("sk")).and_then(|sk| sk.as_s().ok());
        Ok((ids, next.cloned()))
    }

    /// H1, H2: writes a decision's answer where there is none yet and, in the same write, what it makes of the head. False:
    /// something moved meanwhile; look again.
    pub(crate) async fn write_answer(
        &self,
        at: &SessionKey,
        before: &Head,
        nudged: Option<&Decision>,
        answered: &Approval,
    ) -> Result<bool, StoreError> {
        let put = Put::builder()
            .table_name(&self.tables.state)
            .set_item(Some(item(row_item(&at.to_string(), keys::approval(&answered.id), answered))))
            .condition_expression("attribute_exists(#open)")
            .expression_attribute_names("#open", OPEN)
            .build()
            .map_err(unbuilt)?;
        let listed = keys::open_approval(answered.opened_ms, &answered.id);
        let unlist = Delete::builder()
            .table_name(&self.tables.state)
            .set_key(Some(key((at.tenant.to_string(), listed))))
            .build()
            .map_err(unbuilt)?;
        let mut actions = vec![
            TransactWriteItem::builder().put(put).build(),
            TransactWriteItem::builder().delete(unlist).build(),
        ];
        if let Some(nudged) = nudged {
            actions.push(self.head_action(plan(at, before, nudged).head)?);
        }
        Ok(matches!(self.transact(actions).await?, Transacted::Done))
    }

    /// Takes an expired or abandoned decision off the tenant's list.
    pub async fn unlist_approval(&self, at: &SessionKey, approval: &Approval) -> Result<(), StoreError> {
        let listed = keys::open_approval(approval.opened_ms, &approval.id);
        self.remove_setting(&at.tenant, listed).await.map(drop)
    }

    /// The ids of a session's children.
    pub async fn children(&self, at: &SessionKey) -> Result<Vec<SessionId>, StoreError> {
        let got = self
            .patient
            .query()
            .table_name(&self.tables.state)
            .key_condition_expression("pk = :pk AND begins_with(sk, :prefix)")
            .expression_attribute_values(":pk", AttributeValue::S(at.to_string()))
            .expression_attribute_values(":prefix", AttributeValue::S(keys::CHILD_PREFIX.to_owned()))
            .consistent_read(true)
            .return_consumed_capacity(TOTAL)
            .send()
            .await
            .map_err(|e| failure("Query", e))?;
        self.meter.read("Query", units(got.consumed_capacity()));
        got.items()
            .iter()
            .map(|item| {
                let id = |sk: &str| sk.strip_prefix(keys::CHILD_PREFIX).map(SessionId::parse);
                Reader::versioned(item)?.parse("sk", |sk| id(sk).and_then(Result::ok).ok_or(()))
            })
            .collect()
    }

    async fn transact(&self, actions: Vec<TransactWriteItem>) -> Result<Transacted, StoreError> {
        let sent = self
            .client
            .transact_write_items()
            .set_transact_items(Some(actions))
            .return_consumed_capacity(TOTAL)
            .send()
            .await;
        match sent {
            Ok(done) => {
                self.meter.wrote("TransactWriteItems", units(done.consumed_capacity()));
                Ok(Transacted::Done)
            }
            Err(error) => {
                self.meter.wrote("TransactWriteItems", None);
                let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) =
                    error.as_service_error()
                else {
                    return Err(failure("TransactWriteItems", error));
                };
                let has = |code| cancelled.cancellation_reasons().iter().any(|r| r.code() == Some(code));
                if has("ConditionalCheckFailed") {
                    Ok(Transacted::Refused)
                } else if has("TransactionConflict") {
                    Ok(Transacted::Conflict)
                } else {
                    Err(StoreError::NotWritten("TransactWriteItems", "cancelled".into()))
                }
            }
        }
    }
}

enum Transacted {
    Done,
    /// A condition failed.
    Refused,
    /// Another transaction was at the same items.
    Conflict,
}
