//! Limits of the log.

/// Limits of the log, in memory and in the store.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Maximum calls per segment.
    pub(super) max_calls_per_segment: usize,
    /// Maximum segments per agent.
    pub(super) max_segments_per_agent: usize,
    /// Maximum entries waiting to be written.
    pub(super) max_pending_entries: usize,
    /// Maximum entries of one company waiting to be written.
    pub(super) max_pending_per_company: usize,
    /// Agents whose current segment is cached.
    pub(super) max_cached_agents: usize,
}

pub(super) const LIMITS: Limits = Limits {
    max_calls_per_segment: 100,
    max_segments_per_agent: 200,
    max_pending_entries: 10_000,
    max_pending_per_company: 2_500,
    max_cached_agents: 256,
};
