use agent_core::role::RoleSource as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::FutureExt;
use serde_json::json;

use super::*;
use crate::memory::MemoryRecords;
use crate::records::{InventoryWrapper, Records, RecordsWrapper, Write};
use crate::roles::RoleStore;
use crate::seal::Sealer;
use agent_core::role::RoleBlock;
use agent_core::secret::Secret;

const OLD: &str = "the secret of last year";
const NEW: &str = "the secret of this year";

fn ready<T>(future: impl Future<Output = Result<T, StoreError>>) -> T {
    future.now_or_never().expect("no wait").expect("the store in memory answers")
}

fn roles(records: &Arc<impl Records>, secret: &str, previous: Option<&str>) -> RecordRoleStore {
    let sealer = Sealer::new(&Secret::new(secret), previous.map(Secret::new).as_ref());
    RecordRoleStore::new(records.clone(), sealer)
}

fn role(n: usize) -> RoleBlock {
    let company = format!("company-{}", n % 3);
    let role = json!({"id": format!("agent-{n:03}"), "companyId": company, "content": {
        "messengerToken": format!("sk-{n}"), "agentServerApiKey": format!("sl-{n}")}});
    serde_json::from_value(role).expect("a role")
}

fn fill(roles: &RecordRoleStore, count: usize) {
    for n in 0..count {
        ready(roles.put_role(role(n), Precondition::Any));
    }
}

fn counts(rotated: &RotationReport) -> [usize; 4] {
    [rotated.agents, rotated.resealed, rotated.already_current, rotated.unopened]
}

/// A memory store that fails the commit of a given number.
struct FailingCommitRecords {
    inner: MemoryRecords,
    until: AtomicUsize,
    with: fn() -> StoreError,
}

#[async_trait]
impl RecordsWrapper for FailingCommitRecords {
    fn inner(&self) -> &dyn Records {
        &self.inner
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        match self.until.fetch_sub(1, Ordering::Relaxed) {
            1 => Err((self.with)()),
            _ => self.inner.commit(writes).await,
        }
    }
}

impl InventoryWrapper for FailingCommitRecords {
    fn inventory(&self) -> &dyn Inventory {
        &self.inner
    }
}

fn breaking(with: fn() -> StoreError) -> Arc<FailingCommitRecords> {
    Arc::new(FailingCommitRecords {
        inner: MemoryRecords::default(),
        until: AtomicUsize::new(usize::MAX),
        with,
    })
}

#[test]
fn after_a_rotation_the_previous_key_can_be_forgotten() {
    let records = Arc::new(MemoryRecords::default());
    let count = MAX_PAGE_RECORDS + 5;
    fill(&roles(&records, OLD, None), count);
    let both = roles(&records, NEW, Some(OLD));
    let before = ready(both.masked_role(&"company-1".into(), &"agent-001".into())).expect("there").version;
    ready(both.put_role(
        RoleBlock { id: "bare".into(), content: Default::default(), ..role(0) },
        Precondition::Any,
    ));
    assert_eq!(counts(&ready(both.rotate_secrets(&*records))), [count + 1, 2 * count, 0, 0]);
    let alone = roles(&records, NEW, None);
    for n in 0..count {
        let expected = role(n);
        let rotated_role = ready(alone.role(&expected.company_id, &expected.id)).expect("there");
        assert_eq!(rotated_role.content.messenger_token, expected.content.messenger_token);
    }
    assert_eq!(
        ready(both.masked_role(&"company-1".into(), &"agent-001".into())).expect("there").version,
        before
    );
    assert_eq!(counts(&ready(both.rotate_secrets(&*records))), [count + 1, 0, 2 * count, 0]);
}

#[test]
fn an_interrupted_rotation_is_begun_again_and_does_what_is_left() {
    let records = breaking(|| StoreError::unavailable("disk on fire"));
    fill(&roles(&records, OLD, None), 5);
    let both = roles(&records, NEW, Some(OLD));
    records.until.store(3, Ordering::Relaxed);
    let interrupted = both.rotate_secrets(&*records).now_or_never().expect("no wait");
    assert!(matches!(interrupted, Err(StoreError::Unavailable(_))), "{interrupted:?}");
    records.until.store(usize::MAX, Ordering::Relaxed);
    assert_eq!(counts(&ready(both.rotate_secrets(&*records))), [5, 6, 4, 0]);
}

#[test]
fn a_write_that_comes_between_is_read_again() {
    let records = breaking(|| StoreError::Conflict { expected: Some(1), found: Some(2) });
    fill(&roles(&records, OLD, None), 2);
    records.until.store(1, Ordering::Relaxed);
    assert_eq!(counts(&ready(roles(&records, NEW, Some(OLD)).rotate_secrets(&*records))), [2, 4, 0, 0]);
}

#[test]
fn secrets_that_cannot_be_opened_are_counted_and_kept() {
    let records = Arc::new(MemoryRecords::default());
    fill(&roles(&records, "a secret that is lost", None), 30);
    let both = roles(&records, NEW, Some(OLD));
    ready(both.put_role(RoleBlock { id: "fresh".into(), ..role(0) }, Precondition::Any));
    let rotated = ready(both.rotate_secrets(&*records));
    assert_eq!(counts(&rotated), [31, 0, 2, 60]);
    assert_eq!(rotated.errors.len(), MAX_REPORTED_ERRORS);
    let first = rotated.errors[0].to_string();
    assert_eq!(first, "the secret content.agentServerApiKey of \"agent-000\" cannot be decrypted");
    let lost = roles(&records, "a secret that is lost", None);
    assert!(ready(lost.role(&"company-0".into(), &"agent-000".into())).is_some());

    let keyless = RecordRoleStore::new(records.clone(), Sealer::without_key());
    let refused = keyless.rotate_secrets(&*records).now_or_never().expect("no wait");
    assert!(matches!(refused, Err(StoreError::NotConfigured("DATA_SECRET"))), "{refused:?}");
}
