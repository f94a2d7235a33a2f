//! Output that is not read to its end.

use super::start;

#[tokio::test]
async fn a_reader_that_ends_early_is_no_error() {
    let mut child = start(&["openapi"], &[]);
    // The description is larger than the buffer of a pipe, so the command writes to a pipe without a reader.
    drop(child.stdout.take());
    let output = child.wait_with_output().await.expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(141), "as of a program that SIGPIPE has ended");
}
