//! An agent's prompt blocks as MCP prompts, which users can insert into their own conversations.

use agent_core::role::{PromptBlock, RoleBlock};
use agent_core::tool::Caller;
use rmcp::model::{GetPromptResult, Prompt, PromptMessage, Role};

/// Maximum length of a description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 100;

/// A prompt block with a unique name.
pub(super) struct PromptEntry {
    pub(super) name: String,
    title: Option<String>,
    text: String,
}

/// Returns the prompt blocks that the caller may see. Widget visitors see no blocks, since these reveal the agent's
/// instructions.
pub(super) fn visible_prompts(role: Option<&RoleBlock>, caller: Caller) -> Vec<PromptEntry> {
    let Some(role) = role.filter(|_| caller != Caller::Widget) else { return Vec::new() };
    let mut blocks: Vec<PromptEntry> = Vec::new();
    for (i, block) in role.content.prompt_blocks.iter().enumerate() {
        let (title, text) = match block {
            PromptBlock::Text(text) => ("", text),
            PromptBlock::Titled { title, text } => (title.trim(), text),
        };
        if text.trim().is_empty() {
            continue;
        }
        let is_taken = title.is_empty() || blocks.iter().any(|other| other.name == title);
        let name = if is_taken { format!("block-{}", i + 1) } else { title.to_owned() };
        let title = Some(title.to_owned()).filter(|title| !title.is_empty());
        blocks.push(PromptEntry { name, title, text: text.trim().to_owned() });
    }
    blocks
}

impl PromptEntry {
    pub(super) fn prompt(&self) -> Prompt {
        let mut prompt = Prompt::new(self.name.clone(), Some(self.description()), None);
        prompt.title = self.title.clone();
        prompt
    }

    /// Returns the beginning of the text, from which users choose among the agent's prompts.
    fn description(&self) -> String {
        let line = self.text.lines().next().unwrap_or_default().trim();
        let mut description: String = line.chars().take(MAX_DESCRIPTION_CHARS).collect();
        if description.len() < self.text.len() {
            description.push('…');
        }
        description
    }

    pub(super) fn result(self) -> GetPromptResult {
        GetPromptResult::new(vec![PromptMessage::new_text(Role::User, self.text)])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_block_has_a_name_of_its_own() {
        let role: RoleBlock =
            serde_json::from_value(json!({"id": "a", "companyId": "c", "content": {"promptBlocks":
            ["Plain.", {"title": "Tone", "text": "Short."}, {"title": "Tone", "text": "Kind."}, " "]}}))
            .expect("a role");
        let blocks = visible_prompts(Some(&role), Caller::Session);
        let actual: Vec<_> = blocks
            .iter()
            .map(|block| (block.name.as_str(), block.title.as_deref(), block.text.as_str()))
            .collect();
        let expected = [
            ("block-1", None, "Plain."),
            ("Tone", Some("Tone"), "Short."),
            ("block-3", Some("Tone"), "Kind."),
        ];
        assert_eq!(actual, expected);
        assert_eq!(blocks[0].prompt().description.as_deref(), Some("Plain."));
        assert!(
            visible_prompts(Some(&role), Caller::Widget).is_empty()
                && visible_prompts(None, Caller::Session).is_empty()
        );
    }
}
