//! The console: its page and assets, and the sign-in by a one-time code.
//!
//! A code is in the fragment of a link, which reaches no server, log or `Referer`; the page exchanges it by `POST` for
//! a session in a cookie. A `GET` uses nothing up.

use std::time::Duration;

use agent_core::ids::{CompanyId, UserId};
use agent_core::request::Principal;
use agent_platform::console::{ConsoleError, NewConsoleCode};
use agent_platform::workspace::{CompanyRole, get_company_role, utc_time};
use http::header::{CACHE_CONTROL, HeaderValue, SET_COOKIE};
use http::{HeaderMap, Response, StatusCode, request};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::services::{ConsoleService, console_link};
use super::{App, resource, response};
use crate::auth::check_site;
use crate::body::full;
use crate::endpoint::{Authenticate, CredentialClass, Operation, RequestContext, Schemas, string_schema};
use crate::error::{Code, HttpError};
use crate::request::Query;
use crate::service::HandlerResult;

/// Tag of the operations.
const TAG: &str = "console";
/// Path of the session.
pub(super) const SESSION_PATH: &str = "/api/console/session";
/// Limit on the body of a sign-in, whose sender is not known yet.
pub(super) const MAX_BODY_BYTES: usize = 1024;

/// Features of the page, and the route without which each is absent.
const FEATURES: [(&str, &str); 9] = [
    ("threads", "/api/threads"),
    ("runCancel", "/api/runs/{id}/cancel"),
    ("runEvents", "/api/runs/{id}/events"),
    ("approvals", "/api/approvals"),
    ("usage", "/api/usage"),
    ("audit", "/api/agent/tools/audit"),
    ("files", "/api/files"),
    ("retrieval", "/api/agents/{id}/retrieve"),
    ("jobs", "/api/pulse/jobs"),
];

/// Credential of a product's backend: `INTERNAL_SECRET`.
#[derive(Clone, Copy)]
pub(super) struct InternalSecret;

impl Authenticate<App> for InternalSecret {
    const CLASS: CredentialClass = CredentialClass::InternalSecret;
    type Verified = ();

    async fn authenticate(self, app: &App, head: &request::Parts) -> Result<(), HttpError> {
        Ok(app.auth.check_internal(&head.headers)?)
    }
}

fn console(app: &App) -> Result<&ConsoleService, HttpError> {
    app.console.as_ref().ok_or_else(HttpError::not_found)
}

/// Handles `GET /` and `GET /assets/…`.
pub(super) async fn asset(context: RequestContext<App>, (): ()) -> HandlerResult {
    let RequestContext { state, head, .. } = context;
    console(&state)?.auth.check_host(&head.headers)?;
    let response = agent_console::respond(head.uri.path(), &head.headers).ok_or_else(HttpError::not_found)?;
    Ok(response.map(full))
}

/// Body of `POST /api/console/links`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LinkInput {
    /// The user whom the link signs in.
    user_id: UserId,
    /// The user's company.
    company_id: CompanyId,
    /// Lifetime of the link in milliseconds, at most an hour; 10 minutes by default.
    ttl_ms: Option<u64>,
    /// Time without a request after which the session ends, in milliseconds, at most 7 days; 12 hours by default.
    session_ms: Option<u64>,
}

/// A link that signs in once.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LinkView {
    /// Address with the code in its fragment.
    url: String,
    /// Expiry, RFC 3339 in UTC.
    expires_at: String,
}

/// Handles `POST /api/console/links`.
pub(super) async fn post_link(context: RequestContext<App>, (): ()) -> HandlerResult {
    let RequestContext { state, head, body, .. } = context;
    let console = console(&state)?;
    let input: LinkInput = body.read_json(&head.headers).await?;
    let mut new = NewConsoleCode::new(input.company_id, input.user_id);
    new.ttl = input.ttl_ms.map_or(new.ttl, Duration::from_millis);
    new.session_idle = input.session_ms.map_or(new.session_idle, Duration::from_millis);
    let code = console.auth.sessions.create_code(new).await.map_err(code_error)?;
    let url = console_link(&console.public_url, code.text.expose());
    response::json(StatusCode::CREATED, &LinkView { url, expires_at: utc_time(code.expires_at) })
}

fn code_error(error: ConsoleError) -> HttpError {
    match error {
        ConsoleError::Store(error) => error.into(),
        ConsoleError::Random(_) => HttpError::internal(error),
        error => HttpError::new(Code::InvalidRequest, error.to_string()),
    }
}

/// Body of `POST /api/console/session`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SignInInput {
    /// The code of a link.
    code: String,
}

/// Handles `POST /api/console/session`.
pub(super) async fn post_session(context: RequestContext<App>, (): ()) -> HandlerResult {
    let RequestContext { state, head, body, .. } = context;
    let console = console(&state)?;
    console.auth.check_host(&head.headers)?;
    check_site(&head, state.auth.own_origin_of(&head.headers))?;
    let (body, _permit) = state.bounds.anonymous_bodies.admit(&head, body)?;
    let input: SignInInput = body.read_json(&head.headers).await?;
    match console.auth.sessions.open(&input.code).await {
        Ok(opened) => {
            tracing::info!(user = %opened.session.user_id, company = %opened.session.company_id, "console sign-in");
            Ok(with_cookie(resource::no_content(), &console.auth.set_cookie(opened.text.expose())))
        }
        Err(ConsoleError::Store(error)) => Err(error.into()),
        Err(ConsoleError::Random(error)) => Err(HttpError::internal(error)),
        Err(_) => Err(HttpError::unauthenticated("the code is unknown, used or expired")),
    }
}

