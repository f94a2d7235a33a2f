//! Division of a run's events into frames. Each frame is one write.

use super::RelayOptions;

/// Maximum size of a frame in bytes: once it is reached, the frame is returned although more events are ready.
const MAX_FRAME_BYTES: usize = 64 * 1024;

/// Initial capacity of the first buffer, in bytes: room for the events up to the first token.
const FIRST_BUFFER_BYTES: usize = 1024;

/// Initial capacity of later buffers, in bytes: room for one token with its event, which is most frames of a paced
/// stream. Kept small because allocators do periodic maintenance per allocated bytes.
const BUFFER_BYTES: usize = 256;

/// Decides after which events a body returns its buffer as a frame.
///
/// Events that are ready share a frame, which ends when the source is pending. The first delta is not delayed by
/// further ready events: its frame ends with it, and the connection gets the time to write it. The plain division is
/// one frame per event.
#[derive(Debug)]
pub struct FrameBatch {
    max_frame_bytes: usize,
    first_delta: FirstDelta,
}

/// Action of a body after an event was appended to its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameStep {
    /// Append the events that are ready, until the frame is full.
    Continue,
    /// Return the buffer as a frame now.
    Flush,
    /// Keep the buffer, and yield to the connection, which then writes the frame before.
    Yield,
}

/// Progress of writing the first delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstDelta {
    /// The first delta is not encoded yet.
    Awaited,
    /// Returned to the connection, which writes it once the body returns `Pending`.
    HandedOut,
    /// Written, or not treated separately.
    Written,
}

impl FrameBatch {
    /// Creates the division of a new run.
    pub fn new(options: &RelayOptions) -> Self {
        let early = options.merged_events && options.early_first_delta;
        Self {
            max_frame_bytes: if options.merged_events { MAX_FRAME_BYTES } else { 1 },
            first_delta: if early { FirstDelta::Awaited } else { FirstDelta::Written },
        }
    }

    /// Returns the capacity for a new buffer. The first one holds the start of the run.
    pub fn buffer_capacity(&self) -> usize {
        if self.first_delta == FirstDelta::Awaited { FIRST_BUFFER_BYTES } else { BUFFER_BYTES }
    }

    /// Returns true if a buffer of `bytes` bytes must be returned before another event is appended.
    pub fn is_full(&self, bytes: usize) -> bool {
        bytes >= self.max_frame_bytes
    }

    /// Returns the action after an event, which `is_delta` or not.
    pub fn after_event(&mut self, is_delta: bool) -> FrameStep {
        match self.first_delta {
            FirstDelta::Awaited if is_delta => {
                self.first_delta = FirstDelta::HandedOut;
                FrameStep::Flush
            }
            FirstDelta::HandedOut => {
                self.first_delta = FirstDelta::Written;
                FrameStep::Yield
            }
            FirstDelta::Awaited | FirstDelta::Written => FrameStep::Continue,
        }
    }

    /// Records that the source was pending, so that the connection has written its buffer.
    pub fn after_pending(&mut self) {
        if self.first_delta == FirstDelta::HandedOut {
            self.first_delta = FirstDelta::Written;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_delta_ends_its_frame_and_yields_before_the_next() {
        let mut batch = FrameBatch::new(&RelayOptions::FAST);
        assert_eq!(batch.after_event(false), FrameStep::Continue);
        assert_eq!(batch.after_event(true), FrameStep::Flush);
        assert_eq!(batch.after_event(true), FrameStep::Yield);
        assert_eq!(batch.after_event(true), FrameStep::Continue);
        let mut batch = FrameBatch::new(&RelayOptions::FAST);
        assert_eq!(batch.after_event(true), FrameStep::Flush);
        batch.after_pending();
        assert_eq!(batch.after_event(true), FrameStep::Continue, "it was written meanwhile");
    }

    #[test]
    fn a_plain_frame_is_full_after_one_event() {
        let mut batch = FrameBatch::new(&RelayOptions::PLAIN);
        assert_eq!(batch.after_event(true), FrameStep::Continue);
        assert!(!batch.is_full(0) && batch.is_full(1));
        let batch = FrameBatch::new(&RelayOptions::FAST);
        assert!(!batch.is_full(MAX_FRAME_BYTES - 1) && batch.is_full(MAX_FRAME_BYTES));
    }
}
