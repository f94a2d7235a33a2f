//! Budgets and their limits, as they are stored and sent.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::NanoUsd;
use super::{BudgetTimeZone, BudgetWindow};
use crate::json::{objects_only, redact_serde_message};

/// Maximum number of limits in a budget.
pub const MAX_LIMITS: usize = 16;
/// Largest amount of a limit whose unit is not money.
const MAX_AMOUNT: i64 = 1_000_000_000_000_000;

/// Kind of subject that a budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BudgetKind {
    /// A company.
    Company,
    /// An agent.
    Agent,
    /// A user.
    User,
    /// A widget token, whose visitors share it, or an API token.
    Token,
    /// Each run of an agent.
    Run,
}

impl BudgetKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Company, Self::Agent, Self::User, Self::Token, Self::Run];

    /// Returns the name in paths and keys.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Company => "company",
            Self::Agent => "agent",
            Self::User => "user",
            Self::Token => "token",
            Self::Run => "run",
        }
    }

    /// Returns true if the subject is an agent, as that of all its runs or of each of them.
    pub fn is_of_agent(self) -> bool {
        matches!(self, Self::Agent | Self::Run)
    }
}

/// Error of a name that is not a [`BudgetKind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be company, agent, user, token or run")]
pub struct UnknownKindError;

impl FromStr for BudgetKind {
    type Err = UnknownKindError;

    fn from_str(name: &str) -> Result<Self, UnknownKindError> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name).ok_or(UnknownKindError)
    }
}

/// Unit of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BudgetUnit {
    /// Price of the calls of models, in nano-dollars.
    Cost,
    /// Input and output tokens of the calls of models.
    Tokens,
    /// Runs that begin.
    Runs,
    /// Runs at one time.
    ConcurrentRuns,
    /// Calls of the platform's tools.
    ToolCalls,
    /// Duration in milliseconds; of runs alone.
    WallMs,
}

impl BudgetUnit {
    /// Returns the name in keys and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Tokens => "tokens",
            Self::Runs => "runs",
            Self::ConcurrentRuns => "concurrentRuns",
            Self::ToolCalls => "toolCalls",
            Self::WallMs => "wallMs",
        }
    }

    /// Returns true if the amount is used when it is admitted, without a reservation.
    pub(super) fn is_used_at_once(self) -> bool {
        matches!(self, Self::Runs | Self::ToolCalls)
    }

    /// Returns an amount as it is sent: dollars as text, other units as a number.
    pub fn amount_json(self, amount: i64) -> Value {
        match self {
            Self::Cost => NanoUsd::new(amount).to_string().into(),
            _ => amount.into(),
        }
    }
}

/// Limit of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "LimitJson", into = "LimitJson")]
pub struct BudgetLimit {
    /// Unit of the amount.
    pub unit: BudgetUnit,
    /// The amount that may be used: nano-dollars, or a number.
    pub amount: i64,
    /// The period; `None` for concurrent runs.
    pub window: Option<BudgetWindow>,
    /// Part of the amount, between 0 and 1, from which a warning is logged.
    pub warn_at: Option<f64>,
}

/// JSON form of a limit.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LimitJson {
    unit: BudgetUnit,
    /// Dollars as text, or a number.
    amount: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<BudgetWindow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warn_at: Option<f64>,
}

impl From<BudgetLimit> for LimitJson {
    fn from(limit: BudgetLimit) -> Self {
        let BudgetLimit { unit, amount, window, warn_at } = limit;
        Self { unit, amount: unit.amount_json(amount), window, warn_at }
    }
}

impl TryFrom<LimitJson> for BudgetLimit {
    type Error = String;

