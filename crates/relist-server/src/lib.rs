//! Serves catalogs that change while clients are connected, over Streamable
//! HTTP and stdio, in both eras of the protocol on one endpoint.
//!
//! ```no_run
//! use relist_protocol::{CatalogKind, RpcError, message::Implementation};
//! use relist_server::{Context, HttpOptions, Server, ToolCall, ToolOutput};
//! use serde_json::json;
//!
//! async fn hello(call: ToolCall, _: Context) -> Result<ToolOutput, RpcError> {
//!     Ok(ToolOutput::text(format!("hello, {}", call.text("name").unwrap_or("you"))))
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
//! let server = Server::builder(Implementation::new("demo", "1.0"))
//!     .tool(json!({"name": "hello", "inputSchema": schema}), hello)
//!     .build()?;
//! server.commit(|c| {
//!     c.remove(CatalogKind::Tools, "hello");
//!     c.upsert_tool(json!({"name": "hi", "inputSchema": schema}), hello);
//! })?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! server.serve_http(listener, HttpOptions::default(), std::future::pending()).await?;
//! # Ok(()) }
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`options`] | what an operator sets |
//! | [`builder`], [`server`] | a server, from its definitions to its end |
//! | [`handler`], [`context`], [`output`] | what answers a request, what it knows, what it says |
//! | [`seal`] | state that goes through the client unaltered |
//! | `catalogs` | versions, commits, pages made once |
//! | `hints` | who is told of changes, and when |
//! | `dispatch`, `lists`, `calls`, `listen` | from a method to its answer |
//! | `http`, `stdio` | the two transports |

pub mod builder;
mod calls;
mod catalogs;
pub mod context;
mod dispatch;
pub mod handler;
mod hints;
mod http;
mod listen;
mod lists;
pub mod options;
pub mod output;
mod peer;
mod prepared;
mod schema;
pub mod seal;
pub mod server;
mod stdio;
mod template;

pub use builder::{BuildError, ServerBuilder};
pub use catalogs::{Changed, Commit, CommitError, Edit};
pub use context::Context;
pub use handler::{Handler, PromptCall, ReadCall, ToolCall};
pub use http::bind;
pub use options::{Allowed, CacheScope, CatalogOptions, HttpOptions, StdioOptions};
pub use output::{CompletionOutput, InputRequired, PromptOutput, ReadOutput, ToolOutput};
pub use schema::DefinitionError;
pub use seal::StateSeal;
pub use server::Server;
