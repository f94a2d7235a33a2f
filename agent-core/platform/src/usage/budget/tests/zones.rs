//! Budgets of companies with time zones: windows, settlements over midnight, and changes of the zone.

use super::*;

/// Sets the budget of the company to one limit in a zone.
async fn put_in_zone(process: &UsageRecorder, limit: Value, zone: &str) {
    let body = json!({"limits": [limit], "timezone": zone});
    let budget = Budget::read(BudgetKind::Company, body.as_object().expect("an object")).expect("a budget");
    let company = COMPANY.into();
    let put = budgets(process).put(&company, (BudgetKind::Company, COMPANY), &budget, Precondition::Any);
    put.await.expect("written");
}

/// Returns the end of the window of the company's first limit.
async fn end_of_window(process: &UsageRecorder) -> String {
    let (company, subject) = (COMPANY.into(), (BudgetKind::Company, COMPANY));
    let found = budgets(process).get(&company, subject.0, subject.1).await.expect("read");
    let budget = found.expect("a budget").value;
    let status = budgets(process).status(&company, subject, &budget).await.expect("read");
    status.limits[0].resets_at.expect("an end").to_string()
}

/// Books a call of 300 tokens.
async fn call(process: &UsageRecorder) {
    let (reservation, _) = reserve(process, 300).await.expect("admitted");
    settle(process, reservation, 20, 280).await;
}

#[tokio::test]
async fn the_windows_of_all_budgets_are_those_of_the_companys_zone() {
    // Ten minutes before midnight in Berlin, at the end of the day that has 23 hours.
    let installation = Installation::at("2026-03-29T21:50:00Z");
    let process = installation.process();
    put_in_zone(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"}), "Europe/Berlin").await;
    assert_eq!(end_of_window(&process).await, "2026-03-29T22:00:00Z");
    call(&process).await;
    let (late, _) = reserve(&process, 300).await.expect("admitted");
    assert_eq!(amounts(&process).await, (300, 321));
    installation.clock.advance(Duration::from_secs(10 * 60));
    assert_eq!(amounts(&process).await, (0, 321), "the next day, in which the call is still in progress");
    assert_eq!(end_of_window(&process).await, "2026-03-30T22:00:00Z");
    // No request has read the zone in the commit of the settlement.
    settle(&process, late, 20, 10).await;
    assert_eq!(amounts(&process).await, (30, 0));
    for (kind, subject) in [(BudgetKind::User, "ada"), (BudgetKind::Agent, "guide"), (BudgetKind::Token, "t")]
    {
        put(&process, kind, subject, json!([{"unit": "tokens", "amount": 0, "window": "month"}])).await;
        let scope = RunScope { token_id: Some("t".to_owned()), ..scope("run") };
        let error = budgets(&process).reserve_call(&scope, demand(&process, 300), || true).await;
        let error = error.expect_err("no tokens");
        let refused = refusal(&error);
        assert_eq!(refused.kind, kind);
        assert_eq!(refused.resets_at, Some("2026-03-31T22:00:00Z".parse().expect("a time")));
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(48 * 60 * 60)));
        budgets(&process).delete(&COMPANY.into(), (kind, subject), Precondition::Any).await.expect("deleted");
    }
}

#[tokio::test]
async fn a_changed_zone_gives_no_day_or_month_twice() {
    let installation = Installation::at("2026-01-31T12:00:00Z");
    let process = installation.process();
    let month = || json!({"unit": "tokens", "amount": 1_000, "window": "month"});
    put_company(&process, month()).await;
    call(&process).await;
    put_in_zone(&process, month(), "Europe/Berlin").await;
    assert_eq!(amounts(&process).await, (300, 0), "both zones are in January");
    assert_eq!(end_of_window(&process).await, "2026-01-31T23:00:00Z");
    // It is 1 February in Tokyo.
    installation.clock.advance(Duration::from_secs(8 * 60 * 60));
    put_in_zone(&process, month(), "Asia/Tokyo").await;
    assert_eq!(amounts(&process).await, (0, 0));
    call(&process).await;
    // The usage of February stays used in a time zone where it is still January.
    put_in_zone(&process, month(), "UTC").await;
    for _ in 0..2 {
        assert_eq!(amounts(&process).await, (300, 0));
        assert_eq!(end_of_window(&process).await, "2026-03-01T00:00:00Z");
        installation.clock.advance(Duration::from_secs(4 * 60 * 60));
    }
    call(&process).await;
    assert_eq!(amounts(&process).await, (600, 0));
    let booked: u64 = installation.days().await.into_iter().map(|(_, tokens, _)| tokens).sum();
    assert_eq!(booked, 900, "the ledger has all of them");
}

#[tokio::test]
async fn a_budget_without_a_zone_of_the_company_is_one_of_utc() {
    let installation = Installation::at("2026-05-01T21:59:59Z");
    let process = installation.process();
    put_in_zone(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"}), "Europe/Berlin").await;
    assert_eq!(end_of_window(&process).await, "2026-05-01T22:00:00Z");
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"})).await;
    assert_eq!(end_of_window(&process).await, "2026-05-02T00:00:00Z");
}

#[tokio::test]
async fn the_first_window_begins_with_the_ledgers_utc_days() {
    let installation = Installation::at("2026-04-30T12:00:00Z");
    let process = installation.process();
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "month"})).await;
    call(&process).await;
    // The day in Berlin has started at 22:00 in UTC, and the ledger has one sum of the day of UTC.
    installation.clock.set("2026-05-01T12:00:00Z".parse::<jiff::Timestamp>().expect("a time").into());
    call(&process).await;
    put_in_zone(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"}), "Europe/Berlin").await;
    assert_eq!(amounts(&process).await, (600, 0));
    call(&process).await;
    assert_eq!(amounts(&process).await, (900, 0));
    installation.clock.advance(Duration::from_secs(10 * 60 * 60));
    call(&process).await;
    assert_eq!(amounts(&process).await, (300, 0), "the next window begins with nothing");
}
