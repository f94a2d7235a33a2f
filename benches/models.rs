//! `cargo bench -p benches --bench models`: an agent whose model has fallbacks and repetitions, and one with tool servers that
//! do not answer, beside one with neither, while the model is healthy.
//!
//! All are applications in processes of their own, with the same mock vendor. The subjects alternate within each of five
//! repeats; figures are medians.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

use std::path::Path;

use anyhow::Result;
use benches::answer::Behaviour;
use benches::comparison::{Bound, Comparison, environment_line, markdown};
use benches::measure::{LONG_BURST, Measurement, Scale};
use benches::should_measure;
use benches::subjects::{Bench, Programs};
use serde_json::{Value, json};

/// The measurements with their limits for an agent with fallbacks, and for one with dead tool servers.
const MEASUREMENTS: [(Measurement, [Bound; 2]); 2] = [
    (Measurement::FirstToken, [Bound::AtMost(1.01), Bound::AtMost(1.02)]),
    (Measurement::LongBurst, [Bound::AtMost(1.0), Bound::AtMost(1.0)]),
];
/// The agents beside the one without either.
const AGENTS: [&str; 2] = ["four fallbacks", "ten dead tool servers"];
/// Port at which nobody listens.
const DEAD: &str = "http://127.0.0.1:9";

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
        |model: &str| json!({"provider": "openai", "model": model, "baseUrl": format!("{DEAD}/v1")});
    let fallbacks = json!({
        "retry": {"maxAttempts": 3, "firstContentMs": 30_000},
        "fallbacks": [fallback("one"), fallback("two"), fallback("three"), fallback("four")],
    });
    let server = |i: usize| json!({"id": format!("s{i}"), "url": format!("{DEAD}/mcp"), "tools": ["search"]});
    let servers = json!({"toolServers": (0..10).map(server).collect::<Vec<_>>()});
    let start = |content: &Value, settings: &Value| {
        bench.start_workspace(&bench.models_workspace(&behaviours, content, settings), app_over)
    };
    let none = json!({});
    let subjects = [start(&none, &none)?, start(&none, &fallbacks)?, start(&servers, &none)?];
    let mut rows = Vec::new();
    for (measurement, bounds) in MEASUREMENTS {
        let mut figures = [const { Vec::new() }; 3];
        for repeat in 0..scale.repeats {
            let mut samples = [const { Vec::new() }; 3];
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
        let [without, with @ ..] = figures;
        for ((agent, bound), with) in AGENTS.iter().zip(bounds).zip(with) {
            let what = format!("{measurement}, with {agent}");
            rows.push(Comparison::new(what, measurement.unit(), bound, &without, &with));
        }
    }
    println!("{}\n\n{}", environment_line(scale.repeats), markdown("what", &rows));
    Ok(())
}
