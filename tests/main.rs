//! The whole system, tested through its doors.

// `pub` says here what a module is for others, though nothing is outside of a test binary.
#![allow(unreachable_pub)]

mod address;
mod chat;
mod clients;
mod durable;
mod faults;
mod identity;
mod limits;
mod manage;
mod mcp;
mod ollama;
mod preview;
mod pulse;
mod runtime;
mod scheduler;
mod secrets;
mod support;
mod tokens;
mod tools;
mod workflow;
