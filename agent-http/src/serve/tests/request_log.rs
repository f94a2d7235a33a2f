//! Tests of log lines and request ids.

use super::*;

#[tokio::test]
async fn errors_pass_the_exit_under_the_requests_id() {
    let server = TestServer::start(patient_limits(), |_| async { Err(HttpError::not_found()) }).await;
    let answer =
        server.exchange("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: r\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains("\"requestId\":\"r\""), "{answer}");
}

/// Log output of the current thread, which in these tests is all of it.
#[derive(Clone, Default)]
struct Log(std::sync::Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let writer = move || log.clone();
        let format = tracing_subscriber::fmt().with_writer(writer).with_ansi(false);
        tracing::subscriber::set_default(format.with_max_level(tracing::Level::TRACE).finish())
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("not poisoned").clone()).expect("text")
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn each_exchange_has_a_line_in_the_log_and_no_query() {
    let log = Log::default();
    let _guard = log.start();
    let server = TestServer::start(patient_limits(), |request| async move {
        match request.uri().path() {
            "/fault" => Err(HttpError::internal(io::Error::other("the cause"))),
            _ => hello(request).await,
        }
    })
    .await;
    for path in ["/whole?token=hunter2", "/fault"] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Request-Id: r1\r\nConnection: close\r\n\r\n");
        server.exchange(head).await;
    }
    let (cut, client, mut dropped) = with_a_running_handler(patient_limits()).await;
    drop(client);
    is_dropped(&mut dropped).await;
    cut.stop_and_end().await;

    let text = log.text();
    for line in [
        "request{id=\"r1\"}: agent_http::serve::exchange: answered method=GET path=\"/whole\" status=200 complete=true",
        "request{id=\"r1\"}: agent_http::error: request failed code=\"INTERNAL\"",
        "cause=\"the cause\"",
        "answered method=GET path=\"/fault\" status=500 complete=true",
        "answered method=GET path=\"/\" complete=false",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn a_body_is_logged_in_the_span_of_its_request() {
    let log = Log::default();
    let _guard = log.start();
    let server = TestServer::start(patient_limits(), |request| async move {
        let late = stream::once(tokio::task::yield_now());
        if request.uri().path() == "/run" {
            let ids = RunIds { thread_id: "t".into(), run_id: "r".into() };
            let run = late.map(|()| Err(AgentError::new(AgentErrorKind::Failed, "no answer")));
            return crate::stream::run_response(
                Framing::Ndjson,
                EventStream::new(ids, run),
                None,
                &StreamLimits::default(),
            )
            .await;
        }
        let body = late.map(|()| {
            tracing::info!("a piece is made");
            Ok::<_, io::Error>(Bytes::from_static(b"piece"))
        });
        Ok(Response::new(streaming(body)))
    })
    .await;
    for path in ["run", "other"] {
        let head =
            format!("GET /{path} HTTP/1.1\r\nHost: a\r\nX-Request-Id: {path}\r\nConnection: close\r\n\r\n");
        server.exchange(head).await;
    }
    let text = log.text();
    for (id, message) in [("run", "run failed"), ("other", "a piece is made")] {
        let line = text.lines().find(|line| line.contains(message)).expect(message);
        assert!(line.contains(&format!("request{{id=\"{id}\"}}: ")), "{line}");
    }
}
