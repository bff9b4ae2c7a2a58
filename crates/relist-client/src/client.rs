//! A client of one server: connects, keeps its catalogs right, reconnects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use relist_freshness::policy::{Backoff, Policy};
use relist_freshness::stream::{StreamPolicy, StreamState};
use relist_freshness::time::Epoch;
use relist_protocol::{CatalogKind, Switch};
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::call::CallError;
use crate::config::{ClientConfig, Target};
use crate::connection::{Connection, EraCache};
use crate::driver::{self, Command, LinkStatus};
use crate::error::ConnectError;
use crate::handle::CatalogHandle;
use crate::trail::Trail;

/// Everything that decides how a client behaves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The server.
    pub target: Target,
    /// The connection: who we are, limits, credentials, switches.
    pub config: Arc<ClientConfig>,
    /// Which catalogs are kept (default: all four).
    pub kinds: Vec<CatalogKind>,
    /// How each catalog is kept fresh.
    pub policy: Policy,
    /// When the stream of hints is opened again.
    pub stream_policy: StreamPolicy,
    /// Whether a stream of hints is opened at all (default yes).
    pub listen: bool,
    /// Resources whose content is watched, beside the catalogs.
    pub watched_resources: Vec<String>,
    /// Pauses between attempts to connect (default 500 ms, growing to 60 s).
    pub reconnect: Backoff,
    /// Verdicts about servers' eras, shared between clients.
    pub eras: EraCache,
    /// The seed of all jitter (default: from the process and the clock).
    pub seed: u64,
    pub(crate) resource_updates: broadcast::Sender<String>,
}

/// Updates of watched resources that a slow reader may leave unread before it
/// misses some; it is told that it did.
const RESOURCE_UPDATES: usize = 256;

impl Options {
    /// The defaults for a server.
    #[must_use]
    pub fn new(target: Target, config: ClientConfig) -> Self {
        use std::hash::{BuildHasher, Hasher};
        // The standard library's per-process random keys: the seed spreads
        // load and protects nothing.
        let seed = std::collections::hash_map::RandomState::new()
            .build_hasher()
            .finish();
        Self {
            target,
            config: Arc::new(config),
            kinds: CatalogKind::ALL.to_vec(),
            policy: Policy::default(),
            stream_policy: StreamPolicy::default(),
            listen: true,
            watched_resources: Vec::new(),
            reconnect: Backoff {
                first: Duration::from_millis(500),
                cap: Duration::from_secs(60),
                jitter: 50,
            },
            eras: EraCache::default(),
            seed,
            resource_updates: broadcast::channel(RESOURCE_UPDATES).0,
        }
    }
}

/// A client of one server. Cheap to clone; closed when the last clone is
/// dropped, or by [`Client::close`].
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    handles: Vec<CatalogHandle>,
    link: watch::Receiver<LinkStatus>,
    commands: mpsc::Sender<Command>,
    trail: Trail,
    options: Options,
    closing: CancellationToken,
    task: tokio::sync::Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

/// Why a client has no first connection.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The first attempt failed.
    #[error(transparent)]
    Connect(Arc<ConnectError>),
    /// The client was closed meanwhile.
    #[error("the client was closed before it was connected")]
    Closed,
}

impl Client {
    /// Starts a client. It connects, and connects again, on its own; must be
    /// called within a tokio runtime.
    #[must_use]
    pub fn start(options: Options) -> Self {
        let closing = CancellationToken::new();
        let started = driver::start(options.clone(), closing.clone());
        Self {
            shared: Arc::new(Shared {
                handles: started.handles,
                link: started.link,
                commands: started.commands,
                trail: started.trail,
                options,
                closing,
                task: tokio::sync::Mutex::new(Some(started.task)),
            }),
        }
    }

    /// Starts a client and waits for its first connection.
    ///
    /// # Errors
    ///
    /// The failure of the first attempt; the client is closed then.
    pub async fn connect(options: Options) -> Result<Self, StartError> {
        let client = Self::start(options);
        let mut link = client.shared.link.clone();
        let first = link
            .wait_for(|l| l.connection.is_some() || l.last_error.is_some() || l.closed)
            .await
            .map(|l| (l.connection.is_some(), l.last_error.clone()));
        match first {
            Ok((true, _)) => Ok(client),
            Ok((false, Some(error))) => {
                client.close().await;
                Err(StartError::Connect(error))
            }
            _ => Err(StartError::Closed),
        }
    }

