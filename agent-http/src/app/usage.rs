//! `/api/usage`, the usage and cost of model calls, and `/api/limits`.

use std::collections::BTreeSet;

use agent_core::ids::{AgentId, RunId, UserId};
use agent_core::request::Principal;
use agent_platform::usage::{
    DEFAULT_PAGE_ROWS, MAX_PAGE_ROWS, MAX_QUERY_DAYS, RunEntries, RunOwner, UsageCursor, UsageEntry,
    UsageFilter, UsageQuery, UsageSums, sums_of,
};
use agent_platform::workspace::utc_time;
use http::StatusCode;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde_json::{Map, Value, json};

use super::budgets::own_limits;
use super::ownership::is_admin;
use super::usage_docs::CURRENCY;
use super::{App, response};
use crate::endpoint::RequestContext;
use crate::error::HttpError;
use crate::request::Query;
use crate::service::HandlerResult;

/// Default number of days before the last one that a query covers.
const DEFAULT_DAYS: i32 = 30;

/// Handles `GET /api/usage`.
pub(super) async fn list(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state: app, head, .. } = context;
    let query = Query::from_uri(&head.uri);
    let now = app.usage.recorder.now();
    let group_by = UsageQuery::parse_dimensions(query.get("groupBy")?.unwrap_or_default())
        .map_err(|error| HttpError::invalid("groupBy", error))?;
    let after = query.get("cursor")?.map(|cursor| UsageCursor::parse(cursor, group_by.len()));
    let after = after.transpose().map_err(|error| HttpError::invalid("cursor", error))?;
    let limit = limit(&query)?;
    let filter = restrict_to_caller(&app, &principal, read_filter(&query, now)?).await?;
    let usage_query = UsageQuery { filter, group_by, after, limit };
    let page = app.usage.read().await.usage(&principal.company_id, &usage_query).await?;
    let rows: Vec<Value> = page
        .rows
        .into_iter()
        .map(|row| {
            let mut members = sums_json(&row.sums);
            for (dimension, value) in usage_query.group_by.iter().zip(row.group) {
                members.insert(dimension.member().to_owned(), value.into());
            }
            members.into()
        })
        .collect();
    let mut body = json!({"currency": CURRENCY, "asOf": utc_time(now), "rows": rows});
    if let Some(cursor) = page.next_cursor {
        body["nextCursor"] = cursor.into();
    }
    response::json(StatusCode::OK, &body)
}

/// Handles `GET /api/usage/runs/{runId}`.
pub(super) async fn get_run(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state: app, params, .. } = context;
    let run: RunId = params.get("runId")?.into();
    let RunEntries { entries, truncated } = visible_run(&app, &principal, &run).await?;
    let Some(first) = entries.first() else { return Err(HttpError::not_found()) };
    let mut body = sums_json(&sums_of(&entries));
    body.remove("runs");
    body.insert("currency".to_owned(), CURRENCY.into());
    body.insert("runId".to_owned(), run.as_str().into());
    body.insert("agentId".to_owned(), first.scope.agent_id.as_str().into());
    body.insert("userId".to_owned(), first.scope.user_id.as_str().into());
    body.insert("caller".to_owned(), json!(first.scope.caller));
    let calls = entries.iter().filter(|entry| entry.is_model_call()).map(call_json);
    body.insert("entries".to_owned(), calls.collect());
    if truncated {
        body.insert("truncated".to_owned(), true.into());
    }
    response::json(StatusCode::OK, &body)
}

/// Handles `GET /api/limits`.
pub(super) async fn get_limits(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let app = context.state;
    let limits = app.rate_limiter.session_state(&principal).await?;
    let now = app.usage.recorder.now();
    let mut limits: Vec<Value> = limits
        .into_iter()
        .map(|(unit, state)| {
            let resets_at = utc_time(state.resets_at(now));
            json!({
                "policy": "minute",
                "kind": "user",
                "unit": unit,
                "window": "minute",
                "amount": state.limit,
                "used": state.used,
                "reserved": 0,
                "resetsAt": resets_at,
            })
        })
        .collect();
    limits.extend(own_limits(&app, &principal).await?);
    response::json(StatusCode::OK, &json!({"asOf": utc_time(now), "limits": limits}))
}

fn limit(query: &Query<'_>) -> Result<usize, HttpError> {
    let Some(text) = query.get("limit")? else { return Ok(DEFAULT_PAGE_ROWS) };
    let number = text.parse().ok().filter(|limit| (1..=MAX_PAGE_ROWS).contains(limit));
    number.ok_or_else(|| {
        HttpError::invalid("limit", format_args!("must be a whole number from 1 to {MAX_PAGE_ROWS}"))
    })
}

