//! The bounded cache that lets an unchanged text keep its derived forms from turn to turn.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};

use super::SEPARATOR;
use super::message::{PromptMessage, content_len};
use super::part::Part;
use crate::budget::{TokenCounter, TokenCounts};
use crate::context::Fragment;
use crate::message::{Content, ContentPart, MediaSource, Message};
use crate::tool::ToolSpec;

/// Gives the same [`Part`] for the same text, and the same [`PromptMessage`] for the same message.
///
/// Escaped JSON, hashes and token counts are a thousand times dearer than the assembly of a prompt, and
/// most of a prompt is the same in the next turn. Entries are found by content: by its hash, then by
/// comparing the whole of it, so that two texts never share an entry. The cache is bounded in bytes and
/// may be shared by all tenants: it holds nothing that its reader did not bring along.
pub struct PartCache {
    texts: Cache<TextKey, Arc<Part>, Bytes>,
    messages: Cache<MessageKey, Arc<PromptMessage>, Bytes>,
    segments: Cache<SegmentKey, Arc<Segment>, Bytes>,
    tool_sets: Cache<ToolSetKey, Arc<Part>, Bytes>,
}

/// 16 MiB: some hundred agents' prompts and their conversations.
impl Default for PartCache {
    fn default() -> Self {
        Self::new(16 << 20)
    }
}

impl PartCache {
    /// A cache for about `max_bytes` bytes of memory.
    pub fn new(max_bytes: usize) -> Self {
        let max = max_bytes as u64;
        Self {
            texts: cache(max / 3, 2 << 10),
            messages: cache(max / 3, 2 << 10),
            segments: cache(max / 4, 256 << 10),
            tool_sets: cache(max / 12, 64 << 10),
        }
    }

    /// The part with this text.
    pub fn part(&self, text: impl AsRef<str> + Into<String>) -> Arc<Part> {
        if let Some(part) = self.texts.get(text.as_ref()) {
            return part;
        }
        let part = Part::new(text);
        self.texts.insert(TextKey(Arc::clone(&part)), Arc::clone(&part));
        part
    }

    /// The prompt message that says the same as `message`.
    pub fn message(&self, message: &Message) -> Arc<PromptMessage> {
        if let Some(known) = self.messages.get(&SameMessage(message)) {
            return known;
        }
        let made = PromptMessage::new(message.clone());
        self.messages.insert(MessageKey(Arc::clone(&made)), Arc::clone(&made));
        made
    }

    /// The prompt messages of a conversation, in order.
    pub fn history(&self, messages: &[Message]) -> Vec<Arc<PromptMessage>> {
        messages.iter().map(|message| self.message(message)).collect()
    }

    #[cfg(test)]
    pub(super) fn texts_len(&self) -> usize {
        self.texts.len()
    }

    /// The fragments' texts as one, found by the identity of the fragments' parts.
    pub(super) fn segment(&self, fragments: &[Fragment]) -> Arc<Segment> {
        if let Some(segment) = self.segments.get(&SameParts(fragments)) {
            return segment;
        }
        let segment = Arc::new(Segment::new(fragments));
        self.segments.insert(SegmentKey(Arc::clone(&segment)), Arc::clone(&segment));
        segment
    }

    /// The definitions of a set of tools as one text, for counting; found by the specs' identity.
    pub(super) fn tool_set(&self, tools: &[Arc<ToolSpec>]) -> Arc<Part> {
        if let Some(part) = self.tool_sets.get(&SameTools(tools)) {
            return part;
        }
        // Specs that were listed anew by a remote server are other objects with the same text.
        let part = self.part(tool_set_text(tools));
        self.tool_sets.insert(ToolSetKey(tools.into()), Arc::clone(&part));
        part
    }
}

impl fmt::Debug for PartCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartCache")
            .field("texts", &self.texts.len())
            .field("messages", &self.messages.len())
            .field("segments", &self.segments.len())
            .finish_non_exhaustive()
    }
}

fn cache<K: Eq + Hash, V: Clone>(max_bytes: u64, usual: u64) -> Cache<K, V, Bytes>
where
    Bytes: Weighter<K, V>,
{
    let items = usize::try_from(max_bytes / usual).unwrap_or(usize::MAX).max(1);
    Cache::with_weighter(items, max_bytes, Bytes)
}

fn tool_set_text(tools: &[Arc<ToolSpec>]) -> String {
    let mut text = String::new();
    for tool in tools {
        for piece in [&tool.name, &tool.description, tool.input_schema.get()] {
            text.push_str(piece);
            text.push('\n');
        }
    }
    text
}

/// Several parts joined into one text, with its own derived forms, so that the stable beginning of a
/// system prompt is one copy.
#[derive(Debug)]
pub(super) struct Segment {
    parts: Box<[Arc<Part>]>,
    joined: Part,
    tokens: TokenCounts,
}

impl Segment {
    pub(super) fn new(fragments: &[Fragment]) -> Self {
        let parts: Box<[Arc<Part>]> = fragments.iter().map(|fragment| Arc::clone(&fragment.part)).collect();
        let texts: Vec<&str> = parts.iter().map(|part| part.text()).collect();
        let joined = Part::of(texts.join(SEPARATOR));
        Self { parts, joined, tokens: TokenCounts::default() }
    }

