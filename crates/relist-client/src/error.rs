//! What can go wrong between a client and its server, told apart by whose
//! fault it is and by what can be done about it.

use std::time::Duration;

use relist_protocol::jsonrpc::RequestId;
use relist_protocol::{ProtocolVersion, RpcError};

/// Why a request has no answer.
///
/// | who | variants |
/// |---|---|
/// | the server says no | [`Rpc`](Self::Rpc), [`Unauthorized`](Self::Unauthorized), [`Forbidden`](Self::Forbidden), [`RetryAfter`](Self::RetryAfter), [`SessionGone`](Self::SessionGone), [`Http`](Self::Http) |
/// | the server's answer is wrong | [`NotJson`](Self::NotJson), [`Malformed`](Self::Malformed), [`ForeignId`](Self::ForeignId), [`TooLarge`](Self::TooLarge), [`TooManyRounds`](Self::TooManyRounds) |
/// | the connection | [`Io`](Self::Io), [`Cut`](Self::Cut), [`Closed`](Self::Closed), [`Timeout`](Self::Timeout) |
/// | our side | [`Cancelled`](Self::Cancelled), [`Token`](Self::Token), [`InputUnavailable`](Self::InputUnavailable), [`InvalidRequest`](Self::InvalidRequest) |
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The server answered with a JSON-RPC error.
    #[error("the server refused the request: {0}")]
    Rpc(RpcError),
    /// An HTTP status that means nothing more precise.
    #[error("the server answered HTTP {status}{}", described(.content_type.as_deref(), .excerpt))]
    Http {
        /// The status.
        status: u16,
        /// The `Content-Type` of the body.
        content_type: Option<String>,
        /// The first bytes of the body, escaped.
        excerpt: String,
    },
    /// Legacy: the session is unknown to the server. Open a new connection.
    #[error("the session is gone; a new one must be opened")]
    SessionGone,
    /// The credentials were refused, after one attempt to renew them.
    #[error("the credentials were refused (HTTP 401)")]
    Unauthorized {
        /// The challenge, where there is one.
        www_authenticate: Option<String>,
    },
    /// The credentials do not allow this, after one attempt to renew them.
    #[error("access is forbidden (HTTP 403){}", described(None, .excerpt))]
    Forbidden {
        /// The challenge, where there is one.
        www_authenticate: Option<String>,
        /// The first bytes of the body, escaped.
        excerpt: String,
    },
    /// The server asks to be left alone for a while.
    #[error("the server is busy (HTTP {status}) and asks to wait {} s", .after.as_secs())]
    RetryAfter {
        /// The status: 429 or 503.
        status: u16,
        /// How long; at most a day.
        after: Duration,
    },
    /// No answer in time. The request was cancelled.
    #[error("no answer within {} s", .waited.as_secs_f32())]
    Timeout {
        /// How long was waited.
        waited: Duration,
    },
    /// The connection was closed, by us or by the end of the server's process.
    #[error("the connection is closed: {reason}")]
    Closed {
        /// What closed it.
        reason: String,
    },
    /// The answer's stream or body ended before the answer was complete.
    #[error("the answer was cut short: {reason}")]
    Cut {
        /// Where.
        reason: String,
    },
    /// A body that is neither JSON nor an event stream.
    #[error("the server answered HTTP {status} with something that is not JSON{}", described(.content_type.as_deref(), .excerpt))]
    NotJson {
        /// The status.
        status: u16,
        /// The `Content-Type` of the body.
        content_type: Option<String>,
        /// The first bytes of the body, escaped.
        excerpt: String,
    },
    /// JSON that is not the message it should be.
    #[error("the answer is malformed: {reason}")]
    Malformed {
        /// What is wrong.
        reason: String,
    },
    /// An answer to a question that was not asked.
    #[error("the answer has id {found}, the request had id {expected}")]
    ForeignId {
        /// The id sent.
        expected: RequestId,
        /// The id in the answer.
        found: RequestId,
    },
    /// The answer is larger than allowed.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The server kept asking for more input.
    #[error("the server asked for more input {rounds} times over")]
    TooManyRounds {
        /// How often it was given.
        rounds: u32,
    },
    /// The server asked for input that nobody here gives.
    #[error("the server asks for {method}, which this client does not answer: {reason}")]
    InputUnavailable {
        /// The method that the input request names.
        method: String,
        /// Why not.
        reason: String,
    },
    /// The caller cancelled the request.
    #[error("the request was cancelled")]
    Cancelled,
    /// The token provider failed.
    #[error(transparent)]
    Token(crate::config::TokenError),
    /// The request cannot be written.
    #[error("the request cannot be sent: {reason}")]
    InvalidRequest {
        /// Why not.
        reason: String,
    },
    /// The network, or the pipe.
    #[error("{}: {reason}", io_phase(*.connecting))]
    Io {
        /// What the system says.
        reason: String,
        /// Whether the failure came before anything was sent.
        connecting: bool,
    },
}

