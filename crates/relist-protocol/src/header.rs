//! HTTP headers of the Streamable HTTP transport, and how values travel in them.
//!
//! Specification: [request metadata](https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#request-metadata).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The protocol version of a request.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// The method of a request.
pub const METHOD: &str = "mcp-method";
/// The tool, prompt or resource that a request names.
pub const NAME: &str = "mcp-name";
/// The session of the legacy era.
pub const SESSION_ID: &str = "mcp-session-id";
/// The last event that a legacy client saw of a stream.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// The start of the header that mirrors a tool parameter.
pub const PARAM_PREFIX: &str = "mcp-param-";

/// The parameter that [`NAME`] mirrors, for the methods that need the header.
#[must_use]
pub fn named_parameter(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        _ => None,
    }
}

const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// Why a header value cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderValueError {
    /// A byte that a header value must not contain.
    #[error("the header value contains a character outside visible ASCII, space and tab")]
    IllegalCharacter,
    /// The part between the Base64 markers is not Base64.
    #[error("the header value is marked as Base64 and is not")]
    NotBase64,
    /// The decoded bytes are not UTF-8.
    #[error("the Base64 header value does not hold UTF-8")]
    NotUtf8,
}

fn is_plain(value: &str) -> bool {
    let legal = value
        .bytes()
        .all(|b| (0x20..=0x7e).contains(&b) || b == b'\t');
    let padded = value.starts_with([' ', '\t']) || value.ends_with([' ', '\t']);
    let sentinel = value.starts_with(PREFIX) && value.ends_with(SUFFIX);
    legal && !padded && !sentinel
}

/// Writes a value as it travels in a header: as it is where that is safe, as
/// marked Base64 otherwise.
#[must_use]
pub fn encode_value(value: &str) -> String {
    if is_plain(value) {
        value.to_owned()
    } else {
        format!("{PREFIX}{}{SUFFIX}", STANDARD.encode(value))
    }
}

/// Reads a header value.
///
/// # Errors
///
/// [`HeaderValueError`] for characters that a header must not carry, and for a
/// value marked as Base64 that is not Base64 of UTF-8.
pub fn decode_value(bytes: &[u8]) -> Result<String, HeaderValueError> {
    let legal = bytes
        .iter()
        .all(|b| (0x20..=0x7e).contains(b) || *b == b'\t');
    if !legal {
        return Err(HeaderValueError::IllegalCharacter);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| HeaderValueError::IllegalCharacter)?;
    let Some(inner) = text
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_suffix(SUFFIX))
    else {
        return Ok(text.to_owned());
    };
    let decoded = STANDARD
        .decode(inner)
        .map_err(|_| HeaderValueError::NotBase64)?;
    String::from_utf8(decoded).map_err(|_| HeaderValueError::NotUtf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the specification's "Value Encoding" section.
    const TABLE: &[(&str, &str)] = &[
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ];

    #[test]
    fn values_are_encoded_as_the_table_says() {
        for (plain, encoded) in TABLE {
            assert_eq!(encode_value(plain), *encoded);
            assert_eq!(decode_value(encoded.as_bytes()).as_deref(), Ok(*plain));
        }
    }

    #[test]
    fn the_markers_are_case_sensitive() {
        assert_eq!(
            decode_value(b"=?BASE64?SGk=?=").as_deref(),
            Ok("=?BASE64?SGk=?=")
        );
    }

    #[test]
    fn unreadable_values_are_refused() {
        assert_eq!(
            decode_value("é".as_bytes()),
            Err(HeaderValueError::IllegalCharacter)
        );
        assert_eq!(
            decode_value(b"=?base64?***?="),
            Err(HeaderValueError::NotBase64)
        );
        assert_eq!(
            decode_value(b"=?base64?/w==?="),
            Err(HeaderValueError::NotUtf8)
        );
    }
}
