//! `/api/threads/{id}/messages`: messages that are added without a run, and the erasure of a message's content.

use agent_core::message::Message;
use agent_core::request::Principal;
use agent_platform::conversation::{
    AppendedNodes, CancelReason, ConversationError, NewNode, NodeId, NodeOrigin, NodeRole, Run, RunKey,
    RunState, ThreadKey, import_nodes,
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

/// Maximum number of attempts to add messages below the head of a thread that others change.
const MAX_APPEND_ATTEMPTS: usize = 100;

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
    conversations.store.thread(&key).await?.ok_or_else(HttpError::not_found)?;
    let bytes = body.read_json_bytes(&head.headers).await?;
    let depth = conversations.app.base.json_depth;
    let input: MessagesInput = parse_json(&bytes, depth)?;
    let messages = history::read_messages(&history::JsonBody::parse(&bytes, depth)?)?;
    let place = match input.parent_id {
        None => Place::below_head(&conversations, &key).await?,
        Some(None) => Place::Below(None),
        Some(Some(id)) => Place::Below(Some(node_id_of_field(&id, "parentId")?)),
    };
    let added = append(&conversations, &key, place, &messages).await?;
    conversations.retain_files(&principal, &messages, &key.id).await;
    private(response::json(StatusCode::CREATED, &json!({"nodes": added.nodes})))
}

/// Place of messages that are added.
enum Place {
    /// Below the head of the thread, as it was in a version.
    BelowHead { head: Option<NodeId>, version: u64 },
    /// Below a node, or as a new root.
    Below(Option<NodeId>),
}

impl Place {
    /// Returns the place below the head of a thread without a run in progress.
    ///
    /// # Errors
    /// 409 `THREAD_BUSY` while a run is in progress, and `INTERRUPTS_OPEN` while one waits for decisions: their answers are placed
    /// below the earlier messages and shown, and the new messages would be on another branch.
    async fn below_head(conversations: &OwnConversations, key: &ThreadKey) -> Result<Self, HttpError> {
        let (store, service) = (&*conversations.store, &conversations.app.conversations);
        let thread = store.thread(key).await?.ok_or_else(HttpError::not_found)?;
        if let Some(id) = thread.active_run_id.as_ref().or(thread.open_run_id.as_ref()) {
            let run = RunKey { owner: conversations.owner.clone(), id: id.clone() };
            match service.interrupt_abandoned(store, &run).await? {
                Some(run) if run.state == RunState::Waiting => {
                    return Err(ConversationError::InterruptsOpen { run: Box::new(run) }.into());
                }
                Some(run) if run.state.is_live() => {
                    return Err(ConversationError::ThreadBusy { active_run: run.id }.into());
                }
                // A run that has ended since the thread was read has changed the version.
                _ => {}
            }
        }
        Ok(Self::BelowHead { head: thread.head, version: thread.version })
    }
}

/// Adds messages to a thread. Those below its head follow what others have added since it was read.
async fn append(
    conversations: &OwnConversations,
    key: &ThreadKey,
    mut place: Place,
    messages: &[Message],
) -> Result<AppendedNodes, HttpError> {
    let mut attempts = 1;
    loop {
        let (parent, expected_version) = match &place {
            Place::BelowHead { head, version } => (head.clone(), Some(*version)),
            Place::Below(parent) => (parent.clone(), None),
        };
        let nodes = import_nodes(parent, messages.to_vec()).into_iter().map(with_author).collect::<Vec<_>>();
        if nodes.is_empty() {
            return Err(HttpError::invalid("messages", "has no message that can be stored"));
        }
        let now = conversations.app.conversations.now();
        match conversations.store.append(key, expected_version, nodes, now).await {
            Err(ConversationError::VersionConflict { .. }) if attempts < MAX_APPEND_ATTEMPTS => {
                attempts += 1;
                place = Place::below_head(conversations, key).await?;
            }
            added => return added.map_err(|error| HttpError::from_node_error(error, "parentId")),
        }
    }
}

/// Returns the node with its author: the owner for a user message, the client for others.
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
