//! Circuits of models that keep failing, and budgets of repeated calls, of one process.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::FailureClass;

/// Maximum number of circuits, and of budgets. A new one beyond it replaces any other.
pub const MAX_CIRCUITS: usize = 10_000;
/// Time over which calls are counted.
const WINDOW: Duration = Duration::from_secs(30);
/// Number of failures in a window, at half of its calls or more, that opens a circuit.
const MIN_FAILURES: u32 = 5;
/// Time for which failures open a circuit.
const TRANSIENT_OPEN: Duration = Duration::from_secs(15);
/// Time for which an account's refusal opens a circuit.
const ACCOUNT_OPEN: Duration = Duration::from_secs(60);
/// Limit on the time for which a rate limit opens a circuit.
const MAX_RATE_LIMIT_OPEN: Duration = Duration::from_secs(60 * 60);
/// Time over which repeated calls are counted.
const BUDGET_WINDOW: Duration = Duration::from_secs(60);
/// Number of repeated calls in a window that an address may get with any key; beyond it, one for ten calls.
const FREE_REPEATS: u32 = 10;

/// State of a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CircuitState {
    /// Calls are made.
    Closed,
    /// No call is made.
    Open,
    /// A single call tests whether the model answers again.
    HalfOpen,
}

/// Address, model and key of an entry, as hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CircuitKey {
    account: AccountKey,
    model: [u8; 32],
}

/// Address and key, as a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct AccountKey([u8; 32]);

impl CircuitKey {
    pub(super) fn new(address: &str, model: &str, key: &str) -> Self {
        let key = Sha256::digest(key);
        let mut hasher = Sha256::new();
        for part in [address.as_bytes(), b"\n", &key] {
            hasher.update(part);
        }
        Self { account: AccountKey(hasher.finalize().into()), model: Sha256::digest(model).into() }
    }
}

/// Reason why a call is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CircuitError {
    Open,
    BudgetSpent,
}

/// Circuits and budgets of a process. A circuit belongs to one address, model and key, and a budget to one address and key, so
/// that failures with one tenant's key stop no calls of another tenant.
#[derive(Default)]
pub struct Circuits {
    state: Mutex<CircuitTable>,
}

#[derive(Default)]
struct CircuitTable {
    circuits: HashMap<CircuitKey, Circuit>,
    budgets: HashMap<AccountKey, RepeatBudget>,
}

struct Circuit {
    window_start: Instant,
    calls: u32,
    failures: u32,
    open_until: Option<Instant>,
    has_probe: bool,
}

struct RepeatBudget {
    window_start: Instant,
    calls: u32,
    repeats: u32,
}

impl RepeatBudget {
    fn allows(&self, now: Instant) -> bool {
        let is_over = now.saturating_duration_since(self.window_start) >= BUDGET_WINDOW;
        is_over || self.repeats < FREE_REPEATS || self.repeats < self.calls / 10
    }
}

impl Circuit {
    fn state(&self, now: Instant) -> CircuitState {
        match self.open_until {
            None => CircuitState::Closed,
            Some(until) if now < until || self.has_probe => CircuitState::Open,
            Some(_) => CircuitState::HalfOpen,
        }
    }
}

/// A call that a circuit has let through. Dropping it without an outcome leaves the circuit as it was.
pub(super) struct CircuitCall {
    circuits: Arc<Circuits>,
    key: CircuitKey,
    is_probe: bool,
}

impl Circuits {
    fn lock(&self) -> MutexGuard<'_, CircuitTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of circuits through which no call is made at `now`.
    pub fn open_count(&self, now: Instant) -> usize {
        self.lock().circuits.values().filter(|circuit| circuit.state(now) == CircuitState::Open).count()
    }

    /// Returns the state of a circuit.
    pub(super) fn state(&self, key: &CircuitKey, now: Instant) -> CircuitState {
        self.lock().circuits.get(key).map_or(CircuitState::Closed, |circuit| circuit.state(now))
    }

    /// Returns true if another call in the same round may be made.
    pub(super) fn allows_repeat(&self, key: &CircuitKey, now: Instant) -> bool {
        let table = self.lock();
        let is_closed =
            table.circuits.get(key).is_none_or(|circuit| circuit.state(now) == CircuitState::Closed);
        is_closed && table.budgets.get(&key.account).is_none_or(|budget| budget.allows(now))
    }

