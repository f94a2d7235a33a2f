//! Context layers of the product: the caller, the council, the page, the tools' context, and stored data.

mod caller;
mod council;
mod documents;
mod execution;
mod input;
mod memory;
mod page;
mod stored;

pub use caller::CallerLayer;
pub use council::CouncilLayer;
pub use documents::{DocumentsLayer, RetrievalSettings};
pub use execution::ExecutionLayer;
pub use memory::MemoryLayer;
pub use page::{BLOCKS_FRAGMENT_ID, PAGE_FRAGMENT_ID, PageLayer};
