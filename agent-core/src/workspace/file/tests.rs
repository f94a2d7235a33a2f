use futures_util::FutureExt;
use serde_json::json;

use super::*;
use crate::memory::{MemoryRecords, MemoryRoles};
use crate::tool::ExecutionContext;
use crate::workspace::{create_todo, document, memories, todo_list, user};

const DEMO: &str = r#"{
  "users": [{"id": "ada", "companyId": "c", "timezone": "Europe/Berlin", "ragEnabled": false}],
  "agents": [{"id": "a", "name": "Ann", "ownerId": "ada", "companyId": "c",
    "content": {"systemPrompt": "S", "documentIds": ["d", "elsewhere"], "agentServerApiKey": "sk"},
    "children": [{"name": "EmbeddedAI"}]}],
  "documents": [{"id": "d", "companyId": "c", "title": "T", "text": "x"}],
  "todoLists": [{"id": "l", "ownerId": "ada", "companyId": "c", "name": "Home",
    "todos": [{"id": "t2", "title": "two", "done": true}, {"id": "t1", "title": "one"}]}],
  "memories": [{"id": "m", "companyId": "c", "agentId": "a", "text": "likes tea"}],
  "plans": [{"id": "p", "companyId": "c", "steps": [1, 2]}],
  "epics": [{"id": "e", "companyId": "c"}],
  "metrics": [{"id": "m", "companyId": "c", "value": 1.5}],
  "assignments": [{"id": "s", "companyId": "c", "toolId": "readTodos"}],
  "later": true
}"#;

fn ready<T>(future: impl Future<Output = Result<T, StoreError>>) -> T {
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
    let list = todo_list(records, &ada()).now_or_never().expect("no wait").expect("there");
    list.todos.into_iter().map(|todo| todo.title).collect()
}

#[test]
fn a_whole_file_arrives_and_arriving_again_changes_nothing() {
    let (roles, records) = (MemoryRoles::new(), MemoryRecords::default());
    let file = WorkspaceFile::parse(DEMO).expect("a good file");
    let imported = ready(file.apply(&roles, &records));
    assert_eq!(imported, Imported { agents: 1, created: 8, updated: 0, unchanged: 0 });
    let role = ready(roles.role("c", "a")).expect("there");
    assert_eq!(role.content.agent_server.agent_server_api_key.as_ref().map(|k| k.expose()), Some("sk"));
    assert_eq!(ready(document(&records, "c", "d")).expect("there").value.text, "x");
    assert!(!ready(user(&records, "c", "ada")).expect("there").allows_rag());
    assert_eq!(ready(memories(&records, "c", "a", None, 10))[0].text, "likes tea");
    assert_eq!(titles(&records), ["two", "one"]);
    let plan = ready(records.get(&Key::new("c", collection::PLANS, "p").expect("a key"))).expect("there");
    let plan: Value = serde_json::from_str(plan.value.get()).expect("JSON");
    assert_eq!(plan, json!({"id": "p", "companyId": "c", "steps": [1, 2]}));

    let again = ready(file.apply(&roles, &records));
    assert_eq!(again, Imported { agents: 1, created: 0, updated: 0, unchanged: 8 });
}

#[test]
fn an_edited_file_updates_and_keeps_the_todos_that_came_meanwhile() {
    let (roles, records) = (MemoryRoles::new(), MemoryRecords::default());
    ready(WorkspaceFile::parse(DEMO).expect("a good file").apply(&roles, &records));
    create_todo(&records, &ada(), "three").now_or_never().expect("no wait").expect("created");
    let edited =
        DEMO.replace(r#""text": "x""#, r#""text": "y""#).replace(r#""title": "one""#, r#""title": "ONE""#);
    let imported = ready(WorkspaceFile::parse(&edited).expect("a good file").apply(&roles, &records));
    assert_eq!(imported, Imported { agents: 1, created: 0, updated: 2, unchanged: 6 });
    assert_eq!(ready(document(&records, "c", "d")).expect("there").value.text, "y");
    assert_eq!(titles(&records), ["two", "ONE", "three"]);
}

#[test]
fn an_agent_of_another_company_stops_the_import_before_any_record() {
    let (roles, records) = (MemoryRoles::new(), MemoryRecords::default());
    let held = RoleBlock { id: "a".into(), company_id: "d".into(), ..RoleBlock::default() };
    ready(roles.put_role(held));
    let file = WorkspaceFile::parse(DEMO).expect("a good file");
    let error = file.apply(&roles, &records).now_or_never().expect("no wait");
    assert!(matches!(error, Err(StoreError::Taken(id)) if id == "a"));
    assert_eq!(ready(document(&records, "c", "d")), None);
}

#[test]
fn a_fault_is_told_with_its_place() {
    let long = "x".repeat(129);
    for (text, expected) in [
        ("", "line 1, column 1: this is not JSON: EOF while parsing a value"),
        ("[]", "line 1, column 1: the file is a list, and an object is expected"),
        ("{}\n{}", "line 2, column 1: this is not JSON: trailing characters"),
        ("{\n \"users\": [}", "line 2, column 12: this is not JSON: expected value"),
        (
            "{\"users\": [\n  {\"id\": \"ä\", \"companyId\": 7}]}",
            "line 2, column 28: users[0].companyId: invalid type: integer `7`, expected a string",
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
            "line 1, column 19: plans[0].id: has 129 bytes, and at most 128 are taken\n\
             line 1, column 165: plans[0].companyId: has a control character",
        ),
        (
            "{\"agents\": [{\"id\": \"a\", \"companyId\": \"c\"}, {\"id\": \"a\", \"companyId\": \"d\"}]}",
            "line 1, column 51: agents[1].id: is in the file twice",
        ),
        (
            "{\"agents\": [{\"id\": \"a\", \"companyId\": \"c\", \"content\": {\"documentIds\": [\"e\", \"d\"]}}],\n\
             \"documents\": [{\"id\": \"d\", \"companyId\": \"other\"}]}",
            "line 1, column 76: agents[0].content.documentIds[1]: the document \"d\" is of another company",
        ),
        (
            "{\"todoLists\": [{\"id\": \"l\", \"ownerId\": \"ada\", \"companyId\": \"c\",\n\
             \"todos\": [{\"id\": \"t\", \"title\": \"x\"}, {\"id\": \"t\", \"title\": \" \"}]}],\n\
             \"users\": [{\"id\": \"ada\", \"companyId\": \"other\"}]}",
            "line 1, column 39: todoLists[0].ownerId: the user \"ada\" is of another company\n\
             line 2, column 45: todoLists[0].todos[1].id: is in the file twice\n\
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
fn what_is_too_large_is_refused_before_anything_is_written() {
    let text = "x".repeat(crate::records::MAX_VALUE_BYTES);
    let file = json!({"documents": [{"id": "d", "companyId": "c", "text": text}]}).to_string();
    let error = WorkspaceFile::parse(&file).expect_err("too large");
    assert_eq!(error.faults[0].path, "documents[0]");
    let users: Vec<Value> = (0..100).map(|_| json!({"id": "", "companyId": ""})).collect();
    let error = WorkspaceFile::parse(&json!({ "users": users }).to_string()).expect_err("many faults");
    assert_eq!(error.faults.len(), 20);
}
