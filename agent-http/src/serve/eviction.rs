//! Eviction of idle connections, by client address.
//!
//! Idle connections, on which no exchange is in progress, of a single client could otherwise hold all slots: silent
//! ones for [`ServeLimits::head_read`](super::ServeLimits::head_read), those with a request from time to time indefinitely.
//! For a client that finds no slot, the longest idle connection of the address that has the most of them is therefore
//! closed, if these are more than the address's share of all slots; otherwise the longest idle one of all, since a client
//! may have many addresses. RFC 9112 section 9.5 lets a server close an idle connection at any time. A connection is not
//! idle from the head of a request to the last byte of its response, and is not closed for another client meanwhile.
//!
//! The exception is a response to a sender that is not authenticated, which no limit of a company counts, while its client does not
//! read it: a client of many addresses could otherwise hold all slots by such responses. If no connection is idle, the one that
//! has waited for its client for the longest time is closed.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

use crate::connection_permit::ConnectionPermit;

/// Divisor of the maximum number of connections: the idle connections of one address beyond which these are closed first.
const ADDRESS_SHARE: u32 = 16;

/// Open connections by address, with the idle connections in the order in which they became idle.
#[derive(Debug)]
pub(super) struct EvictionQueue {
    /// Number of idle connections of an address beyond which these are closed first.
    share: usize,
    /// Notified when a waiting client may find a slot: a connection has ended, an evicted one stays open, or one has become
    /// idle.
    changed: Notify,
    connections: Mutex<OpenConnections>,
}

/// The maximum number of connections bounds the maps, since each entry is an open connection.
#[derive(Debug, Default)]
struct OpenConnections {
    next_id: u64,
    by_address: HashMap<IpAddr, AddressConnections>,
    /// Addresses with more idle connections than their share; fewer than [`ADDRESS_SHARE`].
    over_share: BTreeSet<IpAddr>,
    /// Idle connections of all addresses whose slots any client may have.
    idle: BTreeMap<u64, IpAddr>,
    /// Connections whose slots any client may have and that wait for their clients to read a response that no limit counts.
    stalled: BTreeMap<u64, Arc<EvictionSignal>>,
    /// Number of evicted connections that have not ended yet.
    evicted: usize,
}

