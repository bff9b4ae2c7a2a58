//! The catalogs of a server: what readers see, and how it changes.
//!
//! All four catalogs stand behind one pointer. A reader takes it once and sees
//! one state; a commit makes the next state whole and then swaps the pointer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use relist_catalog::{
    Cursor, CursorError, DuplicateKey, History, Item, ItemError, ItemKey, Snapshot,
};
use relist_protocol::CatalogKind;
use tokio::time::Instant;

use crate::hints::lock;
use crate::options::CatalogOptions;
use crate::schema::DefinitionError;

mod edit;
mod entry;
pub(crate) mod page;
mod version;

pub(crate) use edit::Bound;
pub use edit::Edit;
pub(crate) use entry::{Entry, ToolEntry};
pub(crate) use version::Version;

/// Why a change is not made. Nothing of the commit is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The server has no such catalog.
    #[error("the server has no catalog of {0}")]
    NotDeclared(CatalogKind),
    /// What was given is not an item.
    #[error(transparent)]
    Item(#[from] ItemError),
    /// Two items of one name.
    #[error(transparent)]
    Duplicate(#[from] DuplicateKey),
    /// A definition that cannot be served.
    #[error("{} {key:?}: {fault}", kind.noun())]
    Definition {
        /// The catalog.
        kind: CatalogKind,
        /// The item.
        key: String,
        /// What is wrong with it.
        fault: DefinitionError,
    },
}

/// One catalog before and after a commit.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Changed {
    /// The catalog.
    pub kind: CatalogKind,
    /// What it was.
    pub before: Snapshot,
    /// What it is now.
    pub after: Snapshot,
}

/// What a commit did.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Commit {
    /// The catalogs that changed, in content or in order. Empty when nothing did.
    pub changed: Vec<Changed>,
}

impl Commit {
    /// Whether nothing changed; then nobody is told.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }
}

const fn slot(kind: CatalogKind) -> usize {
    match kind {
        CatalogKind::Tools => 0,
        CatalogKind::Resources => 1,
        CatalogKind::ResourceTemplates => 2,
        CatalogKind::Prompts => 3,
    }
}

/// What all readers see at one time.
#[derive(Debug, Default)]
pub(crate) struct State([Option<Arc<Version>>; 4]);

impl State {
    pub(crate) fn version(&self, kind: CatalogKind) -> Option<&Arc<Version>> {
        self.0[slot(kind)].as_ref()
    }

    pub(crate) fn entry(&self, kind: CatalogKind, key: &str) -> Option<&Entry> {
        self.version(kind)?.entries.get(key)
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<ToolEntry>> {
        match self.entry(CatalogKind::Tools, name)? {
            Entry::Tool(tool) => Some(tool),
            _ => None,
        }
    }
}

/// The versions of one catalog that walks may still be in.
#[derive(Debug)]
struct Past {
    history: History,
    /// As the history keeps them, newest first, with their pages.
    versions: VecDeque<Arc<Version>>,
}

impl Past {
    fn new(version: Arc<Version>, options: &CatalogOptions) -> Self {
        Self {
            history: History::new(version.snapshot.clone(), options.history),
            versions: VecDeque::from([version]),
        }
    }

    fn push(&mut self, now: Duration, version: Arc<Version>) {
        self.history.push(now, version.snapshot.clone());
        self.versions.push_front(version);
        self.trim();
    }

    fn trim(&mut self) {
        self.versions.truncate(self.history.len());
    }
}

/// The catalogs of one server.
#[derive(Debug)]
pub(crate) struct Catalogs {
    current: ArcSwap<State>,
    options: [Option<CatalogOptions>; 4],
    /// Held by a commit from beginning to end, and by whoever looks for an old version.
    past: Mutex<[Option<Past>; 4]>,
    started: Instant,
}

impl Catalogs {
    pub(crate) fn new(options: [Option<CatalogOptions>; 4]) -> Self {
        let state = State(CatalogKind::ALL.map(|kind| {
            options[slot(kind)]
                .is_some()
                .then(|| Arc::new(Version::empty(kind)))
        }));
        let past = CatalogKind::ALL.map(|kind| {
            let options = options[slot(kind)].as_ref()?;
            Some(Past::new(state.version(kind)?.clone(), options))
        });
        Self {
            current: ArcSwap::from_pointee(state),
            options,
            past: Mutex::new(past),
            started: Instant::now(),
        }
    }

    pub(crate) fn state(&self) -> Arc<State> {
        self.current.load_full()
    }

    pub(crate) fn options(&self, kind: CatalogKind) -> Option<&CatalogOptions> {
        self.options[slot(kind)].as_ref()
    }

    /// Makes one change. `told` runs while no other commit can happen, when
    /// every reader can see this one.
    pub(crate) fn commit(
        &self,
        change: impl FnOnce(&mut Edit),
        told: impl FnOnce(&Commit),
    ) -> Result<Commit, CommitError> {
        let mut past = lock(&self.past);
        let before = self.state();
        let mut edit = Edit::begin(before.clone());
        change(&mut edit);
        let mut next = State(before.0.clone());
        let mut commit = Commit::default();
        for (kind, version) in edit.finish()? {
            let old = before.version(kind).ok_or(CommitError::NotDeclared(kind))?;
            let version = Arc::new(version);
            if !version.shares_items(old) {
                commit.changed.push(Changed {
                    kind,
                    before: old.snapshot.clone(),
                    after: version.snapshot.clone(),
                });
                if let Some(past) = &mut past[slot(kind)] {
                    past.push(self.started.elapsed(), version.clone());
                }
            }
            next.0[slot(kind)] = Some(version);
        }
        self.current.store(Arc::new(next));
        told(&commit);
        Ok(commit)
    }

