//! The agent runtime from outside, and the application's side of it.

mod chat;
mod messenger;
mod payload;
mod routes;
mod selection;
mod tools;
