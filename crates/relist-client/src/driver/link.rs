//! The connection as the loop sees it: down and waiting, opening, or up.

use std::sync::Arc;

use relist_freshness::policy::Backoff;
use relist_freshness::time::{Epoch, Jitter, Time};

use crate::connection::Connection;
use crate::error::{ConnectError, RequestError};

enum State {
    /// The next attempt starts at the time; `None`: not by itself.
    Down {
        until: Option<Time>,
    },
    Opening,
    Up(Arc<Connection>, Time),
    Closed,
}

pub(super) struct Link {
    state: State,
    epoch: Epoch,
    backoff: Backoff,
    jitter: Jitter,
    failures: u32,
    attempts: u64,
    connect_wanted: bool,
    last_error: Option<Arc<ConnectError>>,
}

/// A connection that lasted this long was a success; one that broke sooner
/// counts as a failure, so that a server which accepts and drops is not asked
/// without pause.
const LASTING: std::time::Duration = std::time::Duration::from_secs(10);

impl Link {
    pub(super) fn new(backoff: Backoff, seed: u64) -> Self {
        Self {
            state: State::Down { until: None },
            epoch: Epoch(0),
            backoff,
            jitter: Jitter::new(seed.rotate_left(31)),
            failures: 0,
            attempts: 0,
            connect_wanted: true,
            last_error: None,
        }
    }

    pub(super) fn poll_connect(&mut self) -> bool {
        std::mem::take(&mut self.connect_wanted)
    }

    /// A new attempt, and with it a new epoch.
    pub(super) fn opening(&mut self) -> Epoch {
        self.epoch = Epoch(self.epoch.0 + 1);
        self.attempts += 1;
        self.state = State::Opening;
        self.epoch
    }

    /// Takes a connection, unless it belongs to an attempt that was overtaken.
    pub(super) fn connected(
        &mut self,
        now: Time,
        epoch: Epoch,
        connection: Connection,
    ) -> Option<Arc<Connection>> {
        if epoch != self.epoch || !matches!(self.state, State::Opening) {
            return None;
        }
        let connection = Arc::new(connection);
        self.state = State::Up(connection.clone(), now);
        self.last_error = None;
        Some(connection)
    }

    pub(super) fn failed(&mut self, now: Time, epoch: Epoch, error: ConnectError) {
        if epoch != self.epoch || !matches!(self.state, State::Opening) {
            return;
        }
        tracing::warn!(%error, "connecting failed");
        // Refused credentials are not retried: only new ones help.
        let retry = !matches!(
            error.request(),
            Some(RequestError::Unauthorized { .. } | RequestError::Forbidden { .. })
        );
        self.last_error = Some(Arc::new(error));
        self.wait(now, retry);
    }

    /// Whether the connection of the epoch was the current one.
    pub(super) fn lost(&mut self, now: Time, epoch: Epoch) -> bool {
        let State::Up(_, since) = self.state else {
            return false;
        };
        if epoch != self.epoch {
            return false;
        }
        if now - since >= LASTING {
            self.failures = 0;
            self.state = State::Down { until: Some(now) };
        } else {
            self.wait(now, true);
        }
        true
    }

    /// Ends the current connection because somebody asked for a new one: no
    /// failure, and no pause.
    pub(super) fn replace(&mut self, now: Time) {
        if matches!(self.state, State::Up(..)) {
            self.state = State::Down { until: Some(now) };
        }
    }

    fn wait(&mut self, now: Time, retry: bool) {
        self.failures = self.failures.saturating_add(1);
        let pause = self.backoff.delay(self.failures, &mut self.jitter);
        self.state = State::Down {
            until: retry.then(|| now + pause),
        };
    }

    pub(super) fn reauthenticated(&mut self, now: Time) {
        if let State::Down { until } = &mut self.state {
            *until = Some(now);
        }
    }

    pub(super) fn timeout(&mut self, now: Time) {
        if let State::Down { until: Some(until) } = self.state
            && until <= now
        {
            self.state = State::Down { until: None };
            self.connect_wanted = true;
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        match self.state {
            State::Down { until } => until,
            _ => None,
        }
    }

    /// The connection of the epoch, if it is the current one.
    pub(super) fn connection(&self, epoch: Epoch) -> Option<Arc<Connection>> {
        match &self.state {
            State::Up(connection, _) if epoch == self.epoch => Some(connection.clone()),
            _ => None,
        }
    }

    pub(super) fn current(&self) -> Option<(Epoch, Arc<Connection>)> {
        self.connection(self.epoch).map(|c| (self.epoch, c))
    }

    pub(super) fn last_error(&self) -> Option<Arc<ConnectError>> {
        self.last_error.clone()
    }

    pub(super) const fn attempts(&self) -> u64 {
        self.attempts
    }

    pub(super) fn close(&mut self) {
        self.state = State::Closed;
    }
}
