//! The headers of a POST, and whether they say what the body says.
//!
//! Specification: [request metadata](https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#request-metadata).

use http::{HeaderMap, header};
use relist_protocol::RpcError;
use relist_protocol::header::{
    METHOD, NAME, PARAM_PREFIX, PROTOCOL_VERSION, decode_value, named_parameter,
};
use relist_protocol::jsonrpc::Request;
use relist_protocol::message::method;
use relist_protocol::meta::RequestMeta;
use relist_protocol::param_header::ParamHeader;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::catalogs::State;

/// The media types of a list such as `Accept`, without parameters.
fn media_types<'a>(
    headers: &'a HeaderMap,
    name: &header::HeaderName,
) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .map(|range| range.split(';').next().unwrap_or_default().trim())
        .filter(|range| !range.is_empty())
}

/// Whether the client accepts a media type; no header accepts all.
pub(crate) fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    if !headers.contains_key(header::ACCEPT) {
        return true;
    }
    let group = wanted.split('/').next().unwrap_or_default();
    media_types(headers, &header::ACCEPT).any(|range| {
        range == "*/*"
            || range.eq_ignore_ascii_case(wanted)
            || range
                .strip_suffix("/*")
                .is_some_and(|g| g.eq_ignore_ascii_case(group))
    })
}

/// Whether the body says that it is plain JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let mut types = media_types(headers, &header::CONTENT_TYPE);
    let json = types
        .next()
        .is_some_and(|t| t.eq_ignore_ascii_case("application/json"));
    let encoded = headers
        .get(header::CONTENT_ENCODING)
        .is_some_and(|e| !e.as_bytes().eq_ignore_ascii_case(b"identity"));
    json && types.next().is_none() && !encoded
}

/// The value of a header that may stand there once; `None` when absent.
fn value(headers: &HeaderMap, name: &str, decode: bool) -> Result<Option<String>, RpcError> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(RpcError::header_mismatch(format!(
            "Header mismatch: {name} is there more than once"
        )));
    }
    let trimmed = first.as_bytes().trim_ascii();
    let decoded = if decode {
        decode_value(trimmed).map_err(|e| e.to_string())
    } else {
        std::str::from_utf8(trimmed)
            .map(str::to_owned)
            .map_err(|_| "the value is not ASCII".to_owned())
    };
    decoded
        .map(Some)
        .map_err(|e| RpcError::header_mismatch(format!("Header mismatch: {name}: {e}")))
}

fn same(headers: &HeaderMap, name: &str, decode: bool, body: &str) -> Result<(), RpcError> {
    match value(headers, name, decode)? {
        Some(found) if found == body => Ok(()),
        Some(found) => Err(differs(name, &found, body)),
        None => Err(RpcError::header_mismatch(format!(
            "Header mismatch: the {name} header is missing"
        ))),
    }
}

fn differs(name: &str, found: &str, body: &str) -> RpcError {
    RpcError::header_mismatch(format!(
        "Header mismatch: the {name} header value {found:?} does not match the body value {body:?}"
    ))
}

/// The version that the headers state; `Err` when they state several.
pub(crate) fn version(headers: &HeaderMap) -> Result<Option<String>, RpcError> {
    value(headers, PROTOCOL_VERSION, false)
}

#[derive(Deserialize, Default)]
struct Mirrored {
    #[serde(default)]
    name: Option<Value>,
    #[serde(default)]
    uri: Option<Value>,
}

#[derive(Deserialize, Default)]
struct Arguments {
    #[serde(default)]
    arguments: Option<Map<String, Value>>,
}