    pub(super) fn joined(&self) -> &Part {
        &self.joined
    }

    /// The sum over the parts, for a part that changes must not have all others counted again.
    pub(super) fn tokens(&self, counter: &dyn TokenCounter) -> usize {
        self.tokens.get(counter, || self.parts.iter().map(|part| part.tokens(counter)).sum())
    }
}

/// Weighs entries by the memory that they will have once their derived forms are made.
#[derive(Clone)]
struct Bytes;

/// The text itself, its JSON, and what surrounds them.
fn with_json(len: usize) -> u64 {
    (len * 2 + len / 4 + 512) as u64
}

impl Weighter<TextKey, Arc<Part>> for Bytes {
    fn weight(&self, _: &TextKey, part: &Arc<Part>) -> u64 {
        with_json(part.text().len())
    }
}

impl Weighter<MessageKey, Arc<PromptMessage>> for Bytes {
    fn weight(&self, _: &MessageKey, message: &Arc<PromptMessage>) -> u64 {
        let message = message.original();
        let calls = message.tool_calls.iter().map(|call| call.function.arguments.len() + 128);
        with_json(content_len(&message.content) + calls.sum::<usize>())
    }
}

impl Weighter<SegmentKey, Arc<Segment>> for Bytes {
    fn weight(&self, _: &SegmentKey, segment: &Arc<Segment>) -> u64 {
        // The parts may live through the segment alone, once the texts' own cache has let them go.
        2 * with_json(segment.joined.text().len()) + 512 * segment.parts.len() as u64
    }
}

impl Weighter<ToolSetKey, Arc<Part>> for Bytes {
    fn weight(&self, key: &ToolSetKey, part: &Arc<Part>) -> u64 {
        with_json(part.text().len() * 2) + 512 * key.0.len() as u64
    }
}

struct TextKey(Arc<Part>);

impl Borrow<str> for TextKey {
    fn borrow(&self) -> &str {
        self.0.text()
    }
}

impl Hash for TextKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.text().hash(state);
    }
}

impl PartialEq for TextKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.text() == other.0.text()
    }
}

impl Eq for TextKey {}

struct MessageKey(Arc<PromptMessage>);
struct SameMessage<'a>(&'a Message);

impl Hash for MessageKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        SameMessage(self.0.original()).hash(state);
    }
}

impl PartialEq for MessageKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.original() == other.0.original()
    }
}

impl Eq for MessageKey {}

impl Equivalent<MessageKey> for SameMessage<'_> {
    fn equivalent(&self, key: &MessageKey) -> bool {
        self.0 == key.0.original()
    }
}

impl Hash for SameMessage<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let message = self.0;
        (message.role, &message.id, &message.tool_call_id).hash(state);
        match &message.content {
            Content::Text(text) => text.hash(state),
            Content::Parts(parts) => parts.iter().for_each(|part| part_bytes(part).hash(state)),
        }
        for call in &message.tool_calls {
            (&call.id, &call.function.name, &call.function.arguments).hash(state);
        }
    }
}

/// What tells most parts apart; the rest is left to the comparison.
fn part_bytes(part: &ContentPart) -> &str {
    match part {
        ContentPart::Text { text } => text,
        ContentPart::Image { source }
        | ContentPart::Audio { source }
        | ContentPart::Video { source }
        | ContentPart::Document { source } => match source {
            MediaSource::Data { value, .. } | MediaSource::Url { value, .. } => value,
        },
    }
}

/// Parts are the same if they are the same objects; a key keeps its own alive, so that no address comes
/// to stand for another part.
struct SegmentKey(Arc<Segment>);
struct SameParts<'a>(&'a [Fragment]);

impl Hash for SegmentKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.parts.iter().for_each(|part| Arc::as_ptr(part).hash(state));
    }
}

impl PartialEq for SegmentKey {
    fn eq(&self, other: &Self) -> bool {
        same(self.0.parts.iter(), other.0.parts.iter())
    }
}

impl Eq for SegmentKey {}

impl Hash for SameParts<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|fragment| Arc::as_ptr(&fragment.part).hash(state));
    }
}

impl Equivalent<SegmentKey> for SameParts<'_> {
    fn equivalent(&self, key: &SegmentKey) -> bool {
        same(self.0.iter().map(|fragment| &fragment.part), key.0.parts.iter())
    }
}

struct ToolSetKey(Box<[Arc<ToolSpec>]>);
struct SameTools<'a>(&'a [Arc<ToolSpec>]);

impl Hash for ToolSetKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        SameTools(&self.0).hash(state);
    }
}

impl PartialEq for ToolSetKey {
    fn eq(&self, other: &Self) -> bool {
        same(self.0.iter(), other.0.iter())
    }
}

impl Eq for ToolSetKey {}

impl Hash for SameTools<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|tool| Arc::as_ptr(tool).hash(state));
    }
}

impl Equivalent<ToolSetKey> for SameTools<'_> {
    fn equivalent(&self, key: &ToolSetKey) -> bool {
        same(self.0.iter(), key.0.iter())
    }
}

fn same<'a, T: 'a>(
    a: impl ExactSizeIterator<Item = &'a Arc<T>>,
    b: impl ExactSizeIterator<Item = &'a Arc<T>>,
) -> bool {
    a.len() == b.len() && a.zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
}
