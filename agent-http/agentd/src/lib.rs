//! (map)

pub mod compose;
pub mod dev;
mod error;
pub mod logging;
pub mod run;
pub mod weights;

pub use error::StartError;
