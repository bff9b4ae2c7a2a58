//! Finding out in which era a server speaks, and agreeing on a version.
//!
//! Specification: [versioning](https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning#backward-compatibility-with-initialization-based-versions),
//! and the backward-compatibility sections of both transports. The modern
//! question comes first; any answer that is not a modern one means `initialize`.
//! A refusal of credentials, a busy server and a broken network are no verdict.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use relist_protocol::error::code;
use relist_protocol::jsonrpc::Notification;
use relist_protocol::list::CacheHints;
use relist_protocol::message::{
    DiscoverResult, Implementation, InitializeParams, ServerCapabilities, method,
};
use relist_protocol::{Era, ProtocolVersion, RpcError, Switches, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::ask::{Answer, Link};
use super::core::Core;
use super::era::EraCache;
use super::exchange::HttpSide;
use super::outgoing::{Dialect, RequestOptions};
use crate::config::{ClientConfig, Command, Target};
use crate::error::{ConnectError, RequestError};
use crate::transport::http::HttpLink;
use crate::transport::stdio::StdioLink;

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct ServerDescription {
    /// Name and version, for display; nothing is decided by them.
    pub info: Option<Implementation>,
    /// What it can do.
    pub capabilities: ServerCapabilities,
    /// How to use it, for a model.
    pub instructions: Option<String>,
    /// Modern: the tag of its description, where it gives one.
    pub discover_tag: Option<String>,
    /// The versions that it named: all it speaks (modern), or the one that it
    /// chose (legacy).
    pub supported_versions: Vec<String>,
    /// Modern: how long the description may be held.
    pub hints: CacheHints,
}

/// An open connection's parts.
pub(crate) struct Opened {
    pub(crate) core: Arc<Core>,
    pub(crate) link: Link,
    pub(crate) version: ProtocolVersion,
    pub(crate) server: ServerDescription,
    pub(crate) switches: Switches,
}

/// Opens a connection.
pub(crate) async fn open(
    target: &Target,
    config: &Arc<ClientConfig>,
    eras: &EraCache,
) -> Result<Opened, ConnectError> {
    if config.versions.is_empty() {
        return Err(ConnectError::NoCommonVersion {
            theirs: Vec::new(),
            ours: Vec::new(),
        });
    }
    let remembered = eras.get(target).map(ProtocolVersion::era);
    if remembered == Some(Era::Legacy) && config.preferred(Era::Legacy).is_some() {
        let opening = Opening::begin(target, config)?;
        match opening.initialize().await {
            Ok(opened) => return Ok(opened),
            // The verdict was wrong, or the server is another one by now.
            Err(error) if is_about_era(&error) => eras.forget(target),
            Err(error) => return Err(error),
        }
    }
    let mut opening = Opening::begin(target, config)?;
    let (opened, sure) = opening.detect().await?;
    if sure {
        eras.set(target, opened.version);
    }
    Ok(opened)
}

/// Whether a failed opening may mean that the server speaks in the other era.
fn is_about_era(error: &ConnectError) -> bool {
    match error {
        ConnectError::NoCommonVersion { .. } => true,
        ConnectError::Request { error, .. } => matches!(
            error,
            RequestError::Rpc(_)
                | RequestError::Http { .. }
                | RequestError::NotJson { .. }
                | RequestError::Malformed { .. }
                | RequestError::Closed { .. }
                | RequestError::Timeout { .. }
        ),
        _ => false,
    }
}

/// What the modern question told.
enum Verdict {
    Modern(ProtocolVersion, Box<ServerDescription>),
    /// Not modern, or not willing to be.
    Legacy {
        /// Whether that is the server's nature, and not perhaps a passing fault.
        sure: bool,
        why: RequestError,
    },
}

/// A connection that is being opened.
struct Opening<'a> {
    target: &'a Target,
    config: &'a Arc<ClientConfig>,
    core: Arc<Core>,
    link: Link,
}

