//! Refreshes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use agent_core::clock::{Clock, SystemClock};
use agent_core::secret::Secret;
use agent_core::testing::ManualClock;
use futures_util::future::{BoxFuture, Either, join, join_all, select};

use super::fixture::{CodingFixture, CommitPoint, Gate, HoldingRecords, Process, company, never, user};
use crate::coding::{AccessToken, CodingTokenError, SignInReason, SubscriptionState, rotate_secrets};
use crate::records::Inventory;
use crate::roles::RotationReport;
use crate::seal::Sealer;
use crate::spawner::Spawner;
use crate::testing::{IssuerCall, IssuerStep};

const SECOND: Duration = Duration::from_secs(1);
/// Lifetime of the issuer's access tokens.
const TOKEN_LIFETIME: Duration = Duration::from_secs(60 * 60);
/// Maximum time for which a crash delays the next run.
const MAX_CRASH_DELAY: Duration = Duration::from_secs(35);

async fn access(process: &Process) -> Result<AccessToken, CodingTokenError> {
    process.tokens.access(&company(), &user()).await
}

async fn expect_access(process: &Process) -> AccessToken {
    access(process).await.unwrap_or_else(|error| panic!("there is an access token: {error:?}"))
}

fn reason(result: Result<AccessToken, CodingTokenError>) -> SignInReason {
    match result {
        Err(CodingTokenError::SignInRequired(reason)) => reason,
        result => panic!("a sign-in is required, and not {result:?}"),
    }
}

/// Point at which a process crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CrashPoint {
    /// At a commit: 0 takes the lease, 1 stores the tokens.
    Commit(usize, CommitPoint),
    /// Before the issuer has processed the refresh.
    Sent,
    /// After the issuer has processed the refresh, before its answer has arrived.
    Answered,
}

pub(super) async fn a_crash_does_not_end_the_sign_in(fixture: &impl AsyncFn() -> CodingFixture) {
    for point in [
        CrashPoint::Commit(0, CommitPoint::Before),
        CrashPoint::Commit(0, CommitPoint::After),
        CrashPoint::Sent,
        CrashPoint::Answered,
        CrashPoint::Commit(1, CommitPoint::Before),
        CrashPoint::Commit(1, CommitPoint::After),
    ] {
        let fixture = fixture().await;
        let first = fixture.process();
        fixture.sign_in(&first).await;
        fixture.clock.advance(TOKEN_LIFETIME);
        crash_at(&fixture, point).await;
        let next = fixture.process();
        let began = fixture.clock.monotonic();
        let result = fixture.drive(access(&next)).await;
        let stuck = fixture.clock.monotonic().duration_since(began);
        assert!(stuck <= MAX_CRASH_DELAY, "{point:?}: a run waits for {stuck:?}");
        // The issuer's answer was on its way to the store.
        let is_lost = matches!(point, CrashPoint::Answered | CrashPoint::Commit(1, CommitPoint::Before));
        if is_lost {
            assert_eq!(reason(result), SignInReason::CutOff, "{point:?}: the reason is told");
        } else {
            assert!(result.is_ok(), "{point:?}: the sign-in survives: {result:?}");
            assert_eq!(fixture.issuer.refreshes(), 1, "{point:?}: one refresh was enough");
        }
    }
}

/// Lets a process refresh and crash at a point.
async fn crash_at(fixture: &CodingFixture, point: CrashPoint) {
    let held = match point {
        CrashPoint::Commit(index, commit) => Some((index, commit)),
        CrashPoint::Sent | CrashPoint::Answered => None,
    };
    let holding = Arc::new(HoldingRecords::new(fixture.records.clone(), held));
    let process = fixture.process_with(holding.clone(), Arc::new(fixture.clock.clone()));
    let reached: BoxFuture<'_, ()> = match point {
        CrashPoint::Commit(..) => holding.reached(),
        CrashPoint::Sent | CrashPoint::Answered => {
            let step =
                if point == CrashPoint::Sent { IssuerStep::HoldRequest } else { IssuerStep::HoldAnswer };
            fixture.issuer.script(IssuerCall::Refresh, step(never()));
            Box::pin(fixture.issuer.wait_for_calls(IssuerCall::Refresh, 1))
        }
    };
    match select(Box::pin(access(&process)), reached).await {
        Either::Left((result, _)) => panic!("{point:?}: it goes on: {result:?}"),
        Either::Right(((), _)) => process.crash(),
    }
}

