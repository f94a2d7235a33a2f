//! Budgets that end between attempts, users who are deleted during a run, and visitors who spend what they may.

use std::num::NonZeroU32;
use std::sync::Arc;

use agent_core::clock::SystemClock;
use agent_platform::token::{Grant, NewToken, RunCaps, Tokens, WidgetGrant};
use agent_platform::usage::BudgetKind;
use agent_platform::workspace::delete_user;
use futures_util::future::join_all;
use serde_json::json;
use tokio::sync::watch;

use super::{UsageApp, budgets, put_budget};
use crate::support::server::session_token;
use crate::support::vendor::{Step, Vendor, answer, delta, event, last_chunk, stream_head, tool_calls};
use crate::support::{expect_problem, parse_events};

#[tokio::test]
async fn a_budget_that_ends_between_two_attempts_ends_the_run() {
    // The call that the budget refuses is a repetition, or that of the fallback.
    for attempts in ["1", "3"] {
        let healthy = Vendor::start().await;
        let fallback = json!([{"provider": "openai", "model": "m", "baseUrl": healthy.base_url()}]);
        let test = UsageApp::start_with(&[("MODEL_ATTEMPTS", attempts)], |agent, _| {
            agent["children"][0]["content"]["fallbacks"] = fallback;
        })
        .await;
        test.vendor.on("m", [vec![stream_head(), Step::Reset]]);
        // Without a budget, the fallback answers. Each call that broke off is booked with its prompt.
        let calls: usize = attempts.parse().expect("a number");
        let run = test.chat("u1", "Hello").await;
        let usage = test.booked(&run, calls + 1).await;
        let entries = usage["entries"].as_array().expect("entries");
        let cut_off = entries.iter().find(|entry| entry["estimated"] == true).expect("a call that broke off");
        let prompt = cut_off["inputTokens"].as_u64().expect("a number");
        assert_eq!((test.vendor.received().len(), healthy.received().len()), (calls, 1));

        // Enough for the prompt and the shortest answer once, and too little for it after one more prompt.
        let path = "/api/budgets/user/ada";
        let amount = 2 * prompt + prompt / 20 + 256 - 40;
        test.put(path, json!([{"unit": "tokens", "amount": amount, "window": "month"}])).await;
        let response = test.ask(&test.app, "ada", "").await;
        let events = parse_events(&response.text().await.expect("a whole body"));
        let ends =
            events.iter().filter(|event| event["type"] == "RUN_ERROR" || event["type"] == "RUN_FINISHED");
        let ends: Vec<_> = ends.map(|event| &event["code"]).collect();
        assert_eq!(ends, ["BUDGET_EXCEEDED"], "{events:?}");
        assert_eq!(
            (test.vendor.received().len(), healthy.received().len()),
            (calls + 1, 1),
            "no call is made beyond the budget"
        );
        let limit = test.settled(path).await;
        let used = limit["used"].as_u64().expect("a number");
        assert!(used > 0 && used.abs_diff(prompt) < 40, "the call that broke off, {prompt}: {limit}");
    }
}

#[tokio::test]
async fn the_run_of_a_deleted_user_is_booked() {
    let test = UsageApp::start().await;
    let gate = watch::Sender::new(false);
    let mut steps = tool_calls(&[("c1", "readTodos", "{}")]);
    steps.insert(1, Step::Until(gate.subscribe()));
    test.vendor.on("m", [steps, answer(&["Done."])]);
    let path = "/api/budgets/user/ada";
    test.put(path, json!([{"unit": "cost", "amount": "50", "window": "month"}])).await;
    let response = test.ask(&test.app, "ada", "").await;
    test.vendor.wait_for_requests("m", 1).await;
    let deleted = delete_user(&*test.stores.records, &"c1".into(), &"ada".into()).await.expect("deleted");
    assert_eq!(deleted.users, 1);
    gate.send_replace(true);
    let events = parse_events(&response.text().await.expect("a whole body"));
    let run = events[0]["runId"].as_str().expect("a run");
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED", "{events:?}");
    let usage = test.booked(run, 2).await;
    assert_eq!((&usage["userId"], &usage["cost"]), (&json!("ada"), &json!("0.000184000")), "{usage}");
    assert_eq!(test.settled(path).await["used"], "0.000184000");
    let rows = test.rows("boss", "groupBy=user").await;
    assert_eq!((&rows[0]["userId"], &rows[0]["cost"]), (&json!("ada"), &json!("0.000184000")), "{rows:?}");
}

