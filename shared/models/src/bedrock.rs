//! Amazon Bedrock, by ConverseStream, with the function's own role.

use std::sync::Arc;

use aws_sdk_bedrockruntime::Client;
use aws_sdk_bedrockruntime::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_bedrockruntime::operation::converse_stream::ConverseStreamOutput;
use aws_sdk_bedrockruntime::primitives::Blob;
use aws_sdk_bedrockruntime::types::{
    CachePointBlock, CachePointType, ContentBlock, ContentBlockDelta, ContentBlockStart, ConversationRole,
    ConverseStreamOutput as Event, ImageBlock, ImageFormat, ImageSource, InferenceConfiguration,
    Message as BedrockMessage, ReasoningContentBlock, ReasoningContentBlockDelta, ReasoningTextBlock,
    StopReason as Stop, SystemContentBlock, Tool, ToolConfiguration, ToolInputSchema, ToolResultBlock,
    ToolResultContentBlock, ToolResultStatus, ToolSpecification, ToolUseBlock,
};
use aws_smithy_types::{Document, Number};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use keel_agent::Provider;
use keel_agent::provider::{Block, Delta, Message, ModelAnswer, Request, StopReason, Usage, text_of};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use crate::RetryPolicy;
use crate::context::{Image, arguments, blocks_of, call_id, images_of};
use crate::http::{Failure, pause};

/// The provider's name, as the ledger shows it.
pub const NAME: &str = "bedrock";

/// A model on Bedrock.
pub struct Bedrock {
    client: Client,
    model: String,
    max_tokens: Option<u32>,
    retry_policy: RetryPolicy,
}

impl Bedrock {
    /// A model by its id or inference profile.
    pub fn new(client: Client, model: String, max_tokens: Option<u32>, retry_policy: RetryPolicy) -> Self {
        Self { client, model, max_tokens, retry_policy }
    }
}

impl Provider for Bedrock {
    fn name(&self) -> &str {
        NAME
    }

