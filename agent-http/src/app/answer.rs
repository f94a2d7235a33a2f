//! Responses of the application's routes.

pub(super) use crate::answer::{json, json_bytes};
