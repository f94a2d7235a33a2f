//! `agentd dev`, and files that are not regular ones.

use std::net::TcpListener;
use std::process::Stdio;

use tempfile::TempDir;

use super::{command, run};

/// Returns a port for `dev` that is taken, with its listener.
fn taken_port() -> (TcpListener, String) {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        // The services after the first take the next ports.
        if port < u16::MAX - 2 {
            return (listener, port.to_string());
        }
    }
}

/// As `agentd dev | head -1`. The start ends at its port, which is taken, after the first output.
#[tokio::test]
async fn dev_goes_on_when_its_output_is_closed() {
    let folder = TempDir::new().expect("a folder");
    let (_taken, port) = taken_port();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let (data, workspace) = (folder.path().join("data"), folder.path().join("workspace.json"));
    // The import prints a warning.
    let file = r#"{"agents":[{"id":"a","companyId":"c","content":{"enableAutoRag":true}}]}"#;
    std::fs::write(&workspace, file).expect("written");
    let [data, workspace] = [&data, &workspace].map(|path| path.to_str().expect("UTF-8"));
    let arguments = ["dev", "--port", &port, "--data", data, "--workspace", workspace];
    let mut dev = command(&arguments, &[("OPENAI_API_KEY", "key-canary")]);
    let started = dev.stdout(Stdio::from(writer)).spawn().expect("it starts");
    let output = started.wait_with_output().await.expect("it ends");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert!(stderr.contains("cannot listen on") && !stderr.contains("panicked"), "{stderr}");
}

#[tokio::test]
async fn dev_finds_a_taken_port_before_it_looks_for_models() {
    let folder = TempDir::new().expect("a folder");
    let (_taken, port) = taken_port();
    let ollama = TcpListener::bind("127.0.0.1:0").expect("a free port");
    ollama.set_nonblocking(true).expect("a socket");
    let url = format!("http://{}", ollama.local_addr().expect("an address"));
    let data = folder.path().to_str().expect("UTF-8");
    let error = run(&["dev", "--port", &port, "--data", data], &[("OLLAMA_BASE_URL", &url)]).await.failure();
    assert!(error.contains("cannot listen on"), "{error}");
    let asked = ollama.accept().expect_err("no connection");
    assert_eq!(asked.kind(), std::io::ErrorKind::WouldBlock);
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
