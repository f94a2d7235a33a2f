//! Due occurrences of `GET /api/cron`, chosen fairly among companies.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use agent_core::ids::CompanyId;
use agent_jobs::job::Delivery;

/// Due occurrences by company. Bounded: it keeps the earliest of each company, and counts the others.
#[derive(Debug)]
pub(super) struct DueOccurrences {
    by_company: BTreeMap<CompanyId, Vec<Delivery>>,
    per_company: usize,
    /// Number of occurrences that were added.
    pub(super) count: usize,
}

impl DueOccurrences {
    /// Creates an empty set that keeps `per_company` occurrences of each company.
    pub(super) fn new(per_company: usize) -> Self {
        Self { by_company: BTreeMap::new(), per_company, count: 0 }
    }

    /// Adds an occurrence.
    pub(super) fn add(&mut self, delivery: Delivery) {
        self.count += 1;
        let deliveries = self.by_company.entry(delivery.payload.company_id.clone()).or_default();
        let position = deliveries.partition_point(|known| known.scheduled_for <= delivery.scheduled_for);
        if position < self.per_company {
            deliveries.insert(position, delivery);
            deliveries.truncate(self.per_company);
        }
    }

    /// Chooses at most `limit` occurrences: one of each company, round-robin, the earliest first, beginning with the company
    /// after `last`. Companies that get none are the first of the next call.
    fn choose(self, limit: usize, last: Option<&CompanyId>) -> Vec<Delivery> {
        let is_before = |company: &CompanyId| last.is_some_and(|last| company <= last);
        let (before, after): (Vec<_>, Vec<_>) =
            self.by_company.into_iter().partition(|(company, _)| is_before(company));
        let mut queues: VecDeque<VecDeque<Delivery>> =
            after.into_iter().chain(before).map(|(_, deliveries)| deliveries.into()).collect();
        let mut chosen = Vec::new();
        while chosen.len() < limit
            && let Some(mut queue) = queues.pop_front()
        {
            chosen.extend(queue.pop_front());
            if !queue.is_empty() {
                queues.push_back(queue);
            }
        }
        chosen
    }
}

/// Position of the rotation among companies: a call begins with the company after the last one of the previous call.
#[derive(Debug, Default)]
pub(super) struct CompanyRotation(Mutex<Option<CompanyId>>);

impl CompanyRotation {
    /// Chooses at most `limit` occurrences, and moves the position.
    pub(super) fn choose(&self, due: DueOccurrences, limit: usize) -> Vec<Delivery> {
        // A panic between the two accesses leaves an older position, which is valid.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let chosen = due.choose(limit, last.as_ref());
        if let Some(delivery) = chosen.last() {
            *last = Some(delivery.payload.company_id.clone());
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use agent_jobs::job::JobPayload;
    use jiff::Timestamp;

    use super::*;

    fn delivery(company: &str, second: i64) -> Delivery {
        let payload = JobPayload::for_tool(company, "u", "a", "createTodo");
        Delivery {
            payload: payload.into(),
            job_id: format!("{company}{second}").into(),
            occurrence: 1,
            scheduled_for: Timestamp::from_second(second).expect("a time"),
            attempt: 1,
        }
    }

    fn due() -> DueOccurrences {
        let mut due = DueOccurrences::new(3);
        for second in (0..9).rev() {
            due.add(delivery("a", second));
        }
        for (company, second) in [("b", 7), ("c", 1), ("c", 0)] {
            due.add(delivery(company, second));
        }
        due
    }

    #[test]
    fn companies_take_turns_and_each_begins_with_its_earliest() {
        let cases: [(usize, Option<&str>, &[&str]); 5] = [
            (9, None, &["a0", "b7", "c0", "a1", "c1", "a2"]),
            (2, None, &["a0", "b7"]),
            (2, Some("b"), &["c0", "a0"]),
            (4, Some("bb"), &["c0", "a0", "b7", "c1"]),
            (1, Some("z"), &["a0"]),
        ];
        for (limit, last, expected) in cases {
            let due = due();
            assert_eq!(due.count, 12);
            let chosen = due.choose(limit, last.map(CompanyId::from).as_ref());
            let ids: Vec<&str> = chosen.iter().map(|delivery| delivery.job_id.as_str()).collect();
            assert_eq!(ids, expected, "{limit} after {last:?}");
        }
    }
}
