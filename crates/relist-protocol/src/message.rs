//! Typed parameters and results. Only the fields that this implementation acts
//! upon are named; the rest travels untouched.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::extension::Switches;
use crate::kind::CatalogKind;
use crate::object;

/// Method and notification names that are not those of a catalog.
pub mod method {
    /// Opens a legacy connection.
    pub const INITIALIZE: &str = "initialize";
    /// Ends the legacy handshake.
    pub const INITIALIZED: &str = "notifications/initialized";
    /// What a modern server is.
    pub const DISCOVER: &str = "server/discover";
    /// Legacy liveness check.
    pub const PING: &str = "ping";
    /// Calls a tool.
    pub const CALL_TOOL: &str = "tools/call";
    /// Reads a resource.
    pub const READ_RESOURCE: &str = "resources/read";
    /// Gets a prompt.
    pub const GET_PROMPT: &str = "prompts/get";
    /// Completes an argument.
    pub const COMPLETE: &str = "completion/complete";
    /// Legacy: watches a resource's content.
    pub const SUBSCRIBE: &str = "resources/subscribe";
    /// Legacy: stops watching.
    pub const UNSUBSCRIBE: &str = "resources/unsubscribe";
    /// Legacy: sets the least severe log message wanted.
    pub const SET_LOG_LEVEL: &str = "logging/setLevel";
    /// Opens a modern stream of change notifications.
    pub const LISTEN: &str = "subscriptions/listen";
    /// The first message of a listen stream.
    pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
    /// A resource's content changed.
    pub const RESOURCE_UPDATED: &str = "notifications/resources/updated";
    /// Gives up a request.
    pub const CANCELLED: &str = "notifications/cancelled";
    /// Progress of a request.
    pub const PROGRESS: &str = "notifications/progress";
    /// A log message.
    pub const LOG: &str = "notifications/message";
    /// Asks the client's user for input.
    pub const ELICIT: &str = "elicitation/create";
    /// Asks the client's model for a message.
    pub const SAMPLE: &str = "sampling/createMessage";
    /// Asks the client for its roots.
    pub const LIST_ROOTS: &str = "roots/list";
}

/// Name and version of a piece of software.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Implementation {
    /// The name, for programs.
    pub name: String,
    /// The version, in whatever form.
    pub version: String,
    /// The name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Everything else that was said (icons, website).
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Implementation {
    /// Name and version, nothing else.
    #[must_use]
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            title: None,
            other: Map::new(),
        }
    }
}

/// What a server can do, as it declares it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServerCapabilities(pub Map<String, Value>);

impl ServerCapabilities {
    /// Whether the server has the catalog at all.
    #[must_use]
    pub fn has(&self, kind: CatalogKind) -> bool {
        self.0.get(kind.capability()).is_some_and(Value::is_object)
    }

    /// Whether the server says that it hints at changes of the catalog.
    #[must_use]
    pub fn hints(&self, kind: CatalogKind) -> bool {
        self.flag(kind.capability(), "listChanged")
    }

    /// Whether the server tells when a resource's content changes.
    #[must_use]
    pub fn resource_subscriptions(&self) -> bool {
        self.flag("resources", "subscribe")
    }

    /// The negotiated switches of the list extension that the server declares.
    #[must_use]
    pub fn switches(&self) -> Switches {
        Switches::from_extensions(self.0.get("extensions"))
    }

    fn flag(&self, capability: &str, flag: &str) -> bool {
        self.0
            .get(capability)
            .and_then(|c| c.get(flag))
            .and_then(Value::as_bool)
            .unwrap_or(false)
    }
}

/// The parameters of `initialize`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    /// The version that the client would like.
    pub protocol_version: String,
    /// What the client can do.
    #[serde(default)]
    pub capabilities: Map<String, Value>,
    /// Name and version of the client.
    #[serde(deserialize_with = "object::read")]
    pub client_info: Implementation,
}

/// The result of `initialize`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// The version that the server chose.
    pub protocol_version: String,
    /// What the server can do.
    #[serde(default)]
    pub capabilities: ServerCapabilities,
    /// Name and version of the server.
    #[serde(deserialize_with = "object::read")]
    pub server_info: Implementation,
    /// How to use the server, for a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

/// The result of `server/discover`, as a client reads it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoverResult {
    /// The versions that the server speaks.
    pub supported_versions: Vec<String>,
    /// What the server can do.
    #[serde(default)]
    pub capabilities: ServerCapabilities,
    /// How to use the server, for a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The tag of the three fields above (draft: Definition Tags).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Name and version of the server stand in here.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

impl DiscoverResult {
    /// Name and version of the server, if it says so.
    #[must_use]
    pub fn server_info(&self) -> Option<Implementation> {
        let info = self.meta.as_ref()?.get(crate::meta::key::SERVER_INFO)?;
        serde_json::from_value(info.clone()).ok()
    }
}

