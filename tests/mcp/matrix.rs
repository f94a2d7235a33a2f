//! Matrix of token kinds and MCP requests in two companies: each identity sees its own objects, and requests for
//! others get the response for objects that do not exist.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::{Clock, SystemClock};
use agent_core::testing::ManualClock;
use agent_platform::token::{Grant, McpGrant, NewToken, Tokens, WidgetGrant};
use serde_json::{Value, json};

use super::application::mcp_token;
use crate::support;
use crate::support::server::{self, Server, session_token};

/// Marker texts, each contained in one object only.
const MARKERS: &[&str] = &[
    "todo-of-ada",
    "todo-of-bob",
    "todo-of-eve",
    "text-of-open",
    "text-of-inner",
    "text-of-theirs",
    "prompt-of-a1",
    "prompt-of-a3",
    "prompt-of-a2",
];

fn workspace() -> Value {
    let tools =
        json!(["readTodos", "createTodo", "updateTodo", "listDocs", "getDoc", "appendDoc", "searchDocs"]);
    let agent = |id: &str, owner: &str, company: &str| {
        json!({"id": id, "name": id, "ownerId": owner, "companyId": company, "content": {
            "mcpPreset": tools, "widgetTools": ["getDoc", "listDocs"], "documentIds": if company == "c1" { json!(["open"]) } else { json!([]) },
            "promptBlocks": [{"title": "Tone", "text": format!("prompt-of-{id}")}]}})
    };
    let list = |owner: &str, company: &str| {
        json!({"id": format!("l-{owner}"), "ownerId": owner, "companyId": company, "name": "L",
            "todos": [{"id": format!("t-{owner}"), "title": format!("todo-of-{owner}"), "done": false}]})
    };
    let document = |id: &str, company: &str| json!({"id": id, "companyId": company, "title": "Title", "text": format!("text-of-{id}")});
    json!({
        "users": [{"id": "ada", "companyId": "c1"}, {"id": "bob", "companyId": "c1"}, {"id": "eve", "companyId": "c2"}],
        "agents": [agent("a1", "ada", "c1"), agent("a3", "bob", "c1"), agent("a2", "eve", "c2")],
        "documents": [document("open", "c1"), document("inner", "c1"), document("theirs", "c2")],
        "todoLists": [list("ada", "c1"), list("bob", "c1"), list("eve", "c2")]
    })
}

/// Returns the requests: method, parameters, and the id that the parameters name, if any.
fn request_matrix() -> Vec<(&'static str, Value, Option<&'static str>)> {
    let mut questions = vec![
        ("tools/list", json!({}), None),
        ("resources/list", json!({}), None),
        ("resources/templates/list", json!({}), None),
        ("prompts/list", json!({}), None),
        ("prompts/get", json!({"name": "Tone"}), None),
        ("tools/call", json!({"name": "listDocs", "arguments": {}}), None),
        ("tools/call", json!({"name": "readTodos", "arguments": {}}), None),
        ("tools/call", json!({"name": "searchDocs", "arguments": {"query": "text"}}), None),
    ];
    for id in ["open", "inner", "theirs"] {
        questions.push(("resources/read", json!({"uri": format!("doc://{id}")}), Some(id)));
        for (tool, more) in [("getDoc", json!({})), ("appendDoc", json!({"text": "More."}))] {
            let mut arguments = more;
            arguments["id"] = id.into();
            questions.push(("tools/call", json!({"name": tool, "arguments": arguments}), Some(id)));
        }
    }
    for id in ["t-ada", "t-bob", "t-eve"] {
        let arguments = json!({"id": id, "done": true});
        questions.push(("tools/call", json!({"name": "updateTodo", "arguments": arguments}), Some(id)));
    }
    for (user, list) in [("ada", "l-ada"), ("bob", "l-bob"), ("eve", "l-eve")] {
        let arguments = json!({"todoListId": list, "userId": user, "companyId": "c2", "agentId": "a2"});
        questions.push(("tools/call", json!({"name": "readTodos", "arguments": arguments}), None));
    }
    questions
}

