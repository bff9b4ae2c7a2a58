//! Every bound and delay of the machine, in one place.

use std::time::Duration;

use crate::time::Jitter;

/// A delay that grows with each failure: `first`, twice that, and so on up to
/// `cap`, each shortened by jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// Never longer than this.
    pub cap: Duration,
    /// How much of a delay jitter may take away, in percent.
    pub jitter: u8,
}

impl Backoff {
    /// The delay after `failures` failures in a row; zero after none.
    #[must_use]
    pub fn delay(&self, failures: u32, jitter: &mut Jitter) -> Duration {
        if failures == 0 {
            return Duration::ZERO;
        }
        let factor = 1u32.checked_shl(failures - 1).unwrap_or(u32::MAX);
        let delay = self.first.saturating_mul(factor).min(self.cap);
        jitter.shorten(delay, self.jitter)
    }
}

/// How one catalog is kept fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Policy {
    /// How long hints are collected before they start a refresh, counted from
    /// the first of them (default 20 ms): a storm cannot push it back.
    pub hint_delay: Duration,
    /// The least time between the starts of two refreshes that hints cause
    /// (default 200 ms).
    pub hint_spacing: Duration,
    /// The spacing while hints keep announcing nothing (default 1 s, growing
    /// to 60 s).
    pub idle_hint_spacing: Backoff,
    /// When to look once more after a hint that announced nothing, for servers
    /// that hint before their change is visible (default 2 s; `None`: never).
    pub second_look: Option<Duration>,
    /// Pauses after failed refreshes (default 1 s, growing to 5 min).
    pub retry: Backoff,
    /// The longest `Retry-After` that is believed (default 1 h).
    pub retry_after_cap: Duration,
    /// The least time between the end of a failed refresh and one that a turn
    /// or a call asks for (default 1 s).
    pub need_spacing: Duration,
    /// How long the first list waits for the hint stream to open (default 1 s).
    pub stream_grace: Duration,
    /// How often an unwatched catalog is looked at in the background (default
    /// `None`: only when it is needed).
    pub poll: Option<Duration>,
    /// Whether expiry alone starts a refresh (default no: on the next need).
    pub refresh_on_expiry: bool,
    /// How much polling and expiry are shortened by jitter, in percent (default 20).
    pub poll_jitter: u8,
    /// When to look again at an empty catalog that nobody announces changes
    /// of (default 2 s, growing to 5 min).
    pub empty_look: Backoff,
    /// How long a list without any `ttlMs`, as legacy servers send it, counts
    /// as fresh while a hint stream is live (default 5 min). It bounds what a
    /// lost hint can cost. A stated `ttlMs` of zero is stale at once.
    pub watched_lifetime: Duration,
    /// How often one refresh starts over because the catalog changed under it
    /// (default 5).
    pub max_restarts: u32,
    /// The most pages of one walk (default 1,000).
    pub max_pages: usize,
    /// The most items of one walk (default 200,000).
    pub max_items: usize,
}

impl Default for Policy {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self {
            hint_delay: Duration::from_millis(20),
            hint_spacing: Duration::from_millis(200),
            idle_hint_spacing: Backoff {
                first: secs(1),
                cap: secs(60),
                jitter: 20,
            },
            second_look: Some(secs(2)),
            retry: Backoff {
                first: secs(1),
                cap: secs(300),
                jitter: 50,
            },
            retry_after_cap: secs(3600),
            need_spacing: secs(1),
            stream_grace: secs(1),
            poll: None,
            refresh_on_expiry: false,
            poll_jitter: 20,
            empty_look: Backoff {
                first: secs(2),
                cap: secs(300),
                jitter: 20,
            },
            watched_lifetime: secs(300),
            max_restarts: 5,
            max_pages: 1_000,
            max_items: 200_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_doubles_up_to_its_cap() {
        let backoff = Backoff {
            first: Duration::from_secs(1),
            cap: Duration::from_secs(5),
            jitter: 0,
        };
        let mut jitter = Jitter::new(0);
        let seconds: Vec<u64> = [0, 1, 2, 3, 4, 40, u32::MAX]
            .map(|n| backoff.delay(n, &mut jitter).as_secs())
            .to_vec();
        assert_eq!(seconds, [0, 1, 2, 4, 5, 5, 5]);
    }
}
