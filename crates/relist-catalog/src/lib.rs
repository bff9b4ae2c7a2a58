//! Catalogs as pure values: no time of its own, no network, no tasks.
//!
//! | module | what it holds |
//! |---|---|
//! | [`item`] | one tool, resource, template or prompt, as the server wrote it |
//! | [`digest`] | what an item's content hashes to, independent of spelling |
//! | [`tag`] | what a whole collection hashes to, independent of order and paging |
//! | [`snapshot`] | one version of a catalog: whole, and never changed |
//! | [`page`] | a snapshot, a page at a time |
//! | [`change`] | what differs between two snapshots |
//! | [`cursor`] | a position in one snapshot, and in no other |
//! | [`history`] | the recent snapshots that cursors and conditional requests may name |
//!
//! ```
//! use relist_catalog::{Change, Item, Snapshot};
//! use relist_protocol::CatalogKind;
//!
//! let tool = |text| Item::parse(CatalogKind::Tools, text).unwrap();
//! let v1 = Snapshot::new(CatalogKind::Tools, vec![tool(r#"{"name":"search"}"#)]);
//! let mut edit = v1.edit();
//! edit.upsert(tool(r#"{"name":"fetch"}"#));
//! let v2 = edit.finish().unwrap();
//! assert_ne!(v1.tag(), v2.tag());
//! assert_eq!(Change::between(&v1, &v2).to_string(), "1 added (fetch)");
//! ```

pub mod change;
pub mod cursor;
pub mod digest;
pub mod history;
pub mod item;
mod lossless;
mod members;
pub mod page;
pub mod snapshot;
pub mod tag;

pub use change::{Change, ItemChange};
pub use cursor::{Cursor, CursorError};
pub use digest::Digest;
pub use history::{History, HistoryLimits};
pub use item::{Item, ItemError, ItemKey};
pub use page::{Page, PageSize};
pub use snapshot::{DuplicateKey, OrderFingerprint, Snapshot, SnapshotEdit};
pub use tag::{EntityTag, TagError, TagForm, tag_of_value};
