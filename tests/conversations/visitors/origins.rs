//! Routes of threads and runs from pages of the widget token's origin, and from others.

use super::*;

/// Routes that are open to visitors.
const VISITOR_ROUTES: [(&str, &str); 15] = [
    ("GET", "/api/threads"),
    ("DELETE", "/api/threads"),
    ("GET", "/api/threads/export"),
    ("GET", "/api/threads/t"),
    ("PATCH", "/api/threads/t"),
    ("DELETE", "/api/threads/t"),
    ("GET", "/api/threads/t/export"),
    ("PUT", "/api/threads/t/messages/n/feedback"),
    ("DELETE", "/api/threads/t/messages/n/feedback"),
    ("GET", "/api/runs/r/events"),
    ("POST", "/api/runs/r/cancel"),
    ("GET", "/api/agent/chat/t/stream"),
    ("GET", "/api/approvals"),
    ("GET", "/api/approvals/a"),
    ("POST", "/api/approvals/a"),
];
/// Routes for sessions alone, whose paths no visitor's route has.
const SESSION_ROUTES: [(&str, &str); 5] = [
    ("POST", "/api/threads/t/fork"),
    ("POST", "/api/threads/t/messages"),
    ("DELETE", "/api/threads/t/messages/n"),
    ("GET", "/api/runs"),
    ("GET", "/api/runs/r"),
];
/// Origins of other pages; `None` for a request without one.
const OTHER_ORIGINS: [Option<&str>; 3] = [Some("https://evil.example"), Some("null"), None];

impl ConversationApp {
    /// Sends a request of a page with a visitor's key, and with the token if there is one.
    async fn send_from(
        &self,
        origin: Option<&str>,
        token: Option<&str>,
        (method, path): (&str, &str),
    ) -> reqwest::Response {
        let request = self.app.request(method, path).header("x-visitor-key", KEYS[0]);
        let request = token.iter().fold(request, |request, token| request.header("x-widget-token", *token));
        let request = origin.iter().fold(request, |request, origin| request.header("origin", *origin));
        request.send().await.expect("an answer")
    }

    async fn preflight(&self, (method, path): (&str, &str)) -> reqwest::Response {
        let request = self.app.request("OPTIONS", path).header("origin", PAGE);
        let request = request.header("access-control-request-method", method);
        let request = request.header("access-control-request-headers", "x-visitor-key,x-widget-token");
        request.send().await.expect("an answer")
    }
}

/// Returns true if a response header, a list, has a word.
fn lists(response: &reqwest::Response, header: &str, word: &str) -> bool {
    let list = response.headers()[header].to_str().expect("text");
    list.split(',').any(|item| item == word)
}

#[tokio::test]
async fn pages_of_the_token_call_each_route_and_others_none() {
    let test = ConversationApp::start().await;
    let visitor = test.visitor("a1").await;
    for route in VISITOR_ROUTES {
        let preflight = test.preflight(route).await;
        assert_eq!(preflight.headers()["access-control-allow-origin"], PAGE, "{route:?}");
        assert!(lists(&preflight, "access-control-allow-headers", "x-visitor-key"), "{route:?}");
        assert!(lists(&preflight, "access-control-allow-headers", "x-widget-token"), "{route:?}");
        assert!(lists(&preflight, "access-control-allow-methods", route.0), "{route:?}");
        assert!(!preflight.headers().contains_key("access-control-allow-credentials"), "{route:?}");
        let response = test.send_from(Some(PAGE), Some(&visitor.token), route).await;
        assert!(!matches!(response.status().as_u16(), 401 | 403), "{route:?}: {}", response.status());
        assert_eq!(response.headers()["access-control-allow-origin"], PAGE, "{route:?}");
        assert!(!response.headers().contains_key("access-control-allow-credentials"), "{route:?}");
        for origin in OTHER_ORIGINS {
            let response = test.send_from(origin, Some(&visitor.token), route).await;
            assert!(!response.headers().contains_key("access-control-allow-origin"), "{route:?} {origin:?}");
            expect_problem(response, 403, "FORBIDDEN").await;
        }
        // A key alone is not a credential.
        for origin in OTHER_ORIGINS.into_iter().chain([Some(PAGE)]) {
            let response = test.send_from(origin, None, route).await;
            assert!(
                !response.headers().contains_key("access-control-allow-credentials"),
                "{route:?} {origin:?}"
            );
            expect_problem(response, 401, "UNAUTHENTICATED").await;
        }
    }
    for route in SESSION_ROUTES {
        let preflight = test.preflight(route).await;
        assert!(!preflight.headers().contains_key("access-control-allow-origin"), "{route:?}");
        let response = test.send_from(Some(PAGE), Some(&visitor.token), route).await;
        assert!(!response.headers().contains_key("access-control-allow-origin"), "{route:?}");
        expect_problem(response, 403, "FORBIDDEN").await;
    }
}
