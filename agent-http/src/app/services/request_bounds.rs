//! Bounds on requests that hold connections or memory for long.

use super::anonymous::AnonymousBodies;
use super::bundle_downloads::BundleDownloads;
use super::response_readers::ResponseReaders;

/// Bounds on requests that hold connections or memory for long.
#[derive(Debug)]
pub struct RequestBounds {
    /// Bodies that are read before their sender is authenticated.
    pub(in crate::app) anonymous_bodies: AnonymousBodies,
    /// Readers of runs' logs and of downloads.
    pub(in crate::app) readers: ResponseReaders,
    /// Bundles of runs that are in memory.
    pub(in crate::app) bundle_downloads: BundleDownloads,
}

impl RequestBounds {
    /// Creates the bounds of a server with at most `connections` connections.
    #[must_use]
    pub fn new(connections: u32) -> Self {
        Self {
            anonymous_bodies: AnonymousBodies::new(connections),
            readers: ResponseReaders::new(connections),
            bundle_downloads: BundleDownloads::default(),
        }
    }
}
