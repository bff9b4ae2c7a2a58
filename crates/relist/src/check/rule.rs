//! What is looked at, and where it is asked for.

/// One thing that a server may get wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    Lists,
    Order,
    CursorsAdvance,
    CursorsRefused,
    CursorsVersion,
    CacheFields,
    Names,
    Definitions,
    ParamHeaders,
    HintStream,
    HintsDeclared,
    HintsTrue,
    HintsComplete,
    HttpHeaders,
}

impl Rule {
    pub(super) const ALL: [Self; 14] = [
        Self::Lists,
        Self::Order,
        Self::CursorsAdvance,
        Self::CursorsRefused,
        Self::CursorsVersion,
        Self::CacheFields,
        Self::Names,
        Self::Definitions,
        Self::ParamHeaders,
        Self::HintStream,
        Self::HintsDeclared,
        Self::HintsTrue,
        Self::HintsComplete,
        Self::HttpHeaders,
    ];

    /// The name for programs.
    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::Lists => "lists",
            Self::Order => "order",
            Self::CursorsAdvance => "cursors-advance",
            Self::CursorsRefused => "cursors-refused",
            Self::CursorsVersion => "cursors-version",
            Self::CacheFields => "cache-fields",
            Self::Names => "names",
            Self::Definitions => "definitions",
            Self::ParamHeaders => "param-headers",
            Self::HintStream => "hint-stream",
            Self::HintsDeclared => "hints-declared",
            Self::HintsTrue => "hints-true",
            Self::HintsComplete => "hints-complete",
            Self::HttpHeaders => "http-headers",
        }
    }

    /// What is asked, for people.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Lists => "every declared catalog can be listed",
            Self::Order => "the same items come in the same order",
            Self::CursorsAdvance => "every walk comes to an end",
            Self::CursorsRefused => "made-up cursors are refused",
            Self::CursorsVersion => "a walk never mixes two versions",
            Self::CacheFields => "lifetime and scope are on every page, and agree",
            Self::Names => "names are legal, and each stands for one item",
            Self::Definitions => "definitions can be used",
            Self::ParamHeaders => "x-mcp-header annotations are legal",
            Self::HintStream => "the stream of hints opens as it should",
            Self::HintsDeclared => "hints are declared",
            Self::HintsTrue => "every hint announces a change that is visible",
            Self::HintsComplete => "every change is hinted at",
            Self::HttpHeaders => "headers that contradict the body are refused",
        }
    }

    /// The page of the specification of 2026-07-28 that asks for it.
    pub(super) const fn page(self) -> &'static str {
        match self {
            Self::Lists | Self::CursorsAdvance | Self::CursorsRefused | Self::CursorsVersion => {
                "server/utilities/pagination"
            }
            Self::Order | Self::Names | Self::Definitions | Self::HintsDeclared => "server/tools",
            Self::CacheFields => "server/utilities/caching",
            Self::HintStream | Self::HintsTrue | Self::HintsComplete => {
                "basic/patterns/subscriptions"
            }
            Self::ParamHeaders | Self::HttpHeaders => "basic/transports/streamable-http",
        }
    }
}
