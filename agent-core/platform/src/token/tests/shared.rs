//! Run tokens of several processes over one store.

use std::sync::Mutex;

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use super::*;
use crate::records::RecordsWrapper;
use crate::seal::Sealer;
use crate::spawner::Spawner;
use crate::token::run::{RunTokenLimits, TokenSharing};

/// A spawner that polls its tasks on demand.
#[derive(Default)]
struct ManualSpawner(Mutex<Vec<BoxFuture<'static, ()>>>);

impl Spawner for ManualSpawner {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.lock().expect("whole").push(task);
    }
}

impl ManualSpawner {
    /// Polls all tasks; returns the number of tasks that have not ended.
    fn poll(&self) -> usize {
        let mut tasks = std::mem::take(&mut *self.0.lock().expect("whole"));
        tasks.retain_mut(|task| task.now_or_never().is_none());
        let mut all = self.0.lock().expect("whole");
        all.extend(tasks);
        all.len()
    }
}

/// A store whose next commits fail.
#[derive(Default)]
pub(super) struct FailingRecords {
    records: MemoryRecords,
    failures: Mutex<usize>,
    /// Numbers of writes of the commits, in order.
    pub(super) commits: Mutex<Vec<usize>>,
}

#[async_trait]
impl RecordsWrapper for FailingRecords {
    fn inner(&self) -> &dyn Records {
        &self.records
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        self.commits.lock().expect("whole").push(writes.len());
        {
            let mut failures = self.failures.lock().expect("whole");
            if *failures > 0 {
                *failures -= 1;
                return Err(StoreError::unavailable("it is down"));
            }
        }
        self.records.commit(writes).await
    }
}

/// Processes over one store.
struct SharedFixture {
    records: Arc<FailingRecords>,
    clock: ManualClock,
    spawner: Arc<ManualSpawner>,
}

const SECRET: &str = "the secret of this year";

impl SharedFixture {
    fn new() -> Self {
        Self { records: Arc::default(), clock: ManualClock::new(), spawner: Arc::default() }
    }

    fn process(&self, secret: &str, previous: Option<&str>) -> Tokens {
        self.process_with(Sealer::new(&Secret::new(secret), previous.map(Secret::new).as_ref()))
    }

    fn process_with(&self, sealer: Sealer) -> Tokens {
        let tokens = Tokens::new(self.records.clone(), Arc::new(self.clock.clone()));
        tokens.with_shared_run_tokens(Arc::new(sealer), self.spawner.clone())
    }

    fn ended_records(&self) -> usize {
        let ended = Collection::of_platform("endedRunTokens").expect("a name");
        usize::try_from(now(self.records.inner().count(&ended)).expect("the store works")).expect("few")
    }
}

fn issue(process: &Tokens) -> IssuedRunToken {
    process.mint_run(NewToken { ttl: Some(HOUR), ..mcp("a") }).expect("minted")
}

fn text(token: &IssuedRunToken) -> String {
    token.text().expose().to_owned()
}

/// Returns the name of the result of a lookup.
fn lookup(process: &Tokens, text: &str) -> String {
    now(process.find(text)).map_or_else(|error| error.to_string(), |_| "valid".to_owned())
}

#[test]
fn a_run_token_is_valid_at_all_processes_until_its_run_ends() {
    let test = SharedFixture::new();
    let (issuer, other) = (test.process(SECRET, None), test.process(SECRET, None));
    let token = issue(&issuer);
    let text = text(&token);
    assert!(text.starts_with("agr_") && text.len() < 1024, "{text}");
    assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)), "{text}");
    assert!(!text.contains("ada") && !format!("{token:?}").contains(&text[26..]));
    let found_token = now(issuer.find(&text)).expect("found");
    assert_eq!(now(other.find(&text)).expect("found"), found_token);
    assert_eq!(
        (&found_token.grant, found_token.expires_at),
        (&mcp("a").grant, Some(test.clock.now() + HOUR))
    );
    assert_eq!(*test.records.commits.lock().expect("whole"), [0; 0], "no run costs a write");

    let ended = Arc::new(Mutex::new(Vec::new()));
    let received = ended.clone();
    other.subscribe_ended(Arc::new(move |id| received.lock().expect("whole").push(id.to_owned())));
    drop(token);
    assert_eq!(lookup(&issuer, &text), "revoked", "at once");
    assert_eq!(lookup(&other, &text), "valid", "before the background task has run");
    assert_eq!(test.spawner.poll(), 0);
    assert_eq!(lookup(&other, &text), "revoked");
    assert_eq!(*ended.lock().expect("whole"), [found_token.id]);
    assert_eq!(lookup(&test.process(SECRET, None), &text), "revoked", "a process that has started since");
}

#[test]
fn a_run_token_needs_the_key_and_expires() {
    let test = SharedFixture::new();
    let issuer = test.process(SECRET, None);
    let token = issue(&issuer);
    let text = text(&token);
    assert_eq!(lookup(&test.process("another", Some(SECRET)), &text), "valid", "a rotated key");
    assert_eq!(lookup(&test.process("another", None), &text), "wrong secret");
    assert_eq!(lookup(&test.process_with(Sealer::without_key()), &text), "unknown");
    token.keep_until_expiry();
    drop(token);
    let other = test.process(SECRET, None);
    test.clock.advance(HOUR - Duration::from_millis(1));
    assert_eq!((lookup(&issuer, &text), lookup(&other, &text)), ("valid".into(), "valid".into()));
    test.clock.advance(Duration::from_millis(1));
    assert_eq!((lookup(&issuer, &text), lookup(&other, &text)), ("expired".into(), "expired".into()));
    test.spawner.poll();
    assert_eq!(test.ended_records(), 0);
}

