//! One refresh: what made it due, the walk, and how it ends.

use std::sync::Arc;
use std::time::Duration;

use relist_catalog::EntityTag;
use relist_protocol::list::CacheHints;

use super::{Action, Adoption, Freshness, Held, Link, Mutation, Unavailable, Work};
use crate::policy::Policy;
use crate::record::{self, Failure, RefreshRecord, Trigger};
use crate::time::{Epoch, Time};
use crate::walk::{Collection, Listed, Page, Step, Walk};

/// What may start a refresh before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Pace {
    /// Anything.
    Free,
    /// A need or a hand, not a hint: the last attempt failed.
    Backoff,
    /// Only a hand: the server said when to come back.
    Ordered,
}

/// A refresh that waits for its time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Due {
    pub(super) at: Time,
    pub(super) trigger: Trigger,
    pub(super) received: Time,
    pub(super) hints: u32,
    pub(super) pace: Pace,
}

impl Due {
    pub(super) const fn new(trigger: Trigger, received: Time, at: Time) -> Self {
        Self {
            at,
            trigger,
            received,
            hints: 0,
            pace: Pace::Free,
        }
    }

    /// Two causes, one refresh: the earlier of both, unless the first is
    /// paced. Hints are counted together and never push a refresh back.
    pub(super) fn merge(self, other: Self) -> Self {
        let hints = self.hints.saturating_add(other.hints);
        let first = if self.pace != Pace::Free || self.at <= other.at {
            self
        } else {
            other
        };
        Self { hints, ..first }
    }

    /// This cause, run in place of another one that waited.
    pub(super) fn including(mut self, waiting: Option<Self>) -> Self {
        if let Some(waiting) = waiting {
            self.hints = self.hints.saturating_add(waiting.hints);
            if waiting.trigger == Trigger::Hint {
                self.received = waiting.received;
            }
        }
        self
    }
}

/// A cause that arrived during a refresh: exactly one more follows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Again {
    trigger: Trigger,
    received: Time,
    hints: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Refresh<I> {
    pub(super) number: u64,
    pub(super) request: u64,
    pub(super) known: Option<EntityTag>,
    pub(super) again: Option<Again>,
    pub(super) bytes: u64,
    epoch: Epoch,
    due: Due,
    started: Time,
    tag_before: Option<EntityTag>,
    walk: Walk<I>,
    pages: usize,
    restarts: u32,
    /// The server refused a cursor of its own already.
    cursor_refused: bool,
    /// A hint arrived while pages without a tag were being joined.
    disturbed: bool,
    /// The list that a disturbed walk gave: worth something only if the next
    /// walk gives the same.
    unconfirmed: Option<Vec<I>>,
}

/// How a refresh goes on.
pub(super) enum Outcome<I> {
    Fetch(Option<String>),
    Complete(Collection<I>),
    Failed(Failure),
}

impl<I: Listed + PartialEq> Refresh<I> {
    pub(super) const fn new(
        number: u64,
        epoch: Epoch,
        started: Time,
        due: Due,
        known: Option<EntityTag>,
        tag_before: Option<EntityTag>,
    ) -> Self {
        Self {
            number,
            request: 0,
            known,
            again: None,
            bytes: 0,
            epoch,
            due,
            started,
            tag_before,
            walk: Walk::new(),
            pages: 0,
            restarts: 0,
            cursor_refused: false,
            disturbed: false,
            unconfirmed: None,
        }
    }

    pub(super) fn is_at_first_page(&self) -> bool {
        self.walk.pages() == 0
    }

    /// A cause arrived while the refresh runs.
    pub(super) fn once_more(&mut self, due: &Due) {
        if self.walk.is_unprotected() {
            self.disturbed = true;
        }
        match &mut self.again {
            Some(again) => again.hints = again.hints.saturating_add(due.hints),
            None => {
                self.again = Some(Again {
                    trigger: due.trigger,
                    received: due.received,
                    hints: due.hints,
                });
            }
        }
    }

