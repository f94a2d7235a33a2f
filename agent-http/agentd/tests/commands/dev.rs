//! `agentd dev`, and files that are not regular ones.

use std::net::TcpListener;
use std::process::Stdio;

use tempfile::TempDir;

use super::{command, run};

/// As `agentd dev | head -1`. The start ends at its port, which is taken, after the first output.
#[tokio::test]
async fn dev_goes_on_when_its_output_is_closed() {
    let folder = TempDir::new().expect("a folder");
    let (_taken, port) = loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        // The services after the first take the next ports.
        if port < u16::MAX - 2 {
            break (listener, port.to_string());
        }
    };
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let data = folder.path().join("data");
    let arguments = ["dev", "--port", &port, "--data", data.to_str().expect("UTF-8")];
    let mut dev = command(&arguments, &[("OPENAI_API_KEY", "key-canary")]);
    let started = dev.stdout(Stdio::from(writer)).spawn().expect("it starts");
    let output = started.wait_with_output().await.expect("it ends");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert!(stderr.contains("cannot listen on") && !stderr.contains("panicked"), "{stderr}");
}

#[tokio::test]
async fn a_bundle_may_be_in_a_file_of_any_kind() {
    // The standard input is empty.
    let error = run(&["replay", "/dev/stdin"], &[]).await.failure();
    assert!(error.contains("this is not a bundle of a run"), "{error}");
    let folder = TempDir::new().expect("a folder");
    let error = run(&["replay", folder.path().to_str().expect("UTF-8")], &[]).await.failure();
    assert!(error.contains("cannot be read"), "{error}");
    let error = run(&["replay", "none.json"], &[]).await.failure();
    assert!(error.contains("there is no file \"none.json\""), "{error}");
}
