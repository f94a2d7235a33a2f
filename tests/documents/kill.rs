//! Repeated `kill -9` of processes while documents are uploaded and their texts extracted.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_platform::records::{Collection, ListQuery};
use agent_platform::workspace::{
    Document, MAX_DOCUMENT_BYTES, get_document, list_document_summaries, read_document_text, read_original,
    sweep_pending_pieces, sweep_stored_contents,
};
use agentd::stores::Stores;
use jiff::Timestamp;
use tokio::task::JoinSet;

use crate::support::cluster::Cluster;
use crate::support::process::AppProcess;
use crate::support::random::Random;
use crate::support::server::{app_config, session_token};
use crate::support::{client, env_number, poll_until, report};

/// Environment variable that overrides the number of rounds.
const ROUNDS_ENV: &str = "DOCUMENT_KILL_ROUNDS";
const DEFAULT_ROUNDS: usize = 4;
const CLIENTS: usize = 2;
/// Number of documents of a client, which it uploads in turn.
const DOCUMENTS: usize = 6;
/// Timeout of a client's request.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause of a client before it repeats a request.
const CLIENT_PAUSE: Duration = Duration::from_millis(5);
/// Number of acknowledged uploads between two kills, and the interval over which the kills are spread.
const UPLOADS_PER_ROUND: u64 = 4;
const KILL_SPREAD: Duration = Duration::from_millis(60);
/// Sizes of the stored pieces.
const ORIGINAL_PIECE_BYTES: usize = 512 * 1024;
const TEXT_PIECE_BYTES: usize = 256 * 1024;

/// Returns the text of an upload. Its beginning identifies the upload; some texts are longer than a record.
fn text(id: &str, upload: usize) -> String {
    let word = format!("{id}/{upload} ");
    let bytes = [100, 5_000, 700_000, 1_200_000][upload % 4];
    word.repeat(bytes / word.len())
}

/// State that the clients share.
struct Shared {
    /// Address of each process, of which the next one has another.
    addresses: Mutex<Vec<SocketAddr>>,
    next: AtomicUsize,
    acknowledged: AtomicUsize,
    is_over: AtomicBool,
}

impl Shared {
    /// Returns the address of one process after the other.
    fn next_address(&self) -> SocketAddr {
        let addresses = self.addresses.lock().expect("unpoisoned");
        addresses[self.next.fetch_add(1, Ordering::Relaxed) % addresses.len()]
    }
}

