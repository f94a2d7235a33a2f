//! A fake OAuth issuer with sign-in by a device code, in both dialects. It checks every request strictly, and misbehaves
//! on demand.
//!
//! Refresh tokens are valid once: a second use is refused as `refresh_token_reused`. Time passes as the issuer's `now`
//! says where a lifetime matters; the times of its calls are the machine's.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use agent_client::device_auth::DeviceAuthDialect;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::script_server::{ReceivedRequest, ScriptServer, Step};
use super::vendor::json_response;

/// Client id that the issuer knows.
pub const CLIENT_ID: &str = "client-of-the-operator";

/// PKCE pair of RFC 7636, appendix B, which the issuer gives to every sign-in in the codex dialect.
pub const CODE_VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
pub const CODE_CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// Request to the issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IssuerRoute {
    Device,
    Poll,
    Exchange,
    Refresh,
    Revoke,
}

/// A request as received.
#[derive(Debug, Clone)]
pub struct IssuerRequest {
    pub route: IssuerRoute,
    pub request: ReceivedRequest,
    /// Members of the body.
    pub members: BTreeMap<String, String>,
    pub received_at: Instant,
}

/// The person's decision on a sign-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Pending,
    Approved,
    Denied,
    Expired,
    /// The tokens of the sign-in were issued.
    Done,
}

struct SignIn {
    user_code: String,
    decision: Decision,
    interval: Duration,
    last_poll: Option<Instant>,
}

/// State of a refresh token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefreshState {
    Valid,
    Used,
    Revoked,
    Expired,
}

struct IssuerState {
    dialect: DeviceAuthDialect,
    requests: Vec<IssuerRequest>,
    complaints: Vec<String>,
    scripts: HashMap<IssuerRoute, VecDeque<Vec<Step>>>,
    /// Sign-ins by device code.
    sign_ins: HashMap<String, SignIn>,
    /// Authorization codes that have not been exchanged.
    codes: Vec<String>,
    refresh_tokens: HashMap<String, RefreshState>,
    revoked: Vec<String>,
    issued: usize,
    interval: u64,
    token_lifetime: u64,
    enforces_interval: bool,
    early_polls: usize,
    account: String,
}

/// The issuer; stops when dropped.
pub struct FakeIssuer {
    pub address: SocketAddr,
    pub dialect: DeviceAuthDialect,
    state: Arc<Mutex<IssuerState>>,
    server: ScriptServer,
}

impl FakeIssuer {
    /// Starts an issuer on a free port.
    pub async fn start(dialect: DeviceAuthDialect) -> Self {
        let state = Arc::new(Mutex::new(IssuerState {
            dialect,
            requests: Vec::new(),
            complaints: Vec::new(),
            scripts: HashMap::new(),
            sign_ins: HashMap::new(),
            codes: Vec::new(),
            refresh_tokens: HashMap::new(),
            revoked: Vec::new(),
            issued: 0,
            interval: 5,
            token_lifetime: 864_000,
            enforces_interval: false,
            early_polls: 0,
            account: "account-canary-1".to_owned(),
        }));
        let server = ScriptServer::start({
            let state = state.clone();
            move |request: ReceivedRequest| state.lock().expect("unpoisoned").answer(request)
        })
        .await;
        Self { address: server.address, dialect, state, server }
    }

    /// Returns the issuer's base URL.
    pub fn url(&self) -> String {
        format!("http://{}/issuer", self.address)
    }

