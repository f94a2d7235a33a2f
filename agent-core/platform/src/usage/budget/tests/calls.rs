//! Admission and settlement of calls: reservations, shorter answers, waits, and what lost processes leave.

use super::*;

#[tokio::test]
async fn a_call_reserves_the_most_that_it_can_use() {
    let installation = Installation::new();
    let process = installation.process();
    assert!(
        budgets(&process)
            .reserve_call(&scope("run"), demand(&process, 100), || true)
            .await
            .unwrap()
            .is_none()
    );
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"})).await;
    let (first, output) = reserve(&process, 500).await.expect("within the limit");
    assert_eq!((output, amounts(&process).await), (500, (0, 521)));
    let (second, output) = reserve(&process, 500).await.expect("with a shorter answer");
    assert_eq!((output, amounts(&process).await), (458, (0, 1_000)));
    settle(&process, first, 20, 30).await;
    assert_eq!(amounts(&process).await, (50, 479));
    drop(second);
    budgets(&process).flush().await;
    assert_eq!(amounts(&process).await, (50, 0));
}

#[tokio::test]
async fn a_budget_is_spent_to_its_last_part_and_not_beyond() {
    let installation = Installation::new();
    let process = installation.process();
    put_company(&process, json!({"unit": "cost", "amount": "0.01", "window": "month"})).await;
    // 21 tokens of input cost 21,000, and 256 of output 2,560,000 nano-dollars.
    let mut outputs = Vec::new();
    let error = loop {
        match reserve(&process, 400).await {
            Ok((reservation, output)) => {
                outputs.push(output);
                settle(&process, reservation, 21, output).await;
            }
            Err(error) => break error,
        }
    };
    assert_eq!(outputs, [400, 400]);
    assert_eq!(amounts(&process).await, (8_042_000, 0));
    let refused = refusal(&error);
    assert_eq!((error.kind(), refused.is_rate), (AgentErrorKind::BudgetExceeded, false));
    assert_eq!((refused.amount, refused.used, refused.reserved), (10_000_000, 8_042_000, 0));
    assert_eq!(refused.resets_at, Some("2026-02-01T00:00:00Z".parse().expect("a time")));
    assert_eq!(
        error.message(),
        "the company's budget of cost for this month has too little left for the request"
    );
    assert_eq!(error.members()[0].1["used"], "0.008042000");
}

#[tokio::test]
async fn the_rest_of_a_budget_shortens_the_answer() {
    let installation = Installation::new();
    let process = installation.process();
    put_company(&process, json!({"unit": "cost", "amount": "0.003", "window": "month"})).await;
    let (reservation, output) = reserve(&process, 4_000).await.expect("a shorter answer");
    assert_eq!(output, 297);
    settle(&process, reservation, 21, output).await;
    let error = reserve(&process, 1).await.expect_err("nothing is left for the prompt");
    assert_eq!(error.kind(), AgentErrorKind::BudgetExceeded);
    let fixed = budgets(&process).reserve_call(&scope("run"), demand(&process, 400), || false).await;
    assert_eq!(fixed.expect_err("no room").kind(), AgentErrorKind::BudgetExceeded);
}

#[tokio::test]
async fn visitors_get_the_error_code_only() {
    let installation = Installation::new();
    let process = installation.process();
    put(&process, BudgetKind::Token, "t", json!([{"unit": "tokens", "amount": 0, "window": "day"}])).await;
    let visitor = RunScope { user_id: "widget:t".into(), caller: Caller::Widget, ..scope("run") };
    let error = budgets(&process).reserve_call(&visitor, demand(&process, 9), || true).await;
    let error = error.expect_err("no tokens");
    assert_eq!((error.kind(), error.members().len()), (AgentErrorKind::BudgetExceeded, 0));
    assert!(!error.message().contains("token") && error.retry_after().is_some(), "{error}");
    let owner = budgets(&process).reserve_call(&scope("run"), demand(&process, 9), || true).await;
    assert!(owner.expect("the user's own calls").is_none());
}

