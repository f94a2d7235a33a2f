//! Secrets bound to an origin.

use agent_core::secret::Secret;
use url::{Origin, Url};

/// Returns the origin of a URL: scheme, host and port (RFC 6454), the unit to which a key is bound.
///
/// Hosts are compared as normalized by the URL standard. A URL without a host, such as `data:`, has an opaque origin,
/// which equals no other, not even its own.
pub(crate) fn origin_of(url: &Url) -> Origin {
    url.origin()
}

/// Secret that may be sent to one origin only.
///
/// It holds an operator's key, so that a URL from a role or a request cannot redirect the key to another host: the
/// key is returned only for the URL that it will be sent to.
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

    /// Returns the secret if `url` has the origin that it is bound to.
    pub(crate) fn for_url(&self, url: &Url) -> Option<&Secret> {
        (origin_of(url) == self.origin).then_some(&self.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
