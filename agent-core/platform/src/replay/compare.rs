//! Comparison of a replay with its record.

use std::collections::{BTreeMap, BTreeSet};

use agent_core::event::{Event, Id};
use agent_core::prompt::PromptTokens;
use serde::Serialize;

use super::bundle::RunBundle;
use super::driver::is_of_turn;
use super::outcome::Replayed;
use super::script::{Script, ScriptCall, of_run};
use crate::conversation::{RunPrompt, RunPromptPart, RunPromptTool, RunSelection};

/// Maximum number of differences of each kind that a report names.
const MAX_DIFFERENCES: usize = 32;
/// Maximum length of an event in a report, in bytes.
const MAX_SHOWN_EVENT_BYTES: usize = 400;

/// Result of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayReport {
    /// The prompt's parts, its tools and the bytes of all requests to the model.
    pub prompt: AspectComparison,
    /// The selection of the backend.
    pub selection: AspectComparison,
    /// The tool calls with their arguments.
    pub tools: AspectComparison,
    /// The events, byte by byte. Message ids are random; each stands for the record's id at the same position.
    pub events: AspectComparison,
}

/// Comparison of one aspect of a run with that of its replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "result", content = "detail", rename_all = "camelCase")]
pub enum AspectComparison {
    /// The run and its replay are equal.
    Identical,
    /// The replay differs.
    Different(Vec<Difference>),
    /// The record does not have it.
    NotRecorded,
}

/// Difference between the record and the replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Name of the differing item, such as a part of the prompt.
    pub name: String,
    /// The record's value; absent if only the replay has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<String>,
    /// The replay's value; absent if only the record has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<String>,
}

