//! JSON-RPC 2.0 as the protocol uses it: ids are strings or integers, never
//! null; batches exist in 2025-03-26 alone.
//!
//! Parameters and results stay raw JSON text ([`RawValue`]) until somebody who
//! knows their shape reads them.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::RpcError;

/// The id that ties a response to its request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestId {
    /// An integer. `1.0` is read as `1`: some peers echo ids through a double.
    Number(i64),
    /// A string. `"1"` is another id than `1`.
    Text(String),
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Text(s) => write!(f, "{s:?}"),
        }
    }
}

impl From<i64> for RequestId {
    fn from(n: i64) -> Self {
        Self::Number(n)
    }
}

impl From<&str> for RequestId {
    fn from(s: &str) -> Self {
        Self::Text(s.to_owned())
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(n) => serializer.serialize_i64(*n),
            Self::Text(s) => serializer.serialize_str(s),
        }
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdVisitor;
        impl Visitor<'_> for IdVisitor {
            type Value = RequestId;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an integer")
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<RequestId, E> {
                Ok(RequestId::Number(v))
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<RequestId, E> {
                i64::try_from(v)
                    .map(RequestId::Number)
                    .map_err(|_| E::custom("the id is larger than a 64-bit integer"))
            }
            fn visit_f64<E: de::Error>(self, v: f64) -> Result<RequestId, E> {
                // 2^53: beyond it a double no longer tells neighbours apart.
                if v.fract() == 0.0 && v.abs() <= 9_007_199_254_740_992.0 {
                    #[allow(
                        clippy::cast_possible_truncation,
                        reason = "whole and in range, checked above"
                    )]
                    return Ok(RequestId::Number(v as i64));
                }
                Err(E::custom("the id is not an integer"))
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<RequestId, E> {
                Ok(RequestId::Text(v.to_owned()))
            }
        }
        deserializer.deserialize_any(IdVisitor)
    }
}

/// A request: an answer is owed.
#[derive(Debug, Clone)]
pub struct Request {
    /// Echoed in the answer.
    pub id: RequestId,
    /// For example `tools/list`.
    pub method: String,
    /// The parameters as they stood in the message; always a JSON object when present.
    pub params: Option<Box<RawValue>>,
}

/// A notification: no answer is owed.
#[derive(Debug, Clone)]
pub struct Notification {
    /// For example `notifications/cancelled`.
    pub method: String,
    /// The parameters as they stood in the message; always a JSON object when present.
    pub params: Option<Box<RawValue>>,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub struct Response {
    /// The id of the request; absent only on an error about a message whose id
    /// could not be read.
    pub id: Option<RequestId>,
    /// The result as it stood in the message, or the error.
    pub outcome: Result<Box<RawValue>, RpcError>,
}

/// One message.
#[derive(Debug, Clone)]
pub enum Message {
    /// A request.
    Request(Request),
    /// A notification.
    Notification(Notification),
    /// A response.
    Response(Response),
}

/// What arrived in one body or on one line.
#[derive(Debug)]
pub enum Incoming {
    /// One message.
    Single(Message),
    /// A JSON array of messages, each read on its own. Never empty.
    Batch(Vec<Result<Message, Malformed>>),
}

/// Why a text is not a message, with the id if one could be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("malformed message: {error}")]
pub struct Malformed {
    /// The id of the message, where it could be read.
    pub id: Option<RequestId>,
    /// The error object that the sender should get.
    pub error: RpcError,
}

impl Malformed {
    fn invalid(id: Option<RequestId>, message: impl Into<String>) -> Self {
        Self {
            id,
            error: RpcError::invalid_request(message),
        }
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default, borrow)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(default, borrow)]
    method: Option<&'a RawValue>,
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
}

