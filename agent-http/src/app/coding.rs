//! `/api/coding`: the sign-in of a user to the user's subscription, by which agents with a subscription answer that user.
//!
//! The routes need a session. Codes and tokens are the user's own: nothing here reads those of another user, and no
//! response contains a token.

use std::sync::Arc;
use std::time::Duration;

use agent_core::request::Principal;
use agent_platform::coding::{
    BegunSignIn, MAX_SIGN_INS_PER_HOUR, SignInError, SignInStatus, SignInView, SubscriptionLimits,
    SubscriptionState, SubscriptionStatus,
};
use agent_platform::records::StoreError;
use agent_platform::workspace::utc_time;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::{App, resource, response};
use crate::endpoint::{Operation, RequestContext, Schemas};
use crate::error::{Code, HttpError, RatePolicy};
use crate::service::HandlerResult;

/// Tag of the operations.
pub(super) const TAG: &str = "coding";

/// Warning for the page that shows the code. A user who enters a code that another person has sent signs that person
/// in to the user's subscription.
const NOTICE: &str = "Enter this code only if you asked for it yourself, here, a moment ago. It lets this service use \
                      your subscription until you sign out.";

const HOUR: Duration = Duration::from_secs(60 * 60);

/// A sign-in that the user can confirm.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct BegunSignInView {
    /// Identifier of the sign-in.
    sign_in_id: String,
    /// Code that the user enters at `verificationUri`, after comparing it with the one shown here.
    user_code: String,
    /// Page of the issuer.
    verification_uri: String,
    /// Remaining lifetime in seconds.
    expires_in: u64,
    /// Minimum interval in seconds between two changes of the status.
    interval: u64,
    /// Text to show with the code.
    notice: &'static str,
}

impl From<BegunSignIn> for BegunSignInView {
    fn from(sign_in: BegunSignIn) -> Self {
        Self {
            sign_in_id: sign_in.id,
            user_code: sign_in.user_code.expose().to_owned(),
            verification_uri: sign_in.verification_uri,
            expires_in: sign_in.expires_in.as_secs(),
            interval: sign_in.interval.as_secs(),
            notice: NOTICE,
        }
    }
}

/// Status of a sign-in.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SignInStatusView {
    /// The status.
    status: SignInStatus,
    /// Reason of `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// Remaining lifetime of `pending` in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in: Option<u64>,
}

impl From<SignInView> for SignInStatusView {
    fn from(SignInView { status, code, expires_in }: SignInView) -> Self {
        Self { status, code, expires_in: expires_in.map(|lifetime| lifetime.as_secs()) }
    }
}

/// The caller's subscription.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SubscriptionView {
    /// True if the caller is signed in.
    signed_in: bool,
    /// State of the sign-in.
    state: SubscriptionState,
    /// Name of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<String>,
    /// The last characters of the account's identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<String>,
    /// Expiry of the access token, RFC 3339 in UTC. It is renewed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// Time of the latest renewal or sign-in, RFC 3339 in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    refreshed_at: Option<String>,
    /// The vendor's limits, as of its latest answer through this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<SubscriptionLimits>,
}

impl From<SubscriptionStatus> for SubscriptionView {
    fn from(status: SubscriptionStatus) -> Self {
        Self {
            signed_in: status.is_signed_in,
            state: status.state,
            plan: status.plan,
            account: status.account_end.map(|end| format!("…{end}")),
            expires_at: status.expires_at.map(utc_time),
            refreshed_at: status.refreshed_at.map(utc_time),
            limits: status.limits,
        }
    }
}

pub(super) async fn begin(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let (sign_ins, _) = context.state.coding.open()?;
    let sign_in = sign_ins.begin(&principal.company_id, &principal.user_id).await.map_err(sign_in_error)?;
    let status = if sign_in.is_new { StatusCode::CREATED } else { StatusCode::OK };
    response::json(status, &BegunSignInView::from(sign_in))
}

