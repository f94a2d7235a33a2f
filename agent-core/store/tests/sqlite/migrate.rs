//! Databases of older versions, as their binaries have written them.

use std::sync::Arc;

use agent_core::role::{RoleBlock, RoleSource as _};
use agent_platform::records::{Inventory as _, Precondition, Record, Records as _};
use agent_platform::roles::{RecordRoleStore, RoleStore as _};
use agent_platform::seal::Sealer;
use agent_platform::workspace::{MemoryFolder, list_memories};
use agent_store::sqlite::SqliteOptions;

use super::{TempStore, other};

/// Schema and rows of version 3: the last with an index of agents' ids over all companies, and with memory that belongs
/// to no user.
const VERSION_3: &str = r#"
    CREATE TABLE records (
        company TEXT NOT NULL,
        collection TEXT NOT NULL,
        id TEXT NOT NULL,
        version INTEGER NOT NULL,
        updated_ms INTEGER NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (company, collection, id)
    ) STRICT;
    CREATE TABLE counter (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        last_version INTEGER NOT NULL
    ) STRICT;
    INSERT INTO counter (id, last_version) VALUES (1, 6);
    CREATE TABLE jobs (
        id TEXT NOT NULL PRIMARY KEY,
        company TEXT NOT NULL,
        user_id TEXT NOT NULL,
        tool TEXT,
        assignment TEXT,
        idempotency TEXT,
        state TEXT NOT NULL,
        wake_ms INTEGER,
        ended_ms INTEGER,
        dead INTEGER NOT NULL,
        body TEXT NOT NULL
    ) STRICT;
    CREATE INDEX jobs_wake ON jobs (wake_ms, company, state) WHERE wake_ms IS NOT NULL;
    CREATE INDEX jobs_ended ON jobs (ended_ms, state) WHERE ended_ms IS NOT NULL;
    CREATE INDEX jobs_paused ON jobs (id) WHERE state = 'paused';
    CREATE INDEX jobs_company ON jobs (company, id);
    CREATE INDEX jobs_user ON jobs (company, user_id, id);
    CREATE INDEX jobs_assignment ON jobs (company, assignment, id) WHERE assignment IS NOT NULL;
    CREATE INDEX jobs_dead ON jobs (company, id) WHERE dead = 1;
    CREATE UNIQUE INDEX jobs_idempotency ON jobs (company, idempotency) WHERE idempotency IS NOT NULL;
    ALTER TABLE jobs ADD COLUMN progress TEXT;
    INSERT INTO records VALUES
        ('', 'agents', 'support', 1, 1700000000000, '{"companyId":"c1"}'),
        ('', 'tokens', '01a1fe22-a2c2-7440-ae11-e6c0fd9f117d', 2, 1700000000000, '{}'),
        ('c1', 'roles', 'support', 3, 1700000000000,
            '{"id":"support","name":"Ann","ownerId":"ada","companyId":"c1","content":{"memoryFolder":"notes"}}'),
        ('c1', 'documents', 'd', 4, 1700000000000, '{"id":"d","companyId":"c1","title":"T","text":"x"}'),
        ('c1', 'memories/support/notes', 'm1', 5, 1700000000000,
            '{"id":"m1","companyId":"c1","agentId":"support","folder":"notes","text":"likes tea"}'),
        ('c1', 'memories/support/notes', 'm2', 6, 1700000001000,
            '{"id":"m2","companyId":"c1","agentId":"support","folder":"notes","text":"lives in Bonn"}');
    PRAGMA application_id = 1097297524;
    PRAGMA user_version = 3;
"#;

#[tokio::test]
async fn agents_of_version_3_leave_their_ids_to_other_companies() {
    let temp_store = TempStore::new();
    other(&temp_store.file()).execute_batch(VERSION_3).expect("a database of version 3");
    let store = Arc::new(temp_store.store(SqliteOptions::default()));
    let roles = RecordRoleStore::new(store.clone(), Sealer::ephemeral());
    let before = roles.role(&"c1".into(), &"support".into()).await.expect("read").expect("it stays");
    assert_eq!((before.name.as_str(), before.owner_id.as_str()), ("Ann", "ada"));

    let theirs = RoleBlock {
        id: "support".into(),
        company_id: "c2".into(),
        name: "Bea".to_owned(),
        ..RoleBlock::default()
    };
    let version =
        roles.put_role(theirs, Precondition::Absent).await.expect("the id is free in another company");
    assert!(version > 6, "versions go on: {version}");
    for (company, name) in [("c1", "Ann"), ("c2", "Bea")] {
        let migrated_role =
            roles.role(&company.into(), &"support".into()).await.expect("read").expect("there");
        assert_eq!(migrated_role.name, name);
    }
    let platform: Vec<String> = store
        .collections("", None)
        .await
        .expect("read")
        .into_iter()
        .map(|collection| collection.path().to_owned())
        .collect();
    assert_eq!(platform, ["tokens"], "the index of agents is gone, and nothing else");
    let document: Option<Record> = store
        .get(&agent_platform::records::Key::new("c1", "documents", "d").expect("a key"))
        .await
        .expect("read");
    assert_eq!(document.expect("it stays").version, 4);
}

#[tokio::test]
async fn memory_of_version_3_is_shared_only_if_the_role_says_so() {
    let temp_store = TempStore::new();
    other(&temp_store.file()).execute_batch(VERSION_3).expect("a database of version 3");
    let store = temp_store.store(SqliteOptions::default());
    let role: RoleBlock = {
        let key = agent_platform::records::Key::new("c1", "roles", "support").expect("a key");
        let record = store.get(&key).await.expect("read").expect("there");
        record.parse(key.collection()).expect("a role").value
    };
    let user_memories =
        list_memories(&store, &MemoryFolder::of_user(&role, &"ada".into()), 10).await.expect("read");
    assert_eq!(user_memories, [], "entries without a user are not assigned to a user");
    let shared = list_memories(&store, &MemoryFolder::of_company(&role), 10).await.expect("read");
    let texts: Vec<&str> = shared.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(texts, ["likes tea", "lives in Bonn"]);
    assert!(shared.iter().all(|entry| entry.user_id.is_none()));
}
