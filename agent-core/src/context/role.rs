//! Context layer for the role's own text, which the operator wrote.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;

use super::{ContextLayer, LayerError, TurnInput, markdown_list};
use crate::prompt::{Fragment, PartCache, Stability};
use crate::role::{PromptBlock, RoleContent};

/// Context layer for the role's system prompt, agent configuration, personality, prompt blocks and rules.
#[derive(Debug)]
pub struct RoleLayer {
    cache: Arc<PartCache>,
}

impl RoleLayer {
    /// Creates a layer that takes its parts from `cache`.
    pub fn new(cache: Arc<PartCache>) -> Self {
        Self { cache }
    }

    fn fragments(&self, role: &RoleContent) -> Vec<Fragment> {
        let mut fragments = Vec::with_capacity(role.prompt_blocks.len() + 4);
        let mut add = |id: String, text: std::borrow::Cow<'_, str>| {
            fragments.push(Fragment::new(id, self.name(), Stability::Role, self.cache.part(text)));
        };
        if let Some(text) = non_blank(role.system_prompt.as_deref()) {
            add("system-prompt".into(), text.into());
        }
        if let Some(config) = role.agent_config.as_ref().filter(|config| !config.is_null()) {
            add("agent-config".into(), format!("## Agent configuration\n\n```json\n{config:#}\n```").into());
        }
        if let Some(text) = non_blank(role.personality.as_deref()) {
            add("personality".into(), format!("## Personality\n\n{text}").into());
        }
        let mut ids = HashSet::new();
        for (i, block) in role.prompt_blocks.iter().enumerate() {
            let (title, text) = match block {
                PromptBlock::Text(text) => ("", text),
                PromptBlock::Titled { title, text } => (title.trim(), text),
            };
            let Some(text) = non_blank(Some(text)) else { continue };
            // Blocks without a title are identified by their index.
            let titled =
                Some(format!("block:{title}")).filter(|id| !title.is_empty() && ids.insert(id.clone()));
            let id = titled.unwrap_or_else(|| format!("block:{i}"));
            let text = if title.is_empty() { text.into() } else { format!("## {title}\n\n{text}").into() };
            add(id, text);
        }
        let rules = role.rules.iter().filter_map(|rule| non_blank(Some(rule)));
        let rules = markdown_list("## Rules\n\n", rules, |i| format!("{}. ", i + 1).into());
        if !rules.is_empty() {
            add("rules".into(), rules.into());
        }
        fragments
    }
}

#[async_trait]
impl ContextLayer for RoleLayer {
    fn name(&self) -> &'static str {
        "role"
    }

    async fn collect(&self, turn: &TurnInput) -> Result<Vec<Fragment>, LayerError> {
        Ok(self.fragments(&turn.role.content))
    }
}

/// Returns the trimmed text, or `None` if it is blank.
fn non_blank(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;
    use crate::testing::{format_fragments, turn_input};

    async fn fragments(content: serde_json::Value) -> String {
        let layer = RoleLayer::new(Arc::new(PartCache::new(1 << 20)));
        let turn = turn_input(json!({"id": "a1", "companyId": "c1", "content": content}));
        format_fragments(&layer.collect(&turn).await.expect("collects"))
    }

    #[tokio::test]
    async fn each_field_has_its_fragment() {
        let content = json!({
            "systemPrompt": "You help.\n",
            "agentConfig": {"tone": "dry", "depth": 2},
            "personality": "Calm.",
            "promptBlocks": ["Plain.", {"title": "Tone", "text": "Short."}, {"title": "Tone", "text": "Kind."}, " "],
            "rules": ["Never lie.", "", "Ask when:\n- unsure\n- stuck"],
        });
        expect![[r#"
            [role/Role] system-prompt
            You help.
            [role/Role] agent-config
            ## Agent configuration

            ```json
            {
              "tone": "dry",
              "depth": 2
            }
            ```
            [role/Role] personality
            ## Personality

            Calm.
            [role/Role] block:0
            Plain.
            [role/Role] block:Tone
            ## Tone

            Short.
            [role/Role] block:2
            ## Tone

            Kind.
            [role/Role] rules
            ## Rules

            1. Never lie.
            2. Ask when:
               - unsure
               - stuck
        "#]]
        .assert_eq(&fragments(content).await);
    }

    #[tokio::test]
    async fn an_empty_role_adds_no_text() {
        assert_eq!(fragments(json!({"systemPrompt": " ", "rules": [""], "agentConfig": null})).await, "");
    }

    #[tokio::test]
    async fn unchanged_text_is_the_same_part() {
        let layer = RoleLayer::new(Arc::new(PartCache::new(1 << 20)));
        let turn = |rule| {
            turn_input(
                json!({"id": "a", "companyId": "c", "content": {"systemPrompt": "x", "rules": [rule]}}),
            )
        };
        let first = layer.collect(&turn("one")).await.expect("collects");
        let second = layer.collect(&turn("two")).await.expect("collects");
        assert!(Arc::ptr_eq(&first[0].part, &second[0].part));
        assert!(!Arc::ptr_eq(&first[1].part, &second[1].part));
    }
}
