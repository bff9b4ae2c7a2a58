//! Keeps a client's copy of a server's catalogs right, over Streamable HTTP and
//! stdio.

pub mod config;
pub mod connection;
pub mod error;
pub mod transport;
