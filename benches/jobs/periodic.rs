//! Delivery of many periodic schedules that are due at the same minute.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use agent_jobs::job::{Job, JobStore, NewJob};
use agent_jobs::schedule::{CronSchedule, DstPolicy, Schedule};
use agent_store::sqlite::{SqliteOptions, SqliteStore};
use anyhow::{Context, Result, ensure};
use benches::comparison::{Bound, Comparison};
use benches::delivery::payload;
use benches::process::resident_kib;
use jiff::{SignedDuration, Timestamp};

use crate::receiver::{Arrival, Receiver};
use crate::service::Service;

const SCHEDULES: usize = 100_000;
const INSERTED: usize = 1000;
/// Number of companies, with an equal number of schedules each.
const COMPANIES: usize = 20;
/// Time zones of the schedules; their local times differ, so that the cron expressions do too.
const ZONES: [&str; 4] = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"];
/// Minimum time from the start until the schedules are due.
const LEAD_TIME: SignedDuration = SignedDuration::from_secs(25);
/// Time that the scheduler runs before its memory is measured.
const WARM_UP_TIME: Duration = Duration::from_secs(2);

pub(crate) struct Periodic {
    /// Maximum growth of the scheduler's memory, in KiB.
    grown: u64,
    /// Seconds until all deliveries of a company have arrived, for the first and the last company.
    first: f64,
    last: f64,
}

pub(crate) async fn measure(agentd: &Path, receiver: &Receiver) -> Result<Periodic> {
    let folder = tempfile::tempdir()?;
    let due = due()?;
    fill(folder.path(), due).await?;
    let service = Service::start(agentd, folder.path(), receiver)?;
    tokio::time::sleep(WARM_UP_TIME).await;
    ensure!(Timestamp::now() < due, "they were due before the scheduler was ready");
    let before = resident_kib(&service.process)?;
    tokio::time::sleep(due.duration_since(Timestamp::now()).try_into()?).await;
    let mut most = before;
    let look = || {
        most = most.max(resident_kib(&service.process)?);
        Ok(())
    };
    let arrivals = receiver.take(SCHEDULES, look).await?;
    ensure!(arrivals.iter().all(|arrival| arrival.scheduled_for == due), "one is for another time");
    let (first, last) = finished(&arrivals)?;
    Ok(Periodic { grown: most - before, first, last })
}

/// Returns the first full minute at least [`LEAD_TIME`] from now.
fn due() -> Result<Timestamp> {
    let minute = (Timestamp::now() + LEAD_TIME).as_second().div_euclid(60) + 1;
    Ok(Timestamp::from_second(minute * 60)?)
}

/// Stores daily schedules that are next due at `due`, grouped by company.
async fn fill(folder: &Path, due: Timestamp) -> Result<()> {
    let store = SqliteStore::open(folder.join("scheduler.db"), SqliteOptions::default())?;
    let now = Timestamp::now();
    for begin in (0..SCHEDULES).step_by(INSERTED) {
        let jobs: Result<Vec<Job>> = (begin..begin + INSERTED)
            .map(|n| {
                let zone = ZONES[n % ZONES.len()];
                let wall = due.in_tz(zone)?;
                let expression = format!("{} {} * * *", wall.minute(), wall.hour());
                let cron = CronSchedule::new(&expression, zone, DstPolicy::default())?;
                let company = n / (SCHEDULES / COMPANIES);
                let mut payload = payload(n, COMPANIES);
                payload.company_id = format!("company-{company}").into();
                Ok(Job::new(NewJob::new(payload, Schedule::Cron(cron)), now))
            })
            .collect();
        store.insert(jobs?).await?;
    }
    Ok(())
}

/// Returns the seconds until all deliveries of the first and of the last company had arrived.
fn finished(arrivals: &[Arrival]) -> Result<(f64, f64)> {
    let mut ends: BTreeMap<&str, f64> = BTreeMap::new();
    for arrival in arrivals {
        let end = ends.entry(&arrival.company_id).or_default();
        *end = end.max(arrival.lateness() / 1e3);
    }
    ensure!(ends.len() == COMPANIES, "{} companies have theirs", ends.len());
    let first = ends.values().copied().min_by(f64::total_cmp).context("no company")?;
    let last = ends.values().copied().max_by(f64::total_cmp).context("no company")?;
    Ok((first, last))
}

impl Periodic {
    pub(crate) fn lines(&self) -> [Comparison; 2] {
        [
            Comparison::new(
                format!(
                    "growth of the scheduler's memory while {SCHEDULES} periodic schedules due at the same minute are \
                     delivered: beside 64 MiB"
                ),
                "MiB",
                Bound::AtMost(1.0),
                &[64.0],
                &[self.grown as f64 / 1024.0],
            ),
            Comparison::new(
                format!(
                    "the same, of {COMPANIES} companies with equally many: time until the last has all of its own, \
                     beside the first"
                ),
                "s",
                Bound::AtMost(1.5),
                &[self.first],
                &[self.last],
            ),
        ]
    }
}
