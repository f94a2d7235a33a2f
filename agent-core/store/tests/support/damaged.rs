//! Behaviour of a store with one unreadable row, the same for every database.

use agent_jobs::job::{
    AttemptOutcome, Job, JobFilter, JobOrder, JobScope, JobState, JobStore, Step, StepOutcome,
};
use agent_platform::records::StoreError;
use jiff::Timestamp;
use std::time::Duration;

/// Asserts that the row of the second of three claimed jobs, which is damaged, is set aside and hinders no other.
pub(crate) async fn is_set_aside(store: &dyn JobStore, jobs: &[Job], claimed: &[Job], now: Timestamp) {
    assert_eq!((jobs.len(), claimed.len()), (3, 3), "three jobs are claimed");
    let damaged = &jobs[1].id;
    let fence = |job: &Job| claimed.iter().find(|held| held.id == job.id).expect("it is claimed").fence;
    let lease = now + jiff::SignedDuration::from_secs(30);
    let extend = |job: &Job| (job.id.clone(), Step::Extend { fence: fence(job), lease });
    let end = |job: &Job| {
        let (outcome, duration) = (AttemptOutcome::Succeeded, Duration::from_millis(5));
        (job.id.clone(), Step::End { fence: fence(job), outcome, duration, status: Some(200), jitter: 0 })
    };
    for steps in [jobs.iter().map(extend).collect::<Vec<_>>(), jobs.iter().map(end).collect()] {
        let outcomes = store.apply_steps(steps, now).await.expect("the batch is stored");
        assert_eq!(outcomes[1], StepOutcome::Unreadable);
        assert!(outcomes[0].is_applied() && outcomes[2].is_applied(), "{outcomes:?}");
    }
    for order in [JobOrder::OldestFirst, JobOrder::NewestFirst] {
        let page = store.list(&JobFilter::default(), order, None, 10).await.expect("a list");
        assert_eq!((page.jobs.len(), &page.unreadable), (2, &vec![damaged.clone()]), "{order:?}");
        assert!(page.jobs.iter().all(|job| job.state() == JobState::Completed));
        // A page that ends with the unreadable job continues behind it.
        let first = store.list(&JobFilter::default(), order, None, 2).await.expect("a list");
        assert_eq!((first.jobs.len(), first.next.as_ref()), (1, Some(damaged)), "{order:?}");
    }
    let counts = store.count_by_state(now).await.expect("counts");
    assert_eq!(counts.unreadable, 1, "it is counted once, however often it is found");
    let cancelled = store.cancel_all(&JobFilter::default(), now).await.expect("the others are cancelled");
    assert_eq!(cancelled, 0, "the others are final");
    let read = store.get(&JobScope::default(), damaged).await;
    assert!(matches!(&read, Err(StoreError::Malformed { id, .. }) if damaged == id.as_str()), "{read:?}");
    let elsewhere = JobScope { company: Some("another".into()), user: None };
    assert_eq!(store.get(&elsewhere, damaged).await.expect("read"), None, "another company's is absent");
}
