//! One run: a server, its clients, a sequence of commits with reconnects
//! between them, and what all of it cost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures::future::join_all;
use indicatif::ProgressBar;
use relist_client::client::{Client, Options};
use relist_client::config::{ClientConfig, Target};
use relist_client::handle::CatalogHandle;
use relist_freshness::catalog::Phase;
use relist_freshness::record::Outcome;
use relist_protocol::CatalogKind;
use relist_protocol::header;
use relist_protocol::message::Implementation;
use relist_server::{CatalogOptions, HttpOptions, Server};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Scene;
use super::socket::{CountingListener, Traffic};
use super::strategy::Strategy;
use super::versions::Version;
use crate::connect::Failed;

/// How long any one step may take before the run counts as failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a run cost, from the first connection to the last adoption.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    pub(super) strategy: Strategy,
    pub(super) clients: usize,
    pub(super) changes: usize,
    pub(super) reconnects: usize,
    pub(super) requests: u64,
    pub(super) list_requests: u64,
    pub(super) bytes_up: u64,
    pub(super) bytes_down: u64,
    pub(super) walks: usize,
    pub(super) not_modified: usize,
    /// Milliseconds from a commit to its adoption, one for each client and change, sorted.
    pub(super) staleness: Vec<f64>,
    pub(super) converged: bool,
}

impl Measured {
    /// The value that the given share of all adoptions did not exceed.
    pub(super) fn staleness_at(&self, share: f64) -> f64 {
        let last = self.staleness.len().saturating_sub(1);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share of a small count"
        )]
        let at = (share * last as f64).round() as usize;
        self.staleness.get(at).copied().unwrap_or(0.0)
    }
}

#[derive(Debug, Default)]
struct Requests {
    all: AtomicU64,
    lists: AtomicU64,
}

async fn count(State(requests): State<Arc<Requests>>, request: Request, next: Next) -> Response {
    requests.all.fetch_add(1, Ordering::Relaxed);
    let method = request.headers().get(header::METHOD);
    if method
        .and_then(|m| m.to_str().ok())
        .and_then(CatalogKind::from_list_method)
        .is_some()
    {
        requests.lists.fetch_add(1, Ordering::Relaxed);
    }
    next.run(request).await
}

/// The server of a run, on a port of its own.
struct Stage {
    server: Server,
    url: String,
    traffic: Arc<Traffic>,
    requests: Arc<Requests>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
    kinds: Vec<CatalogKind>,
}

