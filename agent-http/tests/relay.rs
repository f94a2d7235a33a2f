//! Property test of the optimizations on the token path: for the same upstream bytes in any chunking, the response has
//! the same bytes with all of them, with any of them, and with none.
//!
//! Each case generates an upstream answer, which a server on loopback sends in generated chunks. A backend reads it
//! through the outbound client, and the response body encodes its events in one of the formats.

#[path = "relay/answers.rs"]
mod answers;
#[path = "relay/upstream.rs"]
mod upstream;

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use agent_client::backends::workflow::WorkflowBackend;
use agent_client::models::ollama::Ollama;
use agent_client::models::openai::OpenAi;
use agent_client::outbound::{OutboundClient, OutboundConfig, UrlTrust};
use agent_client::relay::RelayOptions;
use agent_core::backend::{EmbeddedBackend, Turn};
use agent_core::error::AgentError;
use agent_core::event::{EventStream, RunIds};
use agent_core::message::Message;
use agent_core::prompt::{Prompt, PromptMessage};
use agent_core::role::{EmbeddedAi, WorkflowConnector};
use agent_core::select::BackendChoice;
use agent_core::testing::{prepare_turn, start_turn};
use agent_core::tool::{Caller, ExecutionContext, ToolChoice};
use agent_http::stream::{Framing, StreamBody, StreamLimits, into_response};
use http_body::Body;
use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::json;
use url::Url;

use answers::{Answer, Protocol};
use upstream::Upstream;

/// Maximum duration of one run: a lost wake-up fails the test instead of hanging it.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);

const CASES: u32 = 256;

/// One generated case.
#[derive(Debug, Clone)]
struct Case {
    answer: Answer,
    framing: Framing,
    /// Options that are compared in addition to all and none.
    options: RelayOptions,
    /// Number of polls of the response body beside the one of each wake-up, as hyper does.
    extra_polls: usize,
}

fn cases() -> impl Strategy<Value = Case> {
    let framing = prop::sample::select(vec![
        Framing::Ndjson,
        Framing::Sse,
        Framing::UiMessage,
        Framing::N8n,
        Framing::Json,
    ]);
    (answers::answers(), framing, options(), 0..3_usize)
        .prop_map(|(answer, framing, options, extra_polls)| Case { answer, framing, options, extra_polls })
}

fn options() -> impl Strategy<Value = RelayOptions> {
    any::<[bool; 7]>().prop_map(|[template, waker, prefix, merged, early, span, timer]| RelayOptions {
        delta_template: template,
        coalescing_waker: waker,
        event_prefix: prefix,
        merged_events: merged,
        early_first_delta: early,
        lazy_span: span,
        lazy_timer: timer,
        ..RelayOptions::FAST
    })
}

proptest! {
    #![proptest_config(Config { cases: CASES, failure_persistence: None, ..Config::default() })]

    #[test]
    fn the_optimizations_change_no_byte(case in cases()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let respond = |options| {
            runtime.block_on(async { tokio::time::timeout(RUN_TIMEOUT, respond(&case, options)).await })
        };
        let plain = respond(RelayOptions::PLAIN).expect("the plain run ends");
        for options in [RelayOptions::FAST, case.options] {
            let optimized = respond(options).expect("the optimized run ends");
            prop_assert_eq!(&optimized, &plain, "{:?}", options);
        }
    }
}

/// Returns the response to the case's upstream answer as text, with generated ids replaced by numbers.
async fn respond(case: &Case, relay: RelayOptions) -> String {
    let upstream = Upstream::serve(&case.answer).await;
    let limits = StreamLimits { relay, ..StreamLimits::default() };
    let response = async {
        let events = start(case.answer.protocol, &upstream.url, relay).await?;
        into_response(case.framing, events, &limits).await
    };
    match response.await {
        Ok(response) => number_ids(&collect(response.into_body(), case.extra_polls).await),
        Err(error) => format!("refused: {:?} {}", error.kind(), error.message()),
    }
}

