//! Authentication: resolves the credential of a request to an [`Identity`], before its body is read.

use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::{AgentId, CompanyId, UserId};
use agent_core::secret::Secret;
use agent_core::tool::{Caller, ExecutionContext};
use agent_platform::call_reports::ToolCallReporter;
use agent_platform::records::{Inventory, StoreError};
use agent_platform::roles::RoleStore;
use agent_platform::token::TokenEndListener;
use agent_platform::workspace::{self, CompanyMatch, find_agent_company};
use async_trait::async_trait;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use tokio::time;

use super::admission::AdmissionError;
use super::query::QueryParams;

/// Name of the query parameter that carries a token.
pub(crate) const TOKEN_PARAMETER: &str = "token";

/// Start of the ids of identities without a token. No token id contains a colon, so the ids cannot collide.
const LEGACY_ID_PREFIX: &str = "legacy:";

/// Description of a query without a token whose user and agent exist in more than one company.
const AMBIGUOUS_COMPANY: &str = "several companies have this user and agent: add companyId";

/// The user and agent that a credential stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Identifier of the credential; sessions belong to it. It is not secret.
    pub id: String,
    /// Execution context for tools. Thread and agent name are not known from a credential.
    pub context: ExecutionContext,
    /// Sink for reports of tool calls, if they are to appear in a run's event stream.
    pub calls: Option<ToolCallReporter>,
}

impl Identity {
    /// Returns true unless the identity is from a query without a token.
    pub(super) fn is_authenticated(&self) -> bool {
        !self.id.starts_with(LEGACY_ID_PREFIX)
    }
}

/// Resolves tokens to identities. It is called at every request, so that a revoked token is refused at once.
#[async_trait]
pub trait TokenResolver: Send + Sync + 'static {
    /// Returns the identity of a token; `None` if the token is invalid, expired or revoked.
    ///
    /// # Errors
    ///
    /// The store failed.
    async fn resolve_token(&self, text: &str) -> Result<Option<Identity>, StoreError>;

    /// Calls `listener` with the [id](Identity::id) of each credential that ends in this process, so that its sessions
    /// are closed at once. Without such calls they are closed when their token is re-validated.
    fn subscribe_ended(&self, listener: TokenEndListener) {
        drop(listener);
    }
}

/// Identities from unauthenticated query parameters, if the operator enables them.
///
/// The company is the one that has both the user and the agent. If several have, the query must name it.
pub struct LegacyQuery {
    roles: Arc<dyn RoleStore>,
    records: Arc<dyn Inventory>,
}

impl std::fmt::Debug for LegacyQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LegacyQuery").finish_non_exhaustive()
    }
}

impl LegacyQuery {
    /// Creates a resolver for the agents of `roles` and the users in `records`.
    pub fn new(roles: Arc<dyn RoleStore>, records: Arc<dyn Inventory>) -> Self {
        Self { roles, records }
    }

    async fn find(&self, query: &QueryIdentity<'_>) -> Result<Option<Identity>, AdmissionError> {
        let (Some(user), Some(agent)) = (query.user, query.agent) else { return Ok(None) };
        let company = match query.company {
            Some(company) => self.check_company(company.into(), &user.into(), &agent.into()).await,
            None => find_agent_company(&*self.records, &agent.into(), Some(&user.into())).await,
        };
        let company = match company {
            // A syntactically invalid id matches nothing.
            Ok(CompanyMatch::None) | Err(StoreError::Invalid(_)) => return Ok(None),
            Ok(CompanyMatch::One(company)) => company,
            Ok(CompanyMatch::Ambiguous) => return Err(AdmissionError::Unauthenticated(AMBIGUOUS_COMPANY)),
            Err(error) => return Err(AdmissionError::Store(error)),
        };
        Ok(Some(Identity {
            id: format!("{LEGACY_ID_PREFIX}{}", serde_json::json!([company, user, agent, query.todo_list])),
            context: ExecutionContext {
                user_id: user.into(),
                company_id: company,
                agent_id: agent.into(),
                todo_list_id: query.todo_list.map(str::to_owned),
                caller: Caller::Session,
                ..ExecutionContext::default()
            },
            calls: None,
        }))
    }

    /// Returns the company if it has the user and the agent.
    async fn check_company(
        &self,
        company: CompanyId,
        user: &UserId,
        agent: &AgentId,
    ) -> Result<CompanyMatch, StoreError> {
        let has_agent = self.roles.masked_role(&company, agent).await?.is_some();
        let has_all = has_agent && workspace::get_user(&*self.records, &company, user).await?.is_some();
        Ok(if has_all { CompanyMatch::One(company) } else { CompanyMatch::None })
    }
}

/// An identity, and the credential that it is based on.
pub(super) struct AuthenticatedIdentity {
    pub(super) identity: Identity,
    /// `None` if the identity is not based on a revocable token.
    pub(super) revocable_token: Option<Arc<RevocableToken>>,
}

/// A token that may be revoked while a session of it is open or a response is streaming.
pub(super) struct RevocableToken {
    identities: Arc<dyn TokenResolver>,
    token: Secret,
}

impl RevocableToken {
    pub(super) fn new(identities: Arc<dyn TokenResolver>, token: &str) -> Arc<Self> {
        Arc::new(Self { identities, token: Secret::new(token) })
    }

