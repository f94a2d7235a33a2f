//! `cargo bench -p benches --bench relay`: cost of relaying a model's response beside a bare hyper proxy.
//!
//! Prints progress to standard error and one Markdown table to standard output. A wrong response ends the run with an
//! error.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

use std::{path::PathBuf, process::ExitCode, time::Instant};

use anyhow::{Context, Result, bail, ensure};
use benches::{
    comparison::{Comparison, any_missed, environment_line, markdown},
    measure::{Measurement, Scale},
    process::agentd,
    should_measure,
    subjects::{Bench, CONTROLS, Programs, REFERENCE, RunningSubject, SUBJECTS, Subject},
};
use clap::Parser;

#[derive(Parser)]
#[command(about = "Measures the relay beside a bare hyper proxy and prints one Markdown table")]
struct Options {
    /// Use short runs of every measurement, with rough figures
    #[arg(long)]
    quick: bool,
    /// Measure the reference against itself and against no proxy, instead of agentd
    #[arg(long)]
    controls: bool,
    /// Measure only the subjects whose names contain this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Run only the measurements whose names contain this text
    #[arg(long, value_name = "TEXT")]
    measure: Option<String>,
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
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    let mut subjects: Vec<&Subject> =
        if options.controls { CONTROLS.iter().collect() } else { SUBJECTS.iter().collect() };
    subjects.retain(|subject| options.only.as_ref().is_none_or(|text| subject.name.contains(text)));
    ensure!(!subjects.is_empty(), "no subject has such a name");

    let agentd = match options.agentd {
        _ if options.controls => None,
        given => Some(agentd(given, &[])?),
    };
    let programs = Programs {
        upstream: env!("CARGO_BIN_EXE_upstream").into(),
        bare_proxy: env!("CARGO_BIN_EXE_bare_proxy").into(),
        agentd,
    };
    let setting = environment_line(scale.repeats);
    let client = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = client.block_on(compare(
        &Bench::start(programs)?,
        &subjects,
        options.measure.as_deref().unwrap_or_default(),
        &scale,
    ))?;

    println!("{setting}\n\n{}", markdown("measurement | subject", &rows));
    let missed = options.check && any_missed(&rows);
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs all measurements of the subjects whose names contain `named`, in turns with the reference.
async fn compare(
    bench: &Bench,
    subjects: &[&Subject],
    named: &str,
    scale: &Scale,
) -> Result<Vec<Comparison>> {
    let mut measurements: Vec<Measurement> = Vec::new();
    for (measurement, _) in subjects.iter().flat_map(|subject| subject.limits) {
        if measurement.to_string().contains(named) && !measurements.contains(measurement) {
            measurements.push(*measurement);
        }
    }
    let reference = Contender::start(&REFERENCE, bench)?;
    let contenders: Vec<_> =
        subjects.iter().map(|subject| Contender::start(subject, bench)).collect::<Result<_>>()?;

    let mut rows = Vec::new();
    for measurement in measurements {
        rows.extend(run_interleaved(measurement, &reference, &contenders, bench, scale).await?);
    }
    Ok(rows)
}

/// Returns the rows of one measurement. Each slice runs the reference and every subject in sequence; the order is
/// reversed in the next slice, so that no subject is always first or last.
async fn run_interleaved(
    measurement: Measurement,
    reference: &Contender<'_>,
    contenders: &[Contender<'_>],
    bench: &Bench,
    scale: &Scale,
) -> Result<Vec<Comparison>> {
    let selected = |contender: &Contender<'_>| {
        contender.subject.limits.iter().find(|(limited, _)| *limited == measurement)
    };
    let measured = contenders.iter().filter(|contender| selected(contender).is_some());
    let turns: Vec<_> = std::iter::once(reference).chain(measured).collect();
    let slices = measurement.slices();
    let mut figures = vec![Vec::new(); turns.len()];
    for repeat in 1..=scale.repeats {
        let mut samples = vec![Vec::new(); turns.len()];
        for slice in repeat..repeat + slices {
            let mut order: Vec<_> = (0..turns.len()).collect();
            if slice % 2 == 0 {
                order.reverse();
            }
            for index in order {
                samples[index].extend(turns[index].run(measurement, bench, scale).await?);
            }
        }
        for ((turn, figures), samples) in turns.iter().zip(&mut figures).zip(samples) {
            let (name, unit, figure) =
                (turn.subject.name, measurement.unit(), measurement.summarize(samples));
            eprintln!("{measurement}, {repeat} of {}, {name}: {figure:.3} {unit}", scale.repeats);
            figures.push(figure);
        }
    }
    let row = |(contender, own): (&Contender<'_>, &Vec<f64>)| {
        let (_, limit) = *selected(contender)?;
        // A subject that was not selected cannot be a reference.
        let named = limit.reference().unwrap_or(reference.subject.name);
        let index = turns.iter().position(|turn| turn.subject.name == named)?;
        Some(limit.row(measurement, contender.subject.name, &figures[index], own))
    };
    Ok(turns.iter().copied().zip(&figures).skip(1).filter_map(row).collect())
}

/// A subject and its running processes.
struct Contender<'a> {
    subject: &'a Subject,
    running: RunningSubject,
}

impl<'a> Contender<'a> {
    fn start(subject: &'a Subject, bench: &Bench) -> Result<Self> {
        let started = Instant::now();
        let running = (subject.start)(bench).with_context(|| subject.name)?;
        eprintln!("{} is up after {} ms", subject.name, started.elapsed().as_millis());
        Ok(Self { subject, running })
    }

    async fn run(&self, measurement: Measurement, bench: &Bench, scale: &Scale) -> Result<Vec<f64>> {
        let fresh = match measurement.needs_fresh_process() {
            true => Some((self.subject.start)(bench)?),
            false => None,
        };
        let samples = measurement.run(fresh.as_ref().unwrap_or(&self.running), scale).await;
        let samples = samples.with_context(|| format!("{measurement}, {}", self.subject.name))?;
        match samples.iter().find(|sample| !(sample.is_finite() && **sample > 0.0)) {
            None => Ok(samples),
            Some(sample) => bail!("{measurement}, {}: {sample} is no measurement", self.subject.name),
        }
    }
}
