//! Claims and deliveries: due times, slots of companies, extended leases, cancellation and shutdown.

use agent_jobs::job::CompanyQuota;

use super::*;
use crate::timestamps::add_saturating;

#[test]
fn the_next_due_time_is_that_of_the_first_job_which_is_not_started() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let claimed = |due: u64| {
        Job::new(NewJob::new(payload("c"), Schedule::after(at(0), Duration::from_secs(due))), at(0))
    };
    let jobs = ClaimedJobs::new(1, 1, 10);
    assert_eq!(jobs.start_due(at(9)).next_due, None);
    jobs.add([5, 5, 7, 8].map(claimed).into());
    assert_eq!(jobs.start_due(at(4)).next_due, Some(at(5)));
    let started = jobs.start_due(at(5));
    // The other job of that time waits for a slot, not for a time.
    assert_eq!((started.starts.len(), started.next_due), (1, Some(at(7))));
    assert_eq!(jobs.start_due(at(7)).next_due, Some(at(8)), "also while no slot is free");
}

#[tokio::test]
async fn a_job_is_claimed_ahead_and_delivered_at_its_time_and_not_before() {
    let mut bench = WorkerHarness::new(true).await;
    let id = bench.job("c", Duration::from_millis(200)).await;
    bench.until_claimed(1).await;
    assert_eq!(bench.state(&id).await, JobState::Running);
    bench.clock.advance(Duration::from_millis(199));
    // Yields until the loops have read the clock and sleep again.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.worker.deliveries_in_flight(), 0);
    assert!(bench.receiver.bodies.try_recv().is_err());
    bench.clock.advance(Duration::from_millis(1));
    let body = bench.receiver.next().await;
    assert_eq!(
        (&body["jobId"], &body["occurrence"], &body["attempt"]),
        (&id.as_str().into(), &1.into(), &1.into())
    );
    bench.until("it is completed", async || bench.state(&id).await == JobState::Completed).await;
    bench.end().await;
}

#[tokio::test]
async fn a_requested_step_releases_a_claim_that_has_not_started() {
    let mut bench = WorkerHarness::new(true).await;
    for (step, state) in [
        (Step::Cancel, JobState::Cancelled),
        (Step::Pause, JobState::Paused),
        (Step::Reschedule(Schedule::after(bench.worker.now(), Duration::from_secs(60))), JobState::Scheduled),
    ] {
        let id = bench.job("c", Duration::from_millis(200)).await;
        bench.until_claimed(1).await;
        let stepped =
            bench.worker.apply_step(JobScope::default(), id.clone(), step).await.unwrap().applied().unwrap();
        assert!(!stepped.delivering);
        assert_eq!((stepped.job.state(), stepped.job.attempt), (state, 0));
        assert_eq!(bench.worker.claimed_jobs.waiting_count(), 0);
    }
    let assigned = bench.job("c", Duration::from_millis(200)).await;
    bench.until_claimed(1).await;
    let tool = Some("createTodo".to_owned());
    let cancelled = bench.worker.cancel_all(JobFilter { tool, ..JobFilter::default() }).await.unwrap();
    assert_eq!(cancelled, 3, "the paused, the moved and the claimed one");
    assert_eq!(bench.state(&assigned).await, JobState::Cancelled);
    bench.clock.advance(Duration::from_secs(1));
    // The delivery of another job shows that the loops are still running.
    let last = bench.job("c", Duration::ZERO).await;
    assert_eq!(bench.receiver.next().await["jobId"], last.as_str());
    bench.end().await;
}

/// A filtered cancel means the state that a claimed job has before its delivery, and forgets no job that it spares.
#[tokio::test]
async fn a_filtered_cancel_affects_matching_jobs_only() {
    let mut bench = WorkerHarness::new(true).await;
    let tool = Some("createTodo".to_owned());
    let filter = |state| JobFilter { tool: tool.clone(), state: Some(state), ..JobFilter::default() };
    for (state, is_meant) in [
        (JobState::Scheduled, true),
        (JobState::Running, true),
        (JobState::Retryable, false),
        (JobState::Paused, false),
    ] {
        let once = NewJob::new(payload("c"), Schedule::after(bench.worker.now(), Duration::from_millis(200)));
        let id = bench.new_job(NewJob { max_attempts: 1, ..once }).await;
        bench.until_claimed(1).await;
        let cancelled = bench.worker.cancel_all(filter(state)).await.unwrap();
        assert_eq!(cancelled, u64::from(is_meant), "{state:?}");
        bench.clock.advance(Duration::from_millis(200));
        if is_meant {
            assert_eq!(bench.state(&id).await, JobState::Cancelled, "{state:?}");
        } else {
            assert_eq!(bench.receiver.next().await["jobId"], id.as_str(), "{state:?}");
            bench.until("it is completed", async || bench.state(&id).await == JobState::Completed).await;
        }
    }
    bench.end().await;
}

