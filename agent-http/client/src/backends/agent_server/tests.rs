//! Tests of the backend against a scripted loopback runtime.

use std::sync::Arc;
use std::time::Duration;

use agent_core::conformance::{self, BackendSubject, Scenario};
use agent_core::event::EventGrammar;
use agent_core::select::BackendChoice;
use agent_core::testing::{backend_turn, prepare_turn, start_turn};
use agent_core::tool::{ExecutionContext, ToolSpec};
use agent_platform::fallback::FailureClass;
use agent_platform::trace::begin_trace;
use expect_test::{Expect, expect};
use serde_json::json;
use serde_json::value::RawValue;

use super::*;
use crate::loopback::{AfterResponse, LoopbackServer, chunked_response, outbound_client};

const NDJSON: &str = "application/x-ndjson";
const PROBLEM: &str = "application/problem+json";

fn backend(operator_url: Option<(&Url, Option<&str>)>, allow: &str) -> AgentServerBackend {
    AgentServerBackend {
        outbound: outbound_client(allow),
        own_runtime: operator_url.map(|(url, secret)| (url.clone(), secret.map(Secret::new))),
        public_url: Url::parse("https://app.example.com/base").expect("an address"),
        run_token_ttl: Duration::from_secs(60),
        limits: ModelLimits::default(),
    }
}

fn at(url: &str) -> AgentServer {
    AgentServer { agent_server_url: Some(url.to_owned()), ..AgentServer::default() }
}

