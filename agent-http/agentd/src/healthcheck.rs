//! `agentd healthcheck`: liveness check for containers without another HTTP client.

use std::net::Ipv4Addr;

use crate::config::Env;
use agent_client::outbound::{OutboundClient, OutboundConfig, UrlTrust};
use agent_core::error::AgentError;
use url::Url;

use crate::cli::HealthcheckArgs;
use crate::command_error::CommandError;

/// Requests `/livez` of the service. Any result except a 2xx status within the timeout is an error.
pub(crate) async fn run(args: &HealthcheckArgs, env: &dyn Env) -> Result<(), CommandError> {
    let url = match &args.url {
        Some(url) => url.clone(),
        None => own_address(env)?,
    };
    let url = livez(url)?;
    let answer = async {
        let outbound = OutboundClient::new(OutboundConfig::default()).map_err(|error| error.to_string())?;
        let public = |failure: AgentError| failure.message().to_owned();
        let request = outbound.get(&url, UrlTrust::Operator).map_err(public)?;
        let response = request.header_timeout(args.timeout).send().await.map_err(public)?;
        Ok(response.status)
    };
    let wait = tokio::time::timeout(args.timeout, answer).await;
    match wait.unwrap_or_else(|_| Err("timeout".to_owned())) {
        Ok(status) if status.is_success() => Ok(()),
        Ok(status) => Err(CommandError::Unhealthy(format!("{url} returned {status}"))),
        Err(reason) => Err(CommandError::Unhealthy(format!("{url}: {reason}"))),
    }
}

/// Returns the loopback URL of a service with the same environment.
fn own_address(env: &dyn Env) -> Result<Url, CommandError> {
    let port = env.var("PORT").ok().flatten().filter(|port| !port.trim().is_empty());
    let port = port.as_deref().map_or("3000", str::trim);
    Url::parse(&format!("http://{}:{port}", Ipv4Addr::LOCALHOST))
        .map_err(|_| CommandError::Unhealthy("PORT is not a port number".to_owned()))
}

fn livez(mut url: Url) -> Result<Url, CommandError> {
    if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
        return Err(CommandError::Unhealthy("the URL must be http or https, without a user name".to_owned()));
    }
    url.set_path(&format!("{}/livez", url.path().trim_end_matches('/')));
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn args(port: u16, timeout: Duration) -> HealthcheckArgs {
        let url = Url::parse(&format!("http://127.0.0.1:{port}")).expect("an address");
        HealthcheckArgs { url: Some(url), timeout }
    }

    /// Sends `response` to one request and returns the request line. Sends nothing if `response` is empty.
    async fn answer(listener: TcpListener, response: &str) -> String {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a whole head"));
        }
        stream.write_all(response.as_bytes()).await.expect("an open connection");
        if response.is_empty() {
            let _ = stream.read_u8().await;
        }
        String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned()
    }

    async fn check(response: &str, timeout: Duration) -> (Result<(), String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let args = args(listener.local_addr().expect("an address").port(), timeout);
        let env = BTreeMap::new();
        let (checked, asked) = tokio::join!(run(&args, &env), answer(listener, response));
        (checked.map_err(|error| error.to_string()), asked)
    }

    #[tokio::test]
    async fn only_a_successful_status_is_healthy() {
        let long = Duration::from_secs(30);
        let (alive, asked) = check("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", long).await;
        assert_eq!((alive, asked.as_str()), (Ok(()), "GET /livez HTTP/1.1"));
        let (dead, _) = check("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", long).await;
        assert!(dead.expect_err("a 503").ends_with("/livez returned 503 Service Unavailable"));
        assert!(check("garbage\r\n\r\n", long).await.0.is_err());
    }

    #[tokio::test]
    async fn silence_and_absence_are_failures() {
        assert!(check("", Duration::from_millis(50)).await.0.is_err());
        let closed = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = closed.local_addr().expect("an address").port();
        drop(closed);
        assert!(run(&args(port, Duration::from_secs(30)), &BTreeMap::new()).await.is_err());
    }

    #[test]
    fn the_address_of_the_probe_follows_url_and_port() {
        for (address, asked) in [
            ("http://h", Some("http://h/livez")),
            ("http://h/base/?a=1#x", Some("http://h/base/livez")),
            ("https://h:1", Some("https://h:1/livez")),
            ("ftp://h", None),
            ("http://user:pw@h", None),
        ] {
            let url = livez(Url::parse(address).expect("an address"));
            assert_eq!(url.ok().as_ref().map(Url::as_str), asked, "{address}");
        }
        for (port, expected) in
            [("", Some("http://127.0.0.1:3000/")), (" 8080 ", Some("http://127.0.0.1:8080/")), ("x", None)]
        {
            let env = BTreeMap::from([("PORT", port)]);
            assert_eq!(own_address(&env).ok().as_ref().map(Url::as_str), expected, "{port}");
        }
    }
}
