//! What a server tells without being asked, kept level-triggered: however many
//! hints arrive unread, one bit per list is pending.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use relist_protocol::message::ListenFilter;
use relist_protocol::{CatalogKind, RpcError};
use tokio::sync::Notify;

/// A list that a notification speaks of. Resources and resource templates
/// share one notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HintedList {
    Tools,
    Resources,
    Prompts,
}

impl HintedList {
    const ALL: [Self; 3] = [Self::Tools, Self::Resources, Self::Prompts];

    /// The catalog that stands for the list: resources for templates too.
    pub(crate) const fn kind(self) -> CatalogKind {
        match self {
            Self::Tools => CatalogKind::Tools,
            Self::Resources => CatalogKind::Resources,
            Self::Prompts => CatalogKind::Prompts,
        }
    }

    /// The list whose notification is called `method`.
    pub(crate) fn from_notification(method: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|list| list.kind().changed_notification() == method)
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// One thing that a hint stream says.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum HintEvent {
    /// The stream is open. What changed before is not known from it: compare.
    Opened {
        /// What will be told: in the modern era what the server acknowledged,
        /// in the legacy era what was asked for. All `false`: nothing will.
        granted: ListenFilter,
    },
    /// Legacy: the stream broke and was resumed where it broke off. Whether
    /// what happened meanwhile is replayed is up to the server: compare.
    Resumed,
    /// A list may have changed, once or more.
    Changed {
        /// The catalog. [`CatalogKind::Resources`] stands for resources and
        /// resource templates: they share one notification.
        kind: CatalogKind,
        /// The version that the newest of the hints announced, if it did.
        tag: Option<String>,
    },
    /// A resource's content changed.
    Updated {
        /// The resource.
        uri: String,
    },
    /// More resources changed than were remembered: take every watched one as
    /// changed.
    UpdatedMany,
    /// Bytes arrived: a keep-alive, or anything else. The stream lives.
    Alive,
    /// The stream is over; nothing follows.
    Ended(HintEnd),
}

/// How a hint stream ended.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum HintEnd {
    /// The server said goodbye: a result, or its cancellation.
    Graceful,
    /// The server acknowledged and granted nothing. The stream was not kept,
    /// and there is no point in opening it again.
    NothingGranted,
    /// The stream broke, or ended without a word.
    Lost {
        /// Where.
        reason: String,
        /// How long the server asked to wait.
        retry_after: Option<Duration>,
    },
    /// The server offers no such stream. Requests are not affected.
    NoStream {
        /// What it answered.
        reason: String,
    },
    /// The server answered with success, and with something that is no event
    /// stream: a page of a proxy, for example, which may go away again.
    NotAStream {
        /// What it answered.
        reason: String,
    },
    /// The server refused the subscription, or ended it, with an error.
    Refused(RpcError),
    /// A stream, or a result, without the acknowledgment that opens it.
    NoAcknowledgment,
    /// The keep-alives stopped.
    Silent {
        /// How long nothing arrived.
        waited: Duration,
    },
    /// The credentials were refused.
    Unauthorized {
        /// The challenge, where there is one.
        www_authenticate: Option<String>,
    },
    /// The credentials do not allow this.
    Forbidden {
        /// The first bytes of the body, escaped.
        excerpt: String,
    },
    /// Legacy: the session is gone. Open a new connection.
    SessionGone,
    /// The connection was closed.
    Closed {
        /// What closed it.
        reason: String,
    },
}

/// The most resources whose change is remembered one by one.
const MAX_UPDATED: usize = 1024;

/// The most bytes of resource URIs that are remembered.
const MAX_UPDATED_BYTES: usize = 256 << 10;

/// A pending change, with the newest version announced.
#[derive(Debug)]
struct Announced(Option<String>);

enum Taken {
    Event(HintEvent),
    Nothing,
    Over,
}

#[derive(Debug, Default)]
struct Pending {
    opened: Option<ListenFilter>,
    resumed: bool,
    changed: [Option<Announced>; 3],
    updated: BTreeSet<String>,
    updated_bytes: usize,
    updated_many: bool,
    alive: bool,
    end: Option<HintEnd>,
    ended: bool,
}

/// Where the writing side of a stream leaves what happened. Never blocks, and
/// holds a constant amount however much happens unread.
#[derive(Debug, Default)]
pub(crate) struct Board {
    pending: Mutex<Pending>,
    news: Notify,
}

