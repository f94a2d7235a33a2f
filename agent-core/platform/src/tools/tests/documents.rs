//! Tests of the tools for documents.

use super::*;

#[test]
fn document_tools_list_read_and_change_documents() {
    let world = ToolFixture::new(&demo());
    let ids = |context: &ExecutionContext, arguments| {
        let listed = world.call_ok(context, "listDocs", arguments);
        let ids = listed["docs"].as_array().expect("docs").iter().map(|doc| doc["id"].clone());
        (ids.collect::<Vec<_>>(), listed.get("nextCursor").cloned())
    };
    assert_eq!(ids(&ada(), json!({})), (vec![json!("d1"), json!("d2"), json!("d3")], None));
    let (page, cursor) = ids(&ada(), json!({"limit": 2}));
    assert_eq!(page, ["d1", "d2"]);
    assert_eq!(ids(&ada(), json!({"cursor": cursor})), (vec![json!("d3")], None));
    // A visitor's pages contain the role's documents, one of which does not exist.
    assert_eq!(ids(&visitor(), json!({})), (vec![json!("d1"), json!("d2")], None));
    let (page, cursor) = ids(&visitor(), json!({"limit": 2}));
    assert_eq!(page, ["d1"]);
    assert_eq!(ids(&visitor(), json!({"cursor": cursor})), (vec![json!("d2")], None));

    let got = world.call_ok(&ada(), "getDoc", json!({"id": "d3"}))["doc"].clone();
    assert_eq!((&got["title"], &got["text"]), (&json!("Three"), &json!("third")));
    let append = |context: &ExecutionContext, arguments| world.call(context, "appendDoc", arguments);
    let appended =
        append(&ada(), json!({"id": "d3", "text": "more", "version": got["version"]})).expect("appended");
    assert_eq!(appended["doc"]["bytes"], "third\nmore".len());
    let lost = append(&ada(), json!({"id": "d3", "text": "x", "version": got["version"]}));
    assert!(lost.expect_err("it has changed").ends_with("read it again"));
    assert!(append(&visitor(), json!({"id": "d2", "text": "a visitor's"})).is_ok());

    let missing = |id: &str| Err(format!("there is no document {id:?}"));
    for (name, arguments) in
        [("getDoc", json!({"id": "d3"})), ("appendDoc", json!({"id": "d3", "text": "x"}))]
    {
        assert_eq!(world.call(&visitor(), name, arguments), missing("d3"), "{name}");
    }
    let new = json!({"title": "New", "text": "é".repeat(40_000)});
    assert_eq!(
        world.call(&visitor(), "createDoc", new.clone()),
        Err("visitors cannot create documents".to_owned())
    );
    let id = world.call_ok(&ada(), "createDoc", new)["doc"]["id"].clone();
    let first = world.call_ok(&ada(), "getDoc", json!({"id": id}));
    let second = world.call_ok(&ada(), "getDoc", json!({"id": id, "cursor": first["nextCursor"]}));
    assert_eq!(second.get("nextCursor"), None);
    let text = |got: &Value| got["doc"]["text"].as_str().expect("text").to_owned();
    assert_eq!(text(&first) + &text(&second), "é".repeat(40_000));
    for (start, expected_tail) in [(79_996, "éé"), (79_999, "é"), (80_000, ""), (usize::MAX, "")] {
        assert_eq!(
            text(&world.call_ok(&ada(), "getDoc", json!({"id": id, "start": start}))),
            expected_tail,
            "{start}"
        );
    }
    let cursor = world.call_ok(&ada(), "getDoc", json!({"id": id, "start": 1, "cursor": "79998"}));
    assert_eq!(text(&cursor), "é", "a cursor takes the place of a start");
}

