//! Runs that tests begin.

use agent_core::message::Message;
use agent_platform::conversation::{
    BeginRunRequest, NewNode, NewThread, OnDisconnect, RunTrigger, ThreadKey,
};

use crate::app::services::ConversationService;

/// Returns the begin of a run that answers the message of a new thread.
pub(super) fn begin_in_new_thread(service: &ConversationService, run_id: &str) -> BeginRunRequest {
    let question = NewNode::user(None, Message::user("Hello"));
    BeginRunRequest {
        key: ThreadKey::new("c", "u", "t"),
        agent_id: "a".into(),
        run_id: run_id.into(),
        continues: None,
        decisions: Vec::new(),
        context: Default::default(),
        trigger: RunTrigger::default(),
        parent_id: Some(question.id.clone()),
        nodes: vec![question],
        new_thread: NewThread::default(),
        retention: None,
        order: Default::default(),
        expected_version: None,
        on_disconnect: OnDisconnect::Cancel,
        grace_ms: None,
        backend: None,
        request_sha256: None,
        lease: service.lease(),
        now: service.now(),
    }
}
