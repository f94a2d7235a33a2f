//! Tests of name resolution and the address policy over a fake network.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Condvar, Mutex};

use async_trait::async_trait;

use super::*;

/// A fake network that resolves names to given addresses and directs every connection to one server.
#[derive(Debug)]
struct FakeNetwork {
    /// Answers per name, one per lookup; the last is repeated.
    names: Mutex<HashMap<&'static str, VecDeque<&'static str>>>,
    server: SocketAddr,
    looked_up: Mutex<Vec<String>>,
    connected: Mutex<Vec<String>>,
}

impl FakeNetwork {
    fn new(server: SocketAddr, names: &[(&'static str, &[&'static str])]) -> Arc<Self> {
        let names = names.iter().map(|(name, answers)| (*name, answers.iter().copied().collect()));
        Arc::new(Self {
            names: Mutex::new(names.collect()),
            server,
            looked_up: Mutex::default(),
            connected: Mutex::default(),
        })
    }

    fn outbound(self: &Arc<Self>, allow: &str) -> OutboundClient {
        let allow = allow.parse().unwrap();
        OutboundClient::new(OutboundConfig { allow, network: self.clone(), ..OutboundConfig::default() })
            .unwrap()
    }

    /// Returns the lookups and connections since the previous call.
    fn take_log(&self) -> (Vec<String>, Vec<String>) {
        let take = |deeds: &Mutex<Vec<String>>| std::mem::take(&mut *deeds.lock().unwrap());
        (take(&self.looked_up), take(&self.connected))
    }
}

#[async_trait]
impl Network for FakeNetwork {
    fn lookup_host(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        self.looked_up.lock().unwrap().push(name.to_owned());
        let mut names = self.names.lock().unwrap();
        let answers = names.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        let answer = if answers.len() > 1 { answers.pop_front().unwrap() } else { answers[0] };
        let addresses = answer.split_whitespace().map(|address| address.parse::<IpAddr>().unwrap());
        Ok(addresses.map(|address| SocketAddr::new(address, 9)).collect())
    }

    async fn connect(&self, addresses: Vec<SocketAddr>, _: Duration) -> io::Result<TcpStream> {
        let addresses: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
        self.connected.lock().unwrap().push(addresses.join(" "));
        TcpStream::connect(self.server).await
    }
}

/// Answers every request with `ok`; keeps its connections open, or closes each after one answer.
async fn server(keep: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                loop {
                    read_request(&mut stream).await;
                    let close = if keep { "" } else { "connection: close\r\n" };
                    let answer = format!("HTTP/1.1 200 OK\r\n{close}content-length: 2\r\n\r\nok");
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    if !keep {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// A network whose connections are established while the process is stopped.
#[derive(Debug)]
struct StoppedNetwork {
    server: SocketAddr,
    stop: Duration,
}

#[async_trait]
impl Network for StoppedNetwork {
    fn lookup_host(&self, _: &str) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![self.server])
    }

    async fn connect(&self, _: Vec<SocketAddr>, _: Duration) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.server).await;
        // Blocks the runtime, as a stop does.
        std::thread::sleep(self.stop);
        stream
    }
}

/// A gate that lookups wait for.
#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

/// Opens its gate when it is dropped, so that the lookups of a failed test end too.
struct GateOpener(Arc<Gate>);

impl Drop for GateOpener {
    fn drop(&mut self) {
        *self.0.is_open.lock().unwrap() = true;
        self.0.opened.notify_all();
    }
}

/// A network in which the lookups of names with `slow` wait for a gate.
#[derive(Debug)]
struct SlowNetwork {
    server: SocketAddr,
    gate: Arc<Gate>,
    slow_lookups: AtomicUsize,
}

#[async_trait]
impl Network for SlowNetwork {
    fn lookup_host(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        if name.contains("slow") {
            self.slow_lookups.fetch_add(1, Ordering::SeqCst);
            let is_open = self.gate.is_open.lock().unwrap();
            drop(self.gate.opened.wait_while(is_open, |is_open| !*is_open).unwrap());
        }
        Ok(vec![SocketAddr::from(([93, 184, 215, 14], 9))])
    }

    async fn connect(&self, _: Vec<SocketAddr>, _: Duration) -> io::Result<TcpStream> {
        TcpStream::connect(self.server).await
    }
}

