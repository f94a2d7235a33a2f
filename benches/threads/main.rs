//! `cargo bench -p benches --bench threads`: threads in SQLite: loading a thread for a turn, pages of a long list over
//! HTTP, the deletion of threads whose retention is over, and stored runs: their beginning, memory, readers and cancellation.
//!
//! Files are in the directory for temporary files (`TMPDIR`), which must be on a disk for meaningful figures and needs three
//! gigabytes. Each figure is the median of five repeats, three for runs, in each of which the reference and the subject
//! run in turns. Prints progress to standard error and one Markdown table to standard output.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

mod before;
mod begin;
mod cancel;
mod list;
mod load;
mod memory;
mod readers;
mod retention;
mod stored;
mod thread_app;
mod watchers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use benches::comparison::{Comparison, any_missed, environment_line, markdown};
use benches::should_measure;
use clap::Parser;
use tokio::runtime::Runtime;

/// Names of the measurements, in their order.
const MEASUREMENTS: [&str; 9] =
    ["load", "list", "retention", "begin", "memory", "readers", "cancel", "watchers", "before"];

#[derive(Parser)]
#[command(about = "Measures threads in SQLite and prints one Markdown table")]
struct Options {
    /// Run two repeats of each measurement with a tenth of the threads, with rough figures
    #[arg(long)]
    quick: bool,
    /// Run only this measurement; may be repeated
    #[arg(long, value_name = "NAME", value_parser = MEASUREMENTS)]
    only: Vec<String>,
    /// Number of threads in the measurement `list`, of which a tenth is the owner's; 1,000,000 if absent
    #[arg(long, value_name = "NUMBER", env = "THREADS_BENCH_THREADS")]
    threads: Option<usize>,
    /// Number of expired threads in the measurement `retention`; 20,000 if absent
    #[arg(long, value_name = "NUMBER", env = "THREADS_BENCH_EXPIRED")]
    expired: Option<usize>,
    /// Path of an `app_over` of another build, beside which the measurement `before` compares runs that are not stored
    #[arg(long, value_name = "FILE", env = "THREADS_BENCH_BEFORE")]
    before: Option<PathBuf>,
    /// Exit with status 1 if a limit is exceeded
    #[arg(long)]
    check: bool,
    /// Set by `cargo bench` for every benchmark, and not by `cargo test`
    #[arg(long)]
    bench: bool,
}

impl Options {
    fn repeats(&self) -> usize {
        if self.quick { 2 } else { 5 }
    }

    /// Returns the number of repeats of the measurements of runs, which take seconds each.
    fn run_repeats(&self) -> usize {
        self.repeats().min(3)
    }

    /// Returns the given number of threads, or else the usual one.
    fn count(&self, argument: Option<usize>, default: usize) -> usize {
        argument.unwrap_or(if self.quick { default / 10 } else { default })
    }
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    if !should_measure(options.bench) {
        return Ok(ExitCode::SUCCESS);
    }
    let setting = environment_line(options.repeats());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut rows = Vec::new();
    for name in MEASUREMENTS {
        if !options.only.is_empty() && !options.only.iter().any(|only| only == name) {
            continue;
        }
        if name == "before" && options.before.is_none() {
            continue;
        }
        let started = Instant::now();
        let measured = measure(name, &options, &runtime).with_context(|| name.to_owned())?;
        eprint!("{}", markdown("what", &measured));
        rows.extend(measured);
        eprintln!("{name}: {:.1} s", started.elapsed().as_secs_f64());
    }
    println!("{setting}\n\n{}", markdown("what", &rows));
    let missed = options.check && any_missed(&rows);
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs one measurement in an empty database.
fn measure(name: &str, options: &Options, runtime: &Runtime) -> Result<Vec<Comparison>> {
    let (repeats, run_repeats) = (options.repeats(), options.run_repeats());
    // A store within this program is measured in a spawned task, because a future passed to `block_on` is polled on the
    // calling thread, which is woken differently.
    match name {
        "load" => runtime.block_on(runtime.spawn(load::measure(repeats)))?,
        "list" => runtime.block_on(list::measure(repeats, options.count(options.threads, 1_000_000))),
        "retention" => {
            let expired = options.count(options.expired, 20_000);
            runtime.block_on(runtime.spawn(retention::measure(repeats, expired)))?
        }
        "begin" => runtime.block_on(begin::measure(run_repeats)),
        "memory" => runtime.block_on(memory::measure(run_repeats)),
        "readers" => runtime.block_on(readers::measure(run_repeats)),
        "cancel" => runtime.block_on(cancel::measure(run_repeats)),
        "watchers" => runtime.block_on(watchers::measure(run_repeats)),
        _ => match &options.before {
            Some(program) => runtime.block_on(before::measure(run_repeats, &program.canonicalize()?)),
            None => Ok(Vec::new()),
        },
    }
}
