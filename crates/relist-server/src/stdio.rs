//! Messages on lines: both eras on one pipe.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use relist_protocol::RpcError;
use relist_protocol::jsonrpc::{Incoming, Malformed, Message, Notification, Request, RequestId};
use relist_protocol::message::{CancelledParams, method};
use relist_protocol::meta::RequestMeta;
use serde_json::Map;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::context::Outbound;
use crate::dispatch::{Inbound, Reply, batch_fault, error_message, modern_version};
use crate::hints::lock;
use crate::listen::{Subscription, legacy_hint};
use crate::options::StdioOptions;
use crate::peer::Peer;
use crate::server::Server;
use lines::{Line, Lines};

mod lines;

/// Messages that wait for the pipe.
const WAITING: usize = 256;

/// Listen requests open at one time.
const MAX_LISTENING: usize = 64;

/// How long the pipe may take for what is left to write at the end.
const FLUSH: Duration = Duration::from_secs(1);

impl Server {
    /// Serves one client on a pair of pipes, until the input ends. Nothing but
    /// messages is written.
    ///
    /// # Errors
    ///
    /// When reading or writing fails.
    pub async fn serve_stdio(
        &self,
        reader: impl AsyncRead + Unpin + Send,
        writer: impl AsyncWrite + Unpin + Send + 'static,
    ) -> io::Result<()> {
        self.serve_stdio_with(reader, writer, StdioOptions::default())
            .await
    }

    /// [`Self::serve_stdio`] with limits of one's own.
    ///
    /// # Errors
    ///
    /// When reading or writing fails.
    pub async fn serve_stdio_with(
        &self,
        reader: impl AsyncRead + Unpin + Send,
        writer: impl AsyncWrite + Unpin + Send + 'static,
        options: StdioOptions,
    ) -> io::Result<()> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let mut writing = tokio::spawn(write(writer, receiver));
        let grace = options.grace;
        let mut connection = Connection {
            server: self.clone(),
            sender,
            peer: None,
            hinting: false,
            running: Arc::default(),
            tasks: JoinSet::new(),
            streams: JoinSet::new(),
            max_in_flight: options.max_in_flight,
        };
        let mut lines = Lines::new(reader, options.line_limit);
        let ended = loop {
            let line = tokio::select! {
                line = lines.next() => line,
                // Nobody reads: nothing that arrives can be answered.
                written = &mut writing => {
                    return written.unwrap_or_else(|e| Err(io::Error::other(e)));
                }
            };
            match line {
                Ok(None) => break Ok(()),
                Ok(Some(line)) => connection.line(line).await,
                Err(error) => break Err(error),
            }
            while connection.tasks.try_join_next().is_some() {}
            while connection.streams.try_join_next().is_some() {}
        };
        connection.end(grace).await;
        let stop_writing = writing.abort_handle();
        match tokio::time::timeout(FLUSH, writing).await {
            Ok(Ok(written)) => ended.and(written),
            Ok(Err(error)) => Err(io::Error::other(error)),
            Err(_) => {
                stop_writing.abort();
                ended
            }
        }
    }
}

/// Writes each message on a line of its own.
async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut messages: mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    while let Some(message) = messages.recv().await {
        writer.write_all(&message).await?;
        writer.write_all(b"\n").await?;
        if messages.is_empty() {
            writer.flush().await?;
        }
    }
    writer.flush().await
}

type Running = Arc<Mutex<HashMap<RequestId, CancellationToken>>>;

struct Connection {
    server: Server,
    sender: mpsc::Sender<Bytes>,
    /// Who a legacy client is, once it has introduced itself.
    peer: Option<Arc<Peer>>,
    /// Whether the legacy client is told of changes yet.
    hinting: bool,
    running: Running,
    tasks: JoinSet<()>,
    streams: JoinSet<()>,
    max_in_flight: usize,
}

/// What begins to run with a request.
enum Begun {
    Now(Reply),
    Later(Box<Inbound>, CancellationToken),
}

impl Connection {
    async fn line(&mut self, line: Line) {
        let incoming = match line {
            Line::Text(bytes) if bytes.trim_ascii().is_empty() => return,
            Line::Text(bytes) => Incoming::parse(&bytes),
            Line::TooLong(limit) => Err(Malformed {
                id: None,
                error: RpcError::parse_error(format!(
                    "Parse error: the line is longer than {limit} bytes"
                )),
            }),
        };
        match incoming {
            Ok(Incoming::Single(message)) => self.message(message).await,
            Ok(Incoming::Batch(messages)) => self.batch(messages).await,
            Err(malformed) => self.refuse(&malformed).await,
        }
    }

