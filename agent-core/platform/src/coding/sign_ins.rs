//! Record of a user's recent sign-ins.

use std::time::Duration;

use agent_core::ids::{CompanyId, UserId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::authority::{CodingAuthorityError, DeviceCode};
use super::stored::put;
use super::subscriber::Subscriber;
use super::{CALL_TIMEOUT, LEASE, until};
use crate::records::{Precondition, Records, RecordsExt, StoreError, Write};
use crate::time::saturating_after;

/// Maximum number of sign-ins that a user may begin in an hour.
pub const MAX_SIGN_INS_PER_HOUR: u32 = 10;
/// Time for which a finished sign-in is kept, and for which a sign-in counts towards the limit.
const RETENTION: Duration = Duration::from_secs(60 * 60);
/// Minimum remaining lifetime of an open sign-in that is returned again instead of beginning another one.
const MIN_REUSABLE_LIFETIME: Duration = Duration::from_secs(60);
/// Longest lifetime of a sign-in.
const MAX_LIFETIME: Duration = Duration::from_secs(30 * 60);
/// Bounds of the issuer's interval.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_INTERVAL: Duration = Duration::from_secs(60);
/// Addition to the interval after `slow_down` (RFC 8628, section 3.5).
const SLOW_DOWN: Duration = Duration::from_secs(5);
/// Longest pause after polls without an answer, unless the interval is longer.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// A user's sign-ins of the last hour, the oldest first. All changes have the record's version as precondition.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredSignIns {
    pub(super) sign_ins: Vec<StoredSignIn>,
}

/// A sign-in.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredSignIn {
    pub(super) id: String,
    pub(super) begun_at: Timestamp,
    pub(super) phase: Phase,
}

/// State of a sign-in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "is")]
pub(super) enum Phase {
    /// A task requests the device code.
    Starting {
        /// End of the task's right to do so.
        until: Timestamp,
    },
    /// The user has not confirmed it yet.
    Pending(PendingSignIn),
    /// Final.
    Ended {
        at: Timestamp,
        outcome: SignInOutcome,
        /// Reason of a failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
    },
}

/// Outcome of a sign-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum SignInOutcome {
    Complete,
    Denied,
    Expired,
    Failed,
    /// The user has cancelled it. It is shown no longer, but counts.
    Cancelled,
}

/// Stored data of a sign-in that waits for the user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PendingSignIn {
    /// Sealed device code.
    pub(super) device_code: String,
    /// Sealed user code.
    pub(super) user_code: String,
    pub(super) verification_uri: String,
    pub(super) interval_seconds: u64,
    /// Time before which the issuer must not be polled.
    pub(super) next_poll_at: Timestamp,
    pub(super) expires_at: Timestamp,
    /// Number of polls without an answer since the last one that was answered.
    #[serde(default)]
    pub(super) unanswered: u32,
}

impl PendingSignIn {
    /// Creates the stored data of `code`, whose secrets are sealed already.
    pub(super) fn new(code: &DeviceCode, device_code: String, user_code: String, now: Timestamp) -> Self {
        let interval = code.interval.clamp(MIN_INTERVAL, MAX_INTERVAL);
        Self {
            device_code,
            user_code,
            verification_uri: code.verification_uri.clone(),
            interval_seconds: interval.as_secs(),
            next_poll_at: saturating_after(now, interval),
            expires_at: saturating_after(now, code.expires_in.min(MAX_LIFETIME)),
            unanswered: 0,
        }
    }

    pub(super) fn interval(&self) -> Duration {
        Duration::from_secs(self.interval_seconds)
    }

    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.next_poll_at <= now && now < self.expires_at
    }

    /// Claims the next poll: until its answer is stored, or it expires, no other is made.
    pub(super) fn claim(&mut self, now: Timestamp) {
        self.next_poll_at = saturating_after(now, CALL_TIMEOUT + self.interval());
    }

    /// Schedules the next poll after one that has not ended the sign-in.
    pub(super) fn schedule(&mut self, answer: &CodingAuthorityError, now: Timestamp) {
        let pause = match answer {
            CodingAuthorityError::Pending | CodingAuthorityError::SlowDown => {
                self.unanswered = 0;
                if matches!(answer, CodingAuthorityError::SlowDown) {
                    self.interval_seconds += SLOW_DOWN.as_secs();
                }
                Duration::ZERO
            }
            error => {
                self.unanswered = self.unanswered.saturating_add(1);
                let factor = 2_u32.saturating_pow(self.unanswered.min(16));
                let requested_delay = match error {
                    CodingAuthorityError::RateLimited(Some(delay)) => *delay,
                    _ => Duration::ZERO,
                };
                self.interval().saturating_mul(factor).max(requested_delay).min(MAX_BACKOFF)
            }
        };
        // Never after the end, so that the sign-in expires in time.
        self.next_poll_at = saturating_after(now, pause.max(self.interval())).min(self.expires_at);
    }
}

