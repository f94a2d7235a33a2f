use super::*;
use crate::job::{JobPayload, NewJob};
use crate::schedule::{MisfirePolicy, Schedule};
use agent_core::ids::JobId;

const HOUR_MS: i64 = 60 * 60 * 1000;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_767_225_600_000 + ms).expect("a time")
}

fn job(company: &str, schedule: Schedule) -> Job {
    let payload = JobPayload::for_tool(company, "ada", "agent", "remind");
    Job::new(NewJob::new(payload, schedule), at(0))
}

fn once(company: &str, ms: i64) -> Job {
    job(company, Schedule::At(at(ms)))
}

/// Returns a job with a missed occurrence that is skipped.
fn missed(company: &str) -> Job {
    let every = Duration::from_secs(1000);
    Job { misfire: MisfirePolicy::Skip, ..job(company, Schedule::Every { every, anchor: at(-2_000_000) }) }
}

fn request(limit: usize, quota: usize) -> ClaimRequest {
    let quota = CompanyQuota::new(quota);
    ClaimRequest { now: at(1_500_000), due_until: at(1_500_050), lease_until: at(1_600_000), limit, quota }
}

/// Offers the rows as a store does that decides on each row before it admits the next, and returns the decisions.
fn offer(planner: &mut ClaimPlanner, jobs: &[Job]) -> Vec<&'static str> {
    let decide = |job: &Job| {
        let company = &job.payload.company_id;
        let wake = job.next_run_at().expect("an open job");
        if !planner.admit(company) {
            return "turned away";
        }
        match planner.decide(Candidate { wake, company, job: Some(job.clone()) }) {
            ClaimDecision::Claim(claimed) => {
                assert!(claimed.is_delivering() && claimed.id == job.id);
                "claim"
            }
            ClaimDecision::Skip(skipped) => {
                assert!(!skipped.is_delivering() && skipped.id == job.id && skipped != job);
                "skip"
            }
            ClaimDecision::Postpone(_) => "postpone",
            ClaimDecision::Leave => "leave",
        }
    };
    jobs.iter().map(decide).collect()
}

#[test]
fn the_range_contains_due_jobs_and_expired_leases() {
    let range = ClaimPlanner::new(request(1, 1)).range();
    let running = |ms| Job { phase: Phase::Running { lease: at(ms) }, ..once("acme", 0) };
    let cases = [
        (once("acme", 1_500_050), true),
        (once("acme", 1_500_051), false),
        (Job { phase: Phase::Retryable, ..once("acme", 0) }, true),
        (running(1_500_000), true),
        (running(1_500_001), false),
        (Job { paused: true, ..once("acme", 0) }, false),
        (Job { phase: Phase::Cancelled { at: at(0) }, ..once("acme", 0) }, false),
    ];
    for (job, expected) in cases {
        assert_eq!(range.contains(&job), expected, "{job:?}");
    }
}

#[test]
fn each_row_is_decided_on_by_its_state() {
    let lost = Job {
        phase: Phase::Running { lease: at(10) },
        attempt: 1,
        max_attempts: 1,
        abandoned: crate::job::MAX_ABANDONED,
        misfire_decision: Some(crate::job::MisfireDecision::new(at(0), None, false)),
        ..once("acme", 0)
    };
    let jobs = [once("acme", 0), missed("acme"), lost, once("acme", 2_000_000), once("beta", 5)];
    let mut planner = ClaimPlanner::new(request(10, 10));
    assert_eq!(offer(&mut planner, &jobs), ["claim", "skip", "skip", "leave", "claim"]);
    let unreadable = Candidate { wake: at(0), company: "acme", job: None };
    assert!(planner.admit("acme"));
    assert_eq!(planner.decide(unreadable), ClaimDecision::Postpone(at(1_500_000 + HOUR_MS)));
    assert!(!planner.next_round(true), "all rows are decided on");
    let ids: Vec<JobId> = planner.finish().into_iter().map(|job| job.id).collect();
    assert_eq!(ids, [jobs[0].id.as_str(), jobs[4].id.as_str()]);
}

#[test]
fn a_claim_is_complete_at_its_limits() {
    let jobs: Vec<Job> = (0..3).map(|ms| once("acme", ms)).collect();
    for (limit, quota, expected, is_complete) in [
        (2, 9, ["claim", "claim", "turned away"], true),
        (9, 2, ["claim", "claim", "turned away"], false),
        (0, 9, ["turned away"; 3], true),
        (9, 0, ["turned away"; 3], false),
    ] {
        let mut planner = ClaimPlanner::new(request(limit, quota));
        assert_eq!(offer(&mut planner, &jobs), expected, "limit {limit}, quota {quota}");
        assert_eq!(planner.remaining_rows() == 0, is_complete);
        assert_eq!(planner.next_round(false), !is_complete);
        assert!(!planner.next_round(true));
    }
    // Decisions without a delivery count as well, so that one call ends.
    let mut planner = ClaimPlanner::new(request(usize::MAX, usize::MAX));
    assert_eq!(planner.remaining_rows(), MAX_JOBS_PER_CLAIM);
    let missed: Vec<Job> = (0..MAX_JOBS_PER_CLAIM).map(|_| missed("acme")).collect();
    assert!(offer(&mut planner, &missed).iter().all(|decision| *decision == "skip"));
    assert_eq!((planner.remaining_rows(), planner.next_round(false)), (0, false));
}

#[test]
fn a_regained_slot_causes_another_round() {
    let (skipped, claimed) = (missed("acme"), once("acme", 7));
    let mut planner = ClaimPlanner::new(request(5, 1));
    // A store may admit several rows before it asks for decisions.
    assert!(planner.admit("acme") && !planner.admit("acme"));
    assert_eq!(
        (planner.remaining_rows(), planner.exhausted_companies().collect::<Vec<_>>()),
        (4, vec!["acme"])
    );
    let candidate = Candidate { wake: skipped.due, company: "acme", job: Some(skipped.clone()) };
    assert!(matches!(planner.decide(candidate), ClaimDecision::Skip(_)));
    assert!(planner.next_round(true), "a row was turned away while the slot was in use");
    assert_eq!(offer(&mut planner, &[claimed.clone(), skipped]), ["claim", "turned away"]);
    assert!(!planner.next_round(true));
    assert_eq!(planner.finish()[0].id, claimed.id);
}

#[test]
fn claimed_jobs_of_all_rounds_are_sorted_by_time() {
    let jobs = [once("acme", 30), once("acme", 10), once("acme", 20)];
    let mut planner = ClaimPlanner::new(request(5, 5));
    for job in &jobs {
        assert_eq!(offer(&mut planner, std::slice::from_ref(job)), ["claim"]);
        planner.next_round(false);
    }
    let ids: Vec<JobId> = planner.finish().into_iter().map(|job| job.id).collect();
    assert_eq!(ids, [1, 2, 0].map(|n: usize| jobs[n].id.clone()));
}
