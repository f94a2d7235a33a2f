//! Eviction of connections without a request, by client address.
//!
//! Silent connections of a single client could otherwise hold all places for
//! [`ServeLimits::head_read`](super::ServeLimits::head_read) and keep other clients out, health probes included. At the
//! limit, a new connection therefore replaces the oldest one without a head of the address that has the most of them,
//! if these are more than the address's share of all places. A connection whose first head was read is neither counted
//! nor evicted: of a reverse proxy, which has one address for all clients, only connections that it has not used yet
//! can be closed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

/// Divisor of the maximum number of connections: the connections without a head that one address keeps at the limit.
const ADDRESS_SHARE: u32 = 16;

/// Connections without a request head, in the order of their arrival for each address.
#[derive(Debug)]
pub(super) struct EvictionQueue {
    /// Number of connections without a head that an address may keep at the limit.
    share: usize,
    /// Notified when an evicted connection stays open, since its head was read before it closed.
    spared: Notify,
    candidates: Mutex<Candidates>,
}

/// The maximum number of connections bounds the maps, since each entry is an open connection.
#[derive(Debug, Default)]
struct Candidates {
    next_id: u64,
    by_address: HashMap<IpAddr, BTreeMap<u64, Arc<EvictionSignal>>>,
    /// Addresses with more connections than their share; fewer than [`ADDRESS_SHARE`].
    over_share: BTreeSet<IpAddr>,
}

#[derive(Debug, Default)]
struct EvictionSignal {
    is_evicted: AtomicBool,
    task: AtomicWaker,
}

impl EvictionQueue {
    /// Creates the queue of a server with at most `max_connections` connections.
    pub(super) fn new(max_connections: u32) -> Arc<Self> {
        let share = (max_connections / ADDRESS_SHARE).max(1) as usize;
        Arc::new(Self { share, spared: Notify::new(), candidates: Mutex::default() })
    }

    /// Adds a connection from `address`. It can be evicted until its first head is recorded.
    pub(super) fn insert(self: &Arc<Self>, address: IpAddr) -> Evictable {
        let signal = Arc::<EvictionSignal>::default();
        let mut candidates = self.lock();
        let id = candidates.next_id;
        candidates.next_id += 1;
        let connections = candidates.by_address.entry(address).or_default();
        connections.insert(id, signal.clone());
        if connections.len() > self.share {
            candidates.over_share.insert(address);
        }
        drop(candidates);
        Evictable { queue: self.clone(), address, id, signal, has_head: AtomicBool::new(false) }
    }

    /// Evicts the oldest connection of the address that has the most, if these are more than its share. Returns false
    /// if there is none.
    ///
    /// The connection closes as soon as its task has found that no head has arrived.
    pub(super) fn evict(&self) -> bool {
        let mut candidates = self.lock();
        let count = |address: &IpAddr| candidates.by_address.get(address).map_or(0, BTreeMap::len);
        let Some(address) = candidates.over_share.iter().copied().max_by_key(count) else { return false };
        let oldest = candidates.by_address.get(&address).and_then(|connections| connections.keys().next());
        let Some(id) = oldest.copied() else { return false };
        let Some(signal) = candidates.remove(address, id, self.share) else { return false };
        drop(candidates);
        signal.is_evicted.store(true, Ordering::Release);
        signal.task.wake();
        true
    }

    /// Completes when an evicted connection stays open. It counts from this call on, not only from the first poll.
    pub(super) fn wait_until_spared(&self) -> impl Future<Output = ()> {
        self.spared.notified()
    }

    fn lock(&self) -> MutexGuard<'_, Candidates> {
        self.candidates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Candidates {
    /// Removes a connection; `None` if it was removed before.
    fn remove(&mut self, address: IpAddr, id: u64, share: usize) -> Option<Arc<EvictionSignal>> {
        let connections = self.by_address.get_mut(&address)?;
        let signal = connections.remove(&id)?;
        if connections.len() <= share {
            self.over_share.remove(&address);
        }
        if connections.is_empty() {
            self.by_address.remove(&address);
        }
        Some(signal)
    }
}

/// Place of a connection in the [`EvictionQueue`]. It leaves the queue with its first head, or on drop.
#[derive(Debug)]
pub(super) struct Evictable {
    queue: Arc<EvictionQueue>,
    address: IpAddr,
    id: u64,
    signal: Arc<EvictionSignal>,
    has_head: AtomicBool,
}

impl Evictable {
    /// Records that a request head was read. From the first one on the connection is not evicted, not even if it was
    /// chosen before.
    pub(super) fn record_head(&self) {
        let is_first = !self.has_head.swap(true, Ordering::Relaxed);
        if is_first && !self.leave() {
            self.queue.spared.notify_waiters();
        }
    }

