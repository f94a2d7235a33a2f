//! Cache of discovery results: the servers that support the revision without sessions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::Cache;
use rmcp::model::{CacheScope, DiscoverResult};
use tokio::time::Instant;
use url::{Position, Url};

/// Maximum number of servers; the least used are evicted.
const MAX_SERVERS: usize = 1024;
/// Maximum length of a server's address, in bytes; servers with longer addresses are not cached.
const MAX_ADDRESS_BYTES: usize = 512;
/// Maximum time that a result is used, even if the server allows a longer one.
const MAX_TTL: Duration = Duration::from_secs(600);

/// Servers that support revision 2026-07-28, so that a run need not send `server/discover`. Shared by the runs of a
/// process.
///
/// Only results whose `cacheScope` is `public` are cached, because each run has its own token, and for no longer than
/// their `ttlMs`. A server is identified by its URL without the query, which carries the token.
#[derive(Clone)]
pub struct DiscoveryCache(Arc<Cache<Box<str>, Instant>>);

impl Default for DiscoveryCache {
    fn default() -> Self {
        Self(Arc::new(Cache::new(MAX_SERVERS)))
    }
}

impl fmt::Debug for DiscoveryCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiscoveryCache").field("servers", &self.0.len()).finish()
    }
}

impl DiscoveryCache {
    /// Returns the entry of the server at `url`.
    pub fn entry(&self, url: &Url) -> DiscoveryEntry {
        DiscoveryEntry { cache: self.clone(), server: url[..Position::AfterPath].into() }
    }
}

/// Entry of one server in a [`DiscoveryCache`].
#[derive(Clone)]
pub struct DiscoveryEntry {
    cache: DiscoveryCache,
    server: Box<str>,
}

impl fmt::Debug for DiscoveryEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiscoveryEntry").finish_non_exhaustive()
    }
}

impl DiscoveryEntry {
    /// Returns true if a fresh result says that the server supports the revision.
    pub(super) fn is_stateless(&self) -> bool {
        self.cache.0.get(&self.server).is_some_and(|expiry| Instant::now() < expiry)
    }

    /// Caches a result that says so, if the server allows it.
    pub(super) fn insert(&self, result: &DiscoverResult) {
        let is_shared = result.cache_scope == CacheScope::Public;
        let ttl = Duration::from_millis(result.ttl_ms).min(MAX_TTL);
        if is_shared && !ttl.is_zero() && self.server.len() <= MAX_ADDRESS_BYTES {
            self.cache.0.insert(self.server.clone(), Instant::now() + ttl);
        }
    }

    pub(super) fn remove(&self) {
        self.cache.0.remove(&self.server);
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ProtocolVersion, ServerCapabilities};

    use super::*;

    fn result(ttl_ms: u64, scope: CacheScope) -> DiscoverResult {
        DiscoverResult::new(vec![ProtocolVersion::V_2026_07_28], ServerCapabilities::default())
            .with_ttl_ms(ttl_ms)
            .with_cache_scope(scope)
    }

    fn entry(cache: &DiscoveryCache, url: &str) -> DiscoveryEntry {
        cache.entry(&url.parse().expect("a URL"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_cached_for_as_long_as_the_server_allows() {
        let cache = DiscoveryCache::default();
        let server = entry(&cache, "http://a.example/mcp?token=one");
        server.insert(&result(1000, CacheScope::Public));
        assert!(entry(&cache, "http://a.example/mcp?token=other").is_stateless());
        for other in ["http://a.example/other", "http://a.example:81/mcp", "https://a.example/mcp"] {
            assert!(!entry(&cache, other).is_stateless(), "{other}");
        }
        tokio::time::advance(Duration::from_millis(1001)).await;
        assert!(!server.is_stateless());
        server.insert(&result(u64::MAX, CacheScope::Public));
        tokio::time::advance(MAX_TTL - Duration::from_millis(1)).await;
        assert!(server.is_stateless());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!server.is_stateless());
    }

    #[tokio::test]
    async fn results_that_may_not_be_shared_are_not_cached() {
        let cache = DiscoveryCache::default();
        let server = entry(&cache, "http://a.example/mcp");
        server.insert(&result(0, CacheScope::Public));
        server.insert(&result(1000, CacheScope::Private));
        assert!(!server.is_stateless());
        let long = entry(&cache, &format!("http://a.example/{}", "x".repeat(MAX_ADDRESS_BYTES)));
        long.insert(&result(1000, CacheScope::Public));
        assert!(!long.is_stateless());
        server.insert(&result(1000, CacheScope::Public));
        server.remove();
        assert!(!server.is_stateless());
    }
}
