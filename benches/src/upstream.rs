//! The mock model vendor: `POST …/chat/completions` and `POST …/responses`, streamed, with the behaviour named by the
//! model; its issuer of subscriptions' tokens: `POST /issuer/…`; the mock workflow: `POST /webhook/BEHAVIOUR`; and
//! `POST /open-streams`, the number of streams that are open without data.
//!
//! It uses raw TCP and responses prepared in advance, so that it uses little CPU time beside the subject.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::{Buf, BytesMut};
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, sleep_until, timeout},
};

use crate::answer::{Behaviour, Framing, Script};
use crate::delivery::{HttpConnection, body};
use crate::subscription;

/// Path of the number of open streams.
const OPEN_STREAMS_PATH: &str = "/open-streams";
const MAX_HEAD: usize = 64 * 1024;
const MAX_BODY: usize = 4 * 1024 * 1024;
/// Time limit of an open stream without data, and of an idle connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Serves requests on `listener` until the process exits.
///
/// # Errors
/// `accept` failed. An error on a connection ends only that connection.
pub async fn serve(listener: TcpListener) -> io::Result<()> {
    let scripts = Arc::new(Scripts::default());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(connection(stream, Arc::clone(&scripts)));
    }
}

/// Returns the number of streams of the mock vendor that are open without data.
///
/// # Errors
/// The connection is not one to the mock vendor.
pub async fn open_streams(vendor: &mut HttpConnection) -> anyhow::Result<usize> {
    let request = format!("POST {OPEN_STREAMS_PATH} HTTP/1.1\r\nhost: vendor\r\ncontent-length: 0\r\n\r\n");
    let message = vendor.call(request.as_bytes(), 200).await?;
    Ok(serde_json::from_slice(body(&message))?)
}

/// Cache of the scripts requested so far, and the number of open streams without data.
#[derive(Default)]
struct Scripts {
    made: Mutex<HashMap<(Behaviour, Framing, bool), Arc<Script>>>,
    open_streams: AtomicUsize,
}

impl Scripts {
    fn get(&self, behaviour: Behaviour, framing: Framing, tool_answered: bool) -> Arc<Script> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let script = made
            .entry((behaviour, framing, tool_answered))
            .or_insert_with(|| Arc::new(behaviour.script(framing, tool_answered)));
        Arc::clone(script)
    }
}

/// The members of a request's body that the mock reads.
#[derive(Deserialize)]
struct ChatRequest<'a> {
    model: &'a str,
    #[serde(default)]
    stream: bool,
    #[serde(borrow, default)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    role: &'a str,
}

async fn connection(mut stream: TcpStream, scripts: Arc<Scripts>) -> io::Result<()> {
    let mut inbox = BytesMut::with_capacity(4 * 1024);
    loop {
        let Some(head) = timeout(IDLE_TIMEOUT, read_head(&mut stream, &mut inbox)).await?? else {
            return Ok(());
        };
        if head.length > MAX_BODY {
            return refuse(&mut stream, "413 Content Too Large").await;
        }
        while inbox.len() < head.length {
            if timeout(IDLE_TIMEOUT, stream.read_buf(&mut inbox)).await?? == 0 {
                return Ok(());
            }
        }
        let script = match head.asked {
            Target::Model(framing) => script(framing, &inbox[..head.length], &scripts),
            Target::Issuer(script) => Some(Arc::new(script)),
            Target::OpenStreams => {
                let count = scripts.open_streams.load(Ordering::Relaxed);
                Some(Arc::new(Script::json(&count.into())))
            }
            Target::Webhook(behaviour) => Some(scripts.get(behaviour, Framing::Workflow, false)),
            Target::Other => None,
        };
        inbox.advance(head.length);
        match script {
            Some(script) => play(&mut stream, &script, &scripts.open_streams).await?,
            None => refuse(&mut stream, "400 Bad Request").await?,
        }
    }
}

struct Head {
    asked: Target,
    length: usize,
}

/// The endpoint that a request names.
enum Target {
    Model(Framing),
    Issuer(Script),
    OpenStreams,
    Webhook(Behaviour),
    Other,
}

impl Target {
    fn of(method: Option<&str>, path: Option<&str>) -> Self {
        let Some(path) = path.filter(|_| method == Some("POST")) else { return Self::Other };
        if let Some(script) = subscription::issuer_answer(path) {
            return Self::Issuer(script);
        }
        if path == OPEN_STREAMS_PATH {
            return Self::OpenStreams;
        }
        match path.strip_prefix("/webhook/").map(str::parse) {
            Some(Ok(behaviour)) => Self::Webhook(behaviour),
            None if path.ends_with("/chat/completions") => Self::Model(Framing::ChatCompletions),
            None if path.ends_with("/responses") => Self::Model(Framing::Responses),
            _ => Self::Other,
        }
    }
}

/// Reads one request head from `inbox`; `None` if the client has closed the connection.
async fn read_head(stream: &mut TcpStream, inbox: &mut BytesMut) -> io::Result<Option<Head>> {
    loop {
        if let Some((taken, head)) = parse_head(inbox)? {
            inbox.advance(taken);
            return Ok(Some(head));
        }
        if inbox.len() > MAX_HEAD {
            return Err(io::Error::other("request head too large"));
        }
        if stream.read_buf(inbox).await? == 0 {
            return Ok(None);
        }
    }
}

fn parse_head(inbox: &[u8]) -> io::Result<Option<(usize, Head)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(taken) = request.parse(inbox).map_err(io::Error::other)? else {
        return Ok(None);
    };
    let target = Target::of(request.method, request.path);
    let mut length = 0;
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(io::Error::other("the mock takes bodies of a stated length only"));
        }
        if header.name.eq_ignore_ascii_case("content-length") {
            let text = str::from_utf8(header.value).map_err(io::Error::other)?;
            length = text.trim().parse().map_err(io::Error::other)?;
        }
    }
    Ok(Some((taken, Head { asked: target, length })))
}

fn script(framing: Framing, body: &[u8], scripts: &Scripts) -> Option<Arc<Script>> {
    let chat_request: ChatRequest<'_> = serde_json::from_slice(body).ok()?;
    let behaviour = chat_request.model.parse().ok().filter(|_| chat_request.stream)?;
    let tool_answered = chat_request.messages.iter().any(|message| message.role == "tool");
    Some(scripts.get(behaviour, framing, tool_answered))
}

async fn play(stream: &mut TcpStream, script: &Script, open_streams: &AtomicUsize) -> io::Result<()> {
    let mut due = Instant::now();
    for (number, piece) in script.pieces.iter().enumerate() {
        if !script.every.is_zero() {
            sleep_until(due).await;
            due += script.silence.filter(|_| number == 0).unwrap_or(script.every);
        }
        stream.write_all(piece).await?;
    }
    if script.hangs {
        let _open = OpenStream::new(open_streams);
        // Ends when the client disconnects; the load generator never sends more on such a stream.
        timeout(IDLE_TIMEOUT, stream.read_u8()).await??;
    }
    Ok(())
}

/// An open stream without data, counted until it is dropped.
struct OpenStream<'c>(&'c AtomicUsize);

impl<'c> OpenStream<'c> {
    fn new(count: &'c AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn refuse(stream: &mut TcpStream, status: &str) -> io::Result<()> {
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(answer.as_bytes()).await
}
