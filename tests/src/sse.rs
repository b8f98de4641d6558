//! A reader of streams that gives every frame as it came. It does not reconnect: tests do that themselves.

use eventsource_stream::{EventStream, Eventsource as _};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use serde_json::Value;

use crate::TIMEOUT;

/// A frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Its `event:`; `message` where there was none.
    pub event: String,
    /// Its `id:`, or the last one before it.
    pub id: String,
    /// Its data.
    pub data: Value,
    /// Its `retry:`, in milliseconds.
    pub retry: Option<u128>,
}

/// An open stream.
pub struct Stream(EventStream<BoxStream<'static, Result<Vec<u8>, reqwest::Error>>>);

impl Stream {
    pub(crate) fn new(response: reqwest::Response) -> Self {
        Self(response.bytes_stream().map(|bytes| bytes.map(|bytes| bytes.to_vec())).boxed().eventsource())
    }

    /// The next frame with data; `None` when the stream has ended.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            let event = tokio::time::timeout(TIMEOUT, self.0.next()).await.expect("a frame or the end")?;
            let event = event.ok()?;
            if !event.data.is_empty() {
                return Some(Frame {
                    data: serde_json::from_str(&event.data).expect("data is JSON"),
                    event: event.event,
                    id: event.id,
                    retry: event.retry.map(|retry| retry.as_millis()),
                });
            }
        }
    }

    /// Every frame up to the stream's end.
    pub async fn rest(mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// The next committed frames, this many.
    pub async fn committed(&mut self, count: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        while frames.len() < count {
            let frame = self.next().await.expect("more frames");
            if frame.event == "message" {
                frames.push(frame);
            }
        }
        frames
    }
}
