//! Context layers: each contributes fragments to the prompt of a turn.
//!
//! Layers do the I/O of a turn, side by side, before anything is assembled; what they give are plain
//! values, and assembly is pure. A fragment says how long its text stays the same, so that assembly
//! can put what is stable first and providers' prompt caches hold.

use std::borrow::Cow;
use std::iter::repeat_n;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::prompt::Fragment;
use crate::request::TurnRequest;
use crate::role::RoleBlock;
use crate::store_error::StoreError;
use crate::tool::ExecutionContext;

mod caller;
mod council;
mod execution;
mod page;
mod role;

pub use caller::CallerLayer;
pub use council::CouncilLayer;
pub use execution::ExecutionLayer;
pub use page::PageLayer;
pub use role::RoleLayer;

/// Contributes fragments to the prompt of a turn.
#[async_trait]
pub trait ContextLayer: Send + Sync + 'static {
    /// The layer's name, in `kebab-case`, as the manifest shows it.
    fn name(&self) -> &'static str;

    /// Gives the fragments for this turn, in the order in which they shall stand.
    async fn collect(&self, turn: &TurnInput) -> Result<Vec<Fragment>, LayerError>;
}

/// What a layer knows of the turn.
#[derive(Debug, Clone)]
pub struct TurnInput {
    /// The agent's role.
    pub role: Arc<RoleBlock>,
    /// For whom and about what the turn works.
    pub context: ExecutionContext,
    /// What was asked, with the caller's own context.
    pub request: Arc<TurnRequest>,
    /// When the turn began.
    pub now: SystemTime,
}

impl TurnInput {
    /// The user's time zone with its name, where one is given and known. What is not known is not shown
    /// to the model either, for the name comes from the caller.
    fn zone(&self) -> Option<(&str, TimeZone)> {
        let name = self.context.timezone.as_deref()?;
        Some((name, TimeZone::get(name).ok()?))
    }
}

/// Has all layers collect side by side, and gives their fragments in layer order.
///
/// # Errors
///
/// The first layer's that fails; the others are dropped.
pub async fn collect(
    layers: &[Arc<dyn ContextLayer>],
    turn: &TurnInput,
) -> Result<Vec<Fragment>, LayerError> {
    let fragments = try_join_all(layers.iter().map(|layer| layer.collect(turn))).await?;
    Ok(fragments.into_iter().flatten().collect())
}

/// Why a layer gave nothing. A turn without a layer would be a different turn, so it does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// The store failed.
    #[error("the context layer could not read its data")]
    Store(#[from] StoreError),
    /// Anything else that failed inside.
    #[error("the context layer failed")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Room for a usual list at once, since growing costs more than the words.
const LIST_BYTES: usize = 512;

/// Text as a Markdown list below `heading`, a line of its own for each item; an item's further lines are indented
/// below its mark. Without items there is no heading either.
pub fn listed<'a>(
    heading: &str,
    items: impl Iterator<Item = &'a str>,
    mark: impl Fn(usize) -> Cow<'static, str>,
) -> String {
    let mut list = String::new();
    for (i, text) in items.enumerate() {
        if i > 0 {
            list.push('\n');
        } else {
            list.reserve(LIST_BYTES);
            list.push_str(heading);
        }
        let mark = mark(i);
        list.push_str(&mark);
        for (line, words) in text.lines().enumerate() {
            if line > 0 {
                list.push('\n');
                list.extend(repeat_n(' ', mark.len()));
            }
            list.push_str(words);
        }
    }
    list
}

/// What a caller sent, as JSON on one line. It can neither begin a line of its own nor close the tags that
/// delimit a turn's context: a slash after `<` is escaped, which JSON allows.
fn as_data(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("plain data serialises").replace("</", "<\\/")
}

#[cfg(test)]
mod tests;
