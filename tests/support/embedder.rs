//! A fake server of OpenAI's Embeddings API, whose vectors are the meanings of words, and which misbehaves on demand.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Words of the same meaning.
const MEANINGS: [&[&str]; 3] = [&["receipt", "voucher"], &["train", "railway"], &["holiday", "vacation"]];

/// Number of components of the vectors of [`Behaviour::Meaningless`] and [`Behaviour::Words`].
const WORD_COMPONENTS: usize = 64;

/// The server's behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers correctly, the last text first: the index gives the order.
    Answers,
    /// Answers 500.
    Fails,
    /// Never answers.
    Hangs,
    /// Answers correctly once its behaviour is another one.
    AnswersLate,
    /// Answers vectors with other numbers of components.
    OtherDimensions,
    /// Returns components that are not numbers.
    NoNumbers,
    /// Answers a vector less than there are texts.
    TooFew,
    /// Answers vectors that have no relation to the texts: a different vector for each text.
    Meaningless,
    /// Answers the sums of the vectors of the texts' words.
    Words,
}

/// The server; stops when dropped.
pub struct EmbeddingServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    behaviour: watch::Sender<Behaviour>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    texts: Vec<String>,
    keys: Vec<String>,
}

impl EmbeddingServer {
    /// Starts a server on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        let (state, behaviour) = (Arc::<Mutex<State>>::default(), watch::Sender::new(Behaviour::Answers));
        let task = tokio::spawn(serve(listener, state.clone(), behaviour.subscribe()));
        Self { address, state, behaviour, task }
    }

    /// Returns the base URL.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Changes the behaviour of the next requests.
    pub fn behave(&self, behaviour: Behaviour) {
        self.behaviour.send_replace(behaviour);
    }

    /// Returns the texts that were received since the last call.
    pub fn take_texts(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().expect("unpoisoned").texts)
    }

    /// Returns the values of `Authorization` that were received.
    pub fn keys(&self) -> Vec<String> {
        self.state.lock().expect("unpoisoned").keys.clone()
    }
}

impl Drop for EmbeddingServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>, behaviour: watch::Receiver<Behaviour>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (state, behaviour) = (state.clone(), behaviour.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| answer(request, state.clone(), behaviour.clone()));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
    mut behaviours: watch::Receiver<Behaviour>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let key = request.headers().get("authorization").and_then(|key| key.to_str().ok()).unwrap_or_default();
    let key = key.to_owned();
    let Ok(body) = request.into_body().collect().await else { return Ok(response(400, &json!({}))) };
    let body: Value = serde_json::from_slice(&body.to_bytes()).expect("the request is JSON");
    let texts = body["input"].as_array().expect("texts").iter();
    let texts: Vec<String> = texts.map(|text| text.as_str().expect("a text").to_owned()).collect();
    {
        let mut state = state.lock().expect("unpoisoned");
        state.texts.extend(texts.iter().cloned());
        state.keys.push(key);
    }
    let behaviour = *behaviours.borrow();
    match behaviour {
        Behaviour::AnswersLate => {
            let changed = behaviours.wait_for(|behaviour| *behaviour != Behaviour::AnswersLate).await;
            drop(changed);
        }
        Behaviour::Fails => return Ok(response(500, &json!({"error": {"message": "overloaded"}}))),
        Behaviour::Hangs => std::future::pending().await,
        _ => {}
    }
    let mut data: Vec<Value> =
        texts.iter().enumerate().map(|(index, text)| vector(index, text, behaviour)).rev().collect();
    if behaviour == Behaviour::TooFew {
        data.pop();
    }
    Ok(response(
        200,
        &json!({"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}}),
    ))
}

fn vector(index: usize, text: &str, behaviour: Behaviour) -> Value {
    let text = text.to_lowercase();
    let mut components: Vec<Value> = MEANINGS
        .iter()
        .map(|words| json!(if words.iter().any(|word| text.contains(word)) { 1.0 } else { 0.0 }))
        .collect();
    components.push(json!(0.1));
    match behaviour {
        Behaviour::OtherDimensions => components.extend((0..=index).map(|_| json!(0.5))),
        Behaviour::NoNumbers => components[0] = json!("NaN"),
        Behaviour::Words => components = vector_of_words(&text),
        Behaviour::Meaningless => {
            let mut hasher = DefaultHasher::new();
            components.resize(WORD_COMPONENTS, Value::Null);
            for component in &mut components {
                text.hash(&mut hasher);
                *component = json!((hasher.finish() >> 40) as f64 / f64::from(1 << 24) - 0.5);
            }
        }
        _ => {}
    }
    json!({"object": "embedding", "index": index, "embedding": components})
}

/// Returns the sum of the vectors of a text's words.
fn vector_of_words(text: &str) -> Vec<Value> {
    let mut vector = [0.0; WORD_COMPONENTS];
    for word in text.split_whitespace() {
        let mut hasher = DefaultHasher::new();
        for component in &mut vector {
            word.hash(&mut hasher);
            *component += (hasher.finish() >> 40) as f64 / f64::from(1 << 24) - 0.5;
        }
    }
    vector.into_iter().map(|component| json!(component)).collect()
}

fn response(status: u16, body: &Value) -> Response<Full<Bytes>> {
    let body = Full::new(Bytes::from(body.to_string()));
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(body)
        .expect("a response")
}
