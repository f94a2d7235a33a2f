//! Errors of runs.

use serde::{Deserialize, Serialize};

/// Error of a run, with the code and the message that its client receives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicRunError {
    /// Machine-readable code.
    pub code: String,
    /// Public message.
    pub message: String,
}

impl PublicRunError {
    /// Returns the error of a run whose process has ended.
    pub fn interrupted() -> Self {
        let message = "the process of the run has ended".to_owned();
        Self { code: RUN_INTERRUPTED.to_owned(), message }
    }
}

/// Code of the error of an interrupted run.
pub const RUN_INTERRUPTED: &str = "RUN_INTERRUPTED";
