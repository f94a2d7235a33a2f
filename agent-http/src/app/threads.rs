//! `/api/threads`: the conversations of a user, or of a widget's visitor. An id is looked up with company and owner, so
//! that another user's thread looks like one that never existed.

use std::sync::Arc;

use agent_core::event::Audience;
use agent_core::ids::{AgentId, RunId, ThreadId};
use agent_core::message::Message;
use agent_core::request::Principal;
use agent_platform::conversation::{
    Approval, CancelReason, ConversationError, Conversations, CreateThreadRequest, DeleteFilter,
    ForkThreadRequest, MAX_PAGE_NODES, NewThread, NodeContent, NodeId, NodeQuery, NodeRole, NodeSelection,
    RunKey, Thread, ThreadFilter, ThreadKey, ThreadOrigin, ThreadOwner, ThreadPatch, ThreadStatus,
    check_conversation_id, import_nodes,
};
use agent_platform::history;
use agent_platform::ids::encode_segment;
use http::header::{CACHE_CONTROL, HeaderValue, IF_MATCH, LOCATION};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::conversation::{
    delete_obsolete_notifications, delete_obsolete_summaries, delete_thread_notifications,
};
use super::ownership::load_in_company;
use super::resource::{self, check_tags, page_params};
use super::thread_page::read_page;
use super::thread_tag::thread_tags;
use super::thread_view::{NodeFormat, ThreadView};
use super::{App, response};
use crate::endpoint::RequestContext;
use crate::error::{Code, HttpError};
use crate::request::{Query, parse_json};
use crate::service::HandlerResult;

/// Conversations of a user, or of a visitor with a key.
pub(super) struct OwnConversations {
    pub(super) app: Arc<App>,
    pub(super) owner: ThreadOwner,
    pub(super) store: Arc<dyn Conversations>,
    pub(super) audience: Audience,
    /// The caller, if the owner is a visitor of an agent that the caller must own.
    pub(super) agent_owner: Option<Principal>,
}

impl OwnConversations {
    /// Opens the caller's conversations.
    ///
    /// # Errors
    /// 404 if conversations are switched off.
    pub(super) fn open(app: Arc<App>, principal: &Principal) -> Result<Self, HttpError> {
        let store = app.conversations.store().cloned().ok_or_else(HttpError::not_found)?;
        let owner = ThreadOwner::new(principal.company_id.clone(), principal.user_id.clone());
        Ok(Self { app, owner, store, audience: principal.caller.audience(), agent_owner: None })
    }

    /// Returns the key of the thread with this id; 404 for an id that no thread has.
    pub(super) fn key(&self, id: &str) -> Result<ThreadKey, HttpError> {
        let key = self.owner.thread(id);
        key.check().map_err(|_| HttpError::not_found())?;
        Ok(key)
    }

    /// Returns the approvals that a thread waits with, for the format that shows them.
    async fn open_approvals(&self, thread: &Thread, format: NodeFormat) -> Result<Vec<Approval>, HttpError> {
        let Some(id) = thread.open_run_id.as_ref().filter(|_| format == NodeFormat::UiMessage) else {
            return Ok(Vec::new());
        };
        let run = self.store.run(&self.owner, id).await?;
        Ok(run.map(|run| run.at(self.app.conversations.now()).approvals).unwrap_or_default())
    }

    /// Keeps the files of messages as long as their thread. After an error, the next turn of the thread keeps those of its
    /// prompt.
    pub(super) async fn retain_files(&self, principal: &Principal, messages: &[Message], thread: &ThreadId) {
        if let Err(error) = self.app.retain_files(principal, messages, thread).await {
            tracing::warn!(thread_id = %thread, %error, "failed to keep the files of a thread");
        }
    }

