//! One request over HTTP: the POST, the answer as JSON or out of a stream, and
//! (legacy) the resumption of a stream that broke off.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use relist_protocol::jsonrpc::{Incoming, Message, Request, RequestId, Response};
use relist_protocol::{Era, RpcError, header};
use serde_json::value::RawValue;

use super::core::Core;
use super::input;
use super::notice::{Notice, Notified};
use super::outgoing::Outgoing;
use super::patience::Patience;
use crate::error::{RequestError, excerpt};
use crate::transport::http::{HttpLink, Reply, Verb};
use crate::transport::sse::{self, Event, EventDecoder, EventFault};

/// How long to wait before a stream is resumed when the server does not say.
pub(crate) const RESUME_AFTER: Duration = Duration::from_secs(1);

/// The shortest pause before a stream is resumed, whatever the server says.
pub(crate) const RESUME_FLOOR: Duration = Duration::from_millis(100);

/// How long a stream may stay open after its answer.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// An answer that came over HTTP.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) result: Box<RawValue>,
    /// Decompressed bytes of bodies.
    pub(crate) received: u64,
    /// Bytes of bodies as they came.
    pub(crate) on_wire: u64,
    /// The headers of the first response.
    pub(crate) headers: HeaderMap,
}

impl From<EventFault> for RequestError {
    fn from(fault: EventFault) -> Self {
        match fault {
            EventFault::TooLarge { limit } => Self::TooLarge { limit },
            EventFault::NotUtf8 { .. } => Self::Malformed {
                reason: fault.to_string(),
            },
        }
    }
}

/// Everything that the exchanges of one connection share.
#[derive(Clone)]
pub(crate) struct HttpSide {
    pub(crate) link: Arc<HttpLink>,
    pub(crate) core: Arc<Core>,
}

/// What a resumed or first stream has said of being resumed.
#[derive(Debug, Default, Clone)]
pub(crate) struct Bookmark {
    pub(crate) last_id: Option<String>,
    pub(crate) retry: Option<Duration>,
}

impl Bookmark {
    pub(crate) fn note(&mut self, event: &Event) {
        if let Some(id) = &event.id {
            // An empty id takes the last one back.
            self.last_id = (!id.is_empty()).then(|| id.clone());
        }
        if let Some(retry) = event.retry {
            self.retry = Some(Duration::from_millis(retry));
        }
    }

    pub(crate) fn pause(&self) -> Duration {
        self.retry.unwrap_or(RESUME_AFTER).max(RESUME_FLOOR)
    }

    pub(crate) fn headers(&self) -> Result<HeaderMap, RequestError> {
        let mut headers = HeaderMap::new();
        if let Some(id) = &self.last_id {
            let value =
                HeaderValue::from_bytes(id.as_bytes()).map_err(|_| RequestError::Malformed {
                    reason: "an event id that no header can carry".to_owned(),
                })?;
            headers.insert(HeaderName::from_static(header::LAST_EVENT_ID), value);
        }
        Ok(headers)
    }
}

impl HttpSide {
    /// Sends a request and reads its answer.
    pub(crate) async fn request(
        &self,
        outgoing: &Outgoing,
        patience: &Arc<Patience>,
    ) -> Result<HttpAnswer, RequestError> {
        let reply = self
            .link
            .send(Verb::Post(outgoing.body.clone()), &outgoing.headers)
            .await?;
        if !reply.status.is_success() {
            return Err(self
                .refusal(reply, &outgoing.id, outgoing.dialect.is_opening())
                .await);
        }
        let headers = reply.headers.clone();
        let mut exchange = Exchange {
            side: self,
            outgoing,
            patience,
            received: 0,
            on_wire: 0,
            foreign: None,
        };
        let content_type = reply.content_type();
        let result = if content_type.as_deref().is_some_and(sse::is_event_stream) {
            exchange.stream(reply).await?
        } else {
            exchange.document(reply, content_type).await?
        };
        Ok(HttpAnswer {
            result,
            received: exchange.received,
            on_wire: exchange.on_wire,
            headers,
        })
    }

    /// Legacy: sends a notification or a response.
    pub(crate) async fn post(&self, body: Bytes, headers: &HeaderMap) -> Result<(), RequestError> {
        let reply = self.link.send(Verb::Post(body), headers).await?;
        if reply.status.is_success() {
            return Ok(());
        }
        Err(self.refusal(reply, &RequestId::Number(0), false).await)
    }

