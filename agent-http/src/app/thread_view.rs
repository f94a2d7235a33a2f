//! Threads in responses, with their nodes as AG-UI messages or as UI messages of the AI SDK.

use std::collections::HashMap;

use agent_core::ids::UserId;
use agent_core::message::{Content, ContentPart, MediaSource, Message, ToolCall};
use agent_platform::conversation::{
    Approval, ApprovalState, Node, NodeMessage, NodePage, NodeRole, NodeStatus, Thread,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::HttpError;
use crate::request::Query;

/// Format of the messages in a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum NodeFormat {
    /// A node for each message of AG-UI.
    #[default]
    AgUi,
    /// A node for each turn, as the AI SDK's `UIMessage`.
    UiMessage,
}

impl NodeFormat {
    /// Parses the parameter `format`.
    pub(super) fn parse(query: &Query<'_>) -> Result<Self, HttpError> {
        match query.get("format")? {
            None | Some("ag-ui") => Ok(Self::AgUi),
            Some("ui-message") => Ok(Self::UiMessage),
            Some(_) => Err(HttpError::invalid("format", "must be ag-ui or ui-message")),
        }
    }
}

/// A thread with a page of its nodes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ThreadView {
    #[serde(flatten)]
    thread: Thread,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<NodeViews>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum NodeViews {
    AgUi(Vec<Node>),
    UiMessage(Vec<Value>),
}

impl ThreadView {
    pub(super) fn without_nodes(thread: Thread) -> Self {
        Self { thread, nodes: None, next_cursor: None }
    }

    /// Creates the view of a page. `approvals` are the open approvals of the thread.
    pub(super) fn new(page: NodePage, format: NodeFormat, approvals: &[Approval]) -> Self {
        let NodePage { thread, nodes, next_cursor } = page;
        let nodes = match format {
            NodeFormat::AgUi => NodeViews::AgUi(nodes),
            NodeFormat::UiMessage => NodeViews::UiMessage(ui_message_nodes(&thread, nodes, approvals)),
        };
        Self { thread, nodes: Some(nodes), next_cursor }
    }

    /// Returns the view with the thread's owner.
    pub(super) fn with_owner(mut self, owner: UserId) -> Self {
        self.thread.owner = Some(owner);
        self
    }

    /// Returns the JSON form for a visitor, whose nodes the page has.
    pub(super) fn shown_to_visitor(self) -> Value {
        let mut shown = self.thread.shown_to_visitor();
        if let Some(nodes) = self.nodes {
            shown["nodes"] = json!(nodes);
        }
        if let Some(cursor) = self.next_cursor {
            shown["nextCursor"] = json!(cursor);
        }
        shown
    }

    pub(super) fn thread(&self) -> &Thread {
        &self.thread
    }
}

/// Returns a node for each user message and each turn's answer, in the order of the path.
fn ui_message_nodes(thread: &Thread, path: Vec<Node>, approvals: &[Approval]) -> Vec<Value> {
    let mut groups: Vec<Vec<Node>> = Vec::new();
    for node in path {
        let is_user = node.message.role() == NodeRole::User;
        match groups.last_mut() {
            Some(group)
                if !is_user
                    && group[0].message.role() != NodeRole::User
                    && group[0].turn_id == node.turn_id =>
            {
                group.push(node);
            }
            _ => groups.push(vec![node]),
        }
    }
    groups.iter().map(|group| ui_message_node(thread, group, approvals)).collect()
}

/// Returns the node of a group: the first one's position, the last one's id and state, and one message.
fn ui_message_node(thread: &Thread, group: &[Node], approvals: &[Approval]) -> Value {
    let (first, last) = (&group[0], &group[group.len() - 1]);
    let is_user = first.message.role() == NodeRole::User;
    let id = if is_user { first.id.as_str() } else { first.turn_id.as_str() };
    let mut message = json!({
        "id": id,
        "role": if is_user { "user" } else { "assistant" },
        "parts": ui_parts(group, approvals),
    });
    if let Some(run_id) = &last.run_id
        && !is_user
    {
        message["metadata"] = json!({"threadId": thread.id, "runId": run_id});
    }
    let mut node = json!(first);
    let mut changes = json!({"id": last.id, "status": last.status, "message": message});
    if let Some(feedback) = group.iter().rev().find_map(|node| node.feedback.as_ref()) {
        changes["feedback"] = json!(feedback);
    }
    if let (Value::Object(node), Value::Object(changes)) = (&mut node, changes) {
        node.extend(changes);
    }
    node
}

