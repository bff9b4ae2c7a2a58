//! Calls, reads, gets and completions: checked, handed to their handler, and
//! its answer checked.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use relist_protocol::error::code;
use relist_protocol::extension::COMPLETE;
use relist_protocol::message::{
    CallToolParams, CompleteParams, CompletionReference, GetPromptParams, ResourceParams,
};
use relist_protocol::{CatalogKind, Era, ProtocolVersion, RpcError};
use serde_json::{Map, Value, json};

use crate::catalogs::{Entry, State, ToolEntry};
use crate::context::Context;
use crate::dispatch::Inbound;
use crate::handler::{Handler, PromptCall, ReadCall, ReadHandler, ToolCall};
use crate::output::{InputRequired, Outcome, ReadHints, Settled, ToolOutput};
use crate::schema::findings;
use crate::server::Server;

/// Rounds of questions that one legacy request may take.
const MAX_ROUNDS: usize = 16;

/// How long a handler may go on after its request was given up.
const GRACE: Duration = Duration::from_secs(1);

type Answer = Result<Map<String, Value>, RpcError>;

/// Runs a handler: a panic is an error, and a request that was given up ends it.
async fn guarded<T>(
    context: &Context,
    run: impl Future<Output = Result<T, RpcError>>,
) -> Result<T, RpcError> {
    let run = AssertUnwindSafe(run).catch_unwind();
    let mut run = std::pin::pin!(run);
    let outcome = tokio::select! {
        outcome = &mut run => outcome,
        () = context.cancelled() => match tokio::time::timeout(GRACE, run).await {
            Ok(outcome) => outcome,
            Err(_) => return Err(RpcError::internal("the request was cancelled")),
        },
    };
    outcome.unwrap_or_else(|_| {
        tracing::error!(method = context.method(), "a handler panicked");
        Err(RpcError::internal("Internal error: the handler failed"))
    })
}

/// Runs a handler until it has a result or, in the modern era, a question.
async fn settle<In: Clone + 'static, Out: Settled>(
    handler: &dyn Handler<In, Out>,
    input: In,
    mut context: Context,
) -> Result<(Map<String, Value>, ReadHints), RpcError> {
    for _ in 0..MAX_ROUNDS {
        // Calling it is part of what may panic.
        let run = async { handler.handle(input.clone(), context.clone()).await };
        let (outcome, hints) = match guarded(&context, run).await {
            Ok(output) => output.into_parts(),
            Err(error) => match context.asked(&error) {
                Some(asked) => (Outcome::Input(asked), ReadHints::default()),
                None => return Err(error),
            },
        };
        let input_required = match outcome {
            Outcome::Result(result) => return Ok((result, hints)),
            Outcome::Input(input_required) => input_required,
        };
        if context.era() == Era::Modern {
            return Ok((question(&context, input_required)?, hints));
        }
        context = asked_directly(&context, input_required).await?;
    }
    Err(RpcError::internal(
        "Internal error: the handler asks for input again and again",
    ))
}

fn parts(request: &Value) -> (&str, Value) {
    let method = request.get("method").and_then(Value::as_str).unwrap_or("");
    (
        method,
        request.get("params").cloned().unwrap_or(Value::Null),
    )
}

/// The question as a modern client gets it.
fn question(context: &Context, input: InputRequired) -> Answer {
    if input.input_requests.is_empty() && input.request_state.is_none() {
        return Err(RpcError::internal(
            "Internal error: the handler asks for input and for none",
        ));
    }
    for request in input.input_requests.values() {
        let (method, params) = parts(request);
        context.may_ask(method, &params)?;
    }
    Ok(input.into_result())
}

/// Asks a legacy client one thing after the other.
async fn asked_directly(context: &Context, input: InputRequired) -> Result<Context, RpcError> {
    let mut answers = context.input_responses().clone();
    for (key, request) in &input.input_requests {
        let (method, params) = parts(request);
        let answer = context.request(method, params).await?;
        answers.insert(key.clone(), answer);
    }
    Ok(context.again(answers, input.request_state))
}

fn unhandled(noun: &str, name: &str) -> RpcError {
    RpcError::internal(format!(
        "Internal error: the {noun} {name:?} has no handler"
    ))
}

impl Server {
    pub(crate) async fn call_tool(&self, inbound: &Inbound, context: Context) -> Answer {
        if !self.has(CatalogKind::Tools) {
            return Err(RpcError::method_not_found(context.method()));
        }
        let CallToolParams { name, arguments } = inbound.params()?;
        let state = self.0.catalogs.state();
        let Some(tool) = state.tool(&name) else {
            return Err(RpcError::invalid_params(format!("Unknown tool: {name}")));
        };
        let arguments = Value::Object(arguments.unwrap_or_default());
        if let Some(found) = findings(&tool.schemas.input, &arguments) {
            let text = format!("Invalid arguments for tool {name:?}: {found}");
            // An error that a model can read, since 2025-11-25; before that, a
            // protocol error.
            if inbound.version < ProtocolVersion::V2025_11_25 {
                return Err(RpcError::invalid_params(text));
            }
            let output = ToolOutput::error(text);
            return match output.outcome {
                Outcome::Result(result) => Ok(result),
                Outcome::Input(_) => Err(RpcError::internal("no result")),
            };
        }
        let fallback = &self.0.fallbacks.tool;
        let handler = tool.handler.as_ref().or(fallback.as_ref());
        let handler = handler.ok_or_else(|| unhandled("tool", &name))?;
        let call = ToolCall {
            name: name.clone(),
            arguments: match arguments {
                Value::Object(arguments) => arguments,
                _ => Map::new(),
            },
            params: context.0.params.clone(),
        };
        let (mut result, _) = settle(&**handler, call, context).await?;
        check_output(&name, tool, &result)?;
        if is_complete(&result) && !result.contains_key("content") {
            result.insert("content".into(), json!([]));
        }
        Ok(result)
    }

