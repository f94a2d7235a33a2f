//! Slots of open connections.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Divisor of the maximum number of connections for the reserved slots, and of the reserved slots for the number of
/// connections at which an address gets none of them.
const RESERVED_SHARE_DIVISOR: u32 = 16;

/// Maximum number of reserved slots.
const MAX_RESERVED_SLOTS: u32 = 64;

/// Slots for health probes, beyond the maximum number of connections.
const PROBE_SLOTS: u32 = 16;

/// Slots of open connections, in three pools: most are for all clients, some are reserved for addresses with few
/// connections, and some, beyond the maximum number of connections, are for single health probes.
///
/// Because of the reserved slots, the connections of one address never hold all slots, even if all of them have an
/// exchange in progress.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    common: Pool,
    reserved: Pool,
    probes: Pool,
}

#[derive(Debug)]
struct Pool {
    free: Arc<Semaphore>,
    size: u32,
}

/// Slot of one connection, which is free again on drop.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    kind: SlotKind,
    _permit: OwnedSemaphorePermit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotKind {
    Common,
    Reserved,
    Probe,
}

impl ConnectionSlots {
    /// Creates the slots of a server with at most `max_connections` connections and the probes beyond them.
    pub(super) fn new(max_connections: u32) -> Self {
        let reserved = (max_connections / RESERVED_SHARE_DIVISOR).min(MAX_RESERVED_SLOTS);
        Self {
            common: Pool::new(max_connections - reserved),
            reserved: Pool::new(reserved),
            probes: Pool::new(PROBE_SLOTS),
        }
    }

    /// Takes one of the slots for all clients, if one is free.
    pub(super) fn try_take(&self) -> Option<ConnectionSlot> {
        self.common.try_take(SlotKind::Common)
    }

    /// Returns the number of free slots for all clients.
    pub(super) fn free(&self) -> usize {
        self.common.free.available_permits()
    }

    /// Takes a slot that is reserved for addresses with fewer than [`reserved_share`](Self::reserved_share) connections.
    pub(super) fn try_take_reserved(&self) -> Option<ConnectionSlot> {
        self.reserved.try_take(SlotKind::Reserved)
    }

    /// Takes a slot for the exchange of a health probe.
    pub(super) fn try_take_for_probe(&self) -> Option<ConnectionSlot> {
        self.probes.try_take(SlotKind::Probe)
    }

    /// Returns the number of connections at which an address gets no further reserved slot.
    pub(super) fn reserved_share(&self) -> usize {
        (self.reserved.size / RESERVED_SHARE_DIVISOR).max(1) as usize
    }

    /// Returns the number of slots that are taken.
    pub(super) fn taken_count(&self) -> usize {
        self.pools().iter().map(|pool| pool.size as usize - pool.free.available_permits()).sum()
    }

    /// Waits until all slots are free. None must be taken meanwhile.
    pub(super) async fn wait_until_free(&self) {
        for pool in self.pools() {
            let all = pool.free.acquire_many(pool.size).await;
            drop(all);
        }
    }

    fn pools(&self) -> [&Pool; 3] {
        [&self.common, &self.reserved, &self.probes]
    }
}

impl Pool {
    fn new(size: u32) -> Self {
        Self { free: Arc::new(Semaphore::new(size as usize)), size }
    }

    fn try_take(&self, kind: SlotKind) -> Option<ConnectionSlot> {
        let permit = self.free.clone().try_acquire_owned().ok()?;
        Some(ConnectionSlot { kind, _permit: permit })
    }
}

impl ConnectionSlot {
    /// Returns true if the slot is for a single exchange of a health probe.
    pub(super) fn is_for_probe(&self) -> bool {
        self.kind == SlotKind::Probe
    }

    /// Returns true if any client may have the slot after this connection.
    pub(super) fn is_common(&self) -> bool {
        self.kind == SlotKind::Common
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sixteenth_of_the_slots_is_reserved_up_to_a_maximum() {
        for (max_connections, reserved, share) in
            [(1, 0, 1), (15, 0, 1), (16, 1, 1), (48, 3, 1), (1024, 64, 4), (10_000, 64, 4), (u32::MAX, 64, 4)]
        {
            let slots = ConnectionSlots::new(max_connections);
            assert_eq!(slots.reserved.size, reserved, "{max_connections}");
            assert_eq!(slots.common.size + reserved, max_connections);
            assert_eq!(slots.reserved_share(), share, "{max_connections}");
        }
    }

    #[tokio::test]
    async fn all_pools_count_as_taken_until_they_are_free() {
        let slots = ConnectionSlots::new(16);
        let taken = [slots.try_take(), slots.try_take_reserved(), slots.try_take_for_probe()];
        assert_eq!(
            taken.each_ref().map(|slot| slot.as_ref().map(ConnectionSlot::is_for_probe)),
            [Some(false), Some(false), Some(true)]
        );
        assert_eq!(
            taken.each_ref().map(|slot| slot.as_ref().map(ConnectionSlot::is_common)),
            [Some(true), Some(false), Some(false)]
        );
        assert!(slots.try_take_reserved().is_none());
        assert_eq!(slots.taken_count(), 3);
        assert_eq!(slots.free(), 14);
        drop(taken);
        slots.wait_until_free().await;
        assert_eq!((slots.taken_count(), slots.free()), (0, 15));
    }
}