pub(super) async fn a_stopped_process_overwrites_nothing(fixture: &CodingFixture) {
    fixture.sign_in(&fixture.process()).await;
    fixture.clock.advance(TOKEN_LIFETIME);
    // A stopped process has no time.
    let stopped_clock = ManualClock::at(fixture.clock.now());
    let stopped = fixture.process_with(fixture.records.clone(), Arc::new(stopped_clock));
    let mut gate = Gate::closed();
    fixture.issuer.script(IssuerCall::Refresh, IssuerStep::HoldRequest(gate.pass()));
    let going_on = async {
        fixture.issuer.wait_for_calls(IssuerCall::Refresh, 1).await;
        fixture.clock.advance(60 * SECOND);
        let token = expect_access(&fixture.process()).await;
        let before = fixture.stored_text().await;
        gate.open();
        (token, before)
    };
    let (late, (token, before)) = join(access(&stopped), going_on).await;
    let late = late.expect("a late process uses the stored tokens");
    assert_eq!(
        (late.generation, &late.token),
        (token.generation, &token.token),
        "a late process uses the newer tokens"
    );
    assert_eq!(fixture.stored_text().await, before, "a late process does not overwrite newer tokens");
    assert_eq!(fixture.issuer.revoked(), Vec::<String>::new(), "the tokens of the same sign-in stay valid");
}

pub(super) async fn late_tokens_save_a_sign_in(fixture: &CodingFixture) {
    fixture.sign_in(&fixture.process()).await;
    fixture.clock.advance(TOKEN_LIFETIME);
    let stopped_clock = ManualClock::at(fixture.clock.now());
    let stopped = fixture.process_with(fixture.records.clone(), Arc::new(stopped_clock));
    let mut gate = Gate::closed();
    fixture.issuer.script(IssuerCall::Refresh, IssuerStep::HoldAnswer(gate.pass()));
    let going_on = async {
        fixture.issuer.wait_for_calls(IssuerCall::Refresh, 1).await;
        fixture.clock.advance(60 * SECOND);
        let refused = access(&fixture.process()).await;
        gate.open();
        refused
    };
    let (late, refused) = join(access(&stopped), going_on).await;
    assert_eq!(reason(refused), SignInReason::CutOff, "the token was used, and its answer is missing");
    let late = late.expect("the issuer's answer arrives");
    let token = expect_access(&fixture.process()).await;
    assert_eq!(token.token, late.token, "tokens that arrive late replace the tokens that were given up");
    let status = fixture.process().tokens.status(&company(), &user()).await.expect("a status");
    assert_eq!(status.state, SubscriptionState::Ok);
}

pub(super) async fn a_sign_out_wins(fixture: &CodingFixture) {
    let (process, other) = (fixture.process(), fixture.process());
    fixture.sign_in(&process).await;
    fixture.clock.advance(TOKEN_LIFETIME);
    let mut gate = Gate::closed();
    fixture.issuer.script(IssuerCall::Refresh, IssuerStep::HoldAnswer(gate.pass()));
    let leaving = async {
        fixture.issuer.wait_for_calls(IssuerCall::Refresh, 1).await;
        assert!(
            other.tokens.sign_out(&company(), &user()).await.expect("signed out"),
            "a sign-out deletes tokens"
        );
        assert!(
            !other.tokens.sign_out(&company(), &user()).await.expect("signed out"),
            "after a sign-out there are no tokens to delete"
        );
        gate.open();
    };
    let (refreshed, ()) = join(access(&process), leaving).await;
    assert_eq!(reason(refreshed), SignInReason::NotSignedIn);
    process.tokens.drain().await;
    assert_eq!(
        fixture.issuer.revoked(),
        ["refresh-canary-2", "refresh-canary-3"],
        "old and new tokens are revoked"
    );
    let status = process.tokens.status(&company(), &user()).await.expect("a status");
    assert!(!status.is_signed_in && status.plan.is_none(), "a sign-out deletes the account, too: {status:?}");
}

