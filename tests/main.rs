//! The whole system, tested through its doors.

// Nothing outside can reach a test binary's items, so `pub` says here what a module offers the others.
#![allow(unreachable_pub)]

mod chat;
mod faults;
mod secrets;
mod support;
