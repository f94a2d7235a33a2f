//! Secrets and keys stay out of logs and responses, and are sent only to the server they are meant for.

mod bad_requests;
mod destinations;
mod upstream_answers;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::SystemClock;
use agent_core::secret::Secret;
use agent_http::auth::mint_session;
use agent_platform::token::{Grant, NewToken, RunCaps, Tokens, WidgetGrant};
use agent_platform::workspace::WorkspaceFile;
use agentd::config::{AppConfig, Flags};
use reqwest::Client;
use serde_json::{Value, json};

use crate::support::client;
use crate::support::log::LogBuffer;
use crate::support::server::{self, INTERNAL_SECRET, SESSION_SECRET, Server, session_token};
use crate::support::vendor::{
    ReceivedRequest, Step, Vendor, answer, chunk, delta, empty_run, event, json_response, last_chunk, n8n,
    ollama, stream_head, tool_calls,
};

use bad_requests::{bad_requests_to_the_app, bad_requests_to_the_runtime, widget_requests};
use upstream_answers::{bot_answers, leaking_responses, webhook_auths};

const RUNTIME_SECRET: &str = "runtime-canary-0123456789";
const OPERATOR_KEY: &str = "operator-key-canary-0123456789";
const ROLE_KEY: &str = "role-key-canary-0123456789";
const PROVIDER_KEY: &str = "provider-key-canary-0123456789";
const TOOL_TOKEN: &str = "tool-token-canary-0123456789";
const WEBHOOK_SECRET: &str = "webhook-canary-0123456789";
/// The second part of a bot's token, which is its secret.
const BOT_SECRET: &str = "bot-token-canary-0123456789";
/// Value that clients send in place of a credential.
const GUESSED_CREDENTIAL: &str = "guess-canary-0123456789";
/// Value that upstreams put into their errors and headers.
const UPSTREAM_CANARY: &str = "upstream-canary-0123456789";

fn workspace(agents: impl IntoIterator<Item = (String, Value, Value)>) -> Value {
    let agents = agents.into_iter().map(|(id, content, children)| {
        json!({"id": id, "name": id, "ownerId": "u1", "companyId": "c1",
            "content": content, "children": children})
    });
    let users = json!([{"id": "u1", "companyId": "c1"}, {"id": "boss", "companyId": "c1", "role": "admin"}]);
    json!({"users": users, "agents": agents.collect::<Vec<_>>()})
}

fn embedded(content: Value) -> (Value, Value) {
    // Without tools, because their definitions exceed the smallest context window.
    (json!({"mcpPreset": "none"}), json!([{"name": "EmbeddedAI", "content": content}]))
}

fn bot_token() -> String {
    format!("1:{BOT_SECRET}")
}

fn bot_path() -> String {
    format!("/bot{}/sendMessage", bot_token())
}

