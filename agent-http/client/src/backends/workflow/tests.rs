//! Tests of the backend against a scripted loopback webhook.

use agent_core::conformance::{self, BackendSubject, Scenario};
use agent_core::error::AgentErrorKind;
use agent_core::event::{Event, EventGrammar};
use agent_core::message::Message;
use agent_core::role::{EmbeddedAi, RoleBlock, WebhookAuth};
use agent_core::secret::Secret;
use agent_core::select::BackendChoice;
use agent_core::testing::{backend_prompt, backend_turn, prepare_turn, start_turn};
use agent_core::tool::ExecutionContext;
use agent_platform::trace::begin_trace;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use expect_test::{Expect, expect};
use futures_util::StreamExt;
use serde_json::{Value, json};

use super::*;
use crate::loopback::{AfterResponse, LoopbackServer, chunked_response, outbound_client};

const JSON: &str = "application/json; charset=utf-8";

fn backend(allow: &str) -> WorkflowBackend {
    let public_url = Url::parse("https://app.example.com/base").expect("an address");
    WorkflowBackend { outbound: outbound_client(allow), public_url, run_token_ttl: Duration::from_secs(60) }
}

fn at(url: &Url, auth: Option<WebhookAuth>) -> BackendChoice {
    BackendChoice::Workflow(Box::new(WorkflowConnector { webhook_url: Some(url.to_string()), auth }))
}

fn turn_of(choice: BackendChoice, role: Value, messages: Vec<Message>) -> Arc<Turn> {
    let role: RoleBlock = serde_json::from_value(role).expect("a role");
    let prompt = Arc::new(backend_prompt(messages));
    Arc::new(Turn { role: Arc::new(role), prompt, ..backend_turn(choice) })
}

fn turn(choice: BackendChoice) -> Arc<Turn> {
    turn_of(choice, json!({"id": "a", "name": "Ann", "companyId": "c"}), vec![Message::user("hi")])
}

/// Runs a turn against a webhook with the given answer.
async fn run(answer: Vec<u8>) -> Result<Vec<Event>, AgentError> {
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let backend = backend("127.0.0.1");
    let prepared = prepare_turn(&backend, turn(at(&server.url, None)))?;
    let events =
        async { Ok::<_, AgentError>(start_turn(&backend, prepared).await?.collect::<Vec<Event>>().await) };
    let events = tokio::time::timeout(Duration::from_secs(60), events).await.expect("the run ends")?;
    EventGrammar::check(&events).unwrap_or_else(|violation| panic!("{violation}: {events:?}"));
    Ok(events)
}