/// Checks the headers of a modern request against its body.
///
/// # Errors
///
/// `-32020` for a header that is missing, malformed, repeated or different.
pub(crate) fn check(
    headers: &HeaderMap,
    request: &Request,
    meta: &RequestMeta,
    state: &State,
) -> Result<(), RpcError> {
    if let Some(stated) = &meta.protocol_version {
        same(headers, PROTOCOL_VERSION, false, stated)?;
    }
    same(headers, METHOD, false, &request.method)?;
    let (Some(parameter), Some(params)) = (named_parameter(&request.method), &request.params)
    else {
        return Ok(());
    };
    let mirrored: Mirrored = serde_json::from_str(params.get()).unwrap_or_default();
    let body = match parameter {
        "name" => mirrored.name,
        _ => mirrored.uri,
    };
    // Without the parameter the request is refused for that, with another code.
    let Some(Value::String(body)) = body else {
        return Ok(());
    };
    same(headers, NAME, true, &body)?;
    let Some(tool) = state
        .tool(&body)
        .filter(|t| request.method == method::CALL_TOOL && !t.schemas.headers.is_empty())
    else {
        return Ok(());
    };
    let arguments: Arguments = serde_json::from_str(params.get()).unwrap_or_default();
    check_params(
        headers,
        &tool.schemas.headers,
        &arguments.arguments.unwrap_or_default(),
    )
}

fn check_params(
    headers: &HeaderMap,
    mirrored: &[ParamHeader],
    arguments: &Map<String, Value>,
) -> Result<(), RpcError> {
    for header in mirrored {
        // Header names are compared in lower case.
        let name = format!("{PARAM_PREFIX}{}", header.name.to_ascii_lowercase());
        let found = value(headers, &name, true)?;
        let text = match (found, header.value_in(arguments)) {
            (None, None) => continue,
            (Some(found), Some(body)) if ParamHeader::matches(&found, &body) => continue,
            (Some(found), Some(body)) => return Err(differs(&name, &found, &body)),
            (None, Some(_)) => "is missing, and the body has a value",
            (Some(_), None) => "is there, and the body has no such value",
        };
        return Err(RpcError::header_mismatch(format!(
            "Header mismatch: the {name} header {text}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in list {
            map.append(*name, value.parse().expect("a value"));
        }
        map
    }

    #[test]
    fn media_types_are_read_with_parameters_and_odd_case() {
        let both = headers(&[("accept", "Application/JSON;q=0.9, text/event-stream")]);
        assert!(accepts(&both, "application/json") && accepts(&both, "text/event-stream"));
        let one = headers(&[("accept", "application/json")]);
        assert!(!accepts(&one, "text/event-stream"));
        for all in ["*/*", "application/*, text/*"] {
            let all = headers(&[("accept", all)]);
            assert!(accepts(&all, "application/json") && accepts(&all, "text/event-stream"));
        }
        assert!(accepts(&HeaderMap::new(), "application/json"));
        assert!(is_json(&headers(&[(
            "content-type",
            "application/json; charset=utf-8"
        )])));
        assert!(!is_json(&headers(&[("content-type", "text/plain")])));
        assert!(!is_json(&HeaderMap::new()));
        assert!(!is_json(&headers(&[
            ("content-type", "application/json"),
            ("content-encoding", "gzip")
        ])));
    }

    #[test]
    fn a_header_that_is_there_twice_is_refused() {
        let twice = headers(&[("mcp-method", "tools/list"), ("mcp-method", "tools/list")]);
        let error = same(&twice, METHOD, false, "tools/list").expect_err("twice");
        assert_eq!(error.code, -32020);
    }

    #[test]
    fn mirrored_parameters_are_compared_with_the_arguments() {
        let mirrored = [ParamHeader {
            name: "Region".into(),
            path: vec!["region".into()],
        }];
        let check = |header: Option<&str>, body: Value| {
            let headers =
                header.map_or_else(HeaderMap::new, |h| headers(&[("mcp-param-region", h)]));
            let arguments = body.as_object().cloned().unwrap_or_default();
            check_params(&headers, &mirrored, &arguments).is_ok()
        };
        assert!(check(Some("eu"), json!({"region": "eu"})));
        assert!(check(Some("=?base64?ZXU=?="), json!({"region": "eu"})));
        assert!(check(Some("42.0"), json!({"region": 42})));
        assert!(check(None, json!({"region": null})));
        assert!(check(None, json!({})));
        assert!(!check(None, json!({"region": "eu"})));
        assert!(!check(Some("us"), json!({"region": "eu"})));
        assert!(!check(Some("eu"), json!({})));
        assert!(!check(
            Some("=?base64?SGVs!!!bG8=?="),
            json!({"region": "Hello"})
        ));
    }
}
