use agent_core::run_token::RunToken as _;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};

use super::run::RunTokenLimits;
use super::text::TokenText;
use super::*;
use crate::memory::MemoryRecords;
use crate::records::Inventory;
use agent_core::event::{Event, EventStream, RunIds};
use agent_core::ids::UserId;
use agent_core::testing::ManualClock;

mod counted;
mod run_ids;
mod run_tokens;
mod shared;

const HOUR: Duration = Duration::from_secs(3600);

struct TokenFixture {
    tokens: Tokens,
    records: Arc<MemoryRecords>,
    clock: ManualClock,
}

fn fixture() -> TokenFixture {
    let clock = ManualClock::new();
    let records = Arc::new(MemoryRecords::new(Arc::new(clock.clone())));
    TokenFixture { tokens: Tokens::new(records.clone(), Arc::new(clock.clone())), records, clock }
}

/// Polls a future of a memory store, which is always ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("no wait")
}

impl TokenFixture {
    fn mint(&self, new: NewToken) -> MintedToken {
        now(self.tokens.mint(new)).expect("minted")
    }

    fn find(&self, text: &str) -> Result<Token, TokenError> {
        now(self.tokens.find(text))
    }

    /// Returns all stored records as text.
    fn stored(&self) -> String {
        let mut all = String::new();
        // The platform's own company (the empty id), and the companies that the store lists.
        let companies = now(self.records.companies(None)).expect("companies");
        for company in std::iter::once(String::new()).chain(companies) {
            for collection in now(self.records.collections(&company, None)).expect("collections") {
                let page = now(self.records.list(&collection, &ListQuery::default())).expect("a page");
                for record in page.records {
                    all += &format!("{company} {} {} {}\n", collection.path(), record.id, record.value.get());
                }
            }
        }
        all
    }
}

fn widget(agent: &str) -> NewToken {
    NewToken::new("c", agent, Grant::Widget(WidgetGrant::default()))
}

fn mcp(agent: &str) -> NewToken {
    let grant = McpGrant {
        user_id: "ada".into(),
        todo_list_id: Some("l".into()),
        tools: Some(vec!["readTodos".into()]),
        timezone: Some("Europe/Berlin".into()),
        run_id: None,
        token_id: None,
        can_suspend: true,
    };
    NewToken::new("c", agent, Grant::Mcp(grant))
}

fn api(agents: &[&str]) -> NewToken {
    let agents = agents.iter().map(|agent| AgentId::from(*agent)).collect();
    NewToken::api("c", ApiGrant { user_id: "ada".into(), agents, caps: None })
}

#[test]
fn a_minted_token_is_found() {
    let fixture = fixture();
    let grant = WidgetGrant {
        origins: vec!["https://shop.example".into()],
        caps: RunCaps { runs_per_day: NonZeroU32::new(7), ..RunCaps::default() },
    };
    let label = Some("Shop".to_owned());
    let full = NewToken { ttl: Some(HOUR), label, ..NewToken::new("c", "a", Grant::Widget(grant)) };
    for (new, prefix) in
        [(full, "agw_"), (widget("a"), "agw_"), (mcp("b"), "agm_"), (api(&["a", "b"]), "aga_")]
    {
        let minted = fixture.mint(new.clone());
        let text = minted.text.expose();
        assert!(text.starts_with(prefix) && text.len() == 68, "{text}");
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{text}");
        let found_token = fixture.find(text).expect("found");
        assert_eq!(found_token, minted.token);
        assert_eq!(Uuid::parse_str(&found_token.id).expect("a UUID").get_version_num(), 7);
        assert_eq!(
            (found_token.company_id, found_token.agent_id, found_token.label),
            (new.company_id, new.agent_id, new.label)
        );
        assert_eq!(found_token.grant, new.grant);
        assert_eq!(found_token.created_at, fixture.clock.now());
        assert_eq!(found_token.expires_at, new.ttl.map(|ttl| fixture.clock.now() + ttl));
    }
}

