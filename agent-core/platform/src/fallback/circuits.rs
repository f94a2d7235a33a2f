//! Circuit breakers of models that keep failing, and budgets of repeated calls, of one process.

use std::collections::{HashMap, HashSet};
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
/// Minimum number of failures in a window, at half of its calls or more, that opens a circuit.
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
const MIN_REPEATS_PER_WINDOW: u32 = 10;

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

/// Address, model and key of an entry, and the company that calls it, as hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CircuitKey {
    account: AccountKey,
    model: [u8; 32],
    /// `None` for the circuit of all companies.
    company: Option<CompanyHash>,
}

type CompanyHash = [u8; 32];

/// Address and key, as a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct AccountKey([u8; 32]);

impl CircuitKey {
    pub(super) fn new(address: &str, model: &str, key: &str, company: &str) -> Self {
        let key = Sha256::digest(key);
        let mut hasher = Sha256::new();
        for part in [address.as_bytes(), b"\n", &key] {
            hasher.update(part);
        }
        Self {
            account: AccountKey(hasher.finalize().into()),
            model: Sha256::digest(model).into(),
            company: Some(Sha256::digest(company).into()),
        }
    }

    /// Returns the keys of the company's circuit and of the circuit of all companies.
    fn own_and_common(self) -> [Self; 2] {
        [self, Self { company: None, ..self }]
    }

    /// Returns the key of the budget.
    fn budget(&self) -> BudgetKey {
        (self.account, self.company)
    }
}

type BudgetKey = (AccountKey, Option<CompanyHash>);

/// Reason why a call is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CircuitError {
    Open,
    BudgetSpent,
}

/// Circuits and budgets of a process. A circuit belongs to one address, model and key, and a budget to one address, key and
/// company.
///
/// The key may be the operator's, which many companies use, and one company may cause the failures: of an agent's time limit, a
/// parameter, or a prompt. Each company therefore has a separate circuit. The circuit of all companies opens by failures of
/// two, however many one of them has.
#[derive(Default)]
pub struct Circuits {
    state: Mutex<CircuitTable>,
}

impl std::fmt::Debug for Circuits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Circuits").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct CircuitTable {
    circuits: HashMap<CircuitKey, Circuit>,
    budgets: HashMap<BudgetKey, RepeatBudget>,
}

impl CircuitTable {
    /// Returns the state of a company's circuit and of that of all companies together.
    fn state(&self, key: &CircuitKey, now: Instant) -> CircuitState {
        let state = |key: CircuitKey| {
            self.circuits.get(&key).map_or(CircuitState::Closed, |circuit| circuit.state(now))
        };
        match key.own_and_common().map(state) {
            [CircuitState::Open, _] | [_, CircuitState::Open] => CircuitState::Open,
            [CircuitState::HalfOpen, _] | [_, CircuitState::HalfOpen] => CircuitState::HalfOpen,
            [CircuitState::Closed, CircuitState::Closed] => CircuitState::Closed,
        }
    }

    /// Returns true if the budget of repeated calls is not spent.
    fn has_repeats(&self, key: &CircuitKey, now: Instant) -> bool {
        self.budgets.get(&key.budget()).is_none_or(|budget| budget.allows(now))
    }

    /// Records that the model has answered.
    fn succeed(&mut self, key: &CircuitKey, now: Instant) {
        let Some(circuit) = self.circuits.get_mut(key) else { return };
        if circuit.open_until.is_some() || now.saturating_duration_since(circuit.window_start) >= WINDOW {
            self.circuits.remove(key);
            return;
        }
        circuit.answered = circuit.answered.saturating_add(1);
    }
}

struct Circuit {
    window_start: Instant,
    /// Number of calls in the window that were answered or refused.
    answered: u32,
    /// Transient failures in the window, and rate limits without a delay.
    failures: FailuresByCompany,
    /// Refusals of the account, and rate limits with a delay, in the window.
    refusals: FailuresByCompany,
    open_until: Option<Instant>,
    has_probe: bool,
}

