//! Jobs without a server: a store, a schedule, and a minimal scheduler loop.
//!
//! `cargo run -p examples --example schedule_a_job`

use std::error::Error;
use std::time::Duration;

use agent_jobs::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    futures_executor::block_on(async {
        let jobs = MemoryJobStore::default();
        let now = Timestamp::now();
        let spec: ScheduleSpec = serde_json::from_str(r#"{"everyMs": 1000}"#)?;
        let payload = JobPayload::for_agent("acme", "ada", "gardener", "What needs water today?");
        payload.validate()?;
        let job = Job::new(NewJob::new(payload, spec.resolve(now)?), now);
        let id = job.id.clone();
        jobs.insert(vec![job]).await?;

        for _ in 0..3 {
            let job = claim_next(&jobs).await?;
            print_line(&format!("{} at {:.3}", job.occurrence_key(), job.position.scheduled_for));
            // The outcome is reported with the claim's fencing token. A failed occurrence is retried, and so is one
            // whose lease expires before an outcome is reported.
            let (fence, outcome) = (job.fence, AttemptOutcome::Succeeded);
            let end = Step::End { fence, outcome, duration: Duration::ZERO, status: None, jitter: 0 };
            jobs.apply_steps(vec![(job.id, end)], Timestamp::now()).await?;
        }
        jobs.apply_steps(vec![(id, Step::Cancel)], Timestamp::now()).await?;
        Ok(())
    })
}

/// Waits until a job is due and claims it.
async fn claim_next(jobs: &MemoryJobStore) -> Result<Job, Box<dyn Error>> {
    loop {
        let now = Timestamp::now();
        let lease_until = now.checked_add(Duration::from_secs(30))?;
        let claim = ClaimRequest { now, due_until: now, lease_until, limit: 1, quota: CompanyQuota::new(1) };
        if let Some(job) = jobs.claim_due(claim).await?.pop() {
            return Ok(job);
        }
        let earliest = jobs.next_run_at().await?.ok_or("nothing is left to wait for")?;
        SystemClock.sleep(Duration::try_from(earliest.duration_since(now)).unwrap_or_default()).await;
    }
}

#[expect(clippy::print_stdout, reason = "it is what an example is for")]
fn print_line(text: &str) {
    println!("{text}");
}