#[test]
fn the_secret_is_neither_stored_nor_shown() {
    let fixture = fixture();
    let minted = fixture.mint(widget("a"));
    let text = minted.text.expose();
    let stored = fixture.stored();
    assert!(stored.contains(&format!(" tokens {} ", minted.token.id)), "{stored}");
    assert!(stored.contains(&format!("c agentTokens/a {} {{}}", minted.token.id)), "{stored}");
    for visible_text in [stored, format!("{minted:?}"), json!(minted.token).to_string()] {
        // The last 40 of the 64 characters encode the secret only; the first ones encode the id.
        assert!(!visible_text.contains(&text[text.len() - 40..]), "{visible_text}");
    }
    assert!(!json!(minted.token).to_string().contains("secret"));
}

#[test]
fn a_record_has_its_type() {
    let fixture = fixture();
    let minted = fixture.mint(NewToken { ttl: Some(HOUR), ..widget("a") });
    let record = now(fixture.records.get(&key(minted.token.id.parse().expect("a UUID")).expect("a key")));
    let mut value: Value =
        serde_json::from_str(record.expect("read").expect("there").value.get()).expect("JSON");
    let digest = value.as_object_mut().expect("an object").remove("secretSha256").expect("a hash");
    assert_eq!(digest.as_str().expect("text").len(), 43);
    let expected = json!({
        "id": minted.token.id, "companyId": "c", "agentId": "a",
        "kind": "widget", "origins": [], "caps": {"runsPerMinute": 20},
        "createdAt": "2026-01-01T00:00:00.000Z", "expiresAt": "2026-01-01T01:00:00.000Z",
    });
    assert_eq!(value, expected);
    assert_eq!(value, json!(minted.token));
}

#[test]
fn token_texts_are_unique() {
    let fixture = fixture();
    let secrets: BTreeSet<String> =
        (0..100).map(|_| fixture.mint(widget("a")).text.expose()[26..].to_owned()).collect();
    assert_eq!(secrets.len(), 100);
}

#[test]
fn wrong_texts_are_refused_with_their_reason() {
    let fixture = fixture();
    let text = fixture.mint(widget("a")).text.expose().to_owned();
    let other = fixture.mint(mcp("a")).text.expose().to_owned();
    let stranger = super::tests::fixture().mint(widget("a")).text.expose().to_owned();
    let (prefix, encoded) = text.split_at(4);
    let flipped = |position: usize| {
        let mut bytes = text.clone().into_bytes();
        bytes[position] = if bytes[position] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).expect("ASCII")
    };
    let cases = [
        (String::new(), "malformed"),
        ("agw_".to_owned(), "malformed"),
        (encoded.to_owned(), "malformed"),
        (format!("agx_{encoded}"), "malformed"),
        (format!("AGW_{encoded}"), "malformed"),
        (format!(" {text}"), "malformed"),
        (format!("{text} "), "malformed"),
        (format!("{text}="), "malformed"),
        (text[..67].to_owned(), "malformed"),
        (format!("{}+", &text[..67]), "malformed"),
        (format!("{}ä", &text[..66]), "malformed"),
        (text.repeat(10_000), "malformed"),
        (stranger, "unknown"),
        (flipped(4), "unknown"),
        (flipped(67), "wrong secret"),
        (flipped(30), "wrong secret"),
        // The kind in the prefix must match.
        (format!("agm_{encoded}"), "wrong secret"),
        (format!("aga_{encoded}"), "wrong secret"),
        (format!("{prefix}{}", &other[4..]), "wrong secret"),
        // The id of one token with the secret of another.
        (format!("{}{}", &text[..26], &other[26..]), "wrong secret"),
    ];
    for (case, reason) in cases {
        let refused = fixture.find(&case).expect_err(reason);
        assert_eq!(refused.to_string(), reason, "{case:.80}");
    }
    assert!(fixture.find(&text).is_ok() && fixture.find(&other).is_ok());
}

#[test]
fn a_token_ends_with_its_time() {
    let fixture = fixture();
    let text = fixture.mint(NewToken { ttl: Some(HOUR), ..widget("a") }).text;
    let lasting = fixture.mint(widget("a")).text;
    fixture.clock.advance(HOUR - Duration::from_millis(1));
    assert!(fixture.find(text.expose()).is_ok());
    fixture.clock.advance(Duration::from_millis(1));
    assert!(matches!(fixture.find(text.expose()), Err(TokenError::Expired)));
    fixture.clock.advance(HOUR * 24 * 365 * 100);
    assert!(fixture.find(lasting.expose()).is_ok());
}

