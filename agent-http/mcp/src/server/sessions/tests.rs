use std::collections::HashSet;

use agent_core::run_token::RunToken as _;
use agent_core::testing::ManualClock;
use agent_core::tool::ExecutionContext;
use agent_platform::memory::MemoryRecords;
use agent_platform::records::StoreError;
use agent_platform::token::{Grant, McpGrant, NewToken, Tokens};
use async_trait::async_trait;
use rmcp::model::RequestId;

use super::*;
use crate::server::identity::TokenResolver;

mod restore;

const HOUR: Duration = Duration::from_secs(3600);

fn sessions(process: usize, company: usize, credential: usize) -> Arc<Sessions> {
    Sessions::bounded(SessionLimits { process, company, credential }, HOUR)
}

fn identity(company: &str, id: &str) -> Identity {
    let context = ExecutionContext { company_id: company.into(), ..ExecutionContext::default() };
    Identity { id: id.to_owned(), context, calls: None }
}

/// Sessions and the ids of the opened sessions.
struct SessionTest {
    sessions: Arc<Sessions>,
    opened: Vec<(SessionId, Identity)>,
}

impl SessionTest {
    fn new(process: usize, company: usize, credential: usize) -> Self {
        Self { sessions: sessions(process, company, credential), opened: Vec::new() }
    }

    /// Opens a session; returns its number. A second passes after it, so that idle times differ.
    async fn open(&mut self, company: &str, id: &str) -> usize {
        let identity = identity(company, id);
        self.sessions.check_room(&identity).expect("below the limit");
        let manager = self.sessions.for_owner(&identity, None);
        let (session, _transport) = manager.create_session().await.expect("below the limit");
        tokio::time::advance(Duration::from_secs(1)).await;
        self.opened.push((session, identity));
        self.opened.len() - 1
    }

    fn id(&self, number: usize) -> &str {
        &self.opened[number].0
    }

    /// Returns the numbers of the sessions that are open, without touching them.
    fn open_numbers(&self) -> Vec<usize> {
        let registry = self.sessions.lock();
        (0..self.opened.len()).filter(|number| registry.is_open(self.id(*number))).collect()
    }
}

/// Returns true if `owner` has the session in this process; marks it as used.
fn is_found(sessions: &Sessions, id: &str, owner: &str) -> bool {
    sessions.find(id, owner).is_some()
}

/// Begins a request in a session of `owner`; returns `None` if its id is in flight.
fn begin_request(sessions: &Sessions, session: &str, owner: &str, id: &RequestId) -> Option<SessionUse> {
    let mut session = sessions.find(session, owner).expect("the session is open");
    session.begin_request(id).then_some(session)
}

