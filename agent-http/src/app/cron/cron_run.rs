//! Result and limits of one run of the fallback.

use schemars::JsonSchema;
use serde::Serialize;

/// Maximum number of occurrences that one call runs.
pub(super) const MAX_RUNS_PER_CALL: usize = 50;
/// Maximum number of concurrent runs.
pub(super) const MAX_CONCURRENT_RUNS: usize = 8;

/// Result of one run of the fallback.
#[derive(Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CronRun {
    /// Source of the due occurrences: `scheduler`, `memory` while it is unreachable, or `local` if none is configured.
    pub(super) source: &'static str,
    /// Number of due occurrences among those examined.
    pub(super) due: usize,
    /// Number of occurrences completed by this call.
    pub(super) done: usize,
    /// Number of occurrences that were already complete.
    pub(super) done_before: usize,
    /// Number of occurrences that are being run by another process, or rejected because too many runs are in
    /// progress.
    pub(super) busy: usize,
    /// Number of failed occurrences; they can be retried.
    pub(super) failed: usize,
    /// Number of due occurrences left for the next call.
    pub(super) left: usize,
}
