//! Errors that a model's server reports in a body: their type and code for the log, and rejected prompts.
//!
//! Servers repeat request content in the text of an error, API keys included. So the text is only searched for known
//! words and sizes; it reaches neither the log nor an error.

use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_platform::fallback::UpstreamError;
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::context_size::ContextSize;
use crate::outbound::{BodyStream, MAX_RETRY_AFTER, OutboundResponse, status_failure};

/// Limits of an error response: size and read time.
const MAX_ERROR_BODY_BYTES: usize = 16 << 10;
const ERROR_BODY_TIMEOUT: Duration = Duration::from_millis(250);
/// Limit on a word that is logged, in bytes.
const MAX_WORD_BYTES: usize = 64;

/// Types and codes of a prompt beyond the context window, of llama.cpp, OpenAI, Z.ai and GitHub.
const OVERFLOW_WORDS: [&str; 5] = [
    "exceed_context_size_error",
    "context_length_exceeded",
    "model_context_window_exceeded",
    "model_max_prompt_tokens_exceeded",
    "tokens_limit_reached",
];
/// Parts of the text of such an error where it has no type, in lower case.
const OVERFLOW_PHRASES: [&str; 24] = [
    "maximum context length",
    // Google.
    "exceeds the maximum number of tokens allowed",
    // vLLM.
    "model's context length is only ",
    "is longer than the maximum model length of ",
    // SGLang and Together.
    "longer than the model's context length",
    // Text Generation Inference.
    "`inputs` tokens + `max_new_tokens` must be <= ",
    // xAI.
    "maximum prompt length is ",
    // LM Studio.
    "loaded with context length of only ",
    "greater than the context length",
    // Moonshot, MiniMax, Z.ai and Alibaba.
    "exceeded model token limit",
    "context window exceeds limit",
    "prompt exceeds max length",
    "range of input length should be [",
    // Ollama.
    "prompt too long; exceeded",
    // Bedrock, and Cohere.
    "input is too long for requested model",
    "total number of tokens in the prompt cannot exceed ",
    // OpenRouter.
    "exceeds the maximum allowed input length of ",
    "exceeds the available context size",
    "exceeds the context length",
    "exceeds the model's context",
    "exceeds the context window",
    "context length exceeded",
    "prompt is too long",
    "exceed context limit",
];
/// Texts in front of the context window, and in front of the size of the prompt.
const WINDOW_MARKERS: [&str; 19] = [
    "maximum context length is ",
    "maximum context length of ",
    "available context size (",
    "context length (",
    "tokens > ",
    "maximum number of tokens allowed (",
    "maximum number of tokens allowed ",
    "context length is only ",
    "maximum model length of ",
    "`max_new_tokens` must be <= ",
    "maximum prompt length is ",
    "context length of only ",
    "model token limit: ",
    "too large for model with ",
    "maximum allowed input length of ",
    "input length should be [1, ",
    "prompt cannot exceed ",
    "exceeds the limit of ",
    "max size: ",
];
const PROMPT_MARKERS: [&str; 17] = [
    "messages resulted in ",
    "however, you requested about ",
    "however, you requested ",
    "you passed ",
    "prompt (length ",
    "input (",
    "input token count (",
    "request contains ",
    "keep the first ",
    "(requested: ",
    "prompt contains ",
    "given: ",
    "prompt token count of ",
    "- received ",
    "request (",
    "prompt is too long: ",
    "exceed context limit: ",
];

/// Code of a refusal by the provider's filter.
const CONTENT_WORD: &str = "content_filter";

