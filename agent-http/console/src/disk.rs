//! Files from a folder in place of the embedded ones, for work on the page: edit and reload. Debug builds only.

use std::path::Path;

use bytes::Bytes;

/// Variable with the folder.
const VARIABLE: &str = "AGENTD_CONSOLE_DIR";

/// Reads a file of the table from the folder, if one is set and has the file. `hash` replaces the placeholder in the page
/// and in the widget's loader.
///
/// `name` is a path of the table and not of a request, so it stays within the folder.
pub(crate) fn read(name: &str, hash: &str) -> Option<Bytes> {
    let folder = std::env::var_os(VARIABLE)?;
    let text = std::fs::read_to_string(Path::new(&folder).join(name)).ok()?;
    Some(
        match name {
            "index.html" | "widget.js" => text.replace("{{hash}}", hash),
            _ => text,
        }
        .into(),
    )
}
