//! A tool that is a Lambda function: invoked, and its result awaited. The role says which functions may be invoked.

use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::InvocationType;
use keel_agent::tool::ToolOutput;
use keel_kernel::event::ToolCall;
use keel_ledger::SessionKey;

use crate::{PluginClient, RESPONSE_MAX, http};

impl PluginClient {
    pub(crate) async fn invoke(&self, at: &SessionKey, function: &str, call: &ToolCall) -> ToolOutput {
        let Some(lambda) = &self.lambda else {
            return ToolOutput::error("the tool could not be called: this deployment invokes no functions");
        };
        let invoked = lambda
            .invoke()
            .function_name(function)
            .invocation_type(InvocationType::RequestResponse)
            .payload(Blob::new(http::body(at, call)))
            .send()
            .await;
        let answer = match invoked {
            Ok(answer) => answer,
            Err(error) => {
                let error = error.into_service_error();
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a plugin's Lambda function could not be invoked"
                );
                return ToolOutput::error("the tool could not be called: its function was not invoked");
            }
        };
        let bytes = answer.payload.map(Blob::into_inner).unwrap_or_default();
        if bytes.len() > RESPONSE_MAX {
            return ToolOutput::error(format!("the tool's answer is larger than {RESPONSE_MAX} bytes"));
        }
        let text = String::from_utf8_lossy(&bytes);
        match answer.function_error {
            None => http::output_of(&text),
            Some(kind) => {
                let words: String = text.chars().take(1_000).collect();
                ToolOutput::error(format!("the tool's function failed ({kind}): {words}"))
            }
        }
    }
}
