//! Who is told of changes: level-triggered, one pending hint per listener and list.
//!
//! A commit marks every listener that asked for the list; when the coalescing
//! window closes, counted from the first commit in it, marks become hints. A
//! listener that nobody reads from holds a few bits and the resources it
//! watches, however much changes meanwhile.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use relist_protocol::CatalogKind;
use relist_protocol::message::ListenFilter;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Nothing that a lock guards here is left half done by a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A set of lists that have a change notification: templates count as resources.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lists(u8);

impl Lists {
    pub(crate) const NONE: Self = Self(0);
    const KINDS: [CatalogKind; 3] = [
        CatalogKind::Tools,
        CatalogKind::Resources,
        CatalogKind::Prompts,
    ];

    pub(crate) const fn of(kind: CatalogKind) -> Self {
        Self(match kind {
            CatalogKind::Tools => 1,
            CatalogKind::Resources | CatalogKind::ResourceTemplates => 2,
            CatalogKind::Prompts => 4,
        })
    }

    pub(crate) fn wanted(filter: &ListenFilter) -> Self {
        let wanted = Self::KINDS.into_iter().filter(|k| filter.wants(*k));
        wanted.fold(Self::NONE, |set, kind| set.union(Self::of(kind)))
    }

    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = CatalogKind> {
        let kinds = Self::KINDS.into_iter();
        kinds.filter(move |k| !self.intersection(Self::of(*k)).is_empty())
    }
}

impl fmt::Debug for Lists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// One thing to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hint {
    /// The list changed.
    List(CatalogKind),
    /// The content of the resource changed.
    Resource(String),
}

#[derive(Debug, Default)]
struct Interest {
    lists: Lists,
    resources: BTreeSet<String>,
    /// Changed, and the window is still open.
    marked: Lists,
    /// To be told.
    ready: Lists,
    updated: BTreeSet<String>,
    closed: bool,
}

/// One receiver of hints.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    interest: Mutex<Interest>,
    wake: Notify,
}

impl Listener {
    /// Watches a resource; answers false when it would be more than `limit`.
    pub(crate) fn watch(&self, uri: &str, limit: usize) -> bool {
        let mut interest = lock(&self.interest);
        if !interest.resources.contains(uri) && interest.resources.len() >= limit {
            return false;
        }
        interest.resources.insert(uri.to_owned());
        true
    }

    pub(crate) fn unwatch(&self, uri: &str) {
        let mut interest = lock(&self.interest);
        interest.resources.remove(uri);
        interest.updated.remove(uri);
    }

    /// Takes what is to be told now; `None` when nothing will be any more.
    pub(crate) fn take(&self) -> Option<Vec<Hint>> {
        let mut interest = lock(&self.interest);
        let lists = std::mem::take(&mut interest.ready);
        let updated = std::mem::take(&mut interest.updated);
        let hints: Vec<Hint> = lists
            .iter()
            .map(Hint::List)
            .chain(updated.into_iter().map(Hint::Resource))
            .collect();
        (!hints.is_empty() || !interest.closed).then_some(hints)
    }

    /// Waits until [`Self::take`] has something to say. Safe to drop and repeat.
    pub(crate) async fn ready(&self) {
        loop {
            {
                let interest = lock(&self.interest);
                if interest.closed || !interest.ready.is_empty() || !interest.updated.is_empty() {
                    return;
                }
            }
            self.wake.notified().await;
        }
    }
}

/// All receivers of hints.
#[derive(Debug, Clone)]
pub(crate) struct Hub(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    listeners: Mutex<HashMap<u64, Arc<Listener>>>,
    next: AtomicU64,
    window: Duration,
    due: Mutex<Option<Instant>>,
    closed: AtomicBool,
}

/// A listener that is registered for as long as this exists.
#[derive(Debug)]
pub(crate) struct Registration {
    hub: Hub,
    number: u64,
    pub(crate) listener: Arc<Listener>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.hub.0.listeners).remove(&self.number);
    }
}

impl Hub {
    pub(crate) fn new(window: Duration) -> Self {
        Self(Arc::new(Inner {
            listeners: Mutex::default(),
            next: AtomicU64::new(0),
            window,
            due: Mutex::new(None),
            closed: AtomicBool::new(false),
        }))
    }

