//! Default limits on the runs of a company and the tool calls of a run, and the budgets that replace them.

use super::runs::context;
use super::*;

#[tokio::test]
async fn concurrent_runs_have_a_default_limit_that_a_budget_replaces() {
    let installation = Installation::new();
    let process = installation.process_with(default_limits(0, 2, 0));
    let admit = async || budgets(&process).admit_run(&scope("run")).await.expect("below the limit");
    let (first, second) = (admit().await, admit().await);
    let refused = refused_run(&process).await;
    let seen = (refused.unit, refused.amount, refused.reserved, refused.is_rate);
    assert_eq!(seen, (BudgetUnit::ConcurrentRuns, 2, 2, true));
    assert_eq!(refused.policy_name().as_deref(), Some("company-concurrent"));
    let other = RunScope { company_id: "other".into(), ..scope("run") };
    budgets(&process).admit_run(&other).await.expect("another company");
    drop(first);
    let third = admit().await;
    refused_run(&process).await;
    put_company(&process, json!({"unit": "concurrentRuns", "amount": 1})).await;
    // The company's own limit begins without the runs that were admitted without it.
    let fourth = admit().await;
    let refused = refused_run(&process).await;
    assert_eq!((refused.amount, refused.reserved), (1, 1));
    assert!(budgets(&process).default_status(&COMPANY.into()).await.expect("read").is_empty());
    drop((second, third, fourth));
    budgets(&process).flush().await;
    admit().await;
}

#[tokio::test]
async fn the_default_limit_on_concurrent_runs_is_of_all_processes() {
    let installation = Installation::new();
    let processes = [(); 2].map(|()| installation.process_with(default_limits(0, 16, 0)));
    let admit_all = async |process: &UsageRecorder| {
        let mut runs = Vec::new();
        while let Ok(run) = budgets(process).admit_run(&scope("run")).await {
            runs.push(run);
        }
        runs
    };
    // A process admits an eighth of the limit without a commit.
    let admit = async || budgets(&processes[1]).admit_run(&scope("run")).await.expect("below the limit");
    let second = [admit().await, admit().await];
    let meters =
        Collection::of_platform("budgetMeters").and_then(|meters| meters.within(COMPANY)).expect("a name");
    assert_eq!(installation.records.count(&meters).await.expect("the store works"), 0);
    let mut first = admit_all(&processes[0]).await;
    assert_eq!(first.len(), 16);
    assert_eq!(admit_all(&processes[1]).await.len(), 0, "the first process has taken what the store gives");
    let refused = refused_run(&processes[1]).await;
    assert_eq!((refused.amount, refused.reserved), (16, 16));
    assert_eq!(refused.policy_name().as_deref(), Some("company-concurrent"));
    let reserved = async |process: &UsageRecorder| {
        let shown = budgets(process).default_status(&COMPANY.into()).await.expect("read");
        shown[0].1.reserved
    };
    assert_eq!(reserved(&processes[1]).await, 16);
    // A place that a process gives back is free for the others.
    drop(first.pop());
    budgets(&processes[0]).flush().await;
    let third = admit_all(&processes[1]).await;
    assert_eq!(third.len(), 1);
    refused_run(&processes[0]).await;
    drop((first, second, third));
    for process in &processes {
        budgets(process).flush().await;
        assert_eq!(reserved(process).await, 0);
    }
}

