//! The machine under every order of events: a model for an exhaustive checker.
//!
//! The model has one server whose list has two pages, a network that may lose,
//! repeat, reorder and delay, and the machine itself, unchanged. Budgets keep
//! the number of faults small and the search finite.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use relist_catalog::EntityTag;
use relist_protocol::list::CacheHints;
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::catalog::{Action, Freshness, Mutation, Offer, Ticket};
use crate::policy::Policy;
use crate::record::Failure;
use crate::time::{Epoch, Time};
use crate::walk::{Listed, Page};

/// How the server pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Paging {
    /// Each page from the version of its moment, with that version's tag.
    LiveTagged,
    /// Each page from the version of its moment, and nothing that says which.
    LiveBare,
    /// The walk stays in the version that it began with, no tags.
    Snapshot,
}

#[derive(Debug, Clone, Copy)]
struct Network {
    paging: Paging,
    conditional: bool,
    commits: u8,
    /// How many faults may happen in one run, of whatever kinds.
    faults: u8,
    mutation: Option<Mutation>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Entry {
    key: &'static str,
    version: u8,
    served_in: Epoch,
}

impl Listed for Entry {
    fn key(&self) -> &str {
        self.key
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Reply {
    Page(Page<Entry>),
    NotModified(EntityTag),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Request {
    ticket: Ticket,
    cursor: Option<String>,
    known: Option<EntityTag>,
    reply: Option<Reply>,
    /// The connection is gone or the request was given up; an answer may still arrive.
    orphaned: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct World {
    machine: Freshness<Entry>,
    now: u64,
    epoch: Epoch,
    streaming: bool,
    version: u8,
    requests: Vec<Request>,
    /// Hints on their way, of the current connection or an older one.
    hints: Vec<Epoch>,
    adopted: Option<Vec<Entry>>,
    /// A hint was lost in silence since the last list began: nothing but a
    /// lifetime or a turn can repair that.
    silent_loss: bool,
    doubled: bool,
    stale_epoch_adopted: bool,
    commits: u8,
    faults: Vec<Fault>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Fault {
    LostHint,
    RepeatedHint,
    Failure,
    CutStream,
    Reconnect,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.machine.hash_essence(hasher);
        (self.epoch, self.streaming, self.version, self.commits).hash(hasher);
        (&self.adopted, self.silent_loss, &self.faults).hash(hasher);
        (self.doubled, self.stale_epoch_adopted).hash(hasher);
        self.hints.hash(hasher);
        for request in &self.requests {
            (&request.cursor, &request.known, &request.reply).hash(hasher);
            (request.orphaned, request.ticket.epoch()).hash(hasher);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Move {
    Commit,
    Serve(usize),
    Deliver(usize),
    Fail(usize),
    Hint(usize),
    LoseHint(usize),
    RepeatHint(usize),
    CutStream,
    OpenStream,
    Reconnect,
    Timer,
}

fn tag(version: u8) -> EntityTag {
    EntityTag::new(format!("v{version}")).expect("a tag")
}

fn policy() -> Policy {
    let mut policy = Policy::default();
    policy.hint_delay = Duration::ZERO;
    policy.hint_spacing = Duration::ZERO;
    // The only delay: it keeps "waits for the stream" apart from "waits no longer".
    policy.stream_grace = Duration::from_millis(1);
    policy.second_look = None;
    policy.max_restarts = 1;
    for backoff in [
        &mut policy.retry,
        &mut policy.idle_hint_spacing,
        &mut policy.empty_look,
    ] {
        backoff.first = Duration::ZERO;
        backoff.cap = Duration::ZERO;
        backoff.jitter = 0;
    }
    policy
}

impl Network {
    const fn of(paging: Paging) -> Self {
        Self {
            paging,
            conditional: false,
            commits: 2,
            faults: 2,
            mutation: None,
        }
    }

    fn offer(self) -> Offer {
        Offer::modern().conditional(self.conditional)
    }

    fn reply(self, world: &World, request: &Request) -> Reply {
        let version = match (self.paging, &request.cursor) {
            (Paging::Snapshot, Some(cursor)) => cursor.parse().unwrap_or(world.version),
            _ => world.version,
        };
        if self.conditional && request.known == Some(tag(version)) {
            return Reply::NotModified(tag(version));
        }
        let first = request.cursor.is_none();
        Reply::Page(Page {
            items: vec![Entry {
                key: if first { "a" } else { "b" },
                version,
                served_in: request.ticket.epoch(),
            }],
            next: first.then(|| version.to_string()),
            tag: (self.paging == Paging::LiveTagged).then(|| tag(version)),
            hints: CacheHints::default(),
            bytes: 1,
        })
    }
}

impl World {
    fn drain(&mut self) {
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Fetch(fetch) => {
                    self.doubled |= self.requests.iter().any(|r| !r.orphaned);
                    if fetch.cursor.is_none() {
                        self.silent_loss = false;
                    }
                    self.requests.push(Request {
                        ticket: fetch.ticket,
                        cursor: fetch.cursor,
                        known: fetch.known,
                        reply: None,
                        orphaned: false,
                    });
                }
                Action::Cancel(ticket) => {
                    for request in &mut self.requests {
                        request.orphaned |= request.ticket == ticket;
                    }
                }
                Action::Adopt(adoption) => {
                    self.stale_epoch_adopted |=
                        adoption.items.iter().any(|e| e.served_in != self.epoch);
                    self.adopted = Some(adoption.items.to_vec());
                }
                Action::Record(_) => {}
            }
        }
    }

    fn fault(&mut self, fault: Fault) {
        self.faults.push(fault);
        self.faults.sort_unstable();
    }

    fn time(&self) -> Time {
        Time::from_millis(self.now)
    }

    fn is_mixed(&self) -> bool {
        self.adopted
            .as_ref()
            .is_some_and(|items| items.windows(2).any(|w| w[0].version != w[1].version))
    }

    /// Nothing is under way, and nothing will be by itself.
    fn is_quiet(&self) -> bool {
        self.streaming
            && self.requests.iter().all(|r| r.orphaned)
            && self.hints.iter().all(|h| *h != self.epoch)
            && self.machine.next_timeout().is_none()
    }

    fn is_current(&self) -> bool {
        self.adopted.as_ref().is_some_and(|items| {
            items.len() == 2 && items.iter().all(|e| e.version == self.version)
        })
    }
}

impl Model for Network {
    type State = World;
    type Action = Move;

    fn init_states(&self) -> Vec<World> {
        let mut machine = Freshness::new(policy(), 1);
        machine.mutation = self.mutation;
        machine.connected(Time::default(), Epoch(1), self.offer());
        let mut world = World {
            machine,
            now: 0,
            epoch: Epoch(1),
            streaming: false,
            version: 0,
            requests: Vec::new(),
            hints: Vec::new(),
            adopted: None,
            silent_loss: false,
            doubled: false,
            stale_epoch_adopted: false,
            commits: 0,
            faults: Vec::new(),
        };
        world.drain();
        vec![world]
    }

    fn actions(&self, world: &World, moves: &mut Vec<Move>) {
        let may_fail = world.faults.len() < usize::from(self.faults);
        if world.commits < self.commits {
            moves.push(Move::Commit);
        }
        for (n, request) in world.requests.iter().enumerate() {
            if request.reply.is_some() {
                moves.push(Move::Deliver(n));
            } else {
                moves.push(Move::Serve(n));
            }
            if may_fail && !request.orphaned {
                moves.push(Move::Fail(n));
            }
        }
        for n in 0..world.hints.len() {
            moves.push(Move::Hint(n));
            if may_fail {
                moves.push(Move::LoseHint(n));
                moves.push(Move::RepeatHint(n));
            }
        }
        if !world.streaming {
            moves.push(Move::OpenStream);
        } else if may_fail {
            moves.push(Move::CutStream);
        }
        if may_fail {
            moves.push(Move::Reconnect);
        }
        if world.machine.next_timeout().is_some() {
            moves.push(Move::Timer);
        }
    }

    fn next_state(&self, before: &World, action: Move) -> Option<World> {
        let mut world = before.clone();
        let (now, epoch) = (world.time(), world.epoch);
        match action {
            Move::Commit => {
                world.version += 1;
                world.commits += 1;
                if world.streaming {
                    world.hints.push(epoch);
                }
            }
            Move::Serve(n) => {
                let reply = self.reply(&world, &world.requests[n]);
                world.requests[n].reply = Some(reply);
            }
            Move::Deliver(n) => {
                let request = world.requests.remove(n);
                match request.reply? {
                    Reply::Page(page) => world.machine.page(now, request.ticket, page),
                    Reply::NotModified(tag) => world.machine.not_modified(
                        now,
                        request.ticket,
                        &tag,
                        CacheHints::default(),
                        1,
                    ),
                }
            }
            Move::Fail(n) => {
                let request = world.requests.remove(n);
                world.fault(Fault::Failure);
                let failure = Failure::Transient(String::new());
                world.machine.failed(now, request.ticket, failure);
            }
            Move::Hint(n) => {
                let of = world.hints.remove(n);
                world.machine.hint(now, of, None);
            }
            Move::LoseHint(n) => {
                let of = world.hints.remove(n);
                world.fault(Fault::LostHint);
                world.silent_loss |= of == epoch;
            }
            Move::RepeatHint(n) => {
                let of = world.hints[n];
                world.hints.push(of);
                world.fault(Fault::RepeatedHint);
            }
            Move::CutStream => {
                world.streaming = false;
                world.fault(Fault::CutStream);
                world.hints.retain(|h| *h != epoch);
                world.machine.stream_lost(now, epoch);
            }
            Move::OpenStream => {
                world.streaming = true;
                world.machine.stream_opened(now, epoch);
            }
            Move::Reconnect => {
                world.fault(Fault::Reconnect);
                world.streaming = false;
                world.silent_loss = false;
                let next = Epoch(epoch.0 + 1);
                world.machine.disconnected(now, epoch);
                world.machine.connecting(now, next);
                world.epoch = next;
                // What was served may still arrive; what was not, never will.
                world.requests.retain(|r| r.reply.is_some());
                for request in &mut world.requests {
                    request.orphaned = true;
                }
                world.machine.connected(now, next, self.offer());
            }
            Move::Timer => {
                let at = world.machine.next_timeout()?;
                world.now = world.now.max(at.as_millis());
                world.machine.timeout(world.time());
            }
        }
        world.drain();
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a quiet system is current", |_, w: &World| {
                !w.is_quiet() || w.silent_loss || w.is_current()
            }),
            Property::always("no mix is adopted", |m: &Network, w: &World| {
                // Without tags and without hints in time a client cannot know;
                // there the first property says that it ends right.
                m.paging == Paging::LiveBare || !w.is_mixed()
            }),
            Property::always("one request at a time", |_, w: &World| !w.doubled),
            Property::always("nothing of an old connection", |_, w: &World| {
                !w.stale_epoch_adopted
            }),
            Property::sometimes("quiet after everything", |m: &Network, w: &World| {
                w.commits == m.commits
                    && w.faults.len() == usize::from(m.faults)
                    && w.is_quiet()
                    && w.is_current()
            }),
        ]
    }
}

fn check(network: Network) -> impl Checker<Network> {
    network.checker().threads(2).spawn_bfs().join()
}

/// Searches until the rule is broken, or to the end.
fn breaks(network: Network, rule: &'static str) -> bool {
    let checker = network
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AllOf([rule].into()))
        .spawn_bfs()
        .join();
    checker.discovery(rule).is_some()
}

#[test]
fn no_order_of_events_breaks_a_rule_with_live_pages_and_tags() {
    let checker = check(Network::of(Paging::LiveTagged));
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn no_order_of_events_breaks_a_rule_with_live_pages_and_no_tags() {
    let checker = check(Network::of(Paging::LiveBare));
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn no_order_of_events_breaks_a_rule_with_snapshots() {
    let checker = check(Network::of(Paging::Snapshot));
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn no_order_of_events_breaks_a_rule_with_conditional_lists() {
    let checker = check(Network {
        conditional: true,
        ..Network::of(Paging::LiveTagged)
    });
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

/// A checker that cannot fail proves nothing: each rule, left out, is missed.
#[test]
fn each_rule_that_is_left_out_is_found_out() {
    let cases = [
        (Mutation::DropHintDuringRefresh, "a quiet system is current"),
        (Mutation::TrustReopenedStream, "a quiet system is current"),
        (Mutation::ForgetFailure, "a quiet system is current"),
        (Mutation::TakeOldAnswers, "nothing of an old connection"),
        (Mutation::JoinVersions, "no mix is adopted"),
        (Mutation::RefreshTwice, "one request at a time"),
    ];
    for (mutation, rule) in cases {
        let network = Network {
            mutation: Some(mutation),
            ..Network::of(Paging::LiveTagged)
        };
        assert!(
            breaks(network, rule),
            "{mutation:?} goes unnoticed by {rule:?}"
        );
    }
}
