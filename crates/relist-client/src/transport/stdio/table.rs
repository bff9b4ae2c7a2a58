//! Who waits for what on a pipe, and handing out what comes.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use relist_protocol::jsonrpc::{Incoming, Message, Notification, Request, RequestId, Response};
use relist_protocol::message::{CancelledParams, method, to_raw};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::PipeAnswer;
use crate::connection::core::Core;
use crate::connection::hints::{Board, HintEnd};
use crate::connection::input;
use crate::connection::notice::{Notice, Notified, Progress};
use crate::connection::patience::Patience;
use crate::connection::subscription::Subscription;
use crate::error::{RequestError, excerpt};
use crate::transport::line::Skipped;

/// Lines that wait to be written. A program that does not read makes writers
/// wait, up to their timeouts.
const OUTBOX: usize = 32;

/// How many lines of the error output a dying program's error quotes.
const LAST_WORDS: usize = 3;

pub(super) struct Waiting {
    pub(super) done: oneshot::Sender<Result<PipeAnswer, RequestError>>,
    pub(super) progress: Option<mpsc::Sender<Progress>>,
    pub(super) patience: Arc<Patience>,
}

/// Who waits for what.
#[derive(Default)]
pub(super) struct Table {
    pub(super) requests: HashMap<RequestId, Waiting>,
    pub(super) listens: HashMap<RequestId, Subscription>,
    /// Legacy: where hints go.
    pub(super) hints: Option<Weak<Board>>,
}

/// What the tasks of one pipe share.
pub(super) struct Shared {
    pub(super) core: Arc<Core>,
    outbox: mpsc::Sender<Bytes>,
    table: Mutex<Table>,
    /// Set to end the program: its input is closed first, then force is used.
    pub(super) stop: CancellationToken,
    last_words: Mutex<VecDeque<String>>,
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) modern: AtomicBool,
}

/// One message as a line.
pub(super) fn line<T: serde::Serialize>(message: &T) -> Result<Bytes, RequestError> {
    let bytes = serde_json::to_vec(message).map_err(|e| RequestError::InvalidRequest {
        reason: e.to_string(),
    })?;
    Ok(Bytes::from(bytes))
}

fn cancelled(id: &RequestId, reason: &str) -> Result<Bytes, RequestError> {
    let params = to_raw(&CancelledParams {
        request_id: id.clone(),
        reason: Some(reason.to_owned()),
    })
    .map_err(|e| RequestError::InvalidRequest {
        reason: e.to_string(),
    })?;
    line(&Notification {
        method: method::CANCELLED.to_owned(),
        params: Some(params),
    })
}

