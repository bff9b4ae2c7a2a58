//! The stream of hints: opened when the keeper says so, read in a task of its
//! own, and reported event by event.

use std::sync::Arc;

use relist_catalog::EntityTag;
use relist_freshness::stream::StreamEnd;
use relist_freshness::time::{Epoch, Time};
use relist_protocol::message::ListenFilter;
use relist_protocol::{CatalogKind, Era};
use tokio_util::sync::CancellationToken;

use super::{Driver, Event};
use crate::connection::{Connection, HintEnd, HintEvent};

/// The stream that is open or being opened.
#[derive(Default)]
pub(super) struct Stream {
    number: u64,
    cancel: Option<CancellationToken>,
}

impl Stream {
    pub(super) fn close(&mut self) {
        if let Some(cancel) = self.cancel.take() {
            cancel.cancel();
        }
    }
}

/// What the task reports.
pub(crate) enum StreamEvent {
    Opened(ListenFilter),
    Changed(CatalogKind, Option<EntityTag>),
    Updated(String),
    UpdatedMany,
    Ended(HintEnd),
}

impl Driver {
    /// Whether the server can hint at all. A legacy server's stream may carry
    /// hints that it never declared, so it is always tried.
    pub(super) fn wants_stream(&self, connection: &Connection) -> bool {
        self.options.listen
            && (connection.era() == Era::Legacy || !self.filter(connection).is_empty())
    }

    fn filter(&self, connection: &Connection) -> ListenFilter {
        let capabilities = &connection.server().capabilities;
        let mut filter = ListenFilter::default();
        for catalog in &self.catalogs {
            if capabilities.hints(catalog.kind) {
                filter.set(catalog.kind, true);
            }
        }
        if capabilities.resource_subscriptions() {
            filter.resource_subscriptions = self.options.watched_resources.clone();
        }
        filter
    }

    pub(super) fn open_stream(&mut self) {
        let Some((epoch, connection)) = self.link.current() else {
            return;
        };
        self.stream.close();
        let cancel = self.closing.child_token();
        self.stream.number += 1;
        self.stream.cancel = Some(cancel.clone());
        let (number, filter) = (self.stream.number, self.filter(&connection));
        let report = self.report.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = read(&connection, filter, epoch, number, &report) => {}
                () = cancel.cancelled() => {}
            }
        });
    }

    pub(super) fn stream_event(
        &mut self,
        now: Time,
        epoch: Epoch,
        number: u64,
        event: StreamEvent,
    ) {
        if number != self.stream.number || self.stream.cancel.is_none() {
            return;
        }
        match event {
            StreamEvent::Opened(granted) => {
                self.keeper.opened(now);
                // A legacy stream grants nothing item by item: it carries all.
                let all = self
                    .link
                    .current()
                    .is_some_and(|(_, c)| c.era() == Era::Legacy);
                for catalog in &mut self.catalogs {
                    if all || granted.wants(catalog.kind) {
                        catalog.machine.stream_opened(now, epoch);
                    } else {
                        catalog.machine.stream_unavailable(now, epoch);
                    }
                }
            }
            StreamEvent::Ended(end) => self.stream_ended(now, epoch, &end),
            told => self.told(now, epoch, told),
        }
    }

    /// Something changed, wherever that was said.
    pub(super) fn told(&mut self, now: Time, epoch: Epoch, event: StreamEvent) {
        match event {
            StreamEvent::Changed(kind, tag) => {
                // A hint about resources may mean the templates too: the
                // specification has one notification for both.
                for catalog in &mut self.catalogs {
                    if catalog.kind.changed_notification() == kind.changed_notification() {
                        let tag = tag.as_ref().filter(|_| catalog.kind == kind);
                        catalog.machine.hint(now, epoch, tag);
                    }
                }
            }
            StreamEvent::Updated(uri) => {
                // Content is not the catalog; nobody listening is no error.
                let _ = self.options.resource_updates.send(uri);
            }
            StreamEvent::UpdatedMany => {
                for uri in &self.options.watched_resources {
                    let _ = self.options.resource_updates.send(uri.clone());
                }
            }
            // What begins and ends is a stream.
            StreamEvent::Opened(_) | StreamEvent::Ended(_) => {}
        }
    }

    fn stream_ended(&mut self, now: Time, epoch: Epoch, end: &HintEnd) {
        self.stream.close();
        let verdict = verdict(end);
        match verdict {
            StreamEnd::Unavailable => tracing::debug!(?end, "no stream of hints"),
            _ => tracing::warn!(?end, "the stream of hints ended: push lost"),
        }
        self.keeper.ended(now, verdict);
        for catalog in &mut self.catalogs {
            if verdict == StreamEnd::Unavailable {
                catalog.machine.stream_unavailable(now, epoch);
            } else {
                catalog.machine.stream_lost(now, epoch);
            }
        }
        if matches!(end, HintEnd::SessionGone) {
            self.lost_connection(now, epoch);
        }
    }
}

fn verdict(end: &HintEnd) -> StreamEnd {
    match end {
        HintEnd::Graceful => StreamEnd::Graceful,
        HintEnd::NoStream { .. }
        | HintEnd::Refused(_)
        | HintEnd::NothingGranted
        | HintEnd::Unauthorized { .. }
        | HintEnd::Forbidden { .. } => StreamEnd::Unavailable,
        HintEnd::NoAcknowledgment | HintEnd::NotAStream { .. } => StreamEnd::NotAcknowledged,
        _ => StreamEnd::Lost,
    }
}

fn tagged(tag: Option<String>) -> Option<EntityTag> {
    tag.and_then(|tag| EntityTag::new(tag).ok())
}

/// Reports hints that arrive outside the stream: on the answer to a request,
/// or on a pipe without a subscription. They are hints all the same.
pub(super) async fn read_strays(
    connection: &Connection,
    epoch: Epoch,
    report: &tokio::sync::mpsc::Sender<Event>,
) {
    let mut strays = connection.stray_hints();
    while let Some(event) = strays.next().await {
        let event = match event {
            HintEvent::Changed { kind, tag } => StreamEvent::Changed(kind, tagged(tag)),
            HintEvent::Updated { uri } => StreamEvent::Updated(uri),
            HintEvent::UpdatedMany => StreamEvent::UpdatedMany,
            _ => continue,
        };
        if report.send(Event::Stray(epoch, event)).await.is_err() {
            return;
        }
    }
}

async fn read(
    connection: &Arc<Connection>,
    filter: ListenFilter,
    epoch: Epoch,
    number: u64,
    report: &tokio::sync::mpsc::Sender<Event>,
) {
    let mut granted_filter = ListenFilter::default();
    let mut hints = connection.hints(filter);
    while let Some(event) = hints.next().await {
        let event = match event {
            HintEvent::Opened { granted } => {
                granted_filter = granted.clone();
                StreamEvent::Opened(granted)
            }
            // The server may not replay what was missed: as good as new.
            HintEvent::Resumed => StreamEvent::Opened(granted_filter.clone()),
            HintEvent::Changed { kind, tag } => StreamEvent::Changed(kind, tagged(tag)),
            HintEvent::Updated { uri } => StreamEvent::Updated(uri),
            HintEvent::UpdatedMany => StreamEvent::UpdatedMany,
            HintEvent::Alive => continue,
            HintEvent::Ended(end) => StreamEvent::Ended(end),
        };
        let over = matches!(event, StreamEvent::Ended(_));
        if report
            .send(Event::Stream(epoch, number, event))
            .await
            .is_err()
            || over
        {
            return;
        }
    }
}
