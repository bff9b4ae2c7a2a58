//! One tool, resource, template or prompt, kept exactly as the server wrote it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use relist_protocol::CatalogKind;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::digest::Digest;

/// What names an item within its catalog.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemKey(Arc<str>);

impl ItemKey {
    /// A key, as it stands in the key field of an item.
    #[must_use]
    pub fn new(key: &str) -> Self {
        Self(key.into())
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ItemKey {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ItemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is not an item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// The text is not one JSON object.
    #[error("a {noun} is a JSON object: {reason}")]
    NotAnObject {
        /// The word for the item.
        noun: &'static str,
        /// What the parser said.
        reason: String,
    },
    /// The field that names the item is missing or not a string.
    #[error("a {noun} has a string in `{field}`")]
    NoKey {
        /// The word for the item.
        noun: &'static str,
        /// The field.
        field: &'static str,
    },
}

/// An item. Cheap to clone; equal when key and canonical content are equal.
///
/// Its digest is computed when it is first asked for, and kept: a client that
/// uses no tags never hashes.
#[derive(Clone)]
pub struct Item(Arc<Inner>);

struct Inner {
    key: ItemKey,
    raw: Box<RawValue>,
    digest: OnceLock<Digest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Keys<'a> {
    #[serde(default, borrow)]
    name: Option<&'a RawValue>,
    #[serde(default, borrow)]
    uri: Option<&'a RawValue>,
    #[serde(default, borrow)]
    uri_template: Option<&'a RawValue>,
}

impl Item {
    /// Reads an item from the text of one JSON object.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when the text is not a JSON object or does not name itself.
    pub fn parse(kind: CatalogKind, text: &str) -> Result<Self, ItemError> {
        let raw: Box<RawValue> =
            serde_json::from_str(text).map_err(|e| ItemError::NotAnObject {
                noun: kind.noun(),
                reason: e.to_string(),
            })?;
        Self::own(kind, raw)
    }

    /// Reads an item that stands within a larger message.
    ///
    /// # Errors
    ///
    /// As for [`Self::parse`].
    pub fn from_raw(kind: CatalogKind, raw: &RawValue) -> Result<Self, ItemError> {
        Self::own(kind, raw.to_owned())
    }

    /// Makes an item of a value.
    ///
    /// # Errors
    ///
    /// As for [`Self::parse`].
    pub fn from_value(kind: CatalogKind, value: &Value) -> Result<Self, ItemError> {
        let raw = serde_json::value::to_raw_value(value).map_err(|e| ItemError::NotAnObject {
            noun: kind.noun(),
            reason: e.to_string(),
        })?;
        Self::own(kind, raw)
    }

    fn own(kind: CatalogKind, raw: Box<RawValue>) -> Result<Self, ItemError> {
        // serde would read a struct from an array, too.
        if !raw.get().starts_with('{') {
            return Err(ItemError::NotAnObject {
                noun: kind.noun(),
                reason: "it is another JSON value".to_owned(),
            });
        }
        let keys: Keys<'_> =
            serde_json::from_str(raw.get()).map_err(|e| ItemError::NotAnObject {
                noun: kind.noun(),
                reason: e.to_string(),
            })?;
        let key = match kind {
            CatalogKind::Tools | CatalogKind::Prompts => keys.name,
            CatalogKind::Resources => keys.uri,
            CatalogKind::ResourceTemplates => keys.uri_template,
        };
        let key: String =
            key.and_then(|k| serde_json::from_str(k.get()).ok())
                .ok_or(ItemError::NoKey {
                    noun: kind.noun(),
                    field: kind.key_field(),
                })?;
        Ok(Self(Arc::new(Inner {
            key: ItemKey(key.into()),
            raw,
            digest: OnceLock::new(),
        })))
    }

    /// What names the item.
    #[must_use]
    pub fn key(&self) -> &ItemKey {
        &self.0.key
    }

    /// The item as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.raw.get()
    }

    /// The item as raw JSON.
    #[must_use]
    pub fn raw(&self) -> &RawValue {
        &self.0.raw
    }

    /// The item, parsed. `null` for one that holds what no value can (a number
    /// beyond the range of a double).
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_str(self.text()).unwrap_or_default()
    }

    /// The item in canonical form (RFC 8785), the same whatever the order of
    /// its members; as it was written, where canonical form would lose something.
    #[must_use]
    pub fn canonical_text(&self) -> String {
        crate::digest::canonical(self.text()).unwrap_or_else(|| self.text().to_owned())
    }

    /// The digest of the item's content, computed once.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        self.0.digest.get_or_init(|| Digest::of(self.text()))
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Item").field(&self.0.key.as_str()).finish()
    }
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.key() == other.key()
                && (self.text() == other.text() || self.digest() == other.digest()))
    }
}

impl Eq for Item {}

impl Hash for Item {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.digest().hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_without_its_key_is_refused() {
        for (kind, text) in [
            (CatalogKind::Tools, r#"{"title":"x"}"#),
            (CatalogKind::Tools, r#"{"name":7}"#),
            (CatalogKind::Resources, r#"{"name":"x"}"#),
            (CatalogKind::ResourceTemplates, r#"{"uri":"x"}"#),
        ] {
            assert!(
                matches!(Item::parse(kind, text), Err(ItemError::NoKey { .. })),
                "{text}"
            );
        }
        for text in ["[]", "7", "{", "{} {}"] {
            assert!(
                matches!(
                    Item::parse(CatalogKind::Tools, text),
                    Err(ItemError::NotAnObject { .. })
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn items_are_equal_by_content_not_by_spelling() {
        let tool = |text| Item::parse(CatalogKind::Tools, text).expect("a tool");
        let one = tool(r#"{"name":"a","description":"é"}"#);
        let two = tool("{ \"description\": \"\\u00e9\",\n \"name\": \"a\" }");
        assert_eq!(one, two);
        assert_eq!(one.canonical_text(), two.canonical_text());
        assert_ne!(one, tool(r#"{"name":"a","description":"e"}"#));
    }
}
