//! The trail: one record for each refresh, from its cause to its outcome.

use std::fmt;
use std::time::Duration;

use relist_catalog::EntityTag;

use crate::time::{Epoch, Time};
use crate::walk::WalkFault;

/// What caused a refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Trigger {
    /// A new connection: nothing is trusted unverified across epochs.
    Connected,
    /// The hint stream opened (again): hints may have been missed before.
    StreamOpened,
    /// A hint.
    Hint,
    /// One more look after a hint that announced nothing.
    SecondLook,
    /// A turn began, or a call was made, on a stale copy.
    Need,
    /// Somebody asked by hand.
    Manual,
    /// The lifetime ended, and the policy refreshes on expiry.
    Expiry,
    /// Background polling.
    Poll,
    /// An empty catalog is looked at again.
    EmptyLook,
    /// The refresh before it failed.
    Retry,
    /// The credentials were renewed.
    Reauthenticated,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connected => "connected",
            Self::StreamOpened => "stream opened",
            Self::Hint => "hint",
            Self::SecondLook => "second look",
            Self::Need => "need",
            Self::Manual => "manual",
            Self::Expiry => "expiry",
            Self::Poll => "poll",
            Self::EmptyLook => "empty, looked again",
            Self::Retry => "retry",
            Self::Reauthenticated => "re-authenticated",
        })
    }
}

/// Why a refresh failed, as the driver reports it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Failure {
    /// The request did not get through, or the server had a fault.
    #[error("{0}")]
    Transient(String),
    /// The answer is not what the protocol allows.
    #[error("invalid answer: {0}")]
    Invalid(String),
    /// The server refused the cursor.
    #[error("the server refused the cursor: {0}")]
    CursorRefused(String),
    /// The server does not list this catalog.
    #[error("not offered: {0}")]
    NotOffered(String),
    /// The credentials were refused, after one attempt to renew them.
    #[error("the credentials were refused: {0}")]
    Unauthorized(String),
    /// The server said when to come back.
    #[error("the server asks to wait {} s", .0.as_secs_f64())]
    RetryAfter(Duration),
    /// The server does not play by the rules of paging.
    #[error("{0}")]
    Walk(#[from] WalkFault),
    /// The catalog changed on every attempt to read it whole.
    #[error("the catalog changed during each of {0} walks")]
    Unsettled(u32),
}

/// How a refresh ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A whole list was adopted.
    Adopted {
        /// How many items.
        items: usize,
    },
    /// The server confirmed the copy.
    NotModified,
    /// It failed; the old copy stays.
    Failed(Failure),
    /// The connection ended or was replaced first; the old copy stays.
    Abandoned,
}

impl Outcome {
    /// One word for logs and metrics.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Adopted { .. } => "adopted",
            Self::NotModified => "not_modified",
            Self::Failed(_) => "failed",
            Self::Abandoned => "abandoned",
        }
    }
}

/// One refresh, from its cause to its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RefreshRecord {
    /// The number of the refresh, counted from one for each catalog.
    pub number: u64,
    /// What caused it.
    pub trigger: Trigger,
    /// How many hints it answers.
    pub hints: u32,
    /// When the cause arrived.
    pub received: Time,
    /// The connection it ran on.
    pub epoch: Epoch,
    /// When the first request was handed out.
    pub started: Time,
    /// When it ended.
    pub finished: Time,
    /// Pages received, restarts included.
    pub pages: usize,
    /// How often it started over because the catalog changed under it.
    pub restarts: u32,
    /// Bytes received.
    pub bytes: u64,
    /// The tag of the copy before.
    pub tag_before: Option<EntityTag>,
    /// The tag of the copy after.
    pub tag_after: Option<EntityTag>,
    /// How it ended.
    pub outcome: Outcome,
}
