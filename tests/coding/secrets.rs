//! The secrets of a subscription are in no log, response, preview, event, export and database.

use std::collections::BTreeMap;
use std::path::Path;

use agent_client::device_auth::DeviceAuthDialect::{self, Codex, Rfc8628};
use agent_platform::workspace::WorkspaceFile;
use agentd::stores::Stores;
use reqwest::Response;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::installation::{
    Installation, InstallationSettings, MODEL, RUNTIME_SECRET, open_over, question, workspace,
};
use super::{hello, refusal, unauthorized};
use crate::support::issuer::{IssuerRoute, id_token, json_answer};
use crate::support::log::LogBuffer;
use crate::support::poll_until;
use crate::support::responses_vendor::{OutputItem, Reply};
use crate::support::server::{self, session_token};
use crate::support::vendor::Step;

const DATA_SECRET: &str = "data-secret-canary-0123456789";
const UPSTREAM_TEXT: &str = "upstream-text-canary-0123456789";

/// Heads and bodies of the responses to the user, without the code that the user has to be shown.
#[derive(Default)]
struct Transcript(String);

impl Transcript {
    async fn record(&mut self, response: Response) -> Value {
        self.0.push_str(&format!("{} {:?}\n", response.status(), response.headers()));
        let body = response.text().await.expect("a whole body");
        let mut json: Value = serde_json::from_str(&body).unwrap_or_default();
        match json.get("userCode").is_some() {
            true => {
                let complete_record = json.clone();
                json["userCode"] = Value::Null;
                self.0.push_str(&format!("{json}\n"));
                complete_record
            }
            false => {
                self.0.push_str(&format!("{body}\n"));
                json
            }
        }
    }
}

/// Signs `u1` in, with polls before the person has confirmed.
async fn sign_in(all: &Installation, transcript: &mut Transcript) {
    let polls = all.issuer.calls(IssuerRoute::Poll);
    let begun = transcript.record(all.send("u1", "POST", "/api/coding/sign-in").await).await;
    let path = format!("/api/coding/sign-in/{}", begun["signInId"].as_str().expect("an id"));
    all.issuer.wait_for_calls(IssuerRoute::Poll, polls + 1).await;
    transcript.record(all.send("u1", "GET", &path).await).await;
    all.issuer.approve(begun["userCode"].as_str().expect("a code"));
    let fetch = async || all.send("u1", "GET", &path).await.json::<Value>().await.expect("JSON");
    poll_until(fetch, |status| status["status"] == "complete").await;
}

/// Returns replies of the vendor: a whole run of two rounds, then refusals and faults that repeat its text everywhere.
fn replies() -> Vec<Vec<Reply>> {
    let error = json!({"error": {"code": UPSTREAM_TEXT, "type": UPSTREAM_TEXT, "message": UPSTREAM_TEXT,
        "plan_type": UPSTREAM_TEXT, "param": UPSTREAM_TEXT}, "detail": UPSTREAM_TEXT});
    let headers = format!("set-cookie: a={UPSTREAM_TEXT}\r\nx-request-id: {UPSTREAM_TEXT} x\r\n");
    let refused = |status: &str| refusal(status, &headers, &error);
    let failed = json!({"type": "response.failed", "response": error});
    let limits = json!({"type": "codex.rate_limits", "rate_limits": UPSTREAM_TEXT});
    let page = format!("<html>{UPSTREAM_TEXT}</html>");
    let head =
        format!("HTTP/1.1 403 No\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n{page}", page.len());
    let calls = vec![
        OutputItem::reasoning("Look first.", "sealed-reasoning"),
        OutputItem::call("call_1", "readTodos", "{}"),
    ];
    vec![
        vec![Reply::answer(calls), hello()],
        vec![unauthorized(), hello()],
        vec![refused("400 Bad Request")],
        vec![refused("402 Payment Required")],
        vec![refused("429 Too Many Requests")],
        vec![refused(&format!("500 {UPSTREAM_TEXT}"))],
        vec![refused("200 OK")],
        vec![Reply::events(&[limits.to_string(), failed.to_string()], vec![])],
        vec![Reply::steps(vec![Step::Send(head.into_bytes())])],
        vec![Reply::steps(vec![Step::Send(UPSTREAM_TEXT.into()), Step::Close])],
    ]
}

