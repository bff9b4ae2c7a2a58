//! The questions that a legacy server asks: how many are answered at once, and
//! that it is us whom the server waits for meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use relist_protocol::message::method;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many questions of a server are answered at once; more are dropped.
const MOST: usize = 16;

/// The questions of one connection.
#[derive(Debug)]
pub(crate) struct Questions {
    turns: Arc<Semaphore>,
    /// Pings are answered even while all turns wait for a person.
    pings: Arc<Semaphore>,
    open: Arc<AtomicUsize>,
}

impl Default for Questions {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(MOST)),
            pings: Arc::new(Semaphore::new(MOST)),
            open: Arc::default(),
        }
    }
}

impl Questions {
    /// How many are being answered, pings aside. They are not told apart by
    /// request: legacy servers may ask on any stream.
    pub(crate) fn open(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.open)
    }

    /// A turn to answer, if there is one.
    pub(crate) fn turn(&self, asked: &str) -> Option<Turn> {
        let is_ping = asked == method::PING;
        let turns = if is_ping { &self.pings } else { &self.turns };
        let Ok(permit) = Arc::clone(turns).try_acquire_owned() else {
            tracing::warn!(
                method = asked,
                "too many questions at once: one was dropped"
            );
            return None;
        };
        if !is_ping {
            self.open.fetch_add(1, Ordering::Relaxed);
        }
        Some(Turn {
            _permit: permit,
            counted: (!is_ping).then(|| self.open()),
        })
    }
}

/// While it lives, a question is being answered.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: OwnedSemaphorePermit,
    counted: Option<Arc<AtomicUsize>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(open) = &self.counted {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_bounded_and_given_back() {
        let questions = Questions::default();
        let turns: Vec<_> = (0..MOST).map(|_| questions.turn("roots/list")).collect();
        assert!(turns.iter().all(Option::is_some));
        assert!(questions.turn("roots/list").is_none());
        assert!(questions.turn("ping").is_some());
        assert_eq!(questions.open().load(Ordering::Relaxed), MOST);
        drop(turns);
        assert!(questions.turn("roots/list").is_some());
        assert_eq!(questions.open().load(Ordering::Relaxed), 0);
    }
}