/// Number of failures, and the company that has the majority of them, if one has.
#[derive(Default)]
struct FailuresByCompany {
    total: u32,
    /// True if calls of two companies have failed.
    is_common: bool,
    /// Company that has the majority, by the algorithm of Boyer and Moore.
    majority: Option<CompanyHash>,
    /// Lead of its failures over the failures of all other callers.
    surplus: u32,
}

impl FailuresByCompany {
    fn record(&mut self, company: Option<CompanyHash>) {
        self.total = self.total.saturating_add(1);
        if self.majority == company {
            self.surplus = self.surplus.saturating_add(1);
            return;
        }
        self.is_common |= self.majority.is_some();
        match self.surplus.checked_sub(1) {
            Some(surplus) => self.surplus = surplus,
            None => (self.majority, self.surplus) = (company, 1),
        }
    }

    /// Returns the number of failures; the lead of a single company counts for less than [`MIN_FAILURES`].
    fn balanced_total(&self) -> u32 {
        self.total.saturating_sub(self.surplus.saturating_sub(MIN_FAILURES - 1))
    }
}

/// A failed call.
struct CallFailure {
    company: Option<CompanyHash>,
    /// Time for which the circuit opens regardless of the number of failures. `None` for a failure that opens the circuit only
    /// together with other failures.
    open_for: Option<Duration>,
    at: Instant,
}

struct RepeatBudget {
    window_start: Instant,
    calls: u32,
    repeats: u32,
}

impl RepeatBudget {
    fn allows(&self, now: Instant) -> bool {
        let is_over = now.saturating_duration_since(self.window_start) >= BUDGET_WINDOW;
        is_over || self.repeats < MIN_REPEATS_PER_WINDOW || self.repeats < self.calls / 10
    }
}

impl Circuit {
    fn new(now: Instant) -> Self {
        Self {
            window_start: now,
            answered: 0,
            failures: FailuresByCompany::default(),
            refusals: FailuresByCompany::default(),
            open_until: None,
            has_probe: false,
        }
    }

    /// Records a failure. The circuit of all companies stays as it is until calls of two have failed in the same way.
    fn fail(&mut self, failure: &CallFailure, is_common: bool, is_probe: bool) {
        let now = failure.at;
        if now.saturating_duration_since(self.window_start) >= WINDOW {
            let (open_until, has_probe) = (self.open_until, self.has_probe);
            *self = Self { open_until, has_probe, ..Self::new(now) };
        }
        if failure.open_for.is_none() {
            self.failures.record(failure.company);
        } else {
            self.refusals.record(failure.company);
            self.answered = self.answered.saturating_add(1);
        }
        let counts = |failures: &FailuresByCompany| !is_common || failures.is_common;
        let failures = if is_common { self.failures.balanced_total() } else { self.failures.total };
        let is_failing = failure.open_for.is_none() && failures >= MIN_FAILURES && failures >= self.answered;
        // The delay that a provider requested was too short if the call after it fails as well.
        let is_failed_probe = is_probe && (counts(&self.failures) || counts(&self.refusals));
        let requested = failure.open_for.filter(|_| counts(&self.refusals));
        let minimum = (is_failing || is_failed_probe).then_some(TRANSIENT_OPEN);
        if let Some(open_for) = requested.max(minimum) {
            self.open_until = now.checked_add(open_for).max(self.open_until);
        }
        if is_probe {
            self.has_probe = false;
        }
    }

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
    /// True if the call probes the company's circuit, and that of all companies.
    is_probe: [bool; 2],
}

impl Circuits {
    fn lock(&self) -> MutexGuard<'_, CircuitTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of models and agent servers that are left out at `now`, by any company.
    pub fn open_count(&self, now: Instant) -> usize {
        let table = self.lock();
        let open = table.circuits.iter().filter(|(_, circuit)| circuit.state(now) == CircuitState::Open);
        open.map(|(key, _)| (key.account, key.model)).collect::<HashSet<_>>().len()
    }

