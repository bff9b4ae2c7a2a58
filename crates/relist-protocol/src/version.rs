//! Protocol versions, and the two eras that they fall into.
//!
//! Specification: [versioning](https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning).

use std::fmt;

/// How a peer is opened and kept: with a handshake, or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// Versions that open with `initialize` and may keep a session.
    Legacy,
    /// Versions in which every request says what it needs in its `_meta`.
    Modern,
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        })
    }
}

/// A protocol version that this implementation speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProtocolVersion {
    /// 2025-03-26, the only one with batches.
    V2025_03_26,
    /// 2025-06-18.
    V2025_06_18,
    /// 2025-11-25, the last with a handshake.
    V2025_11_25,
    /// 2026-07-28, the first without.
    V2026_07_28,
}

impl ProtocolVersion {
    /// All versions, newest first: the order in which they are offered.
    pub const ALL: [Self; 4] = [
        Self::V2026_07_28,
        Self::V2025_11_25,
        Self::V2025_06_18,
        Self::V2025_03_26,
    ];

    /// The version preferred in each era.
    #[must_use]
    pub const fn latest(era: Era) -> Self {
        match era {
            Era::Legacy => Self::V2025_11_25,
            Era::Modern => Self::V2026_07_28,
        }
    }

    /// The version as it is written on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Reads a version; `None` for one that this implementation does not speak.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|v| v.as_str() == text)
    }

    /// The era that the version belongs to.
    #[must_use]
    pub const fn era(self) -> Era {
        match self {
            Self::V2026_07_28 => Era::Modern,
            Self::V2025_03_26 | Self::V2025_06_18 | Self::V2025_11_25 => Era::Legacy,
        }
    }

    /// Whether several messages may travel in one JSON array: in 2025-03-26 alone.
    #[must_use]
    pub const fn allows_batches(self) -> bool {
        matches!(self, Self::V2025_03_26)
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
