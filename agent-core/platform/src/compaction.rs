//! Compaction of long conversations: shortens the beginning of a history in the prompt.
//!
//! If a history exceeds a share of the context window, old tool results are left out. If that is not enough, the oldest
//! whole turns are replaced by a summary, or, without a summary, by a note that states how many messages are left out. The
//! stored messages of the thread do not change.
//!
//! The position of the cut depends on the history alone. A summary is stored under the hash of the messages that it
//! replaces. All processes therefore send the same bytes, and each prompt begins with the previous one until the next
//! compaction. A summary is made after the run in which the history came near its limit. A turn waits for a summary only
//! if it begins far below the limit and exceeds it.
//!
//! | module | content |
//! |---|---|
//! | `plan` | position of the cut |
//! | `text` | texts in place of messages, and the record for the model that summarizes |
//! | `summarizer` | calls of that model |
//! | `store` | [`Summaries`] at rest |
//! | `prefix_hashes` | hashes of the messages that summaries replace, from turn to turn |
//! | `tasks` | work in the background |
//! | `step` | the step of a turn: [`Compaction`] |
//! | `report` | account in previews and events |

mod plan;
mod prefix_hashes;
mod report;
mod step;
mod store;
mod summarizer;
mod tasks;
#[cfg(test)]
mod tests;
mod text;

use std::sync::Arc;

use agent_core::backend::ModelSource;
use agent_core::clock::Clock;

pub use step::ConversationTooLongError;
pub use store::{MAX_USER_SUMMARIES, SUMMARY_RETENTION, Summaries, Summary, SummaryOwner};

use crate::providers::Providers;
use crate::spawner::Spawner;
use prefix_hashes::PrefixHashes;
use tasks::SummaryTasks;

/// Shortens the histories of prompts by the settings of roles. Clones share the work in progress.
#[derive(Clone)]
pub struct Compaction {
    tasks: Arc<SummaryTasks>,
    prefixes: Arc<PrefixHashes>,
}

impl std::fmt::Debug for Compaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compaction").finish_non_exhaustive()
    }
}

impl Compaction {
    /// Creates the step over a store of summaries. `models` has the models that summarize, `providers` those of companies, and
    /// `spawner` runs the calls.
    pub fn new(
        summaries: Summaries,
        models: Arc<dyn ModelSource>,
        providers: Option<Arc<Providers>>,
        clock: Arc<dyn Clock>,
        spawner: Arc<dyn Spawner>,
    ) -> Self {
        let tasks = SummaryTasks::new(summaries, (models, providers), clock, spawner);
        Self { tasks: Arc::new(tasks), prefixes: Arc::default() }
    }

    /// Returns the store of summaries.
    pub fn summaries(&self) -> &Summaries {
        &self.tasks.summaries
    }

    /// Waits until no summary is in progress.
    pub async fn drain(&self) {
        self.tasks.drain().await;
    }
}
