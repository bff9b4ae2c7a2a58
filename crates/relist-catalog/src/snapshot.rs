//! One version of a catalog: whole, shared, and never changed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use relist_protocol::CatalogKind;
use sha2::{Digest as _, Sha256};

use crate::cursor::Cursor;
use crate::item::{Item, ItemKey};
use crate::tag::EntityTag;

/// A fingerprint of content and order together. The tag leaves order out; a
/// position is only meaningful within one order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OrderFingerprint([u8; 8]);

impl OrderFingerprint {
    pub(crate) const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn bytes(self) -> [u8; 8] {
        self.0
    }
}

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

/// Two items of one name, where each name may appear once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two {kind} are named {key:?}")]
pub struct DuplicateKey {
    /// The catalog.
    pub kind: CatalogKind,
    /// The repeated name.
    pub key: String,
}

/// One version of a catalog. Cheap to clone.
///
/// A snapshot read from a peer may repeat names (that is the peer's fault, and
/// [`Snapshot::duplicate_keys`] tells); one that was edited never does.
#[derive(Debug, Clone)]
pub struct Snapshot(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    kind: CatalogKind,
    items: Vec<Item>,
    index: OnceLock<HashMap<ItemKey, usize>>,
    tag: OnceLock<EntityTag>,
    order: OnceLock<OrderFingerprint>,
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
    /// A snapshot of the items, in their order. Nothing is hashed yet.
    #[must_use]
    pub fn new(kind: CatalogKind, items: Vec<Item>) -> Self {
        Self(Arc::new(Inner {
            kind,
            items,
            index: OnceLock::new(),
            tag: OnceLock::new(),
            order: OnceLock::new(),
        }))
    }

    /// A catalog without items.
    #[must_use]
    pub fn empty(kind: CatalogKind) -> Self {
        Self::new(kind, Vec::new())
    }

    /// Which catalog this is a version of.
    #[must_use]
    pub fn kind(&self) -> CatalogKind {
        self.0.kind
    }

    /// All items, in order.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.0.items
    }

    /// The number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.items.len()
    }

    /// Whether there are no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.items.is_empty()
    }

    /// The first item of the name, found without a search.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Item> {
        let at = self.index().get(&ItemKey::new(key))?;
        self.0.items.get(*at)
    }

    fn index(&self) -> &HashMap<ItemKey, usize> {
        self.0.index.get_or_init(|| {
            let mut index = HashMap::with_capacity(self.len());
            for (at, item) in self.0.items.iter().enumerate() {
                index.entry(item.key().clone()).or_insert(at);
            }
            index
        })
    }

    /// The tag of the content, computed once.
    #[must_use]
    pub fn tag(&self) -> &EntityTag {
        self.0.tag.get_or_init(|| {
            EntityTag::of(
                self.kind(),
                self.0.items.iter().map(|i| (i.key(), i.digest())),
            )
        })
    }

    /// The fingerprint of content and order, computed once.
    #[must_use]
    pub fn order(&self) -> OrderFingerprint {
        *self.0.order.get_or_init(|| {
            let mut hash = Sha256::new();
            for item in &self.0.items {
                hash.update((item.key().as_str().len() as u64).to_be_bytes());
                hash.update(item.key().as_str().as_bytes());
                hash.update(item.digest().bytes());
            }
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&hash.finalize()[..8]);
            OrderFingerprint(bytes)
        })
    }

    /// Whether both hold the same items, in whatever order.
    #[must_use]
    pub fn same_content(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.tag() == other.tag()
    }

    /// Whether both hold the same items in the same order.
    #[must_use]
    pub fn same_order(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.order() == other.order()
    }

    /// Names that appear more than once, each once.
    #[must_use]
    pub fn duplicate_keys(&self) -> Vec<ItemKey> {
        if self.index().len() == self.len() {
            return Vec::new();
        }
        let mut seen: HashMap<&ItemKey, usize> = HashMap::new();
        let mut repeated = Vec::new();
        for item in &self.0.items {
            let count = seen.entry(item.key()).or_insert(0);
            *count += 1;
            if *count == 2 {
                repeated.push(item.key().clone());
            }
        }
        repeated
    }

    /// The bytes of all items together, as they were written.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.0.items.iter().map(|i| i.text().len()).sum()
    }

    /// The page that begins at a position.
    #[must_use]
    pub fn page(&self, position: usize, size: PageSize) -> Page<'_> {
        let from = position.min(self.len());
        let to = from.saturating_add(size.get()).min(self.len());
        Page {
            items: &self.0.items[from..to],
            next: (to < self.len()).then(|| Cursor::at(self, to)),
        }
    }

    /// Begins the next version. Items that are not touched are shared, digests
    /// included: changing one of ten thousand hashes one.
    #[must_use]
    pub fn edit(&self) -> SnapshotEdit {
        SnapshotEdit {
            kind: self.kind(),
            items: self.0.items.iter().cloned().map(Some).collect(),
            index: self.index().clone(),
            duplicate: self.duplicate_keys().into_iter().next(),
        }
    }
}

