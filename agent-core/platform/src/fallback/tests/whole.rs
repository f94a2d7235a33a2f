//! Answers that are delivered whole: a call that fails after content is replaced like a call that fails before it.

use serde_json::json;

use super::super::stream::MAX_HELD_BYTES;
use super::*;
use crate::usage::UsageEntry;

/// Returns the parts of an answer that a client may see, besides the text.
fn shown(events: &[Result<ModelEvent, AgentError>]) -> Vec<&ModelEvent> {
    let is_shown = |event: &&ModelEvent| {
        matches!(
            event,
            ModelEvent::Reasoning(_) | ModelEvent::ToolCallStart { .. } | ModelEvent::ToolCallArgs { .. }
        )
    };
    events.iter().filter_map(|event| event.as_ref().ok()).filter(is_shown).collect()
}

/// Returns the calls in the ledger: attempt, outcome, tokens of output, and true if these are estimated.
fn booked(fixture: &FallbackFixture) -> Vec<(u32, String, u64, bool)> {
    fixture.recorder.flush().now_or_never().expect("no wait");
    let ledger = fixture.recorder.store().run_usage(&"c".into(), &"r".into()).now_or_never();
    let entries = ledger.expect("no wait").expect("entries").into_iter();
    let call =
        |entry: UsageEntry| (entry.attempt, entry.outcome, entry.tokens.output_tokens, entry.estimated);
    let mut booked: Vec<_> = entries.map(call).collect();
    booked.sort();
    booked
}

/// Answers that have content and no end.
const BEGUN: [fn() -> ScriptedAnswer; 3] = [
    || ScriptedAnswer::new().text("par"),
    || ScriptedAnswer::new().reasoning("hm"),
    || ScriptedAnswer::new().call("1", "look", ["{"]),
];

#[test]
fn a_call_that_fails_after_content_is_repeated_and_its_content_is_dropped() {
    // The name of a tool is counted as text.
    for (begun, lost_tokens) in BEGUN.into_iter().zip([1, 1, 2]) {
        let fixture = FallbackFixture::new();
        let answers = vec![begun().fail(upstream(500, "x")), ScriptedAnswer::from_text("Hi.")];
        fixture.model("first", 9_000, answers);
        let events = fixture.call(&fixture.run_for(&settings(&[]), true)).expect("an answer");
        assert_eq!((text(&events), shown(&events)), ("Hi.".to_owned(), vec![]), "{events:?}");
        assert!(events.iter().all(Result::is_ok), "{events:?}");
        let attempts =
            reports(&events).into_iter().map(|report| (report.attempt, report.entry, report.reason));
        let failed = Some("BACKEND_FAILED".to_owned());
        assert_eq!(attempts.collect::<Vec<_>>(), [(Some(1), 0, failed), (Some(2), 0, None)]);
        // The lost call is booked with the cost of its content.
        let (failed, answered) = ("BACKEND_FAILED".to_owned(), "ok".to_owned());
        assert_eq!(booked(&fixture), [(1, failed, lost_tokens, true), (2, answered, 1, true)]);
    }
}

#[test]
fn a_lost_call_is_booked_with_what_the_provider_has_counted() {
    let fixture = FallbackFixture::new();
    let lost = ScriptedAnswer::new().usage(40, 30).text("par").fail(upstream(500, "x"));
    let answer = ScriptedAnswer::new().text("Hi.").usage(40, 2).finish(FinishReason::Stop);
    fixture.model("first", 9_000, vec![lost, answer]);
    fixture.call(&fixture.run_for(&settings(&[]), true)).expect("an answer");
    let (failed, answered) = ("BACKEND_FAILED".to_owned(), "ok".to_owned());
    assert_eq!(booked(&fixture), [(1, failed, 30, false), (2, answered, 2, false)]);
}

