//! Which tools a request may be about, decided cheaply before the model weighs them.
//!
//! A model of this size does not choose tools by itself. What it can do is tell which of a few
//! intents makes a request likely; but weighing takes time for each, so only tools whose name or
//! description shares a word with the request are weighed, the most alike first.

use std::collections::HashSet;

use agent_core::tool::ToolSpec;

use crate::chat::clipped;

/// How many tools are weighed against each other.
const MAX_WEIGHED: usize = 3;
/// How much of a description tells what a tool does, in characters.
const MAX_DESCRIPTION: usize = 100;
/// Words shorter than this say little.
const MIN_WORD: usize = 4;
/// How much of two words must agree, so that endings do not matter, in characters.
const STEM: usize = 4;

/// The intent of somebody who wants no tool.
pub(crate) const SMALL_TALK: &str =
    "The user wants to talk, asks a general question or wants something explained. The user says:";

/// The intent of somebody who wants a tool called.
pub(crate) fn wanting(tool: &ToolSpec) -> String {
    format!("The user wants the assistant to use {}: {} The user says:", tool.name, summary(tool))
}

/// What a tool does, in a sentence.
pub(crate) fn summary(tool: &ToolSpec) -> String {
    let sentence = tool.description.split_inclusive(['.', '\n']).next().unwrap_or_default().trim();
    clipped(sentence, MAX_DESCRIPTION).into_owned()
}

/// The tools that a request may be about, the most alike first.
pub(crate) fn plausible<'a, T: AsRef<ToolSpec>>(request: &str, tools: &'a [T]) -> Vec<&'a ToolSpec> {
    let asked = stems(request);
    let shared = |tool: &ToolSpec| {
        stems(&format!("{} {}", spaced(&tool.name), summary(tool))).intersection(&asked).count()
    };
    let mut ranked: Vec<(usize, &ToolSpec)> =
        tools.iter().map(|tool| (shared(tool.as_ref()), tool.as_ref())).filter(|(n, _)| *n > 0).collect();
    ranked.sort_by_key(|(shared, _)| std::cmp::Reverse(*shared));
    ranked.into_iter().take(MAX_WEIGHED).map(|(_, tool)| tool).collect()
}

/// `createTodo` as `create Todo`.
fn spaced(name: &str) -> String {
    let mut spaced = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if c.is_uppercase() {
            spaced.push(' ');
        }
        spaced.push(if c == '_' { ' ' } else { c });
    }
    spaced
}

fn stems(text: &str) -> HashSet<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.chars().count() >= MIN_WORD)
        .map(|word| word.to_lowercase().chars().take(STEM).collect())
        .collect()
}
