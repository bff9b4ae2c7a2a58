//! One connection to one server: opened in whichever era the server speaks,
//! and closed when it is dropped.
//!
//! A connection is one epoch. It is never repaired: when it is gone
//! ([`RequestError::ends_connection`]), whoever drives it opens another.
//!
//! ```no_run
//! use std::sync::Arc;
//! use relist_client::config::{ClientConfig, Target};
//! use relist_client::connection::{Connection, EraCache, RequestOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let target = Target::http("http://localhost:3000/mcp")?;
//! let config = Arc::new(ClientConfig::new("example", "1.0.0"));
//! let connection = Connection::open(&target, config, &EraCache::new()).await?;
//! println!("{} speaks {}", target, connection.version());
//!
//! let answer = connection
//!     .request("tools/list", serde_json::Map::new(), RequestOptions::default())
//!     .await?;
//! println!("{} bytes: {}", answer.bytes_on_wire, answer.result);
//! connection.close().await;
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use relist_protocol::jsonrpc::Notification;
use relist_protocol::message::{ListenFilter, to_raw};
use relist_protocol::{Era, ProtocolVersion, Switches};
use serde_json::{Map, Value};

use crate::config::{ClientConfig, Target};
use crate::error::{ConnectError, RequestError};

pub(crate) mod ask;
pub(crate) mod core;
mod era;
mod exchange;
mod feed;
pub(crate) mod hints;
pub(crate) mod input;
mod listen;
pub(crate) mod notice;
mod open;
pub(crate) mod outgoing;
pub(crate) mod patience;
mod questions;
mod rounds;
pub(crate) mod subscription;

pub use ask::Answer;
pub use era::EraCache;
pub use hints::{HintEnd, HintEvent, HintStream};
pub use notice::Progress;
pub use open::ServerDescription;
pub use outgoing::RequestOptions;

use ask::Link;
use core::Core;
use outgoing::Dialect;

/// Bytes of message bodies since a connection was opened, its hint streams and
/// failed requests included; as they travelled, compressed where they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
}

/// A connection to a server. Dropping it closes it.
pub struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    target: Target,
    core: Arc<Core>,
    link: Link,
    version: ProtocolVersion,
    server: ServerDescription,
    switches: Switches,
    /// Legacy: the resources that the server was asked to watch.
    watched: Mutex<BTreeSet<String>>,
}

impl Connection {
    /// Opens a connection: finds out the server's era (or remembers it), and
    /// agrees on a version.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]. A refusal of credentials is one, and is no verdict on
    /// the era.
    pub async fn open(
        target: &Target,
        config: Arc<ClientConfig>,
        eras: &EraCache,
    ) -> Result<Self, ConnectError> {
        let opened = open::open(target, &config, eras).await?;
        tracing::debug!(server = %target, version = %opened.version, switches = %opened.switches, "connected");
        Ok(Self {
            inner: Arc::new(Inner {
                target: target.clone(),
                core: opened.core,
                link: opened.link,
                version: opened.version,
                server: opened.server,
                switches: opened.switches,
                watched: Mutex::default(),
            }),
        })
    }

