//! The sync loop: one task that drives four catalog machines, the keeper of the
//! hint stream and the connection. It never waits for a reader, and everything
//! slow (requests, opening a connection or a stream) runs in tasks of its own
//! that report back through one bounded channel.

mod fetch;
mod link;
mod streaming;

use std::sync::Arc;
use std::time::SystemTime;

use relist_catalog::Item;
use relist_catalog::Snapshot;
use relist_freshness::catalog::{Action, Adoption, Freshness, Need, Offer, Ticket};
use relist_freshness::policy::Policy;
use relist_freshness::record::{Outcome, RefreshRecord};
use relist_freshness::stream::{StreamKeeper, StreamPolicy, StreamState};
use relist_freshness::time::{Epoch, Time};
use relist_protocol::{CatalogKind, Era, Switch};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::Options;
use crate::connection::Connection;
use crate::error::ConnectError;
use crate::handle::{CatalogHandle, Cell, Published, View};
use crate::trail::{Trail, TrailEntry};

use link::Link;

/// What an application asks of the loop.
#[derive(Debug)]
pub(crate) enum Command {
    Need(CatalogKind, Need),
    Refresh(CatalogKind),
    /// A command, and where to answer.
    Ask(Box<Command>, oneshot::Sender<Asked>),
    Reauthenticated,
    /// Replace the connection by a new one.
    Reconnect,
    /// The connection turned out to be unusable on a request of the application's.
    Broken(Epoch),
}

/// The answer to a command about one catalog.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// The copy may be used as it is.
    pub(crate) usable: bool,
    /// Refreshes that have ended so far.
    pub(crate) refreshes: u64,
    /// How many more must end before the asker is served.
    pub(crate) more: u64,
}

/// What the tasks report.
pub(crate) enum Event {
    Connected(Epoch, Result<Connection, ConnectError>),
    ConnectionClosed(Epoch),
    Fetched(CatalogKind, Ticket, fetch::Fetched),
    Stream(Epoch, u64, streaming::StreamEvent),
    /// Said outside the stream of hints.
    Stray(Epoch, streaming::StreamEvent),
}

/// What every watcher of the client sees of the connection.
#[derive(Debug, Clone)]
pub(crate) struct LinkStatus {
    pub(crate) connection: Option<(Epoch, Arc<Connection>)>,
    pub(crate) stream: StreamState,
    /// Why the last attempt to connect failed.
    pub(crate) last_error: Option<Arc<ConnectError>>,
    pub(crate) attempts: u64,
    pub(crate) closed: bool,
}

