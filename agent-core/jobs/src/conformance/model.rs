//! Model-based test of a [`JobStore`](crate::job::JobStore): random operations, compared with a simple reference model.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_core::ids::JobId;
use jiff::Timestamp;

use super::lists::counted;
use super::support::{SharedJobStore, at, expect_ok, payload};
use crate::job::{
    AttemptOutcome, ClaimRequest, CompanyQuota, IdempotencyKey, InsertOutcome, Job, JobCounts, JobFilter,
    JobOrder, JobScope, JobState, NewJob, Step, StepOutcome,
};
use crate::schedule::{CronSchedule, DstPolicy, MisfirePolicy, OverlapPolicy, Schedule};

const COMPANIES: [&str; 3] = ["acme", "beta", "other"];
const USERS: [&str; 2] = ["ada", "bob"];

/// Runs `operations` random operations, chosen by `seed`, on an empty store from `make`, and compares each result with
/// a reference model: all jobs in a list, searched for each query. Time is simulated by the operations; nothing waits.
///
/// # Panics
/// If a result differs; the message has the seed and the number of the operation.
pub async fn jobs_against_reference(make: impl AsyncFn() -> SharedJobStore, seed: u64, operations: usize) {
    let mut run = ModelRun {
        store: make().await,
        model: BTreeMap::new(),
        rng: TestRng(seed),
        now: 0,
        claims: Vec::new(),
        keys: 0,
    };
    for number in 0..operations {
        let operation = format!("operation {number} of seed {seed}");
        run.operate(&operation).await;
    }
    run.compare_all(&format!("the end of seed {seed}")).await;
}

/// Deterministic pseudorandom number generator (SplitMix64).
struct TestRng(u64);

impl TestRng {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next_u64() % limit as u64) as usize
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    fn choose<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}

struct ModelRun {
    store: SharedJobStore,
    model: BTreeMap<JobId, Job>,
    rng: TestRng,
    /// Simulated time, in milliseconds after the suite's start time.
    now: i64,
    /// Job ids and fences of all claims, including those that have ended.
    claims: Vec<(JobId, u64)>,
    keys: usize,
}

impl ModelRun {
    fn now(&self) -> Timestamp {
        at(self.now)
    }

    async fn operate(&mut self, operation: &str) {
        match self.rng.below(32) {
            0..7 => self.insert(operation).await,
            7..14 => self.claim(operation).await,
            14..23 => self.steps(operation).await,
            23 => self.step(operation).await,
            24 => self.get(operation).await,
            25 => self.list(operation).await,
            26 => self.compare_counts(operation).await,
            27 => self.purge(operation).await,
            28 if self.rng.one_in(4) => self.cancel_all(operation).await,
            29 if self.rng.one_in(4) => self.now += self.rng.choose(&[600_000, 7_200_000, 86_400_000]),
            _ => self.now += self.rng.below(3000) as i64,
        }
    }

    fn schedule(&mut self) -> Schedule {
        match self.rng.below(5) {
            0..3 => Schedule::At(at(self.now - 2000 + self.rng.below(20_000) as i64)),
            3 => {
                let every = Duration::from_millis(1000 + self.rng.next_u64() % 5000);
                Schedule::Every { every, anchor: self.now() }
            }
            _ => {
                let zone = self.rng.choose(&["UTC", "Europe/Berlin"]);
                let cron = CronSchedule::new("*/5 * * * * *", zone, DstPolicy::default());
                Schedule::Cron(cron.expect("the suite's cron fires"))
            }
        }
    }

    fn job(&mut self) -> Job {
        let mut new =
            NewJob::new(payload(self.rng.choose(&COMPANIES), self.rng.choose(&USERS)), self.schedule());
        new.payload.tool_id = self.rng.choose(&[None, Some("remind".to_owned()), Some("report".to_owned())]);
        new.payload.assignment_id = self.rng.choose(&[None, None, Some("daily".to_owned())]);
        new.misfire = self.rng.choose(&[MisfirePolicy::RunOnce, MisfirePolicy::Skip, MisfirePolicy::RunAll]);
        new.overlap = self.rng.choose(&[OverlapPolicy::Skip, OverlapPolicy::Queue]);
        new.max_attempts = self.rng.choose(&[1, 2, 12]);
        if self.rng.one_in(3) {
            // Either a new key or one used before.
            self.keys += usize::from(self.rng.one_in(2));
            let key = format!("key {}", self.rng.below(self.keys + 1));
            new.idempotency =
                Some(IdempotencyKey { key, fingerprint: self.rng.choose(&["1", "2"]).to_owned() });
        }
        Job::new(new, self.now())
    }

