//! Conformance suite for approval floors over a store of records.

use std::sync::Arc;

use agent_core::ids::CompanyId;

use crate::approval_floor::{
    ApprovalFloor, FloorHint, delete_approval_floor, get_approval_floor, load_approval_floor,
    put_approval_floor,
};
use crate::records::{Precondition, Records, StoreError};

/// Runs the conformance suite of approval floors against an empty store from `make`.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn approval_floors(make: impl AsyncFn() -> Arc<dyn Records>) {
    let store = make().await;
    let records = &*store;
    let [acme, other] = ["acme", "other"].map(CompanyId::from);
    let floor = |hint| ApprovalFloor { annotations: [hint].into() };
    let load = async |company| load_approval_floor(records, company).await.expect("read");
    assert_eq!(load(&acme).await, ApprovalFloor::default(), "a company has no floor at first");
    let destructive = floor(FloorHint::Destructive);
    let version = put_approval_floor(records, &acme, &destructive, Precondition::Absent).await;
    let version = version.expect("written");
    assert_eq!(load(&acme).await, destructive, "a written floor is read at once");
    assert_eq!(load(&other).await, ApprovalFloor::default(), "a floor applies to its company only");
    let found = get_approval_floor(records, &acme).await.expect("read").expect("a floor");
    assert_eq!((found.version, found.value), (version, destructive));
    let all = floor(FloorHint::NotReadOnly);
    let absent = put_approval_floor(records, &acme, &all, Precondition::Absent).await;
    assert!(
        matches!(absent, Err(StoreError::Conflict { .. })),
        "creating an existing floor conflicts: {absent:?}"
    );
    let replaced = put_approval_floor(records, &acme, &all, Precondition::Version(version)).await;
    assert!(replaced.expect("written") > version, "versions grow");
    assert_eq!(load(&acme).await, all, "the latest floor is read");
    let stale = delete_approval_floor(records, &acme, Precondition::Version(version)).await;
    assert!(
        matches!(stale, Err(StoreError::Conflict { .. })),
        "deleting an old version of a floor conflicts: {stale:?}"
    );
    for was_there in [true, false] {
        let deleted = delete_approval_floor(records, &acme, Precondition::Any).await.expect("deleted");
        assert_eq!(deleted, was_there, "a floor is deleted once");
        assert_eq!(load(&acme).await, ApprovalFloor::default(), "a deleted floor is gone at once");
    }
}
