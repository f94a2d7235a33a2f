//! Responses whose clients do not read the last of their data, of which the server drops the bodies.

use std::sync::Arc;

use agent_http::app;
use agent_http::body::Body;
use agent_http::service::HttpService;
use agent_http::shutdown::Shutdown;
use agentd::compose;
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use serde_json::json;

use super::downloads::upload;
use crate::support::server::{self, session_token};
use crate::support::vendor::{Vendor, answer};
use crate::support::workspace;

/// Requests a path, and returns the status and the data of the response.
async fn get(service: &impl HttpService, path: &str) -> (u16, Vec<Bytes>) {
    let bearer = format!("Bearer {}", session_token("u1", "c1"));
    let request = Request::get(path).header("authorization", bearer).body(Body::empty());
    let Ok(response) = service.clone().call(request.expect("a request")).await;
    let (head, mut body) = response.into_parts();
    let mut data = Vec::new();
    while let Some(frame) = body.frame().await {
        data.extend(frame.expect("the response is complete").into_data().ok());
    }
    (head.status.as_u16(), data)
}

#[tokio::test]
async fn downloads_bundles_and_logs_are_counted_until_their_data_are_sent() {
    let vendor = Vendor::start().await;
    vendor.on("m", [answer(&["Hi."])]);
    let stores = server::stores(&workspace(&vendor.base_url(), "m")).await;
    let served = server::app_with_stores(stores.clone(), &[]).await;
    let message = json!({"agentId": "a1", "message": "Hello", "threadId": "t", "runId": "r"});
    let events = served.chat(&message).await.text().await.expect("a whole body");
    assert!(events.contains("RUN_FINISHED"), "{events}");
    let file = upload(&served, &session_token("u1", "c1"), 100).await;
    // A company has half of the connections for readers.
    let config = server::app_config(&[("MAX_CONNECTIONS", "16")]);
    let app = compose::application(&config, served.address, stores, None, &Shutdown::default());
    let service = app::service(Arc::new(app.expect("an application")));
    for (path, count) in [
        (file.as_str(), 8),
        ("/api/threads/t/export", 8),
        ("/api/threads/export", 8),
        ("/api/runs/r/events", 8),
        ("/api/runs/r/events?format=json", 8),
        ("/api/runs/r/bundle", 2),
    ] {
        let mut unsent = Vec::new();
        for _ in 0..count {
            let (status, data) = get(&service, path).await;
            assert_eq!(status, 200, "{path}: {data:?}");
            unsent.push(data);
        }
        assert_eq!(get(&service, path).await.0, 429, "{path}");
        unsent.pop();
        assert_eq!(get(&service, path).await.0, 200, "{path}");
    }
}
