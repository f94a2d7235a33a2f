//! `/api/threads/{id}/messages/{node}/feedback`, ratings of messages by the owner of their thread; and what the owner of
//! an agent sees of them and of visitors' threads.

use agent_core::ids::AgentId;
use agent_core::request::Principal;
use agent_core::tool::Caller;
use agent_platform::conversation::{
    ConversationError, Feedback, MAX_COMMENT_BYTES, MAX_FEEDBACK_TAGS, MAX_TAG_BYTES, Rating, ThreadKey,
    ThreadOwner, check_conversation_id,
};
use agent_platform::records::ListQuery;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ownership::load_in_company;
use super::resource::page_params;
use super::thread_docs::{TAG, list_schema, object, thread_schema, words};
use super::threads::{OwnConversations, node_id, private};
use super::{App, resource, response};
use crate::endpoint::{Operation, RequestContext, Schemas, string_schema};
use crate::error::{Code, HttpError};
use crate::request::Query;
use crate::service::HandlerResult;

/// Body of a `PUT`.
#[derive(Deserialize)]
struct FeedbackInput {
    rating: Rating,
    #[serde(default)]
    tags: Vec<String>,
    comment: Option<String>,
    #[serde(default)]
    share: bool,
}

/// Handles `PUT /api/threads/{id}/messages/{node}/feedback`.
pub(super) async fn put(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, body } = context;
    let conversations = OwnConversations::open(state, &principal)?;
    let key = conversations.key(params.get("id")?)?;
    let node = node_id(params.get("node")?)?;
    // Checked before the body, so that an unknown thread or message is 404 even with an invalid body.
    let thread = conversations.store.links(&key).await?.ok_or_else(HttpError::not_found)?;
    if !thread.links.iter().any(|link| link.id == node) {
        return Err(ConversationError::NodeNotFound(node.to_string()).into());
    }
    let FeedbackInput { rating, tags, comment, share } = body.read_json(&head.headers).await?;
    let comment = comment.filter(|comment| !comment.is_empty());
    let (id, created_at) = (agent_core::new_id(), conversations.app.conversations.now());
    let feedback = Feedback { id, rating, tags, comment, share, created_at };
    conversations.store.set_feedback(&key, &node, Some(feedback.clone())).await?;
    private(response::json(StatusCode::OK, &feedback))
}

/// Handles `DELETE /api/threads/{id}/messages/{node}/feedback`.
pub(super) async fn delete(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let conversations = OwnConversations::open(context.state, &principal)?;
    let key = conversations.key(context.params.get("id")?)?;
    let node = node_id(context.params.get("node")?)?;
    conversations.store.set_feedback(&key, &node, None).await?;
    private(Ok(resource::no_content()))
}

/// Handles `GET /api/agents/{id}/feedback`.
pub(super) async fn list(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let (conversations, agent, page) = agent_page(context, &principal).await?;
    let (company, cursor) = (&principal.company_id, page.cursor.as_deref());
    let page = conversations.store.agent_feedback(company, &agent, cursor, page.page_size()).await?;
    private(response::json(StatusCode::OK, &page))
}

/// Handles `GET /api/agents/{id}/threads`.
pub(super) async fn list_threads(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let (conversations, agent, page) = agent_page(context, &principal).await?;
    let (company, cursor) = (&principal.company_id, page.cursor.as_deref());
    let page = conversations.store.visitor_threads(company, &agent, cursor, page.page_size()).await?;
    private(response::json(StatusCode::OK, &page))
}

/// Reads a request for a page of an agent's records. The caller must own the agent.
async fn agent_page(
    context: RequestContext<App>,
    principal: &Principal,
) -> Result<(OwnConversations, AgentId, ListQuery), HttpError> {
    let RequestContext { state, head, params, .. } = context;
    let conversations = OwnConversations::open(state, principal)?;
    let agent = conversations.owned_agent(principal, params.get("id")?).await?;
    Ok((conversations, agent, page_params(&Query::from_uri(&head.uri))?))
}

impl OwnConversations {
    /// Returns the id of an agent that the caller owns; 404 for any other.
    async fn owned_agent(&self, principal: &Principal, id: &str) -> Result<AgentId, HttpError> {
        let agent = load_in_company(&self.app, principal, id).await?;
        match agent.value.owner_id == principal.user_id {
            true => Ok(id.into()),
            false => Err(HttpError::not_found()),
        }
    }

