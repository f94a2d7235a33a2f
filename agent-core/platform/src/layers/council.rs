//! Context layer for the council: the other agents that this agent may consult.

use std::sync::Arc;

use async_trait::async_trait;

use agent_core::context::{ContextLayer, LayerError, TurnInput, markdown_list};
use agent_core::prompt::{Fragment, PartCache, Stability};
use agent_core::role::Council;

/// Context layer for the role's council.
#[derive(Debug)]
pub struct CouncilLayer {
    cache: Arc<PartCache>,
}

impl CouncilLayer {
    /// Creates a layer that takes its parts from `cache`.
    pub fn new(cache: Arc<PartCache>) -> Self {
        Self { cache }
    }
}

#[async_trait]
impl ContextLayer for CouncilLayer {
    fn name(&self) -> &'static str {
        "council"
    }

    async fn collect(&self, turn: &TurnInput) -> Result<Vec<Fragment>, LayerError> {
        let text = turn.role.content.council.as_ref().map(describe_council).unwrap_or_default();
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let part = self.cache.part(format!("## Council\n\n{text}"));
        Ok(vec![Fragment::new("council", self.name(), Stability::Role, part)])
    }
}

fn describe_council(council: &Council) -> String {
    let Council::Members { purpose, members } = council else {
        let Council::Text(text) = council else { return String::new() };
        return text.trim().to_owned();
    };
    let members: Vec<String> = members
        .iter()
        .map(|member| match member.expertise.trim() {
            "" => member.name.clone(),
            expertise => format!("{}: {expertise}", member.name),
        })
        .collect();
    let members = markdown_list("You may consult:\n\n", members.iter().map(String::as_str), |_| "- ".into());
    let paragraphs = [purpose.trim(), &members];
    paragraphs.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};

    use super::*;
    use agent_core::testing::{format_fragments, turn_input};

    async fn check(council: Value, expected: Expect) {
        let layer = CouncilLayer::new(Arc::new(PartCache::new(1 << 20)));
        let turn = turn_input(json!({"id": "a1", "companyId": "c1", "content": {"council": council}}));
        expected.assert_eq(&format_fragments(&layer.collect(&turn).await.expect("collects")));
    }

    #[tokio::test]
    async fn a_council_in_words_or_by_its_members() {
        check(
            json!("Ask Bo."),
            expect![[r#"
            [council/Role] council
            ## Council

            Ask Bo.
        "#]],
        )
        .await;
        let members = json!([{"name": "Bo", "expertise": "law"}, {"name": "Cy"}]);
        check(
            json!({"purpose": "Weigh risks.", "members": members}),
            expect![[r#"
            [council/Role] council
            ## Council

            Weigh risks.

            You may consult:

            - Bo: law
            - Cy
        "#]],
        )
        .await;
        check(json!({"members": []}), expect![[""]]).await;
        check(Value::Null, expect![[""]]).await;
    }
}
