//! `/api/budgets/{kind}/{id}`: limits on the usage of a company, an agent, a user, a token or a run.
//!
//! An admin of the company manages its budgets, except that of the company itself, which the operator sets on the command
//! line (`agentd budget`), with the time zone of all of them.

use std::sync::Arc;

use agent_core::ids::CompanyId;
use agent_core::request::Principal;
use agent_platform::records::{ListQuery, Precondition, StoreError};
use agent_platform::usage::{Budget, BudgetKind, BudgetStatus, BudgetUnit, Budgets, LimitStatus, MAX_LIMITS};
use agent_platform::workspace::utc_time;
use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::App;
use super::ownership::{check_admin, is_admin};
use super::price_check::check_prices;
use super::resource::{IdOrigin, Listing, Resource, Versioned, check_quota, set_or_check_id};
use super::thread_docs::object;
use crate::endpoint::{Operation, Params, Schemas, string_schema};
use crate::error::{Code, HttpError};

/// Tag of the operations.
const TAG: &str = "usage";
/// Maximum number of budgets of a company.
const MAX_BUDGETS: u64 = 10_000;

/// Budgets of a company: of one kind for operations on a budget, of all kinds for the list.
pub(super) struct CompanyBudgets {
    app: Arc<App>,
    budgets: Budgets,
    company: CompanyId,
    kind: Option<BudgetKind>,
}

#[async_trait]
impl Listing for CompanyBudgets {
    type Page = Value;

    async fn open(app: Arc<App>, principal: Principal, params: &Params) -> Result<Self, HttpError> {
        check_admin(&app, &principal).await?;
        let kind = params.get("kind").ok().map(str::parse).transpose();
        let kind = kind.map_err(|error| HttpError::invalid("kind", error))?;
        let budgets = app.usage.budgets()?.clone();
        Ok(Self { app, budgets, company: principal.company_id, kind })
    }

    async fn page(&self, list: ListQuery) -> Result<Value, HttpError> {
        let page = self.budgets.list(&self.company, &list).await?;
        let mut views = Vec::with_capacity(page.records.len());
        for record in page.records {
            let Some((kind, id)) = Budgets::subject(&record.id) else { continue };
            views.push(self.view(kind, id, &record.value).await?);
        }
        let mut body = json!({ "budgets": views });
        if let Some(cursor) = page.next_cursor {
            body["nextCursor"] = cursor.into();
        }
        Ok(body)
    }
}

#[async_trait]
impl Resource for CompanyBudgets {
    type Input = Budget;
    type View = Value;

    async fn load(&self, id: &str) -> Result<Versioned<Value>, HttpError> {
        let kind = self.kind_of(id)?;
        let record = self.budgets.get(&self.company, kind, id).await?.ok_or_else(HttpError::not_found)?;
        Ok(Versioned { version: record.version, value: self.view(kind, id, &record.value).await? })
    }

    async fn authorize_put(&self, id: &str) -> Result<(), HttpError> {
        self.writable_kind(id).map(drop)
    }

    async fn validate(&self, id: &str, mut body: Map<String, Value>) -> Result<Budget, HttpError> {
        let kind = self.kind_of(id)?;
        for (name, own) in [("kind", kind.as_str()), ("id", id)] {
            set_or_check_id(&mut body, name, own, IdOrigin::Path)?;
            body.remove(name);
        }
        let budget = Budget::read(kind, &body);
        let budget = budget.map_err(|error| HttpError::invalid(&error.path, error.message))?;
        if kind.is_of_agent() && budget.limits_cost() {
            let role = self.app.roles.masked_role(&self.company, &id.into()).await?;
            if let Some(role) = role {
                check_prices(&self.app, role.value).await?;
            }
        }
        Ok(budget)
    }

    async fn version_for_put(&self, id: &str) -> Result<Option<u64>, HttpError> {
        let record = self.budgets.get(&self.company, self.kind_of(id)?, id).await?;
        Ok(record.map(|record| record.version))
    }

