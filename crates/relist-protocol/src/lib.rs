//! The words on the wire: JSON-RPC, the messages of the Model Context Protocol
//! in both eras, and the messages of the experimental list extension.
//!
//! This room knows how a message is spelled and which spellings are legal. What
//! a message means (what is fresh, what may be adopted, who may see it) is the
//! business of the crates above it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`kind`] | the four catalogs and their method and field names |
//! | [`version`] | protocol versions and their two eras |
//! | [`jsonrpc`] | requests, notifications, responses, and what is malformed |
//! | [`error`] | error codes and error objects |
//! | [`meta`] | the reserved `_meta` keys and what a request says of itself |
//! | [`header`] | HTTP header names and the Base64 value encoding |
//! | [`param_header`] | the `x-mcp-header` annotation of tool parameters |
//! | [`list`] | list results as a receiver reads them |
//! | [`message`] | the typed parameters and results of the other methods |
//! | [`extension`] | switches and messages of the list extension |
//!
//! ```
//! use relist_protocol::jsonrpc::{Incoming, Message};
//!
//! let line = br#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
//! let Ok(Incoming::Single(Message::Request(request))) = Incoming::parse(line) else {
//!     panic!("a well-formed request");
//! };
//! assert_eq!(request.method, "tools/list");
//! ```

pub mod error;
pub mod extension;
pub mod header;
pub mod jsonrpc;
pub mod kind;
pub mod list;
pub mod message;
pub mod meta;
pub mod object;
pub mod param_header;
pub mod version;

pub use error::RpcError;
pub use extension::{Switch, Switches};
pub use jsonrpc::RequestId;
pub use kind::CatalogKind;
pub use version::{Era, ProtocolVersion};
