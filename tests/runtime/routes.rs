//! Health, CORS, and unknown paths and methods, in both services.

use reqwest::Response;
use reqwest::header::{HeaderMap, HeaderName};
use serde_json::{Value, json};

use crate::support::server::{self, Server};
use crate::support::{exchange, expect_problem, workspace};

const LISTED_ORIGIN: &str = "https://console.example";

async fn start_both_services(settings: &[(&str, &str)]) -> [(Server, &'static str, &'static str); 2] {
    let app = server::app(&workspace("http://unused.example/v1", "m"), settings).await;
    let runtime = server::runtime(settings).await;
    [(app, "app", "/api/agent/chat"), (runtime, "runtime", "/chat")]
}

#[tokio::test]
async fn health_needs_no_credential() {
    for (server, name, _) in start_both_services(&[]).await {
        for path in ["/livez", "/readyz"] {
            let response = server.request("GET", path).send().await.expect("an answer");
            assert_eq!(response.status(), 200);
            assert_eq!(response.json::<Value>().await.expect("JSON"), json!({"status": "ok"}));
        }
        let response = server.request("GET", "/health").send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/json");
        assert_eq!(response.headers()["cache-control"], "no-store");
        let health: Value = response.json().await.expect("JSON");
        assert_eq!((&health["status"], &health["service"]), (&json!("ok"), &json!(name)));
        assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
        assert!(health["uptimeMs"].is_u64(), "{health}");
        match name {
            "runtime" => assert_eq!(health["providers"], json!(["openai", "ollama"])),
            _ => assert_eq!(health.get("providers"), None),
        }
    }
}

#[tokio::test]
async fn a_runtime_without_a_secret_is_not_reached_by_rebound_pages() {
    let send = async |server: &Server, headers: &[(&str, String)]| {
        let request = server.request("POST", "/chat").json(&json!({}));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
        request.send().await.expect("an answer")
    };
    let rebound = |server: &Server| ("host", format!("evil.example:{}", server.address.port()));
    let page = ("origin", "http://evil.example".to_owned());
    let open = server::runtime(&[("CORS_ORIGIN", LISTED_ORIGIN)]).await;
    for headers in [vec![rebound(&open)], vec![page.clone()], vec![rebound(&open), page.clone()]] {
        expect_problem(send(&open, &headers).await, 403, "FORBIDDEN").await;
    }
    let own_host = ("host", format!("localhost:{}", open.address.port()));
    let listed = ("origin", LISTED_ORIGIN.to_owned());
    for headers in [vec![], vec![own_host], vec![listed]] {
        expect_problem(send(&open, &headers).await, 400, "INVALID_REQUEST").await;
    }
    // A page does not know the secret.
    let closed = server::runtime(&[("RUNTIME_SECRET", "0123456789abcdef")]).await;
    expect_problem(send(&closed, &[rebound(&closed), page]).await, 401, "UNAUTHENTICATED").await;
}