#[tokio::test]
async fn the_budgets_of_an_api_token_and_its_user_both_apply() {
    let installation = Installation::new();
    let process = installation.process();
    let limit = |amount: u64| json!([{"unit": "tokens", "amount": amount, "window": "day"}]);
    put(&process, BudgetKind::Token, "t", limit(100)).await;
    put(&process, BudgetKind::User, "ada", limit(1_000)).await;
    let by_token = |id: &str| RunScope { token_id: Some(id.to_owned()), ..scope("run") };
    let reserve = async |scope: RunScope| {
        let reserved = budgets(&process).reserve_call(&scope, demand(&process, 60), || false).await;
        reserved.map(|reserved| reserved.expect("a budget").0)
    };
    let reservation = reserve(by_token("t")).await.expect("81 of 100 tokens");
    settle(&process, reservation, 20, 60).await;
    let error = reserve(by_token("t")).await.expect_err("20 tokens are left");
    assert_eq!((refusal(&error).kind, refusal(&error).used), (BudgetKind::Token, 80));
    for scope in [by_token("u"), scope("run")] {
        let reservation = reserve(scope).await.expect("the budget of the user");
        settle(&process, reservation, 20, 60).await;
    }
    budgets(&process).flush().await;
    let company = COMPANY.into();
    let of_user = (BudgetKind::User, "ada");
    let budget =
        budgets(&process).get(&company, of_user.0, of_user.1).await.expect("read").expect("a budget");
    let status = budgets(&process).status(&company, of_user, &budget.value).await.expect("read");
    assert_eq!(status.limits[0].used, 240, "the calls of tokens are its user's too");
}

#[tokio::test]
async fn a_call_waits_for_what_others_have_reserved() {
    let installation = Installation::new();
    let (process, other) = (installation.process(), installation.process());
    put_company(&process, json!({"unit": "tokens", "amount": 600, "window": "day"})).await;
    let (reservation, _) = reserve(&other, 500).await.expect("the first");
    let waiting = tokio::spawn({
        let process = process.clone();
        async move {
            reserve(&process, 500).await.map(|(reservation, output)| (reservation.id().to_owned(), output))
        }
    });
    installation.clock.wait_for_sleepers(1).await;
    settle(&other, reservation, 20, 10).await;
    while !waiting.is_finished() {
        installation.clock.advance(Duration::from_millis(200));
        tokio::task::yield_now().await;
    }
    let (_, output) = waiting.await.expect("no panic").expect("admitted");
    assert_eq!(output, 500);
    budgets(&process).flush().await;
    let (reservation, _) = reserve(&other, 500).await.expect("the first");
    let waiting = reserve(&process, 500);
    let mut waiting = std::pin::pin!(waiting);
    let error = loop {
        if let std::task::Poll::Ready(result) = futures_util::poll!(waiting.as_mut()) {
            break result.expect_err("no reservation is released in time");
        }
        installation.clock.advance(Duration::from_millis(200));
        tokio::task::yield_now().await;
    };
    assert_eq!(refusal(&error).reserved, 521);
    drop(reservation);
}

