use super::*;
use crate::conversation::MemoryConversations;

#[tokio::test]
async fn conversations_in_memory_conform() {
    conversations(async || Arc::new(MemoryConversations::default()) as _).await;
}
