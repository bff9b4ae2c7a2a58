//! Sessions: the handshake, requests within one, and streams that resume.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use relist_protocol::header::{LAST_EVENT_ID, SESSION_ID};
use relist_protocol::jsonrpc::{Malformed, Message, Notification, Request, RequestId};
use relist_protocol::message::{CancelledParams, method};
use relist_protocol::meta::RequestMeta;
use relist_protocol::{Era, ProtocolVersion, RpcError};
use tokio::sync::watch;
use tracing::Instrument as _;

use super::log::{EventLog, FIRST_READER, Read, Verdict};
use super::respond::{self, COMMENT, EVENTS, numbered_event};
use super::session::{Session, Streaming};
use super::{App, bad_request, headers};
use crate::context::Outbound;
use crate::dispatch::{Inbound, Reply, batch_fault, error_message};
use crate::listen::legacy_hint;

pub(super) fn initialize(app: &App, request: &Request) -> Response<Body> {
    let id = &request.id;
    let (peer, result) = match app.server.initialize(request) {
        Ok(opened) => opened,
        Err(fault) => return respond::error(StatusCode::OK, Some(id), &fault),
    };
    let Some(session) = app.sessions.open(peer) else {
        return respond::overloaded(Some(id), "sessions");
    };
    tracing::debug!(session = session.id, version = %session.peer.version, "opened");
    let parts = Reply::Result(result).message(id).unwrap_or_default();
    let mut response = respond::json(StatusCode::OK, parts.concat());
    if let Ok(value) = HeaderValue::from_str(&session.id) {
        response.headers_mut().insert(SESSION_ID, value);
    }
    response
}

/// The session of a request, or the response that says why there is none.
fn session(
    app: &App,
    headers: &HeaderMap,
    id: Option<&RequestId>,
) -> Result<Arc<Session>, Response<Body>> {
    let stated = match headers::version(headers) {
        Ok(stated) => stated,
        Err(fault) => return Err(bad_request(id, &fault)),
    };
    if let Some(stated) = &stated
        && ProtocolVersion::parse(stated).is_none()
    {
        let fault = RpcError::unsupported_version(stated, &ProtocolVersion::ALL);
        return Err(bad_request(id, &fault));
    }
    let Some(key) = headers.get(SESSION_ID) else {
        let fault = RpcError::invalid_request(
            "Bad Request: the Mcp-Session-Id header is missing; a session begins with `initialize`, and a request without one carries its version in `_meta`",
        );
        return Err(bad_request(id, &fault));
    };
    let found = key.to_str().ok().and_then(|key| app.sessions.get(key));
    let Some(session) = found else {
        let fault = RpcError::invalid_request("Session not found");
        return Err(respond::error(StatusCode::NOT_FOUND, id, &fault));
    };
    match stated {
        Some(stated) if stated != session.peer.version.as_str() => {
            let fault = RpcError::invalid_request(format!(
                "Bad Request: this session speaks {}, not {stated}",
                session.peer.version
            ));
            Err(bad_request(id, &fault))
        }
        _ => Ok(session),
    }
}

pub(super) fn delete(app: &App, headers: &HeaderMap) -> Response<Body> {
    if !headers.contains_key(SESSION_ID) {
        return respond::not_allowed("POST");
    }
    match session(app, headers, None) {
        Ok(session) => {
            app.sessions.close(&session.id);
            respond::empty(StatusCode::NO_CONTENT)
        }
        Err(response) => response,
    }
}