#[derive(Debug, Default)]
struct AddressConnections {
    open: usize,
    idle: BTreeMap<u64, Arc<EvictionSignal>>,
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
        Arc::new(Self { share, changed: Notify::new(), connections: Mutex::default() })
    }

    /// Adds a connection from `address`, which is idle until its first request head. `is_common` is true if any client may have
    /// its slot afterwards.
    pub(super) fn insert(self: &Arc<Self>, address: IpAddr, is_common: bool) -> Evictable {
        let signal = Arc::<EvictionSignal>::default();
        let mut connections = self.lock();
        connections.by_address.entry(address).or_default().open += 1;
        let id = connections.insert_idle((address, is_common), &signal, self.share);
        drop(connections);
        Evictable {
            queue: self.clone(),
            address,
            is_common,
            signal,
            idle_id: AtomicU64::new(id),
            stalled_id: AtomicU64::new(0),
            is_stalled: AtomicBool::new(false),
            is_in_exchange: AtomicBool::new(false),
            is_response_ended: AtomicBool::new(false),
            connection_permit: ConnectionPermit::default(),
        }
    }

    /// Returns the number of open connections from `address`.
    pub(super) fn open_connections(&self, address: IpAddr) -> usize {
        self.lock().by_address.get(&address).map_or(0, |connections| connections.open)
    }

    /// Evicts connections until as many are closing, or slots free, as clients wait. Each is the longest idle one of the address
    /// that has the most, if these are more than its share, and otherwise of all; if none is idle, the one that has been stalled for
    /// the longest time. Returns false if there are too few.
    ///
    /// An idle connection closes as soon as its task has found that no request head has arrived. `free_slots` counts
    /// the slots that the waiting clients may take. It is called under the queue's lock: an evicted connection that is
    /// not counted any more has freed its slot before, so none is evicted twice for one client. Slots that become free
    /// are reported by [`changed`](Self::changed).
    pub(super) fn evict_for(&self, waiting_clients: usize, free_slots: impl Fn() -> usize) -> bool {
        loop {
            let mut connections = self.lock();
            if connections.evicted + free_slots() >= waiting_clients {
                return true;
            }
            let Some(signal) = connections.evict(self.share) else { return false };
            drop(connections);
            signal.task.wake();
        }
    }

    /// Completes when a waiting client may find a slot. A change before the call counts if no call has reported it.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    /// Adds an open connection to the idle ones, and returns its id there.
    fn insert_idle(
        &mut self,
        (address, is_common): (IpAddr, bool),
        signal: &Arc<EvictionSignal>,
        share: usize,
    ) -> u64 {
        let id = self.next_id();
        if is_common {
            self.idle.insert(id, address);
        }
        let idle = &mut self.by_address.entry(address).or_default().idle;
        idle.insert(id, signal.clone());
        if idle.len() > share {
            self.over_share.insert(address);
        }
        id
    }

    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Removes a connection from the idle ones; `None` if it was evicted.
    fn remove_idle(&mut self, address: IpAddr, id: u64, share: usize) -> Option<Arc<EvictionSignal>> {
        let idle = &mut self.by_address.get_mut(&address)?.idle;
        let signal = idle.remove(&id)?;
        self.idle.remove(&id);
        if idle.len() <= share {
            self.over_share.remove(&address);
        }
        Some(signal)
    }

    /// Evicts one connection, whose task must then be woken; `None` if none is idle or stalled.
    fn evict(&mut self, share: usize) -> Option<Arc<EvictionSignal>> {
        let signal = match self.next_idle() {
            Some((address, id)) => self.remove_idle(address, id, share)?,
            None => self.stalled.pop_first()?.1,
        };
        self.evicted += 1;
        // Under the lock, so that a head that is read afterwards takes it back.
        signal.is_evicted.store(true, Ordering::Release);
        Some(signal)
    }

    /// Returns the idle connection that is evicted next.
    fn next_idle(&self) -> Option<(IpAddr, u64)> {
        let idle =
            |address: &IpAddr| self.by_address.get(address).map_or(0, |connections| connections.idle.len());
        match self.over_share.iter().copied().max_by_key(idle) {
            Some(address) => Some((address, *self.by_address.get(&address)?.idle.keys().next()?)),
            None => self.idle.first_key_value().map(|(id, address)| (*address, *id)),
        }
    }

    /// Removes an ended connection from the open connections.
    fn remove_open(&mut self, address: IpAddr) {
        if let Entry::Occupied(mut connections) = self.by_address.entry(address) {
            connections.get_mut().open -= 1;
            if connections.get().open == 0 {
                connections.remove();
            }
        }
    }
}

/// Entry of a connection in the [`EvictionQueue`], removed on drop.
///
/// The connection's slot must be free before the drop, which tells the waiting clients of it.
#[derive(Debug)]
pub(super) struct Evictable {
    queue: Arc<EvictionQueue>,
    address: IpAddr,
    is_common: bool,
    signal: Arc<EvictionSignal>,
    /// Id among the idle connections, unless an exchange is in progress.
    idle_id: AtomicU64,
    /// Id among the stalled connections, if it is one.
    stalled_id: AtomicU64,
    is_stalled: AtomicBool,
    /// True from a request head until its response has been written.
    is_in_exchange: AtomicBool,
    /// True from the end of a response body until it has been written.
    is_response_ended: AtomicBool,
    /// Permit of the company whose exchange is in progress.
    connection_permit: ConnectionPermit,
}

impl Evictable {
    /// Records that a request head was read. The connection stays open, even if it was evicted before.
    pub(super) fn begin_exchange(&self) {
        self.is_response_ended.store(false, Ordering::Relaxed);
        // A pipelined request may be read before the previous response has been written.
        if self.is_in_exchange.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut connections = self.queue.lock();
        let id = self.idle_id.load(Ordering::Relaxed);
        if connections.remove_idle(self.address, id, self.queue.share).is_none() {
            connections.evicted -= 1;
            self.signal.is_evicted.store(false, Ordering::Relaxed);
            drop(connections);
            self.queue.changed.notify_one();
        }
    }

    /// Returns the permit that the connection holds for its exchanges.
    pub(super) fn connection_permit(&self) -> &ConnectionPermit {
        &self.connection_permit
    }

    /// Records that the connection waits for its client to read a response to a sender that is not authenticated.
    pub(super) fn begin_stall(&self) {
        if !self.is_common
            || !self.is_in_exchange.load(Ordering::Relaxed)
            || self.is_stalled.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let mut connections = self.queue.lock();
        let id = connections.next_id();
        connections.stalled.insert(id, self.signal.clone());
        drop(connections);
        self.stalled_id.store(id, Ordering::Relaxed);
        self.queue.changed.notify_one();
    }

