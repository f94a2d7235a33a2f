use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_core::testing::ManualClock;
use agent_core::tool::Caller;
use agent_platform::memory::MemoryRecords;
use agent_platform::records::StoreError;
use agent_platform::token::{Grant, McpGrant, NewToken, RunCaps, WidgetGrant};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt;
use hmac::{Hmac, KeyInit, Mac};
use http::{Method, Request};
use serde_json::{Value, json};
use sha2::Sha256;

use super::*;
use crate::error::{Code, HttpError};

const SECRET: &str = "session-secret-0";
const INTERNAL: &str = "internal-secret-0";

fn authenticator() -> Authenticator {
    Authenticator::new(Some(&Secret::new(SECRET)), Some(Secret::new(INTERNAL)), None)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn claims() -> Value {
    json!({"sub": "ann", "companyId": "acme", "aud": "agent-app", "exp": now() + 600})
}

/// Builds a token by hand, so that it can be malformed in any way.
fn token(header: &Value, claims: &Value, secret: &str) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(header), encode(claims));
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap().chain_update(&signed);
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

fn hs256(claims: &Value) -> String {
    token(&json!({"alg": "HS256", "typ": "JWT"}), claims, SECRET)
}

fn head(method: Method, uri: &str, headers: &[(&str, &str)]) -> request::Parts {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// Authenticates a request; an error is returned as text.
fn ask(
    authenticator: &Authenticator,
    method: Method,
    uri: &str,
    headers: &[(&str, &str)],
) -> Result<Credential, String> {
    let head = head(method, uri, headers);
    let query = Query::from_uri(&head.uri);
    let asked = authenticator.authenticate(&head, &query);
    in_words(asked.now_or_never().expect("no wait"))
}

fn in_words<T>(asked: Result<T, AuthError>) -> Result<T, String> {
    asked.map_err(|error| error.to_string())
}

fn post(headers: &[(&str, &str)]) -> Result<Credential, String> {
    ask(&authenticator(), Method::POST, "/api/agent/chat", headers)
}

fn ann() -> Credential {
    Credential::Session(Principal {
        user_id: "ann".into(),
        company_id: "acme".into(),
        caller: Caller::Session,
        agent_id: None,
        token_id: None,
    })
}

#[test]
fn tokens_with_invalid_signatures_or_claims_are_refused() {
    let hs = json!({"alg": "HS256", "typ": "JWT"});
    let with = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        claims
    };
    let without = |name: &str| {
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove(name);
        claims
    };
    let good = hs256(&claims());
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let none = token(&json!({"alg": "none"}), &claims(), SECRET);
    let unsigned = none.rsplit_once('.').unwrap().0;
    for (name, token, holds) in [
        ("ours", good.clone(), true),
        ("audience in a list", hs256(&with("aud", json!(["other", "agent-app"]))), true),
        ("valid since now", hs256(&with("nbf", json!(now()))), true),
        ("clocks apart", hs256(&with("exp", json!(now() - 5))), true),
        ("more claims", hs256(&with("role", json!({"admin": true}))), true),
        ("another secret", token(&hs, &claims(), "another-secret-00"), false),
        ("an empty secret", token(&hs, &claims(), ""), false),
        ("another audience", hs256(&with("aud", json!("agent-mcp"))), false),
        ("no audience", hs256(&without("aud")), false),
        ("an odd audience", hs256(&with("aud", json!(7))), false),
        ("expired", hs256(&with("exp", json!(now() - 120))), false),
        ("no end", hs256(&without("exp")), false),
        ("an end in words", hs256(&with("exp", json!("never"))), false),
        ("a null end", hs256(&with("exp", Value::Null)), false),
        ("a negative end", hs256(&with("exp", json!(-1))), false),
        ("not valid yet", hs256(&with("nbf", json!(now() + 120))), false),
        ("valid from some day", hs256(&with("nbf", json!("later"))), false),
        ("no user", hs256(&without("sub")), false),
        ("a blank user", hs256(&with("sub", json!(" "))), false),
        ("a user of a widget", hs256(&with("sub", json!("widget:1"))), false),
        ("a user of many bytes", hs256(&with("sub", json!("x".repeat(129)))), false),
        ("a user of two lines", hs256(&with("sub", json!("a\nb"))), false),
        ("a number for a user", hs256(&with("sub", json!(7))), false),
        ("no company", hs256(&without("companyId")), false),
        ("an empty company", hs256(&with("companyId", json!(""))), false),
        ("no algorithm", token(&json!({"typ": "JWT"}), &claims(), SECRET), false),
        ("alg none, signed", none.clone(), false),
        ("alg none, unsigned", format!("{unsigned}."), false),
        (
            "alg NONE",
            format!("{}.", token(&json!({"alg": "NONE"}), &claims(), SECRET).rsplit_once('.').unwrap().0),
            false,
        ),
        ("alg RS256", token(&json!({"alg": "RS256"}), &claims(), SECRET), false),
        ("alg ES256", token(&json!({"alg": "ES256"}), &claims(), SECRET), false),
        ("alg HS512", token(&json!({"alg": "HS512"}), &claims(), SECRET), false),
        ("alg hs256", token(&json!({"alg": "hs256"}), &claims(), SECRET), false),
        (
            "a key in the header",
            token(&json!({"alg": "HS256", "jwk": {"kty": "oct", "k": "AAAA"}}), &claims(), "\0\0\0"),
            false,
        ),
        ("no signature", format!("{signed}."), false),
        ("two parts", signed.to_owned(), false),
        ("half a signature", format!("{signed}.{}", &signature[..20]), false),
        ("four parts", format!("{good}.x"), false),
        ("changed claims", good.replacen('.', ".e", 1), false),
        ("claims of no object", token(&hs, &json!([]), SECRET), false),
        ("empty", String::new(), false),
        ("dots", "..".to_owned(), false),
        ("garbage", "ä".repeat(10), false),
        ("too long", hs256(&with("role", json!("x".repeat(8192)))), false),
    ] {
        let principal = session::SessionVerifier::new(&Secret::new(SECRET)).verify(&token);
        assert_eq!(principal.is_some(), holds, "{name}");
    }
}

