use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use serde_json::{Value, json};

use super::*;

/// A memory store that counts its calls.
#[derive(Default)]
pub(in crate::roles) struct CountingRecords {
    pub(in crate::roles) inner: MemoryRecords,
    gets: AtomicUsize,
    others: AtomicUsize,
}

impl CountingRecords {
    /// Returns the numbers of single reads and of other calls since the last call, and resets them.
    fn asked(&self) -> (usize, usize) {
        (self.gets.swap(0, Ordering::Relaxed), self.others.swap(0, Ordering::Relaxed))
    }
}

#[async_trait]
impl Records for CountingRecords {
    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.inner.get(key).await
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.others.fetch_add(1, Ordering::Relaxed);
        self.inner.get_many(keys).await
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        self.others.fetch_add(1, Ordering::Relaxed);
        self.inner.list(collection, list).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        self.others.fetch_add(1, Ordering::Relaxed);
        self.inner.commit(writes).await
    }
}

fn ready<T>(future: impl Future<Output = Result<T, StoreError>>) -> T {
    outcome(future).expect("the store in memory answers")
}

fn outcome<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("no wait")
}

fn role(content: Value) -> RoleBlock {
    serde_json::from_value(json!({"id": "a", "companyId": "c", "content": content})).expect("a role")
}

fn token(role: &RoleBlock) -> Option<&str> {
    role.content.messenger_token.as_ref().map(Secret::expose)
}

/// Returns the JSON text of all stored records of the role.
fn stored(records: &dyn Records) -> [Option<String>; 2] {
    let role_records = ready(records.get_many(&RoleKeys::new(&"c".into(), &"a".into()).expect("keys").all()));
    let mut role_records =
        role_records.into_iter().map(|record| record.map(|record| record.value.get().to_owned()));
    std::array::from_fn(|_| role_records.next().flatten())
}

fn sealer(secret: &str) -> Sealer {
    Sealer::new(&Secret::new(secret), None)
}

