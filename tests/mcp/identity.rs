//! Authentication of MCP clients, and isolation between identities.

use agent_core::tool::Caller;
use agent_mcp::server::Change;
use futures_util::StreamExt;
use serde_json::{Value, json};

use super::test_server::{McpTestConfig, McpTestServer, REQUEST_META, identity};
use crate::support::{self, TEST_TIMEOUT};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

#[tokio::test]
async fn missing_and_conflicting_credentials_are_refused() {
    let server = McpTestServer::start(McpTestConfig::default()).await;
    let (ok, none, two, other) = (200, "UNAUTHENTICATED", "AMBIGUOUS_CREDENTIALS", "FORBIDDEN");
    let cases: &[(&str, &[&str], u16, &str)] = &[
        ("?token=ada", &[], ok, ""),
        ("", &["Bearer ada"], ok, ""),
        ("", &["bearer  ada "], ok, ""),
        ("?token=ada", &["Bearer ada"], ok, ""),
        ("?token=ada&userId=ada&agentId=a1&companyId=c1&todoListId=list-of-ada", &[], ok, ""),
        ("?token=ada&todoListId=", &[], ok, ""),
        ("", &[], 401, none),
        ("?token=", &[], 401, none),
        ("?token=nobody", &[], 401, none),
        ("?token=ad", &[], 401, none),
        ("?token=adaa", &[], 401, none),
        ("?token=ADA", &[], 401, none),
        ("", &["Basic ada"], 401, none),
        ("", &["ada"], 401, none),
        ("?widgetToken=ada", &[], 401, none),
        ("?userId=ada&agentId=a1", &[], 401, none),
        ("?token=ada&token=ada", &[], 400, two),
        ("?token=ada&token=bob", &[], 400, two),
        ("?token=ada", &["Bearer bob"], 400, two),
        ("?token=ada", &["Basic ada"], 400, two),
        ("", &["Bearer ada", "Bearer ada"], 400, two),
        ("?token=ada&userId=bob", &[], 403, other),
        ("?token=ada&agentId=a2", &[], 403, other),
        ("?token=ada&companyId=c2", &[], 403, other),
        ("?token=ada&todoListId=list-of-bob", &[], 403, other),
        ("?token=ada&timezone=Europe/Berlin", &[], 403, other),
        ("?token=ada&userId=ada&userId=bob", &[], 400, "INVALID_REQUEST"),
    ];
    for (query, bearers, status, code) in cases {
        let mut request = server.post(query, PING);
        for bearer in *bearers {
            request = request.header("authorization", *bearer);
        }
        let response = request.send().await.expect("an answer");
        if *status == ok {
            assert_eq!(response.status(), ok, "{query} {bearers:?}");
            continue;
        }
        let challenge = response.headers().get("www-authenticate").cloned();
        let has_token = query.contains("?token=") || !bearers.is_empty();
        let expected = if has_token { "Bearer error=\"invalid_token\"" } else { "Bearer" };
        let expected = (*status == 401).then_some(expected);
        assert_eq!(
            challenge.as_ref().map(|value| value.as_bytes()),
            expected.map(str::as_bytes),
            "{query} {bearers:?}"
        );
        let problem = support::expect_problem(response, *status, code).await;
        if query.contains("userId=ada&agentId") {
            assert!(problem["detail"].as_str().expect("text").contains("MCP_LEGACY_QUERY"), "{problem}");
        }
    }
}

#[tokio::test]
async fn a_query_may_name_people_where_the_operator_lets_it() {
    let server = McpTestServer::start(McpTestConfig { legacy: true, ..McpTestConfig::default() }).await;
    for (query, status) in [
        ("?userId=ada&agentId=a1&todoListId=list-of-ada", 200),
        ("?userId=ada&agentId=a1", 200),
        ("?userId=eve&agentId=a1", 401),
        ("?userId=ada&agentId=a2", 401),
        ("?userId=nobody&agentId=a1", 401),
        ("?userId=ada&agentId=none", 401),
        ("?userId=ada", 401),
        ("?agentId=a1", 401),
        ("?userId=ada&agentId=%00", 401),
        ("?userId=%00&agentId=a1", 401),
        (&format!("?userId=ada&agentId={}", "a".repeat(5000)), 401),
        ("?token=nobody&userId=ada&agentId=a1", 401),
    ] {
        let response = server.post(query, PING).send().await.expect("an answer");
        assert_eq!(response.status(), status, "{query}");
    }
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"readTodos"}}"#;
    let query = "?userId=ada&agentId=a1&todoListId=list-of-bob";
    let answer: Value =
        server.post(query, body).send().await.expect("an answer").json().await.expect("a message");
    assert_eq!(answer["result"]["isError"], true, "whose a list is, is asked nevertheless: {answer}");
}

