//! Sign-ins.

use std::sync::Arc;
use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::ids::UserId;
use agent_core::secret::Secret;
use futures_util::future::{join, join_all};
use jiff::Timestamp;

use super::fixture::{CodingFixture, Gate, Process, company, never, user};
use crate::coding::{
    CodingAuthorityError, CodingTokenError, MAX_SIGN_INS_PER_HOUR, SignInError, SignInReason, SignInStatus,
    SignInView, delete_subscription, expire_sign_ins, rotate_secrets,
};
use crate::roles::RotationReport;
use crate::seal::Sealer;
use crate::testing::{IssuerCall, IssuerStep, SignInDecision};

const SECOND: Duration = Duration::from_secs(1);

async fn begin(process: &Process) -> String {
    process.sign_ins.begin(&company(), &user()).await.expect("a sign-in is begun").id
}

async fn status(process: &Process, id: &str) -> Result<SignInView, SignInError> {
    process.sign_ins.status(&company(), &user(), id).await
}

async fn expect_signed_out(process: &Process) {
    let error = process.tokens.access(&company(), &user()).await.expect_err("there are no tokens");
    let expected = CodingTokenError::SignInRequired(SignInReason::NotSignedIn);
    assert_eq!(error.to_string(), expected.to_string(), "without tokens a sign-in is required");
}

pub(super) async fn a_sign_in_is_completed_once(fixture: &CodingFixture) {
    let (first, second) = (fixture.process(), fixture.process());
    expect_signed_out(&first).await;
    let begun = first.sign_ins.begin(&company(), &user()).await.expect("a sign-in is begun");
    assert!(begun.is_new, "the first sign-in is a new one");
    assert_eq!(begun.interval, 5 * SECOND, "the interval is the issuer's");
    for process in [&first, &second] {
        let again = process.sign_ins.begin(&company(), &user()).await.expect("the open sign-in is returned");
        assert_eq!(
            (again.id.as_str(), again.is_new),
            (begun.id.as_str(), false),
            "an open sign-in is returned again"
        );
        assert_eq!(again.user_code, begun.user_code, "an open sign-in is returned with its code");
        let view = status(process, &begun.id).await.expect("a status");
        assert_eq!((view.status, view.expires_in), (SignInStatus::Pending, Some(900 * SECOND)));
        assert!(
            matches!(status(process, "another").await, Err(SignInError::NotFound)),
            "unknown ids are not found"
        );
    }
    assert_eq!(
        fixture.issuer.calls(IssuerCall::Token),
        0,
        "the issuer is not polled before the interval is over"
    );
    for polls in 1..=3 {
        fixture.clock.advance(5 * SECOND);
        let (one, two) = join(first.settled_status(&begun.id), second.settled_status(&begun.id)).await;
        assert_eq!(one.expect("a status").status, SignInStatus::Pending);
        assert_eq!(two.expect("a status").status, SignInStatus::Pending);
        assert_eq!(fixture.issuer.calls(IssuerCall::Token), polls, "two processes send one poll");
    }
    fixture.issuer.decide(SignInDecision::Approved);
    fixture.clock.advance(5 * SECOND);
    second.settled_status(&begun.id).await.expect("a status");
    let view = first.settled_status(&begun.id).await.expect("a status");
    assert_eq!(
        (view.status, view.expires_in),
        (SignInStatus::Complete, None),
        "a confirmed sign-in is complete"
    );
    for process in [&first, &second] {
        let token = process.tokens.access(&company(), &user()).await.expect("the tokens are stored");
        assert_eq!(token.account_id.expect("an account").expose(), "account-canary-1234");
        let other = process.tokens.access(&company(), &"bob".into()).await;
        assert!(matches!(other, Err(CodingTokenError::SignInRequired(_))), "tokens belong to one user");
        let other = process.tokens.access(&"other".into(), &user()).await;
        assert!(matches!(other, Err(CodingTokenError::SignInRequired(_))), "tokens belong to one company");
    }
    let text = fixture.stored_text().await;
    assert!(!text.to_lowercase().contains("canary"), "no secret is readable at rest: {text}");
    assert_eq!(fixture.issuer.violations(), Vec::<String>::new(), "the issuer is polled by its rules");
}

pub(super) async fn ten_at_once_are_one(fixture: &CodingFixture) {
    let processes = [fixture.process(), fixture.process(), fixture.process()];
    let (company, user) = (company(), user());
    let begins = processes.iter().cycle().take(30).map(|process| process.sign_ins.begin(&company, &user));
    let begun = fixture.drive(join_all(begins)).await;
    let begun: Vec<_> = begun.into_iter().map(|begun| begun.expect("a sign-in is begun")).collect();
    assert_eq!(fixture.issuer.calls(IssuerCall::Device), 1, "one device code is requested");
    assert!(begun.iter().all(|other| other.id == begun[0].id), "all processes get the same sign-in");
    assert_eq!(begun.iter().filter(|begun| begun.is_new).count(), 1, "exactly one process begins it");
}