/// Yields until the condition holds; the clock stands still meanwhile.
async fn yield_until(condition: impl Fn() -> bool) {
    for _ in 0..1000 {
        if condition() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the condition does not hold after a thousand polls");
}

#[tokio::test(start_paused = true)]
async fn a_session_belongs_to_its_credential() {
    let mut test = SessionTest::new(4, 4, 2);
    let first = test.open("c", "ada").await;
    let id: SessionId = test.id(first).into();
    assert!(is_found(&test.sessions, &id, "ada") && !is_found(&test.sessions, &id, "bob"));
    let (ada, bob) = (identity("c", "ada"), identity("c", "bob"));
    assert!(!test.sessions.for_owner(&bob, None).has_session(&id).await.expect("an answer"));
    assert!(!is_found(&test.sessions, "none", "ada"));
    test.sessions.for_owner(&ada, None).close_session(&id).await.expect("closed");
    assert!(!is_found(&test.sessions, &id, "ada"));
    assert_eq!(test.sessions.lock().sizes(), [0; 3], "nothing is left of a closed session");
}

#[tokio::test(start_paused = true)]
async fn a_credential_at_its_limit_loses_its_longest_idle_session() {
    let mut test = SessionTest::new(8, 8, 2);
    let (other, first) = (test.open("c", "bob").await, test.open("c", "ada").await);
    let second = test.open("c", "ada").await;
    assert!(is_found(&test.sessions, test.id(first), "ada"));
    let third = test.open("c", "ada").await;
    assert_eq!(test.open_numbers(), [other, first, third], "the {second} was idle for longest");
}

#[tokio::test(start_paused = true)]
async fn a_company_at_its_share_evicts_its_own_sessions_only() {
    let mut test = SessionTest::new(100, 3, 64);
    let other = test.open("other", "eve").await;
    // Each run has a separate token, so the limit per credential does not apply.
    let mut own_sessions = Vec::new();
    for run in 0..50 {
        own_sessions.push(test.open("c", &format!("run-{run}")).await);
    }
    assert_eq!(test.open_numbers(), [&[other][..], &own_sessions[47..]].concat());
    assert_eq!(test.sessions.lock().sizes(), [4, 4, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_full_process_evicts_sessions_of_the_company_with_the_most() {
    let mut test = SessionTest::new(6, 4, 64);
    let small = test.open("small", "s").await;
    let mut large = Vec::new();
    for run in 0..4 {
        large.push(test.open("large", &format!("l{run}")).await);
    }
    let middle = test.open("middle", "m").await;
    // The process is full; the newcomer's session takes the place of the large company's longest idle one.
    let first = test.open("new", "n").await;
    assert_eq!(test.open_numbers(), [small, large[1], large[2], large[3], middle, first]);
    let second = test.open("new", "n").await;
    assert_eq!(test.open_numbers(), [small, large[2], large[3], middle, first, second]);
    // Now the newcomer holds as many as the largest, and evicts its own.
    let third = test.open("new", "n").await;
    let open: HashSet<_> = test.open_numbers().into_iter().collect();
    assert_eq!(open.len(), 6);
    assert!(!open.contains(&large[2]) || !open.contains(&first), "{open:?}");
    assert!(open.contains(&small) && open.contains(&middle) && open.contains(&third), "{open:?}");
}

#[tokio::test(start_paused = true)]
async fn a_session_in_use_is_not_evicted() {
    let mut test = SessionTest::new(2, 2, 2);
    let (first, second) = (test.open("c", "ada").await, test.open("c", "ada").await);
    let session_use = begin_request(&test.sessions, test.id(first), "ada", &RequestId::Number(1))
        .expect("the id is not in flight");
    let third = test.open("c", "ada").await;
    assert_eq!(test.open_numbers(), [first, third], "the {second} is idle");
    let _busy = begin_request(&test.sessions, test.id(third), "ada", &RequestId::Number(1))
        .expect("the id is not in flight");
    for (id, limit) in [
        (identity("c", "ada"), SessionLimitError::Credential),
        (identity("c", "bob"), SessionLimitError::Company),
        (identity("d", "eve"), SessionLimitError::Process),
    ] {
        assert_eq!(test.sessions.check_room(&id), Err(limit));
        let result = test.sessions.for_owner(&id, None).create_session().await.map(drop);
        assert!(matches!(result, Err(SessionError::Limit(reached)) if reached == limit));
    }
    drop(session_use);
    assert_eq!(test.open("d", "eve").await, 3);
    assert_eq!(test.open_numbers(), [third, 3]);
}

#[tokio::test]
async fn a_request_id_is_in_flight_once_per_session() {
    let sessions = sessions(2, 2, 2);
    let manager = sessions.for_owner(&identity("c", "ada"), None);
    let (session, _transport) = manager.create_session().await.expect("below the limit");
    let (other_session, _other) = manager.create_session().await.expect("below the limit");
    let id = RequestId::Number(1);
    let first = begin_request(&sessions, &session, "ada", &id).expect("the id is not in flight");
    assert!(begin_request(&sessions, &session, "ada", &id).is_none());
    assert!(begin_request(&sessions, &session, "ada", &RequestId::String("1".into())).is_some());
    assert!(begin_request(&sessions, &other_session, "ada", &id).is_some(), "ids are unique per session");
    drop(first);
    assert!(begin_request(&sessions, &session, "ada", &id).is_some(), "the request has ended");
    assert!(sessions.find("none", "ada").is_none());
}

/// A resolver of the tokens in a set.
struct TokenSet(Mutex<HashSet<String>>);

#[async_trait]
impl TokenResolver for TokenSet {
    async fn resolve_token(&self, text: &str) -> Result<Option<Identity>, StoreError> {
        let is_valid = self.0.lock().expect("the lock is not poisoned").contains(text);
        Ok(is_valid.then(|| identity("c", text)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_when_its_token_is_found_invalid() {
    let tokens = Arc::new(TokenSet(Mutex::new(["ada", "bob"].map(str::to_owned).into())));
    let sessions = sessions(8, 8, 8);
    let mut open = Vec::new();
    for token in ["ada", "ada", "bob"] {
        let revocable_token = RevocableToken::new(tokens.clone(), token);
        let manager = sessions.for_owner(&identity("c", token), Some(revocable_token));
        open.push(manager.create_session().await.expect("below the limit").0);
    }
    tokio::time::sleep(HOUR * 3 / 2).await;
    assert_eq!(sessions.lock().sizes(), [3, 2, 1]);
    tokens.0.lock().expect("the lock is not poisoned").remove("ada");
    // Only the re-validation detects the end.
    assert!(is_found(&sessions, &open[0], "ada"));
    tokio::time::sleep(HOUR).await;
    yield_until(|| sessions.lock().sizes() == [1, 1, 1]).await;
    assert!(is_found(&sessions, &open[2], "bob"));
    for id in &open[..2] {
        assert!(!is_found(&sessions, id, "ada"));
        assert!(!sessions.local.has_session(id).await.expect("an answer"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_at_once_with_its_run_and_with_a_revocation() {
    let clock = Arc::new(ManualClock::new());
    let tokens = Arc::new(Tokens::new(Arc::new(MemoryRecords::new(clock.clone())), clock));
    let sessions = sessions(8, 8, 8);
    let closed_sessions = sessions.clone();
    TokenResolver::subscribe_ended(&*tokens, Arc::new(move |id| closed_sessions.close_owner(id)));
    let new_token = || {
        let grant = McpGrant { user_id: "ada".into(), ..McpGrant::default() };
        NewToken { ttl: Some(HOUR), ..NewToken::new("c", "a", Grant::Mcp(grant)) }
    };
    let run_token = tokens.mint_run(new_token()).expect("minted");
    let issued = tokens.mint(new_token()).await.expect("minted");
    let mut open = Vec::new();
    for text in [run_token.text(), &issued.text] {
        let identity = tokens.resolve_token(text.expose()).await.expect("read").expect("valid");
        let revocable_token = RevocableToken::new(tokens.clone(), text.expose());
        let manager = sessions.for_owner(&identity, Some(revocable_token));
        open.push((manager.create_session().await.expect("below the limit").0, identity.id));
    }
    // A run may end on any thread, outside of the runtime too.
    std::thread::spawn(move || drop(run_token)).join().expect("it ran");
    assert!(!is_found(&sessions, &open[0].0, &open[0].1));
    assert!(is_found(&sessions, &open[1].0, &open[1].1));
    tokens.revoke(&issued.token.id, None).await.expect("the store works");
    assert!(!is_found(&sessions, &open[1].0, &open[1].1));
    assert_eq!(sessions.lock().sizes(), [0; 3]);
    // The sessions themselves are closed too, in tasks.
    for (id, _) in &open {
        for _ in 0..1000 {
            if !sessions.local.has_session(id).await.expect("an answer") {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert!(!sessions.local.has_session(id).await.expect("an answer"));
    }
}
