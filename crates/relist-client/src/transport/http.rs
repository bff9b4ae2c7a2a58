//! One HTTP exchange with a server: headers, tokens, redirects.
//!
//! Redirects are followed within the origin only, and only where the method and
//! the body survive them, so that credentials and questions never reach a host
//! that nobody named. Root certificates are those of the operating system.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::header::{HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use relist_protocol::ProtocolVersion;
use relist_protocol::header;
use reqwest::{Client, Url};
use tokio::sync::Semaphore;

use super::body::{self, Body};
use super::retry_after;
use crate::config::{ClientConfig, TokenError, TokenReason};
use crate::error::{ConnectError, RequestError, excerpt};

/// How many redirects in a row are followed.
const MAX_REDIRECTS: usize = 3;

/// Bytes of bodies, in both directions, since the connection was opened.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) sent: AtomicU64,
    pub(crate) received: Arc<AtomicU64>,
}

/// What is sent.
#[derive(Debug, Clone)]
pub(crate) enum Verb {
    Post(Bytes),
    Get,
    Delete,
}

/// What came back, with its body yet unread.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

impl Reply {
    pub(crate) fn content_type(&self) -> Option<String> {
        let value = self.headers.get(CONTENT_TYPE)?;
        Some(excerpt(value.as_bytes()))
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let value = self.headers.get(RETRY_AFTER)?.to_str().ok()?;
        retry_after::parse(value, SystemTime::now())
    }
}

/// A server behind a URL.
pub(crate) struct HttpLink {
    client: ArcSwap<Client>,
    url: Url,
    config: Arc<ClientConfig>,
    tokens: Tokens,
    /// Legacy: the session that the server assigned.
    session: OnceLock<HeaderValue>,
    /// Legacy: the version agreed upon, sent from then on.
    version: OnceLock<ProtocolVersion>,
    pub(crate) meter: Meter,
}

impl HttpLink {
    pub(crate) fn new(url: Url, config: Arc<ClientConfig>) -> Result<Self, ConnectError> {
        Ok(Self {
            client: ArcSwap::from_pointee(client(&url, &config)?),
            url,
            tokens: Tokens::default(),
            config,
            session: OnceLock::new(),
            version: OnceLock::new(),
            meter: Meter::default(),
        })
    }

    /// Legacy: keeps what the answer to `initialize` said.
    pub(crate) fn begin_session(&self, version: ProtocolVersion, session: Option<HeaderValue>) {
        let _ = self.version.set(version);
        if let Some(mut session) = session {
            session.set_sensitive(true);
            let _ = self.session.set(session);
        }
    }

    /// Something on a socket fell silent: whatever dropped it may have dropped
    /// those that wait in the pool as well. Later requests open new ones.
    pub(crate) fn distrust_sockets(&self) {
        match client(&self.url, &self.config) {
            Ok(client) => self.client.store(Arc::new(client)),
            Err(error) => tracing::warn!(%error, "the sockets in the pool are kept"),
        }
    }

    pub(crate) fn has_session(&self) -> bool {
        self.session.get().is_some()
    }

