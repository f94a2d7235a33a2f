use agent_core::role::RoleSource as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_core::testing::ManualClock;
use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;

use super::*;
use crate::ingestion::{Ingestion, IngestionLimits, IngestionServices};
use crate::memory::MemoryRecords;
use crate::records::{
    Inventory as _, Key, MAX_WRITES, Precondition, Records, RecordsExt, RecordsWrapper, StoreError, Write,
};
use crate::roles::{RecordRoleStore, RoleStore};
use crate::seal::Sealer;
use crate::testing::ScriptedExtractor;
use crate::workspace::{
    Document, MAX_TODOS, MemoryFolder, NewUpload, collection, create_todo, get_document, get_todo_list,
    get_user, list_memories,
};
use agent_core::ids::CompanyId;
use agent_core::tool::ExecutionContext;

const DEMO: &str = r#"{
  "users": [{"id": "ada", "companyId": "c", "timezone": "Europe/Berlin", "ragEnabled": false}],
  "agents": [{"id": "a", "name": "Ann", "ownerId": "ada", "companyId": "c",
    "content": {"systemPrompt": "S", "documentIds": ["d", "elsewhere"], "agentServerApiKey": "sk"},
    "children": [{"name": "EmbeddedAI"}]}],
  "documents": [{"id": "d", "companyId": "c", "title": "T", "text": "x"}],
  "todoLists": [{"id": "l", "ownerId": "ada", "companyId": "c", "name": "Home",
    "todos": [{"id": "t2", "title": "two", "done": true}, {"id": "t1", "title": "one"}]}],
  "memories": [{"id": "m", "companyId": "c", "agentId": "a", "userId": "ada", "text": "likes tea"},
    {"id": "m", "companyId": "c", "agentId": "a", "text": "sells tea"}],
  "plans": [{"id": "p", "companyId": "c", "steps": [1, 2]}],
  "epics": [{"id": "e", "companyId": "c"}],
  "metrics": [{"id": "m", "companyId": "c", "value": 1.5}],
  "assignments": [{"id": "s", "userId": "u", "companyId": "c", "agentId": "a", "toolId": "readTodos",
    "schedule": {"enabled": true, "cron": "0 9 * * *"}}],
  "later": true
}"#;

fn ready<T, E: std::fmt::Debug>(future: impl Future<Output = Result<T, E>>) -> T {
    future.now_or_never().expect("no wait").expect("the store in memory answers")
}

fn ada() -> ExecutionContext {
    ExecutionContext {
        user_id: "ada".into(),
        company_id: "c".into(),
        todo_list_id: Some("l".into()),
        ..ExecutionContext::default()
    }
}

fn titles(records: &MemoryRecords) -> Vec<String> {
    let list = get_todo_list(records, &ada()).now_or_never().expect("no wait").expect("there");
    list.todos.into_iter().map(|todo| todo.title).collect()
}

fn parsed(text: &str) -> WorkspaceFile {
    WorkspaceFile::parse(text).expect("a good file")
}

/// Creates a role store over an in-memory record store, and returns both.
fn store() -> (RecordRoleStore, Arc<MemoryRecords>) {
    let records = Arc::new(MemoryRecords::default());
    (RecordRoleStore::new(records.clone(), Sealer::ephemeral()), records)
}

fn counts(created: usize, updated: usize, unchanged: usize) -> ImportSummary {
    ImportSummary { created, updated, unchanged }
}

fn key_of(roles: &RecordRoleStore) -> Option<String> {
    let role = ready(roles.role(&"c".into(), &"a".into())).expect("there");
    role.content.agent_server.agent_server_api_key.as_ref().map(|key| key.expose().to_owned())
}

