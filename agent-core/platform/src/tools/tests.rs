//! Tests of the tools through a registry. Every result is validated against the tool's own output schema.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use futures_util::FutureExt;
use futures_util::future::join_all;
use jsonschema::Validator;
use serde_json::{Value, json};

use super::*;
use crate::memory::MemoryRecords;
use crate::records::{Key, Precondition, RecordsExt as _};
use crate::roles::RecordRoleStore;
use crate::seal::Sealer;
use crate::testing::MemoryPulse;
use crate::workspace::WorkspaceFile;
use agent_core::testing::ManualClock;
use agent_core::tool::{Caller, ExecutionContext, NoProgress, ToolRegistry};

mod catalogue;
mod documents;
mod identity;
mod journaled;
mod messenger;
mod scheduled;

use messenger::FakeMessenger;

/// 2026-11-21, 14:30 UTC.
const NOW: Duration = Duration::from_secs(1_795_271_400);

/// Test fixture: the tools over an in-memory workspace.
struct ToolFixture {
    records: Arc<MemoryRecords>,
    roles: Arc<RecordRoleStore>,
    messenger: Arc<FakeMessenger>,
    tools: LocalToolRegistry,
    pulse: Arc<MemoryPulse>,
    schemas: BTreeMap<String, (Validator, Validator)>,
}

impl ToolFixture {
    fn new(workspace: &Value) -> Self {
        let clock = ManualClock::at(UNIX_EPOCH + NOW);
        let records = Arc::new(MemoryRecords::new(Arc::new(clock.clone())));
        let roles = Arc::new(RecordRoleStore::new(records.clone(), Sealer::ephemeral()));
        let file = WorkspaceFile::parse(&workspace.to_string()).expect("a good file");
        ready(file.apply(&roles)).expect("the store in memory takes it");
        let messenger = Arc::new(FakeMessenger::default());
        let pulse = Arc::new(MemoryPulse::new(Arc::new(clock.clone())));
        let reach = ToolServices {
            messenger: Some(messenger.clone()),
            pulse: Some(pulse.clone()),
            ..ToolServices::default()
        };
        let tools = build_tools(Stores::new(records.clone(), roles.clone(), reach).with_clock(clock));
        let validator = |schema: &str| {
            jsonschema::validator_for(&serde_json::from_str(schema).expect("JSON")).expect("a schema")
        };
        let specs = ready(tools.list(&ExecutionContext::default())).expect("listed");
        let schemas = specs.iter().map(|spec| {
            let output = spec.output_schema.as_ref().expect("an output schema");
            (spec.name.clone(), (validator(spec.input_schema.get()), validator(output.get())))
        });
        Self { schemas: schemas.collect(), records, roles, messenger, tools, pulse }
    }

    /// Calls a tool and returns its structured result, or the error text for the model.
    fn call(&self, context: &ExecutionContext, name: &str, arguments: Value) -> Result<Value, String> {
        let output = ready(self.tools.call(context, name, arguments.clone(), &NoProgress));
        let output = output.map_err(|error| error.to_string())?;
        let structured = output.structured.expect("structured");
        assert_eq!(serde_json::from_str::<Value>(&output.text).expect("JSON"), structured);
        let (input, output) = &self.schemas[name];
        for (schema, value) in [(input, &arguments), (output, &structured)] {
            let faults: Vec<_> = schema.iter_errors(value).map(|error| error.to_string()).collect();
            assert!(faults.is_empty(), "{name}: {value}: {faults:?}");
        }
        Ok(structured)
    }

