//! URL of the tool server, as passed to agent runtimes and workflows.

use agent_core::backend::Turn;
use agent_core::error::AgentError;
use agent_core::payload::PayloadBuilder;
use url::Url;

use crate::outbound::join_path;

/// Appends the tool server's URL, with the run token, if there is one, and the identifiers that its calls work for. The
/// token is masked where the payload is displayed.
///
/// # Errors
/// `InvalidRequest` if `public_url` cannot have path segments.
pub(super) fn push_mcp_server_url(
    public_url: &Url,
    turn: &Turn,
    body: &mut PayloadBuilder,
) -> Result<(), AgentError> {
    let mut url = join_path(public_url, &["api", "agent", "mcp"])?;
    let context = &turn.context;
    let mut query = url.query_pairs_mut();
    query.append_pair("userId", &context.user_id).append_pair("agentId", &context.agent_id);
    for (name, value) in [("todoListId", &context.todo_list_id), ("timezone", &context.timezone)] {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    drop(query);
    match &turn.run_token {
        None => body.json(&url.as_str()),
        // Token text consists of characters that need no percent-encoding.
        Some(token) => {
            let (address, identities) = url.as_str().split_once('?').expect("the identities are its query");
            let token = Err(token.text().expose());
            body.partly_secret([Ok(address), Ok("?token="), token, Ok("&"), Ok(identities)])
        }
    };
    Ok(())
}
