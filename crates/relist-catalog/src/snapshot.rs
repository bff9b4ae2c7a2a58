//! One version of a catalog: whole, shared, and never changed.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use relist_protocol::CatalogKind;
use sha2::{Digest as _, Sha256};

use crate::item::{Item, ItemKey};
use crate::tag::EntityTag;

mod edit;

pub use edit::{DuplicateKey, SnapshotEdit};

/// A fingerprint of content and order together. The tag leaves order out; a
/// position is only meaningful within one order. The first 64 bits of a SHA-256
/// over keys and digests, so that replicas agree on it without talking.
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
        let at = self.index().get(key)?;
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

    /// The next version, of these items. Those whose text is as it was share
    /// the earlier allocation, digest included: a list that is read anew from a
    /// file or a peer hashes only what differs. Repeated names are kept, as by
    /// [`Self::new`].
    #[must_use]
    pub fn successor(&self, mut items: Vec<Item>) -> Self {
        for item in &mut items {
            if let Some(same) = self
                .get(item.key().as_str())
                .filter(|old| old.text() == item.text())
            {
                *item = same.clone();
            }
        }
        Self::new(self.kind(), items)
    }

    /// Begins the next version. Items that are not touched are shared, digests
    /// included: changing one of ten thousand hashes one.
    #[must_use]
    pub fn edit(&self) -> SnapshotEdit {
        SnapshotEdit::begin(self)
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
    fn a_list_read_from_a_peer_may_repeat_names_and_says_so() {
        let snapshot = tools(&["a", "b", "a", "a"]);
        assert_eq!(snapshot.duplicate_keys(), [ItemKey::new("a")]);
        assert_eq!(snapshot.len(), 4);
    }

    #[test]
    fn a_name_is_found_and_the_first_of_a_repeated_one() {
        let snapshot = Snapshot::new(
            CatalogKind::Tools,
            vec![tool("a", "1"), tool("b", "2"), tool("a", "3")],
        );
        assert_eq!(snapshot.get("a"), Some(&tool("a", "1")));
        assert_eq!(snapshot.get("c"), None);
    }

    #[test]
    fn nothing_is_hashed_before_a_tag_is_asked_for() {
        let snapshot = tools(&["a", "b"]);
        assert!(snapshot.get("b").is_some());
        assert!(snapshot.duplicate_keys().is_empty());
        assert!(snapshot.items().iter().all(|i| !i.is_hashed()));
        assert_eq!(snapshot.tag(), snapshot.clone().tag());
        assert!(snapshot.items().iter().all(Item::is_hashed));
    }

    #[test]
    fn a_list_that_is_read_anew_hashes_only_what_differs() {
        let before = tools(&["a", "b", "c"]);
        let _ = before.tag();
        let items = vec![tool("c", ""), tool("b", "new"), tool("d", "")];
        let after = before.successor(items.clone());
        let hashed: Vec<bool> = after.items().iter().map(Item::is_hashed).collect();
        assert_eq!(hashed, [true, false, false]);
        assert_eq!(after.tag(), Snapshot::new(CatalogKind::Tools, items).tag());
    }

    #[test]
    fn order_is_not_content() {
        let (one, other) = (tools(&["a", "b"]), tools(&["b", "a"]));
        assert!(one.same_content(&other));
        assert!(!one.same_order(&other));
    }
}