/// The parameters of `tools/call`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallToolParams {
    /// The tool.
    pub name: String,
    /// The arguments; absent means none.
    #[serde(default)]
    pub arguments: Option<Map<String, Value>>,
}

/// The parameters of `resources/read`, `resources/subscribe` and `resources/unsubscribe`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ResourceParams {
    /// The resource.
    pub uri: String,
}

/// The parameters of `prompts/get`.
#[derive(Debug, Clone, Deserialize)]
pub struct GetPromptParams {
    /// The prompt.
    pub name: String,
    /// The arguments; absent means none.
    #[serde(default)]
    pub arguments: Map<String, Value>,
}

/// What a completion is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum CompletionReference {
    /// An argument of a prompt.
    #[serde(rename = "ref/prompt")]
    Prompt {
        /// The prompt.
        name: String,
    },
    /// A variable of a resource template.
    #[serde(rename = "ref/resource")]
    Resource {
        /// The template, or a URI.
        uri: String,
    },
}

/// The argument that is being typed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CompletionArgument {
    /// Its name.
    pub name: String,
    /// What has been typed so far.
    pub value: String,
}

/// The parameters of `completion/complete`.
#[derive(Debug, Clone, Deserialize)]
pub struct CompleteParams {
    /// What is being completed.
    #[serde(rename = "ref", deserialize_with = "object::read")]
    pub reference: CompletionReference,
    /// The argument that is being typed.
    #[serde(deserialize_with = "object::read")]
    pub argument: CompletionArgument,
    /// Arguments that are already settled.
    #[serde(default, deserialize_with = "object::read")]
    pub context: CompletionContext,
}

/// Arguments that are already settled.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct CompletionContext {
    /// By name.
    #[serde(default)]
    pub arguments: Map<String, Value>,
}

/// The parameters of `logging/setLevel`.
#[derive(Debug, Clone, Deserialize)]
pub struct SetLevelParams {
    /// The least severe message wanted.
    pub level: crate::meta::LogLevel,
}

/// What a listen request asks for, and what an acknowledgment grants.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenFilter {
    /// Hints about tools.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tools_list_changed: bool,
    /// Hints about prompts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prompts_list_changed: bool,
    /// Hints about resources and resource templates.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resources_list_changed: bool,
    /// Resources whose content is watched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_subscriptions: Vec<String>,
}

impl ListenFilter {
    /// Whether hints about the catalog are asked for.
    #[must_use]
    pub const fn wants(&self, kind: CatalogKind) -> bool {
        match kind {
            CatalogKind::Tools => self.tools_list_changed,
            CatalogKind::Resources | CatalogKind::ResourceTemplates => self.resources_list_changed,
            CatalogKind::Prompts => self.prompts_list_changed,
        }
    }

    /// Asks for hints about the catalog, or no longer.
    pub const fn set(&mut self, kind: CatalogKind, wanted: bool) {
        match kind {
            CatalogKind::Tools => self.tools_list_changed = wanted,
            CatalogKind::Resources | CatalogKind::ResourceTemplates => {
                self.resources_list_changed = wanted;
            }
            CatalogKind::Prompts => self.prompts_list_changed = wanted,
        }
    }

    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The parameters of `subscriptions/listen`.
#[derive(Debug, Clone, Deserialize)]
pub struct ListenParams {
    /// What is asked for.
    #[serde(deserialize_with = "object::read")]
    pub notifications: ListenFilter,
}

/// The parameters of `notifications/cancelled`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelledParams {
    /// The request that is given up.
    pub request_id: crate::jsonrpc::RequestId,
    /// Why, for a log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Turns a value into raw JSON text.
///
/// # Errors
///
/// What serde reports: a map with keys that are not strings, for example.
pub fn to_raw<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, serde_json::Error> {
    serde_json::value::to_raw_value(value)
}

/// A result with one text block, as a tool would give it.
#[must_use]
pub fn text_content(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_filter_is_written_as_an_empty_object() {
        let text = serde_json::to_string(&ListenFilter::default()).expect("writes");
        assert_eq!(text, "{}");
    }

    #[test]
    fn a_capability_counts_only_when_it_is_an_object() {
        let capabilities: ServerCapabilities = serde_json::from_value(json!({
            "tools": {"listChanged": true}, "prompts": null, "resources": {}
        }))
        .expect("reads");
        assert!(capabilities.has(CatalogKind::Tools) && capabilities.hints(CatalogKind::Tools));
        assert!(!capabilities.has(CatalogKind::Prompts));
        assert!(!capabilities.hints(CatalogKind::Resources));
    }
}
