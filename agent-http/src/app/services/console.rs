//! The console's sessions and address.

use std::sync::Arc;

use agent_platform::console::ConsoleSessions;
use url::Url;

use crate::auth::ConsoleAuth;

/// The console of an application.
pub struct ConsoleService {
    pub(in crate::app) auth: Arc<ConsoleAuth>,
    pub(in crate::app) public_url: Url,
}

impl ConsoleService {
    /// Creates the console of a server that is reached at `public_url`, on loopback and under `hosts`.
    pub fn new(
        sessions: Arc<ConsoleSessions>,
        public_url: Url,
        hosts: impl IntoIterator<Item = String>,
    ) -> Self {
        let auth = Arc::new(ConsoleAuth::new(sessions, &public_url, hosts));
        Self { auth, public_url }
    }

    /// Returns the verification of the sessions.
    pub fn auth(&self) -> &Arc<ConsoleAuth> {
        &self.auth
    }
}

/// Returns the link that signs in with a code, which is in the fragment.
#[must_use]
pub fn console_link(public_url: &Url, code: &str) -> String {
    let mut url = public_url.clone();
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    url.set_fragment(Some(&format!("enter={code}")));
    url.into()
}
