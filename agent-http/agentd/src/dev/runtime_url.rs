//! URL of the runtime in the demo workspace, which follows the port of `agentd dev`.

use std::path::Path;

use agent_core::role::{Container, RoleBlock};
use agent_platform::records::Precondition;
use agent_platform::roles::RoleStore;
use url::Url;

use crate::StartError;

/// URL in the demo workspace: the runtime's URL on the default port.
const DEMO_RUNTIME_URL: &str = "http://127.0.0.1:3001";

/// Identifier of the demo agent that the runtime answers for.
const REMOTE_AGENT_ID: &str = "remote-guide";

/// Updates the demo agent of `company` if it has the URL of the previous start, which is in `file`, and this start's
/// differs. An agent whose URL the user has changed stays as it is.
///
/// # Errors
/// The store cannot be read or written, or the file cannot be written.
pub(super) async fn update(
    roles: &dyn RoleStore,
    company: &str,
    file: &Path,
    current: &Url,
) -> Result<(), StartError> {
    let current = current.as_str().trim_end_matches('/');
    let previous = std::fs::read_to_string(file).unwrap_or_else(|_| DEMO_RUNTIME_URL.to_owned());
    if previous.trim() == current {
        return Ok(());
    }
    if let Some(record) = roles.masked_role(&company.into(), &REMOTE_AGENT_ID.into()).await? {
        let mut role = record.value;
        if replace(&mut role, previous.trim(), current) {
            roles.put_role(role, Precondition::Version(record.version)).await?;
        }
    }
    std::fs::write(file, current)
        .map_err(|source| StartError::Unwritable { path: file.display().to_string(), source })
}

/// Replaces the URL in the agent's container; returns false if the container has another URL.
fn replace(role: &mut RoleBlock, previous: &str, current: &str) -> bool {
    let mut is_replaced = false;
    for container in &mut role.children {
        if let Container::AgentServer(server) = container
            && server.agent_server_url.as_deref() == Some(previous)
        {
            server.agent_server_url = Some(current.to_owned());
            is_replaced = true;
        }
    }
    is_replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev::{DEMO_ID, DEMO_WORKSPACE};
    use crate::stores::Stores;

    #[tokio::test]
    async fn the_demo_follows_the_port_until_the_user_changes_it() {
        let data = tempfile::tempdir().expect("a folder");
        let file = data.path().join("runtime.url");
        let stores = Stores::in_memory("the demo", DEMO_WORKSPACE).await.expect("the demo is valid");
        let start = async |url: &str| {
            let url = Url::parse(url).expect("a URL");
            update(&*stores.roles, DEMO_ID, &file, &url).await.expect("updated");
            let stored_role = stores.roles.masked_role(&DEMO_ID.into(), &REMOTE_AGENT_ID.into()).await;
            let role = stored_role.expect("the store works").expect("the agent exists");
            let url = role.value.children.iter().find_map(|container| match container {
                Container::AgentServer(server) => server.agent_server_url.clone(),
                _ => None,
            });
            (url.expect("a URL"), role)
        };
        assert_eq!(start("http://127.0.0.1:3001").await.0, "http://127.0.0.1:3001");
        assert_eq!(start("http://127.0.0.1:4001").await.0, "http://127.0.0.1:4001");
        let (url, stored_role) = start("http://127.0.0.1:5001/").await;
        assert_eq!(url, "http://127.0.0.1:5001");

        let mut role = stored_role.value;
        assert!(replace(&mut role, &url, "https://own.example"));
        stores.roles.put_role(role, Precondition::Any).await.expect("saved");
        assert_eq!(start("http://127.0.0.1:3001").await.0, "https://own.example");
    }
}
