//! Requests that say all that is needed: no handshake, no session.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Response};
use relist_protocol::jsonrpc::{Request, RequestId};
use relist_protocol::message::method;
use relist_protocol::meta::RequestMeta;
use relist_protocol::{Era, RpcError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument as _;

use super::respond::{self, COMMENT, event};
use super::{App, bad_request, headers};
use crate::context::Outbound;
use crate::dispatch::{Inbound, Reply, modern_version};
use crate::listen::Subscription;

/// Messages of one request that wait for its reader.
const WAITING: usize = 64;

pub(super) async fn request(
    app: &Arc<App>,
    headers: &HeaderMap,
    request: Request,
    meta: RequestMeta,
) -> Response<Body> {
    let state = app.server.0.catalogs.state();
    let checked = headers::check(headers, &request, &meta, &state);
    drop(state);
    let version = match checked.and_then(|()| modern_version(&meta)) {
        Ok(version) => version,
        Err(fault) => return bad_request(Some(&request.id), &fault),
    };
    let inbound = Inbound {
        request,
        meta,
        version,
        peer: None,
    };
    let span = tracing::debug_span!(
        "request",
        method = inbound.request.method,
        id = %inbound.request.id,
        %version,
    );
    async {
        if inbound.request.method == method::LISTEN {
            return listen(app, headers, &inbound).await;
        }
        match app.server.answer_now(&inbound) {
            Some(reply) => single(app, headers, &inbound.request.id, reply).await,
            None => later(app, headers, inbound).await,
        }
    }
    .instrument(span)
    .await
}

async fn single(app: &App, headers: &HeaderMap, id: &RequestId, reply: Reply) -> Response<Body> {
    respond::reply(reply, id, Era::Modern, headers, app.options.compression).await
}

/// Starts as JSON; becomes a stream with the first message, or when it takes long.
async fn later(app: &Arc<App>, headers: &HeaderMap, inbound: Inbound) -> Response<Body> {
    let id = inbound.request.id.clone();
    let (sender, mut messages) = mpsc::channel(WAITING);
    let cancelled = CancellationToken::new();
    // Dropped with this future, or with the response: the client is gone then.
    let guard = cancelled.clone().drop_guard();
    let server = app.server.clone();
    let mut task = tokio::spawn(
        async move {
            let outbound = Outbound::Channel(sender);
            server.answer_later(&inbound, outbound, cancelled).await
        }
        .in_current_span(),
    );
    let first = tokio::select! {
        biased;
        Some(message) = messages.recv() => Some(message),
        done = &mut task => {
            // The last message and the end may come at one time.
            match messages.try_recv() {
                Err(_) => return single(app, headers, &id, joined(done)).await,
                Ok(message) => {
                    task = tokio::spawn(std::future::ready(joined(done)));
                    Some(message)
                }
            }
        }
        () = tokio::time::sleep(app.options.stream_after) => None,
    };
    let stream = RequestStream {
        id,
        // Without a message yet, a comment makes proxies pass the headers on.
        first: Some(first.map_or(COMMENT, |message| event(&message))),
        messages,
        task: Some(task),
        keep_alive: app.options.keep_alive,
        _guard: guard,
    };
    respond::events(futures::stream::unfold(stream, RequestStream::next))
}

fn joined(done: Result<Reply, tokio::task::JoinError>) -> Reply {
    done.unwrap_or_else(|_| Reply::Error(RpcError::internal("Internal error")))
}

struct RequestStream {
    id: RequestId,
    first: Option<Bytes>,
    messages: mpsc::Receiver<Bytes>,
    /// `None` when the answer has been given.
    task: Option<JoinHandle<Reply>>,
    keep_alive: Duration,
    _guard: DropGuard,
}

impl RequestStream {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        if let Some(first) = self.first.take() {
            return Some((first, self));
        }
        let task = self.task.as_mut()?;
        tokio::select! {
            biased;
            Some(message) = self.messages.recv() => Some((event(&message), self)),
            done = task => {
                self.task = None;
                let mut out = Vec::new();
                while let Ok(message) = self.messages.try_recv() {
                    out.extend_from_slice(&event(&message));
                }
                if let Some(parts) = joined(done).message(&self.id) {
                    out.extend_from_slice(&event(&parts.concat()));
                }
                (!out.is_empty()).then(|| (out.into(), self))
            }
            () = tokio::time::sleep(self.keep_alive) => Some((COMMENT, self)),
        }
    }
}

/// One open listen stream.
struct Listening(Arc<App>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.listening.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn listen(app: &Arc<App>, headers: &HeaderMap, inbound: &Inbound) -> Response<Body> {
    let id = &inbound.request.id;
    let open = app.listening.fetch_add(1, Ordering::Relaxed);
    let listening = Listening(app.clone());
    if open >= app.options.max_listen_streams {
        return respond::overloaded(Some(id), "listen streams");
    }
    let subscription = match app.server.subscribe(inbound) {
        Ok(subscription) => subscription,
        Err(fault) => return single(app, headers, id, fault.into()).await,
    };
    tracing::debug!(?subscription, "listening");
    let stream = ListenStream {
        subscription,
        stage: Stage::Acknowledging,
        keep_alive: app.options.keep_alive,
        _listening: listening,
    };
    respond::events(futures::stream::unfold(stream, ListenStream::next))
}

enum Stage {
    Acknowledging,
    Open,
    Ended,
}

struct ListenStream {
    subscription: Subscription,
    stage: Stage,
    keep_alive: Duration,
    _listening: Listening,
}

impl ListenStream {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        match self.stage {
            Stage::Acknowledging => {
                self.stage = Stage::Open;
                let acknowledgment = event(&self.subscription.acknowledgment());
                return Some((acknowledgment, self));
            }
            Stage::Ended => return None,
            Stage::Open => {}
        }
        let hints = match &self.subscription.hints {
            None => None,
            Some(registered) => {
                tokio::select! {
                    () = registered.listener.ready() => registered.listener.take(),
                    () = tokio::time::sleep(self.keep_alive) => return Some((COMMENT, self)),
                }
            }
        };
        let out: Bytes = match hints {
            Some(hints) => hints
                .iter()
                .flat_map(|hint| event(&self.subscription.hint(hint)))
                .collect(),
            None => {
                self.stage = Stage::Ended;
                event(&self.subscription.end())
            }
        };
        Some((out, self))
    }
}
