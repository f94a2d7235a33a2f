//! Registry of the run ids that clients have chosen, in the store, so that each is accepted once by all processes.
//!
//! A used id is a record of the user's own collection within a week, `runIds/<week>/<user>`. A claim checks the weeks
//! before and after, so that an id stays used for at least [`RUN_ID_RETENTION`]. A user adds as many ids as the limits
//! of runs per minute allow; [`delete_old_run_ids`] deletes the older weeks.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::records::{
    Collection, Inventory, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Records, StoreError, Write,
    to_json,
};
use agent_core::clock::Clock;
use agent_core::ids::{CompanyId, RunId, UserId};
use agent_core::request::Principal;

/// Name of a company's collection of used run ids. Nested collections: the week, and within it the user.
pub const RUN_ID_COLLECTION: &str = "runIds";
/// Minimum time for which an id is known to be used: one collection's period.
pub const RUN_ID_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A used run id; its record has no content.
#[derive(Serialize, Deserialize)]
struct UsedRunId {}

/// The run ids that clients have used, per company and user.
pub struct RunRegistry {
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for RunRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunRegistry").finish_non_exhaustive()
    }
}

impl RunRegistry {
    /// Creates a registry over `records`, with times from `clock`.
    pub fn new(records: Arc<dyn Records>, clock: Arc<dyn Clock>) -> Self {
        Self { records, clock }
    }

    /// Claims a run id with one commit; `None` if the user has already used it. Of concurrent claims of an id, in any
    /// process, one succeeds.
    ///
    /// # Errors
    /// Errors of the store. The id may then be used.
    pub async fn claim(
        &self,
        principal: &Principal,
        run_id: &RunId,
    ) -> Result<Option<RunIdClaim>, StoreError> {
        let new_id = NewRunId::new(principal, run_id, self.clock.now())?;
        match self.records.commit(new_id.writes()?.into()).await {
            Ok(versions) => Ok(Some(new_id.claimed(self.records.clone(), &versions))),
            Err(StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A run id that is about to be claimed.
pub(crate) struct NewRunId {
    key: Key,
    /// Keys of the id in the weeks before and after. The next week too: the clock of another process may be ahead.
    beside: [Key; 2],
}

impl NewRunId {
    /// Creates the id of a user's run that is claimed at a time.
    ///
    /// # Errors
    /// The ids cannot be a key.
    pub(crate) fn new(principal: &Principal, run_id: &RunId, now: SystemTime) -> Result<Self, StoreError> {
        let Principal { company_id, user_id, .. } = principal;
        let week = week_of(now);
        let key = |week| used_ids(company_id, week, user_id)?.key(run_id.as_str());
        Ok(Self { key: key(week)?, beside: [key(week.saturating_sub(1))?, key(week + 1)?] })
    }

    /// Returns the writes of the claim. The last one puts the id. They conflict, with no expected version, if the id is
    /// used.
    pub(crate) fn writes(&self) -> Result<[Write; 3], StoreError> {
        let absent = |key| Write::Check { key, precondition: Precondition::Absent };
        let [before, after] = self.beside.clone();
        let (key, value) = (self.key.clone(), to_json(&UsedRunId {})?);
        Ok([absent(before), absent(after), Write::Put { key, value, precondition: Precondition::Absent }])
    }

    /// Returns the claim after a commit in `records` whose last writes were [`writes`](Self::writes).
    pub(crate) fn claimed(self, records: Arc<dyn Records>, versions: &[Option<u64>]) -> RunIdClaim {
        RunIdClaim { records, key: self.key, version: versions.last().copied().flatten() }
    }

    /// Returns the key of the id's record.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the keys of those of some ids that are used.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn find_used<'i>(
        records: &dyn Records,
        ids: &[&'i Self],
    ) -> Result<HashSet<&'i Key>, StoreError> {
        let weeks = |id: &&Self| {
            let [before, after] = id.beside.clone();
            [before, id.key.clone(), after]
        };
        let keys: Vec<[Key; 3]> = ids.iter().map(weeks).collect();
        let versions = records.versions(keys.as_flattened()).await?;
        let of_ids = ids.iter().zip(versions.chunks(3));
        let used = of_ids.filter(|(_, versions)| versions.iter().any(Option::is_some));
        Ok(used.map(|(id, _)| &id.key).collect())
    }
}

/// A claimed run id. It stays used unless [`release`](Self::release) is called: that of a request that is cancelled while
/// its run starts cannot be used again.
#[must_use]
pub struct RunIdClaim {
    records: Arc<dyn Records>,
    key: Key,
    version: Option<u64>,
}

impl std::fmt::Debug for RunIdClaim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunIdClaim").field("version", &self.version).finish_non_exhaustive()
    }
}

impl RunIdClaim {
    /// Releases the id of a run that was rejected before it started. If the store fails, the id stays used.
    pub async fn release(self) {
        let precondition = self.version.map_or(Precondition::Any, Precondition::Version);
        match self.records.delete(&self.key, precondition).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => {}
            Err(error) => tracing::warn!(%error, "the id of a rejected run was not released"),
        }
    }
}

