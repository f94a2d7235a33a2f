//! Fake tools with configurable behaviour.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;

use super::OpenCount;
use crate::message::SharedJson;
use crate::tool::{
    ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec, check_is_object,
};

type Behaviour = Box<dyn Fn(Value) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync>;

/// A [`ToolRegistry`] of tools that answer, fail, hang or panic, and that records the calls.
#[derive(Default)]
pub struct FakeTools {
    tools: BTreeMap<String, (Arc<ToolSpec>, Behaviour)>,
    calls: Mutex<Vec<ToolCallRecord>>,
    running: OpenCount,
    most_running: AtomicUsize,
    finished: AtomicUsize,
}

/// A recorded tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCallRecord {
    /// The tool's name.
    pub name: String,
    /// The arguments.
    pub arguments: Value,
    /// The execution context of the call.
    pub context: ExecutionContext,
}

impl FakeTools {
    /// Creates a registry without tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool that answers every call with the same text.
    pub fn answers(self, name: &str, text: impl Into<String>) -> Self {
        let text = text.into();
        self.behaves(name, move |_| std::future::ready(Ok(ToolOutput::text(text.clone()))))
    }

    /// Adds a tool that never completes.
    pub fn hangs(self, name: &str) -> Self {
        self.behaves(name, |_| std::future::pending())
    }

    /// Adds a tool that panics with `message`.
    pub fn panics(self, name: &str, message: &'static str) -> Self {
        self.behaves(name, move |_| async move { panic!("{message}") })
    }

    /// Adds a tool that runs `behaviour` with the arguments. Return `Err` to fail, or wait in the future to be slow.
    pub fn behaves<F>(mut self, name: &str, behaviour: impl Fn(Value) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    {
        let spec = ToolSpec {
            name: name.to_owned(),
            description: format!("does {name}"),
            input_schema: any_object(),
            output_schema: None,
            annotations: None,
            is_client_side: false,
        };
        let behaviour: Behaviour = Box::new(move |arguments| behaviour(arguments).boxed());
        self.tools.insert(name.to_owned(), (Arc::new(spec), behaviour));
        self
    }

    /// Returns the definitions, sorted by name.
    pub fn specs(&self) -> Arc<[Arc<ToolSpec>]> {
        self.tools.values().map(|(spec, _)| spec.clone()).collect()
    }

    /// Returns all calls so far, in the order in which they began.
    pub fn calls(&self) -> Vec<ToolCallRecord> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of running calls: started, and neither completed nor dropped.
    pub fn running(&self) -> usize {
        self.running.get()
    }

    /// Returns the maximum number of calls that ran concurrently.
    pub fn max_running(&self) -> usize {
        self.most_running.load(Ordering::SeqCst)
    }

    /// Returns the number of calls that completed, excluding those that were dropped or panicked.
    pub fn finished(&self) -> usize {
        self.finished.load(Ordering::SeqCst)
    }
}

fn any_object() -> SharedJson {
    RawValue::from_string(r#"{"type":"object"}"#.to_owned()).expect("it is JSON").into()
}

#[async_trait]
impl ToolRegistry for FakeTools {
    async fn list(&self, _: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        Ok(self.specs().to_vec())
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        name: &str,
        arguments: Value,
        _: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        let call =
            ToolCallRecord { name: name.to_owned(), arguments: arguments.clone(), context: context.clone() };
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        let (_, behaviour) = self.tools.get(name).ok_or_else(|| ToolError::Unknown(name.to_owned()))?;
        check_is_object(&arguments)?;
        let _running = self.running.enter();
        self.most_running.fetch_max(self.running.get(), Ordering::SeqCst);
        let result = behaviour(arguments).await;
        self.finished.fetch_add(1, Ordering::SeqCst);
        result
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join;
    use serde_json::json;

    use super::*;
    use crate::tool::NoProgress;

    #[test]
    fn calls_are_kept_and_counted() {
        let tools = FakeTools::new()
            .answers("a", "yes")
            .hangs("h")
            .behaves("f", |arguments| async move { Err(ToolError::Conflict(arguments.to_string())) });
        let context = ExecutionContext { user_id: "ada".into(), ..ExecutionContext::default() };
        let call = |name| tools.call(&context, name, json!({"n": 1}), &NoProgress);
        let answer = call("a").now_or_never().expect("no wait").expect("an answer");
        assert_eq!(answer, ToolOutput::text("yes"));
        let error = call("f").now_or_never().expect("no wait").expect_err("a failure");
        assert_eq!(error.to_string(), r#"{"n":1}"#);
        assert!(matches!(call("x").now_or_never(), Some(Err(ToolError::Unknown(_)))));
        assert!(join(call("h"), call("h")).now_or_never().is_none());
        assert_eq!((tools.running(), tools.max_running(), tools.finished()), (0, 2, 2));
        let names: Vec<String> = tools.calls().into_iter().map(|call| call.name).collect();
        assert_eq!(names, ["a", "f", "x", "h", "h"]);
        assert_eq!(tools.calls()[0].context, context);
    }
}
