//! Identity matrix: every kind of credential, with every agent, calls every tool with arguments that claim another
//! identity. Each record of a workspace of two companies contains a unique mark. A call must not return a mark, or
//! change a record, outside the scope of its context, and must report such items as absent.

use std::collections::BTreeSet;

use super::*;
use crate::records::{Collection, Inventory, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, RecordsExt};
use crate::workspace::collection;

/// Set of contexts that may access a record.
#[derive(Debug, Clone, Copy)]
enum Visibility {
    /// This user.
    Person(&'static str),
    /// The company's own users.
    Company,
    /// The company's own users, and visitors of this agent.
    Visitors(&'static str),
    /// This user in conversations with this agent.
    AgentPerson(&'static str, &'static str),
    /// All contexts that the role permits to read it.
    All,
}

/// Record that is in the workspace from the start.
struct SeededRecord {
    key: Key,
    scope: Visibility,
}

impl SeededRecord {
    fn mark(&self) -> String {
        mark(self.key.company(), self.key.collection().path(), self.key.id())
    }

    fn is_reached_in(&self, context: &ExecutionContext) -> bool {
        let visitor = context.caller == Caller::Widget;
        let reached = match self.scope {
            Visibility::Person(user) => context.user_id == user,
            Visibility::Company => !visitor,
            Visibility::Visitors(agent) => !visitor || context.agent_id == agent,
            Visibility::AgentPerson(agent, user) => context.agent_id == agent && context.user_id == user,
            Visibility::All => true,
        };
        reached && context.company_id == self.key.company()
    }
}

fn mark(company: &str, collection: &str, id: &str) -> String {
    format!("mark<{company}:{collection}:{id}>")
}

/// Iterates over the marks in a text.
fn marks(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("mark<").map(|(begin, _)| {
        let end = text[begin..].find('>').expect("a mark is whole");
        &text[begin..=begin + end]
    })
}

/// Identity to call as, or to claim in arguments.
struct Identity {
    user: &'static str,
    company: &'static str,
    agent: &'static str,
    list: &'static str,
}

const VICTIMS: [Identity; 3] = [
    Identity { user: "ada", company: "c", agent: "a", list: "ada-list" },
    Identity { user: "bob", company: "c", agent: "b", list: "bob-list" },
    Identity { user: "eve", company: "d", agent: "x", list: "eve-list" },
];

/// Principals by kind of credential. One user id exists in both companies.
const PRINCIPALS: [(Caller, &str, &str); 9] = [
    (Caller::Session, "ada", "c"),
    (Caller::Session, "bob", "c"),
    (Caller::Session, "eve", "d"),
    (Caller::Session, "ada", "d"),
    (Caller::Proactive, "ada", "c"),
    (Caller::Proactive, "eve", "d"),
    (Caller::Widget, "widget:1", "c"),
    (Caller::Widget, "widget:2", "c"),
    (Caller::Widget, "widget:1", "d"),
];

/// Tools that delete an item.
const DELETING: [&str; 2] = ["deleteTodo", "forget"];

/// Agents of both companies. Other layers reject agents of the other company; the matrix includes them as well.
const AGENTS: [&str; 4] = ["a", "b", "x", "y"];

/// Creates a workspace in which every tool is enabled for every agent, with a mark in each record.
fn plant() -> (ToolFixture, Vec<SeededRecord>) {
    let names = ready(
        build_tools(Stores::new(
            Arc::new(MemoryRecords::default()),
            Arc::new(RecordRoleStore::in_memory()),
            ToolServices::default(),
        ))
        .list(&ExecutionContext::default()),
    )
    .expect("listed");
    let names: Vec<_> = names.iter().map(|spec| spec.name.clone()).collect();
    let mut file = json!({});
    let mut planted = Vec::new();
    let mut add = |list: &str, company: &str, id: &str, scope, mut entry: Value| {
        entry["id"] = id.into();
        entry["companyId"] = company.into();
        // Memory has one collection per agent, folder and user.
        let base = Collection::new(company, list).expect("a name");
        let collection = match (&entry["agentId"], &entry["userId"]) {
            (Value::String(agent), Value::String(user)) if list == collection::MEMORIES => {
                let folder = base.within(agent).and_then(|agent| agent.within("default"));
                folder.and_then(|folder| folder.within(user)).expect("a folder")
            }
            _ => base,
        };
        let key = collection.key(id).expect("a key");
        let mark = mark(company, collection.path(), id);
        for (name, text) in entry.as_object_mut().expect("an object") {
            match name.as_str() {
                "text" | "title" | "status" => *text = mark.as_str().into(),
                "todos" => text[0]["title"] = mark.as_str().into(),
                "value" => *text = mark.as_str().into(),
                _ => {}
            }
        }
        let list = file.as_object_mut().expect("an object").entry(list).or_insert_with(|| json!([]));
        list.as_array_mut().expect("a list").push(entry);
        planted.push(SeededRecord { key, scope });
    };
    for (company, agents, people) in [("c", ["a", "b"], ["ada", "bob"]), ("d", ["x", "y"], ["eve", "ada"])] {
        for (agent, person) in agents.into_iter().zip(people) {
            let named = format!("named-{agent}");
            add(
                collection::DOCUMENTS,
                company,
                &named,
                Visibility::Visitors(agent),
                json!({"title": "", "text": ""}),
            );
            let list = if company == "d" && person == "ada" {
                "other-list".to_owned()
            } else {
                format!("{person}-list")
            };
            let todos = json!([{"id": format!("todo-{list}"), "title": ""}]);
            let owner = Visibility::Person(person);
            add(collection::TODO_LISTS, company, &list, owner, json!({"ownerId": person, "todos": todos}));
            let plan = format!("plan-{list}");
            add(
                collection::PLANS,
                company,
                &plan,
                owner,
                json!({"todoListId": list, "title": "", "text": ""}),
            );
            let memory = format!("memory-{agent}");
            add(
                collection::MEMORIES,
                company,
                &memory,
                Visibility::AgentPerson(agent, person),
                json!({"agentId": agent, "userId": person, "text": ""}),
            );
            let metric = format!("metric-{agent}");
            let figure = json!({"agentId": agent, "name": "sales", "value": ""});
            add(collection::METRICS, company, &metric, Visibility::Visitors(agent), figure);
        }
        // Identifiers that exist in both companies, and some that exist only in one.
        for id in ["same".to_owned(), format!("only-{company}")] {
            add(collection::DOCUMENTS, company, &id, Visibility::Company, json!({"title": "", "text": ""}));
            add(
                collection::EPICS,
                company,
                &id,
                Visibility::All,
                json!({"title": "", "status": "", "text": ""}),
            );
            add(
                collection::METRICS,
                company,
                &id,
                Visibility::Company,
                json!({"name": "sales", "value": ""}),
            );
        }
    }
    let role = |(agent, company): (&str, &str)| {
        json!({"id": agent, "companyId": company, "content": {
            "messengerToken": bot_of(company, agent), "tools": names, "widgetTools": names, "documentIds": [format!("named-{agent}"), "only-x"]}})
    };
    file["agents"] = [("a", "c"), ("b", "c"), ("x", "d"), ("y", "d")].map(role).as_slice().into();
    let world = ToolFixture::new(&file);
    for (victim, id) in VICTIMS.iter().zip(world_jobs()) {
        scheduled::plant(&world.pulse, &id, (victim.company, victim.user, victim.agent));
    }
    for (caller, user, company) in PRINCIPALS {
        let user_collection =
            Collection::new(company, collection::NOTIFICATIONS).and_then(|all| all.within(user));
        let user_collection = user_collection.expect("a collection");
        let key = user_collection.key("told").expect("a key");
        let mark = mark(company, user_collection.path(), "told");
        let notification = json!({"id": "told", "companyId": company, "userId": user, "agentId": "a", "title": mark,
            "text": mark, "at": "2026-01-01T00:00:00.000Z"});
        // One user may have several kinds of credential.
        if ready(world.records.put_as(&key, &notification, Precondition::Absent)).is_ok() {
            planted.push(SeededRecord { key, scope: Visibility::Person(user) });
        }
        assert!(caller != Caller::Widget || user.starts_with("widget:"));
    }
    (world, planted)
}

/// Returns the ids of the jobs planted for all identities.
fn world_jobs() -> Vec<String> {
    VICTIMS.iter().map(|Identity { user, company, agent, .. }| format!("{company}-{user}-{agent}")).collect()
}

/// Returns the versions of all stored records.
fn snapshot(records: &MemoryRecords) -> BTreeMap<Key, u64> {
    let mut all = BTreeMap::new();
    for company in ready(records.companies(None)).expect("companies") {
        for collection in ready(records.collections(&company, None)).expect("collections") {
            let list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
            let page = ready(records.list(&collection, &list)).expect("a page");
            assert_eq!(page.next_cursor, None, "a snapshot is of everything");
            for record in page.records {
                all.insert(collection.key(record.id).expect("a key"), record.version);
            }
        }
    }
    all
}

/// Returns arguments that would let the tool change items with this identifier.
fn base_arguments(name: &str, id: &str) -> Value {
    match name {
        "createTodo" => json!({"title": "x"}),
        "updateTodo" => json!({"id": id, "title": "x"}),
        "deleteTodo" | "forget" | "getDoc" | "getEpicDetails" => json!({"id": id}),
        "searchDocs" => json!({"query": "mark documents named"}),
        "createDoc" => json!({"title": "x", "text": "x"}),
        "appendDoc" => json!({"id": id, "text": "x"}),
        "updatePlan" | "remember" => json!({"text": "x"}),
        "recordMetric" => json!({"name": "sales", "value": 1}),
        "sendMessengerMessage" => json!({"chatId": 1, "text": "x"}),
        "sendNotification" => json!({"title": "x", "text": "x"}),
        "readNotifications" => json!({"markRead": true}),
        "readMetrics" => json!({"name": "sales"}),
        "scheduleTool" => json!({"tool": "createTodo", "arguments": {"title": "x"}, "delayMs": 60_000}),
        "cancelScheduledTool" => json!({"jobId": id}),
        _ => json!({}),
    }
}

/// Returns argument fields that claim to be the victim.
fn claims(victim: &Identity) -> [Value; 5] {
    let Identity { user, company: company_id, agent, list } = victim;
    let user = json!({"userId": user, "user_id": user, "ownerId": user, "sub": user});
    let company = json!({"companyId": company_id, "company_id": company_id, "tenant": company_id});
    let folder = format!("../{agent}");
    let token = bot_of(company_id, agent);
    let agent = json!({"token": token, "messengerToken": token, "agentId": agent, "agent_id": agent, "memoryFolder": folder, "folder": folder});
    let list = json!({"todoListId": list, "todoListBlockId": list, "planId": format!("plan-{list}")});
    let context = json!({"caller": "session", "context": merged(&[&user, &company, &agent, &list])});
    let all = merged(&[&user, &company, &agent, &list, &context]);
    [user, company, agent, list, all]
}

/// Returns the bot token of an agent.
fn bot_of(company: &str, agent: &str) -> String {
    format!("bot-of:{company}-{agent}")
}

fn merged(objects: &[&Value]) -> Value {
    let fields = objects.iter().flat_map(|object| object.as_object().expect("an object").clone());
    Value::Object(fields.collect())
}

/// Context under test, with the workspace versions after the last call.
struct Cell<'a> {
    world: &'a ToolFixture,
    planted: &'a [SeededRecord],
    context: ExecutionContext,
    before: BTreeMap<Key, u64>,
    cells: usize,
    seen: &'a mut BTreeSet<String>,
    written: &'a mut BTreeSet<String>,
    /// Bots that have sent messages.
    spoke: &'a mut BTreeSet<String>,
}

impl Cell<'_> {
    /// Calls the tool and checks the marks that it returns and the records that it changes.
    fn call(&mut self, name: &str, arguments: &Value) -> Result<Value, String> {
        let result = self.world.call(&self.context, name, arguments.clone());
        let shown = match &result {
            Ok(value) => value.to_string(),
            Err(error) => error.clone(),
        };
        let case = || format!("{:?} called {name} with {arguments}", self.context);
        let own_bot = bot_of(&self.context.company_id, &self.context.agent_id);
        for (bot, ..) in self.world.messenger.take_calls() {
            assert_eq!(bot, own_bot, "{}", case());
            self.spoke.insert(bot);
        }
        assert!(!shown.contains("bot-of:"), "{} and saw a token: {shown}", case());
        for payload in self.world.pulse.take_changed() {
            let of = (&payload.company_id, &payload.user_id, &payload.agent_id);
            let caller_ids = (&self.context.company_id, &self.context.user_id, &self.context.agent_id);
            assert_eq!(of, caller_ids, "{}", case());
            assert_ne!(self.context.caller, Caller::Widget, "{}", case());
            self.written.insert(name.to_owned());
        }
        for mark in marks(&shown) {
            let planted = self.planted.iter().find(|planted| planted.mark() == mark);
            let planted = planted.unwrap_or_else(|| panic!("{}: {mark} was never planted", case()));
            assert!(planted.is_reached_in(&self.context), "{} and saw {mark}", case());
            self.seen.insert(mark.to_owned());
        }
        let after = snapshot(&self.world.records);
        let keys: BTreeSet<&Key> = self.before.keys().chain(after.keys()).collect();
        // Indexes are derived from the documents, for any caller.
        let is_derived = |key: &Key| key.collection().path().starts_with("documentIndexes");
        let is_changed = |key: &&Key| self.before.get(*key) != after.get(*key) && !is_derived(key);
        for key in keys.into_iter().filter(is_changed) {
            let record = ready(self.world.records.get(key)).expect("read");
            let value = record.as_ref().map_or("null", |record| record.value.get());
            assert!(self.may_write(key, value), "{} and wrote {key:?}: {value}", case());
            self.written.insert(name.to_owned());
        }
        self.before = after;
        self.cells += 1;
        result
    }

