//! Matrix of callers, agents and paths over two companies whose users, agents and documents have the same ids: each answer
//! and each prompt has words of the documents that the agent names in the caller's company, and of no others. The account
//! of a search is the same whether or not there are others.

use std::sync::{Arc, Mutex};

use agent_core::clock::SystemClock;
use agent_platform::records::Records;
use agent_platform::token::{ApiGrant, Grant, McpGrant, NewToken, Tokens, WidgetGrant};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::pulse::{deliver_callback, delivery};
use crate::support::server::{self, PULSE_SECRET, Server, session_token};
use crate::support::vendor::{Vendor, answer};
use crate::support::{refused_url, report};

/// The companies with the ids of their documents.
const COMPANIES: [(&str, &str); 2] = [("alpha", "abcde"), ("beta", "abcdxy")];
/// The ids of all documents.
const IDS: &str = "abcdexy";
/// Prefixes of the words of a document that no query has.
const HIDDEN: [&str; 3] = ["hiddentitle", "hiddenheading", "hiddentext"];
/// Minimum number of cells.
const MIN_CELLS: usize = 1_000;

/// An agent: its id, the documents of its prompt, the documents that it searches, and whether its turns search.
type Agent = (&'static str, &'static str, &'static str, bool);

/// The agents of both companies. Some name documents that only one of the companies has.
const AGENTS: [Agent; 6] = [
    ("standing", "ab", "", false),
    ("searching", "", "cd", true),
    ("mixed", "a", "c", true),
    ("quiet", "", "b", false),
    ("luring", "x", "ydxe", true),
    ("bare", "", "", false),
];
/// An agent of each company that the other company does not have.
const OWN_AGENTS: [Agent; 2] = [("inner", "", "e", true), ("outer", "y", "", true)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AccessPath {
    Chat,
    WidgetChat,
    Completion,
    Job,
    Preview,
    Retrieve,
    SearchDocs,
    GetDoc,
}

/// A caller with the paths that are open to it.
struct Caller {
    name: &'static str,
    user: &'static str,
    company: &'static str,
    paths: &'static [AccessPath],
}

const SESSION_PATHS: &[AccessPath] = &[AccessPath::Chat, AccessPath::Preview, AccessPath::Retrieve];
const TOOL_PATHS: &[AccessPath] = &[AccessPath::SearchDocs, AccessPath::GetDoc];

const CALLERS: [Caller; 11] = [
    Caller { name: "owner", user: "ada", company: "alpha", paths: SESSION_PATHS },
    Caller { name: "colleague", user: "bob", company: "alpha", paths: SESSION_PATHS },
    Caller { name: "viewer", user: "guest", company: "alpha", paths: SESSION_PATHS },
    Caller { name: "user of another company", user: "eve", company: "beta", paths: SESSION_PATHS },
    Caller { name: "user of the same id", user: "ada", company: "beta", paths: SESSION_PATHS },
    Caller { name: "visitor", user: "widget:w", company: "alpha", paths: &[AccessPath::WidgetChat] },
    Caller { name: "client of a user", user: "ada", company: "alpha", paths: &[AccessPath::Completion] },
    Caller { name: "tools of a user", user: "ada", company: "alpha", paths: TOOL_PATHS },
    Caller { name: "tools of a visitor", user: "widget:w", company: "alpha", paths: TOOL_PATHS },
    Caller { name: "tools of a run", user: "eve", company: "beta", paths: TOOL_PATHS },
    Caller { name: "job", user: "ada", company: "alpha", paths: &[AccessPath::Job] },
];

fn agents_of(company: &str) -> impl Iterator<Item = Agent> {
    let own_agent = OWN_AGENTS[usize::from(company == "beta")];
    AGENTS.into_iter().chain([own_agent])
}

fn documents_of(company: &str) -> &'static str {
    COMPANIES.iter().find(|(id, _)| *id == company).expect("a company").1
}

fn word(prefix: &str, company: &str, id: char) -> String {
    format!("{prefix}{company}{id}mark")
}

/// Returns a question that names the documents with this id of both companies.
fn question(id: char) -> String {
    let words =
        |(company, _)| format!("{} {}", word("baittitle", company, id), word("baittext", company, id));
    format!("What does the depot keep beside {}?", COMPANIES.map(words).join(" and "))
}

/// Returns a workspace of companies with the documents that `is_there`.
fn workspace(base_url: &str, companies: &[&str], is_there: impl Fn(char) -> bool) -> Value {
    let mut all = json!({"users": [{"id": "guest", "companyId": "alpha", "role": "viewer"}], "agents": [], "documents": []});
    let mut add = |list: &str, item: Value| all[list].as_array_mut().expect("a list").push(item);
    let ids = |ids: &str| ids.chars().map(String::from).collect::<Vec<_>>();
    for company in companies {
        for (id, standing, searched, is_enabled) in agents_of(company) {
            let content = json!({"documentIds": ids(standing), "ragDocumentIds": ids(searched), "enableAutoRag": is_enabled,
                "showSources": true, "mcpPreset": ["searchDocs", "getDoc"], "widgetTools": ["searchDocs", "getDoc"]});
            let container = json!({"provider": "openai", "model": "m", "baseUrl": base_url, "apiKey": "key"});
            add(
                "agents",
                json!({"id": id, "name": id, "ownerId": "ada", "companyId": company, "content": content,
                    "children": [{"name": "EmbeddedAI", "content": container}]}),
            );
        }
        for id in documents_of(company).chars().filter(|id| is_there(*id)) {
            let [title, heading, text] = HIDDEN.map(|prefix| word(prefix, company, id));
            let title = format!("{} {title}", word("baittitle", company, id));
            let text = format!(
                "# Depot {heading}\n\nThe depot keeps {} beside {text}.",
                word("baittext", company, id)
            );
            add("documents", json!({"id": id, "companyId": company, "title": title, "text": text}));
        }
    }
    all
}

/// An application, and the prompts that its vendor received.
struct RetrievalApp {
    app: Server,
    records: Arc<dyn Records>,
    prompts: Arc<Mutex<Vec<String>>>,
    _vendor: Vendor,
}

impl RetrievalApp {
    async fn start(companies: &[&str], is_there: impl Fn(char) -> bool) -> Self {
        let (vendor, prompts) = (Vendor::start().await, Arc::<Mutex<Vec<String>>>::default());
        let sent = prompts.clone();
        vendor.on_all_with(move |body| {
            sent.lock().expect("unpoisoned").push(body.to_string());
            answer(&["It keeps it [1]."])
        });
        let mut workspace = workspace(&vendor.base_url(), companies, is_there);
        let agents = workspace["agents"].take();
        workspace["agents"] = json!([]);
        let stores = server::stores(&workspace).await;
        for agent in agents.as_array().expect("a list") {
            server::store_agent(&stores, agent.clone()).await;
        }
        let records = stores.records.clone();
        let pulse_url = refused_url();
        let settings = [
            ("PULSE_URL", &*pulse_url),
            ("PULSE_SECRET", PULSE_SECRET),
            ("DATA_SECRET", "data-secret-of-some-length"),
            ("MCP_REQUESTS_PER_MINUTE", "1000000"),
        ];
        let app = server::app_with_stores(stores, &settings).await;
        Self { app, records, prompts, _vendor: vendor }
    }

    async fn mint(&self, new: NewToken) -> String {
        let tokens = Tokens::new(self.records.clone(), Arc::new(SystemClock));
        tokens.mint(new).await.expect("minted").text.expose().to_owned()
    }

    /// Returns the caller's token for a path to an agent, if the path takes one.
    async fn token(&self, caller: &Caller, agent: &str, path: AccessPath) -> Option<String> {
        let grant = match path {
            AccessPath::WidgetChat => Grant::Widget(WidgetGrant::default()),
            AccessPath::Completion => {
                let grant = ApiGrant { user_id: caller.user.into(), agents: vec![agent.into()], caps: None };
                return Some(self.mint(NewToken::api(caller.company, grant)).await);
            }
            AccessPath::SearchDocs | AccessPath::GetDoc => {
                let run_id = (caller.name == "tools of a run").then(|| "run-1".into());
                Grant::Mcp(McpGrant { user_id: caller.user.into(), run_id, ..McpGrant::default() })
            }
            _ => return None,
        };
        Some(self.mint(NewToken::new(caller.company, agent, grant)).await)
    }

    fn request(
        &self,
        caller: &Caller,
        path: AccessPath,
        agent: &str,
        id: char,
        token: &str,
    ) -> RequestBuilder {
        let post = |path: &str, body: Value| self.app.request("POST", path).json(&body);
        let session = || session_token(caller.user, caller.company);
        let turn = json!({"agentId": agent, "message": question(id)});
        let call = |name: &str, arguments: Value| {
            let params = json!({"name": name, "arguments": arguments});
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            post(&format!("/api/agent/mcp?token={token}"), body)
        };
        match path {
            AccessPath::Chat => post("/api/agent/chat", turn).bearer_auth(session()),
            AccessPath::WidgetChat => post("/api/agent/chat", turn).header("x-widget-token", token),
            AccessPath::Completion => {
                let messages = json!([{"role": "user", "content": question(id)}]);
                post("/v1/chat/completions", json!({"model": agent, "messages": messages})).bearer_auth(token)
            }
            AccessPath::Preview => post("/api/svcchat/previewPrompt", turn).bearer_auth(session()),
            AccessPath::Retrieve => {
                let path = format!("/api/agents/{agent}/retrieve");
                post(&path, json!({"query": question(id)})).bearer_auth(session())
            }
            AccessPath::SearchDocs => {
                let mut arguments = json!({"query": question(id)});
                // Documents that are named do not widen the scope.
                if "bdy".contains(id) {
                    arguments["documentIds"] = json!(IDS.chars().collect::<Vec<_>>());
                }
                call("searchDocs", arguments)
            }
            AccessPath::GetDoc => call("getDoc", json!({"id": id})),
            AccessPath::Job => unreachable!("a job is delivered"),
        }
    }

    /// Returns the status of an answer, and the answer with everything that the vendor was sent for it.
    async fn ask(
        &self,
        caller: &Caller,
        path: AccessPath,
        agent: &str,
        id: char,
        token: &str,
    ) -> (u16, String) {
        let response: Response = match path {
            AccessPath::Job => {
                let payload = json!({"kind": "agent", "userId": caller.user, "companyId": caller.company,
                    "agentId": agent, "message": question(id)});
                deliver_callback(&self.app, &delivery(payload, &format!("{agent}-{id}"), 1)).await
            }
            path => self.request(caller, path, agent, id, token).send().await.expect("an answer"),
        };
        let (status, mut output) = (response.status().as_u16(), response.text().await.expect("a whole body"));
        output.extend(self.prompts.lock().expect("unpoisoned").drain(..));
        (status, output)
    }
}

/// Returns the ids of the documents whose words an answer may contain, and of the documents whose words it must contain.
fn expected_documents(
    caller: &Caller,
    path: AccessPath,
    agent: Agent,
    question_id: char,
) -> (String, String) {
    let (_, standing, searched, is_enabled) = agent;
    let all = documents_of(caller.company);
    let present = |ids: &str| ids.chars().filter(|id| all.contains(*id)).collect::<String>();
    let asked_of = |ids: &str| present(ids).chars().filter(|id| *id == question_id).collect::<String>();
    let named = [standing, searched].concat();
    match path {
        AccessPath::GetDoc if caller.user.starts_with("widget:") => (asked_of(&named), asked_of(&named)),
        AccessPath::GetDoc => (asked_of(all), asked_of(all)),
        AccessPath::SearchDocs => (present(&named), asked_of(&named)),
        AccessPath::Retrieve => {
            let searched: String = searched.chars().filter(|id| !standing.contains(*id)).collect();
            (present(&searched), asked_of(&searched))
        }
        _ if is_enabled => (present(&named), present(standing) + &asked_of(searched)),
        _ => (present(standing), present(standing)),
    }
}

/// Returns the documents, each by its company and id, of which an answer has words that no query has.
fn documents_in(output: &str) -> Vec<(&'static str, char)> {
    let all = COMPANIES.iter().flat_map(|(company, ids)| ids.chars().map(move |id| (*company, id)));
    all.filter(|(company, id)| HIDDEN.iter().any(|prefix| output.contains(&word(prefix, company, *id))))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_receives_words_of_forbidden_documents() {
    let app_test = RetrievalApp::start(&["alpha", "beta"], |_| true).await;
    let mut cells = 0;
    for caller in &CALLERS {
        for agent in AGENTS.into_iter().chain(OWN_AGENTS) {
            let is_own = agents_of(caller.company).any(|own| own == agent);
            for path in caller.paths {
                let token = app_test.token(caller, agent.0, *path).await.unwrap_or_default();
                for id in IDS.chars() {
                    let (status, output) = app_test.ask(caller, *path, agent.0, id, &token).await;
                    let cell = format!("{}, {}, {path:?}, {id}", caller.name, agent.0);
                    let (allowed, quoted) = match is_own {
                        true => expected_documents(caller, *path, agent, id),
                        false => Default::default(),
                    };
                    let cited_documents = documents_in(&output);
                    let is_allowed =
                        |(company, id): &(&str, char)| *company == caller.company && allowed.contains(*id);
                    assert!(
                        cited_documents.iter().all(is_allowed),
                        "{cell}: {cited_documents:?} in {output}"
                    );
                    let is_found = |id: char| cited_documents.contains(&(caller.company, id));
                    assert!(
                        quoted.chars().all(is_found),
                        "{cell}: {status}, {cited_documents:?} in {output}"
                    );
                    assert!(
                        status < 500 && (is_own || status != 200 || output.contains("error")),
                        "{cell}: {status}"
                    );
                    cells += 1;
                }
            }
        }
    }
    report(&format!("{cells} cells"));
    assert!(cells >= MIN_CELLS, "{cells}");
}

/// Returns the report of a search in an answer: its account, the parts of the prompt that are of documents, or the result of a
/// tool.
fn account(path: AccessPath, answer: &str) -> Value {
    let mut answer: Value = serde_json::from_str(answer).expect("JSON");
    match path {
        AccessPath::Preview => {
            let parts = answer["systemPromptParts"].as_array_mut().expect("a list");
            parts.retain(|part| part["source"] == "documents" || part["source"] == "retrieval");
            json!([answer["systemPromptParts"], answer["retrieval"]])
        }
        _ => answer,
    }
}

/// Other companies' documents, and documents that an agent does not name, change no score, count or term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_documents_change_nothing_in_the_account_of_a_search() {
    let owner = &CALLERS[0];
    let crowded = RetrievalApp::start(&["alpha", "beta"], |_| true).await;
    for agent in agents_of("alpha") {
        let named = [agent.1, agent.2].concat();
        let alone = RetrievalApp::start(&["alpha"], |id| named.contains(id)).await;
        for path in [AccessPath::Retrieve, AccessPath::Preview, AccessPath::SearchDocs] {
            let mut answers = Vec::new();
            for app_test in [&crowded, &alone] {
                let token = app_test.token(owner, agent.0, path).await.unwrap_or_default();
                let mut accounts = Vec::new();
                for id in IDS.chars() {
                    let (status, answer) = app_test.ask(owner, path, agent.0, id, &token).await;
                    assert_eq!(status, 200, "{}, {path:?}: {answer}", agent.0);
                    accounts.push(account(path, &answer));
                }
                answers.push(accounts);
            }
            assert_eq!(answers[0], answers[1], "{}, {path:?}", agent.0);
        }
    }
}

/// An agent of another company is answered as one that does not exist.
#[tokio::test]
async fn an_agent_of_another_company_is_not_found() {
    let app_test = RetrievalApp::start(&["alpha", "beta"], |_| true).await;
    let stranger = &CALLERS[3];
    for path in SESSION_PATHS {
        let mut answers = Vec::new();
        for agent in ["inner", "nobdy"] {
            let (status, answer) = app_test.ask(stranger, *path, agent, 'e', "").await;
            let mut problem: Value = serde_json::from_str(&answer).expect("a problem");
            problem.as_object_mut().expect("an object").remove("requestId");
            answers.push((status, problem.to_string().replace(agent, "agent")));
        }
        assert_eq!(answers[0].0, 404, "{path:?}: {answers:?}");
        assert_eq!(answers[0], answers[1], "{path:?}");
    }
}
