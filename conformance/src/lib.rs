//! What the two programs of this package share: the items that the official
//! conformance suite asks for by name. `FIXTURES.md` lists them with what the
//! suite expects of each, and `suite.sh` runs it.

pub mod content;
pub mod definitions;
pub mod input;
pub mod questions;
pub mod seal;
