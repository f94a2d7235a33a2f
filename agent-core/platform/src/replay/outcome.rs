//! Outcome of a replay, before it is compared with the record.

use agent_core::event::Event;

use crate::conversation::RunRecord;

/// Outcome of a replay.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) record: RunRecord,
    pub(super) requests: Vec<String>,
    pub(super) events: Vec<Event>,
    /// Public message of the error that kept the turn from starting.
    pub(super) refusal: Option<String>,
    /// True if the replay needed something that is not recorded, and the run was not cut at that point.
    pub(super) is_stuck: bool,
}
