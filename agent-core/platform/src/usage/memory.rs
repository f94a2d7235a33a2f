//! Usage in memory: the reference implementation for stores.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_core::ids::{CompanyId, RunId};
use agent_core::store_error::StoreError;
use async_trait::async_trait;
use jiff::Timestamp;

use super::{
    DayKey, MAX_RUN_ENTRIES, MAX_TRIMMED_ENTRIES, RunEntries, RunOwner, RunScope, UsageDimension, UsageEntry,
    UsageFilter, UsagePage, UsageQuery, UsageRow, UsageStore, UsageSums, roll_up,
};

/// [`UsageStore`] in memory, for tests and applications without persistence.
#[derive(Debug, Default)]
pub struct MemoryUsage {
    state: Mutex<MemoryLedger>,
}

#[derive(Debug, Default)]
struct MemoryLedger {
    entries: Vec<UsageEntry>,
    ids: HashSet<(CompanyId, String)>,
    /// Runs with entries, by their companies and [keys](super::RunScope::run_key).
    runs: HashSet<(CompanyId, String)>,
    days: BTreeMap<DayKey, UsageSums>,
}

impl MemoryUsage {
    /// Locks the state. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, MemoryLedger> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_of_run(entry: &UsageEntry, company: &CompanyId, run: &RunId) -> bool {
    entry.scope.company_id == *company && entry.scope.run_id == *run
}

impl UsageFilter {
    fn matches(&self, key: &DayKey) -> bool {
        (self.from..=self.to).contains(&key.day)
            && self.agent.as_ref().is_none_or(|agent| *agent == key.agent_id)
            && self.user.as_ref().is_none_or(|user| *user == key.user_id)
    }
}

impl UsageDimension {
    fn value(self, key: &DayKey) -> String {
        match self {
            Self::Day => key.day.to_string(),
            Self::Agent => key.agent_id.to_string(),
            Self::User => key.user_id.to_string(),
            Self::Provider => key.provider.clone(),
            Self::Model => key.model.clone(),
            Self::Caller => key.caller.to_owned(),
        }
    }
}

#[async_trait]
impl UsageStore for MemoryUsage {
    async fn book(&self, entries: Vec<UsageEntry>) -> Result<usize, StoreError> {
        let mut state = self.lock();
        let mut booked = 0;
        for entry in entries {
            if !state.ids.insert((entry.scope.company_id.clone(), entry.id.clone())) {
                continue;
            }
            let run = (entry.scope.company_id.clone(), entry.scope.run_key());
            let starts_run = !entry.scope.run_id.is_empty() && state.runs.insert(run);
            for (key, sums) in roll_up([(&entry, starts_run)]) {
                state.days.entry(key).or_default().add(&sums);
            }
            state.entries.push(entry);
            booked += 1;
        }
        Ok(booked)
    }

    async fn usage(&self, company: &CompanyId, query: &UsageQuery) -> Result<UsagePage, StoreError> {
        let mut groups: BTreeMap<Vec<String>, UsageSums> = BTreeMap::new();
        for (key, sums) in &self.lock().days {
            if key.company_id == *company && query.filter.matches(key) {
                let group = query.group_by.iter().map(|dimension| dimension.value(key)).collect();
                groups.entry(group).or_default().add(sums);
            }
        }
        let limit = query.page_size();
        let is_later = |group: &Vec<String>| query.after.as_ref().is_none_or(|after| *group > after.0);
        let rows = groups.into_iter().filter(|(group, _)| is_later(group)).take(limit + 1);
        Ok(UsagePage::from_overfetch(rows.map(|(group, sums)| UsageRow { group, sums }).collect(), limit))
    }

    async fn run_entries(
        &self,
        company: &CompanyId,
        run: &RunId,
        owner: Option<&RunOwner>,
    ) -> Result<RunEntries, StoreError> {
        let state = self.lock();
        let is_found = |entry: &&UsageEntry| {
            is_of_run(entry, company, run) && owner.is_none_or(|owner| owner.matches(&entry.scope))
        };
        let found = state.entries.iter().filter(is_found).take(MAX_RUN_ENTRIES + 1);
        Ok(RunEntries::from_overfetch(found.cloned().collect()))
    }

    async fn run_scopes(&self, company: &CompanyId, run: &RunId) -> Result<Vec<RunScope>, StoreError> {
        let (state, mut seen) = (self.lock(), HashSet::new());
        let scopes = state.entries.iter().filter(|entry| is_of_run(entry, company, run));
        let scopes = scopes.map(|entry| &entry.scope);
        let first = scopes.filter(|scope| seen.insert((&scope.user_id, &scope.visitor, &scope.agent_id)));
        Ok(first.take(MAX_RUN_ENTRIES).cloned().collect())
    }

    async fn usage_entries(
        &self,
        company: &CompanyId,
        ids: &[String],
    ) -> Result<Vec<UsageEntry>, StoreError> {
        let is_found = |entry: &&UsageEntry| entry.scope.company_id == *company && ids.contains(&entry.id);
        Ok(self.lock().entries.iter().filter(is_found).cloned().collect())
    }

    async fn trim_usage(&self, before: Timestamp) -> Result<usize, StoreError> {
        let mut state = self.lock();
        let mut deleted = HashSet::new();
        state.entries.retain(|entry| {
            let is_old = deleted.len() < MAX_TRIMMED_ENTRIES && entry.ended_at < before;
            if is_old {
                deleted.insert((entry.scope.company_id.clone(), entry.id.clone()));
            }
            !is_old
        });
        state.ids.retain(|id| !deleted.contains(id));
        Ok(deleted.len())
    }
}
