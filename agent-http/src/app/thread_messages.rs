//! `/api/threads/{id}/messages`: messages that are added without a run, and the erasure of a message's content.

use agent_core::request::Principal;
use agent_platform::conversation::{
    CancelReason, NewNode, NodeId, NodeOrigin, NodeRole, Run, RunKey, RunState, ThreadKey, import_nodes,
};
use agent_platform::history;
use http::StatusCode;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::conversation::delete_message_notifications;
use super::threads::{OwnConversations, node_id, node_id_of_field, private};
use super::{App, resource, response};
use crate::endpoint::RequestContext;
use crate::error::HttpError;
use crate::request::parse_json;
use crate::service::HandlerResult;

/// Body of a `POST`; its `messages` are read as those of a chat.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessagesInput {
    /// Absent for the head, `null` for a new root.
    #[serde(default, deserialize_with = "deserialize_present")]
    parent_id: Option<Option<String>>,
}

/// Reads a field that is present, possibly as `null`.
fn deserialize_present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Handles `POST /api/threads/{id}/messages`.
pub(super) async fn post(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, body } = context;
    let conversations = OwnConversations::open(state, &principal)?;
    let key = conversations.key(params.get("id")?)?;
    let thread = conversations.store.thread(&key).await?.ok_or_else(HttpError::not_found)?;
    let bytes = body.read_json_bytes(&head.headers).await?;
    let depth = conversations.app.base.json_depth;
    let input: MessagesInput = parse_json(&bytes, depth)?;
    let messages = history::read_messages(&history::JsonBody::parse(&bytes, depth)?)?;
    let parent = match input.parent_id {
        None => thread.head,
        Some(None) => None,
        Some(Some(id)) => Some(node_id_of_field(&id, "parentId")?),
    };
    let nodes = import_nodes(parent, messages.clone()).into_iter().map(with_author).collect::<Vec<_>>();
    if nodes.is_empty() {
        return Err(HttpError::invalid("messages", "has no message that can be stored"));
    }
    let added = conversations.store.append(&key, nodes, conversations.app.conversations.now()).await;
    let added = added.map_err(|error| HttpError::from_node_error(error, "parentId"))?;
    conversations.retain_files(&principal, &messages, &key.id).await;
    private(response::json(StatusCode::CREATED, &json!({"nodes": added.nodes})))
}

/// Returns the node with its author: the owner of a user message, the client of others.
fn with_author(node: NewNode) -> NewNode {
    let origin = match node.message.role() {
        NodeRole::User => NodeOrigin::User,
        _ => NodeOrigin::Client,
    };
    NewNode { origin, ..node }
}

/// Cancels the thread's run that waits for decisions if a message belongs to it: its calls are erased with the message.
async fn cancel_waiting_run(
    conversations: &OwnConversations,
    key: &ThreadKey,
    node: &NodeId,
) -> Result<(), HttpError> {
    let (store, owner) = (&*conversations.store, &conversations.owner);
    let Some(id) = store.thread(key).await?.and_then(|thread| thread.open_run_id) else { return Ok(()) };
    let is_waiting = |run: &Run| run.state == RunState::Waiting && run.node_ids.contains(node);
    if store.run(owner, &id).await?.is_some_and(|run| is_waiting(&run)) {
        let run = RunKey { owner: owner.clone(), id };
        conversations.app.conversations.cancel(store, &run, CancelReason::Requested).await?;
    }
    Ok(())
}

/// Handles `DELETE /api/threads/{id}/messages/{node}`.
pub(super) async fn delete(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let conversations = OwnConversations::open(context.state, &principal)?;
    let key = conversations.key(context.params.get("id")?)?;
    let node = node_id(context.params.get("node")?)?;
    cancel_waiting_run(&conversations, &key, &node).await?;
    conversations.store.erase_node(&key, &node).await?;
    conversations.app.conversations.threads.remove(&key);
    // Prompts without the message need other summaries. After an error, the client repeats the request.
    conversations.app.compaction.summaries().delete_of_thread(&key).await?;
    delete_message_notifications(&conversations.app, &*conversations.store, &key, &node).await?;
    private(Ok(resource::no_content()))
}
