//! Links that sign people in to the console.

use std::sync::Arc;

use agent_core::clock::SystemClock;
use agent_http::app::console_link;
use agent_platform::console::{ConsoleError, ConsoleSessions, NewConsoleCode};
use url::Url;

use crate::stores::Stores;

/// Creates a link to the console at `public_url`.
pub(crate) async fn create_link(
    stores: &Stores,
    public_url: &Url,
    new: NewConsoleCode,
) -> Result<String, ConsoleError> {
    let sessions = ConsoleSessions::new(stores.records.clone(), Arc::new(SystemClock));
    Ok(console_link(public_url, sessions.create_code(new).await?.text.expose()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_link_signs_in_once() {
        let stores = Stores::in_memory("a workspace", "{}").await.expect("stores");
        let url: Url = "https://agents.example/base".parse().expect("a URL");
        let link = create_link(&stores, &url, NewConsoleCode::new("acme", "ann")).await.expect("a link");
        let code = link.strip_prefix("https://agents.example/base/#enter=").expect("the console's address");
        let sessions = ConsoleSessions::new(stores.records.clone(), Arc::new(SystemClock));
        let opened = sessions.open(code).await.expect("a session");
        assert_eq!((&*opened.session.user_id, &*opened.session.company_id), ("ann", "acme"));
        assert!(sessions.open(code).await.is_err());
    }
}