#[test]
fn a_revoked_token_is_refused_at_once_and_for_good() {
    let fixture = fixture();
    let minted = fixture.mint(widget("a"));
    let other = fixture.mint(widget("a"));
    let id = minted.token.id.as_str();
    let revoke = |id: &str, company: Option<&str>| {
        now(fixture.tokens.revoke(id, company.map(CompanyId::from).as_ref())).expect("the store works")
    };
    assert!(!revoke(id, Some("d")), "another company's token is absent");
    for absent in ["", "x", minted.text.expose(), &agent_core::new_id()] {
        assert!(!revoke(absent, None), "{absent}");
    }
    assert!(fixture.find(minted.text.expose()).is_ok());
    assert!(revoke(id, Some("c")));
    let revoked_at = fixture.clock.now();
    assert!(matches!(fixture.find(minted.text.expose()), Err(TokenError::Revoked)));
    fixture.clock.advance(HOUR);
    assert!(revoke(id, None), "once more is as good as once");
    let listed =
        now(fixture.tokens.list(&"c".into(), &"a".into(), &ListQuery::default())).expect("a list").records;
    let times: Vec<_> = listed.iter().map(|record| record.value.revoked_at).collect();
    assert_eq!(times, [Some(revoked_at), None]);
    assert!(fixture.find(other.text.expose()).is_ok());
}

#[test]
fn an_agents_tokens_are_listed_by_age() {
    let fixture = fixture();
    let ids: Vec<String> = [widget("a"), mcp("a"), widget("a")].map(|new| fixture.mint(new).token.id).into();
    fixture.mint(widget("b"));
    let page = |company: &str, agent: &str, list: &ListQuery| {
        let page = now(fixture.tokens.list(&company.into(), &agent.into(), list)).expect("a page");
        let ids: Vec<String> = page.records.iter().map(|record| record.value.id.clone()).collect();
        (ids, page.next_cursor)
    };
    assert_eq!(page("c", "a", &ListQuery::default()), (ids.clone(), None));
    let (first, cursor) = page("c", "a", &ListQuery { limit: Some(2), ..ListQuery::default() });
    assert_eq!(first, ids[..2]);
    assert_eq!(page("c", "a", &ListQuery { cursor, ..ListQuery::default() }), (ids[2..].to_vec(), None));
    for (company, agent) in [("d", "a"), ("c", "none")] {
        assert_eq!(page(company, agent, &ListQuery::default()), (vec![], None));
    }
}

#[test]
fn an_api_token_is_listed_with_each_of_its_agents() {
    let fixture = fixture();
    let minted = fixture.mint(api(&["a", "b"]));
    let ids = |agent: &str| -> Vec<String> {
        let page = now(fixture.tokens.list(&"c".into(), &agent.into(), &ListQuery::default()));
        page.expect("a page").records.into_iter().map(|record| record.value.id).collect()
    };
    assert_eq!((ids("a"), ids("b")), (vec![minted.token.id.clone()], vec![minted.token.id.clone()]));
    assert_eq!(minted.token.agents(), ["a", "b"].map(AgentId::from));
    let value = json!(minted.token);
    assert_eq!((&value["kind"], &value["agentId"]), (&json!("api"), &json!("a")));
    assert_eq!((&value["agents"], &value["userId"]), (&json!(["a", "b"]), &json!("ada")));
    assert!(value.get("caps").is_none(), "{value}");
    // The last of the user's tokens: MCP and API tokens count together.
    for _ in 1..MAX_TOKENS_PER_USER {
        fixture.mint(mcp("a"));
    }
    let refused = now(fixture.tokens.mint(api(&["b"]))).expect_err("the limit is reached");
    assert!(matches!(refused, TokenMintError::TooManyTokens { .. }), "{refused}");
    let revoked = now(fixture.tokens.revoke_of_user(&*fixture.records, &"c".into(), &"ada".into()));
    assert_eq!(revoked.expect("revoked"), MAX_TOKENS_PER_USER, "one with two agents counts once");
    assert!(matches!(fixture.find(minted.text.expose()), Err(TokenError::Revoked)));
}