    async fn insert(&mut self, operation: &str) {
        let jobs: Vec<Job> = (0..=self.rng.below(5)).map(|_| self.job()).collect();
        let expected: Vec<InsertOutcome> = jobs.iter().map(|job| self.insert_into_model(job)).collect();
        let inserted = expect_ok("insert", self.store.insert(jobs).await);
        assert_eq!(inserted, expected, "{operation}: insert");
    }

    fn insert_into_model(&mut self, job: &Job) -> InsertOutcome {
        let key = |job: &Job| job.idempotency.as_ref().map(|idempotency| idempotency.key.clone());
        let has_same_key = |existing: &&Job| {
            key(job).is_some()
                && key(existing) == key(job)
                && existing.payload.company_id == job.payload.company_id
        };
        if let Some(existing) = self.model.values().find(has_same_key) {
            return InsertOutcome::from_existing(existing.clone(), job);
        }
        self.model.insert(job.id.clone(), job.clone());
        InsertOutcome::New
    }

    fn any_id(&mut self) -> JobId {
        if self.model.is_empty() || self.rng.one_in(20) {
            return "unknown".into();
        }
        let n = self.rng.below(self.model.len());
        self.model.keys().nth(n).expect("it is below the number of jobs").clone()
    }

    fn scope(&mut self) -> JobScope {
        let company = if self.rng.one_in(3) { None } else { Some(self.rng.choose(&COMPANIES).into()) };
        let user = if self.rng.one_in(2) { None } else { Some(self.rng.choose(&USERS).into()) };
        JobScope { company, user }
    }

    fn filter(&mut self) -> JobFilter {
        let owned = |text: &str| Some(text.to_owned());
        let states: Vec<Option<JobState>> = [None; 4].into_iter().chain(JobState::ALL.map(Some)).collect();
        JobFilter {
            scope: self.scope(),
            tool: self.rng.choose(&[None, None, owned("remind"), owned("report")]),
            assignment: self.rng.choose(&[None, None, owned("daily")]),
            state: self.rng.choose(&states),
            agent: None,
            open: self.rng.one_in(4),
        }
    }

    /// Returns a random job and step: mostly a step of a current or former claim, otherwise one that needs no claim.
    fn some_step(&mut self) -> (JobId, Step) {
        let lease = at(self.now + 5000);
        if !self.claims.is_empty() && !self.rng.one_in(4) {
            // The latest entries are the most likely to hold their claim.
            let recent = self.claims.len().min(20);
            let (id, fence) = self.claims[self.claims.len() - 1 - self.rng.below(recent)].clone();
            let step = match self.rng.below(6) {
                0 => Step::Extend { fence, lease },
                1 => Step::Release { fence },
                _ => {
                    let duration = Duration::from_millis(self.rng.next_u64() % 1000);
                    let jitter = self.rng.next_u64() as u32;
                    Step::End { fence, outcome: self.outcome(), duration, status: None, jitter }
                }
            };
            return (id, step);
        }
        let step = match self.rng.below(7) {
            0 => Step::Claim { until: at(self.now + 100), lease },
            1 => Step::Cancel,
            2 => Step::Pause,
            3 => Step::Resume,
            4 => Step::Reschedule(self.schedule()),
            _ => Step::Redrive,
        };
        (self.any_id(), step)
    }

    fn outcome(&mut self) -> AttemptOutcome {
        let error = "it was busy".to_owned();
        match self.rng.below(10) {
            0 => AttemptOutcome::Rejected { error },
            9 => AttemptOutcome::Abandoned { error },
            8 => AttemptOutcome::Postponed { error, retry_after: Duration::from_secs(90) },
            1 if self.rng.one_in(4) => AttemptOutcome::Gone,
            1 => AttemptOutcome::Deferred { error, retry_after: None },
            2..5 => {
                let retry_after = self.rng.choose(&[None, None, Some(Duration::from_secs(30))]);
                AttemptOutcome::Failed { error, retry_after }
            }
            _ => AttemptOutcome::Succeeded,
        }
    }

    fn step_in_model(&mut self, id: &JobId, step: Step) -> StepOutcome {
        let Some(job) = self.model.get(id) else { return StepOutcome::NotFound };
        let outcome = StepOutcome::from(job.clone().step(step, self.now()));
        if let StepOutcome::Applied(result) = &outcome {
            self.model.insert(id.to_owned(), result.job.clone());
        }
        outcome
    }

