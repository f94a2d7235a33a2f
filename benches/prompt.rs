//! `cargo bench -p benches --bench prompt`: cost of assembling a prompt beside a copy of its bytes.
//!
//! The prompt has 40 prompt blocks, 20 documents, 100 messages and 8 fragments of the turn. Each figure is the median
//! of five repeats, in each of which the reference and all subjects run in turns in short slices; a ratio is one of
//! medians. The reference copies the same bytes into a newly allocated buffer, allocated as the subject allocates its
//! own. Allocation is within the measured time on both sides, deallocation is not. `--check` exits with status 1 if a
//! limit is exceeded.
#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::backend::{BackendCapabilities, PreparedRequest, Turn};
use agent_core::budget::{EstimateCounter, TokenBudget, TokenCounter};
use agent_core::event::RunIds;
use agent_core::message::{Message, Role};
use agent_core::payload::Payload;
use agent_core::prompt::{AssemblyInput, Dialect, Part, PartCache, Prompt, PromptMessage, assemble};
use agent_core::prompt::{Fragment, Stability};
use agent_core::role::{EmbeddedAi, RagPlacement, RoleBlock};
use agent_core::select::{BackendChoice, select_backend};
use agent_core::tool::ToolChoice;
use agent_core::tool::{ExecutionContext, ToolSpec};
use agent_core::turn::PreparedTurn;
use agent_platform::preview::{Manifest, Preview};
use benches::table::median;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use sha2::{Digest, Sha256};

const REPEATS: usize = 5;
/// Number of messages of the prompt in the table's first part.
const MESSAGES: usize = 100;
/// Number and length of each subject's slices per repeat.
const SLICES: usize = 20;
const SLICE: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    let check = std::env::args().any(|argument| argument == "--check");
    let mut table = Table::default();
    one_prompt(&mut table);
    one_preview(&mut table);
    by_length(&mut table);
    print!("{}", table.text);
    if check && table.missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Measures text, body and hash of a prompt of typical size.
fn one_prompt(table: &mut Table) {
    let case = Case::new(MESSAGES);
    let prompt = case.assemble(case.fragments.clone(), case.history.clone());
    let text = prompt_text(&prompt);
    let body = case.body(&prompt);

    let [copy, assembly, turn] = medians([
        &mut || timed(|| copied(text.as_bytes())),
        &mut || {
            let (fragments, history) = (case.fragments.clone(), case.history.clone());
            timed(|| {
                let prompt = case.assemble(fragments, history);
                (prompt_text(&prompt), prompt)
            })
        },
        &mut || {
            timed(|| {
                let prompt = case.assemble(case.fragments.clone(), case.history.clone());
                let text = prompt_text(&prompt);
                drop(prompt);
                text
            })
        },
    ]);
    table.head("the prompt's text", text.len(), "copy", copy);
    table.row("assembly into its text, counts cached", assembly, copy, Some(2.5));
    table.row("the same, with its input cloned before and dropped after", turn, copy, None);

    let by_content = PartCache::by_content(256 << 20);
    let assembled = |cache| {
        let (fragments, history) = (case.fragments.clone(), case.history.clone());
        timed(|| {
            let prompt = case.assemble_with(cache, fragments, history);
            (prompt_text(&prompt), prompt)
        })
    };
    // Assembled once, to fill the cache.
    assembled(&by_content);
    let [by_address, by_content] = medians([&mut || assembled(&case.cache), &mut || assembled(&by_content)]);
    table.head("assembly into text, segments found by address", text.len(), "address", by_address);
    table.row("the same, segments found by content", by_content, by_address, None);

    let [copy, write, fresh] =
        medians([&mut || timed(|| copied(body.bytes())), &mut || timed(|| case.body(&prompt)), &mut || {
            let (fragments, history) = case.next_turn();
            timed(|| {
                let prompt = case.assemble(fragments, history);
                (case.body(&prompt), prompt)
            })
        }]);
    table.head("the request's body", body.bytes().len(), "copy", copy);
    table.row("the body from an assembled prompt", write, copy, Some(4.0));
    table.row("assembly and body, time and latest message new", fresh, copy, Some(4.0));

    let [raw, hash] = medians([&mut || timed(|| hex::encode(Sha256::digest(body.bytes()))), &mut || {
        timed(|| body.sha256())
    }]);
    table.head("the request's hash", body.bytes().len(), "SHA-256", raw);
    table.row("`Payload::sha256`", hash, raw, Some(1.1));
}

