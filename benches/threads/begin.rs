//! Cost of storing a run: time before the first token, and CPU time of a short run.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::Result;
use benches::answer::Behaviour;
use benches::comparison::{Bound, Comparison};
use benches::load::{self, Connection, ExchangeSteps};
use benches::measure::{BURST, millis};
use benches::process::CpuTime;
use benches::table::median;
use serde_json::json;

use crate::thread_app::{ThreadApp, app_over};

/// An answer whose first token comes after 20 ms.
const LATER: Behaviour = Behaviour::Later { after_ms: 20, chunks: 8, every_ms: 1 };
/// Number of requests of each subject in a repeat, for an answer at once and for one after 20 ms.
const REQUESTS: usize = 200;
const LATER_REQUESTS: usize = 40;
/// Size of the write before each `fdatasync`: a page of the database.
const PAGE_BYTES: usize = 4096;
/// Number of connections of the short runs, and of their runs in a repeat.
const CONNECTIONS: usize = 8;
const RUNS: usize = 400;

/// Steps of a run that is not stored, and of one that is.
type BothSteps = [ExchangeSteps; 2];

pub(crate) async fn measure(repeats: usize) -> Result<Vec<Comparison>> {
    let app = ThreadApp::start(app_over(), &[Behaviour::First, LATER, BURST])?;
    let steps = |behaviour| -> BothSteps {
        [json!({}), json!({"store": true})].map(|fields| [app.chat(behaviour, fields)].into())
    };
    let (at_once, later, burst) = (steps(Behaviour::First), steps(LATER), steps(BURST));
    let (mut plain_later, mut stored_later) = (Vec::new(), Vec::new());
    let (mut added, mut synced) = (Vec::new(), Vec::new());
    let (mut plain_run, mut added_to_run) = (Vec::new(), Vec::new());
    let disk = tempfile::tempfile()?;
    for _ in 0..repeats {
        let [plain, stored, sync] = first_tokens(&app, &at_once, REQUESTS, Some(&disk)).await?;
        added.push(stored - plain);
        synced.push(sync);
        let [plain, stored, _] = first_tokens(&app, &later, LATER_REQUESTS, None).await?;
        plain_later.push(plain);
        stored_later.push(stored);
        let [plain, stored] = [short_runs(&app, &burst[0]).await?, short_runs(&app, &burst[1]).await?];
        plain_run.push(plain);
        added_to_run.push(stored - plain);
    }
    Ok(vec![
        Comparison::new(
            "first token of a stored run, vendor answering after 20 ms, p50, beside one that is not stored",
            "ms",
            Bound::AtMost(1.05),
            &plain_later,
            &stored_later,
        ),
        Comparison::new(
            "first token, vendor answering at once, p50: time added by storing the run, beside an `fdatasync`",
            "ms",
            Bound::AtMost(1.0),
            &synced,
            &added,
        ),
        Comparison::new(
            "a run of 200 chunks, 8 connections: CPU added by storing it, beside the CPU of one that is not stored",
            "ms",
            Bound::FigureAtMost(0.15),
            &plain_run,
            &added_to_run,
        ),
    ])
}

/// Returns the median times to the first token of runs that are not stored and of stored ones, which alternate on a connection
/// each, and that of an `fdatasync` of `disk` between them; NaN without it.
async fn first_tokens(
    app: &ThreadApp,
    steps: &BothSteps,
    requests: usize,
    disk: Option<&File>,
) -> Result<[f64; 3]> {
    let address = app.running.address;
    let mut connections = [Connection::open(address).await?, Connection::open(address).await?];
    let mut times = [const { Vec::new() }; 3];
    for request in 0..requests + requests.div_ceil(10) {
        for turn in 0..2 {
            let index = (request + turn) % 2;
            let time = connections[index].exchange(&steps[index]).await?;
            if request >= requests.div_ceil(10) {
                times[index].push(millis(time));
            }
        }
        if let Some(disk) = disk {
            times[2].push(sync_page(disk)?);
        }
    }
    Ok(times.map(median))
}

/// Overwrites a page of a file and makes it durable. Returns the milliseconds.
fn sync_page(disk: &File) -> Result<f64> {
    let started = Instant::now();
    disk.write_all_at(&[1; PAGE_BYTES], 0)?;
    disk.sync_data()?;
    Ok(millis(started.elapsed()))
}

/// Returns the CPU milliseconds of a short run.
async fn short_runs(app: &ThreadApp, steps: &ExchangeSteps) -> Result<f64> {
    let (processes, each) = (&app.running.processes, RUNS / CONNECTIONS);
    let open = load::connect(app.running.address, CONNECTIONS).await?;
    let open = load::run(open, steps, each.div_ceil(10), Duration::ZERO).await?;
    let before = CpuTime::when_idle(processes)?;
    let open = load::run(open, steps, each, Duration::ZERO).await?;
    let used = CpuTime::when_idle(processes)?.since(&before);
    drop(open);
    Ok(millis(used) / (each * CONNECTIONS) as f64)
}