    pub(crate) async fn read_resource(&self, inbound: &Inbound, context: Context) -> Answer {
        if !self.has(CatalogKind::Resources) {
            return Err(RpcError::method_not_found(context.method()));
        }
        let ResourceParams { uri } = inbound.params()?;
        let state = self.0.catalogs.state();
        let Some((handler, variables)) = reader(&state, &uri) else {
            let code = match inbound.version.era() {
                Era::Modern => code::INVALID_PARAMS,
                Era::Legacy => code::LEGACY_RESOURCE_NOT_FOUND,
            };
            let error = RpcError::new(code, format!("Resource not found: {uri}"));
            return Err(error.with_data(json!({ "uri": uri })));
        };
        let handler = handler.or_else(|| self.0.fallbacks.read.clone());
        let handler = handler.ok_or_else(|| unhandled("resource", &uri))?;
        let params = context.0.params.clone();
        let call = ReadCall {
            uri,
            variables,
            params,
        };
        let (mut result, hints) = settle(&*handler, call, context).await?;
        if inbound.modern()
            && is_complete(&result)
            && let Some(options) = self.0.catalogs.options(CatalogKind::Resources)
        {
            let ttl = hints.ttl.unwrap_or(options.ttl).as_millis();
            let scope = hints.scope.unwrap_or(options.scope);
            result
                .entry("ttlMs")
                .or_insert_with(|| u64::try_from(ttl).unwrap_or(u64::MAX).into());
            result
                .entry("cacheScope")
                .or_insert_with(|| scope.as_str().into());
        }
        Ok(result)
    }

    pub(crate) async fn get_prompt(&self, inbound: &Inbound, context: Context) -> Answer {
        if !self.has(CatalogKind::Prompts) {
            return Err(RpcError::method_not_found(context.method()));
        }
        let GetPromptParams { name, arguments } = inbound.params()?;
        let state = self.0.catalogs.state();
        let Some(Entry::Prompt(prompt)) = state.entry(CatalogKind::Prompts, &name) else {
            return Err(RpcError::invalid_params(format!("Unknown prompt: {name}")));
        };
        let mut given = BTreeMap::new();
        for (argument, value) in arguments {
            let Value::String(value) = value else {
                return Err(RpcError::invalid_params(format!(
                    "Invalid params: the argument {argument:?} of the prompt {name:?} is a string"
                )));
            };
            given.insert(argument, value);
        }
        let missing: Vec<&str> = prompt
            .required
            .iter()
            .filter(|r| !given.contains_key(*r))
            .map(String::as_str)
            .collect();
        if !missing.is_empty() {
            return Err(RpcError::invalid_params(format!(
                "Invalid params: the prompt {name:?} requires {}",
                missing.join(", ")
            )));
        }
        let fallback = &self.0.fallbacks.prompt;
        let handler = prompt.handler.as_ref().or(fallback.as_ref());
        let handler = handler.ok_or_else(|| unhandled("prompt", &name))?;
        let params = context.0.params.clone();
        let call = PromptCall {
            name,
            arguments: given,
            params,
        };
        Ok(settle(&**handler, call, context).await?.0)
    }

    pub(crate) async fn complete(&self, inbound: &Inbound, context: Context) -> Answer {
        let Some(handler) = &self.0.completion else {
            return Err(RpcError::method_not_found(context.method()));
        };
        let params: CompleteParams = inbound.params()?;
        let state = self.0.catalogs.state();
        if let CompletionReference::Prompt { name } = &params.reference
            && state.entry(CatalogKind::Prompts, name).is_none()
        {
            return Err(RpcError::invalid_params(format!("Unknown prompt: {name}")));
        }
        let run = async { handler.handle(params, context.clone()).await };
        Ok(guarded(&context, run).await?.into_result())
    }
}

fn is_complete(result: &Map<String, Value>) -> bool {
    result.get("resultType").is_none_or(|t| t == COMPLETE)
}

/// Who reads a URI, and the variables of the template that covers it.
fn reader(state: &State, uri: &str) -> Option<(Option<ReadHandler>, BTreeMap<String, String>)> {
    if let Some(Entry::Resource(handler)) = state.entry(CatalogKind::Resources, uri) {
        return Some((handler.clone(), BTreeMap::new()));
    }
    let templates = state.version(CatalogKind::ResourceTemplates)?;
    // In the order of the list, so that the answer does not depend on hashing.
    templates.snapshot.items().iter().find_map(|item| {
        match templates.entries.get(item.key().as_str())? {
            Entry::Template(entry) => {
                let variables = entry.template.variables(uri)?;
                Some((entry.handler.clone(), variables))
            }
            _ => None,
        }
    })
}

/// What a tool answers has to be what it promised.
fn check_output(name: &str, tool: &ToolEntry, result: &Map<String, Value>) -> Result<(), RpcError> {
    let Some(schema) = &tool.schemas.output else {
        return Ok(());
    };
    if !is_complete(result) || result.get("isError") == Some(&Value::Bool(true)) {
        return Ok(());
    }
    let fault = match result.get("structuredContent") {
        None => Some("`structuredContent` is missing".to_owned()),
        Some(content) => findings(schema, content),
    };
    match fault {
        None => Ok(()),
        Some(fault) => {
            tracing::error!(tool = name, fault, "a result does not fit its outputSchema");
            Err(RpcError::internal(format!(
                "Internal error: the result of tool {name:?} does not fit its outputSchema: {fault}"
            )))
        }
    }
}