#[test]
fn minted_session_tokens_are_accepted() {
    let secret = Secret::new(SECRET);
    let token = mint_session(&secret, &"ann".into(), &"acme".into(), Duration::from_secs(60)).unwrap();
    assert_eq!(post(&[("authorization", &format!("Bearer {token}"))]), Ok(ann()));
    for (user, company) in [("", "acme"), ("ann", " "), ("widget:1", "acme"), (&"x".repeat(129), "acme")] {
        let minted = mint_session(&secret, &user.into(), &company.into(), Duration::from_secs(60));
        assert_eq!(minted, Err(MintError::InvalidId), "for {user} of {company}");
    }
    assert_eq!(
        mint_session(&secret, &"ann".into(), &"acme".into(), Duration::MAX),
        Err(MintError::InvalidTtl)
    );
}

/// Name, request headers, and expected result.
type Case<'c> = (&'c str, Vec<(&'c str, &'c str)>, Result<Credential, AuthError>);

#[test]
fn each_form_of_a_credential_is_recognized() {
    let session = hs256(&claims());
    let bearer = format!("Bearer {session}");
    let (bearer, cookie) = (bearer.as_str(), format!("other=1; agent_session={session}"));
    let cookie = cookie.as_str();
    let internal = format!("Bearer {INTERNAL}");
    let internal = internal.as_str();
    let lower = format!("bearer {session}");
    let quoted = format!("agent_session=\"{session}\"");
    let own_origin_headers = [("host", "app.example"), ("origin", "https://app.example")];
    let proactive = || Ok(Credential::Proactive { reason: "daily review".to_owned() });
    let cases: Vec<Case<'_>> = vec![
        ("nothing", vec![], Err(AuthError::Unauthenticated)),
        ("session", vec![("authorization", bearer)], Ok(ann())),
        ("scheme in lower case", vec![("authorization", &lower)], Ok(ann())),
        ("basic", vec![("authorization", "Basic YTpi")], Err(AuthError::Unauthenticated)),
        ("bare token", vec![("authorization", &session)], Err(AuthError::Unauthenticated)),
        ("internal secret alone", vec![("authorization", internal)], Err(AuthError::Unauthenticated)),
        (
            "two bearers",
            vec![("authorization", bearer), ("authorization", bearer)],
            Err(AuthError::Ambiguous),
        ),
        ("cookie", [&own_origin_headers[..], &[("cookie", cookie)]].concat(), Ok(ann())),
        ("cookie in quotes", [&own_origin_headers[..], &[("cookie", &quoted)]].concat(), Ok(ann())),
        (
            "bad cookie",
            [&own_origin_headers[..], &[("cookie", "agent_session=x")]].concat(),
            Err(AuthError::Unauthenticated),
        ),
        (
            "other cookies",
            [&own_origin_headers[..], &[("cookie", "a=1; agent_sessions=x")]].concat(),
            Err(AuthError::Unauthenticated),
        ),
        (
            "two cookies",
            [&own_origin_headers[..], &[("cookie", cookie), ("cookie", cookie)]].concat(),
            Err(AuthError::Ambiguous),
        ),
        (
            "cookie without an origin",
            vec![("host", "app.example"), ("cookie", cookie)],
            Err(AuthError::CrossOrigin),
        ),
        (
            "cookie from elsewhere",
            vec![("host", "app.example"), ("origin", "https://evil.example"), ("cookie", cookie)],
            Err(AuthError::CrossOrigin),
        ),
        (
            "bearer before a bad cookie",
            vec![("authorization", bearer), ("cookie", "agent_session=x")],
            Ok(ann()),
        ),
        (
            "bad bearer before a cookie",
            [&own_origin_headers[..], &[("authorization", "Bearer x"), ("cookie", cookie)]].concat(),
            Err(AuthError::Unauthenticated),
        ),
        (
            "proactive",
            vec![("authorization", internal), ("x-proactive-trigger", " daily review ")],
            proactive(),
        ),
        (
            "proactive before a cookie",
            vec![("authorization", internal), ("x-proactive-trigger", "daily review"), ("cookie", cookie)],
            proactive(),
        ),
        ("proactive without a secret", vec![("x-proactive-trigger", "x")], Err(AuthError::Unauthenticated)),
        (
            "proactive with a session",
            vec![("authorization", bearer), ("x-proactive-trigger", "x")],
            Err(AuthError::Unauthenticated),
        ),
        (
            "proactive by a cookie",
            [&own_origin_headers[..], &[("cookie", cookie), ("x-proactive-trigger", "x")]].concat(),
            Err(AuthError::Unauthenticated),
        ),
        (
            "two reasons",
            vec![("authorization", internal), ("x-proactive-trigger", "x"), ("x-proactive-trigger", "y")],
            Err(AuthError::Ambiguous),
        ),
        (
            "a blank reason",
            vec![("authorization", internal), ("x-proactive-trigger", " ")],
            Err(AuthError::InvalidReason),
        ),
        (
            "a blank reason and no secret",
            vec![("authorization", "Bearer x"), ("x-proactive-trigger", " ")],
            Err(AuthError::Unauthenticated),
        ),
        ("widget", vec![("x-widget-token", "w")], Err(AuthError::Unauthenticated)),
        (
            "widget before a cookie",
            [&own_origin_headers[..], &[("x-widget-token", "w"), ("cookie", cookie)]].concat(),
            Err(AuthError::Unauthenticated),
        ),
        (
            "widget and session",
            vec![("x-widget-token", "w"), ("authorization", bearer)],
            Err(AuthError::Ambiguous),
        ),
        (
            "widget and proactive",
            vec![("x-widget-token", "w"), ("authorization", internal), ("x-proactive-trigger", "x")],
            Err(AuthError::Ambiguous),
        ),
        ("two widgets", vec![("x-widget-token", "w"), ("x-widget-token", "w")], Err(AuthError::Ambiguous)),
    ];
    for (name, headers, expected) in cases {
        assert_eq!(post(&headers), in_words(expected), "{name}");
    }
    for (uri, headers, expected) in [
        ("/x?widgetToken=w", vec![], AuthError::Unauthenticated),
        ("/x?widgetToken=w", vec![("authorization", bearer)], AuthError::Ambiguous),
        ("/x?widgetToken=w", vec![("x-widget-token", "w")], AuthError::Ambiguous),
        ("/x?widgetToken=w&widgetToken=w", vec![], AuthError::Ambiguous),
        ("/x?token=w", vec![], AuthError::Unauthenticated),
    ] {
        let asked = ask(&authenticator(), Method::POST, uri, &headers);
        assert_eq!(asked, Err(expected.to_string()), "{uri} with {headers:?}");
    }
}

