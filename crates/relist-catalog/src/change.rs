//! What differs between two snapshots.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use serde_json::Value;

use crate::item::{Item, ItemKey};
use crate::snapshot::Snapshot;

/// An item whose content differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemChange {
    /// The item.
    pub key: ItemKey,
    /// Its top-level fields that differ, sorted.
    pub fields: Vec<String>,
}

/// What differs between two whole versions of a catalog.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Change {
    /// In the later version only.
    pub added: Vec<ItemKey>,
    /// In the earlier version only.
    pub removed: Vec<ItemKey>,
    /// In both, with different content.
    pub changed: Vec<ItemChange>,
    /// Whether the items that both have stand in another order.
    pub reordered: bool,
}

impl Change {
    /// Compares two versions.
    #[must_use]
    pub fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let mut change = Self::default();
        let old: HashMap<&ItemKey, &Item> = first_of_each(before);
        let new: HashMap<&ItemKey, &Item> = first_of_each(after);
        for item in after.items() {
            if !std::ptr::eq(new[item.key()], item) {
                continue;
            }
            match old.get(item.key()) {
                None => change.added.push(item.key().clone()),
                Some(previous) if *previous != item => change.changed.push(ItemChange {
                    key: item.key().clone(),
                    fields: differing_fields(previous, item),
                }),
                Some(_) => {}
            }
        }
        for item in before.items() {
            if !new.contains_key(item.key()) && std::ptr::eq(old[item.key()], item) {
                change.removed.push(item.key().clone());
            }
        }
        let order = |list: &'_ [Item], other: &HashMap<&ItemKey, &Item>| -> Vec<ItemKey> {
            list.iter()
                .map(Item::key)
                .filter(|k| other.contains_key(k))
                .cloned()
                .collect()
        };
        change.reordered = order(before.items(), &new) != order(after.items(), &old);
        change
    }

    /// Whether nothing differs, order included.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.reordered && self.is_content_empty()
    }

    /// Whether the content is the same; the order may differ.
    #[must_use]
    pub fn is_content_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

fn first_of_each(snapshot: &Snapshot) -> HashMap<&ItemKey, &Item> {
    let mut map = HashMap::with_capacity(snapshot.len());
    for item in snapshot.items() {
        map.entry(item.key()).or_insert(item);
    }
    map
}

fn differing_fields(before: &Item, after: &Item) -> Vec<String> {
    let (Value::Object(before), Value::Object(after)) = (before.value(), after.value()) else {
        return Vec::new();
    };
    before
        .keys()
        .chain(after.keys())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .filter(|field| before.get(*field) != after.get(*field))
        .cloned()
        .collect()
}

/// Names shown before a list is cut short.
const SHOWN: usize = 5;

fn names<'a>(keys: impl ExactSizeIterator<Item = String> + 'a) -> String {
    let total = keys.len();
    let mut shown: Vec<String> = keys.take(SHOWN).collect();
    if total > SHOWN {
        shown.push(format!("and {} more", total - SHOWN));
    }
    shown.join(", ")
}

impl fmt::Display for Change {
    /// One line for a person: `2 added (a, b), 1 changed (c: description)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.added.is_empty() {
            let list = names(self.added.iter().map(ToString::to_string));
            parts.push(format!("{} added ({list})", self.added.len()));
        }
        if !self.removed.is_empty() {
            let list = names(self.removed.iter().map(ToString::to_string));
            parts.push(format!("{} removed ({list})", self.removed.len()));
        }
        if !self.changed.is_empty() {
            let list = names(
                self.changed
                    .iter()
                    .map(|c| format!("{}: {}", c.key, c.fields.join(", "))),
            );
            parts.push(format!("{} changed ({list})", self.changed.len()));
        }
        if self.reordered {
            parts.push("order changed".to_owned());
        }
        if parts.is_empty() {
            return f.write_str("no change");
        }
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use relist_protocol::CatalogKind;
    use serde_json::json;

    use super::*;

    fn snapshot(items: &[Value]) -> Snapshot {
        let items = items
            .iter()
            .map(|v| Item::from_value(CatalogKind::Tools, v).expect("a tool"))
            .collect();
        Snapshot::new(CatalogKind::Tools, items)
    }

    #[test]
    fn every_kind_of_change_is_named() {
        let before = snapshot(&[
            json!({"name": "a", "description": "x", "inputSchema": {}}),
            json!({"name": "b"}),
            json!({"name": "c"}),
        ]);
        let after = snapshot(&[
            json!({"name": "c"}),
            json!({"name": "a", "description": "y", "inputSchema": {"type": "object"}}),
            json!({"name": "d"}),
        ]);
        assert_eq!(
            Change::between(&before, &after).to_string(),
            "1 added (d), 1 removed (b), 1 changed (a: description, inputSchema), order changed"
        );
        assert_eq!(Change::between(&before, &before).to_string(), "no change");
    }

    #[test]
    fn another_spelling_is_no_change() {
        let one = Item::parse(CatalogKind::Tools, r#"{"name":"a","n":1}"#).expect("a tool");
        let two = Item::parse(CatalogKind::Tools, r#"{"n":1.0, "name":"a"}"#).expect("a tool");
        let (one, two) = (
            Snapshot::new(CatalogKind::Tools, vec![one]),
            Snapshot::new(CatalogKind::Tools, vec![two]),
        );
        assert!(Change::between(&one, &two).is_empty());
    }
}