pub(super) async fn an_hour_has_ten_sign_ins(fixture: &CodingFixture) {
    let process = fixture.process();
    let (company, user) = (company(), user());
    for _ in 0..MAX_SIGN_INS_PER_HOUR {
        let id = begin(&process).await;
        process.sign_ins.cancel(&company, &user, &id).await.expect("cancelled");
        assert!(
            matches!(status(&process, &id).await, Err(SignInError::NotFound)),
            "a cancelled sign-in is deleted"
        );
    }
    let refused = fixture.process().sign_ins.begin(&company, &user).await.expect_err("too many");
    let SignInError::TooMany { retry_after } = refused else { panic!("expected TooMany, got {refused:?}") };
    assert_eq!(retry_after, 3600 * SECOND, "the oldest sign-in counts for an hour");
    process.sign_ins.begin(&company, &"bob".into()).await.expect("the limit counts each user's sign-ins");
    fixture.clock.advance(retry_after);
    begin(&process).await;
}

pub(super) async fn a_cancelled_sign_in_gets_no_tokens(fixture: &CodingFixture) {
    let (process, other) = (fixture.process(), fixture.process());
    fixture.issuer.decide(SignInDecision::Approved);
    let mut gate = Gate::closed();
    fixture.issuer.script(IssuerCall::Token, IssuerStep::HoldAnswer(gate.pass()));
    let id = begin(&process).await;
    fixture.clock.advance(5 * SECOND);
    let deciding = async {
        fixture.issuer.wait_for_calls(IssuerCall::Token, 1).await;
        other.sign_ins.cancel(&company(), &user(), &id).await.expect("cancelled");
        gate.open();
    };
    join(status(&process, &id), deciding).await.0.ok();
    let view = process.settled_status(&id).await;
    assert!(matches!(view, Err(SignInError::NotFound)), "a cancelled sign-in is deleted: {view:?}");
    assert_eq!(fixture.issuer.revoked(), ["refresh-canary-2"], "the tokens are revoked");
    expect_signed_out(&process).await;
}

pub(super) async fn an_erased_sign_in_gets_no_tokens(fixture: &CodingFixture) {
    let process = fixture.process();
    fixture.issuer.decide(SignInDecision::Approved);
    let mut gate = Gate::closed();
    fixture.issuer.script(IssuerCall::Token, IssuerStep::HoldAnswer(gate.pass()));
    let id = begin(&process).await;
    fixture.clock.advance(5 * SECOND);
    let erasing = async {
        fixture.issuer.wait_for_calls(IssuerCall::Token, 1).await;
        assert!(
            delete_subscription(&*fixture.records, &company(), &user()).await.expect("erased"),
            "a subscription is erased"
        );
        gate.open();
    };
    join(status(&process, &id), erasing).await.0.ok();
    let view = process.settled_status(&id).await;
    assert!(matches!(view, Err(SignInError::NotFound)), "an erased sign-in is deleted: {view:?}");
    assert_eq!(fixture.issuer.revoked(), ["refresh-canary-2"], "the tokens are revoked");
    assert_eq!(fixture.stored_text().await, "", "nothing is stored again");
}

pub(super) async fn a_crash_during_a_poll_does_not_end_the_sign_in(fixture: &CodingFixture) {
    fixture.issuer.decide(SignInDecision::Approved);
    let process = fixture.process();
    fixture.issuer.script(IssuerCall::Token, IssuerStep::HoldRequest(never()));
    let id = begin(&process).await;
    fixture.clock.wait_for_sleepers(1).await;
    fixture.clock.advance(5 * SECOND);
    fixture.issuer.wait_for_calls(IssuerCall::Token, 1).await;
    process.crash();
    let next = fixture.process();
    assert_eq!(status(&next, &id).await.expect("a status").status, SignInStatus::Pending);
    fixture.clock.advance(30 * SECOND);
    assert_eq!(
        status(&next, &id).await.expect("a status").status,
        SignInStatus::Complete,
        "another process's poll completes the sign-in"
    );
    assert_eq!(fixture.issuer.violations(), Vec::<String>::new(), "the issuer is polled by its rules");
}

