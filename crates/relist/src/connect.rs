//! A session of one command with one server.

use std::path::PathBuf;
use std::time::Duration;

use relist_client::call::CallError;
use relist_client::client::{Client, Options, StartError};
use relist_client::config::{ClientConfig, Target, TargetError};
use relist_freshness::catalog::Phase;
use relist_protocol::{CatalogKind, Switches};
use serde_json::{Map, Value, json};

use crate::show;

/// Why a command failed, with what to do about it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error("the target cannot be used")]
    Target(#[from] TargetError),
    #[error("the server cannot be reached")]
    Connect(#[from] StartError),
    #[error("the call failed")]
    Call(#[from] CallError),
    #[error("--arguments takes a JSON object, for example '{{\"query\":\"x\"}}': {0}")]
    Arguments(String),
    #[error("{0} of the catalogs could not be listed; nothing was recorded")]
    Incomplete(usize),
    #[error("{0}")]
    Demo(String),
    #[error("{0}")]
    Serve(String),
    #[error("{path}: {reason}")]
    File { path: PathBuf, reason: String },
}

/// How long the first lists may take.
const FIRST_LISTS: Duration = Duration::from_secs(60);

pub(crate) struct Session {
    pub(crate) client: Client,
}

impl Session {
    pub(crate) async fn open(target: &[String], enable: Switches) -> Result<Self, Failed> {
        let target = Target::parse(target)?;
        let config = ClientConfig::new("relist", env!("CARGO_PKG_VERSION")).switches(enable);
        let client = Client::connect(Options::new(target, config)).await?;
        Ok(Self { client })
    }

    /// Waits until every catalog has been listed, or could not be; answers how
    /// many of those that the server offers could not.
    pub(crate) async fn settle(&self) -> usize {
        let mut failures = 0;
        for catalog in self.client.catalogs() {
            let settled = catalog.wait_for(|s| {
                s.failures > 0
                    || matches!(s.phase, Phase::Fresh | Phase::Stale | Phase::Unavailable)
            });
            let in_time = tokio::time::timeout(FIRST_LISTS, settled).await.is_ok();
            let status = catalog.status();
            if !in_time || status.failures > 0 {
                failures += 1;
                let reason = status
                    .last_failure
                    .map_or_else(|| "no answer in 60 s".to_owned(), |f| f.to_string());
                show::warning(&format!("{}: {reason}", catalog.kind()));
            }
        }
        failures
    }

    /// The catalogs as a document: the format that `diff` reads.
    pub(crate) fn recording(&self) -> Value {
        let mut document = Map::new();
        if let Some(connection) = self.client.current() {
            let server = connection.server();
            document.insert("server".to_owned(), json!(server.info));
            document.insert(
                "protocolVersion".to_owned(),
                connection.version().as_str().into(),
            );
            document.insert("capabilities".to_owned(), json!(server.capabilities));
        }
        for catalog in self.client.catalogs() {
            if let Some(view) = catalog.view() {
                let items = view.snapshot.items().iter().map(|i| i.value()).collect();
                document.insert(catalog.kind().items_field().to_owned(), Value::Array(items));
            }
        }
        Value::Object(document)
    }

    pub(crate) async fn close(&self) {
        self.client.close().await;
    }
}

/// Prints changes and refreshes until the user interrupts.
pub(crate) async fn watch(session: &Session, json: bool) {
    let watchers = CatalogKind::ALL.into_iter().filter_map(|kind| {
        let catalog = session.client.catalog(kind)?.clone();
        let trail = session.client.trail().clone();
        Some(tokio::spawn(async move {
            let mut changes = catalog.changes();
            while let Some(changed) = changes.next().await {
                let refresh = trail.entries().into_iter().rev().find(|e| e.kind == kind);
                show::changed(kind, &changed.change, refresh.as_ref(), json);
            }
        }))
    });
    let watchers: Vec<_> = watchers.collect();
    // Without a signal handler there is nothing to wait for but the server.
    if tokio::signal::ctrl_c().await.is_err() {
        show::warning("interrupts cannot be caught; stopping");
    }
    for watcher in watchers {
        watcher.abort();
    }
}
