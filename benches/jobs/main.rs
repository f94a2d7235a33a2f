//! `cargo bench -p benches --bench jobs`: cost of jobs in the store and over HTTP, lateness of deliveries, and the
//! effect of the number of jobs on both.
//!
//! Each figure is the median of five repeats, in each of which the reference and all subjects run in turns; a ratio
//! is one of medians. The scheduler is `agentd scheduler`, a separate process with SQLite, and its callbacks go to a
//! receiver in this program. All files are in the directory for temporary files (`TMPDIR`), which must be on a disk
//! for meaningful figures and needs five gigabytes.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

mod due_at_once;
mod enqueue;
mod lateness;
mod periodic;
mod receiver;
mod service;
mod store;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use benches::comparison::{Bound, Comparison, any_missed, markdown};
use benches::{process, should_measure};
use clap::Parser;

use due_at_once::{DueAtOnce, Services};
use enqueue::{CLIENTS, Enqueue};
use lateness::Lateness;
use receiver::Receiver;
use service::Service;
use store::Measured;

#[derive(Parser)]
#[command(about = "Measures jobs and prints one Markdown table")]
struct Options {
    /// Run one repeat of each measurement, with rough figures
    #[arg(long)]
    quick: bool,
    /// Measure only the store
    #[arg(long)]
    store: bool,
    /// Measure only the delivery of many periodic schedules
    #[arg(long)]
    periodic: bool,
    /// Measure only jobs that are due at once
    #[arg(long)]
    due_at_once: bool,
    /// Exit with status 1 if a limit is exceeded
    #[arg(long)]
    check: bool,
    /// Path of the agentd to measure; built in release mode if absent
    #[arg(long, value_name = "FILE", env = "AGENTD")]
    agentd: Option<PathBuf>,
    /// Set by `cargo bench` for every benchmark, and not by `cargo test`
    #[arg(long)]
    bench: bool,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    if !should_measure(options.bench) {
        return Ok(ExitCode::SUCCESS);
    }
    let check = options.check;
    let receiver = Receiver::start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // Spawned, because a future passed to `block_on` is polled on the calling thread, which is woken differently.
    let lines = runtime.block_on(runtime.spawn(measure(options, receiver)))??;
    print!("{}", markdown("what", &lines));
    Ok(if check && any_missed(&lines) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn measure(options: Options, receiver: Receiver) -> Result<Vec<Comparison>> {
    let repeats = if options.quick { 1 } else { 5 };
    let mut lines = Vec::new();
    if options.store {
        return Ok(store::measure(repeats).await?.lines);
    }
    // Built without the embedded model, which is not needed and slow to compile.
    let agentd = process::agentd(options.agentd, &["--no-default-features"])?;
    if options.due_at_once {
        return due_at_once(&agentd, repeats).await;
    }
    if !options.periodic {
        let Measured { lines: of_store, small, large } = store::measure(repeats).await?;
        lines.extend(of_store);
        print_progress(&lines);
        let served = serve(&agentd, &receiver, small.path(), large.path(), repeats).await?;
        print_progress(&served);
        lines.extend(served);
        lines.extend(due_at_once(&agentd, repeats).await?);
    }
    lines.extend(periodic::measure(&agentd, &receiver).await?.lines());
    Ok(lines)
}

/// Measures jobs that are due at once, in fresh databases.
async fn due_at_once(agentd: &Path, repeats: usize) -> Result<Vec<Comparison>> {
    let folder = tempfile::tempdir()?;
    let services = Services::start(agentd, folder.path())?;
    let mut figures = DueAtOnce::default();
    for _ in 0..repeats {
        figures.measure(&services).await?;
    }
    Ok(figures.lines().into())
}

/// Prints progress to standard error, since the next measurement takes a while.
fn print_progress(lines: &[Comparison]) {
    eprint!("{}", markdown("what", lines));
}

/// Measures the scheduler process with a small and a large database.
async fn serve(
    agentd: &Path,
    receiver: &Receiver,
    small: &Path,
    large: &Path,
    repeats: usize,
) -> Result<Vec<Comparison>> {
    let small = Service::start(agentd, small, receiver)?;
    let large = Service::start(agentd, large, receiver)?;
    let (mut timer, mut alone, mut few, mut many) = <(Lateness, Lateness, Lateness, Lateness)>::default();
    let (mut with_few, mut with_many) = <(Enqueue, Enqueue)>::default();
    for repeat in 1..=repeats {
        timer.of_timer(receiver).await?;
        alone.of_service(&small, receiver).await?;
        Lateness::of_both([(&mut few, &small), (&mut many, &large)], receiver).await?;
        Enqueue::of_both([(&mut with_few, &small), (&mut with_many, &large)]).await?;
        eprintln!("repeat {repeat} of {repeats} of the scheduler");
    }
    let (backlog, ms, per_second) = (store::BACKLOG, "ms", "/s");
    let [late, kept, least] = [Bound::AtMost(1.5), Bound::AtMost(1.2), Bound::AtLeast(0.8)];
    Ok(vec![
        Comparison::new(
            "lateness of 2,000 jobs over 10 s, p50: the scheduler beside a bare tokio timer",
            ms,
            late,
            &timer.p50,
            &alone.p50,
        ),
        Comparison::new("the same, p99", ms, late, &timer.p99, &alone.p99),
        Comparison::new(
            format!("lateness with {backlog} jobs that wait, p50: beside without"),
            ms,
            kept,
            &few.p50,
            &many.p50,
        ),
        Comparison::new("the same, p99", ms, kept, &few.p99, &many.p99),
        Comparison::new(
            format!("jobs stored one by one over HTTP: {CLIENTS} clients beside one"),
            per_second,
            Bound::AtLeast(3.0),
            &with_few.one,
            &with_few.many,
        ),
        Comparison::new(
            format!("one client with {backlog} jobs that wait: beside without"),
            per_second,
            least,
            &with_few.one,
            &with_many.one,
        ),
        Comparison::new(
            format!("{CLIENTS} clients, the same"),
            per_second,
            least,
            &with_few.many,
            &with_many.many,
        ),
    ])
}
