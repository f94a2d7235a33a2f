//! Rejection of roles whose calls have no known price, if a budget limits their cost: each run would be refused.

use std::sync::Arc;

use agent_core::role::RoleBlock;
use agent_platform::fallback::{UnpricedCalls, unpriced_calls};
use agent_platform::roles::merge_secrets;

use super::App;
use crate::error::{Code, HttpError};

/// Checks a role before it is saved, if a budget limits the cost of its runs.
///
/// # Errors
/// 422 `PRICE_UNKNOWN`, and errors of the store.
pub(super) async fn check_saved_role(app: &App, role: &RoleBlock) -> Result<(), HttpError> {
    let Some(budgets) = app.usage.recorder.budgets() else { return Ok(()) };
    if !budgets.limits_cost(&role.company_id, &role.id).await? {
        return Ok(());
    }
    let stored = app.roles.masked_role(&role.company_id, &role.id).await?;
    let mut role = role.clone();
    // The provider `auto` depends on the key, which is kept if it is left out.
    merge_secrets(&mut role, stored.map(|stored| stored.value));
    check_prices(app, role).await
}

/// Checks that the prices of a role's calls are known.
///
/// # Errors
/// 422 `PRICE_UNKNOWN`, and errors of the store.
pub(super) async fn check_prices(app: &App, role: RoleBlock) -> Result<(), HttpError> {
    let providers = &app.providers;
    let role = providers.store().complete_role(Arc::new(role)).await?;
    let found = unpriced_calls(&role, &app.catalog, |settings| {
        let (provider, model) = providers.models.names(settings);
        (provider.to_owned(), model.to_owned())
    });
    let Some(UnpricedCalls { provider, model }) = found else { return Ok(()) };
    let detail = format!(
        "the cost is limited by a budget, and the price of the model {model:?} of {provider:?} is unknown"
    );
    Err(HttpError::new(Code::PriceUnknown, detail))
}