    /// Returns the state of a circuit.
    pub(super) fn state(&self, key: &CircuitKey, now: Instant) -> CircuitState {
        self.lock().state(key, now)
    }

    /// Returns true if another call in the same round may be made.
    pub(super) fn allows_repeat(&self, key: &CircuitKey, now: Instant) -> bool {
        let table = self.lock();
        table.state(key, now) == CircuitState::Closed && table.has_repeats(key, now)
    }

    /// Returns true if the budget permits another call in the same round, whatever the circuit's state.
    pub(super) fn has_repeats(&self, key: &CircuitKey, now: Instant) -> bool {
        self.lock().has_repeats(key, now)
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
        let state = table.state(&key, now);
        if state == CircuitState::Open && !is_last_resort {
            return Err(CircuitError::Open);
        }
        if is_repeat && !table.has_repeats(&key, now) {
            return Err(CircuitError::BudgetSpent);
        }
        let new = || RepeatBudget { window_start: now, calls: 0, repeats: 0 };
        let budget = bounded_entry(&mut table.budgets, &key.budget(), new);
        if now.saturating_duration_since(budget.window_start) >= BUDGET_WINDOW {
            *budget = new();
        }
        budget.calls = budget.calls.saturating_add(1);
        budget.repeats = budget.repeats.saturating_add(is_repeat.into());
        let is_probe = key.own_and_common().map(|key| {
            let circuit = table.circuits.get_mut(&key);
            let half_open = circuit.filter(|circuit| circuit.state(now) == CircuitState::HalfOpen);
            half_open.map(|circuit| circuit.has_probe = true).is_some()
        });
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
        self.is_probe = [false; 2];
        let mut table = self.circuits.lock();
        for key in self.key.own_and_common() {
            table.succeed(&key, now);
        }
    }

    /// Records a failure before the first content.
    pub(super) fn fail(mut self, class: FailureClass, retry_after: Option<Duration>, now: Instant) {
        let open_for = match class {
            FailureClass::Transient => None,
            FailureClass::Account => Some(ACCOUNT_OPEN),
            // Without a delay it is not known when calls will succeed again, so they count as failures of the provider.
            FailureClass::RateLimit => {
                retry_after.filter(|delay| !delay.is_zero()).map(|delay| delay.min(MAX_RATE_LIMIT_OPEN))
            }
            // The model has read the request.
            FailureClass::Size
            | FailureClass::Unsupported
            | FailureClass::Content
            | FailureClass::Request => return self.succeed(now),
        };
        let is_probe = std::mem::take(&mut self.is_probe);
        let failure = CallFailure { company: self.key.company, open_for, at: now };
        let mut table = self.circuits.lock();
        for (key, is_probe) in self.key.own_and_common().into_iter().zip(is_probe) {
            let circuit = bounded_entry(&mut table.circuits, &key, || Circuit::new(now));
            circuit.fail(&failure, key.company.is_none(), is_probe);
        }
    }
}

