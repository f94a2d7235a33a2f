//! Tests of run tokens: their end, reported calls, and shares of companies.

use super::*;

#[test]
fn a_run_token_ends_with_its_run() {
    let fixture = fixture();
    let run = |ttl| fixture.tokens.mint_run(NewToken { ttl, ..mcp("a") });
    assert!(run(None).is_err(), "a run token must have a lifetime");
    let token = run(Some(HOUR)).expect("minted");
    let text = token.text().expose().to_owned();
    assert!(!format!("{token:?}").contains(&text[26..]));
    assert_eq!(fixture.find(&text).expect("found").grant, mcp("a").grant);
    let mut wrong = text.clone();
    wrong.replace_range(67.., if text.ends_with('A') { "B" } else { "A" });
    assert!(matches!(fixture.find(&wrong), Err(TokenError::WrongSecret)));
    drop(token);
    assert!(matches!(fixture.find(&text), Err(TokenError::Unknown)));

    let outliving = run(Some(HOUR)).expect("minted");
    let text = outliving.text().expose().to_owned();
    outliving.keep_until_expiry();
    fixture.clock.advance(HOUR - Duration::from_millis(1));
    assert!(fixture.find(&text).is_ok());
    fixture.clock.advance(Duration::from_millis(1));
    assert!(matches!(fixture.find(&text), Err(TokenError::Expired)));
    assert_eq!(fixture.stored(), "", "no run costs a write");
}

#[test]
fn calls_are_reported_to_the_run_that_the_token_is_of() {
    let fixture = fixture();
    let run = || fixture.tokens.mint_run(NewToken { ttl: Some(HOUR), ..mcp("a") }).expect("minted");
    let id = |token: &IssuedRunToken| fixture.find(token.text().expose()).expect("found").id;
    let (one, other, silent) = (run(), run(), run());
    let (calls, others) = (one.report_calls(), other.report_calls());
    let reports = |token| fixture.tokens.call_reports(&id(token));
    reports(&one)
        .expect("the backend requests reports")
        .start_call("readTodos", || "{}".to_owned())
        .finish(Default::default);
    let read = async |calls| {
        let run = RunIds { thread_id: "t".into(), run_id: "r".into() };
        let events: Vec<Event> =
            EventStream::new(run, stream::empty()).with_reported_calls(Some(calls)).collect().await;
        events.iter().filter(|event| event.name().starts_with("TOOL_CALL")).count()
    };
    assert_eq!(read(calls).now_or_never(), Some(4));
    assert_eq!(read(others).now_or_never(), Some(0));
    assert_eq!(reports(&silent), None, "its backend tells of its calls itself");
    let id = id(&one);
    drop(one);
    assert_eq!(fixture.tokens.call_reports(&id), None);
    assert_eq!(fixture.tokens.call_reports("no token's"), None);
}

/// A table of run tokens with small limits.
struct RunFixture {
    runs: RunTokenTable,
    clock: ManualClock,
    ended: Arc<std::sync::Mutex<Vec<String>>>,
}

impl RunFixture {
    fn new(process: usize, company: usize) -> Self {
        let (clock, listeners) = (ManualClock::new(), Arc::<TokenEndListeners>::default());
        let ended = Arc::new(std::sync::Mutex::new(Vec::new()));
        let received = ended.clone();
        listeners.add(Arc::new(move |id| received.lock().expect("whole").push(id.to_owned())));
        let runs =
            RunTokenTable::new(Arc::new(clock.clone()), RunTokenLimits { process, company }, listeners, None);
        Self { runs, clock, ended }
    }

    fn mint(&self, company: &str) -> Result<IssuedRunToken, TokenMintError> {
        self.runs.mint(NewToken { ttl: Some(HOUR), company_id: company.into(), ..mcp("a") })
    }

    /// Mints the token of a workflow whose run has ended; returns its text. A second passes after it.
    fn detached(&self, company: &str) -> String {
        let token = self.mint(company).expect("there is room");
        token.keep_until_expiry();
        self.clock.advance(Duration::from_secs(1));
        token.text().expose().to_owned()
    }