#[tokio::test]
async fn concurrent_processes_never_exceed_a_limit_and_use_it_up() {
    let installation = Installation::new();
    let amount = 100_000;
    let processes: Vec<UsageRecorder> = (0..3).map(|_| installation.process()).collect();
    put_company(&processes[0], json!({"unit": "tokens", "amount": amount, "window": "day"})).await;
    let clients = (0..64).map(|client| {
        let process = processes[client % 3].clone();
        async move {
            let mut admitted = 0;
            loop {
                match reserve(&process, 400).await {
                    Ok((reservation, output)) => {
                        admitted += 1;
                        process.book(
                            vec![used(&reservation, 20, output.min(100 + 3 * client as u64))],
                            Some(reservation),
                            None,
                        );
                        process.flush().await;
                    }
                    Err(_) => return admitted,
                }
            }
        }
    });
    let watched = async {
        loop {
            let (used, reserved) = amounts(&processes[0]).await;
            assert!(used + reserved <= amount, "{used} + {reserved}");
            installation.clock.advance(Duration::from_millis(1));
            tokio::task::yield_now().await;
        }
    };
    let admitted: Vec<u64> = tokio::select! {
        admitted = futures_util::future::join_all(clients) => admitted,
        () = watched => unreachable!(),
    };
    let (used, reserved) = amounts(&processes[0]).await;
    assert_eq!(reserved, 0);
    assert!(used >= amount * 99 / 100 && used <= amount, "{used}");
    assert!(admitted.iter().all(|count| *count > 0), "{admitted:?}");
    let booked = installation.usage.run_usage(&COMPANY.into(), &"run".into()).await.expect("entries");
    let sum: u64 = booked.iter().map(|entry| entry.tokens.input_tokens + entry.tokens.output_tokens).sum();
    assert_eq!((sum, booked.len() as u64), (used as u64, admitted.iter().sum()));
}

#[tokio::test]
async fn a_lost_process_is_booked_with_what_it_had_reserved() {
    let installation = Installation::new();
    let (lost, process) = (installation.process(), installation.process());
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"})).await;
    let (unbooked, _) = reserve(&lost, 300).await.expect("admitted");
    let (booked, _) = reserve(&lost, 300).await.expect("admitted");
    let entry = UsageEntry { ended_at: process.now(), ..used(&booked, 20, 5) };
    installation.usage.book(vec![entry]).await.expect("booked");
    let run = budgets(&lost).admit_run(&scope("run")).await.expect("no limit on runs");
    assert!(run.reservation.0.is_none());
    // The process ends without settling anything.
    for reservation in [unbooked, booked] {
        std::mem::forget(reservation);
    }
    let inventory: &dyn Inventory = &*installation.records;
    let mut sweep = ReservationSweep::default();
    assert!(sweep.settle_page(inventory, budgets(&process), &process).await.expect("a page"));
    assert_eq!(amounts(&process).await, (0, 642), "the leases are not over");
    installation.clock.advance(Duration::from_secs(61));
    for _ in 0..2 {
        let mut sweep = ReservationSweep::default();
        while sweep.settle_page(inventory, budgets(&process), &process).await.expect("a page") {}
        assert_eq!(amounts(&process).await, (321 + 25, 0));
    }
    let entries = installation.usage.run_usage(&COMPANY.into(), &"run".into()).await.expect("entries");
    assert_eq!(entries.len(), 2);
    let lost = entries.iter().find(|entry| entry.outcome == "lost").expect("the lost call");
    assert_eq!((lost.estimated, lost.cost), (true, Some(NanoUsd::new(21_000 + 3_000_000))));
}

#[tokio::test]
async fn a_meter_begins_with_what_the_ledger_has() {
    let installation = Installation::new();
    let process = installation.process();
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "month"})).await;
    let (reservation, _) = reserve(&process, 300).await.expect("admitted");
    settle(&process, reservation, 20, 280).await;
    let limits = json!([{"unit": "tokens", "amount": 700, "window": "day"}]);
    put(&process, BudgetKind::User, "ada", limits).await;
    let error = reserve(&process, 500).await.map(|(_, output)| output);
    assert_eq!(error.expect("a shorter answer"), 379, "300 of 700 are used by the ledger");
    installation.clock.advance(Duration::from_secs(24 * 60 * 60));
    budgets(&process).flush().await;
    assert_eq!(reserve(&process, 500).await.expect("the next day").1, 500);
}

