//! The whole system, tested through its doors.

mod support;
