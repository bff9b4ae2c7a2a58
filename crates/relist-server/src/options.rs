//! What an operator sets, with the defaults stated.

use std::time::Duration;

use relist_catalog::{HistoryLimits, PageSize};
pub use relist_protocol::list::CacheScope;

/// How one catalog is listed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CatalogOptions {
    /// Items on a page (default 1,000).
    pub page_size: PageSize,
    /// `ttlMs` of its results (default 0: stale at once).
    pub ttl: Duration,
    /// `cacheScope` of its results (default private).
    pub scope: CacheScope,
    /// Whether changes are hinted at (default true).
    pub list_changed: bool,
    /// How many older versions are kept for walks in flight.
    pub history: HistoryLimits,
}

impl Default for CatalogOptions {
    fn default() -> Self {
        Self {
            page_size: PageSize::default(),
            ttl: Duration::ZERO,
            scope: CacheScope::Private,
            list_changed: true,
            history: HistoryLimits::default(),
        }
    }
}

impl CatalogOptions {
    /// Items on a page; zero counts as one.
    #[must_use]
    pub fn page_size(mut self, items: usize) -> Self {
        self.page_size = PageSize::new(items.max(1)).unwrap_or_default();
        self
    }

    /// How long a client may hold a result.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Who may share a result.
    #[must_use]
    pub const fn scope(mut self, scope: CacheScope) -> Self {
        self.scope = scope;
        self
    }

    /// Whether changes are hinted at.
    #[must_use]
    pub const fn list_changed(mut self, hinted: bool) -> Self {
        self.list_changed = hinted;
        self
    }

    /// How many older versions are kept.
    #[must_use]
    pub const fn history(mut self, limits: HistoryLimits) -> Self {
        self.history = limits;
        self
    }
}

/// Which values of `Host` or `Origin` are let in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Allowed {
    /// The names of this machine (`localhost`, `127.0.0.1`, `[::1]`, any port)
    /// where the server is bound to loopback, or where it is not known what it
    /// is bound to. Otherwise any `Host`, and every `Origin` that is the host
    /// itself.
    #[default]
    Auto,
    /// Every value: for a server that something else protects.
    Any,
    /// These and no others. A host is `name` (any port) or `name:port`; an
    /// origin is `scheme://name[:port]`, as a browser writes it.
    Only(Vec<String>),
}

/// How the HTTP endpoint behaves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HttpOptions {
    /// The path of the endpoint (default `/mcp`).
    pub path: String,
    /// Hosts that are let in.
    pub hosts: Allowed,
    /// Origins that are let in; a request without one is no browser's.
    pub origins: Allowed,
    /// The largest request body (default 4 MiB).
    pub body_limit: usize,
    /// Whether answers are compressed for clients that accept it (default true).
    pub compression: bool,
    /// How often a silent stream sends a comment (default 15 s).
    pub keep_alive: Duration,
    /// How long an answer may take before the response turns into an event
    /// stream, so that proxies see its headers (default 500 ms).
    pub stream_after: Duration,
    /// What a legacy client is told to wait before it reconnects (default 1 s).
    pub retry: Duration,
    /// Listen streams at one time (default 16,384).
    pub max_listen_streams: usize,
    /// Legacy sessions at one time (default 16,384).
    pub max_sessions: usize,
    /// How long a legacy session may be silent (default 30 min). One with an
    /// open stream or a running request is not silent.
    pub session_idle: Duration,
    /// Whether legacy clients get the GET event stream (default true).
    pub legacy_stream: bool,
    /// How long a stopping server waits for its connections (default 5 s).
    pub drain: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            path: "/mcp".to_owned(),
            hosts: Allowed::Auto,
            origins: Allowed::Auto,
            body_limit: 4 << 20,
            compression: true,
            keep_alive: Duration::from_secs(15),
            stream_after: Duration::from_millis(500),
            retry: Duration::from_secs(1),
            max_listen_streams: 16_384,
            max_sessions: 16_384,
            session_idle: Duration::from_secs(30 * 60),
            legacy_stream: true,
            drain: Duration::from_secs(5),
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty),* $(,)?) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(mut self, value: $type) -> Self {
            self.$name = value;
            self
        })*
    };
}

impl HttpOptions {
    /// The path of the endpoint.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    setters! {
        /// Hosts that are let in.
        hosts: Allowed,
        /// Origins that are let in.
        origins: Allowed,
        /// The largest request body, in bytes.
        body_limit: usize,
        /// Whether answers are compressed for clients that accept it.
        compression: bool,
        /// How often a silent stream sends a comment.
        keep_alive: Duration,
        /// How long an answer may take before the response becomes a stream.
        stream_after: Duration,
        /// What a legacy client is told to wait before it reconnects.
        retry: Duration,
        /// Listen streams at one time.
        max_listen_streams: usize,
        /// Legacy sessions at one time.
        max_sessions: usize,
        /// How long a legacy session may be silent.
        session_idle: Duration,
        /// Whether legacy clients get the GET event stream.
        legacy_stream: bool,
        /// How long a stopping server waits for its connections.
        drain: Duration,
    }
}

/// How the stdio transport behaves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StdioOptions {
    /// The longest line that is read (default 4 MiB).
    pub line_limit: usize,
    /// Requests answered at one time (default 256); further lines wait.
    pub max_in_flight: usize,
    /// How long requests in flight may go on after the input ended (default 1 s).
    pub grace: Duration,
}

impl Default for StdioOptions {
    fn default() -> Self {
        Self {
            line_limit: 4 << 20,
            max_in_flight: 256,
            grace: Duration::from_secs(1),
        }
    }
}

impl StdioOptions {
    setters! {
        /// The longest line that is read, in bytes.
        line_limit: usize,
        /// Requests answered at one time.
        max_in_flight: usize,
        /// How long requests in flight may go on after the input ended.
        grace: Duration,
    }
}
