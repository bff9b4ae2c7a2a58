//! What feeds a hint stream: the task behind it, and what is left to do when
//! the stream is dropped.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use relist_protocol::Era;
use relist_protocol::jsonrpc::RequestId;
use relist_protocol::message::{ListenFilter, method};
use serde_json::Map;

use super::ask::{Answer, Link};
use super::hints::{Board, HintEnd, HintStream};
use super::outgoing::{Outgoing, RequestOptions};
use super::{Inner, listen};
use crate::error::RequestError;
use crate::transport::stdio::StdioLink;

/// Opens the stream of the connection's era and transport.
pub(super) fn open(inner: &Arc<Inner>, filter: ListenFilter) -> HintStream {
    let board = Arc::new(Board::default());
    let owned = Arc::clone(inner);
    let feed = Arc::clone(&board);
    let task = match (&inner.link, inner.version.era()) {
        (Link::Http(_), Era::Modern) => tokio::spawn(owned.subscribe_http(filter, feed)),
        (Link::Stdio(pipe), Era::Modern) => {
            let subscription = PipeSubscription {
                pipe: Arc::clone(pipe),
                id: inner.core.next_id(),
            };
            tokio::spawn(owned.subscribe_pipe(subscription, filter, feed))
        }
        (Link::Http(_), Era::Legacy) => tokio::spawn(owned.follow_http(filter, feed)),
        (Link::Stdio(pipe), Era::Legacy) => {
            // Before anything else, so that no hint falls in between.
            pipe.hint_to(&board);
            tokio::spawn(owned.follow_pipe(filter, feed))
        }
    };
    HintStream::new(board, Some(Box::new(AbortOnDrop(task.abort_handle()))))
}

impl Inner {
    fn listen_request(
        &self,
        id: RequestId,
        filter: &ListenFilter,
    ) -> Result<Outgoing, RequestError> {
        let mut params = Map::new();
        let filter = serde_json::to_value(filter).map_err(|e| RequestError::InvalidRequest {
            reason: e.to_string(),
        })?;
        params.insert("notifications".to_owned(), filter);
        Outgoing::write(
            &self.core.config,
            self.dialect(),
            id,
            method::LISTEN,
            params,
            &RequestOptions::default(),
        )
    }

    async fn subscribe_http(self: Arc<Self>, filter: ListenFilter, board: Arc<Board>) {
        let Link::Http(side) = &self.link else {
            return;
        };
        match self.listen_request(self.core.next_id(), &filter) {
            Ok(outgoing) => listen::subscribe(side.clone(), outgoing, filter, board).await,
            Err(error) => board.end(listen::end_of(error)),
        }
    }

    /// The subscription lives as long as this: whenever the task is dropped, the
    /// server is told.
    async fn subscribe_pipe(
        self: Arc<Self>,
        subscription: PipeSubscription,
        filter: ListenFilter,
        board: Arc<Board>,
    ) {
        let PipeSubscription { pipe, id } = &subscription;
        let opening = async {
            let outgoing = self.listen_request(id.clone(), &filter)?;
            pipe.listen(&outgoing, filter, Arc::clone(&board)).await
        };
        if let Err(error) = opening.await {
            return board.end(listen::end_of(error));
        }
        tokio::time::sleep(self.core.config.request_timeout).await;
        if !pipe.is_settled(id) {
            return board.end(HintEnd::NoAcknowledgment);
        }
        self.core.closed().await;
    }

    async fn follow_http(self: Arc<Self>, filter: ListenFilter, board: Arc<Board>) {
        let Link::Http(side) = &self.link else {
            return;
        };
        let granted = self.watch(filter).await;
        listen::follow(side.clone(), granted, board).await;
    }

    async fn follow_pipe(self: Arc<Self>, filter: ListenFilter, board: Arc<Board>) {
        let granted = self.watch(filter).await;
        board.opened(granted);
        self.core.closed().await;
        board.end(HintEnd::Closed {
            reason: self.core.reason(),
        });
    }

    /// Legacy: has exactly the filter's resources watched, as far as the server
    /// goes along; returns the filter with those that are.
    async fn watch(&self, mut filter: ListenFilter) -> ListenFilter {
        let wanted: BTreeSet<String> = filter.resource_subscriptions.drain(..).collect();
        let watched = self
            .watched
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for uri in watched.difference(&wanted) {
            if let Err(error) = self.resource(method::UNSUBSCRIBE, uri).await {
                tracing::debug!(uri, %error, "a resource is still watched");
            }
            self.watched
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(uri);
        }
        for uri in wanted {
            if !watched.contains(&uri) {
                if let Err(error) = self.resource(method::SUBSCRIBE, &uri).await {
                    tracing::warn!(uri, %error, "a resource cannot be watched");
                    continue;
                }
                self.watched
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(uri.clone());
            }
            filter.resource_subscriptions.push(uri);
        }
        filter
    }

    async fn resource(&self, method: &str, uri: &str) -> Result<Answer, RequestError> {
        let mut params = Map::new();
        params.insert("uri".to_owned(), uri.into());
        let options = RequestOptions::default();
        self.link
            .ask(&self.core, self.dialect(), method, params, &options)
            .await
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A modern subscription on a pipe: ended by a message, not by a closed stream.
struct PipeSubscription {
    pipe: Arc<StdioLink>,
    id: RequestId,
}

impl Drop for PipeSubscription {
    fn drop(&mut self) {
        self.pipe.unlisten(&self.id);
    }
}