/// Runs everything that a user does, and lets the issuer refuse at the end.
async fn use_all(all: &Installation, transcript: &mut Transcript) {
    sign_in(all, transcript).await;
    for replies in replies() {
        all.vendor.on(MODEL, replies);
        let chat = all.app.chat_as(&session_token("u1", "c1"), "?store=true", &question("a1")).await;
        transcript.record(chat).await;
        transcript.record(all.send("u1", "GET", "/api/coding").await).await;
    }
    let preview =
        all.app.request("POST", "/api/svcchat/previewPrompt").bearer_auth(session_token("u1", "c1"));
    transcript.record(preview.json(&question("a1")).send().await.expect("an answer")).await;
    transcript.record(all.send("u1", "GET", "/api/threads").await).await;
    transcript.record(all.send("u1", "DELETE", "/api/coding/sign-in").await).await;
    sign_in(all, transcript).await;
    let dead = json!({"error": "invalid_grant", "error_description": UPSTREAM_TEXT});
    all.issuer.script(IssuerRoute::Refresh, [json_answer("400 Bad Request", &dead)]);
    all.vendor.on(MODEL, [unauthorized()]);
    transcript.record(all.chat("u1", question("a1")).await).await;
    let response_body = json!({"error": UPSTREAM_TEXT, "error_description": UPSTREAM_TEXT});
    all.issuer.script(IssuerRoute::Device, [json_answer("400 Bad Request", &response_body)]);
    transcript.record(all.send("u1", "POST", "/api/coding/sign-in").await).await;
    sign_in(all, transcript).await;
}

/// Returns the secrets that have occurred, by their names.
fn secrets(all: &Installation, dialect: DeviceAuthDialect) -> BTreeMap<String, Vec<String>> {
    let mut secrets_by_place: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add =
        |name: &str, value: String| secrets_by_place.entry(name.to_owned()).or_default().push(value);
    for route in [IssuerRoute::Poll, IssuerRoute::Exchange, IssuerRoute::Refresh, IssuerRoute::Revoke] {
        for (name, value) in all.issuer.requests(route).into_iter().flat_map(|request| request.members) {
            match &*name {
                "grant_type" | "client_id" | "redirect_uri" | "token_type_hint" => {}
                name => add(name, value),
            }
        }
    }
    for head in all.vendor.received_heads(MODEL) {
        for (header, name) in
            [("authorization: Bearer ", "access_token"), ("chatgpt-account-id: ", "account")]
        {
            if let Some(value) = head.lines().find_map(|line| line.strip_prefix(header)) {
                add(name, value.to_owned());
            }
        }
    }
    for body in all.vendor.received_bodies(MODEL) {
        add("prompt_cache_key", body["prompt_cache_key"].as_str().expect("a key").to_owned());
    }
    // Every handle begins with it.
    add("handle", "agd_v1.".to_owned());
    add("upstream text", UPSTREAM_TEXT.to_owned());
    add("runtime's secret", RUNTIME_SECRET.to_owned());
    add("application's secret", DATA_SECRET.to_owned());
    if dialect == Codex {
        add("id token", id_token("account-canary-1", "plus"));
        add("e-mail", "email-canary".to_owned());
    }
    secrets_by_place
}

/// Returns the bytes of all files in a folder, as text.
fn files(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let bytes = std::fs::read(entry.expect("a file").path()).expect("readable");
        text.push_str(&String::from_utf8_lossy(&bytes));
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_a_subscription_is_anywhere() {
    let log = LogBuffer::install();
    for (dialect, names) in [
        (Rfc8628, vec!["access_token", "device_code", "refresh_token", "token"]),
        (
            Codex,
            vec![
                "access_token",
                "account",
                "code",
                "code_verifier",
                "device_auth_id",
                "e-mail",
                "id token",
                "refresh_token",
                "token",
                "user_code",
            ],
        ),
    ] {
        let folder = TempDir::new().expect("a folder");
        let database = format!("sqlite://{}", folder.path().join("app.db").display());
        let at_rest = [("DATABASE_URL", database.as_str()), ("DATA_SECRET", DATA_SECRET)];
        let stores = Stores::open(&server::app_config(&at_rest)).await.expect("the store opens");
        let file = WorkspaceFile::parse_stored(&workspace().to_string()).expect("a valid workspace");
        file.apply(&stores.roles).await.expect("the workspace is imported");
        let settings = InstallationSettings { dialect, app: &at_rest, ..Default::default() };
        let all = open_over(stores, settings).await;
        let mut transcript = Transcript::default();
        use_all(&all, &mut transcript).await;
        for server in [&all.app, &all.runtime] {
            transcript.record(server.request("GET", "/metrics").send().await.expect("an answer")).await;
        }
        let export = WorkspaceFile::export(&*all.stores.records, None).await.expect("exported");
        let secrets = secrets(&all, dialect);
        for name in names {
            assert!(secrets.contains_key(name), "no {name} has occurred: {:?}", secrets.keys());
        }
        for known in ["RUN_FINISHED", "RUN_ERROR", "SIGN_IN_REQUIRED", "\"payload\"", "\"signedIn\""] {
            assert!(transcript.0.contains(known), "{known:?} is in no response");
        }
        let export = export.to_text().expect("text");
        let database = files(folder.path());
        assert!(database.contains("codingTokens") && export.contains("SubscriptionConnector"));
        let texts = [
            ("the log", log.text()),
            ("a response", transcript.0),
            ("the export", export),
            ("the database", database),
        ];
        for (name, secret) in secrets.iter().flat_map(|(name, all)| all.iter().map(move |one| (name, one))) {
            for (source, text) in &texts {
                let line = text.lines().find(|line| line.contains(secret));
                assert!(line.is_none(), "{name} is in {source}: {:.2000}", line.unwrap_or_default());
            }
        }
    }
}