/// The head of a response decides the outcome, whatever becomes of its body.
#[tokio::test]
async fn a_body_that_stalls_does_not_overturn_the_head() {
    for (head, expected) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", JobState::Completed),
        ("HTTP/1.1 422 Unprocessable Content\r\ncontent-length: 9\r\n\r\nhalf", JobState::Discarded),
    ] {
        let receiver = Receiver::answering(true, head).await;
        let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
        // Less than the time in which a body is read, and enough for a head on a loaded machine.
        let limit = Duration::from_millis(1500);
        let mut bench = WorkerHarness::with_timeout(jobs, WorkerLimits::default(), receiver, limit).await;
        let once = NewJob::new(payload("c"), Schedule::after(bench.worker.now(), Duration::ZERO));
        let id = bench.new_job(NewJob { max_attempts: 1, ..once }).await;
        assert_eq!(bench.receiver.next().await["jobId"], id.as_str());
        bench.until("it is final", async || bench.state(&id).await.is_final()).await;
        let job = bench.jobs.get(&JobScope::default(), &id).await.unwrap().unwrap();
        assert_eq!(job.state(), expected, "{:?}", job.last_error());
        bench.end().await;
    }
}

#[tokio::test]
async fn steps_during_a_delivery_report_it() {
    let mut bench = WorkerHarness::new(false).await;
    for step in [
        Step::Cancel,
        Step::Pause,
        Step::Reschedule(Schedule::after(bench.worker.now(), Duration::from_secs(60))),
    ] {
        let id = bench.job("c", Duration::ZERO).await;
        assert_eq!(bench.receiver.next().await["jobId"], id.as_str());
        let stepped =
            bench.worker.apply_step(JobScope::default(), id, step).await.unwrap().applied().unwrap();
        assert!(stepped.delivering);
    }
    let other = JobScope { company: Some("d".into()), user: None };
    let id = bench.job("c", Duration::from_secs(60)).await;
    assert_eq!(bench.worker.apply_step(other, id, Step::Cancel).await.unwrap(), StepOutcome::NotFound);
    bench.receiver.gate.send_replace(true);
    bench.until_delivering(0).await;
    bench.end().await;
}

#[tokio::test]
async fn one_company_takes_only_its_slots() {
    let limits = WorkerLimits { max_deliveries: 4, max_deliveries_per_company: 2, ..WorkerLimits::default() };
    let mut bench =
        WorkerHarness::over(Arc::new(MemoryJobStore::default()), limits, Receiver::start(false).await).await;
    for _ in 0..10 {
        bench.job("greedy", Duration::ZERO).await;
    }
    for company in ["b", "c"] {
        bench.job(company, Duration::ZERO).await;
    }
    let mut companies = Vec::new();
    for _ in 0..4 {
        companies.push(bench.receiver.next().await["companyId"].as_str().unwrap().to_owned());
    }
    companies.sort();
    assert_eq!(companies, ["b", "c", "greedy", "greedy"]);
    bench.receiver.gate.send_replace(true);
    bench
        .until("all are delivered", async || {
            let counts = bench.jobs.count_by_state(bench.worker.now()).await.unwrap();
            counts.by_state.get(&JobState::Completed) == Some(&12)
        })
        .await;
    bench.end().await;
}