#[test]
fn cookies_act_only_from_our_own_pages() {
    let cookie = format!("agent_session={}", hs256(&claims()));
    let public = Url::parse("https://app.example/base").unwrap();
    let set = Authenticator::new(Some(&Secret::new(SECRET)), None, Some(&public));
    let unset = authenticator();
    for (authenticator, host, origin, allowed) in [
        (&set, "anything", "https://app.example", true),
        (&set, "anything", "https://app.example:443", true),
        (&set, "app.example", "http://app.example", false),
        (&set, "app.example", "https://app.example.evil", false),
        (&set, "app.example", "null", false),
        (&unset, "localhost:3000", "http://localhost:3000", true),
        (&unset, "app.example", "https://app.example", true),
        (&unset, "app.example:80", "http://app.example", true),
        (&unset, "localhost:3000", "http://localhost:3001", false),
        (&unset, "localhost:3000", "http://127.0.0.1:3000", false),
        (&unset, "app.example", "null", false),
        (&unset, "app.example", "file:///app.example", false),
        (&unset, "app.example", "data:app.example", false),
        (&unset, "app.example", "", false),
    ] {
        let headers = [("host", host), ("origin", origin), ("cookie", cookie.as_str())];
        for method in [Method::POST, Method::DELETE, Method::GET, Method::HEAD] {
            let asked = ask(authenticator, method, "/", &headers);
            let expected = if allowed { Ok(ann()) } else { Err(AuthError::CrossOrigin) };
            assert_eq!(asked, in_words(expected), "{origin} at {host}");
        }
    }
    // Browsers omit `Origin` from same-origin reads and from links.
    let headers = [("host", "app.example"), ("cookie", cookie.as_str())];
    for (method, allowed) in [(Method::GET, true), (Method::HEAD, true), (Method::POST, false)] {
        let expected = if allowed { Ok(ann()) } else { Err(AuthError::CrossOrigin) };
        assert_eq!(ask(&set, method, "/", &headers), in_words(expected));
    }
}

