//! Small documents of each media type, and mutations of them, for tests and benchmarks.

mod leave_policy;
mod mutate;
mod office;
mod pdf;

pub use leave_policy::document;
pub use mutate::{mutate, mutate_archive};
pub use office::{archive, docx_parts, pptx_parts, xlsx_parts};
pub use pdf::{PdfBuilder, PdfText, deflate};

/// Title of the documents of [`document`].
pub const TITLE: &str = "Leave policy";
