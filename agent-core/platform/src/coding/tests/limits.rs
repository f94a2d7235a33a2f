use std::collections::HashMap;

use serde_json::json;

use super::super::limits::LimitTable;
use super::*;

fn used(percent: f64) -> SubscriptionLimits {
    let window = LimitWindow { used_percent: percent, window_minutes: None, resets_at: None };
    SubscriptionLimits { primary: Some(window), ..SubscriptionLimits::default() }
}

#[test]
fn limits_are_read_from_headers_and_events() {
    let headers: HashMap<&str, &str> = [
        ("x-codex-primary-used-percent", "12.5"),
        ("x-codex-primary-window-minutes", "300"),
        ("x-codex-primary-reset-at", " 1779398785 "),
        ("x-codex-secondary-used-percent", "0"),
        ("x-codex-credits-has-credits", "True"),
        ("x-codex-credits-unlimited", "0"),
        ("x-codex-credits-balance", "9.99"),
    ]
    .into();
    let limits = SubscriptionLimits::from_headers(|name| headers.get(name).copied());
    let expected = json!({
        "primary": {"usedPercent": 12.5, "windowMinutes": 300, "resetsAt": "2026-05-21T21:26:25.000Z"},
        "credits": {"hasCredits": true, "unlimited": false, "balance": "9.99"}
    });
    assert_eq!(serde_json::to_value(&limits).expect("JSON"), expected);
    let event = json!({"type": "codex.rate_limits", "plan_type": "pro",
        "rate_limits": {"allowed": true,
            "primary": {"used_percent": 12.5, "window_minutes": 300, "reset_at": 1_779_398_785}, "secondary": null},
        "credits": {"has_credits": true, "unlimited": false, "balance": "9.99"}});
    assert_eq!(SubscriptionLimits::from_event(&event), limits);
    for (name, expected) in [("codex", &limits), ("codex-spark", &SubscriptionLimits::default())] {
        let mut event = event.clone();
        (event["metered_limit_name"], event["limit_name"]) = (name.into(), "Codex".into());
        assert_eq!(SubscriptionLimits::from_event(&event), *expected, "the limit {name}");
    }
}

#[test]
fn invalid_limits_are_left_out() {
    for (percent, minutes, reset, credits) in [
        ("", "", "", ""),
        ("many", "5h", "soon", "maybe"),
        ("NaN", "300", "1", "2"),
        ("inf", "-1", "99999999999999999999", "yes"),
        ("0", "0", "999999999999999999", ""),
    ] {
        let headers: HashMap<&str, &str> = [
            ("x-codex-primary-used-percent", percent),
            ("x-codex-primary-window-minutes", minutes),
            ("x-codex-primary-reset-at", reset),
            ("x-codex-credits-has-credits", credits),
            ("x-codex-credits-unlimited", credits),
        ]
        .into();
        let limits = SubscriptionLimits::from_headers(|name| headers.get(name).copied());
        assert_eq!(limits, SubscriptionLimits::default(), "{percent:?}");
    }
    for event in
        [json!(null), json!([]), json!({"rate_limits": {"primary": {"used_percent": "7"}}, "credits": 1})]
    {
        assert_eq!(SubscriptionLimits::from_event(&event), SubscriptionLimits::default());
    }
    let long = "9".repeat(65);
    for balance in [long.as_str(), "9\n", ""] {
        let event = json!({"credits": {"has_credits": true, "unlimited": false, "balance": balance}});
        let credits = SubscriptionLimits::from_event(&event).credits.expect("credits");
        assert_eq!(credits.balance, None);
    }
}

#[test]
fn a_company_has_its_share_of_the_limits_and_forgets_its_own() {
    let table = LimitTable::default();
    let subscriber = |company: usize, user: usize| Subscriber {
        company_id: format!("c{company}").into(),
        user_id: format!("u{user}").into(),
    };
    for user in 0..3_000 {
        table.insert(subscriber(0, user), used(1.0));
    }
    assert_eq!(table.len(), 2_500);
    assert!(
        table.get(&subscriber(0, 499)).is_none() && table.get(&subscriber(0, 500)).is_some(),
        "the oldest are forgotten"
    );
    // A repeated report is a new one.
    table.insert(subscriber(0, 500), used(2.0));
    table.insert(subscriber(0, 3_000), used(1.0));
    assert!(table.get(&subscriber(0, 501)).is_none());
    assert_eq!(table.get(&subscriber(0, 500)), Some(used(2.0)));
    for company in 1..=4 {
        for user in 0..2_000 {
            table.insert(subscriber(company, user), used(1.0));
        }
    }
    assert_eq!(table.len(), 10_000);
    assert!(table.get(&subscriber(4, 0)).is_some(), "the largest company makes room");
    assert!(table.get(&subscriber(0, 1_001)).is_none() && table.get(&subscriber(0, 1_002)).is_some());
    table.remove(&subscriber(4, 0));
    table.remove(&subscriber(4, 0));
    assert_eq!((table.len(), table.get(&subscriber(4, 0))), (9_999, None));
}

#[tokio::test]
async fn limits_are_shown_to_their_user_while_signed_in() {
    let fixture = ProcessFixture::signed_in().await;
    let (company, user) = (&fixture.company, &fixture.user);
    fixture.tokens.record_limits(company, user, used(30.0));
    fixture.tokens.record_limits(company, user, SubscriptionLimits::default());
    assert_eq!(
        fixture.subscription().await.limits,
        Some(used(30.0)),
        "an answer without limits changes nothing"
    );
    let credits = Credits { has_credits: true, unlimited: false, balance: None };
    let event = SubscriptionLimits { credits: Some(credits), ..SubscriptionLimits::default() };
    fixture.tokens.update_limits(company, user, event.clone());
    fixture.tokens.update_limits(company, user, SubscriptionLimits::default());
    let both = SubscriptionLimits { credits: event.credits, ..used(30.0) };
    assert_eq!(fixture.subscription().await.limits, Some(both), "an event changes what it contains");
    fixture.tokens.update_limits(company, user, used(35.0));
    assert_eq!(fixture.subscription().await.limits.and_then(|limits| limits.primary), used(35.0).primary);
    fixture.tokens.record_limits(company, user, used(30.0));
    assert_eq!(fixture.subscription().await.limits, Some(used(30.0)), "headers replace all");
    fixture.tokens.record_limits(company, &"bob".into(), used(40.0));
    let other = fixture.tokens.status(company, &"bob".into()).await.expect("a status");
    assert_eq!(other.limits, None, "not signed in");
    fixture.tokens.sign_out(company, user).await.expect("signed out");
    fixture.sign_in().await;
    assert_eq!(fixture.subscription().await.limits, None, "those of an earlier sign-in are forgotten");
}
