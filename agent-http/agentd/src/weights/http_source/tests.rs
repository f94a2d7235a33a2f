//! Tests over loopback: an origin, a forward proxy, and an origin behind a CONNECT proxy, each plain or over TLS.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use futures_util::TryStreamExt;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;

const CONTENT: &[u8] = b"GGUF and what else weights are made of";
/// `user:p@ss`, with the sign that a URL must escape.
const CREDENTIALS: &str = "Basic dXNlcjpwQHNz";

/// TLS of the test servers: one certificate for all of them, which the client trusts.
struct TestTls {
    server: Arc<rustls::ServerConfig>,
    client: rustls::ClientConfig,
}

impl TestTls {
    fn new() -> Self {
        let names = ["localhost".to_owned(), "hub.test".to_owned()];
        let certified = rcgen::generate_simple_self_signed(names).unwrap();
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
        let authority = certified.cert.der().clone();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![authority.clone()], key)
            .unwrap();
        Self { server: Arc::new(server), client: client_config(Some(authority)) }
    }

    fn accept<S: Read + Write>(&self, stream: S) -> rustls::StreamOwned<rustls::ServerConnection, S> {
        let connection = rustls::ServerConnection::new(Arc::clone(&self.server)).unwrap();
        rustls::StreamOwned::new(connection, stream)
    }
}

fn client_config(authority: Option<CertificateDer<'static>>) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    if let Some(authority) = authority {
        roots.add(authority).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth()
}

fn direct() -> HttpSource {
    HttpSource::new(client_config(None), Matcher::builder().build())
}

/// Reads a request head: the request line, then the header lines in lower case.
fn read_head(stream: &mut impl Read) -> io::Result<Vec<String>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let lines = String::from_utf8(head).unwrap();
    let lower = |(n, line): (usize, &str)| if n == 0 { line.to_owned() } else { header_in_lower_case(line) };
    Ok(lines.trim_end().split("\r\n").enumerate().map(lower).collect())
}

fn header_in_lower_case(line: &str) -> String {
    let (name, value) = line.split_once(": ").unwrap();
    format!("{}: {value}", name.to_lowercase())
}

/// Starts a server that gives one response per connection. Returns its address and the log of request heads.
fn serve(responses: Vec<String>) -> (String, Arc<Mutex<Vec<Vec<String>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&heads);
    thread::spawn(move || {
        for response in responses {
            let (mut stream, _) = listener.accept().unwrap();
            let head = read_head(&mut stream).unwrap();
            log.lock().unwrap().push(head);
            stream.write_all(response.as_bytes()).unwrap();
        }
    });
    (address, heads)
}