    fn model(&self, wanted: Option<&str>) -> String {
        wanted.unwrap_or(&self.model).to_owned()
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Delta> {
        let model = self.model(request.model.as_deref());
        let (client, retry_policy, max_tokens) =
            (self.client.clone(), self.retry_policy.clone(), self.max_tokens);
        let request = Arc::new(request);
        async_stream::stream! {
            let mut pauses = retry_policy.pauses.iter();
            loop {
                let mut reading = Reading::default();
                let mut silent = true;
                let failure = match send(&client, &model, max_tokens, &request, &retry_policy).await {
                    Err(failure) => failure,
                    Ok(mut answer) => loop {
                        match timeout(retry_policy.idle, answer.stream.recv()).await {
                            Err(_) => break Failure::transient("the stream stalled"),
                            Ok(Err(error)) => break failed(&error),
                            // The usage comes behind the end of the message, as the last event.
                            Ok(Ok(None)) if reading.stop.is_some() => {
                                yield Delta::Done(reading.finish());
                                return;
                            }
                            Ok(Ok(None)) => break Failure::transient("the stream ended in the middle"),
                            Ok(Ok(Some(event))) => {
                                if let Some(text) = reading.read_event(event) {
                                    silent = false;
                                    yield Delta::Text(text);
                                }
                            }
                        }
                    },
                };
                let pause = if silent { pause(&failure, &mut pauses, &retry_policy) } else { None };
                let Some(pause) = pause else {
                    let answer = if failure.overflow { ModelAnswer::overflowed } else { ModelAnswer::failed };
                    yield Delta::Done(answer(failure.what));
                    return;
                };
                tracing::info!(
                    provider = NAME, pause_ms = pause.as_millis(), why = %failure,
                    "a request to a model failed and is sent again after a pause"
                );
                tokio::time::sleep(pause).await;
            }
        }
        .boxed()
    }
}

async fn send(
    client: &Client,
    model: &str,
    max_tokens: Option<u32>,
    request: &Request,
    retry_policy: &RetryPolicy,
) -> Result<ConverseStreamOutput, Failure> {
    let unbuilt = |_| Failure::permanent("the request could not be made");
    let mut call = client.converse_stream().model_id(model);
    for message in messages(&request.messages, model)? {
        call = call.messages(message);
    }
    if let Some(system) = request.system.as_deref().filter(|system| !system.is_empty()) {
        call = call.system(SystemContentBlock::Text(system.to_owned()));
    }
    if let Some(most) = max_tokens {
        let most = i32::try_from(most).unwrap_or(i32::MAX);
        call = call.inference_config(InferenceConfiguration::builder().max_tokens(most).build());
    }
    if !request.tools.is_empty() {
        let mut tools = ToolConfiguration::builder();
        for tool in &request.tools {
            // An empty description is refused.
            let description = Some(tool.description.clone()).filter(|text| !text.is_empty());
            let spec = ToolSpecification::builder()
                .name(&tool.name)
                .set_description(description)
                .input_schema(ToolInputSchema::Json(document(&tool.parameters)))
                .build()
                .map_err(unbuilt)?;
            tools = tools.tools(Tool::ToolSpec(spec));
        }
        call = call.tool_config(tools.build().map_err(unbuilt)?);
    }
    match timeout(retry_policy.idle, call.send()).await {
        Err(_) => Err(Failure::transient("the model did not answer in time")),
        Ok(answer) => answer.map_err(|error| failed(&error)),
    }
}

/// What went wrong, in the service's own words, shortened. They hold no credential.
fn failed<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> Failure {
    let SdkError::ServiceError(service) = error else {
        return Failure::transient("the model could not be reached");
    };
    let code = service.err().code().unwrap_or("an error");
    let words: String = service.err().message().unwrap_or_default().chars().take(500).collect();
    let overflow = code == "ValidationException" && is_too_long(&words);
    let is_transient = matches!(
        code,
        "ThrottlingException"
            | "ModelNotReadyException"
            | "ModelTimeoutException"
            | "ModelStreamErrorException"
            | "InternalServerException"
            | "ServiceUnavailableException"
    );
    Failure { what: format!("the model failed: {code}: {words}"), is_transient, after: None, overflow }
}

fn is_too_long(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    ["too long", "context length", "context window", "maximum tokens", "too many input tokens"]
        .iter()
        .any(|phrase| words.contains(phrase))
}

/// The context as messages: the roles alternate, and tool results come before the user's text that follows them.
fn messages(context: &[Message], model: &str) -> Result<Vec<BedrockMessage>, Failure> {
    let mut turns: Vec<(ConversationRole, Vec<ContentBlock>)> = Vec::new();
    for message in context {
        let (role, blocks) = match message {
            Message::Summary(summary) => (ConversationRole::User, vec![ContentBlock::Text(summary.clone())]),
            Message::User(payload) => (ConversationRole::User, user_content(payload)),
            Message::ToolResult(payload) => (ConversationRole::User, vec![result(payload)?]),
            Message::Assistant(payload) => (ConversationRole::Assistant, assistant_content(payload, model)?),
        };
        let blocks =
            blocks.into_iter().filter(|block| !matches!(block, ContentBlock::Text(text) if text.is_empty()));
        match turns.last_mut().filter(|(last, _)| *last == role) {
            Some((_, all)) => all.extend(blocks),
            None => turns.push((role, blocks.collect())),
        }
    }
    turns.retain(|(_, blocks)| !blocks.is_empty());
    // The next request begins with this context, so it is marked for the cache.
    if let (Some((_, last)), true) = (turns.last_mut(), model.contains("anthropic")) {
        let point = CachePointBlock::builder().r#type(CachePointType::Default).build();
        last.push(ContentBlock::CachePoint(
            point.map_err(|_| Failure::permanent("the request could not be made"))?,
        ));
    }
    turns
        .into_iter()
        .map(|(role, blocks)| {
            let message = BedrockMessage::builder().role(role).set_content(Some(blocks)).build();
            message.map_err(|_| Failure::permanent("the request could not be made"))
        })
        .collect()
}

fn user_content(payload: &Value) -> Vec<ContentBlock> {
    let image = |image: &Image<'_>| match image {
        Image::Inline(kind, data) => {
            let bytes = STANDARD.decode(data).ok()?;
            let format = ImageFormat::from(kind.strip_prefix("image/")?);
            let block = ImageBlock::builder().format(format).source(ImageSource::Bytes(Blob::new(bytes)));
            block.build().ok().map(ContentBlock::Image)
        }
        // Bedrock does not fetch addresses: the model gets a note instead.
        Image::Url(url) => Some(ContentBlock::Text(format!("[an image at {url}, not shown]"))),
    };
    let mut blocks: Vec<ContentBlock> = images_of(payload).iter().filter_map(image).collect();
    blocks.push(ContentBlock::Text(text_of(payload)));
    blocks
}