/// Returns a short answer for which the vendor counts these tokens of input and output.
fn answer_with_usage(input: u64, output: u64) -> Vec<Step> {
    let usage = json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
    vec![
        stream_head(),
        delta(json!({"content": "Hi."})),
        event(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})),
        event(json!({"choices": [], "usage": usage})),
        event("[DONE]"),
        last_chunk(),
    ]
}

#[tokio::test]
async fn many_visitors_use_only_the_budgets_of_token_and_company() {
    let test = UsageApp::start().await;
    test.vendor.on_all(answer_with_usage(400, 100));
    let caps = RunCaps { runs_per_minute: NonZeroU32::new(10_000).expect("a cap"), runs_per_day: None };
    let grant = Grant::Widget(WidgetGrant { caps, ..WidgetGrant::default() });
    let tokens = Tokens::new(test.stores.records.clone(), Arc::new(SystemClock));
    let minted = tokens.mint(NewToken::new("c1", "a1", grant)).await.expect("minted");
    let (token_path, owner_path) =
        (format!("/api/budgets/token/{}", minted.token.id), "/api/budgets/user/u1");
    let tokens = |amount: u64| json!([{"unit": "tokens", "amount": amount, "window": "month"}]);
    test.put(&token_path, tokens(4_000)).await;
    test.put(owner_path, tokens(20_000)).await;
    put_budget(&test.stores, (BudgetKind::Company, "c1"), tokens(1_000_000)).await;
    let ask = async || {
        let request = test.app.request("POST", "/api/agent/chat").json(&json!({"message": "Hello"}));
        let response =
            request.header("x-widget-token", minted.text.expose()).send().await.expect("an answer");
        if response.status() == 200 {
            let events = parse_events(&response.text().await.expect("a whole body"));
            assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED", "{events:?}");
            return true;
        }
        let problem = expect_problem(response, 402, "BUDGET_EXCEEDED").await;
        assert_eq!(problem.get("budget"), None, "visitors receive only the error code");
        false
    };
    let mut answered = 0;
    loop {
        let flood = join_all((0..8).map(|_| ask())).await;
        answered += flood.iter().filter(|is_answered| **is_answered).count() as u64;
        if flood.iter().all(|is_answered| !is_answered) {
            break;
        }
    }
    assert!((1..=8).contains(&answered), "{answered} of 4,000 tokens");
    let used = answered * 500;
    assert_eq!(test.settled(&token_path).await["used"], used);
    let company = "c1".into();
    let budget = budgets(&test.stores).get(&company, BudgetKind::Company, "c1").await.expect("read");
    let (subject, budget) = ((BudgetKind::Company, "c1"), budget.expect("a budget").value);
    let status = budgets(&test.stores).status(&company, subject, &budget).await.expect("read");
    assert_eq!((status.limits[0].used, status.limits[0].reserved), (used as i64, 0));
    let of_owner = async || {
        let limit = test.settled(owner_path).await;
        (limit["used"].clone(), limit["reserved"].clone())
    };
    assert_eq!(of_owner().await, (json!(0), json!(0)), "the owner's budget is unused");
    let rows = test.rows("boss", "groupBy=user").await;
    let spent: Vec<_> = rows.iter().map(|row| (row["userId"].as_str(), &row["calls"])).collect();
    let visitors = format!("widget:{}", minted.token.id);
    assert_eq!(spent, [(Some(&*visitors), &json!(answered))], "{rows:?}");
    // The flood keeps the owner from nothing.
    let run = test.chat("u1", "Hello").await;
    test.booked(&run, 1).await;
    assert_eq!(of_owner().await, (json!(500), json!(0)));
    assert_eq!(test.settled(&token_path).await["used"], used, "the owner's run is not the token's");
}

#[tokio::test]
async fn a_limit_that_is_set_again_begins_with_what_was_used_meanwhile() {
    let test = UsageApp::start().await;
    let path = "/api/budgets/user/ada";
    let limits = json!([{"unit": "cost", "amount": "50", "window": "month"}]);
    let chat = async || {
        let run = test.chat("ada", "Hello").await;
        test.booked(&run, 1).await;
    };
    test.put(path, limits.clone()).await;
    chat().await;
    test.settled(path).await;
    let delete = test.app.request("DELETE", path).bearer_auth(session_token("boss", "c1"));
    assert_eq!(delete.send().await.expect("an answer").status(), 204);
    chat().await;
    test.put(path, limits.clone()).await;
    assert_eq!(test.settled(path).await["used"], "0.000184000");
    // The same for a limit that another one has replaced.
    test.put(path, json!([{"unit": "tokens", "amount": 1_000_000, "window": "day"}])).await;
    chat().await;
    test.put(path, limits).await;
    assert_eq!(test.settled(path).await["used"], "0.000276000");
}
