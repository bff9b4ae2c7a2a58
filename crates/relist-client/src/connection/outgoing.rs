//! What a request says of itself: its `_meta`, and its headers.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use relist_protocol::extension::EXTENSION;
use relist_protocol::header;
use relist_protocol::jsonrpc::{Request, RequestId};
use relist_protocol::message::to_raw;
use relist_protocol::meta::{LogLevel, key};
use relist_protocol::{Era, ProtocolVersion, Switches};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::notice::Progress;
use crate::config::ClientConfig;
use crate::error::RequestError;

/// What one request wants beyond its parameters.
///
/// ```
/// use relist_client::connection::RequestOptions;
/// use std::time::Duration;
///
/// let options = RequestOptions::default()
///     .timeout(Duration::from_secs(5))
///     .param_header("Region", "us-west1");
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RequestOptions {
    /// In place of [`ClientConfig::request_timeout`].
    pub timeout: Option<Duration>,
    /// In place of [`ClientConfig::request_limit`].
    pub limit: Option<Duration>,
    /// Tool parameters that are mirrored into headers: the name as the schema
    /// annotates it, and the value as text, not encoded. HTTP and modern only.
    pub param_headers: Vec<(String, String)>,
    /// Where progress goes. Reports that find the channel full are dropped.
    pub progress: Option<mpsc::Sender<Progress>>,
    /// The least severe log message wanted with this request. Modern only.
    pub log_level: Option<LogLevel>,
    /// The tags that the caller works from, by method. Modern only.
    pub known_tags: BTreeMap<String, String>,
    /// Whether the request declares the list extension, with the switches that
    /// were negotiated. Modern only.
    pub extension: bool,
    /// Cancels the request.
    pub cancel: CancellationToken,
}

impl RequestOptions {
    /// Sets [`Self::timeout`].
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets [`Self::limit`].
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Adds one of [`Self::param_headers`].
    #[must_use]
    pub fn param_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.param_headers.push((name.into(), value.into()));
        self
    }

    /// Sets [`Self::progress`].
    #[must_use]
    pub fn progress(mut self, sender: mpsc::Sender<Progress>) -> Self {
        self.progress = Some(sender);
        self
    }

    /// Sets [`Self::log_level`].
    #[must_use]
    pub fn log_level(mut self, level: LogLevel) -> Self {
        self.log_level = Some(level);
        self
    }

    /// Adds one of [`Self::known_tags`].
    #[must_use]
    pub fn known_tag(mut self, method: impl Into<String>, tag: impl Into<String>) -> Self {
        self.known_tags.insert(method.into(), tag.into());
        self
    }

    /// Sets [`Self::extension`].
    #[must_use]
    pub fn extension(mut self, declare: bool) -> Self {
        self.extension = declare;
        self
    }

    /// Sets [`Self::cancel`].
    #[must_use]
    pub fn cancel(mut self, token: CancellationToken) -> Self {
        self.cancel = token;
        self
    }
}

/// In which words a request is put.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dialect {
    /// `initialize` itself: nothing is agreed upon yet.
    Opening,
    /// After the handshake.
    Legacy,
    /// Everything in `_meta`, and mirrored in headers.
    Modern {
        version: ProtocolVersion,
        /// The switches that both sides have on.
        switches: Switches,
    },
}

impl Dialect {
    pub(crate) fn era(self) -> Era {
        match self {
            Self::Opening | Self::Legacy => Era::Legacy,
            Self::Modern { .. } => Era::Modern,
        }
    }

    pub(crate) fn is_opening(self) -> bool {
        matches!(self, Self::Opening)
    }
}

/// A request, written.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) id: RequestId,
    pub(crate) body: Bytes,
    /// The headers of the modern era; none in the legacy one.
    pub(crate) headers: HeaderMap,
    pub(crate) dialect: Dialect,
    pub(crate) progress: Option<mpsc::Sender<Progress>>,
}

impl Outgoing {
    pub(crate) fn write(
        config: &ClientConfig,
        dialect: Dialect,
        id: RequestId,
        method: &str,
        mut params: Map<String, Value>,
        options: &RequestOptions,
    ) -> Result<Self, RequestError> {
        let mut headers = HeaderMap::new();
        if let Dialect::Modern { version, .. } = dialect {
            let put = |headers: &mut HeaderMap, name: &'static str, value: &str| {
                let encoded = header::encode_value(value);
                let value =
                    HeaderValue::from_str(&encoded).map_err(|_| RequestError::InvalidRequest {
                        reason: format!("`{name}` cannot carry {value:?}"),
                    })?;
                headers.insert(HeaderName::from_static(name), value);
                Ok::<_, RequestError>(())
            };
            put(&mut headers, header::PROTOCOL_VERSION, version.as_str())?;
            put(&mut headers, header::METHOD, method)?;
            if let Some(name) = header::named_parameter(method)
                .and_then(|field| params.get(field))
                .and_then(Value::as_str)
            {
                put(&mut headers, header::NAME, name)?;
            }
            for (name, value) in &options.param_headers {
                let invalid = || RequestError::InvalidRequest {
                    reason: format!("`Mcp-Param-{name}` is not a header that can be sent"),
                };
                let full = format!("{}{name}", header::PARAM_PREFIX);
                headers.insert(
                    HeaderName::try_from(full).map_err(|_| invalid())?,
                    HeaderValue::from_str(&header::encode_value(value)).map_err(|_| invalid())?,
                );
            }
        }
        add_meta(config, dialect, &id, &mut params, options);
        let unwritable = |e: serde_json::Error| RequestError::InvalidRequest {
            reason: e.to_string(),
        };
        let request = Request {
            id,
            method: method.to_owned(),
            params: if params.is_empty() {
                None
            } else {
                Some(to_raw(&params).map_err(unwritable)?)
            },
        };
        let body = Bytes::from(serde_json::to_vec(&request).map_err(unwritable)?);
        Ok(Self {
            id: request.id,
            body,
            headers,
            dialect,
            progress: options.progress.clone(),
        })
    }
}