#[test]
fn a_changed_text_is_refused() {
    let test = SharedFixture::new();
    let (issuer, other) = (test.process(SECRET, None), test.process(SECRET, None));
    let (one, two) = (issue(&issuer), issue(&issuer));
    let (one, two) = (text(&one), text(&two));
    let mut last = one.clone();
    last.replace_range(one.len() - 1.., if one.ends_with('A') { "B" } else { "A" });
    let cases = [
        (format!("{}{}", &one[..26], &two[26..]), "wrong secret"),
        (last, "wrong secret"),
        (one[..one.len() - 4].to_owned(), "wrong secret"),
        (format!("{one}="), "wrong secret"),
        (one.replacen("agr_", "agm_", 1), "malformed"),
        (one[..26].to_owned(), "malformed"),
        (one.replacen('.', "", 1), "malformed"),
        ("agr_".to_owned(), "malformed"),
        (format!("{one}{}", "A".repeat(10_000)), "malformed"),
    ];
    for (case, reason) in cases {
        for process in [&issuer, &other] {
            assert_eq!(lookup(process, &case), reason, "{case:.80}");
        }
    }
}

#[test]
fn a_token_with_too_much_for_an_address_is_not_shared() {
    let test = SharedFixture::new();
    let (issuer, other) = (test.process(SECRET, None), test.process(SECRET, None));
    let tools = Some((0..300).map(|number| format!("a-tool-with-a-long-name-{number}")).collect());
    let grant = McpGrant { user_id: "ada".into(), tools, ..McpGrant::default() };
    let new = NewToken { ttl: Some(HOUR), ..NewToken::new("c", "a", Grant::Mcp(grant)) };
    let token = issuer.mint_run(new).expect("minted");
    let text = text(&token);
    assert!(text.starts_with("agm_"), "{text}");
    assert_eq!((lookup(&issuer, &text), lookup(&other, &text)), ("valid".into(), "unknown".into()));
    drop(token);
    assert_eq!(lookup(&issuer, &text), "unknown");
    test.spawner.poll();
    assert_eq!(test.ended_records(), 0);
}

#[test]
fn an_evicted_token_ends_at_all_processes() {
    let test = SharedFixture::new();
    let (mut issuer, other) = (test.process(SECRET, None), test.process(SECRET, None));
    let (clock, sealer) = (Arc::new(test.clock.clone()), Sealer::new(&Secret::new(SECRET), None));
    let sharing =
        TokenSharing::new(Arc::new(sealer), test.records.clone(), clock.clone(), test.spawner.clone());
    let limits = RunTokenLimits { process: 1, company: 1 };
    issuer.runs = RunTokenTable::new(clock, limits, Arc::default(), Some(sharing));
    let workflow = issue(&issuer);
    let evicted = text(&workflow);
    workflow.keep_until_expiry();
    drop(workflow);
    assert_eq!(lookup(&other, &evicted), "valid");
    let next = issue(&issuer);
    test.spawner.poll();
    assert_eq!((lookup(&issuer, &evicted), lookup(&other, &evicted)), ("revoked".into(), "revoked".into()));
    assert_eq!(lookup(&other, &text(&next)), "valid");
}

#[test]
fn ends_are_written_in_batches_and_again_after_a_failure() {
    let test = SharedFixture::new();
    let (issuer, other) = (test.process(SECRET, None), test.process(SECRET, None));
    let tokens: Vec<_> = (0..501).map(|_| issue(&issuer)).collect();
    let last = text(&tokens[500]);
    *test.records.failures.lock().expect("whole") = 2;
    drop(tokens);
    let mut flushing = Box::pin(issuer.flush_ended_run_tokens());
    assert!((&mut flushing).now_or_never().is_none());
    for _ in 0..2 {
        assert_eq!(test.spawner.poll(), 1, "it waits after a failure");
        test.clock.advance(Duration::from_millis(400));
    }
    assert_eq!(test.spawner.poll(), 0);
    assert_eq!(*test.records.commits.lock().expect("whole"), [250, 250, 250, 250, 1]);
    assert_eq!(lookup(&other, &last), "revoked");
    assert!((&mut flushing).now_or_never().is_some());

    // It gives up after ten attempts, and writes what ends later.
    *test.records.failures.lock().expect("whole") = 10;
    let (lost, later) = (issue(&issuer), issue(&issuer));
    let texts = [text(&lost), text(&later)];
    drop(lost);
    while test.spawner.poll() > 0 {
        test.clock.advance(Duration::from_secs(10));
    }
    // A runtime that shuts down drops the task.
    let interrupted = issue(&issuer);
    drop(interrupted);
    test.spawner.0.lock().expect("whole").clear();
    assert!(issuer.flush_ended_run_tokens().now_or_never().is_some());
    drop(later);
    test.spawner.poll();
    assert_eq!(texts.map(|text| lookup(&other, &text)), ["valid", "revoked"]);
}

#[test]
fn records_of_ended_tokens_are_deleted_after_their_expiry() {
    let test = SharedFixture::new();
    let issuer = test.process(SECRET, None);
    let end = |count: usize| {
        drop((0..count).map(|_| issue(&issuer)).collect::<Vec<_>>());
        test.spawner.poll();
    };
    end(450);
    test.clock.advance(HOUR);
    end(3);
    now(issuer.delete_expired_ended_run_tokens()).expect("the store works");
    assert_eq!(test.ended_records(), 453, "other clocks may be behind");
    test.clock.advance(Duration::from_secs(601));
    now(issuer.delete_expired_ended_run_tokens()).expect("the store works");
    assert_eq!(test.ended_records(), 3);
}