    /// The version that a cursor belongs to, and the position in it.
    pub(crate) fn resolve(
        &self,
        kind: CatalogKind,
        cursor: &str,
    ) -> Result<(Arc<Version>, usize), CursorError> {
        let cursor = Cursor::decode(cursor)?;
        let mut past = lock(&self.past);
        let Some(past) = &mut past[slot(kind)] else {
            return Err(CursorError::SnapshotGone);
        };
        past.history.expire(self.started.elapsed());
        past.trim();
        let (snapshot, position) = cursor.resolve(kind, &past.history)?;
        let version = past
            .versions
            .iter()
            .find(|v| v.snapshot.same_order(&snapshot) && v.snapshot.same_content(&snapshot))
            .ok_or(CursorError::SnapshotGone)?;
        Ok((version.clone(), position))
    }
}

/// Reads an item from a value.
pub(crate) fn item(kind: CatalogKind, value: &serde_json::Value) -> Result<Item, CommitError> {
    Ok(Item::from_value(kind, value)?)
}

/// The entries of a version, by name.
pub(crate) type Entries = std::collections::HashMap<ItemKey, Entry>;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn catalogs() -> Catalogs {
        Catalogs::new([
            Some(CatalogOptions::default().page_size(2)),
            None,
            None,
            Some(CatalogOptions::default()),
        ])
    }

    fn tool(name: &str, text: &str) -> Item {
        let value = json!({"name": name, "description": text, "inputSchema": {"type": "object"}});
        item(CatalogKind::Tools, &value).expect("a tool")
    }

    fn put(catalogs: &Catalogs, items: Vec<Item>) -> Commit {
        catalogs
            .commit(|c| c.replace(CatalogKind::Tools, items), |_| {})
            .expect("a commit")
    }

    #[test]
    fn a_commit_of_nothing_changes_nothing_and_an_order_is_something() {
        let catalogs = catalogs();
        let items = || vec![tool("a", ""), tool("b", "")];
        assert_eq!(put(&catalogs, items()).changed.len(), 1);
        assert!(put(&catalogs, items()).is_empty());
        let reordered = put(&catalogs, vec![tool("b", ""), tool("a", "")]);
        let change = &reordered.changed[0];
        assert_eq!(change.before.tag(), change.after.tag());
        assert!(!change.before.same_order(&change.after));
    }

    #[test]
    fn a_commit_that_fails_anywhere_changes_nothing() {
        let catalogs = catalogs();
        let error = catalogs
            .commit(
                |c| {
                    c.upsert(CatalogKind::Tools, tool("a", ""));
                    let prompt = json!({"name": "p"});
                    let prompt = item(CatalogKind::Prompts, &prompt).expect("a prompt");
                    c.replace(CatalogKind::Prompts, vec![prompt.clone(), prompt]);
                },
                |_| panic!("nobody is told"),
            )
            .expect_err("a duplicate");
        assert!(matches!(error, CommitError::Duplicate(_)));
        let state = catalogs.state();
        assert!(state.tool("a").is_none());
        assert_eq!(
            catalogs
                .commit(|c| c.replace(CatalogKind::Resources, vec![]), |_| {})
                .expect_err("not there"),
            CommitError::NotDeclared(CatalogKind::Resources)
        );
    }

    #[test]
    fn a_cursor_finds_the_version_that_it_was_given_for() {
        let catalogs = catalogs();
        put(
            &catalogs,
            vec![tool("a", ""), tool("b", ""), tool("c", "1")],
        );
        let old = catalogs
            .state()
            .version(CatalogKind::Tools)
            .expect("tools")
            .clone();
        let size = catalogs
            .options(CatalogKind::Tools)
            .expect("tools")
            .page_size;
        let cursor = old
            .snapshot
            .page(0, size)
            .next
            .expect("a second page")
            .encode();
        put(&catalogs, vec![tool("c", "2")]);
        let (version, position) = catalogs.resolve(CatalogKind::Tools, &cursor).expect("kept");
        assert_eq!(position, 2);
        assert_eq!(version.snapshot.items()[2], tool("c", "1"));
        assert!(catalogs.resolve(CatalogKind::Prompts, &cursor).is_err());
        assert!(catalogs.resolve(CatalogKind::Tools, "bogus").is_err());
    }

    #[test]
    fn a_definition_that_cannot_be_served_is_named() {
        let value = json!({"name": "bad", "inputSchema": {"type": "object", "$ref": "http://x/y"}});
        let error = catalogs()
            .commit(
                |c| {
                    c.upsert(
                        CatalogKind::Tools,
                        item(CatalogKind::Tools, &value).expect("item"),
                    );
                },
                |_| {},
            )
            .expect_err("unresolvable");
        assert!(error.to_string().starts_with("tool \"bad\":"), "{error}");
    }
}
