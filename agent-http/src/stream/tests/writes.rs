//! Writes of the body: what is written at once, in one frame, and on a wake-up.

use super::*;

#[tokio::test(start_paused = true)]
async fn ready_events_are_written_together_at_once() {
    let mut bench = BodyHarness::new().await;
    assert_eq!(bench.events(), [started()]);
    bench.is_pending(false).await;
    assert_eq!(bench.body.buffer.capacity(), 0, "an idle stream holds no buffer");

    bench.send([text("m"), piece("m", "a")]);
    assert_eq!(bench.events(), [text("m"), piece("m", "a")]);
    bench.is_pending(false).await;
}

#[tokio::test]
async fn the_first_chunk_is_sent_at_once() {
    let mut bench = BodyHarness::new().await;
    bench.send([text("m"), piece("m", "a"), piece("m", "b"), piece("m", "c")]);
    assert_eq!(bench.events(), [started(), text("m"), piece("m", "a")]);
    assert_eq!(bench.poll(), Poll::Pending, "the connection writes now");
    assert_eq!(bench.wakes.0.load(Ordering::Relaxed), 1, "and asks again at once");
    bench.send([piece("m", "d")]);
    assert_eq!(bench.events(), [piece("m", "b"), piece("m", "c"), piece("m", "d")]);
    bench.is_pending(false).await;
    bench.send([piece("m", "e"), finished(None, None)]);
    assert_eq!(bench.events(), [piece("m", "e"), text_over("m"), finished(None, None)]);

    let mut bench = BodyHarness::new().await;
    bench.send([text("m"), piece("m", "a")]);
    assert_eq!(bench.events(), [started(), text("m"), piece("m", "a")]);
    bench.is_pending(false).await;
    bench.send([piece("m", "b"), piece("m", "c")]);
    assert!(bench.poll().is_ready(), "the first piece was written long ago");
}

/// hyper polls a pending body repeatedly while it writes.
#[tokio::test(start_paused = true)]
async fn a_pending_run_is_polled_again_after_its_wake_up() {
    let (feed, mut events) = mpsc::unbounded_channel::<Item>();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let counted = stream::poll_fn(move |cx| {
        counter.fetch_add(1, Ordering::Relaxed);
        events.poll_recv(cx).map(|item| item.map(|event| event.map(SourceEvent::from)))
    });
    let mut bench = BodyHarness::over(EventStream::new(run(), counted), StreamLimits::default()).await;
    let give = |event| feed.send(Ok(event)).expect("it listens");
    let rounds = [vec![text("m"), piece("m", "a")], vec![piece("m", "b")], vec![piece("m", "c")]];
    for round in rounds {
        round.into_iter().for_each(give);
        assert!(bench.poll().is_ready());
        // The first delta is written before the source is known to have no more.
        let mut last = None;
        for _ in 0..3 {
            assert_eq!(bench.poll(), Poll::Pending);
            let now = asked.load(Ordering::Relaxed);
            assert!(last.is_none_or(|last| last == now), "nothing has happened");
            last = Some(now);
        }
        let before = bench.wakes.0.load(Ordering::Relaxed);
        give(piece("m", "more"));
        assert_eq!(bench.wakes.0.load(Ordering::Relaxed), before + 1);
        assert!(bench.poll().is_ready(), "it was woken");
    }
}

#[tokio::test]
async fn the_end_is_written_at_once() {
    let mut bench = BodyHarness::new().await;
    bench.send([text("m"), finished(None, None)]);
    assert_eq!(bench.events(), [started(), text("m"), text_over("m"), finished(None, None)]);
    assert!(bench.body.is_end_stream());
    assert_eq!(bench.poll(), Poll::Ready(None));
}

#[tokio::test]
async fn a_source_that_is_always_ready_is_read_in_bounded_frames() {
    let pieces = (0..1000).map(|_| piece("m", &"x".repeat(1000)));
    let events = [text("m")].into_iter().chain(pieces).chain([finished(None, None)]);
    let mut bench = BodyHarness::over(source(events.collect()), StreamLimits::default()).await;
    let mut events = 0;
    while !bench.body.is_end_stream() {
        let frame = bench.frame();
        assert!(frame.len() < 64 * 1024 + 2000, "{}", frame.len());
        events += frame.iter().filter(|byte| **byte == b'\n').count();
    }
    assert_eq!(events, 1 + 1 + 1000 + 1 + 1);
}

#[tokio::test]
async fn dropping_the_body_drops_the_run() {
    let mut bench = BodyHarness::new().await;
    assert_eq!(bench.events(), [started()]);
    let feed = bench.feed.take().expect("the feed is open");
    drop(bench);
    assert!(feed.is_closed());
}