impl StoredSignIn {
    /// Creates a sign-in whose device code is about to be requested.
    pub(super) fn starting(now: Timestamp) -> Self {
        Self {
            id: agent_core::new_id(),
            begun_at: now,
            phase: Phase::Starting { until: saturating_after(now, LEASE) },
        }
    }

    /// Ends the sign-in and deletes its stored codes.
    pub(super) fn end(&mut self, outcome: SignInOutcome, code: Option<&str>, now: Timestamp) {
        self.phase = Phase::Ended { at: now, outcome, code: code.map(str::to_owned) };
    }

    /// Ends the sign-in if it has expired.
    fn expire(&mut self, now: Timestamp) {
        match &self.phase {
            // Another process may still store the answer of a poll that it began in time.
            Phase::Pending(pending) if pending.expires_at <= now && pending.next_poll_at <= now => {
                let at = pending.expires_at;
                self.end(SignInOutcome::Expired, None, at);
            }
            Phase::Starting { until } if *until <= now => {
                let at = *until;
                self.end(SignInOutcome::Cancelled, None, at);
            }
            _ => {}
        }
    }

    /// Returns true while the sign-in is shown or counts.
    fn is_kept(&self, now: Timestamp) -> bool {
        let latest = match &self.phase {
            Phase::Ended { at, .. } => self.begun_at.max(*at),
            _ => return true,
        };
        saturating_after(latest, RETENTION) > now
    }
}

impl StoredSignIns {
    /// Ends expired sign-ins, and removes sign-ins that have been final for an hour.
    pub(super) fn remove_expired(&mut self, now: Timestamp) {
        self.sign_ins.iter_mut().for_each(|sign_in| sign_in.expire(now));
        self.sign_ins.retain(|sign_in| sign_in.is_kept(now));
    }

    /// Returns the sign-in of this id, unless it was cancelled or its device code is still being requested.
    pub(super) fn find_mut(&mut self, id: &str) -> Option<&mut StoredSignIn> {
        self.sign_ins.iter_mut().find(|sign_in| sign_in.id == id).filter(|sign_in| {
            !matches!(
                sign_in.phase,
                Phase::Starting { .. } | Phase::Ended { outcome: SignInOutcome::Cancelled, .. }
            )
        })
    }

    /// Returns the data of a sign-in that waits for the user.
    pub(super) fn pending_mut(&mut self, id: &str) -> Option<&mut PendingSignIn> {
        match &mut self.find_mut(id)?.phase {
            Phase::Pending(pending) => Some(pending),
            _ => None,
        }
    }

    /// Returns the open sign-in that can be given again.
    pub(super) fn reusable(&self, now: Timestamp) -> Option<(&str, &PendingSignIn)> {
        self.sign_ins.iter().rev().find_map(|sign_in| match &sign_in.phase {
            Phase::Pending(pending) if pending.expires_at > saturating_after(now, MIN_REUSABLE_LIFETIME) => {
                Some((sign_in.id.as_str(), pending))
            }
            _ => None,
        })
    }

    /// Returns true while a task requests a device code.
    pub(super) fn is_starting(&self) -> bool {
        self.sign_ins.iter().any(|sign_in| matches!(sign_in.phase, Phase::Starting { .. }))
    }

    /// Returns the time after which another sign-in may be started; `None` for now.
    pub(super) fn retry_after(&self, now: Timestamp) -> Option<Duration> {
        let counted = self.sign_ins.iter().map(|sign_in| saturating_after(sign_in.begun_at, RETENTION));
        let counted: Vec<Timestamp> = counted.filter(|end| *end > now).collect();
        let oldest = counted.iter().min()?;
        (counted.len() >= MAX_SIGN_INS_PER_HOUR as usize).then(|| until(*oldest, now))
    }
}

/// Deletes a user's expired sign-ins, for periodic maintenance.
///
/// # Errors
/// Errors of the store.
pub async fn expire_sign_ins(
    records: &dyn Records,
    company_id: &CompanyId,
    user_id: &UserId,
    now: Timestamp,
) -> Result<(), StoreError> {
    let key = Subscriber::new(company_id, user_id).sign_ins_key()?;
    let Some(found) = records.get_as::<StoredSignIns>(&key).await? else { return Ok(()) };
    let (mut stored, version) = (found.value, found.version);
    let before = stored.sign_ins.clone();
    stored.remove_expired(now);
    let is_changed = stored.sign_ins.len() != before.len()
        || stored.sign_ins.iter().zip(&before).any(|(now, before)| now.phase != before.phase);
    let write = match stored.sign_ins.is_empty() {
        true => Write::Delete { key, precondition: Precondition::Version(version) },
        false if is_changed => put(key, &stored, Some(version))?,
        false => return Ok(()),
    };
    match records.commit(vec![write]).await {
        // A task has changed the record meanwhile; the next pass looks at it again.
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
