//! The MCP server as served by the application: platform tokens, documents as resources, and the audit log.

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::{Clock, SystemClock};
use agent_core::testing::ManualClock;
use agent_platform::token::{Grant, McpGrant, NewToken, Tokens, WidgetGrant};
use agentd::stores::Stores;
use serde_json::{Value, json};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::support::server::{self, Server, session_token};
use crate::support::{self, TEST_TIMEOUT};

const HOUR: Duration = Duration::from_secs(3600);

/// An application and its stores.
pub struct McpApp {
    pub app: Server,
    pub stores: Stores,
}

pub async fn start(settings: &[(&str, &str)]) -> McpApp {
    let tools = json!(["readTodos", "createTodo", "listDocs", "getDoc", "createDoc", "appendDoc"]);
    let agent = |id: &str, owner: &str, company: &str, content: Value| json!({"id": id, "name": id, "ownerId": owner, "companyId": company, "content": content});
    let workspace = json!({
        "users": [{"id": "ada", "companyId": "c1"}, {"id": "bob", "companyId": "c1"}, {"id": "eve", "companyId": "c2"}],
        "agents": [
            agent("a1", "ada", "c1", json!({"mcpPreset": tools, "promptBlocks": ["Be brief."],
                "widgetTools": ["getDoc", "listDocs"], "documentIds": ["open"]})),
            agent("cut", "ada", "c1", json!({"mcpPreset": tools, "agentServerTools": ["readTodos", "getDoc"]})),
            agent("a2", "eve", "c2", json!({"mcpPreset": tools}))
        ],
        "documents": [
            {"id": "open", "companyId": "c1", "title": "Opening hours", "text": "From nine."},
            {"id": "inner 1", "companyId": "c1", "title": "Salaries", "text": "Enough."},
            {"id": "theirs", "companyId": "c2", "title": "Theirs", "text": "Other people's."}
        ],
        "todoLists": [
            {"id": "l-ada", "ownerId": "ada", "companyId": "c1", "name": "A", "todos": [{"id": "t", "title": "Water the basil", "done": false}]},
            {"id": "l-bob", "ownerId": "bob", "companyId": "c1", "name": "B", "todos": []}
        ]
    });
    let stores = server::stores(&workspace).await;
    let app = server::app_with_stores(stores.clone(), settings).await;
    McpApp { app, stores }
}

pub fn mcp_token(user: &str, company: &str, agent: &str) -> NewToken {
    let grant =
        McpGrant { user_id: user.into(), todo_list_id: Some(format!("l-{user}")), ..McpGrant::default() };
    NewToken::new(company, agent, Grant::Mcp(grant))
}

impl McpApp {
    fn tokens_at(&self, clock: impl Clock) -> Tokens {
        Tokens::new(self.stores.records.clone(), Arc::new(clock))
    }

    pub async fn mint(&self, new: NewToken) -> String {
        self.tokens_at(SystemClock).mint(new).await.expect("it is made").text.expose().to_owned()
    }

    pub fn post(&self, token: &str, body: &Value) -> reqwest::RequestBuilder {
        self.app.request("POST", &format!("/api/agent/mcp?token={token}")).json(body)
    }

    pub async fn ask(&self, token: &str, method: &str, params: Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let response = self.post(token, &body).send().await.expect("an answer");
        let mut answer: Value = response.json().await.expect("one message");
        answer.get_mut("result").map(Value::take).unwrap_or_else(|| answer["error"].take())
    }

    pub async fn call_tool(&self, token: &str, name: &str, arguments: Value) -> Value {
        self.ask(token, "tools/call", json!({"name": name, "arguments": arguments})).await
    }
}

fn uris(listed: &Value) -> Vec<&str> {
    listed["resources"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|resource| resource["uri"].as_str())
        .collect()
}