/// Words for errors that have no type or code of their own, and parts of their texts, in lower case.
const DESCRIBED_ERRORS: [(&str, &[&str]); 5] = [
    // An account that is not paid for. Anthropic's and Alibaba's APIs report an invalid request, Fireworks a failed precondition, and
    // others a rate limit.
    (
        "billing_error",
        &[
            "credit balance is too low",
            "insufficient balance",
            "you have reached your specified api usage limits",
            "make sure your account is in good standing",
            "is suspended, possibly due to reaching the monthly spending limit",
        ],
    ),
    // A wrong key. Google's and xAI's APIs report an invalid request.
    (
        "invalid_api_key",
        &["api key not valid", "incorrect api key provided", "api key expired", "invalid api key"],
    ),
    // A model that there is not. OpenRouter's, DeepSeek's and Groq's APIs report an invalid request.
    ("model_not_found", &["is not a valid model id", "model not exist", "has been decommissioned"]),
    // A refusal by a filter. OpenRouter's API rejects the credentials, and DeepSeek's and Anthropic's the request.
    (
        CONTENT_WORD,
        &[
            "your input was flagged",
            "requires moderation on",
            "content exists risk",
            "output blocked by content filtering policy",
        ],
    ),
    // A model, or its server as it was started, without a capability that the request needs.
    (
        UpstreamError::UNSUPPORTED_CODE,
        &[
            "does not support tools",
            "does not support thinking",
            "does not support function calling",
            "doesn't support tool use",
            "function calling is not enabled",
            "tool calling is not supported",
            "`tool calling` is not supported",
            "no endpoints found that support ",
            "requires --enable-auto-tool-choice",
            "requires --jinja flag",
            "image input is not supported",
            "is not supported for this model",
        ],
    ),
];

/// Text of a server that has not loaded its model yet, in lower case, as llama.cpp sends it with status 503.
const LOADING_PHRASE: &str = "loading model";
/// Delay before a retry if a server that loads its model names no delay.
const LOADING_DELAY: Duration = Duration::from_secs(5);

/// The parts of a reported error that are used.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct VendorError {
    /// Type and code, if they are plain words or small numbers.
    kind: Option<String>,
    code: Option<String>,
    /// Path of the rejected parameter, if it has the form of one.
    param: Option<String>,
    /// Sizes, if the error rejects a prompt beyond the context window.
    overflow: Option<ContextSize>,
    /// True if the server has not loaded its model yet.
    is_loading: bool,
    /// Words for what only the text says.
    described_words: Vec<&'static str>,
    /// Delay before a retry, where a body says it and no header.
    retry_delay: Option<Duration>,
}

impl VendorError {
    /// Parses the body of an error response. Anything that is not a known shape has no type and code.
    pub(crate) fn from_body(body: &[u8]) -> Self {
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let value = value.get(0).unwrap_or(&value);
        Self::from_value(value.get("error").unwrap_or(value))
    }

    /// Parses the `error` member of a response.
    pub(super) fn from_error(error: &RawValue) -> Self {
        Self::from_value(&serde_json::from_str(error.get()).unwrap_or_default())
    }

    /// Parses the object or the text of an error.
    pub(super) fn from_value(error: &Value) -> Self {
        let (kind, code) = (plain_word(error.get("type")), plain_word(error.get("code")));
        let text = error.as_str().or_else(|| error.get("message")?.as_str()).unwrap_or_default();
        let text = text.to_ascii_lowercase();
        let is_overflow = [&kind, &code].into_iter().flatten().any(|word| OVERFLOW_WORDS.contains(&&**word))
            || OVERFLOW_PHRASES.iter().any(|phrase| text.contains(phrase));
        let size = |member: &str, markers: &[&str]| {
            let member_value =
                error.get(member).and_then(Value::as_u64).and_then(|size| size.try_into().ok());
            member_value.or_else(|| markers.iter().find_map(|marker| number_after(&text, marker)))
        };
        let overflow = is_overflow.then(|| ContextSize {
            window: size("n_ctx", &WINDOW_MARKERS).filter(|size| *size > 0),
            prompt: size("n_prompt_tokens", &PROMPT_MARKERS).filter(|size| *size > 0),
        });
        let described = DESCRIBED_ERRORS
            .into_iter()
            .filter(|(_, phrases)| phrases.iter().any(|phrase| text.contains(phrase)));
        Self {
            kind,
            code,
            param: parameter_path(error.get("param")),
            overflow,
            is_loading: text.contains(LOADING_PHRASE),
            described_words: described.map(|(word, _)| word).collect(),
            retry_delay: retry_delay(error),
        }
    }

    /// Describes the error for the log.
    pub(crate) fn describe(&self) -> String {
        let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".to_owned());
        let param = self.param.as_ref().map(|param| format!(", param {param}"));
        format!("type {}, code {}{}", word(&self.kind), word(&self.code), param.unwrap_or_default())
    }

