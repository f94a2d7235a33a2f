//! Jobs whose budget is spent: they are not run, and are delivered again after the budget has been reset, each at a different time.

use std::collections::BTreeSet;

use agent_core::clock::SystemClock;
use agent_jobs::job::{Job, JobPayload, JobScope, NewJob};
use agent_jobs::schedule::Schedule;
use agent_platform::records::Precondition;
use agent_platform::usage::{Budget, BudgetKind, BudgetOptions, Budgets};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::support::expect_problem;
use crate::support::vendor::{Vendor, answer, delta, event, last_chunk, stream_head};

const JOBS: usize = 24;
const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// Longest requested delay of the scheduler, with its extension and the time that an answer may take.
const MAX_WAIT: SignedDuration = SignedDuration::from_hours(24);
const MAX_SPREAD: SignedDuration = SignedDuration::from_secs(90);

/// Sets the company's budget of tokens for this month.
async fn set_budget(stores: &Stores, tokens: u64) {
    let limit = json!({"unit": "tokens", "amount": tokens, "window": "month"});
    set_budget_of(stores, (BudgetKind::Company, "c1"), &limit).await;
}

/// Sets the budget of a subject.
async fn set_budget_of(stores: &Stores, subject: (BudgetKind, &str), limit: &Value) {
    let spawner = Arc::new(|task| drop(tokio::spawn(task)));
    let (records, usage) = (stores.records.clone(), stores.usage.clone());
    let budgets = Budgets::new(records, usage, Arc::new(SystemClock), spawner, BudgetOptions::default());
    let body = json!({ "limits": [limit] });
    let budget = Budget::read(subject.0, body.as_object().expect("an object")).expect("valid");
    budgets.put(&"c1".into(), subject, &budget, Precondition::Any).await.expect("written");
}

fn question() -> Value {
    json!({"kind": "agent", "userId": "u1", "companyId": "c1", "agentId": "a1", "message": "What is new?"})
}

#[tokio::test]
async fn postponed_jobs_are_spread_when_the_budget_resets() {
    let vendor = Vendor::start().await;
    let bench = open(&vendor.base_url(), &[]).await;
    set_budget(&bench.stores, 0).await;
    let response = deliver_callback(&bench.app, &delivery(question(), "j1", 1)).await;
    let wait: u64 = response.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
    let problem = expect_problem(response, 402, "BUDGET_EXCEEDED").await;
    let resets_at: Timestamp = problem["budget"]["resetsAt"].as_str().expect("text").parse().expect("a time");
    assert!(wait > 0 && wait.abs_diff(seconds_until(resets_at)) <= 30, "{wait}: {problem}");

    let start = Timestamp::now();
    let create = async |_| {
        let job = json!({"payload": question(), "delayMs": 0});
        let created = request_scheduler(&bench.scheduler, "POST", "/jobs", Some(&job)).await;
        created["jobId"].as_str().expect("an id").to_owned()
    };
    let ids = join_all((0..JOBS).map(create)).await;
    let mut seconds = BTreeSet::new();
    for id in ids {
        let path = format!("/jobs/{id}");
        let fetch = async || request_scheduler(&bench.scheduler, "GET", &path, None).await;
        let job = poll_until(fetch, |job| job["state"] == "retryable").await;
        assert_eq!(job["attempt"], 0, "the job has used up no attempt: {job}");
        assert_eq!(job["attempts"].as_array().map(Vec::len), Some(1), "{job}");
        assert_eq!(job["attempts"][0]["status"], 402, "{job}");
        assert!(job["lastError"].as_str().is_some_and(|error| error.contains("BUDGET_EXCEEDED")), "{job}");
        let due: Timestamp = job["executeAt"].as_str().expect("text").parse().expect("a time");
        let earliest = resets_at.min(start + MAX_WAIT);
        let latest = resets_at.min(Timestamp::now() + MAX_WAIT) + MAX_SPREAD;
        assert!((earliest..=latest).contains(&due), "{due} is not within {earliest} and {latest}: {job}");
        seconds.insert(due.as_second());
    }
    // All of them were asked to wait for the same time.
    assert!(seconds.len() >= 5, "{JOBS} jobs come in {} seconds", seconds.len());
    assert!(vendor.received().is_empty(), "no model was called");
}