#[test]
fn missing_settings_are_named() {
    let bare = Authenticator::new(None, None, None);
    let session = ask(&bare, Method::POST, "/", &[("authorization", "Bearer x")]);
    assert_eq!(session, Err("SESSION_SECRET is not configured".to_owned()));
    let cookie = ask(&bare, Method::GET, "/", &[("cookie", "agent_session=x")]);
    assert_eq!(cookie, Err("SESSION_SECRET is not configured".to_owned()));
    let headers = [("authorization", "Bearer x"), ("x-proactive-trigger", "x")];
    let internal = ask(&bare, Method::POST, "/", &headers);
    assert_eq!(internal, Err("INTERNAL_SECRET is not configured".to_owned()));
    assert_eq!(ask(&bare, Method::POST, "/", &[]), Err(AuthError::Unauthenticated.to_string()));
}

#[test]
fn errors_on_the_wire() {
    for (error, code) in [
        (AuthError::Unauthenticated, Code::Unauthenticated),
        (AuthError::Ambiguous, Code::AmbiguousCredentials),
        (AuthError::CrossOrigin, Code::Forbidden),
        (AuthError::InvalidReason, Code::InvalidRequest),
        (AuthError::WrongOrigin, Code::Forbidden),
        (AuthError::NotConfigured("SESSION_SECRET"), Code::NotConfigured),
    ] {
        let words = error.to_string();
        let http = HttpError::from(error);
        assert_eq!((http.code(), http.detail()), (code, words.as_str()));
    }
    for (error, code) in [
        (StoreError::unavailable("disk on fire"), Code::StoreUnavailable),
        (StoreError::Invalid("fire".to_owned()), Code::Internal),
    ] {
        let http = HttpError::from(AuthError::Store(error));
        assert_eq!(http.code(), code);
        assert!(!http.detail().contains("fire"));
    }
}

