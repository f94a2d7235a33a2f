//! The whole system, tested through its doors.

mod chat;
mod support;