    pub(super) fn page(
        &mut self,
        now: Time,
        mut page: Page<I>,
        policy: &Policy,
        joins_versions: bool,
    ) -> Outcome<I> {
        self.pages += 1;
        self.bytes += page.bytes;
        if joins_versions {
            page.tag = None;
        }
        match self.walk.take(now, page, policy) {
            Step::More(cursor) => Outcome::Fetch(Some(cursor)),
            Step::Changed => self.start_over(policy),
            Step::Fault(fault) => Outcome::Failed(fault.into()),
            Step::Done(collection) if self.disturbed && !joins_versions => {
                // Pages that were joined across a hint may mix two versions.
                // Only a list that comes out the same twice is believed.
                if self.unconfirmed.as_ref() == Some(&collection.items) {
                    return Outcome::Complete(collection);
                }
                self.unconfirmed = Some(collection.items);
                self.start_over(policy)
            }
            Step::Done(collection) => Outcome::Complete(collection),
        }
    }

    /// The cursor's snapshot is gone: starts over, once. A server that refuses
    /// its own cursors again is asked again later.
    pub(super) fn cursor_refused(&mut self, message: String, policy: &Policy) -> Outcome<I> {
        if std::mem::replace(&mut self.cursor_refused, true) {
            return Outcome::Failed(Failure::CursorRefused(message));
        }
        self.start_over(policy)
    }

    /// Begins again with the first page; what is asked again answers the hints so far.
    pub(super) fn start_over(&mut self, policy: &Policy) -> Outcome<I> {
        self.walk = Walk::new();
        self.restarts += 1;
        if self.restarts > policy.max_restarts {
            return Outcome::Failed(Failure::Unsettled(self.restarts));
        }
        self.disturbed = false;
        if let Some(again) = self.again.take() {
            self.due.hints = self.due.hints.saturating_add(again.hints);
        }
        Outcome::Fetch(None)
    }

    #[cfg(test)]
    pub(super) fn hash_essence<H: std::hash::Hasher>(&self, hasher: &mut H)
    where
        I: std::hash::Hash,
    {
        use std::hash::Hash as _;
        let again = self.again.as_ref().map(|a| a.trigger);
        (&self.walk, self.restarts, self.cursor_refused).hash(hasher);
        (self.disturbed, &self.unconfirmed).hash(hasher);
        (&self.known, again, self.due.trigger).hash(hasher);
    }

    fn record(
        &self,
        finished: Time,
        tag_after: Option<EntityTag>,
        outcome: record::Outcome,
    ) -> RefreshRecord {
        RefreshRecord {
            number: self.number,
            trigger: self.due.trigger,
            hints: self.due.hints,
            received: self.due.received,
            epoch: self.epoch,
            started: self.started,
            finished,
            pages: self.pages,
            restarts: self.restarts,
            bytes: self.bytes,
            tag_before: self.tag_before.clone(),
            tag_after,
            outcome,
        }
    }
}

/// Whether two lists hold the same items, in whatever order.
fn same_items<I: Listed + PartialEq>(one: &[I], other: &[I]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    if one.iter().zip(other).all(|(a, b)| a == b) {
        return true;
    }
    let sorted = |items| {
        let mut refs: Vec<&I> = Vec::from_iter(items);
        refs.sort_by_key(|i| i.key().to_owned());
        refs
    };
    sorted(one.iter()) == sorted(other.iter())
}

impl<I: Listed + Clone + PartialEq> Freshness<I> {
    pub(super) fn adopt(&mut self, now: Time, refresh: Refresh<I>, list: Collection<I>) {
        let items: Arc<[I]> = list.items.into();
        let changed = match &self.held {
            None => true,
            Some(Held {
                tag: Some(before), ..
            }) if list.tag.is_some() => list.tag.as_ref() != Some(before),
            Some(held) => !same_items(&held.items, &items),
        };
        let record = refresh.record(
            now,
            list.tag.clone(),
            record::Outcome::Adopted { items: items.len() },
        );
        self.empty_looks = if items.is_empty() {
            self.empty_looks.saturating_add(1)
        } else {
            0
        };
        self.held = Some(Held {
            items: items.clone(),
            tag: list.tag.clone(),
            hints: list.hints,
            first_page: list.first_page,
            verified_from: refresh.started,
            epoch: refresh.epoch,
            clean: refresh.again.is_none(),
        });
        if let Link::Up(up) = &mut self.link {
            up.distrusted = false;
        }
        self.actions.push_back(Action::Adopt(Adoption {
            items,
            tag: list.tag,
            hints: list.hints,
            changed,
        }));
        self.succeed(now, &refresh, changed, record);
    }

