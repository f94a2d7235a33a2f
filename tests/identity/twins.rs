//! Two companies with agents, users, documents and todo lists of the same ids: each reaches its own only, on every
//! route and with every kind of credential, and learns nothing of the other's.

use std::sync::Arc;
use std::time::SystemTime;

use agent_core::secret::Secret;
use agent_http::webhook;
use agent_jobs::job::{JobStore, MemoryJobStore};
use agentd::stores::Stores;
use reqwest::Response;
use serde_json::{Value, json};

use crate::pulse::callback_url;
use crate::support::server::{self, INTERNAL_SECRET, PULSE_SECRET, Server, session_token};
use crate::support::vendor::{Vendor, answer, tool_calls};
use crate::support::{expect_problem, parse_run, text_of};

const COMPANIES: [&str; 2] = ["c1", "c2"];

/// Returns the company that is not `company`.
fn other(company: &str) -> &'static str {
    if company == "c1" { "c2" } else { "c1" }
}

/// Returns a workspace of two companies whose items have the same ids. Each text contains `mark-` and its company.
fn workspace(base_url: &str) -> Value {
    let mut all = json!({"users": [], "agents": [], "documents": [], "todoLists": []});
    let mut add = |list: &str, item: Value| all[list].as_array_mut().expect("a list").push(item);
    for company in COMPANIES {
        for user in ["ada", "bob"] {
            add("users", json!({"id": user, "companyId": company}));
        }
        let tools = json!(["readTodos", "createTodo", "listDocs", "getDoc"]);
        add(
            "agents",
            json!({"id": "support", "name": format!("mark-{company}"), "ownerId": "ada", "companyId": company,
                "content": {"systemPrompt": format!("mark-{company}"), "documentIds": ["d"],
                    "mcpPreset": tools, "widgetTools": ["getDoc"]},
                "children": [{"name": "EmbeddedAI", "content": {"provider": "openai", "model": format!("m-{company}"),
                    "baseUrl": base_url, "apiKey": "role-key-canary"}}]}),
        );
        let mark = format!("mark-{company}");
        add("documents", json!({"id": "d", "companyId": company, "title": mark, "text": mark}));
        let todos = json!([{"id": "t", "title": mark, "done": false}]);
        add(
            "todoLists",
            json!({"id": "l", "ownerId": "ada", "companyId": company, "name": mark, "todos": todos}),
        );
    }
    // A user of one company only.
    add("users", json!({"id": "eve", "companyId": "c2"}));
    all
}

/// An application and its scheduler, with the vendor of the models `m-c1` and `m-c2`.
struct Twins {
    vendor: Vendor,
    app: Server,
    stores: Stores,
    #[expect(dead_code, reason = "runs until the test ends")]
    scheduler: Server,
}

impl Twins {
    async fn open() -> Self {
        let vendor = Vendor::start().await;
        let stores = server::stores(&workspace(&vendor.base_url())).await;
        let listener = server::bind().await;
        let callback = callback_url(&listener);
        let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
        let scheduler = server::scheduler(jobs, &callback, &[]).await;
        let pulse = scheduler.url("");
        let settings = [("PULSE_URL", &*pulse), ("PULSE_SECRET", PULSE_SECRET), ("MCP_LEGACY_QUERY", "on")];
        let app = server::app_on(listener, stores.clone(), &settings);
        Self { vendor, app, stores, scheduler }
    }

    async fn send(&self, company: &str, method: &str, path: &str, body: Option<&Value>) -> Response {
        let request = self.app.request(method, path).bearer_auth(session_token("ada", company));
        let request = body.into_iter().fold(request, |request, body| request.json(body));
        request.send().await.expect("an answer")
    }

    /// Sends a request and checks the status and that the response has no mark of the other company.
    async fn own(
        &self,
        company: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
        status: u16,
    ) -> String {
        let response = self.send(company, method, path, body).await;
        let actual_status = response.status();
        let text = response.text().await.expect("a whole body");
        assert_eq!(actual_status, status, "{company} {method} {path}: {text}");
        assert!(!text.contains(&format!("mark-{}", other(company))), "{company} {method} {path}: {text}");
        text
    }

