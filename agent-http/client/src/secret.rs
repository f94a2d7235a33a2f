//! Secrets bound to a base URL.

use agent_core::secret::Secret;
use url::Url;

/// Returns true if `url` is `base` or below it: with the same origin (RFC 6454) and the base's path as a prefix of whole
/// segments. A gateway may serve other parties under other paths of the same origin.
///
/// Hosts and dot segments are compared as normalized by the URL standard. A path with an encoded slash or backslash is
/// below no base, since the server may decode it to a path elsewhere. A URL without a host, such as `data:`, has an
/// opaque origin, which equals no other, not even its own.
pub(crate) fn is_within(base: &Url, url: &Url) -> bool {
    let mut segments = path_segments(url);
    let has_encoded_slash = || {
        let path = url.path().to_ascii_lowercase();
        path.contains("%2f") || path.contains("%5c")
    };
    url.origin() == base.origin()
        && path_segments(base).all(|segment| segments.next() == Some(segment))
        && !has_encoded_slash()
}

/// Returns the segments of the path, without an empty one at its end.
fn path_segments(url: &Url) -> impl Iterator<Item = &str> {
    url.path().trim_end_matches('/').split('/')
}

/// Secret that may be sent to one base URL, and below it, only.
///
/// It holds an operator's key. A URL from a role or a request cannot redirect the key to another host or path, since
/// the key is returned only for the URL that it is sent to.
#[derive(Debug, Clone)]
pub struct BoundSecret {
    base: Url,
    secret: Secret,
}

impl BoundSecret {
    /// Binds a secret to `base`.
    pub fn new(base: &Url, secret: Secret) -> Self {
        Self { base: base.clone(), secret }
    }

    /// Returns the secret if `url` is the URL that it is bound to, or below it.
    pub(crate) fn for_url(&self, url: &Url) -> Option<&Secret> {
        is_within(&self.base, url).then_some(&self.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_to_its_own_base_alone() {
        let bound_to = |base: &str| BoundSecret::new(&Url::parse(base).unwrap(), Secret::new("sk-1"));
        let key = bound_to("https://api.example.com/v1");
        let cases = [
            ("https://api.example.com/v1", true),
            ("https://api.example.com/v1/", true),
            ("https://api.example.com/v1/chat/completions", true),
            ("https://API.example.com:443/v1/other?x=1", true),
            ("https://api.example.com/v2/../v1/chat", true),
            ("https://api.example.com/", false),
            ("https://api.example.com/v10", false),
            ("https://api.example.com/other/v1", false),
            ("https://api.example.com/v1/../other", false),
            ("https://api.example.com/v1/%2e%2e/other", false),
            ("https://api.example.com/v1/..%2fother", false),
            ("https://api.example.com/v1/..%5Cother", false),
            ("http://api.example.com/v1", false),
            ("https://api.example.com:8443/v1", false),
            ("https://api.example.com./v1", false),
            ("https://api.example.com.evil.net/v1", false),
            ("https://api.example.com@evil.net/v1", false),
            ("https://example.com/v1", false),
            ("data:text/plain,x", false),
        ];
        for (url, is_sent) in cases {
            let url = Url::parse(url).unwrap();
            assert_eq!(key.for_url(&url).is_some(), is_sent, "{url}");
        }
        let root = bound_to("http://127.0.0.1:3001");
        for path in ["", "/", "/chat"] {
            let url = Url::parse(&format!("http://127.0.0.1:3001{path}")).unwrap();
            assert!(root.for_url(&url).is_some(), "{url}");
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
