//! Tests of the shutdown: idle connections, running handlers and the drain.

use super::*;

#[tokio::test]
async fn a_request_that_waits_for_a_slot_at_shutdown_is_answered() {
    let limits = ServeLimits { connections: 1, ..patient_limits() };
    let server = TestServer::start(limits, |request: Request<Body>| async move {
        if request.uri().path() == "/held" {
            std::future::pending::<()>().await;
        }
        hello(request).await
    })
    .await;
    let mut held = server.connect().await;
    held.write_all(closing("/held").as_bytes()).await.expect("sent");
    let mut waiting = server.connect().await;
    waiting.write_all(closing("/").as_bytes()).await.expect("sent");
    // Connections are accepted in order: once a probe is answered, the one before it waits.
    assert!(server.exchange(get("/livez")).await.ends_with("hello"));
    server.stop();
    let answer = read_to_end(&mut waiting).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    server.shutdown.end();
    assert!(read_to_end(&mut held).await.starts_with("HTTP/1.1 503 "));
    server.ended().await;
}

#[tokio::test]
async fn shutdown_closes_idle_connections_and_finishes_the_running() {
    let (entered, mut entries) = mpsc::unbounded_channel();
    let (go, gate) = tokio::sync::watch::channel(false);
    let server = TestServer::start(patient_limits(), move |request| {
        let (entered, mut gate) = (entered.clone(), gate.clone());
        async move {
            if request.uri().path() == "/wait" {
                entered.send(()).expect("the test waits");
                gate.wait_for(|open| *open).await.expect("a gate");
            }
            hello(request).await
        }
    })
    .await;
    let mut silent = server.connect().await;
    let mut idle = server.connect().await;
    idle.write_all(get("/").as_bytes()).await.expect("sent");
    read_until(&mut idle, "hello").await;
    let mut running = server.connect().await;
    running.write_all(get("/wait").as_bytes()).await.expect("sent");
    timeout(TEST_TIMEOUT, entries.recv()).await.expect("the handler runs");

    server.stop();
    assert_eq!(read_to_end(&mut silent).await, "");
    assert_eq!(read_to_end(&mut idle).await, "");
    TcpStream::connect(server.address).await.expect_err("nothing is accepted any more");
    go.send(true).expect("the handler waits");
    let answer = read_to_end(&mut running).await;
    assert!(answer.ends_with("hello") && answer.contains("connection: close"), "{answer}");
    server.ended().await;
}

#[tokio::test]
async fn a_handler_that_outlives_the_drain_is_answered_by_a_problem() {
    let limits = ServeLimits { drain: Duration::from_millis(100), ..patient_limits() };
    let (server, mut client, mut dropped) = with_a_running_handler(limits).await;
    server.stop();
    server.ended().await;
    assert!(dropped.try_recv().is_ok(), "the server does not end before its handlers");
    let answer = read_to_end(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("connection: close"), "{answer}");
    assert!(answer.contains("\"code\":\"SERVER_SHUTTING_DOWN\""), "{answer}");
}

#[tokio::test]
async fn a_second_signal_ends_the_drain() {
    // The drain and the lame-duck time are longer than the test's timeout.
    let long = Duration::from_secs(600);
    let limits = ServeLimits { drain: long, lame_duck: long, ..patient_limits() };
    let (server, mut client, mut dropped) = with_a_running_handler(limits).await;
    server.stop();
    server.shutdown.end();
    server.ended().await;
    assert!(dropped.try_recv().is_ok(), "the server does not end before its handlers");
    assert!(read_to_end(&mut client).await.starts_with("HTTP/1.1 503 "));
}

#[tokio::test]
async fn a_body_that_does_not_end_is_cut_after_the_drain() {
    let limits = ServeLimits { drain: Duration::ZERO, ..patient_limits() };
    let (server, mut dropped) = with_endless_bodies(limits).await;
    let mut client = server.connect().await;
    client.write_all(get("/").as_bytes()).await.expect("sent");
    read_until(&mut client, "first\r\n").await;
    server.stop();
    server.ended().await;
    assert!(dropped.try_recv().is_ok(), "the body is dropped");
    assert_eq!(read_to_end(&mut client).await, "", "no last chunk");
}

#[tokio::test]
async fn requests_are_served_in_the_lame_duck_time() {
    let limits = ServeLimits { lame_duck: Duration::from_secs(600), ..patient_limits() };
    let server = TestServer::start(limits, hello).await;
    server.stop();
    assert!(server.exchange(closing("/")).await.ends_with("hello"), "a new connection");
    let mut kept = server.connect().await;
    kept.write_all(get("/").as_bytes()).await.expect("sent");
    read_until(&mut kept, "hello").await;
    server.shutdown.end();
    assert_eq!(read_to_end(&mut kept).await, "");
    server.ended().await;
}

#[tokio::test]
async fn dropping_the_server_drops_its_connections() {
    let (server, mut client, mut dropped) = with_a_running_handler(patient_limits()).await;
    server.task.abort();
    is_dropped(&mut dropped).await;
    assert_eq!(read_to_end(&mut client).await, "");
}