    /// Begins a call. `is_repeat` is true for any but the first call of an address in a round. `is_last_resort` begins it
    /// whatever the circuit's state.
    pub(super) fn begin(
        self: &Arc<Self>,
        key: CircuitKey,
        now: Instant,
        (is_repeat, is_last_resort): (bool, bool),
    ) -> Result<CircuitCall, CircuitError> {
        let mut table = self.lock();
        let state = table.circuits.get(&key).map_or(CircuitState::Closed, |circuit| circuit.state(now));
        if state == CircuitState::Open && !is_last_resort {
            return Err(CircuitError::Open);
        }
        if is_repeat && table.budgets.get(&key.account).is_some_and(|budget| !budget.allows(now)) {
            return Err(CircuitError::BudgetSpent);
        }
        let new = || RepeatBudget { window_start: now, calls: 0, repeats: 0 };
        let budget = bounded_entry(&mut table.budgets, &key.account, new);
        if now.saturating_duration_since(budget.window_start) >= BUDGET_WINDOW {
            *budget = new();
        }
        budget.calls = budget.calls.saturating_add(1);
        budget.repeats = budget.repeats.saturating_add(is_repeat.into());
        let is_probe = state == CircuitState::HalfOpen;
        if let Some(circuit) = table.circuits.get_mut(&key).filter(|_| is_probe) {
            circuit.has_probe = true;
        }
        Ok(CircuitCall { circuits: self.clone(), key, is_probe })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        let table = self.lock();
        (table.circuits.len(), table.budgets.len())
    }
}

/// Returns the value of a key, which is inserted if it is missing. Insertion into a full map removes an arbitrary entry.
fn bounded_entry<'m, K: Clone + Eq + Hash, V>(
    map: &'m mut HashMap<K, V>,
    key: &K,
    new: impl FnOnce() -> V,
) -> &'m mut V {
    if map.len() >= MAX_CIRCUITS && !map.contains_key(key) {
        let evicted = map.keys().next().cloned();
        evicted.map(|evicted| map.remove(&evicted));
    }
    map.entry(key.clone()).or_insert_with(new)
}

impl CircuitCall {
    /// Records that the model has answered.
    pub(super) fn succeed(mut self, now: Instant) {
        self.is_probe = false;
        let mut table = self.circuits.lock();
        let Some(circuit) = table.circuits.get_mut(&self.key) else { return };
        if circuit.open_until.is_some() || now.saturating_duration_since(circuit.window_start) >= WINDOW {
            table.circuits.remove(&self.key);
            return;
        }
        circuit.calls = circuit.calls.saturating_add(1);
    }

    /// Records a failure before the first content.
    pub(super) fn fail(mut self, class: FailureClass, retry_after: Option<Duration>, now: Instant) {
        let open_for = match class {
            FailureClass::Transient => None,
            FailureClass::Account => Some(ACCOUNT_OPEN),
            FailureClass::RateLimit => Some(retry_after.unwrap_or_default().min(MAX_RATE_LIMIT_OPEN)),
            // The model has read the request.
            FailureClass::Size | FailureClass::Content | FailureClass::Request => return self.succeed(now),
        };
        let is_probe = std::mem::take(&mut self.is_probe);
        let mut table = self.circuits.lock();
        let new = || Circuit { window_start: now, calls: 0, failures: 0, open_until: None, has_probe: false };
        let circuit = bounded_entry(&mut table.circuits, &self.key, new);
        if now.saturating_duration_since(circuit.window_start) >= WINDOW {
            (circuit.window_start, circuit.calls, circuit.failures) = (now, 0, 0);
        }
        circuit.calls = circuit.calls.saturating_add(1);
        circuit.failures = circuit.failures.saturating_add((class == FailureClass::Transient).into());
        let is_failing = circuit.failures >= MIN_FAILURES && circuit.failures >= circuit.calls.div_ceil(2);
        let open_for = open_for.or((is_failing || is_probe).then_some(TRANSIENT_OPEN));
        if let Some(open_for) = open_for.filter(|time| !time.is_zero()) {
            circuit.open_until = now.checked_add(open_for).max(circuit.open_until);
        }
        if is_probe {
            circuit.has_probe = false;
        }
    }
}