    /// Returns true if a request head was read.
    pub(super) fn has_head(&self) -> bool {
        self.has_head.load(Ordering::Relaxed)
    }

    /// Completes when the connection is evicted before its first head is recorded. Only the last task is woken.
    pub(super) fn poll_evicted(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_head() {
            return Poll::Pending;
        }
        self.signal.task.register(cx.waker());
        if self.signal.is_evicted.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Leaves the queue; false if the connection was evicted.
    fn leave(&self) -> bool {
        let mut candidates = self.queue.lock();
        candidates.remove(self.address, self.id, self.queue.share).is_some()
    }
}

impl Drop for Evictable {
    fn drop(&mut self) {
        if !self.has_head() {
            self.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::*;
    use crate::serve::Peer;

    fn insert(queue: &Arc<EvictionQueue>, peer: &str) -> Evictable {
        queue.insert(Peer(peer.parse().expect("an address")).network())
    }

    fn is_evicted(connection: &Evictable) -> bool {
        connection.poll_evicted(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_oldest_of_the_address_with_the_most_is_evicted_down_to_its_share() {
        let queue = EvictionQueue::new(32);
        let connect = |peer: &str, count: usize| -> Vec<Evictable> {
            (0..count).map(|_| insert(&queue, peer)).collect()
        };
        let small = connect("192.0.2.1:1", 2);
        let large = connect("192.0.2.2:1", 3);
        let largest = connect("192.0.2.3:1", 5);
        let evicted = |connections: &[Evictable]| connections.iter().map(is_evicted).collect::<Vec<_>>();

        assert!(queue.evict());
        assert_eq!(evicted(&largest), [true, false, false, false, false]);
        assert!(queue.evict());
        assert_eq!(evicted(&largest), [true, true, false, false, false]);
        assert_eq!(evicted(&large), [false, false, false]);
        // Both have three now, one more than their share.
        assert!(queue.evict() && queue.evict());
        assert_eq!(evicted(&largest), [true, true, true, false, false]);
        assert_eq!(evicted(&large), [true, false, false]);
        assert!(!queue.evict(), "each address has its share of two");
        assert_eq!(evicted(&small), [false, false]);
    }

    #[test]
    fn connections_with_a_head_or_that_have_ended_do_not_count() {
        let queue = EvictionQueue::new(16);
        let first = insert(&queue, "192.0.2.1:1");
        let second = insert(&queue, "192.0.2.1:2");
        first.record_head();
        first.record_head();
        assert!(!queue.evict(), "the only one without a head");
        let third = insert(&queue, "192.0.2.1:3");
        drop(second);
        assert!(!queue.evict());
        let fourth = insert(&queue, "192.0.2.1:4");
        assert!(queue.evict());
        assert_eq!([&first, &third, &fourth].map(is_evicted), [false, true, false]);
        drop((first, third, fourth));
        let candidates = queue.lock();
        assert!(candidates.by_address.is_empty() && candidates.over_share.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let queue = EvictionQueue::new(16);
        let _others = [insert(&queue, "192.0.2.1:1"), insert(&queue, "[2001:db8:0:1::1]:1")];
        let connections = ["[2001:db8::1]:1", "[2001:db8::2]:1"].map(|peer| insert(&queue, peer));
        assert!(queue.evict());
        assert_eq!(connections.each_ref().map(is_evicted), [true, false]);
        assert!(!queue.evict());
    }

    #[test]
    fn a_head_that_is_read_after_the_eviction_spares_the_connection() {
        let queue = EvictionQueue::new(1);
        let connections = [insert(&queue, "192.0.2.1:1"), insert(&queue, "192.0.2.1:2")];
        let mut spared = pin!(queue.wait_until_spared());
        assert!(queue.evict());
        assert!(is_evicted(&connections[0]));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(spared.as_mut().poll(&mut cx).is_pending());
        connections[0].record_head();
        assert!(spared.as_mut().poll(&mut cx).is_ready());
        assert!(!is_evicted(&connections[0]));
    }
}
