//! Resident memory of stored runs: of a run whose client reads it, and of a run without a client.

use anyhow::Result;
use benches::answer::Behaviour;
use benches::comparison::{Bound, Comparison};
use benches::delivery::HttpConnection;
use benches::load::{Connection, open_hanging_streams};
use benches::process::resident_kib;
use serde_json::{Value, json};

use crate::cancel::wait_for_streams;
use crate::thread_app::{ThreadApp, app_over};

/// Number of runs, no more than a company may have without clients.
const RUNS: usize = 1_000;
const STREAM_LIMIT_KIB: f64 = 32.0;
const BACKGROUND_LIMIT_KIB: f64 = 12.0;

pub(crate) async fn measure(repeats: usize) -> Result<Vec<Comparison>> {
    let (mut plain, mut stored, mut background) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repeats {
        plain.push(growth(json!({})).await?);
        stored.push(growth(json!({"store": true})).await?);
        background.push(growth(json!({"store": true, "background": true})).await?);
    }
    Ok(vec![
        Comparison::new(
            "memory of a stored open stream, beside one that is not stored",
            "KiB",
            Bound::FigureAtMost(STREAM_LIMIT_KIB),
            &plain,
            &stored,
        ),
        Comparison::new(
            "memory of a stored run without a client, beside an open stream that is not stored",
            "KiB",
            Bound::FigureAtMost(BACKGROUND_LIMIT_KIB),
            &plain,
            &background,
        ),
    ])
}

/// Returns the growth of a new process per run whose answer does not end, in KiB.
async fn growth(fields: Value) -> Result<f64> {
    // Memory that the allocator kept from other runs would hide what these allocate.
    let app = ThreadApp::start(app_over(), &[Behaviour::First, Behaviour::Hang])?;
    let (address, processes) = (app.running.address, &app.running.processes);
    let chat = app.chat(Behaviour::Hang, fields.clone());
    // The first exchange keeps one-time allocations of the process out of the figure.
    let first = if fields["store"] == true { json!({"store": true}) } else { json!({}) };
    Connection::open(address).await?.exchange(&[app.chat(Behaviour::First, first)]).await?;
    let mut vendor = HttpConnection::connect(app.vendor()).await?;
    let before = resident_kib(processes)?;
    let open = if fields["background"] == true {
        let mut client = HttpConnection::connect(address).await?;
        for _ in 0..RUNS {
            client.call(&chat.request, 202).await?;
        }
        Vec::new()
    } else {
        open_hanging_streams(address, RUNS, &[chat].into()).await?
    };
    wait_for_streams(&mut vendor, RUNS).await?;
    let growth = resident_kib(processes)?.saturating_sub(before);
    drop(open);
    Ok(growth as f64 / RUNS as f64)
}
