//! What a handler knows of the request that it answers, and how it talks back.

use std::fmt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use relist_protocol::jsonrpc::RequestId;
use relist_protocol::message::{Implementation, method};
use relist_protocol::meta::LogLevel;
use relist_protocol::{Era, ProtocolVersion, RpcError};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::hints::lock;
use crate::http::log::EventLog;
use crate::output::InputRequired;
use crate::peer::Peer;

/// Where the messages go that belong to a request.
#[derive(Debug, Clone)]
pub(crate) enum Outbound {
    /// To whoever reads the request's own channel.
    Channel(mpsc::Sender<Bytes>),
    /// Into a stream that the client can resume.
    Log(Arc<EventLog>),
}

impl Outbound {
    /// Waits for room, so that a handler is no faster than its reader.
    async fn send(&self, message: Bytes, droppable: bool) {
        match self {
            // A reader that is gone cancels the request in its own way.
            Self::Channel(channel) => drop(channel.send(message).await),
            Self::Log(log) => log.push(message, droppable),
        }
    }
}

/// Which log messages the client wants.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Nothing,
    From(LogLevel),
    AsThePeerSays,
}

pub(crate) struct Inner {
    pub(crate) version: ProtocolVersion,
    pub(crate) id: RequestId,
    pub(crate) method: String,
    pub(crate) params: crate::handler::RawParams,
    client_info: Option<Implementation>,
    capabilities: Map<String, Value>,
    progress_token: Option<RequestId>,
    wanted: Wanted,
    progress: Mutex<Option<f64>>,
    input_responses: Map<String, Value>,
    request_state: Option<String>,
    /// What the handler asked for through [`Context::elicit`] and the like.
    asked: Mutex<InputRequired>,
    cancelled: CancellationToken,
    outbound: Outbound,
    peer: Option<Arc<Peer>>,
}

/// The request being answered. Cheap to clone.
#[derive(Clone)]
pub struct Context(pub(crate) Arc<Inner>);

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("method", &self.0.method)
            .field("id", &self.0.id)
            .field("version", &self.0.version)
            .finish_non_exhaustive()
    }
}

/// What a context is made of.
pub(crate) struct Parts {
    pub(crate) version: ProtocolVersion,
    pub(crate) id: RequestId,
    pub(crate) method: String,
    pub(crate) params: crate::handler::RawParams,
    pub(crate) meta: relist_protocol::meta::RequestMeta,
    pub(crate) input: Input,
    pub(crate) cancelled: CancellationToken,
    pub(crate) outbound: Outbound,
    pub(crate) peer: Option<Arc<Peer>>,
}

/// What a retried request brings along.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    #[serde(default)]
    pub(crate) input_responses: Option<Map<String, Value>>,
    #[serde(default)]
    pub(crate) request_state: Option<String>,
}

