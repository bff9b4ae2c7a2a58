//! A snapshot, a page at a time.

use std::num::NonZeroUsize;

use crate::cursor::Cursor;
use crate::item::Item;
use crate::snapshot::Snapshot;

/// How many items go on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageSize(NonZeroUsize);

impl PageSize {
    /// A page size; `None` for zero.
    #[must_use]
    pub const fn new(items: usize) -> Option<Self> {
        match NonZeroUsize::new(items) {
            Some(items) => Some(Self(items)),
            None => None,
        }
    }

    /// The number of items.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0.get()
    }
}

impl Default for PageSize {
    /// 1,000 items: most servers' whole list on one page.
    fn default() -> Self {
        Self(NonZeroUsize::MIN.saturating_add(999))
    }
}

/// Some consecutive items, and where the rest begins.
#[derive(Debug)]
pub struct Page<'a> {
    /// The items.
    pub items: &'a [Item],
    /// The next page, unless this is the last.
    pub next: Option<Cursor>,
}

impl Snapshot {
    /// The page that begins at a position.
    #[must_use]
    pub fn page(&self, position: usize, size: PageSize) -> Page<'_> {
        let from = position.min(self.len());
        let to = from.saturating_add(size.get()).min(self.len());
        Page {
            items: &self.items()[from..to],
            next: (to < self.len()).then(|| Cursor::at(self, to)),
        }
    }
}

#[cfg(test)]
mod tests {
    use relist_protocol::CatalogKind;

    use super::*;

    fn tools(names: &[&str]) -> Snapshot {
        let tool = |name: &&str| {
            Item::from_value(CatalogKind::Tools, &serde_json::json!({ "name": name }))
        };
        let items = names.iter().map(tool).collect::<Result<_, _>>();
        Snapshot::new(CatalogKind::Tools, items.expect("tools"))
    }

    #[test]
    fn a_page_is_a_thousand_items_unless_said_otherwise() {
        assert_eq!(PageSize::default().get(), 1000);
        assert_eq!(PageSize::new(0), None);
    }

    #[test]
    fn pages_cover_the_snapshot_and_end() {
        let snapshot = tools(&["a", "b", "c"]);
        let size = PageSize::new(2).expect("two");
        let first = snapshot.page(0, size);
        assert_eq!((first.items.len(), first.next.is_some()), (2, true));
        let last = snapshot.page(2, size);
        assert_eq!((last.items.len(), last.next.is_some()), (1, false));
        assert!(snapshot.page(9, size).items.is_empty());
        // Exactly full pages are followed by no empty one.
        assert!(
            snapshot
                .page(0, PageSize::new(3).expect("three"))
                .next
                .is_none()
        );
    }
}