/// The next version of a catalog, in the making.
#[derive(Debug, Clone)]
pub struct SnapshotEdit {
    kind: CatalogKind,
    /// Removed items leave a hole until the end, so that the index stays right.
    items: Vec<Option<Item>>,
    index: HashMap<ItemKey, usize>,
    duplicate: Option<ItemKey>,
}

impl SnapshotEdit {
    /// Replaces the item of the same name in its place, or appends a new one.
    pub fn upsert(&mut self, item: Item) {
        match self.index.entry(item.key().clone()) {
            Entry::Occupied(place) => self.items[*place.get()] = Some(item),
            Entry::Vacant(place) => {
                place.insert(self.items.len());
                self.items.push(Some(item));
            }
        }
    }

    /// Removes the item of the name; answers whether there was one.
    pub fn remove(&mut self, key: &str) -> bool {
        match self.index.remove(&ItemKey::new(key)) {
            Some(at) => self.items[at].take().is_some(),
            None => false,
        }
    }

    /// The item of the name, as the edit has it so far.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Item> {
        self.items[*self.index.get(&ItemKey::new(key))?].as_ref()
    }

    /// Replaces everything, order included.
    pub fn replace_all(&mut self, items: Vec<Item>) {
        let snapshot = Snapshot::new(self.kind, items);
        *self = snapshot.edit();
    }

    /// The new version.
    ///
    /// # Errors
    ///
    /// [`DuplicateKey`] when two items have one name.
    pub fn finish(self) -> Result<Snapshot, DuplicateKey> {
        if let Some(key) = self.duplicate {
            return Err(DuplicateKey {
                kind: self.kind,
                key: key.to_string(),
            });
        }
        Ok(Snapshot::new(
            self.kind,
            self.items.into_iter().flatten().collect(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, text: &str) -> Item {
        let value = serde_json::json!({"name": name, "description": text});
        Item::from_value(CatalogKind::Tools, &value).expect("a tool")
    }

    fn tools(names: &[&str]) -> Snapshot {
        Snapshot::new(
            CatalogKind::Tools,
            names.iter().map(|n| tool(n, "")).collect(),
        )
    }

    #[test]
    fn an_edit_keeps_the_place_of_what_it_changes() {
        let mut edit = tools(&["a", "b", "c"]).edit();
        edit.upsert(tool("b", "new"));
        assert!(edit.remove("a"));
        assert!(!edit.remove("a"));
        edit.upsert(tool("d", ""));
        let next = edit.finish().expect("unique");
        let names: Vec<&str> = next.items().iter().map(|i| i.key().as_str()).collect();
        assert_eq!(names, ["b", "c", "d"]);
    }

    #[test]
    fn an_edit_refuses_a_repeated_name() {
        let mut edit = tools(&["a"]).edit();
        edit.replace_all(vec![tool("x", ""), tool("x", "again")]);
        assert_eq!(edit.finish().expect_err("repeated").key, "x");
    }

    #[test]
    fn a_list_read_from_a_peer_may_repeat_names_and_says_so() {
        let snapshot = tools(&["a", "b", "a", "a"]);
        assert_eq!(snapshot.duplicate_keys(), [ItemKey::new("a")]);
        assert_eq!(snapshot.len(), 4);
    }

    #[test]
    fn order_is_not_content() {
        let (one, other) = (tools(&["a", "b"]), tools(&["b", "a"]));
        assert!(one.same_content(&other));
        assert!(!one.same_order(&other));
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
