//! A webhook receiver that deduplicates deliveries by `webhook-id`, as the documentation asks receivers to.

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

/// Highest attempt number of an occurrence whose success response may be replaced by a 503.
const MAX_LOST_ATTEMPT: u64 = 3;

/// The receiver; stops when dropped.
pub struct WebhookReceiver {
    address: SocketAddr,
    state: Arc<Mutex<ReceiverState>>,
    /// Number of deliveries received, duplicates included.
    delivery_count: watch::Receiver<usize>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct ReceiverState {
    ids: HashSet<String>,
    /// The `scheduledFor` times of the effects, by job id.
    effects: BTreeMap<String, Vec<String>>,
    deliveries: usize,
}

impl WebhookReceiver {
    /// Starts a receiver on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        let state = Arc::new(Mutex::new(ReceiverState::default()));
        let (count_sender, delivery_count) = watch::channel(0);
        let task = tokio::spawn(serve(listener, state.clone(), count_sender));
        Self { address, state, delivery_count, task }
    }

    /// Returns the delivery URL.
    pub fn url(&self) -> String {
        format!("http://{}/callback", self.address)
    }

    /// Returns a watch on the number of deliveries, duplicates included.
    pub fn delivery_count(&self) -> watch::Receiver<usize> {
        self.delivery_count.clone()
    }

    /// Returns the effects of each job by its id: the scheduled time of each, in order of arrival.
    pub fn effects(&self) -> BTreeMap<String, Vec<String>> {
        self.state.lock().expect("unpoisoned").effects.clone()
    }
}

impl Drop for WebhookReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<ReceiverState>>, count_sender: watch::Sender<usize>) {
    let mut connections = JoinSet::new();
    let count_sender = Arc::new(count_sender);
    while let Ok((stream, _)) = listener.accept().await {
        let (state, count_sender) = (state.clone(), count_sender.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| receive(request, state.clone(), count_sender.clone()));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn receive(
    request: Request<Incoming>,
    state: Arc<Mutex<ReceiverState>>,
    count_sender: Arc<watch::Sender<usize>>,
) -> Result<Response<http_body_util::Full<Bytes>>, Infallible> {
    use http_body_util::BodyExt as _;
    let (head, body) = request.into_parts();
    // A partial request of a killed process is not a delivery.
    let Ok(body) = body.collect().await else { return Ok(empty_response(400)) };
    let body = body.to_bytes();
    let secrets = [Secret::new(PULSE_SECRET)];
    let Ok(id) = webhook::verify(&secrets, &head.headers, &body, SystemTime::now()) else {
        return Ok(empty_response(401));
    };
    let delivery: Value = serde_json::from_slice(&body).expect("what is signed is JSON");
    let text = |name: &str| delivery[name].as_str().expect("text").to_owned();
    let deliveries = {
        let mut state = state.lock().expect("unpoisoned");
        state.deliveries += 1;
        if state.ids.insert(id.to_owned()) {
            state.effects.entry(text("jobId")).or_default().push(text("scheduledFor"));
        }
        state.deliveries
    };
    count_sender.send_replace(deliveries);
    // Every ninth delivery takes effect but is answered with 503, as if the response were lost. Late attempts are
    // exempt: their retries are up to an hour apart.
    let is_lost = deliveries.is_multiple_of(9) && delivery["attempt"].as_u64() <= Some(MAX_LOST_ATTEMPT);
    Ok(empty_response(if is_lost { 503 } else { 200 }))
}

fn empty_response(status: u16) -> Response<http_body_util::Full<Bytes>> {
    Response::builder().status(status).body(http_body_util::Full::default()).expect("a response")
}