fn connect(target: &Target, config: &Arc<ClientConfig>) -> Result<(Arc<Core>, Link), ConnectError> {
    let core = Core::new(Arc::clone(config));
    let link = match target {
        Target::Http(url) => Link::Http(HttpSide {
            link: Arc::new(HttpLink::new(url.clone(), Arc::clone(config))?),
            core: Arc::clone(&core),
        }),
        Target::Stdio(command) => Link::Stdio(Arc::new(spawn(command, &core)?)),
    };
    Ok((core, link))
}

fn spawn(command: &Command, core: &Arc<Core>) -> Result<StdioLink, ConnectError> {
    StdioLink::spawn(command, Arc::clone(core))
}

impl<'a> Opening<'a> {
    fn begin(target: &'a Target, config: &'a Arc<ClientConfig>) -> Result<Self, ConnectError> {
        let (core, link) = connect(target, config)?;
        Ok(Self {
            target,
            config,
            core,
            link,
        })
    }

    fn failed(&self, method: &'static str, error: RequestError) -> ConnectError {
        ConnectError::Request {
            target: self.target.to_string(),
            method,
            error,
        }
    }

    fn no_common_version(&self, theirs: Vec<String>) -> ConnectError {
        ConnectError::NoCommonVersion {
            theirs,
            ours: self.config.versions.clone(),
        }
    }

    /// Asks the modern question first. The flag says whether the verdict may be
    /// remembered.
    async fn detect(&mut self) -> Result<(Opened, bool), ConnectError> {
        let Some(version) = self.config.preferred(Era::Modern) else {
            return Ok((self.initialize().await?, true));
        };
        let verdict = if matches!(self.link, Link::Stdio(_)) {
            match self.detect_on_pipe(version).await? {
                Detected::Verdict(verdict) => verdict,
                Detected::Opened(opened) => return Ok((*opened, true)),
            }
        } else {
            self.probe(version).await?
        };
        match verdict {
            Verdict::Modern(version, server) => Ok((self.modern(version, *server), true)),
            Verdict::Legacy { sure, why } => {
                if self.config.preferred(Era::Legacy).is_none() {
                    return Err(self.failed(method::DISCOVER, why));
                }
                tracing::debug!(target_server = %self.target, %why, "not a modern server");
                if self.core.is_closed() {
                    // The question killed it. It will not be asked again.
                    (self.core, self.link) = connect(self.target, self.config)?;
                }
                Ok((self.initialize().await?, sure))
            }
        }
    }

    /// On a pipe, silence is an answer too; but a program that was only slow to
    /// start may still give the modern one while `initialize` is under way.
    async fn detect_on_pipe(&self, version: ProtocolVersion) -> Result<Detected, ConnectError> {
        let probe = self.probe(version);
        tokio::pin!(probe);
        let patience = self.config.probe_timeout;
        if let Ok(verdict) = tokio::time::timeout(patience, &mut probe).await {
            return Ok(Detected::Verdict(verdict?));
        }
        if self.config.preferred(Era::Legacy).is_none() {
            return Ok(Detected::Verdict(probe.await?));
        }
        let handshake = self.initialize();
        tokio::pin!(handshake);
        tokio::select! {
            biased;
            verdict = &mut probe => match verdict {
                Ok(verdict @ Verdict::Modern(..)) => Ok(Detected::Verdict(verdict)),
                _ => Ok(Detected::Opened(Box::new(handshake.await?))),
            },
            opened = &mut handshake => match opened {
                Ok(opened) => Ok(Detected::Opened(Box::new(opened))),
                Err(error) => match tokio::time::timeout(patience, probe).await {
                    Ok(Ok(verdict @ Verdict::Modern(..))) => Ok(Detected::Verdict(verdict)),
                    _ => Err(error),
                },
            },
        }
    }