/// Measures a preview beside a run up to the point where its request is sent: both include the request and its hash.
fn one_preview(table: &mut Table) {
    let case = Case::new(MESSAGES);
    let prepared = || {
        let (fragments, history) = case.next_turn();
        case.prepared(case.assemble(fragments, history))
    };
    let bytes = prepared().request.payload.bytes().len();
    let [run, preview, written] = medians([
        &mut || {
            timed(|| {
                let prepared = prepared();
                (prepared.request.payload.sha256(), prepared)
            })
        },
        &mut || {
            timed(|| {
                let prepared = prepared();
                (Preview::new(&prepared, None), prepared)
            })
        },
        &mut || {
            timed(|| {
                let prepared = prepared();
                (serde_json::to_vec(&Preview::new(&prepared, None)).expect("plain data"), prepared)
            })
        },
    ]);
    table.head("a turn that is ready to be sent, with its hash", bytes, "run", run);
    table.row("the preview of the same turn", preview, run, Some(1.2));
    table.row("the same, with its answer written", written, run, None);
}

/// Measures the cost per byte as conversations grow. Nothing is trimmed.
fn by_length(table: &mut Table) {
    let mut first = None;
    for messages in [100, 1_000, 10_000] {
        let case = Case::new(messages);
        let prompt = case.assemble(case.fragments.clone(), case.history.clone());
        let text = prompt_text(&prompt);
        drop(prompt);
        let per_byte = medians([
            &mut || timed(|| copied(text.as_bytes())),
            &mut || {
                let (fragments, history) = (case.fragments.clone(), case.history.clone());
                timed(|| {
                    let prompt = case.assemble(fragments, history);
                    (prompt_text(&prompt), prompt)
                })
            },
            &mut || timed_on_cpu(|| case.assemble_uncached()),
        ])
        .map(|nanoseconds| nanoseconds / text.len() as f64);
        table.length(messages, text.len(), per_byte, *first.get_or_insert(per_byte));
    }
}

/// The inputs of a prompt, with all derived forms cached.
struct Case {
    role: Arc<RoleBlock>,
    cache: PartCache,
    fragments: Vec<Fragment>,
    history: Vec<Arc<PromptMessage>>,
    messages: Vec<Arc<Message>>,
    tools: Vec<Arc<ToolSpec>>,
    counter: Arc<dyn TokenCounter>,
}

impl Case {
    fn new(messages: usize) -> Self {
        let cache = PartCache::new(256 << 20);
        let messages: Vec<_> = (0..messages).map(message).map(Arc::new).collect();
        let role = json!({"id": "a", "companyId": "c", "children": [{"name": "EmbeddedAI"}]});
        let case = Self {
            role: Arc::new(serde_json::from_value(role).expect("a role")),
            fragments: fragments(&cache),
            history: cache.history(&messages),
            tools: (0..20).map(tool).collect(),
            counter: Arc::new(EstimateCounter),
            messages,
            cache,
        };
        // Assembled once, to fill the caches.
        let prompt = case.assemble(case.fragments.clone(), case.history.clone());
        black_box((Manifest::new(&prompt), case.body(&prompt)));
        case
    }

    fn assemble(&self, fragments: Vec<Fragment>, history: Vec<Arc<PromptMessage>>) -> Prompt {
        self.assemble_with(&self.cache, fragments, history)
    }

    fn assemble_with(
        &self,
        cache: &PartCache,
        fragments: Vec<Fragment>,
        history: Vec<Arc<PromptMessage>>,
    ) -> Prompt {
        assemble(AssemblyInput {
            fragments,
            history,
            tools: &self.tools,
            budget: TokenBudget { max_prompt_tokens: usize::MAX },
            counter: Arc::clone(&self.counter),
            retrieval: Some(RagPlacement::SystemPrompt),
            cache,
            history_report: None,
        })
        .expect("nothing is too long for this budget")
    }

    /// Returns the input of a turn in which the time and the latest message are new.
    fn next_turn(&self) -> (Vec<Fragment>, Vec<Arc<PromptMessage>>) {
        let mut fragments = self.fragments.clone();
        let time = fragments.iter_mut().find(|fragment| &*fragment.id == "time").expect("there is a time");
        time.part = Part::new(time.part.text());
        let mut history = self.history.clone();
        let latest = history.last_mut().expect("there are messages");
        *latest = PromptMessage::new(latest.original().clone());
        (fragments, history)
    }

