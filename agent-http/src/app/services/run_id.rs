//! The id that a client chooses for a run.

use agent_core::ids::RunId;
use agent_core::request::Principal;
use agent_platform::records::StoreError;
use agent_platform::run_registry::{RunIdClaim, RunRegistry};
use agent_platform::spawner::Spawner;
use agent_platform::user_rates::CountedRun;

/// Id that the client has chosen for a run that is about to start.
pub(in crate::app) enum ChosenRunId {
    /// The id is claimed when the run starts.
    Unclaimed,
    /// The id was claimed by the commit that counted the run.
    Claimed(RunIdClaim),
    /// The user has used it before.
    Used,
}

impl From<CountedRun> for ChosenRunId {
    fn from(counted: CountedRun) -> Self {
        match counted {
            CountedRun::Unclaimed => Self::Unclaimed,
            CountedRun::Claimed(claim) => Self::Claimed(claim),
            CountedRun::Used => Self::Used,
        }
    }
}

impl ChosenRunId {
    /// Returns the id of a run that was admitted without a claim; `None` if the service generates it.
    pub(in crate::app) fn unclaimed(run_id: &RunId) -> Option<Self> {
        (!run_id.is_empty()).then_some(Self::Unclaimed)
    }

    /// Claims the id, unless that is done. Returns `None` if it is used.
    ///
    /// # Errors
    /// Errors of the store.
    pub(in crate::app) async fn claim(
        self,
        runs: &RunRegistry,
        principal: &Principal,
        run_id: &RunId,
    ) -> Result<Option<RunIdClaim>, StoreError> {
        match self {
            Self::Unclaimed => runs.claim(principal, run_id).await,
            Self::Claimed(claim) => Ok(Some(claim)),
            Self::Used => Ok(None),
        }
    }

    /// Releases the id of a run that is rejected before its id is [claimed](Self::claim).
    pub(in crate::app) async fn release(self) {
        if let Self::Claimed(claim) = self {
            claim.release().await;
        }
    }
}

/// Id of a run that has not started. If it is dropped, as by a client that disconnects, the id is released in the background.
pub(in crate::app) struct UnstartedRunId<'s> {
    /// The id, if the client has chosen it.
    chosen_id: Option<ChosenRunId>,
    spawner: &'s dyn Spawner,
}

impl<'s> UnstartedRunId<'s> {
    /// Creates the id of a run that is about to start. `spawner` runs its release.
    pub(in crate::app) fn new(chosen_id: Option<ChosenRunId>, spawner: &'s dyn Spawner) -> Self {
        Self { chosen_id, spawner }
    }

    /// Returns the id for the start of the run.
    pub(in crate::app) fn into_started(mut self) -> Option<ChosenRunId> {
        self.chosen_id.take()
    }

    /// Releases the id of a run that is rejected.
    pub(in crate::app) async fn release(mut self) {
        if let Some(chosen_id) = self.chosen_id.take() {
            chosen_id.release().await;
        }
    }
}

impl Drop for UnstartedRunId<'_> {
    fn drop(&mut self) {
        if let Some(chosen_id @ ChosenRunId::Claimed(_)) = self.chosen_id.take() {
            self.spawner.spawn(Box::pin(chosen_id.release()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent_core::testing::ManualClock;
    use agent_core::tool::Caller;
    use agent_platform::memory::MemoryRecords;
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;

    #[test]
    fn the_id_of_a_request_that_is_cancelled_before_its_run_starts_is_released() {
        let runs = RunRegistry::new(Arc::new(MemoryRecords::default()), Arc::new(ManualClock::new()));
        let (visitor, run_id) = (Principal::new("widget:t", "c", Caller::Widget), RunId::from("r"));
        let claim = || {
            let claimed = runs.claim(&visitor, &run_id).now_or_never().expect("no wait");
            claimed.expect("the store works").map(ChosenRunId::Claimed)
        };
        let spawner = |task: BoxFuture<'static, ()>| task.now_or_never().expect("no wait");
        drop(UnstartedRunId::new(claim(), &spawner));
        let started = UnstartedRunId::new(claim(), &spawner).into_started();
        assert!(matches!(started, Some(ChosenRunId::Claimed(_))), "it was released");
        drop(started);
        assert!(claim().is_none(), "the id of a run that has started stays used");
        drop(UnstartedRunId::new(Some(ChosenRunId::Used), &spawner));
        assert!(claim().is_none(), "nor is one released that another run has used");
    }
}
