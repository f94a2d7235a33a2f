//! The runtime as an MCP client, of a third-party server and of a misbehaving one.

mod faults;
mod table;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::sync::watch;

use self::table::streamed;
use crate::support::server::{self, Server};
use crate::support::third_party::RmcpServer;
use crate::support::tool_server::{FakeMcpServer, MCP_REVISIONS, McpRevision, result_response, text_result};
use crate::support::vendor::{Step, Vendor, answer, json_response, tool_calls};
use crate::support::{TEST_TIMEOUT, expect_problem, finished_run, text_of};

const TOKEN: &str = "tool-token-canary-0123456789";

/// Returns a request for a run of `model` that may call `tools` at `tool_server`.
fn request(vendor: &Vendor, model: &str, tools: &[&str], tool_server: &str) -> Value {
    let tools: Vec<Value> = tools.iter().map(|name| json!({"name": name})).collect();
    json!({
        "messages": [{"role": "user", "content": "Go on."}],
        "provider": "openai", "model": model, "baseUrl": vendor.base_url(), "apiKey": "key-canary",
        "tools": tools, "mcpServerUrl": tool_server
    })
}

async fn post(runtime: &Server, body: &Value) -> reqwest::Response {
    runtime.request("POST", "/chat").json(body).send().await.expect("an answer")
}

/// Returns a call's result, and true if the result is an error.
fn result_of<'a>(events: &'a [Value], id: &str) -> (&'a str, bool) {
    let result = events.iter().find(|event| event["type"] == "TOOL_CALL_RESULT" && event["toolCallId"] == id);
    let result = result.unwrap_or_else(|| panic!("no result of {id}: {events:?}"));
    (result["content"].as_str().expect("text"), result["metadata"] == json!({"isError": true}))
}

