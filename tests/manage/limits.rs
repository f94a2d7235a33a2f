//! Limits of what sessions may create and start.

use serde_json::json;

use super::{COLLEAGUE, ManagementApp, OWNER, STRANGER, expect_json, workspace};
use crate::support::{expect_problem, server};

async fn open(settings: &[(&str, &str)]) -> ManagementApp {
    let stores = server::stores(&workspace()).await;
    ManagementApp { app: server::app_with_stores(stores.clone(), settings).await, stores }
}

/// Checks the headers of a response to a request beyond a limit per minute.
fn assert_limited(response: &reqwest::Response, quota: u32) {
    let header = |name: &str| response.headers()[name].to_str().expect("text");
    assert!(header("retry-after").parse::<u64>().expect("seconds") >= 1);
    assert!(header("ratelimit").contains("r=0"), "{}", header("ratelimit"));
    assert!(
        header("ratelimit-policy").contains(&format!("q={quota};w=60")),
        "{}",
        header("ratelimit-policy")
    );
}

#[tokio::test]
async fn the_agents_and_documents_of_a_company_are_limited() {
    let bench = open(&[("MAX_AGENTS", "1"), ("MAX_DOCUMENTS", "1")]).await;
    let document = json!({"title": "New", "text": "One."});
    for (path, body) in [("/api/documents/new", document), ("/api/agents/new", json!({"name": "New"}))] {
        // The workspace has more already.
        let response = bench.send(OWNER, "PUT", path, &[], Some(&body)).await;
        let problem = expect_problem(response, 409, "CONFLICT").await;
        assert_eq!(problem["limit"], 1, "{problem}");
        assert_eq!(bench.get(OWNER, path).await.status(), 404);
        // Another company has a separate quota.
        let created = bench.send(("eve", "c3"), "PUT", path, &[], Some(&body)).await;
        expect_json(created, 201).await;
        // An existing item can be replaced at the limit.
        let replaced = bench.send(("eve", "c3"), "PUT", path, &[], Some(&body)).await;
        expect_json(replaced, 200).await;
        expect_problem(
            bench.send(("eve", "c3"), "PUT", &format!("{path}-2"), &[], Some(&body)).await,
            409,
            "CONFLICT",
        )
        .await;
    }
}

#[tokio::test]
async fn concurrent_creations_stay_within_the_quotas() {
    let bench = open(&[("MAX_AGENTS", "3"), ("MAX_DOCUMENTS", "3")]).await;
    for (path, body) in
        [("/api/agents", json!({"name": "Ann"})), ("/api/documents", json!({"title": "New", "text": "One."}))]
    {
        let create = |number: usize| {
            let (bench, body) = (&bench, &body);
            async move {
                let path = format!("{path}/new-{number}");
                let response = bench.send(("eve", "c3"), "PUT", &path, &[], Some(body)).await;
                match response.status().as_u16() {
                    409 => expect_problem(response, 409, "CONFLICT").await["limit"].clone(),
                    status => json!({"status": status}),
                }
            }
        };
        let outcomes = futures_util::future::join_all((0..12).map(create)).await;
        let created = outcomes.iter().filter(|outcome| **outcome == json!({"status": 201})).count();
        let refused = outcomes.iter().filter(|outcome| **outcome == json!(3)).count();
        assert_eq!((created, refused), (3, 9), "{path}: {outcomes:?}");
    }
}

#[tokio::test]
async fn the_changes_of_a_user_per_minute_are_limited() {
    let bench = open(&[("CHANGES_PER_MINUTE", "2")]).await;
    let (path, body) = ("/api/documents/new", json!({"title": "New", "text": "One."}));
    for _ in 0..2 {
        assert!(bench.send(OWNER, "PUT", path, &[], Some(&body)).await.status().is_success());
    }
    let response = bench.send(OWNER, "PUT", path, &[], Some(&body)).await;
    assert_limited(&response, 2);
    let problem = expect_problem(response, 429, "RATE_LIMITED").await;
    assert_eq!(problem["violated-policies"], json!(["minute"]));
    expect_problem(bench.send(OWNER, "DELETE", path, &[], None).await, 429, "RATE_LIMITED").await;
    assert_eq!(bench.get(OWNER, path).await.status(), 200, "reads are not limited");
    for other in [COLLEAGUE, STRANGER] {
        let created = bench.send(other, "PUT", "/api/documents/own", &[], Some(&body)).await;
        expect_json(created, 201).await;
        assert!(bench.send(other, "DELETE", "/api/documents/own", &[], None).await.status().is_success());
    }
}

#[tokio::test]
async fn the_runs_of_a_user_per_minute_are_limited() {
    let bench = open(&[("RUNS_PER_MINUTE", "2")]).await;
    let chat = async |user| {
        let body = json!({"agentId": "none", "message": "Hello"});
        bench.send(user, "POST", "/api/agent/chat", &[], Some(&body)).await
    };
    for _ in 0..2 {
        expect_problem(chat(OWNER).await, 404, "NOT_FOUND").await;
    }
    let refused = chat(OWNER).await;
    assert_limited(&refused, 2);
    expect_problem(refused, 429, "RATE_LIMITED").await;
    expect_problem(chat(COLLEAGUE).await, 404, "NOT_FOUND").await;
}
