//! A double of the runtime over an issuer that ends a whole sign-in when one of its refresh tokens is presented twice.
//!
//! Each process has a separate address, so that the issuer knows which process has presented a token. Users confirm
//! their sign-ins at once. The latency of refreshes is random, before and after the token is exchanged.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::TEST_TIMEOUT;
use crate::support::coding_runtime::RUNTIME_SECRET;
use crate::support::random::Random;
use crate::support::responses_vendor;
use crate::support::vendor::{
    ConnectionState, ReceivedRequest, Step, json_response, perform_step, read_request,
};

/// Maximum latency of a refresh before the exchange, and after it.
pub const MAX_LATENCY: Duration = Duration::from_millis(8);

/// A second use of a refresh token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reuse {
    /// Process that has presented the token first.
    pub first: usize,
    pub second: usize,
}

/// Tokens of one sign-in, as the issuer knows them.
#[derive(Debug, Clone, Default)]
pub struct TokenFamily {
    /// Number of authorizations that were exchanged for tokens.
    pub sign_ins: usize,
    /// Number of refreshes whose requests have arrived.
    pub received: usize,
    /// Process of each refresh, in order. The next valid refresh token has their number.
    pub refreshed_by: Vec<usize>,
    /// Second uses. After the first one, no token of the family is valid.
    pub reuses: Vec<Reuse>,
}

struct IssuerState {
    families: Vec<TokenFamily>,
    processes: usize,
    random: Random,
}

/// The issuer.
#[derive(Clone)]
pub struct StrictIssuer(Arc<Mutex<IssuerState>>);

/// Address of the issuer for one process; closed when dropped.
pub struct Endpoint {
    /// Number of the process.
    pub process: usize,
    address: SocketAddr,
    connections: watch::Receiver<usize>,
    requests: watch::Receiver<usize>,
    refreshes: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

/// Counters of the requests at an address.
#[derive(Clone)]
struct RequestCounters {
    /// Requests that are being answered.
    running: watch::Sender<usize>,
    /// Refreshes that have arrived.
    refreshes: watch::Sender<usize>,
}

/// Holds a counter up by one until it is dropped.
struct Counted(watch::Sender<usize>);

impl Counted {
    fn new(counter: &watch::Sender<usize>) -> Self {
        counter.send_modify(|count| *count += 1);
        Self(counter.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl StrictIssuer {
    pub fn new() -> Self {
        let state = IssuerState { families: Vec::new(), processes: 0, random: Random::with_seed(17) };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Opens an address for another process.
    pub async fn open_endpoint(&self) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        let process = {
            let mut state = self.lock();
            state.processes += 1;
            state.processes
        };
        let (connecting, connections) = watch::channel(0);
        let ((running, requests), (counting, refreshes)) = (watch::channel(0), watch::channel(0));
        let counters = RequestCounters { running, refreshes: counting };
        let issuer = self.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (issuer, counters) = (issuer.clone(), counters.clone());
                let connected = Counted::new(&connecting);
                tokio::spawn(async move {
                    issuer.serve(stream, process, &counters).await;
                    drop(connected);
                });
            }
        });
        Endpoint { process, address, connections, requests, refreshes, task }
    }

    /// Returns the tokens of the sign-in with this number.
    pub fn family(&self, number: usize) -> TokenFamily {
        self.lock().families[number].clone()
    }

    /// Returns all families.
    pub fn families(&self) -> Vec<TokenFamily> {
        self.lock().families.clone()
    }

    fn lock(&self) -> MutexGuard<'_, IssuerState> {
        self.0.lock().expect("unpoisoned")
    }

    async fn serve(&self, mut stream: TcpStream, process: usize, counters: &RequestCounters) {
        let _ = stream.set_nodelay(true);
        let mut buffer = Vec::new();
        while let Some(request) = read_request(&mut stream, &mut buffer).await {
            let answering = Counted::new(&counters.running);
            if request.path() == "/coding-auth/refresh" {
                counters.refreshes.send_modify(|count| *count += 1);
            }
            for step in self.answer(&request, process).await {
                if !matches!(perform_step(step, &mut stream).await, ConnectionState::Open) {
                    return;
                }
            }
            drop(answering);
        }
    }

