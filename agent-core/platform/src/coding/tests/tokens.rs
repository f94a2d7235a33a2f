use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use tokio::sync::oneshot;

use super::super::services::REVOKE_TIMEOUT;
use super::*;

fn reason(result: Result<AccessToken, CodingTokenError>) -> SignInReason {
    match result {
        Err(CodingTokenError::SignInRequired(reason)) => reason,
        result => panic!("a sign-in is required, and not {result:?}"),
    }
}

#[tokio::test]
async fn a_token_is_refreshed_five_minutes_before_its_end() {
    let fixture = ProcessFixture::signed_in().await;
    assert_eq!(fixture.expect_access().await, "access-canary-2");
    fixture.clock.advance(55 * MINUTE - SECOND);
    assert_eq!(fixture.expect_access().await, "access-canary-2");
    fixture.clock.advance(SECOND);
    assert_eq!(fixture.expect_access().await, "access-canary-3");
    assert_eq!(fixture.expect_access().await, "access-canary-3");
    assert_eq!(fixture.issuer.calls(IssuerCall::Refresh), 1);
    let status = fixture.subscription().await;
    assert_eq!((status.state, status.is_signed_in), (SubscriptionState::Ok, true));
    assert_eq!((status.plan.as_deref(), status.account_end.as_deref()), (Some("plus"), Some("1234")));
    let (refreshed, expires) = (status.refreshed_at.expect("a time"), status.expires_at.expect("a time"));
    assert_eq!(until(expires, refreshed), HOUR);
    let text = fixture.stored(TOKEN_COLLECTION).await;
    assert!(!text.contains("canary"), "{text}");
}

#[tokio::test]
async fn a_refresh_outlives_the_run_that_needs_it() {
    let fixture = ProcessFixture::signed_in().await;
    fixture.clock.advance(HOUR);
    let (release, released) = oneshot::channel::<()>();
    let hold = Box::pin(async move { drop(released.await) });
    fixture.issuer.script(IssuerCall::Refresh, IssuerStep::HoldAnswer(hold));
    let mut run = Box::pin(fixture.access());
    assert!((&mut run).now_or_never().is_none());
    fixture.issuer.wait_for_calls(IssuerCall::Refresh, 1).await;
    drop(run);
    let mut draining = Box::pin(fixture.tokens.drain());
    assert!((&mut draining).now_or_never().is_none(), "the process waits for it");
    release.send(()).expect("the refresh goes on");
    draining.await;
    assert_eq!(fixture.expect_access().await, "access-canary-3");
    assert_eq!(fixture.issuer.calls(IssuerCall::Refresh), 1);
}

#[tokio::test]
async fn a_dead_refresh_token_ends_the_sign_in() {
    for fault in [
        InvalidGrantReason::Expired,
        InvalidGrantReason::Reused,
        InvalidGrantReason::Revoked,
        InvalidGrantReason::Unknown,
    ] {
        let fixture = ProcessFixture::signed_in().await;
        fixture.clock.advance(HOUR);
        fixture.issuer.script(IssuerCall::Refresh, fail(CodingAuthorityError::InvalidGrant(fault)));
        let results = join_all((0..5).map(|_| fixture.access())).await;
        for result in results {
            assert_eq!(reason(result), SignInReason::Ended(fault));
        }
        assert_eq!(reason(fixture.access().await), SignInReason::Ended(fault));
        assert_eq!(fixture.issuer.calls(IssuerCall::Refresh), 1, "a dead token is not sent again");
        let text = fixture.stored(TOKEN_COLLECTION).await;
        assert!(
            !text.contains("\"access\"") && !text.contains("\"refresh\""),
            "the tokens are dropped: {text}"
        );
        let status = fixture.subscription().await;
        assert_eq!((status.state, status.is_signed_in), (SubscriptionState::SignInRequired, false));
        fixture.sign_in().await;
        fixture.expect_access().await;
    }
}

#[tokio::test]
async fn silence_is_followed_by_the_same_token_after_one_and_four_seconds() {
    let fixture = ProcessFixture::signed_in().await;
    fixture.clock.advance(HOUR);
    for _ in 0..2 {
        fixture.issuer.script(IssuerCall::Refresh, fail(unanswered()));
    }
    let began = fixture.clock.monotonic();
    let token = fixture.drive(fixture.access()).await.expect("the third call is answered");
    assert_eq!(token.token.expose(), "access-canary-3");
    assert_eq!(fixture.clock.monotonic().duration_since(began), 5 * SECOND);
    assert_eq!(fixture.issuer.calls(IssuerCall::Refresh), 3);
}