/// A response with a `Content-Length`, which n8n sends for everything that it does not stream.
fn one_piece(status: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Renders the outcome of a run: its messages, and the code of its error.
fn outcome(run: Result<Vec<Event>, AgentError>) -> String {
    let events = match run {
        Ok(events) => events,
        Err(failure) => return format!("refused {}", failure.kind().code()),
    };
    let mut text = String::new();
    for event in &events {
        match event {
            Event::TextMessageStart { .. } => text.push('<'),
            Event::TextMessageContent { delta, .. } => text.push_str(delta),
            Event::TextMessageEnd { .. } => text.push('>'),
            Event::RunError { code, .. } => text.push_str(code),
            _ => {}
        }
    }
    text
}

fn check_body(turn: Arc<Turn>, expected: Expect) {
    let payload = prepare_turn(&backend(""), turn).expect("prepared").payload;
    let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
    assert_eq!(body["sessionId"], "thread-1");
    expected.assert_eq(&String::from_utf8_lossy(&payload.redacted()).replace(",\"", ",\n\""));
}

#[test]
fn the_body_is_for_both_triggers_and_has_no_secret_and_no_container() {
    let webhook = Url::parse("https://n8n.example.com/webhook/1?key=canary").expect("an address");
    let auth = WebhookAuth::Basic { user: "canary".into(), password: Some(Secret::new("canary")) };
    let role = json!({
        "id": "a", "name": "Ann", "companyId": "c", "ownerId": "canary",
        "content": {"systemPrompt": "You help.", "agentConfig": {"tone": "dry"}, "rules": ["Be brief."],
            "documentIds": ["handbook"], "memoryFolder": "notes", "messengerToken": "canary",
            "agentServerApiKey": "canary"},
        "children": [{"name": "WorkflowConnector", "content": {"webhookUrl": "https://canary.example.com"}}],
    });
    let history = [Message::user("hi"), Message::assistant("Hello."), Message::user("When \"open\"?")];
    let turn = turn_of(at(&webhook, Some(auth)), role, history.to_vec());
    assert!(
        !String::from_utf8_lossy(prepare_turn(&backend(""), turn.clone()).expect("prepared").payload.bytes())
            .contains("canary")
    );
    check_body(
        turn,
        expect![[r#"
        {"action":"sendMessage",
        "sessionId":"***",
        "chatInput":"When \"open\"?",
        "roleData":{"agentId":"a",
        "name":"Ann",
        "finalSystemPrompt":"You are \"terse\".",
        "systemPrompt":"You help.",
        "agentConfig":{"tone":"dry"},
        "rules":["Be brief."],
        "docs":[{"id":"handbook"}],
        "memoryFolder":"notes"},
        "agentId":"a",
        "todoListBlockId":"l",
        "mcpServerUrl":"https://app.example.com/base/api/agent/mcp?userId=ada&agentId=a&todoListId=l",
        "messages":[{"role":"user",
        "content":"hi"},{"role":"assistant",
        "content":"Hello."},{"role":"user",
        "content":"When \"open\"?"}]}"#]],
    );

    let bare = turn_of(at(&webhook, None), json!({"id": "a", "companyId": "c"}), vec![Message::user("hi")]);
    let mut turn = Arc::into_inner(bare).expect("the turn is not shared");
    turn.context.todo_list_id = None;
    check_body(
        Arc::new(turn),
        expect![[r#"
        {"action":"sendMessage",
        "sessionId":"***",
        "chatInput":"hi",
        "roleData":{"agentId":"a",
        "name":"",
        "finalSystemPrompt":"You are \"terse\".",
        "rules":[],
        "docs":[]},
        "agentId":"a",
        "mcpServerUrl":"https://app.example.com/base/api/agent/mcp?userId=ada&agentId=a",
        "messages":[{"role":"user",
        "content":"hi"}]}"#]],
    );
}

#[test]
fn a_trace_does_not_change_the_request() {
    let webhook = Url::parse("https://n8n.example.com/webhook/1").expect("an address");
    let prepare = |trace| {
        let turn = Arc::into_inner(turn(at(&webhook, None))).expect("the turn is not shared");
        let context = ExecutionContext { trace, ..turn.context.clone() };
        prepare_turn(&backend(""), Arc::new(Turn { context, ..turn })).expect("prepared").payload
    };
    let (untraced, traced) = (prepare(None), prepare(Some(begin_trace())));
    assert_eq!(untraced.bytes(), traced.bytes());
    assert_eq!(untraced.sha256(), traced.sha256());
}

#[test]
fn a_turn_for_another_backend_is_refused() {
    let failure = prepare_turn(&backend(""), turn(BackendChoice::Embedded(EmbeddedAi::default())))
        .expect_err("refused");
    assert_eq!(failure.kind(), AgentErrorKind::Internal);
}

#[tokio::test]
async fn webhooks_have_four_methods_of_authentication() {
    let header =
        |name: &str, value: &str| WebhookAuth::Header { name: name.into(), value: Some(Secret::new(value)) };
    let basic = |user: &str, password: &str| WebhookAuth::Basic {
        user: user.into(),
        password: Some(Secret::new(password)),
    };
    let jwt = |secret: &str| WebhookAuth::Jwt { secret: Some(Secret::new(secret)) };
    let encoded = |text: &str| format!("Basic {}", STANDARD.encode(text));
    // The expected header, or the kind of error for the credential.
    type Expected = Result<Option<(&'static str, String)>, AgentErrorKind>;
    let cases: Vec<(Option<WebhookAuth>, Expected)> = vec![
        (None, Ok(None)),
        (Some(WebhookAuth::None), Ok(None)),
        (Some(basic("ada", "s3:cret")), Ok(Some(("authorization", encoded("ada:s3:cret"))))),
        (Some(basic("ädä", "größe")), Ok(Some(("authorization", encoded("ädä:größe"))))),
        (Some(basic("a:da", "s3cret")), Err(AgentErrorKind::InvalidRequest)),
        (Some(basic("ada", "s3\ncret")), Err(AgentErrorKind::InvalidRequest)),
        (Some(basic("", "s3cret")), Err(AgentErrorKind::NotConfigured)),
        (Some(basic("ada", "")), Err(AgentErrorKind::NotConfigured)),
        (Some(header("X-Api-Key", "s3cret")), Ok(Some(("x-api-key", "s3cret".into())))),
        (Some(header("Authorization", "Token s3cret")), Ok(Some(("authorization", "Token s3cret".into())))),
        (Some(header("X-Api-Key", "s3cret\r\nx: y")), Err(AgentErrorKind::InvalidRequest)),
        (Some(header("X Api Key", "s3cret")), Err(AgentErrorKind::InvalidRequest)),
        (Some(header("", "s3cret")), Err(AgentErrorKind::NotConfigured)),
        (Some(header("X-Api-Key", "")), Err(AgentErrorKind::NotConfigured)),
        (Some(header("Host", "s3cret")), Err(AgentErrorKind::InvalidRequest)),
        (Some(header("content-Length", "s3cret")), Err(AgentErrorKind::InvalidRequest)),
        (Some(header("Transfer-Encoding", "s3cret")), Err(AgentErrorKind::InvalidRequest)),
        (Some(header("Connection", "s3cret")), Err(AgentErrorKind::InvalidRequest)),
        (Some(header("Content-Type", "s3cret")), Err(AgentErrorKind::InvalidRequest)),
        (Some(jwt("")), Err(AgentErrorKind::NotConfigured)),
        (Some(WebhookAuth::Jwt { secret: None }), Err(AgentErrorKind::NotConfigured)),
    ];
    for (auth, expected) in cases {
        let response = one_piece("200 OK", JSON, br#"{"output":"Hello"}"#);
        let server = LoopbackServer::respond_with(response, AfterResponse::Close).await;
        let backend = backend("127.0.0.1");
        let case = format!("{auth:?}");
        let prepared = prepare_turn(&backend, turn(at(&server.url, auth))).expect("prepared");
        let result = start_turn(&backend, prepared).await;
        match (expected, result) {
            (Ok(expected), Ok(_)) => {
                let [request] = &server.requests()[..] else { panic!("{case}: one request") };
                let head = request.split("\r\n\r\n").next().expect("a head");
                let value =
                    |name: &str| head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
                assert_eq!(value("content-type"), Some("application/json"), "{case}");
                match expected {
                    Some((name, expected)) => assert_eq!(value(name), Some(&*expected), "{case}"),
                    None => assert!(!head.contains("authorization"), "{case}: {head}"),
                }
            }
            (Err(kind), Err(failure)) => {
                assert_eq!(failure.kind(), kind, "{case}");
                assert!(!format!("{failure} {failure:?}").contains("s3"), "{failure:?}");
                assert!(server.requests().is_empty(), "{case}");
            }
            (expected, result) => panic!("{case}: {expected:?}, {:?}", result.err()),
        }
    }
}

#[tokio::test]
async fn a_signed_token_names_the_sender_and_is_valid_for_five_minutes() {
    let server =
        LoopbackServer::respond_with(one_piece("200 OK", JSON, b"\"Hello\""), AfterResponse::Close).await;
    let backend = backend("127.0.0.1");
    let auth = Some(WebhookAuth::Jwt { secret: Some(Secret::new("webhook-secret")) });
    let prepared = prepare_turn(&backend, turn(at(&server.url, auth))).expect("prepared");
    start_turn(&backend, prepared).await.expect("started");
    let request = server.requests().remove(0);
    let bearer =
        request.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).expect("a bearer");

    let part = |position: usize| -> Value {
        let part = bearer.split('.').nth(position).expect("three parts");
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).expect("Base64")).expect("JSON")
    };
    assert_eq!(part(0), json!({"typ": "JWT", "alg": "HS256"}));
    let mut validation = jsonwebtoken::Validation::new(jsonwebtoken::Algorithm::HS256);
    validation.set_audience(&[server.url.origin().ascii_serialization()]);
    let key = jsonwebtoken::DecodingKey::from_secret(b"webhook-secret");
    let claims =
        jsonwebtoken::decode::<Value>(bearer, &key, &validation).expect("the signature is valid").claims;
    assert_eq!(
        (&claims["iss"], &claims["sub"], &claims["companyId"], &claims["agentId"]),
        (&json!("agentd"), &json!("ada"), &json!("c"), &json!("a"))
    );
    let lifetime = claims["exp"].as_u64().zip(claims["iat"].as_u64()).map(|(exp, iat)| exp - iat);
    assert_eq!(lifetime, Some(300));
    let other = jsonwebtoken::DecodingKey::from_secret(b"another-secret");
    assert!(jsonwebtoken::decode::<Value>(bearer, &other, &validation).is_err());
}

#[tokio::test]
async fn webhooks_are_subject_to_the_address_policy() {
    for (url, kind) in [
        ("http://127.0.0.1:1/webhook", AgentErrorKind::Blocked),
        ("http://169.254.169.254/webhook", AgentErrorKind::Blocked),
        ("http://ada:s3cret@n8n.example.com/webhook", AgentErrorKind::Blocked),
        ("not an address s3cret", AgentErrorKind::InvalidRequest),
        ("mailto:s3cret@example.com", AgentErrorKind::Blocked),
    ] {
        let choice = BackendChoice::Workflow(Box::new(WorkflowConnector {
            webhook_url: Some(url.to_owned()),
            auth: None,
        }));
        let backend = backend("");
        let prepared = prepare_turn(&backend, turn(choice)).expect("prepared");
        let failure = start_turn(&backend, prepared).await.err().unwrap_or_else(|| panic!("{url}: refused"));
        assert_eq!(failure.kind(), kind, "{url}");
        assert!(!format!("{failure} {failure:?}").contains("s3cret"), "{failure:?}");
    }
}

/// Non-streamed JSON answers; the expected text, or the error code.
const WHOLE: [(&str, &str); 37] = [
    (r#"{"output":"Hello"}"#, "<Hello>"),
    (r#" {"text":"Hello"} "#, "<Hello>"),
    (r#"{"response":"Hello"}"#, "<Hello>"),
    (r#"{"message":"Hello"}"#, "<Hello>"),
    (r#"{"message":"Hello","sessionId":"s"}"#, "<Hello>"),
    (r#"{"data":"Hello"}"#, "<Hello>"),
    (r#"{"data":[{"output":"Hello"}]}"#, "<Hello>"),
    (r#"{"json":{"output":"Hello"}}"#, "<Hello>"),
    (r#"[{"output":"Hello"}]"#, "<Hello>"),
    (r#"[{"json":{"output":"Hello"}},{"json":{"output":"you"}}]"#, "<Hello\n\nyou>"),
    (r#"{"text":"no","output":"Hello"}"#, "<Hello>"),
    (r#"{"output":"Hello","intermediateSteps":[{"action":{"tool":"x"}}]}"#, "<Hello>"),
    (r#"{"output":null,"text":"Hello"}"#, "<Hello>"),
    (r#"{"output":{"answer":"x","score":1}}"#, r#"<{"answer":"x","score":1}>"#),
    (r#"{"output":{"text":"Hello"}}"#, "<Hello>"),
    (r#"{"output":42}"#, "<42>"),
    (r#"{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}"#, "<Hello>"),
    (r#"{"content":[{"type":"text","text":"Hel"},{"type":"text","text":"lo"}]}"#, "<Hello>"),
    (r#"{"content":{"parts":[{"text":"Hel"},{"text":"lo"}],"role":"model"}}"#, "<Hello>"),
    (r#"{"output":[{"type":"message","content":[{"type":"output_text","text":"Hello"}]}]}"#, "<Hello>"),
    (r#""Hello""#, "<Hello>"),
    ("\u{feff}{\"output\":\"Hello\"}", "<Hello>"),
    ("{\n  \"output\":\n  \"Hello\"\n}\n", "<Hello>"),
    ("Hello\nyou", "<Hello\nyou>"),
    (r#"{"output":"Workflow was started"}"#, "<Workflow was started>"),
    (r#"{"message":"Workflow was started"}"#, "BACKEND_FAILED"),
    (r#"{"message":"Workflow was started","executionId":"7"}"#, "BACKEND_FAILED"),
    ("Workflow got started.", "BACKEND_FAILED"),
    (r#"{"executionStarted":true,"executionId":"7"}"#, "BACKEND_FAILED"),
    (r#"{"message":"Workflow executed successfully but no data was returned"}"#, "BACKEND_FAILED"),
    (r#"{"code":0,"message":"No item to return was found","stacktrace":"Error: at x"}"#, "BACKEND_FAILED"),
    (r#"[{"error":"The resource could not be found"}]"#, "BACKEND_FAILED"),
    (r#"{"headers":{"authorization":"Basic x"},"body":{"chatInput":"hi"},"query":{}}"#, "BACKEND_FAILED"),
    (r#"{"output":"Hel"#, "BACKEND_FAILED"),
    (r#"[{}]"#, "BACKEND_FAILED"),
    (r#"{"output":" "}"#, "BACKEND_FAILED"),
    ("", "BACKEND_FAILED"),
];

#[tokio::test]
async fn an_answer_in_one_piece_is_found_in_many_shapes() {
    for (body, expected) in WHOLE {
        let streamed = chunked_response("200 OK", JSON, body.as_bytes(), 3, true);
        assert_eq!(outcome(run(streamed).await), expected, "in chunks: {body}");
        let refused = format!("refused {expected}");
        let expected = if expected.starts_with('<') { expected } else { &refused };
        let response = one_piece("200 OK", JSON, body.as_bytes());
        assert_eq!(outcome(run(response).await), expected, "{body}");
    }
}

#[tokio::test]
async fn the_media_type_decides_where_the_content_does_not() {
    let failed = "refused BACKEND_FAILED";
    let cases: [(&str, &[u8], &str); 14] = [
        ("text/plain", b"Hello", "<Hello>"),
        ("text/html; charset=utf-8", b"Hello <b>you</b>", "<Hello <b>you</b>>"),
        ("text/html", b"Workflow was started", failed),
        ("text/html", b" <!DOCTYPE html><html>", failed),
        ("text/html", b"<HTML lang=en>", failed),
        ("application/json", b"<html>", failed),
        ("text/plain", b"[1] is a footnote", "<[1] is a footnote>"),
        ("text/plain", br#"{"temperature":21}"#, r#"<{"temperature":21}>"#),
        ("text/plain", br#"{"output":"Hello"}"#, "<Hello>"),
        ("text/plain", b"Hel\xff", failed),
        ("text/event-stream", b"data: Hello\n\n", failed),
        ("image/png", b"\x89PNG", failed),
        ("application/octet-stream", b"Hello", failed),
        ("application/problem+json", br#"{"output":"Hello"}"#, "<Hello>"),
    ];
    for (kind, body, expected) in cases {
        let case = String::from_utf8_lossy(body);
        assert_eq!(outcome(run(one_piece("200 OK", kind, body)).await), expected, "{kind}: {case}");
    }
}

/// Streamed lines; the expected text, or the error code.
const LINES: [(&str, &str); 20] = [
    (r#"{B}|{I "Hel"}|{I "lo"}|{E}"#, "<Hello>"),
    (r#"{B}|{I "Let me look."}|{E}|{B}|{I "Done."}|{E}"#, "<Let me look.><Done.>"),
    (r#"{B}|{E}|{B}|{I "Done."}|{E}"#, "<Done.>"),
    (r#"{B}|{I ""}|{I "Größe – 🙂"}|{E}"#, "<Größe – 🙂>"),
    (r#"{I "Hello"}"#, "<Hello>"),
    (r#"{B}|{I "{\"output\":\"Hello\"}"}|{E}"#, "<Hello>"),
    (r#"{B}|{I "{\"text\":\"Hello\"}"}|{E}"#, "<Hello>"),
    (r#"{B}|{I "{\"output\":{\"score\":1}}"}|{E}"#, r#"<{"score":1}>"#),
    (r#"{B}|{I "{\"text\":\"Hello\",\"score\":1}"}|{E}"#, r#"<{"text":"Hello","score":1}>"#),
    (r#"{B}|{I "{"}|{I "}"}|{E}"#, "<{}>"),
    (r#"{"type":"keepalive"}|{B}|{"type":"keepalive"}|{I "Hello"}|{E}"#, "<Hello>"),
    (r#"{"type":"tool-call-start","metadata":{}}|{B}|{I "Hello"}|{E}"#, "<Hello>"),
    (r#"||{B}| |{I "Hello"}|{E}|"#, "<Hello>"),
    (r#"{B}|{I "Hel"}|{"type":"error","content":"canary","metadata":{}}"#, "<HelBACKEND_FAILED"),
    (r#"{B}|{I "Hel"}|{E}|{"type":"error","metadata":{}}|{I "lo"}"#, "<Hel>BACKEND_FAILED"),
    (r#"{"type":"error","content":null}"#, "BACKEND_FAILED"),
    (r#"{B}|{I "Hel"}"#, "<HelSTREAM_TRUNCATED"),
    (r#"{B}|{E}"#, "BACKEND_FAILED"),
    (r#"{B}|{I "Hel"}|sorry|{E}"#, "<HelBACKEND_FAILED"),
    (r#"{B}|{I "Hel"}|{"type":"item","content":{"canary":1}}|{E}"#, "<HelBACKEND_FAILED"),
];

fn stream_of(lines: &str) -> String {
    let metadata =
        r#""metadata":{"nodeId":"n","nodeName":"AI Agent","itemIndex":0,"runIndex":0,"timestamp":1}"#;
    let lines = lines.replace("{B}", &format!(r#"{{"type":"begin",{metadata}}}"#));
    let lines = lines.replace("{E}", &format!(r#"{{"type":"end",{metadata}}}"#));
    let lines = lines.replace("\"}|", "\"}\n").replace('|', "\n") + "\n";
    let item = |line: &str| match line.strip_prefix("{I ") {
        Some(rest) => {
            format!(r#"{{"type":"item","content":{},{metadata}}}"#, rest.strip_suffix('}').expect("an item"))
        }
        None => line.to_owned(),
    };
    lines.lines().map(|line| item(line) + "\n").collect()
}

#[tokio::test]
async fn a_stream_ends_with_the_body_and_has_a_message_for_each_model_call() {
    for (lines, expected) in LINES {
        let body = stream_of(lines);
        for size in [1, 7, 64, 1 << 16] {
            let streamed = chunked_response("200 OK", JSON, body.as_bytes(), size, true);
            assert_eq!(outcome(run(streamed).await), expected, "{size}: {body}");
        }
        // A last line without its newline.
        let streamed = chunked_response("200 OK", JSON, body.trim_end().as_bytes(), 64, true);
        assert_eq!(outcome(run(streamed).await), expected, "{body}");
        // A proxy may buffer the whole stream before it forwards it.
        let buffered = outcome(run(one_piece("200 OK", JSON, body.as_bytes())).await);
        match expected.split_once("BACKEND").or(expected.split_once("STREAM")) {
            Some(_) => {
                assert!(
                    buffered.starts_with("refused ") && expected.ends_with(&buffered[8..]),
                    "{buffered}: {body}"
                )
            }
            None => assert_eq!(buffered, expected, "{body}"),
        }
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_off_at_any_byte_is_truncated() {
    let body = stream_of(r#"{B}|{I "Hel"}|{I "lo"}|{E}"#);
    for end in 0..body.len() {
        let streamed = chunked_response("200 OK", JSON, &body.as_bytes()[..end], 64, false);
        let text = outcome(run(streamed).await);
        assert!(text.ends_with("STREAM_TRUNCATED"), "{end}: {text}");
    }
    // The body ends regularly, in the middle of a line.
    let body = stream_of(r#"{I "Hel"}"#) + r#"{"type":"item","content":"lo"#;
    let streamed = chunked_response("200 OK", JSON, body.as_bytes(), 64, true);
    assert_eq!(outcome(run(streamed).await), "<HelSTREAM_TRUNCATED");
    let buffered = one_piece("200 OK", JSON, body.as_bytes());
    assert_eq!(outcome(run(buffered).await), "refused STREAM_TRUNCATED");
}

#[tokio::test]
async fn the_size_of_answers_is_limited() {
    // The message's identifier counts too.
    let long = "x".repeat(MAX_WHOLE_BYTES - 100);
    let line = stream_of(&format!("{{B}}|{{I \"{}\"}}|{{E}}", "x".repeat(1 << 20)));
    for (body, expected) in
        [(long.clone(), "<x"), (long + &"x".repeat(101), "OUTPUT_TOO_LARGE"), (line, "BACKEND_FAILED")]
    {
        let text =
            outcome(run(chunked_response("200 OK", "text/plain", body.as_bytes(), 1 << 16, true)).await);
        assert!(text.starts_with(expected), "{expected}: {text:.40}");
    }
}

#[tokio::test]
async fn error_responses_have_messages_without_the_engines_text() {
    use AgentErrorKind::{Failed, RateLimited, Timeout};
    let not_registered = json!({"code": 404, "message": "The requested webhook \"POST canary\" is not registered.",
        "hint": "canary", "stacktrace": "WebhookNotFoundError: canary"});
    let cases = [
        ("404 Not Found", Failed, "no workflow is registered"),
        ("500 Internal Server Error", Failed, "the workflow failed"),
        ("401 Unauthorized", Failed, "credentials"),
        ("403 Forbidden", Failed, "credentials"),
        ("413 Payload Too Large", Failed, "HTTP 413"),
        ("429 Too Many Requests", RateLimited, "HTTP 429"),
        ("502 Bad Gateway", Failed, "HTTP 502"),
        ("504 Gateway Timeout", Timeout, "HTTP 504"),
    ];
    for (status, kind, expected_words) in cases {
        let failure =
            run(one_piece(status, JSON, not_registered.to_string().as_bytes())).await.expect_err(status);
        assert_eq!(failure.kind(), kind, "{status}");
        assert!(failure.message().contains(expected_words), "{status}: {failure}");
        assert!(!format!("{failure} {failure:?}").contains("canary"), "{failure:?}");
    }
}

#[tokio::test]
async fn the_first_token_is_passed_on_at_once() {
    let body = stream_of(r#"{B}|{I "Hel"}"#);
    let streamed = chunked_response("200 OK", JSON, body.as_bytes(), 64, false);
    let server = LoopbackServer::respond_with(streamed, AfterResponse::Hold).await;
    let backend = backend("127.0.0.1");
    let prepared = prepare_turn(&backend, turn(at(&server.url, None))).expect("prepared");
    let mut events = start_turn(&backend, prepared).await.expect("started");
    let first_delta = async {
        while let Some(event) = events.next().await {
            if let Event::TextMessageContent { delta, .. } = event {
                return delta;
            }
        }
        String::new()
    };
    assert_eq!(
        tokio::time::timeout(Duration::from_secs(60), first_delta)
            .await
            .expect("the token arrives before the end"),
        "Hel"
    );
}

#[tokio::test]
async fn the_backend_conforms() {
    conformance::backend(async |scenario| {
        let partial = stream_of(r#"{B}|{I "Hel"}"#);
        let complete = stream_of(r#"{B}|{I "Hel"}|{I "lo"}|{E}"#);
        let (response, after_response) = match scenario {
            Scenario::Completes => {
                (chunked_response("200 OK", JSON, complete.as_bytes(), 64, true), AfterResponse::Close)
            }
            Scenario::Hangs => {
                (chunked_response("200 OK", JSON, partial.as_bytes(), 64, false), AfterResponse::Hold)
            }
            Scenario::Truncates => {
                (chunked_response("200 OK", JSON, partial.as_bytes(), 64, true), AfterResponse::Close)
            }
            Scenario::Rejects => (one_piece("404 Not Found", JSON, b"{}"), AfterResponse::Close),
            _ => return None,
        };
        let server = LoopbackServer::respond_with(response, after_response).await;
        let settings = WorkflowConnector { webhook_url: Some(server.url.to_string()), auth: None };
        let open = server.open();
        // The closure that counts connections keeps the server alive.
        let open = Box::new(move || {
            let _ = &server;
            open()
        });
        Some(BackendSubject { backend: Arc::new(backend("127.0.0.1")), settings, open: Some(open) })
    })
    .await;
}
