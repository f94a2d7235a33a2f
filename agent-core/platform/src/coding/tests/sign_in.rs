use futures_util::FutureExt;
use tokio::sync::oneshot;

use super::*;

/// Advances the clock by `seconds` and looks at the status. Returns the number of polls so far.
async fn polls_after(fixture: &ProcessFixture, id: &str, seconds: u64) -> usize {
    fixture.clock.advance(Duration::from_secs(seconds));
    fixture.status(id).await.expect("a status");
    fixture.sign_ins.drain().await;
    fixture.issuer.calls(IssuerCall::Token)
}

#[tokio::test]
async fn slow_down_is_kept_and_silence_doubles_the_pause() {
    let fixture = ProcessFixture::new();
    let id = fixture.begin().await;
    assert_eq!(polls_after(&fixture, &id, 4).await, 0);
    assert_eq!(polls_after(&fixture, &id, 1).await, 1);
    fixture.issuer.script(IssuerCall::Token, fail(CodingAuthorityError::SlowDown));
    assert_eq!(polls_after(&fixture, &id, 5).await, 2);
    assert_eq!(polls_after(&fixture, &id, 9).await, 2);
    assert_eq!(polls_after(&fixture, &id, 1).await, 3);
    assert_eq!(polls_after(&fixture, &id, 9).await, 3);
    // Four polls without an answer: 20, 40, 60, 60.
    for (polls, pause) in [(4, 1), (5, 20), (6, 40), (7, 60)] {
        fixture.issuer.script(IssuerCall::Token, fail(unanswered()));
        assert_eq!(polls_after(&fixture, &id, pause - 1).await, polls - 1, "before {pause}");
        assert_eq!(polls_after(&fixture, &id, 1).await, polls);
    }
    let limited = CodingAuthorityError::RateLimited(Some(7 * MINUTE));
    fixture.issuer.script(IssuerCall::Token, fail(limited));
    assert_eq!(polls_after(&fixture, &id, 59).await, 7);
    assert_eq!(polls_after(&fixture, &id, 1).await, 8);
    assert_eq!(polls_after(&fixture, &id, 59).await, 8, "at most a minute, whatever is asked for");
    assert_eq!(polls_after(&fixture, &id, 1).await, 9);
    assert_eq!(polls_after(&fixture, &id, 9).await, 9, "after an answer the interval counts again");
    assert_eq!(polls_after(&fixture, &id, 1).await, 10);
    assert_eq!(fixture.issuer.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn every_end_is_reported_for_an_hour() {
    let status = |status: SignInStatus, code: Option<&str>| (status, code.map(str::to_owned));
    let grant = CodingAuthorityError::InvalidGrant(InvalidGrantReason::Unknown);
    let setting = CodingAuthorityError::NotConfigured("CODING_CLIENT_ID".to_owned());
    for (error, expected) in [
        (CodingAuthorityError::Denied, status(SignInStatus::Denied, None)),
        (CodingAuthorityError::Expired, status(SignInStatus::Expired, None)),
        (setting, status(SignInStatus::Failed, Some("NOT_CONFIGURED"))),
        (grant, status(SignInStatus::Failed, Some("OAUTH_ERROR"))),
    ] {
        let fixture = ProcessFixture::new();
        fixture.issuer.script(IssuerCall::Token, fail(error));
        let id = fixture.begin().await;
        assert_eq!(polls_after(&fixture, &id, 5).await, 1);
        for wait in [MINUTE, HOUR - 2 * MINUTE] {
            fixture.clock.advance(wait);
            let view = fixture.status(&id).await.expect("it is kept");
            assert_eq!((view.status, view.code, view.expires_in), (expected.0, expected.1.clone(), None));
        }
        let text = fixture.stored(SIGN_IN_COLLECTION).await;
        assert!(!text.contains("deviceCode") && !text.contains("userCode"), "the codes are gone: {text}");
        fixture.clock.advance(MINUTE);
        assert!(matches!(fixture.status(&id).await, Err(SignInError::NotFound)));
        assert_eq!(fixture.issuer.calls(IssuerCall::Token), 1, "it is not polled again");
        fixture.begin().await;
    }
}

#[tokio::test]
async fn a_sign_in_ends_with_its_time() {
    let fixture = ProcessFixture::new();
    fixture.issuer.set_sign_ins(7 * SECOND, 100 * SECOND);
    let id = fixture.begin().await;
    fixture.drive(fixture.clock.sleep(100 * SECOND)).await;
    assert_eq!(fixture.status(&id).await.expect("a status").status, SignInStatus::Expired);
    assert!(fixture.issuer.calls(IssuerCall::Token) >= 13, "it was polled in the background");
    fixture.drive(fixture.clock.sleep(HOUR - MINUTE)).await;
    assert_eq!(fixture.status(&id).await.expect("a status").status, SignInStatus::Expired);
    assert_eq!(fixture.issuer.violations(), Vec::<String>::new());

    fixture.issuer.set_sign_ins(1000 * SECOND, 10 * HOUR);
    let begun = fixture.sign_ins.begin(&fixture.company, &fixture.user).await.expect("begun");
    assert_eq!((begun.interval, begun.expires_in), (MINUTE, 30 * MINUTE), "both are bounded");
}

#[tokio::test]
async fn an_open_sign_in_is_given_again_for_more_than_a_minute() {
    let fixture = ProcessFixture::new();
    let id = fixture.begin().await;
    fixture.drive(fixture.clock.sleep(14 * MINUTE - SECOND)).await;
    let again = fixture.sign_ins.begin(&fixture.company, &fixture.user).await.expect("given again");
    assert_eq!((again.id.as_str(), again.expires_in), (id.as_str(), 61 * SECOND));
    fixture.clock.advance(SECOND);
    assert_ne!(fixture.begin().await, id);
}

#[tokio::test]
async fn the_process_that_has_begun_polls_by_itself_until_it_stops() {
    let fixture = ProcessFixture::new();
    fixture.begin().await;
    fixture.issuer.decide(SignInDecision::Approved);
    fixture.drive(fixture.issuer.wait_for_calls(IssuerCall::Token, 1)).await;
    fixture.sign_ins.drain().await;
    fixture.expect_access().await;

    let stopped = ProcessFixture::new();
    stopped.begin().await;
    stopped.sign_ins.stop();
    stopped.clock.wait_for_sleepers(1).await;
    stopped.drive(stopped.clock.sleep(10 * MINUTE)).await;
    assert_eq!(stopped.issuer.calls(IssuerCall::Token), 0);
    assert_eq!(stopped.clock.sleepers(), 0, "the task has ended");
}

#[tokio::test]
async fn a_caller_that_leaves_loses_no_tokens() {
    let fixture = ProcessFixture::new();
    fixture.issuer.decide(SignInDecision::Approved);
    fixture.sign_ins.stop();
    let (release, released) = oneshot::channel::<()>();
    let hold = Box::pin(async move { drop(released.await) });
    fixture.issuer.script(IssuerCall::Token, IssuerStep::HoldAnswer(hold));
    let id = fixture.begin().await;
    fixture.clock.advance(5 * SECOND);
    let mut look = Box::pin(fixture.status(&id));
    assert!((&mut look).now_or_never().is_none());
    fixture.issuer.wait_for_calls(IssuerCall::Token, 1).await;
    drop(look);
    release.send(()).expect("the poll goes on");
    fixture.sign_ins.drain().await;
    fixture.expect_access().await;
    assert_eq!(fixture.status(&id).await.expect("a status").status, SignInStatus::Complete);
}

#[tokio::test]
async fn errors_of_the_issuer_are_reported_and_count_if_it_was_called() {
    let fixture = ProcessFixture::new();
    let error = |kind| Arc::new(AgentError::new(kind, "x"));
    for (failure, kind) in [
        (CodingAuthorityError::NotConfigured("CODING_AUTH_URL".to_owned()), AgentErrorKind::NotConfigured),
        (CodingAuthorityError::NotSent(error(AgentErrorKind::Unreachable)), AgentErrorKind::Unreachable),
    ] {
        for _ in 0..MAX_SIGN_INS_PER_HOUR {
            fixture.issuer.script(IssuerCall::Device, fail(failure.clone()));
            let refused = fixture.sign_ins.begin(&fixture.company, &fixture.user).await.expect_err("refused");
            let SignInError::Issuer(refused) = refused else { panic!("it is refused as {refused:?}") };
            assert_eq!(refused.to_agent_error().kind(), kind);
        }
    }
    for _ in 0..MAX_SIGN_INS_PER_HOUR {
        fixture.issuer.script(IssuerCall::Device, fail(unanswered()));
        let refused = fixture.sign_ins.begin(&fixture.company, &fixture.user).await;
        assert!(matches!(refused, Err(SignInError::Issuer(CodingAuthorityError::Unanswered(_)))));
    }
    let refused = fixture.sign_ins.begin(&fixture.company, &fixture.user).await;
    assert!(matches!(refused, Err(SignInError::TooMany { .. })), "{refused:?}");
}

#[tokio::test]
async fn an_issuer_that_never_answers_is_given_up() {
    let fixture = ProcessFixture::new();
    fixture.issuer.script(IssuerCall::Device, IssuerStep::HoldRequest(Box::pin(future::pending())));
    let began = fixture.clock.monotonic();
    let refused = fixture.drive(fixture.sign_ins.begin(&fixture.company, &fixture.user)).await;
    assert!(matches!(refused, Err(SignInError::Issuer(CodingAuthorityError::Unanswered(_)))), "{refused:?}");
    assert_eq!(fixture.clock.monotonic().duration_since(began), CALL_TIMEOUT);
    fixture.begin().await;
}

/// Begins a sign-in whose tokens arrive when the next `failures` commits fail, and waits until it has ended.
async fn complete_with_failures(fixture: &ProcessFixture, failures: usize) -> SignInView {
    fixture.issuer.decide(SignInDecision::Approved);
    let (release, released) = oneshot::channel::<()>();
    let hold = Box::pin(async move { drop(released.await) });
    fixture.issuer.script(IssuerCall::Token, IssuerStep::HoldAnswer(hold));
    let id = fixture.begin().await;
    fixture.clock.advance(5 * SECOND);
    fixture.issuer.wait_for_calls(IssuerCall::Token, 1).await;
    fixture.fail_commits(failures);
    release.send(()).expect("it is held");
    fixture.drive(fixture.sign_ins.drain()).await;
    fixture.status(&id).await.expect("a status")
}

#[tokio::test]
async fn tokens_are_stored_as_soon_as_the_store_works_again() {
    for is_applied in [false, true] {
        let fixture = ProcessFixture::over(is_applied);
        let view = complete_with_failures(&fixture, STORE_ATTEMPTS - 1).await;
        assert_eq!(view.status, SignInStatus::Complete, "applied: {is_applied}");
        fixture.expect_access().await;
        assert_eq!(fixture.issuer.revoked(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn tokens_that_cannot_be_stored_are_revoked() {
    let fixture = ProcessFixture::new();
    let view = complete_with_failures(&fixture, STORE_ATTEMPTS).await;
    assert_eq!(view.status, SignInStatus::Pending);
    assert_eq!(fixture.issuer.revoked(), ["refresh-canary-2"]);
    assert!(matches!(fixture.access().await, Err(CodingTokenError::SignInRequired(_))));
}

#[tokio::test]
async fn a_code_under_a_lost_key_fails_and_another_sign_in_begins() {
    let fixture = ProcessFixture::new();
    let id = fixture.begin().await;
    fixture.sign_ins.stop();
    let services = CodingServices { sealer: Arc::new(Sealer::ephemeral()), ..fixture.services.clone() };
    let other = SignIns::new(services);
    let begun = other.begin(&fixture.company, &fixture.user).await.expect("begun");
    assert!(begun.is_new && begun.id != id);
    fixture.clock.advance(5 * SECOND);
    let view = other.status(&fixture.company, &fixture.user, &id).await.expect("a status");
    assert_eq!((view.status, view.code.as_deref()), (SignInStatus::Failed, Some("INTERNAL")));
}
