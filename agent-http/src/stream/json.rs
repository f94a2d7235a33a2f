//! JSON in the output buffer of the body.

use serde::Serialize;

/// Appends a value as a server-sent event with one `data:` line. JSON from serde contains no newline.
pub(super) fn write_frame(out: &mut Vec<u8>, value: &impl Serialize) {
    out.extend_from_slice(b"data: ");
    write_json(out, value);
    out.extend_from_slice(b"\n\n");
}

/// Appends a value as JSON.
pub(super) fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value)
        .expect("plain data with string keys serialises, and a Vec takes any write");
}