    /// Completes when the token is no longer valid, which is checked at an interval.
    pub(super) async fn wait_until_revoked(&self, check_interval: Duration) {
        loop {
            time::sleep(check_interval).await;
            // A store error says nothing about the token, so it does not end the stream.
            if let Ok(None) = self.identities.resolve_token(self.token.expose()).await {
                return;
            }
        }
    }
}

/// Authenticates requests.
pub struct McpAuthenticator {
    identities: Arc<dyn TokenResolver>,
    legacy: Option<LegacyQuery>,
}

impl std::fmt::Debug for McpAuthenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpAuthenticator").finish_non_exhaustive()
    }
}

impl McpAuthenticator {
    /// Creates an authenticator that resolves tokens with `identities`, and query parameters with `legacy` if the
    /// operator enables them.
    pub fn new(identities: Arc<dyn TokenResolver>, legacy: Option<LegacyQuery>) -> Self {
        Self { identities, legacy }
    }

    /// Calls `listener` with the id of each credential that ends in this process, as far as the resolver reports it.
    pub(super) fn subscribe_ended(&self, listener: TokenEndListener) {
        self.identities.subscribe_ended(listener);
    }

    /// Resolves the credential of a request.
    ///
    /// # Errors
    ///
    /// There is no valid credential, there are two different ones, or an id or timezone in the query differs from the
    /// token's.
    pub(super) async fn identify(
        &self,
        headers: &HeaderMap,
        query: &QueryParams<'_>,
    ) -> Result<AuthenticatedIdentity, AdmissionError> {
        let query_identity = QueryIdentity::read(query)?;
        let Some(token) = token(headers, query)? else {
            let identity = self.without_token(&query_identity).await?;
            return Ok(AuthenticatedIdentity { identity, revocable_token: None });
        };
        let identity = self.identities.resolve_token(token).await.map_err(AdmissionError::Store)?;
        let identity = identity.ok_or(AdmissionError::InvalidToken)?;
        query_identity.check(&identity.context)?;
        let revocable_token = RevocableToken::new(self.identities.clone(), token);
        Ok(AuthenticatedIdentity { identity, revocable_token: Some(revocable_token) })
    }

    async fn without_token(&self, query_identity: &QueryIdentity<'_>) -> Result<Identity, AdmissionError> {
        let Some(legacy) = &self.legacy else {
            let has_ids = query_identity.user.is_some() || query_identity.agent.is_some();
            return Err(AdmissionError::Unauthenticated(if has_ids {
                "a valid MCP token is required; userId and agentId alone are accepted only if MCP_LEGACY_QUERY is on"
            } else {
                "a valid MCP token is required"
            }));
        };
        legacy.find(query_identity).await?.ok_or_else(|| {
            AdmissionError::Unauthenticated("a valid MCP token, or userId and agentId, is required")
        })
    }
}

/// Returns the token from the query or the `Authorization` header. If both have one, they must be equal.
fn token<'a>(headers: &'a HeaderMap, query: &'a QueryParams<'_>) -> Result<Option<&'a str>, AdmissionError> {
    let ambiguous = || AdmissionError::AmbiguousCredentials;
    let in_query = query.get(TOKEN_PARAMETER).map_err(|_| ambiguous())?;
    let mut bearers = headers.get_all(AUTHORIZATION).iter();
    let bearer = bearers.next();
    if bearers.next().is_some() {
        return Err(ambiguous());
    }
    // A malformed header counts as an invalid token, so that no other credential is used in its place.
    let bearer = bearer.map(|value| bearer_token(value).unwrap_or_default());
    match (in_query, bearer) {
        (Some(query_token), Some(bearer_token)) if query_token != bearer_token => Err(ambiguous()),
        (query_token, bearer_token) => Ok(query_token.or(bearer_token)),
    }
}

/// Parses a bearer token (RFC 6750); the scheme is case-insensitive.
fn bearer_token(value: &http::HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// The ids that the query names.
struct QueryIdentity<'q> {
    user: Option<&'q str>,
    agent: Option<&'q str>,
    todo_list: Option<&'q str>,
    company: Option<&'q str>,
    timezone: Option<&'q str>,
}

impl<'q> QueryIdentity<'q> {
    fn read(query: &'q QueryParams<'_>) -> Result<Self, AdmissionError> {
        let get = |name| Ok::<_, AdmissionError>(query.get(name)?.filter(|value| !value.is_empty()));
        Ok(Self {
            user: get("userId")?,
            agent: get("agentId")?,
            todo_list: get("todoListId")?,
            company: get("companyId")?,
            timezone: get("timezone")?,
        })
    }

    /// Returns an error unless every value in the query equals the credential's.
    fn check(&self, context: &ExecutionContext) -> Result<(), AdmissionError> {
        let pairs = [
            ("userId", self.user, Some(context.user_id.as_str())),
            ("agentId", self.agent, Some(context.agent_id.as_str())),
            ("companyId", self.company, Some(context.company_id.as_str())),
            ("todoListId", self.todo_list, context.todo_list_id.as_deref()),
            ("timezone", self.timezone, context.timezone.as_deref()),
        ];
        match pairs
            .into_iter()
            .find(|(_, query_value, token_value)| query_value.is_some() && query_value != token_value)
        {
            Some((name, ..)) => Err(AdmissionError::ParameterMismatch(name)),
            None => Ok(()),
        }
    }
}
