//! An issuer of subscriptions' tokens in memory, which checks its clients and fails on demand.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use agent_core::clock::Clock;
use agent_core::secret::Secret;
use async_trait::async_trait;
use futures_util::future::{BoxFuture, Either, poll_fn};

use crate::coding::{
    CodingAuthority, CodingAuthorityError, DeviceCode, InvalidGrantReason, IssuedTokens, TokenHint,
};

/// Account of all tokens.
const ACCOUNT: &str = "account-canary-1234";
/// Addition to the interval after `slow_down`.
const SLOW_DOWN: Duration = Duration::from_secs(5);

/// Call of an issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IssuerCall {
    /// Request for a device code.
    Device,
    /// Request for the tokens of a sign-in.
    Token,
    /// Refresh.
    Refresh,
    /// Revocation.
    Revoke,
}

/// Deviation of an issuer from its usual answer.
pub enum IssuerStep {
    /// Fails without processing the request.
    Fail(CodingAuthorityError),
    /// Processes the request after the future has completed.
    HoldRequest(BoxFuture<'static, ()>),
    /// Processes the request, and answers after the future has completed.
    HoldAnswer(BoxFuture<'static, ()>),
    /// Processes the request, and fails.
    LoseAnswer(CodingAuthorityError),
    /// Processes the request, and leaves out the refresh token of its answer.
    KeepRefreshToken,
}

impl std::fmt::Debug for IssuerStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fail(_) => "Fail",
            Self::HoldRequest(_) => "HoldRequest",
            Self::HoldAnswer(_) => "HoldAnswer",
            Self::LoseAnswer(_) => "LoseAnswer",
            Self::KeepRefreshToken => "KeepRefreshToken",
        })
    }
}

/// Decision of a user about a sign-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignInDecision {
    /// The user has not decided.
    Pending,
    /// The user has confirmed the sign-in.
    Approved,
    /// The user has refused the sign-in.
    Denied,
}

/// A [`CodingAuthority`] with single-use refresh tokens. It records the calls, and the violations of its clients: polls
/// that come too soon or too late. All secrets of its answers contain `canary`.
pub struct ScriptedIssuer {
    clock: Arc<dyn Clock>,
    state: Mutex<IssuerState>,
}

impl std::fmt::Debug for ScriptedIssuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedIssuer").finish_non_exhaustive()
    }
}

struct IssuerState {
    interval: Duration,
    sign_in_lifetime: Duration,
    token_lifetime: Duration,
    decision: SignInDecision,
    /// Begun sign-ins by their device codes.
    sign_ins: HashMap<String, IssuerSignIn>,
    refresh_tokens: HashMap<String, RefreshTokenState>,
    scripts: HashMap<IssuerCall, VecDeque<IssuerStep>>,
    calls: HashMap<IssuerCall, usize>,
    waiting: Vec<Waker>,
    revoked: Vec<String>,
    violations: Vec<String>,
    refreshes: usize,
    last_number: usize,
    /// True if the next answer has no refresh token.
    keeps_refresh_token: bool,
}

