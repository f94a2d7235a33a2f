//! The files of the chat widget.

use super::ON;
use crate::support::server::{self, Server};
use crate::support::{expect_problem, workspace};

const PAGE: &str = "https://shop.example";

async fn open(settings: &[(&str, &str)]) -> Server {
    server::app(&workspace("http://127.0.0.1:9/v1", "text"), settings).await
}

async fn get(app: &Server, path: &str) -> reqwest::Response {
    app.request("GET", path).header("origin", PAGE).send().await.expect("an answer")
}

/// Returns the path of the module that the loader imports.
async fn main_module(app: &Server) -> String {
    let loader = get(app, "/widget.js").await.text().await.expect("a script");
    let path = loader.split('\'').find(|text| text.ends_with("/widget/main.js")).expect("a module");
    format!("/{path}")
}

#[tokio::test]
async fn any_page_may_load_the_widget() {
    for settings in [&[][..], &[ON]] {
        let app = open(settings).await;
        for path in ["/widget.js".to_owned(), main_module(&app).await] {
            let response = get(&app, &path).await;
            assert_eq!(response.status(), 200, "{path}");
            for (name, value) in [
                ("access-control-allow-origin", "*"),
                ("cross-origin-resource-policy", "cross-origin"),
                ("content-type", "text/javascript; charset=utf-8"),
                ("x-content-type-options", "nosniff"),
            ] {
                assert_eq!(response.headers()[name], value, "{path}");
            }
            assert!(!response.headers().contains_key("access-control-allow-credentials"), "{path}");
            let request = app.request("HEAD", &path).header("host", "shop.example");
            assert_eq!(request.send().await.expect("an answer").status(), 200, "under any host");
        }
        expect_problem(get(&app, "/widget/0123456789ab/app.js").await, 404, "NOT_FOUND").await;
    }
}

#[tokio::test]
async fn no_widget_route_exists_when_it_is_switched_off() {
    let app = open(&[("WIDGET", "off"), ON]).await;
    for path in ["/widget.js", "/widget/0123456789ab/widget/main.js"] {
        expect_problem(get(&app, path).await, 404, "NOT_FOUND").await;
    }
}
