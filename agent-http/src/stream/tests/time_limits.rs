//! Time limits of runs without events, and the events that keep a connection alive.

use agent_core::event::OutputLimits;
use agent_core::tool::WholeDelivery;
use tokio::time::Instant;

use super::*;

/// Sends `times` deltas, one every `every` seconds, and then nothing.
fn paced(every: u64, times: usize) -> EventStream {
    let pieces = stream::unfold(0, move |sent| async move {
        if sent >= times {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_secs(every)).await;
        let event = if sent == 0 { text("m") } else { piece("m", "x") };
        Some((Ok(event.into()), sent + 1))
    });
    EventStream::new(run(), pieces)
}

/// Thinks `times` times, once every `every` seconds, and then sends the rest.
fn thinking(every: u64, times: u64, later_events: Vec<Event>) -> EventStream {
    let thoughts = stream::iter(0..times).then(move |number| async move {
        tokio::time::sleep(Duration::from_secs(every)).await;
        thought(&number.to_string(), "hm")
    });
    let events = thoughts.flat_map(stream::iter).chain(stream::iter(later_events));
    let events = events.map(|event| Ok::<_, AgentError>(SourceEvent::from(event)));
    EventStream::new(run(), events.chain(stream::pending()))
}

async fn last_event(events: EventStream, limits: StreamLimits) -> (Event, usize, u64) {
    let began = Instant::now();
    let response = into_response(Framing::Ndjson, events, &limits).await.expect("a stream");
    let body = response.into_body().collect().await.expect("infallible").to_bytes();
    let mut events = decode(std::str::from_utf8(&body).expect("text"));
    let last = events.pop().expect("there is an event");
    (last, events.len(), began.elapsed().as_secs())
}

fn timed_out(message: &str) -> Event {
    Event::RunError { message: message.into(), code: "BACKEND_TIMEOUT".into(), usage: vec![] }
}

