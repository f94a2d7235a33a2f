//! Runs that are not stored, compared with an earlier build.

use std::path::Path;

use anyhow::Result;
use benches::comparison::{Bound, Comparison};
use benches::measure::{BEHAVIOURS, Measurement, Scale};

use crate::thread_app::{ThreadApp, app_over};

const MEASUREMENTS: [Measurement; 4] =
    [Measurement::LongBurst, Measurement::Paced, Measurement::FirstToken, Measurement::Memory];
const LIMIT: f64 = 1.02;

/// Compares the application with `program_before`, an `app_over` of another build.
pub(crate) async fn measure(repeats: usize, program_before: &Path) -> Result<Vec<Comparison>> {
    let programs = [program_before, app_over()];
    let running = [ThreadApp::start(programs[0], &BEHAVIOURS)?, ThreadApp::start(programs[1], &BEHAVIOURS)?];
    let mut rows = Vec::new();
    for measurement in MEASUREMENTS {
        let mut figures = [const { Vec::new() }; 2];
        for repeat in 0..repeats {
            let mut samples = [const { Vec::new() }; 2];
            for turn in 0..2 * measurement.slices() {
                let index = (repeat + turn) % 2;
                let fresh = match measurement.needs_fresh_process() {
                    true => Some(ThreadApp::start(programs[index], &BEHAVIOURS)?),
                    false => None,
                };
                let app = fresh.as_ref().unwrap_or(&running[index]);
                samples[index].extend(measurement.run(&app.running, &Scale::QUICK).await?);
            }
            for (figures, samples) in figures.iter_mut().zip(samples) {
                figures.push(measurement.summarize(samples));
            }
        }
        let description = format!("a run that is not stored, beside the build before: {measurement}");
        let [before, now] = &figures;
        rows.push(Comparison::new(description, measurement.unit(), Bound::AtMost(LIMIT), before, now));
    }
    Ok(rows)
}
