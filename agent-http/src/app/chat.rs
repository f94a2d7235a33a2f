//! `POST /api/agent/chat`: the canonical entry.

use agent_core::event::EventStream;
use agent_core::history::{self, ChatInput};
use agent_core::tool::Caller;
use agent_core::turn::{Principal, TurnRequest, run_turn};
use http::Request;

use super::App;
use crate::auth::{AuthError, Credential};
use crate::error::HttpError;
use crate::request::{Handled, Query, read_json_bytes};
use crate::serve::Body;
use crate::stream::{self, negotiate};

pub(super) const PATH: &str = "/api/agent/chat";

pub(super) async fn post(app: &App, request: Request<Body>) -> Handled {
    let (head, body) = request.into_parts();
    let query = Query::of(&head.uri);
    let framing = negotiate(&head.headers, query.get("format")?)?;
    let credential = app.auth.authenticate(&head, &query)?;
    let bytes = read_json_bytes(&head.headers, body, &app.body).await?;
    let parsed = history::Body::parse(&bytes, app.json_depth)?;
    let input = history::read(&parsed, query.pairs())?;
    let (principal, turn) = admit(credential, input)?;
    drop(bytes);
    let events = start(app, &principal, turn).await?;
    stream::answer(framing, events, &app.stream).await
}

/// Holds what the body says against what the credential says.
fn admit(credential: Credential, input: ChatInput) -> Result<(Principal, TurnRequest), HttpError> {
    if input.widget_token.is_some() {
        return Err(AuthError::Ambiguous.into());
    }
    let mut turn = input.turn;
    let principal = match credential {
        Credential::Session(principal) => principal,
        Credential::Proactive { reason } => {
            turn.trigger = Some(reason);
            Principal {
                user_id: input.user_id.clone().ok_or_else(|| HttpError::invalid("userId", "is missing"))?,
                company_id: input
                    .company_id
                    .clone()
                    .ok_or_else(|| HttpError::invalid("companyId", "is missing"))?,
                caller: Caller::Proactive,
                agent_id: None,
            }
        }
    };
    let disagrees = |said: &Option<String>, is: &str| said.as_deref().is_some_and(|said| said != is);
    if disagrees(&input.user_id, &principal.user_id) || disagrees(&input.company_id, &principal.company_id) {
        return Err(HttpError::forbidden("userId and companyId come from the credential"));
    }
    if turn.agent_id.is_empty() {
        return Err(HttpError::invalid("agentId", "is missing"));
    }
    Ok((principal, turn))
}

/// Names the run and starts it. A name is used up once the backend has accepted the run.
async fn start(app: &App, principal: &Principal, mut turn: TurnRequest) -> Result<EventStream, HttpError> {
    if turn.thread_id.is_empty() {
        turn.thread_id = agent_core::new_id();
    }
    if turn.run_id.is_empty() {
        turn.run_id = agent_core::new_id();
        return Ok(run_turn(&app.platform, principal, turn).await?);
    }
    let claim = app.runs.claim(&principal.user_id, &turn.run_id);
    let claim = claim.ok_or_else(|| HttpError::conflict("this runId has been used"))?;
    let events = run_turn(&app.platform, principal, turn).await?;
    claim.keep();
    Ok(events)
}