impl Drop for CircuitCall {
    fn drop(&mut self) {
        if self.is_probe == [false; 2] {
            return;
        }
        let mut table = self.circuits.lock();
        for (key, is_probe) in self.key.own_and_common().into_iter().zip(self.is_probe) {
            if let Some(circuit) = table.circuits.get_mut(&key).filter(|_| is_probe) {
                circuit.has_probe = false;
            }
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
    fn a_failing_model_gets_no_calls_but_one_probe() {
        let (circuits, start) = (Arc::new(Circuits::default()), Instant::now());
        let key = CircuitKey::new("https://a.example", "m", "k", "c");
        for _ in 0..MIN_FAILURES {
            begin(&circuits, key, start).expect("closed").fail(FailureClass::Transient, None, start);
        }
        assert_eq!(begin(&circuits, key, start).err(), Some(CircuitError::Open));
        let other = CircuitKey::new("https://a.example", "m", "another key", "c");
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
    fn failures_of_one_company_open_no_circuit_of_others() {
        let start = Instant::now();
        let [first, second, third] = ["c", "d", "e"]
            .map(|company| CircuitKey::new("https://a.example", "m", "the operator's", company));
        for class in [FailureClass::Transient, FailureClass::Account] {
            let circuits = Arc::new(Circuits::default());
            for _ in 0..3 * MIN_FAILURES {
                let call = circuits.begin(first, start, (false, true)).expect("the last resort");
                call.fail(class, None, start);
            }
            assert_eq!(begin(&circuits, first, start).err(), Some(CircuitError::Open));
            assert_eq!(circuits.state(&second, start), CircuitState::Closed, "{class:?}");
            assert!(circuits.allows_repeat(&second, start), "{class:?}");
            // A failure of another company shows that the model fails.
            begin(&circuits, second, start).expect("closed").fail(class, None, start);
            assert_eq!(begin(&circuits, third, start).err(), Some(CircuitError::Open), "{class:?}");
            assert_eq!(circuits.open_count(start), 1, "one model");
            // Later failures of the first one alone do not keep it open.
            let later = start + ACCOUNT_OPEN.max(TRANSIENT_OPEN);
            begin(&circuits, first, later).expect("a probe").fail(class, None, later);
            begin(&circuits, third, later).expect("another probe").succeed(later);
            assert_eq!(circuits.state(&third, later), CircuitState::Closed, "{class:?}");
            assert_eq!(circuits.state(&first, later), CircuitState::Open, "{class:?}");
        }
    }

    #[test]
    fn the_failures_of_one_company_do_not_outweigh_the_answers_to_another() {
        let (circuits, now) = (Arc::new(Circuits::default()), Instant::now());
        let [first, second, third, fourth] = ["c", "d", "e", "f"]
            .map(|company| CircuitKey::new("https://a.example", "m", "the operator's", company));
        for _ in 0..4 * MIN_FAILURES {
            let call = circuits.begin(first, now, (false, true)).expect("the last resort");
            call.fail(FailureClass::Transient, None, now);
            begin(&circuits, second, now).expect("closed").succeed(now);
        }
        begin(&circuits, second, now).expect("closed").fail(FailureClass::Transient, None, now);
        assert_eq!(circuits.state(&third, now), CircuitState::Closed, "one failure in many calls");
        begin(&circuits, second, now).expect("closed").fail(FailureClass::Account, None, now);
        assert_eq!(circuits.state(&third, now), CircuitState::Closed, "a refusal of one company alone");
        begin(&circuits, third, now).expect("closed").fail(FailureClass::Account, None, now);
        assert_eq!(circuits.state(&fourth, now), CircuitState::Open, "refusals of two companies");
    }

    #[test]
    fn a_vendor_that_is_down_gets_no_more_calls_of_companies_with_one_call_each() {
        let (circuits, now) = (Arc::new(Circuits::default()), Instant::now());
        let company = |number: u32| CircuitKey::new("https://a.example", "m", "k", &number.to_string());
        for number in 0..MIN_FAILURES {
            begin(&circuits, company(number), now).expect("closed").fail(FailureClass::Transient, None, now);
        }
        for number in 0..1_000 {
            assert_eq!(begin(&circuits, company(number), now).err(), Some(CircuitError::Open), "{number}");
            assert!(!circuits.allows_repeat(&company(number), now), "{number}");
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
            (FailureClass::RateLimit, Some(Duration::ZERO), Duration::ZERO),
            (FailureClass::Request, None, Duration::ZERO),
            (FailureClass::Unsupported, None, Duration::ZERO),
        ] {
            let circuits = Arc::new(Circuits::default());
            let key = CircuitKey::new("a", "m", "k", "c");
            begin(&circuits, key, start).expect("closed").fail(class, retry_after, start);
            if !expected.is_zero() {
                let before = start + expected - Duration::from_millis(1);
                assert_eq!(begin(&circuits, key, before).err(), Some(CircuitError::Open), "{class:?}");
            }
            assert!(begin(&circuits, key, start + expected).is_ok(), "{class:?}");
        }
    }

    #[test]
    fn a_rate_limit_that_does_not_end_opens_the_circuit_for_longer() {
        let (circuits, start) = (Arc::new(Circuits::default()), Instant::now());
        let second = Duration::from_secs(1);
        let key = CircuitKey::new("a", "m", "k", "c");
        let limit = |delay, now| {
            let call = begin(&circuits, key, now).expect("closed, or a probe");
            call.fail(FailureClass::RateLimit, delay, now);
        };
        for delay in [None, Some(Duration::ZERO), None, Some(Duration::ZERO), None] {
            assert_eq!(circuits.state(&key, start), CircuitState::Closed);
            limit(delay, start);
        }
        assert_eq!(circuits.state(&key, start), CircuitState::Open, "five without a delay");

        let circuits = Arc::new(Circuits::default());
        let limit = |delay, now| {
            let call = begin(&circuits, key, now).expect("closed, or a probe");
            call.fail(FailureClass::RateLimit, Some(delay), now);
        };
        limit(second, start);
        assert_eq!(circuits.state(&key, start + second), CircuitState::HalfOpen);
        limit(second, start + second);
        assert_eq!(circuits.state(&key, start + 2 * second), CircuitState::Open, "the delay was too short");
        assert_eq!(circuits.state(&key, start + second + TRANSIENT_OPEN), CircuitState::HalfOpen);
        limit(100 * second, start + second + TRANSIENT_OPEN);
        assert_eq!(circuits.state(&key, start + 100 * second), CircuitState::Open, "the longer one");
    }

    #[test]
    fn repeated_calls_are_bounded_by_the_calls_of_an_address_with_a_key() {
        let (circuits, now) = (Arc::new(Circuits::default()), Instant::now());
        let key = CircuitKey::new("a", "m", "k", "c");
        let begin = |now, is_repeat| circuits.begin(key, now, (is_repeat, false)).map(drop);
        let mut repeats = 0;
        for _ in 0..1_000 {
            begin(now, false).expect("a first call");
            repeats += u32::from(begin(now, true).is_ok());
        }
        assert!((90..=112).contains(&repeats), "{repeats}");
        while begin(now, true).is_ok() {}
        let repeat = |address, model, key, company| {
            circuits.begin(CircuitKey::new(address, model, key, company), now, (true, false)).map(drop)
        };
        assert!(!circuits.allows_repeat(&key, now));
        assert_eq!(repeat("a", "another model", "k", "c"), Err(CircuitError::BudgetSpent));
        assert_eq!(repeat("a", "m", "another key", "c"), Ok(()), "it has a budget of its own");
        assert_eq!(repeat("a", "m", "k", "d"), Ok(()), "another company has a budget of its own");
        assert_eq!(repeat("b", "m", "k", "c"), Ok(()));
        assert_eq!(begin(now + BUDGET_WINDOW, true), Ok(()), "a new window");
    }

    #[test]
    fn circuits_are_bounded() {
        let (circuits, now) = (Arc::new(Circuits::default()), Instant::now());
        for number in 0..MAX_CIRCUITS + 50 {
            let key = CircuitKey::new(&number.to_string(), "m", "", "c");
            let call = circuits.begin(key, now, (false, false)).expect("closed");
            call.fail(FailureClass::Account, None, now);
        }
        assert_eq!(circuits.len(), (MAX_CIRCUITS, MAX_CIRCUITS));
    }
}
