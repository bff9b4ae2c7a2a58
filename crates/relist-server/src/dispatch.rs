//! From a method to its answer, whatever the transport.

use std::sync::Arc;

use bytes::Bytes;
use relist_protocol::jsonrpc::{Request, RequestId};
use relist_protocol::message::{InitializeParams, ResourceParams, SetLevelParams, method};
use relist_protocol::meta::{RequestMeta, key};
use relist_protocol::{CatalogKind, Era, ProtocolVersion, RpcError};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::catalogs::page::PageBody;
use crate::context::{Context, Input, Outbound, Parts};
use crate::hints::Lists;
use crate::output::finish;
use crate::peer::{MAX_WATCHED, Peer};
use crate::server::Server;

/// The longest URI that is watched or looked up.
pub(crate) const MAX_URI: usize = 8 << 10;

/// Messages in one batch: its answers are held together, and a few bytes can
/// ask for a whole list.
const MAX_BATCH: usize = 64;

/// Why a batch of so many messages is refused, if it is.
pub(crate) fn batch_fault(version: Option<ProtocolVersion>, messages: usize) -> Option<RpcError> {
    let reason = if !version.is_some_and(ProtocolVersion::allows_batches) {
        "batches exist in protocol version 2025-03-26 alone".to_owned()
    } else if messages > MAX_BATCH {
        format!("a batch has at most {MAX_BATCH} messages, not {messages}")
    } else {
        return None;
    };
    Some(RpcError::invalid_request(format!(
        "Invalid Request: {reason}"
    )))
}

/// An answer, without its id.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Bytes that many answers share.
    Page(Arc<PageBody>),
    /// A result of this request alone.
    Result(Map<String, Value>),
    /// An error.
    Error(RpcError),
    /// The request was given up: no answer.
    Nothing,
}

impl From<RpcError> for Reply {
    fn from(error: RpcError) -> Self {
        Self::Error(error)
    }
}

/// What stands behind a prepared page in an answer.
pub(crate) fn tail(id: &RequestId) -> Vec<u8> {
    format!(r#","id":{}}}"#, id_value(id)).into_bytes()
}

pub(crate) fn id_value(id: &RequestId) -> Value {
    match id {
        RequestId::Number(n) => Value::from(*n),
        RequestId::Text(s) => Value::from(s.as_str()),
    }
}

/// An error answer; the id is left out where it could not be read.
pub(crate) fn error_message(id: Option<&RequestId>, error: &RpcError) -> Bytes {
    let mut message = json!({ "jsonrpc": "2.0" });
    if let Some(id) = id {
        message["id"] = id_value(id);
    }
    message["error"] = serde_json::to_value(error).unwrap_or_default();
    message.to_string().into()
}

impl Reply {
    /// The whole message on one line, in parts; `None` where there is none.
    pub(crate) fn message(&self, id: &RequestId) -> Option<Vec<Bytes>> {
        match self {
            Self::Page(page) => Some(page.plain(&tail(id)).into()),
            Self::Result(result) => {
                let message = json!({ "jsonrpc": "2.0", "id": id_value(id), "result": result });
                Some(vec![message.to_string().into()])
            }
            Self::Error(error) => Some(vec![error_message(Some(id), error)]),
            Self::Nothing => None,
        }
    }
}

/// A request on its way to its answer.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) request: Request,
    pub(crate) meta: RequestMeta,
    pub(crate) version: ProtocolVersion,
    pub(crate) peer: Option<Arc<Peer>>,
}

impl Inbound {
    pub(crate) fn modern(&self) -> bool {
        self.version.era() == Era::Modern
    }

    pub(crate) fn raw(&self) -> Option<&RawValue> {
        self.request.params.as_deref()
    }

    pub(crate) fn params<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        let text = self.raw().map_or("{}", RawValue::get);
        serde_json::from_str(text)
            .map_err(|e| RpcError::invalid_params(format!("Invalid params: {e}")))
    }

    pub(crate) fn not_found(&self) -> Reply {
        RpcError::method_not_found(&self.request.method).into()
    }

    pub(crate) fn context(
        &self,
        outbound: Outbound,
        cancelled: CancellationToken,
    ) -> Result<Context, RpcError> {
        let input: Input = match self.version.era() {
            Era::Modern => self.params()?,
            Era::Legacy => Input::default(),
        };
        let empty = || RawValue::from_string("{}".to_owned()).unwrap_or_default();
        let params = self.request.params.clone().unwrap_or_else(empty);
        Ok(Context::new(Parts {
            version: self.version,
            id: self.request.id.clone(),
            method: self.request.method.clone(),
            params: params.into(),
            meta: self.meta.clone(),
            input,
            cancelled,
            outbound,
            peer: self.peer.clone(),
        }))
    }
}

