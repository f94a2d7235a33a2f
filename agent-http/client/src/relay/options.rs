//! Switches of the optimizations.

/// Switches of the optimizations on the token path, here and in the server. A program has no setting for them: the
/// build selects [`FAST`](Self::FAST) or, with the feature `plain-relay`, [`PLAIN`](Self::PLAIN). Tests and benchmarks
/// choose others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayOptions {
    /// Matches a streamed chunk against the previous one instead of parsing it.
    pub delta_template: bool,
    /// Drops wake-ups that a task causes itself, and polls that no wake-up precedes.
    pub coalescing_waker: bool,
    /// Serializes the part of an event that the deltas of a message share once per message.
    pub event_prefix: bool,
    /// Writes all events that are ready in one frame.
    pub merged_events: bool,
    /// Writes the first delta at once, although more events are ready. Has no effect without `merged_events`.
    pub early_first_delta: bool,
    /// Copies the slices of a small write into one buffer.
    pub joined_writes: bool,
    /// Enters the request's span only when the body polls its source, rather than in each poll of the body.
    pub lazy_span: bool,
    /// Polls the timer of a stream's limits only when it may have fired.
    pub lazy_timer: bool,
    /// Writes the access log line after the last bytes of the response.
    pub deferred_access_log: bool,
    /// Runs each connection on one of as many single-threaded runtimes as there are cores.
    pub thread_per_core: bool,
}

impl RelayOptions {
    /// All optimizations.
    pub const FAST: Self = Self::all(true);

    /// The straightforward implementation of everything: the reference.
    pub const PLAIN: Self = Self::all(false);

    const fn all(enabled: bool) -> Self {
        Self {
            delta_template: enabled,
            coalescing_waker: enabled,
            event_prefix: enabled,
            merged_events: enabled,
            early_first_delta: enabled,
            joined_writes: enabled,
            lazy_span: enabled,
            lazy_timer: enabled,
            deferred_access_log: enabled,
            thread_per_core: enabled,
        }
    }
}

/// The options of this build.
impl Default for RelayOptions {
    fn default() -> Self {
        if cfg!(feature = "plain-relay") { Self::PLAIN } else { Self::FAST }
    }
}