/// A run that a job starts counts for the company, the agent and the user of the job, as one that the user starts.
#[tokio::test]
async fn a_scheduled_run_counts_towards_the_budgets_of_the_users_own_runs() {
    let vendor = Vendor::start().await;
    vendor.on_all(answer(&["The basil has grown."]));
    let limit = json!({"unit": "runs", "amount": 2, "window": "month"});
    for subject in [(BudgetKind::Company, "c1"), (BudgetKind::Agent, "a1"), (BudgetKind::User, "u1")] {
        let (app, stores) = app_without_scheduler(&vendor.base_url(), &[]).await;
        set_budget_of(&stores, subject, &limit).await;
        let chat = async || {
            let body = json!({"agentId": "a1", "message": "Hello", "store": false});
            app.chat_as(&session_token("u1", "c1"), "", &body).await
        };
        let own = chat().await;
        assert_eq!(own.status(), 200, "{subject:?}");
        own.text().await.expect("a whole body");
        let scheduled = deliver_callback(&app, &delivery(question(), "j1", 1)).await;
        assert!(scheduled.status().is_success(), "{subject:?}: {}", scheduled.status());
        expect_problem(chat().await, 402, "BUDGET_EXCEEDED").await;
        let scheduled = deliver_callback(&app, &delivery(question(), "j2", 1)).await;
        expect_problem(scheduled, 402, "BUDGET_EXCEEDED").await;
    }
}

/// Without the rule, a job with one attempt would get a dead letter by its first refusal.
#[tokio::test]
async fn an_occurrence_whose_budget_is_spent_waits_for_it_and_is_not_discarded() {
    let vendor = Vendor::start().await;
    vendor.on("m", [answer(&["The basil has grown."])]);
    let (stores, listener) = (server::stores(&workspace(&vendor.base_url())).await, server::bind().await);
    let callback = callback_url(&listener);
    let _app = app_on(listener, &stores, "http://127.0.0.1:9", &[]);
    set_budget(&stores, 0).await;

    let payload: JobPayload = serde_json::from_value(question()).expect("a payload");
    let an_hour_ago = Timestamp::now() - HOUR;
    let schedule = Schedule::Every { every: HOUR.unsigned_abs(), anchor: an_hour_ago };
    let job = Job::new(NewJob { max_attempts: 1, ..NewJob::new(payload, schedule) }, an_hour_ago);
    let path = format!("/jobs/{}", job.id);
    let (scheduler, jobs) = scheduler_with(&callback, job.clone()).await;
    let fetch = async || request_scheduler(&scheduler, "GET", &path, None).await;
    let waiting = poll_until(fetch, |job| job["state"] == "retryable").await;
    assert_eq!((&waiting["occurrence"], &waiting["attempt"]), (&json!(1), &json!(0)), "{waiting}");
    assert!(vendor.received().is_empty(), "no model was called");

    // The time for which it waits is over, and there is room in the budget.
    set_budget(&stores, 1_000_000).await;
    let waiting = jobs.get(&JobScope::default(), &job.id).await.expect("read").expect("the job");
    assert!(waiting.dead_letters.is_empty(), "{waiting:?}");
    let (scheduler, _) = scheduler_with(&callback, Job { due: Timestamp::now(), ..waiting }).await;
    let fetch = async || request_scheduler(&scheduler, "GET", &path, None).await;
    let done = poll_until(fetch, |job| job["occurrence"] == 2).await;
    assert_eq!((&done["state"], &done["lastError"]), (&json!("scheduled"), &Value::Null), "{done}");
    assert_eq!(vendor.received().len(), 1, "the occurrence has run once");
    assert_eq!(notification_texts(&stores).await.len(), 1);
}

