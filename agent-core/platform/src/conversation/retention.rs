//! Retention: the time after which threads without activity are deleted.

use std::time::Duration;

use agent_core::ids::AgentId;
use agent_core::role::ConversationSettings;
use jiff::Timestamp;

use super::ThreadOwner;

/// Maximum number of threads on a page of [`Conversations::scan_threads`](super::Conversations::scan_threads).
pub const MAX_SCANNED_THREADS: usize = 1_000;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Times after the last activity at which threads are deleted regardless of their agents; `None` keeps them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadRetention {
    /// Threads of users.
    pub users: Option<Duration>,
    /// Threads of visitors.
    pub visitors: Option<Duration>,
}

impl ThreadRetention {
    /// Returns the retention of an owner's threads with an agent of these settings: the shorter of the server's and the
    /// agent's.
    pub fn of(&self, owner: &ThreadOwner, agent: &ConversationSettings) -> Option<Duration> {
        let server = if owner.is_visitor() { self.visitors } else { self.users };
        let agent = agent.retention_days.map(|days| DAY * u32::from(days.get()));
        server.into_iter().chain(agent).min()
    }

    /// Returns the shortest retention that a thread can have.
    pub fn shortest(&self) -> Duration {
        [self.users, self.visitors].into_iter().flatten().fold(DAY, Duration::min)
    }
}

/// A thread, as far as retention needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveThread {
    /// The owner.
    pub owner: ThreadOwner,
    /// The agent.
    pub agent_id: AgentId,
    /// Time of the last message or run.
    pub last_activity_at: Timestamp,
}

/// Page of all owners' threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadScan {
    /// Threads of this page.
    pub threads: Vec<ActiveThread>,
    /// Cursor of the next page; absent on the last page.
    pub next_cursor: Option<String>,
}

impl ThreadScan {
    /// Builds a page from threads with their numbers, in order. A store reads one more than [`MAX_SCANNED_THREADS`] to
    /// detect whether another page follows.
    pub fn from_overfetch(mut threads: Vec<(i64, ActiveThread)>) -> Self {
        let has_more = threads.len() > MAX_SCANNED_THREADS;
        threads.truncate(MAX_SCANNED_THREADS);
        let next_cursor = threads.last().filter(|_| has_more).map(|(number, _)| format!("{number:x}"));
        Self { threads: threads.into_iter().map(|(_, thread)| thread).collect(), next_cursor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_time_counts_for_each_kind_of_owner() {
        let retention = ThreadRetention { users: None, visitors: Some(DAY * 30) };
        let agent = |days| {
            let retention_days = std::num::NonZeroU16::new(days);
            ConversationSettings { retention_days, ..ConversationSettings::default() }
        };
        let user = ThreadOwner::new("acme", "ada");
        let visitor = ThreadOwner::new("acme", "widget:t:00ff");
        for (owner, days, expected) in [
            (&user, 0, None),
            (&user, 7, Some(7)),
            (&visitor, 0, Some(30)),
            (&visitor, 7, Some(7)),
            (&visitor, 31, Some(30)),
        ] {
            let expected = expected.map(|days| DAY * days);
            assert_eq!(retention.of(owner, &agent(days)), expected, "{owner:?}, {days} days");
        }
        assert_eq!(retention.shortest(), DAY, "an agent's");
        let short = ThreadRetention { users: Some(Duration::from_secs(9)), ..retention };
        assert_eq!(short.shortest(), Duration::from_secs(9));
    }
}