#[test]
fn an_import_is_complete_and_idempotent() {
    let (roles, records) = store();
    let file = parsed(DEMO);
    assert_eq!(ready(file.apply(&roles)), counts(10, 0, 0));
    assert_eq!(key_of(&roles).as_deref(), Some("sk"));
    assert_eq!(ready(get_document(&*records, &"c".into(), "d")).expect("there").value.text, "x");
    assert!(!ready(get_user(&*records, &"c".into(), &"ada".into())).expect("there").allows_rag());
    let role = ready(roles.role(&"c".into(), &"a".into())).expect("there");
    let texts = |folder: &MemoryFolder| -> Vec<String> {
        ready(list_memories(&*records, folder, 10)).into_iter().map(|entry| entry.text).collect()
    };
    assert_eq!(texts(&MemoryFolder::of_user(&role, &"ada".into())), ["likes tea"]);
    assert_eq!(texts(&MemoryFolder::of_company(&role)), ["sells tea"]);
    assert_eq!(titles(&records), ["two", "one"]);
    let plan = ready(records.get(&Key::new("c", collection::PLANS, "p").expect("a key"))).expect("there");
    let plan: Value = serde_json::from_str(plan.value.get()).expect("JSON");
    assert_eq!(plan, json!({"id": "p", "companyId": "c", "steps": [1, 2]}));

    let version =
        |roles: &RecordRoleStore| ready(roles.masked_role(&"c".into(), &"a".into())).expect("there").version;
    let before = version(&roles);
    assert_eq!(ready(file.apply(&roles)), counts(0, 0, 10));
    assert_eq!(version(&roles), before);
}