    /// Returns the type and code, if they are plain words, or words for an error that only its text describes.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        let words = [&self.kind, &self.code].into_iter().flatten().map(String::as_str);
        words.chain(self.described_words.iter().copied())
    }

    /// Returns the error with the status of its response, as the source of a failure.
    pub(super) fn upstream_error(&self, status: Option<u16>) -> UpstreamError {
        let status_text = status.map(|status| format!("HTTP {status}: ")).unwrap_or_default();
        UpstreamError::new(status, self.words(), status_text + &self.describe())
    }

    /// Returns the sizes if the error rejects a prompt beyond the context window.
    pub(crate) fn overflow(&self) -> Option<ContextSize> {
        self.overflow
    }

    /// Returns true if the type or code means a rate limit.
    fn is_rate_limit(&self) -> bool {
        let is_limit = |word: &String| word.starts_with("rate_limit") || word == "429";
        [&self.kind, &self.code].into_iter().flatten().any(is_limit)
    }

    /// Adds the message and the cause that the server reports to `error`.
    pub(super) fn into_error(self, error: AgentError) -> AgentError {
        let cause = self.upstream_error(UpstreamError::find(&error).and_then(UpstreamError::status));
        match self.overflow {
            Some(size) if error.kind() == AgentErrorKind::Failed => context_exceeded(size).with_source(cause),
            _ if self.is_loading && error.kind() == AgentErrorKind::Failed => {
                let message = "the model's server is still loading the model; try again in a moment";
                let delay = error.retry_after().unwrap_or(LOADING_DELAY);
                AgentError::new(AgentErrorKind::Failed, message).with_retry_after(delay).with_source(cause)
            }
            _ if cause.is_unpaid() => account_refused().with_source(cause),
            _ if error.kind() == AgentErrorKind::Failed && self.words().any(|word| word == CONTENT_WORD) => {
                let message = "the provider's filter refused the content";
                AgentError::new(AgentErrorKind::Failed, message).with_source(cause)
            }
            _ if self.is_rate_limit()
                && error.kind() == AgentErrorKind::Failed
                && is_limited_status(&cause) =>
            {
                let limited = rate_limited().with_source(cause);
                match self.retry_delay {
                    Some(delay) => limited.with_retry_after(delay),
                    None => limited,
                }
            }
            _ => match self.retry_delay.filter(|_| error.retry_after().is_none()) {
                Some(delay) if error.kind() == AgentErrorKind::RateLimited => {
                    error.with_retry_after(delay).with_source(cause)
                }
                _ => error.with_source(cause),
            },
        }
    }
}

/// Maps an unsuccessful response to an error. Returns the body too; empty if it could not be read.
pub(super) async fn refused(response: OutboundResponse) -> (AgentError, bytes::Bytes) {
    let OutboundResponse { status, headers, body } = response;
    let body = read_body(body).await;
    (refusal(status, &headers, &body), body)
}

/// Maps status, headers and body of an unsuccessful response to an error.
pub(super) fn refusal(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> AgentError {
    VendorError::from_body(body).into_error(status_failure(status, headers))
}

/// Reads the body of an unsuccessful response; empty if it is too long, or does not arrive in time.
pub(crate) async fn read_body(body: BodyStream) -> bytes::Bytes {
    body.read_limited(MAX_ERROR_BODY_BYTES, ERROR_BODY_TIMEOUT).await.unwrap_or_default()
}

/// The error of an account whose quota is spent, or that is not paid for.
pub(super) fn account_refused() -> AgentError {
    let message = "the model's provider refuses the account: its quota is spent, or it is not paid for";
    AgentError::new(AgentErrorKind::AccountRefused, message)
}

/// Returns true if no status contradicts a rate limit.
fn is_limited_status(cause: &UpstreamError) -> bool {
    cause.status().is_none_or(|status| status == StatusCode::TOO_MANY_REQUESTS.as_u16())
}

/// The error of a rate limit that the server reports inside a response that began successfully.
fn rate_limited() -> AgentError {
    AgentError::new(AgentErrorKind::RateLimited, "the model's server is rate limiting requests")
}

/// The error of a prompt beyond the context window.
pub(super) fn context_exceeded(size: ContextSize) -> AgentError {
    let message = "the conversation exceeds the context window of the model";
    size.add_to(AgentError::new(AgentErrorKind::ContextExceeded, message))
}

/// Returns the path of a parameter, such as `input[3].content`.
fn parameter_path(value: Option<&Value>) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.[]".contains(&byte);
    let path = value?.as_str()?;
    (path.len() <= MAX_WORD_BYTES && !path.is_empty() && path.bytes().all(is_plain)).then(|| path.to_owned())
}

