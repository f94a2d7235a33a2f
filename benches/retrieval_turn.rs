//! `cargo bench -p benches --bench retrieval_turn`: time and CPU that retrieval adds to a turn, with documents of about 10,000
//! chunks.
//!
//! Two applications in separate processes have the same documents, the same agent and the same mock vendor; the agent of
//! one of them retrieves from the documents. They answer the same questions in turns, in slices of one connection, within
//! each of five repeats. A turn is a chat over HTTP, from the first byte of its request to the last byte of its response, and
//! the vendor answers at once. The fragments make the request to the vendor longer, which is part of what they add. Figures
//! are medians. `--check` exits with status 1 if the limit is missed.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use benches::answer::Behaviour;
use benches::application::{StoreKind, company_id, question, retrieval, session};
use benches::comparison::{Bound, Comparison, any_missed, environment_line, markdown};
use benches::load::{Connection, Step};
use benches::measure::millis;
use benches::process::CpuTime;
use benches::should_measure;
use benches::subjects::{Bench, Programs, RunningSubject};
use benches::table::median;
use serde_json::{Value, json};

const REPEATS: usize = 5;
/// Number of slices of each application in a repeat, of turns in a slice, and of turns before those.
const SLICES: usize = 12;
const TURNS: usize = 100;
const WARM_UP_TURNS: usize = 10;
const DOCUMENTS: usize = 100;
/// Number of paragraphs of a document. Each is a chunk.
const PARAGRAPHS: usize = 100;
/// Length of a paragraph in bytes, up to a word.
const PARAGRAPH_BYTES: usize = 850;
/// Number of questions, which are asked in turn, and of words of each.
const QUESTIONS: usize = 50;
const QUESTION_WORDS: usize = 6;
/// Maximum time that retrieval may add to a turn.
const MAX_ADDED_MS: f64 = 1.0;
/// Number of attempts to find fragments after the start, each of which waits up to two seconds for the index.
const INDEXING_ATTEMPTS: usize = 30;