    pub(super) fn confirm(&mut self, now: Time, refresh: Refresh<I>, hints: CacheHints) {
        if let Some(held) = &mut self.held {
            held.hints = hints;
            held.first_page = now;
            held.verified_from = refresh.started;
            held.epoch = refresh.epoch;
            held.clean = refresh.again.is_none();
        }
        let record = refresh.record(now, refresh.known.clone(), record::Outcome::NotModified);
        self.succeed(now, &refresh, false, record);
    }

    fn succeed(&mut self, now: Time, refresh: &Refresh<I>, changed: bool, record: RefreshRecord) {
        self.failures = 0;
        self.last_failure = None;
        self.last_failed = None;
        self.last_success = Some(now);
        self.actions.push_back(Action::Record(record));
        let hinted = refresh.due.trigger == Trigger::Hint;
        // The tail of a burst whose change was found already announced that one.
        let explained = self
            .last_hinted_change
            .is_some_and(|at| refresh.due.received <= at + self.policy.hint_spacing);
        if changed {
            self.idle_hints = 0;
            self.last_hinted_change = hinted.then_some(now).or(self.last_hinted_change);
        } else if hinted {
            self.idle_hints = self.idle_hints.saturating_add(1);
        }
        if let Some(again) = &refresh.again {
            let mut due = Due {
                hints: again.hints,
                ..Due::new(again.trigger, again.received, now)
            };
            if again.trigger == Trigger::Hint
                && let Some(start) = self.last_hint_start
            {
                due.at = due.at.max(start + self.hint_spacing());
            }
            self.schedule(due);
        } else if hinted
            && !explained
            && self.idle_hints == 1
            && let Some(pause) = self.policy.second_look
        {
            // The hint may have come before the change was visible.
            self.schedule(Due::new(Trigger::SecondLook, now, now + pause));
        }
        self.plan_background(now);
        self.start_if_due(now);
    }

    pub(super) fn fail(&mut self, now: Time, refresh: Refresh<I>, failure: Failure) {
        let tag = refresh.tag_before.clone();
        self.actions.push_back(Action::Record(refresh.record(
            now,
            tag,
            record::Outcome::Failed(failure.clone()),
        )));
        self.last_failed = Some(now);
        self.last_failure = Some(failure.clone());
        let Link::Up(up) = &mut self.link else { return };
        let pause = match failure {
            Failure::NotOffered(_) => {
                up.unavailable = Some(Unavailable::NotOffered);
                return;
            }
            Failure::Unauthorized(_) => {
                up.unavailable = Some(Unavailable::Unauthorized);
                return;
            }
            Failure::RetryAfter(pause) => Some(pause.min(self.policy.retry_after_cap)),
            _ => None,
        };
        self.failures = self.failures.saturating_add(1);
        if self.mutated(Mutation::ForgetFailure) {
            return;
        }
        let (pause, pace) = match pause {
            Some(pause) => (pause, Pace::Ordered),
            None => (self.pause_after_failure(), Pace::Backoff),
        };
        let hints = refresh.again.as_ref().map_or(0, |a| a.hints);
        let due = Due {
            hints: hints.saturating_add(refresh.due.hints),
            pace,
            ..Due::new(Trigger::Retry, now, now + pause)
        };
        if let Link::Up(up) = &mut self.link {
            up.work = Work::Idle { due: Some(due) };
        }
    }

    fn pause_after_failure(&mut self) -> Duration {
        self.policy.retry.delay(self.failures, &mut self.jitter)
    }

    /// Drops the refresh in flight: its connection is no longer the current one.
    pub(super) fn abandon(&mut self, now: Time) {
        let Link::Up(up) = &mut self.link else { return };
        let work = std::mem::replace(&mut up.work, Work::Idle { due: None });
        if let Work::Refreshing(refresh) = work {
            let ticket = super::Ticket {
                epoch: refresh.epoch,
                refresh: refresh.number,
                request: refresh.request,
            };
            // A request that was never taken need not be taken back.
            let untaken = self
                .actions
                .iter()
                .position(|a| matches!(a, Action::Fetch(f) if f.ticket == ticket));
            match untaken {
                Some(position) => drop(self.actions.remove(position)),
                None => self.actions.push_back(Action::Cancel(ticket)),
            }
            let tag = refresh.tag_before.clone();
            self.actions.push_back(Action::Record(refresh.record(
                now,
                tag,
                record::Outcome::Abandoned,
            )));
        }
    }
}
