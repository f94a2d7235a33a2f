//! Access of an agent's owner to the threads of its visitors, and the identity matrix of all callers and routes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::*;
use crate::conversations::call_as;
use crate::support::server::INTERNAL_SECRET;

impl ConversationApp {
    /// Returns the visitor's owner as the agent's owner names it.
    async fn owner_of(&self, thread: &str) -> String {
        let list = self.get("/api/agents/a1/threads").await;
        let threads = list["threads"].as_array().expect("threads");
        let visitor_thread =
            threads.iter().find(|visitor_thread| visitor_thread["id"] == thread).expect("it is listed");
        visitor_thread["owner"].as_str().expect("an owner").to_owned()
    }
}

#[tokio::test]
async fn the_owner_of_an_agent_reads_and_deletes_its_visitors_threads() {
    let test = ConversationApp::start().await;
    let visitor = test.visitor("a1").await;
    let events = test.chat_of(&visitor, json!({"threadId": "t", "message": "Hello"})).await;
    test.chat_of(&visitor.with_key(KEYS[1]), json!({"threadId": "t", "message": "Hi"})).await;
    test.chat_of(&visitor.with_key(KEYS[1]), json!({"threadId": "t2", "message": "Hi"})).await;
    test.chat_of(&test.visitor("a2").await, json!({"threadId": "other", "message": "Hi"})).await;
    test.say("mine", "Hello").await;
    let (mut threads, mut path) = (Vec::new(), "/api/agents/a1/threads?limit=1".to_owned());
    loop {
        let page = test.get(&path).await;
        threads.extend(page["threads"].as_array().expect("threads").clone());
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/api/agents/a1/threads?limit=1&cursor={cursor}");
    }
    let ids: Vec<_> = threads.iter().map(|thread| thread["id"].as_str().expect("an id")).collect();
    assert_eq!(ids, ["t2", "t", "t"], "latest activity first");
    let owner = threads[2]["owner"].as_str().expect("an owner");
    assert_eq!(owner, format!("widget:{}:{FIRST_KEY_SHA256}", visitor.token_id));
    let thread = test.get(&format!("/api/threads/t?owner={owner}")).await;
    assert_eq!(
        (&thread["owner"], &thread["nodes"][0]["message"]["content"]),
        (&json!(owner), &json!("Hello"))
    );
    let path = format!("/api/runs/{}/events?owner={owner}", run_id(&events));
    let request = test.app.request("GET", &path).bearer_auth(session_token("u1", "c1"));
    let log = request.send().await.expect("an answer").text().await.expect("a body");
    assert_eq!(parse_run(&log), events);
    let exported = test.get(&format!("/api/threads/t/export?owner={owner}")).await;
    assert_eq!(exported["nodes"], thread["nodes"]);
    // It is read and deleted, and nothing else.
    for (method, path) in [("PATCH", "/api/threads/t"), ("POST", "/api/threads/t/cancel")] {
        let path = format!("{path}?owner={owner}");
        assert_eq!(test.call(method, &path, Some(json!({"title": "x"}))).await.0, 404, "{path}");
    }
    assert_eq!(test.call("DELETE", &format!("/api/threads/t?owner={owner}"), None).await.0, 204);
    assert_eq!(test.call("DELETE", &format!("/api/threads/t?owner={owner}"), None).await.0, 404);
    assert_eq!(test.send(&visitor, "GET", "/api/threads/t", None).await.status(), 404);
    assert_eq!(test.path_of(&visitor.with_key(KEYS[1]), "t").await[0].1, "Hi", "another visitor's stays");
    for (user, company) in [("u2", "c1"), ("u3", "c2")] {
        let session = session_token(user, company);
        let (_, list) = call_as(&test.app, &session, "GET", "/api/agents/a1/threads", None).await;
        assert!(list["threads"].as_array().is_none_or(Vec::is_empty), "{user}: {list}");
    }
}

/// Ids of something to ask for.
#[derive(Clone)]
struct Target {
    thread: String,
    node: String,
    run: String,
}

impl Target {
    fn new(thread: &str, node: &str, run: &str) -> Self {
        Self { thread: thread.to_owned(), node: node.to_owned(), run: run.to_owned() }
    }

    /// Returns the target of a thread that `read` shows.
    fn of(read: &Value) -> Self {
        let text = |value: &Value| value.as_str().expect("an id").to_owned();
        let node = &read["nodes"][0];
        Self { thread: text(&read["id"]), node: text(&node["id"]), run: text(&node["runId"]) }
    }

