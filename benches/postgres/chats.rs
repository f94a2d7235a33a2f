//! Chats with the whole application, in separate processes.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use benches::answer::Behaviour;
use benches::application::{ChatCredential, StoreKind, chat, company_id, session};
use benches::comparison::{Bound, Comparison};
use benches::load::{self, Connection};
use benches::measure::millis;
use benches::subjects::{Bench, WORKER_THREADS};
use benches::table::{median, percentile};
use futures_util::future::try_join_all;

/// Number of requests of each subject per repeat, and of those before the first one.
const REQUESTS: usize = 1500;
const WARM_UP: usize = 200;
/// Number of connections, over all processes, and the time of a slice.
const CONNECTIONS: usize = 48;
const SLICE: Duration = Duration::from_millis(1500);
const PROCESSES: usize = 3;

fn app_over() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_app_over"))
}

/// Compares the time from a request to the first token over PostgreSQL with that over SQLite. The requests alternate.
pub(crate) async fn first_tokens(url: &str, bench: &Bench, repeats: usize) -> Result<Vec<Comparison>> {
    let sqlite = bench.start_over(StoreKind::Sqlite, app_over())?;
    let postgres = bench.start_over(StoreKind::Database(url), app_over())?;
    let (mut plain, mut chosen) = (Latencies::default(), Latencies::default());
    let token = session(company_id())?;
    let chat_with_id = || {
        let run_id = agent_core::new_id();
        [chat(ChatCredential::Session(&token), Some(&run_id))]
    };
    for _ in 0..repeats {
        // New connections, since the cores that the threads of a connection are scheduled on decide much of the result.
        let mut connections =
            [Connection::open(sqlite.address).await?, Connection::open(postgres.address).await?];
        let steps = [sqlite.steps(Behaviour::First), postgres.steps(Behaviour::First)];
        let mut times = [const { Vec::new() }; 4];
        for request in 0..WARM_UP + REQUESTS {
            for turn in 0..2 {
                let index = (request + turn) % 2;
                let plain = connections[index].exchange(&steps[index]).await?;
                let chosen = connections[index].exchange(&chat_with_id()).await?;
                if request >= WARM_UP {
                    times[index].push(millis(plain));
                    times[2 + index].push(millis(chosen));
                }
            }
        }
        let [sqlite, postgres, sqlite_chosen, postgres_chosen] = times;
        plain.add([sqlite, postgres]);
        chosen.add([sqlite_chosen, postgres_chosen]);
    }
    let bound = Bound::AtMost(1.1);
    Ok([
        plain.rows(
            "the first token of a chat with two documents and a memory, PostgreSQL beside SQLite",
            bound,
        ),
        chosen.rows("the same with a `runId` of the client, which is committed before", Bound::Unbounded),
    ]
    .concat())
}

/// Medians and tails of the repeats, of the reference and of the subject.
#[derive(Default)]
struct Latencies {
    p50: [Vec<f64>; 2],
    p99: [Vec<f64>; 2],
}

impl Latencies {
    fn add(&mut self, times: [Vec<f64>; 2]) {
        for (index, times) in times.into_iter().enumerate() {
            self.p50[index].push(median(times.clone()));
            self.p99[index].push(percentile(times, 99));
        }
    }

    fn rows(&self, description: &str, bound: Bound) -> Vec<Comparison> {
        vec![
            Comparison::new(format!("{description}, p50"), "ms", bound, &self.p50[0], &self.p50[1]),
            Comparison::new("the same, p99", "ms", bound, &self.p99[0], &self.p99[1]),
        ]
    }
}

/// Compares the runs per second of several processes over one database with those of one: with as many worker threads
/// in each as the one has, and with one in each.
pub(crate) async fn processes(url: &str, bench: &Bench, repeats: usize) -> Result<Vec<Comparison>> {
    let single = bench.start_over(StoreKind::Database(url), app_over())?;
    let start = |worker_threads| {
        let replicas = (0..PROCESSES).map(|_| bench.start_replica(url, app_over(), worker_threads));
        replicas.collect::<Result<Vec<_>>>()
    };
    let (equal, small) = (start(WORKER_THREADS)?, start("1")?);
    let subjects = [vec![single], small, equal];
    let addresses = subjects.each_ref().map(|all| all.iter().map(|each| each.address).collect::<Vec<_>>());
    let mut figures = [const { [const { Vec::new() }; 3] }; 2];
    for addresses in &addresses {
        runs_per_second(addresses, SLICE / 3, true).await?;
    }
    for repeat in 0..repeats {
        for turn in 0..subjects.len() {
            let index = (repeat + turn) % subjects.len();
            for (figures, has_run_id) in figures.iter_mut().zip([true, false]) {
                figures[index].push(runs_per_second(&addresses[index], SLICE, has_run_id).await?);
            }
        }
    }
    let [with_run_id, without] = &figures;
    let row = |description: String, bound, [reference, ..]: &[Vec<f64>; 3], figures: &Vec<f64>| {
        Comparison::new(description, "/s", bound, reference, figures)
    };
    let description = format!(
        "runs with a `runId`, {CONNECTIONS} connections: {PROCESSES} processes of one worker thread over one database, \
         beside one process of {WORKER_THREADS}"
    );
    let of_many = format!("the same, {WORKER_THREADS} worker threads in each process");
    let bound = Bound::AtLeast(1.0);
    Ok(vec![
        row(description, bound, with_run_id, &with_run_id[1]),
        row(of_many.clone(), bound, with_run_id, &with_run_id[2]),
        row(
            "runs without a `runId`, which commit nothing".to_owned(),
            Bound::Unbounded,
            without,
            &without[1],
        ),
        row(of_many, Bound::Unbounded, without, &without[2]),
    ])
}

/// Runs chats, with new run ids or without, on connections that are spread over the processes.
async fn runs_per_second(addresses: &[SocketAddr], time: Duration, has_run_id: bool) -> Result<f64> {
    let token = &session(company_id())?;
    let opened =
        try_join_all(addresses.iter().map(|address| load::connect(*address, CONNECTIONS / addresses.len())));
    let connections: Vec<Connection> = opened.await?.into_iter().flatten().collect();
    let started = Instant::now();
    let run = async |mut connection: Connection| {
        let mut runs = 0;
        while started.elapsed() < time {
            let run_id = agent_core::new_id();
            let step = chat(ChatCredential::Session(token), has_run_id.then_some(&run_id));
            connection.exchange(&[step]).await.context("a run")?;
            runs += 1;
        }
        anyhow::Ok(runs)
    };
    let runs: usize = try_join_all(connections.into_iter().map(run)).await?.into_iter().sum();
    Ok(runs as f64 / started.elapsed().as_secs_f64())
}
