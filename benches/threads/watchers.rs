//! Readers of runs that their clients read, too: the pace of the runs, and what a reader costs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use benches::answer::Behaviour;
use benches::application::run_log;
use benches::comparison::{Bound, Comparison};
use benches::load::{Connection, Step};
use benches::measure::millis;
use benches::process::CpuTime;
use benches::wire::ResponseParser;
use futures_util::future::try_join_all;
use futures_util::try_join;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::thread_app::{ThreadApp, app_over, stored_fields};

const RUNS: usize = 64;
/// Number of readers of each run, as many as it may have.
const WATCHERS: usize = 32;
const CHUNKS: usize = 15;
/// Time before the first token, in which all streams are opened and the CPU time before the tokens is read.
const SILENCE_MS: u64 = 1_300;
const RUN: Behaviour = Behaviour::Later { after_ms: SILENCE_MS, chunks: CHUNKS, every_ms: 100 };
/// Time over which the runs begin, so that their tokens are spread like those of independent users.
const SPREAD: Duration = Duration::from_millis(500);
/// Maximum number of attempts of a load whose streams were not all open in time.
const ATTEMPTS: usize = 3;

pub(crate) async fn measure(repeats: usize) -> Result<Vec<Comparison>> {
    let app = ThreadApp::start(app_over(), &[RUN])?;
    let (mut alone, mut watched) = (Vec::new(), Vec::new());
    let (mut of_stream, mut of_watcher) = (Vec::new(), Vec::new());
    for _ in 0..repeats {
        let without = Load { runs: RUNS, watchers: 0, is_stored: true }.run(&app).await?;
        let with = Load { runs: RUNS, watchers: WATCHERS, is_stored: true }.run(&app).await?;
        let plain = Load { runs: RUNS * WATCHERS, watchers: 0, is_stored: false }.run(&app).await?;
        alone.push(without.pace_ms);
        watched.push(with.pace_ms);
        let per_thousand = |used: Duration| millis(used) * 1000.0 / (RUNS * WATCHERS * CHUNKS) as f64;
        of_stream.push(per_thousand(plain.used));
        of_watcher.push(per_thousand(with.used.saturating_sub(without.used)));
    }
    Ok(vec![
        Comparison::new(
            "64 stored runs with 32 readers each: time from the first token to the end, beside without readers",
            "ms",
            Bound::AtMost(1.05),
            &alone,
            &watched,
        ),
        Comparison::new(
            "CPU of such a reader per 1,000 chunks, beside one of 2,048 streams that are not stored",
            "ms",
            Bound::AtMost(1.0),
            &of_stream,
            &of_watcher,
        ),
    ])
}

/// Runs that are sent at about the same time.
#[derive(Clone, Copy)]
struct Load {
    runs: usize,
    /// Number of readers of each run.
    watchers: usize,
    is_stored: bool,
}

/// Figures of a load.
struct LoadFigures {
    /// Mean time of a run from its first token to its end, for its first client.
    pace_ms: f64,
    /// CPU time of the process from before the first token to the end.
    used: Duration,
}

impl Load {
    async fn run(self, app: &ThreadApp) -> Result<LoadFigures> {
        for _ in 0..ATTEMPTS {
            if let Some(figures) = self.attempt(app).await? {
                return Ok(figures);
            }
        }
        bail!("{} streams were not open in {SILENCE_MS} ms", self.runs * (1 + self.watchers))
    }

    /// Sends the runs once; `None` if a stream was opened after the first token.
    async fn attempt(self, app: &ThreadApp) -> Result<Option<LoadFigures>> {
        let (opened, begun) = (Arc::new(AtomicUsize::new(0)), Instant::now());
        let mut runs = JoinSet::new();
        for number in 0..self.runs {
            let id = agent_core::new_id();
            let fields = if self.is_stored { stored_fields(&id) } else { json!({}) };
            let run = WatchedRun {
                address: app.running.address,
                chat: app.chat(RUN, fields),
                log: run_log(&app.token, &id, RUN),
                watchers: self.watchers,
                opened: opened.clone(),
            };
            let delay = SPREAD.mul_f64(number as f64 / self.runs as f64);
            runs.spawn(async move {
                sleep(delay).await;
                run.run().await
            });
        }
        let silence = Duration::from_millis(SILENCE_MS);
        while opened.load(Ordering::Relaxed) < self.runs * (1 + self.watchers) {
            if let Some(ended) = runs.try_join_next() {
                ended??;
            }
            if begun.elapsed() >= silence {
                return Ok(None);
            }
            sleep(Duration::from_millis(1)).await;
        }
        let before = CpuTime::when_idle(&app.running.processes)?;
        if begun.elapsed() >= silence {
            return Ok(None);
        }
        let mut paces = Duration::ZERO;
        while let Some(ended) = runs.join_next().await {
            paces += ended??;
        }
        let used = CpuTime::when_idle(&app.running.processes)?.since(&before);
        Ok(Some(LoadFigures { pace_ms: millis(paces) / self.runs as f64, used }))
    }
}

/// A run with the readers of its log.
struct WatchedRun {
    address: SocketAddr,
    chat: Step,
    log: Step,
    watchers: usize,
    /// Number of streams of the load that have started.
    opened: Arc<AtomicUsize>,
}

impl WatchedRun {
    /// Runs the chat and the readers, which attach when the run has started. Returns the time from the first token to the
    /// end, for the client.
    async fn run(&self) -> Result<Duration> {
        let started = watch::Sender::new(false);
        let mut has_started = started.subscribe();
        let watchers = async {
            if self.watchers > 0 {
                has_started.wait_for(|started| *started).await.context("the run has not started")?;
            }
            try_join_all((0..self.watchers).map(|_| self.read(&self.log, None))).await
        };
        let (pace, _) = try_join!(self.read(&self.chat, Some(&started)), watchers)?;
        Ok(pace)
    }

    /// Reads a response, and reports through `started` that its run has started. Returns the time from the first token to the
    /// end.
    async fn read(&self, step: &Step, started: Option<&watch::Sender<bool>>) -> Result<Duration> {
        let mut connection = Connection::open(self.address).await?;
        let (mut is_open, mut first_token) = (false, None);
        let observe = |reading: &ResponseParser| {
            if !is_open && reading.has_started() {
                is_open = true;
                self.opened.fetch_add(1, Ordering::Relaxed);
                if let Some(started) = started {
                    started.send_replace(true);
                }
            }
            first_token = reading.first_token;
        };
        connection.observe(step, observe).await?;
        Ok(first_token.context("no token")?.elapsed())
    }
}
