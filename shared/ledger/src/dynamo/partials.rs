//! Token frames on their way to streams (R3). They are no events: nothing is rebuilt from them, and they expire.

use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};
use keel_kernel::{Epoch, Millis};

use super::Dynamo;
use super::items::{self, Item, Reader, attr};
use super::transact::{failure, item, units};
use crate::port::{SessionKey, StoreError};

/// How long a partial may be read, in seconds: far longer than a reader lags, far shorter than a bill notices.
const TTL_SECONDS: u64 = 900;

/// One chunk of a generation's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialChunk {
    /// The epoch of the owner that generates: a successor's chunks sort behind its predecessor's, whatever their clocks.
    pub epoch: Epoch,
    /// The generation (R3a).
    pub generation: String,
    /// 0-based place of the chunk in its generation.
    pub index: u32,
    /// The text.
    pub text: String,
    /// Set on the last chunk of a generation that will not be committed: why.
    pub dead: Option<String>,
}

impl PartialChunk {
    fn sort_key(&self) -> String {
        format!("{:010}#{}#{:06}", self.epoch.0, self.generation, self.index)
    }

    fn place(sk: &str) -> Option<(Epoch, String, u32)> {
        let (rest, index) = sk.rsplit_once('#')?;
        let (epoch, generation) = rest.split_once('#')?;
        Some((Epoch(epoch.parse().ok()?), generation.to_owned(), index.parse().ok()?))
    }
}

impl Dynamo {
    /// Writes a chunk. A chunk sent twice is the same chunk.
    pub async fn put_partial(
        &self,
        at: &SessionKey,
        now: Millis,
        chunk: &PartialChunk,
    ) -> Result<(), StoreError> {
        let mut new = Item::from([
            ("pk".to_owned(), AttributeValue::S(at.to_string())),
            ("sk".to_owned(), AttributeValue::S(chunk.sort_key())),
            (attr::VERSION.to_owned(), items::number(items::VERSION)),
            ("text".to_owned(), AttributeValue::S(chunk.text.clone())),
            ("ttl".to_owned(), items::number(now.0 / 1_000 + TTL_SECONDS)),
        ]);
        if let Some(dead) = &chunk.dead {
            new.insert("dead".to_owned(), AttributeValue::S(dead.clone()));
        }
        let done = self
            .client
            .put_item()
            .table_name(&self.tables.partials)
            .set_item(Some(item(new)))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|e| failure("PutItem", e))?;
        self.meter.wrote("PutItem", units(done.consumed_capacity()));
        Ok(())
    }

    /// At most 100 chunks after a sort key (`""`: from the first that has not expired), in order. Generation ids sort
    /// by their age, so a later generation's chunks come behind.
    pub async fn partials(
        &self,
        at: &SessionKey,
        after: &str,
    ) -> Result<Vec<(String, PartialChunk)>, StoreError> {
        let got = self
            .retrying_client
            .query()
            .table_name(&self.tables.partials)
            .key_condition_expression("pk = :pk AND sk > :after")
            .expression_attribute_values(":pk", AttributeValue::S(at.to_string()))
            // No sort key is empty; this one sorts before them all.
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
        for item in got.items() {
            let r = Reader::versioned(item)?;
            let (epoch, generation, index) = r.parse("sk", |sk| PartialChunk::place(sk).ok_or(()))?;
            let dead = r.maybe_text("dead")?.map(str::to_owned);
            let text = r.text("text")?.to_owned();
            chunks.push((r.text("sk")?.to_owned(), PartialChunk { epoch, generation, index, text, dead }));
        }
        Ok(chunks)
    }

    /// Where a reader that comes now begins: behind every generation that has begun, since no generation is read from
    /// its middle (R3, R3a).
    pub async fn partials_from_now(&self, at: &SessionKey) -> Result<String, StoreError> {
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
        let last = got.items().first().map(|item| Reader(item).text("sk")).transpose()?;
        // `~` sorts behind every chunk number.
        Ok(last
            .and_then(|sk| sk.rsplit_once('#'))
            .map_or(String::new(), |(generation, _)| format!("{generation}#~")))
    }
}