    /// From here on every commit reaches the listener.
    pub(crate) fn register(&self, lists: Lists, resources: BTreeSet<String>) -> Registration {
        let mut listeners = lock(&self.0.listeners);
        let listener = Arc::new(Listener {
            interest: Mutex::new(Interest {
                lists,
                resources,
                closed: self.is_closed(),
                ..Interest::default()
            }),
            wake: Notify::new(),
        });
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        listeners.insert(number, listener.clone());
        Registration {
            hub: self.clone(),
            number,
            listener,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::SeqCst)
    }

    fn each(&self, mut act: impl FnMut(&mut Interest) -> bool) {
        for listener in lock(&self.0.listeners).values() {
            if act(&mut lock(&listener.interest)) {
                listener.wake.notify_one();
            }
        }
    }

    /// Lists changed, and every reader can see it.
    pub(crate) fn changed(&self, lists: Lists) {
        if lists.is_empty() {
            return;
        }
        self.each(|interest| {
            interest.marked = interest.marked.union(lists.intersection(interest.lists));
            false
        });
        self.schedule();
    }

    fn schedule(&self) {
        let runtime = tokio::runtime::Handle::try_current();
        let (Ok(runtime), false) = (runtime, self.0.window.is_zero()) else {
            return self.flush();
        };
        let mut due = lock(&self.0.due);
        let now = Instant::now();
        // A deadline long gone was set on a runtime that is gone too.
        if due.is_some_and(|due| now < due + Duration::from_secs(1)) {
            return;
        }
        let at = now + self.0.window;
        *due = Some(at);
        let hub = self.clone();
        runtime.spawn(async move {
            tokio::time::sleep_until(at).await;
            hub.flush();
        });
    }

    fn flush(&self) {
        *lock(&self.0.due) = None;
        self.each(|interest| {
            let marked = std::mem::take(&mut interest.marked);
            interest.ready = interest.ready.union(marked);
            !marked.is_empty()
        });
    }

    /// The content of a resource changed.
    pub(crate) fn updated(&self, uri: &str) {
        self.each(|interest| {
            interest.resources.contains(uri) && interest.updated.insert(uri.to_owned())
        });
    }

    /// Nothing more is told: every listener gets what is pending, and the end.
    pub(crate) fn close(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        self.flush();
        self.each(|interest| {
            interest.closed = true;
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Lists {
        Lists::of(CatalogKind::Tools)
    }

    async fn next(listener: &Listener) -> Option<Vec<Hint>> {
        listener.ready().await;
        listener.take()
    }

    #[tokio::test(start_paused = true)]
    async fn commits_close_together_give_one_hint_timed_from_the_first() {
        let hub = Hub::new(Duration::from_millis(20));
        let registered = hub.register(tools(), BTreeSet::new());
        let start = Instant::now();
        let storm = tokio::spawn({
            let hub = hub.clone();
            async move {
                for _ in 0..10 {
                    hub.changed(tools());
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        });
        let hints = next(&registered.listener).await;
        assert_eq!(hints, Some(vec![Hint::List(CatalogKind::Tools)]));
        assert_eq!(start.elapsed(), Duration::from_millis(20));
        storm.await.expect("storm");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_holds_one_hint() {
        let hub = Hub::new(Duration::ZERO);
        let registered = hub.register(tools(), BTreeSet::from(["a:b".to_owned()]));
        for _ in 0..1000 {
            hub.changed(tools());
            hub.changed(Lists::of(CatalogKind::Prompts));
            hub.updated("a:b");
            hub.updated("c:d");
        }
        assert_eq!(next(&registered.listener).await.map(|h| h.len()), Some(2));
        assert_eq!(registered.listener.take(), Some(vec![]));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_registers_after_a_commit_is_not_told_of_it() {
        let hub = Hub::new(Duration::from_millis(20));
        hub.changed(tools());
        let registered = hub.register(tools(), BTreeSet::new());
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(registered.listener.take(), Some(vec![]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_pending_is_told_before_the_end() {
        let hub = Hub::new(Duration::from_secs(9));
        let registered = hub.register(tools(), BTreeSet::new());
        hub.changed(tools());
        hub.close();
        assert_eq!(next(&registered.listener).await.map(|h| h.len()), Some(1));
        assert_eq!(next(&registered.listener).await, None);
    }

    #[test]
    fn a_commit_outside_a_runtime_is_told_at_once() {
        let hub = Hub::new(Duration::from_secs(9));
        let registered = hub.register(tools(), BTreeSet::new());
        hub.changed(tools());
        assert_eq!(registered.listener.take().map(|h| h.len()), Some(1));
    }
}
