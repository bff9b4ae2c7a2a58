//! What an application may see of the machine.

use std::time::Duration;

use super::{Freshness, Link, Unavailable, Up, Watch, Work};
use crate::record::Failure;
use crate::time::{Epoch, Time};
use crate::walk::Listed;

/// Where a catalog stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// There is no connection.
    Disconnected,
    /// A connection is being opened.
    Initializing,
    /// The connection is up, and nothing has been listed yet.
    Discovering,
    /// The copy is what the server last said, and nothing speaks against it.
    Fresh,
    /// The copy may be out of date; a refresh is due, or waits for a need.
    Stale,
    /// A refresh is in flight; the old copy is readable meanwhile.
    Refreshing,
    /// There is nothing to be had, and no ordinary retry.
    Unavailable,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Disconnected => "disconnected",
            Self::Initializing => "initializing",
            Self::Discovering => "discovering",
            Self::Fresh => "fresh",
            Self::Stale => "stale",
            Self::Refreshing => "refreshing",
            Self::Unavailable => "unavailable",
        })
    }
}

/// Everything an application may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Where the catalog stands.
    pub phase: Phase,
    /// Why it is unavailable, if it is.
    pub unavailable: Option<Unavailable>,
    /// The current connection.
    pub epoch: Option<Epoch>,
    /// The connection on which the copy was verified last.
    pub verified: Option<Epoch>,
    /// When a refresh last succeeded, on whatever connection.
    pub last_success: Option<Time>,
    /// Failures since then.
    pub failures: u32,
    /// The last of them.
    pub last_failure: Option<Failure>,
    /// Whether a stream of hints is live.
    pub watched: bool,
    /// When the copy expires, where it has a lifetime.
    pub expires: Option<Time>,
    /// When the next refresh starts by itself, where one is due.
    pub next_refresh: Option<Time>,
}

impl<I: Listed + Clone + PartialEq> Freshness<I> {
    /// Where the catalog stands at the given time.
    #[must_use]
    pub fn status(&self, now: Time) -> Status {
        let (unavailable, watched) = match &self.link {
            Link::Up(up) => (up.unavailable.clone(), up.watch == Watch::Live),
            _ => (None, false),
        };
        Status {
            phase: self.phase(now),
            unavailable,
            epoch: self.epoch(),
            verified: self.held.as_ref().map(|h| h.epoch),
            last_success: self.last_success,
            failures: self.failures,
            last_failure: self.last_failure.clone(),
            watched,
            expires: self.expires(),
            next_refresh: self.next_timeout(),
        }
    }

    fn phase(&self, now: Time) -> Phase {
        match &self.link {
            Link::Down => Phase::Disconnected,
            Link::Opening(_) => Phase::Initializing,
            Link::Up(up) if up.unavailable.is_some() => Phase::Unavailable,
            Link::Up(Up {
                work: Work::Refreshing(_),
                ..
            }) if self.held.is_some() => Phase::Refreshing,
            Link::Up(_) if self.held.is_none() => Phase::Discovering,
            Link::Up(_) if self.is_fresh(now) => Phase::Fresh,
            Link::Up(_) => Phase::Stale,
        }
    }

    /// When the copy expires, where it has a lifetime: the server's, or the
    /// policy's while a stream of hints is live and the server states none.
    #[must_use]
    pub fn expires(&self) -> Option<Time> {
        let held = self.held.as_ref()?;
        let watched = matches!(&self.link, Link::Up(up) if up.watch == Watch::Live);
        let lifetime = if held.hints.stated {
            held.hints.ttl
        } else if watched {
            self.policy.watched_lifetime
        } else {
            Duration::ZERO
        };
        (!lifetime.is_zero()).then(|| held.first_page + lifetime)
    }

    /// Whether the copy was verified on this connection, no hint came since,
    /// and its lifetime lasts.
    pub(super) fn is_fresh(&self, now: Time) -> bool {
        self.is_clean() && self.expires().is_some_and(|at| now < at)
    }

    /// Whether the copy, though it has no lifetime, will do for a call: it was
    /// verified since the turn began, or a stream of hints is live.
    pub(super) fn will_do_for_a_call(&self) -> bool {
        let (Link::Up(up), Some(held)) = (&self.link, &self.held) else {
            return false;
        };
        let verified = self.turn.is_some_and(|turn| held.verified_from >= turn);
        self.is_clean() && self.expires().is_none() && (verified || up.watch == Watch::Live)
    }

    /// Whether the copy was verified on this connection and no hint came since.
    fn is_clean(&self) -> bool {
        let (Link::Up(up), Some(held)) = (&self.link, &self.held) else {
            return false;
        };
        up.unavailable.is_none() && held.epoch == up.epoch && held.clean
    }
}