    /// Keeps the files of a copied thread as long as the copy. After an error, the next turn of the copy keeps those of its
    /// prompt.
    async fn retain_copied_files(&self, principal: &Principal, copy: &Thread) {
        if let Err(error) = self.try_retain_copied_files(principal, copy).await {
            tracing::warn!(thread_id = %copy.id, %error, "failed to keep the files of a copied thread");
        }
    }

    async fn try_retain_copied_files(
        &self,
        principal: &Principal,
        copy: &Thread,
    ) -> Result<(), ConversationError> {
        let key = self.owner.thread(copy.id.clone());
        let Some(found) = self.store.links(&key).await? else { return Ok(()) };
        let users = found.links.iter().filter(|link| link.role == NodeRole::User);
        let seqs: Vec<u32> = users.map(|link| link.seq).collect();
        for page in seqs.chunks(MAX_PAGE_NODES) {
            let contents = self.store.contents(&key, page).await?;
            let messages = contents.into_iter().filter_map(NodeContent::into_prompt_message);
            self.app.retain_files(principal, &messages.collect::<Vec<_>>(), &copy.id).await?;
        }
        Ok(())
    }

    /// Stops the runs of deleted threads.
    fn stop_runs(&self, ids: Vec<RunId>) {
        let key = |id| RunKey { owner: self.owner.clone(), id };
        self.app.conversations.stop_deleted(ids.into_iter().map(key));
    }
}

/// Marks a response as the caller's alone.
pub(super) fn private(response: HandlerResult) -> HandlerResult {
    response.map(|mut response| {
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
        response
    })
}

/// Returns a node's id from the path or a parameter; 404 for an id that no node has.
pub(super) fn node_id(id: &str) -> Result<NodeId, HttpError> {
    check_conversation_id("", id).map_err(|_| HttpError::not_found())?;
    Ok(id.into())
}

/// Returns the node's id in a field of a body; 404 with the field for an id that no node has.
pub(super) fn node_id_of_field(id: &str, field: &str) -> Result<NodeId, HttpError> {
    node_id(id).map_err(|error| error.with_missing_field(field))
}

/// Parses a query parameter whose values are the names of an enumeration.
pub(super) fn word_param<T: Copy, const N: usize>(
    query: &Query<'_>,
    name: &str,
    all: [T; N],
    as_str: impl Fn(T) -> &'static str,
) -> Result<Option<T>, HttpError> {
    let Some(word) = query.get(name)? else { return Ok(None) };
    match all.into_iter().find(|value| as_str(*value) == word) {
        Some(value) => Ok(Some(value)),
        None => Err(HttpError::invalid(name, format!("must be one of {}", all.map(as_str).join(", ")))),
    }
}

/// Handles `GET /api/threads`.
pub(super) async fn list(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let conversations = OwnConversations::open(context.state, &principal)?;
    let query = Query::from_uri(&context.head.uri);
    let archived = match query.get("archived")? {
        None | Some("false") => Some(false),
        Some("true") => Some(true),
        Some("any") => None,
        Some(_) => return Err(HttpError::invalid("archived", "must be false, true or any")),
    };
    let filter = ThreadFilter {
        agent: query.get("agentId")?.map(AgentId::from),
        archived,
        status: word_param(&query, "status", ThreadStatus::ALL, ThreadStatus::as_str)?,
        origin: word_param(&query, "origin", ThreadOrigin::ALL, ThreadOrigin::as_str)?,
    };
    let list = page_params(&query)?;
    let page = conversations
        .store
        .threads(&conversations.owner, &filter, list.cursor.as_deref(), list.page_size())
        .await?;
    private(match conversations.audience {
        Audience::Trusted => response::json(StatusCode::OK, &page),
        Audience::Visitor => {
            let mut shown = json!(page);
            shown["threads"] = page.threads.iter().map(Thread::shown_to_visitor).collect();
            response::json(StatusCode::OK, &shown)
        }
    })
}