    async fn answer(&self, request: &ReceivedRequest, process: usize) -> Vec<Step> {
        assert!(request.head.contains(&format!("Bearer {RUNTIME_SECRET}\r\n")), "{}", request.head);
        let body = request.json();
        let member = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        match request.path() {
            "/coding-auth/device" => self.lock().begin(),
            "/coding-auth/token" => self.lock().exchange_authorization(&member("device_code")),
            "/coding-auth/refresh" => {
                let token = member("refresh_token");
                let (before, after) = self.lock().receive(&token);
                tokio::time::sleep(before).await;
                let answer = self.lock().refresh(&token, process);
                tokio::time::sleep(after).await;
                answer
            }
            "/coding-auth/revoke" => ok(&json!({"revoked": true})),
            "/coding-chat" if self.lock().is_valid(&member("accessToken")) => {
                responses_vendor::answer(&["Done."])
            }
            "/coding-chat" => {
                let body = json!({"error": {"code": "token_expired", "message": "no"}});
                json_response("401 Unauthorized", "", &body.to_string())
            }
            path => panic!("{path}"),
        }
    }
}

impl IssuerState {
    fn begin(&mut self) -> Vec<Step> {
        let number = self.families.len();
        self.families.push(TokenFamily::default());
        ok(
            &json!({"device_code": format!("device-canary-{number}-0"), "user_code": format!("CODE-{number:06}"),
            "verification_uri": "https://issuer.example/device", "expires_in": 900, "interval": 1}),
        )
    }

    fn exchange_authorization(&mut self, device_code: &str) -> Vec<Step> {
        let (number, _) = numbers(device_code);
        self.families[number].sign_ins += 1;
        self.tokens(number)
    }

    /// Notes that a refresh has arrived, and returns its latency before and after the exchange.
    fn receive(&mut self, token: &str) -> (Duration, Duration) {
        self.families[numbers(token).0].received += 1;
        (self.random.up_to(MAX_LATENCY), self.random.up_to(MAX_LATENCY))
    }

    fn refresh(&mut self, token: &str, process: usize) -> Vec<Step> {
        let (number, generation) = numbers(token);
        let family = &mut self.families[number];
        if let Some(&first) = family.refreshed_by.get(generation) {
            family.reuses.push(Reuse { first, second: process });
            return invalid_grant("reused");
        }
        if !family.reuses.is_empty() {
            return invalid_grant("revoked");
        }
        family.refreshed_by.push(process);
        self.tokens(number)
    }

    fn tokens(&self, number: usize) -> Vec<Step> {
        let generation = self.families[number].refreshed_by.len();
        ok(&json!({"access_token": format!("access-canary-{number}-{generation}"), "token_type": "Bearer",
            "refresh_token": format!("refresh-canary-{number}-{generation}"), "expires_in": 3600,
            "account_id": "account-canary-1234", "plan": "plus"}))
    }

    fn is_valid(&self, access_token: &str) -> bool {
        self.families[numbers(access_token).0].reuses.is_empty()
    }
}

/// Returns the numbers of the family and of the token in a token's text.
fn numbers(token: &str) -> (usize, usize) {
    let mut parts = token.rsplit('-').map(|part| part.parse().expect("a token of this issuer"));
    let (generation, family) = (parts.next(), parts.next());
    (family.expect("a number"), generation.expect("a number"))
}

fn ok(body: &Value) -> Vec<Step> {
    json_response("200 OK", "cache-control: no-store\r\n", &body.to_string())
}

fn invalid_grant(reason: &str) -> Vec<Step> {
    let problem =
        json!({"code": "OAUTH_ERROR", "detail": "refused", "error": "invalid_grant", "reason": reason});
    let body = problem.to_string();
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    vec![Step::Send((head + &body).into())]
}

impl Endpoint {
    /// Returns the base URL (`RUNTIME_URL`).
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until the process has no connection left, so that nothing of a killed one can still arrive.
    pub async fn closed(&self) {
        wait_for(&self.connections, |count| count == 0).await;
    }

    /// Returns the number of refreshes that have arrived.
    pub fn refreshes(&self) -> usize {
        *self.refreshes.borrow()
    }

    /// Waits until this many refreshes have arrived.
    pub async fn wait_for_refreshes(&self, count: usize) {
        wait_for(&self.refreshes, |arrived| arrived >= count).await;
    }

    /// Waits until all requests that have arrived are answered.
    pub async fn idle(&self) {
        wait_for(&self.requests, |count| count == 0).await;
    }
}

/// Waits until `condition` holds for a counter.
async fn wait_for(counter: &watch::Receiver<usize>, condition: impl Fn(usize) -> bool) {
    let mut counter = counter.clone();
    let waited = tokio::time::timeout(TEST_TIMEOUT, counter.wait_for(|count| condition(*count))).await;
    waited.expect("it holds in time").expect("it is open");
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}
