//! Doubles for tests: a model that follows a script, a clock that stands still until it is told
//! otherwise, tools that fail as asked.
//!
//! All of them record what was done to them, and none needs a runtime.

mod clock;
mod model;
mod tools;

pub use clock::ManualClock;
pub use model::{Answer, ScriptedModel};
pub use tools::{FakeTools, ToolCallRecord};

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts things that are open: up when one is made, down when it is dropped.
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