    async fn prepare_create(&self, id: &str) -> Result<(), HttpError> {
        // The budget of an agent that was deleted can still be replaced.
        if self.kind.is_some_and(BudgetKind::is_of_agent)
            && self.app.roles.masked_role(&self.company, &id.into()).await?.is_none()
        {
            return Err(HttpError::invalid("id", "names no agent of the company"));
        }
        check_quota("budgets", self.budgets.count(&self.company).await?, MAX_BUDGETS)
    }

    async fn store(&self, id: &str, budget: &Budget, condition: Precondition) -> Result<u64, StoreError> {
        let kind = self.kind.unwrap_or(BudgetKind::Company);
        if condition == Precondition::Absent {
            return self.budgets.create(&self.company, (kind, id), budget, MAX_BUDGETS).await;
        }
        self.budgets.put(&self.company, (kind, id), budget, condition).await
    }

    async fn stored(
        &self,
        id: &str,
        budget: Budget,
        version: u64,
        _: bool,
    ) -> Result<Versioned<Value>, HttpError> {
        Ok(Versioned { version, value: self.view(self.kind_of(id)?, id, &budget).await? })
    }

    async fn version_for_delete(&self, id: &str) -> Result<u64, HttpError> {
        let kind = self.writable_kind(id)?;
        let record = self.budgets.get(&self.company, kind, id).await?.ok_or_else(HttpError::not_found)?;
        Ok(record.version)
    }

    async fn remove(&self, id: &str, condition: Precondition) -> Result<bool, StoreError> {
        let kind = self.kind.unwrap_or(BudgetKind::Company);
        self.budgets.delete(&self.company, (kind, id), condition).await
    }

    async fn removed(&self, _: &str) -> Result<(), HttpError> {
        Ok(())
    }
}

impl CompanyBudgets {
    /// Returns the kind in the path; 404 for another company.
    fn kind_of(&self, id: &str) -> Result<BudgetKind, HttpError> {
        match self.kind {
            Some(BudgetKind::Company) if id != self.company.as_str() => Err(HttpError::not_found()),
            kind => kind.ok_or_else(HttpError::not_found),
        }
    }

    fn writable_kind(&self, id: &str) -> Result<BudgetKind, HttpError> {
        match self.kind_of(id)? {
            BudgetKind::Company => {
                Err(HttpError::forbidden("the operator sets the budget of a company, with `agentd budget`"))
            }
            kind => Ok(kind),
        }
    }

    async fn view(&self, kind: BudgetKind, id: &str, budget: &Budget) -> Result<Value, HttpError> {
        let status = self.budgets.status(&self.company, (kind, id), budget).await?;
        let limits: Vec<Value> = status.limits.iter().map(|limit| limit_json(kind, limit)).collect();
        let mut view = json!({"kind": kind.as_str(), "id": id, "limits": limits});
        if let Some(zone) = &budget.timezone {
            view["timezone"] = zone.name().into();
        }
        Ok(view)
    }
}

/// Returns a limit with its state. Each run has a separate state, which is not shown.
fn limit_json(kind: BudgetKind, status: &LimitStatus) -> Value {
    let LimitStatus { limit, used, reserved, resets_at } = status;
    let mut view = json!(limit);
    if kind != BudgetKind::Run {
        view["used"] = limit.unit.amount_json(*used);
        view["reserved"] = limit.unit.amount_json(*reserved);
    }
    if let Some(end) = resets_at {
        view["resetsAt"] = utc_time(*end).into();
    }
    view
}

/// Returns the limits that the caller may see, in addition to the limits of sessions: the limits of the caller's budget, the
/// default limits of runs and, for an admin, the limits of the company.
pub(super) async fn own_limits(app: &App, principal: &Principal) -> Result<Vec<Value>, HttpError> {
    let (budgets, company) = (app.usage.budgets()?, &principal.company_id);
    let is_admin = is_admin(app, principal).await?;
    let mut subjects = vec![(BudgetKind::User, principal.user_id.as_str())];
    if is_admin {
        subjects.push((BudgetKind::Company, company.as_str()));
    }
    let mut limits = Vec::new();
    for (kind, id) in subjects {
        let Some(record) = budgets.get(company, kind, id).await? else { continue };
        let BudgetStatus { limits: states, .. } = budgets.status(company, (kind, id), &record.value).await?;
        limits.extend(states.iter().map(|status| own_limit_json("budget", kind, status)));
    }
    let defaults = budgets.default_status(company).await?.into_iter();
    let visible = defaults.filter(|(kind, _)| is_admin || *kind == BudgetKind::Run);
    limits.extend(visible.map(|(kind, status)| own_limit_json("default", kind, &status)));
    Ok(limits)
}

