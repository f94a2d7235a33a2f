use agent_platform::records::{MAX_WRITES, Precondition, Records, StoreError};
use agent_store::sqlite::{SqliteErrorKind, SqliteOptions};

use super::{TempStore, fault, impatient, json, key, other, put, uncached};

#[tokio::test]
async fn a_lock_timeout_is_reported_and_recovers() {
    let temp_store = TempStore::new();
    let store = temp_store.store(impatient());
    let lock = other(&temp_store.file());
    lock.execute_batch("BEGIN IMMEDIATE").expect("a lock");
    let refused = store.put(&key("a"), json("1"), Precondition::Any).await;
    assert_eq!(fault(refused).kind(), SqliteErrorKind::Locked);
    assert!(store.get(&key("a")).await.expect("readers do not wait for writers").is_none());
    lock.execute_batch("ROLLBACK").expect("released");
    store.put(&key("a"), json("1"), Precondition::Any).await.expect("put");
}

#[tokio::test]
async fn a_malformed_value_is_reported_without_its_content() {
    let temp_store = TempStore::new();
    let store = temp_store.store(uncached());
    store.put(&key("a"), json("1"), Precondition::Any).await.expect("put");
    other(&temp_store.file()).execute("UPDATE records SET value = 'secret'", ()).expect("changed");
    let error = store.get(&key("a")).await.expect_err("no JSON");
    assert!(
        matches!(&error, StoreError::Malformed { collection, id, .. } if (collection.as_str(), id.as_str()) == ("things", "a"))
    );
    assert!(!format!("{error:?} {error}").contains("secret"), "{error:?}");
}

#[tokio::test]
async fn a_damaged_file_is_detected() {
    let temp_store = TempStore::new();
    let text = format!("\"{}\"", "x".repeat(3000));
    {
        let store = temp_store.store(uncached());
        for n in 0..50 {
            store.put(&key(&n.to_string()), json(&text), Precondition::Any).await.expect("put");
        }
        assert_eq!(store.check_integrity().await.expect("a check"), Vec::<String>::new());
    }
    let mut bytes = std::fs::read(temp_store.file()).expect("read");
    // Whole pages: damage within a value alone is not damage of the file's structure.
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 20_000].fill(0xa5);
    std::fs::write(temp_store.file(), bytes).expect("damaged");
    let store = temp_store.store(uncached());
    let findings = match store.check_integrity().await {
        Ok(findings) => findings.len(),
        damaged => usize::from(fault(damaged).kind() == SqliteErrorKind::Damaged),
    };
    assert!(findings > 0, "the check finds something");
    let mut kinds = Vec::new();
    for n in 0..50 {
        if let Err(StoreError::Unavailable(source)) = store.get(&key(&n.to_string())).await {
            kinds.push(fault::<()>(Err(StoreError::Unavailable(source))).kind());
        }
    }
    assert!(!kinds.is_empty() && kinds.iter().all(|kind| *kind == SqliteErrorKind::Damaged), "{kinds:?}");
}

#[tokio::test]
async fn too_many_writes_and_values_beyond_the_limit_are_refused() {
    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions { max_value_bytes: 10, ..SqliteOptions::default() });
    let write = put("a", "1", Precondition::Any);
    let many = store.commit(vec![write.clone(); MAX_WRITES + 1]).await;
    assert!(matches!(many, Err(StoreError::Invalid(_))), "{many:?}");
    let large = store.commit(vec![write, put("b", "12345678901", Precondition::Any)]).await;
    assert!(matches!(large, Err(StoreError::TooLarge { bytes: 11, limit: 10 })), "{large:?}");
    assert!(store.get(&key("a")).await.expect("read").is_none());
}
