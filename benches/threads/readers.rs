//! Time until readers of a run's log have its tokens, in its process and in another one over the same file.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::answer::Behaviour;
use benches::application::run_log;
use benches::comparison::{Bound, Comparison};
use benches::load::{Connection, Step};
use benches::measure::millis;
use benches::table::percentile;
use benches::wire::ResponseParser;
use futures_util::try_join;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::thread_app::{ThreadApp, app_over, stored_fields};

const CHUNKS: usize = 40;
const INTERVAL_MS: u64 = 50;
/// The readers attach during the silence.
const RUN: Behaviour = Behaviour::Later { after_ms: 600, chunks: CHUNKS, every_ms: INTERVAL_MS };
/// Number of runs at once, which begin apart from one another.
const RUNS: u32 = 8;
const BEGIN_INTERVAL: Duration = Duration::from_millis(67);
const SAME_PROCESS_LIMIT_MS: f64 = 5.0;
const OTHER_PROCESS_LIMIT_MS: f64 = 600.0;

/// Milliseconds of each token: by which the first client has it later than its pace, and by which readers in the run's
/// process and in another one have it later than the first client.
type Delays = [Vec<f64>; 3];

pub(crate) async fn measure(repeats: usize) -> Result<Vec<Comparison>> {
    let app = ThreadApp::start(app_over(), &[RUN])?;
    let other = app.start_another()?;
    let addresses = [app.running.address, other.address];
    let mut p99 = Delays::default();
    for _ in 0..repeats {
        let mut runs = JoinSet::new();
        for number in 0..RUNS {
            let id = agent_core::new_id();
            let (chat, log) = (app.chat(RUN, stored_fields(&id)), run_log(&app.token, &id, RUN));
            runs.spawn(async move {
                tokio::time::sleep(BEGIN_INTERVAL * number).await;
                follow(addresses, &chat, &log).await
            });
        }
        let mut delays = Delays::default();
        while let Some(run) = runs.join_next().await {
            for (all, of_run) in delays.iter_mut().zip(run??) {
                all.extend(of_run);
            }
        }
        for (p99, delays) in p99.iter_mut().zip(delays) {
            p99.push(percentile(delays, 99));
        }
    }
    let [pace, in_process, in_other] = &p99;
    Ok(vec![
        Comparison::new(
            "a token read in the process of its run, after the first client has it, p99, beside that client's own \
             delay",
            "ms",
            Bound::FigureAtMost(SAME_PROCESS_LIMIT_MS),
            pace,
            in_process,
        ),
        Comparison::new(
            "the same in another process over the same SQLite file, p99, beside that in the process of the run",
            "ms",
            Bound::FigureAtMost(OTHER_PROCESS_LIMIT_MS),
            in_process,
            in_other,
        ),
    ])
}

/// Runs a chat, whose log is read in both processes as soon as the run has started.
async fn follow([own, other]: [SocketAddr; 2], chat: &Step, log: &Step) -> Result<Delays> {
    let (started, has_started) = oneshot::channel();
    let readers = async {
        has_started.await.context("the run has not started")?;
        try_join!(token_times(own, log, None), token_times(other, log, None))
    };
    let (first, (same, other)) = try_join!(token_times(own, chat, Some(started)), readers)?;
    let interval = Duration::from_millis(INTERVAL_MS);
    let due = (0..).map(|token| first[0] + interval * token);
    Ok([delays(due, &first), delays(first.iter().copied(), &same), delays(first.iter().copied(), &other)])
}

/// Returns the milliseconds by which each token has come later than expected; 0 for one that has come earlier.
fn delays(expected: impl Iterator<Item = Instant>, times: &[Instant]) -> Vec<f64> {
    times
        .iter()
        .zip(expected)
        .map(|(time, expected)| millis(time.saturating_duration_since(expected)))
        .collect()
}

/// Reads a whole response, and returns the time of each token. Reports through `started` that the run has started.
async fn token_times(
    address: SocketAddr,
    step: &Step,
    mut started: Option<oneshot::Sender<()>>,
) -> Result<Vec<Instant>> {
    let mut times = Vec::new();
    let mut connection = Connection::open(address).await?;
    let observe = |reading: &ResponseParser| {
        if let Some(started) = started.take_if(|_| reading.has_started()) {
            // The readers are waiting.
            let _ = started.send(());
        }
        // Each token ends with a blank.
        times.resize(reading.text().matches(' ').count(), Instant::now());
    };
    connection.observe(step, observe).await?;
    ensure!(times.len() == CHUNKS, "{} tokens", times.len());
    Ok(times)
}
