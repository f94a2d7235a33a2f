//! `cargo bench -p benches --bench postgres`: the application and its records over PostgreSQL, beside SQLite and
//! beside the bare client.
//!
//! Starts its own server in the directory for temporary files (`TMPDIR`), which must be on a disk for meaningful
//! figures. Each figure is the median of five repeats, in each of which the reference and the subject run in turns; a
//! ratio is one of medians. Prints progress to standard error and two Markdown tables to standard output.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

mod chats;
mod commits;
mod listing;
mod reads;
mod run_costs;
mod server;
mod tenants;
mod visibility;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use benches::comparison::{Comparison, any_missed, environment_line, markdown};
use benches::should_measure;
use benches::subjects::{Bench, Programs};
use clap::Parser;
use tokio::runtime::Runtime;

use server::Server;

/// Names of the measurements, in their order.
const MEASUREMENTS: [&str; 8] =
    ["first-token", "commits", "reads", "visibility", "tenants", "run-costs", "processes", "listing"];

#[derive(Parser)]
#[command(about = "Measures records in PostgreSQL and prints two Markdown tables")]
struct Options {
    /// Run two repeats of each measurement, with rough figures
    #[arg(long)]
    quick: bool,
    /// Run only this measurement; may be repeated
    #[arg(long, value_name = "NAME", value_parser = MEASUREMENTS)]
    only: Vec<String>,
    /// Number of documents in the measurement `listing`, of 1,000 companies
    #[arg(long, value_name = "NUMBER", env = "POSTGRES_BENCH_DOCUMENTS", default_value_t = 1_000_000)]
    documents: usize,
    /// Exit with status 1 if a limit is exceeded
    #[arg(long)]
    check: bool,
    /// Set by `cargo bench` for every benchmark, and not by `cargo test`
    #[arg(long)]
    bench: bool,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    if !should_measure(options.bench) {
        return Ok(ExitCode::SUCCESS);
    }
    let repeats = if options.quick { 2 } else { 5 };
    let setting = environment_line(repeats);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (server, bench) = (Server::start(), Bench::start(programs())?);
    let (mut rows, mut costs) = (Vec::new(), Vec::new());
    for name in MEASUREMENTS {
        if !options.only.is_empty() && !options.only.iter().any(|only| only == name) {
            continue;
        }
        let started = Instant::now();
        let url = runtime.block_on(server.create_database(&name.replace('-', "_")))?;
        if name == "run-costs" {
            costs = runtime.block_on(run_costs::measure(&url, &bench))?;
        } else {
            let measured = measure(name, url, &bench, &runtime, (repeats, options.documents));
            let measured = measured.with_context(|| name.to_owned())?;
            eprint!("{}", markdown("what", &measured));
            rows.extend(measured);
        }
        eprintln!("{name}: {:.1} s", started.elapsed().as_secs_f64());
    }
    println!("{setting}\n\n{}", markdown("what", &rows));
    if !costs.is_empty() {
        print!("{}", run_costs::markdown(&costs));
    }
    let missed = options.check && any_missed(&rows);
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs one measurement in an empty database.
fn measure(
    name: &str,
    url: String,
    bench: &Bench,
    runtime: &Runtime,
    (repeats, documents): (usize, usize),
) -> Result<Vec<Comparison>> {
    // A store within this program is measured in a spawned task, because a future passed to `block_on` is polled on the
    // calling thread, which is woken differently.
    match name {
        "commits" => runtime.block_on(runtime.spawn(commits::measure(url, repeats)))?,
        "reads" => runtime.block_on(runtime.spawn(reads::measure(url, repeats)))?,
        "visibility" => runtime.block_on(runtime.spawn(visibility::measure(url, repeats)))?,
        "tenants" => runtime.block_on(runtime.spawn(tenants::measure(url, repeats)))?,
        "first-token" => runtime.block_on(chats::first_tokens(&url, bench, repeats)),
        "processes" => runtime.block_on(chats::processes(&url, bench, repeats)),
        _ => runtime.block_on(listing::measure(&url, bench, repeats, documents)),
    }
}

fn programs() -> Programs {
    Programs {
        upstream: env!("CARGO_BIN_EXE_upstream").into(),
        bare_proxy: env!("CARGO_BIN_EXE_bare_proxy").into(),
        agentd: None,
    }
}