#[test]
fn the_gate_asks_for_its_secret() {
    let gate = BearerAuth::new(Some(Secret::new("runtime-secret-0")));
    for (headers, expected) in [
        (&[("authorization", "Bearer runtime-secret-0")][..], Ok(())),
        (&[("authorization", "bearer  runtime-secret-0")], Ok(())),
        (&[], Err(AuthError::Unauthenticated)),
        (&[("authorization", "Bearer runtime-secret-1")], Err(AuthError::Unauthenticated)),
        (&[("authorization", "Bearer runtime-secret")], Err(AuthError::Unauthenticated)),
        (&[("authorization", "Bearer ")], Err(AuthError::Unauthenticated)),
        (&[("authorization", "runtime-secret-0")], Err(AuthError::Unauthenticated)),
        (&[("authorization", "Basic runtime-secret-0")], Err(AuthError::Unauthenticated)),
        (
            &[("authorization", "Bearer runtime-secret-0"), ("authorization", "Bearer runtime-secret-0")],
            Err(AuthError::Ambiguous),
        ),
    ] {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        assert_eq!(in_words(gate.check(&map)), in_words(expected), "{headers:?}");
        assert!(BearerAuth::new(None).check(&map).is_ok());
    }
    assert!(!format!("{gate:?}{:?}", authenticator()).contains("secret-0"));
}

struct WidgetFixture {
    authenticator: Authenticator,
    tokens: Arc<Tokens>,
    clock: ManualClock,
}

fn widgets() -> WidgetFixture {
    let clock = ManualClock::new();
    let tokens = Arc::new(Tokens::new(Arc::new(MemoryRecords::default()), Arc::new(clock.clone())));
    WidgetFixture { authenticator: authenticator().with_tokens(tokens.clone()), tokens, clock }
}

impl WidgetFixture {
    /// Mints a token and returns its id and text.
    fn mint(&self, grant: Grant, ttl: Option<Duration>) -> (String, String) {
        let new = NewToken { ttl, ..NewToken::new("acme", "guide", grant) };
        let minted = self.tokens.mint(new).now_or_never().expect("no wait").expect("minted");
        (minted.token.id, minted.text.expose().to_owned())
    }

    fn widget(&self, origins: &[&str]) -> (String, String) {
        let origins = origins.iter().copied().map(str::to_owned).collect();
        self.mint(Grant::Widget(WidgetGrant { origins, ..WidgetGrant::default() }), None)
    }

    fn post(&self, uri: &str, headers: &[(&str, &str)]) -> Result<Credential, String> {
        ask(&self.authenticator, Method::POST, uri, headers)
    }
}

