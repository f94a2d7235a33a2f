//! Set of the ids of a thread's nodes, in which unknown ids are recognized without comparing all nodes.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::NodeLink;

/// Approximate size of the hashes of a node's ids, in bytes.
pub(super) const NODE_ID_HASHES_BYTES: usize = 40;

/// Hashes of the ids of a thread's nodes: the platform's and the client's.
#[derive(Debug, Default)]
pub struct NodeIds {
    hasher: RandomState,
    /// Computed at the second lookup: a single scan of all nodes costs less.
    hashes: OnceLock<HashSet<u64>>,
    was_asked: AtomicBool,
}

impl NodeIds {
    /// Returns false if no node has the id. It may be true for an id that no node has. `links` are those of all nodes.
    pub(super) fn may_have(&self, links: &[NodeLink], id: &str) -> bool {
        if !self.was_asked.swap(true, Ordering::Relaxed) {
            return true;
        }
        let hashes = self.hashes.get_or_init(|| self.hashes_of(links).collect());
        hashes.contains(&self.hasher.hash_one(id))
    }

    /// Adds the ids of new nodes.
    pub(super) fn add(&mut self, links: &[NodeLink]) {
        if let Some(mut hashes) = self.hashes.take() {
            hashes.extend(self.hashes_of(links));
            self.hashes = hashes.into();
        }
    }

    fn hashes_of(&self, links: &[NodeLink]) -> impl Iterator<Item = u64> {
        let ids = links.iter().flat_map(|link| [Some(link.id.as_str()), link.client_id.as_deref()]);
        ids.flatten().map(|id| self.hasher.hash_one(id))
    }
}