#[tokio::test]
async fn tokens_survive_an_unavailable_issuer() {
    let fixture = ProcessFixture::signed_in().await;
    fixture.clock.advance(HOUR);
    for _ in 0..3 {
        fixture.issuer.script(IssuerCall::Refresh, fail(unanswered()));
    }
    let refused = fixture.drive(fixture.access()).await.expect_err("no answer");
    assert!(matches!(refused, CodingTokenError::Issuer(CodingAuthorityError::Unanswered(_))), "{refused:?}");
    let error = AgentError::from(refused);
    assert_eq!((error.kind(), error.message()), (AgentErrorKind::Failed, "the issuer failed"));
    assert!(!fixture.stored(TOKEN_COLLECTION).await.contains("lease"), "the lease is given back");
    assert_eq!(fixture.expect_access().await, "access-canary-3", "the next run refreshes");
}

#[tokio::test]
async fn a_lost_answer_to_a_refresh_ends_the_sign_in() {
    let fixture = ProcessFixture::signed_in().await;
    fixture.clock.advance(HOUR);
    fixture.issuer.script(IssuerCall::Refresh, IssuerStep::LoseAnswer(unanswered()));
    let error = fixture.drive(fixture.access()).await;
    let error = AgentError::from(error.expect_err("the token was used"));
    assert_eq!(error.kind(), AgentErrorKind::SignInRequired);
    assert!(error.message().contains("was interrupted while its tokens were being refreshed"), "{error}");
    assert_eq!(error.members(), [("signIn", "/api/coding/sign-in".into())]);
    assert_eq!(reason(fixture.access().await), SignInReason::CutOff);
}

#[tokio::test]
async fn an_unsent_refresh_does_not_end_the_sign_in_as_cut_off() {
    let fixture = ProcessFixture::signed_in().await;
    fixture.clock.advance(HOUR);
    let unreachable = Arc::new(AgentError::new(AgentErrorKind::Unreachable, "the runtime is away"));
    fixture.issuer.script(IssuerCall::Refresh, fail(CodingAuthorityError::NotSent(unreachable)));
    let reused = CodingAuthorityError::InvalidGrant(InvalidGrantReason::Reused);
    fixture.issuer.script(IssuerCall::Refresh, fail(reused));
    assert_eq!(
        reason(fixture.drive(fixture.access()).await),
        SignInReason::Ended(InvalidGrantReason::Reused)
    );
}

#[tokio::test]
async fn a_token_that_is_still_good_is_used_if_it_cannot_be_refreshed() {
    let fixture = ProcessFixture::signed_in().await;
    fixture.clock.advance(56 * MINUTE);
    for _ in 0..3 {
        fixture.issuer.script(IssuerCall::Refresh, fail(unanswered()));
    }
    let token = fixture.drive(fixture.access()).await.expect("a token that is valid for minutes is used");
    assert_eq!(token.token.expose(), "access-canary-2");
    for _ in 0..3 {
        fixture.issuer.script(IssuerCall::Refresh, fail(unanswered()));
    }
    let (company, user) = (&fixture.company, &fixture.user);
    let rejected = fixture.tokens.refresh_after_rejection(company, user, token.generation);
    let refused = fixture.drive(rejected).await;
    assert!(matches!(refused, Err(CodingTokenError::Issuer(_))), "not if it was rejected: {refused:?}");
}

#[tokio::test]
async fn other_refusals_are_reported_at_once_and_change_nothing() {
    let refused = || Arc::new(AgentError::new(AgentErrorKind::Failed, "refused"));
    for (error, kind, retry_after) in [
        (CodingAuthorityError::RateLimited(Some(MINUTE)), AgentErrorKind::RateLimited, Some(MINUTE)),
        (CodingAuthorityError::NotConfigured("CODING_TOKEN_URL".into()), AgentErrorKind::NotConfigured, None),
        (CodingAuthorityError::Refused(refused()), AgentErrorKind::Failed, None),
        (CodingAuthorityError::Denied, AgentErrorKind::Failed, None),
    ] {
        let fixture = ProcessFixture::signed_in().await;
        fixture.clock.advance(HOUR);
        fixture.issuer.script(IssuerCall::Refresh, fail(error));
        let agent_error = AgentError::from(fixture.access().await.expect_err("refused"));
        assert_eq!((agent_error.kind(), agent_error.retry_after()), (kind, retry_after));
        assert_eq!(fixture.issuer.calls(IssuerCall::Refresh), 1);
        fixture.expect_access().await;
    }
}

