//! Integration tests of the whole system over its public HTTP interfaces.

// `pub` marks a module's interface within the tests, although nothing is exported from a test binary.
#![allow(unreachable_pub)]

mod address;
mod anthropic;
mod catalog;
mod chat;
mod clients;
mod coding;
mod console;
mod conversations;
mod documents;
mod durable;
mod faults;
mod identity;
mod limits;
mod manage;
mod mcp;
mod ollama;
mod openai;
mod openapi;
mod parameters;
mod postgres;
mod preview;
mod processes;
mod providers;
mod pulse;
mod response_format;
mod responses;
mod retrieval;
mod runtime;
mod scheduler;
mod secrets;
mod support;
mod tokens;
mod tools;
mod usage;
mod workflow;
