//! Usage with all that its tables keep.

use agent_core::tool::Caller;
use agent_platform::usage::{
    NanoUsd, RunScope, TokenCounts, UsageDimension, UsageEntry, UsageFilter, UsageOperation, UsageQuery,
    UsageRow, UsageStore,
};
use jiff::Timestamp;

/// Returns an entry of the company `acme` that ended `ms` milliseconds after a fixed point in time.
pub(crate) fn entry(id: &str, ms: i64) -> UsageEntry {
    UsageEntry {
        id: id.to_owned(),
        scope: RunScope {
            company_id: "acme".into(),
            run_id: "run 1".into(),
            agent_id: "gardener".into(),
            user_id: "ada \"ü\"".into(),
            caller: Caller::Session,
            token_id: None,
            visitor: None,
        },
        round: 1,
        attempt: 1,
        operation: UsageOperation::Chat,
        provider: "openai".to_owned(),
        model: "unknown".to_owned(),
        tokens: TokenCounts { input_tokens: 1, output_tokens: 1, ..TokenCounts::default() },
        tool_calls: 0,
        cost: None,
        price_as_of: None,
        estimated: false,
        outcome: "ok".to_owned(),
        ended_at: Timestamp::from_millisecond(1_767_225_600_000 + ms).expect("a time"),
    }
}

/// Books a cancelled call, tool calls of the same run, and a visitor's call of an unknown model on the next day.
pub(crate) async fn fill(store: &dyn UsageStore) {
    let chat = UsageEntry {
        attempt: 2,
        model: "gpt-5".to_owned(),
        tokens: TokenCounts {
            input_tokens: 10,
            cached_input_tokens: 4,
            cache_write_tokens: 3,
            output_tokens: 2,
            reasoning_tokens: 1,
        },
        cost: Some(NanoUsd::new(12_345)),
        price_as_of: Some("2026-01-01".to_owned()),
        estimated: true,
        outcome: "cancelled".to_owned(),
        ..entry("entry 1", 1)
    };
    let tools = UsageEntry {
        round: 0,
        operation: UsageOperation::Tools,
        provider: String::new(),
        model: String::new(),
        tokens: TokenCounts::default(),
        tool_calls: 3,
        cost: Some(NanoUsd::ZERO),
        ..entry("entry 2", 2)
    };
    let next_day = entry("entry 3", 24 * 60 * 60 * 1_000);
    let scope = RunScope {
        run_id: "run 2".into(),
        user_id: "widget:t".into(),
        caller: Caller::Widget,
        ..next_day.scope.clone()
    };
    let booked = store.book(vec![chat, tools, UsageEntry { scope, ..next_day }]).await;
    assert_eq!(booked.expect("booked"), 3);
}

/// Entries of the runs, and rows by all dimensions.
pub(crate) type Contents = (Vec<UsageEntry>, Vec<UsageRow>);

/// Returns all entries that [`fill`] booked.
pub(crate) async fn contents(store: &dyn UsageStore) -> Contents {
    let mut entries = Vec::new();
    for run in ["run 1", "run 2"] {
        entries.extend(store.run_usage(&"acme".into(), &run.into()).await.expect("entries"));
    }
    let day = |text: &str| text.parse().expect("a date");
    let filter = UsageFilter { from: day("2026-01-01"), to: day("2026-12-31"), agent: None, user: None };
    let query = UsageQuery { filter, group_by: UsageDimension::ALL.to_vec(), after: None, limit: 100 };
    (entries, store.usage(&"acme".into(), &query).await.expect("rows").rows)
}