/// A tool that is called without a model has no answer that could report the refusal.
#[tokio::test]
async fn the_call_of_a_tool_waits_for_its_budget_like_a_run() {
    for subject in [(BudgetKind::Company, "c1"), (BudgetKind::Agent, "a1"), (BudgetKind::User, "u1")] {
        let (app, stores) = app_without_scheduler("http://127.0.0.1:9/v1", &[]).await;
        let limit = |amount: u64| json!({"unit": "toolCalls", "amount": amount, "window": "month"});
        for (amount, titles) in [(0, &[][..]), (1, &["Sow"])] {
            set_budget_of(&stores, subject, &limit(amount)).await;
            if amount > 0 {
                let called = deliver_callback(&app, &delivery(create_todo("Sow"), "j1", 1)).await;
                assert!(called.status().is_success(), "{subject:?}: {}", called.status());
            }
            let refused = deliver_callback(&app, &delivery(create_todo("Reap"), "j2", 1)).await;
            let wait: u64 =
                refused.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
            let problem = expect_problem(refused, 402, "BUDGET_EXCEEDED").await;
            let end: Timestamp =
                problem["budget"]["resetsAt"].as_str().expect("text").parse().expect("a time");
            assert!(wait.abs_diff(seconds_until(end)) <= 30, "{wait}: {problem}");
            assert_eq!(todo_titles(&stores).await, titles, "{subject:?}");
        }
        set_budget_of(&stores, subject, &limit(2)).await;
        let called = deliver_callback(&app, &delivery(create_todo("Reap"), "j2", 1)).await;
        assert!(called.status().is_success(), "{subject:?}: {}", called.status());
        assert_eq!(todo_titles(&stores).await, ["Sow", "Reap"], "{subject:?}");
    }
}

/// The events of a run do not contain the time at which the budget is renewed.
#[tokio::test]
async fn a_run_out_of_budget_between_answers_waits_and_continues() {
    let vendor = Vendor::start().await;
    let arguments = json!({"title": "Sow"}).to_string();
    let call = json!({"index": 0, "id": "c1", "type": "function",
        "function": {"name": "createTodo", "arguments": arguments}});
    // It uses more than was left for it, as no vendor should.
    let usage = json!({"prompt_tokens": 20_000, "completion_tokens": 7, "total_tokens": 20_007});
    let first = vec![
        stream_head(),
        delta(json!({ "tool_calls": [call] })),
        event(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})),
        event(json!({"choices": [], "usage": usage})),
        event("[DONE]"),
        last_chunk(),
    ];
    vendor.on("m", [first, answer(&["It is on the list."])]);
    let (app, stores) = app_without_scheduler(&vendor.base_url(), &[]).await;
    set_budget(&stores, 10_000).await;
    let mut question = question();
    question["todoListId"] = "l1".into();
    let refused = deliver_callback(&app, &delivery(question.clone(), "j1", 1)).await;
    let wait: u64 = refused.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
    let problem = expect_problem(refused, 402, "BUDGET_EXCEEDED").await;
    let end: Timestamp = problem["budget"]["resetsAt"].as_str().expect("text").parse().expect("a time");
    assert!(wait.abs_diff(seconds_until(end)) <= 30, "{wait}: {problem}");
    assert_eq!((vendor.received().len(), todo_titles(&stores).await), (1, vec!["Sow".to_owned()]));

    set_budget(&stores, 1_000_000).await;
    let done = deliver_callback(&app, &delivery(question, "j1", 1)).await;
    assert!(done.status().is_success(), "{}", done.status());
    assert_eq!(vendor.received().len(), 2, "the first answer is not asked for again");
    assert_eq!(todo_titles(&stores).await, ["Sow"]);
    assert_eq!(notification_texts(&stores).await.len(), 1);
}

/// Starts a scheduler whose store has one job.
async fn scheduler_with(callback: &str, job: Job) -> (Server, Arc<dyn JobStore>) {
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    jobs.insert(vec![job]).await.expect("stored");
    (server::scheduler(jobs.clone(), callback, &[]).await, jobs)
}

fn seconds_until(time: Timestamp) -> u64 {
    u64::try_from(time.duration_since(Timestamp::now()).as_secs()).unwrap_or_default()
}
