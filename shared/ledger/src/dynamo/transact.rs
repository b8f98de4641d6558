//! Sends a [`Plan`] and reads how that ended: written, lost, in conflict, or failed.

use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{CancellationReason, ConsumedCapacity, ReturnConsumedCapacity};
use keel_kernel::Obstacles;

use super::Dynamo;
use super::convert::{SdkItem, read_item, sdk_key};
use super::plan::{Rendered, filled, returned, transaction};
use crate::items;
use crate::plan::{Action, Plan, Role, Table, Write};
use crate::port::{StoreError, Written};
use crate::value::{Key, Value};

const TOTAL: ReturnConsumedCapacity = ReturnConsumedCapacity::Total;

/// A failed call as a [`StoreError`]: it may have been carried out, unless the failure rules that out.
pub(crate) fn failure<E>(operation: &'static str, error: SdkError<E>) -> StoreError
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let harmless = match &error {
        SdkError::ConstructionFailure(_) => true,
        // The service refused the call before it did anything. Its internal errors are not among these: they may come after
        // the write.
        SdkError::ServiceError(service) => matches!(
            service.err().code(),
            Some(
                "ThrottlingException"
                    | "ProvisionedThroughputExceededException"
                    | "RequestLimitExceeded"
                    | "ValidationException"
                    | "ResourceNotFoundException"
                    | "AccessDeniedException"
                    | "UnrecognizedClientException"
                    | "TransactionInProgressException"
                    | "IdempotentParameterMismatchException"
            )
        ),
        _ => false,
    };
    if harmless {
        StoreError::NotWritten(operation, Box::new(error))
    } else {
        StoreError::Unknown(operation, Box::new(error))
    }
}

fn unbuilt(error: BuildError) -> StoreError {
    StoreError::NotWritten("a request that lacks a part", Box::new(error))
}

/// The units of a call, over all tables. `None`: a part of them is not known.
pub(crate) fn units<'a>(consumed: impl IntoIterator<Item = &'a ConsumedCapacity>) -> Option<f64> {
    consumed.into_iter().map(|capacity| capacity.capacity_units()).sum()
}

/// Records what the failed condition of a write was about.
fn obstacle(found: &mut Obstacles, role: Role, item: Option<&SdkItem>) -> Result<(), StoreError> {
    let item = item.cloned().map(read_item);
    match (role, item) {
        (Role::Head, Some(item)) => found.head = Some(items::read_head(&item)?),
        (Role::Key, Some(item)) if is_key(&item) => found.keys.push(items::read_key(&item)?),
        (Role::Call, Some(item)) => found.call = Some(items::read_key(&item)?.key),
        (Role::Row, _) => found.row = true,
        // That another event is in an event's place says no more than the head does.
        (Role::Event | Role::Key, Some(_)) | (Role::Head | Role::Event | Role::Key | Role::Call, None) => {}
    }
    Ok(())
}

fn is_key(item: &crate::value::Item) -> bool {
    item.get("sk").and_then(Value::as_text).is_some_and(|sk| sk.starts_with("k#"))
}

impl Dynamo {
    /// Sends a plan. A change of a single item needs no transaction, and then costs half.
    pub(super) async fn send(&self, plan: Plan, token: &str) -> Result<Written, StoreError> {
        match <[Write; 1]>::try_from(plan.writes) {
            Ok([only]) => match only.action {
                Action::Update { .. } => self.update_one(only).await,
                Action::Delete if only.conditions.is_empty() => self.delete_one(only.table, only.key).await,
                Action::Put(_) | Action::Delete | Action::Check => {
                    self.transact(Plan { writes: vec![only] }, token).await
                }
            },
            Err(writes) if writes.is_empty() => Ok(Written::Committed),
            Err(writes) => self.transact(Plan { writes }, token).await,
        }
    }

