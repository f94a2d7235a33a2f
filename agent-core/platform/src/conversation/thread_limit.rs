//! Limits on the numbers of threads and nodes.

use std::fmt;

use super::ThreadOwner;

/// Maximum number of nodes in a thread; the answer of a run that has started may exceed it.
pub const MAX_THREAD_NODES: u32 = 10_000;

/// Maximum number of children of a node, and of roots of a thread.
pub const MAX_NODE_CHILDREN: u32 = 100;

/// Maximum number of threads of a user.
pub const MAX_USER_THREADS: u64 = 100_000;

/// Maximum number of threads of a visitor.
pub const MAX_VISITOR_THREADS: u64 = 50;

/// Limit that an operation would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThreadLimit {
    /// [`MAX_THREAD_NODES`].
    Nodes,
    /// [`MAX_NODE_CHILDREN`].
    Children,
    /// Threads of the owner: [`MAX_USER_THREADS`] or [`MAX_VISITOR_THREADS`].
    Threads,
}

impl fmt::Display for ThreadLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nodes => "the thread has 10000 messages, which is the limit",
            Self::Children => "the message has 100 alternatives, which is the limit",
            Self::Threads => "the owner has as many threads as the limit allows",
        })
    }
}

/// Returns the maximum number of threads of an owner.
pub fn max_threads(owner: &ThreadOwner) -> u64 {
    if owner.is_visitor() { MAX_VISITOR_THREADS } else { MAX_USER_THREADS }
}
