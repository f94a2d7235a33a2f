//! Documents that are deleted, renamed, rewritten or withdrawn from the agent while they are searched: nothing of what is
//! gone is quoted, on any path.

use std::sync::Arc;

use agent_core::clock::SystemClock;
use agent_platform::token::{Grant, McpGrant, NewToken, Tokens, WidgetGrant};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::pulse::{deliver_callback, delivery};
use crate::support::paused_records::PausedRecords;
use crate::support::server::{self, PULSE_SECRET, Server, session_token};
use crate::support::vendor::Vendor;
use crate::support::{TEST_TIMEOUT, refused_url, workspace};

const QUESTION: &str = "How long are receipts kept?";
/// Words of the documents before and after a change.
const OLD_TITLE: &str = "oldtitlemark";
const OLD_TEXT: &str = "oldtextmark";
const NEW: &str = "newmark";
const STANDING: &str = "standingmark";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Delete,
    Rename,
    Rewrite,
    Withdraw,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueryPath {
    Chat,
    WidgetChat,
    Job,
    Preview,
    Retrieve,
    SearchDocs,
}

/// An application whose searches can be paused.
struct PausedApp {
    app: Server,
    vendor: Vendor,
    records: Arc<PausedRecords>,
    mcp_token: String,
    widget_token: String,
}

impl PausedApp {
    async fn start() -> Self {
        let vendor = Vendor::start().await;
        let mut workspace = workspace(&vendor.base_url(), "m");
        let document = |id: &str, title: &str, text: String| json!({"id": id, "companyId": "c1", "title": title, "text": text});
        workspace["documents"] = json!([
            document("handbook", OLD_TITLE, format!("Receipts are kept for ten years in the {OLD_TEXT}.")),
            document("travel", "Travel", "Trains are booked by the office in second class.".into()),
            document("standing", "Standing", format!("The office opens at eight. {STANDING}")),
        ]);
        let content = &mut workspace["agents"][0]["content"];
        content["enableAutoRag"] = true.into();
        content["documentIds"] = json!(["standing"]);
        content["ragDocumentIds"] = json!(["handbook", "travel"]);
        content["mcpPreset"] = json!(["searchDocs"]);
        let mut stores = server::stores(&workspace).await;
        let records = PausedRecords::new(stores.records.clone());
        stores.records = records.clone();
        let tokens = Tokens::new(stores.records.clone(), Arc::new(SystemClock));
        let mint = async |grant: Grant| {
            let minted = tokens.mint(NewToken::new("c1", "a1", grant)).await.expect("minted");
            minted.text.expose().to_owned()
        };
        let mcp_grant = McpGrant { user_id: "u1".into(), ..McpGrant::default() };
        let (mcp_token, widget_token) =
            (mint(Grant::Mcp(mcp_grant)).await, mint(Grant::Widget(WidgetGrant::default())).await);
        let nobody = refused_url();
        let settings = [("PULSE_URL", &*nobody), ("PULSE_SECRET", PULSE_SECRET)];
        let app = server::app_with_stores(stores, &settings).await;
        Self { app, vendor, records, mcp_token, widget_token }
    }

    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
        let request = self.app.request(method, path).bearer_auth(session_token("u1", "c1"));
        let request = body.into_iter().fold(request, |request, body| request.json(body));
        read(request.send().await.expect("an answer")).await
    }

    /// Asks the question; returns everything that was answered.
    async fn ask(&self, path: QueryPath) -> (u16, String) {
        let turn = json!({"agentId": "a1", "message": QUESTION});
        match path {
            QueryPath::Chat => self.send("POST", "/api/agent/chat", Some(&turn)).await,
            QueryPath::WidgetChat => {
                let request =
                    self.app.request("POST", "/api/agent/chat").header("x-widget-token", &self.widget_token);
                read(request.json(&turn).send().await.expect("an answer")).await
            }
            QueryPath::Job => {
                let payload = json!({"kind": "agent", "userId": "u1", "companyId": "c1", "agentId": "a1",
                    "message": QUESTION});
                let job = format!("job-{}", self.vendor.received().len());
                read(deliver_callback(&self.app, &delivery(payload, &job, 1)).await).await
            }
            QueryPath::Preview => self.send("POST", "/api/svcchat/previewPrompt", Some(&turn)).await,
            QueryPath::Retrieve => {
                self.send("POST", "/api/agents/a1/retrieve", Some(&json!({"query": QUESTION}))).await
            }
            QueryPath::SearchDocs => {
                let call = json!({"name": "searchDocs", "arguments": {"query": QUESTION}});
                let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call});
                let path = format!("/api/agent/mcp?token={}", self.mcp_token);
                let request = self.app.request("POST", &path).json(&body);
                read(request.send().await.expect("an answer")).await
            }
        }
    }

    /// Asks the question, and changes something while the documents are searched. Returns everything that was answered
    /// and sent to the vendor.
    async fn ask_during(&self, path: QueryPath, change: impl AsyncFnOnce()) -> String {
        let request_count = self.vendor.received().len();
        self.records.arm();
        let changing = async {
            self.records.held().await;
            change().await;
            self.records.release();
        };
        let both = timeout(TEST_TIMEOUT, async { tokio::join!(self.ask(path), changing) });
        let ((status, mut sent_prompt), ()) = both.await.expect("the search goes on");
        assert_eq!(status, 200, "{path:?}: {sent_prompt}");
        for request in &self.vendor.received()[request_count..] {
            sent_prompt.push_str(&request.json().to_string());
        }
        sent_prompt
    }

    async fn change(&self, change: Change) {
        let path = "/api/documents/handbook";
        let document = |title: &str, word: &str| json!({"title": title, "text": format!("Receipts are kept for ten years in the {word}.")});
        let (status, body) = match change {
            Change::Delete => self.send("DELETE", &format!("{path}?force=true"), None).await,
            Change::Rename => self.send("PUT", path, Some(&document(NEW, OLD_TEXT))).await,
            Change::Rewrite => self.send("PUT", path, Some(&document(OLD_TITLE, NEW))).await,
            Change::Withdraw => {
                let (_, role) = self.send("GET", "/api/agents/a1", None).await;
                let mut role: Value = serde_json::from_str(&role).expect("JSON");
                role["content"]["ragDocumentIds"] = json!(["travel"]);
                self.send("PUT", "/api/agents/a1", Some(&role)).await
            }
        };
        assert!((200..300).contains(&status), "{change:?}: {status} {body}");
    }
}

