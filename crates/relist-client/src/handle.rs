//! What an application holds of one catalog: the current snapshot, where it
//! stands, and a stream of changes.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use relist_catalog::{Change, EntityTag, Item, ItemKey, Snapshot};
pub use relist_freshness::catalog::{Need, Phase, Status};
use relist_freshness::time::Time;
use relist_protocol::CatalogKind;
use relist_protocol::list::CacheHints;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::driver::Command;

/// One version of a catalog, as it was adopted: whole, and never changed.
#[derive(Debug)]
#[non_exhaustive]
pub struct View {
    /// Everything the server listed, in its order.
    pub snapshot: Snapshot,
    /// The server's tag, where it gives one.
    pub tag: Option<EntityTag>,
    /// Lifetime and scope, as the server stated them.
    pub hints: CacheHints,
    /// Counts adoptions, from one.
    pub number: u64,
    /// When it was adopted.
    pub adopted: Instant,
    /// Items that a client must not use, each with the reason (a tool with an
    /// illegal `x-mcp-header`, over HTTP).
    pub rejected: Vec<(ItemKey, String)>,
}

impl View {
    /// The items that may be used, in the server's order.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.snapshot
            .items()
            .iter()
            .filter(|item| !self.is_rejected(item.key().as_ref()))
    }

    /// The item with the key, if it may be used.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Item> {
        self.snapshot.get(key).filter(|_| !self.is_rejected(key))
    }

    fn is_rejected(&self, key: &str) -> bool {
        self.rejected.iter().any(|(k, _)| k.as_ref() == key)
    }
}

/// Where a catalog stands, published by the sync loop.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) status: Status,
    /// Refreshes that ended, whatever their outcome.
    pub(crate) refreshes: u64,
    /// The last one, if it ended without success.
    pub(crate) failed: bool,
    pub(crate) adoptions: u64,
    pub(crate) closed: bool,
}

/// The writer's half; the sync loop holds it.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) view: ArcSwapOption<View>,
    pub(crate) published: watch::Sender<Published>,
}

/// A catalog of one server. Cheap to clone; readers never wait for a refresh.
#[derive(Debug, Clone)]
pub struct CatalogHandle {
    pub(crate) kind: CatalogKind,
    pub(crate) cell: Arc<Cell>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) origin: Instant,
}

/// Why a fresh catalog could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotFresh {
    /// The time is up.
    #[error("the {kind} did not become fresh within {} s", .waited.as_secs_f64())]
    TimedOut {
        /// The catalog.
        kind: CatalogKind,
        /// How long was waited.
        waited: Duration,
    },
    /// A refresh was tried and failed; the old copy, if any, is still readable.
    #[error("the {kind} could not be refreshed: {reason}")]
    Failed {
        /// The catalog.
        kind: CatalogKind,
        /// The failure.
        reason: String,
    },
    /// The server does not offer the catalog, or refused the credentials.
    #[error("the {kind} are unavailable: {reason}")]
    Unavailable {
        /// The catalog.
        kind: CatalogKind,
        /// Why.
        reason: String,
    },
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

impl CatalogHandle {
    /// The catalog that this is.
    #[must_use]
    pub const fn kind(&self) -> CatalogKind {
        self.kind
    }

    /// The current version; `None` until the first list was adopted. It stays
    /// readable while a refresh runs, after failures, and without a connection.
    #[must_use]
    pub fn view(&self) -> Option<Arc<View>> {
        self.cell.view.load_full()
    }

