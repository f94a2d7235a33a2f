//! Tests of wall-clock changes, which do not wake sleeping tasks.

use std::collections::BTreeMap;

use agent_jobs::job::Phase;
use agent_jobs::schedule::MisfirePolicy;
use jiff::SignedDuration;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// Moves the clock by a number of seconds, forward or back.
fn move_clock(bench: &WorkerHarness, seconds: i64) {
    let to = bench.worker.now().checked_add(SignedDuration::from_secs(seconds)).unwrap();
    bench.clock.set(to.into());
}

/// Scheduled times of the deliveries of each job, in seconds after `began`.
struct RecordedDeliveries {
    began: Timestamp,
    times: BTreeMap<String, Vec<i64>>,
}

impl RecordedDeliveries {
    fn new(bench: &WorkerHarness) -> Self {
        Self { began: bench.worker.now(), times: BTreeMap::new() }
    }

    fn of(&self, id: &str) -> &[i64] {
        self.times.get(id).map_or(&[], Vec::as_slice)
    }

    /// Records the deliveries received so far and asserts that none came early.
    fn note(&mut self, bench: &mut WorkerHarness) {
        while let Ok(body) = bench.receiver.bodies.try_recv() {
            let scheduled: Timestamp = body["scheduledFor"].as_str().unwrap().parse().unwrap();
            assert!(scheduled <= bench.worker.now(), "it is early: {body}");
            let id = body["jobId"].as_str().unwrap().to_owned();
            self.times.entry(id).or_default().push(scheduled.duration_since(self.began).as_secs());
        }
    }

    /// Advances the clock until the condition holds.
    async fn until(&mut self, bench: &mut WorkerHarness, so: impl Fn(&Self) -> bool) {
        let waiting = async {
            loop {
                self.note(bench);
                if so(self) {
                    return;
                }
                bench.clock.advance(Duration::from_millis(100));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let done = timeout(TEST_TIMEOUT, waiting).await;
        assert!(done.is_ok(), "until now there are {:?}", self.times);
    }
}

fn each_minute(bench: &WorkerHarness, misfire: MisfirePolicy) -> NewJob {
    let schedule = Schedule::Every { every: MINUTE, anchor: bench.worker.now() };
    NewJob { misfire, ..NewJob::new(payload("c"), schedule) }
}

#[tokio::test]
async fn a_clock_set_forward_applies_the_misfire_policy() {
    let mut bench = WorkerHarness::new(true).await;
    let mut delivered = RecordedDeliveries::new(&bench);
    let mut jobs = Vec::new();
    for misfire in [MisfirePolicy::RunOnce, MisfirePolicy::Skip, MisfirePolicy::RunAll] {
        jobs.push(bench.new_job(each_minute(&bench, misfire)).await);
    }
    let once = bench.job("c", MINUTE).await;
    // One hour and 30 seconds.
    move_clock(&bench, 3630);
    let so = |delivered: &RecordedDeliveries| {
        jobs.iter().all(|id| delivered.of(id).last() >= Some(&3720)) && !delivered.of(&once).is_empty()
    };
    delivered.until(&mut bench, so).await;
    let from = |first: i64, id: &str| {
        let last = *delivered.of(id).last().unwrap();
        (first..=last).step_by(60).collect::<Vec<_>>()
    };
    let [first, second, third] = &jobs[..] else { unreachable!("there are three") };
    assert_eq!(delivered.of(first), [vec![60], from(3660, first)].concat(), "one run for all");
    assert_eq!(delivered.of(second), from(3600, second), "the latest, which is half a minute late");
    assert_eq!(delivered.of(third), from(60, third), "each of them");
    assert_eq!(delivered.of(&once), [60], "however late");
    bench.end().await;
}

#[tokio::test]
async fn a_clock_set_back_causes_no_early_or_repeated_delivery() {
    let mut bench = WorkerHarness::new(true).await;
    let mut delivered = RecordedDeliveries::new(&bench);
    let periodic = bench.new_job(each_minute(&bench, MisfirePolicy::RunAll)).await;
    delivered.until(&mut bench, |delivered| delivered.of(&periodic) == [60]).await;
    let done = bench.job("c", Duration::ZERO).await;
    bench.until("it is completed", async || bench.state(&done).await == JobState::Completed).await;
    delivered.note(&mut bench);
    // Claimed before the clock is set back.
    let ahead = bench.job("c", Duration::from_millis(200)).await;
    bench.until_claimed(1).await;
    let due = bench.jobs.get(&JobScope::default(), &ahead).await.unwrap().unwrap().due;
    move_clock(&bench, -50);
    while duration_until(due, bench.worker.now()) > Duration::from_secs(1) {
        bench.clock.advance(Duration::from_millis(500));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    // The delivery of another job shows that the loops are still running.
    let probe = bench.job("c", Duration::ZERO).await;
    delivered.until(&mut bench, |delivered| !delivered.of(&probe).is_empty()).await;
    delivered.until(&mut bench, |delivered| !delivered.of(&ahead).is_empty()).await;
    delivered.until(&mut bench, |delivered| delivered.of(&periodic).len() >= 3).await;
    assert_eq!(delivered.of(&periodic), [60, 120, 180]);
    for id in [&done, &ahead, &probe] {
        assert_eq!(delivered.of(id).len(), 1);
    }
    bench.end().await;
}

#[tokio::test]
async fn a_clock_set_past_a_lease_repeats_a_delivery_under_the_same_id() {
    let mut bench = WorkerHarness::new(false).await;
    let id = bench.job("c", Duration::ZERO).await;
    let first = bench.receiver.next().await;
    move_clock(&bench, 3600);
    // The lease is extended, or has expired and the job is claimed again.
    let is_held = async || match bench.jobs.get(&JobScope::default(), &id).await.unwrap().unwrap().phase {
        Phase::Running { lease } => lease > bench.worker.now(),
        _ => false,
    };
    bench.until("somebody holds it again", is_held).await;
    bench.receiver.gate.send_replace(true);
    bench.until("it is completed", async || bench.state(&id).await == JobState::Completed).await;
    while let Ok(again) = bench.receiver.bodies.try_recv() {
        for member in ["jobId", "occurrence", "scheduledFor"] {
            assert_eq!(again[member], first[member]);
        }
    }
    bench.end().await;
}