#[tokio::test]
async fn a_head_is_a_get_without_its_body() {
    for (server, ..) in start_both_services(&[]).await {
        for path in ["/livez", "/readyz", "/health"] {
            let request = format!("{path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.address);
            let [get, head] = [
                exchange(server.address, format!("GET {request}")).await,
                exchange(server.address, format!("HEAD {request}")).await,
            ];
            let (got, body) = get.split_once("\r\n\r\n").expect("a head");
            assert!(!body.is_empty(), "{get}");
            assert_eq!(head.split_once("\r\n\r\n").expect("a head").1, "", "{head}");
            let shown = |head: &str| -> Vec<String> {
                let is_compared =
                    |line: &&str| !line.starts_with("date:") && !line.starts_with("x-request-id:");
                head.lines().filter(is_compared).map(str::to_owned).filter(|line| !line.is_empty()).collect()
            };
            assert_eq!(shown(got).len(), shown(&head).len(), "{got}\n{head}");
            // The content length varies with the uptime in the body.
            let fixed = |line: &String| !line.starts_with("content-length:");
            let lines = |head: &str| shown(head).into_iter().filter(fixed).collect::<Vec<_>>();
            assert_eq!(lines(got), lines(&head));
        }
    }
}

#[tokio::test]
async fn a_405_response_lists_the_allowed_methods() {
    for (server, _, chat) in start_both_services(&[]).await {
        let cases = [
            ("GET", chat, "POST"),
            ("PUT", chat, "POST"),
            ("DELETE", chat, "POST"),
            ("PROPFIND", chat, "POST"),
            ("POST", "/health", "GET, HEAD"),
            ("DELETE", "/livez", "GET, HEAD"),
            ("PATCH", "/readyz", "GET, HEAD"),
        ];
        for (method, path, allowed) in cases {
            let response = server.request(method, path).send().await.expect("an answer");
            assert_eq!(response.headers()["allow"], allowed, "{method} {path}");
            expect_problem(response, 405, "METHOD_NOT_ALLOWED").await;
        }
    }
}

#[tokio::test]
async fn an_unknown_path_is_not_found() {
    for (server, _, chat) in start_both_services(&[]).await {
        for path in
            ["/", "/nothing", "/health/", "/HEALTH", "//health", &format!("{chat}/"), &format!("{chat}/x")]
        {
            for method in ["GET", "POST"] {
                let response = server.request(method, path).send().await.expect("an answer");
                expect_problem(response, 404, "NOT_FOUND").await;
            }
        }
    }
}

#[tokio::test]
async fn ambiguous_request_heads_are_refused() {
    for (server, _, chat) in start_both_services(&[]).await {
        let host = server.address;
        for head in [
            format!("POST {chat} HTTP/1.1\r\n\r\n"),
            format!("POST {chat} HTTP/1.1\r\nhost: {host}\r\nhost: {host}\r\n\r\n"),
            format!("POST http://elsewhere.example{chat} HTTP/1.1\r\nhost: {host}\r\n\r\n"),
        ] {
            let answer = exchange(server.address, &head).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{head}: {answer}");
            assert!(answer.contains("application/problem+json") && answer.contains("Host"), "{answer}");
        }
        // Conflicting content lengths enable request smuggling.
        let smuggled = format!(
            "POST {chat} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{{}}"
        );
        assert!(exchange(server.address, smuggled).await.starts_with("HTTP/1.1 400 "));
    }
}

/// Sends a CORS preflight as a browser does.
async fn preflight(server: &Server, path: &str, origin: &str) -> Response {
    let request = server.request("OPTIONS", path).header("origin", origin);
    let request = request.header("access-control-request-method", "POST");
    request
        .header("access-control-request-headers", "authorization,content-type")
        .send()
        .await
        .expect("an answer")
}

fn header<'h>(headers: &'h HeaderMap, name: &'static str) -> Option<&'h str> {
    headers.get(HeaderName::from_static(name)).map(|value| value.to_str().expect("text"))
}

#[tokio::test]
async fn listed_origins_may_call_with_credentials() {
    for (server, _, chat) in
        start_both_services(&[("CORS_ORIGIN", "https://other.example, https://console.example")]).await
    {
        let response = preflight(&server, chat, LISTED_ORIGIN).await;
        assert!(response.status().is_success(), "{}", response.status());
        let headers = response.headers();
        assert_eq!(header(headers, "access-control-allow-origin"), Some(LISTED_ORIGIN));
        assert_eq!(header(headers, "access-control-allow-credentials"), Some("true"));
        assert!(
            header(headers, "access-control-allow-methods").is_some_and(|methods| methods.contains("POST"))
        );
        let allowed = header(headers, "access-control-allow-headers").expect("a list");
        for name in ["authorization", "content-type"] {
            assert!(allowed.contains(name), "{allowed}");
        }
        assert!(
            headers
                .get_all("vary")
                .iter()
                .any(|vary| vary.to_str().is_ok_and(|vary| vary.contains("origin")))
        );
        // Responses, including refusals, are readable by the page.
        let response =
            server.request("POST", chat).header("origin", LISTED_ORIGIN).send().await.expect("an answer");
        assert!(response.status().is_client_error());
        assert_eq!(header(response.headers(), "access-control-allow-origin"), Some(LISTED_ORIGIN));
        let exposed = header(response.headers(), "access-control-expose-headers").expect("a list");
        assert!(exposed.contains("x-request-id"), "{exposed}");
    }
}

#[tokio::test]
async fn other_origins_are_not_allowed() {
    for (server, name, chat) in start_both_services(&[("CORS_ORIGIN", LISTED_ORIGIN)]).await {
        for origin in
            ["https://elsewhere.example", "http://console.example", "https://console.example:444", "null"]
        {
            let path = if name == "app" { "/health" } else { chat };
            let response = preflight(&server, path, origin).await;
            for name in ["access-control-allow-origin", "access-control-allow-credentials"] {
                assert_eq!(header(response.headers(), name), None, "{origin}");
            }
        }
    }
    for (server, _, _) in start_both_services(&[]).await {
        let response = preflight(&server, "/health", LISTED_ORIGIN).await;
        assert_eq!(header(response.headers(), "access-control-allow-origin"), None, "none is listed");
    }
}

#[tokio::test]
async fn a_widget_s_page_may_ask_from_anywhere_without_credentials() {
    let [(app, ..), _] = start_both_services(&[("CORS_ORIGIN", LISTED_ORIGIN)]).await;
    let origin = "https://shop.example";
    let response = preflight(&app, "/api/agent/chat", origin).await;
    assert!(response.status().is_success(), "{}", response.status());
    let headers = response.headers();
    assert_eq!(header(headers, "access-control-allow-origin"), Some(origin));
    assert_eq!(header(headers, "access-control-allow-credentials"), None);
    let allowed = header(headers, "access-control-allow-headers").expect("a list");
    assert!(allowed.contains("x-widget-token") && allowed.contains("content-type"), "{allowed}");
    // A listed origin may use credentials on this route.
    let response = preflight(&app, "/api/agent/chat", LISTED_ORIGIN).await;
    assert_eq!(header(response.headers(), "access-control-allow-credentials"), Some("true"));
}
