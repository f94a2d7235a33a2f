//! The stored budgets of a company.

use agent_core::ids::CompanyId;
use agent_core::store_error::StoreError;

use super::BudgetKind;
use super::demand::AppliedLimit;
use super::limit::{Budget, BudgetLimit};
use super::service::Budgets;
use super::state::{BUDGETS, budget_key};
use crate::records::{
    Collection, CountQuota, CountQuotaError, ListQuery, Page, Precondition, Record, RecordsExt, Write,
    put_within, to_json,
};

impl Budgets {
    /// Returns a budget, if the subject has one.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn get(
        &self,
        company: &CompanyId,
        kind: BudgetKind,
        subject: &str,
    ) -> Result<Option<Record<Budget>>, StoreError> {
        self.state.records.get_as(&budget_key(company, kind, subject)?).await
    }

    /// Returns one page of a company's budgets, under the ids that [`subject`](Self::subject) parses.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn list(&self, company: &CompanyId, list: &ListQuery) -> Result<Page<Budget>, StoreError> {
        self.state.records.list_as(&Collection::new(company.clone(), BUDGETS)?, list).await
    }

    /// Returns the kind and the identifier of the subject of a record.
    pub fn subject(id: &str) -> Option<(BudgetKind, &str)> {
        let (kind, subject) = id.split_once('/')?;
        Some((kind.parse().ok()?, subject))
    }

    /// Returns the number of a company's budgets.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn count(&self, company: &CompanyId) -> Result<u64, StoreError> {
        self.state.records.count(&Collection::new(company.clone(), BUDGETS)?).await
    }

    /// Writes a budget and returns its version. Existing limits keep their meters. The meter of a new limit starts with the usage
    /// that the ledger has for the current window, unless the meter has a higher value from earlier.
    ///
    /// # Errors
    /// Errors of the store; a conflict if the condition does not hold.
    pub async fn put(
        &self,
        company: &CompanyId,
        (kind, subject): (BudgetKind, &str),
        budget: &Budget,
        condition: Precondition,
    ) -> Result<u64, StoreError> {
        let key = budget_key(company, kind, subject)?;
        let before = self.get(company, kind, subject).await?.map(|found| found.value.limits);
        let version = self.state.records.put(&key, to_json(budget)?, condition).await?;
        let is_new = |limit: &&BudgetLimit| {
            !before.iter().flatten().any(|had| (had.unit, had.window) == (limit.unit, limit.window))
        };
        self.renew_meters(company, (kind, subject), budget.limits.iter().filter(is_new)).await?;
        Ok(version)
    }

    /// Creates a budget as [`put`](Self::put) does. Concurrent creations do not make the company's budgets more than
    /// `max_budgets` together.
    ///
    /// # Errors
    /// Errors of the store; a conflict if the subject has a budget, or if the company has `max_budgets` budgets.
    pub async fn create(
        &self,
        company: &CompanyId,
        (kind, subject): (BudgetKind, &str),
        budget: &Budget,
        max_budgets: u64,
    ) -> Result<u64, StoreError> {
        let key = budget_key(company, kind, subject)?;
        let put = Write::Put { key, value: to_json(budget)?, precondition: Precondition::Absent };
        let quota = CountQuota { company_id: company, collection: BUDGETS, limit: max_budgets };
        let created = put_within(&*self.state.records, &quota, &[put]).await;
        let version = created.map_err(CountQuotaError::into_conflict)?;
        self.renew_meters(company, (kind, subject), budget.limits.iter()).await?;
        Ok(version)
    }

    /// Initializes the meters of new limits from the ledger's sums of their windows.
    async fn renew_meters(
        &self,
        company: &CompanyId,
        (kind, subject): (BudgetKind, &str),
        new_limits: impl Iterator<Item = &BudgetLimit> + Send,
    ) -> Result<(), StoreError> {
        let mut new_limits = new_limits.peekable();
        if new_limits.peek().is_none() {
            return Ok(());
        }
        let zone = self.state.zone(company).await?;
        for limit in new_limits {
            self.state.renew(company, &AppliedLimit::new(kind, subject, *limit, &zone)).await?;
        }
        Ok(())
    }

    /// Deletes a budget; false if there was none.
    ///
    /// # Errors
    /// Errors of the store; a conflict if the condition does not hold.
    pub async fn delete(
        &self,
        company: &CompanyId,
        (kind, subject): (BudgetKind, &str),
        condition: Precondition,
    ) -> Result<bool, StoreError> {
        self.state.records.delete(&budget_key(company, kind, subject)?, condition).await
    }
}
