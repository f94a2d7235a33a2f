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
    Some(Script::json(&body))
}

/// Starts the application and the runtime, and signs the user in. Measured by `POST /api/agent/chat`: application to
/// runtime (`POST /coding-chat`) to vendor.
pub(crate) fn start(bench: &Bench) -> Result<RunningSubject> {
    let (runtime_address, address) = (free_address()?, free_address()?);
    let mut command = bench.agentd(&["runtime"])?;
    command.envs(runtime_settings(bench.upstream));
    let runtime = bench.service(command, runtime_address, &[])?;
    let agents = BEHAVIOURS.into_iter().map(agent).collect();
    let runtime_url = format!("http://{runtime_address}");
    let settings = [("RUNTIME_URL", runtime_url.as_str())];
    let (application, token) = bench.start_application_with(address, agents, &[], &settings)?;
    sign_in(address, &token)?;
    let exchange = application_exchange(token);
    Ok(RunningSubject { processes: vec![application, runtime], address, exchange })
}

/// Returns the settings by which a runtime calls the mock vendor and its issuer.
fn runtime_settings(upstream: SocketAddr) -> [(&'static str, String); 4] {
    [
        ("CODING_API_URL", format!("http://{upstream}/v1/responses")),
        ("CODING_AUTH_URL", format!("http://{upstream}/issuer")),
        ("CODING_AUTH_DIALECT", "rfc8628".to_owned()),
        ("CODING_CLIENT_ID", "bench".to_owned()),
    ]
}

fn agent(behaviour: Behaviour) -> Value {
    let container = json!({"model": behaviour.to_string(), "enableThinking": false});
    role(behaviour, json!({}), json!([{"name": "SubscriptionConnector", "content": container}]))
}

/// Signs the user of a session token in.
fn sign_in(application: SocketAddr, token: &str) -> Result<()> {
    let sign_in = request(application, "POST", SIGN_IN, token).context("the sign-in does not begin")?;
    let id = sign_in["signInId"].as_str().context("no id of the sign-in")?;
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use agent_http::shutdown::Shutdown;
    use agentd::config::{AppConfig, Flags, RuntimeConfig};
    use agentd::run;
    use agentd::stores::Stores;
    use tokio::net::TcpListener;

    use super::*;
    use crate::application::session;
    use crate::load::Connection;
    use crate::measure::BURST;
    use crate::subjects::{COMPANY, DATA_SECRET, SESSION_SECRET, workspace_of};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_user_signs_in_and_is_answered_by_the_mock_vendor() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = listener.local_addr().unwrap();
        tokio::spawn(crate::upstream::serve(listener));

        let settings = runtime_settings(upstream);
        let mut env: BTreeMap<&str, &str> =
            settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        env.insert("PORT", "0");
        let config = RuntimeConfig::load(&Flags::default(), &env).unwrap();
        let listener = run::listen(config.server.listen).await.unwrap();
        let runtime_url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { run::serve_runtime(&config, listener, Shutdown::default()).await });

        let env = BTreeMap::from([
            ("PORT", "0"),
            ("RUNTIME_URL", runtime_url.as_str()),
            ("SESSION_SECRET", SESSION_SECRET),
            ("DATA_SECRET", DATA_SECRET),
        ]);
        let config = AppConfig::load(&Flags::default(), &env).unwrap();
        let workspace = workspace_of(vec![agent(Behaviour::First), agent(BURST)]).to_string();
        let stores = Stores::in_memory("the workspace", &workspace).await.unwrap();
        let listener = run::listen(config.server.listen).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(
            async move { run::serve_app(&config, listener, stores, None, Shutdown::default()).await },
        );

        let token = session(COMPANY).unwrap();
        let bearer = token.clone();
        tokio::task::spawn_blocking(move || sign_in(address, &bearer)).await.unwrap().unwrap();
        let exchange = application_exchange(token);
        let mut connection = Connection::open(address).await.unwrap();
        for behaviour in [Behaviour::First, BURST] {
            connection.exchange(&exchange(behaviour)).await.unwrap();
        }
    }
}
