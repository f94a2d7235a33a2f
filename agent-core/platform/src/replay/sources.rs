//! Recorded fragments, the recorded comparison with earlier prompts, and tokens that no server accepts.

use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use agent_core::backend::PreparedRequest;
use agent_core::context::{ContextLayer, LayerError, TurnInput};
use agent_core::error::AgentError;
use agent_core::event::{Event, ReportedToolCalls};
use agent_core::prompt::{Fragment, Part, StoredOrigin};
use agent_core::run_token::{RunToken, RunTokens};
use agent_core::secret::Secret;
use agent_core::tool::{ExecutionContext, ToolSpec};
use agent_core::turn::{PrefixReuse, PromptComparison, SentPrompts};
use async_trait::async_trait;

use crate::conversation::PromptCacheLine;
use crate::run_observer::RecordedFragment;

/// Source of the role's own fragments, which are made again from the recorded role.
const ROLE_SOURCE: &str = "role";
/// Maximum number and length of names of layers and kinds of texts from bundles, which stay in memory.
const MAX_NAMES: usize = 256;
const MAX_NAME_BYTES: usize = 64;

/// A context layer with the recorded fragments of all layers but the role's.
pub(super) struct ReplayLayer(Vec<Fragment>);

impl ReplayLayer {
    pub(super) fn new(recorded: &[RecordedFragment]) -> Self {
        let recorded_fragments = recorded.iter().filter(|fragment| fragment.source != ROLE_SOURCE);
        Self(recorded_fragments.map(fragment).collect())
    }
}

#[async_trait]
impl ContextLayer for ReplayLayer {
    fn name(&self) -> &'static str {
        "recorded"
    }

    async fn collect(&self, _: &TurnInput) -> Result<Vec<Fragment>, LayerError> {
        Ok(self.0.clone())
    }
}

/// Returns a recorded fragment as a layer makes it.
fn fragment(recorded: &RecordedFragment) -> Fragment {
    let RecordedFragment { id, source, stability, text, origin } = recorded;
    let fragment = Fragment::new(id.as_str(), static_name(source), *stability, Part::new(text.as_str()));
    match origin {
        None => fragment,
        Some(origin) => fragment.with_origin(StoredOrigin {
            kind: static_name(&origin.kind),
            id: origin.id.clone(),
            title: origin.title.clone(),
            owner: origin.owner.clone(),
            omitted_bytes: origin.omitted_bytes,
            text: 0..0,
        }),
    }
}

/// Memory of sent prompts that compares each prompt as the recorded one was compared.
pub(super) struct RecordedComparison(Option<PrefixReuse>);

impl RecordedComparison {
    pub(super) fn new(recorded: Option<&PromptCacheLine>) -> Self {
        Self(recorded.and_then(|line| {
            Some(PrefixReuse {
                reusable_share: line.reusable_share?,
                first_changed_part: line.first_changed_part.clone(),
                previous_run_id: line.previous_run_id.clone()?,
            })
        }))
    }
}

impl SentPrompts for RecordedComparison {
    fn compare(&self, _: &PreparedRequest) -> PromptComparison {
        PromptComparison { reuse: self.0.clone(), record: Box::new(|| {}) }
    }
}

/// Returns a name that lives as long as the process; beyond a number of names, a common one.
fn static_name(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    if names.len() >= MAX_NAMES || name.len() > MAX_NAME_BYTES {
        return "recorded";
    }
    let name: &'static str = Box::leak(name.into());
    names.insert(name);
    name
}

/// Issuer of tokens that no server accepts, for the requests to backends elsewhere. Requests show no token.
pub(super) struct ReplayTokens;

impl RunTokens for ReplayTokens {
    fn issue(
        &self,
        _: &ExecutionContext,
        _: &[Arc<ToolSpec>],
        _: Duration,
    ) -> Result<Arc<dyn RunToken>, AgentError> {
        Ok(Arc::new(ReplayToken(Secret::mask())))
    }
}

#[derive(Debug)]
struct ReplayToken(Secret);

impl RunToken for ReplayToken {
    fn text(&self) -> &Secret {
        &self.0
    }

    fn report_calls(&self) -> Box<dyn ReportedToolCalls> {
        Box::new(NoCalls)
    }

    fn keep_until_expiry(&self) {}
}

/// No reported calls: the record has their events.
struct NoCalls;

impl ReportedToolCalls for NoCalls {
    fn take(&mut self) -> VecDeque<Event> {
        VecDeque::new()
    }

    fn register_waker(&self, _: &Waker) -> bool {
        false
    }

    fn omitted_count(&self) -> usize {
        0
    }
}