fn main() -> Result<ExitCode> {
    if !should_measure(std::env::args().any(|argument| argument == "--bench")) {
        return Ok(ExitCode::SUCCESS);
    }
    let client = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = client.block_on(measure())?;
    println!("{}\n\n{}", environment_line(REPEATS), markdown("what", &rows));
    let is_checked = std::env::args().any(|argument| argument == "--check");
    Ok(if is_checked && any_missed(&rows) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn measure() -> Result<Vec<Comparison>> {
    let programs = Programs {
        upstream: env!("CARGO_BIN_EXE_upstream").into(),
        bare_proxy: env!("CARGO_BIN_EXE_bare_proxy").into(),
        agentd: None,
    };
    let bench = Bench::start(programs)?;
    let app_over = Path::new(env!("CARGO_BIN_EXE_app_over"));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let documents = documents(&mut random);
    let token = session(company_id())?;
    let texts: Vec<String> = (0..QUESTIONS).map(|_| random.words(QUESTION_WORDS)).collect();
    let questions: Vec<Step> = texts.iter().map(|text| question(&token, text)).collect();
    let mut rows = Vec::new();
    for (store, name) in [(StoreKind::Memory, "memory"), (StoreKind::Sqlite, "SQLite")] {
        let start = |retrieves: bool| {
            bench.start_workspace_over(store, &workspace(&bench, &documents, retrieves), app_over)
        };
        let subjects = [start(false)?, start(true)?];
        let chunks = wait_for_index(&subjects[1], &token, &texts[0])?;
        rows.extend(compare(&subjects, &questions, &format!("{chunks} chunks, {name}")).await?);
    }
    Ok(rows)
}

/// Returns the workspace of an agent with documents, of which it retrieves if `retrieves`.
fn workspace(bench: &Bench, documents: &[Value], retrieves: bool) -> Value {
    let ids: Vec<&Value> = documents.iter().map(|document| &document["id"]).collect();
    let content = match retrieves {
        true => json!({"enableAutoRag": true, "ragDocumentIds": ids}),
        false => json!({}),
    };
    let mut workspace = bench.models_workspace(&[Behaviour::First], &content, &json!({}));
    workspace["documents"] = documents.into();
    workspace
}

/// Returns the rows of a store: turns with retrieval beside turns without.
async fn compare(
    subjects: &[RunningSubject; 2],
    questions: &[Step],
    description: &str,
) -> Result<[Comparison; 3]> {
    let (mut times, mut cpu) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for repeat in 0..REPEATS {
        let mut samples = [const { Vec::new() }; 2];
        let mut used = [0.0; 2];
        for slice in 0..SLICES {
            for turn in 0..subjects.len() {
                let index = (repeat + slice + turn) % subjects.len();
                let (slice_times, slice_cpu) = run_slice(&subjects[index], questions).await?;
                samples[index].extend(slice_times);
                used[index] += slice_cpu / (SLICES * TURNS) as f64;
            }
        }
        for (index, samples) in samples.into_iter().enumerate() {
            times[index].push(median(samples));
            cpu[index].push(used[index]);
        }
        eprintln!("{description}: {} of {REPEATS}", repeat + 1);
    }
    let ([without, with], [cpu_without, cpu_with]) = (times, cpu);
    let added: Vec<f64> = with.iter().zip(&without).map(|(with, without)| with - without).collect();
    let row = |name: &str, bound, reference: &[f64], figures: &[f64]| {
        Comparison::new(format!("{name}, {description}"), "ms", bound, reference, figures)
    };
    Ok([
        row("a turn with retrieval beside one without, p50", Bound::Unbounded, &without, &with),
        row("added to a turn, p50", Bound::FigureAtMost(MAX_ADDED_MS), &without, &added),
        row("CPU of a turn with retrieval beside one without", Bound::Unbounded, &cpu_without, &cpu_with),
    ])
}

/// Asks questions one after another on one connection. Returns the time of each turn, and the CPU time of all, in
/// milliseconds.
async fn run_slice(subject: &RunningSubject, questions: &[Step]) -> Result<(Vec<f64>, f64)> {
    let mut connection = Connection::open(subject.address).await?;
    let mut questions = questions.chunks(1).cycle();
    let mut next = || questions.next().context("there are questions");
    for _ in 0..WARM_UP_TURNS {
        connection.exchange(next()?).await?;
    }
    let before = CpuTime::when_idle(&subject.processes)?;
    let mut times = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        let begin = Instant::now();
        connection.exchange(next()?).await?;
        times.push(millis(begin.elapsed()));
    }
    Ok((times, millis(CpuTime::when_idle(&subject.processes)?.since(&before))))
}

/// Waits until all documents are searched and a turn quotes fragments. Returns the number of the documents' chunks, by the mean
/// of those whose index is stored.
fn wait_for_index(subject: &RunningSubject, token: &str, query: &str) -> Result<usize> {
    let is_searched = |shown: &Value| shown["scope"].as_array().is_some_and(|ids| ids.len() == DOCUMENTS);
    let request = retrieval(token, query);
    let mut attempts = (0..INDEXING_ATTEMPTS).map(|_| json_response(subject, &request));
    ensure!(
        attempts.any(|shown| shown.is_ok_and(|shown| is_searched(&shown))),
        "not all documents are searched"
    );
    let turn = response(subject, &question(token, query).request)?;
    ensure!(
        turn.contains("agent.sources") && turn.contains("\"documentId\""),
        "a turn quotes no fragment: {turn}"
    );
    let (mut chunks, mut indexed) = (0, 0);
    for number in 0..DOCUMENTS {
        let path = format!("/api/documents/{}", document_id(number));
        let request = format!("GET {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n\r\n");
        let shown = json_response(subject, request.as_bytes())?;
        if let Some(count) = shown["indexed"]["chunks"].as_u64() {
            chunks += usize::try_from(count)?;
            indexed += 1;
        }
    }
    ensure!(indexed > 0, "no index is stored");
    Ok(chunks * DOCUMENTS / indexed)
}

/// Sends a request and returns the JSON of its response, whose length is stated.
fn json_response(subject: &RunningSubject, request: &[u8]) -> Result<Value> {
    let response = response(subject, request)?;
    let (_, body) = response.split_once("\r\n\r\n").context("a response has a body")?;
    serde_json::from_str(body).with_context(|| format!("no JSON: {response}"))
}

/// Sends a request, with `connection: close`, and returns the whole response.
fn response(subject: &RunningSubject, request: &[u8]) -> Result<String> {
    let mut stream = TcpStream::connect(subject.address)?;
    let line = request.iter().position(|byte| *byte == b'\n').context("a request has a first line")? + 1;
    stream.write_all(&[&request[..line], b"connection: close\r\n", &request[line..]].concat())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

fn document_id(number: usize) -> String {
    format!("document-{number}")
}

fn documents(random: &mut Random) -> Vec<Value> {
    (0..DOCUMENTS)
        .map(|number| {
            let paragraphs: Vec<String> = (0..PARAGRAPHS).map(|_| random.paragraph()).collect();
            json!({"id": document_id(number), "companyId": company_id(), "title": random.words(3), "text": paragraphs.join("\n\n")})
        })
        .collect()
}

/// All words of this project's documentation, as often as they occur, so that texts have the frequencies of a language and words
/// that a tokenizer knows.
static WORDS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let is_word = |word: &&str| word.chars().all(char::is_alphabetic);
    DOCUMENTATION.iter().flat_map(|text| text.split_whitespace()).filter(is_word).collect()
});
const DOCUMENTATION: [&str; 6] = [
    include_str!("../docs/architecture.md"),
    include_str!("../docs/configuration.md"),
    include_str!("../docs/http-api.md"),
    include_str!("../docs/jobs.md"),
    include_str!("../docs/operating.md"),
    include_str!("../docs/security.md"),
];

/// A generator of random texts (xorshift).
struct Random(u64);

impl Random {
    fn paragraph(&mut self) -> String {
        let mut text = String::with_capacity(PARAGRAPH_BYTES);
        while text.len() < PARAGRAPH_BYTES {
            text.push_str(&self.words(9));
            text.push_str(". ");
        }
        text.truncate(text[..PARAGRAPH_BYTES].rfind(' ').unwrap_or(PARAGRAPH_BYTES));
        text
    }

    fn words(&mut self, count: usize) -> String {
        let words: Vec<&str> = (0..count).map(|_| self.word()).collect();
        words.join(" ")
    }

    /// Returns a word of the documentation, with its frequency there.
    fn word(&mut self) -> &'static str {
        let words = &*WORDS;
        words[(self.uniform() * words.len() as f64) as usize]
    }

    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
