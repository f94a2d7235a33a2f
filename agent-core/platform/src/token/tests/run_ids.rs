//! Ids of runs that are claimed by the commits that count them.

use agent_core::ids::RunId;
use agent_core::request::Principal;
use agent_core::tool::Caller;

use super::shared::FailingRecords;
use super::*;
use crate::run_registry::{RunIdClaim, RunRegistry};

/// Two processes that count the runs of a token.
struct CountedRuns {
    records: Arc<FailingRecords>,
    clock: ManualClock,
    processes: [Tokens; 2],
    caps: RunCaps,
}

impl CountedRuns {
    fn new(runs_per_minute: u32) -> Self {
        let (records, clock) = (Arc::<FailingRecords>::default(), ManualClock::new());
        let process = || Tokens::new(records.clone(), Arc::new(clock.clone()));
        let processes = [process(), process()];
        let runs_per_minute = NonZeroU32::new(runs_per_minute).expect("not zero");
        Self { records, clock, processes, caps: RunCaps { runs_per_minute, runs_per_day: None } }
    }

    fn count(&self, process: usize, run_id: &str) -> Result<Option<RunIdClaim>, RunCapError> {
        let (principal, run_id) = (visitor(), RunId::from(run_id));
        now(self.processes[process].count_run_with_id(("t", &self.caps), (&principal, &run_id)))
    }

    /// Returns the numbers of writes of the commits since the last call.
    fn commits(&self) -> Vec<usize> {
        std::mem::take(&mut *self.records.commits.lock().expect("whole"))
    }
}

fn visitor() -> Principal {
    Principal::new("widget:t", "c", Caller::Widget)
}

#[test]
fn one_commit_counts_a_run_and_claims_its_id() {
    let test = CountedRuns::new(4);
    assert!(test.count(0, "a").expect("below the cap").is_some());
    assert_eq!(test.commits(), [4], "the count, the id, and two checks");
    // The run of a used id is counted alone.
    assert!(test.count(1, "a").expect("below the cap").is_none());
    assert_eq!(test.commits(), [4, 1]);
    assert!(test.count(1, "b").expect("below the cap").is_some());
    let released = test.count(0, "c").expect("below the cap").expect("it is new");
    now(released.release());
    test.commits();
    let refused = test.count(0, "d").expect_err("the cap is reached");
    assert!(matches!(refused, RunCapError::PerMinute { .. }), "{refused:?}");
    assert_eq!(test.commits(), [0; 0], "a refused run writes nothing");
    test.clock.advance(Duration::from_secs(60));
    for run_id in ["c", "d"] {
        assert!(test.count(1, run_id).expect("below the cap").is_some(), "{run_id} is not used");
    }
}

#[test]
fn an_id_that_was_claimed_without_a_count_is_used() {
    let test = CountedRuns::new(10);
    let registry = RunRegistry::new(test.records.clone(), Arc::new(test.clock.clone()));
    let claim = |run_id: &str| now(registry.claim(&visitor(), &run_id.into())).expect("the store works");
    assert!(claim("a").is_some());
    assert!(test.count(0, "a").expect("below the cap").is_none(), "before the token has a count");
    assert!(test.count(0, "b").expect("below the cap").is_some());
    assert!(claim("b").is_none());
    let week = crate::run_registry::RUN_ID_RETENTION;
    test.clock.advance(week - Duration::from_secs(1));
    assert!(test.count(1, "a").expect("below the cap").is_none(), "for a week at least");
}
