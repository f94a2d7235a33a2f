//! The tool server's address, as agent runtimes and workflows are given it.

use agent_core::error::Failure;
use agent_core::tool::ExecutionContext;
use url::Url;

use super::below;

/// The tool server's address with the identities that its calls work for.
///
/// # Errors
/// `InvalidRequest` where `public_url` has no path.
pub(super) fn mcp_server_url(public_url: &Url, context: &ExecutionContext) -> Result<Url, Failure> {
    let mut url = below(public_url, &["api", "agent", "mcp"])?;
    let mut query = url.query_pairs_mut();
    query.append_pair("userId", &context.user_id).append_pair("agentId", &context.agent_id);
    for (name, value) in [("todoListId", &context.todo_list_id), ("timezone", &context.timezone)] {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    drop(query);
    Ok(url)
}