impl Shared {
    pub(super) fn new(core: Arc<Core>) -> (Arc<Self>, mpsc::Receiver<Bytes>) {
        let (outbox, receiver) = mpsc::channel(OUTBOX);
        let shared = Arc::new(Self {
            core,
            outbox,
            table: Mutex::default(),
            stop: CancellationToken::new(),
            last_words: Mutex::default(),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            modern: AtomicBool::new(false),
        });
        (shared, receiver)
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn send(&self, bytes: Bytes) -> Result<(), RequestError> {
        let length = bytes.len() as u64 + 1;
        self.outbox
            .send(bytes)
            .await
            .map_err(|_| self.core.closed_error())?;
        self.sent.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    /// Does not wait: where the pipe is full, a task waits in its stead.
    pub(super) fn cancel(&self, id: &RequestId, reason: &str) {
        let Ok(bytes) = cancelled(id, reason) else {
            return;
        };
        if let Err(mpsc::error::TrySendError::Full(bytes)) = self.outbox.try_send(bytes)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let outbox = self.outbox.clone();
            runtime.spawn(async move { outbox.send(bytes).await });
        }
    }

    /// Everything that waits fails; nothing new begins.
    pub(super) fn fail(&self, reason: String) {
        self.core.close(reason);
        let (requests, listens, hints) = {
            let mut table = self.table();
            (
                std::mem::take(&mut table.requests),
                std::mem::take(&mut table.listens),
                table.hints.take(),
            )
        };
        for waiting in requests.into_values() {
            let _ = waiting.done.send(Err(self.core.closed_error()));
        }
        let end = || HintEnd::Closed {
            reason: self.core.reason(),
        };
        for listen in listens.into_values() {
            listen.end(end());
        }
        if let Some(board) = hints.and_then(|board| board.upgrade()) {
            board.end(end());
        }
    }

    pub(super) fn take(self: &Arc<Self>, bytes: &[u8]) {
        match Incoming::parse(bytes) {
            Ok(Incoming::Single(message)) => self.dispatch(message, bytes.len() as u64 + 1),
            Ok(Incoming::Batch(messages)) => {
                for message in messages {
                    match message {
                        Ok(message) => self.dispatch(message, 0),
                        Err(malformed) => self.malformed(malformed.id, &malformed.error.message),
                    }
                }
            }
            Err(malformed) => {
                self.malformed(malformed.id, &malformed.error.message);
                tracing::warn!(
                    line = excerpt(bytes),
                    error = malformed.error.message,
                    "a line that is no message was skipped"
                );
            }
        }
    }

    /// The request that a malformed answer belongs to fails, if it is known.
    fn malformed(&self, id: Option<RequestId>, reason: &str) {
        let Some(waiting) = id.and_then(|id| self.table().requests.remove(&id)) else {
            return;
        };
        let _ = waiting.done.send(Err(RequestError::Malformed {
            reason: reason.to_owned(),
        }));
    }

    fn dispatch(self: &Arc<Self>, message: Message, bytes: u64) {
        match message {
            Message::Response(response) => self.response(response, bytes),
            Message::Notification(notification) => {
                if let Some(notified) = Notified::read(notification) {
                    self.notice(notified);
                }
            }
            Message::Request(request) => self.question(request),
        }
    }

    fn response(&self, response: Response, bytes: u64) {
        let Some(id) = response.id else {
            // Which request it is about is not known; the only one, if there is one.
            if let Err(error) = response.outcome {
                tracing::warn!(%error, "the server reports an error without an id");
                if let Some(waiting) = self.only_request() {
                    let _ = waiting.done.send(Err(RequestError::Rpc(error)));
                }
            }
            return;
        };
        let (waiting, listen) = {
            let mut table = self.table();
            (table.requests.remove(&id), table.listens.remove(&id))
        };
        if let Some(waiting) = waiting {
            let outcome = response
                .outcome
                .map(|result| PipeAnswer { result, bytes })
                .map_err(RequestError::Rpc);
            let _ = waiting.done.send(outcome);
        } else if let Some(listen) = listen {
            listen.end(listen.answered(response.outcome));
        } else {
            self.foreign(id);
        }
    }

    /// An answer that matches nothing. Where it is our number as a string, the
    /// request behind it fails rather than waits in vain; it gets no answer
    /// that was not clearly its own.
    fn foreign(&self, found: RequestId) {
        let ours = match &found {
            RequestId::Text(text) => text.parse().ok().map(RequestId::Number),
            RequestId::Number(_) => None,
        };
        let waiting = ours.and_then(|ours| {
            let waiting = self.table().requests.remove(&ours)?;
            Some((ours, waiting))
        });
        match waiting {
            Some((expected, waiting)) => {
                let _ = waiting
                    .done
                    .send(Err(RequestError::ForeignId { expected, found }));
            }
            None => tracing::debug!(id = %found, "an answer that nobody waits for was skipped"),
        }
    }

    /// The one request in flight, if there is exactly one.
    fn only_request(&self) -> Option<Waiting> {
        let mut table = self.table();
        if table.requests.len() != 1 {
            return None;
        }
        let id = table.requests.keys().next()?.clone();
        table.requests.remove(&id)
    }

    fn notice(&self, notified: Notified) {
        let Notified {
            notice,
            subscription,
        } = notified;
        match notice {
            Notice::Progress { token, progress } => {
                let table = self.table();
                if let Some(waiting) = table.requests.get(&token) {
                    waiting.patience.touch();
                    if let Some(sender) = &waiting.progress {
                        let _ = sender.try_send(progress);
                    }
                }
            }
            Notice::Cancelled { request } => {
                let ended = self.table().listens.remove(&request);
                match ended {
                    Some(listen) => listen.end(listen.cancelled()),
                    None => tracing::debug!(id = %request, "a cancellation was skipped"),
                }
            }
            Notice::Log(params) => self.core.log(&params),
            notice => match subscription {
                Some(id) => self.subscribed(id, notice),
                None if self.modern.load(Ordering::Relaxed) => self.core.stray(notice),
                None => self.hint(notice),
            },
        }
    }

    fn subscribed(&self, id: RequestId, notice: Notice) {
        let mut table = self.table();
        let Some(listen) = table.listens.get_mut(&id) else {
            tracing::warn!(%id, "a notification of a foreign subscription was dropped");
            return;
        };
        let notified = Notified {
            notice,
            subscription: Some(id.clone()),
        };
        let Some(end) = listen.deliver(notified) else {
            return;
        };
        listen.end(end);
        table.listens.remove(&id);
        drop(table);
        self.cancel(&id, "nothing was granted");
    }

    /// Legacy: a hint that belongs to nobody in particular.
    fn hint(&self, notice: Notice) {
        let board = self.table().hints.as_ref().and_then(Weak::upgrade);
        match (board, notice) {
            (Some(board), Notice::Changed { list, tag }) => board.changed(list, tag),
            (Some(board), Notice::Updated { uri }) => board.updated(uri),
            (_, notice) => self.core.stray(notice),
        }
    }

    fn question(self: &Arc<Self>, request: Request) {
        let Request { id, method, params } = request;
        if self.modern.load(Ordering::Relaxed) {
            tracing::warn!(%method, "a request of a modern server was skipped: it may not ask");
            return;
        }
        let Some(turn) = self.core.questions.turn(&method) else {
            return;
        };
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let work = async {
                let outcome = input::answer(&shared.core.config, &method, params.as_deref()).await;
                let response = input::response(id, outcome);
                if let Ok(bytes) = line(&response) {
                    let _ = shared.send(bytes).await;
                }
            };
            tokio::select! {
                () = work => {}
                () = shared.core.closed() => {}
            }
            drop(turn);
        });
    }

    /// A line that was too long to be read: the request whose answer it was
    /// fails, where that can be told.
    pub(super) fn too_long(&self, skipped: &Skipped, limit: usize) {
        tracing::warn!(
            bytes = skipped.length,
            limit,
            "a line that is too long was skipped"
        );
        let named = skipped
            .id()
            .and_then(|id| self.table().requests.remove(&id));
        if let Some(waiting) = named.or_else(|| self.only_request()) {
            let _ = waiting.done.send(Err(RequestError::TooLarge { limit }));
        }
    }

    pub(super) fn note(&self, words: &str) {
        let mut last = self
            .last_words
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if last.len() == LAST_WORDS {
            last.pop_front();
        }
        last.push_back(excerpt(words.as_bytes()));
    }

    pub(super) fn last_words(&self) -> String {
        let last = self
            .last_words
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if last.is_empty() {
            return String::new();
        }
        let lines: Vec<&str> = last.iter().map(String::as_str).collect();
        format!("; its last words: {}", lines.join(" | "))
    }
}
