//! Parts of messages that all revisions of the protocol share.

use agent_core::tool::Progress;
use agent_platform::exact_json;
use rmcp::model::{Implementation, ProgressNotificationParam, RequestId, Tool};
use serde_json::Value;

use super::errors::{self, MAX_RESULT_BYTES};

/// Maximum length of a progress message, in bytes; longer messages are truncated.
const MAX_REPORT_MESSAGE_BYTES: usize = 1024;
/// Maximum number of pages of a server's list of tools.
const MAX_LIST_PAGES: usize = 50;
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

/// Returns a message in which numbers of structured content are [marked texts](exact_json), since the type of results would
/// round them; `None` if it has none of these.
pub(super) fn with_marked_numbers(json: &str) -> Option<Value> {
    const PATH: &str = "/result/structuredContent";
    if !json.contains("structuredContent") {
        return None;
    }
    let marked = exact_json::read(json).ok()?.pointer_mut(PATH)?.take();
    let mut message: Value = serde_json::from_str(json).ok()?;
    let content = message.pointer_mut(PATH)?;
    if *content == marked {
        return None;
    }
    *content = marked;
    Some(message)
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
    /// Cursors of the pages after the first.
    cursors: Vec<String>,
    /// Size of tools and cursors.
    bytes: usize,
}

impl ListedTools {
    /// Adds the tools of a page, and returns the cursor of the next page; `None` if the list is complete.
    ///
    /// # Errors
    /// Message for a list that exceeds a limit, or repeats a cursor and so does not end. The page is not added.
    pub(super) fn add_page(
        &mut self,
        page: Vec<Tool>,
        next_cursor: Option<String>,
    ) -> Result<Option<String>, &'static str> {
        let page_bytes = serde_json::to_vec(&page).map_or(usize::MAX, |json| json.len());
        let cursor_bytes = next_cursor.as_ref().map_or(0, String::len);
        let bytes = self.bytes.saturating_add(page_bytes).saturating_add(cursor_bytes);
        if bytes > MAX_LISTED_BYTES || self.tools.len() + page.len() > MAX_LISTED_TOOLS {
            return Err(errors::TOO_MANY_TOOLS);
        }
        if let Some(cursor) = &next_cursor {
            if self.cursors.contains(cursor) || self.cursors.len() + 1 >= MAX_LIST_PAGES {
                return Err(errors::ENDLESS_LIST);
            }
            self.cursors.push(cursor.clone());
        }
        self.bytes = bytes;
        self.tools.extend(page);
        Ok(next_cursor)
    }

    /// Returns the tools.
    pub(super) fn into_tools(self) -> Vec<Tool> {
        self.tools
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ServerJsonRpcMessage, ServerResult};
    use serde_json::json;

    use super::*;
    use crate::output;

    #[test]
    fn structured_content_keeps_its_digits() {
        let of = |content: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[],"structuredContent":{content}}}}}"#)
        };
        let exact = r#"{"id":123456789012345678901234,"price":19.90}"#;
        let marked = with_marked_numbers(&of(exact)).expect("numbers that a float does not have");
        let message: ServerJsonRpcMessage = serde_json::from_value(marked).expect("a message");
        let ServerJsonRpcMessage::Response(answer) = message else { panic!("it is an answer") };
        let ServerResult::CallToolResult(result) = answer.result else { panic!("it is a tool's result") };
        assert_eq!(output::to_tool_output(result).text, exact);
        for other in [of(r#"{"id":7}"#), of("null"), of("1.50,"), r#"{"id":1.50}"#.to_owned()] {
            assert_eq!(with_marked_numbers(&other), None, "{other}");
        }
    }

    fn page(count: usize, description_bytes: usize) -> Vec<Tool> {
        let tool = json!({"name": "t", "description": "x".repeat(description_bytes),
            "inputSchema": {"type": "object"}});
        let tool: Tool = serde_json::from_value(tool).expect("a tool");
        vec![tool; count]
    }

    #[test]
    fn a_list_is_bounded_in_number_and_size() {
        let mut listed = ListedTools::default();
        assert_eq!(listed.add_page(page(MAX_LISTED_TOOLS, 10), None), Ok(None));
        assert_eq!(listed.add_page(page(1, 10), None), Err(errors::TOO_MANY_TOOLS));
        assert_eq!(listed.into_tools().len(), MAX_LISTED_TOOLS);
        let mut listed = ListedTools::default();
        let large = MAX_RESULT_BYTES - 1_000;
        for _ in 0..2 {
            assert_eq!(listed.add_page(page(1, large), None), Ok(None));
        }
        assert_eq!(
            listed.add_page(page(1, large), None),
            Err(errors::TOO_MANY_TOOLS),
            "as large as three pages"
        );
        assert_eq!(listed.into_tools().len(), 2);
        let long_cursor = Some("x".repeat(MAX_LISTED_BYTES));
        assert_eq!(ListedTools::default().add_page(vec![], long_cursor), Err(errors::TOO_MANY_TOOLS));
    }

    #[test]
    fn a_list_that_does_not_end_is_not_read_any_further() {
        let mut listed = ListedTools::default();
        for cursor in ["a", "", "b"] {
            let cursor = Some(cursor.to_owned());
            assert_eq!(listed.add_page(page(1, 10), cursor.clone()), Ok(cursor));
        }
        assert_eq!(listed.add_page(page(1, 10), Some(String::new())), Err(errors::ENDLESS_LIST));
        let mut listed = ListedTools::default();
        let pages =
            (0..).take_while(|number: &usize| listed.add_page(vec![], Some(number.to_string())).is_ok());
        assert_eq!(pages.count() + 1, MAX_LIST_PAGES);
    }
}
