//! A receiver that makes each effect once, as is documented: by remembering `webhook-id`.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use agent_core::secret::Secret;
use agent_http::webhook;
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::server::PULSE_SECRET;

/// How many attempts at an occurrence may be answered in vain.
const LOST_ATTEMPTS: u64 = 3;

/// The receiver; it stops when it is dropped.
pub struct Sink {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    /// How many deliveries have come.
    came: watch::Receiver<usize>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    ids: HashSet<String>,
    /// By the job's id, the times that its effects are of.
    effects: BTreeMap<String, Vec<String>>,
    deliveries: usize,
}

impl Sink {
    /// Starts one on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (comer, came) = watch::channel(0);
        let task = tokio::spawn(serve(listener, seen.clone(), comer));
        Self { address, seen, came, task }
    }

    /// Where jobs are delivered.
    pub fn url(&self) -> String {
        format!("http://{}/callback", self.address)
    }

    /// How many deliveries have come, those that made no effect again included; changes are told.
    pub fn came(&self) -> watch::Receiver<usize> {
        self.came.clone()
    }

    /// The effects of each job, by its id: the time that each was scheduled for, in the order of their coming.
    pub fn effects(&self) -> BTreeMap<String, Vec<String>> {
        self.seen.lock().expect("unpoisoned").effects.clone()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, seen: Arc<Mutex<Seen>>, comer: watch::Sender<usize>) {
    let mut connections = JoinSet::new();
    let comer = Arc::new(comer);
    while let Ok((stream, _)) = listener.accept().await {
        let (seen, comer) = (seen.clone(), comer.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| receive(request, seen.clone(), comer.clone()));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn receive(
    request: Request<Incoming>,
    seen: Arc<Mutex<Seen>>,
    comer: Arc<watch::Sender<usize>>,
) -> Result<Response<http_body_util::Full<Bytes>>, Infallible> {
    use http_body_util::BodyExt as _;
    let (head, body) = request.into_parts();
    // What a process that was killed has sent of a call is none.
    let Ok(body) = body.collect().await else { return Ok(answer(400)) };
    let body = body.to_bytes();
    let secrets = [Secret::new(PULSE_SECRET)];
    let Ok(id) = webhook::verify(&secrets, &head.headers, &body, SystemTime::now()) else {
        return Ok(answer(401));
    };
    let delivery: Value = serde_json::from_slice(&body).expect("what is signed is JSON");
    let text = |name: &str| delivery[name].as_str().expect("text").to_owned();
    let deliveries = {
        let mut seen = seen.lock().expect("unpoisoned");
        seen.deliveries += 1;
        if seen.ids.insert(id.to_owned()) {
            seen.effects.entry(text("jobId")).or_default().push(text("scheduledFor"));
        }
        seen.deliveries
    };
    comer.send_replace(deliveries);
    // Now and then the effect is made, and what says so is lost; not to late attempts, which are up to an hour apart.
    let is_lost = deliveries.is_multiple_of(9) && delivery["attempt"].as_u64() <= Some(LOST_ATTEMPTS);
    Ok(answer(if is_lost { 503 } else { 200 }))
}

fn answer(status: u16) -> Response<http_body_util::Full<Bytes>> {
    Response::builder().status(status).body(http_body_util::Full::default()).expect("a response")
}