pub(super) async fn status(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let (sign_ins, _) = context.state.coding.open()?;
    let id = context.params.get("id")?;
    let status = sign_ins.status(&principal.company_id, &principal.user_id, id).await;
    response::json(StatusCode::OK, &SignInStatusView::from(status.map_err(sign_in_error)?))
}

pub(super) async fn cancel(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let (sign_ins, _) = context.state.coding.open()?;
    let id = context.params.get("id")?;
    sign_ins.cancel(&principal.company_id, &principal.user_id, id).await.map_err(sign_in_error)?;
    Ok(resource::no_content())
}

pub(super) async fn sign_out(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let (_, tokens) = context.state.coding.open()?;
    tokens.sign_out(&principal.company_id, &principal.user_id).await?;
    Ok(resource::no_content())
}

pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let (_, tokens) = context.state.coding.open()?;
    let status = tokens.status(&principal.company_id, &principal.user_id).await?;
    response::json(StatusCode::OK, &SubscriptionView::from(status))
}

fn sign_in_error(error: SignInError) -> HttpError {
    match error {
        SignInError::NotFound => HttpError::not_found(),
        SignInError::TooMany { retry_after } => {
            let policy =
                RatePolicy { name: "hour".into(), quota: MAX_SIGN_INS_PER_HOUR.into(), window: Some(HOUR) };
            HttpError::with_limit(policy, retry_after)
        }
        SignInError::Issuer(error) => error.to_agent_error().into(),
        SignInError::Busy => HttpError::new(Code::BackendTimeout, error.to_string()),
        SignInError::Store(error) => store_error(error),
        error => HttpError::internal(error),
    }
}

/// Converts an error of the store that several callers of a task share.
fn store_error(error: Arc<StoreError>) -> HttpError {
    match Arc::try_unwrap(error) {
        Ok(error) => error.into(),
        Err(shared) => match &*shared {
            StoreError::Unavailable(_) => StoreError::unavailable(shared.clone()).into(),
            StoreError::NotConfigured(setting) => HttpError::not_configured(setting),
            _ => HttpError::internal(shared),
        },
    }
}

pub(super) fn describe_begin(schemas: &mut Schemas) -> Operation {
    let view = schemas.schema_for::<BegunSignInView>();
    operation("beginSubscriptionSignIn", "Begins a sign-in to the caller's own subscription.")
        .describe("The user enters the code at the issuer's page. The service polls the issuer until then.")
        .json_response(200, "The code of a sign-in that was already open.", view.clone())
        .json_response(201, "The sign-in has started.", view)
        .problems(&[Code::RateLimited, Code::BackendFailed, Code::BackendTimeout])
}

pub(super) fn describe_status(schemas: &mut Schemas) -> Operation {
    let status = schemas.schema_for::<SignInStatusView>();
    operation("getSubscriptionSignIn", "Returns the status of a sign-in.")
        .json_response(200, "The status. A final status is available for an hour.", status)
        .problems(&[Code::NotFound, Code::BackendTimeout])
}

pub(super) fn describe_cancel(_: &mut Schemas) -> Operation {
    operation("cancelSubscriptionSignIn", "Cancels a sign-in.")
        .empty_response(204, "The sign-in was cancelled; the issuer is no longer polled.")
        .problems(&[Code::NotFound])
}

pub(super) fn describe_sign_out(_: &mut Schemas) -> Operation {
    operation(
        "signOutOfSubscription",
        "Deletes the tokens of the caller's subscription, then revokes them at the issuer.",
    )
    .empty_response(204, "The tokens were deleted.")
}

pub(super) fn describe_get(schemas: &mut Schemas) -> Operation {
    let view = schemas.schema_for::<SubscriptionView>();
    operation("getSubscription", "Returns the state of the caller's subscription.").json_response(
        200,
        "The state, without tokens.",
        view,
    )
}

fn operation(id: &str, summary: &str) -> Operation {
    Operation::new(id, TAG, summary)
}
