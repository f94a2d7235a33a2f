use super::*;
use crate::memory::MemoryRecords;
use crate::records::Inventory;
use crate::usage::MemoryUsage;

#[tokio::test]
async fn budgets_in_memory_conform() {
    let make = async |processes: usize| {
        let stores: BudgetStores = (Arc::new(MemoryRecords::default()), Arc::new(MemoryUsage::default()));
        vec![stores; processes]
    };
    budgets(make, Arc::new(|task| drop(tokio::spawn(task)))).await;
}

#[tokio::test]
async fn quotas_in_memory_conform() {
    let make = async |processes: usize| {
        let records: Arc<dyn Inventory> = Arc::new(MemoryRecords::default());
        vec![records; processes]
    };
    quotas(make, Arc::new(|task| drop(tokio::spawn(task)))).await;
}
