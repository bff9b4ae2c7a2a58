//! Error codes and the JSON-RPC error object.
//!
//! Specification: [error codes](https://modelcontextprotocol.io/specification/2026-07-28/basic#error-codes).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::version::ProtocolVersion;

/// Error codes that appear on the wire.
pub mod code {
    /// The body is not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// The JSON is not a JSON-RPC message.
    pub const INVALID_REQUEST: i64 = -32600;
    /// The method is not offered.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are wrong: also unknown tools, cursors and resources.
    pub const INVALID_PARAMS: i64 = -32602;
    /// A fault of the server.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// Headers and body contradict each other, or a header is missing.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The request needs a capability that the client did not declare.
    pub const MISSING_CLIENT_CAPABILITY: i64 = -32021;
    /// The protocol version is not spoken here.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// "Resource not found" up to 2025-11-25; accepted, sent only in the legacy era.
    pub const LEGACY_RESOURCE_NOT_FOUND: i64 = -32002;
    /// The caller works from definitions that the server no longer honours
    /// (Definition Tags; no code is allocated yet, this is the one that the
    /// public implementation uses).
    pub const STALE_TAGS: i64 = -32987;
}

/// A JSON-RPC error object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// One of [`code`], or a code of the peer's own.
    pub code: i64,
    /// One sentence for a person.
    #[serde(default)]
    pub message: String,
    /// Details for a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// An error without details.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// The same error, with details.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// The body is not JSON.
    #[must_use]
    pub fn parse_error(message: impl Into<String>) -> Self {
        Self::new(code::PARSE_ERROR, message)
    }

    /// The JSON is not a JSON-RPC message.
    #[must_use]
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_REQUEST, message)
    }

    /// The method is not offered.
    #[must_use]
    pub fn method_not_found(method: &str) -> Self {
        Self::new(
            code::METHOD_NOT_FOUND,
            format!("Method not found: {method}"),
        )
    }

    /// The parameters are wrong.
    #[must_use]
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    /// A fault of the server.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(code::INTERNAL_ERROR, message)
    }

    /// Headers and body contradict each other.
    #[must_use]
    pub fn header_mismatch(message: impl Into<String>) -> Self {
        Self::new(code::HEADER_MISMATCH, message)
    }

    /// The protocol version is not spoken here; `data` lists those that are.
    #[must_use]
    pub fn unsupported_version(requested: &str, supported: &[ProtocolVersion]) -> Self {
        let supported: Vec<&str> = supported.iter().map(|v| v.as_str()).collect();
        Self::new(code::UNSUPPORTED_VERSION, "Unsupported protocol version")
            .with_data(json!({ "supported": supported, "requested": requested }))
    }

    /// The request needs a capability that the client did not declare, for
    /// example `{"sampling":{}}`.
    #[must_use]
    pub fn missing_client_capability(required: &Value) -> Self {
        Self::new(
            code::MISSING_CLIENT_CAPABILITY,
            "The client did not declare a capability that this request needs",
        )
        .with_data(json!({ "requiredCapabilities": required }))
    }

    /// Whether only a server of the modern era sends this error: the sign by
    /// which a client tells a modern server's `400` from a legacy one's.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        matches!(
            self.code,
            code::HEADER_MISMATCH | code::MISSING_CLIENT_CAPABILITY | code::UNSUPPORTED_VERSION
        )
    }

    /// The versions that an "unsupported version" error offers instead.
    #[must_use]
    pub fn offered_versions(&self) -> Vec<String> {
        self.data
            .as_ref()
            .and_then(|d| d.get("supported"))
            .and_then(Value::as_array)
            .map(|list| {
                list.iter()
                    .filter_map(|v| v.as_str().map(str::to_owned))
                    .collect()
            })
            .unwrap_or_default()
    }
}