#[tokio::test]
async fn foreign_names_and_pages_are_kept_out() {
    let server = McpTestServer::start(McpTestConfig::default()).await;
    let port = server.address.port();
    let own_host = format!("127.0.0.1:{port}");
    let cases = [
        (own_host.clone(), None, 200),
        (format!("localhost:{port}"), Some("https://app.example".to_owned()), 200),
        (own_host.clone(), Some(format!("http://localhost:{port}")), 200),
        ("evil.example".to_owned(), None, 403),
        (format!("evil.example:{port}"), Some(format!("http://evil.example:{port}")), 403),
        (own_host.clone(), Some("https://evil.example".to_owned()), 403),
        (own_host.clone(), Some("null".to_owned()), 403),
    ];
    for (host, origin, status) in cases {
        for method in ["POST", "GET", "DELETE"] {
            let origin = origin.as_ref().map(|origin| format!("Origin: {origin}\r\n")).unwrap_or_default();
            let head = format!(
                "{method} /api/agent/mcp?token=ada HTTP/1.1\r\nHost: {host}\r\n{origin}Connection: close\r\n"
            );
            let body =
                format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{PING}", PING.len());
            let answer = support::exchange(server.address, head + &body).await;
            let actual_status: u16 =
                answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
            let expected = if status == 200 && method != "POST" { 400 } else { status };
            assert_eq!(actual_status, expected, "{method} {host} {origin}");
        }
    }
}

#[tokio::test]
async fn a_revoked_token_is_refused_from_then_on_in_its_sessions_too() {
    let server = McpTestServer::start(McpTestConfig::default()).await;
    let session = server.open_session("ada", "2025-11-25").await;
    let ping: Value = serde_json::from_str(PING).expect("JSON");
    assert_eq!(
        server.in_session("ada", Some(&session), &ping).send().await.expect("an answer").status(),
        200
    );
    let stream = server.request("GET", "").bearer_auth("ada").header("mcp-session-id", &session);
    let own_stream = stream.header("accept", "text/event-stream").send().await.expect("an answer");
    assert_eq!(own_stream.status(), 200);
    server.tokens.revoke("ada");
    let remaining_bytes =
        tokio::time::timeout(TEST_TIMEOUT, own_stream.bytes()).await.expect("open streams end");
    assert_eq!(remaining_bytes.expect("in order"), "");
    for request in [server.in_session("ada", Some(&session), &ping), server.post("?token=ada", PING)] {
        support::expect_problem(request.send().await.expect("an answer"), 401, "UNAUTHENTICATED").await;
    }
}

/// Returns the results that an identity receives, one line for each request.
async fn visible_results(server: &McpTestServer, token: &str) -> Vec<String> {
    let mut results = Vec::new();
    let list = server.ask(token, "tools/list", json!({})).await;
    let tools = list["result"]["tools"].as_array().expect("tools");
    results.push(tools.iter().filter_map(|tool| tool["name"].as_str()).collect::<Vec<_>>().join(" "));
    for (method, params) in [
        ("tools/call", json!({"name": "readTodos"})),
        (
            "tools/call",
            json!({"name": "readTodos", "arguments": {"todoListId": "list-of-ada", "userId": "ada"}}),
        ),
        ("tools/call", json!({"name": "steps"})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "Tone"})),
    ] {
        let answer = server.ask(token, method, params).await;
        results.push(answer.get("result").or(answer.get("error")).expect("either").to_string());
    }
    results
}