    async fn own_json(
        &self,
        company: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
        status: u16,
    ) -> Value {
        serde_json::from_str(&self.own(company, method, path, body, status).await).expect("JSON")
    }

    /// Calls a tool over MCP and returns the response's text.
    async fn call_tool(&self, query: &str, name: &str, arguments: Value) -> String {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": name, "arguments": arguments}});
        let response = self.app.request("POST", &format!("/api/agent/mcp?{query}")).json(&body);
        response.send().await.expect("an answer").text().await.expect("a whole body")
    }

    /// Delivers an occurrence of a job as the scheduler does.
    async fn deliver(&self, payload: &Value, job: &str) -> Response {
        let mut body = payload.clone();
        let occurrence =
            json!({"jobId": job, "occurrence": 1, "scheduledFor": "2026-01-01T00:00:00.000Z", "attempt": 1});
        body.as_object_mut().expect("an object").extend(occurrence.as_object().expect("an object").clone());
        let body = body.to_string();
        let signed = webhook::sign(
            &Secret::new(PULSE_SECRET),
            &format!("{job}:1"),
            SystemTime::now(),
            body.as_bytes(),
        );
        let mut request = self.app.request("POST", "/api/pulse/callback").bearer_auth(PULSE_SECRET);
        for (name, value) in signed.expect("an id") {
            request = request.header(name, value);
        }
        let request = request.header("content-type", "application/json").body(body);
        request.send().await.expect("the application answers")
    }
}

#[tokio::test]
async fn chats_previews_and_run_ids_are_the_companys_own() {
    let twins = Twins::open().await;
    for company in COMPANIES {
        twins.vendor.on(&format!("m-{company}"), [answer(&["said-", company])]);
        // The same run id and thread id in both companies.
        let body = json!({"agentId": "support", "message": "Hello", "runId": "r", "threadId": "t"});
        for path in ["/api/agent/chat", "/api/svcchat/private"] {
            let mut body = body.clone();
            body["runId"] = format!("r-{}", path.len()).into();
            let text = twins.own(company, "POST", path, Some(&body), 200).await;
            assert_eq!(text_of(&parse_run(&text)), format!("said-{company}"));
            let second = twins.send(company, "POST", path, Some(&body)).await;
            expect_problem(second, 409, "CONFLICT").await;
        }
        let internal = json!({"agentId": "support", "message": "x", "userId": "ada", "companyId": company});
        let internal =
            twins.app.request("POST", "/api/agent/chat").bearer_auth(INTERNAL_SECRET).json(&internal);
        let internal = internal.header("x-proactive-trigger", "x").send().await.expect("an answer");
        let events = parse_run(&internal.text().await.expect("a whole body"));
        assert_eq!(text_of(&events), format!("said-{company}"));
        let sent = json!(twins.vendor.received_bodies(&format!("m-{company}"))).to_string();
        assert!(
            sent.contains(&format!("mark-{company}")) && !sent.contains(&format!("mark-{}", other(company)))
        );
        for path in ["debugPrompt", "previewPrompt"] {
            let path = format!("/api/svcchat/{path}?agentId=support&todoListId=l&message=x");
            let text = twins.own(company, "GET", &path, None, 200).await;
            assert!(text.contains(&format!("mark-{company}")), "{text}");
        }
        let body = json!({"agentId": "support", "message": "x"});
        twins.own(company, "POST", "/api/svcchat/previewPrompt", Some(&body), 200).await;
    }
}