#[test]
fn a_token_that_could_not_be_is_not_made() {
    let fixture = fixture();
    let long = "x".repeat(301);
    let origins = |origins: Vec<String>| {
        NewToken::new("c", "a", Grant::Widget(WidgetGrant { origins, ..WidgetGrant::default() }))
    };
    let with = |change: fn(&mut McpGrant)| {
        let mut grant = McpGrant { user_id: "ada".into(), ..McpGrant::default() };
        change(&mut grant);
        NewToken::new("c", "a", Grant::Mcp(grant))
    };
    let century = Duration::from_secs(100 * 365 * 24 * 3600);
    for (new, fault) in [
        (NewToken::new("", "a", widget("a").grant), "companyId is empty"),
        (widget(" "), "agentId is empty"),
        (widget(&long), "agentId has more than 128 bytes"),
        (widget("a\nb"), "agentId has a control character"),
        (NewToken { label: Some(long.clone()), ..widget("a") }, "label has more than 200 bytes"),
        (NewToken { label: Some(String::new()), ..widget("a") }, "label is empty"),
        (NewToken { ttl: Some(Duration::ZERO), ..widget("a") }, "ttl must be greater than zero"),
        (NewToken { ttl: Some(Duration::MAX), ..widget("a") }, "ttl exceeds the maximum lifetime"),
        (NewToken { ttl: Some(century * 100), ..widget("a") }, "ttl exceeds the maximum lifetime"),
        (origins(vec![long]), "origins has more than 300 bytes"),
        (origins(vec!["https://a.example".into(); 101]), "origins has more than 100 elements"),
        (with(|grant| grant.user_id = UserId::default()), "userId is empty"),
        (with(|grant| grant.todo_list_id = Some(String::new())), "todoListId is empty"),
        (with(|grant| grant.tools = Some(vec!["x".into(); 501])), "tools has more than 500 elements"),
        (api(&[]), "agentId is empty"),
        (api(&["a", "a"]), "agents names an agent twice"),
        (api(&["a", "b\nc"]), "agents has a control character"),
        (api(&["a"; 51]), "agents has more than 50 elements"),
        (NewToken { agent_id: "b".into(), ..api(&["a", "b"]) }, "agents must begin with the token's agent"),
    ] {
        let refused = now(fixture.tokens.mint(new)).expect_err(fault);
        assert_eq!(refused.to_string(), fault);
    }
    assert_eq!(fixture.stored(), "");
    fixture.mint(NewToken { ttl: Some(century), ..widget("a") });
}

#[test]
fn mcp_tokens_per_user_are_limited_and_invalid_ones_do_not_count() {
    let fixture = fixture();
    let of = |company: &str, user: &str, agent: &str| {
        let grant = McpGrant { user_id: user.into(), ..McpGrant::default() };
        NewToken::new(company, agent, Grant::Mcp(grant))
    };
    let mint = |new| now(fixture.tokens.mint(new));
    let mut ids = Vec::new();
    for number in 0..MAX_TOKENS_PER_USER {
        let ttl = (number == 0).then_some(HOUR);
        // The limit is the user's, whatever the agent.
        let new = NewToken { ttl, ..of("c", "ada", &format!("a{}", number % 3)) };
        ids.push(mint(new).expect("below the limit").token.id);
    }
    let before = fixture.stored();
    let refused = mint(of("c", "ada", "a")).expect_err("the limit is reached");
    assert!(matches!(refused, TokenMintError::TooManyTokens { limit: MAX_TOKENS_PER_USER }), "{refused}");
    assert_eq!(fixture.stored(), before, "a refused token is not stored");
    for other in [of("c", "bob", "a"), of("d", "ada", "a"), widget("a")] {
        mint(other).expect("another user's, another company's, a widget's");
    }

    fixture.clock.advance(HOUR);
    mint(of("c", "ada", "a")).expect("one has expired");
    mint(of("c", "ada", "a")).expect_err("the limit is reached");
    assert!(now(fixture.tokens.revoke(&ids[7], None)).expect("the store works"));
    mint(of("c", "ada", "a")).expect("one is revoked");
    mint(of("c", "ada", "a")).expect_err("the limit is reached");
}