pub(super) async fn a_sign_in_survives_a_rotation(fixture: &CodingFixture) {
    let (old, new) = (Secret::new("the secret of last year"), Secret::new("the secret of this year"));
    let process = fixture.with_sealer(Sealer::new(&old, None)).process();
    let id = begin(&process).await;
    process.crash();
    let both = Sealer::new(&new, Some(&old));
    let rotated = rotate_secrets(&*fixture.records, &both, &mut RotationReport::default()).await;
    rotated.expect("the open sign-in is sealed again");
    fixture.issuer.decide(SignInDecision::Approved);
    fixture.clock.advance(5 * SECOND);
    let next = fixture.with_sealer(Sealer::new(&new, None)).process();
    let view = next.settled_status(&id).await.expect("a status");
    assert_eq!(view.status, SignInStatus::Complete, "a process with the new secret completes the sign-in");
    next.tokens.access(&company(), &user()).await.expect("the tokens are stored");
    assert_eq!(fixture.issuer.violations(), Vec::<String>::new(), "the issuer is polled by its rules");
}

pub(super) async fn old_sign_ins_are_deleted(fixture: &CodingFixture) {
    let process = fixture.process();
    fixture.sign_in(&process).await;
    let expire = async || {
        let now = Timestamp::try_from(agent_core::clock::Clock::now(&fixture.clock)).expect("a time");
        expire_sign_ins(&*fixture.records, &company(), &user(), now).await.expect("the store works");
        fixture.stored_text().await
    };
    assert!(expire().await.contains("complete"), "a final sign-in is kept for an hour");
    fixture.clock.advance(3600 * SECOND);
    let left = expire().await;
    assert!(
        !left.contains("complete") && left.contains("generation"),
        "then the sign-in is deleted, and the tokens stay: {left}"
    );
}

/// Polls for many sign-ins at three processes at once and in the background, with answers of all kinds.
pub(super) async fn polls_are_claimed_once(fixture: &CodingFixture, polls: usize) {
    let processes = [fixture.process(), fixture.process(), fixture.process()];
    let mut seed = 7_u32;
    let mut random = move |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) % below
    };
    let mut signed_in = 0;
    for number in 0.. {
        if fixture.issuer.calls(IssuerCall::Token) >= polls {
            break;
        }
        fixture.issuer.decide(SignInDecision::Pending);
        fixture.issuer.set_sign_ins(SECOND * (1 + random(9)), 120 * SECOND);
        let user = UserId::from(format!("user-{number}"));
        let begun = processes[random(3) as usize].sign_ins.begin(&company(), &user).await;
        let id = begun.expect("a sign-in is begun").id;
        let decided_at = random(90);
        for step in 0..60 {
            match random(60) {
                0 => {
                    fixture.issuer.script(IssuerCall::Token, IssuerStep::Fail(CodingAuthorityError::SlowDown))
                }
                1 => fixture.issuer.script(IssuerCall::Token, IssuerStep::Fail(unanswered())),
                _ => {}
            }
            if step == decided_at {
                let decisions = [SignInDecision::Approved, SignInDecision::Denied];
                fixture.issuer.decide(decisions[random(2) as usize]);
            }
            fixture.clock.advance(Duration::from_millis(u64::from(random(4_000))));
            join_all(processes.each_ref().map(|process| status_of(process, &user, &id))).await;
            // The clock must not run ahead of a poll in the background whose outcome the store is about to write.
            join_all(processes.each_ref().map(|process| process.sign_ins.drain())).await;
        }
        if status_of(&processes[0], &user, &id).await == SignInStatus::Pending {
            processes[1].sign_ins.cancel(&company(), &user, &id).await.expect("cancelled");
        }
        fixture.drive(join_all(processes.each_ref().map(|process| process.sign_ins.drain()))).await;
        let tokens = processes[2].tokens.status(&company(), &user).await.expect("a status");
        signed_in += usize::from(tokens.is_signed_in);
    }
    assert!(signed_in > 0, "sign-ins are completed");
    assert_eq!(fixture.issuer.violations(), Vec::<String>::new(), "the issuer is polled by its rules");
    let kept = signed_in + fixture.issuer.revoked().len();
    assert_eq!(
        fixture.issuer.redeemed(),
        kept,
        "each sign-in is exchanged once, and its tokens are stored or revoked"
    );
}

async fn status_of(process: &Process, user: &UserId, id: &str) -> SignInStatus {
    process.sign_ins.status(&company(), user, id).await.expect("a status").status
}

/// Returns the error of a call whose answer has not arrived.
fn unanswered() -> CodingAuthorityError {
    CodingAuthorityError::Unanswered(Arc::new(AgentError::new(AgentErrorKind::Failed, "the issuer failed")))
}
