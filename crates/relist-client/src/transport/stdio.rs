//! A program that speaks over its standard streams: one message a line.
//!
//! One task writes, one reads, one reads the error output, and one looks after
//! the process. The reading task never waits for anybody: answers go to
//! one-shot channels, hints to boards, questions to tasks of their own.

mod process;
mod table;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use relist_protocol::jsonrpc::{Notification, RequestId};
use relist_protocol::message::ListenFilter;
use serde_json::value::RawValue;
use tokio::sync::{oneshot, watch};

use crate::config::Command;
use crate::connection::core::Core;
use crate::connection::hints::{Board, HintEnd};
use crate::connection::outgoing::Outgoing;
use crate::connection::patience::Patience;
use crate::connection::subscription::Subscription;
use crate::error::{ConnectError, RequestError};
use table::{Shared, Waiting, line};

/// An answer that came over the pipe.
#[derive(Debug)]
pub(crate) struct PipeAnswer {
    pub(crate) result: Box<RawValue>,
    pub(crate) bytes: u64,
}

/// A program and its pipes.
pub(crate) struct StdioLink {
    shared: Arc<Shared>,
    ended: watch::Receiver<bool>,
}

impl StdioLink {
    /// Starts the program.
    pub(crate) fn spawn(command: &Command, core: Arc<Core>) -> Result<Self, ConnectError> {
        let (shared, ended) = process::spawn(command, core)?;
        Ok(Self { shared, ended })
    }

    /// Says that no questions are to be answered: in the modern era there are none.
    pub(crate) fn set_modern(&self) {
        self.shared.modern.store(true, Ordering::Relaxed);
    }

    /// Sends a request and waits for its answer. Dropping the future forgets
    /// the request; whoever drops it says `notifications/cancelled`.
    pub(crate) async fn request(
        &self,
        outgoing: &Outgoing,
        patience: Arc<Patience>,
    ) -> Result<PipeAnswer, RequestError> {
        let (done, answer) = oneshot::channel();
        let waiting = Waiting {
            done,
            progress: outgoing.progress.clone(),
            patience,
        };
        self.shared
            .table()
            .requests
            .insert(outgoing.id.clone(), waiting);
        let _entry = Entry {
            shared: &self.shared,
            id: &outgoing.id,
        };
        // Looked at after the entry was made, so that either this sees the end
        // or the end sees the entry.
        if self.shared.core.is_closed() {
            return Err(self.shared.core.closed_error());
        }
        self.shared.send(outgoing.body.clone()).await?;
        answer
            .await
            .unwrap_or_else(|_| Err(self.shared.core.closed_error()))
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, notification: &Notification) -> Result<(), RequestError> {
        self.shared.send(line(notification)?).await
    }

    /// Opens a modern subscription under the request's id.
    pub(crate) async fn listen(
        &self,
        outgoing: &Outgoing,
        wanted: ListenFilter,
        board: Arc<Board>,
    ) -> Result<(), RequestError> {
        let listen = Subscription::new(outgoing.id.clone(), wanted, board);
        self.shared
            .table()
            .listens
            .insert(outgoing.id.clone(), listen);
        if self.shared.core.is_closed() {
            return Err(self.shared.core.closed_error());
        }
        self.shared.send(outgoing.body.clone()).await
    }

    /// Ends a modern subscription, unless the server did.
    pub(crate) fn unlisten(&self, id: &RequestId) {
        if self.shared.table().listens.remove(id).is_some() {
            self.cancel(id, "no longer needed");
        }
    }

    /// Whether the subscription has been acknowledged, or is already over.
    pub(crate) fn is_settled(&self, id: &RequestId) -> bool {
        self.shared
            .table()
            .listens
            .get(id)
            .is_none_or(Subscription::is_acknowledged)
    }

    /// Legacy: sends hints to this board from now on.
    pub(crate) fn hint_to(&self, board: &Arc<Board>) {
        let before = self.shared.table().hints.replace(Arc::downgrade(board));
        if let Some(before) = before.and_then(|board| board.upgrade()) {
            before.end(HintEnd::Closed {
                reason: "another hint stream was opened".to_owned(),
            });
        }
    }

    /// Says `notifications/cancelled`.
    pub(crate) fn cancel(&self, id: &RequestId, reason: &str) {
        self.shared.cancel(id, reason);
    }

    /// Bytes sent and received so far.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        (
            self.shared.sent.load(Ordering::Relaxed),
            self.shared.received.load(Ordering::Relaxed),
        )
    }

    /// Closes the program's input, and ends it by force if it does not end by
    /// itself. Returns when it has ended.
    pub(crate) async fn close(&self) {
        self.shared.stop.cancel();
        let mut ended = self.ended.clone();
        let _ = ended.wait_for(|over| *over).await;
    }
}

impl Drop for StdioLink {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

/// Takes a request out of the table when nobody waits for it any more.
struct Entry<'a> {
    shared: &'a Shared,
    id: &'a RequestId,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.shared.table().requests.remove(self.id);
    }
}
