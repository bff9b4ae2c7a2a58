//! The reading end of a modern subscription, whatever its transport.

use std::sync::Arc;

use relist_protocol::RpcError;
use relist_protocol::jsonrpc::RequestId;
use relist_protocol::message::ListenFilter;

use super::hints::{Board, HintEnd};
use super::notice::{Notice, Notified};

/// What was asked for, and whether it was acknowledged: before that nothing is
/// delivered. A hint about a list counts whether it was asked for or not, and
/// with the subscription's id or without one: believing it costs one look, and
/// dropping it may cost a change.
#[derive(Debug)]
pub(crate) struct Subscription {
    id: RequestId,
    wanted: ListenFilter,
    board: Arc<Board>,
    acknowledged: bool,
}

impl Subscription {
    pub(crate) fn new(id: RequestId, wanted: ListenFilter, board: Arc<Board>) -> Self {
        Self {
            id,
            wanted,
            board,
            acknowledged: false,
        }
    }

    pub(crate) fn is_acknowledged(&self) -> bool {
        self.acknowledged
    }

    pub(crate) fn end(&self, end: HintEnd) {
        self.board.end(end);
    }

    /// How a response to the listen request ends the subscription.
    pub(crate) fn answered<T>(&self, outcome: Result<T, RpcError>) -> HintEnd {
        match outcome {
            Ok(_) => self.cancelled(),
            Err(error) => HintEnd::Refused(error),
        }
    }

    /// How the server's cancellation ends the subscription.
    pub(crate) fn cancelled(&self) -> HintEnd {
        if self.acknowledged {
            HintEnd::Graceful
        } else {
            HintEnd::NoAcknowledgment
        }
    }

    /// Takes a notification; gives the end, if that is what it means.
    pub(crate) fn deliver(&mut self, notified: Notified) -> Option<HintEnd> {
        let Notified {
            notice,
            subscription,
        } = notified;
        if let Notice::Cancelled { request } = &notice {
            return (*request == self.id).then(|| self.cancelled());
        }
        let is_hint = matches!(notice, Notice::Changed { .. });
        if subscription.as_ref() != Some(&self.id) && !(is_hint && subscription.is_none()) {
            tracing::warn!(expected = %self.id, found = ?subscription,
                "a notification of a foreign subscription was dropped");
            return None;
        }
        match notice {
            Notice::Acknowledged { granted } => {
                if !self.acknowledged {
                    self.acknowledged = true;
                    let empty = granted.is_empty();
                    self.board.opened(granted);
                    // Nothing will ever come: the subscription need not be kept.
                    return empty.then_some(HintEnd::NothingGranted);
                }
            }
            _ if !self.acknowledged => {
                tracing::warn!("a notification before the acknowledgment was dropped");
            }
            Notice::Changed { list, tag } => self.board.changed(list, tag),
            Notice::Updated { uri } if !self.wanted.resource_subscriptions.is_empty() => {
                self.board.updated(uri);
            }
            other => tracing::warn!(?other, "a notification outside the filter was dropped"),
        }
        None
    }
}