/// Returns an agent with a bot, and scripts turns in which its model sends a message, one for each response of the
/// API.
fn agent_with_bot(vendor: &Vendor) -> (String, Value, Value) {
    vendor.on(&bot_path(), bot_answers());
    let call = tool_calls(&[("c1", "sendMessengerMessage", r#"{"chatId":5,"text":"hi"}"#)]);
    vendor
        .on("bot", bot_answers().iter().flat_map(|_| [call.clone(), answer(&["done"])]).collect::<Vec<_>>());
    let (mut content, children) = embedded(json!({"provider": "openai", "model": "bot"}));
    content["tools"] = json!(["sendMessengerMessage"]);
    content["messengerToken"] = bot_token().into();
    ("bot".to_owned(), content, children)
}

/// All response headers and bodies that clients received.
#[derive(Default)]
struct ClientTranscript(String);

impl ClientTranscript {
    async fn record(&mut self, request: reqwest::RequestBuilder) -> u16 {
        let response = request.send().await.expect("an answer");
        let status = response.status();
        self.0.push_str(&format!("{status} {:?}\n", response.headers()));
        let body = response.bytes().await.expect("a whole body");
        self.0.push_str(&String::from_utf8_lossy(&body));
        status.as_u16()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_any_log_or_answer() {
    let client = client();
    let log = LogBuffer::install();
    let vendor = Vendor::start().await;
    let url = vendor.base_url();
    let operators = [
        ("OPENAI_BASE_URL", &*url),
        ("OPENAI_API_KEY", OPERATOR_KEY),
        ("RUNTIME_SECRET", RUNTIME_SECRET),
        ("OLLAMA_NUM_CTX", "512"),
    ];
    let server_url = format!("http://{}", vendor.address);
    let mut of_runtime = operators.to_vec();
    of_runtime.push(("MESSENGER_API_URL", &server_url));
    let runtime = server::runtime(&of_runtime).await;
    let runtime_url = runtime.url("");
    let mut agents = Vec::new();
    for (name, script) in leaking_responses() {
        for (index, auth) in webhook_auths().iter().enumerate() {
            let id = format!("webhook-{index}-{name}");
            vendor.on(&id, [script.clone()]);
            let webhook = format!("{}?key={WEBHOOK_SECRET}", vendor.webhook_url());
            let content = json!({"webhookUrl": webhook, "auth": auth});
            agents.push((id, json!({}), json!([{"name": "WorkflowConnector", "content": content}])));
        }
        vendor.on(name, [script]);
        let mut agent =
            |prefix: &str, (content, children)| agents.push((format!("{prefix}-{name}"), content, children));
        agent("operator", embedded(json!({"provider": "openai", "model": name})));
        agent(
            "role",
            embedded(json!({"provider": "openai", "model": name, "baseUrl": url, "apiKey": ROLE_KEY})),
        );
        agent("company", embedded(json!({"provider": "acme", "model": name})));
        agent(
            "ollama",
            embedded(json!({"provider": "ollama", "model": name, "baseUrl": server_url, "apiKey": ROLE_KEY})),
        );
        for (prefix, url) in [("chain", &runtime_url), ("server", &server_url)] {
            let content = json!({"agentServerUrl": url, "agentServerProvider": "openai", "agentServerModel": name,
                "agentServerLocalUrl": vendor.base_url(), "agentServerApiKey": ROLE_KEY});
            agent(prefix, (content, json!([])));
        }
    }
    let names: Vec<String> = agents.iter().map(|(id, ..)| id.clone()).collect();
    let mut settings = operators.to_vec();
    settings.push(("RUNTIME_URL", &runtime_url));
    agents.push(agent_with_bot(&vendor));
    let stores = server::stores(&workspace(agents)).await;
    let app = server::app_with_stores(stores.clone(), &settings).await;

    let mut transcript = ClientTranscript::default();
    let bearer = session_token("u1", "c1");
    record_provider_responses(&client, &app, &url, &mut transcript).await;
    // A credential that cannot be sent.
    let auth = json!({"type": "basic", "user": "ada", "password": format!("{WEBHOOK_SECRET}\n")});
    let content = json!({"webhookUrl": vendor.webhook_url(), "auth": auth});
    let role = json!({"content": {}, "children": [{"name": "WorkflowConnector", "content": content}]});
    let request = client.put(app.url("/api/agents/unsendable")).bearer_auth(&bearer).json(&role);
    assert_eq!(transcript.record(request).await, 400);
    assert!(transcript.0.contains("children[0].content.auth.password"), "{}", transcript.0);
    let mut statuses = Vec::new();
    for format in ["ndjson", "json"] {
        for name in &names {
            let request = client
                .post(app.url(&format!("/api/agent/chat?format={format}")))
                .bearer_auth(&bearer)
                .json(&json!({"agentId": name, "message": "hello"}));
            statuses.push((name.clone(), transcript.record(request).await));
        }
        // Longer than the smallest context window, so that Ollama's truncation is detected.
        let long =
            json!([{"role": "user", "content": format!("{GUESSED_CREDENTIAL} {}", "word ".repeat(1_000))}]);
        let of_ollama =
            json!({"provider": "ollama", "baseUrl": server_url, "apiKey": ROLE_KEY, "messages": long});
        for (name, _) in leaking_responses() {
            for (prefix, more) in [("", json!({})), ("runtime-ollama-", of_ollama.clone())] {
                let request = client
                    .post(runtime.url(&format!("/chat?format={format}")))
                    .bearer_auth(RUNTIME_SECRET)
                    .json(&runtime_request(name, more));
                statuses.push((format!("{prefix}{name}"), transcript.record(request).await));
            }
        }
    }
    let mut shown = 0;
    for name in &names {
        let question = json!({"agentId": name, "message": "hello"});
        let debug = format!("/api/svcchat/debugPrompt?agentId={name}&message=hello");
        for request in [
            client.get(app.url(&debug)),
            client.get(app.url(&debug.replace("debugPrompt", "previewPrompt"))),
            client.post(app.url("/api/svcchat/previewPrompt")).json(&question),
        ] {
            shown += usize::from(transcript.record(request.bearer_auth(&bearer)).await == 200);
        }
    }
    assert_eq!(shown, 3 * names.len(), "previews send nothing, and so nothing of them fails");
    for good in [
        "operator-good",
        "role-good",
        "company-good",
        "chain-good",
        "good",
        "ollama-ollama-good",
        "webhook-0-n8n-good",
        "webhook-1-n8n-good",
        "webhook-2-n8n-good",
        "runtime-ollama-ollama-cut",
    ] {
        assert!(statuses.contains(&(good.to_owned(), 200)), "{statuses:?}");
    }
    for request in bad_requests_to_the_app(&client, &app, &bearer)
        .into_iter()
        .chain(bad_requests_to_the_runtime(&client, &runtime))
    {
        transcript.record(request).await;
    }
    let cookie = client
        .post(app.url("/api/agent/chat"))
        .header("origin", app.url(""))
        .header("cookie", format!("agent_session={bearer}"))
        .json(&json!({"agentId": "role-good", "message": "hello"}));
    assert_eq!(transcript.record(cookie).await, 200);
    let proactive = client
        .post(app.url("/api/agent/chat"))
        .header("x-proactive-trigger", "morning")
        .bearer_auth(INTERNAL_SECRET)
        .json(&json!({"agentId": "role-good", "message": "hello", "userId": "u1", "companyId": "c1"}));
    assert_eq!(transcript.record(proactive).await, 200);

    for _ in bot_answers() {
        let request = client.post(app.url("/api/agent/chat")).bearer_auth(&bearer);
        assert_eq!(
            transcript.record(request.json(&json!({"agentId": "bot", "message": "hello"}))).await,
            200
        );
    }
    for path in ["/api/agents/bot", "/api/svcchat/previewPrompt?agentId=bot"] {
        assert_eq!(transcript.record(client.get(app.url(path)).bearer_auth(&bearer)).await, 200);
    }
    // The API's own response is passed to the caller, who has the token, so only the log is checked here.
    vendor.on(&bot_path(), bot_answers());
    for _ in bot_answers() {
        let call = json!({"token": bot_token(), "method": "sendMessage"});
        let request = client.post(runtime.url("/messenger/call")).bearer_auth(RUNTIME_SECRET);
        ClientTranscript::default().record(request.json(&call)).await;
    }
    let records = stores.records.clone();
    let tokens = Tokens::new(stores.records, Arc::new(SystemClock));
    let widgets = widget_requests(&client, &app, &tokens).await;
    let mut texts = Vec::new();
    for (text, expected, request) in widgets {
        assert_eq!(transcript.record(request).await, expected);
        texts.push(text);
    }

    let log = log.text();
    // The log and the responses have the expected contents, and the secrets were in use.
    for known in [
        "application listening",
        "session token rejected",
        "widget token rejected",
        "run failed",
        "request failed",
        "answered",
        "Ollama truncated a prompt",
        "a call of the messenger failed",
    ] {
        assert!(log.contains(known), "{known:?} is not in the log");
    }
    for known in
        ["BACKEND_FAILED", "STREAM_TRUNCATED", "RATE_LIMITED", "RUN_FINISHED", "application/problem+json"]
    {
        assert!(transcript.0.contains(known), "{known:?} is in no answer");
    }
    let heads: String = vendor.received().into_iter().map(|received| received.head).collect();
    for key in [OPERATOR_KEY, ROLE_KEY, PROVIDER_KEY] {
        assert!(heads.contains(&format!("Bearer {key}")), "{key}");
    }
    let exported = WorkspaceFile::export(&*records, None).await.expect("exported").to_text().expect("text");
    assert!(exported.contains("acme") && !exported.contains(PROVIDER_KEY), "{exported}");

    assert_eq!(heads.matches(&bot_path()).count(), 2 * bot_answers().len());
    for known in
        [r#""messageId\":7"#, "the message was not sent", "the message may or may not have been sent"]
    {
        assert!(transcript.0.contains(known), "{known:?} is in no answer");
    }

    let webhooks: Vec<_> =
        vendor.received().into_iter().filter(|received| received.path().starts_with("/webhook/")).collect();
    let sent: BTreeSet<String> = webhooks.iter().filter_map(self::bearer).collect();
    for scheme in ["Basic ", "Bearer "] {
        assert!(sent.iter().any(|sent| sent.starts_with(scheme)), "{scheme}was sent to no webhook");
    }
    assert!(heads.contains(&format!("x-api-key: {WEBHOOK_SECRET}")));
    // The encoded password and the signatures.
    let credentials = sent.iter().filter_map(|sent| sent.rsplit([' ', '.']).next());

    let signature = bearer.rsplit('.').next().expect("a token has parts");
    let canaries = [
        SESSION_SECRET,
        INTERNAL_SECRET,
        RUNTIME_SECRET,
        OPERATOR_KEY,
        ROLE_KEY,
        PROVIDER_KEY,
        TOOL_TOKEN,
        GUESSED_CREDENTIAL,
        UPSTREAM_CANARY,
        WEBHOOK_SECRET,
        BOT_SECRET,
        &bearer,
        signature,
    ];
    // The second half of a token's text is its secret part.
    let halves = texts.iter().map(|text| &text[text.len() / 2..]);
    for canary in canaries.into_iter().chain(halves).chain(credentials) {
        for (source, text) in [("the log", &log), ("an answer", &transcript.0)] {
            let line = text.lines().find(|line| line.contains(canary));
            assert!(line.is_none(), "{canary} is in {source}: {}", line.unwrap_or_default());
        }
    }
}

fn runtime_request(model: &str, more: Value) -> Value {
    let mut request = json!({
        "provider": "openai", "model": model, "messages": [{"role": "user", "content": "hello"}],
        "mcpServerUrl": format!("http://127.0.0.1:1/mcp?token={TOOL_TOKEN}"),
    });
    for (name, value) in more.as_object().expect("an object") {
        request[name] = value.clone();
    }
    request
}

/// Returns the value of a request's `Authorization` header.
fn bearer(received: &ReceivedRequest) -> Option<String> {
    let line = received.head.lines().find(|line| line.to_ascii_lowercase().starts_with("authorization:"))?;
    Some(line.split_once(':').expect("a header has a colon").1.trim().to_owned())
}

/// Saves a provider of the company by valid and invalid requests of its admin, and reads it.
async fn record_provider_responses(
    client: &Client,
    app: &Server,
    url: &str,
    transcript: &mut ClientTranscript,
) {
    let admin = session_token("boss", "c1");
    let provider = |changes: Value| {
        let mut provider = json!({"type": "openai", "baseUrl": url, "apiKey": PROVIDER_KEY,
            "models": [{"model": "good", "prices": {"input": "1", "output": "2"}}]});
        for (name, value) in changes.as_object().expect("an object") {
            provider[name] = value.clone();
        }
        provider
    };
    for (changes, expected) in [
        (json!({"type": PROVIDER_KEY}), 400),
        (json!({"apiKey": format!("{PROVIDER_KEY}\r\nx: y")}), 400),
        (json!({"apiKey": PROVIDER_KEY.repeat(400)}), 400),
        (json!({"apiKey": [PROVIDER_KEY]}), 400),
        (json!({"baseUrl": format!("https://u:{PROVIDER_KEY}@v.example")}), 400),
        (json!({"baseUrl": format!("http://169.254.169.254/{PROVIDER_KEY}")}), 400),
        (json!({"models": [{"model": "m", "contextWindow": PROVIDER_KEY}]}), 400),
        (json!({}), 201),
        (json!({"apiKey": "***"}), 200),
    ] {
        let request = client.put(app.url("/api/providers/acme")).bearer_auth(&admin);
        assert_eq!(transcript.record(request.json(&provider(changes.clone()))).await, expected, "{changes}");
    }
    for path in ["/api/providers/acme", "/api/providers", "/api/models?provider=acme"] {
        assert_eq!(transcript.record(client.get(app.url(path)).bearer_auth(&admin)).await, 200);
    }
}

#[test]
fn no_configuration_shows_its_secrets() {
    let env = std::collections::BTreeMap::from([
        ("SESSION_SECRET", SESSION_SECRET),
        ("INTERNAL_SECRET", INTERNAL_SECRET),
        ("RUNTIME_SECRET", RUNTIME_SECRET),
        ("OPENAI_API_KEY", OPERATOR_KEY),
    ]);
    let config = AppConfig::load(&Flags::default(), &env).expect("the settings are right");
    let shown = format!("{config:?} {config:#?}");
    assert!(shown.contains("api.openai.com"), "{shown}");
    for secret in env.values() {
        assert!(!shown.contains(secret), "{shown}");
    }
}
