//! Keyword preselection of the tools that a request may need.
//!
//! A model of this size cannot choose tools by itself. It can rank a few intents by the likelihood of the
//! request under each, but scoring takes time per intent. Keyword matching therefore selects the candidates:
//! only the tools whose name and description share most words with the request are scored, and none if no
//! tool shares any.

use agent_core::tool::ToolSpec;

use crate::chat::truncate_chars;

/// Maximum number of tools that are scored against each other.
const MAX_SCORED_TOOLS: usize = 3;
/// Maximum length of a tool description in a prompt, in characters.
const MAX_DESCRIPTION_CHARS: usize = 100;
/// Minimum length of a word that is compared, in characters.
const MIN_WORD_CHARS: usize = 3;
/// Length of the common prefix by which two words match regardless of their endings, in characters.
const STEM_CHARS: usize = 4;
/// Score of a matching verb, in units of one matching word.
const VERB_WEIGHT: usize = 2;

/// Synonyms: verbs that begin tool names, and the words that users use for them.
const VERB_SYNONYMS: [(&[&str], &[&str]); 8] = [
    (
        &["create", "add", "append", "record", "remember"],
        &["add", "put", "new", "note", "remember", "remind"],
    ),
    (&["read", "list", "recall"], &["show", "what", "which", "tell", "give", "see"]),
    (&["get"], &["open", "read", "show", "give", "see"]),
    (&["update", "set"], &["mark", "change", "rename", "finish", "complete", "done"]),
    (&["delete", "remove", "cancel"], &["remove", "drop", "clear", "stop", "cancel"]),
    (&["search", "find"], &["find", "look", "where", "about"]),
    (&["send"], &["write", "notify", "message"]),
    (&["schedule"], &["every", "daily", "weekly", "later"]),
];

/// Intent text for a request that needs no tool.
pub(crate) const TEXT_INTENT: &str = "Request: talk, answer a question or explain something.\nUser:";

/// Returns the intent text for a request that needs this tool.
pub(crate) fn tool_intent(tool: &ToolSpec) -> String {
    format!("Request: {}\nUser:", summary(tool))
}

/// Returns the first sentence of the tool's description, or its name if there is none.
pub(crate) fn summary(tool: &ToolSpec) -> String {
    let sentence = tool.description.split_inclusive(['.', '\n']).next().unwrap_or_default().trim();
    match sentence {
        "" => tool.name.clone(),
        _ => truncate_chars(sentence, MAX_DESCRIPTION_CHARS).into_owned(),
    }
}

/// Returns the tools that share most words with the request, at most [`MAX_SCORED_TOOLS`]; none if no tool matches
/// by more than its verb.
pub(crate) fn preselect_tools<'a, T: AsRef<ToolSpec>>(request: &str, tools: &'a [T]) -> Vec<&'a ToolSpec> {
    let words = words(request);
    let ranked: Vec<(usize, &ToolSpec)> =
        tools.iter().map(|tool| (match_score(&words, tool.as_ref()), tool.as_ref())).collect();
    let best = ranked.iter().map(|(likeness, _)| *likeness).max().unwrap_or(0);
    let alike = ranked.into_iter().filter(|(likeness, _)| best > 0 && *likeness == best);
    alike.map(|(_, tool)| tool).take(MAX_SCORED_TOOLS).collect()
}

fn match_score(request: &[String], tool: &ToolSpec) -> usize {
    let name = words(&split_name(&tool.name));
    let Some((act, things)) = name.split_first() else { return 0 };
    let asks_for = |word: &String| request.iter().any(|request_word| have_common_stem(request_word, word));
    // A match requires a noun of the tool's name in the request, or at least two words of its description.
    let described =
        words(&summary(tool)).iter().filter(|word| word.len() > MIN_WORD_CHARS && asks_for(word)).count();
    let about = if things.is_empty() { asks_for(act) } else { things.iter().any(asks_for) };
    if !about && described < 2 {
        return 0;
    }
    let means = |(acts, synonyms): &(&[&str], &[&str])| {
        acts.contains(&act.as_str()) && request.iter().any(|word| synonyms.contains(&word.as_str()))
    };
    let acted = asks_for(act) || VERB_SYNONYMS.iter().any(means);
    1 + described + if acted { VERB_WEIGHT } else { 0 }
}

/// Splits a camel-case or snake-case name into words: `createTodo` becomes `create Todo`.
fn split_name(name: &str) -> String {
    let mut spaced = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if c.is_uppercase() {
            spaced.push(' ');
        }
        spaced.push(if c == '_' { ' ' } else { c });
    }
    spaced
}

pub(crate) fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.chars().count() >= MIN_WORD_CHARS)
        .map(str::to_lowercase)
        .collect()
}

/// Returns true if two words share a prefix: `docs` and `documents`, `append` and `appends`.
pub(crate) fn have_common_stem(a: &str, b: &str) -> bool {
    let length = |word: &str| word.trim_end_matches('s').chars().count().min(STEM_CHARS);
    let shorter = length(a).min(length(b));
    shorter >= MIN_WORD_CHARS && a.chars().take(shorter).eq(b.chars().take(shorter))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn tool(name: &str, description: &str) -> Arc<ToolSpec> {
        let schema = serde_json::value::RawValue::from_string("{}".to_owned()).unwrap();
        Arc::new(ToolSpec {
            name: name.to_owned(),
            description: description.to_owned(),
            input_schema: Arc::from(schema),
            output_schema: None,
            annotations: None,
            is_client_side: false,
        })
    }

    #[test]
    fn tools_are_preselected_by_words() {
        let tools = [
            tool("createTodo", "Adds a task to the list."),
            tool("getDoc", "Reads one document by its identifier."),
            tool("listDocs", "Lists the documents with identifiers and titles."),
            tool("readTodos", "Reads the tasks of the list."),
            tool("recall", ""),
            tool("updateTodo", "Changes a task: its title or whether it is done."),
        ];
        let cases: [(&str, &[&str]); 7] = [
            ("Add milk to my todos", &["createTodo"]),
            ("Show me my open todos!", &["readTodos"]),
            ("mark the todo t-17 as done", &["updateTodo"]),
            ("Which documents do you have?", &["listDocs"]),
            ("please recall", &["recall"]),
            ("Hello, how are you?", &[]),
            ("", &[]),
        ];
        for (request, expected) in cases {
            let names: Vec<&str> = preselect_tools(request, &tools).iter().map(|t| t.name.as_str()).collect();
            assert_eq!(names, expected, "{request}");
        }
        let equals: Vec<_> = (0..5).map(|n| tool(&format!("todo{n}"), "")).collect();
        assert_eq!(preselect_tools("my todos", &equals).len(), MAX_SCORED_TOOLS);
    }
}