/// Returns the parts of a UI message.
fn ui_parts(group: &[Node], approvals: &[Approval]) -> Vec<Value> {
    let result = |node: &Node| match node.message.as_message() {
        Some(Message { tool_call_id: Some(call), content, .. }) => {
            Some((call.clone(), content.to_text().into_owned()))
        }
        _ => None,
    };
    let results: HashMap<String, String> = group.iter().filter_map(result).collect();
    let mut parts = Vec::new();
    for node in group.iter().filter(|node| node.status != NodeStatus::Deleted) {
        match (&node.message, node.message.role()) {
            (NodeMessage::Reasoning(reasoning), _) => {
                parts.push(json!({"type": "reasoning", "text": reasoning.content}));
            }
            (NodeMessage::Message(message), NodeRole::Assistant) => {
                parts.push(json!({"type": "step-start"}));
                parts.extend(content_parts(&message.content));
                let part = |call: &ToolCall| {
                    let approval = approvals.iter().find(|approval| *approval.tool_call_id == call.id);
                    tool_part(call, results.get(&call.id), approval)
                };
                parts.extend(message.tool_calls.iter().map(part));
            }
            (NodeMessage::Message(message), NodeRole::User) => parts.extend(content_parts(&message.content)),
            _ => {}
        }
    }
    parts
}

fn content_parts(content: &Content) -> Vec<Value> {
    match content {
        Content::Text(text) if text.is_empty() => Vec::new(),
        Content::Text(text) => vec![json!({"type": "text", "text": text})],
        Content::Parts(parts) => parts.iter().map(content_part).collect(),
    }
}

fn content_part(part: &ContentPart) -> Value {
    match part {
        ContentPart::Text { text } => json!({"type": "text", "text": text}),
        ContentPart::Image { source } => file_part(source, "image/*"),
        ContentPart::Audio { source } => file_part(source, "audio/*"),
        ContentPart::Video { source } => file_part(source, "video/*"),
        ContentPart::Document { source } => file_part(source, "application/octet-stream"),
    }
}

fn file_part(source: &MediaSource, unknown_type: &str) -> Value {
    match source {
        MediaSource::Data { value, mime_type } => {
            let url = format!("data:{mime_type};base64,{value}");
            json!({"type": "file", "mediaType": mime_type, "url": url})
        }
        MediaSource::Url { value, mime_type } => {
            json!({"type": "file", "mediaType": mime_type.as_deref().unwrap_or(unknown_type), "url": value})
        }
    }
}

fn tool_part(call: &ToolCall, result: Option<&String>, approval: Option<&Approval>) -> Value {
    let arguments = &call.function.arguments;
    let input = serde_json::from_str(arguments).unwrap_or_else(|_| Value::String(arguments.clone()));
    let mut part = json!({
        "type": format!("tool-{}", call.function.name),
        "toolCallId": call.id,
        "state": "input-available",
        "input": input,
    });
    match approval.map(|approval| (approval, approval.state)) {
        Some((approval, ApprovalState::Open)) => {
            part["state"] = json!("approval-requested");
            part["approval"] = json!({"id": approval.id});
        }
        // Others still decide about the other calls.
        Some((approval, state @ (ApprovalState::Approved | ApprovalState::Denied))) => {
            part["state"] = json!("approval-responded");
            part["approval"] = json!({"id": approval.id, "approved": state == ApprovalState::Approved});
            if let Some(reason) = &approval.reason {
                part["approval"]["reason"] = json!(reason);
            }
        }
        _ => {}
    }
    if let Some(result) = result {
        part["state"] = json!("output-available");
        // Structured only if it is an object or an array, as in the stream.
        part["output"] = match serde_json::from_str(result) {
            Ok(output @ (Value::Object(_) | Value::Array(_))) => output,
            _ => Value::String(result.clone()),
        };
    }
    part
}