/// Keeps a `null` apart from an absent field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl Incoming {
    /// Reads a body or a line.
    ///
    /// # Errors
    ///
    /// [`Malformed`] with `-32700` when the bytes are not UTF-8 or not JSON, and
    /// with `-32600` when the JSON is not a JSON-RPC 2.0 message.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let text = std::str::from_utf8(bytes).map_err(|e| Malformed {
            id: None,
            error: RpcError::parse_error(format!(
                "Parse error: the message is not UTF-8 (byte {})",
                e.valid_up_to()
            )),
        })?;
        // A byte-order mark is not JSON, and some writers put one first.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let raw: &RawValue = serde_json::from_str(text).map_err(|e| Malformed {
            id: None,
            error: RpcError::parse_error(format!("Parse error: {e}")),
        })?;
        match raw.get().as_bytes().first() {
            Some(b'{') => Message::read(raw.get()).map(Self::Single),
            Some(b'[') => {
                let elements: Vec<&RawValue> = serde_json::from_str(raw.get())
                    .map_err(|e| Malformed::invalid(None, format!("Invalid Request: {e}")))?;
                if elements.is_empty() {
                    return Err(Malformed::invalid(None, "Invalid Request: an empty batch"));
                }
                Ok(Self::Batch(
                    elements.iter().map(|e| Message::read(e.get())).collect(),
                ))
            }
            _ => Err(Malformed::invalid(
                None,
                "Invalid Request: a message is a JSON object",
            )),
        }
    }
}

fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

impl Message {
    fn read(text: &str) -> Result<Self, Malformed> {
        let envelope: Envelope<'_> = serde_json::from_str(text)
            .map_err(|e| Malformed::invalid(None, format!("Invalid Request: {e}")))?;
        let id = match envelope.id {
            None => None,
            // Base JSON-RPC answers a message whose id it could not read with `null`.
            Some(raw) if raw.get() == "null" && envelope.error.is_some() => None,
            Some(raw) => Some(serde_json::from_str::<RequestId>(raw.get()).map_err(|_| {
                Malformed::invalid(None, "Invalid Request: an id is a string or an integer")
            })?),
        };
        if envelope.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
            return Err(Malformed::invalid(
                id,
                "Invalid Request: `jsonrpc` must be \"2.0\"",
            ));
        }
        if let Some(raw) = envelope.method {
            let Ok(method) = serde_json::from_str::<String>(raw.get()) else {
                return Err(Malformed::invalid(
                    id,
                    "Invalid Request: `method` is a string",
                ));
            };
            if let Some(params) = envelope.params
                && !is_object(params)
            {
                return Err(Malformed::invalid(
                    id,
                    "Invalid Request: `params` is an object",
                ));
            }
            let params = envelope.params.map(ToOwned::to_owned);
            return Ok(match id {
                Some(id) => Self::Request(Request { id, method, params }),
                None => Self::Notification(Notification { method, params }),
            });
        }
        match (envelope.result, envelope.error, id) {
            (Some(result), None, Some(id)) => {
                if !is_object(result) {
                    return Err(Malformed::invalid(
                        Some(id),
                        "Invalid Request: `result` is an object",
                    ));
                }
                Ok(Self::Response(Response {
                    id: Some(id),
                    outcome: Ok(result.to_owned()),
                }))
            }
            (None, Some(error), id) if !is_object(error) => Err(Malformed::invalid(
                id,
                "Invalid Request: `error` is an object",
            )),
            (None, Some(error), id) => match serde_json::from_str::<RpcError>(error.get()) {
                Ok(error) => Ok(Self::Response(Response {
                    id,
                    outcome: Err(error),
                })),
                Err(e) => Err(Malformed::invalid(
                    id,
                    format!("Invalid Request: `error`: {e}"),
                )),
            },
            (None, None, id) => Err(Malformed::invalid(
                id,
                "Invalid Request: neither `method`, nor `result`, nor `error`",
            )),
            (_, _, id) => Err(Malformed::invalid(
                id,
                "Invalid Request: a response has an id, and either `result` or `error`",
            )),
        }
    }
}

const VERSION: &str = "2.0";

