//! Time from the cancellation of a run to the close of its request to the model, in its process and from another one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use benches::answer::Behaviour;
use benches::application::cancel_run;
use benches::comparison::{Bound, Comparison};
use benches::delivery::HttpConnection;
use benches::load::Connection;
use benches::measure::millis;
use benches::table::percentile;
use benches::upstream::open_streams;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::thread_app::{ThreadApp, app_over, stored_fields};

/// Number of runs of each subject in a repeat, one after another, and of those that another process cancels.
const RUNS: usize = 20;
const RUNS_OF_OTHER_PROCESS: usize = 8;
/// Interval between two questions to the vendor.
const POLL_INTERVAL: Duration = Duration::from_micros(200);
const TIMEOUT: Duration = Duration::from_secs(20);
const SAME_PROCESS_LIMIT_MS: f64 = 100.0;
const OTHER_PROCESS_LIMIT_MS: f64 = 1000.0;

pub(crate) async fn measure(repeats: usize) -> Result<Vec<Comparison>> {
    let app = ThreadApp::start(app_over(), &[Behaviour::Hang])?;
    let other = app.start_another()?;
    let mut vendor = HttpConnection::connect(app.vendor()).await?;
    let mut own = HttpConnection::connect(app.running.address).await?;
    let mut others = HttpConnection::connect(other.address).await?;
    let (mut left, mut cancelled, mut cancelled_by_other) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repeats {
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..RUNS {
            times[0].push(leave(&app, &mut vendor).await?);
            times[1].push(cancel(&app, &mut own, &mut vendor).await?);
        }
        for _ in 0..RUNS_OF_OTHER_PROCESS {
            times[2].push(cancel(&app, &mut others, &mut vendor).await?);
        }
        for (all, times) in [&mut left, &mut cancelled, &mut cancelled_by_other].into_iter().zip(times) {
            all.push(percentile(times, 99));
        }
    }
    Ok(vec![
        Comparison::new(
            "a run cancelled in its process: until its request to the model is closed, p99, beside the disconnect of the \
             client of a run that is not stored",
            "ms",
            Bound::FigureAtMost(SAME_PROCESS_LIMIT_MS),
            &left,
            &cancelled,
        ),
        Comparison::new(
            "the same, cancelled in another process over the same SQLite file, p99, beside in the process of the run",
            "ms",
            Bound::FigureAtMost(OTHER_PROCESS_LIMIT_MS),
            &cancelled,
            &cancelled_by_other,
        ),
    ])
}

/// Disconnects the client of a run that is not stored. Returns the milliseconds until the vendor's stream is closed.
async fn leave(app: &ThreadApp, vendor: &mut HttpConnection) -> Result<f64> {
    let client = begin(app, json!({}), vendor).await?;
    let left = Instant::now();
    drop(client);
    wait_for_streams(vendor, 0).await?;
    Ok(millis(left.elapsed()))
}

/// Cancels a stored run whose client stays. Returns the milliseconds until the vendor's stream is closed.
async fn cancel(app: &ThreadApp, canceller: &mut HttpConnection, vendor: &mut HttpConnection) -> Result<f64> {
    let id = agent_core::new_id();
    let _client = begin(app, stored_fields(&id), vendor).await?;
    let sent = Instant::now();
    canceller.call(&cancel_run(&app.token, &id), 200).await?;
    wait_for_streams(vendor, 0).await?;
    Ok(millis(sent.elapsed()))
}

/// Begins a run whose answer does not end, once the vendor has no other stream.
async fn begin(app: &ThreadApp, fields: Value, vendor: &mut HttpConnection) -> Result<Connection> {
    let mut client = Connection::open(app.running.address).await?;
    client.begin(&app.chat(Behaviour::Hang, fields)).await?;
    wait_for_streams(vendor, 1).await?;
    Ok(client)
}

/// Waits until the vendor has this number of open streams.
pub(crate) async fn wait_for_streams(vendor: &mut HttpConnection, count: usize) -> Result<()> {
    let reached = async {
        while open_streams(vendor).await? != count {
            sleep(POLL_INTERVAL).await;
        }
        anyhow::Ok(())
    };
    timeout(TIMEOUT, reached).await.with_context(|| format!("the vendor has not {count} streams"))?
}
