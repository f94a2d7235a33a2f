//! Bounded cache of prompt parts, so that unchanged text keeps its derived forms across turns.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use self::keys::{
    MessageKey, MessageLookup, PartIdentity, SegmentKey, SegmentLookup, TextKey, ToolSetKey, ToolSetLookup,
};
use super::message::{PromptMessage, content_len};
use super::part::Part;
use super::segment::Segment;
use super::tools::ToolSet;
use crate::budget::TokenCounter;
use crate::message::Message;
use crate::prompt::Fragment;
use crate::tool::ToolSpec;

mod keys;

/// A bounded cache that returns the same [`Part`] for a text and the same [`PromptMessage`] for a message.
///
/// Escaped JSON, hashes and token counts cost about a thousand times as much as assembling a prompt, and most of a
/// prompt is unchanged in the next turn. Texts and messages are found by content: by hash, then by full comparison, so
/// that two texts never share an entry. The cache is bounded in bytes and may be shared by all tenants: a lookup needs
/// the whole content, so that it reveals nothing about other tenants.
#[derive(Debug)]
pub struct PartCache {
    texts: Cache<TextKey, Arc<Part>, PartWeighter>,
    messages: Cache<MessageKey, Arc<PromptMessage>, PartWeighter>,
    segments: Cache<SegmentKey, Arc<Segment>, PartWeighter>,
    tool_sets: Cache<ToolSetKey, Arc<ToolSet>, PartWeighter>,
    identity: PartIdentity,
}

/// Creates a cache of 48 MiB. The third for messages holds a conversation of 10,000 short ones, about 9 MB by their weights.
impl Default for PartCache {
    fn default() -> Self {
        Self::new(48 << 20)
    }
}

impl PartCache {
    /// Creates a cache of about `max_bytes` bytes of memory.
    pub fn new(max_bytes: usize) -> Self {
        Self::with_identity(max_bytes, PartIdentity::Address)
    }

    /// Creates a cache that finds segments by their whole text, not by their parts' addresses: a benchmark's reference.
    #[doc(hidden)]
    pub fn by_content(max_bytes: usize) -> Self {
        Self::with_identity(max_bytes, PartIdentity::Content)
    }

    fn with_identity(max_bytes: usize, identity: PartIdentity) -> Self {
        let max = max_bytes as u64;
        Self {
            texts: new_cache(max / 3, 2 << 10),
            messages: new_cache(max / 3, 2 << 10),
            segments: new_cache(max / 4, 256 << 10),
            tool_sets: new_cache(max / 12, 64 << 10),
            identity,
        }
    }

    /// Returns the part with this text, creating it if it is not cached.
    pub fn part(&self, text: impl AsRef<str> + Into<String>) -> Arc<Part> {
        if let Some(part) = self.texts.get(text.as_ref()) {
            return part;
        }
        let part = Part::new(text);
        self.texts.insert(TextKey(Arc::clone(&part)), Arc::clone(&part));
        part
    }

    /// Returns the prompt message that equals `value`, creating it if it is not cached. It shares a shared message.
    pub fn message<M: Borrow<Message> + Clone + Into<Arc<Message>>>(&self, value: &M) -> Arc<PromptMessage> {
        if let Some(cached) = self.messages.get(&MessageLookup(value.borrow())) {
            return cached;
        }
        let created = PromptMessage::new(value.clone());
        self.messages.insert(MessageKey(Arc::clone(&created)), Arc::clone(&created));
        created
    }

    /// Returns the prompt messages of a conversation, in order.
    pub fn history(&self, messages: &[Arc<Message>]) -> Vec<Arc<PromptMessage>> {
        messages.iter().map(|message| self.message(message)).collect()
    }

    #[cfg(test)]
    pub(super) fn texts_len(&self) -> usize {
        self.texts.len()
    }

    /// Returns the fragments joined into one segment, found by the identity (address) of the fragments' parts.
    pub(super) fn segment(&self, fragments: &[Fragment]) -> Arc<Segment> {
        if let Some(segment) = self.segments.get(&SegmentLookup(fragments, self.identity)) {
            return segment;
        }
        let segment = Arc::new(Segment::new(fragments));
        self.segments.insert(SegmentKey(Arc::clone(&segment), self.identity), Arc::clone(&segment));
        segment
    }

    /// Returns the tokens of the definitions of tools.
    pub fn tool_tokens(&self, tools: &[Arc<ToolSpec>], counter: &dyn TokenCounter) -> usize {
        if tools.is_empty() { 0 } else { self.tool_set(tools).tokens(counter) }
    }

    /// Returns the definitions of a set of tools, found by the identity (address) of the specs.
    pub(super) fn tool_set(&self, tools: &[Arc<ToolSpec>]) -> Arc<ToolSet> {
        if let Some(set) = self.tool_sets.get(&ToolSetLookup(tools)) {
            return set;
        }
        // Specs of a request are new objects with the same text; the cached part of that text has the counts.
        let set = Arc::new(ToolSet::new(tools, self.part(ToolSet::definitions_text(tools))));
        self.tool_sets.insert(ToolSetKey(Arc::clone(&set)), Arc::clone(&set));
        set
    }
}

fn new_cache<K: Eq + Hash, V: Clone>(max_bytes: u64, typical_bytes: u64) -> Cache<K, V, PartWeighter>
where
    PartWeighter: Weighter<K, V>,
{
    let items = usize::try_from(max_bytes / typical_bytes).unwrap_or(usize::MAX).max(1);
    Cache::with_weighter(items, max_bytes, PartWeighter)
}

/// Weighs entries by their memory once all derived forms exist.
#[derive(Clone)]
struct PartWeighter;

/// Returns the weight of a text with its JSON and the overhead of an entry.
fn cached_text_weight(len: usize) -> u64 {
    (len * 2 + len / 4 + 512) as u64
}

impl Weighter<TextKey, Arc<Part>> for PartWeighter {
    fn weight(&self, _: &TextKey, part: &Arc<Part>) -> u64 {
        cached_text_weight(part.text().len())
    }
}

impl Weighter<MessageKey, Arc<PromptMessage>> for PartWeighter {
    fn weight(&self, _: &MessageKey, message: &Arc<PromptMessage>) -> u64 {
        let message = message.original();
        let calls = message.tool_calls.iter().map(|call| call.function.arguments.len() + 128);
        let items = message.provider_items.iter().map(|item| item.json.get().len() + 64);
        let texts = content_len(&message.content) + message.sent_context.as_deref().map_or(0, str::len) / 2;
        cached_text_weight(texts + calls.sum::<usize>() + items.sum::<usize>())
    }
}

impl Weighter<SegmentKey, Arc<Segment>> for PartWeighter {
    fn weight(&self, _: &SegmentKey, segment: &Arc<Segment>) -> u64 {
        // The segment may be the last owner of its parts once the text cache has evicted them.
        2 * cached_text_weight(segment.joined.text().len()) + 512 * segment.parts.len() as u64
    }
}

impl Weighter<ToolSetKey, Arc<ToolSet>> for PartWeighter {
    fn weight(&self, _: &ToolSetKey, set: &Arc<ToolSet>) -> u64 {
        2 * cached_text_weight(set.text.text().len()) + 512 * set.specs.len() as u64
    }
}
