//! Suffixes of the elements that quote documents in a prompt.

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use agent_core::secret::Secret;

/// Label of the key among those that are derived from the same secret.
const KEY_LABEL: &[u8] = b"agent-platform retrieval boundary v1";
/// Length of a suffix in bytes, half of its characters.
const SUFFIX_BYTES: usize = 6;

/// Key from which suffixes are computed.
///
/// A suffix is a message authentication code of the quoted texts. The author of a document cannot predict it, as it depends
/// on the key; the preview of a turn has the same one as the run, as it depends on nothing else.
pub struct BoundaryKey([u8; 32]);

impl std::fmt::Debug for BoundaryKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoundaryKey").finish_non_exhaustive()
    }
}

impl BoundaryKey {
    /// Derives the key from a secret, for processes that show the same suffixes.
    pub fn from_secret(secret: &Secret) -> Self {
        let mut key = [0; 32];
        let hkdf = Hkdf::<Sha256>::new(None, secret.expose().as_bytes());
        hkdf.expand(KEY_LABEL, &mut key).expect("HKDF-SHA256 gives up to 8,160 bytes");
        Self(key)
    }

    /// Generates a random key for this process.
    ///
    /// # Panics
    /// If the system has no random numbers.
    pub fn random() -> Self {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the system has random numbers");
        Self(key)
    }

    /// Returns the suffix for a company's texts.
    pub(crate) fn suffix<'a>(&self, company: &'a str, texts: impl Iterator<Item = &'a str>) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any key has a valid length");
        for text in [company].into_iter().chain(texts) {
            mac.update(&(text.len() as u64).to_be_bytes());
            mac.update(text.as_bytes());
        }
        hex::encode(&mac.finalize().into_bytes()[..SUFFIX_BYTES])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_depends_on_key_company_and_texts() {
        let key = BoundaryKey::from_secret(&Secret::new("a secret of some length"));
        let same = BoundaryKey::from_secret(&Secret::new("a secret of some length"));
        let suffix =
            |key: &BoundaryKey, company: &str, texts: &[&str]| key.suffix(company, texts.iter().copied());
        let first = suffix(&key, "c", &["one", "two"]);
        assert_eq!(first.len(), 12);
        assert_eq!(first, suffix(&same, "c", &["one", "two"]));
        for other in [
            suffix(&BoundaryKey::random(), "c", &["one", "two"]),
            suffix(&key, "d", &["one", "two"]),
            suffix(&key, "c", &["onet", "wo"]),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn debug_output_does_not_show_the_key() {
        let key = BoundaryKey::from_secret(&Secret::new("a secret of some length"));
        assert_eq!(format!("{key:?}"), "BoundaryKey { .. }");
    }
}
