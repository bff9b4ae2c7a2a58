//! One version of one catalog, with the pages made of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use relist_catalog::Snapshot;
use relist_protocol::CatalogKind;

use super::Entries;
use super::page::{Form, PageBody};
use crate::hints::lock;
use crate::options::CatalogOptions;

type Pages = Mutex<HashMap<(usize, bool), Arc<PageBody>>>;

/// What is listed, and what answers for it.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) snapshot: Snapshot,
    pub(crate) entries: Entries,
    /// Shared by versions that list the same: those differ in handlers only.
    pages: Arc<Pages>,
}

impl Version {
    pub(super) fn empty(kind: CatalogKind) -> Self {
        Self {
            snapshot: Snapshot::empty(kind),
            entries: Entries::new(),
            pages: Arc::default(),
        }
    }

    /// The version behind `base`. A snapshot that lists the same items in the
    /// same order is not kept: the pages made of the earlier one stay good.
    pub(super) fn next(base: &Self, snapshot: Snapshot, entries: Entries) -> Self {
        if snapshot.items() == base.snapshot.items() {
            return Self {
                snapshot: base.snapshot.clone(),
                entries,
                pages: base.pages.clone(),
            };
        }
        Self {
            snapshot,
            entries,
            pages: Arc::default(),
        }
    }

    /// Whether both list the same items in the same order.
    pub(super) fn shares_items(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pages, &other.pages)
    }

    /// The page at a position: made when it is first asked for.
    pub(crate) fn page(
        &self,
        position: usize,
        options: &CatalogOptions,
        form: Form<'_>,
    ) -> Arc<PageBody> {
        let key = (position, matches!(form, Form::Legacy));
        if let Some(page) = lock(&self.pages).get(&key) {
            return page.clone();
        }
        // Outside the lock: another reader may make the same page, and the
        // first that is done is kept.
        let page = Arc::new(PageBody::new(&self.snapshot, position, options, form));
        let mut pages = lock(&self.pages);
        // A client can walk from any position that a cursor names.
        if pages.len() >= MAX_PAGES {
            pages.clear();
        }
        pages.entry(key).or_insert(page).clone()
    }
}

/// Pages kept of one version. Positions come in cursors that anybody can forge.
const MAX_PAGES: usize = 1024;
