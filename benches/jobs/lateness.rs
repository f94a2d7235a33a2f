//! From the time that a job is for until its callback is there.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use benches::process::Process;
use jiff::Timestamp;
use serde_json::json;

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
    fn add(&mut self, arrivals: &[Arrival]) {
        let mut sorted: Vec<f64> = arrivals.iter().map(Arrival::lateness).collect();
        sorted.sort_by(f64::total_cmp);
        self.p50.push(sorted[sorted.len() / 2]);
        self.p99.push(sorted[sorted.len() * 99 / 100]);
    }

    /// One repeat of the scheduler's.
    pub(crate) async fn of_service(&mut self, service: &Service, receiver: &Receiver) -> Result<()> {
        let first = first_ms()?;
        let requests: Result<Vec<_>> = (0..COUNT)
            .map(|n| {
                let at = Timestamp::from_millisecond(i64::try_from(first + n * EVERY_MS)?)?;
                request(n, json!({"executeAt": at.to_string()}))
            })
            .collect();
        service.store(8, &requests?).await?;
        ensure!(first_ms()? < first + usize::try_from(AHEAD.as_millis())?, "storing the jobs took too long");
        self.add(&receiver.take(COUNT, || Ok(())).await?);
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

fn first_ms() -> Result<usize> {
    Ok(usize::try_from((SystemTime::now().duration_since(UNIX_EPOCH)? + AHEAD).as_millis())?)
}
