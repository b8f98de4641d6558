//! A tool behind a POST, signed as Standard Webhooks.
//!
//! `{"type":"tool.call","tenant":…,"sessionId":…,"toolCallId":…,"tool":…,"arguments":{…}}` with `webhook-id`,
//! `webhook-timestamp` and `webhook-signature`. The id is the call's: the same when the call is made again. A 2xx response
//! is the result: JSON `{"output": text or any JSON, "isError"?}`, or plain text.

use std::time::{SystemTime, UNIX_EPOCH};

use keel_agent::tool::ToolOutput;
use keel_kernel::event::ToolCall;
use keel_ledger::SessionKey;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use standardwebhooks::Webhook;

use crate::{PluginClient, RESPONSE_MAX};

/// A call as its receiver gets it. It names the tenant, since a receiver may serve several.
pub(crate) fn body(at: &SessionKey, call: &ToolCall) -> String {
    let body = json!({
        "type": "tool.call",
        "tenant": at.tenant,
        "sessionId": at.session,
        "toolCallId": call.id,
        "tool": call.name,
        "arguments": call.arguments,
    });
    body.to_string()
}

impl PluginClient {
    pub(crate) async fn post(&self, at: &SessionKey, url: &str, secret: &str, call: &ToolCall) -> ToolOutput {
        match self.try_post(at, url, secret, call).await {
            Ok(output) => output,
            Err(why) => ToolOutput::error(format!("the tool could not be called: {why}")),
        }
    }

    async fn try_post(
        &self,
        at: &SessionKey,
        url: &str,
        secret: &str,
        call: &ToolCall,
    ) -> Result<ToolOutput, String> {
        let url = self.egress.admit(url).map_err(|bad| format!("its address {bad}"))?;
        let key = self.secret(at, secret).await?;
        let webhook = Webhook::new(key.expose_secret())
            .map_err(|_| format!("the secret {secret:?} is no webhook secret (whsec_ and base64)"))?;
        let body = body(at, call);
        let id = format!("{}.{}", at.session, call.id);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let signature = webhook
            .sign(&id, i64::try_from(now).unwrap_or(i64::MAX), body.as_bytes())
            .map_err(|_| "the call could not be signed".to_owned())?;
        let request = self
            .client
            .post(url)
            .header("webhook-id", id)
            .header("webhook-timestamp", now)
            .header("webhook-signature", signature)
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        let mut response = request.send().await.map_err(|error| failure_words(&error))?;
        let status = response.status();
        if status.is_redirection() {
            return Err("it redirects, which is not followed".to_owned());
        }
        let is_json = is_json(response.headers());
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|_| "its answer broke off".to_owned())? {
            if bytes.len() + chunk.len() > RESPONSE_MAX {
                return Err(format!("its answer is larger than {RESPONSE_MAX} bytes"));
            }
            bytes.extend_from_slice(&chunk);
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if !status.is_success() {
            let words: String = text.chars().take(1_000).collect();
            return Ok(ToolOutput::error(format!("the tool answered {}: {words}", status.as_u16())));
        }
        Ok(if is_json { output_of(&text) } else { ToolOutput::of(text) })
    }

    pub(crate) async fn secret(&self, at: &SessionKey, name: &str) -> Result<secrecy::SecretString, String> {
        match self.secrets.get(&at.tenant, name).await {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(format!("there is no secret {name:?}")),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a secret could not be read");
                Err(format!("the secret {name:?} could not be read"))
            }
        }
    }
}

/// What went wrong, without the address: its query may hold a key.
fn failure_words(error: &reqwest::Error) -> String {
    let text = if error.is_timeout() {
        "it did not answer in time"
    } else if error.is_connect() {
        "it could not be reached"
    } else {
        "the request broke off"
    };
    text.to_owned()
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().ends_with("json"))
}

/// A JSON response as an output: `{output, isError?}`, or any other JSON, which is the output itself.
pub(crate) fn output_of(text: &str) -> ToolOutput {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return ToolOutput::error("the tool's answer is not the JSON that it says it is");
    };
    let is_error = value.get("isError").and_then(Value::as_bool).unwrap_or(false);
    let output = value.get("output").cloned().unwrap_or(value);
    let text = match output {
        Value::String(text) => text,
        other => other.to_string(),
    };
    ToolOutput { text, is_error }
}