    /// What a status other than success means.
    pub(crate) async fn refusal(
        &self,
        mut reply: Reply,
        id: &RequestId,
        opening: bool,
    ) -> RequestError {
        let status = reply.status;
        let content_type = reply.content_type();
        let retry_after = reply.retry_after();
        let text = reply.body.explanation().await;
        let in_session = self.link.has_session() && !opening;
        let rpc = error_in(&text).filter(|(found, _)| found.as_ref().is_none_or(|f| f == id));
        if matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        ) && let Some(after) = retry_after
        {
            return RequestError::RetryAfter {
                status: status.as_u16(),
                after,
            };
        }
        if in_session && is_session_gone(status, id, rpc.as_ref()) {
            return RequestError::SessionGone;
        }
        match rpc {
            Some((_, error)) => RequestError::Rpc(error),
            None => RequestError::Http {
                status: status.as_u16(),
                content_type,
                excerpt: excerpt(&text),
            },
        }
    }

    /// Answers a question of a legacy server, in a task of its own.
    pub(crate) fn question(&self, request: Request, era: Era) {
        let Request { id, method, params } = request;
        if era == Era::Modern {
            tracing::warn!(%method, "a request of a modern server was skipped: it may not ask");
            return;
        }
        let Some(turn) = self.core.questions.turn(&method) else {
            return;
        };
        let side = self.clone();
        tokio::spawn(async move {
            let work = async {
                let outcome = input::answer(&side.core.config, &method, params.as_deref()).await;
                let response = input::response(id, outcome);
                let Ok(body) = serde_json::to_vec(&response) else {
                    return;
                };
                if let Err(error) = side.post(body.into(), &HeaderMap::new()).await {
                    tracing::warn!(%method, %error, "the answer to a question was not taken");
                }
            };
            tokio::select! {
                () = work => {}
                () = side.core.closed() => {}
            }
            drop(turn);
        });
    }
}

/// The JSON-RPC error in the body of a refusal, with the id that it names.
pub(crate) fn error_in(text: &[u8]) -> Option<(Option<RequestId>, RpcError)> {
    match Incoming::parse(text) {
        Ok(Incoming::Single(Message::Response(Response {
            id,
            outcome: Err(error),
        }))) => Some((id, error)),
        _ => None,
    }
}

/// Legacy: whether a refusal says that the session is unknown. The rule is 404;
/// many servers of the field answer 400 with a code that means nothing and a
/// sentence about the session.
fn is_session_gone(
    status: StatusCode,
    id: &RequestId,
    rpc: Option<&(Option<RequestId>, RpcError)>,
) -> bool {
    match (status, rpc) {
        // The request was read and its method is unknown: the session is not.
        (StatusCode::NOT_FOUND, Some((Some(found), error))) => {
            !(found == id && error.code == relist_protocol::error::code::METHOD_NOT_FOUND)
        }
        (StatusCode::NOT_FOUND, _) => true,
        (StatusCode::BAD_REQUEST, Some((_, error))) => {
            (-32019..=-32000).contains(&error.code)
                && error.message.to_ascii_lowercase().contains("session")
        }
        _ => false,
    }
}

/// Reads one answer.
struct Exchange<'a> {
    side: &'a HttpSide,
    outgoing: &'a Outgoing,
    patience: &'a Arc<Patience>,
    received: u64,
    on_wire: u64,
    /// An answer to something else that came instead.
    foreign: Option<RequestId>,
}