/// Body of `POST /api/threads`; its `messages` are read as those of a chat.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThreadInput {
    id: Option<ThreadId>,
    agent_id: AgentId,
    title: Option<String>,
    metadata: Option<Map<String, Value>>,
}

/// Handles `POST /api/threads`.
pub(super) async fn post(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, body, .. } = context;
    let conversations = OwnConversations::open(state, &principal)?;
    let bytes = body.read_json_bytes(&head.headers).await?;
    let depth = conversations.app.base.json_depth;
    let input: ThreadInput = parse_json(&bytes, depth)?;
    let messages = history::read_messages(&history::JsonBody::parse(&bytes, depth)?)?;
    let role = load_in_company(&conversations.app, &principal, &input.agent_id).await;
    let role = role.map_err(|error| error.with_missing_field("agentId"))?;
    let retention = conversations
        .app
        .conversations
        .retention(&conversations.owner, &role.value.content.conversations.unwrap_or_default());
    let create = CreateThreadRequest {
        key: conversations.owner.thread(new_thread_id(input.id)?),
        agent_id: input.agent_id,
        new: NewThread {
            origin: ThreadOrigin::Client,
            title: input.title.filter(|title| !title.is_empty()),
            metadata: input.metadata.unwrap_or_default(),
        },
        retention,
        nodes: import_nodes(None, messages.clone()),
        now: conversations.app.conversations.now(),
    };
    let thread = conversations.store.create(create).await?;
    conversations.retain_files(&principal, &messages, &thread.id).await;
    created(&thread)
}

/// Returns the id that the client gives to a thread, or a new one.
fn new_thread_id(requested: Option<ThreadId>) -> Result<ThreadId, HttpError> {
    match requested {
        None => Ok(agent_core::new_id().into()),
        Some(id) => {
            check_conversation_id("id", &id)?;
            Ok(id)
        }
    }
}

fn created(thread: &agent_platform::conversation::Thread) -> HandlerResult {
    let mut response = response::json(StatusCode::CREATED, thread)?;
    let id = encode_segment(&thread.id);
    let location = HeaderValue::try_from(format!("/api/threads/{id}"));
    response.headers_mut().extend(location.ok().map(|path| (LOCATION, path)));
    let [tag, _] = thread_tags(thread);
    private(Ok(resource::with_tag(response, Some(tag))))
}

/// Parses the query of `GET /api/threads/{id}`; `None` for the nodes if none are requested.
fn node_query(query: &Query<'_>) -> Result<Option<NodeQuery>, HttpError> {
    let invalid =
        || HttpError::invalid("limit", format_args!("must be a whole number from 1 to {MAX_PAGE_NODES}"));
    let limit = |text: &str| {
        text.parse().ok().filter(|limit| (1..=MAX_PAGE_NODES).contains(limit)).ok_or_else(invalid)
    };
    let limit = query.get("limit")?.map(limit).transpose()?;
    let at = query.get("at")?;
    let select = match query.get("messages")? {
        None | Some("path") => NodeSelection::Path { at: at.map(node_id).transpose()? },
        Some("tree" | "none") if at.is_some() => {
            return Err(HttpError::invalid("at", "selects a path; messages must be path"));
        }
        Some("tree") => NodeSelection::Tree,
        Some("none") => return Ok(None),
        Some(_) => return Err(HttpError::invalid("messages", "must be path, tree or none")),
    };
    Ok(Some(NodeQuery { select, cursor: query.get("cursor")?.map(str::to_owned), limit }))
}

