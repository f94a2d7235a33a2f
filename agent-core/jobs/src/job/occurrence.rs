//! Keys of occurrences.

use agent_core::ids::JobId;

/// Formats the key of an occurrence, `<job id>:<occurrence>`; the same in every attempt and for every executor.
pub fn occurrence_key(job: &JobId, occurrence: u64) -> String {
    format!("{job}:{occurrence}")
}