#[tokio::test(start_paused = true)]
async fn silence_and_length_end_a_run() {
    let silent = "the backend sent no event for 120 seconds";
    let long = "the run exceeded the time limit of 1000 seconds";
    let cases = [
        (0, 0, (timed_out(silent), 1, 120)),
        (100, 4, (timed_out(silent), 5, 520)),
        (119, 100, (timed_out(long), 9, 1000)),
        (3, 5000, (timed_out(long), 334, 1000)),
    ];
    for (every, times, (error, before, seconds)) in cases {
        let (last, events, took) = last_event(paced(every, times), limits(120, 1000)).await;
        assert_eq!((last, events, took), (error, before, seconds), "{every} {times}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_whose_events_the_client_does_not_see_is_not_silent() {
    let answered = finished(None, None);
    let silent = timed_out("the backend sent no event for 5 seconds");
    let long = timed_out("the run exceeded the time limit of 50 seconds");
    for audience in [Audience::Trusted, Audience::Visitor] {
        let cases = [
            (4, 10, vec![answered.clone()], (&answered, 40)),
            (4, 2, vec![], (&silent, 13)),
            (6, 1, vec![answered.clone()], (&silent, 5)),
            (4, 20, vec![answered.clone()], (&long, 50)),
        ];
        for (every, times, later_events, expected) in cases {
            let began = Instant::now();
            let events = thinking(every, times, later_events).for_audience(audience);
            let events: Vec<Event> = TimeoutStream::new(events, &limits(5, 50)).collect().await;
            let found = (events.last().expect("an end"), began.elapsed().as_secs());
            assert_eq!(found, expected, "{audience:?} {every} {times}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_without_visible_events_gets_keep_alives() {
    for (framing, sign) in [
        (Framing::Sse, ": running"),
        (Framing::UiMessage, ": running"),
        (Framing::Ndjson, ""),
        (Framing::N8n, ""),
    ] {
        // n8n's lines have no reasoning, for any reader.
        let trusted_count = if framing == Framing::N8n { 2 } else { 0 };
        for (audience, count) in [(Audience::Trusted, trusted_count), (Audience::Visitor, 2)] {
            let later_events = vec![text("m"), piece("m", "Hello"), finished(None, None)];
            let events = thinking(4, 10, later_events).for_audience(audience);
            let response = into_response(framing, events, &limits(5, 50)).await.expect("a stream");
            let body = response.into_body().collect().await.expect("infallible").to_bytes();
            let body = std::str::from_utf8(&body).expect("text");
            // Forty seconds have two times fifteen.
            let signs = body.lines().filter(|line| *line == sign).count();
            assert_eq!(signs, count, "{framing:?} {audience:?}: {body}");
            assert!(body.contains("Hello"), "{body}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_gets_keep_alives_while_its_format_has_no_chunk() {
    let later_events = || vec![text("m"), piece("m", "Hello"), finished(None, None)];
    for (events, count) in [
        (thinking(4, 10, later_events()), 2),
        (paced(4, 11), 0),
        (thinking(4, 3, later_events()), 0),
        (thinking(20, 2, later_events()), 1),
    ] {
        let completion = ChatCompletion {
            id: "chatcmpl-r".to_owned(),
            created: std::time::UNIX_EPOCH,
            model: "a1".into(),
            includes_usage: false,
            client_tools: vec![],
            calls_in_parallel: true,
        };
        let response = completion_response(completion, events.into(), None, &limits(25, 60));
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let body = std::str::from_utf8(&body).expect("text");
        assert_eq!(body.matches(": running\n\n").count(), count, "{body}");
        assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_latest_waker_is_woken_at_the_idle_timeout() {
    let (_feed, events) = fed();
    let mut bench = BodyHarness::over(events, limits(5, 50)).await;
    assert_eq!(bench.events(), [started()]);
    bench.is_pending(false).await;
    let first = std::mem::take(&mut bench.wakes);
    bench.is_pending(false).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(first.0.load(Ordering::Relaxed), 0, "it does not ask any more");
    assert!(bench.wakes.0.load(Ordering::Relaxed) > 0);
    assert_eq!(bench.events(), [timed_out("the backend sent no event for 5 seconds")]);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_never_pending_meets_the_deadline() {
    let pieces = stream::repeat_with(|| Ok(SourceEvent::from(piece("m", &"x".repeat(1000)))));
    let endless = stream::iter([Ok(text("m").into())]).chain(pieces);
    let mut bench = BodyHarness::over(EventStream::new(run(), endless), limits(3, 10)).await;
    let mut last = bench.events();
    let mut seconds = 0;
    while !bench.body.is_end_stream() {
        tokio::time::advance(Duration::from_secs(1)).await;
        seconds += 1;
        last = bench.events();
    }
    assert_eq!(last.pop(), Some(timed_out("the run exceeded the time limit of 10 seconds")));
    assert!((10..20).contains(&seconds), "the deadline is looked at now and then, here after {seconds}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_run_that_is_collected_is_a_time_out() {
    let failure = into_response(Framing::Json, paced(0, 0), &limits(5, 50)).await.expect_err("it is silent");
    assert_eq!(failure.kind(), AgentErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn the_silence_of_a_run_is_limited_by_its_model_or_here() {
    let delivery = WholeDelivery::default();
    let last_event = async |every, times| {
        let source = RunSource::from(paced(every, times)).with_whole_delivery(Some(delivery.clone()));
        let began = Instant::now();
        let events: Vec<Event> = TimeoutStream::new(source, &limits(5, 50)).collect().await;
        (events.last().expect("an end").clone(), began.elapsed().as_secs())
    };
    let silent = timed_out("the backend sent no event for 5 seconds");
    assert_eq!(last_event(0, 0).await, (silent, 5));
    delivery.set_silence_limited();
    let long = timed_out("the run exceeded the time limit of 50 seconds");
    assert_eq!(last_event(0, 0).await, (long.clone(), 50));
    assert_eq!(last_event(20, 9).await, (long, 50));
}

#[tokio::test(start_paused = true)]
async fn a_log_has_the_limits_of_its_run_and_keep_alives() {
    let late = stream::once(async {
        tokio::time::sleep(Duration::from_secs(40)).await;
        finished(None, None)
    });
    // An operator may have raised the limits on the output.
    let large = piece("m", &"x".repeat(OutputLimits::default().max_answer_bytes + 1));
    let events = stream::iter([text("m"), large, text_over("m")]).chain(late);
    let log = EventStream::new(run(), events.map(|event| Ok::<_, AgentError>(SourceEvent::from(event))));
    let response = run_response(Framing::Sse, RunSource::replay(log), None, &limits(5, 50)).await;
    let body = response.expect("a stream").into_body().collect().await.expect("a body").to_bytes();
    let body = std::str::from_utf8(&body).expect("text");
    let types: Vec<&str> =
        ["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"].into_iter().filter(|name| body.contains(name)).collect();
    assert_eq!(types, ["RUN_STARTED", "RUN_FINISHED"]);
    assert_eq!(body.matches(": running\n\n").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn timeouts_beyond_the_clocks_range_never_expire() {
    let limits = StreamLimits { idle_timeout: Duration::MAX, run_timeout: Duration::MAX, ..limits(1, 1) };
    let response = into_response(Framing::Ndjson, source(everything()), &limits).await.expect("a stream");
    assert!(!response.into_body().collect().await.expect("infallible").to_bytes().is_empty());
}