#[tokio::test]
async fn slow_lookups_below_one_domain_leave_room_for_others() {
    let names = (0..100).map(|number| format!("{number}.slow.example"));
    let fast = ("c1", "http://fast.example/");
    assert_answered_beside_slow_lookups(names.collect(), 4, fast).await;
}

#[tokio::test]
async fn slow_lookups_of_one_tenant_leave_room_for_others() {
    // As many names as there are lookups, of domains each of which has as many as one tenant may have there.
    let names = (0..256).map(|number| format!("{number}.slow{}.example", number / 4));
    let fast = ("c2", "http://fast.example/");
    assert_answered_beside_slow_lookups(names.collect(), 64, fast).await;
}

#[tokio::test]
async fn slow_lookups_of_one_tenant_leave_room_for_others_below_the_same_domain() {
    let names = (0..100).map(|number| format!("{number}.slow.co.example"));
    let fast = ("c2", "http://fast.co.example/");
    assert_answered_beside_slow_lookups(names.collect(), 4, fast).await;
}

/// Sends requests of the tenant `c1` to hosts whose lookups do not end, of which `expected_lookups` begin, and checks that
/// another request is answered meanwhile.
async fn assert_answered_beside_slow_lookups(
    slow_names: Vec<String>,
    expected_lookups: usize,
    (tenant, url): (&str, &str),
) {
    let gate = Arc::<Gate>::default();
    let opener = GateOpener(gate.clone());
    let network =
        Arc::new(SlowNetwork { server: server(true).await, gate, slow_lookups: AtomicUsize::new(0) });
    // The lookups that wait do so until the end of the test.
    let config = OutboundConfig {
        network: network.clone(),
        connect_timeout: 2 * TEST_TIMEOUT,
        ..OutboundConfig::default()
    };
    let outbound = Arc::new(OutboundClient::new(config).unwrap());
    let mut slow = Vec::new();
    for name in slow_names {
        let outbound = outbound.clone();
        slow.push(tokio::spawn(async move {
            let url = format!("http://{name}/");
            for_tenant("c1", sent(&outbound, &url, UrlTrust::Supplied)).await
        }));
    }
    while network.slow_lookups.load(Ordering::SeqCst) < expected_lookups {
        tokio::task::yield_now().await;
    }
    let fast = for_tenant(tenant, sent(&outbound, url, UrlTrust::Supplied));
    let answer = tokio::time::timeout(TEST_TIMEOUT, fast).await.expect("it waits for no slow lookup");
    assert_eq!(answer.as_deref(), Ok("ok"));
    assert_eq!(network.slow_lookups.load(Ordering::SeqCst), expected_lookups);
    drop(opener);
    for call in slow {
        assert_eq!(call.await.unwrap().as_deref(), Ok("ok"));
    }
}

#[tokio::test]
async fn a_request_is_not_sent_after_its_time() {
    let network = Arc::new(StoppedNetwork { server: server(true).await, stop: Duration::from_millis(200) });
    let outbound = OutboundClient::new(OutboundConfig { network, ..OutboundConfig::default() }).unwrap();
    let url = Url::parse("http://server.example/").unwrap();
    for (limit, expected) in [(100, Err(AgentErrorKind::Timeout)), (10_000, Ok(200))] {
        let request = outbound.get(&url, UrlTrust::Operator).unwrap();
        let sent = request.header_timeout(Duration::from_millis(limit)).send().await;
        assert!(sent.as_ref().err().is_none_or(|failure| !was_sent(failure)), "{sent:?}");
        assert_eq!(sent.map(|response| response.status.as_u16()).map_err(|failure| failure.kind()), expected);
    }
}

/// Sends a request and returns the body, or the kind of the failure.
async fn sent(outbound: &OutboundClient, url: &str, trust: UrlTrust) -> Result<String, AgentErrorKind> {
    let url = Url::parse(url).unwrap();
    let response = async { outbound.get(&url, trust)?.send().await }.await;
    Ok(text(response.map_err(|failure| failure.kind())?).await)
}