fn own_limit_json(policy: &str, kind: BudgetKind, status: &LimitStatus) -> Value {
    let mut limit = limit_json(kind, status);
    limit["policy"] = policy.into();
    limit["kind"] = kind.as_str().into();
    limit
}

/// Returns the schema of a limit, with its state or as it is given.
fn limit_schema(has_state: bool) -> Value {
    let amount = json!({"type": ["integer", "string"], "description":
        "A whole number; for the cost a string with a decimal number of dollars."});
    let units = [
        BudgetUnit::Cost,
        BudgetUnit::Tokens,
        BudgetUnit::Runs,
        BudgetUnit::ConcurrentRuns,
        BudgetUnit::ToolCalls,
        BudgetUnit::WallMs,
    ];
    let mut members = json!({
        "unit": {"enum": units.map(BudgetUnit::as_str)},
        "amount": amount,
        "window": {"enum": ["minute", "day", "month", "run"], "description":
            "Period; days and months are those of the company's time zone. Budgets of runs have `run`, and `concurrentRuns` has none."},
        "warnAt": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "description":
            "Part of the amount at which a warning is logged."},
    });
    if has_state {
        members["used"] = amount.clone();
        members["reserved"] = amount;
        members["resetsAt"] = json!({"type": "string", "description": "End of the period, if it has one."});
    } else {
        let mut limit = object(&["unit", "amount"], members);
        limit["additionalProperties"] = false.into();
        return limit;
    }
    object(&["unit", "amount"], members)
}

fn budget_schema() -> Value {
    let limits = json!({"type": "array", "items": limit_schema(true)});
    let timezone = json!({"type": "string", "description":
        "IANA time zone of the days and months of all budgets of the company. Allowed only in the budget of the company itself; UTC if absent."});
    object(
        &["kind", "id", "limits"],
        json!({
            "kind": {"enum": BudgetKind::ALL.map(BudgetKind::as_str)},
            "id": string_schema(),
            "limits": limits,
            "timezone": timezone,
        }),
    )
}

fn operation(id: &str, summary: &str) -> Operation {
    Operation::new(id, TAG, summary)
        .describe("For admins of the company. The operator sets the budget of the company itself.")
        .problems(&[Code::InvalidRequest, Code::Forbidden, Code::NotFound])
}

pub(super) fn describe_list(_: &mut Schemas) -> Operation {
    let page = object(
        &["budgets"],
        json!({"budgets": {"type": "array", "items": budget_schema()}, "nextCursor": string_schema()}),
    );
    operation("listBudgets", "Lists the budgets of the company with their used amounts.")
        .paged()
        .json_response(200, "One page of budgets.", page)
}

pub(super) fn describe_get(_: &mut Schemas) -> Operation {
    operation("getBudget", "Returns a budget with its used amounts.").conditional_read().versioned_response(
        200,
        "The budget.",
        budget_schema(),
    )
}

pub(super) fn describe_put(_: &mut Schemas) -> Operation {
    let limits =
        json!({"type": "array", "items": limit_schema(false), "minItems": 1, "maxItems": MAX_LIMITS});
    let body = object(&["limits"], json!({ "limits": limits }));
    operation("putBudget", "Creates or replaces a budget. Amounts used in the current periods are kept.")
        .conditional_write(&["If-Match", "If-None-Match"])
        .body(body)
        .versioned_response(200, "The budget was replaced.", budget_schema())
        .versioned_response(201, "The budget was created.", budget_schema())
        .problems(&[Code::Conflict, Code::PriceUnknown])
}

pub(super) fn describe_delete(_: &mut Schemas) -> Operation {
    operation("deleteBudget", "Deletes a budget.")
        .conditional_write(&["If-Match"])
        .empty_response(204, "The limits no longer apply.")
}
