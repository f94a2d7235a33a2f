//! Which tools a request may be about, decided cheaply before the model weighs them.
//!
//! A model of this size does not choose tools by itself. What it can do is tell which of a few
//! intents makes a request likely; but weighing takes time for each. So words decide first: only the
//! tools whose name and description share most with the request are weighed, and none if none does.

use agent_core::tool::ToolSpec;

use crate::chat::clipped;

/// How many tools are weighed against each other.
const MAX_WEIGHED: usize = 3;
/// How much of a description tells what a tool does, in characters.
const MAX_DESCRIPTION: usize = 100;
/// Words shorter than this say nothing about a tool.
const MIN_WORD: usize = 3;
/// How much of two words must agree, so that endings do not matter, in characters.
const STEM: usize = 4;
/// What a common act counts for, in common words.
const ACT_WEIGHT: usize = 2;

/// Words by which people ask for what tools' names call by their first word.
const ACTS: [(&[&str], &[&str]); 8] = [
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

/// The intent of somebody who wants no tool.
pub(crate) const SMALL_TALK: &str = "Request: talk, answer a question or explain something.\nUser:";

/// The intent of somebody who wants a tool called.
pub(crate) fn wanting(tool: &ToolSpec) -> String {
    format!("Request: {}\nUser:", summary(tool))
}

/// What a tool does, in a sentence.
pub(crate) fn summary(tool: &ToolSpec) -> String {
    let sentence = tool.description.split_inclusive(['.', '\n']).next().unwrap_or_default().trim();
    match sentence {
        "" => tool.name.clone(),
        _ => clipped(sentence, MAX_DESCRIPTION).into_owned(),
    }
}

/// The tools that share most with a request; none if none shares anything but an act.
pub(crate) fn plausible<'a, T: AsRef<ToolSpec>>(request: &str, tools: &'a [T]) -> Vec<&'a ToolSpec> {
    let words = words(request);
    let ranked: Vec<(usize, &ToolSpec)> =
        tools.iter().map(|tool| (likeness(&words, tool.as_ref()), tool.as_ref())).collect();
    let best = ranked.iter().map(|(likeness, _)| *likeness).max().unwrap_or(0);
    let alike = ranked.into_iter().filter(|(likeness, _)| best > 0 && *likeness == best);
    alike.map(|(_, tool)| tool).take(MAX_WEIGHED).collect()
}

fn likeness(request: &[String], tool: &ToolSpec) -> usize {
    let name = words(&spaced(&tool.name));
    let Some((act, things)) = name.split_first() else { return 0 };
    let asks_for = |word: &String| request.iter().any(|asked| alike(asked, word));
    // A thing in the name must be asked about, or described in the words of the request.
    let described =
        words(&summary(tool)).iter().filter(|word| word.len() > MIN_WORD && asks_for(word)).count();
    let about = if things.is_empty() { asks_for(act) } else { things.iter().any(asks_for) };
    if !about && described < 2 {
        return 0;
    }
    let means = |(acts, said): &(&[&str], &[&str])| {
        acts.contains(&act.as_str()) && request.iter().any(|word| said.contains(&word.as_str()))
    };
    let acted = asks_for(act) || ACTS.iter().any(means);
    1 + described + if acted { ACT_WEIGHT } else { 0 }
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

fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.chars().count() >= MIN_WORD)
        .map(str::to_lowercase)
        .collect()
}

/// Whether two words begin alike: `docs` and `documents`, `append` and `appends`.
fn alike(a: &str, b: &str) -> bool {
    let length = |word: &str| word.trim_end_matches('s').chars().count().min(STEM);
    let shorter = length(a).min(length(b));
    shorter >= MIN_WORD && a.chars().take(shorter).eq(b.chars().take(shorter))
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
        })
    }

    #[test]
    fn words_tell_which_tools_are_worth_weighing() {
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
            let names: Vec<&str> = plausible(request, &tools).iter().map(|t| t.name.as_str()).collect();
            assert_eq!(names, expected, "{request}");
        }
        let equals: Vec<_> = (0..5).map(|n| tool(&format!("todo{n}"), "")).collect();
        assert_eq!(plausible("my todos", &equals).len(), MAX_WEIGHED);
    }
}
