//! A server, before it runs.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use relist_catalog::Item;
use relist_protocol::message::{CompleteParams, Implementation};
use relist_protocol::{CatalogKind, Switches};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::catalogs::{Bound, Catalogs, CommitError, item};
use crate::handler::{
    CompletionHandler, Handler, PromptCall, PromptHandler, ReadCall, ReadHandler, ToolCall,
    ToolHandler, typed,
};
use crate::hints::Hub;
use crate::options::{CacheScope, CatalogOptions};
use crate::output::{CompletionOutput, PromptOutput, ReadOutput, ToolOutput};
use crate::server::{Inner, Server};

/// Why a server cannot be built: a [`CommitError`] of its first definitions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct BuildError(#[from] CommitError);

impl BuildError {
    /// What is wrong with which definition.
    #[must_use]
    pub const fn cause(&self) -> &CommitError {
        &self.0
    }
}

/// Who answers for items without a handler of their own.
#[derive(Default)]
pub(crate) struct Fallbacks {
    pub(crate) tool: Option<ToolHandler>,
    pub(crate) read: Option<ReadHandler>,
    pub(crate) prompt: Option<PromptHandler>,
}

/// Collects definitions; made by [`Server::builder`].
#[must_use = "a builder does nothing until `build`"]
pub struct ServerBuilder {
    info: Implementation,
    instructions: Option<String>,
    switches: Switches,
    options: [Option<CatalogOptions>; 4],
    items: Vec<(CatalogKind, Value, Option<Bound>)>,
    fallbacks: Fallbacks,
    completion: Option<CompletionHandler>,
    subscriptions: Option<bool>,
    window: Duration,
    discovery: (Duration, CacheScope),
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder")
            .field("info", &self.info)
            .field("switches", &self.switches)
            .field("items", &self.items.len())
            .finish_non_exhaustive()
    }
}

fn slot(kind: CatalogKind) -> usize {
    CatalogKind::ALL
        .iter()
        .position(|k| *k == kind)
        .unwrap_or(0)
}

impl ServerBuilder {
    pub(crate) fn new(info: Implementation) -> Self {
        Self {
            info,
            instructions: None,
            switches: Switches::NONE,
            options: [const { None }; 4],
            items: Vec::new(),
            fallbacks: Fallbacks::default(),
            completion: None,
            subscriptions: None,
            window: Duration::from_millis(20),
            discovery: (Duration::ZERO, CacheScope::Private),
        }
    }