    /// Returns the runtime's settings for this issuer.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("CODING_AUTH_URL", self.url()),
            ("CODING_AUTH_DIALECT", self.dialect.name().to_owned()),
            ("CODING_CLIENT_ID", CLIENT_ID.to_owned()),
        ];
        if self.dialect == DeviceAuthDialect::Rfc8628 {
            settings.push(("CODING_REVOKE_URL", format!("{}/revoke", self.url())));
        }
        settings
    }

    /// Sets the responses to the next requests of a route. After them the issuer answers as usual.
    pub fn script(&self, route: IssuerRoute, responses: impl IntoIterator<Item = Vec<Step>>) {
        self.lock().scripts.entry(route).or_default().extend(responses);
    }

    /// Sets the interval of later sign-ins in seconds, and whether a poll that comes too early is a `slow_down`.
    pub fn set_interval(&self, seconds: u64, is_enforced: bool) {
        let mut state = self.lock();
        (state.interval, state.enforces_interval) = (seconds, is_enforced);
    }

    /// Sets the lifetime of later access tokens in seconds.
    pub fn set_token_lifetime(&self, seconds: u64) {
        self.lock().token_lifetime = seconds;
    }

    /// Sets the account of later tokens.
    pub fn set_account(&self, account: &str) {
        account.clone_into(&mut self.lock().account);
    }

    /// Lets the person enter a code.
    pub fn approve(&self, user_code: &str) {
        self.decide(user_code, Decision::Approved);
    }

    /// Lets the person refuse.
    pub fn deny(&self, user_code: &str) {
        self.decide(user_code, Decision::Denied);
    }

    /// Lets a code expire.
    pub fn expire(&self, user_code: &str) {
        self.decide(user_code, Decision::Expired);
    }

    fn decide(&self, user_code: &str, decision: Decision) {
        let mut state = self.lock();
        let sign_in = state.sign_ins.values_mut().find(|sign_in| sign_in.user_code == user_code);
        sign_in.expect("a sign-in with this code").decision = decision;
    }

    /// Changes the state of a refresh token.
    pub fn set_refresh_token(&self, token: &str, refresh_state: RefreshState) {
        self.lock().refresh_tokens.insert(token.to_owned(), refresh_state);
    }

    /// Returns the state of a refresh token that was issued.
    pub fn refresh_token(&self, token: &str) -> Option<RefreshState> {
        self.lock().refresh_tokens.get(token).copied()
    }

    /// Returns the tokens that were revoked, in order.
    pub fn revoked(&self) -> Vec<String> {
        self.lock().revoked.clone()
    }

    /// Returns the requests of a route.
    pub fn requests(&self, route: IssuerRoute) -> Vec<IssuerRequest> {
        self.lock().requests.iter().filter(|request| request.route == route).cloned().collect()
    }

    /// Returns the number of requests of a route.
    pub fn calls(&self, route: IssuerRoute) -> usize {
        self.requests(route).len()
    }

    /// Returns the number of requests of all routes.
    pub fn all_calls(&self) -> usize {
        self.lock().requests.len()
    }

    /// Waits until a route has received `count` requests.
    pub async fn wait_for_calls(&self, route: IssuerRoute, count: usize) {
        self.server.wait_for_requests(|| self.calls(route) >= count).await;
    }

    /// Returns the number of polls that came sooner than their interval, 5 s longer after each `slow_down`.
    pub fn early_polls(&self) -> usize {
        self.lock().early_polls
    }

    /// Returns the faults of all requests.
    pub fn complaints(&self) -> Vec<String> {
        self.lock().complaints.clone()
    }

    fn lock(&self) -> MutexGuard<'_, IssuerState> {
        self.state.lock().expect("unpoisoned")
    }
}

/// Returns a JSON response.
pub fn json_answer(status: &str, body: &Value) -> Vec<Step> {
    json_response(status, "", &body.to_string())
}

/// Returns a JSON Web Token without a valid signature.
pub fn unsigned_jwt(claims: &Value) -> String {
    let encode = |text: String| BASE64_URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.c2ln", encode(json!({"alg": "none"}).to_string()), encode(claims.to_string()))
}

/// Returns an id token of the codex dialect.
pub fn id_token(account: &str, plan: &str) -> String {
    unsigned_jwt(&json!({
        "email": "email-canary@example.com", "name": "name-canary",
        "https://api.openai.com/auth": {"chatgpt_account_id": account, "chatgpt_plan_type": plan},
    }))
}

impl IssuerState {
    fn answer(&mut self, request: ReceivedRequest) -> Vec<Step> {
        let (route, members) = match self.read(&request) {
            Ok(read) => read,
            Err(complaint) => {
                self.complaints.push(complaint);
                return json_answer("400 Bad Request", &json!({"error": "invalid_request"}));
            }
        };
        let received_at = Instant::now();
        self.requests.push(IssuerRequest { route, request, members: members.clone(), received_at });
        if route == IssuerRoute::Poll {
            self.note_poll(&members, received_at);
        }
        if let Some(steps) = self.scripts.get_mut(&route).and_then(VecDeque::pop_front) {
            return steps;
        }
        let (status, body) = match route {
            IssuerRoute::Device => self.begin(),
            IssuerRoute::Poll => self.poll(&members),
            IssuerRoute::Exchange => self.exchange(&members["code"]),
            IssuerRoute::Refresh => self.refresh(&members["refresh_token"]),
            IssuerRoute::Revoke => {
                self.revoked.push(members["token"].clone());
                self.refresh_tokens.insert(members["token"].clone(), RefreshState::Revoked);
                ("200 OK", json!({}))
            }
        };
        json_answer(status, &body)
    }