/// Reads the days, the agent and the user.
fn read_filter(query: &Query<'_>, now: Timestamp) -> Result<UsageFilter, HttpError> {
    let date = |name: &str| {
        let parse = |text: &str| {
            let invalid = || HttpError::invalid(name, "must be a date such as 2026-01-31");
            // The parser accepts further forms, which are not documented.
            let is_plain = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
            text.parse::<Date>().ok().filter(|_| is_plain).ok_or_else(invalid)
        };
        query.get(name)?.map(parse).transpose()
    };
    let to = date("to")?.unwrap_or_else(|| TimeZone::UTC.to_datetime(now).date());
    let from = date("from")?.unwrap_or_else(|| to.saturating_sub(DEFAULT_DAYS.days()));
    if from > to {
        return Err(HttpError::invalid("from", "must not be after \"to\""));
    }
    if from < to.saturating_sub(MAX_QUERY_DAYS.days()) {
        return Err(HttpError::invalid(
            "from",
            format_args!("must be at most {MAX_QUERY_DAYS} days before \"to\""),
        ));
    }
    let text = |name: &str| Ok::<_, HttpError>(query.get(name)?.filter(|value| !value.is_empty()));
    Ok(UsageFilter {
        from,
        to,
        agent: text("agentId")?.map(AgentId::from),
        user: text("userId")?.map(UserId::from),
    })
}

/// Restricts a query to the entries that the caller may see: all of the company for its admins, all of an agent for its owner, and
/// the caller's own usage.
async fn restrict_to_caller(
    app: &App,
    principal: &Principal,
    mut filter: UsageFilter,
) -> Result<UsageFilter, HttpError> {
    if filter.user.as_ref() == Some(&principal.user_id) || is_admin(app, principal).await? {
        return Ok(filter);
    }
    if let Some(agent) = &filter.agent
        && owns_agent(app, principal, agent).await?
    {
        return Ok(filter);
    }
    match filter.user {
        Some(_) => Err(HttpError::forbidden(
            "only an admin of the company or the owner of the agent may see the usage of another user",
        )),
        None => {
            filter.user = Some(principal.user_id.clone());
            Ok(filter)
        }
    }
}

/// Returns the entries of a run that the caller may see: the caller's own run with the id, or else the first run of another user.
/// A run id is unique per user or visitor only, so several runs may have it.
async fn visible_run(app: &App, principal: &Principal, run: &RunId) -> Result<RunEntries, HttpError> {
    let (store, company) = (app.usage.read().await, &principal.company_id);
    let own = RunOwner { user_id: principal.user_id.clone(), visitor: None, agent_id: None };
    let found = store.run_entries(company, run, Some(&own)).await?;
    if !found.entries.is_empty() {
        return Ok(found);
    }
    let is_admin = is_admin(app, principal).await?;
    let mut looked_up = BTreeSet::new();
    for scope in store.run_scopes(company, run).await? {
        let is_visible = is_admin
            || looked_up.insert(scope.agent_id.clone())
                && owns_agent(app, principal, &scope.agent_id).await?;
        if is_visible {
            let agent_id = (!is_admin).then_some(scope.agent_id);
            let owner = RunOwner { user_id: scope.user_id, visitor: scope.visitor, agent_id };
            return Ok(store.run_entries(company, run, Some(&owner)).await?);
        }
    }
    Ok(RunEntries::default())
}

async fn owns_agent(app: &App, principal: &Principal, agent: &AgentId) -> Result<bool, HttpError> {
    let role = app.roles.masked_role(&principal.company_id, agent).await?;
    Ok(role.is_some_and(|role| role.value.owner_id == principal.user_id))
}

fn sums_json(sums: &UsageSums) -> Map<String, Value> {
    let UsageSums { runs, calls, tokens, tool_calls, cost, estimated_cost, unpriced_calls } = sums;
    let mut members = match json!(tokens) {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    for (name, count) in
        [("runs", runs), ("calls", calls), ("toolCalls", tool_calls), ("unpricedCalls", unpriced_calls)]
    {
        members.insert(name.to_owned(), (*count).into());
    }
    members.insert("cost".to_owned(), cost.to_string().into());
    members.insert("estimatedCost".to_owned(), estimated_cost.to_string().into());
    members
}

/// Returns a call of a model, whose run's members are not repeated.
fn call_json(entry: &UsageEntry) -> Value {
    let mut call = json!(entry.tokens);
    call["round"] = entry.round.into();
    call["attempt"] = entry.attempt.into();
    call["operation"] = entry.operation.as_str().into();
    call["provider"] = entry.provider.as_str().into();
    call["model"] = entry.model.as_str().into();
    call["cost"] = entry.cost.map(|cost| cost.to_string()).into();
    call["estimated"] = entry.estimated.into();
    call["outcome"] = entry.outcome.as_str().into();
    call["endedAt"] = utc_time(entry.ended_at).into();
    if let Some(as_of) = &entry.price_as_of {
        call["priceAsOf"] = as_of.as_str().into();
    }
    call
}