/// Reads a streamed response until it contains `sign`.
async fn read_until_contains(
    response: &mut (impl StreamExt<Item = reqwest::Result<bytes::Bytes>> + Unpin),
    sign: &str,
) {
    let mut received_text = String::new();
    let read = async {
        while !received_text.contains(sign) {
            let chunk =
                response.next().await.unwrap_or_else(|| panic!("it ended without {sign}: {received_text}"));
            received_text.push_str(&String::from_utf8_lossy(&chunk.expect("a chunk")));
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, read).await.expect("it comes in time");
}

#[tokio::test]
async fn the_calls_of_one_turn_run_side_by_side() {
    for revision in MCP_REVISIONS {
        let (vendor, tools) = (Vendor::start().await, RmcpServer::start(revision).await);
        vendor.on("m", [tool_calls(&[("c1", "meet", "{}"), ("c2", "meet", "{}")]), answer(&["Both."])]);
        let runtime = server::runtime(&[]).await;
        let events =
            finished_run(post(&runtime, &request(&vendor, "m", &["meet"], &tools.url())).await).await;
        for id in ["c1", "c2"] {
            assert_eq!(result_of(&events, id), ("met", false), "{revision:?}");
        }
        assert_eq!(text_of(&events), "Both.");
    }
}

#[tokio::test]
async fn results_and_refusals_reach_the_model() {
    for revision in MCP_REVISIONS {
        let (vendor, tools) = (Vendor::start().await, RmcpServer::start(revision).await);
        let calls = [
            ("c1", "add", r#"{"a":1,"b":2}"#),
            ("c2", "refuse", "{}"),
            ("c3", "other", "{}"),
            ("c4", "unlisted", "{}"),
        ];
        vendor.on("m", [tool_calls(&calls), answer(&["Three."])]);
        let runtime = server::runtime(&[]).await;
        let body = request(&vendor, "m", &["add", "refuse", "other"], &tools.url());
        let events = finished_run(post(&runtime, &body).await).await;
        let expected = [
            ("c1", (r#"{"sum":3}"#, false)),
            ("c2", ("the tool server rejected the request: that will not do (-32602)", true)),
            ("c3", ("no such thing", true)),
            ("c4", (r#"there is no tool named "unlisted""#, true)),
        ];
        for (id, expected) in expected {
            assert_eq!(result_of(&events, id), expected, "{revision:?}");
        }
        let messages = &vendor.received_bodies("m")[1]["messages"];
        let texts: Vec<&str> =
            messages.as_array().expect("a list").iter().filter_map(|m| m["content"].as_str()).collect();
        assert!(texts.contains(&r#"{"sum":3}"#), "{texts:?}");
    }
}

#[tokio::test]
async fn progress_is_in_the_stream_while_the_tool_works() {
    for revision in MCP_REVISIONS {
        let (vendor, tools) = (Vendor::start().await, RmcpServer::start(revision).await);
        vendor.on("m", [tool_calls(&[("c1", "wait", "{}")]), answer(&["Done."])]);
        let runtime = server::runtime(&[]).await;
        let response = post(&runtime, &request(&vendor, "m", &["wait"], &tools.url())).await;
        let mut stream = response.bytes_stream();
        let report = r#""value":{"kind":"toolProgress","toolCallId":"c1","progress":1.0,"total":2.0,"message":"half way"}"#;
        read_until_contains(&mut stream, report).await;
        tools.works.released.send_replace(true);
        read_until_contains(&mut stream, "waited").await;
        read_until_contains(&mut stream, "RUN_FINISHED").await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_cancels_the_call_at_the_server() {
    for revision in MCP_REVISIONS {
        let (vendor, tools) = (Vendor::start().await, RmcpServer::start(revision).await);
        vendor.on("m", [tool_calls(&[("c1", "wait", "{}"), ("c2", "wait", "{}")])]);
        let runtime = server::runtime(&[]).await;
        let response = post(&runtime, &request(&vendor, "m", &["wait"], &tools.url())).await;
        let mut begun = tools.works.begun.subscribe();
        let began = tokio::time::timeout(TEST_TIMEOUT, begun.wait_for(|begun| *begun == 2)).await;
        began.expect("the calls begin in time").expect("the server runs");
        drop(response);
        let mut cancelled = tools.works.cancelled.subscribe();
        let heard = tokio::time::timeout(TEST_TIMEOUT, cancelled.wait_for(|cancelled| *cancelled == 2)).await;
        heard.unwrap_or_else(|_| panic!("{revision:?}")).expect("the server runs");
    }
}

#[tokio::test]
async fn a_run_survives_a_restart_of_its_tool_server() {
    for revision in MCP_REVISIONS {
        let vendor = Vendor::start().await;
        let tools = RmcpServer::start(revision).await;
        let (url, address) = (tools.url(), tools.address);
        let gate = || watch::channel(false);
        let ((stop, stopped), (restart, restarted)) = (gate(), gate());
        let call = |id, gate: Option<&watch::Receiver<bool>>| {
            let mut steps = tool_calls(&[(id, "add", r#"{"a":1}"#)]);
            steps.splice(0..0, gate.map(|gate| Step::Until(gate.clone())));
            steps
        };
        vendor.on(
            "m",
            [call("c1", None), call("c2", Some(&stopped)), call("c3", Some(&restarted)), answer(&["Well."])],
        );
        let runtime = server::runtime(&[]).await;
        let body = request(&vendor, "m", &["add"], &url);
        let run = tokio::spawn(async move { finished_run(post(&runtime, &body).await).await });
        vendor.wait_for_requests("m", 2).await;
        tools.stop().await;
        stop.send_replace(true);
        vendor.wait_for_requests("m", 3).await;
        let _tools = RmcpServer::start_at(revision, address).await;
        restart.send_replace(true);
        let events = run.await.expect("it does not panic");
        assert_eq!(result_of(&events, "c1"), (r#"{"sum":1}"#, false));
        assert_eq!(
            result_of(&events, "c2"),
            ("the tool server failed: the upstream service is unreachable", true),
            "{revision:?}"
        );
        assert_eq!(result_of(&events, "c3"), (r#"{"sum":1}"#, false), "{revision:?}");
    }
}

#[tokio::test]
async fn calls_to_a_killed_tool_server_fail_and_the_run_continues() {
    for revision in MCP_REVISIONS {
        let (vendor, tools) = (Vendor::start().await, RmcpServer::start(revision).await);
        let (url, address) = (tools.url(), tools.address);
        let (restart, restarted) = watch::channel(false);
        let mut second = tool_calls(&[("c3", "add", r#"{"a":1}"#)]);
        second.insert(0, Step::Until(restarted));
        let both = tool_calls(&[("c1", "wait", "{}"), ("c2", "wait", "{}")]);
        vendor.on("m", [both, second, answer(&["Well."])]);
        let runtime = server::runtime(&[]).await;
        let body = request(&vendor, "m", &["wait", "add"], &url);
        let mut begun = tools.works.begun.subscribe();
        let run = tokio::spawn(async move { finished_run(post(&runtime, &body).await).await });
        let began = tokio::time::timeout(TEST_TIMEOUT, begun.wait_for(|begun| *begun == 2)).await;
        began.expect("the calls begin in time").expect("the server runs");
        tools.stop().await;
        // A second request to the model means that both calls have results while the server is still down.
        tokio::time::timeout(TEST_TIMEOUT, vendor.wait_for_requests("m", 2)).await.expect("the calls end");
        let anew = RmcpServer::start_at(revision, address).await;
        restart.send_replace(true);
        let events = run.await.expect("it does not panic");
        for id in ["c1", "c2"] {
            let (error_text, is_error) = result_of(&events, id);
            assert!(
                is_error && error_text.starts_with("the tool server failed: "),
                "{revision:?} {id}: {error_text}"
            );
        }
        assert_eq!(result_of(&events, "c3"), (r#"{"sum":1}"#, false), "{revision:?}");
        assert_eq!(*anew.works.begun.borrow(), 0, "a call that may have run is not sent again");
    }
}

#[tokio::test]
async fn a_run_connects_once_and_ends_its_session() {
    for (revision, expected) in [
        (
            McpRevision::Sessions,
            &["server/discover", "initialize", "notifications/initialized", "first", "second", "DELETE"][..],
        ),
        (McpRevision::Stateless, &["server/discover", "first", "second"]),
    ] {
        let (vendor, tools) = (Vendor::start().await, FakeMcpServer::start(revision).await);
        let call = |id, name| tool_calls(&[(id, name, r#"{"n":1}"#)]);
        vendor.on("m", [call("c1", "first"), call("c2", "second"), answer(&["Both."])]);
        let runtime = server::runtime(&[]).await;
        let mut body = request(&vendor, "m", &["first", "second"], &tools.url(TOKEN));
        body["context"] = json!({"runId": "run-7"});
        let events = finished_run(post(&runtime, &body).await).await;
        assert_eq!(result_of(&events, "c1"), ("first is done", false));
        assert_eq!(result_of(&events, "c2"), ("second is done", false));
        tools.wait_for_names(|methods| methods.len() >= expected.len()).await;
        assert_eq!(tools.received_names(), expected, "{revision:?}");
        let received = tools.received();
        let calls =
            received.iter().filter(|request| String::from_utf8_lossy(&request.body).contains("tools/call"));
        let keys: Vec<Value> =
            calls.map(|call| call.json()["params"]["_meta"]["agentd/idempotencyKey"].clone()).collect();
        assert_eq!(keys, ["run-7/1/0", "run-7/2/0"], "{revision:?}");
        let version = if revision == McpRevision::Sessions { "2025-11-25" } else { "2026-07-28" };
        for received in &tools.received()[expected.len() - 3..] {
            let head = received.head.to_ascii_lowercase();
            assert!(head.contains(&format!("/mcp?token={TOKEN} http/1.1\r\n")), "{head}");
            assert!(head.contains(&format!("mcp-protocol-version: {version}\r\n")), "{head}");
            assert_eq!(
                head.contains("mcp-session-id: session-1\r\n"),
                revision == McpRevision::Sessions,
                "{head}"
            );
        }
        let call = tools
            .received()
            .into_iter()
            .find(|received| {
                received.head.contains("POST") && String::from_utf8_lossy(&received.body).contains("first")
            })
            .expect("the first call")
            .json();
        assert_eq!(call["params"]["arguments"], json!({"n": 1}));
    }
}

/// Returns the response to `server/discover` that clients may share and keep.
fn cacheable_discovery() -> Vec<Step> {
    result_response(&json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}}, "ttlMs": 60_000, "cacheScope": "public"}))
}

/// Runs one call of `tool` at `tools` with a new token, and returns its result.
async fn run_with_token(
    runtime: &Server,
    tools: &FakeMcpServer,
    tool: &'static str,
    token: &str,
) -> (String, bool) {
    let vendor = Vendor::start().await;
    vendor.on("m", [tool_calls(&[("c1", tool, "{}")]), answer(&["Well."])]);
    let events = finished_run(post(runtime, &request(&vendor, "m", &[tool], &tools.url(token))).await).await;
    let (text, is_error) = result_of(&events, "c1");
    (text.to_owned(), is_error)
}

#[tokio::test]
async fn later_runs_use_the_revision_that_the_server_lets_clients_cache() {
    let tools = FakeMcpServer::start(McpRevision::Stateless).await;
    tools.on("server/discover", [cacheable_discovery()]);
    let runtime = server::runtime(&[]).await;
    for (tool, token) in [("first", "token-1"), ("second", "token-2"), ("third", "token-3")] {
        let done = format!("{tool} is done");
        assert_eq!(run_with_token(&runtime, &tools, tool, token).await, (done, false));
    }
    assert_eq!(tools.received_names(), ["server/discover", "first", "second", "third"]);
    for (received, token) in tools.received()[1..].iter().zip(["token-1", "token-2", "token-3"]) {
        let head = received.head.to_ascii_lowercase();
        assert!(head.contains(&format!("/mcp?token={token} http/1.1\r\n")), "{head}");
        assert!(head.contains("mcp-protocol-version: 2026-07-28\r\n"), "{head}");
        assert!(head.contains("mcp-method: tools/call\r\n"), "{head}");
        let meta = &received.json()["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "agentd");
    }
}

#[tokio::test]
async fn a_private_discovery_is_not_used_by_other_runs() {
    let tools = FakeMcpServer::start(McpRevision::Stateless).await;
    let runtime = server::runtime(&[]).await;
    for token in ["token-1", "token-2"] {
        assert_eq!(run_with_token(&runtime, &tools, "first", token).await.0, "first is done");
    }
    assert_eq!(tools.received_names(), ["server/discover", "first", "server/discover", "first"]);
}

#[tokio::test]
async fn a_server_that_returns_to_an_older_revision_gets_the_rejected_call_in_a_session() {
    let tools = FakeMcpServer::start(McpRevision::Sessions).await;
    tools.on("server/discover", [cacheable_discovery(), json_response("404 Not Found", "", "")]);
    let no_session =
        json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "no session"}});
    let rejected = json_response("400 Bad Request", "", &no_session.to_string());
    // The first run learns that the server has no sessions, and is then rejected; the revision is not from the cache.
    tools.on("first", [rejected.clone(), rejected, text_result("done")]);
    let runtime = server::runtime(&[]).await;
    let refusal = "the tool server rejected the request: no session (-32000)";
    assert_eq!(run_with_token(&runtime, &tools, "first", "token-1").await, (refusal.to_owned(), true));
    assert_eq!(tools.received_names(), ["server/discover", "first"]);
    assert_eq!(run_with_token(&runtime, &tools, "first", "token-2").await, ("done".to_owned(), false));
    let expected = ["first", "server/discover", "initialize", "notifications/initialized", "first"];
    assert_eq!(tools.received_names()[2..7], expected);
    // The cached revision is forgotten.
    assert_eq!(run_with_token(&runtime, &tools, "first", "token-3").await, ("done".to_owned(), false));
    let asked = tools.received_names().iter().filter(|name| *name == "server/discover").count();
    assert_eq!(asked, 3);
}

#[tokio::test]
async fn a_rejection_by_a_server_of_the_cached_revision_is_not_repeated() {
    let tools = FakeMcpServer::start(McpRevision::Stateless).await;
    tools.on("server/discover", [cacheable_discovery()]);
    tools.on("bad", [json_response("400 Bad Request", "", "")]);
    // The server has taken this call, and it may have run.
    tools.on("lost", [vec![Step::Close]]);
    let runtime = server::runtime(&[]).await;
    assert_eq!(run_with_token(&runtime, &tools, "first", "token-1").await.0, "first is done");
    let refusal = "the tool server failed: the upstream service rejected the request (HTTP 400)";
    assert_eq!(run_with_token(&runtime, &tools, "bad", "token-2").await, (refusal.to_owned(), true));
    let lost = "the tool server failed: the upstream service closed the connection without a response";
    assert_eq!(run_with_token(&runtime, &tools, "lost", "token-3").await, (lost.to_owned(), true));
    assert_eq!(tools.received_names(), ["server/discover", "first", "bad", "server/discover", "lost"]);
}

/// Starts a run whose only tool call gets the response `steps`, which never completes.
async fn start_unanswered_call(
    steps: Vec<Step>,
    settings: &[(&str, &str)],
) -> (Vendor, FakeMcpServer, Server) {
    let (vendor, tools) = (Vendor::start().await, FakeMcpServer::start(McpRevision::Sessions).await);
    tools.on("first", [steps]);
    vendor.on("m", [tool_calls(&[("c1", "first", "{}")]), answer(&["I see."])]);
    (vendor, tools, server::runtime(settings).await)
}

/// Checks that a server with sessions has received the call's cancellation and then the end of the session.
async fn assert_cancelled_then_closed(tools: &FakeMcpServer) {
    tools.wait_for_names(|methods| methods.iter().any(|method| method == "DELETE")).await;
    assert_eq!(tools.received_names()[3..], ["first", "notifications/cancelled", "DELETE"]);
    let received = tools.received();
    let (call, cancelled) = (received[3].json(), received[4].json());
    assert_eq!(cancelled["params"]["requestId"], call["id"]);
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_cancelled() {
    for steps in [vec![Step::Stall], streamed([Step::Stall])] {
        let (vendor, tools, runtime) = start_unanswered_call(steps, &[("TOOL_TIMEOUT_MS", "1000")]).await;
        let body = request(&vendor, "m", &["first"], &tools.url(TOKEN));
        let events = finished_run(post(&runtime, &body).await).await;
        let expected = "the tool call timed out after 1000 ms";
        assert_eq!(result_of(&events, "c1"), (expected, true));
        assert_cancelled_then_closed(&tools).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_cancels_the_call_before_the_session_ends() {
    for steps in [vec![Step::Stall], streamed([Step::Stall])] {
        let (vendor, tools, runtime) = start_unanswered_call(steps, &[]).await;
        let response = post(&runtime, &request(&vendor, "m", &["first"], &tools.url(TOKEN))).await;
        tools.wait_for_names(|methods| methods.iter().any(|method| method == "first")).await;
        drop(response);
        assert_cancelled_then_closed(&tools).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_cancels_every_request_to_the_tool_server() {
    for (revision, method_name) in [
        (McpRevision::Sessions, "server/discover"),
        (McpRevision::Sessions, "initialize"),
        (McpRevision::Stateless, "first"),
    ] {
        for steps in [vec![Step::Stall], streamed([Step::Stall])] {
            let (vendor, tools) = (Vendor::start().await, FakeMcpServer::start(revision).await);
            tools.on(method_name, [steps]);
            vendor.on("m", [tool_calls(&[("c1", "first", "{}")])]);
            let runtime = server::runtime(&[]).await;
            let response = post(&runtime, &request(&vendor, "m", &["first"], &tools.url(TOKEN))).await;
            tools.wait_for_names(|methods| methods.iter().any(|method| method == method_name)).await;
            assert_eq!(tools.disconnect_count(), 0, "{method_name}");
            drop(response);
            let left = tokio::time::timeout(TEST_TIMEOUT, tools.wait_for_disconnect()).await;
            left.unwrap_or_else(|_| panic!("{method_name}"));
        }
    }
}

#[tokio::test]
async fn a_run_without_calls_opens_no_connection_to_the_tool_server() {
    let (vendor, tools) = (Vendor::start().await, FakeMcpServer::start(McpRevision::Sessions).await);
    vendor.on("m", [answer(&["No need."])]);
    let runtime = server::runtime(&[]).await;
    finished_run(post(&runtime, &request(&vendor, "m", &["first"], &tools.url(TOKEN))).await).await;
    assert_eq!(tools.received_names(), Vec::<String>::new());
}

#[tokio::test]
async fn a_lost_session_is_reopened_and_the_call_repeated_once() {
    let (vendor, tools) = (Vendor::start().await, FakeMcpServer::start(McpRevision::Sessions).await);
    let gone = || json_response("404 Not Found", "", "{}");
    tools.on("once", [gone(), text_result("done")]).on("never", [gone()]);
    vendor.on(
        "m",
        [tool_calls(&[("c1", "once", "{}")]), tool_calls(&[("c2", "never", "{}")]), answer(&["So it goes."])],
    );
    let runtime = server::runtime(&[]).await;
    let body = request(&vendor, "m", &["once", "never"], &tools.url(TOKEN));
    let events = finished_run(post(&runtime, &body).await).await;
    assert_eq!(result_of(&events, "c1"), ("done", false));
    assert_eq!(
        result_of(&events, "c2"),
        ("the tool server has forgotten the session and opens no other", true)
    );
    let count = |name: &str| tools.received_names().iter().filter(|method| *method == name).count();
    assert_eq!((count("once"), count("never"), count("initialize")), (2, 2, 3));
}

#[tokio::test]
async fn an_address_that_is_not_allowed_is_refused() {
    let (vendor, tools) = (Vendor::start().await, FakeMcpServer::start(McpRevision::Sessions).await);
    vendor.on("m", [tool_calls(&[("c1", "first", "{}")]), answer(&["I see."])]);
    let allowed = vendor.address.to_string();
    let runtime = server::runtime(&[("OUTBOUND_ALLOW", &allowed)]).await;
    let url = tools.url(TOKEN);
    // `localhost` is refused like the address itself, without a DNS lookup.
    for url in [&url, &url.replace("127.0.0.1", "localhost")] {
        let response = post(&runtime, &request(&vendor, "m", &["first"], url)).await;
        let problem = expect_problem(response, 403, "OUTBOUND_BLOCKED").await;
        assert!(!problem.to_string().contains(TOKEN), "{problem}");
    }
    let response =
        post(&runtime, &request(&vendor, "m", &["first"], &format!("{TOKEN} is no address"))).await;
    let problem = expect_problem(response, 400, "INVALID_REQUEST").await;
    assert_eq!(problem["detail"], "mcpServerUrl is not a URL: relative URL without a base");
    assert!(vendor.received().is_empty());
    // Without tools to call, the server's address is not checked.
    vendor.on("m", [answer(&["Hello."])]);
    finished_run(post(&runtime, &request(&vendor, "m", &[], &url)).await).await;
    assert_eq!(tools.received_names(), Vec::<String>::new());
}
