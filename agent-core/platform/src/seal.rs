//! Sealing of secrets at rest, so that a copy of the database alone does not reveal them.
//!
//! A sealed text is `v1.<key id>.<base64url of nonce, ciphertext and tag>`. The cipher is XChaCha20-Poly1305, an AEAD
//! (RFC 5116) with nonces that are long enough to be random. Keys are derived from an operator's secret by HKDF-SHA256
//! (RFC 5869), which adds no entropy: the secret must be random. A text is bound to its record and field (the
//! associated data), so that a party with write access to the database cannot move one role's key to another.
//!
//! A [`Sealer`] seals with its current key and opens with the current and the previous one. An operator can therefore
//! change the secret while the service runs and seal everything again afterwards.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use hkdf::Hkdf;
use sha2::Sha256;

use agent_core::secret::Secret;
use agent_core::store_error::StoreError;

const VERSION: &str = "v1";
const NONCE_BYTES: usize = 24;
const KEY_LABEL: &[u8] = b"agent-core sealed text v1: key";
const KEY_ID_LABEL: &[u8] = b"agent-core sealed text v1: key id";

/// Error of sealing or opening a text. It never contains the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// No key is configured.
    #[error("no encryption key is configured")]
    NoKey,
    /// The text was sealed under a key that is neither the current nor the previous one.
    #[error("it was encrypted with another key")]
    UnknownKey,
    /// The text was not sealed with this associated data: it is damaged, moved, missing, or of a later version.
    #[error("it is corrupt or was encrypted for another record")]
    Damaged,
    /// The operating system provides no random numbers.
    #[error("the operating system provides no random numbers")]
    NoRandomness,
}

impl SealError {
    /// Converts the error of a secret that `owner` has in `field` into an error of the store that holds it.
    pub(crate) fn into_store_error(self, owner: &str, field: impl Into<String>) -> StoreError {
        match self {
            Self::NoKey => StoreError::NotConfigured("DATA_SECRET"),
            Self::NoRandomness => StoreError::unavailable(self),
            source => StoreError::UnreadableSecret {
                owner: owner.to_owned(),
                field: field.into(),
                source: source.into(),
            },
        }
    }
}

/// Seals texts with a current key and opens them with the current or the previous one.
pub struct Sealer {
    current: Option<SealingKey>,
    previous: Option<SealingKey>,
}

impl Sealer {
    /// Creates a sealer that seals under `secret` and opens texts sealed under either secret.
    pub fn new(secret: &Secret, previous: Option<&Secret>) -> Self {
        let key = |secret: &Secret| SealingKey::derive(secret.expose().as_bytes());
        Self { current: Some(key(secret)), previous: previous.map(key) }
    }

    /// Creates a sealer with a random key that exists in this process only, for stores in memory. Without random
    /// numbers from the operating system it equals [`without_key`](Self::without_key).
    pub fn ephemeral() -> Self {
        let mut secret = [0; 32];
        let key = getrandom::fill(&mut secret).ok().map(|()| SealingKey::derive(&secret));
        Self { current: key, previous: None }
    }

    /// Creates a sealer without a key: sealing and opening fail with [`SealError::NoKey`].
    pub fn without_key() -> Self {
        Self { current: None, previous: None }
    }

    /// Seals `text` with `associated_data`, which is needed again to open it. Each call returns a different text.
    ///
    /// # Errors
    /// [`SealError::NoKey`], [`SealError::NoRandomness`].
    pub fn seal(&self, associated_data: &[&str], text: &Secret) -> Result<String, SealError> {
        let key = self.current.as_ref().ok_or(SealError::NoKey)?;
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|_| SealError::NoRandomness)?;
        let aad = encode_associated_data(associated_data);
        let payload = Payload { msg: text.expose().as_bytes(), aad: &aad };
        // The cipher fails only for texts longer than 256 GB.
        let sealed = key.cipher.encrypt(&XNonce::from(nonce), payload).map_err(|_| SealError::Damaged)?;
        let sealed = BASE64_URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat());
        Ok(format!("{VERSION}.{}.{sealed}", key.id))
    }

    /// Opens a text sealed with `associated_data`.
    ///
    /// # Errors
    /// [`SealError::NoKey`], [`SealError::UnknownKey`], [`SealError::Damaged`].
    pub fn open(&self, associated_data: &[&str], sealed: &str) -> Result<Secret, SealError> {
        if self.current.is_none() {
            return Err(SealError::NoKey);
        }
        let (key_id, sealed) = split_sealed(sealed).ok_or(SealError::Damaged)?;
        let mut keys = self.current.iter().chain(&self.previous);
        let key = keys.find(|key| key.id == key_id).ok_or(SealError::UnknownKey)?;
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(sealed).map_err(|_| SealError::Damaged)?;
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(SealError::Damaged)?;
        let payload = Payload { msg: sealed, aad: &encode_associated_data(associated_data) };
        let text = key.cipher.decrypt(&XNonce::from(*nonce), payload).map_err(|_| SealError::Damaged)?;
        String::from_utf8(text).map(Secret::new).map_err(|_| SealError::Damaged)
    }

    /// Returns true if there is a key, so that texts can be sealed.
    pub fn has_key(&self) -> bool {
        self.current.is_some()
    }

    /// Returns true if the sealed text names the current key.
    pub(crate) fn is_current(&self, sealed: &str) -> bool {
        let key_id = split_sealed(sealed).map(|(key_id, _)| key_id);
        self.current.as_ref().is_some_and(|key| Some(key.id.as_str()) == key_id)
    }
}