fn result(payload: &Value) -> Result<ContentBlock, Failure> {
    let status = if payload["isError"] == true { ToolResultStatus::Error } else { ToolResultStatus::Success };
    ToolResultBlock::builder()
        .tool_use_id(call_id(payload["toolCallId"].as_str().unwrap_or_default()))
        .content(ToolResultContentBlock::Text(text_of(payload)))
        .status(status)
        .build()
        .map(ContentBlock::ToolResult)
        .map_err(|_| Failure::permanent("the request could not be made"))
}

/// The blocks of an assistant message. Thinking is sent only to the model that produced it: no other accepts its signature.
fn assistant_content(payload: &Value, model: &str) -> Result<Vec<ContentBlock>, Failure> {
    let ours = payload["provider"] == NAME && payload["model"] == model;
    let unbuilt = |_| Failure::permanent("the request could not be made");
    let mut content = Vec::new();
    for block in blocks_of(payload) {
        let text = |member: &str| block[member].as_str().unwrap_or_default().to_owned();
        match block["type"].as_str() {
            Some("text") => content.push(ContentBlock::Text(text("text"))),
            Some("toolCall") => {
                let input = if block["arguments"].is_object() {
                    document(&block["arguments"])
                } else {
                    document(&json!({}))
                };
                let call =
                    ToolUseBlock::builder().tool_use_id(call_id(&text("id"))).name(text("name")).input(input);
                content.push(ContentBlock::ToolUse(call.build().map_err(unbuilt)?));
            }
            Some("thinking") if ours && block["signature"].is_string() => {
                let thought =
                    ReasoningTextBlock::builder().text(text("thinking")).signature(text("signature"));
                let thought = ReasoningContentBlock::ReasoningText(thought.build().map_err(unbuilt)?);
                content.push(ContentBlock::ReasoningContent(thought));
            }
            Some("redactedThinking") if ours => {
                if let Ok(bytes) = STANDARD.decode(text("data")) {
                    let thought = ReasoningContentBlock::RedactedContent(Blob::new(bytes));
                    content.push(ContentBlock::ReasoningContent(thought));
                }
            }
            _ => {}
        }
    }
    Ok(content)
}

/// JSON as the SDK's document type.
fn document(value: &Value) -> Document {
    match value {
        Value::Null => Document::Null,
        Value::Bool(bool) => Document::Bool(*bool),
        Value::Number(number) => Document::Number(match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Number::PosInt(number),
            (None, Some(number)) => Number::NegInt(number),
            (None, None) => Number::Float(number.as_f64().unwrap_or_default()),
        }),
        Value::String(text) => Document::String(text.clone()),
        Value::Array(values) => Document::Array(values.iter().map(document).collect()),
        Value::Object(members) => {
            Document::Object(members.iter().map(|(name, value)| (name.clone(), document(value))).collect())
        }
    }
}

/// An answer as far as it has been read.
#[derive(Default)]
struct Reading {
    blocks: Map<String, Value>,
    usage: Usage,
    stop: Option<Stop>,
}

