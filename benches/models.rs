//! `cargo bench -p benches --bench models`: an agent whose model has fallbacks and repetitions, beside one without, while the model
//! is healthy.
//!
//! Both are applications in processes of their own, with the same mock vendor. The subjects alternate within each of five
//! repeats; figures are medians.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

use std::path::Path;

use anyhow::Result;
use benches::answer::Behaviour;
use benches::comparison::{Bound, Comparison, environment_line, markdown};
use benches::measure::{LONG_BURST, Measurement, Scale};
use benches::should_measure;
use benches::subjects::{Bench, Programs};
use serde_json::json;

/// The measurements with their limits.
const MEASUREMENTS: [(Measurement, Bound); 2] =
    [(Measurement::FirstToken, Bound::AtMost(1.01)), (Measurement::LongBurst, Bound::AtMost(1.0))];

fn main() -> Result<()> {
    if !should_measure(std::env::args().any(|argument| argument == "--bench")) {
        return Ok(());
    }
    let client = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    client.block_on(measure())
}

async fn measure() -> Result<()> {
    let scale = Scale::FULL;
    let programs = Programs {
        upstream: env!("CARGO_BIN_EXE_upstream").into(),
        bare_proxy: env!("CARGO_BIN_EXE_bare_proxy").into(),
        agentd: None,
    };
    let bench = Bench::start(programs)?;
    let app_over = Path::new(env!("CARGO_BIN_EXE_app_over"));
    let behaviours = [Behaviour::First, LONG_BURST];
    let fallback =
        |model: &str| json!({"provider": "openai", "model": model, "baseUrl": "http://127.0.0.1:9/v1"});
    let settings = json!({
        "retry": {"maxAttempts": 3, "firstContentMs": 30_000},
        "fallbacks": [fallback("one"), fallback("two"), fallback("three"), fallback("four")],
    });
    let subjects = [
        bench.start_workspace(&bench.models_workspace(&behaviours, &json!({})), app_over)?,
        bench.start_workspace(&bench.models_workspace(&behaviours, &settings), app_over)?,
    ];
    let mut rows = Vec::new();
    for (measurement, bound) in MEASUREMENTS {
        let mut figures = [Vec::new(), Vec::new()];
        for repeat in 0..scale.repeats {
            let mut samples = [Vec::new(), Vec::new()];
            for slice in 0..measurement.slices() {
                for turn in 0..subjects.len() {
                    let place = (repeat + slice + turn) % subjects.len();
                    samples[place].extend(measurement.run(&subjects[place], &scale).await?);
                }
            }
            for (figures, samples) in figures.iter_mut().zip(samples) {
                figures.push(measurement.summarize(samples));
            }
            eprintln!("{measurement}: {} of {}", repeat + 1, scale.repeats);
        }
        let [without, with] = figures;
        let what = format!("{measurement}, with four fallbacks");
        rows.push(Comparison::new(what, measurement.unit(), bound, &without, &with));
    }
    println!("{}\n\n{}", environment_line(scale.repeats), markdown("what", &rows));
    Ok(())
}