    /// Calls a tool and returns its result. Panics if the call fails.
    fn call_ok(&self, context: &ExecutionContext, name: &str, arguments: Value) -> Value {
        self.call(context, name, arguments).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

fn ready<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the store in memory does not wait")
}

fn demo() -> Value {
    json!({
        "agents": [
            {"id": "a", "companyId": "c", "content": {"documentIds": ["d1", "gone"], "ragDocumentIds": ["d2", "d1"],
                "memoryFolder": "notes", "tools": ["readEpics", "getEpicDetails"],
                "widgetTools": ["listDocs", "getDoc", "searchDocs", "createDoc", "appendDoc", "readMetrics", "recordMetric",
                    "remember", "recall", "forget", "readTodos", "readEpics", "sendNotification", "readNotifications"]}},
            {"id": "b", "companyId": "c"}
        ],
        "documents": [
            {"id": "d1", "companyId": "c", "title": "One", "text": "first"},
            {"id": "d2", "companyId": "c", "title": "Two", "text": "second\n"},
            {"id": "d3", "companyId": "c", "title": "Three", "text": "third"}
        ],
        "todoLists": [{"id": "l", "ownerId": "ada", "companyId": "c", "name": "Home",
            "todos": [{"id": "t1", "title": "one"}, {"id": "t2", "title": "two", "done": true}]}],
        "plans": [{"id": "p", "companyId": "c", "todoListId": "l", "steps": [1, 2]}],
        "epics": [{"id": "e1", "companyId": "c", "name": "Move", "status": "open", "parts": [{"n": 1}]},
            {"id": "e2", "companyId": "c", "title": 7}],
        "metrics": [{"id": "m", "companyId": "c", "name": "sales", "value": 1.5, "unit": "EUR", "at": "2026-01-01T00:00:00Z"},
            {"id": "n", "companyId": "c"}]
    })
}

fn ada() -> ExecutionContext {
    ExecutionContext {
        user_id: "ada".into(),
        company_id: "c".into(),
        agent_id: "a".into(),
        todo_list_id: Some("l".into()),
        timezone: Some("Europe/Berlin".into()),
        ..ExecutionContext::default()
    }
}

fn visitor() -> ExecutionContext {
    ExecutionContext { user_id: "widget:1".into(), caller: Caller::Widget, ..ada() }
}

#[test]
fn todo_tools_read_change_and_check_versions() {
    let world = ToolFixture::new(&demo());
    let read = || world.call_ok(&ada(), "readTodos", json!({}));
    let first = read();
    assert_eq!(first["todos"][0], json!({"id": "t1", "title": "one", "done": false}));
    let created = world.call_ok(&ada(), "createTodo", json!({"title": "three", "later": 1}));
    assert_eq!((&created["todo"]["title"], &created["todo"]["done"]), (&json!("three"), &json!(false)));
    let update = |arguments| world.call_ok(&ada(), "updateTodo", arguments);
    let updated = update(json!({"id": "t1", "done": true, "version": created["version"]}));
    assert_eq!(updated["todo"], json!({"id": "t1", "title": "one", "done": true}));
    assert_eq!(update(json!({"id": "t1", "title": "ONE"}))["todo"]["title"], "ONE");
    let stale = json!({"id": "t1", "version": first["version"]});
    let error = world.call(&ada(), "deleteTodo", stale).expect_err("it has changed");
    let now = &read()["version"];
    assert_eq!(
        error,
        format!(
            "the todo list \"l\" has changed since it was read and is now at version {now}: read it again"
        )
    );
    let deleted = world.call_ok(&ada(), "deleteTodo", json!({"id": "t1", "version": now}));
    assert_eq!(deleted["deleted"]["id"], "t1");
    let titles: Vec<_> =
        read()["todos"].as_array().expect("todos").iter().map(|t| t["title"].clone()).collect();
    assert_eq!(titles, ["two", "three"]);
}

#[test]
fn concurrent_calls_are_all_counted() {
    let (world, ada) = (ToolFixture::new(&demo()), ada());
    for (name, arguments) in [
        ("createTodo", json!({"title": "x"})),
        ("appendDoc", json!({"id": "d1", "text": "x"})),
        ("recordMetric", json!({"name": "x", "value": 1})),
        ("remember", json!({"text": "x"})),
        ("sendNotification", json!({"title": "x"})),
    ] {
        let calls = (0..20).map(|_| world.tools.call(&ada, name, arguments.clone(), &NoProgress));
        let results = ready(join_all(calls));
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
    let count = |name: &str, list: &str, arguments| {
        world.call_ok(&ada, name, arguments)[list].as_array().expect("a list").len()
    };
    assert_eq!(count("readTodos", "todos", json!({})), 22);
    assert_eq!(count("readMetrics", "metrics", json!({"name": "x"})), 20);
    assert_eq!(count("recall", "memories", json!({"query": "X"})), 20);
    assert_eq!(count("readNotifications", "notifications", json!({})), 20);
    let text = world.call_ok(&ada, "getDoc", json!({"id": "d1"}))["doc"]["text"].clone();
    assert_eq!(text, format!("first{}", "\nx".repeat(20)));
}

#[test]
fn plan_tools_read_update_and_check_versions() {
    let mut workspace = demo();
    let world = ToolFixture::new(&workspace);
    let read = world.call_ok(&ada(), "readPlan", json!({}))["plan"].clone();
    assert_eq!(
        (&read["id"], &read["text"], &read["details"]),
        (&json!("p"), &json!(""), &json!({"steps": [1, 2]}))
    );
    let update = json!({"title": "T", "text": "First", "version": read["version"]});
    let updated = world.call_ok(&ada(), "updatePlan", update.clone())["plan"].clone();
    assert_eq!((&updated["id"], &updated["title"]), (&json!("p"), &json!("T")));
    assert!(world.call(&ada(), "updatePlan", update).expect_err("changed").ends_with("read it again"));
    let again = world.call_ok(&ada(), "readPlan", json!({}))["plan"].clone();
    assert_eq!((&again["text"], &again["details"]), (&json!("First"), &json!({"steps": [1, 2]})));

    workspace["plans"] = json!([]);
    let world = ToolFixture::new(&workspace);
    assert_eq!(world.call_ok(&ada(), "readPlan", json!({})), json!({"plan": null}));
    assert_eq!(world.call_ok(&ada(), "updatePlan", json!({"text": "x"}))["plan"]["id"], "l");
}

#[test]
fn metric_tools_read_and_record_values() {
    let world = ToolFixture::new(&demo());
    let read = |context: &ExecutionContext, arguments| {
        world.call_ok(context, "readMetrics", arguments)["metrics"].as_array().expect("metrics").clone()
    };
    assert_eq!(
        read(&ada(), json!({"name": "sales"})),
        [json!({"id": "m", "name": "sales", "value": 1.5, "unit": "EUR", "at": "2026-01-01T00:00:00.000Z",
            "localTime": "2026-01-01 01:00 Europe/Berlin"})]
    );
    assert_eq!(read(&visitor(), json!({})), Vec::<Value>::new());
    for (agent, arguments, at) in [
        ("a", json!({"name": "visits", "value": 3}), "2026-11-21T14:30:00.000Z"),
        (
            "a",
            json!({"name": "visits", "value": 4, "unit": "people", "at": "2026-07-01"}),
            "2026-06-30T22:00:00.000Z",
        ),
        (
            "b",
            json!({"name": "visits", "value": -0.5, "at": "2026-07-01T00:00:00+00:00"}),
            "2026-07-01T00:00:00.000Z",
        ),
    ] {
        let context = ExecutionContext { agent_id: agent.into(), ..ada() };
        assert_eq!(world.call_ok(&context, "recordMetric", arguments)["metric"]["at"], at);
    }
    let values = |context: &ExecutionContext, arguments| -> Vec<f64> {
        read(context, arguments).iter().map(|metric| metric["value"].as_f64().unwrap_or_default()).collect()
    };
    assert_eq!(values(&ada(), json!({"name": "visits"})), [-0.5, 4.0, 3.0]);
    assert_eq!(values(&ada(), json!({"from": "2026-07-01", "to": "2026-07-02"})), [-0.5, 4.0]);
    assert_eq!(values(&visitor(), json!({})), [4.0, 3.0]);
    assert_eq!(values(&ada(), json!({})), [0.0, 1.5, -0.5, 4.0, 3.0]);
}

#[test]
fn notification_tools_send_read_and_mark() {
    let world = ToolFixture::new(&demo());
    let sent = world.call_ok(
        &ada(),
        "sendNotification",
        json!({"title": "Late", "text": "The train is.", "userId": "bob"}),
    );
    assert_eq!(
        (&sent["notification"]["at"], &sent["notification"]["localTime"]),
        (&json!("2026-11-21T14:30:00.000Z"), &json!("2026-11-21 15:30 Europe/Berlin"))
    );
    world.call_ok(&ada(), "sendNotification", json!({"title": "Later"}));
    let read = |context: &ExecutionContext, arguments| {
        let listed = world.call_ok(context, "readNotifications", arguments)["notifications"].take();
        let shown = |one: &Value| (one["title"].as_str().expect("a title").to_owned(), one["read"] == true);
        listed.as_array().expect("notifications").iter().map(shown).collect::<Vec<_>>()
    };
    let late = |read| ("Late".to_owned(), read);
    let later = |read| ("Later".to_owned(), read);
    assert_eq!(read(&ada(), json!({"limit": 1, "markRead": true})), [later(false)]);
    assert_eq!(read(&ada(), json!({})), [later(true), late(false)]);
    assert_eq!(read(&ada(), json!({"unreadOnly": true})), [late(false)]);
    let bob = ExecutionContext { user_id: "bob".into(), ..ada() };
    for other in [bob, visitor(), ExecutionContext { company_id: "d".into(), ..ada() }] {
        let role_less = world.call(&other, "readNotifications", json!({"markRead": true}));
        assert_eq!(role_less, Ok(json!({"notifications": []})));
    }
}

#[test]
fn memory_tools_see_the_callers_memories_only() {
    let world = ToolFixture::new(&demo());
    let memory = world.call_ok(&ada(), "remember", json!({"text": "Ada likes tea."}))["memory"].clone();
    let recall = |context: &ExecutionContext, arguments| world.call(context, "recall", arguments);
    assert_eq!(recall(&ada(), json!({"query": "TEA"})), Ok(json!({"memories": [memory]})));
    assert_eq!(recall(&ada(), json!({"query": "coffee"})), Ok(json!({"memories": []})));
    // The prompt's memory layer reads the same folder.
    let role = serde_json::from_value(demo()["agents"][0].clone()).expect("a role");
    let folder = crate::workspace::MemoryFolder::of_user(&role, &"ada".into());
    let shown = ready(crate::workspace::list_memories(&*world.records, &folder, 10));
    assert_eq!(shown.expect("read").len(), 1);
    let bob = ExecutionContext { user_id: "bob".into(), ..ada() };
    for other in [ExecutionContext { agent_id: "b".into(), ..ada() }, bob.clone()] {
        assert_eq!(recall(&other, json!({})), Ok(json!({"memories": []})));
    }
    let one = json!({"id": memory["id"]});
    let absent = Err(format!("there is no memory {}", memory["id"]));
    assert_eq!(world.call(&bob, "forget", one.clone()), absent);
    assert_eq!(world.call_ok(&ada(), "forget", one.clone()), json!({"forgotten": memory["id"]}));
    assert_eq!(world.call(&ada(), "forget", one.clone()), absent);
    assert_eq!(recall(&ada(), json!({})), Ok(json!({"memories": []})));
    for (name, arguments) in [("recall", json!({})), ("remember", json!({"text": "x"})), ("forget", one)] {
        let result = world.call(&visitor(), name, arguments.clone());
        assert_eq!(result, Err("memory is not available to visitors".to_owned()));
        let nobody = ExecutionContext { agent_id: "none".into(), ..ada() };
        assert_eq!(world.call(&nobody, name, arguments), Err("this agent has no role".to_owned()));
    }
}

#[test]
fn epic_tools_list_pages_and_read_details() {
    let world = ToolFixture::new(&demo());
    let listed = world.call_ok(&ada(), "readEpics", json!({}));
    assert_eq!(listed, json!({"epics": [{"id": "e1", "title": "Move", "status": "open"}, {"id": "e2"}]}));
    let page = world.call_ok(&ada(), "readEpics", json!({"limit": 1}));
    let second_page = world.call_ok(&ada(), "readEpics", json!({"cursor": page["nextCursor"]}));
    assert_eq!(second_page, json!({"epics": [{"id": "e2"}]}));
    let epic = world.call_ok(&ada(), "getEpicDetails", json!({"id": "e1"}));
    assert_eq!(epic, json!({"epic": {"id": "e1", "name": "Move", "status": "open", "parts": [{"n": 1}]}}));
}

#[test]
fn visitors_have_what_the_role_names_for_them_and_the_agent_has() {
    let world = ToolFixture::new(&demo());
    let refused: Vec<_> = world
        .schemas
        .keys()
        .filter(|name| {
            let unknown = Err(format!("there is no tool named {name:?}"));
            world.call(&visitor(), name, json!({})) == unknown
        })
        .collect();
    assert_eq!(
        refused,
        [
            "cancelScheduledTool",
            "createTodo",
            "deleteTodo",
            "getEpicDetails",
            "readPlan",
            "scheduleTool",
            "sendMessengerMessage",
            "updatePlan",
            "updateTodo"
        ]
    );
    let nobodys = ExecutionContext { agent_id: "none".into(), ..visitor() };
    for name in world.schemas.keys() {
        assert_eq!(world.call(&nobodys, name, json!({})), Err(format!("there is no tool named {name:?}")));
    }
    let agent = Key::new("c", crate::roles::ROLES, "a").expect("a key");
    ready(world.records.put_as(&agent, &json!(5), Precondition::Any)).expect("stored");
    let unreadable = world.call(&visitor(), "listDocs", json!({}));
    assert_eq!(unreadable, Err("the tool failed".to_owned()), "a fault of the store hides no tool");
}

#[test]
fn errors_explain_how_to_correct_a_call() {
    let world = ToolFixture::new(&demo());
    let no_list = ExecutionContext { todo_list_id: None, ..ada() };
    let bob = ExecutionContext { user_id: "bob".into(), ..ada() };
    let long = "x".repeat(5_000);
    for (context, name, arguments, expected) in [
        (&ada(), "createTodo", json!({}), "invalid arguments: missing field `title`"),
        (&ada(), "createTodo", json!(["x"]), "invalid arguments: they must be a JSON object"),
        (
            &ada(),
            "createTodo",
            json!({"title": 7}),
            "invalid arguments: title: invalid type: integer `7`, expected a string",
        ),
        (&ada(), "createTodo", json!({"title": " "}), "invalid arguments: title: is blank"),
        (&ada(), "updateTodo", json!({"id": "t1"}), "invalid arguments: title: or done is required"),
        (
            &ada(),
            "updateTodo",
            json!({"id": "t1", "done": "yes"}),
            "invalid arguments: done: invalid type: string \"yes\", expected a boolean",
        ),
        (&ada(), "updateTodo", json!({"id": "none", "done": true}), "there is no todo \"none\""),
        (
            &ada(),
            "deleteTodo",
            json!({"id": "t1", "version": -1}),
            "invalid arguments: version: invalid value: integer `-1`, expected u64",
        ),
        (&visitor(), "listDocs", json!({"limit": 0}), "invalid arguments: limit: must be between 1 and 200"),
        (
            &ada(),
            "listDocs",
            json!({"cursor": "x"}),
            "invalid arguments: cursor: is not a nextCursor returned by this tool",
        ),
        (&ada(), "listDocs", json!({"limit": 201}), "invalid arguments: limit: must be between 1 and 200"),
        (
            &visitor(),
            "listDocs",
            json!({"cursor": "x"}),
            "invalid arguments: cursor: is not a nextCursor returned by this tool",
        ),
        (&ada(), "getDoc", json!({"id": ""}), "there is no document \"\""),
        (
            &ada(),
            "getDoc",
            json!({"id": "d1", "cursor": "x"}),
            "invalid arguments: cursor: is not a nextCursor returned by this tool",
        ),
        (
            &ada(),
            "createDoc",
            json!({"title": "a\nb", "text": "x"}),
            "invalid arguments: title: has a line break or another control character",
        ),
        (
            &ada(),
            "createDoc",
            json!({"title": "a", "text": "\u{0}"}),
            "invalid arguments: text: has a control character other than a line break or a tab",
        ),
        (&ada(), "appendDoc", json!({"id": "d1", "text": ""}), "invalid arguments: text: is blank"),
        (&ada(), "updatePlan", json!({"title": "x"}), "invalid arguments: missing field `text`"),
        (
            &ada(),
            "recordMetric",
            json!({"name": "x", "value": "1"}),
            "invalid arguments: value: invalid type: string \"1\", expected f64",
        ),
        (
            &ada(),
            "recordMetric",
            json!({"name": "x", "value": 1, "at": "noon"}),
            "invalid arguments: at: is neither a time such as \"2026-11-21T14:30:00Z\" nor a date such as \"2026-11-21\"",
        ),
        (
            &ada(),
            "readMetrics",
            json!({"to": "noon"}),
            "invalid arguments: to: is neither a time such as \"2026-11-21T14:30:00Z\" nor a date such as \"2026-11-21\"",
        ),
        (
            &ada(),
            "sendNotification",
            json!({"title": "x", "text": long}),
            "invalid arguments: text: has 5000 bytes; the limit is 4096",
        ),
        (
            &ada(),
            "readNotifications",
            json!({"limit": 1.5}),
            "invalid arguments: limit: invalid type: floating point `1.5`, expected usize",
        ),
        (
            &ada(),
            "remember",
            json!({"text": long}),
            "invalid arguments: text: has 5000 bytes; the limit is 4096",
        ),
        (&ada(), "recall", json!({"limit": 1_000}), "invalid arguments: limit: must be between 1 and 200"),
        (&ada(), "getEpicDetails", json!({"id": "none"}), "there is no epic \"none\""),
        // Identifiers in the arguments do not change the acting user.
        (&bob, "createTodo", json!({"title": "x", "userId": "ada"}), "there is no todo list \"l\""),
        (&visitor(), "readTodos", json!({}), "there is no todo list \"l\""),
        (&bob, "readPlan", json!({}), "there is no todo list \"l\""),
        (&no_list, "readTodos", json!({}), "no todo list is connected to this conversation"),
        (&no_list, "updatePlan", json!({"text": "x"}), "no todo list is connected to this conversation"),
    ] {
        assert_eq!(
            world.call(context, name, arguments.clone()),
            Err(expected.to_owned()),
            "{name} {arguments}"
        );
    }
}
