//! Reservations as they are stored, and their settlements.

use agent_core::ids::CompanyId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::{ModelPrice, NanoUsd, RunScope, TokenCounts, UsageEntry};
use super::{BudgetUnit, BudgetWindow};

/// Name of the platform's collection of reservations. Nested collections: the company.
pub(in crate::usage) const RESERVATIONS: &str = "budgetReservations";

/// Amount that is reserved of one limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::usage) struct ReservedAmount {
    /// Id of the meter's record.
    pub(super) meter: String,
    pub(super) unit: BudgetUnit,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) window: Option<BudgetWindow>,
    pub(super) amount: i64,
}

/// Reservation, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::usage) struct BudgetReservation {
    #[serde(rename = "held")]
    pub(super) amounts: Vec<ReservedAmount>,
    /// Time from which the process that has made it counts as lost, in milliseconds since 1970-01-01.
    pub(in crate::usage) expires_ms: i64,
    /// The call of a model that it is for; `None` for a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::usage) call: Option<ReservedCall>,
    /// The run that counts once it is stored; `None` for a run in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::usage) run: Option<RunScope>,
}

impl BudgetReservation {
    pub(super) fn new(
        amounts: Vec<ReservedAmount>,
        expires: Timestamp,
        call: Option<ReservedCall>,
        run: Option<RunScope>,
    ) -> Self {
        Self { amounts, expires_ms: expires.as_millisecond(), call, run }
    }
}

/// Call that a reservation is for, with the most that it can use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::usage) struct ReservedCall {
    #[serde(flatten)]
    pub(in crate::usage) scope: RunScope,
    pub(in crate::usage) provider: String,
    pub(in crate::usage) model: String,
    pub(in crate::usage) tokens: TokenCounts,
    /// Price of the tokens, if that of the model was known. Another process may know another one, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::usage) cost: Option<NanoUsd>,
    /// Date of the model's price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::usage) price_as_of: Option<String>,
}

/// Call that asks for a reservation.
#[derive(Debug, Clone)]
pub(super) struct RequestedCall {
    pub(super) scope: RunScope,
    pub(super) provider: String,
    pub(super) model: String,
    pub(super) input_tokens: u64,
    /// Price of the model, if it is known.
    pub(super) price: Option<ModelPrice>,
}

impl RequestedCall {
    /// Returns the call with the most that it can use with a limit on the answer.
    pub(super) fn reserve(&self, output_tokens: u64) -> ReservedCall {
        let input_tokens = self.input_tokens;
        let tokens = match &self.price {
            Some(price) => price.prices.max_cost_counts(input_tokens, output_tokens),
            None => TokenCounts { input_tokens, output_tokens, ..TokenCounts::default() },
        };
        ReservedCall {
            scope: self.scope.clone(),
            provider: self.provider.clone(),
            model: self.model.clone(),
            tokens,
            cost: self.price.as_ref().map(|price| price.prices.cost(&tokens)),
            price_as_of: self.price.as_ref().map(|price| price.as_of.clone()),
        }
    }
}

/// Amounts that are used in place of those of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::usage) struct Settlement {
    pub(in crate::usage) company_id: CompanyId,
    /// Id of the reservation.
    pub(in crate::usage) id: String,
    /// Version of the reservation; a reservation with another version is left alone. `None` for any.
    pub(in crate::usage) version: Option<u64>,
    pub(in crate::usage) used: UsedAmounts,
}

impl Settlement {
    /// Creates the settlement of an unused reservation.
    pub(super) fn of_unused(company_id: CompanyId, id: String) -> Self {
        Self { company_id, id, version: None, used: UsedAmounts::Nothing }
    }
}

/// Amounts that a call or a run has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::usage) enum UsedAmounts {
    Nothing,
    /// A run that is stored.
    Run,
    Call {
        /// Nano-dollars; `None` if the price is unknown, in which case the reserved amount counts.
        cost: Option<i64>,
        tokens: i64,
        ended_at: Timestamp,
    },
}

impl UsedAmounts {
    /// Returns the sum of the amounts that the entries of a call have used.
    pub(in crate::usage) fn of_entries<'a>(entries: impl IntoIterator<Item = &'a UsageEntry>) -> Self {
        let (mut cost, mut tokens, mut ended_at) = (Some(0i64), 0u64, Timestamp::MIN);
        for entry in entries {
            cost = cost.zip(entry.cost).map(|(sum, cost)| sum.saturating_add(cost.get()));
            let TokenCounts { input_tokens, output_tokens, .. } = entry.tokens;
            tokens = tokens.saturating_add(input_tokens).saturating_add(output_tokens);
            ended_at = ended_at.max(entry.ended_at);
        }
        Self::Call { cost, tokens: i64::try_from(tokens).unwrap_or(i64::MAX), ended_at }
    }

    /// Returns the part that counts towards a limit whose window has started at a time, for an amount that was reserved.
    pub(super) fn amount(&self, reserved: &ReservedAmount, window_start_ms: i64) -> i64 {
        match (self, reserved.unit) {
            (Self::Call { ended_at, .. }, _) if ended_at.as_millisecond() < window_start_ms => 0,
            (Self::Call { cost, .. }, BudgetUnit::Cost) => cost.unwrap_or(reserved.amount),
            (Self::Call { tokens, .. }, BudgetUnit::Tokens) => *tokens,
            (Self::Run, BudgetUnit::Runs) => reserved.amount,
            _ => 0,
        }
    }
}