/// Handles `GET /api/threads/{id}`.
pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, .. } = context;
    let query = Query::from_uri(&head.uri);
    let conversations = OwnConversations::open(state, &principal)?.named(&principal, &query)?;
    let key = conversations.key(params.get("id")?)?;
    conversations.check_thread(&key).await?;
    let format = NodeFormat::parse(&query)?;
    let nodes = node_query(&query)?;
    let is_tree = nodes.as_ref().is_some_and(|query| query.select == NodeSelection::Tree);
    if format == NodeFormat::UiMessage && is_tree {
        return Err(HttpError::invalid("format", "must be ag-ui for messages=tree"));
    }
    // The shown approvals change without a change of the version.
    let mut has_approvals = false;
    let view = match nodes {
        None => conversations.store.thread(&key).await?.map(ThreadView::without_nodes),
        Some(nodes) => {
            match read_page(&*conversations.store, &key, &nodes, format, conversations.audience).await? {
                Some(page) => {
                    let approvals = conversations.open_approvals(&page.thread, format).await?;
                    has_approvals = !approvals.is_empty();
                    Some(ThreadView::new(page, format, &approvals))
                }
                None => None,
            }
        }
    };
    let mut view = view.ok_or_else(HttpError::not_found)?;
    if conversations.agent_owner.is_some() {
        view = view.with_owner(conversations.owner.owner.clone());
    }
    let unconditional = HeaderMap::new();
    let headers = if has_approvals { &unconditional } else { &head.headers };
    let tags = thread_tags(view.thread());
    private(match conversations.audience {
        Audience::Trusted => resource::get_tagged(headers, &tags, &view),
        Audience::Visitor => resource::get_tagged(headers, &tags, &view.shown_to_visitor()),
    })
}

/// Body of `PATCH /api/threads/{id}`.
#[derive(Deserialize)]
struct PatchInput {
    title: Option<String>,
    archived: Option<bool>,
    metadata: Option<Map<String, Value>>,
    head: Option<NodeId>,
}

/// Handles `PATCH /api/threads/{id}`.
pub(super) async fn patch(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, body } = context;
    let conversations = OwnConversations::open(state, &principal)?;
    let key = conversations.key(params.get("id")?)?;
    // Checked before the body, so that an unknown thread is 404 even with an invalid body.
    let current = conversations.store.thread(&key).await?.ok_or_else(HttpError::not_found)?;
    check_tags(&head.headers, &thread_tags(&current))?;
    let PatchInput { title, archived, metadata, head: leaf } = body.read_json(&head.headers).await?;
    let leaf = leaf.map(|leaf| node_id_of_field(leaf.as_str(), "head")).transpose()?;
    let expected_version = head.headers.contains_key(IF_MATCH).then_some(current.version);
    let patch = ThreadPatch { title, archived, metadata, head: leaf, expected_version };
    let now = conversations.app.conversations.now();
    let thread = match conversations.store.patch(&key, patch, now).await {
        Err(ConversationError::VersionConflict { .. }) => {
            let detail = "precondition failed: the resource has another version";
            return Err(HttpError::new(Code::PreconditionFailed, detail));
        }
        patched => patched.map_err(|error| HttpError::from_node_error(error, "head"))?,
    };
    let response = match conversations.audience {
        Audience::Trusted => response::json(StatusCode::OK, &thread)?,
        Audience::Visitor => response::json(StatusCode::OK, &thread.shown_to_visitor())?,
    };
    let [tag, _] = thread_tags(&thread);
    private(Ok(resource::with_tag(response, Some(tag))))
}

/// Handles `DELETE /api/threads/{id}`.
pub(super) async fn delete(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let query = Query::from_uri(&context.head.uri);
    let conversations = OwnConversations::open(context.state, &principal)?.named(&principal, &query)?;
    let key = conversations.key(context.params.get("id")?)?;
    check_deletion(&conversations, &key, &context.head.headers).await?;
    conversations.app.conversations.end_before_deletion(&*conversations.store, &key).await?;
    // Before the thread, so that the client can repeat the request after an error.
    delete_thread_notifications(&conversations.app, &key).await?;
    let deleted = conversations.store.delete(&key).await;
    conversations.app.conversations.threads.remove(&key);
    let deleted = deleted?.ok_or_else(HttpError::not_found)?;
    conversations.stop_runs(deleted.active_runs);
    delete_obsolete_summaries(&conversations.app, &conversations.owner).await;
    delete_obsolete_notifications(&conversations.app, &conversations.owner).await;
    private(Ok(resource::no_content()))
}

