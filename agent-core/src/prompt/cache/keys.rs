//! Keys of the prompt cache and the borrowed forms used for lookup.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use quick_cache::Equivalent;

use crate::message::{Content, Message};
use crate::prompt::Fragment;
use crate::prompt::message::{PromptMessage, part_data};
use crate::prompt::part::Part;
use crate::prompt::segment::Segment;
use crate::prompt::tools::ToolSet;
use crate::tool::ToolSpec;

/// Implements hash and equality of a key as those of its borrowed form.
macro_rules! key_as_borrowed {
    ($key:ident, $this:ident => $borrowed:expr) => {
        impl Hash for $key {
            fn hash<H: Hasher>(&self, state: &mut H) {
                let $this = self;
                $borrowed.hash(state);
            }
        }

        impl PartialEq for $key {
            fn eq(&self, other: &Self) -> bool {
                let $this = self;
                $borrowed.equivalent(other)
            }
        }

        impl Eq for $key {}
    };
}

key_as_borrowed!(TextKey, key => key.0.text());
key_as_borrowed!(MessageKey, key => MessageLookup(key.0.original()));
key_as_borrowed!(ToolSetKey, key => ToolSetLookup(&key.0.specs));

pub(super) struct TextKey(pub(super) Arc<Part>);

impl Borrow<str> for TextKey {
    fn borrow(&self) -> &str {
        self.0.text()
    }
}

pub(super) struct MessageKey(pub(super) Arc<PromptMessage>);
pub(super) struct MessageLookup<'a>(pub(super) &'a Message);

impl Equivalent<MessageKey> for MessageLookup<'_> {
    fn equivalent(&self, key: &MessageKey) -> bool {
        std::ptr::eq(self.0, key.0.original()) || self.0 == key.0.original()
    }
}

impl Hash for MessageLookup<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let message = self.0;
        (message.role, &message.id, &message.tool_call_id).hash(state);
        match &message.content {
            Content::Text(text) => text.hash(state),
            // The comparison distinguishes parts that differ elsewhere only.
            Content::Parts(parts) => parts.iter().for_each(|part| part_data(part).hash(state)),
        }
        for call in &message.tool_calls {
            (&call.id, &call.function.name, &call.function.arguments).hash(state);
        }
    }
}

/// Comparison of the parts of segments.
#[derive(Debug, Clone, Copy)]
pub(super) enum PartIdentity {
    /// Equal if they are the same objects. The key owns its parts, so that their addresses cannot be reused.
    Address,
    /// Equal if they have the same text: the plain comparison, which reads the whole of it.
    Content,
}

/// Key of a segment: its parts in order.
pub(super) struct SegmentKey(pub(super) Arc<Segment>, pub(super) PartIdentity);
pub(super) struct SegmentLookup<'a>(pub(super) &'a [Fragment], pub(super) PartIdentity);

impl Hash for SegmentKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.parts.iter().for_each(|part| self.1.hash(part, state));
    }
}

impl PartialEq for SegmentKey {
    fn eq(&self, other: &Self) -> bool {
        self.1.all_eq(self.0.parts.iter(), &other.0.parts)
    }
}

impl Eq for SegmentKey {}

impl Hash for SegmentLookup<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|fragment| self.1.hash(&fragment.part, state));
    }
}

impl Equivalent<SegmentKey> for SegmentLookup<'_> {
    fn equivalent(&self, key: &SegmentKey) -> bool {
        self.1.all_eq(self.0.iter().map(|fragment| &fragment.part), &key.0.parts)
    }
}

impl PartIdentity {
    fn hash(self, part: &Arc<Part>, state: &mut impl Hasher) {
        match self {
            Self::Address => Arc::as_ptr(part).hash(state),
            Self::Content => part.text().hash(state),
        }
    }

    fn all_eq<'a>(self, a: impl ExactSizeIterator<Item = &'a Arc<Part>>, b: &'a [Arc<Part>]) -> bool {
        match self {
            Self::Address => all_ptr_eq(a, b.iter()),
            Self::Content => a.map(|part| part.text()).eq(b.iter().map(|part| part.text())),
        }
    }
}

pub(super) struct ToolSetKey(pub(super) Arc<ToolSet>);
pub(super) struct ToolSetLookup<'a>(pub(super) &'a [Arc<ToolSpec>]);

impl Hash for ToolSetLookup<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|tool| Arc::as_ptr(tool).hash(state));
    }
}

impl Equivalent<ToolSetKey> for ToolSetLookup<'_> {
    fn equivalent(&self, key: &ToolSetKey) -> bool {
        all_ptr_eq(self.0.iter(), key.0.specs.iter())
    }
}

fn all_ptr_eq<'a, T: 'a>(
    a: impl ExactSizeIterator<Item = &'a Arc<T>>,
    b: impl ExactSizeIterator<Item = &'a Arc<T>>,
) -> bool {
    a.len() == b.len() && a.zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
}
