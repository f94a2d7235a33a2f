//! Tests of the collection of all layers.

use serde_json::json;

use super::*;
use crate::prompt::PartCache;
use crate::testing::turn_input;

struct FailingLayer;

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
    let page: Arc<dyn ContextLayer> = Arc::new(PageLayer::new(Arc::clone(&cache)));
    let role: Arc<dyn ContextLayer> = Arc::new(RoleLayer::new(cache));
    let mut turn = turn_input(json!({"id": "a", "companyId": "c", "content": {"systemPrompt": "x"}}));
    turn.request = Arc::new(TurnRequest { page_context: Some(json!("p")), ..TurnRequest::default() });
    let fragments = collect(&[Arc::clone(&page), role], &turn).await.expect("collects");
    assert_eq!(fragments.iter().map(|f| &*f.id).collect::<Vec<_>>(), ["page-context", "system-prompt"]);
    assert!(collect(&[page, Arc::new(FailingLayer)], &turn).await.is_err());
}