    /// Returns a Chat Completions request, serialized as the vendor's adapter does.
    fn body(&self, prompt: &Prompt) -> Payload {
        let mut body = Payload::builder(prompt.json_len(Dialect::ChatCompletions) + 256);
        body.raw(r#"{"model":"a-model","stream":true,"tools":["#);
        prompt.push_tools_json(Dialect::ChatCompletions, body.buffer());
        body.raw(r#"],"messages":[{"role":"system","content":"#);
        prompt.push_system_json(body.buffer());
        body.raw("},");
        prompt.push_messages_json(Dialect::ChatCompletions, body.buffer());
        body.raw("]}");
        body.finish()
    }

    /// Returns a turn with this prompt, ready to be sent.
    fn prepared(&self, prompt: Prompt) -> PreparedTurn {
        let payload = self.body(&prompt);
        let turn = Turn {
            run: RunIds { thread_id: "t".into(), run_id: "r".into() },
            role: Arc::clone(&self.role),
            choice: BackendChoice::Embedded(EmbeddedAi::default()),
            prompt: Arc::new(prompt),
            tools: self.tools.clone().into(),
            context: ExecutionContext::default(),
            tool_choice: ToolChoice::default(),
            thinking: None,
            response_format: None,
            run_token: None,
        };
        PreparedTurn {
            selection: select_backend(&self.role),
            capabilities: BackendCapabilities::new(TokenBudget { max_prompt_tokens: usize::MAX }),
            request: PreparedRequest { payload, turn: Arc::new(turn) },
        }
    }

    /// Builds a request from uncached texts and messages: cache, counts, part hashes, JSON, and the request's hash.
    fn assemble_uncached(&self) -> (Payload, String, Prompt) {
        let cache = PartCache::new(256 << 20);
        let fragments = self.fragments.iter().map(|fragment| {
            let part = cache.part(fragment.part.text());
            Fragment::new(Arc::clone(&fragment.id), fragment.source, fragment.stability, part)
        });
        let prompt = self.assemble_with(&cache, fragments.collect(), cache.history(&self.messages));
        let body = self.body(&prompt);
        black_box(Manifest::new(&prompt));
        let hash = body.sha256();
        (body, hash, prompt)
    }
}

/// Returns the whole prompt as text, in a buffer of the exact size.
fn prompt_text(prompt: &Prompt) -> String {
    let mut text = String::with_capacity(prompt.text_len());
    prompt.push_system_text(&mut text);
    for message in prompt.messages() {
        message.push_text(&mut text);
    }
    text
}

fn copied(bytes: &[u8]) -> Vec<u8> {
    let mut copy = Vec::with_capacity(bytes.len());
    copy.extend_from_slice(black_box(bytes));
    copy
}

fn fragments(cache: &PartCache) -> Vec<Fragment> {
    let fragment = |id: String, source, stability, bytes, seed| {
        Fragment::new(id, source, stability, cache.part(prose(bytes, seed)))
    };
    let blocks = (0..40).map(|i| fragment(format!("block:{i}"), "role", Stability::Role, 520, i));
    let documents =
        (0..20).map(|i| fragment(format!("doc:{i}"), "documents", Stability::Agent, 2_048, 100 + i));
    let session = fragment("tool-context".into(), "tool-context", Stability::Session, 250, 200);
    let retrieved = (0..5).map(|i| fragment(format!("hit:{i}"), "retrieval", Stability::Turn, 900, 300 + i));
    let time = fragment("time".into(), "caller", Stability::Turn, 60, 400);
    let page = fragment("page-context".into(), "page", Stability::Turn, 1_500, 500);
    blocks.chain(documents).chain([session]).chain(retrieved).chain([time, page]).collect()
}

fn message(i: usize) -> Message {
    let role = if i.is_multiple_of(2) { Role::Assistant } else { Role::User };
    Message::text(role, prose(394, 1_000 + i))
}

fn tool(i: usize) -> Arc<ToolSpec> {
    let properties: serde_json::Map<_, _> = (0..8)
        .map(|p| (format!("property{p}"), json!({"type": "string", "description": prose(110, i * 8 + p)})))
        .collect();
    let spec = json!({
        "name": format!("tool{i}"),
        "description": prose(120, i),
        "inputSchema": {"type": "object", "properties": properties},
    });
    Arc::new(serde_json::from_value(spec).expect("a tool's definition"))
}

/// Returns Markdown of `bytes` bytes, different for each seed, with about as many quotes and newlines as people and
/// models write.
fn prose(bytes: usize, seed: usize) -> String {
    const WORDS: [&str; 24] = [
        "the",
        "customer",
        "asks",
        "whether",
        "a",
        "delivery",
        "\"tomorrow\"",
        "is",
        "possible;",
        "answer",
        "politely,",
        "name",
        "the",
        "**exact**",
        "day",
        "and",
        "never",
        "promise\n",
        "what",
        "`readTodos`",
        "does",
        "not",
        "say.\n\n-",
        "Grüße",
    ];
    let mut text = String::with_capacity(bytes + 16);
    let mut state = (seed as u64).wrapping_mul(0x9E37_79B9) + 1;
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(WORDS[(state >> 33) as usize % WORDS.len()]);
        text.push(' ');
    }
    while text.len() > bytes {
        text.pop();
    }
    text
}

/// Returns the time that `work` takes, without dropping its result.
fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let begin = Instant::now();
    let made = black_box(work());
    let elapsed = begin.elapsed();
    drop(made);
    elapsed
}

