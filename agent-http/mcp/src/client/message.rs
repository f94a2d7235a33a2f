//! Parts of messages that all revisions of the protocol share.

use agent_core::tool::Progress;
use rmcp::model::{Implementation, ProgressNotificationParam, RequestId, Tool};

use super::errors::MAX_RESULT_BYTES;

/// Maximum length of a progress message, in bytes; longer messages are truncated.
const MAX_REPORT_MESSAGE_BYTES: usize = 1024;
/// Maximum number of pages of a server's list of tools.
pub(super) const MAX_LIST_PAGES: usize = 50;
/// Maximum number of tools that a server lists, and of the bytes of all, as JSON: twice as much as one page has.
const MAX_LISTED_TOOLS: usize = 1000;
const MAX_LISTED_BYTES: usize = 2 * MAX_RESULT_BYTES;

/// Returns the name and version of this client.
pub(super) fn implementation() -> Implementation {
    Implementation::new("agentd", env!("CARGO_PKG_VERSION"))
}

/// Compares request identifiers as text, since some servers return a numeric identifier as a string.
pub(super) fn is_same_id(left: &RequestId, right: &RequestId) -> bool {
    left.to_string() == right.to_string()
}

/// Forwards a progress notification to a call's reporter.
pub(super) fn forward_progress(report: &ProgressNotificationParam, progress: &dyn Progress) {
    let message =
        report.message.as_deref().map(|text| &text[..text.floor_char_boundary(MAX_REPORT_MESSAGE_BYTES)]);
    progress.report(report.progress, report.total, message);
}

/// Tools of the pages of a server's list, bounded in number and size.
#[derive(Default)]
pub(super) struct ListedTools {
    tools: Vec<Tool>,
    bytes: usize,
}

impl ListedTools {
    /// Adds the tools of a page. Returns false if the list exceeds a limit, without the page.
    pub(super) fn add_page(&mut self, page: Vec<Tool>) -> bool {
        let page_bytes = serde_json::to_vec(&page).map_or(usize::MAX, |json| json.len());
        let bytes = self.bytes.saturating_add(page_bytes);
        if bytes > MAX_LISTED_BYTES || self.tools.len() + page.len() > MAX_LISTED_TOOLS {
            return false;
        }
        self.bytes = bytes;
        self.tools.extend(page);
        true
    }

    /// Returns the tools.
    pub(super) fn into_tools(self) -> Vec<Tool> {
        self.tools
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn page(count: usize, description_bytes: usize) -> Vec<Tool> {
        let tool = json!({"name": "t", "description": "x".repeat(description_bytes),
            "inputSchema": {"type": "object"}});
        let tool: Tool = serde_json::from_value(tool).expect("a tool");
        vec![tool; count]
    }

    #[test]
    fn a_list_is_bounded_in_number_and_size() {
        let mut listed = ListedTools::default();
        assert!(listed.add_page(page(MAX_LISTED_TOOLS, 10)) && !listed.add_page(page(1, 10)));
        assert_eq!(listed.into_tools().len(), MAX_LISTED_TOOLS);
        let mut listed = ListedTools::default();
        let large = MAX_RESULT_BYTES - 1_000;
        assert!(listed.add_page(page(1, large)) && listed.add_page(page(1, large)));
        assert!(!listed.add_page(page(1, large)), "as large as three pages");
        assert_eq!(listed.into_tools().len(), 2);
    }
}