pub(super) fn get(app: &App, headers: &HeaderMap) -> Response<Body> {
    // There is no stream without a session: said before anything else.
    if !headers.contains_key(SESSION_ID) {
        return respond::not_allowed("POST");
    }
    if !app.options.legacy_stream && !headers.contains_key(LAST_EVENT_ID) {
        return respond::not_allowed("POST, DELETE");
    }
    if !headers::accepts(headers, EVENTS) {
        let fault = RpcError::invalid_request("Not acceptable: the answer is text/event-stream");
        return respond::error(StatusCode::NOT_ACCEPTABLE, None, &fault);
    }
    let session = match session(app, headers, None) {
        Ok(session) => session,
        Err(response) => return response,
    };
    let resumed = headers
        .get(LAST_EVENT_ID)
        .and_then(|id| id.to_str().ok())
        .and_then(|id| session.find(id.trim()));
    let (log, after) = match resumed {
        Some(found) => found,
        None => (session.hints.clone(), session.hints.last()),
    };
    let reader = log.attach();
    let hinted = log.stream() == session.hints.stream();
    stream(app, &session, log, reader, after, hinted)
}

/// A reader of a log, as a response.
fn stream(
    app: &App,
    session: &Arc<Session>,
    log: Arc<EventLog>,
    reader: u64,
    after: u64,
    hinted: bool,
) -> Response<Body> {
    let primed = session.peer.version >= ProtocolVersion::V2025_11_25;
    let opening = if primed {
        let id = format!("id: {}-{after}\n", log.stream());
        let retry = app.options.retry.as_millis();
        Bytes::from(format!("{id}retry: {retry}\ndata: \n\n"))
    } else {
        COMMENT
    };
    let reader = Reader {
        opening: Some(opening),
        changed: log.watch(),
        log,
        reader,
        after,
        hinted,
        keep_alive: app.options.keep_alive,
        open: session.streaming(),
    };
    respond::events(futures::stream::unfold(reader, Reader::next))
}

struct Reader {
    opening: Option<Bytes>,
    log: Arc<EventLog>,
    changed: watch::Receiver<()>,
    reader: u64,
    after: u64,
    /// Whether this is the stream of hints.
    hinted: bool,
    keep_alive: std::time::Duration,
    open: Streaming,
}

impl Reader {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        if let Some(opening) = self.opening.take() {
            return Some((opening, self));
        }
        loop {
            // Seen before the log is looked at, so that nothing is missed.
            self.changed.mark_unchanged();
            match self.log.read(self.reader, self.after) {
                Read::End => return None,
                Read::Wait => {}
                Read::Events(events) => {
                    let mut out = Vec::new();
                    for (number, message) in &events {
                        out.extend_from_slice(&numbered_event(self.log.stream(), *number, message));
                        self.after = *number;
                    }
                    return Some((out.into(), self));
                }
            }
            let listener = &self.open.0.peer.hints.listener;
            tokio::select! {
                changed = self.changed.changed() => changed.ok()?,
                () = listener.ready(), if self.hinted => {
                    for hint in listener.take()? {
                        self.log.push_once(legacy_hint(&hint));
                    }
                }
                () = tokio::time::sleep(self.keep_alive) => return Some((COMMENT, self)),
            }
        }
    }
}

fn notified(session: &Session, notification: &Notification) {
    match notification.method.as_str() {
        method::CANCELLED => {
            let params = notification.params.as_deref();
            match params.map(|p| serde_json::from_str::<CancelledParams>(p.get())) {
                Some(Ok(params)) => session.peer.cancel(&params.request_id),
                // Malformed notifications are ignored, as the specification says.
                _ => tracing::debug!("a malformed notifications/cancelled"),
            }
        }
        other => tracing::trace!(method = other, "a notification"),
    }
}

