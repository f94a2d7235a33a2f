//! Compaction of long conversations: what a prompt has in place of their beginning.
//!
//! If a history exceeds a share of the window, old tool results are left out; if that is not enough, the oldest whole
//! turns are replaced by a summary; and where there is no summary, by a note of how much is left out. The messages of a
//! thread stay as they are.
//!
//! The position of the cut depends on the history alone, and a summary is stored by the hash of the messages that it stands
//! for, so that all processes send the same bytes, and each prompt begins with the previous one until the next compaction.
//! A summary is made when a turn has brought the history near its limit, after its run; a turn waits for one only if it
//! has come from far below the limit.
//!
//! | module | content |
//! |---|---|
//! | `plan` | position of the cut |
//! | `text` | texts in place of messages, and the record for the model that summarizes |
//! | `summarizer` | calls of that model |
//! | `store` | [`Summaries`] at rest |
//! | `tasks` | work in the background |
//! | `step` | the step of a turn: [`Compaction`] |
//! | `report` | account in previews and events |

mod plan;
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

pub use store::{MAX_USER_SUMMARIES, SUMMARY_RETENTION, Summaries, Summary, SummaryOwner};

use crate::providers::Providers;
use crate::spawner::Spawner;
use tasks::SummaryTasks;

/// Shortens the histories of prompts by the settings of roles. Clones share the work in progress.
#[derive(Clone)]
pub struct Compaction {
    tasks: Arc<SummaryTasks>,
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
        Self { tasks: Arc::new(SummaryTasks::new(summaries, (models, providers), clock, spawner)) }
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
