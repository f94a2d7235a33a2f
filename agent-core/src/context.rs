//! Context layers: each one contributes fragments to the prompt of a turn.
//!
//! Layers do the turn's I/O concurrently, before assembly. They return plain values, so assembly is pure. Each fragment
//! carries its [`Stability`](crate::prompt::Stability), by which assembly puts stable text first for prompt caches.

use std::borrow::Cow;
use std::iter::repeat_n;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use futures_util::future::try_join_all;

use crate::prompt::Fragment;
use crate::request::TurnRequest;
use crate::role::RoleBlock;
use crate::store_error::StoreError;
use crate::tool::ExecutionContext;

mod role;

pub use role::RoleLayer;

/// A source of prompt fragments, queried once per turn. The contract is the test suite `conformance::context_layer`.
#[async_trait]
pub trait ContextLayer: Send + Sync + 'static {
    /// Returns the layer's name in `kebab-case`, as the manifest shows it.
    fn name(&self) -> &'static str;

    /// Collects the fragments, each with the layer's name as source, in the order of the prompt. No time limit; an error ends the turn.
    async fn collect(&self, turn: &TurnInput) -> Result<Vec<Fragment>, LayerError>;
}

/// Input of a context layer: the role, the execution context and the request of a turn.
#[derive(Debug, Clone)]
pub struct TurnInput {
    /// The agent's role.
    pub role: Arc<RoleBlock>,
    /// Execution context: the company, the user and the kind of caller that the turn runs for.
    pub context: ExecutionContext,
    /// The request, with the page and block context that the client sent.
    pub request: Arc<TurnRequest>,
    /// Start time of the turn.
    pub now: SystemTime,
    /// The backend's limit on the prompt, in tokens. A layer bounds its own share of it.
    pub max_prompt_tokens: usize,
}

/// Collects the fragments of all layers concurrently and returns them in layer order.
///
/// # Errors
/// The error of the first layer that fails; the other layers are dropped.
pub async fn collect(
    layers: &[Arc<dyn ContextLayer>],
    turn: &TurnInput,
) -> Result<Vec<Fragment>, LayerError> {
    let fragments = try_join_all(layers.iter().map(|layer| layer.collect(turn))).await?;
    Ok(fragments.into_iter().flatten().collect())
}

/// Error of a context layer. The turn does not start, because its prompt would be incomplete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// The record store failed.
    #[error("the context layer could not read its data")]
    Store(#[from] StoreError),
    /// Any other failure inside the layer: `LayerError::Internal(error.into())`.
    #[error("the context layer failed")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Initial capacity of a list, in bytes. Enough for a usual list, so that the string is allocated once.
const LIST_CAPACITY_BYTES: usize = 512;

/// Formats `items` as a Markdown list below `heading`, one item per line; an item's further lines are indented to its
/// marker. Returns the empty string, without the heading, if there are no items.
pub fn markdown_list<'a>(
    heading: &str,
    items: impl Iterator<Item = &'a str>,
    marker: impl Fn(usize) -> Cow<'static, str>,
) -> String {
    let mut list = String::new();
    for (i, text) in items.enumerate() {
        list.reserve(if i == 0 { LIST_CAPACITY_BYTES } else { 0 });
        list.push_str(if i == 0 { heading } else { "\n" });
        let marker = marker(i);
        list.push_str(&marker);
        for (line, words) in text.lines().enumerate() {
            if line > 0 {
                list.push('\n');
                list.extend(repeat_n(' ', marker.len()));
            }
            list.push_str(words);
        }
    }
    list
}

#[cfg(test)]
mod tests;