#[tokio::test]
async fn each_caller_sees_only_its_own_data() {
    let server = McpTestServer::start(McpTestConfig::default()).await;
    let mut cut = identity("ada", "c1", "a1");
    cut.context.granted_tools = Some(vec!["steps".into(), "remember".into()]);
    let people = [
        ("ada", identity("ada", "c1", "a1")),
        ("bob", identity("bob", "c1", "a1")),
        ("eve", identity("eve", "c2", "a2")),
        ("cut", cut),
        ("visitor", identity("widget:w1", "c1", "a1")),
        ("stranger", identity("eve", "c2", "a1")),
        ("nobody's", identity("ada", "c1", "none")),
        ("odd", identity("ada", "c1", "\u{0}")),
    ];
    let mut all = Vec::new();
    for (token, identity) in people {
        assert_eq!(identity.context.caller == Caller::Widget, token == "visitor");
        server.tokens.add(token, identity);
        all.push((token, visible_results(&server, token).await));
    }
    let of = |name: &str| &all.iter().find(|(token, _)| *token == name).expect("it was asked").1;
    let every = "createTodo fails readTodos slow steps";
    assert_eq!((of("ada")[0].as_str(), of("bob")[0].as_str(), of("eve")[0].as_str()), (every, every, every));
    assert_eq!(of("cut")[0], "steps");
    assert!(of("ada")[1].contains("basil") && of("bob")[1].contains("cat"));
    assert!(!of("eve")[1].contains("basil") && !of("bob")[1].contains("basil"));
    for (token, visible) in &all {
        assert_eq!(visible[1], visible[2], "{token}: arguments name nobody");
        assert!(*token == "ada" || !visible.concat().contains("basil"), "{token}");
        assert!(*token == "bob" || !visible.concat().contains("Feed the cat"), "{token}");
    }
    let prompts = |name: &str| of(name)[4].contains("Tone");
    assert!(prompts("ada") && prompts("bob") && prompts("cut") && !prompts("eve") && !prompts("visitor"));
    // An agent of another company gets exactly the responses of an agent that does not exist.
    for name in ["stranger", "odd", "visitor"] {
        assert_eq!(of(name), of("nobody's"), "{name}");
    }
    let forbidden = server.ask("cut", "tools/call", json!({"name": "slow"})).await;
    let unknown = server.ask("cut", "tools/call", json!({"name": "wols"})).await;
    assert_eq!(forbidden.to_string().replace("slow", "wols"), unknown.to_string());
}

#[tokio::test]
async fn clients_are_notified_of_changes_that_concern_them() {
    let server = McpTestServer::start(McpTestConfig::default()).await;
    server.tokens.add("eve", identity("eve", "c2", "a2"));
    let change = Change::Role { company_id: "c1".into(), agent_id: "a1".into() };

    // With a session: through its GET stream.
    let session = server.open_session("ada", "2025-11-25").await;
    let stream = server.request("GET", "").bearer_auth("ada").header("mcp-session-id", &session);
    let response = stream.header("accept", "text/event-stream").send().await.expect("an answer");
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut own_stream = response.bytes_stream();

    // Without a session: through a subscription, which receives only its own agent's changes.
    let listen = async |token: &str| {
        let meta: Value = serde_json::from_str(REQUEST_META).expect("JSON");
        let params = json!({"_meta": meta, "notifications": {"toolsListChanged": true}});
        let body = json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": params});
        let post = server.post("", body.to_string()).bearer_auth(token);
        let post =
            post.header("mcp-protocol-version", "2026-07-28").header("mcp-method", "subscriptions/listen");
        let response = post.send().await.expect("an answer");
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        let mut stream = response.bytes_stream();
        let line = tokio::time::timeout(TEST_TIMEOUT, stream.next()).await.expect("in time").expect("a line");
        let acknowledged = String::from_utf8(line.expect("bytes").to_vec()).expect("text");
        assert!(acknowledged.contains("notifications/subscriptions/acknowledged"), "{acknowledged}");
        stream
    };
    let (mut ours, mut theirs) = (listen("bob").await, listen("eve").await);

    server.server.announce(&change);
    for stream in [&mut own_stream, &mut ours] {
        let line = tokio::time::timeout(TEST_TIMEOUT, stream.next()).await.expect("in time").expect("a line");
        let line_text = String::from_utf8(line.expect("bytes").to_vec()).expect("text");
        assert!(line_text.contains("notifications/tools/list_changed"), "{line_text}");
    }
    server.server.announce(&Change::Role { company_id: "c2".into(), agent_id: "a2".into() });
    let line = tokio::time::timeout(TEST_TIMEOUT, theirs.next()).await.expect("in time").expect("a line");
    let line_text = String::from_utf8(line.expect("bytes").to_vec()).expect("text");
    assert_eq!(line_text.lines().count(), 1, "no notification concerns the other agent: {line_text}");

    server.server.stop();
    for mut stream in [own_stream, ours, theirs] {
        let rest = async { while stream.next().await.is_some_and(|chunk| chunk.is_ok()) {} };
        tokio::time::timeout(TEST_TIMEOUT, rest).await.expect("a server that stops ends its streams");
    }
}
