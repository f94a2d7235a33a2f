//! Token vocabulary: encodes text to tokens and decodes tokens to bytes, keeping control tokens apart.
//!
//! Text never becomes a control token, whatever it contains: `<|im_end|>` in a message is encoded as ordinary
//! characters. Control tokens come only from [`Piece::Control`].

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

/// ChatML marker of the start of a turn.
pub(crate) const TURN_START: &str = "<|im_start|>";
/// ChatML marker of the end of a turn.
pub(crate) const TURN_END: &str = "<|im_end|>";

/// A piece of a prompt: text, or a control token by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Piece<'a> {
    /// Name of a control token.
    Control(Cow<'a, str>),
    /// Ordinary text.
    Text(Cow<'a, str>),
}

/// A model's vocabulary.
pub(crate) struct Vocabulary {
    tokenizer: Tokenizer,
    /// Bytes of each token. Those of control tokens begin with a marker byte.
    bytes: Vec<Vec<u8>>,
    end: u32,
}

impl Vocabulary {
    /// Builds the vocabulary from a file's metadata. `Err` describes what is missing.
    pub(crate) fn read(content: &Content) -> Result<Arc<Self>, String> {
        let mut tokenizer = Tokenizer::from_gguf(content).map_err(|error| error.to_string())?;
        if matches!(content.metadata.get("tokenizer.ggml.pre"), Some(Value::String(pre)) if pre == "smollm") {
            // candle does not know this pre-tokenizer and falls back to GPT-2's with a leading space, so that
            // neither prompts nor token masks match the model's training.
            let parts = vec![Digits::new(true).into(), ByteLevel::new(false, true, true).into()];
            tokenizer.with_pre_tokenizer(Some(Sequence::new(parts)));
        }
        tokenizer.set_encode_special_tokens(true);
        let json = tokenizer.to_string(false).map_err(|error| error.to_string())?;
        let json = serde_json::from_str(&json).map_err(|error| error.to_string())?;
        let bytes = token_bytes_from_tokenizer_json(&json).map_err(|error| error.to_string())?;
        let control = |name: &str| {
            let id = tokenizer.token_to_id(name).ok_or_else(|| format!("{name} is missing"))?;
            match bytes.get(id as usize).and_then(|bytes| bytes.first()) {
                Some(&TokTrie::SPECIAL_TOKEN_MARKER) => Ok(id),
                _ => Err(format!("{name} is not a control token")),
            }
        };
        control(TURN_START)?;
        let end = control(TURN_END)?;
        Ok(Arc::new(Self { tokenizer, bytes, end }))
    }

    /// Returns the number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Encodes ordinary text.
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        match self.tokenizer.encode_fast(text, false) {
            Ok(encoding) => encoding.get_ids().to_vec(),
            // Byte-level vocabularies have a token for every byte. Text that cannot be encoded is dropped.
            Err(_) => Vec::new(),
        }
    }

    /// Encodes a prompt. Returns an error for a control token that the model does not have.
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

    /// Returns true if a token is a control token. Every control token ends an answer.
    pub(crate) fn is_control(&self, token: u32) -> bool {
        self.bytes[token as usize].first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER)
    }

    /// Returns the bytes of an ordinary token, which may be part of a character.
    pub(crate) fn bytes(&self, token: u32) -> &[u8] {
        &self.bytes[token as usize]
    }

    /// Returns this vocabulary in the form that the grammar engine takes.
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

/// Decoder that joins the bytes of tokens to text and splits only at character boundaries.
#[derive(Default)]
pub(crate) struct TokenTextDecoder {
    pending: Vec<u8>,
}

impl TokenTextDecoder {
    /// Appends bytes and returns the text that is complete.
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
                    // Invalid bytes are replaced; an incomplete character at the end stays pending.
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

    /// Returns the pending bytes as text at the end of the stream.
    pub(crate) fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_characters() {
        /// Pushed bytes, the text returned after each push, and the text returned by `finish`.
        type Case = (&'static [&'static [u8]], &'static [&'static str], &'static str);
        let cases: [Case; 4] = [
            (&[b"a", b"b"], &["a", "b"], ""),
            (&[b"\xe2", b"\x82", b"\xac!"], &["", "", "\u{20ac}!"], ""),
            (&[b"x\xf0\x9f", b"\x98\x80y"], &["x", "\u{1f600}y"], ""),
            (&[b"\xff\xe2a", b"\xe2\x82"], &["\u{fffd}\u{fffd}a", ""], "\u{fffd}"),
        ];
        for (pushes, texts, expected_remainder) in cases {
            let mut stream = TokenTextDecoder::default();
            let got: Vec<String> = pushes.iter().map(|bytes| stream.push(bytes)).collect();
            assert_eq!(got, texts);
            assert_eq!(stream.finish(), expected_remainder);
        }
    }
}
