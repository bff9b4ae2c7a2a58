//! What a whole collection hashes to (draft: Definition Tags).
//!
//! Independent of order, paging and lifetime, so that replicas agree without
//! talking to each other and a receiver can verify what it got:
//!
//! ```text
//! "sha256:" + base64url( SHA-256( "relist/definition-tag/1\0"
//!     ‖ length of the method, 8 bytes ‖ method      such as tools/list
//!     ‖ number of items, 8 bytes
//!     ‖ 32 bytes of each item's digest, sorted by key (as UTF-8) and digest ) )
//! ```
//!
//! Numbers are big-endian, base64url is unpadded. The form is `opaque:` where
//! an item has no canonical form.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use relist_protocol::CatalogKind;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::item::ItemKey;

/// Separates tags from every other use of SHA-256, and versions their form.
const DOMAIN: &[u8] = b"relist/definition-tag/1\0";

const VERIFIABLE: &str = "sha256:";
const OPAQUE: &str = "opaque:";

/// The longest tag that is taken from a peer, in bytes.
pub const MAX_TAG: usize = 1024;

/// Identifies the content of a catalog. Opaque to everybody but its maker,
/// unless its form is known ([`EntityTag::form`]).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntityTag(Arc<str>);

/// Whether a receiver can recompute a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TagForm {
    /// Yes, as [`EntityTag::of`] does.
    Verifiable,
    /// No: it is compared and nothing else.
    Opaque,
}

/// Why a text is not accepted as a tag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TagError {
    /// An empty text identifies nothing.
    #[error("a tag is not empty")]
    Empty,
    /// Longer than [`MAX_TAG`].
    #[error("a tag of {0} bytes; at most {MAX_TAG} are taken")]
    TooLong(usize),
}

impl EntityTag {
    /// Takes a tag from a peer.
    ///
    /// # Errors
    ///
    /// [`TagError`] when it is empty or longer than [`MAX_TAG`].
    pub fn new(tag: impl AsRef<str>) -> Result<Self, TagError> {
        match tag.as_ref() {
            "" => Err(TagError::Empty),
            long if long.len() > MAX_TAG => Err(TagError::TooLong(long.len())),
            tag => Ok(Self(tag.into())),
        }
    }

    /// The tag of a collection: a hash over its size and the digests of its
    /// items, sorted by key and then by digest.
    #[must_use]
    pub fn of<'a>(
        kind: CatalogKind,
        items: impl Iterator<Item = (&'a ItemKey, &'a Digest)>,
    ) -> Self {
        let mut sorted: Vec<(&ItemKey, &Digest)> = items.collect();
        sorted.sort_unstable();
        let mut hash = start(kind.list_method());
        hash.update((sorted.len() as u64).to_be_bytes());
        for (_, digest) in &sorted {
            hash.update(digest.bytes());
        }
        let verifiable = sorted.iter().all(|(_, d)| d.is_canonical());
        Self::finish(hash, verifiable)
    }

    fn finish(hash: Sha256, verifiable: bool) -> Self {
        let form = if verifiable { VERIFIABLE } else { OPAQUE };
        let text = URL_SAFE_NO_PAD.encode(hash.finalize());
        Self(format!("{form}{text}").into())
    }

    /// The tag as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a receiver can recompute the tag.
    #[must_use]
    pub fn form(&self) -> TagForm {
        let is_hash = |rest: &str| {
            rest.len() == 43
                && rest
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        match self.0.strip_prefix(VERIFIABLE) {
            Some(rest) if is_hash(rest) => TagForm::Verifiable,
            _ => TagForm::Opaque,
        }
    }
}

impl fmt::Display for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn start(method: &str) -> Sha256 {
    Sha256::new()
        .chain_update(DOMAIN)
        .chain_update((method.len() as u64).to_be_bytes())
        .chain_update(method.as_bytes())
}

/// The tag of a result that is one value, such as that of `server/discover`.
#[must_use]
pub fn tag_of_value(method: &str, value: &Value) -> EntityTag {
    let digest = Digest::of(&value.to_string());
    let hash = start(method).chain_update(digest.bytes());
    EntityTag::finish(hash, digest.is_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_collection_has_a_tag_and_each_catalog_its_own() {
        let empty = |kind| EntityTag::of(kind, std::iter::empty());
        assert_eq!(empty(CatalogKind::Tools).form(), TagForm::Verifiable);
        assert_ne!(empty(CatalogKind::Tools), empty(CatalogKind::Prompts));
    }

    /// Computed by another program in another language, from the text of the
    /// module: these tags may change only with [`DOMAIN`].
    #[test]
    fn tags_are_what_another_program_computes() {
        let tag = |items: &[(&str, &str)]| {
            let items: Vec<(ItemKey, Digest)> = items
                .iter()
                .map(|(key, text)| (ItemKey::new(key), Digest::of(text)))
                .collect();
            EntityTag::of(CatalogKind::Tools, items.iter().map(|(k, d)| (k, d)))
        };
        assert_eq!(
            tag(&[]).as_str(),
            "sha256:UC_vErfCLNE1gotZom34Z_kOmUNfzhqzw1dW61XvsKg"
        );
        let a = ("a", r#"{"name":"a"}"#);
        let b = ("b", r#"{"name":"b","description":"\u00e9"}"#);
        for items in [[a, b], [b, a]] {
            assert_eq!(
                tag(&items).as_str(),
                "sha256:wVgOUOher5EHJPydSAJtmxgscIv44npgVc3VIEzbvS0"
            );
        }
    }

    #[test]
    fn one_opaque_item_makes_the_tag_opaque() {
        let key = ItemKey::new("a");
        let digest = Digest::of("9007199254740993");
        let tag = EntityTag::of(CatalogKind::Tools, std::iter::once((&key, &digest)));
        assert!(tag.as_str().starts_with("opaque:"));
        assert_eq!(tag.form(), TagForm::Opaque);
    }

    #[test]
    fn foreign_tags_are_opaque_and_bounded() {
        for tag in ["W/\"7\"", "sha256:short", "sha256:", "v1"] {
            assert_eq!(EntityTag::new(tag).expect(tag).form(), TagForm::Opaque);
        }
        assert_eq!(EntityTag::new(""), Err(TagError::Empty));
        let long = "x".repeat(MAX_TAG + 1);
        assert_eq!(EntityTag::new(long), Err(TagError::TooLong(MAX_TAG + 1)));
    }

    #[test]
    fn the_tag_of_a_value_does_not_depend_on_member_order() {
        let tag = |text| {
            tag_of_value(
                "server/discover",
                &serde_json::from_str(text).expect("JSON"),
            )
        };
        assert_eq!(tag(r#"{"a":1,"b":2}"#), tag(r#"{"b":2,"a":1}"#));
        assert_ne!(tag(r#"{"a":1}"#), tag(r#"{"a":2}"#));
    }
}
