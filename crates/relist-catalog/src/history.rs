//! The recent snapshots of one catalog, for walks in flight and for whoever
//! still works from an older version.

use std::collections::VecDeque;
use std::time::Duration;

use crate::snapshot::{OrderFingerprint, Snapshot};
use crate::tag::EntityTag;

/// How much is kept beside the current snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryLimits {
    /// Snapshots, the current one included (default 64).
    pub count: usize,
    /// Age since a snapshot was replaced (default 10 min).
    pub age: Duration,
    /// Bytes of item text that older snapshots do not share with the next
    /// newer one (default 64 MiB). Not counted: the list of items and its index,
    /// some 50 bytes for each item of each snapshot, which [`Self::count`] bounds.
    pub bytes: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            count: 64,
            age: Duration::from_secs(600),
            bytes: 64 << 20,
        }
    }
}

#[derive(Debug)]
struct Past {
    snapshot: Snapshot,
    replaced: Duration,
    bytes: usize,
}

/// The current snapshot and its predecessors, newest last. Time is handed in,
/// counted from any origin.
#[derive(Debug)]
pub struct History {
    current: Snapshot,
    past: VecDeque<Past>,
    past_bytes: usize,
    limits: HistoryLimits,
}

impl History {
    /// A history that begins with the snapshot.
    #[must_use]
    pub const fn new(current: Snapshot, limits: HistoryLimits) -> Self {
        Self {
            current,
            past: VecDeque::new(),
            past_bytes: 0,
            limits,
        }
    }

    /// The current snapshot.
    #[must_use]
    pub const fn current(&self) -> &Snapshot {
        &self.current
    }

    /// Snapshots kept, the current one included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.past.len() + 1
    }

    /// Never true: the current snapshot is always there.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Makes the snapshot the current one, at the time `now`. One that holds
    /// the same items in the same order takes the place of the current one, so
    /// that commits of nothing push no version out.
    pub fn push(&mut self, now: Duration, snapshot: Snapshot) {
        if snapshot.items() == self.current.items() {
            self.current = snapshot;
            self.expire(now);
            return;
        }
        let previous = std::mem::replace(&mut self.current, snapshot);
        let bytes = unshared_bytes(&previous, &self.current);
        self.past_bytes += bytes;
        self.past.push_back(Past {
            snapshot: previous,
            replaced: now,
            bytes,
        });
        self.expire(now);
    }

    /// Forgets what is beyond the limits. The current snapshot stays.
    pub fn expire(&mut self, now: Duration) {
        while let Some(oldest) = self.past.front() {
            let within = self.past.len() < self.limits.count.max(1)
                && self.past_bytes <= self.limits.bytes
                && now.saturating_sub(oldest.replaced) <= self.limits.age;
            if within {
                break;
            }
            self.past_bytes -= oldest.bytes;
            self.past.pop_front();
        }
    }

    fn newest_first(&self) -> impl Iterator<Item = &Snapshot> {
        std::iter::once(&self.current).chain(self.past.iter().rev().map(|p| &p.snapshot))
    }

    /// The newest snapshot with the content that the tag names.
    #[must_use]
    pub fn find(&self, tag: &EntityTag) -> Option<Snapshot> {
        self.newest_first().find(|s| s.tag() == tag).cloned()
    }

    /// The newest snapshot with that content in that order.
    #[must_use]
    pub fn find_exact(&self, tag: &EntityTag, order: OrderFingerprint) -> Option<Snapshot> {
        self.newest_first()
            .find(|s| s.tag() == tag && s.order() == order)
            .cloned()
    }
}

/// Bytes of the items that the newer snapshot does not hold in the same allocation.
fn unshared_bytes(older: &Snapshot, newer: &Snapshot) -> usize {
    older
        .items()
        .iter()
        .filter(|item| {
            newer
                .get(item.key().as_str())
                .is_none_or(|n| !std::ptr::eq(n.text(), item.text()))
        })
        .map(|item| item.text().len())
        .sum()
}

#[cfg(test)]
mod tests {
    use relist_protocol::CatalogKind;
    use serde_json::json;

    use super::*;
    use crate::{Cursor, CursorError, Item, PageSize};

