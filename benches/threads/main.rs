//! `cargo bench -p benches --bench threads`: threads in SQLite: loading a thread for a turn, pages of a long list over
//! HTTP, and the deletion of threads whose retention is over.
//!
//! Files are in the directory for temporary files (`TMPDIR`), which must be on a disk for meaningful figures and needs three
//! gigabytes. Each figure is the median of five repeats, in each of which bare rusqlite with the same rows and the subject
//! run in turns. Prints progress to standard error and one Markdown table to standard output.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

mod list;
mod load;
mod retention;
mod stored;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use benches::comparison::{Comparison, any_missed, environment_line, markdown};
use benches::should_measure;
use clap::Parser;
use tokio::runtime::Runtime;

/// Names of the measurements, in their order.
const MEASUREMENTS: [&str; 3] = ["load", "list", "retention"];

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
    let repeats = options.repeats();
    // A store within this program is measured in a spawned task, because a future passed to `block_on` is polled on the
    // calling thread, which is woken differently.
    match name {
        "load" => runtime.block_on(runtime.spawn(load::measure(repeats)))?,
        "list" => runtime.block_on(list::measure(repeats, options.count(options.threads, 1_000_000))),
        _ => {
            let expired = options.count(options.expired, 20_000);
            runtime.block_on(runtime.spawn(retention::measure(repeats, expired)))?
        }
    }
}
