//! How long a request is waited for: until it has been without a sign of life
//! for too long, or has lived for too long altogether.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The waiting time of one request.
#[derive(Debug)]
pub(crate) struct Patience {
    begun: Instant,
    /// Milliseconds after `begun` of the last sign of life.
    touched: AtomicU64,
    /// Questions of the server that are being answered: while there are any,
    /// it is us whom the server waits for.
    busy: Arc<AtomicUsize>,
}

impl Patience {
    /// Begins now; `busy` counts the questions that are being answered.
    pub(crate) fn new(busy: Arc<AtomicUsize>) -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            touched: AtomicU64::new(0),
            busy,
        })
    }

    /// Counts as a sign of life.
    pub(crate) fn touch(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.touched.store(now, Ordering::Relaxed);
    }

    /// Returns when patience is exhausted, with the time waited.
    pub(crate) async fn exhausted(&self, silence: Duration, limit: Duration) -> Duration {
        let last = self.begun + limit;
        loop {
            let touched = Duration::from_millis(self.touched.load(Ordering::Relaxed));
            let deadline = (self.begun + touched + silence).min(last);
            tokio::time::sleep_until(deadline).await;
            let now = Instant::now();
            if now >= last {
                return limit;
            }
            if self.busy.load(Ordering::Relaxed) > 0 {
                self.touch();
            } else if self.touched.load(Ordering::Relaxed) <= touched.as_millis() as u64 {
                return self.begun.elapsed();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::questions::Questions;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_sign_of_life_resets_the_clock_and_the_limit_stands() {
        let patience = Patience::new(Arc::default());
        let waiting = {
            let patience = Arc::clone(&patience);
            tokio::spawn(async move { patience.exhausted(10 * SECOND, 25 * SECOND).await })
        };
        for _ in 0..6 {
            tokio::time::sleep(8 * SECOND).await;
            patience.touch();
        }
        assert_eq!(waiting.await.expect("no panic"), 25 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_back_stops_the_clock() {
        let questions = Questions::default();
        let patience = Patience::new(questions.open());
        let begun = Instant::now();
        let answering = questions.turn("elicitation/create");
        let waiting = {
            let patience = Arc::clone(&patience);
            tokio::spawn(async move { patience.exhausted(SECOND, 100 * SECOND).await })
        };
        tokio::time::sleep(30 * SECOND).await;
        drop(answering);
        waiting.await.expect("no panic");
        assert!(begun.elapsed() >= 30 * SECOND && begun.elapsed() <= 33 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_exhausts_patience() {
        let patience = Patience::new(Arc::default());
        let waited = patience.exhausted(SECOND, 100 * SECOND).await;
        assert_eq!(waited, SECOND);
    }
}