fn response(status: &str, headers: &str, body: &[u8]) -> String {
    let body = std::str::from_utf8(body).unwrap();
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

async fn read(source: &HttpSource, url: &str, from: u64) -> Result<(u64, Vec<u8>), FetchError> {
    let FetchedBytes { start, bytes } = source.fetch(url, from).await?;
    let chunks: Vec<Bytes> = bytes.try_collect().await.map_err(FetchError::Unreachable)?;
    Ok((start, chunks.concat()))
}

/// Formats an error with its sources on one line.
fn error_chain(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[tokio::test]
async fn a_range_is_requested_and_its_start_returned() {
    let partial = |at: usize| {
        let range = format!("content-range: bytes {at}-{}/{}\r\n", CONTENT.len() - 1, CONTENT.len());
        response("206 Partial Content", &range, &CONTENT[at..])
    };
    let complete_response = || response("200 OK", "", CONTENT);
    let (hub, heads) = serve(vec![complete_response(), partial(10), complete_response(), partial(7)]);
    let (source, url) = (direct(), format!("http://{hub}/a/tiny.gguf?download=true"));
    assert_eq!(read(&source, &url, 0).await.unwrap(), (0, CONTENT.to_vec()));
    assert_eq!(read(&source, &url, 10).await.unwrap(), (10, CONTENT[10..].to_vec()));
    assert_eq!(read(&source, &url, 10).await.unwrap(), (0, CONTENT.to_vec()), "a hub without ranges");
    let error = read(&source, &url, 10).await.unwrap_err().to_string();
    assert!(error.contains("206 Partial Content to a request for the bytes from 10 on"), "{error}");
    let heads = heads.lock().unwrap();
    assert_eq!(heads[0][0], "GET /a/tiny.gguf?download=true HTTP/1.1");
    assert!(heads[0].contains(&format!("host: {hub}")), "{heads:?}");
    let ranged: Vec<bool> = heads.iter().map(|head| head.contains(&"range: bytes=10-".to_owned())).collect();
    assert_eq!(ranged, [false, true, true, true]);
}

#[tokio::test]
async fn follows_redirects_up_to_the_limit() {
    let (elsewhere, _) = serve(vec![response("200 OK", "", CONTENT)]);
    let (hub, heads) = serve(vec![
        response("307 Temporary Redirect", "location: /cache/tiny.gguf?v=2\r\n", b""),
        response("302 Found", &format!("location: http://{elsewhere}/signed\r\n"), b""),
    ]);
    let read_bytes = read(&direct(), &format!("http://{hub}/a/tiny.gguf"), 0).await.unwrap();
    assert_eq!(read_bytes, (0, CONTENT.to_vec()));
    assert_eq!(heads.lock().unwrap()[1][0], "GET /cache/tiny.gguf?v=2 HTTP/1.1");

    let again = response("301 Moved Permanently", "location: again\r\n", b"");
    let (hub, heads) = serve(vec![again; MAX_REDIRECTS + 1]);
    let error = read(&direct(), &format!("http://{hub}/a"), 0).await.unwrap_err().to_string();
    assert!(error.contains("more than 5 redirects"), "{error}");
    assert_eq!(heads.lock().unwrap().len(), MAX_REDIRECTS + 1);

    for headers in ["", "location: http://\r\n"] {
        let (hub, _) = serve(vec![response("302 Found", headers, b"")]);
        let error = read(&direct(), &format!("http://{hub}/a"), 0).await.unwrap_err().to_string();
        assert!(error.contains("302 Found without a usable location"), "{error}");
    }
}

#[tokio::test]
async fn a_refused_connection_a_bad_status_and_a_broken_body_are_errors() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = read(&direct(), &format!("http://{unused}/a"), 0).await.unwrap_err();
    assert!(matches!(error, FetchError::Unreachable(_)), "{error}");
    assert!(error_chain(&error).contains("refused"), "{}", error_chain(&error));

    let (hub, _) = serve(vec![response("503 Service Unavailable", "", b"later")]);
    let error = read(&direct(), &format!("http://{hub}/a"), 0).await.unwrap_err().to_string();
    assert!(error.contains("503 Service Unavailable to a request for the bytes from 0"), "{error}");

    let (hub, _) = serve(vec!["HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nGGUF".to_owned()]);
    let FetchedBytes { mut bytes, .. } = direct().fetch(&format!("http://{hub}/a"), 0).await.unwrap();
    assert_eq!(bytes.try_next().await.unwrap().unwrap(), "GGUF");
    assert!(bytes.try_next().await.is_err());
}

#[tokio::test]
async fn a_stalled_response_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hub = listener.local_addr().unwrap();
    thread::spawn(move || {
        for sent in ["", "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nGGUF"] {
            let (mut stream, _) = listener.accept().unwrap();
            read_head(&mut stream).unwrap();
            stream.write_all(sent.as_bytes()).unwrap();
            // Ends when the client gives up and closes the connection.
            let _ = io::copy(&mut stream, &mut io::sink());
        }
    });
    let source = HttpSource { read_timeout: Duration::from_millis(50), ..direct() };
    for stage in ["the head", "the body"] {
        let error = read(&source, &format!("http://{hub}/a"), 0).await.unwrap_err();
        assert!(error_chain(&error).contains("no progress within"), "{stage}: {}", error_chain(&error));
    }
}

/// A proxy for one request: it forwards plain requests and accepts CONNECT, and answers in the origin's place.
struct ProxyDouble {
    tls: TestTls,
    address: String,
    heads: Arc<Mutex<Vec<Vec<String>>>>,
}

impl ProxyDouble {
    /// Starts a proxy that is reached by plain TCP or by TLS.
    fn start(over_tls: bool, connect_answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let scheme = if over_tls { "https" } else { "http" };
        let address = format!("{scheme}://user:p%40ss@localhost:{}", listener.local_addr().unwrap().port());
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (tls, log) = (TestTls::new(), Arc::clone(&heads));
        let server = TestTls { server: Arc::clone(&tls.server), client: tls.client.clone() };
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let served = match over_tls {
                true => serve_as_proxy(server.accept(stream), &server, connect_answer, &log),
                false => serve_as_proxy(stream, &server, connect_answer, &log),
            };
            drop(served);
        });
        Self { tls, address, heads }
    }

    fn source(&self, no_proxy: &'static str) -> HttpSource {
        let proxies = Matcher::builder().all(self.address.clone()).no(no_proxy).build();
        HttpSource::new(self.tls.client.clone(), proxies)
    }
}

