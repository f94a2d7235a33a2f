//! Entries of the audit log that wait to be written.

use std::collections::{HashMap, VecDeque};

use agent_core::ids::CompanyId;
use agent_platform::company_permits::subtract_one;

use super::{AgentKey, CallRecord, Limits};

/// Queue of entries, bounded in total and per company.
pub(super) struct PendingEntries {
    limits: Limits,
    queue: VecDeque<(AgentKey, CallRecord)>,
    /// Number of queued entries, for companies that have some.
    by_company: HashMap<CompanyId, usize>,
    dropped: usize,
}

impl PendingEntries {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, queue: VecDeque::new(), by_company: HashMap::new(), dropped: 0 }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of entries dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> usize {
        std::mem::take(&mut self.dropped)
    }

    /// Adds the newest entry. At a limit, it drops the oldest entry of the company, or of the company with the most.
    pub(super) fn push_newest(&mut self, agent: AgentKey, call: CallRecord) {
        if self.count(&agent.0) >= self.limits.max_pending_per_company {
            self.drop_oldest(&agent.0.clone());
        } else if self.queue.len() >= self.limits.max_pending_entries {
            let largest = self.by_company.iter().max_by_key(|(_, count)| **count);
            if let Some(company) = largest.map(|(company, _)| company.clone()) {
                self.drop_oldest(&company);
            }
        }
        *self.by_company.entry(agent.0.clone()).or_default() += 1;
        self.queue.push_back((agent, call));
    }

    /// Puts an entry back as the oldest one, or drops it at a limit.
    pub(super) fn push_oldest(&mut self, agent: AgentKey, call: CallRecord) {
        let has_room = self.queue.len() < self.limits.max_pending_entries
            && self.count(&agent.0) < self.limits.max_pending_per_company;
        if !has_room {
            self.dropped += 1;
            return;
        }
        *self.by_company.entry(agent.0.clone()).or_default() += 1;
        self.queue.push_front((agent, call));
    }

    /// Takes at most `count` entries, the oldest first.
    pub(super) fn take(&mut self, count: usize) -> Vec<(AgentKey, CallRecord)> {
        let entries: Vec<_> = self.queue.drain(..count.min(self.queue.len())).collect();
        for ((company, _), _) in &entries {
            subtract_one(&mut self.by_company, company);
        }
        entries
    }

    fn count(&self, company: &CompanyId) -> usize {
        self.by_company.get(company).copied().unwrap_or_default()
    }

    fn drop_oldest(&mut self, company: &CompanyId) {
        let oldest = self.queue.iter().position(|((other, _), _)| other == company);
        if let Some(oldest) = oldest {
            self.queue.remove(oldest);
            subtract_one(&mut self.by_company, company);
            self.dropped += 1;
        }
    }
}
