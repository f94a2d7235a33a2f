//! Hot path of streams that are passed on: a waker that saves polls, and templates of events that save parsing.

mod template;
mod waker;

pub(crate) use template::DeltaTemplate;
pub use waker::CoalescingWaker;