/// Answers one request or one tunnelled request over TLS.
fn serve_as_proxy<S: Read + Write>(
    mut stream: S,
    tls: &TestTls,
    connect_answer: &str,
    log: &Mutex<Vec<Vec<String>>>,
) -> io::Result<()> {
    let head = read_head(&mut stream)?;
    let tunnelled = head[0].starts_with("CONNECT ");
    log.lock().unwrap().push(head);
    let answer = response("200 OK", "", CONTENT);
    if !tunnelled {
        stream.write_all(answer.as_bytes())?;
        return stream.flush();
    }
    stream.write_all(connect_answer.as_bytes())?;
    stream.flush()?;
    let mut origin = tls.accept(stream);
    let head = read_head(&mut origin)?;
    log.lock().unwrap().push(head);
    origin.write_all(answer.as_bytes())?;
    origin.flush()
}

const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

#[tokio::test]
async fn plain_requests_are_forwarded_by_plain_and_tls_proxies() {
    for over_tls in [false, true] {
        let proxy = ProxyDouble::start(over_tls, ESTABLISHED);
        let read_bytes = read(&proxy.source(""), "http://hub.test/a/tiny.gguf", 0).await.unwrap();
        assert_eq!(read_bytes, (0, CONTENT.to_vec()), "over TLS: {over_tls}");
        let heads = proxy.heads.lock().unwrap();
        assert_eq!(heads[0][0], "GET http://hub.test/a/tiny.gguf HTTP/1.1");
        assert!(heads[0].contains(&"host: hub.test".to_owned()), "{heads:?}");
        assert!(heads[0].contains(&format!("proxy-authorization: {CREDENTIALS}")), "{heads:?}");
    }
}

#[tokio::test]
async fn tls_requests_are_tunnelled_through_plain_and_tls_proxies() {
    for over_tls in [false, true] {
        let proxy = ProxyDouble::start(over_tls, ESTABLISHED);
        let read_bytes = read(&proxy.source(""), "https://hub.test/a/tiny.gguf", 0).await.unwrap();
        assert_eq!(read_bytes, (0, CONTENT.to_vec()), "over TLS: {over_tls}");
        let heads = proxy.heads.lock().unwrap();
        assert_eq!(heads[0][0], "CONNECT hub.test:443 HTTP/1.1");
        assert!(heads[0].contains(&format!("proxy-authorization: {CREDENTIALS}")), "{heads:?}");
        assert_eq!(heads[1][0], "GET /a/tiny.gguf HTTP/1.1");
        let leaked = heads[1].iter().any(|line| line.starts_with("proxy-authorization"));
        assert!(!leaked, "the origin must not get the proxy's credentials: {heads:?}");
    }
}

#[tokio::test]
async fn a_proxy_that_refuses_is_an_error_without_its_credentials() {
    let refused = "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
    let proxy = ProxyDouble::start(false, refused);
    let error = read(&proxy.source(""), "https://hub.test/a", 0).await.unwrap_err();
    let text = format!("{} {error:?}", error_chain(&error));
    assert!(text.contains("proxy authorization required"), "{text}");
    assert!(!text.contains("p@ss") && !text.contains("p%40ss") && !text.contains("dXNlcj"), "{text}");
}

#[tokio::test]
async fn an_untrusted_certificate_of_the_proxy_is_an_error() {
    let proxy = ProxyDouble::start(true, ESTABLISHED);
    let proxies = Matcher::builder().all(proxy.address.clone()).build();
    let error =
        read(&HttpSource::new(client_config(None), proxies), "http://hub.test/a", 0).await.unwrap_err();
    assert!(error_chain(&error).contains("certificate"), "{}", error_chain(&error));
    assert!(proxy.heads.lock().unwrap().is_empty());
}

#[tokio::test]
async fn no_proxy_exempts_a_host() {
    let proxy = ProxyDouble::start(false, ESTABLISHED);
    let (hub, heads) = serve(vec![response("200 OK", "", CONTENT)]);
    let read_bytes =
        read(&proxy.source("10.0.0.0/8, 127.0.0.1"), &format!("http://{hub}/a"), 0).await.unwrap();
    assert_eq!(read_bytes, (0, CONTENT.to_vec()));
    assert_eq!(heads.lock().unwrap()[0][0], "GET /a HTTP/1.1");
    assert!(proxy.heads.lock().unwrap().is_empty());
}
