use super::*;
use crate::conversation::MemoryConversations;
use crate::memory::MemoryRecords;

#[tokio::test]
async fn summaries_in_memory_conform() {
    let make =
        async || (Arc::new(MemoryRecords::default()) as _, Arc::new(MemoryConversations::default()) as _);
    summaries(make).await;
}
