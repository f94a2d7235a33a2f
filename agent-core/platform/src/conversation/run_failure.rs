//! Errors of runs.

use serde::{Deserialize, Serialize};

/// Public error of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailure {
    /// Machine-readable code.
    pub code: String,
    /// Public message.
    pub message: String,
}

impl RunFailure {
    /// Returns the error of a run whose process has ended.
    pub fn interrupted() -> Self {
        let message = "the process of the run has ended".to_owned();
        Self { code: RUN_INTERRUPTED.to_owned(), message }
    }
}

/// Code of the error of an interrupted run.
pub const RUN_INTERRUPTED: &str = "RUN_INTERRUPTED";
