//! Tests of errors of `accept`.

use super::*;

/// `errno` of a process without free file descriptors.
const EMFILE: i32 = 24;

/// Source whose accepts always fail.
struct BrokenListener(AtomicUsize);

impl Accept for std::sync::Arc<BrokenListener> {
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(io::Error::from_raw_os_error(EMFILE))
    }
}

#[tokio::test(start_paused = true)]
async fn errors_of_accept_do_not_make_a_busy_loop() {
    let source = std::sync::Arc::new(BrokenListener(AtomicUsize::new(0)));
    let shutdown = Shutdown::default();
    let serving = accept::run(source.clone(), service_fn(hello), patient_limits(), None, shutdown.clone());
    let after_a_minute = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        shutdown.begin();
    };
    tokio::join!(serving, after_a_minute);
    let calls = source.0.load(Ordering::Relaxed);
    assert!((50..100).contains(&calls), "{calls} in a minute, which should be about one a second");
}

/// Source that fails once per stored error and then accepts.
struct Failing {
    errors: Mutex<Vec<io::Error>>,
    calls: AtomicUsize,
    listener: TcpListener,
}

impl Accept for std::sync::Arc<Failing> {
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let error = self.errors.lock().expect("not poisoned").pop();
        match error {
            Some(error) => Err(error),
            None => self.listener.accept().await,
        }
    }
}

#[tokio::test]
async fn errors_of_accept_pass() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let errors = vec![
        io::Error::from_raw_os_error(EMFILE),
        io::ErrorKind::ConnectionAborted.into(),
        io::Error::from_raw_os_error(EMFILE),
    ];
    let source =
        std::sync::Arc::new(Failing { errors: Mutex::new(errors), calls: AtomicUsize::new(0), listener });
    let service = service_fn(hello);
    let serving = accept::run(source.clone(), service, patient_limits(), None, Shutdown::default());
    let task = tokio::spawn(serving);
    let mut client = TcpStream::connect(address).await.expect("a connection");
    client.write_all(closing("/").as_bytes()).await.expect("sent");
    assert!(read_to_end(&mut client).await.ends_with("hello"));
    // One call for each error, one for the client, and a waiting one.
    assert_eq!(source.calls.load(Ordering::Relaxed), 5);
    task.abort();
}