/// Shows the ids of the keys, which reveal nothing about the keys.
impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = |key: &Option<SealingKey>| key.as_ref().map(|key| key.id.clone());
        f.debug_struct("Sealer")
            .field("current", &id(&self.current))
            .field("previous", &id(&self.previous))
            .finish()
    }
}

struct SealingKey {
    id: String,
    cipher: XChaCha20Poly1305,
}

impl SealingKey {
    fn derive(secret: &[u8]) -> Self {
        let hkdf = Hkdf::<Sha256>::new(None, secret);
        let (mut key, mut id) = ([0; 32], [0; 8]);
        hkdf.expand(KEY_LABEL, &mut key).expect("HKDF-SHA256 gives up to 8,160 bytes");
        hkdf.expand(KEY_ID_LABEL, &mut id).expect("HKDF-SHA256 gives up to 8,160 bytes");
        Self { id: hex::encode(id), cipher: XChaCha20Poly1305::new(&key.into()) }
    }
}

/// Splits a sealed text into the key's id and the encoded rest.
fn split_sealed(sealed: &str) -> Option<(&str, &str)> {
    sealed.strip_prefix(VERSION)?.strip_prefix('.')?.split_once('.')
}

/// Encodes the parts of associated data, each preceded by its length, so that different parts differ in bytes.
fn encode_associated_data(parts: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASSOCIATED_DATA: &[&str] = &["role", "acme", "agent", "content.messengerToken"];

    fn sealer(secret: &str, previous: Option<&str>) -> Sealer {
        Sealer::new(&Secret::new(secret), previous.map(Secret::new).as_ref())
    }

    fn sealed(sealer: &Sealer, text: &str) -> String {
        sealer.seal(ASSOCIATED_DATA, &Secret::new(text)).expect("sealed")
    }

    #[test]
    fn sealing_round_trips_and_is_randomized() {
        let sealer = sealer("a secret of the operator", None);
        for text in ["", "sk-1", "ü\0\u{1F600}", &"x".repeat(100_000)] {
            let (one, two) = (sealed(&sealer, text), sealed(&sealer, text));
            assert_ne!(one, two);
            assert!(one.starts_with("v1."), "{one}");
            for sealed in [one, two] {
                assert_eq!(sealer.open(ASSOCIATED_DATA, &sealed).expect("opened").expose(), text);
                assert!(sealer.is_current(&sealed));
            }
        }
    }

    #[test]
    fn a_text_sealed_by_another_implementation_is_opened() {
        // Sealed by libsodium, with HKDF computed by hand.
        let sealer = sealer("0123456789abcdef", None);
        let sealed = "v1.3234885048e1f587.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXEu9pTxIJMqudOCH3nZz3j_mb-Tc";
        assert_eq!(sealer.open(ASSOCIATED_DATA, sealed).expect("opened").expose(), "sk-1");
    }

    #[test]
    fn a_text_is_valid_only_for_its_own_record_and_key() {
        let (old, new) = ("the secret of last year", "the secret of this year");
        let text = sealed(&sealer(old, None), "sk-1");
        let both = sealer(new, Some(old));
        assert_eq!(both.open(ASSOCIATED_DATA, &text).expect("opened").expose(), "sk-1");
        assert!(!both.is_current(&text));
        assert!(both.is_current(&sealed(&both, "sk-1")));
        assert_eq!(sealer(new, None).open(ASSOCIATED_DATA, &text), Err(SealError::UnknownKey));
        assert_eq!(Sealer::ephemeral().open(ASSOCIATED_DATA, &text), Err(SealError::UnknownKey));
        assert_eq!(Sealer::without_key().open(ASSOCIATED_DATA, &text), Err(SealError::NoKey));
        assert_eq!(Sealer::without_key().seal(ASSOCIATED_DATA, &Secret::new("sk")), Err(SealError::NoKey));
        for other_data in [
            &["role", "acme", "agent", "content.agentServerApiKey"][..],
            &["role", "acme", "other", "content.messengerToken"],
            &["role", "other", "agent", "content.messengerToken"],
            &["role", "acme", "agentcontent.", "messengerToken"],
            &["role", "acme", "agent"],
            &[],
        ] {
            assert_eq!(both.open(other_data, &text), Err(SealError::Damaged), "{other_data:?}");
        }
    }

    #[test]
    fn a_damaged_text_is_refused() {
        let sealer = sealer("a secret of the operator", None);
        let text = sealed(&sealer, "sk-1");
        let id = split_sealed(&text).expect("its parts").0;
        for damaged in [
            String::new(),
            "sk-1".into(),
            "v1.".into(),
            format!("v1.{id}"),
            format!("v1.{id}."),
            format!("v1.{id}.AAAA"),
            format!("v1.{id}.!!!!"),
            text.replacen("v1.", "v2.", 1),
            format!("{text}="),
            text[..text.len() - 4].to_owned(),
        ] {
            assert_eq!(sealer.open(ASSOCIATED_DATA, &damaged), Err(SealError::Damaged), "{damaged}");
        }
        // A change of any character is detected.
        for at in text.rfind('.').expect("the dot") + 1..text.len() {
            let other = if &text[at..=at] == "A" { "B" } else { "A" };
            let mut damaged = text.clone();
            damaged.replace_range(at..=at, other);
            assert_eq!(sealer.open(ASSOCIATED_DATA, &damaged), Err(SealError::Damaged), "{damaged}");
        }
    }

    #[test]
    fn debug_output_hides_the_keys() {
        let shown = format!("{:?}", sealer("the secret of this year", Some("the secret of last year")));
        assert!(!shown.contains("the secret"), "{shown}");
    }
}
