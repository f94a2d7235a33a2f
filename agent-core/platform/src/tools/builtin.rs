//! Common base of the built-in tools: a name, a description, annotations, and an async function from arguments to a
//! result.

use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::schema;
use super::services::ToolServices;
use crate::records::{Records, StoreError};
use crate::retrieval::{DocumentRetriever, Retriever, RetrieverConfig};
use crate::roles::RoleStore;
use agent_core::allowed_tools::allowed_tools;
use agent_core::clock::{Clock, SystemClock};
use agent_core::role::RoleBlock;
use agent_core::tool::{
    Caller, ExecutionContext, Progress, Tool, ToolAnnotations, ToolError, ToolOutput, ToolSpec,
};

/// Annotations of a tool that adds something with every call and removes nothing.
pub(super) const ADDITIVE: ToolAnnotations = ToolAnnotations {
    read_only_hint: false,
    destructive_hint: false,
    idempotent_hint: false,
    open_world_hint: false,
};
/// Annotations of a read-only tool.
pub(super) const READ_ONLY: ToolAnnotations =
    ToolAnnotations { read_only_hint: true, idempotent_hint: true, ..ADDITIVE };
/// Annotations of a tool that replaces or removes something; repeating a call has no further effect.
pub(super) const DESTRUCTIVE: ToolAnnotations =
    ToolAnnotations { destructive_hint: true, idempotent_hint: true, ..ADDITIVE };
/// Annotations of a tool with an external effect on every call.
pub(super) const EXTERNAL_EFFECT: ToolAnnotations = ToolAnnotations { open_world_hint: true, ..ADDITIVE };

/// Shared dependencies of the tools.
#[derive(Clone)]
pub(super) struct Stores {
    pub(super) records: Arc<dyn Records>,
    roles: Arc<dyn RoleStore>,
    clock: Arc<dyn Clock>,
    pub(super) retriever: Arc<dyn Retriever>,
    pub(super) reach: ToolServices,
}

impl Stores {
    pub(super) fn new(records: Arc<dyn Records>, roles: Arc<dyn RoleStore>, reach: ToolServices) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let retriever = reach.retriever.clone().unwrap_or_else(|| {
            let pool = Arc::new(|work: Box<dyn FnOnce() + Send>| work());
            Arc::new(DocumentRetriever::new(RetrieverConfig::new(records.clone(), pool)))
        });
        Self { records, roles, clock, retriever, reach }
    }

    #[cfg(test)]
    pub(super) fn with_clock(self, clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// Returns the stores for one call: a call of a job commits its writes together with the record of the call.
    fn for_call(&self, context: &ExecutionContext) -> Option<Self> {
        let records = self.reach.journals.as_ref()?.store_for(context)?;
        Some(Self { records, ..self.clone() })
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or_default()
    }

    /// Returns the role of the context's agent.
    pub(super) async fn role(&self, context: &ExecutionContext) -> Result<Arc<RoleBlock>, ToolError> {
        let role = self.find_role(context).await?;
        role.ok_or_else(|| ToolError::Unavailable("this agent has no role".to_owned()))
    }

    async fn find_role(&self, context: &ExecutionContext) -> Result<Option<Arc<RoleBlock>>, StoreError> {
        match self.roles.role(&context.company_id, &context.agent_id).await {
            // An invalid identifier names no agent.
            Err(StoreError::Invalid(_)) => Ok(None),
            role => role,
        }
    }

    /// Returns true if the role opens the tool to widget visitors. Tool registries check this too; it is repeated
    /// here so that one missing check does not expose a company's data.
    async fn is_allowed_for_visitors(
        &self,
        context: &ExecutionContext,
        name: &str,
    ) -> Result<bool, ToolError> {
        let role = self.find_role(context).await?;
        Ok(role.is_some_and(|role| allowed_tools(&role, Caller::Widget, None).contains(name)))
    }
}

/// Async function from the stores, the context and a tool's arguments to its result. A separate trait, because the
/// bounds of a closure cannot express that the future borrows from the call and is `Send`.
pub(super) trait ToolHandler<'a, A, O>: Send + Sync {
    type Future: Future<Output = Result<O, ToolError>> + Send + 'a;

    fn start(&self, stores: &'a Stores, context: &'a ExecutionContext, arguments: A) -> Self::Future;
}

impl<'a, A, O, F, R> ToolHandler<'a, A, O> for F
where
    F: Fn(&'a Stores, &'a ExecutionContext, A) -> R + Send + Sync,
    R: Future<Output = Result<O, ToolError>> + Send + 'a,
{
    type Future = R;

    fn start(&self, stores: &'a Stores, context: &'a ExecutionContext, arguments: A) -> R {
        self(stores, context, arguments)
    }
}

/// Creates a tool from an async function, with schemas generated from the function's types.
pub(super) fn tool<A, O, W>(
    stores: &Arc<Stores>,
    name: &str,
    description: &str,
    annotations: ToolAnnotations,
    work: W,
) -> impl Tool
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    O: Serialize + JsonSchema + Send + 'static,
    W: for<'a> ToolHandler<'a, A, O> + 'static,
{
    let spec = ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema: schema::input_schema::<A>(),
        output_schema: Some(schema::output_schema::<O>()),
        annotations: Some(annotations),
        is_client_side: false,
    };
    BuiltIn { spec: Arc::new(spec), stores: stores.clone(), work, types: PhantomData::<fn(A) -> O> }
}

struct BuiltIn<A, O, W> {
    spec: Arc<ToolSpec>,
    stores: Arc<Stores>,
    work: W,
    types: PhantomData<fn(A) -> O>,
}

#[async_trait]
impl<A, O, W> Tool for BuiltIn<A, O, W>
where
    A: DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
    W: for<'a> ToolHandler<'a, A, O> + 'static,
{
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        arguments: Value,
        _: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        let name = &self.spec.name;
        if context.caller == Caller::Widget && !self.stores.is_allowed_for_visitors(context, name).await? {
            return Err(ToolError::Unknown(name.clone()));
        }
        let arguments = deserialize_arguments(arguments)?;
        let own = self.stores.for_call(context);
        let stores = own.as_ref().unwrap_or(&self.stores);
        let result = self.work.start(stores, context, arguments).await?;
        ToolOutput::structured(result)
    }
}

/// Deserializes a tool's arguments; an error names the field. Null is accepted as no arguments.
fn deserialize_arguments<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolError> {
    let arguments = match arguments {
        Value::Object(_) => arguments,
        Value::Null => Value::Object(Map::new()),
        _ => return Err(ToolError::InvalidArguments("they must be a JSON object".to_owned())),
    };
    serde_path_to_error::deserialize(arguments)
        .map_err(|error| ToolError::InvalidArguments(error.to_string()))
}
