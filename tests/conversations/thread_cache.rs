//! The cache of threads, as a model sees it: each process of an application has read the thread, which then is changed in one
//! of them, or in the store alone.

use agent_platform::conversation::{DeleteFilter, ThreadOwner};
use serde_json::{Value, json};

use super::{ConversationApp, call_as, dialogue, whole_run};
use crate::support::server::{Server, session_token};
use crate::support::vendor::answer;

/// Two processes over one store, both of which have the thread `t` in memory.
struct TwoProcesses {
    test: ConversationApp,
    other: Server,
}

impl TwoProcesses {
    /// Says "basilisk", "two" and "three" in a thread. The answers are numbers.
    async fn start() -> Self {
        let test = ConversationApp::start().await;
        let other = test.another_process().await;
        test.vendor.on("m", (1..=8).map(|number| answer(&[&number.to_string()])));
        let both = Self { test, other };
        both.test.say("t", "basilisk").await;
        both.test.say("t", "two").await;
        both.say_at_other("t", "three").await;
        both
    }

    async fn say_at_other(&self, thread: &str, message: &str) {
        whole_run(&self.other, &json!({"agentId": "a1", "threadId": thread, "message": message})).await;
    }

    /// Has both processes ask for a prompt, so that both have the current thread in memory.
    async fn warm(&self) {
        for app in [&self.test.app, &self.other] {
            let body = json!({"agentId": "a1", "threadId": "t", "message": "preview"});
            let (status, _) = call(app, "POST", "/api/svcchat/previewPrompt", Some(body)).await;
            assert_eq!(status, 200);
        }
    }

    async fn node(&self, at: usize) -> String {
        let thread = self.test.get("/api/threads/t").await;
        thread["nodes"][at]["id"].as_str().expect("an id").to_owned()
    }

    /// Says "four" in the thread at the first process and "five" at the second process, and returns the prompts.
    async fn prompts(&self) -> [Vec<(String, String)>; 2] {
        self.test.say("t", "four").await;
        let first = self.test.prompt();
        self.say_at_other("t", "five").await;
        [first, self.test.prompt()]
    }
}

/// Sends a request as user `u1`.
async fn call(app: &Server, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    call_as(app, &session_token("u1", "c1"), method, path, body).await
}

#[tokio::test]
async fn the_turns_of_two_processes_see_each_other() {
    let both = TwoProcesses::start().await;
    let [first, second] = both.prompts().await;
    assert_eq!(first, dialogue(&["basilisk", "1", "two", "2", "three", "3", "four"]));
    assert_eq!(second, dialogue(&["basilisk", "1", "two", "2", "three", "3", "four", "4", "five"]));
    both.test.say("t", "six").await;
    both.test.say("t", "seven").await;
    let sent = both.test.prompt();
    assert_eq!(sent[..9], second[..]);
    assert_eq!(sent[9..], dialogue(&["", "5", "six", "6", "seven"])[1..]);
}

#[tokio::test]
async fn an_erased_message_is_sent_by_no_process() {
    for is_other in [false, true] {
        let both = TwoProcesses::start().await;
        both.warm().await;
        let path = format!("/api/threads/t/messages/{}", both.node(0).await);
        let app = if is_other { &both.other } else { &both.test.app };
        assert_eq!(call(app, "DELETE", &path, None).await.0, 204);
        let request_count = both.test.vendor.received_bodies("m").len();
        let [first, second] = both.prompts().await;
        assert!(first.contains(&("user".to_owned(), "two".to_owned())), "{first:?}");
        assert_eq!(second.last(), Some(&("user".to_owned(), "five".to_owned())));
        let request_bodies = both.test.vendor.received_bodies("m").split_off(request_count);
        assert_eq!(request_bodies.len(), 2);
        assert!(!json!(request_bodies).to_string().contains("basilisk"), "{request_bodies:?}");
    }
}

#[tokio::test]
async fn a_head_that_another_process_moves_is_continued() {
    let both = TwoProcesses::start().await;
    // A second branch below the first answer, which becomes the head.
    let (below, leaf) = (both.node(1).await, both.node(5).await);
    both.test.chat(json!({"threadId": "t", "message": "other", "parentId": below})).await;
    both.warm().await;
    let (status, _) = call(&both.other, "PATCH", "/api/threads/t", Some(json!({"head": leaf}))).await;
    assert_eq!(status, 200);
    both.test.say("t", "four").await;
    assert_eq!(both.test.prompt(), dialogue(&["basilisk", "1", "two", "2", "three", "3", "four"]));
}

#[tokio::test]
async fn a_thread_that_is_deleted_and_begun_again_has_nothing_of_the_first() {
    for is_route in [true, false] {
        let both = TwoProcesses::start().await;
        both.warm().await;
        if is_route {
            assert_eq!(call(&both.other, "DELETE", "/api/threads/t", None).await.0, 204);
        } else {
            // As an operator's command and retention do: no process is notified.
            let (owner, all) = (ThreadOwner::new("c1", "u1"), DeleteFilter::default());
            let deleted = both.test.stores.conversations.delete_many(&owner, &all).await;
            assert_eq!(deleted.expect("it works").deleted, 1);
        }
        let [first, second] = both.prompts().await;
        assert_eq!(first, dialogue(&["four"]));
        assert_eq!(second, dialogue(&["four", "4", "five"]));
    }
}

#[tokio::test]
async fn a_fork_has_only_the_path_to_its_node() {
    let both = TwoProcesses::start().await;
    let body = json!({"id": "fork", "at": both.node(1).await});
    assert_eq!(call(&both.other, "POST", "/api/threads/t/fork", Some(body)).await.0, 201);
    both.say_at_other("fork", "four").await;
    assert_eq!(both.test.prompt(), dialogue(&["basilisk", "1", "four"]));
    // An erasure in the fork does not change the thread, and vice versa.
    let node = both.test.get("/api/threads/fork").await["nodes"][0]["id"].clone();
    let path = format!("/api/threads/fork/messages/{}", node.as_str().expect("an id"));
    assert_eq!(call(&both.test.app, "DELETE", &path, None).await.0, 204);
    both.say_at_other("fork", "five").await;
    let request_body = both.test.vendor.received_bodies("m").pop().expect("a request");
    assert!(!request_body.to_string().contains("basilisk"), "{request_body}");
    both.test.say("t", "six").await;
    assert_eq!(both.test.prompt()[0].1, "basilisk");
}
