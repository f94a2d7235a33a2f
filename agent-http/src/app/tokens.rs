//! `/api/agents/{id}/tokens`: widget, MCP and API tokens of agents that the caller owns.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::{AgentId, CompanyId, UserId};
use agent_core::request::Principal;
use agent_core::role::RoleBlock;
use agent_core::tool::Caller;
use agent_platform::records::{ListQuery, MAX_PAGE_RECORDS, StoreError};
use agent_platform::run_tools::allowed_tools_in_run;
use agent_platform::token::{
    ApiGrant, Grant, MAX_AGENTS_PER_TOKEN, McpGrant, MintedToken, NewToken, RunCaps, Token, TokenMintError,
    WidgetGrant,
};
use async_trait::async_trait;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ownership::{AGENTS_TAG, load_owned};
use super::resource::{self, Listing};
use super::{App, response};
use crate::cors::normalize_origin;
use crate::endpoint::{Operation, Params, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::service::HandlerResult;

/// A request to create a token.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TokenRequest {
    /// Purpose of the token.
    kind: TokenKind,
    /// Lifetime in milliseconds; unlimited if absent.
    ttl_ms: Option<NonZeroU64>,
    /// Label chosen by the user.
    label: Option<String>,
    /// Widget: origins of the pages that may use the token; any origin if empty or absent.
    origins: Option<Vec<String>>,
    /// Widget and API: rate limits.
    caps: Option<RunCaps>,
    /// MCP: the todo list that tasks and plans are written to.
    todo_list_id: Option<String>,
    /// MCP: restricts the agent's tools to these.
    tools: Option<Vec<String>>,
    /// API: further agents, which the caller must also own.
    agents: Option<Vec<AgentId>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum TokenKind {
    /// Chats with the agent as a visitor of a web page.
    Widget,
    /// Calls the agent's tools on behalf of the user who created the token.
    Mcp,
    /// Chats with agents on behalf of the user who created the token, by clients of OpenAI's API.
    Api,
}

impl TokenRequest {
    /// Returns the token's grant for the agent. An MCP or API grant acts for the user who creates the token.
    fn grant(&self, user_id: &UserId, agent_id: &AgentId) -> Result<Grant, HttpError> {
        use TokenKind::{Api, Mcp, Widget};
        let fields: [(_, _, &[TokenKind]); 5] = [
            ("origins", self.origins.is_some(), &[Widget]),
            ("caps", self.caps.is_some(), &[Widget, Api]),
            ("todoListId", self.todo_list_id.is_some(), &[Mcp]),
            ("tools", self.tools.is_some(), &[Mcp]),
            ("agents", self.agents.is_some(), &[Api]),
        ];
        let inapplicable =
            fields.into_iter().find(|(_, is_given, kinds)| *is_given && !kinds.contains(&self.kind));
        if let Some((name, ..)) = inapplicable {
            return Err(HttpError::invalid(name, "does not apply to tokens of this kind"));
        }
        Ok(match self.kind {
            Widget => {
                Grant::Widget(WidgetGrant { origins: self.origins()?, caps: self.caps.unwrap_or_default() })
            }
            Mcp => Grant::Mcp(McpGrant {
                user_id: user_id.to_owned(),
                todo_list_id: self.todo_list_id.clone(),
                tools: self.tools.clone(),
                ..McpGrant::default()
            }),
            Api => {
                let agents = std::iter::once(agent_id).chain(self.agents.iter().flatten());
                Grant::Api(ApiGrant {
                    user_id: user_id.to_owned(),
                    agents: agents.cloned().collect(),
                    caps: self.caps,
                })
            }
        })
    }

    /// Normalizes the origins to the form that browsers send, since others would never match.
    fn origins(&self) -> Result<Vec<String>, HttpError> {
        let normalize = |(i, text): (usize, &String)| {
            let detail = "must be an origin, such as https://shop.example or http://localhost:5173";
            normalize_origin(text).ok_or_else(|| HttpError::invalid(&format!("origins[{i}]"), detail))
        };
        self.origins.iter().flatten().enumerate().map(normalize).collect()
    }
}

/// A new token, with its secret text.
#[derive(Serialize, JsonSchema)]
struct CreatedToken {
    /// The token's metadata.
    #[serde(flatten)]
    known: Token,
    /// The token's text, which is shown only once.
    token: String,
}

/// One page of an agent's tokens.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct TokenPage {
    /// The tokens, oldest first, without their texts; includes expired and revoked ones.
    tokens: Vec<Token>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// The tokens of an agent that the caller owns.
pub(super) struct AgentTokens {
    app: Arc<App>,
    principal: Principal,
    agent_id: AgentId,
    role: RoleBlock,
}

#[async_trait]
impl Listing for AgentTokens {
    type Page = TokenPage;

    async fn open(app: Arc<App>, principal: Principal, params: &Params) -> Result<Self, HttpError> {
        let agent_id: AgentId = params.get("id")?.into();
        let role = load_owned(&app, &principal, &agent_id).await?.value;
        Ok(Self { app, principal, agent_id, role })
    }

    async fn page(&self, list: ListQuery) -> Result<TokenPage, HttpError> {
        let page = self.app.tokens.list(&self.principal.company_id, &self.agent_id, &list).await?;
        let tokens = page.records.into_iter().map(|record| record.value).collect();
        Ok(TokenPage { tokens, next_cursor: page.next_cursor })
    }
}

pub(super) async fn post(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, body } = context;
    let AgentTokens { app, principal, agent_id, role } = AgentTokens::open(state, principal, &params).await?;
    let request: TokenRequest = body.read_json(&head.headers).await?;
    let grant = request.grant(&principal.user_id, &agent_id)?;
    check_tools(request.tools.as_deref().unwrap_or_default(), &role)?;
    // Bounded here, since each agent is looked up.
    if let Some(agents) = request.agents.as_ref().filter(|agents| agents.len() < MAX_AGENTS_PER_TOKEN) {
        for (index, agent) in agents.iter().enumerate() {
            let role = load_owned(&app, &principal, agent).await;
            role.map_err(|error| error.with_missing_field(&format!("agents[{index}]")))?;
        }
    }
    let ttl = request.ttl_ms.map(|ttl| Duration::from_millis(ttl.get()));
    let new_token =
        NewToken { ttl, label: request.label, ..NewToken::new(principal.company_id, agent_id, grant) };
    let MintedToken { token: known, text } = app.tokens.mint(new_token).await.map_err(mint_error_response)?;
    let created = CreatedToken { known, token: text.expose().to_owned() };
    response::json(StatusCode::CREATED, &created)
}

