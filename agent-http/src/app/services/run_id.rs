//! The id that a client chooses for a run.

use agent_core::ids::RunId;
use agent_core::request::Principal;
use agent_platform::records::StoreError;
use agent_platform::run_registry::{RunIdClaim, RunRegistry};

/// Id that the client has chosen for a run that is about to start.
pub(in crate::app) enum ChosenRunId {
    /// It is claimed when the run starts.
    Unclaimed,
    /// It was claimed by the commit that counted the run.
    Claimed(RunIdClaim),
    /// The user has used it before.
    Used,
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
