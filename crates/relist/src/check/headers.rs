//! What the server makes of headers that contradict the body. Over HTTP only.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use relist_client::config::Target;
use relist_client::connection::Connection;
use relist_client::raw::{RawHttp, RawReply};
use relist_protocol::error::code;
use relist_protocol::header::{METHOD, NAME, PROTOCOL_VERSION, SESSION_ID};
use relist_protocol::meta::key;
use relist_protocol::{Era, ProtocolVersion};
use serde_json::{Value, json};

use super::offered;
use super::report::Report;
use super::rule::Rule;

/// No server has a tool, a method or a session of this name.
const NOBODY: &str = "relist-check-no-such-name";

/// A request that is wrong in one way.
struct Probe {
    what: &'static str,
    method: &'static str,
    params: Value,
    /// Headers that differ from the right ones; `None`: left out.
    headers: Vec<(&'static str, Option<&'static str>)>,
    status: u16,
    code: i64,
}

fn probes(list: &'static str) -> Vec<Probe> {
    let probe = |what, headers| Probe {
        what,
        method: list,
        params: json!({}),
        headers,
        status: 400,
        code: code::HEADER_MISMATCH,
    };
    vec![
        probe(
            "a request whose Mcp-Method is another",
            vec![(METHOD, Some("prompts/get"))],
        ),
        probe("a request without Mcp-Method", vec![(METHOD, None)]),
        probe(
            "a request whose MCP-Protocol-Version is not the one in `_meta`",
            vec![(PROTOCOL_VERSION, Some("2025-11-25"))],
        ),
        probe(
            "a request without MCP-Protocol-Version",
            vec![(PROTOCOL_VERSION, None)],
        ),
        Probe {
            method: "tools/call",
            params: json!({"name": NOBODY, "arguments": {}}),
            ..probe(
                "a call whose Mcp-Name is another",
                vec![(NAME, Some("another"))],
            )
        },
        Probe {
            method: NOBODY,
            status: 404,
            code: code::METHOD_NOT_FOUND,
            ..probe("a method that is not there", Vec::new())
        },
    ]
}

pub(super) async fn judge(report: &mut Report, connection: &Connection) {
    let rule = Rule::HttpHeaders;
    let Target::Http(url) = connection.target() else {
        return report.skip(rule, "there are none over stdio");
    };
    let raw = match RawHttp::new(url.clone(), connection.config().clone()) {
        Ok(raw) => raw,
        Err(error) => return report.skip(rule, &error.to_string()),
    };
    match connection.era() {
        Era::Modern => modern(report, connection, &raw).await,
        Era::Legacy => legacy(report, &raw).await,
    }
    get(report, &raw).await;
}

fn base() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(
        header::ACCEPT,
        HeaderValue::from_static("application/json, text/event-stream"),
    );
    headers
}

async fn modern(report: &mut Report, connection: &Connection, raw: &RawHttp) {
    let rule = Rule::HttpHeaders;
    let Some(list) = offered(connection).first().map(|kind| kind.list_method()) else {
        return report.skip(rule, "the server offers nothing that could be asked for");
    };
    let version = connection.version();
    let right = Probe {
        what: "",
        method: list,
        params: json!({}),
        headers: Vec::new(),
        status: 200,
        code: 0,
    };
    // Only a server that takes what is right can be judged by what it refuses.
    match send(raw, version, &right).await {
        Ok(reply) if reply.status == StatusCode::OK => {}
        Ok(reply) => {
            let reason = format!("a right request was answered HTTP {}", reply.status);
            return report.skip(rule, &reason);
        }
        Err(reason) => return report.skip(rule, &reason),
    }
    report.judged(rule);
    for probe in probes(list) {
        if probe.method == "tools/call"
            && !offered(connection).contains(&relist_protocol::CatalogKind::Tools)
        {
            continue;
        }
        let expected = format!("HTTP {} and {}", probe.status, probe.code);
        let text = match send(raw, version, &probe).await {
            Err(reason) => format!("{}: {expected} expected, but {reason}", probe.what),
            Ok(reply) => {
                let code = error_code(&reply);
                if reply.status.as_u16() == probe.status && code == Some(probe.code) {
                    continue;
                }
                let code = code.map_or_else(|| "no error".to_owned(), |code| code.to_string());
                let found = reply.status.as_u16();
                format!("{}: HTTP {found} and {code}, not {expected}", probe.what)
            }
        };
        report.fault(rule, None, text);
    }
}

async fn send(raw: &RawHttp, version: ProtocolVersion, probe: &Probe) -> Result<RawReply, String> {
    let mut params = probe.params.clone();
    params["_meta"] = json!({
        key::PROTOCOL_VERSION: version.as_str(),
        key::CLIENT_INFO: {"name": "relist", "version": env!("CARGO_PKG_VERSION")},
        key::CLIENT_CAPABILITIES: {},
    });
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": probe.method, "params": params});
    let mut headers = base();
    let mut set = |name: &'static str, value: Option<&'static str>| {
        let name = HeaderName::from_static(name);
        match value {
            Some(value) => drop(headers.insert(name, HeaderValue::from_static(value))),
            None => drop(headers.remove(name)),
        }
    };
    set(PROTOCOL_VERSION, Some(version.as_str()));
    set(METHOD, Some(probe.method));
    for (name, value) in &probe.headers {
        set(name, *value);
    }
    let body = message.to_string();
    let reply = raw.send(Method::POST, headers, body).await;
    reply.map_err(|e| e.to_string())
}

fn error_code(reply: &RawReply) -> Option<i64> {
    let body: Value = serde_json::from_slice(&reply.body).ok()?;
    body.get("error")?.get("code")?.as_i64()
}

async fn legacy(report: &mut Report, raw: &RawHttp) {
    let rule = Rule::HttpHeaders;
    let mut headers = base();
    headers.insert(
        HeaderName::from_static(SESSION_ID),
        HeaderValue::from_static(NOBODY),
    );
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    match raw.send(Method::POST, headers, body).await {
        Ok(reply) if reply.status == StatusCode::NOT_FOUND => report.judged(rule),
        // Without sessions there is none that could be unknown.
        Ok(reply) if reply.status.is_success() => {
            report.skip(rule, "the server keeps no sessions");
        }
        Ok(reply) => {
            let text = format!(
                "a session that is not there: HTTP {}, not 404; clients do not know that they have to begin again",
                reply.status.as_u16()
            );
            report.fault(rule, None, text);
        }
        Err(error) => report.skip(rule, &error.to_string()),
    }
}

/// A GET gets an event stream, or 405.
async fn get(report: &mut Report, raw: &RawHttp) {
    let rule = Rule::HttpHeaders;
    let mut headers = HeaderMap::new();
    headers.insert(
        header::ACCEPT,
        HeaderValue::from_static("text/event-stream"),
    );
    let Ok(reply) = raw.send(Method::GET, headers, "").await else {
        return;
    };
    let media = reply.media_type().unwrap_or_else(|| "no type".to_owned());
    if reply.status.is_success() && media != "text/event-stream" {
        let text = format!("a GET gets {media} in place of an event stream or 405");
        report.fault(rule, None, text);
    }
    if reply.status == StatusCode::UNAUTHORIZED {
        let text = "a GET is challenged: a stream that is not offered is 405, or clients \
                    begin to authorize for it";
        report.advice(rule, None, text.to_owned());
    }
}