fn turn(settings: AgentServer) -> Arc<Turn> {
    let tool = ToolSpec {
        name: "readTodos".into(),
        description: "Reads.".into(),
        input_schema: RawValue::from_string(r#"{"type":"object"}"#.into()).expect("JSON").into(),
        output_schema: Some(RawValue::from_string("{}".into()).expect("JSON").into()),
        annotations: None,
        is_client_side: false,
    };
    let turn = backend_turn(BackendChoice::AgentServer(Box::new(settings)));
    let context = ExecutionContext {
        user_id: "ada & bob".into(),
        timezone: Some("Europe/Berlin".into()),
        ..turn.context.clone()
    };
    Arc::new(Turn { tools: Arc::new([Arc::new(tool)]), context, ..turn })
}

/// Runs a turn with the given settings.
async fn run(backend: &AgentServerBackend, settings: AgentServer) -> Result<Vec<Event>, AgentError> {
    let prepared = prepare_turn(backend, turn(settings))?;
    let events = async { Ok(start_turn(backend, prepared).await?.collect::<Vec<Event>>().await) };
    tokio::time::timeout(Duration::from_secs(60), events).await.expect("the run ends")
}

fn check_body(settings: AgentServer, expected: Expect) {
    let prepared = prepare_turn(&backend(None, ""), turn(settings)).expect("prepared");
    let body: serde_json::Value =
        serde_json::from_slice(&prepared.payload.redacted()).expect("the redacted body is JSON");
    let names = [
        "systemPrompt",
        "messages",
        "tools",
        "provider",
        "model",
        "enableThinking",
        "baseUrl",
        "apiKey",
        "mcpServerUrl",
        "context",
    ];
    assert!(body.as_object().expect("an object").keys().all(|name| names.contains(&name.as_str())));
    expected.assert_eq(&String::from_utf8_lossy(&prepared.payload.redacted()).replace(",\"", ",\n\""));
}

#[test]
fn a_trace_does_not_change_the_request() {
    let prepare = |trace| {
        let turn = Arc::into_inner(turn(at("https://runtime.example.com"))).expect("the turn is not shared");
        let context = ExecutionContext { trace, ..turn.context.clone() };
        prepare_turn(&backend(None, ""), Arc::new(Turn { context, ..turn })).expect("prepared").payload
    };
    let (untraced, traced) = (prepare(None), prepare(Some(begin_trace())));
    assert_eq!(untraced.bytes(), traced.bytes());
    assert_eq!(untraced.sha256(), traced.sha256());
}

#[test]
fn the_body_has_the_ten_fields_and_shows_no_secret() {
    let settings = AgentServer {
        agent_server_provider: Some("openai".into()),
        agent_server_model: Some("m-1".into()),
        agent_server_enable_thinking: Some(true),
        agent_server_tools: Some(vec!["readTodos".into()]),
        agent_server_local_url: Some("http://127.0.0.1:11434".into()),
        agent_server_api_key: Some(Secret::new("sk-1")),
        ..at("https://runtime.example.com")
    };
    check_body(
        settings,
        expect![[r#"
        {"systemPrompt":"You are \"terse\".",
        "messages":[{"role":"user",
        "content":"hi"}],
        "tools":[{"name":"readTodos",
        "description":"Reads.",
        "inputSchema":{"type":"object"}}],
        "provider":"openai",
        "model":"m-1",
        "enableThinking":true,
        "baseUrl":"http://127.0.0.1:11434",
        "apiKey":"***",
        "mcpServerUrl":"https://app.example.com/base/api/agent/mcp?userId=ada+%26+bob&agentId=a&todoListId=l&timezone=Europe%2FBerlin",
        "context":{"userId":"ada & bob",
        "agentId":"a",
        "agentName":"Ann",
        "todoListId":"l",
        "timezone":"Europe/Berlin",
        "threadId":"***",
        "runId":"***",
        "caller":"session"}}"#]],
    );
    // Fields that the role does not set are omitted.
    let bare =
        AgentServer { agent_server_api_key: Some(Secret::new("")), ..at("https://runtime.example.com") };
    check_body(
        bare,
        expect![[r#"
        {"systemPrompt":"You are \"terse\".",
        "messages":[{"role":"user",
        "content":"hi"}],
        "tools":[{"name":"readTodos",
        "description":"Reads.",
        "inputSchema":{"type":"object"}}],
        "mcpServerUrl":"https://app.example.com/base/api/agent/mcp?userId=ada+%26+bob&agentId=a&todoListId=l&timezone=Europe%2FBerlin",
        "context":{"userId":"ada & bob",
        "agentId":"a",
        "agentName":"Ann",
        "todoListId":"l",
        "timezone":"Europe/Berlin",
        "threadId":"***",
        "runId":"***",
        "caller":"session"}}"#]],
    );
}

#[test]
fn parameters_are_an_eleventh_field_where_one_is_set() {
    let body = |parameters: serde_json::Value, limit: Option<u32>| {
        let serde_json::Value::Object(parameters) = parameters else { panic!("an object") };
        let max_output_tokens = limit.and_then(std::num::NonZeroU32::new);
        let token_limits = TokenLimits { max_output_tokens, ..TokenLimits::default() };
        let settings = AgentServer { parameters, token_limits, ..at("https://runtime.example.com") };
        let backend = backend(None, "");
        let budget = backend.capabilities(&settings)?.budget.max_prompt_tokens;
        let prepared = prepare_turn(&backend, turn(settings))?;
        Ok::<_, AgentError>((String::from_utf8(prepared.payload.bytes().to_vec()).expect("text"), budget))
    };
    let (body_without_parameters, budget) = body(json!({}), None).expect("prepared");
    assert_eq!(budget, 128_000 - 16_384);
    assert_eq!(body(json!({"temperature": null}), None).expect("prepared").0, body_without_parameters);
    for (parameters, limit, expected, budget) in [
        (json!({}), Some(700), r#"{"maxOutputTokens":700}"#, 127_300),
        (
            json!({"topK": 9, "temperature": 0.25, "seed": null}),
            Some(700),
            r#"{"topK":9,"temperature":0.25,"maxOutputTokens":700}"#,
            127_300,
        ),
        (json!({"maxOutputTokens": 300}), Some(700), r#"{"maxOutputTokens":300}"#, 127_700),
        (
            json!({"stopSequences": ["\"END\""], "extraBody": {"service_tier": "flex"}}),
            None,
            r#"{"stopSequences":["\"END\""],"extraBody":{"service_tier":"flex"}}"#,
            128_000 - 16_384,
        ),
    ] {
        let (request_body, actual_budget) = body(parameters, limit).expect("prepared");
        let member = format!(r#","parameters":{expected}"#);
        assert_eq!(
            (request_body.replace(&member, ""), actual_budget),
            (body_without_parameters.clone(), budget),
            "{request_body}"
        );
        assert!(request_body.contains(&member), "{request_body}");
    }
    // Roles that were stored before the check are read, and their calls fail.
    let failure = body(json!({"temperature": 3}), None).expect_err("a fault");
    assert_eq!(failure.kind(), AgentErrorKind::InvalidRequest);
    assert_eq!(failure.message(), "parameters.temperature must be a number from 0 to 2");
}

#[test]
fn secrets_and_identifiers_are_sent_and_redacted() {
    let settings =
        AgentServer { agent_server_api_key: Some(Secret::new("sk-\"1")), ..at("https://r.example.com") };
    let payload = prepare_turn(&backend(None, ""), turn(settings)).expect("prepared").payload;
    let body: serde_json::Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
    assert_eq!(body["apiKey"], "sk-\"1");
    assert_eq!(body["context"]["threadId"], "thread-1");
    assert_eq!(body["context"]["runId"], "run-1");
    let redacted = String::from_utf8(payload.redacted()).expect("text");
    for secret in ["sk-", "thread-1", "run-1"] {
        assert!(!redacted.contains(secret), "{redacted}");
    }
}

fn lines(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn whole() -> Vec<u8> {
    let body = lines(&[
        r#"{"type":"RUN_STARTED","threadId":"theirs","runId":"theirs"}"#,
        r#"{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}"#,
        r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"Hello"}"#,
        r#"{"type":"TEXT_MESSAGE_END","messageId":"m"}"#,
        r#"{"type":"RUN_FINISHED","threadId":"theirs","runId":"theirs"}"#,
    ]);
    chunked_response("200 OK", NDJSON, body.as_bytes(), 64, true)
}

#[tokio::test]
async fn the_secret_is_sent_to_the_operators_runtime_only() {
    // Role's URL; true if the operator has a secret; request seen by the operator's runtime, and by another.
    let cases: [(&str, bool, Option<&str>, Option<&str>); 7] = [
        ("http://OWN", true, Some("/chat Bearer s3cret"), None),
        ("http://OWN/v2/", true, Some("/v2/chat Bearer s3cret"), None),
        (" HTTP://OWN/?a=1 ", true, Some("/chat?a=1 Bearer s3cret"), None),
        ("http://OWN", false, Some("/chat -"), None),
        ("http://OTHER", true, None, Some("/chat -")),
        ("http://OTHER\\@OWN", true, None, Some("/@OWN/chat -")),
        ("http://localhost:PORT", true, Some("/chat -"), None),
    ];
    for (address, has_secret, own_sees, other_sees) in cases {
        let operator_server = LoopbackServer::respond_with(whole(), AfterResponse::Close).await;
        let other = LoopbackServer::respond_with(whole(), AfterResponse::Close).await;
        let port = operator_server.url.port().expect("a port").to_string();
        let fill = |text: &str| {
            let text =
                text.replace("OWN", operator_server.url.authority()).replace("OTHER", other.url.authority());
            text.replace("PORT", &port)
        };
        let runtime = operator_server.url.join("/").expect("a URL");
        let backend = backend(Some((&runtime, has_secret.then_some("s3cret"))), "127.0.0.1, localhost");
        let events = run(&backend, at(&fill(address))).await.expect("a run");
        assert!(matches!(events.last(), Some(Event::RunFinished { .. })), "{address}: {events:?}");
        assert_eq!(operator_server.paths_and_authorizations(), own_sees.map(fill).as_slice(), "{address}");
        assert_eq!(other.paths_and_authorizations(), other_sees.map(fill).as_slice(), "{address}");
    }
}

#[tokio::test]
async fn the_company_is_named_to_the_operators_runtime_only() {
    let operator_server = LoopbackServer::respond_with(whole(), AfterResponse::Close).await;
    let other = LoopbackServer::respond_with(whole(), AfterResponse::Close).await;
    let backend = backend(Some((&operator_server.url, None)), "127.0.0.1");
    let mut companies = Vec::new();
    for server in [&operator_server, &other] {
        let turn = Arc::into_inner(turn(at(server.url.as_str()))).expect("the turn is not shared");
        let context = ExecutionContext { company_id: "Müller & Co".into(), ..turn.context.clone() };
        let prepared = prepare_turn(&backend, Arc::new(Turn { context, ..turn })).expect("prepared");
        let events: Vec<Event> = start_turn(&backend, prepared).await.expect("a run").collect().await;
        assert!(matches!(events.last(), Some(Event::RunFinished { .. })), "{events:?}");
        let request = server.requests().pop().expect("a request");
        let company = request.lines().find_map(|line| line.strip_prefix("x-company-id: "));
        companies.push(company.map(str::to_owned));
    }
    assert_eq!(companies, [Some("M%C3%BCller+%26+Co".to_owned()), None]);
}

#[tokio::test]
async fn the_address_policy_does_not_apply_to_the_operators_runtime() {
    let (operator_server, other) = (
        LoopbackServer::respond_with(whole(), AfterResponse::Close).await,
        LoopbackServer::respond_with(whole(), AfterResponse::Close).await,
    );
    let backend = backend(Some((&operator_server.url, None)), "");
    assert!(run(&backend, at(operator_server.url.as_str())).await.is_ok());
    let blocked = run(&backend, at(other.url.as_str())).await.expect_err("not allowed");
    assert_eq!((blocked.kind(), other.requests().len()), (AgentErrorKind::Blocked, 0));
}

#[tokio::test]
async fn invalid_addresses_are_rejected() {
    let backend = backend(None, "");
    for address in ["", "runtime.example.com", "mailto:ada@example.com"] {
        let failure = run(&backend, at(address)).await.expect_err("no address");
        assert_eq!(failure.kind(), AgentErrorKind::InvalidRequest, "{address}");
    }
}

/// Types of a run's events after its start, the last one with its code.
fn show(events: &[Event]) -> String {
    let name = |event: &Event| match event {
        Event::RunError { code, .. } => format!("RUN_ERROR {code}"),
        event => event.name().to_owned(),
    };
    events[1..].iter().map(name).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn every_response_of_the_runtime_ends_the_run_once() {
    let start = r#"{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}"#;
    let text = r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"Größe 🙂"}"#;
    let finished = r#"{"type":"RUN_FINISHED","threadId":"t","runId":"r"}"#;
    let error = r#"{"type":"RUN_ERROR","message":"m","code":"BACKEND_TIMEOUT"}"#;
    let message_events = "TEXT_MESSAGE_START TEXT_MESSAGE_CONTENT";
    let cases: Vec<(String, String)> = vec![
        (lines(&[start, text, finished]), format!("{message_events} TEXT_MESSAGE_END RUN_FINISHED")),
        (
            lines(&[start, "", text, " ", finished, text]),
            format!("{message_events} TEXT_MESSAGE_END RUN_FINISHED"),
        ),
        (
            lines(&[start, text, finished]).trim_end().into(),
            format!("{message_events} TEXT_MESSAGE_END RUN_FINISHED"),
        ),
        (lines(&[start, text]).replace('\n', "\r\n"), format!("{message_events} RUN_ERROR STREAM_TRUNCATED")),
        (
            lines(&[start, r#"{"type":"STATE_DELTA","delta":[]}"#, text, error]),
            format!("{message_events} RUN_ERROR BACKEND_TIMEOUT"),
        ),
        (lines(&[start, text]) + &finished[..20], format!("{message_events} RUN_ERROR STREAM_TRUNCATED")),
        (lines(&[start, text, "sorry", finished]), format!("{message_events} RUN_ERROR BACKEND_FAILED")),
        (lines(&[start, text, start]), format!("{message_events} RUN_ERROR BACKEND_FAILED")),
        (lines(&["<html>"]), "RUN_ERROR BACKEND_FAILED".into()),
        (lines(&[&"x".repeat(2 << 20)]), "RUN_ERROR BACKEND_FAILED".into()),
        (String::new(), "RUN_ERROR STREAM_TRUNCATED".into()),
    ];
    for (body, expected) in cases {
        for size in [1 << 20, 5] {
            // Small chunks of the longest body would be slow and test nothing new.
            if size == 5 && body.len() > 1 << 20 {
                continue;
            }
            let server = LoopbackServer::respond_with(
                chunked_response("200 OK", NDJSON, body.as_bytes(), size, true),
                AfterResponse::Close,
            )
            .await;
            let events = run(&backend(None, "127.0.0.1"), at(server.url.as_str())).await.expect("a run");
            EventGrammar::check(&events).unwrap_or_else(|violation| panic!("{violation}: {events:?}"));
            assert_eq!(show(&events), expected, "in chunks of {size}: {:.200}", body);
            let (Event::RunStarted { run_id, .. }, Some(last)) = (&events[0], events.last()) else {
                panic!("{events:?}")
            };
            assert_eq!(&**run_id, "run-1");
            if let Event::RunFinished { run_id, thread_id, .. } = last {
                assert_eq!((&**thread_id, &**run_id), ("thread-1", "run-1"));
            }
        }
    }
}

#[tokio::test]
async fn error_responses_are_mapped_by_their_code_without_their_text() {
    use AgentErrorKind::*;
    use FailureClass::{Account, RateLimit, Request, Size, Transient};
    let problem = |code: &str| format!(r#"{{"title":"x","detail":"sk-1","code":"{code}"}}"#);
    let cases = [
        ("501 Not Implemented", problem("PROVIDER_NOT_IMPLEMENTED"), ProviderNotImplemented, Account),
        ("400 Bad Request", problem("UNKNOWN_PROVIDER"), UnknownProvider, Account),
        ("503 Service Unavailable", problem("NOT_CONFIGURED"), Failed, Account),
        ("422 Unprocessable Content", problem("UNSUPPORTED_CONTENT"), UnsupportedContent, Request),
        ("403 Forbidden", problem("OUTBOUND_BLOCKED"), Blocked, Request),
        ("504 Gateway Timeout", problem("BACKEND_TIMEOUT"), Timeout, Transient),
        ("502 Bad Gateway", problem("BACKEND_UNREACHABLE"), Unreachable, Transient),
        ("503 Service Unavailable", problem("SERVER_SHUTTING_DOWN"), ShuttingDown, Transient),
        ("500 Internal Server Error", problem("INTERNAL"), Failed, Transient),
        ("502 Bad Gateway", problem("CONTEXT_LENGTH_EXCEEDED"), ContextExceeded, Size),
        ("401 Unauthorized", problem("UNAUTHENTICATED"), Failed, Account),
        ("401 Unauthorized", String::new(), Failed, Account),
        ("302 Found", problem("INTERNAL_REDIRECT"), Failed, Account),
        ("400 Bad Request", problem("SOMETHING_NEW"), Failed, Request),
        ("413 Content Too Large", problem("PAYLOAD_TOO_LARGE"), Failed, Size),
        ("429 Too Many Requests", problem("RATE_LIMITED"), RateLimited, RateLimit),
        ("429 Too Many Requests", String::new(), RateLimited, RateLimit),
        ("503 Service Unavailable", "sorry, sk-1".to_owned(), Failed, Transient),
        (
            "503 Service Unavailable",
            format!("{}{}", " ".repeat(20_000), problem("BACKEND_TIMEOUT")),
            Failed,
            Transient,
        ),
        ("504 Gateway Timeout", "{}".to_owned(), Timeout, Transient),
    ];
    for (status, body, kind, class) in cases {
        let server = LoopbackServer::respond_with(
            chunked_response(status, PROBLEM, body.as_bytes(), 4096, true),
            AfterResponse::Close,
        )
        .await;
        let failure = run(&backend(None, "127.0.0.1"), at(server.url.as_str())).await.expect_err("refused");
        assert_eq!((failure.kind(), FailureClass::of(&failure)), (kind, class), "{status} {body:.100}");
        let cause = UpstreamError::find(&failure).and_then(UpstreamError::status);
        assert_eq!(
            cause.map(|status_code| status_code.to_string()).as_deref(),
            status.get(..3),
            "{body:.100}"
        );
        assert!(!format!("{failure} {failure:?}").contains("sk-1"), "{failure:?}");
    }
}

#[tokio::test]
async fn the_backend_conforms() {
    conformance::backend(async |scenario| {
        let partial = lines(&[
            r#"{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}"#,
            r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"Hel"}"#,
        ]);
        let (response, after_response) = match scenario {
            Scenario::Completes => (whole(), AfterResponse::Close),
            Scenario::Hangs => {
                (chunked_response("200 OK", NDJSON, partial.as_bytes(), 64, false), AfterResponse::Hold)
            }
            Scenario::Truncates => {
                (chunked_response("200 OK", NDJSON, partial.as_bytes(), 64, true), AfterResponse::Close)
            }
            Scenario::Rejects => {
                (chunked_response("503 Service Unavailable", PROBLEM, b"{}", 64, true), AfterResponse::Close)
            }
            _ => return None,
        };
        let server = LoopbackServer::respond_with(response, after_response).await;
        let (settings, open) = (at(server.url.as_str()), server.open());
        // The closure that counts connections keeps the server alive.
        let open = Box::new(move || {
            let _ = &server;
            open()
        });
        Some(BackendSubject { backend: Arc::new(backend(None, "127.0.0.1")), settings, open: Some(open) })
    })
    .await;
}

#[tokio::test]
async fn the_window_of_a_runtimes_model_is_learned_from_its_problem() {
    let problem =
        r#"{"code":"CONTEXT_LENGTH_EXCEEDED","contextWindow":4096,"promptTokens":5021,"detail":"sk-1"}"#;
    let answer = chunked_response("502 Bad Gateway", PROBLEM, problem.as_bytes(), 64, true);
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let backend = backend(None, "127.0.0.1");
    let settings =
        |model: &str| AgentServer { agent_server_model: Some(model.to_owned()), ..at(server.url.as_str()) };
    let budget_of = |company: &str, model: &str| {
        let capabilities = in_tenant(company.into(), || backend.capabilities(&settings(model)));
        capabilities.expect("capabilities").budget.max_prompt_tokens
    };
    let budget = |model: &str| budget_of("c", model);
    assert_eq!((budget("m"), budget("gpt-4")), (128_000 - 16_384, 8_192 - 2_048));
    let turn = Arc::new(backend_turn(BackendChoice::AgentServer(settings("m").into())));
    let prepared = prepare_turn(&backend, turn).expect("prepared");
    let failure = start_turn(&backend, prepared).await.expect_err("refused");
    assert_eq!(failure.kind(), AgentErrorKind::ContextExceeded);
    let debug = format!("{failure:?}");
    assert!(debug.contains("CONTEXT_LENGTH_EXCEEDED") && !debug.contains("sk-1"), "{debug}");
    assert!(budget("m") < 4_096, "{}", budget("m"));
    assert_eq!(budget_of("other", "m"), 128_000 - 16_384, "another company learns it by its own calls");
    assert_eq!(budget("n"), 128_000 - 16_384);
    let window = std::num::NonZeroU32::new(10_000);
    let limits = agent_core::role::TokenLimits { context_window: window, ..Default::default() };
    let with_limits = AgentServer { token_limits: limits, ..settings("n") };
    let budget = backend.capabilities(&with_limits).expect("capabilities").budget.max_prompt_tokens;
    assert_eq!(budget, 7_500, "the role's window, with a quarter for the answer");
}
