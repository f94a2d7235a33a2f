//! Approvals that people have decided in the runs of others, so that they find them after the runs have ended. The newest
//! [`MAX_DECIDED_APPROVALS`] of each person are kept.

use agent_core::ids::{CompanyId, UserId};

use super::collection;
use super::notifications::{eviction_writes, list_users};
use super::record_deletion::delete_records;
use crate::records::{
    Collection, Inventory, ListQuery, MAX_PAGE_RECORDS, Order, Precondition, Record, Records, RecordsExt,
    StoreError, Write, to_json,
};

/// Maximum number of approvals per person; the oldest are deleted.
pub const MAX_DECIDED_APPROVALS: usize = MAX_PAGE_RECORDS;

/// Stores that a person decides about an approval in the run of another person. A decision that fails afterwards leaves a
/// record of an approval that the person has not decided.
///
/// # Errors
/// Errors of the store.
pub async fn record_decided_approval(
    records: &dyn Records,
    (company, person): (&CompanyId, &UserId),
    approval_id: &str,
) -> Result<(), StoreError> {
    let own = person_collection(company, person)?;
    let mut writes = eviction_writes(records, &own, MAX_DECIDED_APPROVALS).await?;
    writes.push(Write::Put {
        key: own.key(agent_core::new_id())?,
        value: to_json(&approval_id)?,
        precondition: Precondition::Absent,
    });
    records.commit(writes).await.map(drop)
}

/// Returns the records of the approvals that a person has decided in the runs of others, the latest decision first. Their values
/// are the ids of the approvals; an id may be there several times.
///
/// # Errors
/// Errors of the store.
pub async fn list_decided_approvals(
    records: &dyn Records,
    (company, person): (&CompanyId, &UserId),
) -> Result<Vec<Record<String>>, StoreError> {
    let newest =
        ListQuery { limit: Some(MAX_DECIDED_APPROVALS), order: Order::Descending, ..ListQuery::default() };
    Ok(records.list_as::<String>(&person_collection(company, person)?, &newest).await?.records)
}

/// Deletes records of [`list_decided_approvals`] by their ids.
///
/// # Errors
/// Errors of the store. Some of the records may be deleted then.
pub async fn delete_decided_approvals(
    records: &dyn Records,
    (company, person): (&CompanyId, &UserId),
    ids: Vec<String>,
) -> Result<usize, StoreError> {
    delete_records(records, &person_collection(company, person)?, ids).await
}

/// Returns a page of the people of a company who have decided approvals in the runs of others, and the cursor of the next page.
///
/// # Errors
/// Errors of the store.
pub async fn list_approvers(
    inventory: &dyn Inventory,
    company: &CompanyId,
    cursor: Option<&str>,
) -> Result<(Vec<UserId>, Option<String>), StoreError> {
    list_users(inventory, company, collection::DECIDED_APPROVALS, cursor).await
}

pub(super) fn person_collection(company: &CompanyId, person: &UserId) -> Result<Collection, StoreError> {
    Collection::new(company.as_str(), collection::DECIDED_APPROVALS)?.within(person)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;

    fn list(records: &MemoryRecords, company: &str, person: &str) -> Vec<String> {
        let found = list_decided_approvals(records, (&company.into(), &person.into())).now_or_never();
        found.expect("no wait").expect("read").into_iter().map(|record| record.value).collect()
    }

    fn decide(records: &MemoryRecords, person: &str, approval: &str) {
        let (company, person) = ("c".into(), person.into());
        let recorded = record_decided_approval(records, (&company, &person), approval).now_or_never();
        recorded.expect("no wait").expect("stored");
    }

    #[test]
    fn a_person_has_the_latest_of_the_own_decisions() {
        let records = MemoryRecords::default();
        for number in 0..MAX_DECIDED_APPROVALS + 3 {
            decide(&records, "ada", &number.to_string());
        }
        let expected: Vec<_> =
            (3..MAX_DECIDED_APPROVALS + 3).rev().map(|number| number.to_string()).collect();
        assert_eq!(list(&records, "c", "ada"), expected);
        for (company, person) in [("c", "bob"), ("d", "ada")] {
            assert_eq!(list(&records, company, person), Vec::<String>::new());
        }
    }

    #[test]
    fn records_are_found_by_their_people_and_deleted() {
        let records = MemoryRecords::default();
        for (person, approval) in [("ada", "1"), ("ada", "2"), ("bob", "1")] {
            decide(&records, person, approval);
        }
        let (company, ada): (CompanyId, UserId) = ("c".into(), "ada".into());
        let found = list_approvers(&records, &company, None).now_or_never().expect("no wait").expect("read");
        assert_eq!(found.0, ["ada", "bob"].map(UserId::from));
        let own = list_decided_approvals(&records, (&company, &ada)).now_or_never();
        let own = own.expect("no wait").expect("read");
        let first: Vec<String> =
            own.into_iter().filter(|record| record.value == "1").map(|record| record.id).collect();
        let deleted = delete_decided_approvals(&records, (&company, &ada), first).now_or_never();
        assert_eq!(deleted.expect("no wait").expect("deleted"), 1);
        assert_eq!(
            (list(&records, "c", "ada"), list(&records, "c", "bob")),
            (vec!["2".to_owned()], vec!["1".to_owned()])
        );
    }
}