/// Returns the CPU time that `work` takes, for work long enough to be preempted.
fn timed_on_cpu<T>(work: impl FnOnce() -> T) -> Duration {
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("time is not negative");
    let begin = now();
    let made = black_box(work());
    let elapsed = now() - begin;
    drop(made);
    elapsed
}

/// Returns each subject's median over the repeats, in nanoseconds. A repeat's figure is the median of its runs, so
/// that other activity on the machine does not count.
fn medians<const N: usize>(mut subjects: [&mut dyn FnMut() -> Duration; N]) -> [f64; N] {
    let mut repeats = [(); N].map(|()| Vec::with_capacity(REPEATS));
    for _ in 0..REPEATS {
        let mut runs = [(); N].map(|()| Vec::new());
        for _ in 0..SLICES {
            for (subject, runs) in subjects.iter_mut().zip(&mut runs) {
                run(subject, runs);
            }
        }
        let mut clock = Vec::new();
        run(&mut || timed(|| ()), &mut clock);
        let clock = median(clock);
        for (repeat, runs) in repeats.iter_mut().zip(runs) {
            repeat.push(median(runs) - clock);
        }
    }
    repeats.map(median)
}

/// Runs a subject for a slice, after warm-up runs that refill the CPU caches that the previous subject has evicted.
fn run(subject: &mut dyn FnMut() -> Duration, runs: &mut Vec<f64>) {
    for _ in 0..5 {
        subject();
    }
    let begin = Instant::now();
    while begin.elapsed() < SLICE {
        runs.push(subject().as_nanos() as f64);
    }
}

#[derive(Default)]
struct Table {
    text: String,
    missed: bool,
    grows: bool,
}

impl Table {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.text.push_str(&format!("{line}\n"));
    }

    fn head(&mut self, description: &str, bytes: usize, reference: &str, nanoseconds: f64) {
        if self.text.is_empty() {
            self.line(format_args!("| what | time | ratio | limit | |\n|---|---:|---:|---:|---|"));
        }
        self.line(format_args!(
            "| {description}, {bytes} bytes: {reference} | {:.2} µs | 1 | – | – |",
            nanoseconds / 1e3
        ));
    }

    fn row(&mut self, description: &str, nanoseconds: f64, reference: f64, limit: Option<f64>) {
        let ratio = nanoseconds / reference;
        let verdict = limit.map_or("– | – |".to_owned(), |limit| self.verdict(ratio, limit));
        let time = nanoseconds / 1e3;
        self.line(format_args!("| {description} | {time:.2} µs | {ratio:.2} | {verdict}"));
    }

    /// Adds a row for one conversation length. The limit is on the growth of the cost per byte without caches. With
    /// caches, the cost per byte is mostly that of the copy, which itself rises once the data exceeds the CPU caches,
    /// so its growth is reported without a limit.
    fn length(&mut self, messages: usize, bytes: usize, now: [f64; 3], first: [f64; 3]) {
        if !self.grows {
            self.grows = true;
            self.line(format_args!(
                "\n| messages | bytes | copy, ns/byte | cached, ns/byte | anew, ns/byte | cached to copy \
                 | growth of copy | of cached | of anew | limit of anew | |\n\
                 |---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"
            ));
        }
        let [copy, cached, anew] = now;
        let figures = format!("{copy:.4} | {cached:.4} | {anew:.3} | {:.2}", cached / copy);
        let growth = [0, 1, 2].map(|i| now[i] / first[i]);
        let growths = growth.map(|growth| format!("{growth:.2}")).join(" | ");
        let verdict = self.verdict(growth[2], 1.3);
        self.line(format_args!("| {messages} | {bytes} | {figures} | {growths} | {verdict}"));
    }

    fn verdict(&mut self, ratio: f64, limit: f64) -> String {
        let met = ratio <= limit;
        self.missed |= !met;
        format!("≤ {limit} | {} |", if met { "met" } else { "**missed**" })
    }
}
