//! How bytes travel: HTTP bodies, event streams, the pipes of a program.
//!
//! | module | what it holds |
//! |---|---|
//! | `http` | one HTTP exchange: headers, redirects, tokens, statuses |
//! | `body` | a response body, counted as it came and decompressed |
//! | [`sse`] | events out of bytes, with limits and keep-alives |
//! | `retry_after` | a header that is seconds or a date |
//! | `line` | lines out of bytes, with limits |
//! | `stdio` | a program and its pipes |

pub(crate) mod body;
pub(crate) mod http;
pub(crate) mod line;
pub(crate) mod retry_after;
pub mod sse;
pub(crate) mod stdio;