#[test]
fn notices_of_a_lost_call_are_given_out() {
    let fixture = FallbackFixture::new();
    let notice = json!({"kind": "parametersIgnored"}).as_object().expect("an object").clone();
    let lost = ScriptedAnswer::new().event(ModelEvent::Notice(notice)).text("par").fail(upstream(500, "x"));
    fixture.model("first", 9_000, vec![lost, ScriptedAnswer::from_text("Hi.")]);
    let events = fixture.call(&fixture.run_for(&settings(&[]), true)).expect("an answer");
    let kinds = events.iter().filter_map(|event| match event {
        Ok(ModelEvent::Notice(notice)) => notice["kind"].as_str(),
        _ => None,
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["parametersIgnored", "modelAttempt", "modelAttempt"]);
    assert_eq!(text(&events), "Hi.");
}

#[test]
fn the_next_entry_answers_after_failures_with_content() {
    for begun in BEGUN {
        let fixture = FallbackFixture::new();
        // An answer without an end is cut off.
        let first = fixture.model("first", 9_000, vec![begun(), begun()]);
        let answers = vec![ScriptedAnswer::from_text("Hi."), begun().fail(upstream(401, "x"))];
        fixture.model("second", 9_000, answers);
        fixture.model("third", 9_000, vec![ScriptedAnswer::from_text("Again.")]);
        let model = fixture.run_for(&settings(&["second", "third"]), true);
        let events = fixture.call(&model).expect("an answer");
        assert_eq!((text(&events), shown(&events)), ("Hi.".to_owned(), vec![]), "{events:?}");
        assert_eq!(first.unused_answers(), 0);
        // The next round begins with the entry that has answered; its key is refused, and is not tried again.
        let events = fixture.call(&model).expect("an answer");
        assert_eq!((text(&events), shown(&events)), ("Again.".to_owned(), vec![]), "{events:?}");
    }
}

#[test]
fn a_round_whose_every_call_fails_ends_once_without_content() {
    for begun in BEGUN {
        let fixture = FallbackFixture::new();
        let fail = || begun().fail(upstream(500, "x"));
        fixture.model("first", 9_000, vec![fail(), fail()]);
        fixture.model("second", 9_000, vec![fail(), fail()]);
        let events = fixture.call(&fixture.run_for(&settings(&["second"]), true)).expect("a stream");
        assert_eq!((text(&events), shown(&events)), (String::new(), vec![]), "{events:?}");
        assert_eq!(events.iter().filter(|event| event.is_err()).count(), 1, "{events:?}");
        assert!(events.last().is_some_and(Result::is_err), "{events:?}");
    }
}

#[test]
fn an_answer_is_held_back_until_it_has_ended() {
    // An answer that is streamed is given out, and one whose call would not be repeated.
    let once = RetrySettings { max_attempts: NonZeroU32::new(1), ..RetrySettings::default() };
    let once = EmbeddedAi { retry: Some(once), ..settings(&[]) };
    for (settings, is_delivered_whole, expected) in
        [(settings(&[]), false, 1), (settings(&[]), true, 0), (once, true, 1)]
    {
        let fixture = FallbackFixture::new();
        let answers = vec![ScriptedAnswer::new().text("par").hang(), ScriptedAnswer::from_text("Hi.")];
        let first = fixture.model("first", 9_000, answers);
        let mut stream =
            fixture.wait(start(&fixture.run_for(&settings, is_delivered_whole))).expect("a stream");
        let mut polled_events = Vec::new();
        while let Some(event) = stream.next().now_or_never() {
            polled_events.push(event.expect("it goes on"));
        }
        assert_eq!(polled_events.len(), expected, "{polled_events:?}");
        // A client that leaves meanwhile ends the call, and no other is made.
        drop(stream);
        assert_eq!((first.open_streams(), first.unused_answers()), (0, 1));
        assert_eq!(booked(&fixture), [(1, "cancelled".to_owned(), 1, true)]);
    }
}

#[test]
fn a_finished_answer_is_not_repeated() {
    let fixture = FallbackFixture::new();
    let ended = ScriptedAnswer::new().text("Hi.").finish(FinishReason::Stop).fail(upstream(500, "x"));
    let first = fixture.model("first", 9_000, vec![ended, ScriptedAnswer::from_text("Again.")]);
    let events = fixture.call(&fixture.run_for(&settings(&[]), true)).expect("an answer");
    assert_eq!((text(&events), first.unused_answers()), ("Hi.".to_owned(), 1), "{events:?}");
}

#[test]
fn an_answer_of_reasoning_alone_is_empty_where_it_was_not_shown() {
    for (is_delivered_whole, expected, unused) in [(true, "Hi.", 0), (false, "", 1)] {
        let fixture = FallbackFixture::new();
        let empty = ScriptedAnswer::new().reasoning("hm").finish(FinishReason::Stop);
        let first = fixture.model("first", 9_000, vec![empty, ScriptedAnswer::from_text("Hi.")]);
        let events = fixture.call(&fixture.run_for(&settings(&[]), is_delivered_whole)).expect("an answer");
        assert_eq!((text(&events), first.unused_answers()), (expected.to_owned(), unused), "{events:?}");
        assert_eq!(shown(&events).is_empty(), is_delivered_whole, "{events:?}");
    }
}

#[test]
fn an_answer_cut_off_by_a_filter_goes_to_the_fallback() {
    for (also, fallbacks, expected) in [
        (vec!["content".to_owned()], &["second"][..], "Hi."),
        (vec!["content".to_owned()], &[][..], "par"),
        (Vec::new(), &["second"][..], "par"),
    ] {
        let fixture = FallbackFixture::new();
        let cut_off = ScriptedAnswer::new().text("par").finish(FinishReason::ContentFilter);
        fixture.model("first", 9_000, vec![cut_off]);
        fixture.model("second", 9_000, vec![ScriptedAnswer::from_text("Hi.")]);
        let retry = Some(RetrySettings { also, ..RetrySettings::default() });
        let settings = EmbeddedAi { retry, ..settings(fallbacks) };
        let events = fixture.call(&fixture.run_for(&settings, true)).expect("an answer");
        assert!(events.iter().all(Result::is_ok), "{events:?}");
        assert_eq!(text(&events), expected, "{events:?}");
    }
}

#[test]
fn an_invalid_request_is_not_repeated_after_content_either() {
    let fixture = FallbackFixture::new();
    let begun = ScriptedAnswer::new().text("par").fail(error(AgentErrorKind::InvalidRequest));
    fixture.model("first", 9_000, vec![begun]);
    let second = fixture.model("second", 9_000, vec![ScriptedAnswer::from_text("Hi.")]);
    let events = fixture.call(&fixture.run_for(&settings(&["second"]), true)).expect("an answer");
    assert!(events.last().is_some_and(Result::is_err), "{events:?}");
    assert_eq!(second.unused_answers(), 1);
}

/// Returns the length of the text of a run whose first call fails after these pieces, and true if it was repeated.
fn length_after(pieces: usize, piece: &str) -> (usize, bool) {
    let fixture = FallbackFixture::new();
    let long = (0..pieces).fold(ScriptedAnswer::new(), |answer, _| answer.text(piece));
    let answers = vec![long.fail(upstream(500, "x")), ScriptedAnswer::from_text("Hi.")];
    let first = fixture.model("first", 9_000, answers);
    let events = fixture.call(&fixture.run_for(&settings(&[]), true)).expect("an answer");
    let is_repeated = first.unused_answers() == 0;
    assert_eq!(events.last().is_some_and(Result::is_ok), is_repeated);
    (text(&events).len(), is_repeated)
}

#[test]
fn an_answer_beyond_the_limit_is_released_and_not_repeated() {
    let quarter = "x".repeat(MAX_HELD_BYTES / 4);
    assert_eq!(length_after(3, &quarter), ("Hi.".len(), true));
    // The size of the events themselves makes it more than the limit.
    assert_eq!(length_after(4, &quarter), (MAX_HELD_BYTES, false));
    assert_eq!(length_after(5, &quarter), (5 * quarter.len(), false));
    // Tiny pieces are counted with what they take in memory.
    let within = MAX_HELD_BYTES / (size_of::<ModelEvent>() + 1);
    assert_eq!(length_after(within, "x"), ("Hi.".len(), true));
    assert_eq!(length_after(within + 1, "x"), (within + 1, false));
}

#[test]
fn an_answer_that_falls_silent_is_repeated_and_booked_as_a_timeout() {
    let fixture = FallbackFixture::new();
    let silent = ScriptedAnswer::new().text("par").hang();
    fixture.model("first", 9_000, vec![silent, ScriptedAnswer::from_text("Hi.")]);
    let began = Clock::monotonic(&fixture.clock);
    let events = fixture.call(&fixture.run_for(&settings(&[]), true)).expect("an answer");
    assert_eq!(text(&events), "Hi.");
    let reasons: Vec<_> = reports(&events).into_iter().filter_map(|report| report.reason).collect();
    assert_eq!(reasons, ["BACKEND_TIMEOUT"]);
    let (failed, answered) = ("BACKEND_TIMEOUT".to_owned(), "ok".to_owned());
    assert_eq!(booked(&fixture), [(1, failed, 1, true), (2, answered, 1, true)]);
    let waited = Clock::monotonic(&fixture.clock) - began;
    assert!((SILENCE_LIMIT..=SILENCE_LIMIT + Duration::from_millis(250)).contains(&waited), "{waited:?}");
}

#[test]
fn an_answer_may_take_longer_than_the_limit_on_its_silence() {
    let fixture = FallbackFixture::new();
    let slow = (1..=10_u32).fold(ScriptedAnswer::new(), |answer, number| {
        answer.text("x").wait(fixture.clock.sleep(number * (SILENCE_LIMIT - Duration::from_secs(1))))
    });
    fixture.model("first", 9_000, vec![slow.finish(FinishReason::Stop)]);
    let events = fixture.call(&fixture.run_for(&settings(&[]), true)).expect("an answer");
    assert_eq!((text(&events), reports(&events)), ("x".repeat(10), Vec::new()), "{events:?}");
}

#[test]
fn a_run_knows_that_its_model_limits_silence() {
    let fixture = FallbackFixture::new();
    fixture.model("first", 9_000, Vec::new());
    let clock = Arc::new(fixture.clock.clone());
    let models = SilenceLimitedModels::new(fixture.source.clone(), SILENCE_LIMIT, clock);
    let delivery = WholeDelivery::default();
    let context = ExecutionContext { whole_delivery: Some(delivery.clone()), ..ExecutionContext::default() };
    models.model(&settings(&[])).expect("a model");
    assert!(!delivery.is_silence_limited());
    models.model_for_run(&settings(&[]), &context).expect("a model");
    assert!(delivery.is_silence_limited());
}
