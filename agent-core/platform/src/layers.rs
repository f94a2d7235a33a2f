//! Context layers of the product: the caller, the council, and stored data.

mod caller;
mod council;
mod documents;
mod memory;

pub use caller::CallerLayer;
pub use council::CouncilLayer;
pub use documents::DocumentsLayer;
pub use memory::MemoryLayer;
