//! `cargo bench -p benches --bench tricks`: gain of each optimization of the token path, end to end.
//!
//! Runs the agent runtime once per variant: with all optimizations, without each of them, and with none. All variants
//! run in turns under the same load. Prints one Markdown table: by how much the figure rises without the optimization.
//! `--quick` makes short runs with rough figures; `--only TEXT` measures the variants whose names contain the text.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

use std::fs;
use std::path::Path;

use anyhow::Result;
use benches::measure::{Measurement, Scale};
use benches::should_measure;
use benches::subjects::{Bench, Programs, RunningSubject};
use benches::table::median;
use benches::tricks::{ALL, VARIANTS, Variant};
use clap::Parser;

const MEASUREMENTS: [Measurement; 4] = [
    Measurement::Burst { connections: 8 },
    Measurement::Burst { connections: 64 },
    Measurement::Paced,
    Measurement::FirstToken,
];

#[derive(Parser)]
#[command(about = "Measures the gain of each optimization of the token path and prints one Markdown table")]
struct Options {
    /// Use short runs of every measurement, with rough figures
    #[arg(long)]
    quick: bool,
    /// Measure only the variants whose names contain this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Set by `cargo bench` for every benchmark, and not by `cargo test`
    #[arg(long)]
    bench: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    if !should_measure(options.bench) {
        return Ok(());
    }
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let bench = Bench::start(Programs {
        upstream: env!("CARGO_BIN_EXE_upstream").into(),
        bare_proxy: env!("CARGO_BIN_EXE_bare_proxy").into(),
        agentd: None,
    })?;
    let named = VARIANTS.into_iter().filter(|variant| variant.name.contains(&options.only));
    let program = Path::new(env!("CARGO_BIN_EXE_relay_over"));
    let running: Vec<(Variant, RunningSubject)> = std::iter::once(ALL)
        .chain(named)
        .map(|variant| Ok((variant, bench.start_runtime_with(program, &[variant.name])?)))
        .collect::<Result<_>>()?;

    let client = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut columns = Vec::new();
    for measurement in MEASUREMENTS {
        columns.push(client.block_on(figures(measurement, &running, &scale))?);
    }
    println!(
        "load average {} at the start; medians of {} interleaved repeats.\n",
        load.split(' ').next().unwrap_or_default(),
        scale.repeats
    );
    print!("{}", table(&running, &columns));
    Ok(())
}

/// Returns each variant's figure: the median of the repeats. Each slice runs all variants, in reversed order in every
/// second slice.
async fn figures(
    measurement: Measurement,
    running: &[(Variant, RunningSubject)],
    scale: &Scale,
) -> Result<Vec<f64>> {
    let slices = measurement.slices();
    let mut figures = vec![Vec::with_capacity(scale.repeats); running.len()];
    for repeat in 1..=scale.repeats {
        let mut samples = vec![Vec::new(); running.len()];
        for slice in repeat..repeat + slices {
            let mut order: Vec<_> = (0..running.len()).collect();
            if slice % 2 == 0 {
                order.reverse();
            }
            for index in order {
                samples[index].extend(measurement.run(&running[index].1, scale).await?);
            }
        }
        eprintln!("{measurement}, {repeat} of {}", scale.repeats);
        for (figures, samples) in figures.iter_mut().zip(samples) {
            figures.push(measurement.summarize(samples));
        }
    }
    Ok(figures.into_iter().map(median).collect())
}

/// Formats the figures of all measurements: those of the reference, and the increase of the others'.
fn table(running: &[(Variant, RunningSubject)], columns: &[Vec<f64>]) -> String {
    let mut lines = vec![String::from("| variant |"), String::from("|---|")];
    for measurement in MEASUREMENTS {
        lines[0] += &format!(" {measurement} |");
        lines[1] += "--:|";
    }
    for (index, (variant, _)) in running.iter().enumerate() {
        let cell = |(measurement, column): (&Measurement, &Vec<f64>)| match index {
            0 => format!(" {:.3} {} |", column[0], measurement.unit()),
            _ => format!(" {:+.1} % |", (column[index] / column[0] - 1.0) * 100.0),
        };
        let cells: String = MEASUREMENTS.iter().zip(columns).map(cell).collect();
        lines.push(format!("| {} |{cells}", variant.name));
    }
    lines.join("\n") + "\n"
}
