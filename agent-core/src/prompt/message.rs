//! Messages with their cached derived forms, and the latest user message with the turn's context in front.

use std::any::Any;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, OnceLock};

use super::dialect::{self, Dialect};
use crate::budget::{self, TokenCountCache, TokenCounter};
use crate::message::{Content, ContentPart, MediaSource, Message, Role, part_texts};
use crate::prompt::Fragment;

const CONTEXT_OPEN: &str = "<context>\n";
const CONTEXT_CLOSE: &str = "\n</context>";
const CONTEXT_SEPARATOR: &str = "\n\n";
/// Tokens counted for the tags around a turn's context.
const CONTEXT_TAG_TOKENS: usize = 8;

/// A message whose JSON and token counts are computed once.
///
/// A user message may carry its turn's context: fragments in a `<context>` block before the user's text. The context is held separately, so that the fragments' cached JSON is copied instead of escaped again.
#[derive(Debug)]
pub struct PromptMessage {
    form: MessageForm,
    derived: OnceLock<Arc<dyn Any + Send + Sync>>,
}

#[derive(Debug)]
enum MessageForm {
    Plain(Plain),
    WithContext(WithContext),
}

#[derive(Debug)]
struct Plain {
    message: Arc<Message>,
    encoded: [OnceLock<Encoded>; Dialect::COUNT],
    tokens: TokenCountCache,
    text_hash: OnceLock<u64>,
}

#[derive(Debug)]
struct WithContext {
    /// Always a message of form [`MessageForm::Plain`].
    original: Arc<PromptMessage>,
    context: Vec<Fragment>,
    merged: OnceLock<Message>,
}

/// A message's JSON and the offset at which its content begins.
#[derive(Debug)]
struct Encoded {
    json: Box<[u8]>,
    content_at: usize,
}

impl PromptMessage {
    /// Wraps a message.
    pub fn new(message: impl Into<Arc<Message>>) -> Arc<Self> {
        let (encoded, tokens, text_hash) = (Default::default(), TokenCountCache::default(), OnceLock::new());
        Self::with_form(MessageForm::Plain(Plain { message: message.into(), encoded, tokens, text_hash }))
    }

    fn with_form(form: MessageForm) -> Arc<Self> {
        Arc::new(Self { form, derived: OnceLock::new() })
    }

    /// Puts the turn's context in front of the message, replacing an earlier turn's context.
    pub(super) fn with_context(message: Arc<Self>, context: Vec<Fragment>) -> Arc<Self> {
        let original = match &message.form {
            MessageForm::Plain(_) => message,
            MessageForm::WithContext(with) => Arc::clone(&with.original),
        };
        Self::with_form(MessageForm::WithContext(WithContext { original, context, merged: OnceLock::new() }))
    }

    /// Returns the message as the model reads it, including the context.
    pub fn message(&self) -> &Message {
        match &self.form {
            MessageForm::Plain(plain) => &plain.message,
            MessageForm::WithContext(with) => with.merged.get_or_init(|| with.merge()),
        }
    }

    /// Returns the message as received, without the turn's context.
    pub fn original(&self) -> &Message {
        match &self.form {
            MessageForm::Plain(plain) => &plain.message,
            MessageForm::WithContext(with) => with.original.original(),
        }
    }

    /// Returns the message in the form without the turn's context.
    pub fn without_context(&self) -> &Self {
        let MessageForm::WithContext(with) = &self.form else { return self };
        &with.original
    }

    /// Returns the turn's context in front of the message; only user messages have one.
    pub fn context(&self) -> &[Fragment] {
        match &self.form {
            MessageForm::Plain(_) => &[],
            MessageForm::WithContext(with) => &with.context,
        }
    }

    /// Returns the role of the message's author.
    pub fn role(&self) -> Role {
        self.original().role
    }

    /// Appends the text as the model reads it, parts joined by newlines.
    pub fn push_text(&self, out: &mut String) {
        match &self.form {
            MessageForm::Plain(plain) => push_text(&plain.message.content, out),
            MessageForm::WithContext(with) => with.push_text(out),
        }
    }

    /// Returns the length of that text, in bytes.
    pub fn text_len(&self) -> usize {
        match &self.form {
            MessageForm::Plain(plain) => text_len(&plain.message.content),
            MessageForm::WithContext(with) => with.text_len(),
        }
    }

    /// Appends the message as JSON in the form of the dialect.
    pub(crate) fn push_json(&self, dialect: Dialect, out: &mut Vec<u8>) {
        self.for_each_piece(dialect, |piece| out.extend_from_slice(piece));
    }

    /// Returns the length of that JSON, in bytes.
    pub fn json_len(&self, dialect: Dialect) -> usize {
        let mut len = 0;
        self.for_each_piece(dialect, |piece| len += piece.len());
        len
    }

    fn for_each_piece(&self, dialect: Dialect, mut visit: impl FnMut(&[u8])) {
        match &self.form {
            MessageForm::Plain(plain) => visit(&plain.encoded(dialect).json),
            MessageForm::WithContext(with) => with.for_each_piece(dialect, visit),
        }
    }