#[tokio::test]
async fn a_company_without_slots_does_not_block_others() {
    let limits = WorkerLimits { max_deliveries: 4, max_deliveries_per_company: 1, ..WorkerLimits::default() };
    let mut bench =
        WorkerHarness::over(Arc::new(MemoryJobStore::default()), limits, Receiver::start(false).await).await;
    for _ in 0..10 {
        bench.job("greedy", Duration::ZERO).await;
    }
    bench.receiver.next().await;
    // The clock does not advance: a job stored at this moment starts immediately, although older jobs are due.
    let other = bench.job("b", Duration::ZERO).await;
    assert_eq!(bench.receiver.next().await["jobId"], other.as_str());
    let soon = bench.job("c", Duration::from_millis(1000)).await;
    let began = bench.worker.now();
    while bench.worker.deliveries_in_flight() < 3 {
        bench.clock.advance(Duration::from_millis(1));
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(bench.receiver.next().await["jobId"], soon.as_str());
    let duration = duration_until(bench.worker.now(), began);
    assert!((1000..1050).contains(&duration.as_millis()), "{duration:?}");
    bench.receiver.gate.send_replace(true);
    bench.end().await;
}

#[tokio::test]
async fn companies_with_more_occurrences_than_slots_alternate() {
    let limits = WorkerLimits { max_deliveries: 4, max_deliveries_per_company: 4, ..WorkerLimits::default() };
    let mut bench =
        WorkerHarness::over(Arc::new(MemoryJobStore::default()), limits, Receiver::start(true).await).await;
    let now = bench.worker.now();
    let job = |company| Job::new(NewJob::new(payload(company), Schedule::At(now)), now);
    let jobs = [["first"; 40], ["other"; 40]].concat().into_iter().map(job).collect();
    bench.jobs.insert(jobs).await.unwrap();
    let mut others = 0;
    for _ in 0..40 {
        others += usize::from(bench.receiver.next().await["companyId"] == "other");
    }
    assert!(others >= 10, "{others} of 40 are the other company's");
    bench.end().await;
}

#[tokio::test]
async fn a_lease_is_extended_as_long_as_a_delivery_takes() {
    let mut bench = WorkerHarness::new(false).await;
    let id = bench.job("c", Duration::ZERO).await;
    bench.receiver.next().await;
    let lease = WorkerLimits::default().lease;
    for _ in 0..30 {
        bench.clock.advance(lease / 10);
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
    let job = bench.jobs.get(&JobScope::default(), &id).await.unwrap().unwrap();
    let agent_jobs::job::Phase::Running { lease } = job.phase else { panic!("{job:?}") };
    assert!(lease > bench.worker.now(), "{lease}");
    assert_eq!((job.attempt, job.fence), (1, 1));
    bench.receiver.gate.send_replace(true);
    bench.until("it is completed", async || bench.state(&id).await == JobState::Completed).await;
    bench.end().await;
}

#[tokio::test]
async fn a_claim_lost_to_another_worker_ends_the_delivery() {
    let mut bench = WorkerHarness::new(false).await;
    let id = bench.job("c", Duration::ZERO).await;
    bench.receiver.next().await;
    // Claims the job as another process would after this worker's lease has expired.
    let late = add_saturating(bench.worker.now(), Duration::from_secs(60));
    let claim = ClaimRequest {
        now: late,
        due_until: late,
        lease_until: add_saturating(late, Duration::from_secs(3600)),
        limit: 10,
        quota: CompanyQuota::new(10),
    };
    assert_eq!(bench.jobs.claim_due(claim).await.unwrap().len(), 1);
    let waiting = async {
        while bench.worker.deliveries_in_flight() > 0 {
            bench.clock.advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, waiting).await.expect("the delivery is given up");
    let job = bench.jobs.get(&JobScope::default(), &id).await.unwrap().unwrap();
    assert_eq!((job.fence, job.state()), (2, JobState::Running), "the other one's claim stands");
    bench.end().await;
}

#[tokio::test]
async fn a_stopping_worker_uses_no_attempt_of_unfinished_jobs() {
    let limits = WorkerLimits { drain_timeout: Duration::from_millis(50), ..WorkerLimits::default() };
    let mut bench =
        WorkerHarness::over(Arc::new(MemoryJobStore::default()), limits, Receiver::start(false).await).await;
    let under_way = bench.job("c", Duration::ZERO).await;
    bench.receiver.next().await;
    let ahead = bench.job("c", Duration::from_millis(200)).await;
    bench.until_claimed(1).await;
    let jobs = bench.jobs.clone();
    bench.end().await;
    let job = |id: JobId| {
        let jobs = jobs.clone();
        async move { jobs.get(&JobScope::default(), &id).await.unwrap().unwrap() }
    };
    let ahead = job(ahead).await;
    assert_eq!((ahead.state(), ahead.attempt), (JobState::Scheduled, 0));
    let given_up = job(under_way).await;
    assert_eq!((given_up.state(), given_up.attempt), (JobState::Retryable, 0));
    assert_eq!((given_up.position.occurrence, given_up.last_error()), (1, None), "the occurrence stays");
}

#[tokio::test]
async fn jobs_of_another_process_are_claimed_after_its_lease() {
    let mut bench = WorkerHarness::new(true).await;
    let now = bench.worker.now();
    let job = Job::new(NewJob::new(payload("c"), Schedule::after(now, Duration::ZERO)), now);
    let claimed = job
        .step(Step::Claim { until: now, lease: add_saturating(now, Duration::from_secs(5)) }, now)
        .unwrap()
        .job;
    let id = claimed.id.clone();
    bench.jobs.insert(vec![claimed]).await.unwrap();
    bench.until("it is delivered", async || bench.state(&id).await == JobState::Completed).await;
    assert_eq!(bench.receiver.next().await["attempt"], 1, "the lost delivery uses up none");
    assert!(bench.worker.now() >= add_saturating(now, Duration::from_secs(5)));
    bench.end().await;
}

#[tokio::test]
async fn old_jobs_are_removed() {
    let bench = WorkerHarness::new(true).await;
    let id = bench.job("c", Duration::ZERO).await;
    bench.until("it is completed", async || bench.state(&id).await == JobState::Completed).await;
    bench.clock.advance(WorkerLimits::default().retention + Duration::from_secs(1));
    bench
        .until("it is gone", async || {
            bench.clock.advance(Duration::from_secs(60));
            bench.jobs.get(&JobScope::default(), &id).await.unwrap().is_none()
        })
        .await;
    bench.end().await;
}