/// Handles `POST /api/threads/{id}/cancel`.
pub(super) async fn cancel(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let conversations = OwnConversations::open(context.state, &principal)?;
    let key = conversations.key(context.params.get("id")?)?;
    let thread = conversations.store.thread(&key).await?.ok_or_else(HttpError::not_found)?;
    let service = &conversations.app.conversations;
    service
        .cancel_thread(&*conversations.store, &conversations.owner, &thread, CancelReason::Requested)
        .await?;
    private(response::json(StatusCode::OK, &thread))
}

/// Checks the condition of a deletion, if it has one, and the right of an agent's owner to it.
async fn check_deletion(
    conversations: &OwnConversations,
    key: &ThreadKey,
    headers: &HeaderMap,
) -> Result<(), HttpError> {
    conversations.check_thread(key).await?;
    if !headers.contains_key(IF_MATCH) {
        return Ok(());
    }
    let thread = conversations.store.thread(key).await?.ok_or_else(HttpError::not_found)?;
    check_tags(headers, &thread_tags(&thread))
}

/// Handles `DELETE /api/threads`.
pub(super) async fn delete_many(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let conversations = OwnConversations::open(context.state, &principal)?;
    let query = Query::from_uri(&context.head.uri);
    let before = |text: &str| {
        let time: Result<Timestamp, _> = text.parse();
        time.map_err(|_| HttpError::invalid("before", "must be a time as in RFC 3339"))
    };
    let filter = DeleteFilter {
        agent: query.get("agentId")?.map(AgentId::from),
        before: query.get("before")?.map(before).transpose()?,
    };
    if filter == DeleteFilter::default() {
        return Err(HttpError::invalid("agentId", "or before is required"));
    }
    let OwnConversations { app, owner, store, .. } = &conversations;
    app.conversations.end_before_deletions(&**store, owner, &filter).await?;
    let deleted = conversations.store.delete_many(&conversations.owner, &filter).await;
    conversations.app.conversations.threads.remove_owner(&conversations.owner);
    let deleted = deleted?;
    conversations.stop_runs(deleted.active_runs);
    delete_obsolete_summaries(&conversations.app, &conversations.owner).await;
    delete_obsolete_notifications(&conversations.app, &conversations.owner).await;
    private(response::json(StatusCode::OK, &json!({"deleted": deleted.deleted, "more": deleted.has_more})))
}

/// Body of `POST /api/threads/{id}/fork`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ForkInput {
    at: Option<NodeId>,
    id: Option<ThreadId>,
    agent_id: Option<AgentId>,
    title: Option<String>,
}

/// Handles `POST /api/threads/{id}/fork`.
pub(super) async fn fork(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, body } = context;
    let conversations = OwnConversations::open(state, &principal)?;
    let key = conversations.key(params.get("id")?)?;
    conversations.store.thread(&key).await?.ok_or_else(HttpError::not_found)?;
    let input: ForkInput = body.read_json(&head.headers).await?;
    if let Some(agent) = &input.agent_id {
        let role = load_in_company(&conversations.app, &principal, agent).await;
        role.map_err(|error| error.with_missing_field("agentId"))?;
    }
    let fork = ForkThreadRequest {
        key,
        at: input.at.map(|at| node_id_of_field(at.as_str(), "at")).transpose()?,
        id: new_thread_id(input.id)?,
        agent_id: input.agent_id,
        title: input.title.filter(|title| !title.is_empty()),
        now: conversations.app.conversations.now(),
    };
    let copy = conversations.store.fork(fork).await;
    let copy = copy.map_err(|error| HttpError::from_node_error(error, "at"))?;
    conversations.retain_copied_files(&principal, &copy).await;
    created(&copy)
}