    /// Sends a plan as it is, for tests that break a plan on purpose.
    ///
    /// # Errors
    /// Those of [`Store::write`](crate::Store::write).
    #[cfg(feature = "testing")]
    pub async fn send_plan(&self, plan: Plan, token: &str) -> Result<Written, StoreError> {
        self.send(plan, token).await
    }

    async fn transact(&self, plan: Plan, token: &str) -> Result<Written, StoreError> {
        let roles: Vec<Role> = plan.writes.iter().map(|write| write.role).collect();
        let request = self
            .client
            .transact_write_items()
            .set_transact_items(Some(transaction(&self.tables, plan).map_err(unbuilt)?))
            .client_request_token(token)
            .return_consumed_capacity(TOTAL);
        match request.send().await {
            Ok(done) => {
                self.meter.wrote("TransactWriteItems", units(done.consumed_capacity()));
                Ok(Written::Committed)
            }
            Err(error) => {
                self.meter.wrote("TransactWriteItems", None);
                match error.as_service_error() {
                    Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                        cancelled_because(cancelled.cancellation_reasons(), &roles)
                    }
                    _ => Err(failure("TransactWriteItems", error)),
                }
            }
        }
    }

    async fn update_one(&self, write: Write) -> Result<Written, StoreError> {
        let Rendered { update, condition, names, values } = Rendered::of(&write);
        let sent = self
            .client
            .update_item()
            .table_name(self.tables.name(write.table))
            .set_key(Some(sdk_key(write.key)))
            // A renewal in the same millisecond changes nothing. It is sent all the same, since its conditions must fail for
            // whoever is not the owner (C2).
            .set_update_expression(update)
            .set_condition_expression(condition)
            .set_expression_attribute_names(filled(names))
            .set_expression_attribute_values(filled(values))
            .set_return_values_on_condition_check_failure(returned(write.role))
            .return_consumed_capacity(TOTAL)
            .send()
            .await;
        self.meter.wrote("UpdateItem", sent.as_ref().ok().and_then(|done| units(done.consumed_capacity())));
        let Err(error) = sent else { return Ok(Written::Committed) };
        match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                let mut found = Obstacles::default();
                obstacle(&mut found, write.role, failed.item())?;
                Ok(Written::Lost(found))
            }
            Some(UpdateItemError::TransactionConflictException(_)) => Ok(Written::Conflict),
            _ => Err(failure("UpdateItem", error)),
        }
    }

    async fn delete_one(&self, table: Table, key: Key) -> Result<Written, StoreError> {
        let delete =
            self.client.delete_item().table_name(self.tables.name(table)).set_key(Some(sdk_key(key)));
        let sent = delete.return_consumed_capacity(TOTAL).send().await;
        self.meter.wrote("DeleteItem", sent.as_ref().ok().and_then(|done| units(done.consumed_capacity())));
        let Err(error) = sent else { return Ok(Written::Committed) };
        match error.as_service_error() {
            Some(DeleteItemError::TransactionConflictException(_)) => Ok(Written::Conflict),
            _ => Err(failure("DeleteItem", error)),
        }
    }
}

/// Why a transaction was cancelled. The reasons have the order of the writes. DynamoDB need not name every write that
/// failed, so nothing follows from a reason that is missing.
fn cancelled_because(reasons: &[CancellationReason], roles: &[Role]) -> Result<Written, StoreError> {
    const FAILED: &str = "ConditionalCheckFailed";
    let codes = || reasons.iter().filter_map(CancellationReason::code);
    if codes().any(|code| code == FAILED) {
        let mut found = Obstacles::default();
        for (reason, role) in reasons.iter().zip(roles).filter(|(reason, _)| reason.code() == Some(FAILED)) {
            obstacle(&mut found, *role, reason.item())?;
        }
        return Ok(Written::Lost(found));
    }
    if codes().any(|code| code == "TransactionConflict") {
        return Ok(Written::Conflict);
    }
    let code = codes().find(|code| *code != "None").unwrap_or("no reason given").to_owned();
    Err(StoreError::NotWritten("TransactWriteItems", code.into()))
}