#[tokio::test]
async fn a_companys_resources_are_hidden_from_another() {
    let twins = Twins::open().await;
    for company in COMPANIES {
        let mark = format!("mark-{company}");
        for path in ["/api/agents", "/api/agents/support", "/api/documents", "/api/documents/d"] {
            let text = twins.own(company, "GET", path, None, 200).await;
            assert!(text.contains(&mark), "{path}: {text}");
        }
        // An id that the other company has is free.
        let agent = json!({"name": mark, "content": {"systemPrompt": mark}});
        twins.own(company, "PUT", "/api/agents/sales", Some(&agent), 201).await;
        let document = json!({"title": mark, "text": mark});
        twins.own(company, "PUT", "/api/documents/new", Some(&document), 201).await;
    }
    for company in COMPANIES {
        let text = twins.own(company, "GET", "/api/agents/sales", None, 200).await;
        assert!(text.contains(&format!("mark-{company}")), "{text}");
        twins.own(company, "GET", "/api/documents/new", None, 200).await;
    }
    // A deletion reaches the own company's only.
    for path in ["/api/agents/sales", "/api/documents/new"] {
        twins.own("c1", "DELETE", path, None, 204).await;
        expect_problem(twins.send("c1", "GET", path, None).await, 404, "NOT_FOUND").await;
        twins.own("c2", "GET", path, None, 200).await;
    }
}

#[tokio::test]
async fn a_token_decides_the_company() {
    let twins = Twins::open().await;
    let mut made = Vec::new();
    for company in COMPANIES {
        twins.vendor.on(&format!("m-{company}"), [answer(&["said-", company])]);
        let path = "/api/agents/support/tokens";
        let widget = twins.own_json(company, "POST", path, Some(&json!({"kind": "widget"})), 201).await;
        let mcp = json!({"kind": "mcp", "todoListId": "l"});
        let mcp = twins.own_json(company, "POST", path, Some(&mcp), 201).await;
        let list = twins.own_json(company, "GET", path, None, 200).await;
        let ids: Vec<&Value> =
            list["tokens"].as_array().expect("a list").iter().map(|token| &token["id"]).collect();
        assert_eq!(ids, [&widget["id"], &mcp["id"]], "the other company's tokens are not listed");
        made.push((company, widget, mcp));
    }
    for (company, widget, mcp) in &made {
        let text = |token: &Value| token["token"].as_str().expect("text").to_owned();
        let body = json!({"message": "Hello", "agentId": "support"});
        let request = twins.app.request("POST", "/api/agent/chat").header("x-widget-token", text(widget));
        let run = request.json(&body).send().await.expect("an answer").text().await.expect("a whole body");
        assert_eq!(text_of(&parse_run(&run)), format!("said-{company}"));

        let query = format!("token={}&userId=ada&agentId=support", text(mcp));
        for (tool, arguments) in [("readTodos", json!({})), ("getDoc", json!({"id": "d"}))] {
            let result = twins.call_tool(&query, tool, arguments).await;
            assert!(result.contains(&format!("mark-{company}")), "{result}");
            assert!(!result.contains(&format!("mark-{}", other(company))), "{result}");
        }
        let named = format!("{query}&companyId={}", other(company));
        assert!(twins.call_tool(&named, "readTodos", json!({})).await.contains("companyId"));
        // The other company's owner of the same name and agent cannot revoke it.
        let path = format!("/api/agents/support/tokens/{}", mcp["id"].as_str().expect("an id"));
        expect_problem(twins.send(other(company), "DELETE", &path, None).await, 404, "NOT_FOUND").await;
        twins.call_tool(&query, "createTodo", json!({"title": format!("mark-{company} new")})).await;
    }
    for (company, ..) in &made {
        let audited = || twins.own_json(company, "GET", "/api/agent/tools/audit?agentId=support", None, 200);
        let page = crate::support::poll_until(audited, |page| {
            page["calls"].as_array().is_some_and(|calls| calls.len() >= 3)
        })
        .await;
        assert_eq!(page["calls"].as_array().expect("a list").len(), 3, "{page}");
    }
    // The agent's deletion in one company ends its tokens there only.
    twins.own("c1", "DELETE", "/api/agents/support", None, 204).await;
    for ((company, _, mcp), works) in made.iter().zip([false, true]) {
        let query = format!("token={}", mcp["token"].as_str().expect("text"));
        let result = twins.call_tool(&query, "readTodos", json!({})).await;
        assert_eq!(result.contains(&format!("mark-{company}")), works, "{result}");
    }
}

