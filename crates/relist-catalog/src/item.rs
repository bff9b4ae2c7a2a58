//! One tool, resource, template or prompt, kept exactly as the server wrote it.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use relist_protocol::CatalogKind;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::digest::Digest;
use crate::members::{KeyField, key_field};

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

/// A map by key is asked with a plain text, without making a key of it.
impl Borrow<str> for ItemKey {
    fn borrow(&self) -> &str {
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
#[non_exhaustive]
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
    /// The field that names the item is there more than once.
    #[error("a {noun} names itself once, and `{field}` is repeated")]
    RepeatedKey {
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

impl Item {
    /// Reads an item from the text of one JSON object, which is kept as given
    /// (without the white space around it). Only the field that names the item
    /// is read, and nothing is hashed.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when the text is not a JSON object, or has no field that
    /// names it, or has it twice, or has something else than a string there.
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
        let (noun, field) = (kind.noun(), kind.key_field());
        let key = match key_field(raw.get(), field) {
            Ok(KeyField::Text(key)) => key,
            Ok(KeyField::Missing | KeyField::NotText) => {
                return Err(ItemError::NoKey { noun, field });
            }
            Ok(KeyField::Repeated) => return Err(ItemError::RepeatedKey { noun, field }),
            Err(e) => {
                let reason = e.to_string();
                return Err(ItemError::NotAnObject { noun, reason });
            }
        };
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

    /// The item, parsed. `null` for one that holds what no value can: a number
    /// beyond the range of a double, a lone surrogate, a depth of more than 127.
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

    /// The digest of the item's content, computed when it is first asked for.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        self.0.digest.get_or_init(|| Digest::of(self.text()))
    }

    #[cfg(test)]
    pub(crate) fn is_hashed(&self) -> bool {
        self.0.digest.get().is_some()
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
    fn an_item_that_names_itself_twice_is_refused() {
        assert_eq!(
            Item::parse(CatalogKind::Tools, r#"{"name":"a","name":"b"}"#),
            Err(ItemError::RepeatedKey {
                noun: "tool",
                field: "name"
            })
        );
    }

    #[test]
    fn an_item_that_canonical_form_cannot_hold_is_kept_as_it_is() {
        for text in [
            r#"{"name":"a","x":9007199254740993}"#,
            r#"{"name":"a","x":1e400}"#,
            r#"{"name":"a","uri":"1","uri":"2"}"#,
            r#"{"name":"a","x":"\ud83d"}"#,
            r#"{"\ude00\ud83d":1,"name":"a"}"#,
        ] {
            let item = Item::parse(CatalogKind::Tools, text).expect(text);
            assert_eq!(item.text(), text);
            assert!(!item.digest().is_canonical(), "{text}");
            assert_eq!(item.canonical_text(), text);
        }
    }

    #[test]
    fn an_item_that_is_only_read_and_compared_with_itself_is_not_hashed() {
        let text = r#"{"name":"a"}"#;
        let one = Item::parse(CatalogKind::Tools, text).expect("a tool");
        let two = Item::parse(CatalogKind::Tools, text).expect("a tool");
        assert_eq!(one, two);
        assert_ne!(
            one,
            Item::parse(CatalogKind::Tools, r#"{"name":"b"}"#).expect("a tool")
        );
        assert!(!one.is_hashed() && !two.is_hashed());
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