/// Returns the delay in `google.rpc.RetryInfo`, such as `17.5s`, among the details of an error of Google's APIs.
fn retry_delay(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    let seconds = delay.strip_suffix('s')?.parse().ok()?;
    Some(Duration::try_from_secs_f64(seconds).ok()?.min(MAX_RETRY_AFTER))
}

/// Returns a type or code if it is a plain lower-case word or a small number.
pub(super) fn plain_word(value: Option<&Value>) -> Option<String> {
    let is_plain = |text: &str| {
        !text.is_empty()
            && text.len() <= MAX_WORD_BYTES
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    match value? {
        Value::String(text) if is_plain(text) => Some(text.clone()),
        Value::Number(number) if number.as_u64().is_some_and(|number| number < 1000) => {
            Some(number.to_string())
        }
        _ => None,
    }
}

/// Returns the number that follows `marker`; its digits may be grouped by commas.
fn number_after(text: &str, marker: &str) -> Option<u32> {
    let (_, rest) = text.split_once(marker)?;
    let digits: String = rest
        .chars()
        .take_while(|character| character.is_ascii_digit() || *character == ',')
        .filter(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use agent_platform::fallback::FailureClass;

    use super::*;
    use crate::models::errors::reported_error;

    #[test]
    fn only_plain_identifiers_of_an_error_are_logged() {
        let cases = [
            (r#"{"message":"overloaded","type":"server_error","code":503}"#, "type server_error, code 503"),
            (r#"{"type":"sk-1234567890","code":12345678}"#, "type -, code -"),
            (r#"{"type":null,"code":"invalid_api_key"}"#, "type -, code invalid_api_key"),
            (r#"{"type":["x"],"code":{"x":1}}"#, "type -, code -"),
            (r#"{"code":"x","param":"tools[0].parameters"}"#, "type -, code x, param tools[0].parameters"),
            (r#"{"code":"x","param":"my secret: sk-1"}"#, "type -, code x"),
            (r#""sk-1234567890""#, "type -, code -"),
        ];
        for (error, expected) in cases {
            let error: &RawValue = serde_json::from_str(error).expect("JSON");
            assert_eq!(VendorError::from_error(error).describe(), expected, "{error}");
        }
    }

    #[test]
    fn prompts_beyond_the_window_are_recognized_with_their_sizes() {
        let cases = [
            (
                r#"{"error":{"code":400,"message":"request (5021 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":5021,"n_ctx":4096}}"#,
                (Some(4096), Some(5021)),
            ),
            (
                r#"{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"invalid_request_error"}}"#,
                (None, None),
            ),
            (
                r#"{"error":{"message":"This model's maximum context length is 8,192 tokens. However, your messages resulted in 9001 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
                (Some(8192), Some(9001)),
            ),
            (
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4744 in the messages, 256 in the completion).","type":"BadRequestError","param":null,"code":400}"#,
                (Some(4096), Some(5000)),
            ),
            (r#"{"error":"the input length exceeds the context length"}"#, (None, None)),
            (
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}"#,
                (Some(200_000), Some(208_310)),
            ),
            (
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again"}}"#,
                (None, Some(188_240)),
            ),
            (r#"[{"error":{"code":"context_length_exceeded"}}]"#, (None, None)),
            (
                r#"[{"error":{"code":400,"message":"The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]"#,
                (Some(1_048_576), Some(1_196_265)),
            ),
            (
                r#"[{"error":{"code":400,"message":"The input token count exceeds the maximum number of tokens allowed 1048576.","status":"INVALID_ARGUMENT"}}]"#,
                (Some(1_048_576), None),
            ),
            (
                r#"{"object":"error","message":"Prompt contains 40960 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_error","param":null,"code":"3051"}"#,
                (Some(32_768), Some(40_960)),
            ),
            (
                r#"{"error":{"message":"You passed 9001 input tokens and requested 0 output tokens. However, the model's context length is only 8192 tokens, resulting in a maximum input length of 8192 tokens.","type":"BadRequestError","param":"input_tokens","code":400}}"#,
                (Some(8192), Some(9001)),
            ),
            (
                r#"{"error":{"message":"The decoder prompt (length 9001) is longer than the maximum model length of 8192. Make sure that `max_model_len` is no smaller than the number of text tokens.","type":"BadRequestError","param":null,"code":400}}"#,
                (Some(8192), Some(9001)),
            ),
            (
                r#"{"object":"error","message":"The input (691,793 tokens) is longer than the model's context length (540000 tokens).","type":"BadRequestError","param":null,"code":400}"#,
                (Some(540_000), Some(691_793)),
            ),
            (
                r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4031 `inputs` tokens and 200 `max_new_tokens`","error_type":"validation"}"#,
                (Some(4096), Some(4031)),
            ),
            (
                r#"{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}"#,
                (Some(131_072), Some(537_812)),
            ),
            (
                r#"{"error":"Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input"}"#,
                (Some(4096), Some(5000)),
            ),
            (
                r#"{"error":{"message":"Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)","type":"invalid_request_error"}}"#,
                (Some(262_144), Some(291_351)),
            ),
            (
                r#"{"error":{"message":"This endpoint's maximum context length is 128000 tokens. However, you requested about 140000 tokens (139000 of text input, 1000 in the output).","code":400}}"#,
                (Some(128_000), Some(140_000)),
            ),
            (
                r#"{"error":{"message":"prompt token count of 391491 exceeds the limit of 128000","code":"model_max_prompt_tokens_exceeded"}}"#,
                (Some(128_000), Some(391_491)),
            ),
            (
                r#"{"error":{"code":"tokens_limit_reached","message":"Request body too large for gpt-4o model. Max size: 8000 tokens."}}"#,
                (Some(8000), None),
            ),
            (
                r#"{"message":"too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292. Try using a shorter prompt."}"#,
                (Some(4081), Some(4292)),
            ),
            (
                r#"{"error":{"code":"invalid_parameter_error","message":"Range of input length should be [1, 30720]"}}"#,
                (Some(30_720), None),
            ),
            (r#"{"error":{"code":"1261","message":"Prompt exceeds max length"}}"#, (None, None)),
            (r#"{"message":"Input is too long for requested model."}"#, (None, None)),
            (
                r#"{"error":{"type":"exceed_context_size_error","n_ctx":99999999999,"n_prompt_tokens":-1}}"#,
                (None, None),
            ),
        ];
        for (body, (window, prompt)) in cases {
            let error = VendorError::from_body(body.as_bytes());
            assert_eq!(error.overflow, Some(ContextSize { window, prompt }), "{body}");
        }
        for body in
            ["", "no JSON", "{}", r#"{"error":{"message":"bad tool","type":"invalid_request_error"}}"#]
        {
            assert_eq!(VendorError::from_body(body.as_bytes()).overflow, None, "{body}");
        }
    }

    #[test]
    fn a_server_that_loads_its_model_is_named() {
        let body = br#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
        let failure = |kind| AgentError::new(kind, "the server failed");
        let of = |error: AgentError| VendorError::from_body(body).into_error(error);
        let vendor_error = of(failure(AgentErrorKind::Failed));
        assert_eq!(
            (vendor_error.kind(), vendor_error.retry_after()),
            (AgentErrorKind::Failed, Some(LOADING_DELAY))
        );
        assert!(vendor_error.message().contains("still loading"), "{vendor_error}");
        let asked = Duration::from_secs(30);
        let vendor_error = of(failure(AgentErrorKind::Failed).with_retry_after(asked));
        assert_eq!(vendor_error.retry_after(), Some(asked));
        let vendor_error = of(failure(AgentErrorKind::RateLimited));
        assert_eq!(
            (vendor_error.kind(), vendor_error.message()),
            (AgentErrorKind::RateLimited, "the server failed")
        );
    }

    #[test]
    fn an_account_that_is_not_paid_for_is_recognized() {
        let body = r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#;
        let failure = AgentError::new(AgentErrorKind::Failed, "no").with_source(UpstreamError::new(
            Some(400),
            [],
            "HTTP 400",
        ));
        let failure = VendorError::from_body(body.as_bytes()).into_error(failure);
        assert_eq!(FailureClass::of(&failure), FailureClass::Account);
        assert_eq!(failure.kind(), AgentErrorKind::AccountRefused);
        let cause = UpstreamError::find(&failure).expect("a cause");
        assert_eq!(cause.to_string(), "HTTP 400: type invalid_request_error, code -");
    }

    #[test]
    fn a_delay_in_the_body_is_that_of_a_rate_limit_without_a_header() {
        let body = |delay: &str| {
            let details = serde_json::json!([{"@type": "type.googleapis.com/google.rpc.Help"},
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}]);
            serde_json::json!([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}}])
                .to_string()
        };
        let of = |status: u16, headers: &HeaderMap, delay: &str| {
            let status = StatusCode::from_u16(status).expect("a status");
            refusal(status, headers, body(delay).as_bytes()).retry_after()
        };
        let none = HeaderMap::new();
        assert_eq!(of(429, &none, "17.5s"), Some(Duration::from_millis(17_500)));
        assert_eq!(of(429, &none, "1e300s"), None);
        assert_eq!(of(429, &none, "99999999s"), Some(MAX_RETRY_AFTER));
        assert_eq!(
            (of(429, &none, "-1s"), of(429, &none, "soon"), of(400, &none, "17s")),
            (None, None, None)
        );
        let header = (http::header::RETRY_AFTER, http::HeaderValue::from_static("7"));
        assert_eq!(of(429, &HeaderMap::from_iter([header]), "17s"), Some(Duration::from_secs(7)));
    }

    #[test]
    fn an_account_without_the_key_or_the_model_is_recognized_whatever_the_status() {
        for body in [
            r#"{"error":{"message":"openrouter/none is not a valid model ID","code":400}}"#,
            r#"{"error":{"message":"Model Not Exist","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
            r#"{"error":{"message":"The model `m` has been decommissioned and is no longer supported.","type":"invalid_request_error","code":"model_decommissioned"}}"#,
            r#"{"object":"error","message":"Invalid model: none","type":"invalid_model","param":null,"code":"1500"}"#,
            r#"{"error":{"message":"The requested model 'm' is not supported by any provider you have enabled.","type":"invalid_request_error","param":"model","code":"model_not_supported"}}"#,
            r#"{"error":{"code":"Arrearage","message":"Access denied, please make sure your account is in good standing.","type":"Arrearage"}}"#,
            r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]"#,
            r#"{"code":"Client specified an invalid argument","error":"Incorrect API key provided: sk-1. You can obtain an API key from https://console.x.ai."}"#,
        ] {
            let error = refusal(StatusCode::BAD_REQUEST, &HeaderMap::new(), body.as_bytes());
            assert_eq!(FailureClass::of(&error), FailureClass::Account, "{body}");
            assert!(!format!("{error:?}").contains("sk-1"), "{error:?}");
        }
        let suspended = r#"{"error":{"code":"PRECONDITION_FAILED","message":"Account x is suspended, possibly due to reaching the monthly spending limit or failure to pay past invoices."}}"#;
        let error = refusal(StatusCode::PRECONDITION_FAILED, &HeaderMap::new(), suspended.as_bytes());
        assert_eq!(error.kind(), AgentErrorKind::AccountRefused);
    }

    #[test]
    fn a_refusal_by_a_filter_is_not_one_of_the_account() {
        for (status, body) in [
            (
                403,
                r#"{"error":{"code":403,"message":"openai/gpt-4o requires moderation on OpenAI. Your input was flagged for \"violence\". No credits were charged.","metadata":{"reasons":["violence"],"flagged_input":"..."}}}"#,
            ),
            (
                400,
                r#"{"error":{"message":"Content Exists Risk","type":"invalid_request_error","code":"invalid_request_error"}}"#,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}"#,
            ),
            (
                400,
                r#"{"error":{"message":"Input data may contain inappropriate content.","type":"data_inspection_failed","code":"data_inspection_failed"}}"#,
            ),
            (
                400,
                r#"{"error":{"message":"The response was filtered","param":"prompt","code":"content_filter","status":400}}"#,
            ),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let error = refusal(status, &HeaderMap::new(), body.as_bytes());
            assert_eq!(FailureClass::of(&error), FailureClass::Content, "{body}");
            assert!(!error.message().contains("credentials"), "{error}");
        }
    }

    #[test]
    fn a_model_without_a_capability_is_recognized() {
        for (status, message) in [
            (400, "registry.ollama.ai/library/gemma3:4b does not support tools"),
            (400, "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"),
            (400, "`tool calling` is not supported with this model"),
            (400, "deepseek-reasoner does not support Function Calling"),
            (400, "Function calling is not enabled for models/gemma-3-27b-it"),
            (400, "think value \"medium\" is not supported for this model"),
            (
                404,
                "No endpoints found that support tool use. To learn more about provider routing, visit https://x",
            ),
            (404, "No endpoints found that support image input"),
            (500, "tools param requires --jinja flag"),
            (
                500,
                "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
            ),
        ] {
            let body = serde_json::json!({"error": {"message": message, "type": "invalid_request_error"}});
            let status = StatusCode::from_u16(status).expect("a status");
            let error = refusal(status, &HeaderMap::new(), body.to_string().as_bytes());
            assert_eq!(FailureClass::of(&error), FailureClass::Unsupported, "{message}");
        }
    }

    #[test]
    fn a_rate_limit_within_a_successful_response_is_one() {
        let of = |body: &str| {
            let error = VendorError::from_body(body.as_bytes()).into_error(reported_error());
            (error.kind(), error.retry_after().map(|delay| delay.as_secs()), FailureClass::of(&error))
        };
        let limited = |delay| (AgentErrorKind::RateLimited, delay, FailureClass::RateLimit);
        for (body, expected) in [
            (r#"{"error":{"type":"rate_limit_error","message":"slow"}}"#, limited(None)),
            (r#"{"error":{"type":"tokens","code":"rate_limit_exceeded"}}"#, limited(None)),
            (r#"{"error":{"code":429,"message":"upstream"}}"#, limited(None)),
            (r#"{"error":{"code":429,"details":[{"retryDelay":"17s"}]}}"#, limited(Some(17))),
            (
                r#"{"error":{"type":"rate_limit_error","code":"insufficient_quota"}}"#,
                (AgentErrorKind::AccountRefused, None, FailureClass::Account),
            ),
            (
                r#"{"error":{"type":"overloaded_error"}}"#,
                (AgentErrorKind::Failed, None, FailureClass::RateLimit),
            ),
            (r#"{"error":{"code":503}}"#, (AgentErrorKind::Failed, None, FailureClass::Transient)),
        ] {
            assert_eq!(of(body), expected, "{body}");
        }
        // The status of a refusal decides.
        let body = br#"{"error":{"code":"rate_limit_exceeded"}}"#;
        let refused = refusal(StatusCode::BAD_REQUEST, &HeaderMap::new(), body);
        assert_eq!(refused.kind(), AgentErrorKind::Failed);
    }

    #[test]
    fn a_spent_quota_is_not_a_rate_limit() {
        let header = (http::header::RETRY_AFTER, http::HeaderValue::from_static("7"));
        let of = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).expect("a status");
            let error = refusal(status, &HeaderMap::from_iter([header.clone()]), body.as_bytes());
            (error.kind(), error.retry_after().is_some(), FailureClass::of(&error))
        };
        let refused = (AgentErrorKind::AccountRefused, false, FailureClass::Account);
        for (status, body) in [
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
            ),
            (429, r#"{"error":{"type":"billing_not_active","code":"billing_not_active"}}"#),
            (429, r#"{"error":{"type":"exceeded_current_quota_error","message":"not enough"}}"#),
            (429, r#"{"error":{"code":"1113","message":"Insufficient balance or no resource package."}}"#),
            (
                402,
                r#"{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}"#,
            ),
            (402, ""),
            (403, r#"{"error":{"code":"insufficient_user_quota"}}"#),
        ] {
            assert_eq!(of(status, body), refused, "{status} {body}");
        }
        let limited = (AgentErrorKind::RateLimited, true, FailureClass::RateLimit);
        for body in [
            r#"{"error":{"type":"tokens","code":"rate_limit_exceeded"}}"#,
            // A limit of minutes or days, which its vendor words as a quota.
            r#"[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED"}}]"#,
        ] {
            assert_eq!(of(429, body), limited, "{body}");
        }
        let within = VendorError::from_value(&serde_json::json!({"code": "insufficient_quota"}));
        let within = within.into_error(AgentError::new(AgentErrorKind::Failed, "the server failed"));
        assert_eq!(within.kind(), AgentErrorKind::AccountRefused);
    }

    #[test]
    fn only_a_rejected_request_is_an_overflow() {
        let body = br#"{"error":{"code":"context_length_exceeded","message":"sk-1"}}"#;
        for (kind, expected) in [
            (AgentErrorKind::Failed, AgentErrorKind::ContextExceeded),
            (AgentErrorKind::RateLimited, AgentErrorKind::RateLimited),
            (AgentErrorKind::Timeout, AgentErrorKind::Timeout),
        ] {
            let failure = VendorError::from_body(body).into_error(AgentError::new(kind, "no"));
            assert_eq!(failure.kind(), expected);
            let shown = format!("{failure:?}");
            assert!(shown.contains("code context_length_exceeded") && !shown.contains("sk-1"), "{shown}");
        }
    }
}
