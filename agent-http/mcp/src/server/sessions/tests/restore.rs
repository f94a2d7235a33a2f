//! Restoring sessions from their ids.

use futures_util::future::join_all;
use rmcp::ServerHandler;
use rmcp::model::{ClientCapabilities, Implementation, InitializeRequestParams, ProtocolVersion};
use tokio_util::sync::CancellationToken;

use super::*;

struct NoFeatures;

impl ServerHandler for NoFeatures {}

/// A restore of the session `public_id` of the credential `id` in the company `c`.
fn restore_of(public_id: &str, id: &str) -> SessionRestore<NoFeatures> {
    let params = InitializeRequestParams::new(ClientCapabilities::default(), Implementation::new("t", "1"));
    SessionRestore {
        public_id: public_id.into(),
        params: params.with_protocol_version(ProtocolVersion::V_2025_11_25),
        identity: Arc::new(identity("c", id)),
        token: None,
        handler: NoFeatures,
        stop: CancellationToken::new(),
    }
}

async fn restore(sessions: &Arc<Sessions>, public_id: &str, id: &str) -> SessionUse {
    sessions.restore(restore_of(public_id, id)).await.expect("restored")
}

#[tokio::test]
async fn concurrent_requests_restore_a_session_once() {
    let sessions = sessions(8, 8, 8);
    let restored = join_all((0..16).map(|_| restore(&sessions, "sealed", "ada"))).await;
    assert!(restored.iter().all(|session| session.local_id() == restored[0].local_id()));
    assert_eq!(sessions.lock().sizes(), [1, 1, 1]);
    assert_eq!(sessions.local.sessions.read().await.len(), 1);
    assert!(sessions.find("sealed", "bob").is_none(), "the session belongs to ada");
    let id = RequestId::Number(1);
    let first = begin_request(&sessions, "sealed", "ada", &id).expect("the id is not in flight");
    let mut second = restore(&sessions, "sealed", "ada").await;
    assert!(!second.begin_request(&id), "the id is in flight");
    drop(first);
    assert!(second.begin_request(&id));
}

#[tokio::test(start_paused = true)]
async fn an_evicted_session_is_restored_in_place_of_an_idle_one() {
    let mut test = SessionTest::new(8, 8, 2);
    let sessions = test.sessions.clone();
    let evicted_id = restore(&sessions, "sealed", "ada").await.local_id().clone();
    tokio::time::advance(Duration::from_secs(1)).await;
    let (first, second) = (test.open("c", "ada").await, test.open("c", "ada").await);
    assert!(sessions.find("sealed", "ada").is_none(), "evicted");
    assert_eq!(test.open_numbers(), [first, second]);
    // The end of the evicted session may come late, and does not close the one that is restored.
    let restored = restore(&sessions, "sealed", "ada").await;
    let restored_id = restored.local_id().clone();
    assert_ne!(evicted_id, restored_id);
    assert_eq!(test.open_numbers(), [second], "the {first} was idle for longest");
    yield_until(|| sessions.local.sessions.try_read().is_ok_and(|open| !open.contains_key(&evicted_id)))
        .await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(sessions.local.has_session(&restored_id).await.expect("an answer"));
    assert_eq!(sessions.lock().sizes(), [2, 1, 1]);
    // Sessions in use are not evicted for it.
    let _busy = sessions.find(test.id(second), "ada").expect("the session is open");
    let result = sessions.restore(restore_of("another", "ada")).await.map(drop);
    assert!(matches!(result, Err(RestoreError::Limit(SessionLimitError::Credential))), "{result:?}");
    drop(restored);
    restore(&sessions, "another", "ada").await;
    assert!(sessions.find("sealed", "ada").is_none(), "evicted");
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_ends_and_is_restored() {
    let sessions = sessions(8, 8, 8);
    drop(restore(&sessions, "sealed", "ada").await);
    tokio::time::sleep(SESSION_IDLE_TIMEOUT + HOUR).await;
    yield_until(|| sessions.lock().sizes() == [0; 3]).await;
    assert!(sessions.local.sessions.read().await.is_empty());
    drop(restore(&sessions, "sealed", "ada").await);
    assert_eq!(sessions.lock().sizes(), [1, 1, 1]);
}

#[tokio::test]
async fn an_ended_session_is_not_restored() {
    let sessions = sessions(8, 8, 8);
    let ada = identity("c", "ada");
    let id = restore(&sessions, "sealed", "ada").await.local_id().clone();
    sessions.end("sealed", &ada);
    assert!(sessions.find("sealed", "ada").is_none() && sessions.has_ended("sealed", &ada));
    yield_until(|| sessions.local.sessions.try_read().is_ok_and(|open| !open.contains_key(&id))).await;
    // One that is not in this process ends as well.
    sessions.end("elsewhere", &ada);
    for ended in ["sealed", "elsewhere"] {
        let result = sessions.restore(restore_of(ended, "ada")).await.map(drop);
        assert!(matches!(result, Err(RestoreError::Ended)), "{result:?}");
    }
    assert_eq!(sessions.lock().sizes(), [0; 3]);
    assert!(sessions.local.sessions.read().await.is_empty());
    restore(&sessions, "other", "ada").await;
}

#[tokio::test(start_paused = true)]
async fn a_restored_session_ends_with_its_token_and_the_server() {
    let tokens = Arc::new(TokenSet(Mutex::new(["ada", "bob"].map(str::to_owned).into())));
    let sessions = sessions(8, 8, 8);
    let bob = restore_of("bobs", "bob");
    let stop = bob.stop.clone();
    for restore in [restore_of("adas", "ada"), bob] {
        let token = Some(RevocableToken::new(tokens.clone(), &restore.identity.id));
        drop(sessions.restore(SessionRestore { token, ..restore }).await.expect("restored"));
    }
    tokio::time::sleep(HOUR * 3 / 2).await;
    assert_eq!(sessions.lock().sizes(), [2, 2, 1]);
    tokens.0.lock().expect("the lock is not poisoned").remove("ada");
    tokio::time::sleep(HOUR).await;
    yield_until(|| sessions.lock().sizes() == [1, 1, 1]).await;
    assert!(is_found(&sessions, "bobs", "bob"));
    stop.cancel();
    yield_until(|| sessions.lock().sizes() == [0; 3]).await;
}