    /// Records that everything was written, or that the connection is counted. It stays open, even if it was evicted before.
    pub(super) fn end_stall(&self) {
        if !self.is_stalled.load(Ordering::Relaxed) {
            return;
        }
        self.is_stalled.store(false, Ordering::Relaxed);
        let mut connections = self.queue.lock();
        if connections.stalled.remove(&self.stalled_id.load(Ordering::Relaxed)).is_none() {
            connections.evicted -= 1;
            self.signal.is_evicted.store(false, Ordering::Relaxed);
            drop(connections);
            self.queue.changed.notify_one();
        }
    }

    /// Records that the body of a response has ended, but may not have been written yet.
    pub(super) fn end_response(&self) {
        self.is_response_ended.store(true, Ordering::Relaxed);
    }

    /// Records that everything was written. If the response has ended, the connection is idle again.
    pub(super) fn record_flush(&self) {
        if !self.is_response_ended.load(Ordering::Relaxed) {
            return;
        }
        self.is_response_ended.store(false, Ordering::Relaxed);
        self.is_in_exchange.store(false, Ordering::Relaxed);
        self.connection_permit.release();
        let mut connections = self.queue.lock();
        let id = connections.insert_idle((self.address, self.is_common), &self.signal, self.queue.share);
        drop(connections);
        self.idle_id.store(id, Ordering::Relaxed);
        self.queue.changed.notify_one();
    }

    /// Returns true if the connection was evicted, and neither was a request head read since, nor the response written.
    pub(super) fn is_evicted(&self) -> bool {
        !self.is_stalled_and_counted() && self.signal.is_evicted.load(Ordering::Acquire)
    }

    /// Returns true if a pipelined request was authenticated while the client has not read the response before it.
    fn is_stalled_and_counted(&self) -> bool {
        self.is_stalled.load(Ordering::Relaxed) && !self.connection_permit.is_uncounted()
    }

