//! Budgets: limits on what a company, an agent, a user, a widget or API token or a run uses.
//!
//! A budget is a record of the company. Each of its limits has a meter, a record of the platform with the amounts that are
//! used and reserved in the current window. A call of a model reserves the most that it can use before it begins, in the
//! same commit as all other requests of the company that wait ([`Budgets`]), and the reservation is settled with what the
//! call has used once the ledger has its entry. So the used and the reserved amounts together never exceed a limit, however
//! many processes share it. A reservation has a lease; that of a process that was killed is booked and settled when the
//! lease is over ([`ExpiredReservations`](super::ExpiredReservations)).
//!
//! [`DefaultLimits`] hold for a company's runs and a run's tool calls where no budget limits them.
//!
//! Days and months are those of the company's time zone, which its own budget has ([`BudgetTimeZone`]). A meter begins with what
//! the ledger has of the days of UTC that its window has touched.

mod batch;
mod deadline;
mod defaults;
mod demand;
mod limit;
mod meter;
mod queue;
mod refusal;
mod reservation;
mod service;
mod state;
#[cfg(test)]
mod tests;
mod window;

pub use defaults::DefaultLimits;
pub use limit::{Budget, BudgetKind, BudgetLimit, BudgetUnit, InvalidBudgetError, MAX_LIMITS};
pub use meter::LimitStatus;
pub use refusal::BudgetExceededError;
pub use service::{BudgetOptions, BudgetStatus, Budgets};
pub use state::Hold;
pub use window::{BudgetTimeZone, BudgetWindow, UnknownTimeZoneError};

pub(super) use deadline::start_in_time;
pub(super) use demand::CallDemand;
pub(super) use meter::{METERS, MeterState};
pub(super) use reservation::{BudgetReservation, RESERVATIONS, ReservedCall, Settlement, UsedAmounts};
pub(super) use service::{RunAdmission, RunHold};
pub(super) use state::SettlementOutcome;