impl Serialize for Request {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("jsonrpc", VERSION)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("method", &self.method)?;
        if let Some(params) = &self.params {
            map.serialize_entry("params", params)?;
        }
        map.end()
    }
}

impl Serialize for Notification {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("jsonrpc", VERSION)?;
        map.serialize_entry("method", &self.method)?;
        if let Some(params) = &self.params {
            map.serialize_entry("params", params)?;
        }
        map.end()
    }
}

impl Serialize for Response {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("jsonrpc", VERSION)?;
        if let Some(id) = &self.id {
            map.serialize_entry("id", id)?;
        }
        match &self.outcome {
            Ok(result) => map.serialize_entry("result", result)?,
            Err(error) => map.serialize_entry("error", error)?,
        }
        map.end()
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Request(m) => m.serialize(serializer),
            Self::Notification(m) => m.serialize(serializer),
            Self::Response(m) => m.serialize(serializer),
        }
    }
}

impl Response {
    /// A response that carries an error.
    #[must_use]
    pub fn error(id: Option<RequestId>, error: RpcError) -> Self {
        Self {
            id,
            outcome: Err(error),
        }
    }

    /// A response that carries a result.
    #[must_use]
    pub fn result(id: RequestId, result: Box<RawValue>) -> Self {
        Self {
            id: Some(id),
            outcome: Ok(result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single(text: &str) -> Result<Message, Malformed> {
        match Incoming::parse(text.as_bytes())? {
            Incoming::Single(message) => Ok(message),
            Incoming::Batch(_) => panic!("one message expected"),
        }
    }

    #[test]
    fn an_id_echoed_as_a_double_is_the_same_integer() {
        let Ok(Message::Response(r)) = single(r#"{"jsonrpc":"2.0","id":1.0,"result":{}}"#) else {
            panic!("a response");
        };
        assert_eq!(r.id, Some(RequestId::Number(1)));
    }

    #[test]
    fn an_id_echoed_as_a_string_is_another_id() {
        let Ok(Message::Response(r)) = single(r#"{"jsonrpc":"2.0","id":"1","result":{}}"#) else {
            panic!("a response");
        };
        assert_eq!(r.id, Some(RequestId::Text("1".into())));
    }

    #[test]
    fn malformed_messages_are_told_apart() {
        let cases: &[(&str, i64)] = &[
            ("{", -32700),
            ("nonsense", -32700),
            ("1", -32600),
            ("[]", -32600),
            (r#"{"id":1,"method":"ping"}"#, -32600),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32600),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a","params":[]}"#,
                -32600,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"result":[]}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
        ];
        for (text, code) in cases {
            let error = single(text).expect_err(text);
            assert_eq!(error.error.code, *code, "{text}");
        }
        assert_eq!(
            Incoming::parse(b"\xff").expect_err("bytes").error.code,
            -32700
        );
    }

    #[test]
    fn the_id_of_a_malformed_message_is_kept_where_it_can_be_read() {
        let error = single(r#"{"jsonrpc":"2.0","id":"x","method":7}"#).expect_err("method");
        assert_eq!(error.id, Some("x".into()));
    }

    #[test]
    fn a_batch_is_read_message_by_message() {
        let body = br#"[{"jsonrpc":"2.0","id":1,"method":"ping"},7]"#;
        let Ok(Incoming::Batch(batch)) = Incoming::parse(body) else {
            panic!("a batch");
        };
        assert!(matches!(&batch[0], Ok(Message::Request(r)) if r.method == "ping"));
        assert_eq!(batch[1].as_ref().expect_err("7").error.code, -32600);
    }

    #[test]
    fn messages_are_written_as_they_are_read() {
        for text in [
            r#"{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"cursor":""}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":3,"result":{"tools":[]}}"#,
            r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"}}"#,
        ] {
            let message = single(text).expect(text);
            assert_eq!(serde_json::to_string(&message).expect("writes"), text);
        }
    }
}
