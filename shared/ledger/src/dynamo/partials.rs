//! The partials table: partials on their way to streams (R3). They are no events: nothing is rebuilt from them, and they
//! expire.

use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};
use keel_kernel::Millis;
use keel_kernel::partial::PartialChunk;

use super::Dynamo;
use super::convert::{read_item, sdk_item};
use super::transact::{failure, units};
use crate::items::{self, Reader, attr};
use crate::keys;
use crate::port::{PartialPage, SessionKey, StoreError};
use crate::value::{Key, Value};

/// How long a partial can be read, in seconds: far longer than a reader needs, and short enough that storage costs nothing.
const TTL_SECONDS: u64 = 900;

impl Dynamo {
    pub(super) async fn write_partial(
        &self,
        at: &SessionKey,
        now: Millis,
        chunk: &PartialChunk,
    ) -> Result<(), StoreError> {
        let mut new = Key::new(at.to_string(), keys::partial_sk(chunk)).item();
        new.extend([
            (attr::VERSION.to_owned(), Value::Number(items::VERSION)),
            ("text".to_owned(), Value::Text(chunk.text.clone())),
            ("ttl".to_owned(), Value::Number(now.0 / 1_000 + TTL_SECONDS)),
        ]);
        if let Some(dead) = &chunk.dead {
            new.insert("dead".to_owned(), Value::Text(dead.clone()));
        }
        let done = self
            .client
            .put_item()
            .table_name(&self.tables.partials)
            .set_item(Some(sdk_item(new)))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|e| failure("PutItem", e))?;
        self.meter.wrote("PutItem", units(done.consumed_capacity()));
        Ok(())
    }

    pub(super) async fn read_partials(
        &self,
        at: &SessionKey,
        after: &str,
    ) -> Result<PartialPage, StoreError> {
        let got = self
            .retrying_client
            .query()
            .table_name(&self.tables.partials)
            .key_condition_expression("pk = :pk AND sk > :after")
            .expression_attribute_values(":pk", AttributeValue::S(at.to_string()))
            // DynamoDB takes no empty sort key; this one sorts before all of them.
            .expression_attribute_values(
                ":after",
                AttributeValue::S(if after.is_empty() { "!" } else { after }.to_owned()),
            )
            .limit(100)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|e| failure("Query", e))?;
        self.meter.read("Query", units(got.consumed_capacity()));
        let mut chunks = Vec::with_capacity(got.items().len());
        for item in got.items.unwrap_or_default() {
            let item = read_item(item);
            let r = Reader::versioned(&item)?;
            let (epoch, generation, index) = r.parse("sk", |sk| keys::read_partial_sk(sk).ok_or(()))?;
            let dead = r.maybe_text("dead")?.map(str::to_owned);
            let text = r.text("text")?.to_owned();
            chunks.push((r.text("sk")?.to_owned(), PartialChunk { epoch, generation, index, text, dead }));
        }
        Ok(chunks)
    }

    pub(super) async fn newest_generation(&self, at: &SessionKey) -> Result<String, StoreError> {
        let got = self
            .retrying_client
            .query()
            .table_name(&self.tables.partials)
            .key_condition_expression("pk = :pk")
            .expression_attribute_values(":pk", AttributeValue::S(at.to_string()))
            .scan_index_forward(false)
            .limit(1)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|e| failure("Query", e))?;
        self.meter.read("Query", units(got.consumed_capacity()));
        let last = got.items.into_iter().flatten().next().map(read_item);
        let sk = last.as_ref().and_then(|item| item.get("sk")).and_then(Value::as_text);
        Ok(sk.and_then(keys::behind_generation).unwrap_or_default())
    }
}
