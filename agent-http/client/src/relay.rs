//! Hot path of streams that are passed on: everything that exists only to make a token cheaper.
//!
//! Each optimization is one file with a plain interface, and beside it the straightforward implementation, selected by
//! a switch of [`RelayOptions`]. Both produce the same bytes for the same upstream in any chunking, which the property
//! test `agent-http/tests/relay.rs` checks. The server's optimizations, which need its sockets and threads, read their
//! switches in `agent_http::serve`.
//!
//! | file | optimization | plain implementation |
//! |---|---|---|
//! | `template` | matches a streamed chunk against the previous one | parses each chunk |
//! | `waker` | polls a stream once per wake-up from the network | passes the task's own waker on |
//! | `prefix` | serializes what the deltas of a message share once | serializes each event whole |
//! | `batch` | writes ready events together, except for the first delta | writes each event by itself |
//! | `slices` | copies the slices of a small write into one buffer | passes the slices to the kernel |

mod batch;
mod options;
mod prefix;
mod slices;
mod template;
mod waker;

pub use batch::{FrameBatch, FrameStep};
pub use options::RelayOptions;
pub use prefix::EventWriter;
pub use slices::{MAX_JOINED_WRITE_BYTES, join_slices};
pub(crate) use template::DeltaTemplate;
pub use waker::RelayWaker;