/// The signed-in user, and the features of the page.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SessionView {
    user_id: UserId,
    company_id: CompanyId,
    /// The user's roles in the company.
    roles: [CompanyRole; 1],
    /// End of the console's session, unless a request extends it; RFC 3339 in UTC. Absent for other sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// Version of the application.
    version: &'static str,
    /// Features that this application has.
    features: Vec<&'static str>,
}

/// Handles `GET /api/console/session` of an application with these routes.
pub(super) async fn get_session(
    context: RequestContext<App>,
    principal: Principal,
    routes: &[&str],
) -> HandlerResult {
    let app = &context.state;
    let Principal { user_id, company_id, .. } = principal;
    let role = get_company_role(&*app.records, &company_id, &user_id).await?;
    let session = match own_session(app, &context.head.headers)? {
        Some(text) => console(app)?.auth.sessions.find(text).await.ok(),
        None => None,
    };
    let expires_at = session.map(|session| utc_time(session.expires_at));
    let (version, features) = (env!("CARGO_PKG_VERSION"), features(app, routes));
    response::json(
        StatusCode::OK,
        &SessionView { user_id, company_id, roles: [role], expires_at, version, features },
    )
}

/// Handles `DELETE /api/console/session`.
pub(super) async fn delete_session(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, .. } = context;
    let auth = &console(&state)?.auth;
    let ends_all = match Query::from_uri(&head.uri).get("all")? {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(HttpError::invalid("all", "must be true or false")),
    };
    if ends_all {
        auth.sessions.revoke_all(&principal.company_id, &principal.user_id).await?;
    }
    if let Some(text) = own_session(&state, &head.headers)? {
        auth.sessions.revoke(text).await?;
    }
    Ok(with_cookie(resource::no_content(), &auth.set_cookie("")))
}

/// Returns the text of the console's cookie.
fn own_session<'h>(app: &App, headers: &'h HeaderMap) -> Result<Option<&'h str>, HttpError> {
    Ok(console(app)?.auth.cookie(headers)?)
}

/// Returns the features of this application.
fn features(app: &App, routes: &[&str]) -> Vec<&'static str> {
    let is_on = |feature: &str| match feature {
        "threads" | "runCancel" | "runEvents" | "approvals" => app.conversations.is_on(),
        "jobs" => app.pulse.client().is_ok(),
        _ => true,
    };
    let mut features: Vec<&str> = FEATURES
        .into_iter()
        .filter(|(feature, route)| routes.contains(route) && is_on(feature))
        .map(|(feature, _)| feature)
        .collect();
    if app.coding.tokens().is_ok() {
        features.push("subscription");
    }
    features
}

fn with_cookie<B>(mut response: Response<B>, cookie: &str) -> Response<B> {
    let mut value = HeaderValue::from_str(cookie).expect("a cookie of printable ASCII");
    value.set_sensitive(true);
    response.headers_mut().insert(SET_COOKIE, value);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub(super) fn describe_page(_: &mut Schemas) -> Operation {
    let page = json!({"description": "The page.", "content": {"text/html": {"schema": string_schema()}}});
    operation("getConsole", "Returns the console's page. Absent with `CONSOLE=off`.")
        .conditional_read()
        .response(200, page)
        .problems(&[Code::NotFound, Code::MisdirectedRequest])
}

pub(super) fn describe_asset(_: &mut Schemas) -> Operation {
    let types = ["text/css", "text/javascript", "image/svg+xml"];
    let content: serde_json::Map<_, _> =
        types.into_iter().map(|name| (name.to_owned(), json!({"schema": string_schema()}))).collect();
    operation("getConsoleAsset", "Returns a file of the console's page, which never changes under its path.")
        .conditional_read()
        .response(200, json!({"description": "The file.", "content": content}))
        .problems(&[Code::NotFound, Code::MisdirectedRequest])
}

pub(super) fn describe_post_link(schemas: &mut Schemas) -> Operation {
    let link = schemas.schema_for::<LinkView>();
    operation("createConsoleLink", "Creates a link that signs a user in to the console, once.")
        .describe("For a product's backend, which redirects its user to the link.")
        .body(schemas.schema_for::<LinkInput>())
        .json_response(201, "The link.", link)
        .problems(&[Code::NotFound])
}

pub(super) fn describe_post_session(schemas: &mut Schemas) -> Operation {
    operation("signInToConsole", "Exchanges a link's code for a session in a cookie.")
        .describe("The request must have the application's own `Origin`.")
        .body(schemas.schema_for::<SignInInput>())
        .empty_response(204, "Signed in; `Set-Cookie` has the session.")
        .problems(&[
            Code::Unauthenticated,
            Code::Forbidden,
            Code::NotFound,
            Code::MisdirectedRequest,
            Code::RateLimited,
            Code::StoreUnavailable,
        ])
}

pub(super) fn describe_get_session(schemas: &mut Schemas) -> Operation {
    let view = schemas.schema_for::<SessionView>();
    operation("getConsoleSession", "Returns the signed-in user, and the features of the application.")
        .json_response(200, "The user.", view)
        .problems(&[Code::NotFound, Code::MisdirectedRequest])
}

pub(super) fn describe_delete_session(_: &mut Schemas) -> Operation {
    let all = json!({"type": "boolean", "default": false});
    operation("signOutOfConsole", "Ends the session of the cookie.")
        .parameter("query", "all", "Ends all of the user's sessions of the console.", all)
        .empty_response(204, "The session is ended, from the next request on.")
        .problems(&[Code::InvalidRequest, Code::NotFound, Code::MisdirectedRequest, Code::RateLimited])
}

fn operation(id: &str, summary: &str) -> Operation {
    Operation::new(id, TAG, summary)
}
