//! A position in one snapshot, and in no other.
//!
//! A cursor carries the tag, the fingerprint of the order and a position, and
//! needs no state on the server: any replica that holds the same content in
//! the same order continues the walk. It is not signed, since it grants
//! nothing: whoever forges one names a page that the list would give anyway.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use relist_protocol::CatalogKind;
use sha2::{Digest as _, Sha256};

use crate::history::History;
use crate::snapshot::{OrderFingerprint, Snapshot};
use crate::tag::EntityTag;

/// Names a page of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    kind: CatalogKind,
    tag: EntityTag,
    order: OrderFingerprint,
    position: u32,
}

/// Why a cursor is refused. A client starts over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CursorError {
    /// Not one of ours, or damaged on the way.
    #[error("the cursor is malformed")]
    Malformed,
    /// It belongs to another list.
    #[error("the cursor belongs to {found}, not to {expected}")]
    OtherCatalog {
        /// The list that was asked for.
        expected: CatalogKind,
        /// The list that the cursor belongs to.
        found: CatalogKind,
    },
    /// Its snapshot is no longer kept, or never was.
    #[error("the list has changed and the cursor's version is no longer kept; start over")]
    SnapshotGone,
    /// Its content is kept, and in another order: a position means another
    /// item there.
    #[error("the list is kept in another order than the cursor's; start over")]
    OtherOrder,
    /// It points behind the end.
    #[error("the cursor points behind the end of the list")]
    OutOfRange,
}

const VERSION: u8 = 1;
const CHECKSUM: usize = 4;
const MAX_ENCODED: usize = 512;

impl Cursor {
    pub(crate) fn at(snapshot: &Snapshot, position: usize) -> Self {
        Self {
            kind: snapshot.kind(),
            tag: snapshot.tag().clone(),
            order: snapshot.order(),
            // A snapshot of four billion items does not fit into memory.
            position: u32::try_from(position).unwrap_or(u32::MAX),
        }
    }

    /// The cursor as text, for `nextCursor`: base64url of a version byte, the
    /// list, the position, the order, the tag and a checksum. Equal on every
    /// replica that holds the same content in the same order.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut bytes = vec![VERSION, kind_byte(self.kind)];
        bytes.extend(self.position.to_be_bytes());
        bytes.extend(self.order.bytes());
        bytes.extend(self.tag.as_str().as_bytes());
        let sum = checksum(&bytes);
        bytes.extend(sum);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads a cursor.
    ///
    /// # Errors
    ///
    /// [`CursorError::Malformed`] for what [`Self::encode`] never wrote: no
    /// base64, longer than 512 bytes, cut short, or altered.
    pub fn decode(text: &str) -> Result<Self, CursorError> {
        Self::read(text).ok_or(CursorError::Malformed)
    }

    fn read(text: &str) -> Option<Self> {
        if text.len() > MAX_ENCODED {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (content, sum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM)?)?;
        if checksum(content) != *sum {
            return None;
        }
        let (&[VERSION, kind], rest) = content.split_first_chunk::<2>()? else {
            return None;
        };
        let kind = CatalogKind::ALL
            .into_iter()
            .find(|k| kind_byte(*k) == kind)?;
        let (position, rest) = rest.split_first_chunk::<4>()?;
        let (order, tag) = rest.split_first_chunk::<8>()?;
        Some(Self {
            kind,
            tag: EntityTag::new(std::str::from_utf8(tag).ok()?).ok()?,
            order: OrderFingerprint::from_bytes(*order),
            position: u32::from_be_bytes(*position),
        })
    }

    /// The snapshot that the cursor belongs to, and the position in it.
    ///
    /// # Errors
    ///
    /// [`CursorError`] when the cursor belongs to another list, when its
    /// snapshot is not kept or is kept in another order only, or when it points
    /// behind the end.
    pub fn resolve(
        &self,
        kind: CatalogKind,
        history: &History,
    ) -> Result<(Snapshot, usize), CursorError> {
        if self.kind != kind {
            return Err(CursorError::OtherCatalog {
                expected: kind,
                found: self.kind,
            });
        }
        let snapshot = history.find_exact(&self.tag, self.order).ok_or_else(|| {
            match history.find(&self.tag) {
                Some(_) => CursorError::OtherOrder,
                None => CursorError::SnapshotGone,
            }
        })?;
        let position = self.position as usize;
        // A cursor is only ever given for a page that has items.
        if position >= snapshot.len() {
            return Err(CursorError::OutOfRange);
        }
        Ok((snapshot, position))
    }
}