#[cfg(test)]
mod tests {
    use agent_platform::conversation::{
        BeginRunRequest, Conversations, EndRunRequest, MemoryConversations, NewNode, NewThread, NodeOrigin,
        NodeQuery, OnDisconnect, RunEnding, RunLease, RunRecord, RunTrigger, ThreadKey,
    };
    use jiff::Timestamp;

    use super::*;

    fn answer(parent: &str, id: &str, message: NodeMessage) -> NewNode {
        let (id, parent_id) = (id.into(), Some(parent.into()));
        let (client_id, status, origin) = (None, NodeStatus::Complete, NodeOrigin::Run);
        NewNode { id, parent_id, client_id, status, origin, message }
    }

    #[tokio::test]
    async fn a_turn_is_one_ui_message() {
        let store = MemoryConversations::default();
        let key = ThreadKey::new("c", "u", "t");
        let question = NewNode { id: "q".into(), ..NewNode::user(None, Message::user("How many?")) };
        let begin = BeginRunRequest {
            key: key.clone(),
            agent_id: "a".into(),
            run_id: "r".into(),
            continues: None,
            decisions: Vec::new(),
            context: Default::default(),
            trigger: RunTrigger::default(),
            nodes: vec![question],
            parent_id: Some("q".into()),
            new_thread: NewThread::default(),
            retention: None,
            order: Default::default(),
            expected_version: None,
            on_disconnect: OnDisconnect::Cancel,
            grace_ms: None,
            backend: None,
            request_sha256: None,
            lease: RunLease { process: "p".to_owned(), until: Timestamp::MAX },
            now: Timestamp::UNIX_EPOCH,
        };
        store.begin_run(begin).await.expect("it begins");
        let call = ToolCall::new("c1", "count", r#"{"of":"basil"}"#);
        let calling = Message { tool_calls: vec![call], ..Message::assistant("Let me see.") };
        let nodes = vec![
            answer("q", "m1", NodeMessage::reasoning("hm")),
            answer("m1", "m2", calling.into()),
            answer("m2", "m3", Message::tool_result("c1", "[1, 2]").into()),
            answer("m3", "m4", Message::assistant("Two.").into()),
        ];
        let end = EndRunRequest {
            owner: key.thread_owner(),
            run_id: "r".into(),
            process: "p".to_owned(),
            nodes,
            log: Default::default(),
            context: None,
            ending: RunEnding::default(),
            request_sha256: None,
            backend: None,
            record: RunRecord::default(),
            now: Timestamp::UNIX_EPOCH,
        };
        store.end_run(end).await.expect("it ends");
        let page = store.nodes(&key, &NodeQuery::default()).await.expect("it works").expect("a thread");
        let view = json!(ThreadView::new(page, NodeFormat::UiMessage, &[]));
        let nodes = view["nodes"].as_array().expect("nodes");
        assert_eq!(nodes.len(), 2, "{view}");
        assert_eq!(
            nodes[0]["message"],
            json!({"id": "q", "role": "user", "parts": [{"type": "text", "text": "How many?"}]})
        );
        assert_eq!(
            nodes[1]["message"],
            json!({"id": "r", "role": "assistant", "metadata": {"threadId": "t", "runId": "r"}, "parts": [
                {"type": "reasoning", "text": "hm"},
                {"type": "step-start"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool-count", "toolCallId": "c1", "state": "output-available", "input": {"of": "basil"},
                    "output": [1, 2]},
                {"type": "step-start"},
                {"type": "text", "text": "Two."},
            ]})
        );
        assert_eq!((&nodes[1]["id"], &nodes[1]["parentId"]), (&json!("m4"), &json!("q")));
        assert_eq!(view["head"], "m4");
    }
}