    fn may_write(&self, key: &Key, value: &str) -> bool {
        if let Some(planted) = self.planted.iter().find(|planted| planted.key == *key) {
            return planted.is_reached_in(&self.context);
        }
        let context = &self.context;
        let parts: Vec<String> = key.collection().parts().collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let own_people = context.caller != Caller::Widget;
        let value: Value = serde_json::from_str(value).expect("JSON");
        let reaches_document = |id: &str| {
            let same = |planted: &&SeededRecord| {
                (planted.key.company(), planted.key.collection().path(), planted.key.id())
                    == (key.company(), collection::DOCUMENTS, id)
            };
            self.planted.iter().find(same).is_some_and(|planted| planted.is_reached_in(context))
        };
        key.company() == context.company_id.as_str()
            && match parts[..] {
                // The version that an append has replaced.
                [collection::DOCUMENT_VERSIONS, document] => reaches_document(document),
                [collection::DOCUMENTS] => own_people,
                [collection::METRICS] => value["agentId"] == context.agent_id.as_str(),
                [collection::MEMORIES, agent, "default", user] => {
                    own_people && agent == context.agent_id.as_str() && user == context.user_id.as_str()
                }
                [collection::NOTIFICATIONS, user] => {
                    user == context.user_id.as_str() && value["userId"] == user
                }
                [collection::COUNTERS | crate::records::QUOTAS] => true,
                _ => false,
            }
    }
}