#[test]
fn a_visitor_with_a_key_is_a_user_of_its_own() {
    let widgets = widgets();
    let (id, text) = widgets.widget(&[]);
    let user = |key: &str| match widgets.post("/x", &[("x-widget-token", &*text), ("x-visitor-key", key)]) {
        Ok(Credential::Widget(visitor)) => Ok(visitor.principal().user_id.to_string()),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error),
    };
    let (shortest, longest) = ("a".repeat(22), "a".repeat(128));
    let sha256 = "ec7c494df6d2a7ea36668d656e6b8979e33641bfea378c15038af3964db057a3";
    assert_eq!(user(&shortest), Ok(format!("widget:{id}:{sha256}")));
    assert_ne!(user(&shortest), user(&longest));
    assert_eq!(user("abcdefghijklmnop-_0189AZ"), user("abcdefghijklmnop-_0189AZ"));
    let (short, long) = ("a".repeat(21), "a".repeat(129));
    let path = format!("{shortest}/../");
    let padded = format!("{shortest}=");
    for key in ["", &short, &long, &path, &padded, "aaaaaaaaaaaaaaaaaaaaaa:b", "aaaaaaaaaaa aaaaaaaaaaaa"] {
        assert_eq!(user(key), Err(AuthError::InvalidVisitorKey.to_string()), "{key}");
    }
    let twice = [("x-widget-token", &*text), ("x-visitor-key", &shortest), ("x-visitor-key", &shortest)];
    assert_eq!(widgets.post("/x", &twice), Err(AuthError::InvalidVisitorKey.to_string()));
    // The token counts first, and a key is nothing without one.
    let wrong = [("x-widget-token", "agw_x"), ("x-visitor-key", "x")];
    assert_eq!(widgets.post("/x", &wrong), Err(AuthError::Unauthenticated.to_string()));
    let alone = [("x-visitor-key", &*shortest)];
    assert_eq!(widgets.post("/x", &alone), Err(AuthError::Unauthenticated.to_string()));
}

#[test]
fn a_widget_token_makes_a_visitor_of_its_own() {
    let widgets = widgets();
    let (id, text) = widgets.widget(&[]);
    let visitor = Visitor {
        token_id: id.clone(),
        company_id: "acme".into(),
        agent_id: "guide".into(),
        caps: RunCaps::default(),
        key_hash: None,
    };
    let principal = Principal {
        user_id: format!("widget:{id}").into(),
        company_id: "acme".into(),
        caller: Caller::Widget,
        agent_id: Some("guide".into()),
        token_id: None,
    };
    assert_eq!(visitor.principal(), principal);
    let cookie = format!("agent_session={}", hs256(&claims()));
    let in_query = format!("/x?widgetToken={text}");
    for (uri, headers) in [
        ("/x", vec![("x-widget-token", &*text)]),
        (&in_query, vec![]),
        (&in_query, vec![("origin", "https://anywhere.example")]),
        (&in_query, vec![("cookie", &cookie)]),
    ] {
        assert_eq!(widgets.post(uri, &headers), Ok(Credential::Widget(visitor.clone())), "{headers:?}");
    }
    let unconfigured = ask(&authenticator(), Method::POST, &in_query, &[]);
    assert_eq!(unconfigured, Err(AuthError::Unauthenticated.to_string()));
}

#[test]
fn invalid_widget_tokens_are_refused_equally() {
    let widgets = widgets();
    let (_, good) = widgets.widget(&[]);
    let (revoked, revoked_text) = widgets.widget(&["https://a.example"]);
    widgets.tokens.revoke(&revoked, None).now_or_never().expect("no wait").expect("revoked");
    let hour = Duration::from_secs(3600);
    let (_, expired) = widgets.mint(Grant::Widget(WidgetGrant::default()), Some(hour));
    let mcp = McpGrant { user_id: "ann".into(), ..McpGrant::default() };
    let (_, mcp) = widgets.mint(Grant::Mcp(mcp), None);
    widgets.clock.advance(hour);
    for text in ["", "w", &good[..40], &good[4..], &revoked_text, &expired, &mcp, &hs256(&claims())] {
        let asked = widgets.post("/x", &[("x-widget-token", text)]);
        assert_eq!(asked, Err(AuthError::Unauthenticated.to_string()), "{text}");
        let session = widgets.post("/x", &[("authorization", &format!("Bearer {text}"))]);
        assert_eq!(session.is_ok(), text.contains('.'), "{text} is no session");
    }
}