/// Written out, so that a replica of another build reads the same.
const fn kind_byte(kind: CatalogKind) -> u8 {
    match kind {
        CatalogKind::Tools => 0,
        CatalogKind::Resources => 1,
        CatalogKind::ResourceTemplates => 2,
        CatalogKind::Prompts => 3,
    }
}

/// Tells damage, not forgery: whoever forges a cursor gains nothing.
fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let mut sum = [0; CHECKSUM];
    let hash = Sha256::new()
        .chain_update(b"relist/cursor/1\0")
        .chain_update(bytes)
        .finalize();
    sum.copy_from_slice(&hash[..CHECKSUM]);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::HistoryLimits;
    use crate::item::Item;

    fn snapshot(names: &[&str]) -> Snapshot {
        let tool = |name: &&str| {
            Item::from_value(CatalogKind::Tools, &serde_json::json!({ "name": name }))
        };
        let items = names.iter().map(tool).collect::<Result<_, _>>();
        Snapshot::new(CatalogKind::Tools, items.expect("tools"))
    }

    fn sealed(mut bytes: Vec<u8>) -> String {
        let sum = checksum(&bytes);
        bytes.extend(sum);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    #[test]
    fn every_list_has_a_cursor_of_its_own() {
        for kind in CatalogKind::ALL {
            let cursor = Cursor {
                kind,
                ..Cursor::at(&snapshot(&["a", "b"]), 1)
            };
            assert_eq!(Cursor::decode(&cursor.encode()), Ok(cursor));
        }
    }

    #[test]
    fn a_cursor_of_another_version_or_list_or_length_is_malformed() {
        let ours = Cursor::at(&snapshot(&["a", "b"]), 1).encode();
        let bytes = URL_SAFE_NO_PAD.decode(&ours).expect("base64");
        let content = &bytes[..bytes.len() - CHECKSUM];
        assert!(Cursor::decode(&sealed(content.to_vec())).is_ok());

        let with = |at: usize, byte: u8| {
            let mut content = content.to_vec();
            content[at] = byte;
            Cursor::decode(&sealed(content))
        };
        assert_eq!(with(0, VERSION + 1), Err(CursorError::Malformed));
        assert_eq!(with(1, 4), Err(CursorError::Malformed));
        // The first byte of the tag: no longer UTF-8.
        assert_eq!(with(14, 0xff), Err(CursorError::Malformed));
        // Every truncation, under a checksum that fits; the last leaves a tag.
        for cut in 0..=14 {
            assert_eq!(
                Cursor::decode(&sealed(content[..cut].to_vec())),
                Err(CursorError::Malformed)
            );
        }
        for cut in 0..ours.len() {
            assert_eq!(Cursor::decode(&ours[..cut]), Err(CursorError::Malformed));
        }
        let mut long = content.to_vec();
        long.resize(MAX_ENCODED, b'x');
        assert_eq!(Cursor::decode(&sealed(long)), Err(CursorError::Malformed));
    }

    #[test]
    fn a_cursor_behind_the_end_is_out_of_range() {
        let list = snapshot(&["a", "b"]);
        let history = History::new(list.clone(), HistoryLimits::default());
        let resolve = |position| {
            let cursor = Cursor {
                position,
                ..Cursor::at(&list, 1)
            };
            cursor
                .resolve(CatalogKind::Tools, &history)
                .map(|(_, at)| at)
        };
        assert_eq!(resolve(1), Ok(1));
        assert_eq!(resolve(2), Err(CursorError::OutOfRange));
        assert_eq!(resolve(u32::MAX), Err(CursorError::OutOfRange));
    }
}
