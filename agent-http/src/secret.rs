//! What the shells do with a [`Secret`]: compare it, and keep it with the origin it was made for.

use agent_core::secret::Secret;
use subtle::ConstantTimeEq;
use url::{Origin, Url};

/// Whether `presented` is the secret, in a time that does not depend on where they differ.
///
/// The length is not hidden: secrets of ours are random, and their length is public.
pub fn matches(secret: &Secret, presented: &[u8]) -> bool {
    secret.expose().as_bytes().ct_eq(presented).into()
}

/// The scheme, host and port of an address (RFC 6454): the unit that a key is trusted to.
///
/// Hosts are compared as the URL standard normalises them. An address that has no host, such as
/// `data:`, has an origin that equals no other, itself included.
pub fn origin_of(url: &Url) -> Origin {
    url.origin()
}

/// A secret together with the only origin that may receive it.
///
/// An operator's key is kept as one of these, so that an address from a role or a request cannot
/// draw the key to another place: the key is only had by naming where it would go.
#[derive(Debug, Clone)]
pub struct BoundSecret {
    origin: Origin,
    secret: Secret,
}

impl BoundSecret {
    /// Binds a secret to the origin of `url`.
    pub fn new(url: &Url, secret: Secret) -> Self {
        Self { origin: origin_of(url), secret }
    }

    /// The secret, if `url` is of the origin that it is bound to.
    pub fn for_url(&self, url: &Url) -> Option<&Secret> {
        (origin_of(url) == self.origin).then_some(&self.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_whole_secrets() {
        let secret = Secret::new("0123456789abcdef");
        assert!(matches(&secret, b"0123456789abcdef"));
        for other in ["", "0123456789abcde", "0123456789abcdeF", "0123456789abcdef0"] {
            assert!(!matches(&secret, other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_key_goes_to_its_own_origin_alone() {
        let base = Url::parse("https://api.example.com/v1").unwrap();
        let key = BoundSecret::new(&base, Secret::new("sk-1"));
        let cases = [
            ("https://api.example.com/v1/chat/completions", true),
            ("https://API.example.com:443/other?x=1", true),
            ("http://api.example.com/v1", false),
            ("https://api.example.com:8443/v1", false),
            ("https://api.example.com./v1", false),
            ("https://api.example.com.evil.net/v1", false),
            ("https://api.example.com@evil.net/v1", false),
            ("https://example.com/v1", false),
            ("data:text/plain,x", false),
        ];
        for (url, given) in cases {
            let url = Url::parse(url).unwrap();
            assert_eq!(key.for_url(&url).is_some(), given, "{url}");
        }
        let nowhere = Url::parse("data:text/plain,x").unwrap();
        assert!(BoundSecret::new(&nowhere, Secret::new("sk-1")).for_url(&nowhere).is_none());
    }

    #[test]
    fn debug_shows_no_secret() {
        let url = Url::parse("https://api.example.com/").unwrap();
        assert!(!format!("{:?}", BoundSecret::new(&url, Secret::new("sk-1"))).contains("sk-1"));
    }
}