async fn read(response: reqwest::Response) -> (u16, String) {
    (response.status().as_u16(), response.text().await.expect("a whole body"))
}

#[tokio::test]
async fn documents_deleted_during_a_search_are_not_quoted() {
    for change in [Change::Delete, Change::Rename, Change::Rewrite, Change::Withdraw] {
        for path in [
            QueryPath::Chat,
            QueryPath::WidgetChat,
            QueryPath::Job,
            QueryPath::Preview,
            QueryPath::Retrieve,
            QueryPath::SearchDocs,
        ] {
            let test = PausedApp::start().await;
            // From here on the index and the texts are in memory.
            let before = test.ask_during(path, async || ()).await;
            // The account of a search has no texts, but may have terms of them.
            let has_texts = path != QueryPath::Retrieve;
            assert!(before.contains(OLD_TITLE), "{path:?}: {before}");
            assert!(before.contains(OLD_TEXT) || !has_texts, "{path:?}: {before}");
            let sent_prompt = test.ask_during(path, async || test.change(change).await).await;
            let (gone, quoted): (&[&str], &[&str]) = match change {
                Change::Delete | Change::Withdraw => (&[OLD_TITLE, OLD_TEXT], &[]),
                Change::Rename => (&[OLD_TITLE], &[NEW, OLD_TEXT]),
                Change::Rewrite => (&[OLD_TEXT], &[OLD_TITLE, NEW]),
            };
            for word in gone {
                assert!(!sent_prompt.contains(word), "{change:?}, {path:?}, {word}: {sent_prompt}");
            }
            for word in quoted.iter().take(if has_texts { quoted.len() } else { 1 }) {
                assert!(sent_prompt.contains(word), "{change:?}, {path:?}, {word}: {sent_prompt}");
            }
        }
    }
}

#[tokio::test]
async fn a_standing_document_deleted_during_a_search_is_not_sent() {
    for path in [QueryPath::Chat, QueryPath::WidgetChat, QueryPath::Job, QueryPath::Preview] {
        let test = PausedApp::start().await;
        assert!(test.ask_during(path, async || ()).await.contains(STANDING), "{path:?}");
        let delete = async || {
            let (status, body) = test.send("DELETE", "/api/documents/standing?force=true", None).await;
            assert_eq!(status, 204, "{body}");
        };
        let sent_prompt = test.ask_during(path, delete).await;
        assert!(!sent_prompt.contains(STANDING) && sent_prompt.contains(OLD_TEXT), "{path:?}: {sent_prompt}");
    }
}