    fn try_from(limit: LimitJson) -> Result<Self, String> {
        let LimitJson { unit, amount, window, warn_at } = limit;
        let amount = match (unit, &amount) {
            (BudgetUnit::Cost, Value::String(text)) => {
                NanoUsd::parse(text).map_err(|error| format!("amount {error}"))?.get()
            }
            (BudgetUnit::Cost, _) => return Err("amount must be a string with a decimal number".to_owned()),
            (_, amount) => amount
                .as_i64()
                .filter(|amount| (0..=MAX_AMOUNT).contains(amount))
                .ok_or_else(|| format!("amount must be a whole number from 0 to {MAX_AMOUNT}"))?,
        };
        match (unit, window) {
            (BudgetUnit::ConcurrentRuns, Some(_)) => {
                return Err("window must be absent for concurrentRuns".to_owned());
            }
            (BudgetUnit::ConcurrentRuns, None) => {}
            (_, None) => return Err("window is missing".to_owned()),
            (BudgetUnit::Runs, Some(BudgetWindow::Run)) => {
                return Err("window must not be run for runs".to_owned());
            }
            (BudgetUnit::WallMs, Some(window)) if window != BudgetWindow::Run => {
                return Err("window must be run for wallMs".to_owned());
            }
            _ => {}
        }
        if warn_at.is_some_and(|part| !(part > 0.0 && part < 1.0)) {
            return Err("warnAt must be between 0 and 1".to_owned());
        }
        Ok(Self { unit, amount, window, warn_at })
    }
}

impl BudgetLimit {
    /// Returns true if the limit is one on a rate, which soon admits more, and not on an amount to spend.
    pub(super) fn is_rate(&self) -> bool {
        matches!(self.window, Some(BudgetWindow::Minute)) || self.unit == BudgetUnit::ConcurrentRuns
    }

    /// Returns the amount from which a warning is logged.
    pub(super) fn warning_amount(&self) -> Option<i64> {
        // Amounts are below 2^63, and the warning need not be exact.
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
        self.warn_at.map(|part| (self.amount as f64 * part) as i64)
    }
}

/// Budget of one subject.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The limits. All of them apply.
    pub limits: Vec<BudgetLimit>,
    /// Zone whose days and months are the windows of all budgets of the company; of a company's own budget alone. UTC if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<BudgetTimeZone>,
}

/// Error of a budget that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} {message}")]
pub struct InvalidBudgetError {
    /// Path of the value, such as `limits[2]`.
    pub path: String,
    /// Description, worded to follow the path.
    pub message: String,
}

impl InvalidBudgetError {
    fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

/// Reads one limit, whose path is `at`. The error does not repeat given values.
fn read_limit(limit: &Value, at: &str) -> Result<BudgetLimit, InvalidBudgetError> {
    let limit: LimitJson = serde_path_to_error::deserialize(objects_only(limit)).map_err(|error| {
        let member = error.path().to_string();
        let path = if member == "." { at.to_owned() } else { format!("{at}.{member}") };
        InvalidBudgetError::new(path, redact_serde_message(&error.inner().to_string()))
    })?;
    BudgetLimit::try_from(limit)
        .map_err(|error| InvalidBudgetError::new(at, format!("is not valid: {error}")))
}

impl Budget {
    /// Reads the budget of a subject of a kind from the members of a body.
    ///
    /// # Errors
    /// The first member that is not valid.
    pub fn read(kind: BudgetKind, body: &serde_json::Map<String, Value>) -> Result<Self, InvalidBudgetError> {
        if let Some(name) = body.keys().find(|name| !["limits", "timezone"].contains(&name.as_str())) {
            return Err(InvalidBudgetError::new(name, "is not a member of budgets"));
        }
        let timezone = body.get("timezone").map(|value| read_timezone(kind, value)).transpose()?;
        let Some(Value::Array(values)) = body.get("limits") else {
            return Err(InvalidBudgetError::new("limits", "must be an array"));
        };
        // A company's budget may consist of a time zone, which applies to its other budgets.
        let min_limits = usize::from(timezone.is_none());
        if !(min_limits..=MAX_LIMITS).contains(&values.len()) {
            let range = format!("must have {min_limits} to {MAX_LIMITS} limits");
            return Err(InvalidBudgetError::new("limits", range));
        }
        let mut limits: Vec<BudgetLimit> = Vec::with_capacity(values.len());
        for (index, limit) in values.iter().enumerate() {
            let path = || format!("limits[{index}]");
            let limit = read_limit(limit, &path())?;
            let is_of_run = limit.window == Some(BudgetWindow::Run);
            if is_of_run != (kind == BudgetKind::Run) {
                let fault = match is_of_run {
                    true => "has the window of a run, which is for budgets of runs",
                    false => "must have the window run, since the budget is one of runs",
                };
                return Err(InvalidBudgetError::new(path(), fault));
            }
            if limits.iter().any(|other| (other.unit, other.window) == (limit.unit, limit.window)) {
                return Err(InvalidBudgetError::new(path(), "has the unit and the window of another limit"));
            }
            limits.push(limit);
        }
        Ok(Self { limits, timezone })
    }

