//! Sends a [`Plan`] and reads how it ended.

use std::collections::HashMap;

use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    CancellationReason, ConditionCheck, ConsumedCapacity, Put, ReturnConsumedCapacity,
    ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};

use super::Dynamo;
use super::items::{self, Item, Read};
use crate::plan::{HeadUpdate, Plan};
use crate::port::{Obstacles, StoreError, Written};

/// What a put must find in its place.
const NOTHING_THERE: &str = "attribute_not_exists(pk)";
const OLD: ReturnValuesOnConditionCheckFailure = ReturnValuesOnConditionCheckFailure::AllOld;

/// Whether a failed call may have been carried out. Unknown unless the failure says otherwise.
pub(crate) fn failure<E>(operation: &'static str, error: SdkError<E>) -> StoreError
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let harmless = match &error {
        SdkError::ConstructionFailure(_) => true,
        // Refused at the door. An internal error of the service is not among them: it may come after the write.
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

/// How a transaction of rows ended.
pub(super) enum Transacted {
    Done,
    /// A condition failed.
    Refused,
    /// Another transaction was at the same items.
    Conflict,
}

pub(super) fn unbuilt(error: BuildError) -> StoreError {
    StoreError::NotWritten("a request that lacks a part", Box::new(error))
}

/// Total units of a call.
pub(crate) fn units<'a>(consumed: impl IntoIterator<Item = &'a ConsumedCapacity>) -> Option<f64> {
    consumed.into_iter().map(|capacity| capacity.capacity_units()).sum()
}

impl Dynamo {
    pub(super) async fn send(&self, plan: Plan, token: &str) -> Result<Written, StoreError> {
        if plan.puts.is_empty() {
            return self.update_head(plan.head).await;
        }
        let (puts, absent) = (plan.puts.len(), plan.absent.len());
        let request = self
            .client
            .transact_write_items()
            .set_transact_items(Some(self.actions(plan)?))
            .client_request_token(token)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        match request.send().await {
            Ok(done) => {
                self.meter.wrote("TransactWriteItems", units(done.consumed_capacity()));
                Ok(Written::Committed)
            }
            Err(error) => {
                self.meter.wrote("TransactWriteItems", None);
                match error.as_service_error() {
                    Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                        cancelled_because(cancelled.cancellation_reasons(), puts, absent)
                    }
                    _ => Err(failure("TransactWriteItems", error)),
                }
            }
        }
    }

    fn actions(&self, plan: Plan) -> Result<Vec<TransactWriteItem>, StoreError> {
        let mut actions = Vec::with_capacity(1 + plan.puts.len() + plan.absent.len());
        actions.push(self.head_action(plan.head)?);
        for item in plan.puts {
            let put = Put::builder()
                .table_name(&self.tables.events)
                .set_item(Some(item.into_iter().collect()))
                .condition_expression(NOTHING_THERE)
                .return_values_on_condition_check_failure(OLD)
                .build()
                .map_err(unbuilt)?;
            actions.push(TransactWriteItem::builder().put(put).build());
        }
        for (pk, sk) in plan.absent {
            let check = ConditionCheck::builder()
                .table_name(&self.tables.events)
                .set_key(Some(key((pk, sk))))
                .condition_expression(NOTHING_THERE)
                .return_values_on_condition_check_failure(OLD)
                .build()
                .map_err(unbuilt)?;
            actions.push(TransactWriteItem::builder().condition_check(check).build());
        }
        Ok(actions)
    }

    /// The head's change as a part of a transaction.
    pub(super) fn head_action(&self, head: HeadUpdate) -> Result<TransactWriteItem, StoreError> {
        let update = Update::builder()
            .table_name(&self.tables.state)
            .set_key(Some(key(head.key)))
            .update_expression(head.update)
            .condition_expression(head.condition)
            .set_expression_attribute_names(Some(head.names.into_iter().collect()))
            .set_expression_attribute_values(Some(head.values.into_iter().collect()))
            .return_values_on_condition_check_failure(OLD)
            .build()
            .map_err(unbuilt)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    /// A row of the state table where there is none yet, as a part of a transaction.
    pub(super) fn new_row(&self, new: Item) -> Result<TransactWriteItem, StoreError> {
        let put = Put::builder()
            .table_name(&self.tables.state)
            .set_item(Some(item(new)))
            .condition_expression(NOTHING_THERE)
            .build()
            .map_err(unbuilt)?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    /// Writes rows beside the heads, all or nothing. Why it was refused is not asked.
    pub(super) async fn transact(&self, actions: Vec<TransactWriteItem>) -> Result<Transacted, StoreError> {
        let sent = self
            .client
            .transact_write_items()
            .set_transact_items(Some(actions))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
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

    /// A write of the head alone needs no transaction, and costs half.
    async fn update_head(&self, head: HeadUpdate) -> Result<Written, StoreError> {
        let request = self
            .client
            .update_item()
            .table_name(&self.tables.state)
            .set_key(Some(key(head.key)))
            // A renewal in the same millisecond changes nothing, and must still be refused to who is not the owner (C2).
            .set_update_expression(Some(head.update).filter(|update| !update.is_empty()))
            .condition_expression(head.condition)
            .set_expression_attribute_names(Some(head.names.into_iter().collect()))
            .set_expression_attribute_values(Some(head.values.into_iter().collect()))
            .return_values_on_condition_check_failure(OLD)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        match request.send().await {
            Ok(done) => {
                self.meter.wrote("UpdateItem", units(done.consumed_capacity()));
                Ok(Written::Committed)
            }
            Err(error) => {
                self.meter.wrote("UpdateItem", None);
                match error.as_service_error() {
                    Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                        let head = failed.item().map(items::read_head).transpose()?;
                        Ok(Written::Lost(Obstacles { head, ..Obstacles::default() }))
                    }
                    Some(UpdateItemError::TransactionConflictException(_)) => Ok(Written::Conflict),
                    _ => Err(failure("UpdateItem", error)),
                }
            }
        }
    }
}

pub(crate) fn key((pk, sk): (String, String)) -> Read {
    HashMap::from([
        ("pk".to_owned(), aws_sdk_dynamodb::types::AttributeValue::S(pk)),
        ("sk".to_owned(), aws_sdk_dynamodb::types::AttributeValue::S(sk)),
    ])
}

/// The reasons stand in the order of the actions: the head, the puts, the absence checks. Only failing ones say why,
/// and not every failing one need be named, so what is not named is not concluded from.
fn cancelled_because(
    reasons: &[CancellationReason],
    puts: usize,
    absent: usize,
) -> Result<Written, StoreError> {
    let codes = || reasons.iter().filter_map(CancellationReason::code);
    if codes().any(|code| code == "ConditionalCheckFailed") {
        return obstacles(reasons, puts, absent).map(Written::Lost);
    }
    if codes().any(|code| code == "TransactionConflict") {
        return Ok(Written::Conflict);
    }
    let code = codes().find(|code| *code != "None").unwrap_or("no reason given").to_owned();
    Err(StoreError::NotWritten("TransactWriteItems", code.into()))
}

fn obstacles(reasons: &[CancellationReason], puts: usize, absent: usize) -> Result<Obstacles, StoreError> {
    let mut found = Obstacles::default();
    for (at, reason) in reasons.iter().enumerate() {
        let Some(item) = reason.item() else { continue };
        if at == 0 {
            found.head = Some(items::read_head(item)?);
        } else if at <= puts {
            // An event in an event's place tells nothing that the head does not.
            if is_key(item) {
                found.keys.push(items::read_key(item)?);
            }
        } else if at <= puts + absent {
            found.call = Some(items::read_key(item)?.key);
        }
    }
    Ok(found)
}

fn is_key(item: &Read) -> bool {
    item.get("sk").and_then(|sk| sk.as_s().ok()).is_some_and(|sk| sk.starts_with("k#"))
}

/// An item ready to be put.
pub(crate) fn item(item: Item) -> Read {
    item.into_iter().collect()
}
