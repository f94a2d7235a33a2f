//! `/api/approvals`: tool calls that wait for a decision of the caller, or have waited for one.

use std::collections::{BTreeMap, HashSet};

use agent_core::ids::AgentId;
use agent_core::request::Principal;
use agent_core::tool::Caller;
use agent_platform::conversation::{
    Approval, ApprovalState, ChangeRunRequest, ChangedRun, Decision, DecisionRoute, MAX_REASON_CHARS, Run,
    RunChange, RunFilter, RunKey, RunState, ThreadOwner, Verdict, WaitingRuns, parse_approval_id,
};
use agent_platform::exact_object::ExactObject;
use agent_platform::workspace::record_decided_approval;
use http::StatusCode;
use serde::Deserialize;

use super::conversation::continue_run;
use super::threads::{OwnConversations, private, word_param};
use super::{App, response};
use crate::endpoint::RequestContext;
use crate::error::HttpError;
use crate::request::{Query, parse_json};
use crate::request_trace::RequestTrace;
use crate::service::HandlerResult;

/// Maximum number of the caller's latest runs that are searched for decided approvals, and number of open
/// approvals at which a list ends.
const MAX_LISTED_RUNS: usize = 200;
/// Maximum number of pages of the company's waiting runs that are searched for open approvals: 10,000 runs.
const MAX_SEARCHED_PAGES: usize = 50;