    /// The server.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.inner.target
    }

    /// The era in which it is spoken to.
    #[must_use]
    pub fn era(&self) -> Era {
        self.inner.version.era()
    }

    /// The version agreed upon.
    #[must_use]
    pub fn version(&self) -> ProtocolVersion {
        self.inner.version
    }

    /// What the server said of itself when the connection was opened.
    #[must_use]
    pub fn server(&self) -> &ServerDescription {
        &self.inner.server
    }

    /// The switches that are on here and, where they are negotiated, there.
    /// None in the legacy era.
    #[must_use]
    pub fn switches(&self) -> Switches {
        self.inner.switches
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.inner.core.config
    }

    /// Bytes so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let (sent, received) = match &self.inner.link {
            Link::Http(side) => (
                side.link.meter.sent.load(Ordering::Relaxed),
                side.link.meter.received.load(Ordering::Relaxed),
            ),
            Link::Stdio(pipe) => pipe.traffic(),
        };
        Traffic { sent, received }
    }

    /// Whether the connection is closed for good.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.core.is_closed()
    }

    /// Returns when the connection is closed, with the reason. Over HTTP only
    /// this side closes it.
    pub async fn closed(&self) -> String {
        self.inner.core.closed().await;
        self.inner.core.reason()
    }

    fn dialect(&self) -> Dialect {
        self.inner.dialect()
    }

    /// Sends a request and waits for its answer. `_meta` and headers are filled
    /// in as the era wants them; what `params` holds in `_meta` is kept.
    ///
    /// Dropping the future cancels the request. An `input_required` result is
    /// returned as it is: see [`Self::call_with_input`].
    ///
    /// # Errors
    ///
    /// [`RequestError`].
    pub async fn request(
        &self,
        method: &str,
        params: Map<String, Value>,
        options: RequestOptions,
    ) -> Result<Answer, RequestError> {
        let inner = &self.inner;
        inner
            .link
            .ask(&inner.core, self.dialect(), method, params, &options)
            .await
    }

    /// The same, and when the server asks for more input (modern: a
    /// multi-round-trip result), asks the configured handler and sends the
    /// request again with what it gave. For `tools/call`, `prompts/get` and
    /// `resources/read`. The byte counts are those of all rounds.
    ///
    /// # Errors
    ///
    /// [`RequestError`]; [`RequestError::InputUnavailable`] when nobody answers,
    /// [`RequestError::TooManyRounds`] after [`ClientConfig::input_rounds`].
    pub async fn call_with_input(
        &self,
        method: &str,
        params: Map<String, Value>,
        options: RequestOptions,
    ) -> Result<Answer, RequestError> {
        rounds::call(self, method, params, options).await
    }

    /// Sends a notification.
    ///
    /// # Errors
    ///
    /// [`RequestError`].
    pub async fn notify(
        &self,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<(), RequestError> {
        let params = if params.is_empty() {
            None
        } else {
            Some(to_raw(&params).map_err(|e| RequestError::InvalidRequest {
                reason: e.to_string(),
            })?)
        };
        let notification = Notification {
            method: method.to_owned(),
            params,
        };
        self.inner.link.notify(self.dialect(), &notification).await
    }

    /// Opens the stream on which the server tells of changes, and returns at
    /// once; what becomes of it is the stream's first event.
    ///
    /// Modern: `subscriptions/listen`. Legacy: the GET stream (HTTP) or the
    /// pipe (stdio), after `resources/subscribe` for each resource of the
    /// filter that is not yet watched and `resources/unsubscribe` for each that
    /// no longer is. A legacy server needs no filter for lists, and every hint
    /// is passed on.
    ///
    /// Not opened again by itself once it has ended. Over stdio in the legacy
    /// era there is one at a time: a new one ends the one before.
    pub fn hints(&self, filter: ListenFilter) -> HintStream {
        feed::open(&self.inner, filter)
    }

    /// Hints that came where none were due: on the stream of another answer,
    /// or on the pipe while no hint stream is open. Ends with the connection.
    ///
    /// All streams returned share one memory: a hint is seen by one of them.
    pub fn stray_hints(&self) -> HintStream {
        HintStream::new(Arc::clone(&self.inner.core.stray), None)
    }

    /// Closes the connection, and returns when that is done: the legacy session
    /// ended, or the program gone.
    pub async fn close(self) {
        self.inner.core.close("closed by this client");
        self.inner.link.close().await;
        // Dropping finds nothing left to do.
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.inner.core.is_closed() {
            return;
        }
        self.inner.core.close("closed by this client");
        // The goodbye needs a runtime; without one, pipes close anyway.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let link = self.inner.link.clone();
            runtime.spawn(async move { link.close().await });
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("target", &self.inner.target)
            .field("version", &self.inner.version)
            .field("switches", &self.inner.switches)
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn dialect(&self) -> Dialect {
        match self.version.era() {
            Era::Legacy => Dialect::Legacy,
            Era::Modern => Dialect::Modern {
                version: self.version,
                switches: self.switches,
            },
        }
    }
}