#[tokio::test]
async fn a_rejected_token_is_replaced_once() {
    let fixture = ProcessFixture::signed_in().await;
    let (company, user) = (&fixture.company, &fixture.user);
    let old = fixture.access().await.expect("a token");
    let rejected = || fixture.tokens.refresh_after_rejection(company, user, old.generation);
    let tokens = join_all((0..20).map(|_| rejected())).await;
    for token in tokens {
        let token = token.expect("a token");
        assert_eq!((token.token.expose(), token.generation), ("access-canary-3", old.generation + 1));
    }
    let late = rejected().await.expect("a token");
    assert_eq!(late.token.expose(), "access-canary-3", "the newer one is used");
    assert_eq!(fixture.issuer.calls(IssuerCall::Refresh), 1);
    // Not one that is left of an earlier refresh: the second rejection refreshes again.
    let again = fixture.tokens.refresh_after_rejection(company, user, late.generation).await;
    assert_eq!(again.expect("a token").token.expose(), "access-canary-4");
    let nobody = fixture.tokens.refresh_after_rejection(company, &"bob".into(), old.generation).await;
    assert_eq!(reason(nobody), SignInReason::NotSignedIn);
}

#[tokio::test]
async fn a_refresh_begun_before_a_rejection_does_not_answer_it() {
    let fixture = ProcessFixture::signed_in().await;
    fixture.clock.advance(HOUR);
    let (company, user) = (&fixture.company, &fixture.user);
    let old = fixture.subscription().await.refreshed_at.expect("a time").as_millisecond();
    let (release, released) = oneshot::channel::<()>();
    let hold = Box::pin(async move { drop(released.await) });
    fixture.issuer.script(IssuerCall::Refresh, IssuerStep::HoldAnswer(hold));
    let generation = u64::try_from(old).expect("a number");
    let releasing = async {
        fixture.issuer.wait_for_calls(IssuerCall::Refresh, 1).await;
        release.send(()).expect("it is held");
    };
    // The next generation is rejected already, as if another process had used it.
    let rejected = fixture.tokens.refresh_after_rejection(company, user, generation + 1);
    let ((first, second), ()) = join(join(fixture.access(), rejected), releasing).await;
    assert_eq!(first.expect("a token").generation, generation + 1);
    assert_eq!(second.expect("a token").generation, generation + 2);
}

