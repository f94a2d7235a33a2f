//! Tests of the collection of all layers.

use serde_json::json;

use super::*;
use crate::prompt::{Part, PartCache, Stability};
use crate::testing::turn_input;

struct FailingLayer;

/// A layer with one fragment.
struct FixedLayer;

#[async_trait]
impl ContextLayer for FixedLayer {
    fn name(&self) -> &'static str {
        "fixed"
    }

    async fn collect(&self, _: &TurnInput) -> Result<Vec<Fragment>, LayerError> {
        Ok(vec![Fragment::new("fixed", "fixed", Stability::Session, Part::new("x"))])
    }
}

#[async_trait]
impl ContextLayer for FailingLayer {
    fn name(&self) -> &'static str {
        "failing"
    }

    async fn collect(&self, _: &TurnInput) -> Result<Vec<Fragment>, LayerError> {
        Err(LayerError::Internal("no".into()))
    }
}

#[tokio::test]
async fn layers_give_in_their_order_or_fail_together() {
    let cache = Arc::new(PartCache::new(1 << 20));
    let fixed: Arc<dyn ContextLayer> = Arc::new(FixedLayer);
    let role: Arc<dyn ContextLayer> = Arc::new(RoleLayer::new(cache));
    let turn = turn_input(json!({"id": "a", "companyId": "c", "content": {"systemPrompt": "x"}}));
    let fragments = collect(&[Arc::clone(&fixed), role], &turn).await.expect("collects");
    assert_eq!(fragments.iter().map(|f| &*f.id).collect::<Vec<_>>(), ["fixed", "system-prompt"]);
    assert!(collect(&[fixed, Arc::new(FailingLayer)], &turn).await.is_err());
}
