//! A model's vocabulary: text to tokens and tokens to bytes, with the control tokens kept apart.
//!
//! Text never becomes a control token, whatever it spells: `<|im_end|>` in a message is nine
//! ordinary characters and more. Control tokens come from the prompt's own [`Piece::Control`] alone.

use std::borrow::Cow;
use std::sync::Arc;

use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::quantized::tokenizer::TokenizerFromGguf;
use llguidance::token_bytes_from_tokenizer_json;
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use serde::{Deserialize, Serialize};
use tokenizers::Tokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;

/// Begins a turn in ChatML.
pub(crate) const TURN_START: &str = "<|im_start|>";
/// Ends a turn in ChatML.
pub(crate) const TURN_END: &str = "<|im_end|>";

/// One piece of a prompt: text, or one of the model's control tokens by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Piece<'a> {
    /// A control token.
    Control(Cow<'a, str>),
    /// Ordinary text.
    Text(Cow<'a, str>),
}

/// A model's vocabulary.
pub(crate) struct Vocabulary {
    tokenizer: Tokenizer,
    /// The bytes of each token; those of control tokens begin with a marker byte.
    bytes: Vec<Vec<u8>>,
    end: u32,
}

impl Vocabulary {
    /// Builds the vocabulary that a file describes; `Err` says what is missing.
    pub(crate) fn read(content: &Content) -> Result<Arc<Self>, String> {
        let mut tokenizer = Tokenizer::from_gguf(content).map_err(|error| error.to_string())?;
        if matches!(content.metadata.get("tokenizer.ggml.pre"), Some(Value::String(pre)) if pre == "smollm") {
            // candle does not know this pre-tokenizer and takes GPT-2's with a space put in front, with
            // which neither prompts nor masks fit what the model was trained on.
            let parts = vec![Digits::new(true).into(), ByteLevel::new(false, true, true).into()];
            tokenizer.with_pre_tokenizer(Some(Sequence::new(parts)));
        }
        tokenizer.set_encode_special_tokens(true);
        let json = tokenizer.to_string(false).map_err(|error| error.to_string())?;
        let json = serde_json::from_str(&json).map_err(|error| error.to_string())?;
        let bytes = token_bytes_from_tokenizer_json(&json).map_err(|error| error.to_string())?;
        let control = |name: &str| {
            let id = tokenizer.token_to_id(name).ok_or_else(|| format!("no {name}"))?;
            match bytes.get(id as usize).and_then(|bytes| bytes.first()) {
                Some(&TokTrie::SPECIAL_TOKEN_MARKER) => Ok(id),
                _ => Err(format!("{name} is not a control token")),
            }
        };
        control(TURN_START)?;
        let end = control(TURN_END)?;
        Ok(Arc::new(Self { tokenizer, bytes, end }))
    }

    /// How many tokens there are.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The tokens of ordinary text.
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        match self.tokenizer.encode_fast(text, false) {
            Ok(encoding) => encoding.get_ids().to_vec(),
            // Byte-level vocabularies have a token for every byte; what cannot be split is dropped.
            Err(_) => Vec::new(),
        }
    }

    /// The tokens of a prompt. A control token that the model does not have is an error.
    pub(crate) fn encode_pieces(&self, pieces: &[Piece<'_>]) -> Result<Vec<u32>, String> {
        let mut tokens = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => tokens.extend(self.encode(text)),
                Piece::Control(name) => match self.tokenizer.token_to_id(name) {
                    Some(id) if self.is_control(id) => tokens.push(id),
                    _ => return Err(format!("the model has no control token {name:?}")),
                },
            }
        }
        Ok(tokens)
    }

    /// Whether a token is a control token. All of them end an answer.
    pub(crate) fn is_control(&self, token: u32) -> bool {
        self.bytes[token as usize].first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER)
    }

    /// The bytes of an ordinary token, which may be part of a character.
    pub(crate) fn bytes(&self, token: u32) -> &[u8] {
        &self.bytes[token as usize]
    }

    /// The same vocabulary as the grammar engine wants it.
    pub(crate) fn grammar_tokens(self: &Arc<Self>) -> TokEnv {
        let trie = TokTrie::from(&TokRxInfo::new(self.len() as u32, self.end), &self.bytes);
        Arc::new(GrammarTokens { vocabulary: Arc::clone(self), trie })
    }
}

struct GrammarTokens {
    vocabulary: Arc<Vocabulary>,
    trie: TokTrie,
}

impl TokenizerEnv for GrammarTokens {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| self.vocabulary.encode(text))
    }
}

/// Puts tokens' bytes together to text, cutting at characters' boundaries alone.
#[derive(Default)]
pub(crate) struct TextStream {
    pending: Vec<u8>,
}

impl TextStream {
    /// Adds bytes and gives the text that is complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.pending) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.pending.clear();
                    return text;
                }
                Err(error) => {
                    let valid = error.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&self.pending[..valid]));
                    // What cannot be completed any more is replaced; the beginning of a character waits.
                    let Some(bad) = error.error_len() else {
                        self.pending.drain(..valid);
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.pending.drain(..valid + bad);
                }
            }
        }
    }

    /// What is left when nothing more comes.
    pub(crate) fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_characters() {
        /// Bytes as they come, the text after each, and what is left at the end.
        type Case = (&'static [&'static [u8]], &'static [&'static str], &'static str);
        let cases: [Case; 4] = [
            (&[b"a", b"b"], &["a", "b"], ""),
            (&[b"\xe2", b"\x82", b"\xac!"], &["", "", "\u{20ac}!"], ""),
            (&[b"x\xf0\x9f", b"\x98\x80y"], &["x", "\u{1f600}y"], ""),
            (&[b"\xff\xe2a", b"\xe2\x82"], &["\u{fffd}\u{fffd}a", ""], "\u{fffd}"),
        ];
        for (pushes, texts, rest) in cases {
            let mut stream = TextStream::default();
            let got: Vec<String> = pushes.iter().map(|bytes| stream.push(bytes)).collect();
            assert_eq!(got, texts);
            assert_eq!(stream.finish(), rest);
        }
    }
}