#[tokio::test]
async fn a_legacy_query_is_decided_by_its_user_or_names_its_company() {
    let twins = Twins::open().await;
    for company in COMPANIES {
        let query = format!("userId=ada&agentId=support&todoListId=l&companyId={company}");
        let result = twins.call_tool(&query, "readTodos", json!({})).await;
        assert!(result.contains(&format!("mark-{company}")), "{result}");
        assert!(!result.contains(&format!("mark-{}", other(company))), "{result}");
    }
    let result = twins.call_tool("userId=eve&agentId=support", "getDoc", json!({"id": "d"})).await;
    assert!(result.contains("mark-c2"), "{result}");
    for (query, detail) in [
        ("userId=ada&agentId=support", "several companies have this user and agent: add companyId"),
        ("userId=eve&agentId=support&companyId=c1", "a valid MCP token, or userId and agentId, is required"),
        (
            "userId=ada&agentId=support&companyId=none",
            "a valid MCP token, or userId and agentId, is required",
        ),
    ] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        let request = twins.app.request("POST", &format!("/api/agent/mcp?{query}")).json(&body);
        let problem = expect_problem(request.send().await.expect("an answer"), 401, "UNAUTHENTICATED").await;
        assert_eq!(problem["detail"], detail, "{query}");
    }
}

#[tokio::test]
async fn jobs_and_assignments_are_the_companys_own() {
    let twins = Twins::open().await;
    let path = "/api/agents/support/assignments/s";
    let mut jobs = Vec::new();
    for company in COMPANIES {
        let assignment = json!({"toolId": "createTodo", "todoListId": "l",
            "arguments": {"title": format!("mark-{company} due")},
            "schedule": {"enabled": true, "cron": "0 9 * * *"}});
        let made = twins.own_json(company, "PUT", path, Some(&assignment), 201).await;
        assert_eq!(made["sync"]["inStep"], true, "{made}");
        let list = twins.own_json(company, "GET", "/api/pulse/jobs", None, 200).await;
        assert_eq!(list["jobs"].as_array().expect("a list").len(), 1, "{list}");
        assert_eq!(twins.own_json(company, "GET", "/api/pulse/status", None, 200).await["jobCount"], 1);
        jobs.push((company, made["sync"]["jobId"].as_str().expect("an id").to_owned()));
    }
    for (company, job) in &jobs {
        let foreign = format!("/api/pulse/jobs/{job}");
        expect_problem(twins.send(other(company), "DELETE", &foreign, None).await, 404, "NOT_FOUND").await;
        // The same job id is another occurrence in each company.
        let payload = json!({"kind": "tool", "userId": "ada", "companyId": company, "agentId": "support",
            "toolId": "createTodo", "assignmentId": "s", "todoListId": "l",
            "arguments": {"title": format!("mark-{company} done")}});
        assert_eq!(twins.deliver(&payload, "same").await.status(), 200);
        twins.vendor.on(
            &format!("m-{company}"),
            [tool_calls(&[("c", "readTodos", "{}")]), answer(&["told-", company])],
        );
        let body = json!({"agentId": "support", "message": "x", "todoListId": "l"});
        let run = twins.own(company, "POST", "/api/agent/chat", Some(&body), 200).await;
        assert!(run.contains(&format!("mark-{company} done")), "{run}");
        let turn = json!({"kind": "agent", "userId": "ada", "companyId": company, "agentId": "support",
            "message": "x"});
        assert_eq!(twins.deliver(&turn, "same-turn").await.status(), 200);
    }
    for company in COMPANIES {
        let context = agent_core::tool::ExecutionContext {
            user_id: "ada".into(),
            company_id: company.into(),
            ..Default::default()
        };
        let notifications = agent_platform::workspace::list_notifications(
            &*twins.stores.records,
            &context,
            false,
            Default::default(),
        );
        let notifications = notifications.await.expect("read").items;
        let texts: Vec<_> = notifications.iter().filter_map(|record| record.value.text.as_deref()).collect();
        assert_eq!(texts, [format!("told-{company}")]);
    }
    // The agent's deletion in one company ends its jobs there only.
    twins.own("c1", "DELETE", "/api/agents/support", None, 204).await;
    for (company, count) in [("c1", 0), ("c2", 1)] {
        assert_eq!(twins.own_json(company, "GET", "/api/pulse/status", None, 200).await["jobCount"], count);
    }
}
