//! Pseudo-random numbers, with a fixed seed or with one that the test prints.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::env_number;

/// A generator of pseudo-random numbers (SplitMix64).
pub struct Random(u64);

impl Random {
    /// Creates a generator whose seed is the time, or that of an environment variable.
    pub fn new(seed_env: &str) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time");
        let seed = env_number(seed_env, time.as_nanos() as u64);
        // Shown with the output of a test that fails.
        writeln!(std::io::stderr(), "{seed_env}={seed}").expect("written");
        Self(seed)
    }

    /// Creates a generator with a fixed seed.
    pub fn with_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a duration of up to `limit`, in whole microseconds.
    pub fn up_to(&mut self, limit: Duration) -> Duration {
        Duration::from_micros(self.below(limit.as_micros() as u64 + 1))
    }

    /// Returns a number below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}
