//! Identifiers of messages, calls and rounds.

use std::sync::Arc;

/// An identifier shared by many events.
pub type Id = Arc<str>;