    /// Returns the JSON form.
    pub fn to_json(&self) -> Value {
        json!(self)
    }

    /// Returns true if one of the limits is on the cost.
    pub fn limits_cost(&self) -> bool {
        self.limits.iter().any(|limit| limit.unit == BudgetUnit::Cost)
    }
}

/// Reads the zone of the budget of a subject of a kind.
fn read_timezone(kind: BudgetKind, value: &Value) -> Result<BudgetTimeZone, InvalidBudgetError> {
    let fault = |message: String| InvalidBudgetError::new("timezone", message);
    if kind != BudgetKind::Company {
        return Err(fault(
            "is allowed only in the budget of the company itself, and applies to all budgets of the company"
                .to_owned(),
        ));
    }
    let name = value.as_str().ok_or_else(|| fault("must be a string".to_owned()))?;
    name.parse::<BudgetTimeZone>().map_err(|error| fault(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: BudgetKind, limits: &Value) -> Result<Budget, InvalidBudgetError> {
        Budget::read(kind, json!({ "limits": limits }).as_object().expect("an object"))
    }

    #[test]
    fn budgets_round_trip() {
        let limits = json!([
            {"unit": "cost", "amount": "50.000000000", "window": "month", "warnAt": 0.8},
            {"unit": "tokens", "amount": 2_000_000, "window": "day"},
            {"unit": "runs", "amount": 60, "window": "minute"},
            {"unit": "concurrentRuns", "amount": 20},
        ]);
        let budget = read(BudgetKind::Company, &limits).expect("a budget");
        assert_eq!(budget.to_json()["limits"], limits);
        assert_eq!(budget.limits[0].warning_amount(), Some(40_000_000_000));
        let run = json!([
            {"unit": "toolCalls", "amount": 40, "window": "run"},
            {"unit": "wallMs", "amount": 300_000, "window": "run"},
        ]);
        assert_eq!(read(BudgetKind::Run, &run).expect("a budget").to_json()["limits"], run);
    }

    #[test]
    fn the_budget_of_a_company_may_have_a_time_zone() {
        let limit = json!({"unit": "tokens", "amount": 1, "window": "day"});
        let read = |kind, body: Value| Budget::read(kind, body.as_object().expect("an object"));
        for (limits, shown) in [(json!([limit]), "Asia/Kolkata"), (json!([]), "UTC")] {
            let body = json!({"limits": limits, "timezone": shown});
            let budget = read(BudgetKind::Company, body.clone()).expect("a budget");
            assert_eq!(budget.to_json(), body);
            let stored: Budget = serde_json::from_value(body).expect("the stored form");
            assert_eq!(stored, budget);
        }
        // A record of a version without time zones.
        let stored: Budget = serde_json::from_value(json!({"limits": [limit]})).expect("the stored form");
        assert_eq!((stored.timezone.as_ref(), stored.to_json()), (None, json!({"limits": [limit]})));
        for (kind, zone) in [
            (BudgetKind::Company, json!("Mars/Olympus")),
            (BudgetKind::Company, json!("")),
            (BudgetKind::Company, json!(2)),
            (BudgetKind::Company, Value::Null),
            (BudgetKind::Agent, json!("Europe/Berlin")),
            (BudgetKind::Run, json!("UTC")),
        ] {
            let error = read(kind, json!({"limits": [limit], "timezone": zone})).expect_err("a fault");
            assert_eq!(error.path, "timezone", "{zone}");
        }
    }

    #[test]
    fn faults_name_their_place() {
        let fits = json!({"unit": "tokens", "amount": 1, "window": "day"});
        for (kind, limit, path) in [
            (BudgetKind::Company, json!({"unit": "cost", "amount": 5, "window": "day"}), "limits[1]"),
            (BudgetKind::Company, json!({"unit": "cost", "amount": "-5", "window": "month"}), "limits[1]"),
            (BudgetKind::Company, json!({"unit": "cost", "amount": "1e400", "window": "month"}), "limits[1]"),
            (BudgetKind::Company, json!({"unit": "tokens", "amount": -1, "window": "month"}), "limits[1]"),
            (BudgetKind::Company, json!({"unit": "tokens", "amount": 1.5, "window": "month"}), "limits[1]"),
            (
                BudgetKind::Company,
                json!({"unit": "tokens", "amount": 5, "window": "year"}),
                "limits[1].window",
            ),
            (BudgetKind::Company, json!({"unit": "tokens", "amount": 5, "window": 7}), "limits[1].window"),
            (
                BudgetKind::Company,
                json!({"unit": "tokens", "amount": 5, "window": "day", "warnAt": "x"}),
                "limits[1].warnAt",
            ),
            (BudgetKind::Company, json!({"unit": "tokens", "window": "day"}), "limits[1]"),
            (BudgetKind::Company, json!("sk-1"), "limits[1]"),
            (BudgetKind::Company, json!({"unit": "tokens", "amount": 5}), "limits[1]"),
            (BudgetKind::Company, json!({"unit": "tokens", "amount": 5, "window": "run"}), "limits[1]"),
            (BudgetKind::Company, json!({"unit": "tokens", "amount": 5, "window": "day"}), "limits[1]"),
            (
                BudgetKind::Company,
                json!({"unit": "concurrentRuns", "amount": 5, "window": "day"}),
                "limits[1]",
            ),
            (BudgetKind::Company, json!({"unit": "gold", "amount": 5, "window": "day"}), "limits[1].unit"),
            (
                BudgetKind::Company,
                json!({"unit": "runs", "amount": 5, "window": "day", "x": 1}),
                "limits[1].x",
            ),
            (
                BudgetKind::User,
                json!({"unit": "runs", "amount": 5, "window": "day", "warnAt": 1}),
                "limits[1]",
            ),
            (BudgetKind::User, json!({"unit": "wallMs", "amount": 5, "window": "day"}), "limits[1]"),
            (BudgetKind::Run, json!({"unit": "runs", "amount": 5, "window": "run"}), "limits[0]"),
        ] {
            let error = read(kind, &json!([fits, limit])).expect_err("a fault");
            assert_eq!(error.path, path, "{limit}");
        }
        for (limit, message) in [
            (
                json!({"unit": "sk-1", "amount": 5}),
                "must be one of `cost`, `tokens`, `runs`, `concurrentRuns`, `toolCalls`, `wallMs`",
            ),
            (json!({"unit": 7, "amount": 5}), "must be a string"),
            (json!("sk-1"), "must be an object"),
            (json!(["tokens", 5, "day"]), "must be an object"),
        ] {
            assert_eq!(read(BudgetKind::User, &json!([limit])).expect_err("a fault").message, message);
        }
        for (limits, path) in [(json!([]), "limits"), (json!({}), "limits")] {
            assert_eq!(read(BudgetKind::User, &limits).expect_err("a fault").path, path);
        }
        let unknown = json!({"limits": [fits], "currency": "EUR"});
        let error = Budget::read(BudgetKind::User, unknown.as_object().expect("an object"));
        assert_eq!(error.expect_err("a fault").path, "currency");
    }
}