fn io_phase(connecting: bool) -> &'static str {
    if connecting {
        "no connection"
    } else {
        "the connection failed"
    }
}

fn described(content_type: Option<&str>, excerpt: &str) -> String {
    match (content_type, excerpt) {
        (None, "") => String::new(),
        (None, excerpt) => format!(": {excerpt}"),
        (Some(kind), "") => format!(" ({kind})"),
        (Some(kind), excerpt) => format!(" ({kind}): {excerpt}"),
    }
}

impl RequestError {
    /// Whether the fault lies with the server or the network, so that the same
    /// request may succeed later without anybody doing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::RetryAfter { .. }
            | Self::Timeout { .. }
            | Self::Cut { .. }
            | Self::Io { .. }
            | Self::NotJson { .. }
            | Self::Malformed { .. }
            | Self::ForeignId { .. }
            | Self::TooLarge { .. } => true,
            Self::Http { status, .. } => *status >= 500 || *status == 408 || *status == 429,
            Self::Rpc(error) => error.code == relist_protocol::error::code::INTERNAL_ERROR,
            _ => false,
        }
    }

    /// Whether the connection is of no more use and a new one is needed.
    #[must_use]
    pub fn ends_connection(&self) -> bool {
        matches!(self, Self::SessionGone | Self::Closed { .. })
    }

    /// The JSON-RPC error that the server answered with, if it did.
    #[must_use]
    pub fn rpc(&self) -> Option<&RpcError> {
        match self {
            Self::Rpc(error) => Some(error),
            _ => None,
        }
    }

    /// How long the server asked to wait, if it did.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RetryAfter { after, .. } => Some(*after),
            _ => None,
        }
    }
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The program could not be started.
    #[error("`{program}` could not be started: {reason}")]
    Spawn {
        /// The program.
        program: String,
        /// What the system says.
        reason: String,
    },
    /// The HTTP client could not be set up (TLS, root certificates).
    #[error("the HTTP client could not be set up: {reason}")]
    Setup {
        /// What is wrong.
        reason: String,
    },
    /// The configuration allows no version, or none of this server's.
    #[error("no common protocol version: the server speaks {}, this client {}", listed(.theirs), versions(.ours))]
    NoCommonVersion {
        /// The versions that the server named; empty when it named none.
        theirs: Vec<String>,
        /// The versions that this client may speak.
        ours: Vec<ProtocolVersion>,
    },
    /// The opening request failed.
    #[error("{target}: `{method}` failed: {error}")]
    Request {
        /// The server.
        target: String,
        /// The opening request: `server/discover` or `initialize`.
        method: &'static str,
        /// Why.
        error: RequestError,
    },
}

impl ConnectError {
    /// The failed opening request, if it came that far.
    #[must_use]
    pub fn request(&self) -> Option<&RequestError> {
        match self {
            Self::Request { error, .. } => Some(error),
            _ => None,
        }
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        "none that it names".to_owned()
    } else {
        names.join(", ")
    }
}

fn versions(ours: &[ProtocolVersion]) -> String {
    let names: Vec<&str> = ours.iter().map(|v| v.as_str()).collect();
    names.join(", ")
}

/// The longest excerpt of a body that an error quotes, in bytes.
pub(crate) const EXCERPT: usize = 160;

/// The first bytes of a body, made printable: control characters and bytes
/// that are not UTF-8 escaped.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    let cut = bytes.len() > EXCERPT;
    let shown = &bytes[..bytes.len().min(EXCERPT)];
    let mut text = String::new();
    for chunk in shown.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    if cut {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_printable_and_bounded() {
        assert_eq!(excerpt(b"<p>\r\n\xff\x1b[31m"), "<p>\\r\\n\\xff\\u{1b}[31m");
        let long = excerpt(&[b'a'; 10_000]);
        assert_eq!(long.chars().count(), EXCERPT + 1);
    }

    #[test]
    fn an_error_names_status_type_and_first_bytes() {
        let error = RequestError::NotJson {
            status: 200,
            content_type: Some("text/html".into()),
            excerpt: "<!doctype html>".into(),
        };
        assert_eq!(
            error.to_string(),
            "the server answered HTTP 200 with something that is not JSON (text/html): <!doctype html>"
        );
    }
}
