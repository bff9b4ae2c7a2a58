//! The reserved `_meta` keys, and what a request says of itself in them.
//!
//! Specification: [`_meta`](https://modelcontextprotocol.io/specification/2026-07-28/basic#meta).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::RpcError;
use crate::jsonrpc::RequestId;
use crate::message::Implementation;

/// Keys within `_meta`.
pub mod key {
    /// The protocol version of a request.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Name and version of the client.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// What the client can do, for this request.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// The least severe log message that the client wants with this request.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// The listen request that a notification belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// Name and version of the server, on results.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// Opts the request into progress notifications.
    pub const PROGRESS_TOKEN: &str = "progressToken";
    /// The tags that the caller works from (draft: Definition Tags).
    pub const KNOWN_TAGS: &str = "io.modelcontextprotocol/knownTags";
    /// The methods whose tags did not match (draft: Definition Tags).
    pub const STALE_TAGS: &str = "io.modelcontextprotocol/staleTags";
}

/// Severity of a log message (RFC 5424), least severe first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Detailed information for debugging.
    Debug,
    /// General information.
    Info,
    /// Normal but significant.
    Notice,
    /// A warning.
    Warning,
    /// An operation failed.
    Error,
    /// A component failed.
    Critical,
    /// Act at once.
    Alert,
    /// Unusable.
    Emergency,
}

/// The most tags of one method that a request may offer; more are not looked at.
pub const MAX_KNOWN_TAGS: usize = 64;

/// The `_meta` of a request, read once.
#[derive(Debug, Clone, Default)]
pub struct RequestMeta {
    /// The protocol version, as written; absent on legacy requests.
    pub protocol_version: Option<String>,
    /// Name and version of the client, if it says so.
    pub client_info: Option<Implementation>,
    /// What the client can do; absent on legacy requests.
    pub client_capabilities: Option<Map<String, Value>>,
    /// The least severe log message wanted.
    pub log_level: Option<LogLevel>,
    /// The token under which progress is reported.
    pub progress_token: Option<RequestId>,
    /// The tags that the caller works from, by method.
    pub known_tags: BTreeMap<String, String>,
}

impl RequestMeta {
    /// Reads the `_meta` of a request's parameters.
    ///
    /// # Errors
    ///
    /// `-32602` when a reserved key holds a value of the wrong type, or an
    /// unknown log level. A malformed `knownTags` is no error: its content is a
    /// hint, and an unreadable hint is no hint.
    pub fn read(params: Option<&serde_json::value::RawValue>) -> Result<Self, RpcError> {
        #[derive(Deserialize)]
        struct Params {
            #[serde(default, rename = "_meta")]
            meta: Option<Value>,
        }
        let Some(params) = params else {
            return Ok(Self::default());
        };
        let params: Params = serde_json::from_str(params.get())
            .map_err(|e| RpcError::invalid_params(format!("Invalid params: {e}")))?;
        match params.meta {
            None => Ok(Self::default()),
            Some(Value::Object(map)) => Self::from_map(map),
            Some(_) => Err(RpcError::invalid_params(
                "Invalid params: `_meta` is an object",
            )),
        }
    }

    fn from_map(mut map: Map<String, Value>) -> Result<Self, RpcError> {
        fn wrong(key: &str, wanted: &str) -> RpcError {
            RpcError::invalid_params(format!("Invalid params: `_meta[\"{key}\"]` is {wanted}"))
        }
        let mut meta = Self::default();
        match map.remove(key::PROTOCOL_VERSION) {
            None => {}
            Some(Value::String(version)) => meta.protocol_version = Some(version),
            Some(_) => return Err(wrong(key::PROTOCOL_VERSION, "a string")),
        }
        match map.remove(key::CLIENT_CAPABILITIES) {
            None => {}
            Some(Value::Object(capabilities)) => meta.client_capabilities = Some(capabilities),
            Some(_) => return Err(wrong(key::CLIENT_CAPABILITIES, "an object")),
        }
        if let Some(info) = map.remove(key::CLIENT_INFO) {
            meta.client_info = Some(
                serde_json::from_value(info)
                    .map_err(|_| wrong(key::CLIENT_INFO, "an object with name and version"))?,
            );
        }
        if let Some(level) = map.remove(key::LOG_LEVEL) {
            meta.log_level = Some(
                serde_json::from_value(level)
                    .map_err(|_| wrong(key::LOG_LEVEL, "a log level such as \"info\""))?,
            );
        }
        if let Some(token) = map.remove(key::PROGRESS_TOKEN) {
            meta.progress_token = Some(
                serde_json::from_value(token)
                    .map_err(|_| wrong(key::PROGRESS_TOKEN, "a string or an integer"))?,
            );
        }
        if let Some(Value::Object(tags)) = map.remove(key::KNOWN_TAGS) {
            meta.known_tags = tags
                .into_iter()
                .take(MAX_KNOWN_TAGS)
                .filter_map(|(method, tag)| match tag {
                    Value::String(tag) => Some((method, tag)),
                    _ => None,
                })
                .collect();
        }
        Ok(meta)
    }

    /// Whether this is a request of the modern era: it says its version in `_meta`.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        self.protocol_version.is_some()
    }

    /// The settings of an extension that the client declared, if it did.
    #[must_use]
    pub fn extension(&self, identifier: &str) -> Option<&Value> {
        self.client_capabilities
            .as_ref()?
            .get("extensions")?
            .get(identifier)
    }
}
