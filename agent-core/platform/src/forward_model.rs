//! Methods of a [`Model`](agent_core::model::Model) that most wrappers leave to the model that they wrap.

/// Implements all methods of [`Model`](agent_core::model::Model) but `start` by those of the field `model`.
macro_rules! forward_model {
    () => {
        fn info(&self) -> agent_core::model::ModelInfo {
            self.model.info()
        }

        fn counter(&self) -> Option<std::sync::Arc<dyn agent_core::budget::TokenCounter>> {
            self.model.counter()
        }

        fn prepare(
            &self,
            request: &agent_core::model::ModelRequest,
        ) -> Result<agent_core::payload::Payload, agent_core::error::AgentError> {
            self.model.prepare(request)
        }
    };
}

pub(crate) use forward_model;