    async fn send(&self, message: Bytes) {
        // Fails when the writer is gone, and then the loop ends.
        drop(self.sender.send(message).await);
    }

    async fn refuse(&self, malformed: &Malformed) {
        self.send(error_message(malformed.id.as_ref(), &malformed.error))
            .await;
    }

    async fn reply(&self, id: &RequestId, reply: &Reply) {
        if let Some(parts) = reply.message(id) {
            self.send(parts.concat().into()).await;
        }
    }

    async fn message(&mut self, message: Message) {
        match message {
            Message::Response(response) => {
                if let Some(peer) = &self.peer {
                    peer.answer(response);
                }
            }
            Message::Notification(notification) => self.notified(&notification),
            Message::Request(request) => {
                let id = request.id.clone();
                match self.begin(request) {
                    Begun::Now(reply) => self.reply(&id, &reply).await,
                    Begun::Later(inbound, token) if inbound.request.method == method::LISTEN => {
                        self.listen(&inbound, token).await;
                    }
                    Begun::Later(inbound, token) => self.run(inbound, token),
                }
            }
        }
    }

    fn notified(&mut self, notification: &Notification) {
        match notification.method.as_str() {
            method::CANCELLED => {
                let params = notification.params.as_deref();
                let params = params.map(|p| serde_json::from_str::<CancelledParams>(p.get()));
                if let Some(Ok(params)) = params
                    && let Some(token) = lock(&self.running).get(&params.request_id)
                {
                    token.cancel();
                }
            }
            method::INITIALIZED => self.hint(),
            other => tracing::trace!(method = other, "a notification"),
        }
    }

    /// The answer, or what is needed to find it.
    fn begin(&mut self, request: Request) -> Begun {
        let now = |fault: RpcError| Begun::Now(fault.into());
        let meta = match RequestMeta::read(request.params.as_deref()) {
            Ok(meta) => meta,
            Err(fault) => return now(fault),
        };
        let peer = if meta.is_modern() {
            None
        } else {
            self.peer.clone()
        };
        let version = match &peer {
            Some(peer) => peer.version,
            None if !meta.is_modern() && request.method == method::PING => {
                return Begun::Now(Reply::Result(Map::new()));
            }
            None if !meta.is_modern() && request.method == method::INITIALIZE => {
                return match self.server.initialize(&request) {
                    Ok((peer, result)) => {
                        self.peer = Some(Arc::new(peer));
                        Begun::Now(Reply::Result(result))
                    }
                    Err(fault) => now(fault),
                };
            }
            None => match modern_version(&meta) {
                Ok(version) => version,
                Err(fault) => return now(fault),
            },
        };
        if peer.is_some() && request.method == method::INITIALIZE {
            return now(RpcError::invalid_request(
                "Invalid Request: the connection has been initialized",
            ));
        }
        let inbound = Inbound {
            request,
            meta,
            version,
            peer,
        };
        let listens = inbound.modern() && inbound.request.method == method::LISTEN;
        if !listens && let Some(reply) = self.server.answer_now(&inbound) {
            return Begun::Now(reply);
        }
        let in_flight = self.tasks.len();
        if !listens && in_flight >= self.max_in_flight {
            return now(RpcError::internal(format!(
                "too many requests in flight; at most {} are",
                self.max_in_flight
            )));
        }
        let mut running = lock(&self.running);
        if running.contains_key(&inbound.request.id) {
            return now(RpcError::invalid_request(
                "Invalid Request: a request with this id is running",
            ));
        }
        let token = CancellationToken::new();
        running.insert(inbound.request.id.clone(), token.clone());
        drop(running);
        Begun::Later(Box::new(inbound), token)
    }