#[tokio::test]
async fn only_the_exact_text_of_a_valid_token_is_accepted() {
    let bench = start(&[]).await;
    let good = bench.mint(mcp_token("ada", "c1", "a1")).await;
    let other = bench.mint(mcp_token("bob", "c1", "a1")).await;
    let widget = bench.mint(NewToken::new("c1", "a1", Grant::Widget(WidgetGrant::default()))).await;
    let past = ManualClock::new();
    let tokens = bench.tokens_at(past);
    let expired =
        tokens.mint(NewToken { ttl: Some(HOUR), ..mcp_token("ada", "c1", "a1") }).await.expect("it is made");
    let revoked = bench.tokens_at(SystemClock).mint(mcp_token("ada", "c1", "a1")).await.expect("it is made");
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let live = bench.post(revoked.text.expose(), &ping).send().await.expect("an answer");
    assert_eq!(live.status(), 200);
    bench.tokens_at(SystemClock).revoke(&revoked.token.id, None).await.expect("it is revoked");

    assert_eq!(bench.post(&good, &ping).send().await.expect("an answer").status(), 200);
    let swapped = format!("{}{}", &good[..26], &other[26..]);
    let as_widget = good.replacen("agm_", "agw_", 1);
    let refused = [
        good[..good.len() - 1].to_owned(),
        good[1..].to_owned(),
        format!("{good}{good}"),
        format!("{good}%20"),
        swapped,
        as_widget,
        widget,
        expired.text.expose().to_owned(),
        revoked.text.expose().to_owned(),
        String::new(),
    ];
    for token in refused {
        let response = bench.post(&token, &ping).send().await.expect("an answer");
        assert_eq!(response.headers()["www-authenticate"], "Bearer error=\"invalid_token\"");
        let problem = support::expect_problem(response, 401, "UNAUTHENTICATED").await;
        assert_eq!(problem["detail"], "a valid MCP token is required", "which part was right is not said");
    }
    // A session token is not accepted here, nor an MCP token elsewhere.
    let session =
        bench.app.request("POST", "/api/agent/mcp").bearer_auth(session_token("ada", "c1")).json(&ping);
    support::expect_problem(session.send().await.expect("an answer"), 401, "UNAUTHENTICATED").await;
}

#[tokio::test]
async fn documents_are_resources_for_those_who_could_read_them_with_tools() {
    let bench = start(&[]).await;
    let ada = bench.mint(mcp_token("ada", "c1", "a1")).await;
    let cut = bench.mint(mcp_token("ada", "c1", "cut")).await;
    let eve = bench.mint(mcp_token("eve", "c2", "a2")).await;
    let visitor = bench.mint(mcp_token("widget:w", "c1", "a1")).await;
    let mut without = mcp_token("ada", "c1", "a1");
    if let Grant::Mcp(grant) = &mut without.grant {
        grant.tools = Some(vec!["readTodos".into()]);
    }
    let without = bench.mint(without).await;

    let (open, inner, theirs) = ("doc://open", "doc://inner%201", "doc://theirs");
    // Token, listed URIs, and whether each of the three documents can be read.
    let cases: [(&str, &[&str], [bool; 3]); 5] = [
        (&ada, &[inner, open], [true, true, false]),
        (&cut, &[], [true, true, false]),
        (&eve, &[theirs], [false, false, true]),
        (&visitor, &[open], [true, false, false]),
        (&without, &[], [false, false, false]),
    ];
    let absent = bench.ask(&ada, "resources/read", json!({"uri": "doc://none"})).await;
    assert_eq!(absent["code"], -32002);
    for (index, (token, listed, readable)) in cases.into_iter().enumerate() {
        let list = bench.ask(token, "resources/list", json!({})).await;
        assert_eq!(uris(&list), listed, "{index}");
        for (uri, readable) in [open, inner, theirs].into_iter().zip(readable) {
            let read = bench.ask(token, "resources/read", json!({"uri": uri})).await;
            if readable {
                assert_eq!(read["contents"][0]["uri"], uri, "{index} {read}");
                assert_eq!(read["contents"][0]["mimeType"], "text/markdown");
                assert!(!read["contents"][0]["text"].as_str().expect("text").is_empty());
            } else {
                let mut expected = absent.clone();
                expected["data"]["uri"] = uri.into();
                assert_eq!(read, expected, "{index} {uri}: foreign is as absent");
            }
        }
    }
    let template = bench.ask(&ada, "resources/templates/list", json!({})).await;
    assert_eq!(template["resourceTemplates"][0]["uriTemplate"], "doc://{id}");
    let refused = bench.ask(&ada, "resources/list", json!({"cursor": "none"})).await;
    assert_eq!(refused["code"], -32602, "{refused}");

    // Long texts are returned whole, lists in pages.
    let long = "ä".repeat(100_000);
    let response = bench.call_tool(&ada, "createDoc", json!({"title": "Long", "text": long})).await;
    let id = response["structuredContent"]["doc"]["id"].as_str().expect("an id");
    let read = bench.ask(&ada, "resources/read", json!({"uri": format!("doc://{id}")})).await;
    assert_eq!(read["contents"][0]["text"], long);
    for i in 0..60 {
        bench.call_tool(&ada, "createDoc", json!({"title": format!("Note {i}"), "text": "x"})).await;
    }
    let (mut resource_uris, mut cursor) = (Vec::new(), json!({}));
    loop {
        let page = bench.ask(&ada, "resources/list", cursor).await;
        resource_uris.extend(uris(&page).into_iter().map(str::to_owned));
        let Some(next) = page.get("nextCursor") else { break };
        cursor = json!({"cursor": next});
    }
    assert_eq!(resource_uris.len(), 63);
    resource_uris.sort();
    resource_uris.dedup();
    assert_eq!(resource_uris.len(), 63, "each once");
}

