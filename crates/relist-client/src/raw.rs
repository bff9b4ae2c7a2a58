//! HTTP exchanges exactly as told, for programs that test a server: nothing is
//! added to the headers but those of the configuration, nothing is repeated,
//! and no redirect is followed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use reqwest::{Client, Url};

use crate::config::ClientConfig;
use crate::error::{ConnectError, RequestError};
use crate::transport::body::{self, Body};
use crate::transport::http::client;

/// What came back.
#[derive(Debug)]
#[non_exhaustive]
pub struct RawReply {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The first bytes of the body, 64 KiB at most; none of an event stream.
    pub body: Bytes,
}

impl RawReply {
    /// The `Content-Type` without parameters, in lower case.
    #[must_use]
    pub fn media_type(&self) -> Option<String> {
        let value = self.headers.get(http::header::CONTENT_TYPE)?;
        let text = value.to_str().ok()?;
        Some(text.split(';').next()?.trim().to_ascii_lowercase())
    }
}

/// An endpoint to send anything to.
#[derive(Debug)]
pub struct RawHttp {
    client: Client,
    url: Url,
    config: Arc<ClientConfig>,
}

impl RawHttp {
    /// Prepares exchanges with an endpoint.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Setup`].
    pub fn new(url: Url, config: Arc<ClientConfig>) -> Result<Self, ConnectError> {
        Ok(Self {
            client: client(&url, &config)?,
            url,
            config,
        })
    }

    /// Sends one request, and waits for its reply as long as for any other.
    ///
    /// # Errors
    ///
    /// [`RequestError::Io`] and [`RequestError::Timeout`].
    pub async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        content: impl Into<Bytes>,
    ) -> Result<RawReply, RequestError> {
        let mut all = self.config.headers.clone();
        for (name, value) in &headers {
            all.insert(name, value.clone());
        }
        let request = self.client.request(method, self.url.clone()).headers(all);
        let exchange = async {
            let response = request.body(content.into()).send().await;
            let response = response.map_err(|e| RequestError::Io {
                reason: body::describe(&e),
                connecting: e.is_connect(),
            })?;
            let mut reply = RawReply {
                status: response.status(),
                headers: response.headers().clone(),
                body: Bytes::new(),
            };
            if reply.media_type().as_deref() != Some("text/event-stream") {
                reply.body = Body::new(response, Arc::default())?.explanation().await;
            }
            Ok(reply)
        };
        let waited: Duration = self.config.request_timeout;
        tokio::time::timeout(waited, exchange)
            .await
            .unwrap_or(Err(RequestError::Timeout { waited }))
    }
}