#[test]
fn documents_that_the_role_names_are_searched_by_words() {
    let mut workspace = demo();
    workspace["documents"] = json!([
        {"id": "d1", "companyId": "c", "title": "One", "text": "Bread is baked daily.\n\nCake is sold on Sundays."},
        {"id": "d2", "companyId": "c", "title": "Two", "text": "Sunday is quiet."},
        {"id": "d3", "companyId": "c", "title": "Three", "text": "Sunday cake, which the role does not name."}
    ]);
    let world = ToolFixture::new(&workspace);
    for context in [ada(), visitor()] {
        let found = world.call_ok(&context, "searchDocs", json!({"query": "When is there cake on Sunday?"}));
        let fragments = found["fragments"].as_array().expect("a list");
        let shown: Vec<_> = fragments.iter().map(|found| (&found["document"], &found["text"])).collect();
        assert_eq!(
            shown,
            [
                (&json!("d1"), &json!("Bread is baked daily.\n\nCake is sold on Sundays.")),
                (&json!("d2"), &json!("Sunday is quiet."))
            ]
        );
        assert_eq!(
            (&fragments[0]["title"], &fragments[0]["start"], &fragments[0]["end"]),
            (&json!("One"), &json!(0), &json!(47))
        );
        let arguments = json!({"query": "sunday", "limit": 1, "documentIds": ["d2", "d3", "gone"]});
        let only = world.call_ok(&context, "searchDocs", arguments);
        assert_eq!(
            (only["fragments"].as_array().map(Vec::len), &only["fragments"][0]["document"]),
            (Some(1), &json!("d2"))
        );
        assert_eq!(
            world.call_ok(&context, "searchDocs", json!({"query": "bicycle"})),
            json!({"fragments": []})
        );
    }
    for (arguments, expected) in [
        (json!({"query": " "}), "invalid arguments: query: must have between 1 and 1000 bytes"),
        (json!({"query": "x", "limit": 21}), "invalid arguments: limit: must be between 1 and 20"),
    ] {
        let refused =
            ready(world.tools.call(&ada(), "searchDocs", arguments, &NoProgress)).expect_err("refused");
        assert_eq!(refused.to_string(), expected);
    }
    let other = ExecutionContext { agent_id: "b".into(), ..ada() };
    let found = world.call_ok(&other, "searchDocs", json!({"query": "cake"}));
    assert_eq!(found, json!({"fragments": []}), "an agent without documents finds none");
}

#[test]
fn documents_of_others_are_appended_to_by_right_or_by_the_agents_owner() {
    let document = |id: &str, owner: &str| json!({"id": id, "companyId": "c", "ownerId": owner, "text": "x"});
    let agent = |id: &str, owner: &str| {
        json!({"id": id, "companyId": "c", "ownerId": owner, "content": {
            "documentIds": ["of-ada", "of-bob"], "widgetTools": ["appendDoc"]}})
    };
    let world = ToolFixture::new(&json!({
        "users": [{"id": "eve", "companyId": "c", "role": "admin"}, {"id": "gus", "companyId": "c", "role": "viewer"}],
        "agents": [agent("a", "ada"), agent("operators", "")],
        "documents": [document("of-ada", "ada"), document("of-bob", "bob"), document("other", "bob"),
            {"id": "all", "companyId": "c"}]
    }));
    let append = |agent: &str, user: &str, caller, id: &str| {
        let context = ExecutionContext {
            agent_id: agent.into(),
            user_id: user.into(),
            company_id: "c".into(),
            caller,
            ..ada()
        };
        world.call(&context, "appendDoc", json!({"id": id, "text": "y"})).is_ok()
    };
    let visitor = Caller::Widget;
    for (agent, user, caller, id, expected) in [
        ("a", "ada", Caller::Session, "of-ada", true),
        ("a", "ada", Caller::Session, "of-bob", false),
        ("a", "bob", Caller::Session, "of-bob", true),
        // The agent's owner may change the document and has named it.
        ("a", "gus", Caller::Session, "of-ada", true),
        ("a", "widget:1", visitor, "of-ada", true),
        ("a", "widget:1", visitor, "of-bob", false),
        ("a", "bob", Caller::Session, "other", true),
        ("a", "ada", Caller::Session, "other", false),
        ("a", "eve", Caller::Session, "other", true),
        ("a", "ada", Caller::Session, "all", true),
        ("a", "gus", Caller::Session, "all", false),
        ("operators", "gus", Caller::Session, "of-bob", true),
        ("operators", "widget:1", visitor, "of-bob", true),
        ("operators", "widget:1", visitor, "other", false),
        ("operators", "gus", Caller::Session, "other", false),
    ] {
        assert_eq!(append(agent, user, caller, id), expected, "{agent} {user} {id}");
    }
    let create = |user: &str| {
        let context = ExecutionContext { user_id: user.into(), ..ada() };
        world.call(&context, "createDoc", json!({"title": "T", "text": "x"}))
    };
    assert!(create("gus").is_err());
    let made = create("ada").expect("created")["doc"]["id"].as_str().expect("an id").to_owned();
    let stored = ready(crate::workspace::get_document(&*world.records, &"c".into(), &made));
    assert_eq!(stored.expect("read").expect("there").value.owner_id, Some("ada".into()));
}