fn add_meta(
    config: &ClientConfig,
    dialect: Dialect,
    id: &RequestId,
    params: &mut Map<String, Value>,
    options: &RequestOptions,
) {
    let mut said = Map::new();
    if let Dialect::Modern { version, switches } = dialect {
        let mut capabilities = config.declared_capabilities();
        if options.extension
            && let Some(settings) = switches.settings()
        {
            let extensions = capabilities
                .entry("extensions")
                .or_insert_with(|| json!({}));
            if let Some(extensions) = extensions.as_object_mut() {
                extensions.insert(EXTENSION.to_owned(), settings);
            }
        }
        said.insert(key::PROTOCOL_VERSION.to_owned(), version.as_str().into());
        said.insert(key::CLIENT_INFO.to_owned(), json!(config.info));
        said.insert(key::CLIENT_CAPABILITIES.to_owned(), capabilities.into());
        if let Some(level) = options.log_level {
            said.insert(key::LOG_LEVEL.to_owned(), json!(level));
        }
        if !options.known_tags.is_empty() {
            said.insert(key::KNOWN_TAGS.to_owned(), json!(options.known_tags));
        }
    }
    if options.progress.is_some() {
        // The id is unique among the requests in flight, and so is the token.
        said.insert(key::PROGRESS_TOKEN.to_owned(), json!(id));
    }
    if said.is_empty() {
        return;
    }
    match params.get_mut("_meta").and_then(Value::as_object_mut) {
        Some(meta) => meta.extend(said),
        None => {
            params.insert("_meta".to_owned(), said.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODERN: Dialect = Dialect::Modern {
        version: ProtocolVersion::V2026_07_28,
        switches: Switches::NONE,
    };

    fn write(dialect: Dialect, method: &str, params: Value, options: &RequestOptions) -> Outgoing {
        let Value::Object(params) = params else {
            panic!("an object");
        };
        let config = ClientConfig::new("test", "0");
        Outgoing::write(
            &config,
            dialect,
            RequestId::Number(7),
            method,
            params,
            options,
        )
        .expect("writes")
    }

    fn text(outgoing: &Outgoing) -> &str {
        std::str::from_utf8(&outgoing.body).expect("UTF-8")
    }

    #[test]
    fn a_modern_request_without_switches_is_plain_to_the_byte() {
        let sent = write(MODERN, "tools/list", json!({}), &RequestOptions::default());
        assert_eq!(
            text(&sent),
            concat!(
                r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"#,
                r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
                r#""io.modelcontextprotocol/clientInfo":{"name":"test","version":"0"},"#,
                r#""io.modelcontextprotocol/clientCapabilities":{}}}}"#
            )
        );
        // Asked to declare the extension, but nothing was negotiated.
        let asked = write(
            MODERN,
            "tools/list",
            json!({}),
            &RequestOptions::default().extension(true),
        );
        assert_eq!(asked.body, sent.body);
    }

    #[test]
    fn a_legacy_request_says_nothing_of_itself() {
        let options = RequestOptions::default()
            .known_tag("tools/list", "t")
            .extension(true)
            .param_header("Region", "x");
        let sent = write(
            Dialect::Legacy,
            "tools/list",
            json!({"cursor": ""}),
            &options,
        );
        assert_eq!(
            text(&sent),
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"cursor":""}}"#
        );
        assert!(sent.headers.is_empty());
    }

    #[test]
    fn what_was_negotiated_is_declared_where_asked_for() {
        let dialect = Dialect::Modern {
            version: ProtocolVersion::V2026_07_28,
            switches: Switches::all(),
        };
        let options = RequestOptions::default()
            .extension(true)
            .known_tag("tools/list", "sha256:A");
        let sent = write(dialect, "tools/list", json!({}), &options);
        let value: Value = serde_json::from_slice(&sent.body).expect("JSON");
        let meta = &value["params"]["_meta"];
        assert_eq!(
            meta[key::CLIENT_CAPABILITIES],
            json!({"extensions": {EXTENSION: {"conditional": true}}})
        );
        assert_eq!(meta[key::KNOWN_TAGS], json!({"tools/list": "sha256:A"}));
    }

    #[test]
    fn names_and_parameters_are_mirrored_and_encoded() {
        let options = RequestOptions::default()
            .param_header("Greeting", "Hello, 世界")
            .param_header("Region", "us-west1");
        let sent = write(
            MODERN,
            "tools/call",
            json!({"name": "wetter°", "_meta": {"mine": 1}}),
            &options,
        );
        let get = |name: &str| sent.headers.get(name).and_then(|v| v.to_str().ok());
        assert_eq!(get("mcp-method"), Some("tools/call"));
        assert_eq!(get("mcp-protocol-version"), Some("2026-07-28"));
        assert_eq!(get("mcp-name"), Some("=?base64?d2V0dGVywrA=?="));
        assert_eq!(
            get("Mcp-Param-Greeting"),
            Some("=?base64?SGVsbG8sIOS4lueVjA==?=")
        );
        assert_eq!(get("mcp-param-region"), Some("us-west1"));
        assert!(text(&sent).contains(r#""mine":1"#));
    }
}