#[tokio::test]
async fn the_checked_address_is_the_connected_one() {
    let world = FakeNetwork::new(
        server(false).await,
        &[
            ("one.example", &["93.184.215.14"]),
            ("two.example", &["2606:4700::1111 1.1.1.1"]),
            ("in.example", &["10.0.0.1"]),
            ("loop.example", &["127.0.0.1"]),
            ("mixed.example", &["1.1.1.1 169.254.169.254"]),
            ("mapped.example", &["1.1.1.1 ::ffff:10.0.0.1"]),
            ("none.example", &[""]),
            ("listed.example", &["10.9.9.9"]),
        ],
    );
    let outbound = world.outbound("10.8.0.0/16,listed.example:81");
    let cases: [(&str, &str, Result<&str, AgentErrorKind>); 15] = [
        ("http://one.example/", "one.example", Ok("93.184.215.14:80")),
        ("http://one.example:8080/", "one.example", Ok("93.184.215.14:8080")),
        ("http://ONE.Example./", "one.example.", Err(AgentErrorKind::Unreachable)),
        ("http://two.example/", "two.example", Ok("[2606:4700::1111]:80 1.1.1.1:80")),
        ("http://8.8.8.8/", "", Ok("8.8.8.8:80")),
        ("http://[2606:4700::1111]:81/", "", Ok("[2606:4700::1111]:81")),
        ("http://10.8.1.1/", "", Ok("10.8.1.1:80")),
        ("http://in.example/", "in.example", Err(AgentErrorKind::Blocked)),
        ("http://loop.example/", "loop.example", Err(AgentErrorKind::Blocked)),
        ("http://mixed.example/", "mixed.example", Err(AgentErrorKind::Blocked)),
        ("http://mapped.example/", "mapped.example", Err(AgentErrorKind::Blocked)),
        ("http://none.example/", "none.example", Err(AgentErrorKind::Unreachable)),
        ("http://listed.example:81/", "listed.example", Ok("10.9.9.9:81")),
        ("http://listed.example/", "listed.example", Err(AgentErrorKind::Blocked)),
        ("http://sub.localhost/", "", Err(AgentErrorKind::Blocked)),
    ];
    for (url, looked_up, expected) in cases {
        let answer = sent(&outbound, url, UrlTrust::Supplied).await;
        assert_eq!(answer, expected.map(|_| "ok".to_owned()), "{url}");
        let list = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty()).into_iter().collect();
        let deeds: (Vec<_>, Vec<_>) = (list(looked_up), list(expected.unwrap_or_default()));
        assert_eq!(world.take_log(), deeds, "{url}");
    }
}

#[tokio::test]
async fn a_name_that_resolves_to_a_private_address_later_is_refused() {
    let names: [(&str, &[&str]); 1] = [("turn.example", &["93.184.215.14", "127.0.0.1"])];
    let url = "http://turn.example/";
    let once = || vec!["turn.example".to_owned()];
    let public = || vec!["93.184.215.14:80".to_owned()];

    // Each request opens a connection, and each connection does one lookup.
    let world = FakeNetwork::new(server(false).await, &names);
    let outbound = world.outbound("");
    assert_eq!(sent(&outbound, url, UrlTrust::Supplied).await.as_deref(), Ok("ok"));
    assert_eq!(world.take_log(), (once(), public()));
    assert_eq!(sent(&outbound, url, UrlTrust::Supplied).await, Err(AgentErrorKind::Blocked));
    assert_eq!(world.take_log(), (once(), vec![]));

    // A pooled connection stays with its original address.
    let world = FakeNetwork::new(server(true).await, &names);
    let outbound = world.outbound("");
    for deeds in [(once(), public()), (vec![], vec![])] {
        assert_eq!(sent(&outbound, url, UrlTrust::Supplied).await.as_deref(), Ok("ok"));
        assert_eq!(world.take_log(), deeds);
    }
    assert_eq!(
        sent(&outbound, "http://turn.example:81/", UrlTrust::Supplied).await,
        Err(AgentErrorKind::Blocked)
    );
    assert_eq!(world.take_log(), (once(), vec![]));
}

#[tokio::test]
async fn a_trusted_connection_serves_no_supplied_address() {
    let world = FakeNetwork::new(server(true).await, &[("in.example", &["10.0.0.1"])]);
    let outbound = world.outbound("");
    let url = "http://in.example/";
    assert_eq!(sent(&outbound, url, UrlTrust::Operator).await.as_deref(), Ok("ok"));
    world.take_log();
    assert_eq!(sent(&outbound, url, UrlTrust::Supplied).await, Err(AgentErrorKind::Blocked));
    assert_eq!(sent(&outbound, url, UrlTrust::Operator).await.as_deref(), Ok("ok"));
    assert_eq!(world.take_log(), (vec!["in.example".to_owned()], vec![]), "the trusted connection was there");
}