    /// What answers a request, as a future that also forgets it.
    fn answering(
        &self,
        inbound: Box<Inbound>,
        token: CancellationToken,
    ) -> impl Future<Output = Option<Bytes>> + Send + 'static {
        let (server, sender) = (self.server.clone(), self.sender.clone());
        let running = self.running.clone();
        let span = tracing::debug_span!(
            "request",
            method = inbound.request.method,
            id = %inbound.request.id,
            version = %inbound.version,
        );
        async move {
            let id = &inbound.request.id;
            let outbound = Outbound::Channel(sender);
            let reply = server.answer_later(&inbound, outbound, token).await;
            lock(&running).remove(id);
            reply.message(id).map(|parts| parts.concat().into())
        }
        .instrument(span)
    }

    fn run(&mut self, inbound: Box<Inbound>, token: CancellationToken) {
        self.hint();
        let answering = self.answering(inbound, token);
        let sender = self.sender.clone();
        self.tasks.spawn(async move {
            if let Some(message) = answering.await {
                drop(sender.send(message).await);
            }
        });
    }

    async fn batch(&mut self, messages: Vec<Result<Message, Malformed>>) {
        let version = self.peer.as_ref().map(|p| p.version);
        if let Some(error) = batch_fault(version, messages.len()) {
            return self.refuse(&Malformed { id: None, error }).await;
        }
        let mut answers: Vec<Bytes> = Vec::new();
        let mut later = Vec::new();
        for message in messages {
            match message {
                Err(malformed) => {
                    answers.push(error_message(malformed.id.as_ref(), &malformed.error));
                }
                Ok(Message::Request(request)) => {
                    let id = request.id.clone();
                    match self.begin(request) {
                        Begun::Now(reply) => {
                            answers.extend(reply.message(&id).map(|p| Bytes::from(p.concat())));
                        }
                        Begun::Later(inbound, token) => {
                            later.push(self.answering(inbound, token));
                        }
                    }
                }
                Ok(message) => Box::pin(self.message(message)).await,
            }
        }
        let sender = self.sender.clone();
        self.tasks.spawn(async move {
            answers.extend(futures::future::join_all(later).await.into_iter().flatten());
            if !answers.is_empty() {
                let array = [b"[", answers.join(&b',').as_slice(), b"]"].concat();
                drop(sender.send(array.into()).await);
            }
        });
    }

    /// From here on the legacy client is told of changes.
    fn hint(&mut self) {
        let Some(peer) = self.peer.clone().filter(|_| !self.hinting) else {
            return;
        };
        self.hinting = true;
        let sender = self.sender.clone();
        self.streams.spawn(async move {
            loop {
                peer.hints.listener.ready().await;
                // Room first: what changes meanwhile is the same hint.
                let Ok(room) = sender.reserve().await else {
                    return;
                };
                let Some(hints) = peer.hints.listener.take() else {
                    return;
                };
                let messages: Vec<Bytes> = hints.iter().map(legacy_hint).collect();
                if !messages.is_empty() {
                    room.send(messages.join(&b'\n').into());
                }
            }
        });
    }

    async fn listen(&mut self, inbound: &Inbound, token: CancellationToken) {
        let id = &inbound.request.id;
        let open = self.streams.len();
        let taken = if open >= MAX_LISTENING {
            Err(RpcError::internal("too many listen requests"))
        } else {
            self.server.subscribe(inbound)
        };
        let subscription = match taken {
            Ok(subscription) => subscription,
            Err(fault) => {
                lock(&self.running).remove(id);
                return self.reply(id, &fault.into()).await;
            }
        };
        self.send(subscription.acknowledgment()).await;
        let (sender, running, id) = (self.sender.clone(), self.running.clone(), id.clone());
        self.streams.spawn(async move {
            tokio::select! {
                // Given up: no further message.
                () = token.cancelled() => {}
                () = hints(&subscription, &sender) => {}
            }
            lock(&running).remove(&id);
        });
    }

    /// The input ended: what runs may finish, within reason.
    async fn end(mut self, grace: Duration) {
        self.streams.abort_all();
        let finish = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, finish).await.is_err() {
            for token in lock(&self.running).values() {
                token.cancel();
            }
            self.tasks.abort_all();
        }
    }
}

/// Tells a subscription, to its end.
async fn hints(subscription: &Subscription, sender: &mpsc::Sender<Bytes>) {
    let mut open = true;
    while open {
        if let Some(registered) = &subscription.hints {
            registered.listener.ready().await;
        }
        let Ok(room) = sender.reserve().await else {
            return;
        };
        let hints = subscription.hints.as_ref().and_then(|r| r.listener.take());
        open = hints.is_some();
        let messages: Vec<Bytes> = match hints {
            Some(hints) => hints.iter().map(|h| subscription.hint(h)).collect(),
            None => vec![subscription.end()],
        };
        if !messages.is_empty() {
            room.send(messages.join(&b'\n').into());
        }
    }
}