struct IssuerSignIn {
    interval: Duration,
    expires_at: Instant,
    last_poll: Instant,
    is_redeemed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RefreshTokenState {
    Live,
    Used,
    Revoked,
}

impl ScriptedIssuer {
    /// Creates an issuer with times from `clock`: an interval of 5 s, sign-ins of 15 minutes and access tokens of an
    /// hour.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let state = IssuerState {
            interval: Duration::from_secs(5),
            sign_in_lifetime: Duration::from_secs(15 * 60),
            token_lifetime: Duration::from_secs(60 * 60),
            decision: SignInDecision::Pending,
            sign_ins: HashMap::new(),
            refresh_tokens: HashMap::new(),
            scripts: HashMap::new(),
            calls: HashMap::new(),
            waiting: Vec::new(),
            revoked: Vec::new(),
            violations: Vec::new(),
            refreshes: 0,
            last_number: 0,
            keeps_refresh_token: false,
        };
        Self { clock, state: Mutex::new(state) }
    }

    /// Sets the interval and the lifetime of new sign-ins.
    pub fn set_sign_ins(&self, interval: Duration, lifetime: Duration) {
        let mut state = self.lock();
        (state.interval, state.sign_in_lifetime) = (interval, lifetime);
    }

    /// Sets the lifetime of new access tokens.
    pub fn set_token_lifetime(&self, lifetime: Duration) {
        self.lock().token_lifetime = lifetime;
    }

    /// Sets the decision of all users.
    pub fn decide(&self, decision: SignInDecision) {
        self.lock().decision = decision;
    }

    /// Changes the answer to the next call of this kind that has no change yet.
    pub fn script(&self, call: IssuerCall, step: IssuerStep) {
        self.lock().scripts.entry(call).or_default().push_back(step);
    }

    /// Returns the number of calls of this kind so far.
    pub fn calls(&self, call: IssuerCall) -> usize {
        self.lock().calls.get(&call).copied().unwrap_or_default()
    }

    /// Waits until there have been `count` calls of this kind.
    pub async fn wait_for_calls(&self, call: IssuerCall, count: usize) {
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.calls.get(&call).copied().unwrap_or_default() >= count {
                return Poll::Ready(());
            }
            state.waiting.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Returns the number of device codes that were exchanged for tokens.
    pub fn redeemed(&self) -> usize {
        self.lock().sign_ins.values().filter(|sign_in| sign_in.is_redeemed).count()
    }

    /// Returns the number of refresh tokens that were exchanged.
    pub fn refreshes(&self) -> usize {
        self.lock().refreshes
    }

    /// Returns the tokens that were revoked.
    pub fn revoked(&self) -> Vec<String> {
        self.lock().revoked.clone()
    }

    /// Returns the violations of its clients.
    pub fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    /// Locks the state. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, IssuerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer<T>(
        &self,
        call: IssuerCall,
        process: impl FnOnce(&mut IssuerState, Instant) -> Result<T, CodingAuthorityError> + Send,
    ) -> Result<T, CodingAuthorityError> {
        // A test that waits for the call may change the state, so that the answer is that of the call's moment.
        let outcome = {
            let mut state = self.lock();
            *state.calls.entry(call).or_default() += 1;
            std::mem::take(&mut state.waiting).into_iter().for_each(Waker::wake);
            let now = self.clock.monotonic();
            match state.scripts.get_mut(&call).and_then(VecDeque::pop_front) {
                None => return process(&mut state, now),
                Some(IssuerStep::Fail(error)) => return Err(error),
                Some(IssuerStep::LoseAnswer(error)) => return process(&mut state, now).and(Err(error)),
                Some(IssuerStep::KeepRefreshToken) => {
                    state.keeps_refresh_token = true;
                    return process(&mut state, now);
                }
                Some(IssuerStep::HoldAnswer(hold)) => Either::Left((hold, process(&mut state, now))),
                Some(IssuerStep::HoldRequest(hold)) => Either::Right((hold, process)),
            }
        };
        match outcome {
            Either::Left((hold, answer)) => {
                hold.await;
                answer
            }
            Either::Right((hold, process)) => {
                hold.await;
                process(&mut self.lock(), self.clock.monotonic())
            }
        }
    }
}

impl IssuerState {
    fn number(&mut self) -> usize {
        self.last_number += 1;
        self.last_number
    }

    fn begin(&mut self, now: Instant) -> DeviceCode {
        let number = self.number();
        let device_code = format!("device-canary-{number}");
        let sign_in = IssuerSignIn {
            interval: self.interval,
            expires_at: now + self.sign_in_lifetime,
            last_poll: now,
            is_redeemed: false,
        };
        self.sign_ins.insert(device_code.clone(), sign_in);
        DeviceCode {
            device_code: Secret::new(device_code),
            user_code: Secret::new(format!("CANARY-{number:04}")),
            verification_uri: "https://issuer.example/device".to_owned(),
            expires_in: self.sign_in_lifetime,
            interval: self.interval,
        }
    }

