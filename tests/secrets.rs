//! Secrets and keys stay out of logs and responses, and are sent only to the server they are meant for.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::SystemClock;
use agent_core::secret::Secret;
use agent_http::auth::mint_session;
use agent_platform::token::{Caps, Grant, NewToken, Tokens, WidgetGrant};
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

/// Returns upstream responses that repeat secrets in every position.
fn leaking_responses() -> Vec<(&'static str, Vec<Step>)> {
    let all = format!("{UPSTREAM_CANARY} {OPERATOR_KEY} {ROLE_KEY} {RUNTIME_SECRET} {TOOL_TOKEN}");
    let error = json!({"error": {"message": all, "type": UPSTREAM_CANARY, "code": OPERATOR_KEY}}).to_string();
    let headers = format!(
        "x-request-id: {UPSTREAM_CANARY}\r\nset-cookie: a={UPSTREAM_CANARY}\r\nwww-authenticate: Bearer realm=\"{all}\"\r\n\
         retry-after: {UPSTREAM_CANARY}\r\nlocation: http://127.0.0.1:1/?key={UPSTREAM_CANARY}\r\n"
    );
    let after_text = |step: Step| vec![stream_head(), delta(json!({"content": "par"})), step, last_chunk()];
    let raw = |text: String| vec![Step::Send(text.into_bytes()), Step::Close];
    vec![
        ("good", answer(&["hello"])),
        ("good-with-headers", {
            let head = format!("HTTP/1.1 200 OK\r\n{headers}content-type: text/event-stream\r\n");
            let mut steps = answer(&["hello"]);
            steps[0] = Step::Send(format!("{head}transfer-encoding: chunked\r\n\r\n").into());
            steps
        }),
        ("400", json_response("400 Bad Request", &headers, &error)),
        ("401", json_response("401 Unauthorized", &headers, &error)),
        ("429", json_response("429 Too Many Requests", &headers, &error)),
        ("500", json_response(&format!("500 {UPSTREAM_CANARY}"), &headers, &error)),
        ("302", json_response("302 Found", &headers, &error)),
        ("200-json", json_response("200 OK", &headers, &error)),
        (
            "problem",
            json_response(
                "403 Forbidden",
                &headers,
                &json!({"code": UPSTREAM_CANARY, "detail": all}).to_string(),
            ),
        ),
        ("error-event", after_text(event(&error))),
        ("text-event", after_text(event(&all))),
        ("error-text-event", after_text(event(json!({"error": all})))),
        ("comment", after_text(chunk(format!(": {all}\n\n")))),
        ("shape", after_text(event(json!({"choices": all})))),
        ("inner-shape", after_text(event(json!({"choices": [{"index": all, "delta": all}]})))),
        ("usage-shape", after_text(event(json!({"choices": [], "usage": {"prompt_tokens": all}})))),
        ("line", after_text(chunk(format!("{all}\n")))),
        ("head", raw(format!("HTTP/1.1 200 OK\r\n{all}\r\n\r\n"))),
        ("no-http", raw(all.clone())),
        ("chunk-length", vec![stream_head(), Step::Send(format!("{all}\r\n").into()), Step::Close]),
        ("ollama-good", ollama::answer(&["hello"])),
        ("ollama-cut", {
            let done = ollama::done("stop", 258);
            [ollama::stream_head()].into_iter().chain(done).collect()
        }),
        ("ollama-error", ollama_text_then(ollama::json_line(&json!({"error": all})))),
        ("ollama-text", ollama_text_then(chunk(format!("{all}\n")))),
        ("ollama-shape", ollama_text_then(ollama::json_line(&json!({"message": all})))),
        (
            "ollama-count",
            ollama_text_then(ollama::json_line(&json!({"done": true, "prompt_eval_count": all}))),
        ),
        ("ollama-reason", ollama_text_then(ollama::json_line(&json!({"done": true, "done_reason": all})))),
        (
            "ollama-400",
            json_response(
                "400 Bad Request",
                &headers,
                &json!({"error": format!("{all} does not support tools")}).to_string(),
            ),
        ),
        ("ollama-404", json_response("404 Not Found", &headers, &json!({"error": all}).to_string())),
        ("n8n-good", n8n::answer(&["hello"])),
        (
            "n8n-error",
            n8n_text_then(n8n::json_line(
                &json!({"type": "error", "content": all, "metadata": {"nodeName": all}}),
            )),
        ),
        ("n8n-text", n8n_text_then(chunk(format!("{all}\n")))),
        (
            "n8n-shape",
            n8n_text_then(n8n::json_line(&json!({"type": "item", "content": {UPSTREAM_CANARY: all}}))),
        ),
        ("n8n-type", n8n_text_then(n8n::json_line(&json!({"type": all, "content": all})))),
        ("n8n-half", json_response("200 OK", &headers, &format!("{{\"output\":\"{all}"))),
        (
            "n8n-echo",
            json_response(
                "200 OK",
                &headers,
                &json!({"headers": {"authorization": all}, "body": all}).to_string(),
            ),
        ),
        (
            "n8n-started",
            json_response(
                "200 OK",
                &headers,
                &json!({"message": "Workflow was started", "executionId": all}).to_string(),
            ),
        ),
        (
            "n8n-404",
            json_response(
                "404 Not Found",
                &headers,
                &json!({"code": 404, "message": all, "stacktrace": all}).to_string(),
            ),
        ),
        (
            "n8n-page",
            vec![
                Step::Send(
                    format!("HTTP/1.1 200 OK\r\n{headers}content-type: text/html\r\n\r\n<html>{all}").into(),
                ),
                Step::Close,
            ],
        ),
    ]
}