/// Checks the `_meta` of a modern request.
///
/// # Errors
///
/// `-32602` when a required field is missing, `-32022` when the version is not
/// one that works without a handshake.
pub(crate) fn modern_version(meta: &RequestMeta) -> Result<ProtocolVersion, RpcError> {
    let missing = |key: &str| {
        RpcError::invalid_params(format!("Invalid params: `_meta[\"{key}\"]` is missing"))
    };
    let Some(stated) = &meta.protocol_version else {
        return Err(missing(key::PROTOCOL_VERSION));
    };
    let version = ProtocolVersion::parse(stated)
        .filter(|v| v.era() == Era::Modern)
        .ok_or_else(|| RpcError::unsupported_version(stated, &ProtocolVersion::ALL))?;
    if meta.client_capabilities.is_none() {
        return Err(missing(key::CLIENT_CAPABILITIES));
    }
    Ok(version)
}

impl Server {
    /// Answers what needs no handler; `None` for what does.
    pub(crate) fn answer_now(&self, inbound: &Inbound) -> Option<Reply> {
        let method = inbound.request.method.as_str();
        if let Some(kind) = CatalogKind::from_list_method(method) {
            return Some(self.list(inbound, kind).unwrap_or_else(Into::into));
        }
        match method {
            method::CALL_TOOL | method::READ_RESOURCE | method::GET_PROMPT | method::COMPLETE => {
                None
            }
            method::DISCOVER if inbound.modern() => Some(Reply::Page(self.0.discovery.clone())),
            _ => Some(match &inbound.peer {
                Some(peer) => self.legacy_only(inbound, peer).unwrap_or_else(Into::into),
                None => inbound.not_found(),
            }),
        }
    }

    fn legacy_only(&self, inbound: &Inbound, peer: &Peer) -> Result<Reply, RpcError> {
        match inbound.request.method.as_str() {
            method::PING => {}
            method::SET_LOG_LEVEL => {
                peer.set_level(inbound.params::<SetLevelParams>()?.level);
            }
            method::SUBSCRIBE if self.0.watchable => {
                let ResourceParams { uri } = inbound.params()?;
                if uri.len() > MAX_URI || !peer.hints.listener.watch(&uri, MAX_WATCHED) {
                    return Err(RpcError::invalid_params(format!(
                        "Invalid params: at most {MAX_WATCHED} resources are watched, with URIs of at most {MAX_URI} bytes"
                    )));
                }
            }
            method::UNSUBSCRIBE if self.0.watchable => {
                let ResourceParams { uri } = inbound.params()?;
                peer.hints.listener.unwatch(&uri);
            }
            _ => return Ok(inbound.not_found()),
        }
        Ok(Reply::Result(Map::new()))
    }

    /// Answers what a handler answers. Never panics, whatever the handler does.
    pub(crate) async fn answer_later(
        &self,
        inbound: &Inbound,
        outbound: Outbound,
        cancelled: CancellationToken,
    ) -> Reply {
        let result = match inbound.context(outbound, cancelled.clone()) {
            Ok(context) => match inbound.request.method.as_str() {
                method::CALL_TOOL => self.call_tool(inbound, context).await,
                method::READ_RESOURCE => self.read_resource(inbound, context).await,
                method::GET_PROMPT => self.get_prompt(inbound, context).await,
                method::COMPLETE => self.complete(inbound, context).await,
                _ => return inbound.not_found(),
            },
            Err(error) => Err(error),
        };
        match result {
            _ if cancelled.is_cancelled() => Reply::Nothing,
            Ok(result) => Reply::Result(finish(result, inbound.modern(), &self.0.info)),
            Err(error) => Reply::Error(error),
        }
    }

    /// The legacy handshake: who the client is, and the result that it gets.
    pub(crate) fn initialize(
        &self,
        request: &Request,
    ) -> Result<(Peer, Map<String, Value>), RpcError> {
        let text = request.params.as_deref().map_or("{}", RawValue::get);
        let params: InitializeParams = serde_json::from_str(text)
            .map_err(|e| RpcError::invalid_params(format!("Invalid params: {e}")))?;
        let version = ProtocolVersion::parse(&params.protocol_version)
            .filter(|v| v.era() == Era::Legacy)
            .unwrap_or_else(|| ProtocolVersion::latest(Era::Legacy));
        let mut result = Map::new();
        result.insert("protocolVersion".into(), version.as_str().into());
        result.insert("capabilities".into(), self.0.capabilities().into());
        result.insert("serverInfo".into(), self.0.info.clone());
        if let Some(instructions) = &self.0.instructions {
            result.insert("instructions".into(), instructions.as_str().into());
        }
        let hints = self.0.hub.register(self.0.hinted(), Default::default());
        let peer = Peer::new(version, params.client_info, params.capabilities, hints);
        Ok((peer, result))
    }

    /// Whether there is anything to listen to.
    pub(crate) fn has_hints(&self) -> bool {
        self.0.watchable || self.0.hinted() != Lists::NONE
    }
}
