//! Leases of the processes that run occurrences.
//!
//! Each start of a process has a random identity. A claim of an occurrence names the process that holds it; the
//! process extends its own lease for as long as it runs something. If a process is killed, its lease expires
//! within [`PROCESS_LEASE`], and the next process takes its occurrences over.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent_core::ids::CompanyId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::records::{
    Collection, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Record, Records, RecordsExt, StoreError,
    Write, to_json,
};
use crate::time::saturating_after;

/// Collection of the leases, a record per process.
const PROCESS_COLLECTION: &str = "pulseProcesses";
/// Validity of a lease after its last extension.
pub const PROCESS_LEASE: Duration = Duration::from_secs(3);
/// Remaining validity below which a lease is extended.
const MIN_LEASE_VALIDITY: Duration = Duration::from_secs(2);
/// Time after which the lease of an ended process is deleted.
const EXPIRED_LEASE_RETENTION: Duration = Duration::from_secs(60 * 60);

/// Stored lease of a process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredLease {
    until: Timestamp,
}

/// Identity of this process, and its lease.
#[derive(Debug)]
pub struct ProcessLease {
    id: String,
    /// Expiry of the lease as it is stored.
    until: Mutex<Timestamp>,
}

impl Default for ProcessLease {
    /// Creates the lease of a process with a new identity.
    fn default() -> Self {
        Self { id: agent_core::new_id(), until: Mutex::new(Timestamp::MIN) }
    }
}

impl ProcessLease {
    /// Returns the process's identity.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the write that extends the lease and the new expiry; `None` if the lease is valid for long enough.
    pub(super) fn extension(&self, now: Timestamp) -> Result<Option<(Write, Timestamp)>, StoreError> {
        if *self.until.lock().unwrap_or_else(PoisonError::into_inner)
            > saturating_after(now, MIN_LEASE_VALIDITY)
        {
            return Ok(None);
        }
        let until = saturating_after(now, PROCESS_LEASE);
        let value = to_json(&StoredLease { until })?;
        let write = Write::Put { key: lease_key(&self.id)?, value, precondition: Precondition::Any };
        Ok(Some((write, until)))
    }

    /// Records that an extension is stored.
    pub(super) fn confirm(&self, until: Timestamp) {
        let mut stored = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        *stored = until.max(*stored);
    }

    /// Extends the lease if it expires soon. Called about once a second while the process runs occurrences.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn extend(&self, records: &dyn Records, now: Timestamp) -> Result<(), StoreError> {
        if let Some((write, until)) = self.extension(now)? {
            records.commit(vec![write]).await?;
            self.confirm(until);
        }
        Ok(())
    }
}

/// Returns true if the lease of another process is valid, for an occurrence of a company.
pub(super) async fn is_alive(
    records: &dyn Records,
    id: &str,
    company_id: &CompanyId,
    now: Timestamp,
) -> Result<bool, StoreError> {
    // An identity that cannot be a key was written by no process.
    let Ok(key) = lease_key(id) else { return Ok(false) };
    let lease: Option<Record<StoredLease>> = records.get_as(&key.counted_for(company_id)).await?;
    Ok(lease.is_some_and(|lease| lease.value.until > now))
}

/// Deletes the leases of processes that ended more than an hour ago.
///
/// # Errors
/// Errors of the store.
pub async fn delete_expired_leases(records: &dyn Records, now: Timestamp) -> Result<(), StoreError> {
    let leases = Collection::of_platform(PROCESS_COLLECTION)?;
    let list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    let page = records.list_as::<StoredLease>(&leases, &list).await?;
    let expired = page.records.into_iter();
    let expired = expired.filter(|lease| saturating_after(lease.value.until, EXPIRED_LEASE_RETENTION) < now);
    let deletes = expired
        .map(|lease| Ok(Write::Delete { key: leases.key(lease.id)?, precondition: Precondition::Any }))
        .collect::<Result<Vec<_>, StoreError>>()?;
    if !deletes.is_empty() {
        records.commit(deletes).await?;
    }
    Ok(())
}

fn lease_key(id: &str) -> Result<Key, StoreError> {
    Collection::of_platform(PROCESS_COLLECTION)?.key(id)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn ready<T>(future: impl Future<Output = Result<T, StoreError>>) -> T {
        future.now_or_never().expect("no wait").expect("the store works")
    }

    #[test]
    fn a_process_is_alive_until_its_lease_expires() {
        let records = MemoryRecords::default();
        let process = ProcessLease::default();
        let alive = |second| ready(is_alive(&records, process.id(), &"c".into(), at(second)));
        assert!(!alive(0), "no lease is stored");
        ready(process.extend(&records, at(0)));
        assert!(alive(2) && !alive(3));
        ready(process.extend(&records, at(2)));
        assert!(alive(4) && !alive(5));
        assert_ne!(process.id(), ProcessLease::default().id());
        ready(delete_expired_leases(&records, at(3_600)));
        assert!(alive(4));
        ready(delete_expired_leases(&records, at(3_700)));
        assert!(!alive(4));
    }

    #[test]
    fn a_valid_lease_is_not_written_again() {
        let process = ProcessLease::default();
        process.confirm(at(10));
        assert!(process.extension(at(7)).expect("a write").is_none());
        assert!(process.extension(at(8)).expect("a write").is_some());
    }
}