    fn is_valid(&self, text: &str) -> bool {
        let text = TokenText::parse(text).expect("a token");
        self.runs.find(&text).is_some_and(|found| found.is_ok())
    }
}

#[test]
fn one_company_cannot_take_the_run_tokens_of_another() {
    let test = RunFixture::new(8, 2);
    let held: Vec<_> = (0..2).map(|_| test.mint("large").expect("there is room")).collect();
    assert!(matches!(test.mint("large"), Err(TokenMintError::TooManyRunTokens)));
    let other = test.mint("small").expect("another company's share is free");
    drop(held);
    test.mint("large").expect("its runs have ended");
    drop(other);
    assert_eq!(test.runs.sizes(), [0; 4], "ended runs leave no entries");
}

#[test]
fn a_company_at_its_share_evicts_its_oldest_token_whose_run_has_ended() {
    let test = RunFixture::new(100, 3);
    let other = test.detached("other");
    let running = test.mint("c").expect("there is room");
    let texts: Vec<String> = (0..20).map(|_| test.detached("c")).collect();
    let valid: Vec<bool> = texts.iter().map(|text| test.is_valid(text)).collect();
    assert_eq!(valid, [[false; 18].as_slice(), &[true; 2]].concat(), "the oldest are evicted");
    assert!(test.is_valid(running.text().expose()), "a run keeps its token");
    assert!(test.is_valid(&other));
    assert_eq!(test.ended.lock().expect("whole").len(), 18, "sessions of evicted tokens are closed");
    assert_eq!(test.runs.sizes(), [4, 4, 2, 2]);
}

#[test]
fn a_full_table_evicts_a_token_of_the_company_that_holds_the_most() {
    let test = RunFixture::new(6, 4);
    let small = test.detached("small");
    let large: Vec<String> = (0..4).map(|_| test.detached("large")).collect();
    let middle = test.detached("middle");
    let first = test.detached("new");
    assert!(!test.is_valid(&large[0]) && test.is_valid(&large[1]));
    let second = test.mint("new").expect("the largest gives way");
    assert!(!test.is_valid(&large[1]) && test.is_valid(&large[2]));
    // Now the newcomer holds as many as the largest, and evicts its own.
    let third = test.mint("new").expect("its own gives way");
    assert!(!test.is_valid(&first));
    for text in [&small, &middle, &large[2], &large[3], second.text().expose(), third.text().expose()] {
        assert!(test.is_valid(text));
    }
    assert!(matches!(test.mint("new"), Err(TokenMintError::TooManyRunTokens)), "its own are in use");
}

#[test]
fn each_insertion_removes_a_bounded_number_of_expired_tokens() {
    let test = RunFixture::new(100, 50);
    for _ in 0..20 {
        test.detached("c");
    }
    test.clock.advance(HOUR);
    let mut sizes = Vec::new();
    for _ in 0..4 {
        drop(test.mint("d").expect("there is room"));
        sizes.push(test.runs.sizes()[0]);
    }
    assert_eq!(sizes, [12, 4, 0, 0], "eight at a time, although the table is not full");
    assert_eq!(test.runs.sizes(), [0; 4]);
}

#[test]
fn the_indexes_agree_after_random_operations() {
    let test = RunFixture::new(30, 12);
    let mut held = Vec::new();
    let mut state = 7_u64;
    for _ in 0..3000 {
        // A linear congruential generator, so that a failure can be repeated.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = usize::try_from(state >> 40).expect("24 bits");
        match random % 4 {
            0 | 1 => held.extend(test.mint(["a", "b", "c", "d"][random / 4 % 4])),
            2 if !held.is_empty() => {
                let token = held.swap_remove(random / 4 % held.len());
                if random / 64 % 2 == 0 {
                    token.keep_until_expiry();
                }
            }
            _ => test.clock.advance(HOUR / 40),
        }
        let [tokens, by_expiry, companies, evictable] = test.runs.sizes();
        assert!(tokens == by_expiry && tokens <= 30 && evictable <= companies && companies <= 4);
    }
    drop(held);
    test.clock.advance(HOUR);
    for _ in 0..4 {
        drop(test.mint("a").expect("all have expired"));
    }
    assert_eq!(test.runs.sizes(), [0; 4]);
}
