//! Test doubles: a scripted model, a manual clock, fake tools and reports of tool calls, and sample turns.
//!
//! The doubles record their calls, and none needs a runtime.

mod backend;
mod calls;
mod clock;
mod model;
mod tools;
mod turn;

pub use backend::{prepare_turn, start_turn};
pub use calls::FakeReportedCalls;
pub use clock::ManualClock;
pub use model::{ScriptedAnswer, ScriptedModel};
pub use tools::{FakeTools, ToolCallRecord};
pub use turn::{backend_prompt, backend_turn, format_fragments, turn_input};

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counter of open items: incremented by [`enter`](Self::enter), decremented when the guard is dropped.
#[derive(Debug, Clone, Default)]
struct OpenCount(Arc<AtomicUsize>);

impl OpenCount {
    fn enter(&self) -> OpenGuard {
        self.0.fetch_add(1, Ordering::SeqCst);
        OpenGuard(self.clone())
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

struct OpenGuard(OpenCount);

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