    /// The catalog of the kind, if the client keeps it.
    #[must_use]
    pub fn catalog(&self, kind: CatalogKind) -> Option<&CatalogHandle> {
        self.shared.handles.iter().find(|h| h.kind == kind)
    }

    /// The catalogs that the client keeps.
    #[must_use]
    pub fn catalogs(&self) -> &[CatalogHandle] {
        &self.shared.handles
    }

    /// What every refresh did.
    #[must_use]
    pub fn trail(&self) -> &Trail {
        &self.shared.trail
    }

    /// The options that the client was started with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// The current connection, if there is one.
    #[must_use]
    pub fn current(&self) -> Option<Arc<Connection>> {
        let link = self.shared.link.borrow();
        link.connection.as_ref().map(|(_, c)| c.clone())
    }

    /// The number of the current connection, counted from one.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        let link = self.shared.link.borrow();
        link.connection.as_ref().map(|(e, _)| *e)
    }

    /// Where the stream of hints stands.
    #[must_use]
    pub fn stream(&self) -> StreamState {
        self.shared.link.borrow().stream
    }

    /// Waits until the stream of hints satisfies a condition; `false` if the
    /// client is closed first.
    pub async fn wait_for_stream(&self, mut condition: impl FnMut(StreamState) -> bool) -> bool {
        let mut link = self.shared.link.clone();
        link.wait_for(|l| l.closed || condition(l.stream))
            .await
            .is_ok_and(|l| !l.closed)
    }

    /// Waits for a connection whose number is at least the given one; `false`
    /// if the client is closed first.
    pub async fn wait_for_epoch(&self, epoch: u64) -> bool {
        let mut link = self.shared.link.clone();
        link.wait_for(|l| l.closed || l.connection.as_ref().is_some_and(|(e, _)| e.0 >= epoch))
            .await
            .is_ok_and(|l| !l.closed)
    }

    /// Content updates of the watched resources, by URI. A reader that falls
    /// behind by more than 256 is told how many it missed.
    #[must_use]
    pub fn resource_updates(&self) -> broadcast::Receiver<String> {
        self.shared.options.resource_updates.subscribe()
    }

    /// New credentials are at hand: catalogs that were refused try again.
    pub async fn reauthenticated(&self) {
        // A closed client needs no credentials.
        let _ = self.shared.commands.send(Command::Reauthenticated).await;
    }

    /// Gives the current connection up and opens a new one: a new epoch, in
    /// which every copy is verified before it counts as fresh.
    pub async fn reconnect(&self) {
        // A closed client has no connection to replace.
        let _ = self.shared.commands.send(Command::Reconnect).await;
    }

    /// Closes the connection and ends all tasks.
    pub async fn close(&self) {
        self.shared.closing.cancel();
        let task = self.shared.task.lock().await.take();
        if let Some(task) = task {
            // A panic in the loop has already been reported by the runtime.
            let _ = task.await;
        }
    }

    /// The current connection, waiting for one that is being opened.
    pub(crate) async fn connection(&self) -> Result<(Epoch, Arc<Connection>), CallError> {
        let timeout = self.shared.options.config.connect_timeout;
        let mut link = self.shared.link.clone();
        let ready = link.wait_for(|l| l.connection.is_some() || l.closed);
        let connection = match tokio::time::timeout(timeout, ready).await {
            Ok(Ok(link)) => link.connection.clone(),
            _ => None,
        };
        connection.ok_or_else(|| CallError::NotConnected {
            reason: self
                .shared
                .link
                .borrow()
                .last_error
                .as_ref()
                .map_or_else(|| "closed, or not yet open".to_owned(), ToString::to_string),
        })
    }

    pub(crate) async fn report_broken(&self, epoch: Epoch) {
        // A closed client has no connection to replace.
        let _ = self.shared.commands.send(Command::Broken(epoch)).await;
    }

    /// The tags of the copies that calls are made against, where `tags` is on.
    pub(crate) fn known_tags(&self) -> BTreeMap<String, String> {
        let config = &self.shared.options.config;
        if !config.switches.contains(Switch::Tags) {
            return BTreeMap::new();
        }
        let mut tags: BTreeMap<String, String> = self
            .shared
            .handles
            .iter()
            .filter_map(|handle| {
                let tag = handle.view()?.tag.clone()?;
                Some((
                    handle.kind.list_method().to_owned(),
                    tag.as_str().to_owned(),
                ))
            })
            .collect();
        if let Some(tag) = self.current().and_then(|c| c.server().discover_tag.clone()) {
            tags.insert("server/discover".to_owned(), tag);
        }
        tags
    }
}