impl Context {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            version,
            meta,
            peer,
            ..
        } = parts;
        let wanted = match (&peer, meta.log_level) {
            (Some(_), _) => Wanted::AsThePeerSays,
            (None, Some(level)) => Wanted::From(level),
            (None, None) => Wanted::Nothing,
        };
        let (client_info, capabilities) = match &peer {
            Some(peer) => (Some(peer.client_info.clone()), peer.capabilities.clone()),
            None => (
                meta.client_info,
                meta.client_capabilities.unwrap_or_default(),
            ),
        };
        Self(Arc::new(Inner {
            version,
            id: parts.id,
            method: parts.method,
            params: parts.params,
            client_info,
            capabilities,
            progress_token: meta.progress_token,
            wanted,
            progress: Mutex::new(None),
            input_responses: parts.input.input_responses.unwrap_or_default(),
            request_state: parts.input.request_state,
            asked: Mutex::default(),
            cancelled: parts.cancelled,
            outbound: parts.outbound,
            peer,
        }))
    }

    /// The same request once more, with the client's answers.
    pub(crate) fn again(&self, responses: Map<String, Value>, state: Option<String>) -> Self {
        let inner = &*self.0;
        Self(Arc::new(Inner {
            version: inner.version,
            id: inner.id.clone(),
            method: inner.method.clone(),
            params: inner.params.clone(),
            client_info: inner.client_info.clone(),
            capabilities: inner.capabilities.clone(),
            progress_token: inner.progress_token.clone(),
            wanted: inner.wanted,
            progress: Mutex::new(*lock(&inner.progress)),
            input_responses: responses,
            request_state: state,
            asked: Mutex::default(),
            cancelled: inner.cancelled.clone(),
            outbound: inner.outbound.clone(),
            peer: inner.peer.clone(),
        }))
    }

    /// Whether the client opened with a handshake.
    #[must_use]
    pub fn era(&self) -> Era {
        self.0.version.era()
    }

    /// The protocol version of the request.
    #[must_use]
    pub fn version(&self) -> ProtocolVersion {
        self.0.version
    }

    /// The id of the request.
    #[must_use]
    pub fn request_id(&self) -> &RequestId {
        &self.0.id
    }

    /// The method of the request.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.0.method
    }

    /// Name and version of the client, as it says. For display, never for decisions.
    #[must_use]
    pub fn client_info(&self) -> Option<&Implementation> {
        self.0.client_info.as_ref()
    }

    /// What the client says that it can do.
    #[must_use]
    pub fn client_capabilities(&self) -> &Map<String, Value> {
        &self.0.capabilities
    }

    /// Insists on a capability of the client, `sampling` for example.
    ///
    /// # Errors
    ///
    /// `-32021` when the client did not declare it.
    pub fn require_capability(&self, name: &str) -> Result<(), RpcError> {
        if self.0.capabilities.get(name).is_some_and(Value::is_object) {
            return Ok(());
        }
        Err(RpcError::missing_client_capability(&json!({ name: {} })))
    }

    /// Reports progress, if the client asked for it. A value that is not above
    /// the last one is not sent. Waits while the client is slow to read.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let Some(token) = &self.0.progress_token else {
            return;
        };
        {
            let mut last = lock(&self.0.progress);
            if !progress.is_finite() || last.is_some_and(|last| progress <= last) {
                return;
            }
            *last = Some(progress);
        }
        let mut params = json!({ "progressToken": token, "progress": number(progress) });
        if let Some(total) = total {
            params["total"] = number(total);
        }
        if let Some(message) = message {
            params["message"] = message.into();
        }
        self.notify(method::PROGRESS, params).await;
    }

    /// Sends a log message, if the client wants messages of this severity:
    /// modern clients say so with the request, legacy ones for the session
    /// (until then: `info` and above). Waits while the client is slow to read.
    pub async fn log(&self, level: LogLevel, logger: Option<&str>, data: impl Serialize) {
        let from = match self.0.wanted {
            Wanted::Nothing => return,
            Wanted::From(level) => level,
            Wanted::AsThePeerSays => match &self.0.peer {
                Some(peer) => peer.level(),
                None => return,
            },
        };
        let Some(data) = (level >= from)
            .then(|| serde_json::to_value(data).ok())
            .flatten()
        else {
            return;
        };
        let mut params = json!({ "level": level });
        if let Some(logger) = logger {
            params["logger"] = logger.into();
        }
        params["data"] = data;
        self.notify(method::LOG, params).await;
    }

    async fn notify(&self, method: &str, params: Value) {
        if self.is_cancelled() {
            return;
        }
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        let message = Bytes::from(message.to_string());
        tokio::select! {
            () = self.0.outbound.send(message, true) => {}
            () = self.0.cancelled.cancelled() => {}
        }
    }

    /// Resolves when the client has given the request up, or is gone. The
    /// handler is dropped one second after that.
    pub async fn cancelled(&self) {
        self.0.cancelled.cancelled().await;
    }

    /// Whether the client has given the request up, or is gone.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.is_cancelled()
    }

    /// The client's answers to an earlier [`InputRequired`], by key.
    #[must_use]
    pub fn input_responses(&self) -> &Map<String, Value> {
        &self.0.input_responses
    }

    /// The state of an earlier [`InputRequired`], as the client sent it. It may
    /// be forged: see [`crate::StateSeal`].
    #[must_use]
    pub fn request_state(&self) -> Option<&str> {
        self.0.request_state.as_deref()
    }

    /// Closes the client's event stream before the answer is there (legacy era,
    /// 2025-11-25, HTTP): the client comes back for the rest. Otherwise nothing.
    pub fn close_stream(&self) {
        if let Outbound::Log(log) = &self.0.outbound {
            log.detach();
        }
    }

    /// Sends a request to a legacy client, on the stream of this request, and
    /// waits for its answer.
    ///
    /// # Errors
    ///
    /// The client's error; `-32603` in the modern era (which has no such
    /// requests: use [`Self::ask`]), and when the request is cancelled;
    /// `-32021` when the client did not declare what the method needs.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        let Some(peer) = &self.0.peer else {
            return Err(RpcError::internal(
                "a modern client is asked by an input-required result",
            ));
        };
        self.may_ask(method, &params)?;
        let params = match params {
            Value::Null => None,
            params => Some(
                relist_protocol::message::to_raw(&params)
                    .map_err(|e| RpcError::internal(e.to_string()))?,
            ),
        };
        let (request, question) = peer.question(method, params)?;
        let message =
            serde_json::to_vec(&request).map_err(|e| RpcError::internal(e.to_string()))?;
        let exchange = async {
            self.0.outbound.send(message.into(), false).await;
            question.answered().await
        };
        let answer = tokio::select! {
            answer = exchange => answer?,
            () = self.cancelled() => return Err(RpcError::internal("the request was cancelled")),
        };
        serde_json::from_str(answer.get()).map_err(|e| RpcError::internal(e.to_string()))
    }

    /// Whether the client declared what a request to it needs.
    pub(crate) fn may_ask(&self, method: &str, params: &Value) -> Result<(), RpcError> {
        let missing = match method {
            method::ELICIT => {
                let declared = self.0.capabilities.get("elicitation");
                let mode = params.get("mode").and_then(Value::as_str).unwrap_or("form");
                match declared.and_then(Value::as_object) {
                    None => Some(json!({ "elicitation": {} })),
                    // An empty declaration stands for forms.
                    Some(modes) if mode == "form" && modes.is_empty() => None,
                    Some(modes) if modes.contains_key(mode) => None,
                    // Clients before the modes existed declare settings of their own.
                    Some(modes) if mode == "form" && !modes.contains_key("url") => None,
                    Some(_) => Some(json!({ "elicitation": { mode: {} } })),
                }
            }
            method::SAMPLE => self
                .require_capability("sampling")
                .err()
                .map(|_| json!({ "sampling": {} })),
            method::LIST_ROOTS => self
                .require_capability("roots")
                .err()
                .map(|_| json!({ "roots": {} })),
            _ => None,
        };
        match missing {
            Some(required) => Err(RpcError::missing_client_capability(&required)),
            None => Ok(()),
        }
    }

    /// Asks the client, in either era. A legacy client is asked and awaited. A
    /// modern one has answered already, under `key`, or else is asked now: then
    /// the error has to be passed on with `?`, and the handler runs again from
    /// its beginning when the client comes back.
    ///
    /// # Errors
    ///
    /// As for [`Self::request`]; and the one that stands for "not answered yet".
    pub async fn ask(&self, key: &str, method: &str, params: Value) -> Result<Value, RpcError> {
        if let Some(answer) = self.0.input_responses.get(key) {
            return Ok(answer.clone());
        }
        if self.era() == Era::Legacy {
            return self.request(method, params).await;
        }
        self.may_ask(method, &params)?;
        let mut asked = lock(&self.0.asked);
        *asked = std::mem::take(&mut *asked).ask(key, method, params);
        Err(RpcError::new(NOT_ANSWERED_YET, "input is required"))
    }

    /// Asks the client's user; `params` as of `elicitation/create`.
    ///
    /// # Errors
    ///
    /// As for [`Self::ask`].
    pub async fn elicit(&self, key: &str, params: Value) -> Result<Value, RpcError> {
        self.ask(key, method::ELICIT, params).await
    }

    /// Asks the client's model; `params` as of `sampling/createMessage`.
    ///
    /// # Errors
    ///
    /// As for [`Self::ask`].
    pub async fn sample(&self, key: &str, params: Value) -> Result<Value, RpcError> {
        self.ask(key, method::SAMPLE, params).await
    }

    /// Asks for the client's roots.
    ///
    /// # Errors
    ///
    /// As for [`Self::ask`].
    pub async fn list_roots(&self, key: &str) -> Result<Value, RpcError> {
        self.ask(key, method::LIST_ROOTS, json!({})).await
    }

    /// What the handler asked for, if its error says that it waits for that.
    pub(crate) fn asked(&self, error: &RpcError) -> Option<InputRequired> {
        let asked = std::mem::take(&mut *lock(&self.0.asked));
        (error.code == NOT_ANSWERED_YET && !asked.input_requests.is_empty()).then_some(asked)
    }
}

/// Never on the wire: the error that [`Context::ask`] ends a handler with.
const NOT_ANSWERED_YET: i64 = 0;

/// Whole numbers are written without a fraction.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        #[allow(clippy::cast_possible_truncation, reason = "whole and in range")]
        return Value::from(value as i64);
    }
    Value::from(value)
}