    /// Checks the time of a poll. After `slow_down` the interval stays longer.
    fn check_poll(&mut self, device_code: &str, now: Instant) {
        let next = self.scripts.get(&IssuerCall::Token).and_then(VecDeque::front);
        let is_slowed = matches!(next, Some(IssuerStep::Fail(CodingAuthorityError::SlowDown)));
        let Some(sign_in) = self.sign_ins.get_mut(device_code) else {
            self.violations.push("a poll with an unknown device code".to_owned());
            return;
        };
        let since = now.duration_since(sign_in.last_poll);
        if since < sign_in.interval {
            self.violations.push(format!("a poll after {since:?} of {:?}", sign_in.interval));
        }
        if now >= sign_in.expires_at {
            self.violations.push("a poll after the end".to_owned());
        }
        if sign_in.is_redeemed {
            self.violations.push("a poll after the tokens".to_owned());
        }
        sign_in.last_poll = now;
        if is_slowed {
            sign_in.interval += SLOW_DOWN;
        }
    }

    fn poll(&mut self, device_code: &str, now: Instant) -> Result<IssuedTokens, CodingAuthorityError> {
        let sign_in = self.sign_ins.get_mut(device_code).filter(|sign_in| now < sign_in.expires_at);
        let Some(sign_in) = sign_in else { return Err(CodingAuthorityError::Expired) };
        match self.decision {
            SignInDecision::Pending => Err(CodingAuthorityError::Pending),
            SignInDecision::Denied => Err(CodingAuthorityError::Denied),
            SignInDecision::Approved if sign_in.is_redeemed => {
                Err(CodingAuthorityError::InvalidGrant(InvalidGrantReason::Reused))
            }
            SignInDecision::Approved => {
                sign_in.is_redeemed = true;
                Ok(self.issue())
            }
        }
    }

    fn issue(&mut self) -> IssuedTokens {
        let number = self.number();
        let refresh_token = (!std::mem::take(&mut self.keeps_refresh_token)).then(|| {
            let refresh_token = format!("refresh-canary-{number}");
            self.refresh_tokens.insert(refresh_token.clone(), RefreshTokenState::Live);
            Secret::new(refresh_token)
        });
        IssuedTokens {
            access_token: Secret::new(format!("access-canary-{number}")),
            refresh_token,
            expires_in: self.token_lifetime,
            account_id: Some(Secret::new(ACCOUNT)),
            plan: Some("plus".to_owned()),
        }
    }

    fn refresh(&mut self, token: &str) -> Result<IssuedTokens, CodingAuthorityError> {
        let fault = match self.refresh_tokens.get_mut(token) {
            Some(state @ RefreshTokenState::Live) => {
                if !self.keeps_refresh_token {
                    *state = RefreshTokenState::Used;
                }
                self.refreshes += 1;
                return Ok(self.issue());
            }
            Some(RefreshTokenState::Used) => InvalidGrantReason::Reused,
            Some(RefreshTokenState::Revoked) => InvalidGrantReason::Revoked,
            None => InvalidGrantReason::Unknown,
        };
        Err(CodingAuthorityError::InvalidGrant(fault))
    }
}

#[async_trait]
impl CodingAuthority for ScriptedIssuer {
    async fn request_device_code(&self) -> Result<DeviceCode, CodingAuthorityError> {
        self.answer(IssuerCall::Device, |state, now| Ok(state.begin(now))).await
    }

    async fn request_tokens(&self, device_code: &Secret) -> Result<IssuedTokens, CodingAuthorityError> {
        let now = self.clock.monotonic();
        self.lock().check_poll(device_code.expose(), now);
        self.answer(IssuerCall::Token, |state, now| state.poll(device_code.expose(), now)).await
    }

    async fn refresh(
        &self,
        refresh_token: &Secret,
        _send_by: Instant,
    ) -> Result<IssuedTokens, CodingAuthorityError> {
        self.answer(IssuerCall::Refresh, |state, _| state.refresh(refresh_token.expose())).await
    }

    async fn revoke(&self, token: &Secret, _: TokenHint) -> Result<bool, CodingAuthorityError> {
        self.answer(IssuerCall::Revoke, |state, _| {
            if let Some(token) = state.refresh_tokens.get_mut(token.expose()) {
                *token = RefreshTokenState::Revoked;
            }
            state.revoked.push(token.expose().to_owned());
            Ok(true)
        })
        .await
    }
}