    /// `server/discover`, with another version when the first is refused.
    async fn probe(&self, mut version: ProtocolVersion) -> Result<Verdict, ConnectError> {
        let legacy = |sure, why| Ok(Verdict::Legacy { sure, why });
        // A second attempt with what the server offers, even if that is the
        // same: then it is the server that contradicts itself, once.
        for retry in [true, false] {
            let error = match self.discover(version).await {
                Ok(answer) => return self.discovered(&answer),
                Err(error) => error,
            };
            match &error {
                RequestError::Rpc(refusal) if refusal.code == code::UNSUPPORTED_VERSION => {
                    let offered = refusal.offered_versions();
                    match self.common(&offered, Era::Modern) {
                        Some(other) if retry => version = other,
                        None if self.common(&offered, Era::Legacy).is_some() => {
                            return legacy(true, error);
                        }
                        None => return Err(self.no_common_version(offered)),
                        Some(_) => return Err(self.failed(method::DISCOVER, error)),
                    }
                }
                RequestError::Rpc(refusal) if refusal.is_modern() => {
                    return Err(self.failed(method::DISCOVER, error));
                }
                RequestError::Rpc(_) | RequestError::Closed { .. } => return legacy(true, error),
                RequestError::Http { status, .. } => match status {
                    408 | 429 | 502..=599 => return Err(self.failed(method::DISCOVER, error)),
                    400..=499 => return legacy(true, error),
                    _ => return legacy(false, error),
                },
                RequestError::NotJson { .. }
                | RequestError::Malformed { .. }
                | RequestError::ForeignId { .. }
                | RequestError::Cut { .. }
                | RequestError::Timeout { .. } => return legacy(false, error),
                _ => return Err(self.failed(method::DISCOVER, error)),
            }
        }
        Err(self.no_common_version(Vec::new()))
    }

    async fn discover(&self, version: ProtocolVersion) -> Result<Answer, RequestError> {
        let dialect = Dialect::Modern {
            version,
            switches: Switches::NONE,
        };
        // The question may be left unanswered by a server that does not know
        // it; a cancellation would be one unknown message more.
        self.link
            .ask_quietly(
                &self.core,
                dialect,
                method::DISCOVER,
                Map::new(),
                &RequestOptions::default(),
            )
            .await
    }

    fn discovered(&self, answer: &Answer) -> Result<Verdict, ConnectError> {
        // Servers that answer every method with something are not modern for it.
        let result: DiscoverResult = match serde_json::from_str(answer.result.get()) {
            Ok(result) => result,
            Err(error) => {
                return Ok(Verdict::Legacy {
                    sure: true,
                    why: RequestError::Malformed {
                        reason: format!("the result of server/discover: {error}"),
                    },
                });
            }
        };
        let theirs = result.supported_versions.clone();
        if let Some(version) = self.common(&theirs, Era::Modern) {
            let server = ServerDescription {
                info: result.server_info(),
                capabilities: result.capabilities,
                instructions: result.instructions,
                discover_tag: result.tag,
                supported_versions: result.supported_versions,
                hints: cache_hints(&answer.result),
            };
            return Ok(Verdict::Modern(version, Box::new(server)));
        }
        if self.common(&theirs, Era::Legacy).is_some() {
            let why = RequestError::Rpc(RpcError::new(
                code::UNSUPPORTED_VERSION,
                "no modern version in common",
            ));
            return Ok(Verdict::Legacy { sure: true, why });
        }
        Err(self.no_common_version(theirs))
    }

    /// The most wanted version of an era that the server names too.
    fn common(&self, theirs: &[String], era: Era) -> Option<ProtocolVersion> {
        self.config
            .versions
            .iter()
            .copied()
            .find(|v| v.era() == era && theirs.iter().any(|t| t == v.as_str()))
    }

    fn modern(&mut self, version: ProtocolVersion, server: ServerDescription) -> Opened {
        let theirs = server.capabilities.switches();
        let switches = self
            .config
            .switches
            .iter()
            .filter(|s| !s.is_negotiated() || theirs.contains(*s))
            .collect();
        if let Link::Stdio(pipe) = &self.link {
            pipe.set_modern();
        }
        Opened {
            core: Arc::clone(&self.core),
            link: self.link.clone(),
            version,
            server,
            switches,
        }
    }