    /// Returns a call of every route, with each of the owners as a parameter where a route knows it.
    fn calls(&self, owners: &[String]) -> Vec<(&'static str, String, Option<Value>)> {
        let Self { thread, node, run } = self;
        let (one, events) = (format!("/api/threads/{thread}"), format!("/api/runs/{run}/events"));
        let message = format!("{one}/messages/{node}");
        let say = json!({"messages": [{"role": "user", "content": "x"}]});
        let mut calls = vec![
            ("GET", one.clone(), None),
            ("GET", format!("{one}?messages=tree"), None),
            ("GET", format!("{one}?messages=none"), None),
            ("GET", format!("{one}?format=ui-message&at={node}"), None),
            ("GET", format!("{one}?at=never"), None),
            ("GET", format!("{one}/export"), None),
            ("GET", format!("{one}/export?format=markdown"), None),
            ("PATCH", one.clone(), Some(json!({"title": "Mine"}))),
            ("PATCH", one.clone(), Some(json!({"title": 5}))),
            ("POST", format!("{one}/messages"), Some(say)),
            ("POST", format!("{one}/fork"), Some(json!({"at": node}))),
            ("PUT", format!("{message}/feedback"), Some(json!({"rating": "up"}))),
            ("PUT", format!("{message}/feedback"), Some(json!({"rating": 5}))),
            ("DELETE", format!("{message}/feedback"), None),
            ("DELETE", message, None),
            ("DELETE", one.clone(), None),
            ("POST", format!("{one}/cancel"), None),
            ("GET", format!("/api/runs/{run}"), None),
            ("GET", events.clone(), None),
            ("GET", format!("{events}?after=999&wait=false"), None),
            ("POST", format!("/api/runs/{run}/cancel"), None),
        ];
        for owner in owners {
            calls.extend([
                ("GET", format!("{one}?owner={owner}"), None),
                ("GET", format!("{one}?at=never&owner={owner}"), None),
                ("GET", format!("{one}/export?owner={owner}"), None),
                ("GET", format!("{events}?owner={owner}"), None),
                ("GET", format!("{events}?after=999&owner={owner}"), None),
                ("DELETE", format!("{one}?owner={owner}"), None),
            ]);
        }
        calls
    }
}

/// Caller with the headers of its credentials, and the kind of the threads that are its own.
struct Caller {
    name: &'static str,
    headers: Vec<(&'static str, String)>,
    own_threads: &'static str,
}

impl Caller {
    fn session(name: &'static str, user: &str, company: &str, own_threads: &'static str) -> Self {
        let bearer = format!("Bearer {}", session_token(user, company));
        Self { name, headers: vec![("authorization", bearer)], own_threads }
    }

