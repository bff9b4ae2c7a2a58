//! What the behaviour tests share: a client of the fixture's fake server.

use std::time::Duration;

use relist_client::client::{Client, Options};
use relist_client::config::{ClientConfig, Target};
use relist_client::handle::CatalogHandle;
use relist_fixture::FakeServer;
use relist_protocol::CatalogKind;
use serde_json::{Value, json};

/// How long a test waits for a state before it gives up. Not a measure of
/// anything: a test that needs it has failed.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A tool of the given name and description.
#[must_use]
pub fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

/// Options for a client of the server, plain protocol.
///
/// # Panics
///
/// When the fixture's URL is no URL.
#[must_use]
pub fn options(server: &FakeServer) -> Options {
    let target = Target::http(&server.url()).expect("the fixture's URL");
    Options::new(target, ClientConfig::new("relist-behaviour", "1"))
}

/// The client's tools.
///
/// # Panics
///
/// When the client does not keep tools.
#[must_use]
pub fn tools(client: &Client) -> &CatalogHandle {
    client.catalog(CatalogKind::Tools).expect("tools are kept")
}

/// Waits until the tools adopted by the client have exactly these names.
///
/// # Panics
///
/// When they never do.
pub async fn wait_for_names(handle: &CatalogHandle, names: &[&str]) {
    let mut changes = handle.changes();
    let reached = async {
        loop {
            let current: Vec<String> = handle
                .view()
                .map(|v| v.items().map(|i| i.key().to_string()).collect())
                .unwrap_or_default();
            if current == names {
                return;
            }
            assert!(changes.next().await.is_some(), "the client closed");
        }
    };
    tokio::time::timeout(PATIENCE, reached)
        .await
        .unwrap_or_else(|_| panic!("the tools never became {names:?}"));
}
