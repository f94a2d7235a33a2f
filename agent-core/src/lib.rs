//! Traits and pure logic of an agent chat platform; it knows no transport.
//!
//! (the map is written when the modules stand)

pub mod backend;
pub mod budget;
pub mod clock;
pub mod context;
pub mod error;
pub mod event;
pub mod history;
pub mod memory;
pub mod message;
pub mod model;
pub mod payload;
pub mod prompt;
pub mod records;
pub mod role;
pub mod select;
#[cfg(feature = "conformance")]
pub mod testing;
pub mod tool;
pub mod tool_loop;
pub mod tools;
pub mod turn;
pub mod workspace;

/// A new identifier: a UUID of version 7, which sorts by the time of its making.
pub fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}
