//! The sessions of legacy clients.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::log::EventLog;
use crate::hints::lock;
use crate::peer::Peer;
use crate::seal::random;

/// Streams of one session that can be resumed.
const MAX_LOGS: usize = 32;

/// How often silent sessions are looked for, at most.
const SWEEP: Duration = Duration::from_secs(10);

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) peer: Arc<Peer>,
    /// What the GET stream carries.
    pub(crate) hints: Arc<EventLog>,
    logs: Mutex<VecDeque<Arc<EventLog>>>,
    next_log: AtomicU64,
    open_streams: AtomicUsize,
    last_used: Mutex<Instant>,
}

impl Session {
    fn touch(&self) {
        *lock(&self.last_used) = Instant::now();
    }

    fn is_silent(&self, now: Instant, idle: Duration) -> bool {
        self.open_streams.load(Ordering::Relaxed) == 0
            && !self.peer.is_busy()
            && now.duration_since(*lock(&self.last_used)) >= idle
    }

    /// A stream for the answer to a POST.
    pub(crate) fn new_log(&self) -> Arc<EventLog> {
        let number = self.next_log.fetch_add(1, Ordering::Relaxed);
        Arc::new(EventLog::new(number))
    }

    /// Keeps a stream for whoever comes back.
    pub(crate) fn keep(&self, log: Arc<EventLog>) {
        let mut logs = lock(&self.logs);
        if logs.len() >= MAX_LOGS {
            let oldest = logs.iter().position(|l| l.is_done()).unwrap_or(0);
            logs.remove(oldest);
        }
        logs.push_back(log);
    }

    /// The stream of an event id such as `3-17`, and the event's number.
    pub(crate) fn find(&self, event: &str) -> Option<(Arc<EventLog>, u64)> {
        let (stream, number) = event.split_once('-')?;
        let (stream, number) = (stream.parse::<u64>().ok()?, number.parse().ok()?);
        if stream == self.hints.stream() {
            return Some((self.hints.clone(), number));
        }
        let logs = lock(&self.logs);
        let log = logs.iter().find(|l| l.stream() == stream)?;
        Some((log.clone(), number))
    }

    /// Notes an open stream for as long as the answer lives.
    pub(crate) fn streaming(self: &Arc<Self>) -> Streaming {
        self.open_streams.fetch_add(1, Ordering::Relaxed);
        Streaming(self.clone())
    }
}

/// An open stream of a session.
#[derive(Debug)]
pub(crate) struct Streaming(pub(crate) Arc<Session>);

impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.open_streams.fetch_sub(1, Ordering::Relaxed);
        self.0.touch();
    }
}

/// All sessions of an endpoint.
#[derive(Debug)]
pub(crate) struct Sessions {
    all: Mutex<HashMap<String, Arc<Session>>>,
    swept: Mutex<Instant>,
    limit: usize,
    idle: Duration,
}

impl Sessions {
    pub(crate) fn new(limit: usize, idle: Duration) -> Self {
        Self {
            all: Mutex::default(),
            swept: Mutex::new(Instant::now()),
            limit,
            idle,
        }
    }

    fn sweep(&self, at_once: bool) {
        let now = Instant::now();
        {
            let mut swept = lock(&self.swept);
            if !at_once && now.duration_since(*swept) < SWEEP {
                return;
            }
            *swept = now;
        }
        lock(&self.all).retain(|_, session| !session.is_silent(now, self.idle));
    }

    /// Opens a session; `None` when there are too many.
    pub(crate) fn open(&self, peer: Peer) -> Option<Arc<Session>> {
        let full = lock(&self.all).len() >= self.limit;
        self.sweep(full);
        let bytes: [u8; 16] = random().ok()?;
        let id = bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let session = Arc::new(Session {
            id: id.clone(),
            peer: Arc::new(peer),
            hints: Arc::new(EventLog::new(0)),
            logs: Mutex::default(),
            next_log: AtomicU64::new(1),
            open_streams: AtomicUsize::new(0),
            last_used: Mutex::new(Instant::now()),
        });
        let mut all = lock(&self.all);
        if all.len() >= self.limit {
            return None;
        }
        all.insert(id, session.clone());
        Some(session)
    }

    /// The session of an id, unless it ended or was silent for too long.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<Session>> {
        self.sweep(false);
        let mut all = lock(&self.all);
        let session = all.get(id)?.clone();
        if session.is_silent(Instant::now(), self.idle) {
            all.remove(id);
            return None;
        }
        session.touch();
        Some(session)
    }

    /// Ends a session; answers whether there was one.
    pub(crate) fn close(&self, id: &str) -> bool {
        let Some(session) = lock(&self.all).remove(id) else {
            return false;
        };
        session.peer.cancel_all();
        session.hints.detach();
        true
    }
}
