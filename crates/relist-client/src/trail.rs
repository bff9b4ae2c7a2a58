//! The trail: what every refresh did, kept for a while and shown to `tracing`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use relist_freshness::record::{Outcome, RefreshRecord};
use relist_protocol::CatalogKind;
use tokio::sync::broadcast;

/// One refresh, with the catalog it belongs to and the wall-clock time it ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TrailEntry {
    /// The catalog.
    pub kind: CatalogKind,
    /// What happened. Times in it count from the start of the client.
    pub record: RefreshRecord,
    /// When it ended, for people.
    pub ended: SystemTime,
}

impl TrailEntry {
    /// The entry on one line, for logs and the command line.
    ///
    /// ```text
    /// tools #4 hint ×3 → adopted 42 items in 18 ms, 1 page, 20132 bytes
    /// ```
    #[must_use]
    pub fn line(&self) -> String {
        let r = &self.record;
        let hints = match r.hints {
            0 => String::new(),
            n => format!(" ×{n}"),
        };
        let outcome = match &r.outcome {
            Outcome::Adopted { items } => format!("adopted {}", count(*items, "item")),
            Outcome::NotModified => "not modified".to_owned(),
            Outcome::Failed(failure) => format!("failed: {failure}"),
            Outcome::Abandoned => "abandoned: the connection was replaced".to_owned(),
        };
        let restarts = match r.restarts {
            0 => String::new(),
            n => format!(", started over {n}×"),
        };
        format!(
            "{} #{} {}{hints} → {outcome} in {} ms, {}, {} bytes{restarts}",
            self.kind,
            r.number,
            r.trigger,
            (r.finished - r.started).as_millis(),
            count(r.pages, "page"),
            r.bytes,
        )
    }
}

fn count(n: usize, noun: &str) -> String {
    if n == 1 {
        format!("1 {noun}")
    } else {
        format!("{n} {noun}s")
    }
}

/// The newest entries of all catalogs.
#[derive(Debug, Clone)]
pub struct Trail {
    entries: Arc<Mutex<VecDeque<TrailEntry>>>,
    news: broadcast::Sender<TrailEntry>,
}

/// Entries that a slow reader of [`Trail::subscribe`] may leave unread.
const UNREAD: usize = 256;

/// Entries kept; older ones are dropped.
const KEPT: usize = 1024;

impl Trail {
    pub(crate) fn new() -> Self {
        Self {
            entries: Arc::default(),
            news: broadcast::channel(UNREAD).0,
        }
    }

    pub(crate) fn push(&self, entry: TrailEntry) {
        tracing::info!(
            catalog = %entry.kind,
            number = entry.record.number,
            trigger = %entry.record.trigger,
            hints = entry.record.hints,
            epoch = entry.record.epoch.0,
            pages = entry.record.pages,
            bytes = entry.record.bytes,
            outcome = entry.record.outcome.word(),
            "refresh"
        );
        // Nobody needs to listen.
        let _ = self.news.send(entry.clone());
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() == KEPT {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// Entries from here on. A reader that falls behind by more than 256 is told
    /// how many it missed.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<TrailEntry> {
        self.news.subscribe()
    }

    /// The newest 1,024 entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> Vec<TrailEntry> {
        self.entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .cloned()
            .collect()
    }
}
