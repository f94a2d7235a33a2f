//! Model test: clients of several kinds hold dialogues with edits, regenerations and switches between branches. After
//! each request, the prompt must be what the user sees, and no message may be stored twice.

use super::*;

/// Environment variable that overrides the number of dialogues of each kind of client.
const DIALOGUES_ENV: &str = "MERGE_DIALOGUES";
const DEFAULT_DIALOGUES: u64 = 2_000;

/// Kind of a client, by what it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    /// AG-UI: all messages with the ids that it has; an edit has a new id.
    AllWithIds,
    /// AG-UI: all messages; an edit keeps its id.
    EditsKeepIds,
    /// AG-UI: all messages, each time with new ids.
    FreshIds,
    /// AG-UI: all messages, without ids.
    NoIds,
    /// A list in OpenAI's format without ids, whose first message is never edited or answered again.
    PlainList,
    /// AG-UI: user messages and the last message of each answer alone, with ids.
    WithoutTools,
    /// One message, with `parentId` for edits and new answers.
    SingleMessage,
    /// The AI SDK: all messages, `trigger` and `messageId`.
    UiMessages,
    /// The AI SDK: the last message alone, `trigger` and `messageId`.
    LastUiMessage,
}

impl Client {
    const ALL: [Self; 9] = [
        Self::AllWithIds,
        Self::EditsKeepIds,
        Self::FreshIds,
        Self::NoIds,
        Self::PlainList,
        Self::WithoutTools,
        Self::SingleMessage,
        Self::UiMessages,
        Self::LastUiMessage,
    ];

    fn has_ids(self) -> bool {
        !matches!(self, Self::FreshIds | Self::NoIds | Self::PlainList)
    }

    /// Returns true if the client's requests identify any branch.
    fn names_branches(self) -> bool {
        self.has_ids() && self != Self::LastUiMessage
    }
}

/// Element of what the user sees: a user message or an answer.
#[derive(Clone)]
struct Shown {
    is_user: bool,
    id: String,
    messages: Vec<Message>,
}

/// Step of a dialogue; the index is the position of a shown user message.
#[derive(Debug, Clone, Copy)]
enum Act {
    Say,
    Edit(usize),
    Regenerate(usize),
}

/// Pseudorandom numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

struct Dialogue {
    client: Client,
    random: Random,
    tree: StoredTree,
    shown: Vec<Shown>,
    /// Messages that were shown earlier, for switches to other branches.
    earlier: Vec<Vec<Shown>>,
    count: usize,
}

impl Dialogue {
    fn new(client: Client, seed: u64) -> Self {
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self { client, random, tree: StoredTree::default(), shown: Vec::new(), earlier: Vec::new(), count: 0 }
    }

    fn step(&mut self) {
        let is_switch = self.client.names_branches() && !self.earlier.is_empty() && self.random.below(8) == 0;
        if is_switch {
            let at = self.random.below(self.earlier.len());
            self.shown = self.earlier[at].clone();
        }
        let users: Vec<usize> = (0..self.shown.len()).filter(|at| self.shown[*at].is_user).collect();
        let is_fixed = |at: &usize| self.client == Client::PlainList && *at == 0;
        let users: Vec<usize> = users.into_iter().filter(|at| !is_fixed(at)).collect();
        let act = match (self.random.below(10), users.len()) {
            (0..6, _) | (_, 0) => Act::Say,
            (6 | 7, count) => Act::Edit(users[self.random.below(count)]),
            (_, count) => Act::Regenerate(users[self.random.below(count)]),
        };
        self.request(act, is_switch);
    }

    fn request(&mut self, act: Act, is_switch: bool) {
        self.count += 1;
        let before = self.shown.clone();
        let text = ["u yes", "u no", "u go on"][self.random.below(3)];
        match act {
            Act::Say => self.shown.push(self.user(format!("c{}", self.count), text)),
            Act::Edit(at) => {
                let keeps_id = self.client != Client::AllWithIds;
                let id = if keeps_id { before[at].id.clone() } else { format!("c{}", self.count) };
                self.shown.truncate(at);
                self.shown.push(self.user(id, text));
            }
            Act::Regenerate(at) => self.shown.truncate(at + 1),
        }
        let input = self.input(act, &before);
        let merged = self.tree.merge(input);
        let expected: Vec<_> =
            self.shown.iter().flat_map(|shown| &shown.messages).map(role_and_text).collect();
        let context = format!("{:?}, {act:?}, request {}", self.client, self.count);
        assert_eq!(self.tree.prompt(&merged), expected, "the prompt is what the user sees: {context}");
        match act {
            Act::Say if !is_switch => assert_eq!(merged.nodes.len(), 1, "one new message: {context}"),
            // The same may have been said there.
            Act::Say | Act::Edit(_) => assert!(merged.nodes.len() <= 1, "one new message at most: {context}"),
            Act::Regenerate(_) => assert_eq!(merged.nodes.len(), 0, "no new message: {context}"),
        }
        self.check_tree(&merged, &context);
        self.answer(merged);
    }

    /// Checks that no user message is stored twice at one place.
    fn check_tree(&self, merged: &MergeResult, context: &str) {
        let Some(node) = merged.nodes.first() else { return };
        let parent = node.parent_id.as_ref().map(|id| self.tree.by_id[id] as u32);
        let is_double = |link: &NodeLink| {
            link.parent == parent && link.role == NodeRole::User && link.hash == node.message.hash()
        };
        // A single message is a new one, even with the same text.
        let is_said_again = matches!(self.client, Client::SingleMessage | Client::LastUiMessage);
        assert!(is_said_again || !self.tree.links.iter().any(is_double), "a double: {context}");
    }