/// Uploads documents until the end, each until it is acknowledged. Returns the last acknowledged upload of each.
async fn run_client(shared: Arc<Shared>, number: usize) -> HashMap<String, usize> {
    let (client, mut last) = (client(), HashMap::new());
    for upload in 0.. {
        let id = format!("d{number}-{}", upload % DOCUMENTS);
        // A token is valid for less time than many rounds take.
        let token = session_token("u1", "c1");
        loop {
            if shared.is_over.load(Ordering::Relaxed) {
                return last;
            }
            let url = format!("http://{}/api/documents/{id}/content", shared.next_address());
            let request = client.put(url).bearer_auth(&token).header("content-type", "text/plain");
            let sent = request.timeout(CLIENT_TIMEOUT).body(text(&id, upload)).send().await;
            match sent.map(|response| response.status().as_u16()) {
                Ok(200 | 202) => break,
                // The process is away or busy, or has been killed before it answered.
                Err(_) | Ok(409 | 429 | 503) => tokio::time::sleep(CLIENT_PAUSE).await,
                Ok(status) => panic!("{id}: {status}"),
            }
        }
        last.insert(id, upload);
        shared.acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    last
}

async fn start(url: &str) -> AppProcess {
    AppProcess::start(url, 0, &[("CHANGES_PER_MINUTE", "1000000")]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_leave_no_partial_document_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    run_kill_rounds(&format!("sqlite://{}", folder.path().join("app.db").display()), 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_leave_no_partial_document_on_postgres() {
    let cluster = Cluster::start();
    run_kill_rounds(&cluster.url("postgres"), 2).await;
}

async fn run_kill_rounds(url: &str, processes: usize) {
    let rounds = env_number(ROUNDS_ENV, DEFAULT_ROUNDS);
    let mut random = Random::with_seed(1);
    let mut running = Vec::new();
    for _ in 0..processes {
        running.push(start(url).await);
    }
    let addresses = Mutex::new(running.iter().map(|process| process.address).collect());
    let (next, acknowledged, is_over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let shared = Arc::new(Shared { addresses, next, acknowledged, is_over });
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(run_client(shared.clone(), number));
    }
    for round in 0..rounds {
        let count = || shared.acknowledged.load(Ordering::Relaxed);
        let goal = count() + 1 + random.below(UPLOADS_PER_ROUND) as usize;
        poll_until(async || count(), |count| *count >= goal).await;
        // The moment of a kill, within the work on an upload.
        tokio::time::sleep(random.up_to(KILL_SPREAD)).await;
        let process_index = round % processes;
        running.remove(0).kill().await;
        running.push(start(url).await);
        shared.addresses.lock().expect("unpoisoned")[process_index] = running[processes - 1].address;
    }
    shared.is_over.store(true, Ordering::Relaxed);
    let mut last = HashMap::new();
    for log in clients.join_all().await {
        last.extend(log);
    }
    let config = app_config(&[("DATABASE_URL", url)]);
    // PostgreSQL serves both at once; a file has one process.
    if processes == 1 {
        wait_for_extractions(running[0].address).await;
        drop(running);
    }
    let stores = Stores::open(&config).await.expect("the store opens");
    let is_open =
        |document: &Document| document.content.as_ref().is_none_or(|content| !content.status.is_final());
    let open_ids = async || {
        let documents = read_documents(&stores).await.into_iter().filter(is_open);
        documents.map(|document| document.id).collect::<Vec<_>>()
    };
    poll_until(open_ids, Vec::is_empty).await;
    let documents = read_documents(&stores).await;
    let count = documents.len();
    for document in documents {
        check_document(&stores, &document, last.remove(&document.id)).await;
    }
    assert!(last.is_empty(), "acknowledged uploads are lost: {last:?}");
    check_leftovers(&stores).await;
    let acknowledged = shared.acknowledged.load(Ordering::Relaxed);
    report(&format!("{rounds} kills, {acknowledged} uploads of {count} documents"));
}

/// Waits until the process has no document left to extract.
async fn wait_for_extractions(address: SocketAddr) {
    let (client, token) = (client(), session_token("u1", "c1"));
    let fetch = async || {
        let url = format!("http://{address}/api/documents?limit=200");
        let response = client.get(url).bearer_auth(&token).send().await.expect("the server answers");
        response.json::<serde_json::Value>().await.expect("JSON")
    };
    poll_until(fetch, |list| {
        let documents = list["documents"].as_array().expect("a list");
        documents.iter().all(|document| document["status"] == "ready" || document["status"] == "failed")
    })
    .await;
}

async fn read_documents(stores: &Stores) -> Vec<Document> {
    let (company, list) = ("c1".into(), ListQuery { limit: Some(200), ..ListQuery::default() });
    let page = list_document_summaries(&*stores.records, &company, &list).await.expect("listed");
    let mut documents = Vec::new();
    for summary in page.items {
        let stored_document = get_document(&*stores.records, &company, &summary.id).await.expect("read");
        documents.extend(stored_document.map(|record| record.value));
    }
    documents
}

/// Checks that a document is one upload as a whole, and no older one than the acknowledged.
async fn check_document(stores: &Stores, document: &Document, acknowledged: Option<usize>) {
    let (records, company, id) = (&*stores.records, "c1".into(), &document.id);
    let content = document.content.as_ref().expect("an upload");
    assert_eq!(content.error, None, "{id}");
    let original = read_original(records, &company, id, content).await.expect("the original is there");
    let original = String::from_utf8(original.to_vec()).expect("text");
    let word = original.split(' ').next().expect("a word");
    let upload: usize = word.rsplit('/').next().and_then(|number| number.parse().ok()).expect("a number");
    assert!(original == text(id, upload), "the original of {id} is whole");
    assert!(acknowledged.is_none_or(|acknowledged| upload >= acknowledged), "{id} has {upload}");
    let read =
        read_document_text(records, &company, document, 0..usize::MAX).await.expect("the text is there");
    assert!(read.text == original.trim_end(), "the text of {id} is that of its original");
    let long_bytes = if read.text.len() > MAX_DOCUMENT_BYTES { read.text.len() } else { 0 };
    let pieces = original.len().div_ceil(ORIGINAL_PIECE_BYTES) + long_bytes.div_ceil(TEXT_PIECE_BYTES);
    let contents = Collection::new(&company, "documentContents").expect("a name").within(id).expect("a name");
    let pending = Collection::new(&company, "documentUploads").expect("a name");
    if records.count(&pending).await.expect("counted") == 0 {
        assert_eq!(records.count(&contents).await.expect("counted"), pieces as u64, "pieces of {id}");
    }
}

/// Checks that the sweep leaves nothing that was interrupted.
async fn check_leftovers(stores: &Stores) {
    let (records, company) = (&*stores.records, "c1".into());
    let later = Timestamp::now().saturating_add(jiff::SignedDuration::from_hours(1)).expect("a time");
    sweep_pending_pieces(records, &company, None, later).await.expect("swept");
    sweep_stored_contents(records, &company, None).await.expect("swept");
    for document in read_documents(stores).await {
        check_document(stores, &document, None).await;
    }
    let tasks = records.collections("", Some("documentIngestions")).await.expect("listed");
    let tasks: Vec<_> =
        tasks.into_iter().filter(|tasks| tasks.path().starts_with("documentIngestions/")).collect();
    assert_eq!(tasks, [], "no task is left");
}
