//! Budgets: limits on the usage of a company, an agent, a user, a widget or API token or a run.
//!
//! A budget is a record of the company. Each limit has a meter: a record of the platform with the used and reserved amounts
//! of the current window.
//!
//! Before a model call begins, it reserves the maximum that it can use. One commit reserves for all waiting requests of the
//! company ([`Budgets`]). When the ledger has the entry of the call, the reservation is settled with the used amount. The sum
//! of used and reserved amounts therefore never exceeds a limit, for any number of processes. A reservation has a lease. The
//! reservation of a killed process is booked and settled when the lease has expired
//! ([`ReservationSweep`](super::ReservationSweep)). That of a run has a short lease, which its process extends. A run that is
//! to be stored reserves its part of the limits on numbers of runs, and counts once it is stored.
//!
//! [`DefaultLimits`] apply to a company's runs and a run's tool calls if no budget limits them.
//!
//! Days and months are those of the company's time zone, which is set in the company's own budget ([`BudgetTimeZone`]). A new
//! meter starts with the ledger's sums of the UTC days that overlap its window.

mod active_reservations;
mod batch;
mod deadline;
mod decision;
mod defaults;
mod demand;
mod error;
mod limit;
mod meter;
mod queue;
mod refusal;
mod renewal;
mod reservation;
mod service;
mod state;
mod stored;
#[cfg(test)]
mod tests;
mod window;

pub use defaults::DefaultLimits;
pub use limit::{Budget, BudgetKind, BudgetLimit, BudgetUnit, InvalidBudgetError, MAX_LIMITS};
pub use meter::LimitStatus;
pub use refusal::BudgetExceededError;
pub use service::{BudgetStatus, Budgets};
pub use state::{BudgetOptions, ReservationGuard};
pub use window::{BudgetTimeZone, BudgetWindow, UnknownTimeZoneError};

pub(super) use deadline::start_with_deadline;
pub(super) use demand::CallDemand;
pub(super) use meter::{METERS, MeterState};
pub(super) use reservation::{BudgetReservation, RESERVATIONS, ReservedCall, Settlement, UsedAmounts};
pub(super) use service::{RunAdmission, RunReservation};
pub(super) use state::{PendingCounts, SettlementOutcome};