#[test]
fn an_edited_file_updates_and_keeps_the_todos_that_came_meanwhile() {
    let (roles, records) = store();
    ready(parsed(DEMO).apply(&roles));
    create_todo(&*records, &ada(), "three").now_or_never().expect("no wait").expect("created");
    let edited = DEMO
        .replace(r#""text": "x""#, r#""text": "y""#)
        .replace(r#""title": "one""#, r#""title": "ONE""#)
        .replace(r#""name": "Ann""#, r#""name": "Bea""#);
    assert_eq!(ready(parsed(&edited).apply(&roles)), counts(0, 3, 7));
    assert_eq!(ready(get_document(&*records, &"c".into(), "d")).expect("there").value.text, "y");
    assert_eq!(titles(&records), ["two", "ONE", "three"]);
    assert_eq!(ready(roles.role(&"c".into(), &"a".into())).expect("there").name, "Bea");
}

#[test]
fn secrets_that_a_file_leaves_out_stay_and_empty_ones_go() {
    let (roles, _) = store();
    ready(parsed(DEMO).apply(&roles));
    for (text, imported, expected) in [
        (DEMO.replace(r#""sk""#, r#""***""#), counts(0, 0, 10), Some("sk")),
        (DEMO.replace(r#", "agentServerApiKey": "sk""#, ""), counts(0, 0, 10), Some("sk")),
        (DEMO.replace(r#""sk""#, r#""sl""#), counts(0, 1, 9), Some("sl")),
        (DEMO.replace(r#""sk""#, r#""""#), counts(0, 1, 9), None),
        (DEMO.replace(r#""sk""#, r#""***""#), counts(0, 0, 10), None),
    ] {
        assert_eq!(ready(parsed(&text).apply(&roles)), imported, "{text}");
        assert_eq!(key_of(&roles).as_deref(), expected, "{text}");
    }
}

#[test]
fn an_import_is_all_or_nothing() {
    let todos: Vec<Value> = (0..MAX_TODOS).map(|n| json!({"id": n.to_string(), "title": "x"})).collect();
    let list = json!({"id": "l", "ownerId": "ada", "companyId": "c", "todos": todos});
    let full = json!({ "todoLists": [list] }).to_string();
    type RejectedImport = fn(&StoreError) -> bool;
    let cases: [(&str, Sealer, &str, RejectedImport); 2] = [
        ("no key", Sealer::without_key(), "{}", |error| {
            matches!(error, StoreError::NotConfigured("DATA_SECRET"))
        }),
        (
            "a full list",
            Sealer::ephemeral(),
            &full,
            |error| matches!(error, StoreError::Invalid(text) if text.contains("would have 502 todos")),
        ),
    ];
    for (case, sealer, before, is_expected) in cases {
        let records = Arc::new(MemoryRecords::default());
        let roles = RecordRoleStore::new(records.clone(), sealer);
        ready(parsed(before).apply(&roles));
        let error = parsed(DEMO).apply(&roles).now_or_never().expect("no wait").expect_err(case);
        assert!(is_expected(&error), "{case}: {error:?}");
        for company in ["c", "d"] {
            assert_eq!(ready(get_document(&*records, &company.into(), "d")), None, "{case}");
        }
        assert!(ready(roles.masked_role(&"c".into(), &"a".into())).is_none(), "{case}");
    }
}

/// Record store double that writes to the demo's todo list just before each of the first commits.
struct ContendedRecords {
    inner: MemoryRecords,
    others: AtomicUsize,
}

#[async_trait]
impl RecordsWrapper for ContendedRecords {
    fn inner(&self) -> &dyn Records {
        &self.inner
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        if self.others.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        {
            create_todo(&self.inner, &ada(), "three").await.expect("created");
        }
        self.inner.commit(writes).await
    }
}

#[test]
fn an_import_retries_after_conflicts_and_finally_gives_up() {
    let crowded = |others| {
        let records =
            Arc::new(ContendedRecords { inner: MemoryRecords::default(), others: AtomicUsize::new(0) });
        let roles = RecordRoleStore::new(records.clone(), Sealer::ephemeral());
        ready(parsed(DEMO).apply(&roles));
        records.others.store(others, Ordering::Relaxed);
        (roles, records)
    };
    let edited = parsed(&DEMO.replace(r#""title": "one""#, r#""title": "ONE""#));
    let (roles, records) = crowded(2);
    assert_eq!(ready(edited.apply(&roles)), counts(0, 1, 9));
    assert_eq!(titles(&records.inner), ["two", "ONE", "three", "three"]);

    let (roles, _) = crowded(usize::MAX);
    let error = edited.apply(&roles).now_or_never().expect("no wait");
    assert!(matches!(error, Err(StoreError::Conflict { .. })), "{error:?}");
}

#[test]
fn fields_in_another_order_are_the_same_thing() {
    let (roles, records) = store();
    let key = Key::new("c", collection::PLANS, "p").expect("a key");
    let plan = json!({"steps": [1, 2], "companyId": "c", "id": "p"});
    ready(records.put_as(&key, &plan, Precondition::Absent));
    assert_eq!(ready(parsed(DEMO).apply(&roles)), counts(9, 0, 1));
}

fn exported(records: &MemoryRecords, company: Option<&str>) -> String {
    let file = WorkspaceFile::export(records, company.map(CompanyId::from).as_ref())
        .now_or_never()
        .expect("no wait");
    file.expect("it fits").to_text().expect("an import takes it")
}

#[test]
fn an_export_survives_import_and_export() {
    let mut file: Value = serde_json::from_str(DEMO).expect("JSON");
    let many = |count: usize| (0..count).map(|n| format!("{n:04}"));
    file["documents"] = many(450).map(|id| json!({"id": id, "companyId": "c", "text": "x"})).collect();
    file["agents"][0]["content"]["documentIds"] = json!(["0001", "0000"]);
    file["users"] = many(450).map(|n| json!({"id": n, "companyId": format!("c{n}")})).collect();
    let memory = |folder: &str, id: &str, user: Option<&str>| {
        let mut entry =
            json!({"id": id, "companyId": "c", "agentId": "a%2Fb", "folder": folder, "text": "y"});
        user.into_iter().for_each(|user| entry["userId"] = user.into());
        entry
    };
    file["memories"] = json!([
        memory("b/c", "1", None),
        memory("b", "2", None),
        memory("b", "1", None),
        memory("", "1", None),
        memory("b", "1", Some("ada")),
        memory("b", "1", Some("b%2Fc")),
    ]);
    let (roles, records) = store();
    ready(parsed(&file.to_string()).apply(&roles));

    let text = exported(&records, None);
    assert!(text.contains(r#""agentServerApiKey": "***""#) && !text.contains(r#""sk""#), "{text}");
    let (new_roles, new_records) = store();
    let imported = ready(parsed(&text).apply(&new_roles));
    let count = 450 + 450 + 6 + 6;
    assert_eq!(imported, counts(count, 0, 0));
    let without_secrets: String =
        text.lines().filter(|line| !line.contains(r#""agentServerApiKey": "***""#)).collect();
    let again: String = exported(&new_records, None).lines().collect();
    assert_eq!(again.replace("],      }", "]      }"), without_secrets.replace("],      }", "]      }"));

    // Importing into the original store changes nothing.
    assert_eq!(ready(parsed(&text).apply(&roles)), counts(0, 0, count));
    assert_eq!(key_of(&roles).as_deref(), Some("sk"));

    let of_one = exported(&records, Some("c0007"));
    assert_eq!(parsed(&of_one).users.len(), 1);
    assert_eq!(parsed(&of_one).agents.len(), 0);
    assert_eq!(exported(&records, Some("nobody")), "{}");
}

/// A document may be deleted although agents name it, and agents may name one before it exists.
#[test]
fn an_export_leaves_out_ids_of_documents_that_do_not_exist() {
    let named = json!({"documentIds": ["gone", "d", "never"], "ragDocumentIds": ["d", "gone"]});
    let document = |id: &str| json!({"id": id, "companyId": "c", "text": "x"});
    let file = json!({
        "agents": [{"id": "a", "companyId": "c", "content": named}],
        "documents": [document("d"), document("gone")],
    });
    let (roles, records) = store();
    ready(parsed(&file.to_string()).apply(&roles));
    let gone = Key::new("c", collection::DOCUMENTS, "gone").expect("a key");
    assert!(ready(records.delete(&gone, Precondition::Any)));
    let text = exported(&records, None);
    let file = parsed(&text);
    assert_eq!(file.agents[0].content.document_ids, ["d"]);
    assert_eq!(file.agents[0].content.rag_document_ids, ["d"]);
    let (_, other) = store();
    ready(file.check_references(&text, &*other));
}

#[test]
fn an_imported_document_keeps_its_owner_and_its_replaced_version() {
    let (roles, records) = store();
    let file = |document: Value| parsed(&json!({ "documents": [document] }).to_string());
    let import = |document: Value| ready(file(document).apply(&roles));
    import(json!({"id": "d", "companyId": "c", "ownerId": "ada", "title": "T", "text": "one"}));
    let again = json!({"id": "d", "companyId": "c", "title": "T", "text": "one"});
    assert_eq!(import(again.clone()), counts(0, 0, 1));
    let mut changed = again;
    changed["text"] = "two".into();
    assert_eq!(import(changed.clone()), counts(0, 1, 0));
    let stored = || ready(get_document(&*records, &"c".into(), "d")).expect("there").value;
    assert_eq!(
        (stored().text.as_str(), stored().owner_id.as_deref(), stored().revision),
        ("two", Some("ada"), 1)
    );
    let kept = ready(crate::workspace::get_document_version(&*records, &"c".into(), "d", 0)).expect("kept");
    assert_eq!(kept.text, "one");
    changed["ownerId"] = "bob".into();
    assert_eq!(import(changed), counts(0, 1, 0));
    assert_eq!(stored().owner_id.as_deref(), Some("bob"));
}

#[test]
fn an_export_beyond_the_limits_of_imports_is_refused() {
    let records = MemoryRecords::default();
    let text = "x".repeat(crate::records::MAX_VALUE_BYTES - 100);
    for n in 0..65 {
        let key = Key::new(format!("c{n}"), collection::DOCUMENTS, "d").expect("a key");
        let document = json!({"id": "d", "companyId": format!("c{n}"), "text": text});
        ready(records.put_as(&key, &document, Precondition::Any));
    }
    let error = WorkspaceFile::export(&records, None).now_or_never().expect("no wait").expect_err("too much");
    assert!(error.to_string().contains("does not fit in one file"), "{error}");
    assert!(WorkspaceFile::export(&records, Some(&"c1".into())).now_or_never().expect("no wait").is_ok());

    let odd = WorkspaceFile {
        documents: vec![Document { company_id: "c".into(), ..Document::default() }],
        ..WorkspaceFile::default()
    };
    let error = odd.to_text().expect_err("an import would refuse it");
    assert_eq!(error.faults[0].path, "documents[0].id");
}

/// Uploads a document to a store and, if `extracted`, gives it its text.
fn upload(records: &Arc<MemoryRecords>, text: &str, is_extracted: bool) {
    let new = NewUpload::new("d".to_owned(), None, "text/plain".to_owned(), text.to_owned().into());
    let staged = ready(new.stage(&**records, &"c".into(), jiff::Timestamp::UNIX_EPOCH));
    ready(staged.attach(&**records, Precondition::Any, &"ada".into()));
    let services = IngestionServices {
        records: records.clone(),
        extractor: Arc::new(ScriptedExtractor::new("scripted/1")),
        clock: Arc::new(ManualClock::new()),
        spawner: Arc::new(|_: BoxFuture<'static, ()>| {}),
        on_end: Arc::new(|_, _| {}),
    };
    let ingestion = Ingestion::new(services, IngestionLimits::default());
    if is_extracted {
        assert!(ready(ingestion.run_one()));
    }
}

#[test]
fn an_upload_is_exported_with_its_text() {
    let (roles, records) = store();
    upload(&records, "one", true);
    let export =
        || WorkspaceFile::export(&*records, None).now_or_never().expect("no wait").expect("exported");
    let text = export().to_text().expect("it fits");
    assert_eq!(ready(parsed(&text).apply(&roles)), counts(0, 0, 1), "the same text keeps the upload");
    let stored =
        |records: &MemoryRecords| ready(get_document(records, &"c".into(), "d")).expect("there").value;
    assert!(stored(&records).content.is_some());
    let (other_roles, other) = store();
    assert_eq!(ready(parsed(&text).apply(&other_roles)), counts(1, 0, 0));
    assert_eq!((stored(&other).text.as_str(), stored(&other).content), ("one", None), "no original is there");

    let mut file = parsed(&text);
    file.documents[0].text = "two".to_owned();
    assert_eq!(ready(file.apply(&roles)), counts(0, 1, 0));
    assert_eq!((stored(&records).text.as_str(), stored(&records).content), ("two", None));
    let kept = ready(records.collections("c", None));
    assert!(kept.iter().all(|kept| !kept.path().starts_with("documentContents")), "{kept:?}");
}

#[test]
fn an_upload_without_its_text_is_a_fault_of_an_export() {
    let long = "x".repeat(500_000);
    for (text, is_extracted, expected) in [
        (
            &*long,
            true,
            "documents[0].text: has 500000 bytes in the upload \"d\"; the limit in a workspace file is 409600: copy the database instead, or delete the document",
        ),
        ("one", false, "documents[0].text: is not extracted yet from the upload \"d\": export again later"),
    ] {
        let (_, records) = store();
        upload(&records, text, is_extracted);
        let file = WorkspaceFile::export(&*records, None).now_or_never().expect("no wait").expect("exported");
        let error = file.to_text().expect_err("the text is missing").to_string();
        assert!(error.ends_with(expected), "{error}");
    }
}

#[test]
fn more_than_is_done_at_once_is_refused() {
    let agents: Vec<Value> =
        (0..MAX_WRITES / 2).map(|n| json!({"id": n.to_string(), "companyId": "c"})).collect();
    let users = |count: usize| {
        (0..count).map(|n| json!({"id": n.to_string(), "companyId": "c"})).collect::<Vec<Value>>()
    };
    let room = MAX_WRITES % 2;
    assert!(WorkspaceFile::parse(&json!({"agents": agents, "users": users(room)}).to_string()).is_ok());
    let error = WorkspaceFile::parse(&json!({"agents": agents, "users": users(room + 1)}).to_string());
    let error = error.expect_err("too many").to_string();
    assert!(error.starts_with("line 1, column 1: the import needs 100001 writes"), "{error}");
}

#[test]
fn a_fault_is_reported_with_its_position() {
    let long = "x".repeat(129);
    for (text, expected) in [
        ("", "line 1, column 1: invalid JSON: EOF while parsing a value"),
        ("[]", "line 1, column 1: the file is a JSON array; an object is expected"),
        ("{}\n{}", "line 2, column 1: invalid JSON: trailing characters"),
        ("{\n \"users\": [}", "line 2, column 12: invalid JSON: expected value"),
        (
            "{\"users\": [\n  {\"id\": \"ä\", \"companyId\": 7}]}",
            "line 2, column 28: users[0].companyId: invalid type: integer `7`, expected a string",
        ),
        (
            "{\"users\": [\n  {\"id\": \"a\", \"companyId\": \"c\", \"role\": 5}]}",
            "line 2, column 41: users[0].role: invalid type, expected a string",
        ),
        (
            "{\"todoLists\": [[\"l\", \"ada\", \"c\"]]}",
            "line 1, column 16: todoLists[0]: invalid type: sequence, expected struct TodoList",
        ),
        ("{\"documents\": [{\"id\": \"d\"}]}", "line 1, column 16: documents[0]: missing field `companyId`"),
        (
            "{\"agents\": [{\"id\": \"a\", \"companyId\": \"c\",\n\"content\": {\"rules\": [\"r\", {}]}}]}",
            "line 2, column 28: agents[0].content.rules[1]: invalid type: map, expected a string",
        ),
        (
            "{\"agents\": [{\"id\": \"a\", \"companyId\": \"c\",\n\"content\": {\"agentServerTools\": [\"r\", 1]}}]}",
            "line 2, column 39: agents[0].content.agentServerTools[1]: invalid type: integer `1`, expected a string",
        ),
        (
            "{\"agents\": [{\"id\": \"a\", \"companyId\": \"c\",\n\"children\": [{\"content\": {\"apiKey\": 12},\n\"name\": \"EmbeddedAI\"}]}]}",
            "line 2, column 37: agents[0].children[0].content.apiKey: expected a string",
        ),
        (
            "{\"users\": [{\"id\": \"\", \"companyId\": \"c\", \"timezone\": \"Europe/Bärlin\"}]}",
            "line 1, column 19: users[0].id: is empty\n\
             line 1, column 53: users[0].timezone: \"Europe/Bärlin\" is not an IANA time zone, such as \"Europe/Berlin\"",
        ),
        (
            &format!("{{\"plans\": [{{\"id\": \"{long}\", \"companyId\": \"a\\u0000\"}}]}}"),
            "line 1, column 19: plans[0].id: has 129 bytes; the limit is 128\n\
             line 1, column 165: plans[0].companyId: has a control or invisible character",
        ),
        (
            "{\"agents\": [{\"id\": \"a\", \"companyId\": \"c\"}, {\"id\": \"a\", \"companyId\": \"c\"}]}",
            "line 1, column 51: agents[1].id: occurs twice in the file",
        ),
        (
            "{\"agents\": [{\"id\": \"a\", \"companyId\": \"c\", \"content\": {\"documentIds\": [\"e\", \"d\"]}}],\n\
             \"documents\": [{\"id\": \"d\", \"companyId\": \"other\"}]}",
            "line 1, column 76: agents[0].content.documentIds[1]: the document \"d\" belongs to another company",
        ),
        (
            "{\"users\": [{\"id\": \"ada\", \"companyId\": \"d\"}],\n\
             \"memories\": [{\"id\": \"m\", \"companyId\": \"c\", \"agentId\": \"a\", \"userId\": \"ada\", \"text\": \"x\"}]}",
            "line 2, column 70: memories[0].userId: the user \"ada\" belongs to another company",
        ),
        (
            "{\"todoLists\": [{\"id\": \"l\", \"ownerId\": \"ada\", \"companyId\": \"c\",\n\
             \"todos\": [{\"id\": \"t\", \"title\": \"x\"}, {\"id\": \"t\", \"title\": \" \"}]}],\n\
             \"users\": [{\"id\": \"ada\", \"companyId\": \"other\"}]}",
            "line 1, column 39: todoLists[0].ownerId: the user \"ada\" belongs to another company\n\
             line 2, column 45: todoLists[0].todos[1].id: occurs twice in the file\n\
             line 2, column 59: todoLists[0].todos[1].title: is blank",
        ),
        (
            "{\"memories\": [{\"id\": \"m\", \"companyId\": \"c\", \"agentId\": \"a\", \"folder\": \"\\u0001x\", \"text\": \"\"}]}",
            "line 1, column 71: memories[0].folder: a part of the collection has a control character",
        ),
    ] {
        let error = WorkspaceFile::parse(text).expect_err(text);
        assert_eq!(error.to_string(), expected, "{text}");
    }
}

#[test]
fn the_same_identifier_in_two_companies_is_two_things() {
    let file = "\u{feff}{\"documents\": [{\"id\": \"d\", \"companyId\": \"c\"}, {\"id\": \"d\", \"companyId\": \"e\"}]}";
    assert!(WorkspaceFile::parse(file).is_ok());
}

#[test]
fn oversized_items_are_refused_before_any_write() {
    let text = "x".repeat(crate::records::MAX_VALUE_BYTES);
    let file = json!({"documents": [{"id": "d", "companyId": "c", "text": text}]}).to_string();
    let error = WorkspaceFile::parse(&file).expect_err("too large");
    assert_eq!(error.faults[0].path, "documents[0]");
    for (field, size) in [("systemPrompt", text.len()), ("agentServerApiKey", text.len() * 3 / 4)] {
        let role = json!({"id": "a", "companyId": "c", "content": {field: "x".repeat(size)}});
        let error = WorkspaceFile::parse(&json!({"agents": [role]}).to_string()).expect_err(field);
        assert_eq!((error.faults.len(), error.faults[0].path.as_str()), (1, "agents[0]"), "{field}");
    }
    let users: Vec<Value> = (0..100).map(|_| json!({"id": "", "companyId": ""})).collect();
    let error = WorkspaceFile::parse(&json!({ "users": users }).to_string()).expect_err("many faults");
    assert_eq!(error.faults.len(), 20);
}

fn refused(text: &str) -> Vec<String> {
    let error = WorkspaceFile::parse(text).expect_err("refused");
    error.faults.iter().map(ToString::to_string).collect()
}

#[test]
fn unknown_names_are_refused_with_their_place() {
    let file = r#"{"agents": [{"id": "ok", "companyId": "c"}, {"id": "a", "companyId": "c",
      "content": {"systemPromt": "x", "tools": ["readTodo"]},
      "children": [{"name": "EmbeddedAI", "content": {"provider": "opneai", "modle": "m"}}]}]}"#;
    assert_eq!(
        refused(file),
        [
            "line 2, column 34: agents[1].content.systemPromt: is not a field of a role",
            "line 3, column 86: agents[1].children[0].content.modle: is not a field of a role",
            "line 2, column 49: agents[1].content.tools[0]: is not the name of a tool",
        ]
    );
    let (_, records) = store();
    let file = r#"{"agents": [{"id": "a", "companyId": "c",
      "children": [{"name": "EmbeddedAI", "content": {"provider": "opneai"}}]}]}"#;
    let missing = parsed(file).check_references(file, &*records).now_or_never().expect("no wait");
    assert_eq!(
        missing.expect_err("a missing document is an error").to_string(),
        "line 2, column 67: agents[0].children[0].content.provider: is not a provider: expected one of anthropic, auto, local, ollama, openai, openai-responses, the id of a provider of the company"
    );
}

#[test]
fn numbers_of_tools_that_would_be_rounded_are_refused() {
    let file = r#"{"agents": [{"id": "a", "companyId": "c", "content": {"httpTools": [{"name": "pay", "description": "Pays.",
      "inputSchema": {"type": "object"},
      "request": {"method": "POST", "url": "https://a.example/pay", "body": {"to": 123456789012345678901234}}}]}}]}"#;
    assert_eq!(
        refused(file),
        [
            "line 3, column 84: agents[0].content.httpTools[0].request.body.to: has more digits than a number keeps (64 bits for whole numbers, about 15 digits for others)"
        ]
    );
    let exact = file.replace("123456789012345678901234", "9007199254740993");
    assert_eq!(parsed(&exact).agents.len(), 1);
}

#[test]
fn lists_that_a_file_does_not_have_are_refused() {
    let expected =
        "expected one of users, agents, documents, todoLists, memories, plans, epics, metrics, assignments";
    assert_eq!(
        refused("{\"todolists\": [],\n \"users\": [], \"agent\": {}, \"$schema\": \"https://a.example\"}"),
        [
            format!("line 2, column 24: agent: is not a list of a workspace file: {expected}"),
            format!("line 1, column 15: todolists: is not a list of a workspace file: {expected}"),
        ]
    );
    let lists: serde_json::Map<String, Value> =
        super::content::LISTS.iter().map(|list| ((*list).to_owned(), json!([]))).collect();
    WorkspaceFile::parse(&json!(lists).to_string()).expect("each list may be there");
    let users = json!({"users": [{"id": "ada", "companyId": "c", "later": 1}]});
    WorkspaceFile::parse(&users.to_string()).expect("other fields are ignored");
}

#[test]
fn documents_that_agents_name_are_in_the_file_or_the_store() {
    let (roles, records) = store();
    let file = parsed(DEMO);
    let missing = file
        .check_references(DEMO, &*records)
        .now_or_never()
        .expect("no wait")
        .expect_err("a missing document is an error");
    assert_eq!(
        missing.to_string(),
        "line 4, column 59: agents[0].content.documentIds[1]: is not the id of a document of the company"
    );
    let other = r#"{"documents": [{"id": "elsewhere", "companyId": "c", "title": "E", "text": "x"}]}"#;
    ready(parsed(other).apply(&roles));
    file.check_references(DEMO, &*records).now_or_never().expect("no wait").expect("it is stored");
}

#[test]
fn roles_from_before_the_checks_stay_readable() {
    let (roles, records) = store();
    let old = json!({"id": "a", "companyId": "c", "content": {"tools": ["gone"], "documentIds": ["gone"], "unknown": 1},
        "children": [{"name": "EmbeddedAI", "content": {"provider": "gone", "modle": "m"}}]});
    let key = Key::new("c", crate::roles::ROLES, "a").expect("a key");
    ready(records.put_as(&key, &old, Precondition::Absent));
    let role = ready(roles.role(&"c".into(), &"a".into())).expect("there");
    assert_eq!(role.content.tools, ["gone"]);
    let file = WorkspaceFile { agents: vec![(*role).clone()], ..WorkspaceFile::default() };
    assert!(file.to_text().expect("it is exported").contains("gone"));
}