    /// Returns a form of the message that a model adapter derives from it, such as its bytes in the adapter's wire
    /// format. The first form is kept; one of another type is derived again at each call.
    pub fn derived<T: Any + Send + Sync>(&self, derive: impl Fn(&Message) -> T) -> Arc<T> {
        let derived = self.derived.get_or_init(|| Arc::new(derive(self.message())));
        Arc::clone(derived).downcast().unwrap_or_else(|_| Arc::new(derive(self.message())))
    }

    /// Returns the message's tokens by `counter`, including its overhead on the wire. Counted once per counter.
    pub fn tokens(&self, counter: &dyn TokenCounter) -> usize {
        match &self.form {
            MessageForm::Plain(plain) => {
                plain.tokens.get(counter.id(), || budget::count_message(&plain.message, counter))
            }
            MessageForm::WithContext(with) => with.tokens(counter),
        }
    }

    /// Returns a hash of the text as received, computed once.
    pub(super) fn text_hash(&self) -> u64 {
        let MessageForm::Plain(plain) = &self.without_context().form else { return 0 };
        let hash = || BuildHasherDefault::<DefaultHasher>::new().hash_one(plain.message.content.to_text());
        *plain.text_hash.get_or_init(hash)
    }
}

impl Plain {
    fn encoded(&self, dialect: Dialect) -> &Encoded {
        self.encoded[dialect.index()].get_or_init(|| {
            let mut json = Vec::with_capacity(content_len(&self.message.content) * 9 / 8 + 64);
            let content_at = dialect::encode(&self.message, dialect, &mut json);
            Encoded { json: json.into(), content_at }
        })
    }
}

impl WithContext {
    fn merge(&self) -> Message {
        let (mut message, mut text) = (self.original.original().clone(), String::new());
        message.content = match message.content {
            Content::Parts(parts) if !parts.is_empty() => {
                self.push_block(&mut text);
                Content::Parts([ContentPart::Text { text }].into_iter().chain(parts).collect())
            }
            _ => {
                self.push_text(&mut text);
                Content::Text(text)
            }
        };
        message
    }

    /// Appends the context between its tags.
    fn push_block(&self, out: &mut String) {
        out.push_str(CONTEXT_OPEN);
        for (i, fragment) in self.context.iter().enumerate() {
            if i > 0 {
                out.push_str(CONTEXT_SEPARATOR);
            }
            out.push_str(fragment.part.text());
        }
        out.push_str(CONTEXT_CLOSE);
    }

    fn push_text(&self, out: &mut String) {
        self.push_block(out);
        out.push_str(if self.has_parts() { "\n" } else { CONTEXT_SEPARATOR });
        push_text(&self.original.original().content, out);
    }

    fn text_len(&self) -> usize {
        let between = if self.has_parts() { 1 } else { CONTEXT_SEPARATOR.len() };
        let lens = self.context.iter().map(|fragment| fragment.part.text().len() + CONTEXT_SEPARATOR.len());
        let context = lens.sum::<usize>().saturating_sub(CONTEXT_SEPARATOR.len());
        CONTEXT_OPEN.len() + context + CONTEXT_CLOSE.len() + between + self.original.text_len()
    }

    /// Returns true if the original has content parts, so that the context becomes a separate part.
    fn has_parts(&self) -> bool {
        matches!(&self.original.original().content, Content::Parts(parts) if !parts.is_empty())
    }

    /// Visits the original's JSON with the context inserted where its content begins.
    fn for_each_piece(&self, dialect: Dialect, mut visit: impl FnMut(&[u8])) {
        let MessageForm::Plain(original) = &self.original.form else { return };
        let Encoded { json, content_at } = original.encoded(dialect);
        let (before, after) = json.split_at(*content_at);
        let (open, close): (&[u8], &[u8]) = match self.has_parts() {
            false => (br"<context>\n", br"\n</context>\n\n"),
            true => (br#"{"type":"text","text":"<context>\n"#, br#"\n</context>"},"#),
        };
        visit(before);
        visit(open);
        for (i, fragment) in self.context.iter().enumerate() {
            if i > 0 {
                visit(br"\n\n");
            }
            visit(fragment.part.json().as_bytes());
        }
        visit(close);
        visit(after);
    }

    fn tokens(&self, counter: &dyn TokenCounter) -> usize {
        let context: usize = self.context.iter().map(|fragment| fragment.part.tokens(counter)).sum();
        context + CONTEXT_TAG_TOKENS + self.original.tokens(counter)
    }
}

/// Appends the text of the content, parts joined by newlines.
fn push_text(content: &Content, out: &mut String) {
    match content {
        Content::Text(text) => out.push_str(text),
        Content::Parts(parts) => {
            for (i, text) in part_texts(parts).enumerate() {
                if i > 0 {
                    out.push('\n');
                }
                out.push_str(text);
            }
        }
    }
}

fn text_len(content: &Content) -> usize {
    match content {
        Content::Text(text) => text.len(),
        Content::Parts(parts) => {
            part_texts(parts).map(|text| text.len() + 1).sum::<usize>().saturating_sub(1)
        }
    }
}

/// Returns the approximate length of a content's text and media in bytes, for buffer capacities and cache weights.
pub(super) fn content_len(content: &Content) -> usize {
    match content {
        Content::Text(text) => text.len(),
        Content::Parts(parts) => parts.iter().map(|part| part_data(part).len()).sum(),
    }
}

/// Returns the text of a part, or the data or address of its media.
pub(super) fn part_data(part: &ContentPart) -> &str {
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
