//! What the behaviour tests share: a client of the fixture's fake server.
//!
//! `COVERAGE.md` beside this package says which test shows which report.

use std::time::Duration;

use relist_client::client::{Client, Options};
use relist_client::config::{ClientConfig, Target};
use relist_client::handle::CatalogHandle;
use relist_fixture::{Era, FakeServer, FakeStdioServer, Script};
use relist_freshness::catalog::Phase;
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
            if self::names(handle) == names {
                return;
            }
            assert!(changes.next().await.is_some(), "the client closed");
        }
    };
    within(&format!("the tools {names:?}"), reached).await;
}

/// A transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Streamable HTTP.
    Http,
    /// A process and its pipes.
    Stdio,
}

/// Both eras over both transports.
pub const CELLS: [(Era, Wire); 4] = [
    (Era::Modern, Wire::Http),
    (Era::Modern, Wire::Stdio),
    (Era::Legacy, Wire::Http),
    (Era::Legacy, Wire::Stdio),
];

#[derive(Debug)]
enum Host {
    Http(FakeServer),
    Stdio(FakeStdioServer),
}

/// A scripted server behind either transport. All knobs are those of
/// [`Script`], to which it dereferences.
#[derive(Debug)]
pub struct Peer(Host);

impl Peer {
    /// Starts a server of the era, with whatever else is set beforehand.
    pub async fn start(era: Era, wire: Wire, with: impl FnOnce(&Script)) -> Self {
        let script = Script::new();
        script.set_era(era);
        with(&script);
        Self(match wire {
            Wire::Http => Host::Http(FakeServer::serve(&script).await),
            Wire::Stdio => Host::Stdio(FakeStdioServer::start(&script).await),
        })
    }

    /// Options for a client of the server, plain protocol.
    ///
    /// # Panics
    ///
    /// When the fixture's program is not there.
    #[must_use]
    pub fn options(&self) -> Options {
        let target = match &self.0 {
            Host::Http(server) => return options(server),
            Host::Stdio(server) => {
                let program = server.program().to_string_lossy().into_owned();
                Target::stdio(std::iter::once(program).chain(server.args()))
            }
        };
        let config = ClientConfig::new("relist-behaviour", "1");
        Options::new(target.expect("the fixture's program"), config)
    }
}

impl std::ops::Deref for Peer {
    type Target = Script;

    fn deref(&self) -> &Script {
        match &self.0 {
            Host::Http(server) => server,
            Host::Stdio(server) => server,
        }
    }
}

/// A client whose first list of every catalog that it keeps is behind it, and
/// whose stream of hints is open or will not be.
///
/// # Panics
///
/// When it cannot connect, or the lists never come.
pub async fn settled(options: Options) -> Client {
    let client = Client::connect(options).await.expect("a connection");
    for handle in client.catalogs() {
        at_rest(handle).await;
    }
    let decided = client.wait_for_stream(|s| {
        use relist_freshness::stream::StreamState::{Live, Off, Unavailable, Waiting};
        matches!(s, Live { .. } | Off | Unavailable | Waiting { .. })
    });
    within("a decision about the stream of hints", decided).await;
    client
}

/// Waits until nothing more happens to the catalog by itself: no refresh is in
/// flight, and none is due.
///
/// # Panics
///
/// When it never rests.
pub async fn at_rest(handle: &CatalogHandle) {
    let resting = handle.wait_for(|s| {
        s.next_refresh.is_none()
            && matches!(s.phase, Phase::Fresh | Phase::Stale | Phase::Unavailable)
    });
    within("the catalog to come to rest", resting).await;
}

/// Waits for what must come.
///
/// # Panics
///
/// When it does not, in [`PATIENCE`].
pub async fn within<T>(what: &str, coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, coming)
        .await
        .unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// The names of the tools that the client holds, in the server's order.
#[must_use]
pub fn names(handle: &CatalogHandle) -> Vec<String> {
    let view = handle.view();
    view.map(|v| v.items().map(|i| i.key().to_string()).collect())
        .unwrap_or_default()
}
