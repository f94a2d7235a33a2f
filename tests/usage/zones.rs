//! Time zones of companies, whose days and months are the windows of their budgets.

use agent_platform::records::Precondition;
use agent_platform::usage::{Budget, BudgetKind};
use jiff::Timestamp;
use serde_json::json;

use super::UsageApp;
use crate::support::expect_problem;

/// Sets the zone of the company `c1`, as the operator does.
async fn set_zone(test: &UsageApp, zone: &str) {
    let body = json!({"limits": [], "timezone": zone});
    let budget = Budget::read(BudgetKind::Company, body.as_object().expect("an object")).expect("valid");
    let subject = (BudgetKind::Company, "c1");
    let put = super::budgets(&test.stores).put(&"c1".into(), subject, &budget, Precondition::Any).await;
    put.expect("written");
}

fn next_midnight(zone: &str) -> Timestamp {
    let now = Timestamp::now().in_tz(zone).expect("a zone");
    now.tomorrow().and_then(|day| day.start_of_day()).expect("a day").timestamp()
}

#[tokio::test]
async fn refusals_and_budgets_have_the_end_of_the_companys_day() {
    let test = UsageApp::start().await;
    let limits = json!({"limits": [{"unit": "tokens", "amount": 0, "window": "day"}]});
    // At any time, it is another day than in UTC in one of them. Each user has a meter that no earlier zone has started.
    for (zone, user) in
        [("Asia/Kathmandu", "ada"), ("Pacific/Kiritimati", "u1"), ("Pacific/Pago_Pago", "boss")]
    {
        set_zone(&test, zone).await;
        let path = format!("/api/budgets/user/{user}");
        let (request_time, end_before) = (Timestamp::now(), next_midnight(zone));
        let created = test.send("boss", "PUT", &path, &limits).await;
        assert_eq!(created.status(), 201);
        let refused = test.ask(&test.app, user, "").await;
        let retry_after = refused.headers()["retry-after"].to_str().expect("text").to_owned();
        let problem = expect_problem(refused, 402, "BUDGET_EXCEEDED").await;
        let (_, shown) = test.get("boss", &path).await;
        let (response_time, end_after) = (Timestamp::now(), next_midnight(zone));
        for end in [&problem["budget"]["resetsAt"], &shown["limits"][0]["resetsAt"]] {
            let end: Timestamp = end.as_str().expect("text").parse().expect("a time");
            // Midnight may have passed meanwhile.
            assert!([end_before, end_after].contains(&end), "{zone}: {end}");
        }
        let end: Timestamp = problem["budget"]["resetsAt"].as_str().expect("text").parse().expect("a time");
        let seconds: i64 = retry_after.parse().expect("a number");
        let (least, most) =
            (end.duration_since(response_time).as_secs(), end.duration_since(request_time).as_secs() + 1);
        assert!((least..=most).contains(&seconds), "{zone}: {least} <= {seconds} <= {most}");
        let (_, company) = test.get("boss", "/api/budgets/company/c1").await;
        assert_eq!((&company["limits"], &company["timezone"]), (&json!([]), &json!(zone)));
    }
    let own_budget =
        json!({"limits": [{"unit": "tokens", "amount": 5, "window": "day"}], "timezone": "Europe/Berlin"});
    let response = test.send("boss", "PUT", "/api/budgets/agent/a1", &own_budget).await;
    let problem = expect_problem(response, 400, "INVALID_REQUEST").await;
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("timezone")), "{problem}");
    let response = test.send("boss", "PUT", "/api/budgets/company/c1", &own_budget).await;
    expect_problem(response, 403, "FORBIDDEN").await;
}