#[tokio::test]
async fn a_change_by_one_client_notifies_another_that_may_see_it() {
    let bench = start(&[]).await;
    let ada = bench.mint(mcp_token("ada", "c1", "a1")).await;
    let bob = bench.mint(mcp_token("bob", "c1", "a1")).await;
    let send = async |session: Option<&str>, body: Value| {
        let post = bench.post(&ada, &body).header("accept", "application/json, text/event-stream");
        session
            .into_iter()
            .fold(post, |post, id| post.header("mcp-session-id", id))
            .send()
            .await
            .expect("an answer")
    };
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let opened =
        send(None, json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})).await;
    let id = opened.headers()["mcp-session-id"].to_str().expect("text").to_owned();
    send(Some(&id), json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    let subscribe = |uri: &str| json!({"jsonrpc": "2.0", "id": uri, "method": "resources/subscribe", "params": {"uri": uri}});
    let subscribed: Value = send(Some(&id), subscribe("doc://open")).await.json().await.expect("a message");
    assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    let foreign: Value = send(Some(&id), subscribe("doc://theirs")).await.json().await.expect("a message");
    assert_eq!(foreign["error"]["code"], -32002, "{foreign}");

    let own_stream =
        bench.app.request("GET", "/api/agent/mcp").bearer_auth(&ada).header("mcp-session-id", &id);
    let mut own_stream = own_stream.header("accept", "text/event-stream").send().await.expect("an answer");
    bench.call_tool(&bob, "appendDoc", json!({"id": "inner 1", "text": "not followed"})).await;
    bench.call_tool(&bob, "appendDoc", json!({"id": "open", "text": "To five."})).await;
    let chunk = tokio::time::timeout(TEST_TIMEOUT, own_stream.chunk())
        .await
        .expect("in time")
        .expect("whole")
        .expect("a chunk");
    let text = String::from_utf8(chunk.to_vec()).expect("text");
    assert!(text.contains("notifications/resources/updated") && text.contains("doc://open"), "{text}");
    assert!(!text.contains("inner"), "{text}");
}

