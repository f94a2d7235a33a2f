//! Ids of sessions that their clients have ended, which are not restored in this process.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use agent_core::ids::CompanyId;

/// Maximum number of remembered ids.
const MAX_ENDED_SESSIONS: usize = 4096;
/// Maximum number of remembered ids per company.
const MAX_ENDED_SESSIONS_PER_COMPANY: usize = MAX_ENDED_SESSIONS / 4;

/// A bounded set of public session ids. At a limit, the oldest id of the same company is forgotten, or of the company
/// with the most.
pub(super) struct EndedSessions {
    max_total: usize,
    max_per_company: usize,
    ids: HashSet<Arc<str>>,
    /// The ids of each company, oldest first.
    companies: HashMap<CompanyId, VecDeque<Arc<str>>>,
}

impl Default for EndedSessions {
    fn default() -> Self {
        Self::bounded(MAX_ENDED_SESSIONS, MAX_ENDED_SESSIONS_PER_COMPANY)
    }
}

impl EndedSessions {
    fn bounded(max_total: usize, max_per_company: usize) -> Self {
        Self { max_total, max_per_company, ids: HashSet::new(), companies: HashMap::new() }
    }

    /// Returns true if the session was ended and its id is still remembered.
    pub(super) fn contains(&self, public_id: &str) -> bool {
        self.ids.contains(public_id)
    }

    /// Adds a session of `company`.
    pub(super) fn insert(&mut self, company: &CompanyId, public_id: &str) {
        let id: Arc<str> = public_id.into();
        if !self.ids.insert(id.clone()) {
            return;
        }
        let own = self.companies.entry(company.clone()).or_default();
        own.push_back(id);
        if own.len() > self.max_per_company {
            self.forget_oldest(&company.clone());
        } else if self.ids.len() > self.max_total {
            let largest = self.companies.iter().max_by_key(|(_, ids)| ids.len()).map(|(company, _)| company);
            if let Some(largest) = largest.cloned() {
                self.forget_oldest(&largest);
            }
        }
    }

    fn forget_oldest(&mut self, company: &CompanyId) {
        let Some(ids) = self.companies.get_mut(company) else { return };
        if let Some(oldest) = ids.pop_front() {
            self.ids.remove(&oldest);
        }
        if ids.is_empty() {
            self.companies.remove(company);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_largest_company_is_forgotten() {
        let (mut ended, large, small) = (EndedSessions::bounded(4, 3), "large".into(), "small".into());
        for id in ["l0", "l1", "l1", "l2", "l3"] {
            ended.insert(&large, id);
        }
        let remembered = |ended: &EndedSessions| {
            let all = ["l0", "l1", "l2", "l3", "s0", "s1"].into_iter();
            all.filter(|id| ended.contains(id)).collect::<Vec<_>>()
        };
        assert_eq!(remembered(&ended), ["l1", "l2", "l3"]);
        ended.insert(&small, "s0");
        assert_eq!(remembered(&ended), ["l1", "l2", "l3", "s0"]);
        ended.insert(&small, "s1");
        assert_eq!(remembered(&ended), ["l2", "l3", "s0", "s1"]);
        assert_eq!((ended.ids.len(), ended.companies.len()), (4, 2));
    }
}
