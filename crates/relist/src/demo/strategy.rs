//! The ways of keeping copies fresh that a demo compares.

use std::time::Duration;

use clap::ValueEnum;
use relist_freshness::policy::Policy;
use relist_protocol::{Switch, Switches};

/// How a client learns of a change, and what it asks for then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Strategy {
    /// List again every quarter of a second, whatever happens.
    Poll,
    /// List again on every hint, and after every reconnect: today's protocol.
    ListChanged,
    /// List again when the lifetime of half a second ends: today's protocol without streams.
    Ttl,
    /// As `list_changed`, but ask whether the copy is still current: tags and conditional lists.
    Conditional,
}

/// How often `poll` lists.
const POLL: Duration = Duration::from_millis(250);
/// The lifetime that the server states for `ttl`.
const LIFETIME: Duration = Duration::from_millis(500);

impl Strategy {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::ListChanged => "list_changed",
            Self::Ttl => "ttl",
            Self::Conditional => "conditional",
        }
    }

    pub(super) const fn listens(self) -> bool {
        matches!(self, Self::ListChanged | Self::Conditional)
    }

    pub(super) const fn ttl(self) -> Duration {
        match self {
            Self::Ttl => LIFETIME,
            _ => Duration::ZERO,
        }
    }

    pub(super) fn switches(self) -> Switches {
        match self {
            Self::Conditional => Switches::NONE.with(Switch::Conditional),
            _ => Switches::NONE,
        }
    }

    pub(super) fn policy(self) -> Policy {
        let mut policy = Policy::default();
        match self {
            Self::Poll => policy.poll = Some(POLL),
            Self::Ttl => policy.refresh_on_expiry = true,
            Self::ListChanged | Self::Conditional => {}
        }
        policy
    }
}