    /// Completes when the connection is evicted. Only the last task is woken.
    pub(super) fn poll_evicted(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_stalled_and_counted() {
            self.end_stall();
        }
        if self.is_in_exchange.load(Ordering::Relaxed) && !self.is_stalled.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        self.signal.task.register(cx.waker());
        if self.is_evicted() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Evictable {
    fn drop(&mut self) {
        // A task of the request may outlive the connection.
        self.connection_permit.release();
        let (id, is_idle) = (*self.idle_id.get_mut(), !*self.is_in_exchange.get_mut());
        let (stalled_id, is_stalled) = (*self.stalled_id.get_mut(), *self.is_stalled.get_mut());
        let mut connections = self.queue.lock();
        if is_stalled && connections.stalled.remove(&stalled_id).is_none() {
            connections.evicted -= 1;
        }
        if is_idle && connections.remove_idle(self.address, id, self.queue.share).is_none() {
            connections.evicted -= 1;
        }
        connections.remove_open(self.address);
        drop(connections);
        self.queue.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use agent_core::ids::CompanyId;
    use agent_platform::company_permits::CompanyPermits;

    use super::*;
    use crate::serve::Peer;
    use crate::serve::slots::{ConnectionSlot, ConnectionSlots};

    fn insert(queue: &Arc<EvictionQueue>, peer: &str) -> Evictable {
        queue.insert(Peer(peer.parse().expect("an address")).network(), true)
    }

    fn is_evicted(connection: &Evictable) -> bool {
        connection.poll_evicted(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Evicts connections for waiting clients where no slot is free.
    fn evict_for(queue: &EvictionQueue, waiting_clients: usize) -> bool {
        queue.evict_for(waiting_clients, || 0)
    }

    /// Returns true if a change was reported since the last call.
    fn take_change(queue: &EvictionQueue) -> bool {
        pin!(queue.changed()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn complete_exchange(connection: &Evictable) {
        connection.begin_exchange();
        connection.end_response();
        connection.record_flush();
    }

    #[test]
    fn the_longest_idle_of_the_address_with_the_most_is_evicted_first() {
        let queue = EvictionQueue::new(32);
        let connect = |peer: &str, count: usize| -> Vec<Evictable> {
            (0..count).map(|_| insert(&queue, peer)).collect()
        };
        let small = connect("192.0.2.1:1", 2);
        let large = connect("192.0.2.2:1", 3);
        let largest = connect("192.0.2.3:1", 5);
        let evicted = |connections: &[Evictable]| connections.iter().map(is_evicted).collect::<Vec<_>>();

        // The first of the largest has just been used.
        complete_exchange(&largest[0]);
        assert!(evict_for(&queue, 1));
        assert_eq!(evicted(&largest), [false, true, false, false, false]);
        assert!(evict_for(&queue, 1), "one is closing already");
        assert_eq!(evicted(&largest), [false, true, false, false, false]);
        assert!(evict_for(&queue, 2));
        assert_eq!(evicted(&largest), [false, true, true, false, false]);
        assert_eq!(evicted(&large), [false, false, false]);
        // Both have three now, one more than their share.
        assert!(evict_for(&queue, 4));
        assert_eq!(evicted(&largest), [false, true, true, true, false]);
        assert_eq!(evicted(&large), [true, false, false]);
        assert_eq!(evicted(&small), [false, false]);
        // Each address has its share of two: the longest idle of all follow.
        assert!(evict_for(&queue, 5));
        assert_eq!([evicted(&small), evicted(&large)].concat(), [true, false, true, false, false]);
        assert!(evict_for(&queue, 9));
        assert!(!evict_for(&queue, 11), "there are ten");
    }

    #[test]
    fn connections_in_an_exchange_or_that_have_ended_do_not_count() {
        let queue = EvictionQueue::new(16);
        let first = insert(&queue, "192.0.2.1:1");
        let second = insert(&queue, "192.0.2.1:2");
        first.begin_exchange();
        first.begin_exchange();
        drop(second);
        assert!(!evict_for(&queue, 1));
        let third = insert(&queue, "192.0.2.1:3");
        let fourth = insert(&queue, "192.0.2.1:4");
        assert_eq!(queue.open_connections(first.address), 3);
        assert!(evict_for(&queue, 1));
        assert_eq!([&first, &third, &fourth].map(is_evicted), [false, true, false]);
        drop((first, third, fourth));
        let connections = queue.lock();
        assert!(connections.by_address.is_empty() && connections.over_share.is_empty());
        assert!(connections.idle.is_empty());
        assert_eq!(connections.evicted, 0);
    }

    #[test]
    fn the_longest_stalled_is_evicted_if_none_is_idle() {
        let queue = EvictionQueue::new(32);
        let connections = ["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"].map(|peer| insert(&queue, peer));
        let [first, second, idle] = &connections;
        first.begin_stall();
        assert!(evict_for(&queue, 1) && is_evicted(first), "an idle one");
        for connection in [first, second] {
            connection.begin_exchange();
            connection.connection_permit().begin_request();
        }
        take_change(&queue);
        second.begin_stall();
        assert!(take_change(&queue), "waiting clients hear of it");
        first.begin_stall();
        // It reads on, and its response is not written yet.
        second.begin_stall();
        assert!(evict_for(&queue, 1) && is_evicted(idle) && !is_evicted(second));
        assert!(evict_for(&queue, 2) && is_evicted(second) && !is_evicted(first));
        assert!(evict_for(&queue, 3) && is_evicted(first) && !evict_for(&queue, 4));
        // The last bytes are written before its task has seen the eviction.
        take_change(&queue);
        first.end_stall();
        assert!(take_change(&queue) && !is_evicted(first) && !evict_for(&queue, 3));
        first.end_response();
        first.record_flush();
        assert!(evict_for(&queue, 3) && is_evicted(first), "it is idle");
        // The next request is read with the last bytes of the response before.
        let permits = CompanyPermits::new(usize::MAX, 1);
        assert!(second.connection_permit().acquire(&permits, &CompanyId::from("c")));
        assert!(!is_evicted(second) && take_change(&queue) && !evict_for(&queue, 3));
        drop(connections);
        let connections = queue.lock();
        assert!(connections.stalled.is_empty() && connections.idle.is_empty());
        assert_eq!(connections.evicted, 0);
    }

    #[test]
    fn a_connection_whose_slot_is_reserved_makes_no_room_for_all() {
        let queue = EvictionQueue::new(32);
        let reserved = queue.insert([192, 0, 2, 1].into(), false);
        assert!(!evict_for(&queue, 1));
        reserved.begin_exchange();
        reserved.begin_stall();
        assert!(!evict_for(&queue, 1));
        let common = insert(&queue, "192.0.2.2:1");
        complete_exchange(&common);
        complete_exchange(&reserved);
        assert!(evict_for(&queue, 1) && !evict_for(&queue, 2));
        assert!(is_evicted(&common) && !is_evicted(&reserved));
    }

    #[test]
    fn a_connection_is_idle_again_when_its_response_has_been_written() {
        let queue = EvictionQueue::new(16);
        let connection = insert(&queue, "192.0.2.1:1");
        let (permits, company_id) = (CompanyPermits::new(usize::MAX, 1), CompanyId::from("c"));
        let is_free = || permits.try_acquire(&company_id).is_some();
        connection.begin_exchange();
        assert!(connection.connection_permit().acquire(&permits, &company_id) && !is_free());
        connection.record_flush();
        assert!(!evict_for(&queue, 1), "the response goes on");
        connection.end_response();
        assert!(!evict_for(&queue, 1), "the end of the response is not written");
        // A pipelined request begins before that.
        connection.begin_exchange();
        connection.record_flush();
        assert!(!evict_for(&queue, 1) && !is_free(), "another exchange has begun");
        connection.end_response();
        assert!(!take_change(&queue));
        connection.record_flush();
        assert!(take_change(&queue), "waiting clients hear of it");
        assert!(evict_for(&queue, 1) && is_evicted(&connection) && is_free());
        connection.begin_exchange();
        assert!(connection.connection_permit().acquire(&permits, &company_id));
        let of_request = connection.connection_permit().clone();
        drop(connection);
        assert!(is_free(), "the connection has ended");
        drop(of_request);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let queue = EvictionQueue::new(16);
        let _others = [insert(&queue, "192.0.2.1:1"), insert(&queue, "[2001:db8:0:1::1]:1")];
        let connections = ["[2001:db8::1]:1", "[2001:db8::2]:1"].map(|peer| insert(&queue, peer));
        assert_eq!(queue.open_connections(connections[0].address), 2);
        assert!(evict_for(&queue, 1));
        assert_eq!(connections.each_ref().map(is_evicted), [true, false]);
    }

    #[test]
    fn a_head_that_is_read_after_the_eviction_spares_the_connection() {
        let queue = EvictionQueue::new(1);
        let connections = [insert(&queue, "192.0.2.1:1"), insert(&queue, "192.0.2.1:2")];
        assert!(evict_for(&queue, 1));
        assert!(is_evicted(&connections[0]));
        assert!(!take_change(&queue));
        connections[0].begin_exchange();
        assert!(take_change(&queue));
        assert!(!connections[0].is_evicted() && !is_evicted(&connections[0]));
        assert!(evict_for(&queue, 1) && is_evicted(&connections[1]), "the other one follows");
    }

    #[test]
    fn an_evicted_connection_that_ends_makes_room_once() {
        let queue = EvictionQueue::new(1);
        let mut connections =
            ["192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3"].map(|peer| Some(insert(&queue, peer)));
        assert!(evict_for(&queue, 1));
        connections[0] = None;
        assert!(take_change(&queue));
        assert!(evict_for(&queue, 1), "the next client needs another slot");
        assert!(connections[1].as_ref().is_some_and(Evictable::is_evicted));
    }

    #[test]
    fn a_slot_that_becomes_free_before_the_eviction_spares_a_connection() {
        let slots = ConnectionSlots::new(3);
        let queue = EvictionQueue::new(3);
        let connect = |peer: &str| (slots.try_take(), Some(insert(&queue, peer)));
        let mut connections = ["192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3"].map(connect);
        let is_open = |connection: &(Option<ConnectionSlot>, Option<Evictable>)| {
            connection.1.as_ref().is_some_and(|entry| !entry.is_evicted())
        };
        // A client waits. Between the next search for a slot and the next eviction, the evicted connection ends.
        assert!(slots.try_take().is_none());
        assert!(queue.evict_for(1, || slots.free()));
        assert!(slots.try_take().is_none());
        connections[0] = (None, None);
        assert!(queue.evict_for(1, || slots.free()));
        assert_eq!(connections.each_ref().map(is_open), [false, true, true]);
        assert!(take_change(&queue), "the client hears of the free slot");
        // A second one needs another.
        assert!(queue.evict_for(2, || slots.free()));
        assert_eq!(connections.each_ref().map(is_open), [false, false, true]);
        assert!(queue.evict_for(3, || slots.free()) && !queue.evict_for(4, || slots.free()));
    }
}
