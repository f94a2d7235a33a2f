//! Context layers over stored data.

mod documents;
mod memory;

pub use documents::DocumentsLayer;
pub use memory::MemoryLayer;