    fn headers(&self, verb: &Verb, extra: &HeaderMap, token: Option<HeaderValue>) -> HeaderMap {
        let mut headers = self.config.headers.clone();
        match verb {
            Verb::Post(_) => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                headers.insert(
                    ACCEPT,
                    HeaderValue::from_static("application/json, text/event-stream"),
                );
            }
            Verb::Get => {
                headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
            }
            Verb::Delete => {}
        }
        headers.insert(
            ACCEPT_ENCODING,
            HeaderValue::from_static(if self.config.accept_compression {
                body::ACCEPTED
            } else {
                "identity"
            }),
        );
        if let Some(version) = self.version.get() {
            headers.insert(
                HeaderName::from_static(header::PROTOCOL_VERSION),
                HeaderValue::from_static(version.as_str()),
            );
        }
        if let Some(session) = self.session.get() {
            headers.insert(HeaderName::from_static(header::SESSION_ID), session.clone());
        }
        for (name, value) in extra {
            headers.insert(name, value.clone());
        }
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, token);
        }
        headers
    }

    /// Sends once; a second time with a new token when the first was refused.
    pub(crate) async fn send(&self, verb: Verb, extra: &HeaderMap) -> Result<Reply, RequestError> {
        let provider = self.config.token_provider.as_deref();
        let (generation, token) = match provider {
            Some(provider) => self.tokens.current(provider).await?,
            None => (0, None),
        };
        let mut reply = self.send_with(&verb, extra, token).await?;
        if let (Some(provider), Some(challenge)) = (provider, Challenge::of(&reply)) {
            // The refused body is dropped unread: its connection is not worth more.
            let renewed = self.tokens.renew(provider, generation, &challenge).await?;
            if let Some(token) = renewed {
                reply = self.send_with(&verb, extra, Some(token)).await?;
            }
        }
        let Some(challenge) = Challenge::of(&reply) else {
            return Ok(reply);
        };
        let text = reply.body.explanation().await;
        Err(if challenge.status == StatusCode::UNAUTHORIZED.as_u16() {
            RequestError::Unauthorized {
                www_authenticate: challenge.www_authenticate,
            }
        } else {
            RequestError::Forbidden {
                www_authenticate: challenge.www_authenticate,
                excerpt: excerpt(&text),
            }
        })
    }

    async fn send_with(
        &self,
        verb: &Verb,
        extra: &HeaderMap,
        token: Option<HeaderValue>,
    ) -> Result<Reply, RequestError> {
        let mut url = self.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let (method, content) = match verb {
                Verb::Post(bytes) => (Method::POST, bytes.clone()),
                Verb::Get => (Method::GET, Bytes::new()),
                Verb::Delete => (Method::DELETE, Bytes::new()),
            };
            let client = self.client.load_full();
            let mut request = client.request(method, url.clone()).headers(self.headers(
                verb,
                extra,
                token.clone(),
            ));
            if matches!(verb, Verb::Post(_)) {
                self.meter
                    .sent
                    .fetch_add(content.len() as u64, Ordering::Relaxed);
                request = request.body(content);
            }
            let response = request.send().await.map_err(|e| RequestError::Io {
                reason: body::describe(&e),
                connecting: e.is_connect(),
            })?;
            let status = response.status();
            let headers = response.headers().clone();
            if !status.is_redirection() || !headers.contains_key(LOCATION) {
                let body = Body::new(response, Arc::clone(&self.meter.received))?;
                return Ok(Reply {
                    status,
                    headers,
                    body,
                });
            }
            url = follow(&url, verb, status, &headers)?;
        }
        Err(redirect_refused(
            StatusCode::LOOP_DETECTED,
            &format!("more than {MAX_REDIRECTS} redirects in a row"),
        ))
    }
}

impl std::fmt::Debug for HttpLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpLink")
            .field("session", &self.has_session())
            .field("version", &self.version.get())
            .finish_non_exhaustive()
    }
}

fn redirect_refused(status: StatusCode, why: &str) -> RequestError {
    RequestError::Http {
        status: status.as_u16(),
        content_type: None,
        excerpt: why.to_owned(),
    }
}

/// Where a redirect leads, if it may be followed.
fn follow(
    from: &Url,
    verb: &Verb,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Url, RequestError> {
    let place = headers
        .get(LOCATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| from.join(text).ok())
        .ok_or_else(|| redirect_refused(status, "a redirect to nowhere"))?;
    if place.origin() != from.origin() {
        return Err(redirect_refused(
            status,
            &format!(
                "a redirect to another origin ({}) is not followed",
                place.origin().ascii_serialization()
            ),
        ));
    }
    let keeps_method = matches!(
        status,
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
    );
    if !keeps_method && !matches!(verb, Verb::Get) {
        return Err(redirect_refused(
            status,
            "a redirect that would turn the POST into a GET is not followed; use the new URL",
        ));
    }
    Ok(place)
}

fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else {
        return false;
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

pub(crate) fn client(url: &Url, config: &ClientConfig) -> Result<Client, ConnectError> {
    let setup = |reason: String| ConnectError::Setup { reason };
    let mut builder = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .connect_timeout(config.connect_timeout)
        .tcp_nodelay(true)
        // The runtime that most servers of this protocol run on closes idle
        // connections after five seconds: be gone before.
        .pool_idle_timeout(Duration::from_secs(4))
        // Finds out about peers that vanished without a word.
        .tcp_keepalive(Duration::from_secs(30))
        .http2_keep_alive_interval(Duration::from_secs(30))
        .http2_keep_alive_timeout(Duration::from_secs(20));
    if let Ok(agent) =
        HeaderValue::from_str(&format!("{}/{}", config.info.name, config.info.version))
    {
        builder = builder.user_agent(agent);
    }
    if !config.system_proxy || is_loopback(url) {
        builder = builder.no_proxy();
    }
    if url.scheme() == "https" {
        // The library's own choice where the program made none.
        let _ = rustls::crypto::ring::default_provider().install_default();
    } else {
        // Nothing of TLS is used, redirects to https included: spare each
        // connection the loading of the system's root certificates.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| setup(e.to_string()))?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        builder = builder.tls_backend_preconfigured(tls);
    }
    builder.build().map_err(|e| setup(body::describe(&e)))
}

/// A refusal of credentials.
struct Challenge {
    status: u16,
    www_authenticate: Option<String>,
}

impl Challenge {
    fn of(reply: &Reply) -> Option<Self> {
        matches!(
            reply.status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        )
        .then(|| Self {
            status: reply.status.as_u16(),
            www_authenticate: reply
                .headers
                .get(WWW_AUTHENTICATE)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned),
        })
    }
}

/// The token in use. However many requests are refused at once, one of them
/// asks for a new token and the others take what it got.
struct Tokens {
    state: Mutex<TokenState>,
    gate: Semaphore,
}

#[derive(Default)]
struct TokenState {
    /// Zero: never asked.
    generation: u64,
    token: Option<HeaderValue>,
}

impl Default for Tokens {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            gate: Semaphore::new(1),
        }
    }
}