impl ReplayReport {
    /// Returns the comparisons with the names of their aspects.
    pub fn aspects(&self) -> [(&'static str, &AspectComparison); 4] {
        let Self { prompt, selection, tools, events } = self;
        [("prompt", prompt), ("selection", selection), ("tools", tools), ("events", events)]
    }

    /// Returns true if no aspect differs and all are recorded.
    pub fn is_identical(&self) -> bool {
        self.aspects().iter().all(|(_, comparison)| **comparison == AspectComparison::Identical)
    }
}

impl AspectComparison {
    fn new(mut differences: Vec<Difference>) -> Self {
        differences.truncate(MAX_DIFFERENCES);
        match differences.is_empty() {
            true => Self::Identical,
            false => Self::Different(differences),
        }
    }
}

impl Difference {
    fn of(name: impl Into<String>, recorded: Option<String>, replayed: Option<String>) -> Option<Self> {
        (recorded != replayed).then(|| Self { name: name.into(), recorded, replayed })
    }
}

pub(super) fn report(bundle: &RunBundle, script: &Script, replayed: &Replayed) -> ReplayReport {
    let recorded = bundle.events.as_deref().unwrap_or_default();
    let again = with_refusal(&replayed.events, recorded, replayed.refusal.as_deref());
    ReplayReport {
        prompt: match &bundle.prompt {
            Some(prompt) => AspectComparison::new(prompt_differences(prompt, bundle, replayed)),
            None => AspectComparison::NotRecorded,
        },
        selection: match &bundle.run.selection {
            Some(selection) => {
                let json = |selection: &RunSelection| serde_json::to_string(selection).ok();
                let again = replayed.record.selection.as_ref();
                AspectComparison::new(
                    Difference::of("backend", json(selection), again.and_then(json)).into_iter().collect(),
                )
            }
            None => AspectComparison::NotRecorded,
        },
        tools: AspectComparison::new(call_differences(script, &replayed.events)),
        events: match bundle.run.events.complete {
            true => AspectComparison::new(event_differences(recorded, &again, replayed.is_stuck)),
            false => AspectComparison::NotRecorded,
        },
    }
}

/// Returns the events of a turn that was refused, with the error that its run is stored with.
fn with_refusal(events: &[Event], recorded: &[Event], refusal: Option<&str>) -> Vec<Event> {
    let mut events = events.to_vec();
    let Some(last) = recorded.last().filter(|_| events.last().is_none_or(|last| !last.is_terminal())) else {
        return events;
    };
    match (refusal, last.clone()) {
        // The error of a turn has no code before it becomes a response, so the messages are compared.
        (Some(refusal), Event::RunError { code, usage, .. }) => {
            events.push(Event::RunError { message: refusal.to_owned(), code, usage });
        }
        (None, last) => events.push(last),
        (Some(_), _) => {}
    }
    events
}

fn prompt_differences(recorded: &RunPrompt, bundle: &RunBundle, replayed: &Replayed) -> Vec<Difference> {
    let Some(again) = &replayed.record.prompt else {
        let why = replayed.refusal.clone().or_else(|| Some("no prompt".to_owned()));
        return Difference::of("prompt", None, why).into_iter().collect();
    };
    let part = |part: &RunPromptPart| {
        let RunPromptPart { stability, placement, sha256, .. } = part;
        (part.id.clone(), format!("{sha256} {stability:?} {placement:?}"))
    };
    let tool = |tool: &RunPromptTool| (format!("tool:{}", tool.name), tool.sha256.clone());
    let entries = |prompt: &RunPrompt| -> Vec<(String, String)> {
        prompt.parts.iter().map(part).chain(prompt.tools.iter().map(tool)).collect()
    };
    let (ours, theirs) = (entries(recorded), entries(again));
    let mut differences = named_differences(&ours, &theirs);
    let order = |entries: &[(String, String)]| {
        entries.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>().join(", ")
    };
    if differences.is_empty() {
        differences.extend(Difference::of("order of parts", Some(order(&ours)), Some(order(&theirs))));
    }
    let counts = |prompt: &RunPrompt| {
        let PromptTokens { system, tools, messages } = prompt.tokens;
        Some(format!("{}, of {messages} tokens (system prompt {system}, tools {tools})", prompt.messages))
    };
    differences.extend(
        Difference::of("messages", counts(recorded), counts(again)).filter(|_| differences.is_empty()),
    );
    let first = Some(recorded.request_sha256.clone());
    differences.extend(Difference::of("request", first, Some(again.request_sha256.clone())));
    let rounds = bundle.inputs.iter().flat_map(|inputs| &inputs.rounds);
    for (index, (round, sha256)) in rounds.zip(&replayed.requests).enumerate().skip(1) {
        if let Some(expected) = &round.request_sha256 {
            let name = format!("request of round {}", index + 1);
            differences.extend(Difference::of(name, Some(expected.clone()), Some(sha256.clone())));
        }
    }
    differences
}

/// Name of an entry, and its number among the entries of the same name.
type EntryKey<'e> = (&'e str, usize);

/// Returns entries by name. Entries of the same name are numbered.
fn numbered_by_name(entries: &[(String, String)]) -> BTreeMap<EntryKey<'_>, &str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut next_number = |name| {
        let count = counts.entry(name).or_default();
        *count += 1;
        *count
    };
    entries.iter().map(|(name, value)| ((name.as_str(), next_number(name)), value.as_str())).collect()
}

/// Returns the differences of entries by name.
fn named_differences(recorded: &[(String, String)], replayed: &[(String, String)]) -> Vec<Difference> {
    let (recorded, replayed) = (numbered_by_name(recorded), numbered_by_name(replayed));
    let keys: BTreeSet<&EntryKey<'_>> = recorded.keys().chain(replayed.keys()).collect();
    let value =
        |entries: &BTreeMap<EntryKey<'_>, &str>, key| entries.get(key).map(|value| (*value).to_owned());
    let differences =
        keys.into_iter().map(|key| Difference::of(key.0, value(&recorded, key), value(&replayed, key)));
    differences.flatten().collect()
}