    fn version(v: usize) -> Snapshot {
        let item = |name: &str| {
            Item::from_value(CatalogKind::Tools, &json!({"name": name, "v": v})).expect("a tool")
        };
        Snapshot::new(CatalogKind::Tools, vec![item("a"), item("b"), item("c")])
    }

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn cursor_of(snapshot: &Snapshot) -> Cursor {
        let one = PageSize::new(1).expect("one");
        snapshot.page(0, one).next.expect("more")
    }

    #[test]
    fn a_walk_stays_in_the_version_it_began_with() {
        let first = version(1);
        let mut history = History::new(first.clone(), HistoryLimits::default());
        let cursor = Cursor::decode(&cursor_of(&first).encode()).expect("ours");
        for v in 2..40 {
            history.push(secs(1), version(v));
        }
        let (snapshot, position) = cursor.resolve(CatalogKind::Tools, &history).expect("kept");
        assert!(snapshot.same_order(&first));
        assert_eq!(position, 1);
    }

    #[test]
    fn count_age_and_bytes_bound_what_is_kept() {
        let limits = |count, age, bytes| HistoryLimits {
            count,
            age: secs(age),
            bytes,
        };
        let kept = |limits, pushes: usize| {
            let mut history = History::new(version(0), limits);
            for v in 1..=pushes {
                history.push(secs(v as u64), version(v));
            }
            history.len()
        };
        assert_eq!(kept(limits(5, 1000, usize::MAX), 20), 5);
        assert_eq!(kept(limits(100, 3, usize::MAX), 20), 5);
        assert_eq!(kept(limits(100, 1000, 0), 20), 1);
        assert_eq!(kept(limits(0, 0, 0), 20), 1);
    }

    #[test]
    fn a_cursor_whose_snapshot_is_gone_is_refused() {
        let mut limits = HistoryLimits::default();
        limits.count = 2;
        let mut history = History::new(version(1), limits);
        let cursor = cursor_of(&version(1));
        history.push(secs(0), version(2));
        history.push(secs(0), version(3));
        assert_eq!(
            cursor
                .resolve(CatalogKind::Tools, &history)
                .expect_err("gone"),
            CursorError::SnapshotGone
        );
        assert!(matches!(
            cursor.resolve(CatalogKind::Prompts, &history),
            Err(CursorError::OtherCatalog { .. })
        ));
    }

    #[test]
    fn a_replica_with_another_order_does_not_continue_the_walk() {
        let ours = version(1);
        let mut reversed = ours.items().to_vec();
        reversed.reverse();
        let theirs = Snapshot::new(CatalogKind::Tools, reversed);
        assert_eq!(ours.tag(), theirs.tag());
        let history = History::new(theirs, HistoryLimits::default());
        assert_eq!(
            cursor_of(&ours)
                .resolve(CatalogKind::Tools, &history)
                .expect_err("other order"),
            CursorError::OtherOrder
        );
    }

    #[test]
    fn a_replica_with_the_same_order_continues_the_walk() {
        let history = History::new(version(1), HistoryLimits::default());
        let cursor = cursor_of(&version(1));
        let (_, position) = cursor.resolve(CatalogKind::Tools, &history).expect("same");
        assert_eq!(position, 1);
    }

    #[test]
    fn commits_of_nothing_push_no_version_out() {
        let mut history = History::new(version(1), HistoryLimits::default());
        history.push(secs(0), version(2));
        for n in 0..200 {
            history.push(secs(n), version(2));
        }
        assert_eq!(history.len(), 2);
        assert!(history.find(version(1).tag()).is_some());
    }

    #[test]
    fn bytes_count_what_is_not_shared() {
        let mut limits = HistoryLimits::default();
        // One item of version 1 and no more.
        limits.bytes = r#"{"name":"a","v":1}"#.len();
        let first = version(1);
        let mut history = History::new(first.clone(), limits);
        let mut edit = first.edit();
        edit.upsert(version(2).items()[0].clone());
        history.push(secs(0), edit.finish().expect("unique"));
        assert_eq!(history.len(), 2);
        history.push(secs(0), version(3));
        assert_eq!(history.len(), 1);
    }
}
