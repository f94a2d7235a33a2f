//! Models of a company's provider that summarize.

use std::sync::Mutex;

use agent_core::backend::ModelSource;
use agent_core::role::{Container, EmbeddedAi};
use agent_core::tool::ExecutionContext;

use super::*;
use crate::catalog::CatalogModel;
use crate::compaction::SummaryOwner;
use crate::compaction::tasks::{SummaryJob, SummaryTasks};
use crate::compaction_settings::CompactionSettings;
use crate::providers::{ProviderInput, Providers};
use crate::records::Precondition;
use crate::seal::Sealer;

/// A source that records the settings of its models.
#[derive(Default)]
struct RecordingSource {
    model: Arc<FactModel>,
    settings: Mutex<Vec<EmbeddedAi>>,
}

impl ModelSource for RecordingSource {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        self.settings.lock().expect("unpoisoned").push(settings.clone());
        Ok(self.model.clone())
    }
}

#[tokio::test]
async fn another_model_of_a_companys_provider_has_its_own_window_and_price() {
    let records = Arc::new(MemoryRecords::default());
    let providers = Arc::new(Providers::new(records.clone(), Arc::new(Sealer::ephemeral())));
    let model = |name: &str, window: u32, price: &str| json!({"model": name, "contextWindow": window, "prices": {"input": price, "output": price}});
    let settings_of_model =
        json!({"type": "openai", "models": [model("large", 900_000, "9"), model("small", 9_000, "1")]});
    let input = ProviderInput::read(settings_of_model.as_object().expect("an object")).expect("a provider");
    providers.put(&"c".into(), "acme", &input, Precondition::Any).await.expect("saved");
    let content = json!({"provider": "acme", "model": "large"});
    let role = json!({"id": "a", "companyId": "c", "children": [{"name": "EmbeddedAI", "content": content}]});
    let role: RoleBlock = serde_json::from_value(role).expect("a role");
    let role = providers.complete_role(Arc::new(role)).await.expect("completed");
    let Container::EmbeddedAi(container) = &role.children[0] else { panic!("a container") };

    for (name, window, price) in [("small", 9_000, "1"), ("large", 900_000, "9"), ("bare", 0, "")] {
        let settings = json!({"model": {"model": name}});
        let settings = CompactionSettings::read(settings.as_object().expect("an object")).expect("valid");
        let source = Arc::new(RecordingSource::default());
        let spawner = Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task)));
        let summaries = Summaries::new(records.clone(), None, Arc::new(SystemClock));
        let models = (source.clone() as Arc<dyn ModelSource>, Some(providers.clone()));
        let tasks = Arc::new(SummaryTasks::new(summaries, models, Arc::new(SystemClock), spawner));
        let job = SummaryJob {
            owner: SummaryOwner { company_id: "c".into(), user_id: "ada".into(), thread_id: None },
            sha256: format!("hash of {name}"),
            messages: vec![Message::user("fact-1=x")].into(),
            erased: 0,
            earlier: None,
            model: settings.summary_model(Some(container)).expect("a model"),
            instructions: String::new(),
            max_tokens: 200,
            context: ExecutionContext { company_id: "c".into(), ..ExecutionContext::default() },
        };
        assert!(tasks.make_now(job).await.is_some(), "{name}");
        let used = source.settings.lock().expect("unpoisoned").last().cloned().expect("a call");
        let entry = CatalogModel::of_company(used.company_model.as_deref()).expect("an entry");
        assert_eq!((entry.provider.as_str(), entry.model.as_str()), ("acme", name));
        let expected = (window > 0).then_some(window);
        assert_eq!(entry.context_window.map(std::num::NonZeroU32::get), expected, "{name}");
        let shown = entry.price.map(|price| serde_json::to_value(price).expect("JSON")["input"].clone());
        assert_eq!(shown, (!price.is_empty()).then(|| json!(price)), "{name}");
    }
}
