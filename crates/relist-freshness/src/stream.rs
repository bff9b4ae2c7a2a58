//! When to open the stream of hints again.
//!
//! One keeper for each connection. It restarts, it never resumes: a new stream
//! is followed by a check of every catalog it watches, since hints may have
//! been missed in between.

use std::time::Duration;

use crate::policy::Backoff;
use crate::time::{Jitter, Time};

/// How a stream ended, as far as the next attempt is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamEnd {
    /// The server said that it is over.
    Graceful,
    /// It broke, fell silent, or was never a stream.
    Lost,
    /// There is none to be had: not offered, refused, or nothing granted.
    Unavailable,
    /// The server closed it without acknowledging it, or answered with
    /// something else altogether.
    NotAcknowledged,
}

/// Pauses between streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StreamPolicy {
    /// Pauses after streams that did not last (default 1 s, growing to 5 min).
    pub retry: Backoff,
    /// Pauses after what never was a stream: not acknowledged, or another kind
    /// of answer (default 30 s, growing to 10 min).
    pub slow_retry: Backoff,
    /// A stream that lived this long was a success (default 30 s). A shorter
    /// one counts as a failure, however politely it ended.
    pub lasting: Duration,
}

impl Default for StreamPolicy {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self {
            retry: Backoff {
                first: secs(1),
                cap: secs(300),
                jitter: 50,
            },
            slow_retry: Backoff {
                first: secs(30),
                cap: secs(600),
                jitter: 20,
            },
            lasting: secs(30),
        }
    }
}

/// Where a keeper stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamState {
    /// There is no connection, or no stream is wanted.
    Off,
    /// A stream has been asked for.
    Opening,
    /// A stream is live.
    Live {
        /// Since when.
        since: Time,
    },
    /// The next attempt waits for its time.
    Waiting {
        /// The time.
        until: Time,
    },
    /// No stream is to be had on this connection.
    Unavailable,
}

/// Decides when to open the stream of hints again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StreamKeeper {
    policy: StreamPolicy,
    state: StreamState,
    failures: u32,
    jitter: Jitter,
    open_wanted: bool,
}

impl StreamKeeper {
    /// A keeper without a connection.
    #[must_use]
    pub const fn new(policy: StreamPolicy, seed: u64) -> Self {
        Self {
            policy,
            state: StreamState::Off,
            failures: 0,
            jitter: Jitter::new(seed),
            open_wanted: false,
        }
    }

    /// Where the keeper stands.
    #[must_use]
    pub const fn state(&self) -> StreamState {
        self.state
    }

    /// Attempts in a row that did not last.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// A connection is up; `wanted` says whether its server can hint at all.
    ///
    /// The count of failures survives: a server that drops connection and
    /// stream together must not be asked without pause.
    pub fn connected(&mut self, now: Time, wanted: bool) {
        if !wanted {
            self.state = StreamState::Off;
            self.open_wanted = false;
        } else if self.failures == 0 {
            self.open();
        } else {
            let until = now + self.policy.retry.delay(self.failures, &mut self.jitter);
            self.state = StreamState::Waiting { until };
        }
    }

    /// The connection is gone, and its stream with it.
    pub fn disconnected(&mut self, now: Time) {
        if matches!(self.state, StreamState::Live { .. }) {
            self.judge(now);
        }
        self.state = StreamState::Off;
        self.open_wanted = false;
    }

    /// The connection is given up by ourselves: how long its stream lived says
    /// nothing about the server.
    pub fn released(&mut self) {
        self.state = StreamState::Off;
        self.open_wanted = false;
    }

    /// The stream is open, acknowledged where the era has that.
    pub fn opened(&mut self, now: Time) {
        if self.state == StreamState::Opening {
            self.state = StreamState::Live { since: now };
        }
    }