impl Exchange<'_> {
    async fn document(
        &mut self,
        mut reply: Reply,
        content_type: Option<String>,
    ) -> Result<Box<RawValue>, RequestError> {
        let status = reply.status.as_u16();
        let is_html = content_type
            .as_deref()
            .is_some_and(|t| sse::is_media_type(t, "text/html"));
        let text = if is_html {
            reply.body.explanation().await
        } else {
            reply.body.whole(self.side.core.config.body_limit).await?
        };
        self.received += reply.body.decoded();
        self.on_wire += reply.body.on_wire();
        if text.is_empty() {
            return Err(RequestError::Malformed {
                reason: format!("HTTP {status} without a body, where an answer is due"),
            });
        }
        let not_json = || RequestError::NotJson {
            status,
            content_type: content_type.clone(),
            excerpt: excerpt(&text),
        };
        if is_html {
            return Err(not_json());
        }
        match Incoming::parse(&text) {
            Ok(incoming) => match self.take(incoming)? {
                Some(result) => Ok(result),
                None => Err(self.missing("the body")),
            },
            Err(malformed) if malformed.error.code == relist_protocol::error::code::PARSE_ERROR => {
                Err(not_json())
            }
            Err(malformed) => Err(RequestError::Malformed {
                reason: malformed.error.message,
            }),
        }
    }

    /// Reads a stream up to the answer, and what it is resumed as.
    async fn stream(&mut self, reply: Reply) -> Result<Box<RawValue>, RequestError> {
        let resumable = self.outgoing.dialect.era() == Era::Legacy;
        let mut bookmark = Bookmark::default();
        let mut reply = reply;
        loop {
            let why = match self.events(&mut reply, &mut bookmark).await? {
                Ok(result) => {
                    let_end(reply);
                    return Ok(result);
                }
                Err(why) => why,
            };
            if !resumable || bookmark.last_id.is_none() {
                return Err(match self.foreign.take() {
                    Some(found) => self.foreign_error(found),
                    None => RequestError::Cut { reason: why },
                });
            }
            tracing::debug!(reason = why, "an answer's stream is resumed");
            tokio::time::sleep(bookmark.pause()).await;
            reply = self.resume(&bookmark, &why).await?;
        }
    }

    async fn resume(&self, bookmark: &Bookmark, why: &str) -> Result<Reply, RequestError> {
        let reply = self.side.link.send(Verb::Get, &bookmark.headers()?).await?;
        let is_stream = reply
            .content_type()
            .as_deref()
            .is_some_and(sse::is_event_stream);
        if reply.status == StatusCode::OK && is_stream {
            return Ok(reply);
        }
        Err(RequestError::Cut {
            reason: format!(
                "{why}; it cannot be resumed (HTTP {})",
                reply.status.as_u16()
            ),
        })
    }

    /// Reads events until the answer; the inner error says how the stream ended
    /// without one.
    async fn events(
        &mut self,
        reply: &mut Reply,
        bookmark: &mut Bookmark,
    ) -> Result<Result<Box<RawValue>, String>, RequestError> {
        let mut decoder = EventDecoder::new(self.side.core.config.body_limit);
        let outcome = self.read_events(reply, bookmark, &mut decoder).await;
        self.received += reply.body.decoded();
        self.on_wire += reply.body.on_wire();
        outcome
    }

    async fn read_events(
        &mut self,
        reply: &mut Reply,
        bookmark: &mut Bookmark,
        decoder: &mut EventDecoder,
    ) -> Result<Result<Box<RawValue>, String>, RequestError> {
        loop {
            let chunk = match reply.body.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) if decoder.is_inside_event() => {
                    return Ok(Err("the stream ended inside an event".to_owned()));
                }
                Ok(None) => return Ok(Err("the stream ended before the answer".to_owned())),
                Err(fault) => return Ok(Err(RequestError::from(fault).to_string())),
            };
            decoder.push(chunk)?;
            while let Some(event) = decoder.next()? {
                bookmark.note(&event);
                if let Some(incoming) = message_of(&event, &self.outgoing.id)?
                    && let Some(result) = self.take(incoming)?
                {
                    return Ok(Ok(result));
                }
            }
        }
    }

    fn take(&mut self, incoming: Incoming) -> Result<Option<Box<RawValue>>, RequestError> {
        let messages = match incoming {
            Incoming::Single(message) => vec![Ok(message)],
            Incoming::Batch(messages) => messages,
        };
        let mut answer = None;
        for message in messages {
            match message {
                Ok(Message::Response(response)) => match response.id {
                    Some(id) if id == self.outgoing.id => {
                        answer = Some(response.outcome.map_err(RequestError::Rpc)?);
                    }
                    // Base JSON-RPC: an error about a request that could not be
                    // read. On this stream, that is ours.
                    None => {
                        response.outcome.map_err(RequestError::Rpc)?;
                    }
                    Some(id) => {
                        tracing::warn!(found = %id, expected = %self.outgoing.id,
                            "an answer to another request was refused");
                        self.foreign = Some(id);
                    }
                },
                Ok(Message::Notification(notification)) => {
                    if let Some(notified) = Notified::read(notification) {
                        self.notice(notified.notice);
                    }
                }
                Ok(Message::Request(request)) => {
                    let era = self.outgoing.dialect.era();
                    self.side.question(request, era);
                }
                Err(malformed) if malformed.id.as_ref() == Some(&self.outgoing.id) => {
                    return Err(RequestError::Malformed {
                        reason: malformed.error.message,
                    });
                }
                Err(malformed) => {
                    tracing::warn!(error = malformed.error.message, "a message was skipped");
                }
            }
        }
        Ok(answer)
    }

    fn notice(&self, notice: Notice) {
        match notice {
            Notice::Progress { token, progress } if token == self.outgoing.id => {
                self.patience.touch();
                if let Some(sender) = &self.outgoing.progress {
                    let _ = sender.try_send(progress);
                }
            }
            notice => self.side.core.stray(notice),
        }
    }

    fn foreign_error(&self, found: RequestId) -> RequestError {
        RequestError::ForeignId {
            expected: self.outgoing.id.clone(),
            found,
        }
    }

    fn missing(&mut self, place: &str) -> RequestError {
        match self.foreign.take() {
            Some(found) => self.foreign_error(found),
            None => RequestError::Malformed {
                reason: format!("{place} holds no answer"),
            },
        }
    }
}

/// The answer should end its stream. Given a moment to do so, the connection can
/// be used again.
fn let_end(mut reply: Reply) {
    tokio::spawn(tokio::time::timeout(LAST_MOMENT, async move {
        while let Ok(Some(_)) = reply.body.chunk().await {}
    }));
}

/// The message in an event, if it has one. A malformed message about `id` is an
/// error; any other is skipped with a warning.
pub(crate) fn message_of(event: &Event, id: &RequestId) -> Result<Option<Incoming>, RequestError> {
    if event.data.is_empty() || event.kind.as_deref().is_some_and(|k| k != "message") {
        return Ok(None);
    }
    match Incoming::parse(event.data.as_bytes()) {
        Ok(incoming) => Ok(Some(incoming)),
        Err(malformed) if malformed.id.as_ref() == Some(id) => Err(RequestError::Malformed {
            reason: malformed.error.message,
        }),
        Err(malformed) => {
            tracing::warn!(
                error = malformed.error.message,
                event = excerpt(event.data.as_bytes()),
                "an event that is no message was skipped"
            );
            Ok(None)
        }
    }
}