impl Reading {
    /// Takes an event; gives its text for readers, if it has any.
    fn read_event(&mut self, event: Event) -> Option<String> {
        match event {
            Event::ContentBlockStart(start) => {
                if let Some(ContentBlockStart::ToolUse(call)) = start.start {
                    let call =
                        json!({ "type": "toolCall", "id": call.tool_use_id, "name": call.name, "json": "" });
                    self.blocks.insert(key(start.content_block_index), call);
                }
                None
            }
            Event::ContentBlockDelta(delta) => {
                let index = key(delta.content_block_index);
                match delta.delta? {
                    ContentBlockDelta::Text(text) => {
                        self.append(index, "text", "text", &text);
                        Some(text)
                    }
                    ContentBlockDelta::ToolUse(more) => {
                        self.append(index, "toolCall", "json", &more.input);
                        None
                    }
                    ContentBlockDelta::ReasoningContent(thought) => {
                        match thought {
                            ReasoningContentBlockDelta::Text(text) => {
                                self.append(index, "thinking", "thinking", &text)
                            }
                            ReasoningContentBlockDelta::Signature(text) => {
                                self.append(index, "thinking", "signature", &text);
                            }
                            ReasoningContentBlockDelta::RedactedContent(bytes) => {
                                self.append(index, "redactedThinking", "data", &STANDARD.encode(bytes));
                            }
                            _ => {}
                        }
                        None
                    }
                    _ => None,
                }
            }
            Event::MessageStop(stop) => {
                self.stop = Some(stop.stop_reason);
                None
            }
            Event::Metadata(metadata) => {
                if let Some(usage) = metadata.usage {
                    let number = |n: i32| u64::try_from(n).unwrap_or(0);
                    let (read, written) = (
                        usage.cache_read_input_tokens.map_or(0, number),
                        usage.cache_write_input_tokens.map_or(0, number),
                    );
                    self.usage = Usage {
                        input: number(usage.input_tokens) + read + written,
                        output: number(usage.output_tokens),
                        cache_read: read,
                        cache_write: written,
                        cost_usd: None,
                    };
                }
                None
            }
            _ => None, // the start of the message, the end of a block, or an event of a later version
        }
    }

    fn append(&mut self, index: String, kind: &str, member: &str, text: &str) {
        let block = self.blocks.entry(index).or_insert_with(|| json!({ "type": kind }));
        let before = block[member].as_str().unwrap_or_default().to_owned();
        block[member] = json!(before + text);
    }

    fn finish(self) -> ModelAnswer {
        let block = |block: &Value| {
            let text = |member: &str| block[member].as_str().unwrap_or_default().to_owned();
            match block["type"].as_str()? {
                "text" => Some(Block::Text { text: text("text") }),
                "toolCall" => Some(Block::ToolCall {
                    id: text("id"),
                    name: text("name"),
                    arguments: arguments(&text("json")),
                }),
                "thinking" => {
                    let signature = Some(text("signature")).filter(|signature| !signature.is_empty());
                    Some(Block::Thinking { thinking: text("thinking"), signature })
                }
                _ => Some(Block::RedactedThinking { data: text("data") }),
            }
        };
        let content: Vec<Block> = self.blocks.values().filter_map(block).collect();
        let calls = content.iter().any(|block| matches!(block, Block::ToolCall { .. }));
        let failed = |why: &str| ModelAnswer {
            content: content.clone(),
            usage: self.usage,
            ..ModelAnswer::failed(why)
        };
        let stop_reason = match self.stop {
            Some(Stop::MaxTokens | Stop::ModelContextWindowExceeded) => StopReason::MaxTokens,
            Some(Stop::ContentFiltered | Stop::GuardrailIntervened) => {
                return failed("the provider's filter stopped the answer");
            }
            Some(Stop::MalformedModelOutput | Stop::MalformedToolUse) => {
                return failed("the model's answer was malformed");
            }
            _ if calls => StopReason::ToolUse,
            _ => StopReason::EndTurn,
        };
        ModelAnswer { content, stop_reason, usage: self.usage, error: None, overflow: false }
    }
}

/// A block's index as a key, so that blocks stay in order.
fn key(index: i32) -> String {
    format!("{index:05}")
}
