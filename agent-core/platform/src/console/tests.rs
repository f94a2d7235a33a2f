use futures_util::FutureExt;

use super::*;
use crate::memory::MemoryRecords;
use crate::records::Inventory;
use agent_core::testing::ManualClock;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

struct ConsoleFixture {
    console: ConsoleSessions,
    records: Arc<MemoryRecords>,
    clock: ManualClock,
}

fn fixture() -> ConsoleFixture {
    let clock = ManualClock::new();
    let records = Arc::new(MemoryRecords::new(Arc::new(clock.clone())));
    let console = ConsoleSessions::new(records.clone(), Arc::new(clock.clone()));
    ConsoleFixture { console, records, clock }
}

/// Polls a future of a memory store, which is always ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("no wait")
}

impl ConsoleFixture {
    fn code(&self) -> String {
        let code = now(self.console.create_code(NewConsoleCode::new("acme", "ann"))).expect("a code");
        code.text.expose().to_owned()
    }

    fn open(&self, code: &str) -> Result<String, ConsoleError> {
        now(self.console.open(code)).map(|opened| opened.text.expose().to_owned())
    }

    fn sign_in(&self) -> String {
        self.open(&self.code()).expect("a session")
    }

    fn is_valid(&self, text: &str) -> bool {
        match now(self.console.find(text)) {
            Ok(session) => {
                assert_eq!((&*session.company_id, &*session.user_id), ("acme", "ann"));
                true
            }
            Err(ConsoleError::Unknown) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns all stored records as text.
    fn stored(&self) -> String {
        let mut all = String::new();
        for company in [String::new(), "acme".to_owned()] {
            for collection in now(self.records.collections(&company, None)).expect("collections") {
                let page = now(self.records.list(&collection, &ListQuery::default())).expect("a page");
                for record in page.records {
                    all += &format!("{} {} {}\n", collection.path(), record.id, record.value.get());
                }
            }
        }
        all
    }
}

#[test]
fn a_code_signs_in_once() {
    let fixture = fixture();
    let code = fixture.code();
    let session = fixture.open(&code).expect("a session");
    assert!(fixture.is_valid(&session));
    assert!(matches!(fixture.open(&code), Err(ConsoleError::Unknown)));
    let stored = fixture.stored();
    assert!(!stored.contains(&code) && !stored.contains(&session[SESSION_PREFIX.len()..]), "{stored}");
}

#[test]
fn an_invalid_code_does_not_sign_in() {
    let fixture = fixture();
    let code = fixture.code();
    let session = fixture.sign_in();
    let other = URL_SAFE_NO_PAD.encode([7; SECRET_BYTES]);
    for text in [
        "",
        "x",
        &code[1..],
        &format!("{code}A"),
        &format!("{code}="),
        &other,
        &session,
        &format!("ags_{code}"),
    ] {
        assert!(matches!(fixture.open(text), Err(ConsoleError::Unknown)), "{text}");
        assert!(text == session || !fixture.is_valid(text), "{text}");
    }
    assert!(fixture.open(&code).is_ok());
}

#[test]
fn a_code_expires_and_is_swept() {
    let fixture = fixture();
    let code = fixture.code();
    fixture.clock.advance(DEFAULT_CODE_TTL);
    assert!(matches!(fixture.open(&code), Err(ConsoleError::Unknown)));
    assert!(fixture.stored().contains(CODES));
    let session = fixture.sign_in();
    assert!(!fixture.stored().contains(CODES), "{}", fixture.stored());
    assert!(fixture.is_valid(&session));
}

#[test]
fn a_session_ends_when_idle_and_after_its_longest_time() {
    let fixture = fixture();
    let idle = fixture.sign_in();
    fixture.clock.advance(DEFAULT_SESSION_IDLE);
    assert!(!fixture.is_valid(&idle));

    let used = fixture.sign_in();
    let steps = MAX_SESSION_TTL.as_secs() / HOUR.as_secs();
    for hour in 1..steps {
        fixture.clock.advance(HOUR);
        assert!(fixture.is_valid(&used), "after {hour} hours");
    }
    fixture.clock.advance(HOUR);
    assert!(!fixture.is_valid(&used));
}

#[test]
fn requests_in_quick_succession_write_nothing() {
    let fixture = fixture();
    let session = fixture.sign_in();
    let stored = fixture.stored();
    for _ in 0..29 {
        fixture.clock.advance(MINUTE);
        assert!(fixture.is_valid(&session));
    }
    assert_eq!(fixture.stored(), stored);
    fixture.clock.advance(MINUTE);
    assert!(fixture.is_valid(&session));
    assert_ne!(fixture.stored(), stored);
}

#[test]
fn sessions_are_revoked_singly_and_together() {
    let fixture = fixture();
    let (first, second, third) = (fixture.sign_in(), fixture.sign_in(), fixture.sign_in());
    assert!(now(fixture.console.revoke(&first)).expect("revoked"));
    assert!(!now(fixture.console.revoke(&first)).expect("it is gone"));
    assert!(!now(fixture.console.revoke("no session")).expect("it is none"));
    assert_eq!([&first, &second, &third].map(|text| fixture.is_valid(text)), [false, true, true]);
    assert_eq!(now(fixture.console.revoke_all(&"acme".into(), &"bob".into())).expect("none"), 0);
    assert_eq!(now(fixture.console.revoke_all(&"acme".into(), &"ann".into())).expect("all"), 2);
    assert_eq!([&first, &second, &third].map(|text| fixture.is_valid(text)), [false, false, false]);
    assert_eq!(fixture.stored(), "");
}

#[test]
fn a_session_beyond_the_limit_ends_the_oldest() {
    let fixture = fixture();
    let sessions: Vec<String> = (0..=MAX_SESSIONS_PER_USER).map(|_| fixture.sign_in()).collect();
    assert!(!fixture.is_valid(&sessions[0]));
    assert!(sessions[1..].iter().all(|session| fixture.is_valid(session)));
}

#[test]
fn invalid_parameters_are_named() {
    let fixture = fixture();
    let new = NewConsoleCode::new("acme", "ann");
    for (new, expected) in [
        (NewConsoleCode { user_id: "".into(), ..new.clone() }, "userId is empty"),
        (NewConsoleCode { company_id: "a/b".into(), ..new.clone() }, "companyId has a slash"),
        (
            NewConsoleCode { user_id: "widget:1".into(), ..new.clone() },
            "userId is that of a widget's visitor",
        ),
        (
            NewConsoleCode { ttl: MAX_CODE_TTL + MINUTE, ..new.clone() },
            "a code is valid for 1 second to 1 hour, and an idle session for 1 second to 7 days",
        ),
        (
            NewConsoleCode { session_idle: Duration::ZERO, ..new },
            "a code is valid for 1 second to 1 hour, and an idle session for 1 second to 7 days",
        ),
    ] {
        let error = now(fixture.console.create_code(new)).expect_err("it is invalid");
        assert_eq!(error.to_string(), expected);
    }
}
