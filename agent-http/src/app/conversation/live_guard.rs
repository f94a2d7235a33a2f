//! Registration of a stored run among the live runs of its process.

use std::sync::Arc;

use agent_platform::conversation::{RunKey, RunLease};

use crate::app::services::ConversationService;
use crate::app::services::live::LiveRun;

/// A run of this process whose end is not stored yet; the service waits for it at shutdown.
pub(super) struct LiveGuard {
    pub(super) service: Arc<ConversationService>,
    pub(super) run: Arc<LiveRun>,
}

impl LiveGuard {
    pub(super) fn new(service: Arc<ConversationService>, key: RunKey, lease: &RunLease) -> Self {
        service.live.send_modify(|count| *count += 1);
        let lease = service.lease_term(lease);
        Self { service, run: Arc::new(LiveRun::new(key, lease)) }
    }
}

impl Drop for LiveGuard {
    fn drop(&mut self) {
        self.service.runs.remove(&self.run);
        self.service.live.send_modify(|count| *count -= 1);
    }
}