#[test]
fn tools_read_and_change_own_data_only() {
    let lists = ["ada-list", "bob-list", "eve-list", "other-list"];
    let ids = |name: &str| -> Vec<String> {
        match name {
            "updateTodo" | "deleteTodo" => lists.map(|list| format!("todo-{list}")).to_vec(),
            "getDoc" | "appendDoc" => {
                ["same", "only-c", "only-d", "named-a", "named-b", "named-x", "named-y"]
                    .map(str::to_owned)
                    .to_vec()
            }
            "cancelScheduledTool" => world_jobs(),
            "forget" => AGENTS.map(|agent| format!("memory-{agent}")).to_vec(),
            "getEpicDetails" => ["same", "only-c", "only-d"].map(str::to_owned).to_vec(),
            _ => vec![String::new()],
        }
    };
    let (mut cells, mut visible_marks, mut written, mut spoke) =
        (0, BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (mut all_marks, mut strangers) = (BTreeSet::new(), 0);
    for (caller, user, company) in PRINCIPALS {
        for agent in AGENTS {
            let (world, planted) = plant();
            all_marks.extend(planted.iter().map(SeededRecord::mark));
            let caller_list = lists.iter().find(|list| {
                planted.iter().any(|one| {
                    matches!(one.scope, Visibility::Person(owner) if owner == user)
                        && one.key.company() == company
                        && one.key.id() == **list
                })
            });
            let context = ExecutionContext {
                user_id: user.into(),
                company_id: company.into(),
                agent_id: agent.into(),
                todo_list_id: caller_list.map(|list| (*list).to_owned()),
                caller,
                ..ExecutionContext::default()
            };
            let before = snapshot(&world.records);
            let (visible_marks, written, spoke) = (&mut visible_marks, &mut written, &mut spoke);
            let mut cell = Cell {
                world: &world,
                planted: &planted,
                context,
                before,
                cells: 0,
                seen: visible_marks,
                written,
                spoke,
            };
            // Tools that delete come last, since a deleted item could no longer be returned or changed.
            let others = world.schemas.keys().map(String::as_str).filter(|name| !DELETING.contains(name));
            for name in others.chain(DELETING) {
                let unknown = cell.call(name, &base_arguments(name, "unknown-id"));
                for (n, id) in ids(name).into_iter().enumerate() {
                    let arguments = base_arguments(name, &id);
                    let plain = cell.call(name, &arguments);
                    if !DELETING.contains(&name) && plain.is_err() {
                        let as_unknown =
                            unknown.clone().map_err(|message| message.replace("unknown-id", &id));
                        assert_eq!(plain, as_unknown, "{:?} {name} {id}", cell.context);
                        strangers += 1;
                    }
                    // All claims one by one with the first identifier, and combined with each of the others.
                    let claims =
                        VICTIMS.iter().flat_map(|victim| claims(victim).into_iter().skip(n.min(1) * 4));
                    for claim in claims {
                        let claimed = cell.call(name, &merged(&[&claim, &arguments]));
                        let same = claimed.is_ok() == plain.is_ok() || DELETING.contains(&name);
                        assert!(same, "{:?} {name}: {claim} made {plain:?} {claimed:?}", cell.context);
                    }
                }
                // A conversation with another user's list is like one with an absent list.
                let caller_list = cell.context.todo_list_id.clone();
                for list in lists.iter().filter(|list| caller_list.as_deref() != Some(**list)) {
                    let arguments = base_arguments(name, &format!("todo-{list}"));
                    cell.context.todo_list_id = Some("unknown-list".to_owned());
                    let unknown =
                        cell.call(name, &arguments).map_err(|message| message.replace("unknown-list", list));
                    cell.context.todo_list_id = Some((*list).to_owned());
                    let foreign = cell.call(name, &arguments);
                    assert_eq!(foreign.is_ok(), unknown.is_ok(), "{:?} {name}", cell.context);
                    assert_eq!(foreign.err(), unknown.err(), "{:?} {name}", cell.context);
                    strangers += 1;
                }
                cell.context.todo_list_id = caller_list;
            }
            cells += cell.cells;
        }
    }
    // Guards against a vacuous pass in which nothing is returned or written.
    assert_eq!(visible_marks, all_marks);
    assert_eq!(
        spoke,
        [("c", "a"), ("c", "b"), ("d", "x"), ("d", "y")]
            .map(|(company, agent)| bot_of(company, agent))
            .into()
    );
    let writing = [
        "appendDoc",
        "cancelScheduledTool",
        "createDoc",
        "createTodo",
        "deleteTodo",
        "forget",
        "readNotifications",
        "recordMetric",
        "remember",
        "scheduleTool",
        "sendNotification",
        "updatePlan",
        "updateTodo",
    ];
    assert_eq!(written, writing.map(str::to_owned).into());
    assert!(cells >= 1_000 && strangers >= 1_000, "{cells} cells, {strangers} strangers");
    #[expect(clippy::print_stdout, reason = "the size of the matrix is part of what it says")]
    {
        println!("{cells} cells, of which {strangers} ask for what is somebody else's");
    }
}
