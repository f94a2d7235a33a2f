//! Parts of messages that all revisions of the protocol share.

use agent_core::tool::Progress;
use rmcp::model::{Implementation, ProgressNotificationParam, RequestId};

/// Maximum length of a progress message, in bytes; longer messages are truncated.
const MAX_REPORT_MESSAGE_BYTES: usize = 1024;
/// Maximum number of tools that a server lists, and of pages of the list.
pub(super) const MAX_LISTED_TOOLS: usize = 1000;
pub(super) const MAX_LIST_PAGES: usize = 50;

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