impl Stage {
    async fn open(strategy: Strategy, scene: &Scene) -> Result<Self, Failed> {
        let kinds: Vec<CatalogKind> = CatalogKind::ALL
            .into_iter()
            .enumerate()
            .filter(|(n, _)| scene.versions.iter().any(|v| !v[*n].is_empty()))
            .map(|(_, kind)| kind)
            .collect();
        let mut builder =
            Server::builder(Implementation::new("relist-demo", "1")).enable(strategy.switches());
        for kind in &kinds {
            let options = CatalogOptions::default()
                .ttl(strategy.ttl())
                .list_changed(strategy.listens());
            builder = builder.catalog(*kind, options);
        }
        for snapshot in &scene.versions[0] {
            for item in snapshot.items() {
                builder = builder.item(snapshot.kind(), item);
            }
        }
        let server = builder.build().map_err(|e| Failed::Demo(e.to_string()))?;
        let listener = relist_server::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .map_err(|e| Failed::Demo(format!("no port on the loopback interface: {e}")))?;
        let address = listener
            .local_addr()
            .map_err(|e| Failed::Demo(e.to_string()))?;
        let (traffic, requests) = (Arc::<Traffic>::default(), Arc::<Requests>::default());
        let counted = axum::middleware::from_fn_with_state(requests.clone(), count);
        let router = server
            .router(HttpOptions::default().compression(scene.compression))
            .layer(counted);
        let listener = CountingListener {
            listener,
            traffic: traffic.clone(),
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let task = tokio::spawn(async move {
            axum::serve(listener, router)
                .with_graceful_shutdown(stopped)
                .await
        });
        Ok(Self {
            server,
            url: format!("http://{address}/mcp"),
            traffic,
            requests,
            stop,
            task,
            kinds,
        })
    }

    fn client(&self, strategy: Strategy, scene: &Scene) -> Result<Client, Failed> {
        let config = ClientConfig::new("relist-demo", "1")
            .switches(strategy.switches())
            .accept_compression(scene.compression);
        let mut options = Options::new(Target::http(&self.url)?, config);
        options.kinds.clone_from(&self.kinds);
        options.policy = strategy.policy();
        options.listen = strategy.listens();
        Ok(Client::start(options))
    }

    fn commit(&self, version: &Version) -> Result<bool, Failed> {
        let commit = self
            .server
            .commit(|edit| {
                for kind in &self.kinds {
                    let items = version
                        .iter()
                        .find(|s| s.kind() == *kind)
                        .map(|s| s.items().to_vec())
                        .unwrap_or_default();
                    edit.replace(*kind, items);
                }
            })
            .map_err(|e| Failed::Demo(e.to_string()))?;
        Ok(!commit.is_empty())
    }

    fn is_current(&self, handle: &CatalogHandle) -> bool {
        let current = self.server.snapshot(handle.kind());
        handle
            .view()
            .is_some_and(|v| v.snapshot.same_content(&current) && v.snapshot.same_order(&current))
    }

    /// Waits until the client holds what the server has; answers when it did.
    async fn adopted(&self, client: &Client) -> Option<Instant> {
        let mut last = None;
        for handle in client.catalogs() {
            let mut changes = handle.changes();
            let reached = async {
                while !self.is_current(handle) {
                    changes.next().await?;
                }
                handle.view().map(|v| v.adopted)
            };
            let at = tokio::time::timeout(PATIENCE, reached).await.ok()??;
            last = last.max(Some(at));
        }
        last
    }

    async fn reconnect(client: &Client) -> bool {
        let before = client.epoch().map_or(0, |e| e.0);
        client.reconnect().await;
        let verified = async {
            if !client.wait_for_epoch(before + 1).await {
                return false;
            }
            for handle in client.catalogs() {
                handle
                    .wait_for(|s| {
                        s.verified.is_some_and(|e| e.0 > before) && s.phase != Phase::Refreshing
                    })
                    .await;
            }
            true
        };
        tokio::time::timeout(PATIENCE, verified)
            .await
            .unwrap_or(false)
    }

    async fn close(self) {
        self.server.shutdown();
        self.stop.cancel();
        // What a closing server still says is of no interest to the figures.
        let _ = tokio::time::timeout(Duration::from_secs(5), self.task).await;
    }
}

/// Plays the scene with one strategy.
pub(super) async fn run(
    strategy: Strategy,
    scene: &Scene,
    progress: &ProgressBar,
) -> Result<Measured, Failed> {
    let stage = Stage::open(strategy, scene).await?;
    let clients = (0..scene.clients)
        .map(|_| stage.client(strategy, scene))
        .collect::<Result<Vec<Client>, Failed>>()?;
    let mut converged = join_all(clients.iter().map(|c| stage.adopted(c)))
        .await
        .iter()
        .all(Option::is_some);
    if strategy.listens() {
        let live = clients.iter().map(|c| {
            let live = |s| matches!(s, relist_freshness::stream::StreamState::Live { .. });
            tokio::time::timeout(PATIENCE, c.wait_for_stream(live))
        });
        converged &= join_all(live).await.iter().all(|w| w == &Ok(true));
    }
    let (mut changes, mut staleness) = (0, Vec::new());
    for version in &scene.versions[1..] {
        let committed = Instant::now();
        if stage.commit(version)? {
            changes += 1;
            for at in join_all(clients.iter().map(|c| stage.adopted(c))).await {
                match at {
                    Some(at) => staleness.push((at - committed).as_secs_f64() * 1000.0),
                    None => converged = false,
                }
            }
            for _ in 0..scene.reconnects {
                let back = join_all(clients.iter().map(Stage::reconnect)).await;
                converged &= back.into_iter().all(|b| b);
            }
        }
        progress.inc(1);
        if !converged {
            break;
        }
    }
    // The end that counts: every copy equals the server's, item by item.
    converged &= clients
        .iter()
        .all(|c| c.catalogs().iter().all(|h| stage.is_current(h)));
    staleness.sort_by(f64::total_cmp);
    let records = || clients.iter().flat_map(|c| c.trail().entries());
    let ended =
        |wanted: fn(&Outcome) -> bool| records().filter(|e| wanted(&e.record.outcome)).count();
    let measured = Measured {
        strategy,
        clients: scene.clients,
        changes,
        reconnects: scene.reconnects,
        requests: stage.requests.all.load(Ordering::Relaxed),
        list_requests: stage.requests.lists.load(Ordering::Relaxed),
        bytes_up: stage.traffic.up(),
        bytes_down: stage.traffic.down(),
        walks: ended(|o| matches!(o, Outcome::Adopted { .. })),
        not_modified: ended(|o| matches!(o, Outcome::NotModified)),
        staleness,
        converged,
    };
    join_all(clients.iter().map(Client::close)).await;
    stage.close().await;
    Ok(measured)
}
