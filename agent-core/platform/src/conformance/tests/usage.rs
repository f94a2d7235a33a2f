use super::*;
use crate::usage::MemoryUsage;

#[tokio::test]
async fn usage_in_memory_conforms() {
    usage(async || Arc::new(MemoryUsage::default()) as _).await;
}