    /// Checks a request, and returns its route and the members of its body.
    fn read(&self, request: &ReceivedRequest) -> Result<(IssuerRoute, BTreeMap<String, String>), String> {
        let head = request.head.to_ascii_lowercase();
        let complain = |fault: &str| Err(format!("{fault}: {}", request.head));
        let has_form = head.contains("content-type: application/x-www-form-urlencoded\r\n");
        let members: BTreeMap<String, String> = if has_form {
            form_urlencoded::parse(&request.body).into_owned().collect()
        } else if head.contains("content-type: application/json\r\n") {
            match serde_json::from_slice(&request.body) {
                Ok(members) => members,
                Err(_) => return complain("the body is no object of texts"),
            }
        } else {
            return complain("another content type");
        };
        if !head.starts_with("post /issuer/") {
            return complain("another method or path");
        }
        for (forbidden, is_there) in [
            ("authorization", head.contains("authorization:")),
            ("cookie", head.contains("cookie:")),
            ("accept-encoding", !head.contains("accept-encoding: identity\r\n")),
            ("accept", !head.contains("accept: application/json\r\n")),
        ] {
            if is_there {
                return complain(forbidden);
            }
        }
        let names: Vec<&str> = members.keys().map(String::as_str).collect();
        let path = request.path().trim_start_matches("/issuer/");
        let grant = members.get("grant_type").map(String::as_str);
        const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
        let route = match (self.dialect, path, has_form, grant, &names[..]) {
            (
                DeviceAuthDialect::Rfc8628,
                "device/code",
                true,
                None,
                ["client_id"] | ["client_id", "scope"],
            )
            | (DeviceAuthDialect::Codex, "api/accounts/deviceauth/usercode", false, None, ["client_id"]) => {
                IssuerRoute::Device
            }
            (
                DeviceAuthDialect::Rfc8628,
                "token",
                true,
                Some(DEVICE_GRANT),
                ["client_id", "device_code", "grant_type"],
            )
            | (
                DeviceAuthDialect::Codex,
                "api/accounts/deviceauth/token",
                false,
                None,
                ["device_auth_id", "user_code"],
            ) => IssuerRoute::Poll,
            (
                DeviceAuthDialect::Codex,
                "oauth/token",
                true,
                Some("authorization_code"),
                ["client_id", "code", "code_verifier", "grant_type", "redirect_uri"],
            ) => IssuerRoute::Exchange,
            (
                DeviceAuthDialect::Rfc8628,
                "token",
                true,
                Some("refresh_token"),
                ["client_id", "grant_type", "refresh_token"],
            )
            | (
                DeviceAuthDialect::Codex,
                "oauth/token",
                true,
                Some("refresh_token"),
                ["client_id", "grant_type", "refresh_token"],
            ) => IssuerRoute::Refresh,
            (
                DeviceAuthDialect::Rfc8628,
                "revoke",
                true,
                None,
                ["client_id", "token"] | ["client_id", "token", "token_type_hint"],
            )
            | (
                DeviceAuthDialect::Codex,
                "oauth/revoke",
                false,
                None,
                ["client_id", "token"] | ["client_id", "token", "token_type_hint"],
            ) => IssuerRoute::Revoke,
            _ => return complain(&format!("no such request with {names:?}")),
        };
        if members.get("client_id").is_some_and(|id| id != CLIENT_ID) {
            return complain("another client");
        }
        Ok((route, members))
    }

    fn begin(&mut self) -> (&'static str, Value) {
        self.issued += 1;
        let number = self.issued;
        let (device_code, user_code) = (format!("device-code-canary-{number}"), format!("CODE-{number:04}"));
        let sign_in = SignIn {
            user_code: user_code.clone(),
            decision: Decision::Pending,
            interval: Duration::from_secs(self.interval),
            last_poll: None,
        };
        self.sign_ins.insert(device_code.clone(), sign_in);
        let body = match self.dialect {
            DeviceAuthDialect::Rfc8628 => json!({
                "device_code": device_code, "user_code": user_code, "interval": self.interval, "expires_in": 600,
                "verification_uri": "https://issuer.example/device",
                "verification_uri_complete": format!("https://issuer.example/device?code={user_code}"),
            }),
            DeviceAuthDialect::Codex => json!({
                "device_auth_id": device_code, "user_code": user_code, "interval": self.interval.to_string(),
            }),
        };
        ("200 OK", body)
    }

