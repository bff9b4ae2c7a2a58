//! What answers a request: async functions of an input and a [`Context`].

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use relist_protocol::RpcError;
use relist_protocol::message::CompleteParams;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::context::Context;
use crate::output::{CompletionOutput, PromptOutput, ReadOutput, ToolOutput};

/// A boxed future, as handlers return it.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Answers requests of one kind. Every `async fn(In, Context) -> Result<Out, RpcError>`
/// (or closure that returns such a future) is one.
pub trait Handler<In, Out>: Send + Sync + 'static {
    /// Answers one request.
    fn handle(&self, input: In, context: Context) -> BoxFuture<Result<Out, RpcError>>;
}

impl<F, Fut, In, Out> Handler<In, Out> for F
where
    F: Fn(In, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Out, RpcError>> + Send + 'static,
{
    fn handle(&self, input: In, context: Context) -> BoxFuture<Result<Out, RpcError>> {
        Box::pin(self(input, context))
    }
}

/// The parameters of a request as they stood in the message; `{}` where there were none.
pub type RawParams = Arc<RawValue>;

/// A `tools/call`. The arguments have been checked against the tool's schema.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// The tool.
    pub name: String,
    /// Its arguments; empty where there were none.
    pub arguments: Map<String, Value>,
    /// All parameters, untouched.
    pub params: RawParams,
}

impl ToolCall {
    /// The arguments as a type.
    ///
    /// # Errors
    ///
    /// `-32602` when they do not fit: the type is stricter than the schema.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        serde_json::from_value(Value::Object(self.arguments.clone()))
            .map_err(|e| RpcError::invalid_params(format!("Invalid arguments: {e}")))
    }

    /// One argument that is a string.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.arguments.get(name)?.as_str()
    }
}

/// A `resources/read`.
#[derive(Debug, Clone)]
pub struct ReadCall {
    /// The resource.
    pub uri: String,
    /// The variables of the template that the URI matched; empty for a resource
    /// of the list.
    pub variables: BTreeMap<String, String>,
    /// All parameters, untouched.
    pub params: RawParams,
}

/// A `prompts/get`. Required arguments are there.
#[derive(Debug, Clone)]
pub struct PromptCall {
    /// The prompt.
    pub name: String,
    /// Its arguments.
    pub arguments: BTreeMap<String, String>,
    /// All parameters, untouched.
    pub params: RawParams,
}

pub(crate) type ToolHandler = Arc<dyn Handler<ToolCall, ToolOutput>>;
pub(crate) type ReadHandler = Arc<dyn Handler<ReadCall, ReadOutput>>;
pub(crate) type PromptHandler = Arc<dyn Handler<PromptCall, PromptOutput>>;
pub(crate) type CompletionHandler = Arc<dyn Handler<CompleteParams, CompletionOutput>>;

/// Wraps a function of typed arguments into one of a [`ToolCall`].
pub(crate) fn typed<A, H>(handler: H) -> impl Handler<ToolCall, ToolOutput>
where
    A: DeserializeOwned + Send + 'static,
    H: Handler<A, ToolOutput>,
{
    let handler = Arc::new(handler);
    move |call: ToolCall, context: Context| {
        let handler = handler.clone();
        async move {
            let arguments = call.parse::<A>()?;
            handler.handle(arguments, context).await
        }
    }
}