    fn user(&self, id: String, text: &str) -> Shown {
        Shown { is_user: true, messages: vec![with_id(&id, Message::user(text))], id }
    }

    /// Stores an answer of one or three messages and shows it.
    fn answer(&mut self, merged: MergeResult) {
        // Without ids, equal answers of one message cannot be distinguished.
        let text = match self.client.has_ids() {
            true => ["fine", "done"][self.random.below(2)].to_owned(),
            false => format!("answer {}", self.count),
        };
        let mut answer = vec![Message::assistant(text)];
        if self.random.below(3) == 0 {
            let id = format!("call{}", self.count);
            let calls = vec![agent_core::message::ToolCall::new(&id, "look", "{}")];
            answer.insert(0, Message::with_tool_calls("", calls));
            answer.insert(1, Message::tool_result(&id, "found"));
        }
        let user = merged.nodes.last().map(|node| node.id.clone());
        let (turn, places) = self.tree.run(merged, answer.iter().cloned().map(NodeMessage::from).collect());
        if let (Some(shown), Some(id), Client::SingleMessage) = (self.shown.last_mut(), user, self.client) {
            shown.id = id.to_string();
        }
        let ids = places.iter().map(|at| self.tree.links[*at].id.to_string());
        let messages: Vec<Message> = ids.zip(answer).map(|(id, message)| with_id(id, message)).collect();
        let is_turn = matches!(self.client, Client::UiMessages | Client::LastUiMessage);
        let id =
            if is_turn { turn } else { messages.last().and_then(|last| last.id.clone()).expect("an id") };
        self.shown.push(Shown { is_user: false, id, messages });
        self.earlier.push(self.shown.clone());
    }

    /// Returns the request that the client sends.
    fn input(&mut self, act: Act, before: &[Shown]) -> MergeInput<'static> {
        let all: Vec<Message> = self.shown.iter().flat_map(|shown| shown.messages.clone()).collect();
        let input = |messages: Vec<Message>, format| MergeInput {
            messages: shared(messages),
            format,
            ..MergeInput::default()
        };
        match self.client {
            Client::AllWithIds | Client::EditsKeepIds => input(all, RequestFormat::AgUi),
            Client::FreshIds => {
                let fresh = |(at, message)| with_id(format!("f{}-{at}", self.count), message);
                input(all.into_iter().enumerate().map(fresh).collect(), RequestFormat::AgUi)
            }
            Client::NoIds | Client::PlainList => {
                let format =
                    if self.client == Client::NoIds { RequestFormat::AgUi } else { RequestFormat::Messages };
                input(all.into_iter().map(|message| Message { id: None, ..message }).collect(), format)
            }
            Client::WithoutTools => {
                let last = self.shown.iter().filter_map(|shown| shown.messages.last().cloned());
                input(last.collect(), RequestFormat::AgUi)
            }
            Client::SingleMessage => self.single_message(act, before),
            Client::UiMessages | Client::LastUiMessage => {
                let messages = match self.client {
                    Client::LastUiMessage => self.shown.last().map(ui_message).unwrap_or_default(),
                    _ => self.shown.iter().flat_map(ui_message).collect(),
                };
                input(messages, ui_format(act, before))
            }
        }
    }

    fn single_message(&self, act: Act, before: &[Shown]) -> MergeInput<'static> {
        let parent_of = |at: usize| match at.checked_sub(1) {
            Some(above) => ParentChoice::Node(before[above].id.as_str().into()),
            None => ParentChoice::Root,
        };
        let (parent, is_new) = match act {
            Act::Say => (before.last().map_or(ParentChoice::Unspecified, |_| parent_of(before.len())), true),
            Act::Edit(at) => (parent_of(at), true),
            Act::Regenerate(at) => (parent_of(at + 1), false),
        };
        let message = self.shown.last().filter(|_| is_new).map(|shown| shown.messages.clone());
        let messages = message.unwrap_or_default().into_iter().map(|message| Message { id: None, ..message });
        MergeInput {
            messages: shared(messages),
            format: RequestFormat::Message,
            parent,
            ..MergeInput::default()
        }
    }
}

/// Returns an element of the AI SDK as `history` reads it: the id is that of the first message.
fn ui_message(shown: &Shown) -> Vec<Message> {
    let id = |(at, message): (usize, &Message)| Message {
        id: (at == 0).then(|| shown.id.clone()),
        ..message.clone()
    };
    shown.messages.iter().enumerate().map(id).collect()
}

fn ui_format(act: Act, before: &[Shown]) -> RequestFormat {
    let (trigger, message_id) = match act {
        Act::Say => (UiTrigger::Submit, None),
        Act::Edit(at) => (UiTrigger::Submit, Some(before[at].id.clone())),
        Act::Regenerate(at) => (UiTrigger::Regenerate, before.get(at + 1).map(|answer| answer.id.clone())),
    };
    RequestFormat::UiMessages { trigger, message_id }
}

#[test]
fn every_kind_of_client_sees_its_own_prompt_without_duplicates() {
    let dialogues = std::env::var(DIALOGUES_ENV).map_or(DEFAULT_DIALOGUES, |n| n.parse().expect("a number"));
    for client in Client::ALL {
        for seed in 0..dialogues {
            let mut dialogue = Dialogue::new(client, seed);
            let steps = 2 + dialogue.random.below(11);
            (0..steps).for_each(|_| dialogue.step());
        }
    }
}
