//! Turns of jobs that are interrupted between two steps.

use super::*;
use crate::support::expect_problem;
use crate::support::vendor::{Step, Vendor, answer, tool_calls};

fn question() -> Value {
    json!({"kind": "agent", "userId": "u1", "companyId": "c1", "agentId": "a1", "message": "Record the sales."})
}

#[tokio::test]
async fn a_turn_continues_after_its_last_recorded_step() {
    let vendor = Vendor::start().await;
    let calls = [
        ("call-1", "recordMetric", r#"{"name":"sales","value":1}"#),
        ("call-2", "recordMetric", r#"{"name":"sales","value":2}"#),
        // Recorded as an error, which is not retried either.
        ("call-3", "recordMetric", r#"{"name":""}"#),
    ];
    let more = [("call-4", "recordMetric", r#"{"name":"sales","value":3}"#)];
    vendor.on(
        "m",
        [
            tool_calls(&calls),
            vec![Step::Stall],
            tool_calls(&more),
            vec![Step::Reset],
            answer(&["Recorded", " all."]),
        ],
    );
    let settings = [("PROACTIVE_TIMEOUT_MS", "3000")];
    let (impatient, stores) = app_without_scheduler(&vendor.base_url(), &settings).await;
    let call = delivery(question(), "j1", 1);
    expect_problem(deliver_callback(&impatient, &call).await, 504, "BACKEND_TIMEOUT").await;
    assert_eq!(recorded_metrics(&*stores.records).await, [1, 2]);
    // The next tries have all the time that they need.
    let app = app(&stores, "http://127.0.0.1:9", &[]).await;
    let response = deliver_callback(&app, &call).await;
    assert_eq!(response.status(), 502, "{}", response.text().await.expect("a body"));
    assert_eq!(recorded_metrics(&*stores.records).await, [1, 2, 3]);
    let response_body = expect_json(deliver_callback(&app, &call).await, 200).await;
    assert_eq!(response_body["status"], "done");
    assert_eq!(recorded_metrics(&*stores.records).await, [1, 2, 3]);
    let notifications = notification_texts(&stores).await;
    assert_eq!(notifications.len(), 1);
    assert!(notifications[0].1.ends_with("Recorded all."), "{notifications:?}");

    let request_bodies = vendor.received_bodies("m");
    let roles = |body: &Value| {
        let messages = body["messages"].as_array().expect("messages").iter();
        let roles = messages.filter_map(|message| message["role"].as_str()).filter(|role| *role != "system");
        roles.map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    let round = "assistant tool tool tool";
    let expected = [
        "user".to_owned(),
        format!("user {round}"),
        format!("user {round}"),
        format!("user {round} assistant tool"),
        format!("user {round} assistant tool"),
    ];
    assert_eq!(request_bodies.iter().map(roles).collect::<Vec<_>>(), expected);
}
