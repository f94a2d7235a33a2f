//! Lateness: the time from a job's scheduled time until its callback arrives.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use benches::process::Process;
use jiff::Timestamp;
use serde_json::json;

use crate::enqueue::CLIENTS;
use crate::receiver::{Arrival, Receiver};
use crate::service::{Service, request};

/// Number of jobs and their interval: ten seconds in total.
const COUNT: usize = 2000;
const EVERY_MS: usize = 5;
/// Time before the first job is due in which all jobs are stored, with a margin for a busy machine.
const AHEAD: Duration = Duration::from_secs(8);

/// Lateness in milliseconds, in each repeat.
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

    /// Runs one repeat for one scheduler.
    pub(crate) async fn of_service(&mut self, service: &Service, receiver: &Receiver) -> Result<()> {
        let first = first_ms()?;
        store(service, first, 0..COUNT).await?;
        is_ahead(first)?;
        self.add(&receiver.take(COUNT, || Ok(())).await?);
        Ok(())
    }

    /// Runs one repeat for two schedulers at once, with alternating jobs, so that other activity on the machine
    /// affects both.
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

    /// Runs one repeat for the bare timer.
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

/// Stores the jobs with these numbers.
async fn store(service: &Service, first: usize, numbers: impl Iterator<Item = usize>) -> Result<()> {
    let requests: Result<Vec<_>> = numbers
        .map(|n| {
            let at = Timestamp::from_millisecond(i64::try_from(first + n * EVERY_MS)?)?;
            request(n, json!({"executeAt": at.to_string()}))
        })
        .collect();
    service.clients(CLIENTS).await?.store(&requests?).await
}

/// Returns the number of an arrival's job.
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