    async fn steps(&mut self, operation: &str) {
        let steps: Vec<_> = (0..=self.rng.below(5)).map(|_| self.some_step()).collect();
        let expected: Vec<_> = steps.iter().map(|(id, step)| self.step_in_model(id, step.clone())).collect();
        let outcomes = expect_ok("steps", self.store.apply_steps(steps.clone(), self.now()).await);
        assert_eq!(outcomes, expected, "{operation}: {steps:?}");
    }

    async fn step(&mut self, operation: &str) {
        let ((id, step), scope) = (self.some_step(), self.scope());
        let is_in_scope = self.model.get(&id).is_some_and(|job| scope.contains(job));
        let expected =
            if is_in_scope { self.step_in_model(&id, step.clone()) } else { StepOutcome::NotFound };
        let outcome = expect_ok("step", self.store.apply_step(&scope, &id, step.clone(), self.now()).await);
        assert_eq!(outcome, expected, "{operation}: {step:?} by {scope:?}");
    }

    async fn get(&mut self, operation: &str) {
        let (id, scope) = (self.any_id(), self.scope());
        let expected = self.model.get(&id).filter(|job| scope.contains(job)).cloned();
        let stored = expect_ok("get", self.store.get(&scope, &id).await);
        assert_eq!(stored, expected, "{operation}: get by {scope:?}");
    }

    async fn list(&mut self, operation: &str) {
        let (filter, limit) = (self.filter(), 1 + self.rng.below(20));
        let after = if self.rng.one_in(2) { Some(self.any_id()) } else { None };
        let order = self.rng.choose(&[JobOrder::NewestFirst, JobOrder::OldestFirst]);
        let follows = |id: &JobId| {
            after.as_ref().is_none_or(|after| match order {
                JobOrder::NewestFirst => id < after,
                JobOrder::OldestFirst => id > after,
            })
        };
        let mut ordered: Vec<_> = self.model.iter().collect();
        if order == JobOrder::NewestFirst {
            ordered.reverse();
        }
        let mut matching = ordered.into_iter().filter(|(id, job)| follows(id) && filter.matches(job));
        let jobs: Vec<Job> = matching.by_ref().take(limit).map(|(_, job)| job.clone()).collect();
        let next = matching.next().and(jobs.last()).map(|job| job.id.clone());
        let page = expect_ok("list", self.store.list(&filter, order, after.as_ref(), limit).await);
        assert_eq!(
            (page.jobs, page.next),
            (jobs, next),
            "{operation}: {limit} of {filter:?} after {after:?}, {order:?}"
        );
    }

    async fn cancel_all(&mut self, operation: &str) {
        let filter = self.filter();
        let matching = self.model.values().filter(|job| !job.state().is_final() && filter.matches(job));
        let ids: Vec<JobId> = matching.map(|job| job.id.clone()).collect();
        for id in &ids {
            self.step_in_model(id, Step::Cancel);
        }
        let count = expect_ok("count", self.store.count(&JobFilter { open: true, ..filter.clone() }).await);
        assert_eq!(count, ids.len() as u64, "{operation}: the open jobs that match {filter:?} are counted");
        let cancelled = expect_ok("cancel", self.store.cancel_all(&filter, self.now()).await);
        assert_eq!(
            cancelled,
            ids.len() as u64,
            "{operation}: the open jobs that match {filter:?} are cancelled"
        );
    }

    async fn purge(&mut self, operation: &str) {
        let (ended_before, limit) = (at(self.now - self.rng.below(20_000) as i64), self.rng.below(10));
        let is_old = |job: &Job| job.ended_at().is_some_and(|ended| ended < ended_before);
        let candidates: Vec<JobId> =
            self.model.values().filter(|job| is_old(job)).map(|job| job.id.clone()).collect();
        let purged = expect_ok("purge", self.store.purge(ended_before, limit).await);
        assert_eq!(
            purged,
            candidates.len().min(limit) as u64,
            "{operation}: all jobs that ended before, and {limit} at most"
        );
        // The store chooses which of them it removes.
        let mut removed = 0;
        for id in candidates {
            if expect_ok("get", self.store.get(&JobScope::default(), &id).await).is_none() {
                self.model.remove(&id);
                removed += 1;
            }
        }
        assert_eq!(removed, purged, "{operation}: purged jobs are removed");
    }

