//! From the time that a job is for until its callback is there.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use benches::process::Process;
use jiff::Timestamp;
use serde_json::json;

use crate::enqueue::CLIENTS;
use crate::receiver::{Arrival, Receiver};
use crate::service::{Service, request};

/// How many jobs, and how far apart: ten seconds together.
const COUNT: usize = 2000;
const EVERY_MS: usize = 5;
/// From the first word of them to the first: they are stored meanwhile, by a machine that may be busy.
const AHEAD: Duration = Duration::from_secs(8);

/// Milliseconds in each repeat.
#[derive(Default)]
pub(crate) struct Lateness {
    pub(crate) p50: Vec<f64>,
    pub(crate) p99: Vec<f64>,
}

impl Lateness {
    fn add<'a>(&mut self, arrivals: impl IntoIterator<Item = &'a Arrival>) {
        let mut sorted: Vec<f64> = arrivals.into_iter().map(Arrival::lateness).collect();
        sorted.sort_by(f64::total_cmp);
        self.p50.push(sorted[sorted.len() / 2]);
        self.p99.push(sorted[sorted.len() * 99 / 100]);
    }

    /// One repeat of the scheduler's.
    pub(crate) async fn of_service(&mut self, service: &Service, receiver: &Receiver) -> Result<()> {
        let first = first_ms()?;
        store(service, first, 0..COUNT).await?;
        is_ahead(first)?;
        self.add(&receiver.take(COUNT, || Ok(())).await?);
        Ok(())
    }

    /// One repeat of two schedulers' at once, every other job each, so that whatever the machine does meets both.
    pub(crate) async fn of_both(subjects: [(&mut Self, &Service); 2], receiver: &Receiver) -> Result<()> {
        let first = first_ms()?;
        let each = subjects.len();
        for (turn, (_, service)) in subjects.iter().enumerate() {
            store(service, first, (turn..COUNT).step_by(each)).await?;
        }
        is_ahead(first)?;
        let arrivals = receiver.take(COUNT, || Ok(())).await?;
        for (turn, (figures, _)) in subjects.into_iter().enumerate() {
            figures.add(arrivals.iter().filter(|arrival| number(arrival, first) % each == turn));
        }
        Ok(())
    }

    /// One repeat of the bare timer's.
    pub(crate) async fn of_timer(&mut self, receiver: &Receiver) -> Result<()> {
        let mut timer = Command::new(env!("CARGO_BIN_EXE_bare_timer"));
        timer.args([receiver.url(), first_ms()?.to_string(), COUNT.to_string(), EVERY_MS.to_string()]);
        let scratch = tempfile::tempdir()?;
        let _timer = Process::start(timer, scratch.path())?;
        let arrivals = receiver.take(COUNT, || Ok(())).await?;
        self.add(&arrivals);
        Ok(())
    }
}

/// Stores the jobs of these numbers.
async fn store(service: &Service, first: usize, numbers: impl Iterator<Item = usize>) -> Result<()> {
    let requests: Result<Vec<_>> = numbers
        .map(|n| {
            let at = Timestamp::from_millisecond(i64::try_from(first + n * EVERY_MS)?)?;
            request(n, json!({"executeAt": at.to_string()}))
        })
        .collect();
    service.clients(CLIENTS).await?.store(&requests?).await
}

/// Which job it is of.
fn number(arrival: &Arrival, first: usize) -> usize {
    usize::try_from(arrival.scheduled_for.as_millisecond()).map_or(0, |at| (at - first) / EVERY_MS)
}

fn is_ahead(first: usize) -> Result<()> {
    ensure!(first_ms()? < first + usize::try_from(AHEAD.as_millis())?, "storing the jobs took too long");
    Ok(())
}

fn first_ms() -> Result<usize> {
    Ok(usize::try_from((SystemTime::now().duration_since(UNIX_EPOCH)? + AHEAD).as_millis())?)
}