    /// The legacy handshake.
    async fn initialize(&self) -> Result<Opened, ConnectError> {
        let Some(mut version) = self.config.preferred(Era::Legacy) else {
            return Err(self.no_common_version(Vec::new()));
        };
        let answer = match self.handshake(version).await {
            Err(RequestError::Rpc(refusal)) => {
                let offered = refusal.offered_versions();
                match self.common(&offered, Era::Legacy) {
                    Some(other) if other != version => {
                        version = other;
                        self.handshake(version).await
                    }
                    None if !offered.is_empty() => return Err(self.no_common_version(offered)),
                    _ => Err(RequestError::Rpc(refusal)),
                }
            }
            answer => answer,
        }
        .map_err(|e| self.failed(method::INITIALIZE, e))?;
        let result: Handshake = serde_json::from_str(answer.result.get()).map_err(|e| {
            self.failed(
                method::INITIALIZE,
                RequestError::Malformed {
                    reason: format!("the result of initialize: {e}"),
                },
            )
        })?;
        let Some(version) =
            self.common(std::slice::from_ref(&result.protocol_version), Era::Legacy)
        else {
            return Err(self.no_common_version(vec![result.protocol_version]));
        };
        if let Link::Http(side) = &self.link {
            side.link.begin_session(version, session_of(&answer));
        }
        let initialized = Notification {
            method: method::INITIALIZED.to_owned(),
            params: None,
        };
        match self.link.notify(Dialect::Legacy, &initialized).await {
            Ok(()) => {}
            Err(
                error @ (RequestError::Unauthorized { .. }
                | RequestError::Forbidden { .. }
                | RequestError::SessionGone
                | RequestError::Closed { .. }),
            ) => return Err(self.failed(method::INITIALIZED, error)),
            // What matters is whether requests are answered; they will tell.
            Err(error) => tracing::warn!(%error, "`notifications/initialized` was not taken"),
        }
        Ok(Opened {
            core: Arc::clone(&self.core),
            link: self.link.clone(),
            version,
            server: ServerDescription {
                info: result
                    .server_info
                    .and_then(|info| serde_json::from_value(info).ok()),
                capabilities: result.capabilities,
                instructions: result.instructions,
                discover_tag: None,
                supported_versions: vec![result.protocol_version],
                hints: CacheHints::default(),
            },
            switches: Switches::NONE,
        })
    }

    async fn handshake(&self, version: ProtocolVersion) -> Result<Answer, RequestError> {
        let params = InitializeParams {
            protocol_version: version.as_str().to_owned(),
            capabilities: self.config.declared_capabilities(),
            client_info: self.config.info.clone(),
        };
        let params = match serde_json::to_value(params) {
            Ok(Value::Object(params)) => params,
            _ => Map::new(),
        };
        self.link
            .ask_quietly(
                &self.core,
                Dialect::Opening,
                method::INITIALIZE,
                params,
                &RequestOptions::default(),
            )
            .await
    }
}

enum Detected {
    Verdict(Verdict),
    Opened(Box<Opened>),
}

/// The result of `initialize`, read as generously as can be: a server without
/// a name is a server all the same.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Handshake {
    protocol_version: String,
    #[serde(default)]
    capabilities: ServerCapabilities,
    #[serde(default)]
    server_info: Option<Value>,
    #[serde(default)]
    instructions: Option<String>,
}

fn session_of(answer: &Answer) -> Option<HeaderValue> {
    answer
        .headers
        .as_ref()?
        .get(HeaderName::from_static(header::SESSION_ID))
        .cloned()
}

fn cache_hints(result: &RawValue) -> CacheHints {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Fields<'a> {
        #[serde(default, borrow)]
        ttl_ms: Option<&'a RawValue>,
        #[serde(default, borrow)]
        cache_scope: Option<&'a RawValue>,
    }
    serde_json::from_str::<Fields<'_>>(result.get()).map_or_else(
        |_| CacheHints::default(),
        |fields| CacheHints::read(fields.ttl_ms, fields.cache_scope),
    )
}