    /// Opens the conversations that the query names: the caller's own or, with `owner`, those of a visitor, limited to threads
    /// with agents that the caller owns.
    ///
    /// # Errors
    /// 404 if the owner is not a visitor, or the caller is one.
    pub(super) fn named(mut self, principal: &Principal, query: &Query<'_>) -> Result<Self, HttpError> {
        let Some(owner) = query.get("owner")? else { return Ok(self) };
        let owner = ThreadOwner::new(principal.company_id.clone(), owner);
        check_conversation_id("", &owner.owner).map_err(|_| HttpError::not_found())?;
        if !owner.is_visitor() || principal.caller == Caller::Widget {
            return Err(HttpError::not_found());
        }
        self.owner = owner;
        self.agent_owner = Some(principal.clone());
        Ok(self)
    }

    /// Checks that the caller may see a thread or a run with this agent.
    ///
    /// # Errors
    /// 404 for a visitor's thread with an agent that the caller does not own.
    pub(super) async fn check_agent(&self, agent: &AgentId) -> Result<(), HttpError> {
        match &self.agent_owner {
            None => Ok(()),
            Some(principal) => self.owned_agent(principal, agent).await.map(drop),
        }
    }

    /// Checks that the caller may see a thread.
    ///
    /// # Errors
    /// Errors of [`check_agent`](Self::check_agent), and 404 for such a thread that does not exist.
    pub(super) async fn check_thread(&self, key: &ThreadKey) -> Result<(), HttpError> {
        if self.agent_owner.is_none() {
            return Ok(());
        }
        let thread = self.store.thread(key).await?.ok_or_else(HttpError::not_found)?;
        self.check_agent(&thread.agent_id).await
    }
}

fn feedback_schema() -> Value {
    let mut schema = feedback_input();
    schema["required"] = json!(["id", "rating", "share", "createdAt"]);
    schema["properties"]["id"] = string_schema();
    schema["properties"]["createdAt"] = string_schema();
    schema
}

fn feedback_input() -> Value {
    let tag =
        json!({"type": "string", "minLength": 1, "description": format!("At most {MAX_TAG_BYTES} bytes.")});
    let comment = json!({"type": "string", "description": format!("At most {MAX_COMMENT_BYTES} bytes.")});
    let share = json!({"type": "boolean", "default": false,
        "description": "True if the agent's owner may read the rated words."});
    let properties = json!({
        "rating": words(&["up", "down"]), "comment": comment, "share": share,
        "tags": {"type": "array", "items": tag, "maxItems": MAX_FEEDBACK_TAGS},
    });
    object(&["rating"], properties)
}

pub(super) fn describe_put(_: &mut Schemas) -> Operation {
    Operation::new("putFeedback", TAG, "Rates a message of a thread.")
        .body(feedback_input())
        .json_response(200, "The rating.", feedback_schema())
        .problems(&[Code::NotFound])
}

pub(super) fn describe_delete(_: &mut Schemas) -> Operation {
    Operation::new("deleteFeedback", TAG, "Removes the rating of a message.")
        .empty_response(204, "The message has no rating.")
        .problems(&[Code::NotFound])
}

pub(super) fn describe_list(_: &mut Schemas) -> Operation {
    let mut item = feedback_schema();
    item["properties"]["message"] = json!({
        "type": "object", "required": ["role", "content"], "description": "The rated words, if they are shared.",
        "properties": {"role": string_schema(), "content": string_schema()},
    });
    Operation::new("listFeedback", TAG, "Lists the feedback on an agent's messages, newest first.")
        .describe("For the agent's owner. It names neither the people nor the threads.")
        .paged()
        .json_response(200, "One page of feedback.", list_schema("feedback", item))
        .problems(&[Code::NotFound])
}

pub(super) fn describe_list_threads(_: &mut Schemas) -> Operation {
    let mut thread = thread_schema();
    let owner = json!({"type": "string", "description": "The visitor, for the parameter `owner` of other operations."});
    thread["properties"]["owner"] = owner;
    Operation::new(
        "listAgentThreads",
        TAG,
        "Lists the threads of visitors with an agent, latest activity first.",
    )
    .describe("For the agent's owner.")
    .paged()
    .json_response(200, "One page of threads.", list_schema("threads", thread))
    .problems(&[Code::NotFound])
}