impl Tokens {
    fn state(&self) -> (u64, Option<HeaderValue>) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.generation, state.token.clone())
    }

    fn store(&self, token: Option<HeaderValue>) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.generation += 1;
        state.token = token;
        state.generation
    }

    async fn current(
        &self,
        provider: &dyn crate::config::TokenProvider,
    ) -> Result<(u64, Option<HeaderValue>), RequestError> {
        let (generation, token) = self.state();
        if generation > 0 {
            return Ok((generation, token));
        }
        let _turn = self.gate.acquire().await;
        let (generation, token) = self.state();
        if generation > 0 {
            return Ok((generation, token));
        }
        let token = ask(provider, TokenReason::First).await?;
        Ok((self.store(token.clone()), token))
    }

    /// Another token than the refused one, if there is one.
    async fn renew(
        &self,
        provider: &dyn crate::config::TokenProvider,
        refused: u64,
        challenge: &Challenge,
    ) -> Result<Option<HeaderValue>, RequestError> {
        let _turn = self.gate.acquire().await;
        let (generation, old) = self.state();
        if generation != refused {
            return Ok(old);
        }
        let reason = TokenReason::Refused {
            status: challenge.status,
            www_authenticate: challenge.www_authenticate.as_deref(),
        };
        let token = ask(provider, reason).await?;
        if token == old {
            return Ok(None);
        }
        self.store(token.clone());
        Ok(token)
    }
}

async fn ask(
    provider: &dyn crate::config::TokenProvider,
    reason: TokenReason<'_>,
) -> Result<Option<HeaderValue>, RequestError> {
    let token = provider.token(reason).await.map_err(RequestError::Token)?;
    token
        .map(|token| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
                RequestError::Token(TokenError(
                    "the token has characters that a header cannot carry".to_owned(),
                ))
            })?;
            value.set_sensitive(true);
            Ok(value)
        })
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(status: u16, place: &'static str, verb: &Verb) -> Result<String, RequestError> {
        let from = Url::parse("https://example.com/mcp").expect("URL");
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, HeaderValue::from_static(place));
        let status = StatusCode::from_u16(status).expect("status");
        follow(&from, verb, status, &headers).map(String::from)
    }

    #[test]
    fn redirects_stay_within_the_origin_and_keep_the_method() {
        let post = Verb::Post(Bytes::new());
        assert_eq!(
            redirect(308, "/mcp/", &post).expect("followed"),
            "https://example.com/mcp/"
        );
        for elsewhere in [
            "https://evil.example/mcp",
            "http://example.com/mcp",
            "https://example.com:8443/mcp",
            "//169.254.169.254/latest",
        ] {
            assert!(redirect(307, elsewhere, &post).is_err(), "{elsewhere}");
            assert!(redirect(302, elsewhere, &Verb::Get).is_err(), "{elsewhere}");
        }
        assert!(redirect(302, "/elsewhere", &post).is_err());
        assert!(redirect(302, "/elsewhere", &Verb::Get).is_ok());
    }

    #[test]
    fn loopback_is_recognised() {
        for (text, loopback) in [
            ("http://localhost:1/mcp", true),
            ("http://127.0.0.2/", true),
            ("http://[::1]:8080/", true),
            ("http://example.com/", false),
        ] {
            assert_eq!(
                is_loopback(&Url::parse(text).expect("URL")),
                loopback,
                "{text}"
            );
        }
    }
}