#[test]
fn secrets_are_stored_sealed_in_separate_records() {
    let records = Arc::new(MemoryRecords::default());
    let roles = RecordRoleStore::new(records.clone(), sealer("the operator's secret"));
    ready(
        roles.put_role(role(json!({"messengerToken": "sk-canary", "personality": "P"})), Precondition::Any),
    );
    let [role, secrets] = stored(&*records);
    let role = role.expect("there");
    assert!(role.contains(r#""messengerToken":"***""#) && !role.contains("canary"), "{role}");
    let secrets: SealedSecrets = serde_json::from_str(&secrets.expect("there")).expect("JSON");
    let (path, sealed) = secrets.first_key_value().expect("a secret");
    assert_eq!(path, "content.messengerToken");
    assert!(sealed.starts_with("v1.") && !sealed.contains("canary"), "{sealed}");

    ready(roles.put_role(self::role(json!({"messengerToken": ""})), Precondition::Any));
    assert_eq!(stored(&*records)[1], None, "without a secret nothing is kept of one");
    ready(roles.delete_role(&"c".into(), &"a".into(), Precondition::Any));
    assert_eq!(stored(&*records), [None, None]);
}

#[test]
fn a_cached_role_needs_one_lookup() {
    let records = Arc::new(CountingRecords::default());
    let roles = RecordRoleStore::new(records.clone(), sealer("the operator's secret"));
    ready(roles.put_role(role(json!({"messengerToken": "sk-1"})), Precondition::Any));
    records.asked();
    let first = ready(roles.role(&"c".into(), &"a".into())).expect("there");
    assert_eq!(records.asked(), (1, 1));
    let again = ready(roles.role(&"c".into(), &"a".into())).expect("there");
    assert_eq!(records.asked(), (1, 0));
    assert!(Arc::ptr_eq(&first, &again), "a stored role is parsed and opened once");

    // A second role store over the same records, as in another process.
    let other = RecordRoleStore::new(records.clone(), sealer("the operator's secret"));
    ready(other.put_role(role(json!({"messengerToken": "sk-2"})), Precondition::Any));
    assert_eq!(token(&ready(roles.role(&"c".into(), &"a".into())).expect("there")), Some("sk-2"));
    ready(other.delete_role(&"c".into(), &"a".into(), Precondition::Any));
    assert!(ready(roles.role(&"c".into(), &"a".into())).is_none());
}

#[test]
fn roles_of_one_company_evict_none_of_another() {
    let records = Arc::new(CountingRecords::default());
    let roles = RecordRoleStore::new(records.clone(), sealer("the operator's secret"));
    ready(roles.put_role(role(json!({"messengerToken": "sk-1"})), Precondition::Any));
    let first = ready(roles.role(&"c".into(), &"a".into())).expect("there");
    let (large, personality) = (CompanyId::from("large"), "x".repeat(1_000_000));
    // Together they have more than the capacity of the cache.
    for number in 0..20 {
        let id = AgentId::from(number.to_string());
        let content = role(json!({"personality": personality}));
        let stored = RoleBlock { id: id.clone(), company_id: large.clone(), ..content };
        ready(roles.put_role(stored, Precondition::Any));
        ready(roles.role(&large, &id)).expect("there");
    }
    let again = ready(roles.role(&"c".into(), &"a".into())).expect("there");
    assert!(Arc::ptr_eq(&first, &again), "it is still cached");
}

#[test]
fn saving_a_role_as_it_is_writes_nothing() {
    let records = Arc::new(MemoryRecords::default());
    let roles = RecordRoleStore::new(records.clone(), sealer("the operator's secret"));
    let full =
        || role(json!({"messengerToken": "sk-1", "agentServerUrl": "http://h", "agentServerApiKey": "sk-2"}));
    let version = ready(roles.put_role(full(), Precondition::Absent));
    let before = stored(&*records);
    let masked = ready(roles.masked_role(&"c".into(), &"a".into())).expect("there").value;
    for same in [full(), masked, role(json!({"agentServerUrl": "http://h", "messengerToken": "sk-1"}))] {
        assert_eq!(ready(roles.put_role(same, Precondition::Version(version))), version);
        assert_eq!(stored(&*records), before);
    }
}

#[test]
fn without_a_key_roles_with_secrets_are_not_saved() {
    let records = Arc::new(MemoryRecords::default());
    let keyless = RecordRoleStore::new(records.clone(), Sealer::without_key());
    let refused = outcome(keyless.put_role(role(json!({"messengerToken": "sk-1"})), Precondition::Any));
    assert!(matches!(refused, Err(StoreError::NotConfigured("DATA_SECRET"))), "{refused:?}");
    assert_eq!(stored(&*records), [None, None], "a refused write saves no part of the role");
    ready(keyless.put_role(role(json!({"personality": "P"})), Precondition::Any));
    assert!(ready(keyless.role(&"c".into(), &"a".into())).is_some());

    let roles = RecordRoleStore::new(records.clone(), sealer("the operator's secret"));
    ready(roles.put_role(role(json!({"messengerToken": "sk-1"})), Precondition::Any));
    let refused = outcome(keyless.role(&"c".into(), &"a".into()));
    assert!(matches!(refused, Err(StoreError::NotConfigured("DATA_SECRET"))), "{refused:?}");
    // Without a key, fields that are not secret can still be read and changed, and the secret stays.
    let mut shown = ready(keyless.masked_role(&"c".into(), &"a".into())).expect("there").value;
    shown.name = "Ann".to_owned();
    ready(keyless.put_role(shown, Precondition::Any));
    let saved_role = ready(roles.role(&"c".into(), &"a".into())).expect("there");
    assert_eq!((saved_role.name.as_str(), token(&saved_role)), ("Ann", Some("sk-1")));
    ready(keyless.put_role(role(json!({"messengerToken": ""})), Precondition::Any));
    assert_eq!(token(&ready(roles.role(&"c".into(), &"a".into())).expect("there")), None);
}

#[test]
fn an_unreadable_secret_names_its_field_and_can_be_replaced() {
    let records = Arc::new(MemoryRecords::default());
    let save = |secret: &str| {
        let roles = RecordRoleStore::new(records.clone(), sealer(secret));
        ready(roles.put_role(role(json!({"messengerToken": "sk-canary"})), Precondition::Any));
    };
    let keys = RoleKeys::new(&"c".into(), &"a".into()).expect("keys");
    let damage = |text: Value| {
        ready(records.put(&keys.secrets, to_json(&text).expect("JSON"), Precondition::Any));
    };
    save("the secret of last year");
    let sealed = stored(&*records)[1].clone().expect("there");
    let roles = || RecordRoleStore::new(records.clone(), sealer("the secret of this year"));
    let cases = [
        serde_json::from_str(&sealed).expect("JSON"),
        json!({"content.messengerToken": "sk-canary"}),
        json!({"content.messengerToken": "v1.x.y"}),
        json!({}),
    ];
    for text in cases {
        damage(text.clone());
        let error =
            outcome(roles().role(&"c".into(), &"a".into())).expect_err("a damaged secret cannot be opened");
        assert_eq!(
            error.to_string(),
            "the secret content.messengerToken of \"a\" cannot be decrypted",
            "{text}"
        );
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        assert!(
            ready(roles().masked_role(&"c".into(), &"a".into())).is_some(),
            "the masked role can still be read"
        );
    }
    save("the secret of last year");
    ready(roles().put_role(role(json!({"messengerToken": "sk-new"})), Precondition::Any));
    assert_eq!(token(&ready(roles().role(&"c".into(), &"a".into())).expect("there")), Some("sk-new"));
}

#[test]
fn a_sealed_text_is_valid_only_for_its_own_agent() {
    let records = Arc::new(MemoryRecords::default());
    let roles = RecordRoleStore::new(records.clone(), sealer("the operator's secret"));
    for id in ["a", "b"] {
        let role = RoleBlock { id: id.into(), ..role(json!({"messengerToken": format!("sk-{id}")})) };
        ready(roles.put_role(role, Precondition::Any));
    }
    let key = |id: &str| RoleKeys::new(&"c".into(), &id.into()).expect("keys").secrets;
    let moved = ready(records.get(&key("b"))).expect("there").value;
    ready(records.put(&key("a"), moved, Precondition::Any));
    let error = outcome(roles.role(&"c".into(), &"a".into()))
        .expect_err("a secret that was sealed for another role cannot be opened");
    let StoreError::UnreadableSecret { source, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(source.downcast_ref(), Some(SealError::Damaged)), "{error:?}");
}
