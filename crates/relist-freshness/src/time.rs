//! Time as it is handed in, the epochs of connections, and jitter.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// An instant, in whole milliseconds since an origin that the driver chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The instant `millis` milliseconds after the origin.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the origin.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(millis(delay)))
    }
}

impl Sub for Time {
    type Output = Duration;
    /// The time from `earlier` to `self`; zero when it lies the other way round.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

fn millis(delay: Duration) -> u64 {
    u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)
}

/// One connection among those that follow each other. Whatever belongs to an
/// older epoch than the current one is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A repeatable source of jitter (SplitMix64). The seed is handed in; the
/// numbers spread load and protect nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Jitter(u64);

impl Jitter {
    /// A source that always yields the same sequence for the same seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A delay between `(1 - share) * delay` and `delay`; `share` in percent,
    /// at most 100.
    pub fn shorten(&mut self, delay: Duration, share: u8) -> Duration {
        let share = u64::from(share.min(100));
        if share == 0 {
            return delay;
        }
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let span = millis(delay) / 100 * share + millis(delay) % 100 * share / 100;
        let cut = if span == 0 { 0 } else { z % (span + 1) };
        Duration::from_millis(millis(delay) - cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_its_share_and_repeats_for_its_seed() {
        let draw = |seed| {
            let mut jitter = Jitter::new(seed);
            (0..1000)
                .map(|_| jitter.shorten(Duration::from_secs(10), 30))
                .collect::<Vec<_>>()
        };
        let delays = draw(3);
        assert_eq!(delays, draw(3));
        assert_ne!(delays, draw(4));
        for delay in &delays {
            assert!((Duration::from_secs(7)..=Duration::from_secs(10)).contains(delay));
        }
        // It does spread: all of a thousand draws in one tenth would be no jitter.
        assert!(delays.iter().any(|d| *d < Duration::from_millis(7300)));
        assert!(delays.iter().any(|d| *d > Duration::from_millis(9700)));
    }

    #[test]
    fn time_never_runs_below_zero() {
        let early = Time::from_millis(5);
        let late = Time::from_millis(9);
        assert_eq!(early - late, Duration::ZERO);
        assert_eq!(late - early, Duration::from_millis(4));
    }
}