#[test]
fn a_widget_token_is_good_on_the_pages_that_it_names() {
    let widgets = widgets();
    let (_, text) = widgets.widget(&["https://shop.example", "HTTP://Local.example:80/"]);
    for (origins, allowed) in [
        (&["https://shop.example"][..], true),
        (&["https://SHOP.example:443"], true),
        (&["http://local.example"], true),
        (&[], false),
        (&[""], false),
        (&["null"], false),
        (&["http://shop.example"], false),
        (&["https://shop.example:8443"], false),
        (&["https://shop.example.evil.example"], false),
        (&["https://www.shop.example"], false),
        (&["https://shop.example/page"], false),
        (&["https://shop.example https://evil.example"], false),
        (&["https://shop.example", "https://evil.example"], false),
        (&["https://shop.example", "https://shop.example"], false),
    ] {
        let mut headers = vec![("x-widget-token", &*text)];
        headers.extend(origins.iter().map(|origin| ("origin", *origin)));
        let asked = widgets.post("/x", &headers);
        assert_eq!(
            asked.as_ref().err(),
            (!allowed).then(|| AuthError::WrongOrigin.to_string()).as_ref(),
            "{origins:?}"
        );
    }
}

#[test]
fn a_token_in_the_body_is_an_explicit_credential() {
    let widgets = widgets();
    let (_, text) = widgets.widget(&["https://shop.example"]);
    let cookie = format!("agent_session={}", hs256(&claims()));
    let bearer = format!("Bearer {}", hs256(&claims()));
    let settle = |headers: &[(&str, &str)], in_body: &[&str]| {
        let head = head(Method::POST, "/x", headers);
        let in_body: Vec<Secret> = in_body.iter().copied().map(Secret::new).collect();
        let settled = async {
            let presented =
                widgets.authenticator.authenticate_head(&head, &Query::from_uri(&head.uri)).await?;
            widgets.authenticator.resolve_with_body(presented, &head, &in_body).await
        };
        in_words(settled.now_or_never().expect("no wait"))
    };
    let shop = ("origin", "https://shop.example");
    let own_origin_headers =
        [("host", "app.example"), ("origin", "https://app.example"), ("cookie", &*cookie)];
    let is_visitor = |settled| matches!(settled, Ok(Credential::Widget(_)));
    assert!(is_visitor(settle(&[shop], &[&text])));
    assert!(is_visitor(settle(&[shop, ("cookie", &cookie)], &[&text])), "it beats the cookie");
    assert!(is_visitor(settle(&[shop, ("cookie", "agent_session=x")], &[&text])));
    assert_eq!(settle(&own_origin_headers, &[]), Ok(ann()));
    for (headers, in_body, refused) in [
        (&[][..], &[][..], AuthError::Unauthenticated),
        (&[shop], &["w"], AuthError::Unauthenticated),
        (&own_origin_headers, &["w"], AuthError::Unauthenticated),
        (&own_origin_headers, &[&*text], AuthError::WrongOrigin),
        (&[shop, ("cookie", &cookie)], &[], AuthError::CrossOrigin),
        (&[shop], &[&text, &text], AuthError::Ambiguous),
        (&[shop, ("authorization", &bearer)], &[&text], AuthError::Ambiguous),
        (&[shop, ("x-widget-token", &text)], &[&text], AuthError::Ambiguous),
    ] {
        assert_eq!(settle(headers, in_body), Err(refused.to_string()), "{headers:?} {in_body:?}");
    }
}

#[test]
fn compares_whole_secrets() {
    let secret = Secret::new("0123456789abcdef");
    assert!(constant_time_eq(&secret, b"0123456789abcdef"));
    for other in ["", "0123456789abcde", "0123456789abcdeF", "0123456789abcdef0"] {
        assert!(!constant_time_eq(&secret, other.as_bytes()), "{other}");
    }
}