#[tokio::test]
async fn streams_of_a_companys_sessions_leave_connections_to_others() {
    // A company has an eighth of the connections for streams.
    let bench = start(&[("MAX_CONNECTIONS", "32")]).await;
    let ada = bench.mint(mcp_token("ada", "c1", "a1")).await;
    let eve = bench.mint(mcp_token("eve", "c2", "a2")).await;
    let open_session = async |token: &str| {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let opened = bench.post(token, &body).send().await.expect("an answer");
        let session = opened.headers()["mcp-session-id"].to_str().expect("text").to_owned();
        let begun = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let answered = bench.post(token, &begun).header("mcp-session-id", &session).send().await;
        assert!(answered.expect("an answer").status().is_success());
        session
    };
    let open_stream = async |token: &str, session: &str| {
        let request = bench.app.request("GET", "/api/agent/mcp").bearer_auth(token);
        let request = request.header("mcp-session-id", session).header("accept", "text/event-stream");
        request.send().await.expect("an answer")
    };
    let session = open_session(&ada).await;
    let mut streams = Vec::new();
    for _ in 0..4 {
        let stream = open_stream(&ada, &session).await;
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    let refused = open_stream(&ada, &session).await;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    let other = open_session(&eve).await;
    assert_eq!(open_stream(&eve, &other).await.status(), 200);
    drop(streams.pop());
    let status = async || open_stream(&ada, &session).await.status().as_u16();
    support::poll_until(status, |status| *status == 200).await;
}

#[tokio::test]
async fn an_agents_owner_reads_who_has_called_its_tools() {
    let bench = start(&[]).await;
    let ada = bench.mint(mcp_token("ada", "c1", "a1")).await;
    let bob = bench.mint(mcp_token("bob", "c1", "a1")).await;
    let canary = "canary-in-the-arguments";
    bench.call_tool(&ada, "createTodo", json!({"title": canary})).await;
    bench.call_tool(&bob, "readTodos", json!({})).await;
    bench.call_tool(&bob, "deleteTodo", json!({})).await;
    bench.call_tool(&bob, "createTodo", json!({"title": 7})).await;

    let audit = |user: &str, company: &str, query: &str| {
        let path = format!("/api/agent/tools/audit{query}");
        bench.app.request("GET", &path).bearer_auth(session_token(user, company)).send()
    };
    let read = async |query: &str| -> Value {
        audit("ada", "c1", query).await.expect("an answer").json().await.expect("JSON")
    };
    let written = |page: &Value| page["calls"].as_array().is_some_and(|calls| calls.len() == 4);
    let page = support::poll_until(async || read("?agentId=a1").await, written).await;
    let shown: Vec<_> = page["calls"]
        .as_array()
        .expect("calls")
        .iter()
        .map(|call| {
            (
                call["userId"].as_str().expect("text"),
                call["tool"].as_str().expect("text"),
                call["outcome"].as_str().expect("text"),
            )
        })
        .collect();
    let expected = [
        ("bob", "createTodo", "toolError"),
        ("bob", "deleteTodo", "refused"),
        ("bob", "readTodos", "ok"),
        ("ada", "createTodo", "ok"),
    ];
    assert_eq!(shown, expected);
    assert!(!page.to_string().contains(canary));
    let first = read("?agentId=a1&limit=3").await;
    let last_page =
        read(&format!("?agentId=a1&limit=3&cursor={}", first["nextCursor"].as_str().expect("more"))).await;
    assert_eq!((last_page["calls"][0]["userId"].as_str(), last_page.get("nextCursor")), (Some("ada"), None));

    for (user, company, query, status, code) in [
        ("bob", "c1", "?agentId=a1", 404, "NOT_FOUND"),
        ("eve", "c2", "?agentId=a1", 404, "NOT_FOUND"),
        ("ada", "c2", "?agentId=a1", 404, "NOT_FOUND"),
        ("ada", "c1", "?agentId=none", 404, "NOT_FOUND"),
        ("ada", "c1", "?agentId=a2", 404, "NOT_FOUND"),
        ("ada", "c1", "", 400, "INVALID_REQUEST"),
        ("ada", "c1", "?agentId=a1&limit=x", 400, "INVALID_REQUEST"),
        ("ada", "c1", "?agentId=a1&limit=0", 400, "INVALID_REQUEST"),
        ("ada", "c1", "?agentId=a1&limit=201", 400, "INVALID_REQUEST"),
        ("ada", "c1", "?agentId=a1&cursor=x", 400, "INVALID_REQUEST"),
    ] {
        support::expect_problem(audit(user, company, query).await.expect("an answer"), status, code).await;
    }
    let path = "/api/agent/tools/audit?agentId=a1";
    let nobody = bench.app.request("GET", path).send().await.expect("an answer");
    support::expect_problem(nobody, 401, "UNAUTHENTICATED").await;
    let token = bench.app.request("GET", path).bearer_auth(&ada).send().await.expect("an answer");
    support::expect_problem(token, 401, "UNAUTHENTICATED").await;
}

#[tokio::test]
async fn calls_before_a_shutdown_are_recorded_and_open_streams_do_not_delay_it() {
    let bench = start(&[]).await;
    let ada = bench.mint(mcp_token("ada", "c1", "a1")).await;
    let meta: Value = serde_json::from_str(super::test_server::REQUEST_META).expect("JSON");
    let listen = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {"_meta": meta, "notifications": {}}});
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let listen =
        headers.iter().fold(bench.post(&ada, &listen), |post, (name, value)| post.header(*name, *value));
    let mut open = listen.send().await.expect("an answer");
    assert!(open.chunk().await.expect("whole").is_some());
    bench.call_tool(&ada, "readTodos", json!({})).await;
    let McpApp { app, stores } = bench;
    app.stop();
    tokio::time::timeout(TEST_TIMEOUT, app.stopped()).await.expect("it stops");
    let second = server::app_with_stores(stores, &[]).await;
    let audit =
        second.request("GET", "/api/agent/tools/audit?agentId=a1").bearer_auth(session_token("ada", "c1"));
    let page: Value = audit.send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!(page["calls"][0]["tool"], "readTodos", "{page}");
}