/// Messages within a session.
pub(super) async fn post(
    app: &Arc<App>,
    headers: &HeaderMap,
    messages: Vec<Result<Message, Malformed>>,
    batch: bool,
) -> Response<Body> {
    let first_id = messages.iter().find_map(|m| match m {
        Ok(Message::Request(request)) => Some(request.id.clone()),
        _ => None,
    });
    let session = match session(app, headers, first_id.as_ref().filter(|_| !batch)) {
        Ok(session) => session,
        Err(response) => return response,
    };
    if batch && let Some(fault) = batch_fault(Some(session.peer.version), messages.len()) {
        return bad_request(None, &fault);
    }
    let log = session.new_log();
    let mut running = Vec::new();
    let mut owed = false;
    for message in messages {
        match message {
            Err(malformed) => {
                owed = true;
                log.push_response(error_message(malformed.id.as_ref(), &malformed.error));
            }
            Ok(Message::Notification(notification)) => notified(&session, &notification),
            Ok(Message::Response(response)) => session.peer.answer(response),
            Ok(Message::Request(request)) => {
                owed = true;
                let id = request.id.clone();
                match begin(app, &session, &log, request) {
                    Begun::Now(reply) if !batch => {
                        let compression = app.options.compression;
                        return respond::reply(reply, &id, Era::Legacy, headers, compression).await;
                    }
                    Begun::Now(reply) => {
                        if let Some(parts) = reply.message(&id) {
                            log.push_response(parts.concat().into());
                        }
                    }
                    Begun::Later(task) => running.push(task),
                }
            }
        }
    }
    if !owed {
        return respond::empty(StatusCode::ACCEPTED);
    }
    let finishing = log.clone();
    // A client that is gone does not end the request: it may come back.
    tokio::spawn(async move {
        for task in running {
            drop(task.await);
        }
        finishing.finish();
    });
    answered(app, &session, log, batch).await
}

enum Begun {
    Now(Reply),
    Later(tokio::task::JoinHandle<()>),
}

fn begin(app: &App, session: &Arc<Session>, log: &Arc<EventLog>, request: Request) -> Begun {
    let meta = match RequestMeta::read(request.params.as_deref()) {
        Ok(meta) => meta,
        Err(fault) => return Begun::Now(fault.into()),
    };
    if request.method == method::INITIALIZE {
        let fault = RpcError::invalid_request("Invalid Request: the session has been initialized");
        return Begun::Now(fault.into());
    }
    let inbound = Inbound {
        version: session.peer.version,
        peer: Some(session.peer.clone()),
        meta,
        request,
    };
    if let Some(reply) = app.server.answer_now(&inbound) {
        return Begun::Now(reply);
    }
    let Some(running) = session.peer.begin(&inbound.request.id) else {
        let fault = RpcError::invalid_request("Invalid Request: a request with this id is running");
        return Begun::Now(fault.into());
    };
    let span = tracing::debug_span!(
        "request",
        method = inbound.request.method,
        id = %inbound.request.id,
        version = %inbound.version,
    );
    let (server, log) = (app.server.clone(), log.clone());
    let task = async move {
        let outbound = Outbound::Log(log.clone());
        let reply = server
            .answer_later(&inbound, outbound, running.token.clone())
            .await;
        if let Some(parts) = reply.message(&inbound.request.id) {
            log.push_response(parts.concat().into());
        }
    };
    Begun::Later(tokio::spawn(task.instrument(span)))
}

/// JSON if all is there soon and nothing was said meanwhile, a stream otherwise.
async fn answered(
    app: &App,
    session: &Arc<Session>,
    log: Arc<EventLog>,
    batch: bool,
) -> Response<Body> {
    let mut changed = log.watch();
    let patience = tokio::time::sleep(app.options.stream_after);
    let mut patience = std::pin::pin!(patience);
    loop {
        changed.mark_unchanged();
        match log.verdict() {
            Verdict::Open => {}
            Verdict::Stream => break,
            Verdict::Responses(responses) if responses.is_empty() => {
                return respond::empty(StatusCode::ACCEPTED);
            }
            Verdict::Responses(responses) => {
                let body = if batch {
                    [b"[", responses.join(&b',').as_slice(), b"]"].concat()
                } else {
                    responses.concat()
                };
                return respond::json(StatusCode::OK, body);
            }
        }
        tokio::select! {
            _ = changed.changed() => {}
            () = &mut patience => break,
        }
    }
    session.keep(log.clone());
    stream(app, session, log, FIRST_READER, 0, false)
}
