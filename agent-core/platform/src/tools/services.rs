//! Optional services of the built-in tools.

use std::sync::Arc;

use crate::journal::Journals;
use crate::messenger::Messenger;
use crate::pulse::Pulse;
use crate::retrieval::Retriever;

/// Optional services of built-in tools besides the records. A tool whose service is absent returns an error that says
/// so.
#[derive(Clone, Default)]
pub struct ToolServices {
    /// Sends messages through the agents' messenger bots.
    pub messenger: Option<Arc<dyn Messenger>>,
    /// Schedules later tool calls.
    pub pulse: Option<Arc<dyn Pulse>>,
    /// Searches the documents. If absent, the tools create a retriever, which analyzes texts on the thread of the call.
    pub retriever: Option<Arc<dyn Retriever>>,
    /// Journals of the occurrences that this process runs, whose records the tools' commits join.
    pub journals: Option<Arc<Journals>>,
}

impl std::fmt::Debug for ToolServices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolServices").finish_non_exhaustive()
    }
}
