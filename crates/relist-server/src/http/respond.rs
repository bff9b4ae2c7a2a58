//! Responses: JSON, prepared pages, and event streams.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use relist_protocol::error::code;
use relist_protocol::jsonrpc::RequestId;
use relist_protocol::{Era, RpcError};

use crate::catalogs::page::PageBody;
use crate::dispatch::{Reply, error_message, tail};
use crate::prepared::Encoding;

pub(crate) const JSON: &str = "application/json";
pub(crate) const EVENTS: &str = "text/event-stream";

/// Marks a response whose compression has been decided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decided;

pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

pub(crate) fn error(
    status: StatusCode,
    id: Option<&RequestId>,
    error: &RpcError,
) -> Response<Body> {
    json(status, error_message(id, error))
}

/// 405, with what may be done instead.
pub(crate) fn not_allowed(allow: &'static str) -> Response<Body> {
    let fault = RpcError::invalid_request("Method not allowed");
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, None, &fault);
    let headers = response.headers_mut();
    headers.insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

/// 503: too many of something.
pub(crate) fn overloaded(id: Option<&RequestId>, what: &str) -> Response<Body> {
    let fault = RpcError::internal(format!("too many {what}"));
    let mut response = error(StatusCode::SERVICE_UNAVAILABLE, id, &fault);
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// The status of an error: legacy errors are answers like any other.
fn status_of(error: &RpcError, era: Era) -> StatusCode {
    match (era, error.code) {
        (Era::Legacy, _) => StatusCode::OK,
        (Era::Modern, code::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        (
            Era::Modern,
            code::HEADER_MISMATCH
            | code::MISSING_CLIENT_CAPABILITY
            | code::UNSUPPORTED_VERSION
            | code::INVALID_REQUEST
            | code::PARSE_ERROR,
        ) => StatusCode::BAD_REQUEST,
        (Era::Modern, _) => StatusCode::OK,
    }
}

/// A reply that is one JSON object.
pub(crate) async fn reply(
    reply: Reply,
    id: &RequestId,
    era: Era,
    request: &HeaderMap,
    compression: bool,
) -> Response<Body> {
    let status = match &reply {
        Reply::Error(error) => status_of(error, era),
        _ => StatusCode::OK,
    };
    match reply {
        Reply::Page(page) => self::page(page, id, request, compression).await,
        reply => match reply.message(id) {
            Some(parts) => json(status, parts.concat()),
            // Given up: nothing is owed.
            None => empty(StatusCode::ACCEPTED),
        },
    }
}

async fn page(
    page: Arc<PageBody>,
    id: &RequestId,
    request: &HeaderMap,
    compression: bool,
) -> Response<Body> {
    let encoding = if compression {
        Encoding::negotiate(request.get_all(header::ACCEPT_ENCODING))
    } else {
        Encoding::Identity
    };
    let spliced = page.respond(encoding, &tail(id)).await;
    let chunks = spliced.chunks.map(Ok::<Bytes, Infallible>);
    let mut response = Response::new(Body::from_stream(futures::stream::iter(chunks)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(spliced.len));
    if compression {
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    if let Some(token) = spliced.encoding.token() {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(token));
    }
    response.extensions_mut().insert(Decided);
    response
}

/// A stream of events.
pub(crate) fn events(stream: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let body = Body::from_stream(stream.map(Ok::<Bytes, Infallible>));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENTS));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response.extensions_mut().insert(Decided);
    response
}

/// One event without an id.
pub(crate) fn event(message: &[u8]) -> Bytes {
    [b"data: ", message, b"\n\n"].concat().into()
}

/// One event that a client can come back to.
pub(crate) fn numbered_event(stream: u64, number: u64, message: &[u8]) -> Bytes {
    let id = format!("id: {stream}-{number}\ndata: ");
    [id.as_bytes(), message, b"\n\n"].concat().into()
}

/// A comment: keeps the connection alive, and says nothing.
pub(crate) const COMMENT: Bytes = Bytes::from_static(b":\n\n");
