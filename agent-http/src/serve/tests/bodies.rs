//! Tests of response bodies, and of clients that disconnect or read slowly.

use super::*;

#[tokio::test]
async fn a_disconnect_drops_the_handler() {
    // A pipelined request, an unread body and a half-closed connection each keep hyper from reading the socket.
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    let cases = [get("/"), get("/") + &get("/"), get("/") + "\r\n", format!("{post}hello"), post.to_owned()];
    for (case, half) in cases.iter().flat_map(|case| [(case, false), (case, true)]) {
        let (flag, mut dropped) = drop_flag();
        let (entered, mut entries) = mpsc::unbounded_channel();
        let server = TestServer::start(patient_limits(), move |request| {
            let (flag, entered) = (flag(), entered.clone());
            async move {
                drop(request);
                entered.send(()).expect("the test waits");
                std::future::pending::<()>().await;
                drop(flag);
                hello(Request::default()).await
            }
        })
        .await;
        let mut client = server.connect().await;
        client.write_all(case.as_bytes()).await.expect("sent");
        timeout(TEST_TIMEOUT, entries.recv()).await.expect("the handler runs");
        assert!(dropped.try_recv().is_err(), "{case:?}: it waits");
        if half {
            client.shutdown().await.expect("half closed");
        } else {
            drop(client);
        }
        is_dropped(&mut dropped).await;
    }
}

#[tokio::test]
async fn a_disconnect_drops_the_response_body() {
    for pipelined in [false, true] {
        let (server, mut dropped) = with_endless_bodies(patient_limits()).await;
        let mut client = server.connect().await;
        client.write_all(get("/").repeat(1 + usize::from(pipelined)).as_bytes()).await.expect("sent");
        read_until(&mut client, "first\r\n").await;
        assert!(dropped.try_recv().is_err(), "it waits");
        drop(client);
        is_dropped(&mut dropped).await;
    }
}

fn endless(kept: impl Send + 'static) -> ResponseBody {
    let chunk = Bytes::from(vec![b'x'; 64 * 1024]);
    streaming(stream::repeat_with(move || {
        let _ = &kept;
        Ok::<_, Infallible>(chunk.clone())
    }))
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped() {
    let limits = ServeLimits { write_stall: Duration::from_millis(200), ..patient_limits() };
    let (flag, mut dropped) = drop_flag();
    let server = TestServer::start(limits, move |_| {
        let flag = flag();
        async move { Ok(Response::new(endless(flag))) }
    })
    .await;
    let mut client = server.connect().await;
    client.write_all(get("/").as_bytes()).await.expect("sent");
    is_dropped(&mut dropped).await;
    // The connection was open until then: the client reads what the socket buffered, and then the close.
    let mut read = Vec::new();
    let _ = timeout(TEST_TIMEOUT, client.read_to_end(&mut read)).await.expect("the server closes");
    assert!(read.starts_with(b"HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn a_client_that_reads_slowly_is_not_dropped() {
    let limits = ServeLimits { write_stall: Duration::from_millis(1500), ..patient_limits() };
    let server = TestServer::start(limits, |_| async { Ok(Response::new(endless(()))) }).await;
    let mut client = server.connect().await;
    client.write_all(get("/").as_bytes()).await.expect("sent");
    let mut scrap = vec![0; 8 * 1024 * 1024];
    // Each pause is a sixth of the limit; together they are longer.
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_millis(250)).await;
        timeout(TEST_TIMEOUT, client.read_exact(&mut scrap))
            .await
            .expect("more comes")
            .expect("the connection stands");
    }
}

#[tokio::test]
async fn a_failed_body_is_not_a_whole_one() {
    let (go, gate) = tokio::sync::watch::channel(false);
    let server = TestServer::start(patient_limits(), move |_| {
        let mut gate = gate.clone();
        async move {
            let broken = stream::once(async move {
                gate.wait_for(|open| *open).await.expect("a gate");
                Err(io::Error::other("broken"))
            });
            let part = stream::iter([Ok(Bytes::from_static(b"part"))]);
            Ok(Response::new(streaming(Box::pin(part.chain(broken)))))
        }
    })
    .await;
    let mut client = server.connect().await;
    client.write_all(get("/").as_bytes()).await.expect("sent");
    read_until(&mut client, "\r\n\r\n4\r\npart\r\n").await;
    go.send(true).expect("the body waits");
    assert_eq!(read_to_end(&mut client).await, "", "no last chunk");
}

#[tokio::test]
async fn an_early_answer_reaches_a_client_that_still_sends() {
    let server = TestServer::start(patient_limits(), |request| async move {
        let (head, body) = request.into_parts();
        let limits = BodyLimits { bytes: 1024, ..BodyLimits::default() };
        request::read_body(&head.headers, body, &limits).await?;
        hello(Request::default()).await
    })
    .await;
    for head in ["Content-Length: 8388608", "Transfer-Encoding: chunked"] {
        let mut client = server.connect().await;
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n");
        client.write_all(head.as_bytes()).await.expect("sent");
        let chunk = ["800000\r\n", &"x".repeat(8 * 1024 * 1024)].concat();
        client.write_all(chunk.as_bytes()).await.expect("the whole body is taken");
        let answer = read_to_end(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
}