fn call_differences(script: &Script, events: &[Event]) -> Vec<Difference> {
    let mut replayed_calls: Vec<ScriptCall> = Vec::new();
    for event in events {
        match event {
            Event::ToolCallStart { tool_call_id, tool_call_name, .. } => replayed_calls.push(ScriptCall {
                id: tool_call_id.to_string(),
                name: tool_call_name.clone(),
                arguments: String::new(),
            }),
            Event::ToolCallArgs { tool_call_id, delta } => {
                if let Some(call) = replayed_calls.iter_mut().rev().find(|call| call.id == **tool_call_id) {
                    call.arguments.push_str(delta);
                }
            }
            _ => {}
        }
    }
    // A backend elsewhere may call tools outside of its rounds.
    let recorded: Vec<&ScriptCall> = script.rounds.iter().flat_map(|round| &round.calls).collect();
    if recorded.is_empty() {
        replayed_calls.retain(|call| !script.source.iter().any(|event| is_start_of(event, &call.id)));
    }
    let mut differences = Vec::new();
    for index in 0..recorded.len().max(replayed_calls.len()) {
        let recorded_text = recorded.get(index).map(|call| format!("{}({})", call.name, call.arguments));
        let replayed_text =
            replayed_calls.get(index).map(|call| format!("{}({})", call.name, call.arguments));
        differences.extend(Difference::of(format!("call {}", index + 1), recorded_text, replayed_text));
    }
    differences
}

fn is_start_of(event: &Event, id: &str) -> bool {
    matches!(event, Event::ToolCallStart { tool_call_id, .. } if **tool_call_id == *id)
}

fn event_differences(recorded: &[Event], replayed: &[Event], is_stuck: bool) -> Vec<Difference> {
    let (mut names, mut used) = (BTreeMap::new(), BTreeMap::new());
    let mut replayed_events = replayed.iter().filter(is_of_turn);
    for (index, event) in of_run(recorded).enumerate() {
        let replayed_text = replayed_events.next().cloned().map(|mut replayed_event| {
            rename(&mut replayed_event, event, &mut names, &mut used);
            json(&replayed_event)
        });
        let recorded_text = json(event);
        if replayed_text.as_ref() != Some(&recorded_text) {
            let name = format!("event {}", index + 1);
            let waits = || is_stuck.then(|| "waits for something that is not recorded".to_owned());
            let replayed_text = replayed_text.map(shortened).or_else(waits);
            return Difference::of(name, Some(shortened(recorded_text)), replayed_text).into_iter().collect();
        }
    }
    let further_event = replayed_events.next().map(|event| shortened(json(event)));
    Difference::of("further event", None, further_event).into_iter().collect()
}

/// Replaces the replay's message identifiers in an event by those of the record.
fn rename(event: &mut Event, recorded: &Event, names: &mut BTreeMap<Id, Id>, used: &mut BTreeMap<Id, Id>) {
    let mut recorded = recorded.clone();
    for (ours, theirs) in message_ids(event).into_iter().zip(message_ids(&mut recorded)) {
        if !names.contains_key(ours) && !used.contains_key(theirs) {
            names.insert(ours.clone(), theirs.clone());
            used.insert(theirs.clone(), ours.clone());
        }
        if let Some(name) = names.get(ours) {
            *ours = name.clone();
        }
    }
}

fn message_ids(event: &mut Event) -> Vec<&mut Id> {
    match event {
        Event::ReasoningStart { message_id }
        | Event::ReasoningMessageStart { message_id, .. }
        | Event::ReasoningMessageContent { message_id, .. }
        | Event::ReasoningMessageEnd { message_id }
        | Event::ReasoningEnd { message_id }
        | Event::TextMessageStart { message_id, .. }
        | Event::TextMessageContent { message_id, .. }
        | Event::TextMessageEnd { message_id }
        | Event::ToolCallResult { message_id, .. } => vec![message_id],
        Event::ToolCallStart { parent_message_id, .. } => parent_message_id.iter_mut().collect(),
        _ => Vec::new(),
    }
}

fn json(event: &Event) -> String {
    serde_json::to_string(event).unwrap_or_default()
}

fn shortened(mut text: String) -> String {
    if text.len() > MAX_SHOWN_EVENT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_SHOWN_EVENT_BYTES));
        text.push('…');
    }
    text
}