    fn visitor(name: &'static str, visitor: &Visitor, own_threads: &'static str) -> Self {
        let key = visitor.key.expect("a key").to_owned();
        let token = visitor.token.clone();
        let headers = vec![("x-widget-token", token), ("x-visitor-key", key), ("origin", PAGE.to_owned())];
        Self { name, headers, own_threads }
    }
}

impl ConversationApp {
    /// Returns status, body and headers of a response, without parts that differ in every response.
    async fn answer_to(
        &self,
        caller: &Caller,
        call: &(&'static str, String, Option<Value>),
    ) -> (u16, String, Vec<String>) {
        let (method, path, body) = call;
        let request = client().request(method.parse().expect("a method"), self.app.url(path));
        let request =
            caller.headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
        let request = body.iter().fold(request, |request, body| request.json(body));
        let response = request.send().await.expect("an answer");
        let id = response.headers()["x-request-id"].to_str().expect("text").to_owned();
        let headers =
            response.headers().iter().filter(|(name, _)| !["x-request-id", "date"].contains(&name.as_str()));
        let headers = headers.map(|(name, value)| format!("{name}: {value:?}")).collect();
        let status = response.status().as_u16();
        (status, response.text().await.expect("a body").replace(&id, "<id>"), headers)
    }
}

#[tokio::test]
async fn no_caller_reads_what_belongs_to_another() {
    let test = ConversationApp::start_with(&[("CHANGES_PER_MINUTE", "100000")]).await;
    let owner = session_token("u2", "c1");
    for thread in ["users", "usersGone"] {
        let body = json!({"agentId": "a1", "threadId": thread, "message": "A canary"});
        assert_eq!(
            test.app
                .chat_as(&owner, "", &body)
                .await
                .text()
                .await
                .expect("a body")
                .matches("RUN_FINISHED")
                .count(),
            1
        );
    }
    let visitor = test.visitor("a1").await;
    let (other_token, revoked) = (test.visitor("a1").await, test.visitor("a1").await);
    let other_agent = test.visitor("a2").await;
    for thread in ["visitors", "visitorsGone"] {
        test.chat_of(&visitor, json!({"threadId": thread, "message": "A canary"})).await;
    }
    let by_user = async |thread: &str| {
        call_as(&test.app, &owner, "GET", &format!("/api/threads/{thread}"), None).await.1
    };
    let by_visitor =
        async |thread: &str| test.send_for_json(&visitor, "GET", &format!("/api/threads/{thread}")).await.1;
    let before = (by_user("users").await, by_visitor("visitors").await);
    let targets = [
        ("user", Target::of(&before.0)),
        ("visitor", Target::of(&before.1)),
        ("gone", Target::of(&by_user("usersGone").await)),
        ("gone", Target::of(&by_visitor("visitorsGone").await)),
        ("never", Target::new("a%00b", "%00", "a%0Ab")),
        ("never", Target::new(&"x".repeat(129), "a%2Fb", &"x".repeat(129))),
    ];
    let visitors_owner = test.owner_of("visitors").await;
    assert_eq!(call_as(&test.app, &owner, "DELETE", "/api/threads/usersGone", None).await.0, 204);
    assert_eq!(test.send(&visitor, "DELETE", "/api/threads/visitorsGone", None).await.status(), 204);
    let tokens = Tokens::new(test.stores.records.clone(), Arc::new(SystemClock));
    assert!(tokens.revoke(&revoked.token_id, None).await.expect("it is revoked"));
    let callers = [
        Caller::session("the owner", "u2", "c1", "user"),
        Caller::session("a colleague", "u9", "c1", ""),
        Caller::session("another company", "u3", "c2", ""),
        Caller::session("the agent's owner", "u1", "c1", ""),
        Caller::visitor("the visitor", &visitor, "visitor"),
        Caller::visitor("another visitor", &visitor.with_key(KEYS[1]), ""),
        Caller::visitor("another token", &other_token, ""),
        Caller::visitor("another agent's token", &other_agent, ""),
        Caller::visitor("a revoked token", &revoked, ""),
        Caller {
            name: "a proactive call",
            headers: vec![
                ("authorization", format!("Bearer {INTERNAL_SECRET}")),
                ("x-proactive-trigger", "x".to_owned()),
            ],
            own_threads: "",
        },
    ];
    let owners = [visitors_owner.clone(), "u2".to_owned(), "widget:never:00".to_owned()];
    let never = Target::new("never", "never", "never").calls(&owners);
    let mut cells = 0;
    for caller in &callers {
        let mut absent: HashMap<usize, (u16, String, Vec<String>)> = HashMap::new();
        for (kind, target) in &targets {
            for (at, call) in target.calls(&owners).iter().enumerate() {
                let is_named = call.1.contains("owner=");
                let named_by_its_owner = caller.name == "the agent's owner" && *kind == "visitor";
                let is_own = (caller.own_threads == *kind && !is_named)
                    || (named_by_its_owner && call.1.contains(&visitors_owner));
                if is_own {
                    // Routes with effects are tested elsewhere.
                    if call.0 == "GET" && !call.1.contains("at=never") && !call.1.contains("after=999") {
                        let answer = test.answer_to(caller, call).await;
                        let is_route_of_sessions =
                            call.1.starts_with("/api/runs/") && !call.1.contains("events");
                        let is_refused = is_route_of_sessions && caller.own_threads == "visitor";
                        let expected = if is_refused { 403 } else { 200 };
                        assert_eq!(answer.0, expected, "{}: {call:?}: {}", caller.name, answer.1);
                        cells += 1;
                    }
                    continue;
                }
                let answer = test.answer_to(caller, call).await;
                assert!([401, 403, 404].contains(&answer.0), "{}: {call:?}: {answer:?}", caller.name);
                let (status, text, headers) = match absent.entry(at) {
                    Entry::Occupied(known) => known.get().clone(),
                    Entry::Vacant(vacant_entry) => {
                        vacant_entry.insert(test.answer_to(caller, &never[at]).await).clone()
                    }
                };
                let shown = (answer.0, answer.1.replace(&call.1, "<path>"), answer.2);
                let expected = (status, text.replace(&never[at].1, "<path>"), headers);
                assert_eq!(shown, expected, "{}: {call:?}", caller.name);
                cells += 1;
            }
        }
        for list in ["/api/threads", "/api/runs", "/api/threads/export", "/api/approvals"] {
            let answer = test.answer_to(caller, &("GET", list.to_owned(), None)).await;
            assert!(
                !caller.own_threads.is_empty() || !answer.1.contains("canary"),
                "{}: {list}: {}",
                caller.name,
                answer.1
            );
            cells += 1;
        }
    }
    assert!(cells >= 2_000, "{cells}");
    assert_eq!((by_user("users").await, by_visitor("visitors").await), before, "nothing was changed");
}
