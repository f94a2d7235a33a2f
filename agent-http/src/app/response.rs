//! Responses of the application's routes.

pub(super) use crate::response::{json, json_bytes};