pub(crate) fn time_since(origin: Instant) -> Time {
    let elapsed = Instant::now().saturating_duration_since(origin);
    Time::from_millis(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

fn instant_of(origin: Instant, time: Time) -> Instant {
    origin + std::time::Duration::from_millis(time.as_millis())
}

/// Reports that may wait for the loop. Each task has at most one under way, so
/// this bounds the number of tasks that wait, not what they carry.
const EVENTS: usize = 64;

struct Catalog {
    kind: CatalogKind,
    machine: Freshness<Item>,
    cell: Arc<Cell>,
    /// The request in flight.
    request: Option<(Ticket, CancellationToken)>,
    refreshes: u64,
    failed: bool,
    adoptions: u64,
}

/// The loop's own state.
pub(crate) struct Driver {
    options: Arc<Options>,
    origin: Instant,
    catalogs: Vec<Catalog>,
    keeper: StreamKeeper,
    link: Link,
    stream: streaming::Stream,
    trail: Trail,
    link_status: watch::Sender<LinkStatus>,
    commands: mpsc::Receiver<Command>,
    events: mpsc::Receiver<Event>,
    report: mpsc::Sender<Event>,
    closing: CancellationToken,
    /// Ends the task that waits for the current connection's end.
    watching: CancellationToken,
}

/// What the client keeps of the loop.
pub(crate) struct Started {
    pub(crate) handles: Vec<CatalogHandle>,
    pub(crate) link: watch::Receiver<LinkStatus>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) trail: Trail,
    pub(crate) task: tokio::task::JoinHandle<()>,
}

/// Starts the loop.
pub(crate) fn start(options: Options, closing: CancellationToken) -> Started {
    let origin = Instant::now();
    let (command_sender, commands) = mpsc::channel(EVENTS);
    let (report, events) = mpsc::channel(EVENTS);
    let trail = Trail::new();
    let seed = options.seed;
    let policy: Policy = options.policy;
    let stream_policy: StreamPolicy = options.stream_policy;
    let catalogs: Vec<Catalog> = CatalogKind::ALL
        .into_iter()
        .filter(|kind| options.kinds.contains(kind))
        .map(|kind| Catalog::new(kind, policy, seed ^ (kind as u64 + 1)))
        .collect();
    let handles = catalogs
        .iter()
        .map(|c| CatalogHandle {
            kind: c.kind,
            cell: c.cell.clone(),
            commands: command_sender.clone(),
            origin,
        })
        .collect();
    let (link_status, link) = watch::channel(LinkStatus {
        connection: None,
        stream: StreamState::Off,
        last_error: None,
        attempts: 0,
        closed: false,
    });
    let driver = Driver {
        link: Link::new(options.reconnect, seed),
        options: Arc::new(options),
        origin,
        catalogs,
        keeper: StreamKeeper::new(stream_policy, seed.rotate_left(17)),
        stream: streaming::Stream::default(),
        trail: trail.clone(),
        link_status,
        commands,
        events,
        report,
        watching: closing.child_token(),
        closing,
    };
    let task = tokio::spawn(driver.run());
    Started {
        handles,
        link,
        commands: command_sender,
        trail,
        task,
    }
}

impl Catalog {
    fn new(kind: CatalogKind, policy: Policy, seed: u64) -> Self {
        let machine = Freshness::new(policy, seed);
        let (published, _) = watch::channel(Published {
            status: machine.status(Time::default()),
            refreshes: 0,
            failed: false,
            adoptions: 0,
            closed: false,
        });
        Self {
            kind,
            machine,
            cell: Arc::new(Cell {
                view: arc_swap::ArcSwapOption::empty(),
                published,
            }),
            request: None,
            refreshes: 0,
            failed: false,
            adoptions: 0,
        }
    }

    fn adopt(&mut self, adoption: Adoption<Item>, over_http: bool) {
        self.adoptions += 1;
        let snapshot = Snapshot::new(self.kind, adoption.items.to_vec());
        let rejected = if over_http && self.kind == CatalogKind::Tools {
            crate::call::illegal_tools(&snapshot)
        } else {
            Vec::new()
        };
        self.cell.view.store(Some(Arc::new(View {
            snapshot,
            tag: adoption.tag,
            hints: adoption.hints,
            number: self.adoptions,
            adopted: Instant::now(),
            rejected,
        })));
    }

    fn publish(&self, now: Time, closed: bool) {
        let published = Published {
            status: self.machine.status(now),
            refreshes: self.refreshes,
            failed: self.failed,
            adoptions: self.adoptions,
            closed,
        };
        self.cell.published.send_if_modified(|old| {
            let differs = old.status != published.status
                || old.refreshes != published.refreshes
                || old.adoptions != published.adoptions
                || old.closed != published.closed;
            *old = published;
            differs
        });
    }
}

impl Driver {
    fn now(&self) -> Time {
        time_since(self.origin)
    }

    async fn run(mut self) {
        let closing = self.closing.clone();
        loop {
            self.step();
            let wake = self.next_timeout().map(|t| instant_of(self.origin, t));
            let sleep = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = closing.cancelled() => break,
                command = self.commands.recv() => match command {
                    Some(command) => self.command(command, None),
                    None => break,
                },
                Some(event) = self.events.recv() => self.event(event),
                () = sleep => self.timeout(),
            }
        }
        self.close();
    }

    /// Does what the machines want done, until they want nothing more.
    fn step(&mut self) {
        let now = self.now();
        if self.link.poll_connect() {
            self.open_connection(now);
        }
        for n in 0..self.catalogs.len() {
            while let Some(action) = self.catalogs[n].machine.poll_action() {
                self.act(n, action);
            }
        }
        if self.keeper.poll_open() {
            self.open_stream();
        }
        for catalog in &self.catalogs {
            catalog.publish(now, false);
        }
        self.publish_link(false);
    }

    fn act(&mut self, n: usize, action: Action<Item>) {
        let over_http = matches!(self.options.target, crate::config::Target::Http(_));
        match action {
            Action::Fetch(fetch) => self.fetch(n, fetch),
            Action::Cancel(ticket) => {
                if let Some((_, cancel)) = self.catalogs[n]
                    .request
                    .take_if(|(current, _)| *current == ticket)
                {
                    cancel.cancel();
                }
            }
            Action::Adopt(adoption) => self.catalogs[n].adopt(adoption, over_http),
            Action::Record(record) => self.record(n, record),
        }
    }

    fn record(&mut self, n: usize, record: RefreshRecord) {
        let catalog = &mut self.catalogs[n];
        catalog.refreshes += 1;
        catalog.failed = matches!(record.outcome, Outcome::Failed(_) | Outcome::Abandoned);
        self.trail.push(TrailEntry {
            kind: catalog.kind,
            record,
            ended: SystemTime::now(),
        });
    }

    fn fetch(&mut self, n: usize, fetch: relist_freshness::catalog::Fetch) {
        let Some(connection) = self.link.connection(fetch.ticket.epoch()) else {
            return;
        };
        let cancel = self.closing.child_token();
        let kind = self.catalogs[n].kind;
        self.catalogs[n].request = Some((fetch.ticket, cancel.clone()));
        let (report, ticket) = (self.report.clone(), fetch.ticket);
        tokio::spawn(async move {
            let fetched = fetch::list(&connection, kind, fetch, cancel.clone()).await;
            if !cancel.is_cancelled() {
                // The loop is gone when nobody receives; then nobody cares.
                let _ = report.send(Event::Fetched(kind, ticket, fetched)).await;
            }
        });
    }

    fn next_timeout(&self) -> Option<Time> {
        let expiry = |c: &Catalog| {
            // Expiry by itself starts nothing, but watchers see it.
            let now = self.now();
            c.machine.expires().filter(|at| *at > now)
        };
        self.catalogs
            .iter()
            .flat_map(|c| [c.machine.next_timeout(), expiry(c)])
            .chain([self.keeper.next_timeout(), self.link.next_timeout()])
            .flatten()
            .min()
    }

    fn timeout(&mut self) {
        let now = self.now();
        for catalog in &mut self.catalogs {
            catalog.machine.timeout(now);
        }
        self.keeper.timeout(now);
        self.link.timeout(now);
    }

    fn command(&mut self, command: Command, reply: Option<oneshot::Sender<Asked>>) {
        let now = self.now();
        match command {
            Command::Ask(command, reply) => self.command(*command, Some(reply)),
            Command::Need(kind, need) => {
                if let Some(catalog) = self.catalogs.iter_mut().find(|c| c.kind == kind) {
                    let usable = catalog.machine.need(now, need);
                    answer(catalog, reply, usable, 1);
                }
            }
            Command::Refresh(kind) => {
                if let Some(catalog) = self.catalogs.iter_mut().find(|c| c.kind == kind) {
                    // One that is under way began before we asked.
                    let more = 1 + u64::from(catalog.request.is_some());
                    catalog.machine.refresh(now);
                    answer(catalog, reply, false, more);
                }
            }
            Command::Reauthenticated => {
                for catalog in &mut self.catalogs {
                    catalog.machine.reauthenticated(now);
                }
                self.link.reauthenticated(now);
            }
            Command::Reconnect => {
                if let Some((epoch, _)) = self.link.current() {
                    // Before the keeper would count a short-lived stream against the server.
                    self.keeper.released();
                    self.leave_connection(now, epoch);
                    self.link.replace(now);
                }
            }
            Command::Broken(epoch) => self.lost_connection(now, epoch),
        }
    }

    fn event(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Connected(epoch, Ok(connection)) => self.connected(now, epoch, connection),
            Event::Connected(epoch, Err(error)) => self.link.failed(now, epoch, error),
            Event::ConnectionClosed(epoch) => self.lost_connection(now, epoch),
            Event::Fetched(kind, ticket, fetched) => self.fetched(now, kind, ticket, fetched),
            Event::Stream(epoch, number, event) => self.stream_event(now, epoch, number, event),
            Event::Stray(epoch, event) => self.told(now, epoch, event),
        }
    }

    fn fetched(&mut self, now: Time, kind: CatalogKind, ticket: Ticket, fetched: fetch::Fetched) {
        let Some(catalog) = self.catalogs.iter_mut().find(|c| c.kind == kind) else {
            return;
        };
        catalog.request.take_if(|(current, _)| *current == ticket);
        match fetched {
            fetch::Fetched::Page(page) => catalog.machine.page(now, ticket, page),
            fetch::Fetched::NotModified { tag, hints, bytes } => {
                catalog
                    .machine
                    .not_modified(now, ticket, &tag, hints, bytes);
            }
            fetch::Fetched::Failed { failure, broken } => {
                catalog.machine.failed(now, ticket, failure);
                if broken {
                    self.lost_connection(now, ticket.epoch());
                }
            }
        }
    }

    // ---- the connection -------------------------------------------------

    fn open_connection(&mut self, now: Time) {
        let epoch = self.link.opening();
        for catalog in &mut self.catalogs {
            catalog.machine.connecting(now, epoch);
        }
        let (report, options) = (self.report.clone(), self.options.clone());
        let closing = self.closing.clone();
        tokio::spawn(async move {
            let open = Connection::open(&options.target, options.config.clone(), &options.eras);
            let opened = tokio::select! {
                opened = open => opened,
                () = closing.cancelled() => return,
            };
            let _ = report.send(Event::Connected(epoch, opened)).await;
        });
    }

    fn connected(&mut self, now: Time, epoch: Epoch, connection: Connection) {
        let Some(connection) = self.link.connected(now, epoch, connection) else {
            return;
        };
        let capabilities = connection.server().capabilities.clone();
        let conditional = connection.switches().contains(Switch::Conditional);
        let streams = self.wants_stream(&connection);
        for catalog in &mut self.catalogs {
            let offer = if capabilities.has(catalog.kind) {
                let hints = streams
                    && (connection.era() == Era::Legacy || capabilities.hints(catalog.kind));
                Offer::modern().hints(hints).conditional(conditional)
            } else {
                Offer::absent()
            };
            catalog.machine.connected(now, epoch, offer);
        }
        self.keeper.connected(now, streams);
        let report = self.report.clone();
        // The watcher must not outlive the connection's place in the loop: it
        // would keep the connection open.
        let watching = self.closing.child_token();
        self.watching = watching.clone();
        tokio::spawn(async move {
            let watch = async {
                tokio::select! {
                    _ = connection.closed() => {}
                    () = streaming::read_strays(&connection, epoch, &report) => {
                        connection.closed().await;
                    }
                }
                let _ = report.send(Event::ConnectionClosed(epoch)).await;
            };
            tokio::select! {
                () = watch => {}
                () = watching.cancelled() => {}
            }
        });
    }

    fn lost_connection(&mut self, now: Time, epoch: Epoch) {
        if self.link.lost(now, epoch) {
            self.leave_connection(now, epoch);
        }
    }

    fn leave_connection(&mut self, now: Time, epoch: Epoch) {
        self.watching.cancel();
        for catalog in &mut self.catalogs {
            catalog.machine.disconnected(now, epoch);
        }
        self.keeper.disconnected(now);
        self.stream.close();
    }

    fn publish_link(&self, closed: bool) {
        let status = LinkStatus {
            connection: self.link.current(),
            stream: self.keeper.state(),
            last_error: self.link.last_error(),
            attempts: self.link.attempts(),
            closed,
        };
        self.link_status.send_if_modified(|old| {
            let epoch = |s: &LinkStatus| s.connection.as_ref().map(|(e, _)| *e);
            let differs = epoch(old) != epoch(&status)
                || old.stream != status.stream
                || old.attempts != status.attempts
                || old.closed != status.closed;
            *old = status;
            differs
        });
    }

    fn close(&mut self) {
        let now = self.now();
        if let Some((epoch, _)) = self.link.current() {
            self.lost_connection(now, epoch);
        }
        self.link.close();
        for n in 0..self.catalogs.len() {
            while let Some(action) = self.catalogs[n].machine.poll_action() {
                self.act(n, action);
            }
            self.catalogs[n].publish(now, true);
        }
        self.publish_link(true);
    }
}

fn answer(catalog: &Catalog, reply: Option<oneshot::Sender<Asked>>, usable: bool, more: u64) {
    if let Some(reply) = reply {
        // Whoever asked may have given up.
        let _ = reply.send(Asked {
            usable,
            refreshes: catalog.refreshes,
            more,
        });
    }
}
