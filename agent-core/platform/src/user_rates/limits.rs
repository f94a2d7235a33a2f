//! Limits on the requests of users, by the kind of requests.

use std::num::NonZeroU32;

/// Limits on the requests of a signed-in user, over all of the user's sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Maximum number of runs per minute; 60.
    pub runs_per_minute: NonZeroU32,
    /// Maximum number of requests per minute that change something; 300.
    pub changes_per_minute: NonZeroU32,
}

impl Default for SessionLimits {
    fn default() -> Self {
        let limit = |number| NonZeroU32::new(number).expect("the defaults are positive");
        Self { runs_per_minute: limit(60), changes_per_minute: limit(300) }
    }
}

impl SessionLimits {
    /// Returns the limit of a rate.
    pub fn per_minute(&self, rate: UserRate) -> NonZeroU32 {
        match rate {
            UserRate::Runs => self.runs_per_minute,
            UserRate::Changes => self.changes_per_minute,
        }
    }
}

/// Kind of requests that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UserRate {
    /// Runs.
    Runs,
    /// Requests that change something.
    Changes,
}