    fn sign_in(&mut self, members: &BTreeMap<String, String>) -> Option<&mut SignIn> {
        let code = members.get("device_code").or(members.get("device_auth_id"))?;
        let sign_in = self.sign_ins.get_mut(code)?;
        members.get("user_code").is_none_or(|code| *code == sign_in.user_code).then_some(sign_in)
    }

    /// Records the time of a poll.
    fn note_poll(&mut self, members: &BTreeMap<String, String>, now: Instant) {
        let Some(sign_in) = self.sign_in(members) else { return };
        let is_early = sign_in.last_poll.is_some_and(|last| now - last < sign_in.interval);
        sign_in.last_poll = Some(now);
        self.early_polls += usize::from(is_early);
        if is_early && self.enforces_interval {
            if let Some(sign_in) = self.sign_in(members) {
                sign_in.interval += Duration::from_secs(5);
            }
            let slow_down = json_answer("400 Bad Request", &json!({"error": "slow_down"}));
            self.scripts.entry(IssuerRoute::Poll).or_default().push_front(slow_down);
        }
    }

    fn poll(&mut self, members: &BTreeMap<String, String>) -> (&'static str, Value) {
        let dialect = self.dialect;
        let Some(sign_in) = self.sign_in(members) else {
            return ("400 Bad Request", json!({"error": "invalid_grant"}));
        };
        match (sign_in.decision, dialect) {
            (Decision::Pending, DeviceAuthDialect::Rfc8628) => {
                ("400 Bad Request", json!({"error": "authorization_pending"}))
            }
            (Decision::Pending, DeviceAuthDialect::Codex) => {
                ("403 Forbidden", json!({"error": {"code": "deviceauth_authorization_pending"}}))
            }
            (Decision::Denied, _) => ("403 Forbidden", json!({"error": "access_denied"})),
            (Decision::Expired | Decision::Done, _) => ("400 Bad Request", json!({"error": "expired_token"})),
            (Decision::Approved, DeviceAuthDialect::Rfc8628) => {
                sign_in.decision = Decision::Done;
                ("200 OK", self.issue())
            }
            (Decision::Approved, DeviceAuthDialect::Codex) => {
                sign_in.decision = Decision::Done;
                let code = format!("authorization-code-canary-{}", self.codes.len());
                self.codes.push(code.clone());
                let pair = json!({"authorization_code": code, "code_verifier": CODE_VERIFIER,
                    "code_challenge": CODE_CHALLENGE});
                ("200 OK", pair)
            }
        }
    }

    fn exchange(&mut self, code: &str) -> (&'static str, Value) {
        let Some(index) = self.codes.iter().position(|issued| issued == code) else {
            return ("400 Bad Request", json!({"error": "invalid_grant"}));
        };
        // Exchanged codes keep their place, since new ones are numbered by it.
        self.codes[index].clear();
        ("200 OK", self.issue())
    }

    fn refresh(&mut self, token: &str) -> (&'static str, Value) {
        let refused = |code: &str| ("401 Unauthorized", json!({"error": {"code": code}}));
        match self.refresh_tokens.get(token) {
            Some(RefreshState::Valid) => {
                self.refresh_tokens.insert(token.to_owned(), RefreshState::Used);
                ("200 OK", self.issue())
            }
            Some(RefreshState::Used) => refused("refresh_token_reused"),
            Some(RefreshState::Revoked) => refused("refresh_token_invalidated"),
            Some(RefreshState::Expired) => refused("refresh_token_expired"),
            None => ("400 Bad Request", json!({"error": "invalid_grant"})),
        }
    }

    /// Issues the next tokens.
    fn issue(&mut self) -> Value {
        self.issued += 1;
        let refresh_token = format!("refresh-token-canary-{}", self.issued);
        self.refresh_tokens.insert(refresh_token.clone(), RefreshState::Valid);
        let mut tokens = json!({
            "access_token": format!("access-token-canary-{}", self.issued), "token_type": "bearer",
            "expires_in": self.token_lifetime, "refresh_token": refresh_token, "scope": "openid offline_access",
        });
        if self.dialect == DeviceAuthDialect::Codex {
            tokens["id_token"] = id_token(&self.account, "plus").into();
        }
        tokens
    }
}
