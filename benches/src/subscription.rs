//! The subject whose user has signed in to a subscription, and the answers of the mock issuer.
//!
//! The user signs in over HTTP, as a person does by a device code: the application asks the runtime, and the runtime the
//! issuer, which grants the tokens at the first poll.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::answer::{Behaviour, Script};
use crate::measure::BEHAVIOURS;
use crate::subjects::{Bench, RunningSubject, application_exchange, free_address, role};

/// Path of the sign-in at the application.
const SIGN_IN: &str = "/api/coding/sign-in";
/// Time limit of a sign-in, whose first poll comes after a second.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(20);
const STATUS_INTERVAL: Duration = Duration::from_millis(50);
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the issuer's answer to a request for this path; `None` for another path.
pub(crate) fn issuer_answer(path: &str) -> Option<Script> {
    let body = match path {
        "/issuer/device/code" => json!({
            "device_code": "bench-device-code", "user_code": "BENCH-0001", "expires_in": 600, "interval": 1,
            "verification_uri": "https://issuer.example/device",
        }),
        "/issuer/token" => json!({
            "access_token": "bench-access-token", "refresh_token": "bench-refresh-token", "token_type": "Bearer",
            "expires_in": 864_000,
        }),
        _ => return None,
    };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    Some(Script { pieces: vec![(head + &body).into()], every: Duration::ZERO, hangs: false })
}

/// Starts the application and the runtime, and signs the user in. Measured by `POST /api/agent/chat`: application to
/// runtime (`POST /coding-chat`) to vendor.
pub(crate) fn start(bench: &Bench) -> Result<RunningSubject> {
    let (runtime_address, address) = (free_address()?, free_address()?);
    let mut command = bench.agentd(&["runtime"])?;
    command
        .env("CODING_API_URL", format!("{}/responses", bench.vendor_url()))
        .env("CODING_AUTH_URL", format!("http://{}/issuer", bench.upstream))
        .env("CODING_AUTH_DIALECT", "rfc8628")
        .env("CODING_CLIENT_ID", "bench");
    let runtime = bench.service(command, runtime_address, &[])?;
    let agents = BEHAVIOURS.into_iter().map(agent).collect();
    let runtime_url = format!("http://{runtime_address}");
    let settings = [("RUNTIME_URL", runtime_url.as_str())];
    let (application, token) = bench.start_application_with(address, agents, &[], &settings)?;
    sign_in(address, &token)?;
    let exchange = application_exchange(token);
    Ok(RunningSubject { processes: vec![application, runtime], address, exchange })
}

fn agent(behaviour: Behaviour) -> Value {
    let container = json!({"model": behaviour.to_string(), "enableThinking": false});
    role(behaviour, json!({}), json!([{"name": "SubscriptionConnector", "content": container}]))
}

/// Signs the user of a session token in.
fn sign_in(application: SocketAddr, token: &str) -> Result<()> {
    let begun = request(application, "POST", SIGN_IN, token).context("the sign-in does not begin")?;
    let id = begun["signInId"].as_str().context("no id of the sign-in")?;
    let path = format!("{SIGN_IN}/{id}");
    let deadline = Instant::now() + SIGN_IN_TIMEOUT;
    loop {
        let status = request(application, "GET", &path, token)?;
        match status["status"].as_str() {
            Some("complete") => return Ok(()),
            Some("pending") if Instant::now() < deadline => thread::sleep(STATUS_INTERVAL),
            _ => bail!("the sign-in is not completed: {status}"),
        }
    }
}

/// Sends a request without a body and returns the JSON of its response.
fn request(address: SocketAddr, method: &str, path: &str, token: &str) -> Result<Value> {
    let mut stream = TcpStream::connect_timeout(&address, READ_TIMEOUT)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\ncontent-length: 0\r\n\
         connection: close\r\n\r\n"
    )?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let (head, body) = response.split_once("\r\n\r\n").context("no end of the head")?;
    ensure!(head.starts_with("HTTP/1.1 2"), "refused: {response}");
    serde_json::from_str(body).with_context(|| format!("no JSON: {response}"))
}