#[tokio::test]
async fn a_model_without_a_price_is_refused_where_the_cost_is_limited() {
    let installation = Installation::new();
    let process = installation.process();
    put_company(&process, json!({"unit": "cost", "amount": "5", "window": "month"})).await;
    let unpriced = CallDemand { model: "new".to_owned(), price: None, ..demand(&process, 10) };
    let error = budgets(&process).reserve_call(&scope("run"), unpriced, || true).await;
    let error = error.expect_err("no price");
    assert_eq!(error.kind(), AgentErrorKind::PriceUnknown);
    assert!(error.message().contains("\"new\""), "{error}");
}

#[tokio::test]
async fn a_lowered_limit_and_a_used_one_refuse() {
    let installation = Installation::new();
    let process = installation.process();
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"})).await;
    let (reservation, _) = reserve(&process, 300).await.expect("admitted");
    put_company(&process, json!({"unit": "tokens", "amount": 10, "window": "day"})).await;
    let error = reserve(&process, 300).await.expect_err("beyond the new limit");
    assert_eq!((refusal(&error).amount, refusal(&error).reserved), (10, 321));
    settle(&process, reservation, 20, 300).await;
    assert_eq!(amounts(&process).await, (320, 0));
    let error = reserve(&process, 1).await.expect_err("more is used than the new limit");
    assert_eq!((refusal(&error).amount, refusal(&error).used), (10, 320));
    // Absurd reports do not overflow.
    put_company(&process, json!({"unit": "tokens", "amount": 1_000_000_000_000_000i64, "window": "day"}))
        .await;
    let (reservation, _) = reserve(&process, 300).await.expect("admitted");
    settle(&process, reservation, u64::MAX, u64::MAX).await;
    assert_eq!(amounts(&process).await, (i64::MAX, 0));
    assert!(installation.clock.now() > std::time::UNIX_EPOCH);
}

#[tokio::test]
async fn the_requests_that_wait_are_bounded() {
    let installation = Installation::new();
    let process = installation.process();
    put_company(&process, json!({"unit": "tokens", "amount": 600, "window": "day"})).await;
    let (reservation, _) = reserve(&process, 500).await.expect("the first");
    let mut waiting: Vec<_> = (0..1_000).map(|_| Box::pin(reserve(&process, 500))).collect();
    for request in &mut waiting {
        assert!(futures_util::poll!(request).is_pending());
    }
    // The task has taken them, and waits for a settlement.
    installation.clock.wait_for_sleepers(1).await;
    let error = reserve(&process, 500).await.expect_err("one too many");
    assert_eq!(error.kind(), AgentErrorKind::StoreUnavailable);
    waiting.truncate(10);
    installation.clock.advance(Duration::from_millis(200));
    installation.clock.wait_for_sleepers(1).await;
    let mut next = std::pin::pin!(reserve(&process, 500));
    assert!(futures_util::poll!(next.as_mut()).is_pending(), "those that have left do not count");
    drop(reservation);
}

/// More calls of a user wait than one commit decides about.
#[tokio::test]
async fn calls_that_wait_delay_no_call_of_another_user() {
    let installation = Installation::new();
    let process = installation.process();
    for user in ["ada", "bob"] {
        let limits = json!([{"unit": "tokens", "amount": 600, "window": "day"}]);
        put(&process, BudgetKind::User, user, limits).await;
    }
    let (reservation, _) = reserve(&process, 579).await.expect("the whole budget");
    let mut waiting: Vec<_> = (0..200).map(|_| Box::pin(reserve(&process, 500))).collect();
    for request in &mut waiting {
        assert!(futures_util::poll!(request).is_pending());
    }
    let of_bob = RunScope { user_id: "bob".into(), ..scope("run") };
    let mut reserving = pin!(budgets(&process).reserve_call(&of_bob, demand(&process, 500), || true));
    let mut reserved = None;
    for _ in 0..1_000 {
        if let Poll::Ready(result) = futures_util::poll!(reserving.as_mut()) {
            reserved = Some(result);
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(matches!(reserved, Some(Ok(Some((_, 500))))), "no time has passed");
    drop(reservation);
}