    /// How to use the server, for a model.
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = Some(text.into());
        self
    }

    /// Parts of the opt-in layer; none unless switched on.
    pub fn enable(mut self, switches: Switches) -> Self {
        self.switches = switches;
        self
    }

    /// Declares a catalog, even an empty one, and says how it is listed. The
    /// catalogs of items given here are declared anyway; others do not exist.
    pub fn catalog(mut self, kind: CatalogKind, options: CatalogOptions) -> Self {
        self.options[slot(kind)] = Some(options);
        self
    }

    /// How long commits are collected into one hint, from the first (default 20 ms).
    pub const fn coalesce(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Lifetime and scope of `server/discover` (default 0, private).
    pub const fn discovery(mut self, ttl: Duration, scope: CacheScope) -> Self {
        self.discovery = (ttl, scope);
        self
    }

    /// Whether clients may watch the content of resources (default: where there
    /// is a catalog of resources).
    pub const fn resource_subscriptions(mut self, offered: bool) -> Self {
        self.subscriptions = Some(offered);
        self
    }

    fn with(mut self, kind: CatalogKind, value: Value, bound: Option<Bound>) -> Self {
        self.options[slot(kind)].get_or_insert_default();
        self.items.push((kind, value, bound));
        self
    }

    /// A tool and what it does.
    pub fn tool(self, tool: Value, handler: impl Handler<ToolCall, ToolOutput>) -> Self {
        let bound = Bound::Tool(Arc::new(handler));
        self.with(CatalogKind::Tools, tool, Some(bound))
    }

    /// A tool whose arguments are read into a type.
    pub fn tool_typed<A, H>(self, tool: Value, handler: H) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        H: Handler<A, ToolOutput>,
    {
        self.tool(tool, typed::<A, H>(handler))
    }

    /// A resource and its content.
    pub fn resource(self, resource: Value, handler: impl Handler<ReadCall, ReadOutput>) -> Self {
        let bound = Bound::Read(Arc::new(handler));
        self.with(CatalogKind::Resources, resource, Some(bound))
    }

    /// A resource template and the content of what it covers.
    pub fn resource_template(
        self,
        template: Value,
        handler: impl Handler<ReadCall, ReadOutput>,
    ) -> Self {
        let bound = Bound::Read(Arc::new(handler));
        self.with(CatalogKind::ResourceTemplates, template, Some(bound))
    }

    /// A prompt and its messages.
    pub fn prompt(self, prompt: Value, handler: impl Handler<PromptCall, PromptOutput>) -> Self {
        let bound = Bound::Prompt(Arc::new(handler));
        self.with(CatalogKind::Prompts, prompt, Some(bound))
    }

    /// An item that the fallback answers for, as it was written.
    pub fn item(mut self, kind: CatalogKind, item: &Item) -> Self {
        self.options[slot(kind)].get_or_insert_default();
        self.items.push((kind, item.value(), None));
        self
    }

    /// Suggests values of arguments.
    pub fn completion(mut self, handler: impl Handler<CompleteParams, CompletionOutput>) -> Self {
        self.completion = Some(Arc::new(handler));
        self
    }

    /// Answers calls to tools without a handler of their own.
    pub fn on_unhandled_tool(mut self, handler: impl Handler<ToolCall, ToolOutput>) -> Self {
        self.fallbacks.tool = Some(Arc::new(handler));
        self
    }

    /// Answers reads of resources and templates without a handler of their own.
    pub fn on_unhandled_resource(mut self, handler: impl Handler<ReadCall, ReadOutput>) -> Self {
        self.fallbacks.read = Some(Arc::new(handler));
        self
    }

    /// Answers for prompts without a handler of their own.
    pub fn on_unhandled_prompt(mut self, handler: impl Handler<PromptCall, PromptOutput>) -> Self {
        self.fallbacks.prompt = Some(Arc::new(handler));
        self
    }

    /// The server.
    ///
    /// # Errors
    ///
    /// [`BuildError`] when two items have one name, or when a definition cannot
    /// be served; it names the item.
    pub fn build(mut self) -> Result<Server, BuildError> {
        // One capability stands for both lists, so both have to answer.
        let [_, resources, templates, _] = &mut self.options;
        match (&*resources, &*templates) {
            (Some(options), None) => *templates = Some(options.clone()),
            (None, Some(options)) => *resources = Some(options.clone()),
            _ => {}
        }
        let has_resources = resources.is_some();
        let catalogs = Catalogs::new(self.options);
        let mut seen = HashSet::new();
        for (kind, value, _) in &self.items {
            let key = item(*kind, value)?.key().clone();
            if !seen.insert((*kind, key.clone())) {
                let key = key.to_string();
                return Err(BuildError(CommitError::Duplicate(
                    relist_catalog::DuplicateKey { kind: *kind, key },
                )));
            }
        }
        catalogs.commit(
            |edit| {
                for (kind, value, bound) in self.items {
                    edit.bind(kind, &value, bound);
                }
            },
            |_| {},
        )?;
        Ok(Server(Arc::new(Inner::new(
            self.info,
            self.instructions,
            self.switches,
            catalogs,
            Hub::new(self.window),
            self.fallbacks,
            self.completion,
            has_resources && self.subscriptions.unwrap_or(true),
            self.discovery,
        ))))
    }
}
