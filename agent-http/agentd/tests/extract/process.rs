//! The process of an extraction: its limits, its end, and other programs in its place.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::*;

/// A program that misbehaves in a way for each media type.
const MISBEHAVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/extract/misbehave.sh");
/// Time within which a condition becomes true.
const DEADLINE: Duration = Duration::from_secs(60);

fn misbehaving(timeout: Duration, processes: usize) -> Arc<ProcessExtractor> {
    let config = ExtractionConfig { timeout, processes, ..ExtractionConfig::default() };
    Arc::new(ProcessExtractor::with_program(MISBEHAVE, config))
}

/// Waits until a condition is true.
async fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the processes that this process has started and that have not ended.
fn children() -> Vec<String> {
    let process_id = std::process::id().to_string();
    let is_child = |process: &String| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        fields.get(1) == Some(&process_id.as_str()) && fields[0] != "Z"
    };
    let entries = std::fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.unwrap().file_name().into_string().ok()).filter(is_child).collect()
}

#[tokio::test]
async fn each_end_of_a_process_has_its_error() {
    let extractor = misbehaving(Duration::from_secs(60), 1);
    // More than a pipe holds: the processes do not read it.
    let document = vec![b' '; 1024 * 1024];
    for (media_type, expected) in [
        ("text/html", ExtractError::LimitExceeded("an output of 20971520 bytes".to_owned())),
        ("text/csv", ExtractError::LimitExceeded("the memory".to_owned())),
        ("text/markdown", ExtractError::LimitExceeded("the processor time".to_owned())),
        ("application/json", ExtractError::Malformed("its reader failed".to_owned())),
        ("text/plain", ExtractError::Unavailable("its output is incomplete (exit status: 0)".to_owned())),
        ("image/png", ExtractError::Unavailable("its output is incomplete (signal: 9 (SIGKILL))".to_owned())),
    ] {
        assert_eq!(
            extract(&extractor, media_type, document.clone()).await.unwrap_err(),
            expected,
            "{media_type}"
        );
    }
    let missing = ProcessExtractor::with_program("/nonexistent", ExtractionConfig::default());
    let error = extract(&missing, "text/plain", "text").await.unwrap_err();
    assert_eq!(
        error,
        ExtractError::Unavailable("its process cannot be started: entity not found".to_owned())
    );
}

#[tokio::test]
async fn a_process_that_loops_is_ended() {
    let extractor = misbehaving(Duration::from_millis(300), 1);
    let error = extract(&extractor, "application/pdf", "text").await.unwrap_err();
    assert_eq!(error, ExtractError::LimitExceeded("the time of 0.3 s".to_owned()));
    assert_eq!(children(), [""; 0]);
}

#[tokio::test]
async fn dropping_the_extraction_ends_its_process_and_frees_its_place() {
    let extractor = misbehaving(DEADLINE, 1);
    let first = tokio::spawn({
        let extractor = extractor.clone();
        async move { extract(&extractor, "application/pdf", "text").await.map(drop) }
    });
    wait_for("a process is started", || children().len() == 1).await;
    let second = tokio::spawn({
        let extractor = extractor.clone();
        async move { extract(&extractor, "application/json", "text").await.map(drop) }
    });
    tokio::task::yield_now().await;
    assert_eq!(children().len(), 1, "there is one place");
    first.abort();
    assert_eq!(second.await.unwrap(), Err(ExtractError::Malformed("its reader failed".to_owned())));
    wait_for("no process is left", || children().is_empty()).await;
}

/// Starts `agentd extract` with its standard input open.
fn start(arguments: &[&str]) -> std::process::Child {
    Command::new(AGENTD)
        .arg("extract")
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn limits_are_set_before_the_document_is_read() {
    let mut child = start(&["text/plain", "--memory", "1073741824", "--cpu", "60"]);
    let limits = format!("/proc/{}/limits", child.id());
    let has = |limits: &str, name: &str, value: &str| {
        limits
            .lines()
            .any(|line| line.strip_prefix(name).is_some_and(|limit| limit.trim().starts_with(value)))
    };
    wait_for("the limits are set", || {
        let limits = std::fs::read_to_string(&limits).unwrap();
        has(&limits, "Max address space", "1073741824")
            && has(&limits, "Max cpu time", "60 ")
            && has(&limits, "Max core file size", "0 ")
    })
    .await;
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_processor_time_is_limited() {
    let mut child = start(&["application/json", "--memory", "8589934592", "--cpu", "1"]);
    let mut stdin = child.stdin.take().unwrap();
    // The process may end before it has read everything.
    let _ = stdin.write_all(format!("[{}1]", "{\"a\":1},".repeat(8_000_000)).as_bytes());
    drop(stdin);
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::XCPU.as_raw()));
}