fn n8n_text_then(step: Step) -> Vec<Step> {
    vec![n8n::stream_head(), n8n::text("par"), step, last_chunk()]
}

/// Returns the webhook authentication schemes, and one whose credential cannot be sent.
fn webhook_auths() -> [Value; 5] {
    [
        json!({"type": "basic", "user": "ada", "password": WEBHOOK_SECRET}),
        json!({"type": "header", "name": "X-Api-Key", "value": WEBHOOK_SECRET}),
        json!({"type": "jwt", "secret": WEBHOOK_SECRET}),
        json!({"type": "none"}),
        json!({"type": "basic", "user": "ada", "password": format!("{WEBHOOK_SECRET}\n")}),
    ]
}

fn ollama_text_then(step: Step) -> Vec<Step> {
    vec![ollama::stream_head(), ollama::text("par"), step, last_chunk()]
}

/// Returns bot API responses that repeat the request path, which contains the token.
fn bot_answers() -> Vec<Vec<Step>> {
    let all = format!("{UPSTREAM_CANARY} {} {RUNTIME_SECRET}", bot_path());
    let error = json!({"ok": false, "error_code": 400, "description": all}).to_string();
    let wait = json!({"ok": false, "error_code": 429, "description": all, "parameters": {"retry_after": 1}});
    let headers = format!("location: {}\r\nset-cookie: a={UPSTREAM_CANARY}\r\n", bot_path());
    let raw = |text: String| vec![Step::Send(text.into_bytes()), Step::Close];
    vec![
        json_response(
            "200 OK",
            &headers,
            &json!({"ok": true, "result": {"message_id": 7, "text": all}}).to_string(),
        ),
        json_response("200 OK", &headers, &json!({"ok": true, "result": {"message_id": all}}).to_string()),
        json_response("400 Bad Request", &headers, &error),
        json_response("404 Not Found", &headers, &format!("<pre>Cannot POST {all}</pre>")),
        json_response("429 Too Many Requests", &headers, &wait.to_string()),
        json_response("302 Found", &headers, &all),
        json_response(&format!("500 {all}"), &headers, &all),
        json_response("200 OK", &headers, &format!("{{\"ok\":{all}")),
        raw(format!("HTTP/1.1 200 OK\r\n{all}\r\n\r\n")),
        raw(all.clone()),
        vec![Step::Reset],
    ]
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
    told_of_provider(&client, &app, &url, &mut transcript).await;
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

/// Saves a provider of the company as its admin does, rightly and wrongly, and reads it.
async fn told_of_provider(client: &Client, app: &Server, url: &str, transcript: &mut ClientTranscript) {
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

/// Returns requests with a widget token in each supported position: valid, over its cap, and revoked. Each comes with
/// the token's text and the expected status.
async fn widget_requests(
    client: &Client,
    app: &Server,
    tokens: &Tokens,
) -> Vec<(String, u16, reqwest::RequestBuilder)> {
    let caps = Caps { runs_per_minute: NonZeroU32::MIN, ..Caps::default() };
    let grant = Grant::Widget(WidgetGrant { caps, ..WidgetGrant::default() });
    let url = app.url("/api/agent/chat");
    let body = json!({"message": "hello"});
    let mut requests = Vec::new();
    for revoked in [false, true] {
        for location in ["header", "query", "body"] {
            let new = NewToken::new("c1", "role-good", grant.clone());
            let minted = tokens.mint(new).await.expect("minted");
            if revoked {
                tokens.revoke(&minted.token.id, None).await.expect("revoked");
            }
            let text = minted.text.expose().to_owned();
            for again in [false, true] {
                let request = match location {
                    "header" => client.post(&url).header("x-widget-token", &text).json(&body),
                    "query" => client.post(format!("{url}?widgetToken={text}")).json(&body),
                    _ => client.post(&url).json(&json!({"message": "hello", "widgetToken": text})),
                };
                let expected = match (revoked, again) {
                    (true, _) => 401,
                    (false, true) => 429,
                    (false, false) => 200,
                };
                requests.push((text.clone(), expected, request));
            }
        }
    }
    requests
}

fn bad_requests_to_the_app(client: &Client, app: &Server, bearer: &str) -> Vec<reqwest::RequestBuilder> {
    let good = json!({"agentId": "role-good", "message": "hello"});
    let post = |query: &str| client.post(app.url(&format!("/api/agent/chat{query}")));
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        post("").bearer_auth(bearer).json(&body)
    };
    let forged = |secret: &str| {
        mint_session(&Secret::new(secret), &GUESSED_CREDENTIAL.into(), &"c1".into(), Duration::from_secs(60))
            .expect("the claims are right")
    };
    let raw =
        |body: String| post("").bearer_auth(bearer).header("content-type", "application/json").body(body);
    let widget = |token: &str| post(&format!("?widgetToken={token}"));
    vec![
        post("").json(&good),
        post("").bearer_auth(GUESSED_CREDENTIAL).json(&good),
        post("").bearer_auth(forged("another-secret-of-32-bytes-at-least")).json(&good),
        post("").bearer_auth(format!("a.b.{GUESSED_CREDENTIAL}")).json(&good),
        post("").bearer_auth(format!("{bearer}x")).json(&good),
        post("").bearer_auth(SESSION_SECRET).json(&good),
        post("").basic_auth("u1", Some(GUESSED_CREDENTIAL)).json(&good),
        post("").header("authorization", format!("{GUESSED_CREDENTIAL} {GUESSED_CREDENTIAL}")).json(&good),
        post("").bearer_auth(bearer).header("x-widget-token", GUESSED_CREDENTIAL).json(&good),
        post("").header("x-widget-token", GUESSED_CREDENTIAL).json(&good),
        post("").header("cookie", format!("agent_session={bearer}")).json(&good),
        post("")
            .header("cookie", format!("agent_session={GUESSED_CREDENTIAL}"))
            .header("origin", app.url(""))
            .json(&good),
        post("").header("x-proactive-trigger", "morning").bearer_auth(GUESSED_CREDENTIAL).json(&good),
        post("").header("x-proactive-trigger", "morning").bearer_auth(INTERNAL_SECRET).json(&good),
        widget(GUESSED_CREDENTIAL).json(&good),
        widget(GUESSED_CREDENTIAL).bearer_auth(bearer).json(&good),
        post(&format!("?token={GUESSED_CREDENTIAL}")).bearer_auth(bearer).json(&good),
        post(&format!("?format={GUESSED_CREDENTIAL}")).bearer_auth(bearer).json(&good),
        post(&format!("?userId={GUESSED_CREDENTIAL}")).bearer_auth(bearer).json(&good),
        post(&format!("?timezone=%ff{GUESSED_CREDENTIAL}")).bearer_auth(bearer).json(&good),
        client.get(app.url(&format!("/nowhere?token={GUESSED_CREDENTIAL}"))),
        client.get(app.url(&format!("/api/agent/chat?token={GUESSED_CREDENTIAL}"))),
        client.get(app.url(&format!("/health?token={GUESSED_CREDENTIAL}"))),
        with("widgetToken", GUESSED_CREDENTIAL.into()),
        with("agentId", json!([GUESSED_CREDENTIAL])),
        with("agentId", "nobody".into()),
        with("userId", GUESSED_CREDENTIAL.into()),
        with("timezone", GUESSED_CREDENTIAL.into()),
        with("messages", GUESSED_CREDENTIAL.into()),
        with("messages", json!([{"role": GUESSED_CREDENTIAL, "content": GUESSED_CREDENTIAL}])),
        with("pageContext", GUESSED_CREDENTIAL.into()),
        raw(format!(r#"{{"agentId":"role-good","message":"{GUESSED_CREDENTIAL}"#)),
        raw(format!(r#"{{"agentId":"role-good",{GUESSED_CREDENTIAL}}}"#)),
        raw(GUESSED_CREDENTIAL.to_owned()),
        raw(GUESSED_CREDENTIAL.repeat(100_000)),
        post("").bearer_auth(bearer).header("content-type", GUESSED_CREDENTIAL).body(GUESSED_CREDENTIAL),
        post("").bearer_auth(bearer).header("content-encoding", GUESSED_CREDENTIAL).json(&good),
        post("").bearer_auth(bearer).header("accept", GUESSED_CREDENTIAL).json(&good),
    ]
}

fn bad_requests_to_the_runtime(client: &Client, runtime: &Server) -> Vec<reqwest::RequestBuilder> {
    let post = |body: Value| client.post(runtime.url("/chat")).json(&body);
    let call = |token: Value, method: &str| {
        let body = json!({"token": token, "method": method, "params": {"text": GUESSED_CREDENTIAL}});
        client.post(runtime.url("/messenger/call")).bearer_auth(RUNTIME_SECRET).json(&body)
    };
    let with = |more: Value| post(runtime_request("good", more)).bearer_auth(RUNTIME_SECRET);
    vec![
        post(runtime_request("good", json!({}))),
        post(runtime_request("good", json!({}))).bearer_auth(GUESSED_CREDENTIAL),
        with(json!({"apiKey": [GUESSED_CREDENTIAL]})),
        with(json!({"apiKey": format!("{GUESSED_CREDENTIAL}\r\nx: y"), "baseUrl": "http://127.0.0.1:1/"})),
        with(json!({"apiKey": format!("{GUESSED_CREDENTIAL}ü"), "baseUrl": "http://127.0.0.1:1/"})),
        with(json!({"apiKey": GUESSED_CREDENTIAL, "baseUrl": "http://127.0.0.1:1/"})),
        with(json!({"baseUrl": format!("http://u:{GUESSED_CREDENTIAL}@127.0.0.1:1/")})),
        with(
            json!({"baseUrl": format!("http://127.0.0.1:1/{GUESSED_CREDENTIAL}?key={GUESSED_CREDENTIAL}#{GUESSED_CREDENTIAL}")}),
        ),
        with(json!({"baseUrl": format!("http://10.0.0.1/{GUESSED_CREDENTIAL}?key={GUESSED_CREDENTIAL}")})),
        with(json!({"baseUrl": format!("no address but {GUESSED_CREDENTIAL}")})),
        with(json!({"mcpServerUrl": {"token": GUESSED_CREDENTIAL}})),
        with(json!({"provider": GUESSED_CREDENTIAL})),
        with(json!({"context": format!("{{\"token\":{GUESSED_CREDENTIAL}")})),
        with(json!({"tools": [{"name": "t", "inputSchema": GUESSED_CREDENTIAL}]})),
        call(format!("1:{GUESSED_CREDENTIAL}/../x").into(), "getMe"),
        call(format!("1:{GUESSED_CREDENTIAL}\r\nx: y").into(), "getMe"),
        call(json!([GUESSED_CREDENTIAL]), "getMe"),
        call(format!("1:{GUESSED_CREDENTIAL}").into(), &format!("get/{GUESSED_CREDENTIAL}")),
        client
            .post(runtime.url("/messenger/call"))
            .bearer_auth(RUNTIME_SECRET)
            .header("content-type", "application/json")
            .body(format!(r#"{{"token":"1:{GUESSED_CREDENTIAL}","method":{GUESSED_CREDENTIAL}"#)),
    ]
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

/// Returns the value of a request's `Authorization` header.
fn bearer(received: &ReceivedRequest) -> Option<String> {
    let line = received.head.lines().find(|line| line.to_ascii_lowercase().starts_with("authorization:"))?;
    Some(line.split_once(':').expect("a header has a colon").1.trim().to_owned())
}

#[tokio::test]
async fn the_operators_key_goes_to_the_operators_vendor_alone() {
    let client = client();
    let (operator_vendor, other) = (Vendor::start().await, Vendor::start().await);
    let operator = Some(format!("Bearer {OPERATOR_KEY}"));
    let brought = Some(format!("Bearer {ROLE_KEY}"));
    let elsewhere = format!("http://{}/other/v2", operator_vendor.address);
    let (own_url, other_url) = (operator_vendor.base_url(), other.base_url());
    // Settings of a role or a request, the vendor called, and the key sent to it.
    let cases = [
        (json!({}), &operator_vendor, &operator),
        (json!({"baseUrl": ""}), &operator_vendor, &operator),
        (json!({"baseUrl": " "}), &operator_vendor, &operator),
        (json!({"baseUrl": own_url}), &operator_vendor, &operator),
        // Another path of the same origin may be another party's.
        (json!({"baseUrl": elsewhere}), &operator_vendor, &None),
        (json!({"apiKey": ROLE_KEY}), &operator_vendor, &brought),
        (json!({"baseUrl": other_url}), &other, &None),
        (json!({"baseUrl": other_url, "apiKey": ""}), &other, &None),
        (json!({"baseUrl": other_url, "apiKey": ROLE_KEY}), &other, &brought),
        (json!({"baseUrl": format!("{other_url}?{own_url}#{own_url}")}), &other, &None),
    ];
    let settings = [("OPENAI_BASE_URL", &*own_url), ("OPENAI_API_KEY", OPERATOR_KEY)];
    let runtime = server::runtime(&settings).await;
    let agents = cases.iter().enumerate().map(|(index, (brings, ..))| {
        let mut content = json!({"provider": "openai", "model": "m"});
        content.as_object_mut().expect("an object").extend(brings.as_object().expect("an object").clone());
        let (content, children) = embedded(content);
        (index.to_string(), content, children)
    });
    let app = server::app(&workspace(agents), &settings).await;
    for (index, (brings, called, key)) in cases.iter().enumerate() {
        let before = (operator_vendor.received().len(), other.received().len());
        let answers = [
            app.chat(&json!({"agentId": index.to_string(), "message": "hello"})).await,
            client
                .post(runtime.url("/chat"))
                .json(&runtime_request("m", brings.clone()))
                .send()
                .await
                .expect("an answer"),
        ];
        for answer in answers {
            assert_eq!(answer.status(), 200, "{brings}");
            assert!(answer.text().await.expect("a body").contains("RUN_FINISHED"), "{brings}");
        }
        let (to_own, to_other) =
            (operator_vendor.received().split_off(before.0), other.received().split_off(before.1));
        let (to_called, to_not) =
            if called.address == operator_vendor.address { (to_own, to_other) } else { (to_other, to_own) };
        assert_eq!(to_not.len(), 0, "{brings}");
        let keys: Vec<_> = to_called.iter().map(bearer).collect();
        assert_eq!(keys, [(*key).clone(), (*key).clone()], "{brings}: application, runtime");
    }
}

#[tokio::test]
async fn the_runtimes_secret_goes_to_the_operators_runtime_alone() {
    let (operator_vendor, other) = (Vendor::start().await, Vendor::start().await);
    let own_url = format!("http://{}", operator_vendor.address);
    let other_url = format!("http://{}", other.address);
    for vendor in [&operator_vendor, &other] {
        vendor.on("m", [empty_run()]);
    }
    let cases = [
        (own_url.clone(), &operator_vendor, Some(format!("Bearer {RUNTIME_SECRET}"))),
        (format!("{own_url}/below/"), &operator_vendor, Some(format!("Bearer {RUNTIME_SECRET}"))),
        (other_url.clone(), &other, None),
        (format!("{other_url}/?{own_url}"), &other, None),
    ];
    let agents = cases.iter().enumerate().map(|(index, (url, ..))| {
        let content =
            json!({"agentServerUrl": url, "agentServerProvider": "openai", "agentServerModel": "m"});
        (index.to_string(), content, json!([]))
    });
    let settings =
        [("RUNTIME_URL", &*own_url), ("RUNTIME_SECRET", RUNTIME_SECRET), ("OPENAI_API_KEY", OPERATOR_KEY)];
    let app = server::app(&workspace(agents), &settings).await;
    let token = session_token("u1", "c1");
    for (index, (url, called, expected)) in cases.iter().enumerate() {
        let request_count = called.received().len();
        let answer =
            app.chat_as(&token, "", &json!({"agentId": index.to_string(), "message": "hello"})).await;
        assert_eq!(answer.status(), 200, "{url}");
        assert!(answer.text().await.expect("a body").contains("RUN_FINISHED"), "{url}");
        let received = called.received().split_off(request_count);
        assert_eq!(received.len(), 1, "{url}");
        assert_eq!(bearer(&received[0]), *expected, "{url}");
        let request_text = format!("{}{}", received[0].head, String::from_utf8_lossy(&received[0].body));
        for stays in [&*token, SESSION_SECRET, INTERNAL_SECRET, OPERATOR_KEY] {
            assert!(!request_text.contains(stays), "{url}: {request_text}");
        }
    }
}
