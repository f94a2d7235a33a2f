//! Usage limits of subscriptions, as the vendor reports them with its answers. They are kept in memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_core::ids::UserId;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::subscriber::Subscriber;
use crate::company_table::{CompanyTable, CompanyTableLimits};

/// Maximum numbers of users whose limits are kept.
const TABLE_LIMITS: CompanyTableLimits = CompanyTableLimits { total: 10_000, per_company: 2_500 };
/// Members of an event that name the limit (the first one counts), and the name of the subscription's own.
const LIMIT_NAMES: [&str; 3] = ["limit_id", "metered_limit_name", "limit_name"];
const OWN_LIMIT: &str = "codex";
/// Maximum length of a balance, in bytes.
const MAX_BALANCE_BYTES: usize = 64;

/// Limits of a user's subscription.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionLimits {
    /// The shorter window, such as five hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary: Option<LimitWindow>,
    /// The longer window, such as a week.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secondary: Option<LimitWindow>,
    /// Credits beyond the windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credits: Option<Credits>,
}

/// Usage within a window of time.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitWindow {
    /// Used share of the window in percent.
    pub used_percent: f64,
    /// Length of the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_minutes: Option<u64>,
    /// End of the window: RFC 3339 in UTC.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_time")]
    #[schemars(with = "Option<String>")]
    pub resets_at: Option<Timestamp>,
}

fn serialize_time<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| format!("{time:.3}")).serialize(serializer)
}

/// Credits of a subscription.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Credits {
    /// True if there are credits.
    pub has_credits: bool,
    /// True if they are unlimited.
    pub unlimited: bool,
    /// Amount, in the vendor's format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
}

impl SubscriptionLimits {
    /// Reads the `x-codex-*` headers of an answer, which `header` returns by their names in lower case. Absent or malformed
    /// members are left out.
    pub fn from_headers<'h>(header: impl Fn(&str) -> Option<&'h str>) -> Self {
        let text = |name: &str| header(name).map(str::trim);
        let window = |name: &str| {
            let part = |field: &str| text(&format!("x-codex-{name}-{field}"));
            LimitWindow::new(
                part("used-percent")?.parse().ok()?,
                part("window-minutes").and_then(|minutes| minutes.parse().ok()),
                part("reset-at").and_then(|seconds| seconds.parse().ok()),
            )
        };
        let flag = |name: &str| match text(name)?.to_ascii_lowercase().as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        };
        let credits = || {
            Some(Credits {
                has_credits: flag("x-codex-credits-has-credits")?,
                unlimited: flag("x-codex-credits-unlimited")?,
                balance: text("x-codex-credits-balance").and_then(balance),
            })
        };
        Self { primary: window("primary"), secondary: window("secondary"), credits: credits() }
    }

    /// Reads a `codex.rate_limits` event of an answer's stream. Absent and malformed values are left out. An event about another
    /// limit than the subscription's own, such as a model's, yields nothing.
    pub fn from_event(event: &Value) -> Self {
        let limit_name = LIMIT_NAMES.iter().map(|name| &event[name]).find(|name| !name.is_null());
        if limit_name.is_some_and(|name| name != OWN_LIMIT) {
            return Self::default();
        }
        let window = |name: &str| {
            let window = &event["rate_limits"][name];
            LimitWindow::new(
                window["used_percent"].as_f64()?,
                window["window_minutes"].as_u64(),
                window["reset_at"].as_i64(),
            )
        };
        let credits = &event["credits"];
        let credits = || {
            Some(Credits {
                has_credits: credits["has_credits"].as_bool()?,
                unlimited: credits["unlimited"].as_bool()?,
                balance: credits["balance"].as_str().and_then(balance),
            })
        };
        Self { primary: window("primary"), secondary: window("secondary"), credits: credits() }
    }

    /// Returns these limits, with absent ones taken from `earlier`.
    fn or(self, earlier: Self) -> Self {
        Self {
            primary: self.primary.or(earlier.primary),
            secondary: self.secondary.or(earlier.secondary),
            credits: self.credits.or(earlier.credits),
        }
    }
}

impl LimitWindow {
    /// Creates a window; `None` if it says nothing, as windows do that a plan does not have.
    fn new(used_percent: f64, window_minutes: Option<u64>, resets_at: Option<i64>) -> Option<Self> {
        let is_known = used_percent != 0.0 || window_minutes.is_some_and(|minutes| minutes != 0);
        let resets_at = resets_at.and_then(|seconds| Timestamp::from_second(seconds).ok());
        let is_valid = used_percent.is_finite() && (is_known || resets_at.is_some());
        is_valid.then_some(Self { used_percent, window_minutes, resets_at })
    }
}

/// Returns a balance of printable text and usual length.
fn balance(text: &str) -> Option<String> {
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    (is_plain && (1..=MAX_BALANCE_BYTES).contains(&text.len())).then(|| text.to_owned())
}

/// The limits of the users that were reported last.
pub(super) struct LimitTable(Mutex<CompanyTable<UserId, SubscriptionLimits>>);

impl Default for LimitTable {
    fn default() -> Self {
        Self(Mutex::new(CompanyTable::new(TABLE_LIMITS)))
    }
}

impl LimitTable {
    pub(super) fn get(&self, subscriber: &Subscriber) -> Option<SubscriptionLimits> {
        self.lock().get(&subscriber.company_id, &subscriber.user_id).cloned()
    }

    /// Replaces the limits of a user.
    pub(super) fn insert(&self, subscriber: Subscriber, limits: SubscriptionLimits) {
        self.lock().insert(&subscriber.company_id, subscriber.user_id, limits);
    }

    /// Replaces the limits of a user that are in `limits`; others stay.
    pub(super) fn update(&self, subscriber: Subscriber, limits: SubscriptionLimits) {
        let mut reports = self.lock();
        let stored = reports.use_or_insert_with(
            &subscriber.company_id,
            subscriber.user_id,
            SubscriptionLimits::default,
        );
        *stored = limits.or(std::mem::take(stored));
    }

    pub(super) fn remove(&self, subscriber: &Subscriber) {
        self.lock().remove(&subscriber.company_id, &subscriber.user_id);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Locks the reports. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, CompanyTable<UserId, SubscriptionLimits>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