impl Board {
    fn update(&self, change: impl FnOnce(&mut Pending)) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing is delivered after the terminal frame.
        if pending.end.is_none() && !pending.ended {
            change(&mut pending);
            drop(pending);
            self.news.notify_one();
        }
    }

    pub(crate) fn opened(&self, granted: ListenFilter) {
        self.update(|p| p.opened = Some(granted));
    }

    pub(crate) fn resumed(&self) {
        self.update(|p| p.resumed = true);
    }

    pub(crate) fn changed(&self, list: HintedList, tag: Option<String>) {
        self.update(|p| p.changed[list.index()] = Some(Announced(tag)));
    }

    pub(crate) fn updated(&self, uri: String) {
        self.update(|p| {
            if p.updated_many || p.updated.contains(&uri) {
                return;
            }
            if p.updated.len() >= MAX_UPDATED || p.updated_bytes + uri.len() > MAX_UPDATED_BYTES {
                p.updated.clear();
                p.updated_bytes = 0;
                p.updated_many = true;
            } else {
                p.updated_bytes += uri.len();
                p.updated.insert(uri);
            }
        });
    }

    pub(crate) fn alive(&self) {
        self.update(|p| p.alive = true);
    }

    /// The first end counts; what comes later is dropped.
    pub(crate) fn end(&self, end: HintEnd) {
        self.update(|p| p.end = Some(end));
    }

    fn take(&self) -> Taken {
        let mut p = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if p.ended {
            return Taken::Over;
        }
        if let Some(granted) = p.opened.take() {
            return Taken::Event(HintEvent::Opened { granted });
        }
        if std::mem::take(&mut p.resumed) {
            return Taken::Event(HintEvent::Resumed);
        }
        for list in HintedList::ALL {
            if let Some(Announced(tag)) = p.changed[list.index()].take() {
                let kind = list.kind();
                return Taken::Event(HintEvent::Changed { kind, tag });
            }
        }
        if std::mem::take(&mut p.updated_many) {
            return Taken::Event(HintEvent::UpdatedMany);
        }
        if let Some(uri) = p.updated.pop_first() {
            p.updated_bytes = p.updated_bytes.saturating_sub(uri.len());
            return Taken::Event(HintEvent::Updated { uri });
        }
        if let Some(end) = p.end.take() {
            p.ended = true;
            return Taken::Event(HintEvent::Ended(end));
        }
        if std::mem::take(&mut p.alive) {
            return Taken::Event(HintEvent::Alive);
        }
        Taken::Nothing
    }
}

/// A stream of hints. Dropping it ends the subscription.
///
/// What arrives while nobody reads is coalesced: at most one pending change per
/// list, each watched resource once.
#[must_use = "a hint stream that is dropped ends the subscription"]
pub struct HintStream {
    board: Arc<Board>,
    wait: Pin<Box<dyn Future<Output = ()> + Send>>,
    // Whatever feeds the board ends with the stream.
    _feed: Option<Box<dyn Send + Sync>>,
}

impl HintStream {
    pub(crate) fn new(board: Arc<Board>, feed: Option<Box<dyn Send + Sync>>) -> Self {
        let wait = wait_for(Arc::clone(&board));
        Self {
            board,
            wait,
            _feed: feed,
        }
    }

    /// The next event; `None` once [`HintEvent::Ended`] was given out.
    ///
    /// Cancel-safe: an event is lost only if it was returned.
    pub async fn next(&mut self) -> Option<HintEvent> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<HintEvent>> {
        loop {
            match self.board.take() {
                Taken::Event(event) => return Poll::Ready(Some(event)),
                Taken::Over => return Poll::Ready(None),
                Taken::Nothing => {}
            }
            match self.wait.as_mut().poll(cx) {
                Poll::Ready(()) => self.wait = wait_for(Arc::clone(&self.board)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

fn wait_for(board: Arc<Board>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move { board.news.notified().await })
}

impl Stream for HintStream {
    type Item = HintEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<HintEvent>> {
        self.poll(cx)
    }
}

impl std::fmt::Debug for HintStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HintStream")
            .field("board", &self.board)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(board: &Arc<Board>) -> HintStream {
        HintStream::new(Arc::clone(board), None)
    }

    #[tokio::test]
    async fn a_hundred_thousand_unread_hints_are_one_per_list() {
        let board = Arc::new(Board::default());
        let mut hints = stream(&board);
        for n in 0..100_000 {
            board.changed(HintedList::Tools, Some(format!("tag-{n}")));
            board.changed(HintedList::Prompts, None);
        }
        assert_eq!(
            hints.next().await,
            Some(HintEvent::Changed {
                kind: CatalogKind::Tools,
                tag: Some("tag-99999".into())
            })
        );
        assert_eq!(
            hints.next().await,
            Some(HintEvent::Changed {
                kind: CatalogKind::Prompts,
                tag: None
            })
        );
        board.end(HintEnd::Graceful);
        assert_eq!(
            hints.next().await,
            Some(HintEvent::Ended(HintEnd::Graceful))
        );
        assert_eq!(hints.next().await, None);
    }

    #[tokio::test]
    async fn nothing_is_delivered_after_the_terminal_frame() {
        let board = Arc::new(Board::default());
        let mut hints = stream(&board);
        board.end(HintEnd::Graceful);
        board.changed(HintedList::Tools, None);
        board.end(HintEnd::NoAcknowledgment);
        assert_eq!(
            hints.next().await,
            Some(HintEvent::Ended(HintEnd::Graceful))
        );
        board.changed(HintedList::Tools, None);
        assert_eq!(hints.next().await, None);
    }

    #[tokio::test]
    async fn a_hint_before_the_end_is_still_delivered() {
        let board = Arc::new(Board::default());
        let mut hints = stream(&board);
        board.changed(HintedList::Resources, None);
        board.end(HintEnd::Graceful);
        assert!(matches!(
            hints.next().await,
            Some(HintEvent::Changed { .. })
        ));
        assert!(matches!(hints.next().await, Some(HintEvent::Ended(_))));
    }

    #[tokio::test]
    async fn a_flood_of_distinct_resources_collapses_into_one_event() {
        let board = Arc::new(Board::default());
        let mut hints = stream(&board);
        for n in 0..100_000 {
            board.updated(format!("file:///{n}"));
        }
        assert_eq!(hints.next().await, Some(HintEvent::UpdatedMany));
        board.end(HintEnd::Graceful);
        assert!(matches!(hints.next().await, Some(HintEvent::Ended(_))));
    }

    #[tokio::test]
    async fn a_reader_that_waits_is_woken() {
        let board = Arc::new(Board::default());
        let mut hints = stream(&board);
        let reader = tokio::spawn(async move { hints.next().await });
        tokio::task::yield_now().await;
        board.alive();
        assert_eq!(reader.await.expect("no panic"), Some(HintEvent::Alive));
    }
}
