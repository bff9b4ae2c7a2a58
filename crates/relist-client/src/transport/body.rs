//! A response body: counted as it came over the wire, then decompressed.
//!
//! reqwest would decompress on its own, and then nobody could tell what was
//! saved; so that is switched off and done here.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZstdDecoder};
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use http::header::CONTENT_ENCODING;
use reqwest::Response;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::io::StreamReader;

use crate::error::{RequestError, excerpt};

/// The value of `Accept-Encoding` when compression is wanted.
pub(crate) const ACCEPTED: &str = "zstd, br, gzip";

/// How much is read at a time.
const STEP: usize = 16 << 10;

/// The most of an error's body that is read.
const ERROR_BODY: usize = 64 << 10;

enum Source {
    Plain(Response),
    Decoded(Pin<Box<dyn AsyncRead + Send>>),
}

/// What is left of a response once status and headers were read.
pub(crate) struct Body {
    source: Source,
    wire: Arc<AtomicU64>,
    decoded: u64,
    total: Arc<AtomicU64>,
}

/// Why a body cannot be read to its end.
#[derive(Debug)]
pub(crate) enum BodyFault {
    /// The connection broke.
    Cut(String),
    /// Larger than allowed.
    TooLarge(usize),
}

impl Body {
    /// Takes the body of a response; what comes over the wire is added to `total`.
    pub(crate) fn new(response: Response, total: Arc<AtomicU64>) -> Result<Self, RequestError> {
        let status = response.status().as_u16();
        let encoding = response
            .headers()
            .get(CONTENT_ENCODING)
            .map_or(&b""[..], |value| value.as_bytes())
            .to_ascii_lowercase();
        let wire = Arc::new(AtomicU64::new(0));
        let counted = |response: Response| {
            let (wire, total) = (Arc::clone(&wire), Arc::clone(&total));
            StreamReader::new(
                response
                    .bytes_stream()
                    .inspect_ok(move |bytes| {
                        wire.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                        total.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    })
                    .map_err(|e| io::Error::other(describe(&e))),
            )
        };
        let source = match encoding.as_slice() {
            b"" | b"identity" => Source::Plain(response),
            b"gzip" | b"x-gzip" => Source::Decoded(Box::pin(GzipDecoder::new(counted(response)))),
            b"br" => Source::Decoded(Box::pin(BrotliDecoder::new(counted(response)))),
            b"zstd" => Source::Decoded(Box::pin(ZstdDecoder::new(counted(response)))),
            other => {
                return Err(RequestError::NotJson {
                    status,
                    content_type: Some(format!("Content-Encoding: {}", excerpt(other))),
                    excerpt: String::new(),
                });
            }
        };
        Ok(Self {
            source,
            wire,
            decoded: 0,
            total,
        })
    }

    /// Bytes received so far, as they came.
    pub(crate) fn on_wire(&self) -> u64 {
        self.wire.load(Ordering::Relaxed)
    }

    /// Bytes received so far, decompressed.
    pub(crate) fn decoded(&self) -> u64 {
        self.decoded
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, BodyFault> {
        let piece = match &mut self.source {
            Source::Plain(response) => {
                let piece = response
                    .chunk()
                    .await
                    .map_err(|e| BodyFault::Cut(describe(&e)))?;
                if let Some(bytes) = &piece {
                    self.wire.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    self.total.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                }
                piece
            }
            Source::Decoded(reader) => {
                let mut buffer = BytesMut::with_capacity(STEP);
                let read = reader
                    .read_buf(&mut buffer)
                    .await
                    .map_err(|e| BodyFault::Cut(e.to_string()))?;
                (read > 0).then(|| buffer.freeze())
            }
        };
        if let Some(bytes) = &piece {
            self.decoded += bytes.len() as u64;
        }
        Ok(piece)
    }

    /// The whole body, up to `limit` bytes.
    pub(crate) async fn whole(&mut self, limit: usize) -> Result<Bytes, BodyFault> {
        let Some(first) = self.chunk().await? else {
            return Ok(Bytes::new());
        };
        if first.len() > limit {
            return Err(BodyFault::TooLarge(limit));
        }
        let Some(second) = self.chunk().await? else {
            return Ok(first);
        };
        let mut whole = BytesMut::with_capacity(first.len() + second.len());
        whole.extend_from_slice(&first);
        let mut next = Some(second);
        while let Some(piece) = next {
            if whole.len() + piece.len() > limit {
                return Err(BodyFault::TooLarge(limit));
            }
            whole.extend_from_slice(&piece);
            next = self.chunk().await?;
        }
        Ok(whole.freeze())
    }

    /// What can be read of a body that only explains an error.
    pub(crate) async fn explanation(&mut self) -> Bytes {
        let mut whole = BytesMut::new();
        while whole.len() < ERROR_BODY {
            match self.chunk().await {
                Ok(Some(piece)) => whole.extend_from_slice(&piece),
                Ok(None) | Err(_) => break,
            }
        }
        whole.freeze()
    }
}

/// An error of reqwest with its causes, and without the URL, which may hold
/// credentials.
pub(crate) fn describe(error: &reqwest::Error) -> String {
    use std::error::Error;
    let mut text = String::new();
    let mut cause: Option<&dyn Error> = error.source();
    while let Some(error) = cause {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&error.to_string());
        cause = error.source();
    }
    if text.is_empty() {
        // The outermost message names the URL; the kind alone does not.
        text = if error.is_timeout() {
            "timed out".to_owned()
        } else if error.is_decode() || error.is_body() {
            "the body could not be read".to_owned()
        } else {
            "the request failed".to_owned()
        };
    }
    text
}

impl From<BodyFault> for RequestError {
    fn from(fault: BodyFault) -> Self {
        match fault {
            BodyFault::Cut(reason) => Self::Cut { reason },
            BodyFault::TooLarge(limit) => Self::TooLarge { limit },
        }
    }
}