    /// Where the catalog stands now. A lifetime that ended in the meantime is
    /// taken into account.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut status = self.cell.published.borrow().status.clone();
        if status.phase == Phase::Fresh && status.expires.is_some_and(|at| at <= self.now()) {
            status.phase = Phase::Stale;
        }
        status
    }

    /// How long ago a refresh last succeeded.
    #[must_use]
    pub fn since_last_success(&self) -> Option<Duration> {
        let at = self.cell.published.borrow().status.last_success?;
        Some(self.now() - at)
    }

    fn now(&self) -> Time {
        crate::driver::time_since(self.origin)
    }

    /// Changes from here on. A slow reader is never behind by more than one
    /// change: versions in between are folded together.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes {
            seen: self.view(),
            handle: self.clone(),
            published: self.cell.published.subscribe(),
        }
    }

    /// Refreshes by hand, and waits for the refresh to end.
    ///
    /// # Errors
    ///
    /// [`NotFresh`] when the refresh fails, is not possible, or does not end in time.
    pub async fn refresh(&self, timeout: Duration) -> Result<Arc<View>, NotFresh> {
        self.ask(Command::Refresh(self.kind), timeout, true).await
    }

    /// Waits until the copy is fresh, and starts a refresh if none is under way.
    ///
    /// # Errors
    ///
    /// As for [`Self::refresh`].
    pub async fn fresh(&self, need: Need, timeout: Duration) -> Result<Arc<View>, NotFresh> {
        self.ask(Command::Need(self.kind, need), timeout, false)
            .await
    }

    /// Waits for the published state to satisfy a condition.
    pub async fn wait_for(&self, mut condition: impl FnMut(&Status) -> bool) {
        let mut published = self.cell.published.subscribe();
        // An error means that the sync loop is gone: nothing will change any more.
        let _ = published
            .wait_for(|p| p.closed || condition(&p.status))
            .await;
    }

    async fn ask(
        &self,
        command: Command,
        timeout: Duration,
        by_hand: bool,
    ) -> Result<Arc<View>, NotFresh> {
        let mut published = self.cell.published.subscribe();
        let (reply, answer) = tokio::sync::oneshot::channel();
        let kind = self.kind;
        let wait = async {
            self.commands
                .send(Command::Ask(Box::new(command), reply))
                .await
                .map_err(|_| NotFresh::Closed)?;
            let asked = answer.await.map_err(|_| NotFresh::Closed)?;
            if asked.usable && !by_hand {
                return self.view().ok_or(NotFresh::Closed);
            }
            // A refresh that was under way when we asked by hand does not count.
            let wanted = asked.refreshes + asked.more;
            let ended = published
                .wait_for(|p| p.closed || p.status.unavailable.is_some() || p.refreshes >= wanted)
                .await
                .map_err(|_| NotFresh::Closed)?;
            let (status, failed, closed) = (ended.status.clone(), ended.failed, ended.closed);
            drop(ended);
            if let Some(reason) = &status.unavailable {
                return Err(NotFresh::Unavailable {
                    kind,
                    reason: format!("{reason:?}"),
                });
            }
            if failed {
                return Err(NotFresh::Failed {
                    kind,
                    reason: status
                        .last_failure
                        .map_or_else(|| "no connection".to_owned(), |f| f.to_string()),
                });
            }
            if closed {
                return Err(NotFresh::Closed);
            }
            self.view().ok_or(NotFresh::Closed)
        };
        tokio::time::timeout(timeout, wait)
            .await
            .unwrap_or(Err(NotFresh::TimedOut {
                kind,
                waited: timeout,
            }))
    }
}

/// A stream of changes of one catalog.
#[derive(Debug)]
pub struct Changes {
    handle: CatalogHandle,
    seen: Option<Arc<View>>,
    published: watch::Receiver<Published>,
}

/// A change: the version before, the version after, and what differs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Changed {
    /// The version before; `None` for the first one.
    pub before: Option<Arc<View>>,
    /// The version after.
    pub after: Arc<View>,
    /// What differs.
    pub change: Change,
}

impl Changes {
    /// The next change of content or order; `None` once the client is closed.
    pub async fn next(&mut self) -> Option<Changed> {
        loop {
            // Look first, then wait: a change before the first call is seen too.
            let closed = self.published.borrow_and_update().closed;
            let current = self.handle.view();
            let number = |v: &Option<Arc<View>>| v.as_ref().map(|v| v.number);
            if number(&current) != number(&self.seen)
                && let Some(after) = current
            {
                let before = self.seen.replace(after.clone());
                let change = match &before {
                    Some(before) => Change::between(&before.snapshot, &after.snapshot),
                    None => Change::between(&Snapshot::empty(self.handle.kind), &after.snapshot),
                };
                if before.is_none() || !change.is_empty() {
                    return Some(Changed {
                        before,
                        after,
                        change,
                    });
                }
                continue;
            }
            if closed || self.published.changed().await.is_err() {
                return None;
            }
        }
    }
}