#[test]
fn an_agent_has_so_many_tokens() {
    let fixture = fixture();
    let mint = |new| now(fixture.tokens.mint(new));
    let mut ids = Vec::new();
    for number in 0..MAX_TOKENS_PER_AGENT {
        let ttl = (number < 2).then_some(HOUR);
        ids.push(mint(NewToken { ttl, ..widget("a") }).expect("below the limit").token.id);
    }
    let refused = mint(widget("a")).expect_err("the limit is reached");
    let limit = MAX_TOKENS_PER_AGENT;
    assert!(
        matches!(refused, TokenMintError::TooManyAgentTokens { limit: found } if found == limit),
        "{refused}"
    );
    mint(widget("b")).expect("another agent's");

    // Two expire and one is revoked, which makes room for three.
    fixture.clock.advance(HOUR);
    assert!(now(fixture.tokens.revoke(&ids[7], None)).expect("the store works"));
    for _ in 0..3 {
        mint(widget("a")).expect("room again");
    }
    mint(widget("a")).expect_err("the limit is reached");
    let mut list = ListQuery { limit: Some(200), ..ListQuery::default() };
    let mut kept = BTreeSet::new();
    loop {
        let page = now(fixture.tokens.list(&"c".into(), &"a".into(), &list)).expect("a page");
        kept.extend(page.records.into_iter().map(|record| record.id));
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            break;
        }
    }
    assert_eq!(kept.len(), MAX_TOKENS_PER_AGENT);
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(kept.contains(id), ![0, 1, 7].contains(&number), "{number}");
    }
}

#[test]
fn listeners_receive_the_ids_of_tokens_that_end() {
    let fixture = fixture();
    let ended = Arc::new(std::sync::Mutex::new(Vec::new()));
    let received = ended.clone();
    fixture.tokens.subscribe_ended(Arc::new(move |id| received.lock().expect("whole").push(id.to_owned())));
    let taken = || std::mem::take(&mut *ended.lock().expect("whole"));

    let stored = fixture.mint(mcp("a")).token.id;
    let run = fixture.tokens.mint_run(NewToken { ttl: Some(HOUR), ..mcp("a") }).expect("minted");
    let run_id = fixture.find(run.text().expose()).expect("found").id;
    assert_eq!(taken(), [""; 0]);
    now(fixture.tokens.revoke(&stored, Some(&"d".into()))).expect("the store works");
    assert_eq!(taken(), [""; 0], "another company's token stays valid");
    now(fixture.tokens.revoke(&stored, None)).expect("the store works");
    assert_eq!(taken(), [stored]);
    drop(run);
    assert_eq!(taken(), [run_id]);
}

#[test]
fn the_caps_of_a_token_are_counted_over_all_processes() {
    let fixture = fixture();
    let processes: Vec<Tokens> =
        (0..3).map(|_| Tokens::new(fixture.records.clone(), Arc::new(fixture.clock.clone()))).collect();
    let cap = |number| NonZeroU32::new(number).expect("not zero");
    let caps = RunCaps { runs_per_minute: cap(20), runs_per_day: NonZeroU32::new(30) };
    let count =
        |number: usize, token: &str| now(processes[number % 3].count_run((&"c".into(), token), &caps));
    let admitted = |token: &str| (0..60).filter(|number| count(*number, token).is_ok()).count();
    assert_eq!(admitted("t"), 20);
    let before = fixture.stored();
    let refused = count(0, "t").expect_err("the cap is reached");
    let interval = Duration::from_secs(3);
    assert!(
        matches!(refused, RunCapError::PerMinute { retry_after } if retry_after == interval),
        "{refused:?}"
    );
    assert_eq!(fixture.stored(), before, "a refused run writes nothing");
    assert_eq!(admitted("u"), 20, "another token's caps");
    fixture.clock.advance(Duration::from_secs(60));
    assert_eq!(admitted("t"), 10, "the daily cap");
    let refused = count(1, "t").expect_err("the cap is reached");
    let rest_of_day = HOUR * 24 - Duration::from_secs(60);
    assert!(
        matches!(refused, RunCapError::PerDay { retry_after } if retry_after == rest_of_day),
        "{refused:?}"
    );
    fixture.clock.advance(HOUR * 24);
    assert_eq!(admitted("t"), 20, "a new day");
    assert_eq!(fixture.stored().lines().count(), 2, "a token has one record");
}
