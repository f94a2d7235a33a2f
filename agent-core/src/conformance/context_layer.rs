//! Conformance suite for [`ContextLayer`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::{OpenWorkCounter, Scenario, drop_in_progress, wait_until_idle, with_timeout};
use crate::context::{ContextLayer, LayerError, TurnInput};
use crate::prompt::{Fragment, Stability};

/// A context layer under test, and a turn to which it contributes.
pub struct ContextLayerSubject {
    /// The layer.
    pub layer: Arc<dyn ContextLayer>,
    /// A turn for which the layer has at least one fragment.
    pub turn: TurnInput,
    /// A text that only the company of `turn` has, if the layer reads stored data.
    pub company_text: Option<String>,
    /// Maximum size of all fragments together, in bytes, if the layer has a limit.
    pub max_bytes: Option<usize>,
    /// Counter of the work in progress, if it can be counted.
    pub open: Option<OpenWorkCounter>,
}

impl ContextLayerSubject {
    /// Creates a subject without the optional parts.
    pub fn new(layer: Arc<dyn ContextLayer>, turn: TurnInput) -> Self {
        Self { layer, turn, company_text: None, max_bytes: None, open: None }
    }

    async fn collect(&self, turn: &TurnInput) -> Result<Vec<Fragment>, LayerError> {
        with_timeout("the fragments of a layer", self.layer.collect(turn)).await
    }

    /// Returns the fragments in a comparable form.
    async fn fragments(&self, turn: &TurnInput) -> Vec<ComparableFragment> {
        let fragments = self.collect(turn).await;
        let fragments =
            fragments.unwrap_or_else(|error| panic!("collecting the fragments failed: {error:?}"));
        fragments
            .iter()
            .map(|fragment| ComparableFragment {
                id: fragment.id.to_string(),
                source: fragment.source,
                stability: fragment.stability,
                text: fragment.part.text().to_owned(),
            })
            .collect()
    }
}

/// The data of a fragment that the prompt depends on.
#[derive(Debug, Clone, PartialEq)]
struct ComparableFragment {
    id: String,
    source: &'static str,
    stability: Stability,
    text: String,
}

/// Runs the conformance suite of [`ContextLayer`] against layers whose data source behaves as the scenario says. The
/// factory must provide the first scenario, [`Scenario::Completes`]. A layer without I/O has no other; of the rest,
/// [`Scenario::Rejects`] and [`Scenario::Truncates`] are a data source that fails.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn context_layer(make: impl AsyncFn(Scenario) -> Option<ContextLayerSubject>) {
    let subject = make(Scenario::Completes).await.expect("the factory provides Scenario::Completes");
    the_name_is_stable(&*subject.layer);
    fragments_are_well_formed(&subject).await;
    the_same_turn_has_the_same_fragments(&subject).await;
    stability_holds(&subject).await;
    companies_are_isolated(&subject).await;
    if let Some(open) = &subject.open {
        wait_until_idle("collecting leaves no work behind", open).await;
    }
    if let Some(subject) = make(Scenario::Hangs).await {
        let collecting = subject.layer.collect(&subject.turn);
        drop_in_progress("dropping the future cancels its work", collecting, subject.open.as_ref()).await;
    }
    for scenario in [Scenario::Truncates, Scenario::Rejects] {
        if let Some(subject) = make(scenario).await {
            let result = subject.collect(&subject.turn).await;
            assert!(
                result.is_err(),
                "data that cannot be read are an error, not an incomplete prompt ({scenario:?}): {result:?}"
            );
        }
    }
}

fn the_name_is_stable(layer: &dyn ContextLayer) {
    let name = layer.name();
    let is_kebab_case = name.split('-').all(|word| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    });
    assert!(is_kebab_case, "a layer's name is in kebab-case: {name:?}");
    assert_eq!(name, layer.name(), "a layer's name is the same each time");
}

async fn fragments_are_well_formed(subject: &ContextLayerSubject) {
    let fragments = subject.fragments(&subject.turn).await;
    assert!(!fragments.is_empty(), "the layer contributes to the suite's turn");
    let mut ids = BTreeSet::new();
    for fragment in &fragments {
        assert_eq!(fragment.source, subject.layer.name(), "a fragment names its layer: {fragment:?}");
        assert!(!fragment.id.is_empty(), "a fragment has an id: {fragment:?}");
        assert!(ids.insert(&fragment.id), "a fragment's id is unique in its layer: {}", fragment.id);
        assert!(!fragment.text.trim().is_empty(), "a fragment has a text: {fragment:?}");
    }
    let size: usize = fragments.iter().map(|fragment| fragment.text.len()).sum();
    if let Some(max) = subject.max_bytes {
        assert!(size <= max, "the fragments have at most {max} bytes together: {size}");
    }
}

async fn the_same_turn_has_the_same_fragments(subject: &ContextLayerSubject) {
    let first = subject.fragments(&subject.turn).await;
    assert_eq!(first, subject.fragments(&subject.turn).await, "the same turn has the same fragments");
    for concurrent in join_all((0..3).map(|_| subject.fragments(&subject.turn))).await {
        assert_eq!(first, concurrent, "concurrent turns have the same fragments");
    }
}

/// Returns the fragments that must not change with the turn, or with the conversation.
fn at_most(fragments: Vec<ComparableFragment>, stability: Stability) -> Vec<ComparableFragment> {
    fragments.into_iter().filter(|fragment| fragment.stability <= stability).collect()
}

async fn stability_holds(subject: &ContextLayerSubject) {
    let mut later = subject.turn.clone();
    later.now += Duration::from_secs(100_000);
    later.context.run_id = "another-run".into();
    let mut request = (*later.request).clone();
    request.messages = Arc::default();
    request.page_context = Some("another page".into());
    request.blocks_context = vec!["another block".into()];
    request.tab_id = Some("another-tab".to_owned());
    request.trigger = Some("another trigger".to_owned());
    later.request = Arc::new(request);
    let before = subject.fragments(&subject.turn).await;
    assert_eq!(
        at_most(before.clone(), Stability::Session),
        at_most(subject.fragments(&later).await, Stability::Session),
        "a fragment that changes with the turn is Stability::Turn"
    );

    let mut other_user = later;
    other_user.context.user_id = "another-user".into();
    other_user.context.thread_id = "another-thread".into();
    other_user.context.timezone = Some("Pacific/Auckland".to_owned());
    other_user.context.todo_list_id = Some("another-list".into());
    assert_eq!(
        at_most(before, Stability::Agent),
        at_most(subject.fragments(&other_user).await, Stability::Agent),
        "a fragment that changes with the user or the conversation is at least Stability::Session"
    );
}

async fn companies_are_isolated(subject: &ContextLayerSubject) {
    let Some(secret) = &subject.company_text else { return };
    let contains = |fragments: &[ComparableFragment]| {
        fragments.iter().any(|fragment| fragment.text.contains(secret) || fragment.id.contains(secret))
    };
    assert!(contains(&subject.fragments(&subject.turn).await), "a company gets its own data");
    let mut role = (*subject.turn.role).clone();
    role.company_id = "another-company".into();
    let mut other = subject.turn.clone();
    other.role = Arc::new(role);
    other.context.company_id = "another-company".into();
    let fragments = subject.fragments(&other).await;
    assert!(!contains(&fragments), "a company gets no data of another: {fragments:?}");
}
