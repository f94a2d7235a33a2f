//! Limits of users per minute, counted over all processes.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agent_platform::records::{Collection, ListQuery};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{SharedDatabase, over_both};
use crate::support::server::{self, Server, session_token};
use crate::support::{expect_problem, poll_until};

/// Runs per minute of each user.
const LIMIT: usize = 20;
/// Time after which a user who has reached the limit may begin another run.
const INTERVAL: Duration = Duration::from_secs(3);

/// Three applications with separate stores over one database.
async fn start_three(database: &SharedDatabase) -> [Server; 3] {
    let url = database.test_database.url();
    let limit = LIMIT.to_string();
    let settings =
        [("DATABASE_URL", &*url), ("DATA_SECRET", "data-secret-canary"), ("RUNS_PER_MINUTE", &limit)];
    let start = async || server::app_with_config(server::app_config(&settings), database.open().await).await;
    [start().await, start().await, start().await]
}

/// Starts a run of the user `u1`. Returns true if it is admitted, and checks the refusal otherwise.
async fn is_admitted(process: &Server) -> bool {
    let body = json!({"agentId": "a1", "message": "Hello"});
    let response = process.chat_as(&session_token("u1", "c1"), "", &body).await;
    if response.status() == 200 {
        response.text().await.expect("a whole body");
        return true;
    }
    let header = |name: &str| response.headers()[name].to_str().expect("text").to_owned();
    assert!((1..=33).contains(&header("retry-after").parse::<u64>().expect("seconds")));
    assert_eq!(header("ratelimit-policy"), format!("\"minute\";q={LIMIT};w=60"));
    expect_problem(response, 429, "RATE_LIMITED").await;
    false
}

/// Returns the number of runs that the limit admits in the time since `began`, beyond the first ones.
fn admitted_later(began: Instant) -> usize {
    usize::try_from(began.elapsed().as_millis() / INTERVAL.as_millis()).expect("few")
}

#[tokio::test]
async fn a_burst_at_n_processes_exceeds_the_limit_by_half_per_further_process() {
    over_both(a_burst_is_bounded_over).await;
}

async fn a_burst_is_bounded_over(database: SharedDatabase) {
    let processes = start_three(&database).await;
    let start = Instant::now();
    let burst = join_all((0..3 * LIMIT).map(|number| is_admitted(&processes[number % 3]))).await;
    let mut admitted = burst.into_iter().filter(|is_admitted| *is_admitted).count();
    // A process that has admitted less than half of the limit may still admit some.
    for process in &processes {
        while is_admitted(process).await {
            admitted += 1;
        }
    }
    let later = admitted_later(start);
    let bound = LIMIT + later + 2 * (LIMIT.div_ceil(2) + later);
    assert!((LIMIT..=bound).contains(&admitted), "{admitted} of {bound}");
}

#[tokio::test]
async fn a_users_limit_is_exact_for_processes_that_know_of_each_other() {
    over_both(the_limit_is_exact_over).await;
}

async fn the_limit_is_exact_over(database: SharedDatabase) {
    let processes = start_three(&database).await;
    let records = database.open().await.records;
    let counts = Collection::of_platform("userRates").and_then(|rates| rates.within("c1")).expect("a name");
    let counted = async |began: SystemTime| {
        let page = records.list(&counts, &ListQuery::default()).await.expect("the store works");
        let Some(record) = page.records.first() else { return 0 };
        let state: Value = serde_json::from_str(record.value.get()).expect("JSON");
        let arrival = Duration::from_micros(state["arrivalMicros"].as_u64().expect("a time"));
        let used = arrival.saturating_sub(began.duration_since(UNIX_EPOCH).expect("after 1970"));
        used.as_millis() / INTERVAL.as_millis()
    };
    let (began, began_at) = (Instant::now(), SystemTime::now());
    let mut admitted = 0;
    // The first process admits more than half of the limit. Each of the others learns of it by its first run.
    for (process, runs) in processes.iter().zip([14, 1, 1]) {
        for _ in 0..runs {
            assert!(is_admitted(process).await);
            admitted += 1;
        }
        poll_until(async || counted(began_at).await, |counted| *counted >= admitted as u128).await;
    }
    while is_admitted(&processes[admitted % 3]).await {
        admitted += 1;
    }
    for process in &processes {
        admitted += usize::from(is_admitted(process).await);
    }
    assert!((LIMIT..=LIMIT + admitted_later(began)).contains(&admitted), "{admitted}");
    let page = records.list(&counts, &ListQuery::default()).await.expect("the store works");
    let ids: Vec<&str> = page.records.iter().map(|record| record.id.as_str()).collect();
    assert_eq!(ids, ["u1/runs"]);
}
