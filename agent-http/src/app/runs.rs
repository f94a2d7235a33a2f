//! Registry of used run ids.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use agent_core::ids::RunId;
use agent_core::request::Principal;

/// Maximum number of run ids kept; the oldest is evicted first.
const MAX_RUN_IDS: usize = 100_000;

/// Remembers the run ids chosen by clients, per company and user.
#[derive(Default)]
pub struct RunRegistry {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    keys: HashSet<String>,
    order: VecDeque<String>,
}

impl RunRegistry {
    /// Claims a run id; `None` if the user has already used it.
    pub fn claim(&self, principal: &Principal, run_id: &RunId) -> Option<RunIdClaim<'_>> {
        let key = key(principal, run_id);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.keys.insert(key.clone()) {
            return None;
        }
        seen.order.push_back(key.clone());
        if seen.order.len() > MAX_RUN_IDS
            && let Some(oldest) = seen.order.pop_front()
        {
            seen.keys.remove(&oldest);
        }
        Some(RunIdClaim { runs: self, key: Some(key) })
    }

    fn release(&self, key: &str) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.keys.remove(key) {
            // Runs are rejected soon after their claim, so the search from the back is short.
            if let Some(place) = seen.order.iter().rposition(|other| other == key) {
                seen.order.remove(place);
            }
        }
    }
}

/// A claimed run id. Dropping it releases the id, since its run has not started.
pub struct RunIdClaim<'r> {
    runs: &'r RunRegistry,
    key: Option<String>,
}

impl RunIdClaim<'_> {
    /// Keeps the id claimed, since its run has started.
    pub fn keep(mut self) {
        self.key = None;
    }
}

impl Drop for RunIdClaim<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.runs.release(&key);
        }
    }
}

/// Returns the map key. The length prefixes keep ids with the same concatenation apart.
fn key(Principal { company_id, user_id, .. }: &Principal, run_id: &RunId) -> String {
    format!("{}:{}:{company_id}{user_id}{run_id}", company_id.len(), user_id.len())
}

#[cfg(test)]
mod tests {
    use agent_core::tool::Caller;

    use super::*;

    fn principal(company: &str, user: &str) -> Principal {
        Principal::new(user, company, Caller::Session)
    }

    #[test]
    fn an_identifier_is_good_once_for_each_user_of_a_company() {
        let runs = RunRegistry::default();
        runs.claim(&principal("c", "u1"), &"r".into()).expect("it is new").keep();
        assert!(runs.claim(&principal("c", "u1"), &"r".into()).is_none());
        for (company, user, run, what) in [
            ("c", "u", "1r", "another user's"),
            ("d", "u1", "r", "another company's"),
            ("cu", "1", "r", "both"),
        ] {
            assert!(runs.claim(&principal(company, user), &run.into()).is_some(), "{what}");
            assert!(runs.claim(&principal(company, user), &run.into()).is_some(), "given back");
        }
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let (runs, user) = (RunRegistry::default(), principal("c", "u"));
        for i in 0..=MAX_RUN_IDS {
            runs.claim(&user, &i.to_string().into()).expect("it is new").keep();
        }
        assert!(runs.claim(&user, &"1".into()).is_none());
        assert!(runs.claim(&user, &"0".into()).is_some());
    }
}