/// Handles `GET /api/approvals`.
pub(super) async fn list(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let conversations = OwnConversations::open(context.state, &principal)?;
    let query = Query::from_uri(&context.head.uri);
    let agent = query.get("agentId")?.map(AgentId::from);
    let state = word_param(&query, "state", ApprovalState::ALL, ApprovalState::as_str)?;
    let now = conversations.app.conversations.now();
    let is_wanted = |approval: &Approval| {
        agent.as_ref().is_none_or(|agent| *agent == approval.agent_id)
            && state.is_none_or(|state| state == approval.state)
    };
    let mut approvals = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_SEARCHED_PAGES {
        let page = waiting_runs(&conversations, &principal, cursor.as_deref()).await?;
        for (owner, run) in page.runs {
            for approval in run.at(now).approvals {
                let is_visible = owner == conversations.owner
                    || conversations.app.may_decide(&principal, &owner, &approval).await?;
                if is_visible && is_wanted(&approval) {
                    approvals.push(approval);
                }
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() || approvals.len() >= MAX_LISTED_RUNS {
            break;
        }
    }
    if state != Some(ApprovalState::Open) {
        let page = conversations
            .store
            .runs(&conversations.owner, &RunFilter::default(), None, MAX_LISTED_RUNS)
            .await?;
        let decided = page.runs.into_iter().filter(|run| run.state.is_final());
        let decided = decided.flat_map(|run| run.at(now).approvals);
        approvals.extend(decided.filter(is_wanted));
        let elsewhere = conversations.app.decided_approvals(&*conversations.store, &principal, now).await?;
        approvals.extend(elsewhere.into_iter().filter(is_wanted));
        // A run that waits for further decisions is in both lists.
        let mut listed_ids = HashSet::new();
        approvals.retain(|approval| listed_ids.insert(approval.id.clone()));
    }
    approvals.sort_by_key(|approval| std::cmp::Reverse(approval.created_at));
    // A `Value` would round the numbers of the arguments.
    private(response::json(StatusCode::OK, &BTreeMap::from([("approvals", approvals)])))
}

/// Returns a page of the runs that wait for decisions. A visitor sees only the visitor's own runs, so those of the company are
/// not read.
async fn waiting_runs(
    conversations: &OwnConversations,
    principal: &Principal,
    cursor: Option<&str>,
) -> Result<WaitingRuns, HttpError> {
    if principal.caller != Caller::Widget {
        return Ok(conversations.store.waiting_runs(&principal.company_id, cursor).await?);
    }
    let filter = RunFilter { state: Some(RunState::Waiting), ..RunFilter::default() };
    let page = conversations.store.runs(&conversations.owner, &filter, None, MAX_LISTED_RUNS).await?;
    let runs = page.runs.into_iter().map(|run| (conversations.owner.clone(), run));
    Ok(WaitingRuns { runs: runs.collect(), next_cursor: None })
}

/// Handles `GET /api/approvals/{id}`.
pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let conversations = OwnConversations::open(context.state, &principal)?;
    let found = FoundApproval::load(&conversations, &principal, context.params.get("id")?).await?;
    let approval = found.approval.at(conversations.app.conversations.now());
    private(response::json(StatusCode::OK, &approval))
}

/// Handles `POST /api/approvals/{id}`.
pub(super) async fn decide(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, params, body, head, .. } = context;
    let conversations = OwnConversations::open(state, &principal)?;
    let found = FoundApproval::load(&conversations, &principal, params.get("id")?).await?;
    let bytes = body.read_json_bytes(&head.headers).await?;
    let decision_body: DecisionBody = parse_json(&bytes, conversations.app.base.json_depth)?;
    if !found.may_decide {
        return Err(HttpError::forbidden("another person decides about this call"));
    }
    let verdict = decision_body.into_verdict()?;
    conversations.app.check_verdict(&principal, &found.approval, &verdict).await?;
    let decision = Decision {
        approval: found.approval.id.clone(),
        verdict,
        by: principal.user_id.clone(),
        via: DecisionRoute::Approvals,
    };
    let now = conversations.app.conversations.now();
    // Before the decision, which the list would not have if this process ended in between.
    if found.owner != conversations.owner && found.approval.state == ApprovalState::Open {
        let person = (&principal.company_id, &principal.user_id);
        record_decided_approval(&*conversations.app.records, person, &found.approval.id).await?;
    }
    let run = RunKey { owner: found.owner.clone(), id: found.run.id.clone() };
    let change = RunChange::Decide(decision.clone());
    let ChangedRun { run, is_changed } =
        conversations.store.change_run(ChangeRunRequest { run, change, now }).await?;
    // The same decision again changes nothing.
    if is_changed {
        conversations.app.record_decision(&found.owner, &found.approval, &decision);
    }
    let approval = run.approvals.iter().find(|approval| approval.id == found.approval.id).cloned();
    if let Err(error) =
        continue_run(&conversations.app, &found.owner, &run, RequestTrace::of(&head).context()).await
    {
        // The decision is stored, and the thread's next message continues the run.
        tracing::warn!(run_id = %run.id, error = %error.detail(), "failed to continue a decided run; the next message continues it");
    }
    private(response::json(StatusCode::OK, &approval.ok_or_else(HttpError::not_found)?))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DecisionBody {
    decision: DecisionKind,
    #[serde(default)]
    arguments: Option<ExactObject>,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum DecisionKind {
    Approve,
    Deny,
    Cancel,
}

impl DecisionBody {
    fn into_verdict(self) -> Result<Verdict, HttpError> {
        let Self { decision, arguments, reason } = self;
        if arguments.is_some() && decision != DecisionKind::Approve {
            return Err(HttpError::invalid("arguments", "are allowed only if decision is approve"));
        }
        if reason.as_ref().is_some_and(|reason| reason.chars().count() > MAX_REASON_CHARS) {
            return Err(HttpError::invalid("reason", "has more than 2000 characters"));
        }
        Ok(match decision {
            DecisionKind::Approve => Verdict::Approve { arguments },
            DecisionKind::Deny => Verdict::Deny { reason },
            DecisionKind::Cancel => Verdict::Cancel,
        })
    }
}

/// An approval that the caller may see.
struct FoundApproval {
    owner: ThreadOwner,
    run: Run,
    approval: Approval,
    may_decide: bool,
}

impl FoundApproval {
    /// Finds an approval.
    ///
    /// # Errors
    /// 404 for an approval that does not exist, or that is neither in a thread of the caller nor for the caller to decide.
    async fn load(
        conversations: &OwnConversations,
        principal: &Principal,
        id: &str,
    ) -> Result<Self, HttpError> {
        let (owner, run) = parse_approval_id(id).ok_or_else(HttpError::not_found)?;
        let owner = ThreadOwner::new(principal.company_id.clone(), owner);
        owner.thread(&*run).check().map_err(|_| HttpError::not_found())?;
        let run = conversations.store.run(&owner, &run).await?.ok_or_else(HttpError::not_found)?;
        let approval = run.approvals.iter().find(|approval| approval.id == id).cloned();
        let approval = approval.ok_or_else(HttpError::not_found)?;
        let may_decide = conversations.app.may_decide(principal, &owner, &approval).await?;
        match may_decide || owner == conversations.owner {
            true => Ok(Self { owner, run, approval, may_decide }),
            false => Err(HttpError::not_found()),
        }
    }
}