#[tokio::test]
async fn runs_of_a_company_per_minute_have_a_default_limit_over_all_processes() {
    let installation = Installation::new();
    let limits = default_limits(4, 0, 0);
    let processes = [installation.process_with(limits), installation.process_with(limits)];
    let mut runs = Vec::new();
    // Half of the limit is admitted at once, the rest by commits.
    while let Ok(run) = budgets(&processes[0]).admit_run(&scope("run")).await {
        runs.push(run);
    }
    assert_eq!(runs.len(), 4);
    let refused = refused_run(&processes[0]).await;
    assert_eq!((refused.unit, refused.amount, refused.used), (BudgetUnit::Runs, 4, 4));
    assert_eq!(refused.policy_name().as_deref(), Some("company-minute"));
    assert!(refused.retry_after().is_some_and(|wait| wait <= Duration::from_secs(15)), "{refused:?}");
    let shown = budgets(&processes[1]).default_status(&COMPANY.into()).await.expect("read");
    assert_eq!(
        shown.iter().map(|(kind, status)| (*kind, status.used)).collect::<Vec<_>>(),
        [(BudgetKind::Company, 4)]
    );
    // A limit for another period does not replace it.
    put_company(&processes[0], json!({"unit": "runs", "amount": 100, "window": "day"})).await;
    refused_run(&processes[0]).await;
    put_company(&processes[0], json!({"unit": "runs", "amount": 100, "window": "minute"})).await;
    budgets(&processes[0]).admit_run(&scope("run")).await.expect("the own limit");
}

#[tokio::test]
async fn the_commit_that_reserves_the_place_of_a_run_counts_it_per_minute() {
    let installation = Installation::new();
    let limits = default_limits(6, 8, 0);
    let processes = [installation.process_with(limits), installation.process_with(limits)];
    let mut runs = Vec::new();
    for _ in 0..6 {
        runs.push(budgets(&processes[0]).admit_run(&scope("run")).await.expect("below the limit"));
    }
    let refused = refused_run(&processes[0]).await;
    assert_eq!((refused.unit, refused.amount, refused.used), (BudgetUnit::Runs, 6, 6));
    assert_eq!(refused.policy_name().as_deref(), Some("company-minute"));
    // One place is the process's own. Nothing was counted in the background, since no time has passed.
    let shown = budgets(&processes[1]).default_status(&COMPANY.into()).await.expect("read");
    let shown: Vec<_> =
        shown.iter().map(|(_, status)| (status.limit.unit, status.used, status.reserved)).collect();
    assert_eq!(shown, [(BudgetUnit::Runs, 6, 0), (BudgetUnit::ConcurrentRuns, 0, 5)]);
    // A run whose place is refused is not counted.
    installation.clock.advance(Duration::from_secs(60));
    for _ in 0..2 {
        runs.push(budgets(&processes[0]).admit_run(&scope("run")).await.expect("a new minute"));
    }
    let refused = refused_run(&processes[0]).await;
    assert_eq!(refused.unit, BudgetUnit::ConcurrentRuns);
    let shown = budgets(&processes[0]).default_status(&COMPANY.into()).await.expect("read");
    assert_eq!((shown[0].1.limit.unit, shown[0].1.used), (BudgetUnit::Runs, 2));
}

/// A run that loses its thread to another one, or whose first call is refused, is not stored.
#[tokio::test]
async fn runs_that_are_not_stored_do_not_use_up_the_runs_per_minute() {
    // Without a commit, and by that which reserves the places.
    for concurrent in [0, 8] {
        let installation = Installation::new();
        let process = installation.process_with(default_limits(6, concurrent, 0));
        let admit = async |run: &str| process.admit_run(&context(run)).await;
        let used = async || {
            let shown = budgets(&process).default_status(&COMPANY.into()).await.expect("read");
            shown[0].1.used
        };
        let mut stored = Vec::new();
        for number in 0..6 {
            let lost = admit("lost").await.expect("below the limit");
            assert_eq!(used().await, number + 1, "an admitted run takes a place");
            drop(lost);
            assert_eq!(used().await, number);
            let run = admit(&number.to_string()).await.expect("below the limit");
            run.outcome().record_stored();
            stored.push(run);
        }
        let error = admit("more").await.expect_err("the limit is reached");
        assert_eq!(refusal(&error).policy_name().as_deref(), Some("company-minute"));
        drop(stored);
        assert_eq!(used().await, 6);
    }
}

