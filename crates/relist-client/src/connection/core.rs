//! What a connection's parts share, whatever its transport and era.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use relist_protocol::jsonrpc::RequestId;
use tokio_util::sync::CancellationToken;

use super::hints::{Board, HintEnd};
use super::notice::Notice;
use super::questions::Questions;
use crate::config::ClientConfig;
use crate::error::RequestError;

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Arc<ClientConfig>,
    /// Hints that came outside a stream of their own.
    pub(crate) stray: Arc<Board>,
    pub(crate) questions: Questions,
    closed: CancellationToken,
    reason: OnceLock<String>,
    next_id: AtomicI64,
}

impl Core {
    pub(crate) fn new(config: Arc<ClientConfig>) -> Arc<Self> {
        Arc::new(Self {
            config,
            stray: Arc::default(),
            questions: Questions::default(),
            closed: CancellationToken::new(),
            reason: OnceLock::new(),
            next_id: AtomicI64::new(1),
        })
    }

    /// An id that this connection has not used.
    pub(crate) fn next_id(&self) -> RequestId {
        RequestId::Number(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Closes the connection; the first reason counts.
    pub(crate) fn close(&self, reason: impl Into<String>) {
        let _ = self.reason.set(reason.into());
        self.stray.end(HintEnd::Closed {
            reason: self.reason(),
        });
        self.closed.cancel();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    pub(crate) fn reason(&self) -> String {
        self.reason
            .get()
            .cloned()
            .unwrap_or_else(|| "closed".to_owned())
    }

    pub(crate) fn closed_error(&self) -> RequestError {
        RequestError::Closed {
            reason: self.reason(),
        }
    }

    /// Takes a notification that belongs to no subscription.
    pub(crate) fn stray(&self, notice: Notice) {
        match notice {
            Notice::Changed { list, tag } => self.stray.changed(list, tag),
            Notice::Updated { uri } => self.stray.updated(uri),
            Notice::Log(params) => self.log(&params),
            other => tracing::debug!(?other, "a notification without a place was skipped"),
        }
    }

    /// Hands a log message on.
    pub(crate) fn log(&self, params: &serde_json::value::RawValue) {
        match &self.config.user_input {
            Some(handler) => handler.log(params),
            None => tracing::debug!(message = params.get(), "the server logs"),
        }
    }
}
