//! Sending one request and waiting for its answer, over whichever transport.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue};
use relist_protocol::jsonrpc::{Notification, RequestId};
use relist_protocol::message::{CancelledParams, method, to_raw};
use relist_protocol::meta::key;
use relist_protocol::{Era, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::core::Core;
use super::exchange::HttpSide;
use super::outgoing::{Dialect, Outgoing, RequestOptions};
use super::patience::Patience;
use crate::error::RequestError;
use crate::transport::http::Verb;
use crate::transport::stdio::StdioLink;

/// The answer to a request.
#[derive(Debug)]
#[non_exhaustive]
pub struct Answer {
    /// The result as it stood in the message.
    pub result: Box<RawValue>,
    /// Bytes of the request's body or line.
    pub bytes_sent: u64,
    /// Bytes of the answer's body, stream or line, decompressed.
    pub bytes_received: u64,
    /// The same as they came over the wire: compressed where they were.
    pub bytes_on_wire: u64,
    /// From the first byte sent to the last received.
    pub elapsed: Duration,
    /// HTTP: the headers of the response.
    pub(crate) headers: Option<HeaderMap>,
}

impl Answer {
    /// Reads the result into a type.
    ///
    /// # Errors
    ///
    /// [`RequestError::Malformed`] when the result has another shape.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, RequestError> {
        serde_json::from_str(self.result.get()).map_err(|e| RequestError::Malformed {
            reason: e.to_string(),
        })
    }

    /// The result's `resultType`; absent in the legacy era, where it means
    /// `complete`.
    #[must_use]
    pub fn result_type(&self) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Typed {
            #[serde(default)]
            result_type: Option<String>,
        }
        serde_json::from_str::<Typed>(self.result.get())
            .ok()?
            .result_type
    }

    /// The result's `_meta`, empty where there is none.
    #[must_use]
    pub fn meta(&self) -> Map<String, Value> {
        #[derive(Deserialize)]
        struct WithMeta {
            #[serde(default, rename = "_meta")]
            meta: Map<String, Value>,
        }
        serde_json::from_str::<WithMeta>(self.result.get())
            .map(|with| with.meta)
            .unwrap_or_default()
    }

    /// The methods whose known tags were out of date (draft: Definition Tags).
    #[must_use]
    pub fn stale_tags(&self) -> Vec<String> {
        match self.meta().remove(key::STALE_TAGS) {
            Some(Value::Array(methods)) => methods
                .into_iter()
                .filter_map(|m| m.as_str().map(str::to_owned))
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// The way to a server.
#[derive(Clone)]
pub(crate) enum Link {
    Http(HttpSide),
    Stdio(Arc<StdioLink>),
}

impl Link {
    /// Sends a request and waits for its answer. When the waiting ends early,
    /// the server is told as its transport and era want it.
    pub(crate) async fn ask(
        &self,
        core: &Arc<Core>,
        dialect: Dialect,
        method: &str,
        params: Map<String, Value>,
        options: &RequestOptions,
    ) -> Result<Answer, RequestError> {
        self.exchange(core, dialect, method, params, options, false)
            .await
    }

    /// The same, for a request that is never cancelled: `initialize` must not
    /// be, and a probe had better not be.
    pub(crate) async fn ask_quietly(
        &self,
        core: &Arc<Core>,
        dialect: Dialect,
        method: &str,
        params: Map<String, Value>,
        options: &RequestOptions,
    ) -> Result<Answer, RequestError> {
        self.exchange(core, dialect, method, params, options, true)
            .await
    }

    async fn exchange(
        &self,
        core: &Arc<Core>,
        dialect: Dialect,
        method: &str,
        params: Map<String, Value>,
        options: &RequestOptions,
        quiet: bool,
    ) -> Result<Answer, RequestError> {
        if core.is_closed() {
            return Err(core.closed_error());
        }
        let id = core.next_id();
        let outgoing = Outgoing::write(&core.config, dialect, id, method, params, options)?;
        let patience = Patience::new(core.questions.open());
        let mut farewell = Farewell {
            link: self,
            id: outgoing.id.clone(),
            era: dialect.era(),
            armed: !quiet,
        };
        let begun = Instant::now();
        let silence = options.timeout.unwrap_or(core.config.request_timeout);
        let limit = options
            .limit
            .unwrap_or(core.config.request_limit)
            .max(silence);
        let outcome = tokio::select! {
            biased;
            // An answer that has arrived counts, whatever else happened.
            outcome = self.carry(&outgoing, &patience) => {
                farewell.armed = false;
                outcome
            }
            () = options.cancel.cancelled() => Err(RequestError::Cancelled),
            () = core.closed() => {
                farewell.armed = false;
                Err(core.closed_error())
            }
            waited = patience.exhausted(silence, limit) => {
                if let Self::Http(side) = self {
                    side.link.distrust_sockets();
                }
                Err(RequestError::Timeout { waited })
            }
        };
        drop(farewell);
        let mut answer = outcome?;
        answer.bytes_sent = outgoing.body.len() as u64;
        answer.elapsed = begun.elapsed();
        Ok(answer)
    }

    async fn carry(
        &self,
        outgoing: &Outgoing,
        patience: &Arc<Patience>,
    ) -> Result<Answer, RequestError> {
        Ok(match self {
            Self::Http(side) => {
                let answer = side.request(outgoing, patience).await?;
                Answer {
                    result: answer.result,
                    bytes_sent: 0,
                    bytes_received: answer.received,
                    bytes_on_wire: answer.on_wire,
                    elapsed: Duration::ZERO,
                    headers: Some(answer.headers),
                }
            }
            Self::Stdio(pipe) => {
                let answer = pipe.request(outgoing, Arc::clone(patience)).await?;
                Answer {
                    result: answer.result,
                    bytes_sent: 0,
                    bytes_received: answer.bytes,
                    bytes_on_wire: answer.bytes,
                    elapsed: Duration::ZERO,
                    headers: None,
                }
            }
        })
    }

    /// Sends a notification.
    pub(crate) async fn notify(
        &self,
        dialect: Dialect,
        notification: &Notification,
    ) -> Result<(), RequestError> {
        match self {
            Self::Http(side) => {
                let body =
                    serde_json::to_vec(notification).map_err(|e| RequestError::InvalidRequest {
                        reason: e.to_string(),
                    })?;
                let mut headers = HeaderMap::new();
                if let Dialect::Modern { version, .. } = dialect {
                    headers.insert(
                        HeaderName::from_static(header::PROTOCOL_VERSION),
                        HeaderValue::from_static(version.as_str()),
                    );
                    if let Ok(method) = HeaderValue::from_str(&notification.method) {
                        headers.insert(HeaderName::from_static(header::METHOD), method);
                    }
                }
                let waited = side.core.config.request_timeout;
                tokio::time::timeout(waited, side.post(body.into(), &headers))
                    .await
                    .unwrap_or(Err(RequestError::Timeout { waited }))
            }
            Self::Stdio(pipe) => pipe.notify(notification).await,
        }
    }

    /// Says goodbye: ends a legacy session, or the program.
    pub(crate) async fn close(&self) {
        match self {
            Self::Http(side) => {
                if side.link.has_session() {
                    let headers = HeaderMap::new();
                    let goodbye = side.link.send(Verb::Delete, &headers);
                    let patience = side.core.config.shutdown_timeout;
                    let _ = tokio::time::timeout(patience, goodbye).await;
                }
            }
            Self::Stdio(pipe) => pipe.close().await,
        }
    }
}

/// Tells the server that its answer is no longer wanted, when a request is
/// dropped or runs out of time. Over modern HTTP the closed stream says it.
struct Farewell<'a> {
    link: &'a Link,
    id: RequestId,
    era: Era,
    armed: bool,
}

impl Drop for Farewell<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        match self.link {
            Link::Stdio(pipe) => pipe.cancel(&self.id, "no longer waited for"),
            Link::Http(side) if self.era == Era::Legacy => {
                let Ok(runtime) = tokio::runtime::Handle::try_current() else {
                    return;
                };
                let params = to_raw(&CancelledParams {
                    request_id: self.id.clone(),
                    reason: Some("no longer waited for".to_owned()),
                });
                let notification = Notification {
                    method: method::CANCELLED.to_owned(),
                    params: params.ok(),
                };
                let link = Link::Http(side.clone());
                runtime.spawn(async move { link.notify(Dialect::Legacy, &notification).await });
            }
            Link::Http(_) => {}
        }
    }
}
