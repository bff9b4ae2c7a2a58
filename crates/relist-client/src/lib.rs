//! Keeps a client's copy of a server's catalogs right, over Streamable HTTP and
//! stdio, in both protocol eras.
//!
//! | module | what it holds |
//! |---|---|
//! | [`client`] | [`Client`]: connects, keeps the catalogs right, reconnects |
//! | [`handle`] | one catalog as an application sees it |
//! | [`host`] | turns, and what the model is given in each |
//! | [`call`] | calls against a copy that may be out of date |
//! | [`trail`] | what every refresh did |
//! | [`config`] | the server, and who we are to it |
//! | [`connection`] | one connection, without any catalog |
//! | [`transport`] | event streams and lines |
//! | [`raw`] | HTTP exchanges exactly as told, for programs that test a server |
//! | [`error`] | what can go wrong on the way to a server |
//!
//! ```no_run
//! use relist_client::client::{Client, Options};
//! use relist_client::config::{ClientConfig, Target};
//! use relist_client::host::Host;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let target = Target::http("http://127.0.0.1:3000/mcp")?;
//! let config = ClientConfig::new("example", "1.0.0");
//! let client = Client::connect(Options::new(target, config)).await?;
//! let mut host = Host::new(client);
//! let turn = host.begin_turn().await;
//! println!("{} tools, version {}", turn.tools.tools.len(), turn.tools.version);
//! # Ok(())
//! # }
//! ```

pub mod call;
pub mod client;
pub mod config;
pub mod connection;
mod driver;
pub mod error;
pub mod handle;
pub mod host;
pub mod raw;
pub mod trail;
pub mod transport;

pub use client::{Client, Options};
pub use handle::CatalogHandle;
