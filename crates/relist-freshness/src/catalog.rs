//! The machine for one catalog.

mod refresh;
mod status;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use relist_catalog::EntityTag;
use relist_protocol::list::CacheHints;

use crate::policy::Policy;
use crate::record::{Failure, RefreshRecord, Trigger};
use crate::time::{Epoch, Jitter, Time};
use crate::walk::{Listed, Page};

use refresh::{Due, Pace, Refresh};
pub use status::{Phase, Status};

/// What a server offers for one catalog, as its capabilities say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Offer {
    supported: bool,
    stream: bool,
    conditional: bool,
}

impl Offer {
    /// A catalog of a modern server, with a stream of hints to be opened.
    #[must_use]
    pub const fn modern() -> Self {
        Self {
            supported: true,
            stream: true,
            conditional: false,
        }
    }

    /// A catalog of a legacy server. It differs in what arrives (no lifetimes,
    /// no tags), not in what is offered.
    #[must_use]
    pub const fn legacy() -> Self {
        Self::modern()
    }

    /// The server has no such catalog.
    #[must_use]
    pub const fn absent() -> Self {
        Self {
            supported: false,
            stream: false,
            conditional: false,
        }
    }

    /// Whether a stream of hints will be opened for the catalog.
    #[must_use]
    pub const fn hints(mut self, stream: bool) -> Self {
        self.stream = stream;
        self
    }

    /// Whether `conditional` is on, on both sides.
    #[must_use]
    pub const fn conditional(mut self, conditional: bool) -> Self {
        self.conditional = conditional;
        self
    }
}

/// Why a catalog is unavailable. Neither is retried in the ordinary way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Unavailable {
    /// The server has no such catalog; a new connection may bring it.
    NotOffered,
    /// The credentials were refused; [`Freshness::reauthenticated`] or a new
    /// connection goes on.
    Unauthorized,
}

/// Why somebody needs a fresh catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Need {
    /// A turn of the model begins.
    Turn,
    /// A tool is about to be called, a prompt or resource to be fetched.
    Call,
}

/// Ties an answer to the request that it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    epoch: Epoch,
    refresh: u64,
    request: u64,
}

impl Ticket {
    /// The connection that the request belongs to.
    #[must_use]
    pub const fn epoch(self) -> Epoch {
        self.epoch
    }

    /// The number of the refresh that the request belongs to.
    #[must_use]
    pub const fn refresh(self) -> u64 {
        self.refresh
    }
}

/// A list request to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fetch {
    /// To be handed in with the answer.
    pub ticket: Ticket,
    /// The cursor; absent for the first page.
    pub cursor: Option<String>,
    /// With `conditional`: the tag of the copy, for the first page.
    pub known: Option<EntityTag>,
}

/// A whole list, to be shown to readers in one step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Adoption<I> {
    /// All items, in the server's order.
    pub items: Arc<[I]>,
    /// The tag, where the server gives one.
    pub tag: Option<EntityTag>,
    /// Shortest lifetime, strictest scope.
    pub hints: CacheHints,
    /// Whether the content differs from what was held before; order is not content.
    pub changed: bool,
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action<I> {
    /// Send a list request; hand the answer to [`Freshness::page`],
    /// [`Freshness::not_modified`] or [`Freshness::failed`]. At most one is
    /// outstanding.
    Fetch(Fetch),
    /// Give the request up: its answer would be dropped.
    Cancel(Ticket),
    /// Show the list to readers.
    Adopt(Adoption<I>),
    /// Keep the record.
    Record(RefreshRecord),
}

