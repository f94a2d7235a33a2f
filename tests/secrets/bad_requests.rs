//! Requests with secrets where none belong, or with credentials that are not valid.

use super::*;

/// Returns requests with a widget token in each supported position: valid, over its cap, and revoked. Each comes with
/// the token's text and the expected status.
pub(super) async fn widget_requests(
    client: &Client,
    app: &Server,
    tokens: &Tokens,
) -> Vec<(String, u16, reqwest::RequestBuilder)> {
    let caps = RunCaps { runs_per_minute: NonZeroU32::MIN, ..RunCaps::default() };
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

pub(super) fn bad_requests_to_the_app(
    client: &Client,
    app: &Server,
    bearer: &str,
) -> Vec<reqwest::RequestBuilder> {
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

pub(super) fn bad_requests_to_the_runtime(client: &Client, runtime: &Server) -> Vec<reqwest::RequestBuilder> {
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
