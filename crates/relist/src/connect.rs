//! A session of one command with one server.

use std::path::PathBuf;
use std::time::Duration;

use relist_catalog::Snapshot;
use relist_client::call::CallError;
use relist_client::client::{Client, Options, StartError};
use relist_client::config::TargetError;
use relist_client::error::{ConnectError, RequestError};
use relist_freshness::catalog::Phase;
use relist_protocol::CatalogKind;
use serde_json::{Map, Value, json};

use crate::at::At;
use crate::show;

/// Why a command failed, with what to do about it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error("the target cannot be used")]
    Target(#[from] TargetError),
    #[error("the server cannot be reached")]
    Connect(#[from] StartError),
    #[error(
        "`{0}` is no URL; a command that starts a server goes after `--`: relist list -- {0} …"
    )]
    NoUrl(String),
    #[error("the server cannot be reached")]
    Open(#[from] ConnectError),
    #[error("the server does not answer")]
    Request(#[from] RequestError),
    #[error("the call failed")]
    Call(#[from] CallError),
    #[error("--arguments takes a JSON object, for example '{{\"query\":\"x\"}}': {0}")]
    Arguments(String),
    #[error("{0} of the catalogs could not be listed")]
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
    pub(crate) async fn open(at: &At) -> Result<Self, Failed> {
        let config = (*at.config()).clone();
        let client = Client::connect(Options::new(at.target()?, config)).await?;
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

    /// The four catalogs; one that the server does not offer is empty.
    pub(crate) fn snapshots(&self) -> Vec<Snapshot> {
        let view = |kind| self.client.catalog(kind)?.view();
        CatalogKind::ALL
            .into_iter()
            .map(|kind| view(kind).map_or_else(|| Snapshot::empty(kind), |v| v.snapshot.clone()))
            .collect()
    }

    pub(crate) async fn close(&self) {
        self.client.close().await;
    }
}