    async fn compare_counts(&mut self, operation: &str) {
        let expected_earliest = self.model.values().filter_map(Job::next_run_at).min().map(ceil);
        let earliest = expect_ok("earliest", self.store.next_run_at().await).map(ceil);
        assert_eq!(earliest, expected_earliest, "{operation}: the earliest");
        let mut expected = JobCounts::default();
        for job in self.model.values() {
            *expected.by_state.entry(job.state()).or_default() += 1;
            expected.lag = expected.lag.max(job.lag(self.now()));
        }
        let counts = expect_ok("counts", self.store.count_by_state(self.now()).await);
        assert_eq!(counted(counts), counted(expected), "{operation}: the counts");
    }

    async fn claim(&mut self, operation: &str) {
        let (now, until) = (self.now(), at(self.now + self.rng.choose(&[0, 0, 50])));
        let (limit, per_company) = (self.rng.choose(&[1, 5, 50]), self.rng.choose(&[1, 3, 50]));
        let mut quota = CompanyQuota::new(per_company);
        let mut in_use: BTreeMap<&str, usize> = BTreeMap::new();
        if self.rng.one_in(3) && quota.take("acme") {
            in_use.insert("acme", 1);
        }
        let step = Step::Claim { until, lease: at(self.now + 1000 + self.rng.below(9000) as i64) };
        let Step::Claim { lease, .. } = step else { unreachable!("the step is a claim") };
        let claimed = expect_ok(
            "claim",
            self.store
                .claim_due(ClaimRequest { now, due_until: until, lease_until: lease, limit, quota })
                .await,
        );

        // Jobs with equal times are claimed in any order. So the model replays the store's claims, and every job that
        // was not claimed must have a reason.
        assert!(claimed.len() <= limit, "{operation}: no more jobs than the limit");
        let mut last_time = None;
        for job in &claimed {
            let time = self.model[&job.id].next_run_at().map(ceil);
            assert!(time >= last_time, "{operation}: the earliest jobs are claimed first");
            last_time = time;
            let result = match self.step_in_model(&job.id, step.clone()) {
                StepOutcome::Applied(result) => result,
                outcome => panic!("{operation}: {} was claimed, and the model says {outcome:?}", job.id),
            };
            assert!(result.job == *job && job.is_delivering(), "{operation}: {job:?}, not {:?}", result.job);
            self.claims.push((job.id.clone(), job.fence));
            let company = COMPANIES.into_iter().find(|company| job.payload.company_id == *company);
            *in_use.entry(company.expect("all jobs are of these companies")).or_default() += 1;
        }
        assert!(
            in_use.values().all(|in_use| *in_use <= per_company),
            "{operation}: no more jobs than a company's quota"
        );
        for (id, job) in self.model.clone() {
            let was_claimed = claimed.iter().any(|claimed| claimed.id == id);
            let Ok(result) = job.clone().step(step.clone(), now) else { continue };
            if was_claimed {
                continue;
            }
            let has_share = in_use.get(&*job.payload.company_id).is_none_or(|in_use| *in_use < per_company);
            let is_in_range = claimed.len() < limit || job.next_run_at().map(ceil) < last_time;
            let is_claim_required = has_share && is_in_range;
            if result.job.is_delivering() {
                assert!(!is_claim_required, "{operation}: {job:?} was not claimed");
                continue;
            }
            // A misfire to skip, or a lost last attempt, is stored when a claim finds it.
            let stored =
                expect_ok("get", self.store.get(&JobScope::default(), &id).await).expect("the job is stored");
            assert!(
                stored == result.job || stored == job && !is_claim_required,
                "{operation}: {stored:?}, not {:?}",
                result.job
            );
            self.model.insert(id, stored);
        }
    }

    async fn compare_all(&self, operation: &str) {
        for (id, job) in &self.model {
            let stored = expect_ok("get", self.store.get(&JobScope::default(), id).await);
            assert_eq!(stored.as_ref(), Some(job), "{operation}");
        }
        let counts = expect_ok("counts", self.store.count_by_state(self.now()).await);
        let total: u64 = counts.by_state.values().sum();
        assert_eq!(total, self.model.len() as u64, "{operation}: the store has no other jobs");
    }
}

/// Rounds up to whole milliseconds, the precision that a store reports.
fn ceil(time: Timestamp) -> i128 {
    -(-time.as_nanosecond()).div_euclid(1_000_000)
}
