//! From one version of a catalog to the next.

use std::collections::HashMap;

use relist_protocol::CatalogKind;

use super::Snapshot;
use crate::item::{Item, ItemKey};

/// Two items of one name, where each name may appear once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two {kind} are named {key:?}")]
pub struct DuplicateKey {
    /// The catalog.
    pub kind: CatalogKind,
    /// The repeated name.
    pub key: String,
}

/// The next version of a catalog, in the making.
#[derive(Debug, Clone)]
pub struct SnapshotEdit {
    kind: CatalogKind,
    /// Removed items leave a hole until the end, so that the index stays right.
    items: Vec<Option<Item>>,
    index: HashMap<ItemKey, usize>,
    /// Names that still stand more than once.
    repeated: Vec<ItemKey>,
}

impl SnapshotEdit {
    pub(super) fn begin(snapshot: &Snapshot) -> Self {
        Self {
            kind: snapshot.kind(),
            items: snapshot.items().iter().cloned().map(Some).collect(),
            index: snapshot.index().clone(),
            repeated: snapshot.duplicate_keys(),
        }
    }

    /// Replaces the item of the same name in its place, or appends a new one.
    /// Where the name stood more than once, it stands once after that.
    pub fn upsert(&mut self, item: Item) {
        let key = item.key().clone();
        let at = *self.index.entry(key.clone()).or_insert(self.items.len());
        match self.items.get_mut(at) {
            Some(place) => *place = Some(item),
            None => self.items.push(Some(item)),
        }
        self.clear_repetitions(key.as_str(), Some(at));
    }

    /// Removes the item of the name, all of them if it is repeated; answers
    /// whether there was one.
    pub fn remove(&mut self, key: &str) -> bool {
        let Some(at) = self.index.remove(key) else {
            return false;
        };
        self.items[at] = None;
        self.clear_repetitions(key, None);
        true
    }

    fn clear_repetitions(&mut self, key: &str, keep: Option<usize>) {
        let Some(known) = self.repeated.iter().position(|k| k.as_str() == key) else {
            return;
        };
        self.repeated.remove(known);
        for (at, place) in self.items.iter_mut().enumerate() {
            if Some(at) != keep {
                place.take_if(|item| item.key().as_str() == key);
            }
        }
    }

    /// The item of the name, as the edit has it so far.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Item> {
        self.items[*self.index.get(key)?].as_ref()
    }

    /// Replaces everything, order included. Items whose text is as it was stay
    /// shared, as by [`Snapshot::successor`].
    pub fn replace_all(&mut self, items: Vec<Item>) {
        let before = std::mem::take(&mut self.items);
        let before = Snapshot::new(self.kind, before.into_iter().flatten().collect());
        *self = before.successor(items).edit();
    }

    /// The new version.
    ///
    /// # Errors
    ///
    /// [`DuplicateKey`] when two items have one name.
    pub fn finish(self) -> Result<Snapshot, DuplicateKey> {
        if let Some(key) = self.repeated.first() {
            return Err(DuplicateKey {
                kind: self.kind,
                key: key.to_string(),
            });
        }
        let has_holes = self.index.len() != self.items.len();
        let snapshot = Snapshot::new(self.kind, self.items.into_iter().flatten().collect());
        if !has_holes {
            // Every place is still the right one.
            let _ = snapshot.0.index.set(self.index);
        }
        Ok(snapshot)
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

    fn names(snapshot: &Snapshot) -> Vec<&str> {
        snapshot.items().iter().map(|i| i.key().as_str()).collect()
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
    fn an_edit_may_put_right_what_a_peer_repeated() {
        let peer = tools(&["a", "b", "a", "c", "a"]);
        assert!(peer.edit().finish().is_err());

        let mut edit = peer.edit();
        assert!(edit.remove("a"));
        assert_eq!(names(&edit.finish().expect("unique")), ["b", "c"]);

        let mut edit = peer.edit();
        edit.upsert(tool("a", "one"));
        assert_eq!(names(&edit.finish().expect("unique")), ["a", "b", "c"]);
    }

    #[test]
    fn a_name_is_found_after_every_kind_of_edit() {
        let mut edit = tools(&["a", "b", "c"]).edit();
        edit.upsert(tool("b", "new"));
        edit.upsert(tool("d", ""));
        let grown = edit.finish().expect("unique");
        assert_eq!(grown.get("b"), Some(&tool("b", "new")));
        assert_eq!(grown.get("d"), Some(&tool("d", "")));

        let mut edit = grown.edit();
        edit.remove("a");
        edit.upsert(tool("a", "back"));
        let moved = edit.finish().expect("unique");
        assert_eq!(names(&moved), ["b", "c", "d", "a"]);
        for (at, name) in names(&moved).into_iter().enumerate() {
            assert_eq!(moved.get(name), moved.items().get(at));
        }
    }

    #[test]
    fn changing_one_of_ten_thousand_hashes_one() {
        let items = (0..10_000).map(|n| tool(&format!("t{n}"), "")).collect();
        let before = Snapshot::new(CatalogKind::Tools, items);
        let _ = before.tag();
        let mut edit = before.edit();
        edit.upsert(tool("t5000", "new"));
        let after = edit.finish().expect("unique");
        let unhashed = after.items().iter().filter(|i| !i.is_hashed()).count();
        assert_eq!(unhashed, 1);
        assert_ne!(after.tag(), before.tag());
    }
}