#[tokio::test]
async fn runs_that_a_budget_refuses_do_not_use_up_the_runs_per_minute() {
    let installation = Installation::new();
    let process = installation.process_with(default_limits(8, 0, 0));
    put_company(&process, json!({"unit": "runs", "amount": 2, "window": "day"})).await;
    let used = async || {
        let shown = budgets(&process).default_status(&COMPANY.into()).await.expect("read");
        shown[0].1.used
    };
    let admit = async || budgets(&process).admit_run(&scope("run")).await.expect("two a day");
    let _runs = [admit().await, admit().await];
    for _ in 0..3 {
        assert_eq!(refused_run(&process).await.window, Some(BudgetWindow::Day));
        assert_eq!(used().await, 2);
    }
}

#[tokio::test]
async fn a_client_whose_runs_are_not_stored_is_refused_after_twice_the_limit() {
    let installation = Installation::new();
    let process = installation.process_with(default_limits(10, 0, 0));
    let mut attempts = 0;
    while let Ok(lost) = process.admit_run(&context("lost")).await {
        drop(lost);
        attempts += 1;
    }
    assert_eq!(attempts, 20);
    // A run whose commit may have been made counts.
    installation.clock.advance(Duration::from_secs(6));
    let unknown = process.admit_run(&context("unknown")).await.expect("one more");
    unknown.outcome().record_unknown();
    drop(unknown);
    refused_run(&process).await;
}

/// Identifiers of runs are unique among the runs of a user or a visitor only.
#[tokio::test]
async fn runs_of_others_with_the_same_id_have_limits_of_their_own() {
    let installation = Installation::new();
    let by_default = installation.process_with(default_limits(0, 0, 2));
    let limited = installation.process();
    let widget = || RunScope { user_id: "widget:t".into(), caller: Caller::Widget, ..scope("1") };
    let runs = [
        scope("1"),
        RunScope { user_id: "bob".into(), ..scope("1") },
        widget(),
        RunScope { visitor: Some("00".to_owned()), ..widget() },
        RunScope { visitor: Some("ff".to_owned()), ..widget() },
    ];
    let spend = async |process: &UsageRecorder, run: &RunScope| {
        for _ in 0..2 {
            budgets(process).admit_tool_call(run).await.expect("below the limit");
        }
        budgets(process).admit_tool_call(run).await.expect_err("the limit is reached");
    };
    for run in &runs {
        spend(&by_default, run).await;
    }
    let limits = json!([{"unit": "toolCalls", "amount": 2, "window": "run"}]);
    put(&limited, BudgetKind::Run, "guide", limits).await;
    for run in &runs {
        spend(&limited, run).await;
    }
}

#[tokio::test]
async fn the_tool_calls_of_a_run_have_a_default_limit() {
    let installation = Installation::new();
    let process = installation.process_with(default_limits(0, 0, 2));
    let call = async |run: &str| budgets(&process).admit_tool_call(&scope(run)).await;
    for _ in 0..2 {
        call("run").await.expect("below the limit");
    }
    let error = call("run").await.expect_err("the limit is reached");
    assert_eq!(error.kind(), AgentErrorKind::BudgetExceeded);
    assert_eq!(error.message(), "the run's budget of tool calls is spent");
    let other = RunScope { company_id: "other".into(), ..scope("run") };
    budgets(&process).admit_tool_call(&other).await.expect("a run of another company");
    let other = RunScope { user_id: "bob".into(), ..scope("run") };
    budgets(&process).admit_tool_call(&other).await.expect("a run of another user");
    for _ in 0..3 {
        call("").await.expect("not in a run");
    }
    put(&process, BudgetKind::Run, "guide", json!([{"unit": "toolCalls", "amount": 1, "window": "run"}]))
        .await;
    call("run").await.expect("the agent's own limit, whose count begins");
    call("run").await.expect_err("the agent's own limit");
}