/// Whether hints can be expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Watch {
    /// No stream: not offered, or not to be had.
    Off,
    /// The stream is being opened; the first list waits for it a while.
    Awaiting,
    /// The stream is live.
    Live,
    /// The stream broke, and another attempt will follow.
    Lost,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Work<I> {
    Idle { due: Option<Due> },
    Refreshing(Box<Refresh<I>>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Link<I> {
    Down,
    Opening(Epoch),
    Up(Up<I>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Up<I> {
    epoch: Epoch,
    offer: Offer,
    watch: Watch,
    unavailable: Option<Unavailable>,
    /// The server confirmed something that it was not asked about: ask for
    /// whole lists until one has been adopted.
    distrusted: bool,
    work: Work<I>,
}

/// The copy that readers see.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Held<I> {
    items: Arc<[I]>,
    tag: Option<EntityTag>,
    hints: CacheHints,
    /// When the first page arrived, or the confirmation: lifetimes count from here.
    first_page: Time,
    /// When the refresh that verified the copy began.
    verified_from: Time,
    /// The connection on which it was verified last.
    epoch: Epoch,
    /// No hint since.
    clean: bool,
}

/// The freshness of one catalog. See the [crate] page for the loop that drives it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Freshness<I> {
    policy: Policy,
    jitter: Jitter,
    link: Link<I>,
    held: Option<Held<I>>,
    actions: VecDeque<Action<I>>,
    refreshes: u64,
    requests: u64,
    /// Failures in a row. They outlive a connection: reconnecting is a cheap
    /// success and must not make the pauses short again.
    failures: u32,
    last_failure: Option<Failure>,
    last_failed: Option<Time>,
    last_success: Option<Time>,
    last_hint_start: Option<Time>,
    /// When a refresh that a hint caused last found something new.
    last_hinted_change: Option<Time>,
    /// Refreshes in a row that a hint caused and that found nothing new.
    idle_hints: u32,
    empty_looks: u32,
    turn: Option<Time>,
    #[cfg(test)]
    pub(crate) mutation: Option<Mutation>,
}

/// Deliberate faults, by which the model checker proves that it would see them.
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "compiled to nothing outside tests")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mutation {
    /// A hint during a refresh is dropped.
    DropHintDuringRefresh,
    /// Answers of an older connection are taken.
    TakeOldAnswers,
    /// Pages of two versions are joined.
    JoinVersions,
    /// A hint starts a refresh beside the one in flight.
    RefreshTwice,
    /// A stream that opens again is not followed by a check.
    TrustReopenedStream,
    /// A failed refresh is not repeated.
    ForgetFailure,
}

impl<I: Listed + Clone + PartialEq> Freshness<I> {
    /// A machine without a connection and without a copy. The seed makes its
    /// jitter repeatable.
    #[must_use]
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self {
            policy,
            jitter: Jitter::new(seed),
            link: Link::Down,
            held: None,
            actions: VecDeque::new(),
            refreshes: 0,
            requests: 0,
            failures: 0,
            last_failure: None,
            last_failed: None,
            last_success: None,
            last_hint_start: None,
            last_hinted_change: None,
            idle_hints: 0,
            empty_looks: 0,
            turn: None,
            #[cfg(test)]
            mutation: None,
        }
    }

    /// The next thing to do; call until `None` after every input.
    pub fn poll_action(&mut self) -> Option<Action<I>> {
        self.actions.pop_front()
    }

    /// When [`Self::timeout`] wants to be called; `None` means: not before the
    /// next input.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        match &self.link {
            Link::Up(Up {
                work: Work::Idle { due: Some(due) },
                ..
            }) => Some(due.at),
            _ => None,
        }
    }

    // ---- the connection -------------------------------------------------

    /// A connection is being opened.
    pub fn connecting(&mut self, now: Time, epoch: Epoch) {
        if self.is_newer(epoch) {
            self.abandon(now);
            self.link = Link::Opening(epoch);
        }
    }

    /// A connection is up. Whatever was held is unverified until its first
    /// refresh has ended.
    pub fn connected(&mut self, now: Time, epoch: Epoch, offer: Offer) {
        if !self.is_newer(epoch) && self.link != Link::Opening(epoch) {
            return;
        }
        self.abandon(now);
        let watch = if offer.stream {
            Watch::Awaiting
        } else {
            Watch::Off
        };
        // Listen first, then list: whatever changes in between is then known.
        let grace = if offer.stream {
            self.policy.stream_grace
        } else {
            Duration::ZERO
        };
        let due = offer
            .supported
            .then(|| Due::new(Trigger::Connected, now, now + grace));
        self.link = Link::Up(Up {
            epoch,
            offer,
            watch,
            unavailable: (!offer.supported).then_some(Unavailable::NotOffered),
            distrusted: false,
            work: Work::Idle { due },
        });
        self.start_if_due(now);
    }

    /// The connection is gone. The copy stays for reading.
    pub fn disconnected(&mut self, now: Time, epoch: Epoch) {
        if self.epoch() == Some(epoch) {
            self.abandon(now);
            self.link = Link::Down;
        }
    }

    /// The stream of hints is open. What it did not carry while it was not
    /// open is looked for now.
    pub fn stream_opened(&mut self, now: Time, epoch: Epoch) {
        let Some(up) = self.up(epoch) else { return };
        let before = std::mem::replace(&mut up.watch, Watch::Live);
        if before == Watch::Awaiting && self.first_refresh_is_waiting() {
            self.bring_forward(now);
        } else if !self.mutated(Mutation::TrustReopenedStream) {
            self.mark_stale();
            self.schedule(Due::new(Trigger::StreamOpened, now, now));
        }
        self.start_if_due(now);
    }

    /// The stream of hints is lost; another will be opened.
    pub fn stream_lost(&mut self, now: Time, epoch: Epoch) {
        self.stream_gone(now, epoch, Watch::Lost);
    }

    /// There is no stream of hints to be had on this connection.
    pub fn stream_unavailable(&mut self, now: Time, epoch: Epoch) {
        self.stream_gone(now, epoch, Watch::Off);
    }

    fn stream_gone(&mut self, now: Time, epoch: Epoch, watch: Watch) {
        let Some(up) = self.up(epoch) else { return };
        up.watch = watch;
        if self.first_refresh_is_waiting() {
            self.bring_forward(now);
        }
        self.plan_background(now);
        self.start_if_due(now);
    }

    /// The credentials were renewed.
    pub fn reauthenticated(&mut self, now: Time) {
        let Link::Up(up) = &mut self.link else { return };
        if up.unavailable == Some(Unavailable::Unauthorized) {
            up.unavailable = None;
            up.work = Work::Idle {
                due: Some(Due::new(Trigger::Reauthenticated, now, now)),
            };
            self.start_if_due(now);
        }
    }

    // ---- causes of a refresh --------------------------------------------

    /// The server hints at a change; `announced` is the tag of the new
    /// version, where the hint carries one.
    pub fn hint(&mut self, now: Time, epoch: Epoch, announced: Option<&EntityTag>) {
        if self.up(epoch).is_none() {
            return;
        }
        if announced.is_some() && self.already_holds(epoch, announced) {
            return;
        }
        if self.is_refreshing() && self.mutated(Mutation::DropHintDuringRefresh) {
            return;
        }
        self.mark_stale();
        let mut at = now + self.policy.hint_delay;
        if let Some(start) = self.last_hint_start {
            at = at.max(start + self.hint_spacing());
        }
        self.schedule(Due {
            hints: 1,
            ..Due::new(Trigger::Hint, now, at)
        });
        if self.mutated(Mutation::RefreshTwice) {
            self.start(now, Due::new(Trigger::Hint, now, now));
        }
        self.start_if_due(now);
    }

    /// Somebody needs the catalog. Answers whether the copy may be used as it
    /// is; otherwise a refresh runs, or the last failure is too recent for
    /// another attempt ([`Self::status`] tells).
    pub fn need(&mut self, now: Time, need: Need) -> bool {
        if need == Need::Turn {
            self.turn = Some(now);
        }
        if self.is_fresh(now) || (need == Need::Call && self.will_do_for_a_call()) {
            return true;
        }
        let recently_failed = self
            .last_failed
            .is_some_and(|at| now < at + self.policy.need_spacing);
        let Link::Up(up) = &mut self.link else {
            return false;
        };
        if let Work::Idle { due } = &mut up.work
            && up.unavailable.is_none()
        {
            let wait = match due {
                None => false,
                Some(due) => match due.pace {
                    Pace::Free => up.watch == Watch::Awaiting,
                    Pace::Backoff => recently_failed,
                    Pace::Ordered => true,
                },
            };
            if !wait {
                let due = Due::new(Trigger::Need, now, now).including(due.take());
                self.start(now, due);
            }
        }
        false
    }

    /// Somebody asks by hand. Only refused credentials stand in the way.
    pub fn refresh(&mut self, now: Time) {
        let Link::Up(up) = &mut self.link else { return };
        if up.unavailable == Some(Unavailable::Unauthorized) {
            return;
        }
        up.unavailable = None;
        let due = Due::new(Trigger::Manual, now, now);
        match &mut up.work {
            Work::Refreshing(refresh) => refresh.once_more(&due),
            Work::Idle { due: waiting } => {
                let due = due.including(waiting.take());
                self.start(now, due);
            }
        }
    }

    /// Time has passed.
    pub fn timeout(&mut self, now: Time) {
        self.start_if_due(now);
    }

    // ---- answers --------------------------------------------------------

    /// A page arrived.
    pub fn page(&mut self, now: Time, ticket: Ticket, page: Page<I>) {
        let Some(mut refresh) = self.take_refresh(ticket) else {
            return;
        };
        let outcome = refresh.page(now, page, &self.policy, self.joins_versions());
        self.proceed(now, refresh, outcome);
    }

    /// The server confirmed the copy.
    pub fn not_modified(
        &mut self,
        now: Time,
        ticket: Ticket,
        tag: &EntityTag,
        hints: CacheHints,
        bytes: u64,
    ) {
        let Some(mut refresh) = self.take_refresh(ticket) else {
            return;
        };
        refresh.bytes += bytes;
        if refresh.known.as_ref() == Some(tag) && refresh.is_at_first_page() {
            self.confirm(now, *refresh, hints);
        } else {
            if let Link::Up(up) = &mut self.link {
                up.distrusted = true;
            }
            let failure = Failure::Invalid(format!(
                "`not_modified` for the tag {tag}, which the request did not offer"
            ));
            self.fail(now, *refresh, failure);
        }
    }

    /// A list request failed.
    pub fn failed(&mut self, now: Time, ticket: Ticket, failure: Failure) {
        let Some(mut refresh) = self.take_refresh(ticket) else {
            return;
        };
        let outcome = match failure {
            Failure::CursorRefused(message) if !refresh.is_at_first_page() => {
                refresh.cursor_refused(message, &self.policy)
            }
            Failure::CursorRefused(message) => refresh::Outcome::Failed(Failure::Invalid(message)),
            other => refresh::Outcome::Failed(other),
        };
        self.proceed(now, refresh, outcome);
    }

    // ---- inside ---------------------------------------------------------

    fn is_newer(&self, epoch: Epoch) -> bool {
        match &self.link {
            Link::Down => self.held.as_ref().is_none_or(|h| h.epoch < epoch),
            Link::Opening(current) | Link::Up(Up { epoch: current, .. }) => *current < epoch,
        }
    }

    fn epoch(&self) -> Option<Epoch> {
        match &self.link {
            Link::Down => None,
            Link::Opening(epoch) | Link::Up(Up { epoch, .. }) => Some(*epoch),
        }
    }

    fn up(&mut self, epoch: Epoch) -> Option<&mut Up<I>> {
        match &mut self.link {
            Link::Up(up) if up.epoch == epoch => Some(up),
            _ => None,
        }
    }

    fn is_refreshing(&self) -> bool {
        matches!(
            &self.link,
            Link::Up(Up {
                work: Work::Refreshing(_),
                ..
            })
        )
    }

    fn first_refresh_is_waiting(&self) -> bool {
        matches!(
            &self.link,
            Link::Up(Up { work: Work::Idle { due: Some(due) }, .. })
                if due.trigger == Trigger::Connected
        )
    }

    fn bring_forward(&mut self, now: Time) {
        if let Link::Up(Up {
            work: Work::Idle { due: Some(due) },
            ..
        }) = &mut self.link
        {
            due.at = due.at.min(now);
        }
    }

    fn already_holds(&self, epoch: Epoch, announced: Option<&EntityTag>) -> bool {
        !self.is_refreshing()
            && self
                .held
                .as_ref()
                .is_some_and(|h| h.epoch == epoch && h.clean && h.tag.as_ref() == announced)
    }

    fn mark_stale(&mut self) {
        if let Some(held) = &mut self.held {
            held.clean = false;
        }
    }

    fn hint_spacing(&mut self) -> Duration {
        match self.idle_hints {
            0 => self.policy.hint_spacing,
            n => self
                .policy
                .idle_hint_spacing
                .delay(n, &mut self.jitter)
                .max(self.policy.hint_spacing),
        }
    }

    /// Enters a cause: into the refresh in flight, or among what is due.
    fn schedule(&mut self, due: Due) {
        let Link::Up(up) = &mut self.link else { return };
        if up.unavailable.is_some() {
            return;
        }
        match &mut up.work {
            Work::Refreshing(refresh) => refresh.once_more(&due),
            Work::Idle { due: waiting } => {
                *waiting = Some(match waiting.take() {
                    None => due,
                    Some(waiting) => waiting.merge(due),
                });
            }
        }
    }

    fn start_if_due(&mut self, now: Time) {
        if let Link::Up(up) = &mut self.link
            && let Work::Idle { due } = &mut up.work
            && due.as_ref().is_some_and(|d| d.at <= now)
            && let Some(due) = due.take()
        {
            self.start(now, due);
        }
    }

    fn start(&mut self, now: Time, due: Due) {
        let Link::Up(up) = &mut self.link else { return };
        self.refreshes += 1;
        if due.trigger == Trigger::Hint {
            self.last_hint_start = Some(now);
        }
        let tag = self.held.as_ref().and_then(|h| h.tag.clone());
        let known = tag
            .clone()
            .filter(|_| up.offer.conditional && !up.distrusted);
        let refresh = Refresh::new(self.refreshes, up.epoch, now, due, known, tag);
        up.work = Work::Refreshing(Box::new(refresh));
        self.fetch(None);
    }

    /// Hands out the next request of the refresh in flight.
    fn fetch(&mut self, cursor: Option<String>) {
        let Link::Up(Up {
            epoch,
            work: Work::Refreshing(refresh),
            ..
        }) = &mut self.link
        else {
            return;
        };
        self.requests += 1;
        refresh.request = self.requests;
        let known = refresh.known.clone().filter(|_| cursor.is_none());
        self.actions.push_back(Action::Fetch(Fetch {
            ticket: Ticket {
                epoch: *epoch,
                refresh: refresh.number,
                request: self.requests,
            },
            cursor,
            known,
        }));
    }

    /// The refresh that a ticket belongs to, if it is the one in flight.
    fn take_refresh(&mut self, ticket: Ticket) -> Option<Box<Refresh<I>>> {
        let takes_old = self.mutated(Mutation::TakeOldAnswers);
        let Link::Up(up) = &mut self.link else {
            return None;
        };
        let Work::Refreshing(refresh) = &up.work else {
            return None;
        };
        let current = Ticket {
            epoch: up.epoch,
            refresh: refresh.number,
            request: refresh.request,
        };
        if current != ticket && !takes_old {
            return None;
        }
        match std::mem::replace(&mut up.work, Work::Idle { due: None }) {
            Work::Refreshing(refresh) => Some(refresh),
            Work::Idle { .. } => None,
        }
    }

    fn proceed(&mut self, now: Time, refresh: Box<Refresh<I>>, outcome: refresh::Outcome<I>) {
        match outcome {
            refresh::Outcome::Fetch(cursor) => {
                if let Link::Up(up) = &mut self.link {
                    up.work = Work::Refreshing(refresh);
                    self.fetch(cursor);
                }
            }
            refresh::Outcome::Complete(collection) => self.adopt(now, *refresh, collection),
            refresh::Outcome::Failed(failure) => self.fail(now, *refresh, failure),
        }
    }

    /// What runs next, once nothing else is due.
    fn plan_background(&mut self, now: Time) {
        let Link::Up(up) = &mut self.link else { return };
        let Work::Idle { due: None } = &up.work else {
            return;
        };
        let Some(held) = &self.held else { return };
        if up.unavailable.is_some() {
            return;
        }
        let mut candidates = Vec::new();
        if self.policy.refresh_on_expiry && !held.hints.ttl.is_zero() {
            // Ahead of the expiry by jitter, so that the clients of one
            // commit do not come back in one instant.
            let ttl = self.jitter.shorten(held.hints.ttl, self.policy.poll_jitter);
            candidates.push((held.first_page + ttl, Trigger::Expiry));
        }
        if up.watch != Watch::Live {
            if let Some(interval) = self.policy.poll {
                let interval = self.jitter.shorten(interval, self.policy.poll_jitter);
                candidates.push((now + interval, Trigger::Poll));
            }
            if held.items.is_empty() && self.empty_looks > 0 {
                let pause = self
                    .policy
                    .empty_look
                    .delay(self.empty_looks, &mut self.jitter);
                candidates.push((now + pause, Trigger::EmptyLook));
            }
        }
        if let Some((at, trigger)) = candidates.into_iter().min() {
            up.work = Work::Idle {
                due: Some(Due::new(trigger, at, at.max(now))),
            };
        }
    }

    fn joins_versions(&self) -> bool {
        self.mutated(Mutation::JoinVersions)
    }

    /// What the behaviour to come depends on, under a policy without delays.
    /// Counters and past times are left out: states that differ in nothing
    /// else are one state to the model checker.
    #[cfg(test)]
    pub(crate) fn hash_essence<H: std::hash::Hasher>(&self, hasher: &mut H)
    where
        I: std::hash::Hash,
    {
        use std::hash::Hash as _;
        if let Some(held) = &self.held {
            (&held.items, &held.tag, held.epoch, held.clean).hash(hasher);
        }
        match &self.link {
            Link::Down => 0u8.hash(hasher),
            Link::Opening(epoch) => (1u8, epoch).hash(hasher),
            Link::Up(up) => {
                (up.epoch, up.watch, &up.unavailable, up.distrusted).hash(hasher);
                match &up.work {
                    Work::Idle { due } => due.as_ref().map(|d| (d.trigger, d.pace)).hash(hasher),
                    Work::Refreshing(refresh) => refresh.hash_essence(hasher),
                }
            }
        }
    }

    #[cfg(test)]
    fn mutated(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self, reason = "the same call in tests reads a field")]
    const fn mutated(&self, _: Mutation) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
