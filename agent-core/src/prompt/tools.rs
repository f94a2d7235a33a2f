//! The definitions of a turn's tools, serialized once.

use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::dialect::{Dialect, push_list};
use super::part::{Part, PartHash};
use crate::budget::TokenCounter;
use crate::tool::ToolSpec;

/// A set of tools with its cached derived forms.
#[derive(Debug)]
pub(super) struct ToolSet {
    pub(super) specs: Box<[Arc<ToolSpec>]>,
    /// The text whose tokens are counted.
    pub(super) text: Arc<Part>,
    json: [OnceLock<Box<[u8]>>; Dialect::COUNT],
    hashes: OnceLock<Box<[PartHash]>>,
}

impl ToolSet {
    /// Creates the set; `text` must be [`definitions_text`](Self::definitions_text) the same tools.
    pub(super) fn new(specs: &[Arc<ToolSpec>], text: Arc<Part>) -> Self {
        Self { specs: specs.into(), text, json: Default::default(), hashes: OnceLock::new() }
    }

    /// Returns the text of the definitions, without the wire syntax around it.
    pub(super) fn definitions_text(tools: &[Arc<ToolSpec>]) -> String {
        let mut text = String::new();
        for tool in tools {
            for piece in [&tool.name, &tool.description, tool.input_schema.get()] {
                text.push_str(piece);
                text.push('\n');
            }
        }
        text
    }

    pub(super) fn tokens(&self, counter: &dyn TokenCounter) -> usize {
        self.text.tokens(counter)
    }

    /// Returns the definitions' identifiers and hashes, in order.
    pub(super) fn hashes(&self) -> &[PartHash] {
        self.hashes.get_or_init(|| {
            let mut json = Vec::new();
            let mut hash_tool = |tool: &Arc<ToolSpec>| {
                json.clear();
                push_tool_json(tool, Dialect::AgUi, &mut json);
                let id = format!("tool:{}", tool.name).into();
                PartHash { id, sha256: hex::encode(Sha256::digest(&json)).into() }
            };
            self.specs.iter().map(&mut hash_tool).collect()
        })
    }

    /// Returns the definitions as JSON values separated by commas.
    pub(super) fn json(&self, dialect: Dialect) -> &[u8] {
        self.json[dialect.index()].get_or_init(|| {
            let mut json = Vec::new();
            push_list(&self.specs, &mut json, |tool, json| push_tool_json(tool, dialect, json));
            json.into()
        })
    }
}

/// Appends a tool's definition as JSON: MCP's `{name,description,inputSchema}` for AG-UI, a function for Chat Completions.
pub fn push_tool_json(tool: &ToolSpec, dialect: Dialect, out: &mut Vec<u8>) {
    let ToolSpec { name, description, input_schema, .. } = tool;
    let written = match dialect {
        Dialect::AgUi => serde_json::to_writer(out, &McpTool { name, description, input_schema }),
        Dialect::ChatCompletions => {
            let function = FunctionTool { name, description, parameters: input_schema };
            serde_json::to_writer(out, &ChatTool::Function { function })
        }
    };
    written.expect("plain data serialises into memory");
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct McpTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum ChatTool<'a> {
    Function { function: FunctionTool<'a> },
}

#[derive(Serialize)]
struct FunctionTool<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a RawValue,
}
