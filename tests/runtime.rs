//! The agent runtime over HTTP, and the application as its client.

mod chat;
mod messenger;
mod payload;
mod routes;
mod selection;
mod tools;
