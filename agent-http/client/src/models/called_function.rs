//! Function of a call, as Chat Completions servers and Ollama send it.

use serde::Deserialize;
use serde_json::value::RawValue;

/// Name and arguments of a call, or pieces of them.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct CalledFunction<'a> {
    pub name: Option<String>,
    #[serde(borrow)]
    pub arguments: Option<&'a RawValue>,
}