/// Checks that the agent may use each of the tools, since a token for others would grant nothing.
fn check_tools(tools: &[String], role: &RoleBlock) -> Result<(), HttpError> {
    let allowed = allowed_tools_in_run(role, Caller::Session);
    match tools.iter().position(|tool| !allowed.contains(tool)) {
        None => Ok(()),
        Some(index) => {
            Err(HttpError::invalid(&format!("tools[{index}]"), "names no tool that this agent may use"))
        }
    }
}

fn mint_error_response(error: TokenMintError) -> HttpError {
    match error {
        TokenMintError::Invalid { field: "ttl", fault } => HttpError::invalid("ttlMs", fault),
        TokenMintError::Invalid { field, fault } => HttpError::invalid(field, fault),
        TokenMintError::TooManyTokens { limit } | TokenMintError::TooManyAgentTokens { limit } => {
            HttpError::conflict(error.to_string()).with_member("limit", limit.into())
        }
        TokenMintError::Store(error) => error.into(),
        error => HttpError::internal(error),
    }
}

pub(super) async fn delete(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, params, .. } = context;
    let AgentTokens { app, principal, agent_id, .. } = AgentTokens::open(state, principal, &params).await?;
    let id = params.get("tokenId")?;
    // Looked up in the agent's own list: the id alone would also match tokens of other agents of the company.
    let query = ListQuery { prefix: id.to_owned(), limit: Some(1), ..ListQuery::default() };
    let page = app.tokens.list(&principal.company_id, &agent_id, &query).await?;
    if !page.records.iter().any(|record| record.id == id) {
        return Err(HttpError::not_found());
    }
    app.tokens.revoke(id, Some(&principal.company_id)).await?;
    Ok(resource::no_content())
}

/// Revokes all tokens of an agent.
pub(super) async fn revoke_all(app: &App, company_id: &CompanyId, agent: &AgentId) -> Result<(), StoreError> {
    let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    loop {
        let page = app.tokens.list(company_id, agent, &list).await?;
        for record in page.records.into_iter().filter(|record| record.value.revoked_at.is_none()) {
            app.tokens.revoke(&record.id, Some(company_id)).await?;
        }
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            return Ok(());
        }
    }
}

pub(super) fn describe_list(schemas: &mut Schemas) -> Operation {
    operation("listTokens", "Lists the tokens of an agent owned by the caller, without their texts.")
        .paged()
        .json_response(200, "One page of tokens.", schemas.schema_for::<TokenPage>())
}

pub(super) fn describe_post(schemas: &mut Schemas) -> Operation {
    let created = "The token with its text, which is returned only once.";
    operation("createToken", "Creates a token for an agent owned by the caller.")
        .body(schemas.schema_for::<TokenRequest>())
        .json_response(201, created, schemas.schema_for::<CreatedToken>())
        .problems(&[Code::Conflict])
}

pub(super) fn describe_delete(_: &mut Schemas) -> Operation {
    operation("revokeToken", "Revokes a token of an agent owned by the caller. Idempotent.")
        .empty_response(204, "The token was revoked.")
}

fn operation(id: &str, summary: &str) -> Operation {
    Operation::new(id, AGENTS_TAG, summary).problems(&[Code::NotFound])
}
