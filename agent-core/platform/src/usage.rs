//! Usage of models and tools: a ledger with an entry for each call of a model, sums by day, and prices.
//!
//! [`MeteredModels`], [`MeteredServers`] and [`MeteredBackend`] report each call's end to the [`UsageRecorder`], also if the
//! call failed or its client has left. The recorder writes the entries to a [`UsageStore`] in batches, off the path of the tokens.

mod admission;
mod backend;
mod budget;
mod call;
mod counts;
mod entry;
mod expired;
mod memory;
mod models;
mod observer;
mod prices;
mod query;
mod recorder;
mod servers;
mod store;
mod sums;
#[cfg(test)]
mod tests;
mod tools;

pub use admission::{AdmittedRun, StoredOutcome};
pub use backend::{Booking, MeteredBackend};
pub use budget::{
    Budget, BudgetExceededError, BudgetKind, BudgetLimit, BudgetOptions, BudgetStatus, BudgetTimeZone,
    BudgetUnit, BudgetWindow, Budgets, DefaultLimits, InvalidBudgetError, LimitStatus, MAX_LIMITS,
    ReservationGuard, UnknownTimeZoneError,
};
pub use entry::{MAX_NAME_BYTES, RunScope, TokenCounts, UsageEntry, UsageOperation, ledger_user};
pub use expired::ReservationSweep;
pub use memory::MemoryUsage;
pub use models::{CallNumbers, MeteredModels};
pub use observer::{RunSummary, UsageObserver};
pub(crate) use prices::CallPayer;
pub use prices::{OperatorAddresses, PriceTable, PricedSettings};
pub use query::{
    DEFAULT_PAGE_ROWS, MAX_PAGE_ROWS, MAX_QUERY_DAYS, UsageCursor, UsageDimension, UsageFilter, UsagePage,
    UsageQuery, UsageQueryError, UsageRow,
};
pub use recorder::{MAX_QUEUED_ENTRIES, UsageRecorder};
pub use servers::MeteredServers;
pub(crate) use servers::server_names;
pub use store::{MAX_RUN_ENTRIES, MAX_TRIMMED_ENTRIES, RunEntries, RunOwner, StoredRuns, UsageStore};
pub use sums::{DayKey, UsageSums, roll_up, sums_of};
pub use tools::MeteredTools;

pub use crate::catalog::{AmountError, ModelPrice, NanoUsd, TokenPrices};