/// Deletes one page of a company's run ids whose retention has ended. Returns true if there may be more.
///
/// # Errors
/// Errors of the store.
pub async fn delete_old_run_ids(
    inventory: &dyn Inventory,
    company_id: &CompanyId,
    now: SystemTime,
) -> Result<bool, StoreError> {
    let all_weeks = format!("{RUN_ID_COLLECTION}/");
    let first_kept = week_of(now).saturating_sub(1);
    let is_old = |used: &&Collection| {
        let week = used.parts().nth(1).and_then(|week| week.parse::<u64>().ok());
        used.path().starts_with(&all_weeks) && week.is_some_and(|week| week < first_kept)
    };
    // The weeks are sorted, so the first collection is the oldest.
    let collections = inventory.collections(company_id, Some(&all_weeks)).await?;
    let Some(oldest) = collections.first().filter(is_old) else { return Ok(false) };
    let list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    let page = inventory.list(oldest, &list).await?;
    let delete = |id| Ok(Write::Delete { key: oldest.key(id)?, precondition: Precondition::Any });
    let ids = page.records.into_iter().map(|record| record.id);
    let deletes: Vec<Write> = ids.map(delete).collect::<Result<_, StoreError>>()?;
    // Empty if another process has just deleted the rest.
    if deletes.is_empty() {
        return Ok(false);
    }
    inventory.commit(deletes).await?;
    Ok(true)
}

/// Returns the number of whole weeks since 1970-01-01.
fn week_of(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / RUN_ID_RETENTION.as_secs()
}

/// Returns the collection of a user's ids in a week. The number is padded, so that the paths sort by time.
fn used_ids(company_id: &CompanyId, week: u64, user_id: &UserId) -> Result<Collection, StoreError> {
    Collection::new(company_id, RUN_ID_COLLECTION)?.within(&format!("{week:06}"))?.within(user_id)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;
    use agent_core::testing::ManualClock;
    use agent_core::tool::Caller;

    /// Two processes over one store, each with a separate clock.
    struct RegistryFixture {
        records: Arc<MemoryRecords>,
        processes: [RunRegistry; 2],
        clocks: [ManualClock; 2],
    }

    fn fixture() -> RegistryFixture {
        let records = Arc::new(MemoryRecords::default());
        let clocks = [ManualClock::new(), ManualClock::new()];
        let processes = clocks.clone().map(|clock| RunRegistry::new(records.clone(), Arc::new(clock)));
        RegistryFixture { records, processes, clocks }
    }

    impl RegistryFixture {
        fn claim(&self, process: usize, (company, user, run): (&str, &str, &str)) -> Option<RunIdClaim> {
            let principal = Principal::new(user, company, Caller::Session);
            ready(self.processes[process].claim(&principal, &run.into()))
        }

        fn advance(&self, time: Duration) {
            self.clocks.iter().for_each(|clock| clock.advance(time));
        }

        fn delete_old(&self) -> bool {
            ready(delete_old_run_ids(&*self.records, &"c".into(), self.clocks[0].now()))
        }
    }

    fn ready<T>(future: impl Future<Output = Result<T, StoreError>>) -> T {
        future.now_or_never().expect("no wait").expect("the store works")
    }

    #[test]
    fn an_id_is_accepted_once_for_each_user_of_a_company_by_all_processes() {
        let test = fixture();
        assert!(test.claim(0, ("c", "u1", "r")).is_some());
        for process in [0, 1] {
            assert!(test.claim(process, ("c", "u1", "r")).is_none());
        }
        for other in
            [("c", "u", "1r"), ("d", "u1", "r"), ("cu", "1", "r"), ("c", "u1/r", "r"), ("c", "u", "1/r")]
        {
            assert!(test.claim(1, other).is_some(), "{other:?}");
            assert!(test.claim(0, other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn a_released_id_can_be_used_again() {
        let test = fixture();
        let rejected = test.claim(0, ("c", "u", "r")).expect("it is new");
        rejected.release().now_or_never().expect("no wait");
        let started = test.claim(1, ("c", "u", "r")).expect("it was released");
        drop(started);
        assert!(test.claim(0, ("c", "u", "r")).is_none(), "a dropped claim stays");
    }

    #[test]
    fn an_id_stays_used_for_a_week_and_across_clocks_that_differ() {
        let test = fixture();
        let used = ("c", "u", "r");
        assert!(test.claim(0, used).is_some());
        test.advance(RUN_ID_RETENTION - Duration::from_secs(1));
        assert!(test.claim(1, used).is_none());
        test.clocks[1].advance(RUN_ID_RETENTION);
        assert!(test.claim(1, ("c", "u", "ahead")).is_some());
        assert!(test.claim(0, ("c", "u", "ahead")).is_none(), "its clock is a week behind");
    }

    #[test]
    fn ids_of_past_weeks_are_deleted_in_pages() {
        let test = fixture();
        for number in 0..=MAX_PAGE_RECORDS {
            assert!(test.claim(0, ("c", "u", &number.to_string())).is_some());
        }
        assert!(test.claim(0, ("c", "v", "r")).is_some());
        assert!(test.claim(0, ("d", "u", "r")).is_some());
        test.advance(RUN_ID_RETENTION);
        assert!(test.claim(0, ("c", "u", "later")).is_some());
        assert!(!test.delete_old(), "the previous week is kept");
        test.advance(RUN_ID_RETENTION);
        let passes = (0..10).take_while(|_| test.delete_old()).count();
        assert_eq!(passes, 3, "two pages of one user, one of another");
        assert!(test.claim(0, ("c", "u", "0")).is_some(), "it was deleted");
        assert!(test.claim(0, ("c", "u", "later")).is_none());
    }
}
