//! What differs between two snapshots.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use crate::digest::Digest;
use crate::item::{Item, ItemKey};
use crate::members::members;
use crate::snapshot::Snapshot;

/// An item whose content differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemChange {
    /// The item.
    pub key: ItemKey,
    /// Its top-level fields that differ, sorted. None where a peer repeats the
    /// name and only the repetitions differ.
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
    /// Compares two versions. Both are whole, so what is not in the later one
    /// was removed. Where a peer repeats a name, all its items count as one.
    #[must_use]
    pub fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let (old, new) = (by_key(before), by_key(after));
        let mut change = Self::default();
        for item in after.items() {
            let (key, group) = (item.key(), &new[item.key()]);
            if !std::ptr::eq(group[0], item) {
                continue;
            }
            match old.get(key) {
                None => change.added.push(key.clone()),
                Some(previous) if !same_items(previous, group) => change.changed.push(ItemChange {
                    key: key.clone(),
                    fields: differing_fields(previous, group),
                }),
                Some(_) => {}
            }
        }
        for item in before.items() {
            if !new.contains_key(item.key()) && std::ptr::eq(old[item.key()][0], item) {
                change.removed.push(item.key().clone());
            }
        }
        let unchanged = change.is_content_empty();
        change.reordered = if unchanged {
            before.items() != after.items()
        } else {
            !common(before, &old, &new).eq(common(after, &new, &old))
        };
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

/// The items of each name, in order; one each, unless a peer repeats names.
type ByKey<'a> = HashMap<&'a ItemKey, Vec<&'a Item>>;

fn by_key(snapshot: &Snapshot) -> ByKey<'_> {
    let mut map = ByKey::with_capacity(snapshot.len());
    for item in snapshot.items() {
        map.entry(item.key()).or_default().push(item);
    }
    map
}

/// The names that the other has too, in order, each once.
fn common<'a>(
    snapshot: &'a Snapshot,
    own: &ByKey<'_>,
    other: &ByKey<'_>,
) -> impl Iterator<Item = &'a ItemKey> {
    snapshot
        .items()
        .iter()
        .filter(|item| std::ptr::eq(own[item.key()][0], *item))
        .map(Item::key)
        .filter(|key| other.contains_key(key))
}

/// Whether two groups of one name hold the same items, in whatever order.
fn same_items(before: &[&Item], after: &[&Item]) -> bool {
    if before == after {
        return true;
    }
    let sorted = |group: &[&Item]| {
        let mut digests: Vec<Digest> = group.iter().map(|i| *i.digest()).collect();
        digests.sort_unstable();
        digests
    };
    before.len() == after.len() && before.len() > 1 && sorted(before) == sorted(after)
}

/// The fields that differ between the first items of two groups.
fn differing_fields(before: &[&Item], after: &[&Item]) -> Vec<String> {
    let (Some(before), Some(after)) = (before.first(), after.first()) else {
        return Vec::new();
    };
    let (before, after) = (fields(before), fields(after));
    before
        .keys()
        .chain(after.keys())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .filter(|field| !same_values(before.get(*field), after.get(*field)))
        .cloned()
        .collect()
}

/// The values of each top-level field, as written; more than one where a field
/// is repeated.
fn fields(item: &Item) -> BTreeMap<String, Vec<&str>> {
    let mut map = BTreeMap::<String, Vec<&str>>::new();
    for (name, value) in members(item.text()).unwrap_or_default() {
        map.entry(name).or_default().push(value.get());
    }
    map
}

fn same_values(before: Option<&Vec<&str>>, after: Option<&Vec<&str>>) -> bool {
    let (Some(before), Some(after)) = (before, after) else {
        return false;
    };
    before.len() == after.len()
        && before
            .iter()
            .zip(after)
            .all(|(one, other)| one == other || Digest::of(one) == Digest::of(other))
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
            let list = names(self.changed.iter().map(|c| match c.fields.as_slice() {
                [] => c.key.to_string(),
                fields => format!("{}: {}", c.key, fields.join(", ")),
            }));
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
    use serde_json::{Value, json};

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

    fn texts(items: &[&str]) -> Snapshot {
        let items = items
            .iter()
            .map(|text| Item::parse(CatalogKind::Tools, text).expect("a tool"))
            .collect();
        Snapshot::new(CatalogKind::Tools, items)
    }

    #[test]
    fn only_fields_whose_content_differs_are_named() {
        let before = texts(&[r#"{"name":"a","n":1,"big":9007199254740992,"x":1e400}"#]);
        let after = texts(&[r#"{"name":"a","n":1.0,"big":9007199254740993,"x":1e400}"#]);
        assert_eq!(
            Change::between(&before, &after).to_string(),
            "1 changed (a: big)"
        );
    }

    #[test]
    fn a_repeated_name_is_compared_with_all_its_items() {
        let (one, two) = (r#"{"name":"a"}"#, r#"{"name":"a","n":2}"#);
        let change = |before: &[&str], after: &[&str]| {
            Change::between(&texts(before), &texts(after)).to_string()
        };
        assert_eq!(change(&[one, two], &[one]), "1 changed (a)");
        assert_eq!(change(&[one, two], &[two, one]), "order changed");
        assert_eq!(change(&[one, two], &[one, two]), "no change");
        assert_eq!(change(&[one, two], &[]), "1 removed (a)");
        assert_eq!(change(&[], &[one, two]), "1 added (a)");
    }
}
