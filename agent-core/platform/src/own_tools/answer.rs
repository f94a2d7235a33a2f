//! Conversion of a service's response to the result of a tool call.

use agent_core::tool::ToolOutput;
use serde_json::Value;

use super::HttpToolResponse;
use super::definition::ResultSettings;
use super::redact::Redactor;
use crate::exact_json;
use crate::gateway_status::may_have_been_processed;
use crate::media_type::is_json;

/// Text for the model after the error of a call without a response.
pub(super) const OUTCOME_UNKNOWN: &str = "the call may or may not have taken effect";
/// Maximum length of a failed response's body in the result, in bytes.
const MAX_ERROR_BODY_BYTES: usize = 1024;

/// Converts a response to a result for the model.
///
/// # Errors
/// Description of a response after which the call may have taken effect: a successful one without the result, or a status of
/// a gateway that [tells no outcome](may_have_been_processed).
pub(super) fn output(
    settings: &ResultSettings,
    response: HttpToolResponse,
    redactor: &Redactor,
) -> Result<ToolOutput, String> {
    let HttpToolResponse { status, has_retry_after, media_type, body } = response;
    if !(200..300).contains(&status) {
        let failed = error_output(settings, status, &body, redactor);
        let is_unknown = may_have_been_processed(status, has_retry_after);
        return if is_unknown { Err(failed.text) } else { Ok(failed) };
    }
    let reads_json = is_json(&media_type) || settings.pick.is_some();
    let read = || exact_json::read(std::str::from_utf8(&body).ok()?).ok();
    let value = match reads_json.then(read) {
        Some(Some(value)) => value,
        Some(None) if !body.is_empty() => return Err("the service's answer is not JSON".to_owned()),
        Some(None) | None => return Ok(text_output(settings, &media_type, body, redactor)),
    };
    let picked = match &settings.pick {
        None => value,
        Some(pick) => match value.pointer(pick) {
            Some(picked) => picked.clone(),
            None => return Err(format!("the service's answer has no {pick}")),
        },
    };
    let picked = redactor.value(picked);
    let text = match &picked {
        Value::String(text) => exact_json::text(text).to_owned(),
        value => exact_json::write(value),
    };
    let full_bytes = text.len();
    let text = cut(text, settings.max_bytes());
    let structured = Some(picked).filter(|value| value.is_object() && full_bytes <= settings.max_bytes());
    let structured = structured.map(exact_json::rounded);
    Ok(ToolOutput { text, structured, ..ToolOutput::default() })
}

fn text_output(
    settings: &ResultSettings,
    media_type: &str,
    body: Vec<u8>,
    redactor: &Redactor,
) -> ToolOutput {
    if body.is_empty() {
        return ToolOutput::text("The service answered without content.");
    }
    let bytes = body.len();
    match String::from_utf8(body) {
        Ok(text) => ToolOutput::text(cut(redactor.text(text), settings.max_bytes())),
        Err(_) => {
            let media_type = if media_type.is_empty() { "of unknown type" } else { media_type };
            ToolOutput::text(redactor.text(format!("[{media_type}, {bytes} bytes, omitted]")))
        }
    }
}

/// Returns the result of an unsuccessful status: the operator's text for it, or the status and the body.
fn error_output(settings: &ResultSettings, status: u16, body: &[u8], redactor: &Redactor) -> ToolOutput {
    if let Some(text) = settings.errors.get(&status.to_string()) {
        return ToolOutput::error(text.clone());
    }
    let mut text = format!("the service answered with HTTP status {status}");
    if let Some(body) = std::str::from_utf8(body).ok().map(str::trim).filter(|body| !body.is_empty()) {
        // JSON may escape characters of a secret, so the values are masked and not the text.
        let body = match exact_json::read(body) {
            Ok(value) => exact_json::write(&redactor.value(value)),
            Err(_) => redactor.text(body.to_owned()),
        };
        text.push_str(": ");
        text.push_str(&cut(body, MAX_ERROR_BODY_BYTES));
    }
    ToolOutput::error(text)
}

/// Truncates a text that exceeds the limit, with a notice.
pub(super) fn cut(mut text: String, max_bytes: usize) -> String {
    let full_bytes = text.len();
    if full_bytes > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
        text.push_str(&format!("\n[truncated: {full_bytes} bytes in total]"));
    }
    text
}
