//! Every operation of a session, called with the console's cookie by pages of other sites.

use http::header::COOKIE;

use super::{open, sign_in};
use crate::support::client;

/// Headers of a request, the status that it gets, and true if reads get it too.
type ForeignRequest = (&'static [(&'static str, &'static str)], u16, bool);

/// Requests that are not the own page's.
const FOREIGN: [ForeignRequest; 7] = [
    // Cookies ignore ports, so that another server on this machine gets this one's.
    (&[("origin", "http://127.0.0.1:1")], 403, true),
    (&[("origin", "http://evil.example")], 403, true),
    (&[("origin", "null")], 403, true),
    (&[("sec-fetch-site", "cross-site")], 403, true),
    (&[("sec-fetch-site", "same-site")], 403, true),
    (&[("host", "evil.example")], 421, true),
    (&[], 403, false),
];

/// Returns method and path of each operation that takes a session.
fn session_operations() -> Vec<(String, String)> {
    let document = agent_http::openapi::document();
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in
            item.as_object().expect("methods").iter().filter(|(key, _)| *key != "servers")
        {
            let schemes = operation["security"].as_array().expect("a list");
            if schemes.iter().any(|scheme| scheme.get("sessionCookie").is_some()) {
                operations.push((method.to_uppercase(), path.replace(['{', '}'], "")));
            }
        }
    }
    operations
}

#[tokio::test]
async fn the_cookie_alone_is_not_enough_for_any_route() {
    let app = open().await;
    let (cookie, client, operations) = (sign_in(&app).await, client(), session_operations());
    let mut cells = 0;
    for (method, path) in &operations {
        for (headers, status, counts_for_reads) in FOREIGN {
            if method == "GET" && !counts_for_reads {
                continue;
            }
            let request =
                client.request(method.parse().expect("a method"), app.url(path)).header(COOKIE, &cookie);
            let request = request.header("content-type", "application/json").body("{}");
            let request =
                headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            let answered = request.send().await.expect("an answer").status();
            assert_eq!(answered, status, "{method} {path} {headers:?}");
            cells += 1;
        }
    }
    assert!(cells >= 400, "only {cells} cells of {} operations", operations.len());
}
