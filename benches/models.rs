//! `cargo bench -p benches --bench models`: cost of fallbacks and of unreachable tool servers while the model is healthy, beside
//! an agent with neither; and look-ups in the model catalogue, beside a plain map of maps.
//!
//! Each agent has an application in a separate process, with the same mock vendor. The subjects alternate within each of five
//! repeats; figures are medians.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

use std::collections::HashMap;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use agent_platform::catalog::Catalog;
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
/// Look-ups of each form of a name in a repeat, at least.
const LOOKUPS: usize = 1_000_000;
/// Limit of a look-up, in nanoseconds.
const MAX_LOOKUP_NS: f64 = 200.0;
/// Port without a listener.
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
                    let index = (repeat + slice + turn) % subjects.len();
                    samples[index].extend(measurement.run(&subjects[index], &scale).await?);
                }
            }
            for (figures, samples) in figures.iter_mut().zip(samples) {
                figures.push(measurement.summarize(samples));
            }
            eprintln!("{measurement}: {} of {}", repeat + 1, scale.repeats);
        }
        let [without, with @ ..] = figures;
        for ((agent, bound), with) in AGENTS.iter().zip(bounds).zip(with) {
            let description = format!("{measurement}, with {agent}");
            rows.push(Comparison::new(description, measurement.unit(), bound, &without, &with));
        }
    }
    rows.extend(measure_lookups(scale.repeats));
    println!("{}\n\n{}", environment_line(scale.repeats), markdown("what", &rows));
    Ok(())
}

/// Provider and name of each model of the catalogue, in one form.
type Names = Vec<(String, String)>;

/// Measures the look-up of a model's window and of its price, for each form of its name.
fn measure_lookups(repeats: usize) -> Vec<Comparison> {
    let catalog = Catalog::built_in();
    let names = |form: fn(&str, &str) -> (String, String)| -> Names {
        catalog.models().map(|model| form(&model.provider, &model.model)).collect()
    };
    let forms: [(&str, Names); 4] = [
        ("as it is", names(|provider, model| (provider.to_owned(), model.to_owned()))),
        ("with a date", names(|provider, model| (provider.to_owned(), format!("{model}-2025-08-07")))),
        ("of another provider", names(|provider, model| ("acme".to_owned(), format!("{provider}/{model}")))),
        ("unknown", names(|provider, model| (provider.to_owned(), format!("{model}-unheard-of")))),
    ];
    let mut plain: HashMap<String, HashMap<String, usize>> = HashMap::new();
    for (index, (provider, model)) in forms[0].1.iter().enumerate() {
        plain.entry(provider.clone()).or_default().insert(model.clone(), index);
    }
    let mut rows = Vec::new();
    for (form, names) in &forms {
        let mut figures = [const { Vec::new() }; 3];
        for _ in 0..repeats {
            figures[0].push(nanos_per_lookup(names, |provider, model| {
                plain.get(provider).and_then(|models| models.get(model)).is_some()
            }));
            figures[1].push(nanos_per_lookup(names, |provider, model| {
                catalog.model_with_window(provider, model).is_some()
            }));
            figures[2]
                .push(nanos_per_lookup(names, |provider, model| catalog.price(provider, model).is_some()));
        }
        let [reference, windows, prices] = figures;
        for (value, figures) in [("window", windows), ("price", prices)] {
            let description = format!("look-up of the {value} of a model, its name {form}");
            rows.push(Comparison::new(
                description,
                "ns",
                Bound::FigureAtMost(MAX_LOOKUP_NS),
                &reference,
                &figures,
            ));
        }
    }
    rows
}

/// Returns the time of a look-up of each name, in nanoseconds.
fn nanos_per_lookup(names: &[(String, String)], look_up: impl Fn(&str, &str) -> bool) -> f64 {
    let passes = LOOKUPS.div_ceil(names.len().max(1));
    let start = Instant::now();
    for _ in 0..passes {
        for (provider, model) in names {
            black_box(look_up(black_box(provider), black_box(model)));
        }
    }
    start.elapsed().as_nanos() as f64 / (passes * names.len().max(1)) as f64
}