#[tokio::test]
async fn without_a_new_refresh_token_the_old_one_stays() {
    let fixture = ProcessFixture::signed_in().await;
    for (number, refreshes) in [(3, 1), (4, 2)] {
        fixture.clock.advance(HOUR);
        fixture.issuer.script(IssuerCall::Refresh, IssuerStep::KeepRefreshToken);
        assert_eq!(fixture.expect_access().await, format!("access-canary-{number}"));
        assert_eq!(fixture.issuer.refreshes(), refreshes);
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_refreshed_is_used_to_its_end() {
    let fixture = ProcessFixture::new();
    fixture.issuer.script(IssuerCall::Token, IssuerStep::KeepRefreshToken);
    fixture.sign_in().await;
    fixture.clock.advance(HOUR - SECOND);
    assert_eq!(fixture.expect_access().await, "access-canary-2");
    fixture.clock.advance(SECOND);
    assert_eq!(reason(fixture.access().await), SignInReason::Ended(InvalidGrantReason::Expired));
    assert_eq!(fixture.issuer.calls(IssuerCall::Refresh), 0);
}

#[tokio::test]
async fn a_late_answer_counts_as_none() {
    let fixture = ProcessFixture::signed_in().await;
    fixture.clock.advance(HOUR);
    for _ in 0..3 {
        let hold = Box::pin(future::pending());
        fixture.issuer.script(IssuerCall::Refresh, IssuerStep::HoldRequest(hold));
    }
    let began = fixture.clock.monotonic();
    let refused = fixture.drive(fixture.access()).await.expect_err("no answer");
    assert!(matches!(refused, CodingTokenError::Issuer(CodingAuthorityError::Unanswered(_))), "{refused:?}");
    assert_eq!(fixture.clock.monotonic().duration_since(began), 3 * CALL_TIMEOUT + 5 * SECOND);
    fixture.expect_access().await;
}

#[tokio::test]
async fn a_process_that_was_stopped_before_its_call_does_not_send_the_token() {
    let fixture = ProcessFixture::signed_in().await;
    fixture.clock.advance(HOUR);
    let (going_on, stopped) = oneshot::channel::<()>();
    let stop = Box::pin(async move { drop(stopped.await) });
    *fixture.records.stop.lock().expect("unpoisoned") = Some(stop);
    let mut late = Box::pin(fixture.access());
    while fixture.records.stop.lock().expect("unpoisoned").is_some() {
        assert!((&mut late).now_or_never().is_none(), "the process is stopped while it holds the lease");
        tokio::task::yield_now().await;
    }
    fixture.clock.advance(LEASE);
    let other = CodingTokens::new(fixture.services.clone());
    let newer = other.access(&fixture.company, &fixture.user).await.expect("the lease has ended");
    going_on.send(()).expect("it is stopped");
    let late = late.await.expect("a token");
    assert_eq!((late.generation, late.token), (newer.generation, newer.token));
    assert_eq!(fixture.issuer.calls(IssuerCall::Refresh), 1, "the used token is not sent");
}

/// The other process never gives its lease back.
#[tokio::test]
async fn a_lease_of_another_clock_is_honoured_for_its_duration() {
    let (ahead, behind) = (|skew: Duration| (skew, Duration::ZERO), |skew: Duration| (Duration::ZERO, skew));
    let cases = [
        (ahead(Duration::ZERO), LEASE),
        (ahead(5 * SECOND), LEASE),
        (behind(4 * SECOND), LEASE - 4 * SECOND),
        // A clock was set back after the lease was taken, or forward.
        (ahead(HOUR), LEASE),
        (behind(HOUR), Duration::ZERO),
    ];
    for ((ahead, behind), expected) in cases {
        let fixture = ProcessFixture::signed_in().await;
        fixture.clock.advance(2 * HOUR);
        let time = fixture.clock.now() + ahead - behind;
        let lease = stored::Lease::new("another", Timestamp::try_from(time).expect("a time"));
        let subscriber = Subscriber::new(&fixture.company, &fixture.user);
        let record = fixture.services.read_tokens(&subscriber).await.expect("read").expect("there");
        let leased = stored::StoredTokens { lease: Some(lease), ..record.value };
        let written = fixture.services.replace_tokens(&subscriber, record.version, &leased).await;
        written.expect("written").expect("unchanged");
        let began = fixture.clock.monotonic();
        fixture.drive(fixture.access()).await.expect("a token");
        let waited = fixture.clock.monotonic().duration_since(began);
        assert!(
            waited >= expected && waited <= expected + LEASE_POLL_INTERVAL,
            "{ahead:?} {behind:?}: {waited:?}"
        );
        assert_eq!(fixture.issuer.calls(IssuerCall::Refresh), 1);
    }
}

#[tokio::test]
async fn a_process_does_not_wait_for_its_own_lease_after_its_clock_was_set_back() {
    let fixture = ProcessFixture::signed_in().await;
    fixture.clock.advance(2 * HOUR);
    let (going_on, stopped) = oneshot::channel::<()>();
    let stop = Box::pin(async move { drop(stopped.await) });
    *fixture.records.stop.lock().expect("unpoisoned") = Some(stop);
    let mut access = Box::pin(fixture.access());
    while fixture.records.stop.lock().expect("unpoisoned").is_some() {
        assert!((&mut access).now_or_never().is_none(), "the process is stopped while it holds the lease");
        tokio::task::yield_now().await;
    }
    fixture.clock.set(fixture.clock.now() - HOUR);
    going_on.send(()).expect("it is stopped");
    let began = fixture.clock.monotonic();
    access.await.expect("a token");
    assert_eq!(fixture.clock.monotonic(), began);
    assert_eq!(fixture.issuer.calls(IssuerCall::Refresh), 1);
}

#[tokio::test]
async fn a_lease_that_does_not_end_is_waited_for_a_limited_time() {
    let fixture = ProcessFixture::signed_in().await;
    fixture.clock.advance(HOUR);
    let subscriber = Subscriber::new(&fixture.company, &fixture.user);
    // Another process renews its lease all the time.
    let renewing = async {
        loop {
            let record = fixture.services.read_tokens(&subscriber).await.expect("read").expect("there");
            let lease = Some(stored::Lease::new("another", fixture.services.now()));
            let leased = stored::StoredTokens { lease, ..record.value };
            fixture.services.replace_tokens(&subscriber, record.version, &leased).await.expect("written");
            fixture.clock.sleep(10 * SECOND).await;
        }
    };
    let renewing: BoxFuture<'_, ()> = Box::pin(renewing);
    let began = fixture.clock.monotonic();
    let run = fixture.drive(future::select(Box::pin(fixture.access()), renewing));
    let Either::Left((result, _)) = run.await else { panic!("the renewing task does not end") };
    assert!(matches!(result, Err(CodingTokenError::Busy)), "{result:?}");
    let waited = fixture.clock.monotonic().duration_since(began);
    assert!(waited >= LEASE_WAIT_TIMEOUT && waited <= LEASE_WAIT_TIMEOUT + SECOND, "{waited:?}");
    assert_eq!(fixture.issuer.calls(IssuerCall::Refresh), 0);
}

#[tokio::test]
async fn new_tokens_are_stored_as_soon_as_the_store_works_again() {
    for is_applied in [false, true] {
        let fixture = ProcessFixture::over(is_applied);
        fixture.sign_in().await;
        fixture.clock.advance(HOUR);
        let (release, released) = oneshot::channel::<()>();
        let hold = Box::pin(async move { drop(released.await) });
        fixture.issuer.script(IssuerCall::Refresh, IssuerStep::HoldAnswer(hold));
        let failing = async {
            fixture.issuer.wait_for_calls(IssuerCall::Refresh, 1).await;
            fixture.fail_commits(STORE_ATTEMPTS - 1);
            release.send(()).expect("it is held");
            fixture.drive(fixture.tokens.drain()).await;
        };
        let (token, ()) = join(fixture.access(), failing).await;
        assert_eq!(token.expect("a token").token.expose(), "access-canary-3", "applied: {is_applied}");
        assert_eq!(fixture.issuer.calls(IssuerCall::Refresh), 1);
        fixture.fail_commits(0);
        fixture.clock.advance(HOUR);
        fixture.expect_access().await;
    }
}

#[tokio::test]
async fn a_sign_out_forgets_first_and_does_not_need_the_issuer() {
    let fixture = ProcessFixture::signed_in().await;
    fixture.issuer.script(IssuerCall::Revoke, IssuerStep::HoldRequest(Box::pin(future::pending())));
    let (company, user) = (&fixture.company, &fixture.user);
    let began = fixture.clock.monotonic();
    let mut leaving = Box::pin(fixture.tokens.sign_out(company, user));
    assert!((&mut leaving).now_or_never().is_none());
    assert_eq!(fixture.stored(TOKEN_COLLECTION).await, "", "the tokens are forgotten first");
    assert!(fixture.drive(leaving).await.expect("signed out"));
    assert_eq!(fixture.clock.monotonic().duration_since(began), REVOKE_TIMEOUT);
    assert_eq!(reason(fixture.access().await), SignInReason::NotSignedIn);
    fixture.sign_in().await;
    fixture.issuer.script(IssuerCall::Revoke, fail(unanswered()));
    assert!(fixture.tokens.sign_out(company, user).await.expect("signed out"));
    assert!(!fixture.tokens.sign_out(company, user).await.expect("signed out"));
}

#[test]
fn errors_contain_no_secrets() {
    let store = CodingTokenError::from(StoreError::unavailable("db at 10.0.0.7"));
    let unset = CodingTokenError::from(StoreError::NotConfigured("DATA_SECRET"));
    for (error, kind) in [
        (CodingTokenError::SignInRequired(SignInReason::NotSignedIn), AgentErrorKind::SignInRequired),
        (CodingTokenError::SignInRequired(SignInReason::Rejected), AgentErrorKind::SignInRequired),
        (CodingTokenError::Busy, AgentErrorKind::Timeout),
        (store, AgentErrorKind::StoreUnavailable),
        (unset, AgentErrorKind::NotConfigured),
    ] {
        let agent_error = AgentError::from(error);
        assert_eq!(agent_error.kind(), kind);
        assert!(!agent_error.message().contains("10.0.0.7"), "{agent_error}");
    }
    let token = AccessToken {
        token: agent_core::secret::Secret::new("token-canary"),
        account_id: Some(agent_core::secret::Secret::new("account-canary")),
        generation: 7,
    };
    assert!(!format!("{token:?}").contains("canary"));
}