pub(super) async fn a_new_sign_in_wins(fixture: &CodingFixture) {
    let (process, other) = (fixture.process(), fixture.process());
    fixture.sign_in(&process).await;
    fixture.clock.advance(TOKEN_LIFETIME);
    // The clock of the holder stands still during the new sign-in.
    let held_clock = ManualClock::at(fixture.clock.now());
    let holder = fixture.process_with(fixture.records.clone(), Arc::new(held_clock));
    let mut gate = Gate::closed();
    fixture.issuer.script(IssuerCall::Refresh, IssuerStep::HoldAnswer(gate.pass()));
    let signing_in = async {
        fixture.issuer.wait_for_calls(IssuerCall::Refresh, 1).await;
        other.tokens.sign_out(&company(), &user()).await.expect("signed out");
        fixture.sign_in(&other).await;
        gate.open();
        expect_access(&other).await
    };
    let (late, token) = join(access(&holder), signing_in).await;
    assert_eq!(
        late.expect("the holder of the lease uses the stored tokens").token,
        token.token,
        "the new sign-in's tokens are used"
    );
    let revoked = fixture.issuer.revoked();
    assert!(
        revoked.contains(&"refresh-canary-3".to_owned()),
        "the tokens of the old sign-in are revoked: {revoked:?}"
    );
    fixture.clock.advance(TOKEN_LIFETIME);
    expect_access(&other).await;
}

pub(super) async fn secrets_are_rotated(fixture: &CodingFixture) {
    let (old, new) = (Secret::new("the secret of last year"), Secret::new("the secret of this year"));
    let before = fixture.with_sealer(Sealer::new(&old, None));
    let process = before.process();
    before.sign_in(&process).await;
    process.sign_ins.begin(&company(), &user()).await.expect("another sign-in is begun");
    let token = expect_access(&process).await;
    let both = Sealer::new(&new, Some(&old));
    let rotate = async || {
        let mut report = RotationReport::default();
        rotate_secrets(&*fixture.records, &both, &mut report).await.expect("rotated");
        [report.resealed, report.already_current, report.unopened]
    };
    assert_eq!(
        expect_access(&fixture.with_sealer(Sealer::new(&new, Some(&old))).process()).await.token,
        token.token
    );
    assert_eq!(rotate().await, [5, 0, 0], "tokens, account and codes are sealed again");
    assert_eq!(rotate().await, [0, 5, 0], "once");
    let after = fixture.with_sealer(Sealer::new(&new, None)).process();
    let rotated = expect_access(&after).await;
    assert_eq!(
        (rotated.token, rotated.generation),
        (token.token, token.generation),
        "sealing again does not change the tokens"
    );
    let open = after.sign_ins.begin(&company(), &user()).await.expect("given again");
    assert!(!open.is_new, "the open sign-in can be read");
    assert_eq!(reason(access(&process).await), SignInReason::Unreadable, "the old key alone reads nothing");
    let kept = expect_access(&after).await;
    assert_eq!(kept.generation, token.generation, "a wrong key destroys nothing");
}

/// The real time, shifted by the suite.
#[derive(Clone, Default)]
struct ShiftedClock(Arc<Mutex<Duration>>);

impl ShiftedClock {
    fn shift(&self, by: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }

    fn offset(&self) -> Duration {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ShiftedClock {
    fn now(&self) -> SystemTime {
        SystemClock.now() + self.offset()
    }

    fn monotonic(&self) -> Instant {
        SystemClock.monotonic() + self.offset()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        SystemClock.sleep(duration)
    }
}

/// Number of runs of a process in [`concurrent_callers_refresh_once`].
const RUNS: usize = 64;

pub(super) async fn concurrent_callers_refresh_once(
    records: Arc<dyn Inventory>,
    spawner: Arc<dyn Spawner>,
    rounds: usize,
) {
    let fixture = CodingFixture::new(records.clone(), spawner);
    fixture.sign_in(&fixture.process()).await;
    let clock = ShiftedClock::default();
    // From now on the processes use the shifted clock, for which the tokens have expired.
    let processes = [(); 3].map(|()| fixture.process_with(records.clone(), Arc::new(clock.clone())));
    for round in 1..=rounds {
        clock.shift(2 * TOKEN_LIFETIME);
        let runs = processes.iter().cycle().take(processes.len() * RUNS).map(access);
        let results = join_all(runs).await;
        let tokens: Vec<AccessToken> =
            results.into_iter().collect::<Result<_, _>>().unwrap_or_else(|error| {
                panic!("round {round}: no run fails: {error:?}");
            });
        assert!(
            tokens.iter().all(|token| token.token == tokens[0].token),
            "round {round}: all runs get the same token"
        );
        assert_eq!(fixture.issuer.refreshes(), round, "round {round}: one refresh");
        assert_eq!(fixture.issuer.calls(IssuerCall::Refresh), round, "round {round}: one call of the issuer");
    }
}