    /// The stream ended, or could not be opened.
    pub fn ended(&mut self, now: Time, end: StreamEnd) {
        if !matches!(self.state, StreamState::Opening | StreamState::Live { .. }) {
            return;
        }
        if end == StreamEnd::Unavailable {
            self.state = StreamState::Unavailable;
            return;
        }
        self.judge(now);
        let backoff = match end {
            StreamEnd::NotAcknowledged => self.policy.slow_retry,
            _ => self.policy.retry,
        };
        // Also after a lasting stream there is a pause: a server that closes
        // all its streams at once must not get them all back at once.
        let until = now + backoff.delay(self.failures.max(1), &mut self.jitter);
        self.state = StreamState::Waiting { until };
    }

    /// Time has passed.
    pub fn timeout(&mut self, now: Time) {
        if let StreamState::Waiting { until } = self.state
            && until <= now
        {
            self.open();
        }
    }

    /// When [`Self::timeout`] wants to be called.
    #[must_use]
    pub const fn next_timeout(&self) -> Option<Time> {
        match self.state {
            StreamState::Waiting { until } => Some(until),
            _ => None,
        }
    }

    /// Whether a stream is to be opened now; asks once for each attempt.
    pub fn poll_open(&mut self) -> bool {
        std::mem::take(&mut self.open_wanted)
    }

    fn open(&mut self) {
        self.state = StreamState::Opening;
        self.open_wanted = true;
    }

    fn judge(&mut self, now: Time) {
        let lasted = match self.state {
            StreamState::Live { since } => now - since >= self.policy.lasting,
            _ => false,
        };
        self.failures = if lasted {
            0
        } else {
            self.failures.saturating_add(1)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper() -> StreamKeeper {
        let mut policy = StreamPolicy::default();
        policy.retry.jitter = 0;
        policy.slow_retry.jitter = 0;
        StreamKeeper::new(policy, 1)
    }

    fn at(secs: u64) -> Time {
        Time::from_millis(secs * 1000)
    }

    #[test]
    fn an_instantly_ended_stream_does_not_reset_the_backoff() {
        let mut keeper = keeper();
        let mut now = at(0);
        keeper.connected(now, true);
        let mut pauses = Vec::new();
        for _ in 0..5 {
            assert!(keeper.poll_open());
            keeper.opened(now);
            keeper.ended(now, StreamEnd::Graceful);
            let next = keeper.next_timeout().expect("a pause");
            pauses.push((next - now).as_secs());
            now = next;
            keeper.timeout(now);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16]);
    }

    #[test]
    fn a_lasting_stream_resets_the_backoff_and_still_pauses() {
        let mut keeper = keeper();
        keeper.connected(at(0), true);
        keeper.opened(at(0));
        keeper.ended(at(1), StreamEnd::Lost);
        keeper.timeout(at(2));
        keeper.opened(at(2));
        keeper.ended(at(60), StreamEnd::Lost);
        assert_eq!(keeper.failures(), 0);
        assert_eq!(keeper.next_timeout(), Some(at(61)));
    }

    #[test]
    fn no_stream_to_be_had_means_no_retry() {
        let mut keeper = keeper();
        keeper.connected(at(0), true);
        assert!(keeper.poll_open());
        keeper.ended(at(0), StreamEnd::Unavailable);
        assert_eq!(keeper.next_timeout(), None);
        keeper.timeout(at(100_000));
        assert!(!keeper.poll_open());
    }

    #[test]
    fn a_stream_without_acknowledgment_is_retried_slowly() {
        let mut keeper = keeper();
        keeper.connected(at(0), true);
        keeper.ended(at(0), StreamEnd::NotAcknowledged);
        assert_eq!(keeper.next_timeout(), Some(at(30)));
    }

    #[test]
    fn a_stream_that_we_gave_up_ourselves_is_no_failure() {
        let mut keeper = keeper();
        for _ in 0..3 {
            keeper.connected(at(0), true);
            assert!(keeper.poll_open());
            keeper.opened(at(0));
            keeper.released();
        }
        assert_eq!(keeper.failures(), 0);
    }

    #[test]
    fn each_attempt_is_asked_for_once() {
        let mut keeper = keeper();
        keeper.connected(at(0), true);
        assert!(keeper.poll_open());
        assert!(!keeper.poll_open());
    }
}