impl Drop for CircuitCall {
    fn drop(&mut self) {
        if self.is_probe
            && let Some(circuit) = self.circuits.lock().circuits.get_mut(&self.key)
        {
            circuit.has_probe = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(circuits: &Arc<Circuits>, key: CircuitKey, now: Instant) -> Result<CircuitCall, CircuitError> {
        circuits.begin(key, now, (false, false))
    }

    #[test]
    fn a_failing_model_is_left_alone_and_probed_once() {
        let (circuits, start) = (Arc::new(Circuits::default()), Instant::now());
        let key = CircuitKey::new("https://a.example", "m", "k");
        for _ in 0..MIN_FAILURES {
            begin(&circuits, key, start).expect("closed").fail(FailureClass::Transient, None, start);
        }
        assert_eq!(begin(&circuits, key, start).err(), Some(CircuitError::Open));
        let other = CircuitKey::new("https://a.example", "m", "another key");
        assert!(begin(&circuits, other, start).is_ok(), "another key has its own circuit");
        let later = start + TRANSIENT_OPEN;
        let probe = begin(&circuits, key, later).expect("a probe");
        assert_eq!(begin(&circuits, key, later).err(), Some(CircuitError::Open), "one probe");
        drop(probe);
        let probe = begin(&circuits, key, later).expect("a dropped probe is made again");
        probe.fail(FailureClass::Transient, None, later);
        assert_eq!(begin(&circuits, key, later).err(), Some(CircuitError::Open));
        begin(&circuits, key, later + TRANSIENT_OPEN).expect("a probe").succeed(later + TRANSIENT_OPEN);
        for _ in 0..3 {
            assert!(begin(&circuits, key, later + TRANSIENT_OPEN).is_ok(), "closed");
        }
    }

    #[test]
    fn accounts_and_rate_limits_open_for_their_own_times() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        for (class, retry_after, expected) in [
            (FailureClass::Account, None, ACCOUNT_OPEN),
            (FailureClass::RateLimit, Some(7 * second), 7 * second),
            (FailureClass::RateLimit, Some(Duration::MAX), MAX_RATE_LIMIT_OPEN),
            (FailureClass::RateLimit, None, Duration::ZERO),
            (FailureClass::Request, None, Duration::ZERO),
        ] {
            let circuits = Arc::new(Circuits::default());
            let key = CircuitKey::new("a", "m", "k");
            begin(&circuits, key, start).expect("closed").fail(class, retry_after, start);
            if !expected.is_zero() {
                let before = start + expected - Duration::from_millis(1);
                assert_eq!(begin(&circuits, key, before).err(), Some(CircuitError::Open), "{class:?}");
            }
            assert!(begin(&circuits, key, start + expected).is_ok(), "{class:?}");
        }
    }

    #[test]
    fn repeated_calls_are_bounded_by_the_calls_of_an_address_with_a_key() {
        let (circuits, now) = (Arc::new(Circuits::default()), Instant::now());
        let key = CircuitKey::new("a", "m", "k");
        let begin = |now, is_repeat| circuits.begin(key, now, (is_repeat, false)).map(drop);
        let mut repeats = 0;
        for _ in 0..1_000 {
            begin(now, false).expect("a first call");
            repeats += u32::from(begin(now, true).is_ok());
        }
        assert!((90..=112).contains(&repeats), "{repeats}");
        while begin(now, true).is_ok() {}
        let repeat = |address, model, key| {
            circuits.begin(CircuitKey::new(address, model, key), now, (true, false)).map(drop)
        };
        assert!(!circuits.allows_repeat(&key, now));
        assert_eq!(repeat("a", "another model", "k"), Err(CircuitError::BudgetSpent));
        assert_eq!(repeat("a", "m", "another tenant's"), Ok(()), "it has a budget of its own");
        assert_eq!(repeat("b", "m", "k"), Ok(()));
        assert_eq!(begin(now + BUDGET_WINDOW, true), Ok(()), "a new window");
    }

    #[test]
    fn circuits_are_bounded() {
        let (circuits, now) = (Arc::new(Circuits::default()), Instant::now());
        for number in 0..MAX_CIRCUITS + 50 {
            let key = CircuitKey::new(&number.to_string(), "m", "");
            let call = circuits.begin(key, now, (false, false)).expect("closed");
            call.fail(FailureClass::Account, None, now);
        }
        assert_eq!(circuits.len(), (MAX_CIRCUITS, MAX_CIRCUITS));
    }
}