#[tokio::test]
async fn legacy_queries_are_a_setting() {
    let query = "/api/agent/mcp?userId=ada&agentId=a1&todoListId=l-ada";
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "readTodos"}});
    let off = start(&[]).await;
    let response = off.app.request("POST", query).json(&body).send().await.expect("an answer");
    let problem = support::expect_problem(response, 401, "UNAUTHENTICATED").await;
    assert!(problem["detail"].as_str().expect("text").contains("MCP_LEGACY_QUERY"));
    let on = start(&[("MCP_LEGACY_QUERY", "on")]).await;
    let answer = on.app.request("POST", query).json(&body).send().await.expect("an answer");
    assert!(answer.text().await.expect("a body").contains("basil"));
}

#[tokio::test]
async fn the_settings_of_the_tool_server_apply() {
    let bench = start(&[("MCP_REQUESTS_PER_MINUTE", "2")]).await;
    let ada = bench.mint(mcp_token("ada", "c1", "a1")).await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    for expected in [200, 200, 429] {
        assert_eq!(bench.post(&ada, &ping).send().await.expect("an answer").status(), expected);
    }
}

/// An in-memory log.
#[derive(Clone, Default)]
struct LogBuffer(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("whole").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn tokens_and_arguments_are_not_logged() {
    let log = LogBuffer::default();
    let writer = log.clone();
    let filter: tracing_subscriber::filter::Targets =
        agentd::logging::filter("debug,agent_client=trace,agent_http=trace,agent_mcp=trace,agentd=trace")
            .expect("a filter");
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
    // The test runs on one thread, so the thread-local subscriber collects all of its events.
    let _guard = tracing_subscriber::registry().with(lines).with(filter).set_default();
    let bench = start(&[]).await;
    let ada = bench.mint(mcp_token("ada", "c1", "a1")).await;
    let canary = "canary-in-the-arguments";
    bench.call_tool(&ada, "createTodo", json!({"title": canary})).await;
    bench.call_tool(&ada, "noSuchTool", json!({"title": canary})).await;
    bench.ask(&ada, "no/such", json!({"title": canary})).await;
    let guess = "agm_guess-canary";
    let response = bench.post(guess, &json!({})).send().await.expect("an answer");
    assert_eq!(response.status(), 401);
    let named = bench.app.request("POST", "/api/agent/mcp?userId=user-canary&agentId=a1").json(&json!({}));
    assert_eq!(named.send().await.expect("an answer").status(), 401);
    let text = String::from_utf8(log.0.lock().expect("whole").clone()).expect("text");
    assert!(text.contains("/api/agent/mcp"), "the access log is heard: {text}");
    for secret in [&ada[..], &ada[30..], canary, "guess-canary", "user-canary", "token="] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}