/// A client of the MCP server with one credential.
struct TokenClient<'s> {
    http: reqwest::Client,
    app: &'s Server,
    query: &'s str,
}

impl<'s> TokenClient<'s> {
    fn new(app: &'s Server, query: &'s str) -> Self {
        Self { http: support::client(), app, query }
    }

    async fn ask_with(&self, more: &str, method: &str, params: &Value) -> String {
        let url = self.app.url(&format!("/api/agent/mcp{}{more}", self.query));
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let response = self.http.post(url).json(&body).send().await.expect("an answer");
        response.text().await.expect("a whole body")
    }

    async fn ask(&self, method: &str, params: &Value) -> String {
        self.ask_with("", method, params).await
    }
}

/// Returns the markers found in the responses. Checks that a request for an object that is not the identity's own
/// gets the response for an id that does not exist.
async fn visible_markers(client: &TokenClient<'_>) -> BTreeSet<&'static str> {
    let mut markers = BTreeSet::<&str>::new();
    for (method, params, named) in request_matrix() {
        let answer = client.ask(method, &params).await;
        let marks: Vec<_> = MARKERS.iter().filter(|mark| answer.contains(**mark)).collect();
        markers.extend(marks);
        if let Some(id) = named {
            let absent = "n".repeat(id.len());
            let params = params.to_string().replace(id, &absent).parse().expect("JSON");
            let nowhere = client.ask(method, &params).await;
            let has_own_id = markers.iter().any(|mark| mark.ends_with(id.trim_start_matches("t-")));
            assert!(has_own_id || answer.replace(id, &absent) == nowhere, "{method} {id}: {answer}");
        }
    }
    markers
}

#[tokio::test]
async fn no_cell_of_the_matrix_leaks() {
    let (todos, documents) = (["todo-of-ada"], ["text-of-open", "text-of-inner"]);
    let company_markers = |agent: &'static str| [&todos[..], &documents, &[agent]].concat();
    let with = |new: NewToken, change: fn(&mut McpGrant)| {
        let mut new = new;
        if let Grant::Mcp(grant) = &mut new.grant {
            change(grant);
        }
        new
    };
    let run = with(mcp_token("ada", "c1", "a1"), |grant| grant.run_id = Some("run-1".into()));
    let cut = with(mcp_token("ada", "c1", "a1"), |grant| {
        grant.tools = Some(vec!["readTodos".into(), "none".into()])
    });
    let others = with(mcp_token("ada", "c1", "a1"), |grant| grant.todo_list_id = Some("l-bob".into()));
    let foreign = with(mcp_token("ada", "c1", "a1"), |grant| grant.todo_list_id = Some("l-eve".into()));
    let tokens = [
        ("a person's", mcp_token("ada", "c1", "a1"), company_markers("prompt-of-a1")),
        ("for another agent", mcp_token("ada", "c1", "a3"), company_markers("prompt-of-a3")),
        (
            "a colleague's",
            mcp_token("bob", "c1", "a1"),
            [&["todo-of-bob"], &documents[..], &["prompt-of-a1"]].concat(),
        ),
        ("a run's", run, company_markers("prompt-of-a1")),
        ("a visitor's", mcp_token("widget:w", "c1", "a1"), vec!["text-of-open"]),
        ("a token restricted to one tool", cut, vec!["todo-of-ada", "prompt-of-a1"]),
        ("with a colleague's list", others, [&documents[..], &["prompt-of-a1"]].concat()),
        ("with a foreign list", foreign, [&documents[..], &["prompt-of-a1"]].concat()),
        (
            "another company's",
            mcp_token("eve", "c2", "a2"),
            vec!["todo-of-eve", "text-of-theirs", "prompt-of-a2"],
        ),
        ("another company's, of an agent here", mcp_token("eve", "c2", "a1"), vec![]),
        ("of an agent elsewhere", mcp_token("ada", "c1", "a2"), vec![]),
        ("of no agent", mcp_token("ada", "c1", "none"), vec![]),
    ];
    for (kind, new, expected) in tokens {
        // Fresh stores for each token, because some of the requests write.
        let stores = server::stores(&workspace()).await;
        let app = server::app_with_stores(stores.clone(), &[]).await;
        let (company, agent) = (new.company_id.to_string(), new.agent_id.to_string());
        let minted = Tokens::new(stores.records.clone(), Arc::new(SystemClock)).mint(new).await;
        let token = minted.expect("it is made").text.expose().to_owned();
        let query = format!("?token={token}");
        let client = TokenClient::new(&app, &query);
        let markers = visible_markers(&client).await;
        assert_eq!(markers, expected.into_iter().collect(), "{kind}");
        // A query parameter that names another agent or company is refused, whether or not that agent or company exists.
        for (name, own_markers, others) in [
            ("agentId", agent, ["a1", "a2", "a3", "nowhere"]),
            ("companyId", company, ["c1", "c2", "c3", "nowhere"]),
        ] {
            let mut refusals = BTreeSet::new();
            for other in others.into_iter().filter(|other| *other != own_markers) {
                let answer = client.ask_with(&format!("&{name}={other}"), "tools/list", &json!({})).await;
                let problem: Value = serde_json::from_str(&answer).expect("a problem");
                assert_eq!(problem["code"], "FORBIDDEN", "{kind} {other}: {answer}");
                refusals.insert(problem["detail"].to_string());
            }
            assert_eq!(refusals.len(), 1, "{kind}: {refusals:?}");
        }
    }
}

#[tokio::test]
async fn invalid_tokens_see_nothing() {
    let stores = server::stores(&workspace()).await;
    let app = server::app_with_stores(stores.clone(), &[]).await;
    let mint = async |new: NewToken, past: bool| {
        let clock: Arc<dyn Clock> = if past { Arc::new(ManualClock::new()) } else { Arc::new(SystemClock) };
        Tokens::new(stores.records.clone(), clock).mint(new).await.expect("it is made")
    };
    let text = async |new: NewToken, past: bool| mint(new, past).await.text.expose().to_owned();
    let (good, other) =
        (text(mcp_token("ada", "c1", "a1"), false).await, text(mcp_token("eve", "c2", "a2"), false).await);
    let expired = NewToken { ttl: Some(Duration::from_secs(3600)), ..mcp_token("ada", "c1", "a1") };
    let revoked = mint(mcp_token("ada", "c1", "a1"), false).await;
    let tokens = Tokens::new(stores.records.clone(), Arc::new(SystemClock));
    tokens.revoke(&revoked.token.id, None).await.expect("it is revoked");
    let cases = [
        ("none", String::new()),
        ("expired", format!("?token={}", text(expired, true).await)),
        ("revoked", format!("?token={}", revoked.text.expose())),
        ("truncated", format!("?token={}", &good[..good.len() - 1])),
        ("swapped", format!("?token={}{}", &good[..26], &other[26..])),
        ("doubled", format!("?token={good}{good}")),
        ("twice", format!("?token={good}&token={good}")),
        ("two", format!("?token={good}&token={other}")),
        (
            "a widget's",
            format!(
                "?token={}",
                text(NewToken::new("c1", "a1", Grant::Widget(WidgetGrant::default())), false).await
            ),
        ),
        ("a session", format!("?token={}", session_token("ada", "c1"))),
        ("names alone", "?userId=ada&agentId=a1&todoListId=l-ada".to_owned()),
    ];
    for (kind, query) in cases {
        let (client, mut answers) = (TokenClient::new(&app, &query), BTreeSet::new());
        for (method, params, _) in request_matrix() {
            let answer = client.ask(method, &params).await;
            let problem: Value = serde_json::from_str(&answer).expect("a problem");
            let expected = if matches!(kind, "twice" | "two") { 400 } else { 401 };
            assert_eq!(problem["status"], expected, "{kind} {method}: {answer}");
            answers.insert(problem["detail"].to_string());
        }
        assert_eq!(answers.len(), 1, "{kind}: {answers:?}");
    }
}