async fn start(protocol: Protocol, url: &Url, relay: RelayOptions) -> Result<EventStream, AgentError> {
    let allow = "127.0.0.1".parse().expect("an allow list");
    let config = OutboundConfig { allow, relay, ..OutboundConfig::default() };
    let outbound = OutboundClient::new(config).expect("a client");
    let embedded = BackendChoice::Embedded(EmbeddedAi::default());
    match protocol {
        Protocol::ChatCompletions => {
            let model = OpenAi::new(outbound, url, UrlTrust::Operator, None, "m")?;
            let backend = EmbeddedBackend::new(Arc::new(model));
            start_turn(&backend, prepare_turn(&backend, turn(embedded))?).await
        }
        Protocol::Ollama => {
            let model = Ollama::new(outbound, url, UrlTrust::Operator, None, "m")?;
            let backend = EmbeddedBackend::new(Arc::new(model));
            start_turn(&backend, prepare_turn(&backend, turn(embedded))?).await
        }
        Protocol::Workflow => {
            let public_url = Url::parse("https://app.example.com").expect("a URL");
            let run_token_ttl = Duration::from_secs(60);
            let backend = WorkflowBackend { outbound, public_url, run_token_ttl };
            let settings = WorkflowConnector { webhook_url: Some(url.to_string()), auth: None };
            let turn = turn(BackendChoice::Workflow(Box::new(settings)));
            start_turn(&backend, prepare_turn(&backend, turn)?).await
        }
    }
}

fn turn(choice: BackendChoice) -> Arc<Turn> {
    let role = serde_json::from_value(json!({"id": "a", "name": "Ann", "companyId": "c"})).expect("a role");
    let prompt = Prompt::new(Vec::new(), vec![PromptMessage::new(Message::user("hi"))]);
    Arc::new(Turn {
        run: RunIds { thread_id: "thread".into(), run_id: "run".into() },
        role: Arc::new(role),
        choice,
        prompt: Arc::new(prompt),
        tools: Arc::new([]),
        context: ExecutionContext {
            user_id: "ada".into(),
            company_id: "c".into(),
            agent_id: "a".into(),
            agent_name: None,
            todo_list_id: None,
            timezone: None,
            thread_id: "thread".into(),
            run_id: "run".into(),
            caller: Caller::Session,
            ..ExecutionContext::default()
        },
        tool_choice: ToolChoice::Auto,
        thinking: None,
        response_format: None,
        run_token: None,
    })
}

async fn collect(mut body: StreamBody, extra_polls: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let frame = poll_fn(|cx| {
            for _ in 0..extra_polls {
                let polled = std::pin::Pin::new(&mut body).poll_frame(cx);
                if polled.is_ready() {
                    return polled;
                }
            }
            std::pin::Pin::new(&mut body).poll_frame(cx)
        });
        match frame.await {
            Some(Ok(frame)) => bytes.extend_from_slice(frame.data_ref().expect("a frame of data")),
            Some(Err(never)) => match never {},
            None => return bytes,
        }
    }
}

/// Replaces each UUID by the number of its first occurrence.
fn number_ids(bytes: &[u8]) -> String {
    const UUID_BYTES: usize = 36;
    let is_uuid = |text: &[u8]| {
        text.len() == UUID_BYTES
            && text.iter().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => *byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
    };
    let (mut ids, mut out, mut at) = (Vec::new(), Vec::new(), 0);
    while at < bytes.len() {
        let Some(id) = bytes.get(at..at + UUID_BYTES).filter(|text| is_uuid(text)) else {
            out.push(bytes[at]);
            at += 1;
            continue;
        };
        let known = ids.iter().position(|known| *known == id);
        let number = known.unwrap_or_else(|| {
            ids.push(id);
            ids.len() - 1
        });
        out.extend_from_slice(format!("<id {number}>").as_bytes());
        at += UUID_BYTES;
    }
    String::from_utf8(out).expect("the response is UTF-8")
}
