//! What our server answers to what is not the protocol: a precise error, and
//! the next request works.

mod server_support;

use relist_fixture::{HttpReply, LegacySession, LineClient};
use relist_protocol::RpcError;
use relist_protocol::message::CompleteParams;
use relist_server::{CompletionOutput, Context, HttpOptions, Server, StdioOptions};
use serde_json::{Value, json};
use server_support::*;

const LEGACY: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];
const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");
const JSON: (&str, &str) = ("content-type", "application/json");

async fn suggest(params: CompleteParams, _: Context) -> Result<CompletionOutput, RpcError> {
    Ok(CompletionOutput::new([params.argument.value]))
}

fn server() -> Server {
    let counted = json!({"name": "counted", "inputSchema": {"type": "object",
        "properties": {"n": {"type": "integer"}}, "required": ["n"]}});
    builder()
        .tool(counted, echo)
        .completion(suggest)
        .build()
        .expect("a server")
}

/// What no reader of JSON-RPC can make anything of, and the code that it gets.
fn unreadable() -> Vec<(&'static str, Vec<u8>, i64)> {
    let request = |text: &str| text.as_bytes().to_vec();
    vec![
        ("no JSON", request("{"), -32700),
        ("words", request("hello"), -32700),
        ("HTML", request("<!doctype html><html></html>"), -32700),
        (
            "two messages",
            request(r#"{"jsonrpc":"2.0"}{"jsonrpc":"2.0"}"#),
            -32700,
        ),
        (
            "a raw control character",
            request("{\"jsonrpc\":\"2.0\",\"id\":\"\u{1}\"}"),
            -32700,
        ),
        (
            "no UTF-8",
            b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\"}".to_vec(),
            -32700,
        ),
        ("UTF-16", b"\xff\xfe{\0}\0".to_vec(), -32700),
        (
            "half a character",
            b"{\"jsonrpc\":\"2.0\",\"id\":\"\xe2\x82\"}".to_vec(),
            -32700,
        ),
        ("a number", request("7"), -32600),
        ("null", request("null"), -32600),
        ("a string", request("\"tools/list\""), -32600),
        ("an empty object", request("{}"), -32600),
        ("an empty batch", request("[]"), -32600),
        ("no version", request(r#"{"id":1,"method":"ping"}"#), -32600),
        (
            "version 1.0",
            request(r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#),
            -32600,
        ),
        (
            "version 2",
            request(r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#),
            -32600,
        ),
        ("no method", request(r#"{"jsonrpc":"2.0","id":1}"#), -32600),
        (
            "a method that is a number",
            request(r#"{"jsonrpc":"2.0","id":1,"method":1}"#),
            -32600,
        ),
        (
            "a method that is null",
            request(r#"{"jsonrpc":"2.0","id":1,"method":null}"#),
            -32600,
        ),
        (
            "params in an array",
            request(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}"#),
            -32600,
        ),
        (
            "params in a string",
            request(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":"x"}"#),
            -32600,
        ),
        (
            "an id that is null",
            request(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#),
            -32600,
        ),
        (
            "an id that is an object",
            request(r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#),
            -32600,
        ),
    ]
}

/// A request with arguments nested without end.
fn deep(method: &str) -> String {
    let (open, close) = (r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"name":"a","arguments":{open}1{close}}}}}"#
    )
}

#[tokio::test]
async fn parameters_nested_without_end_are_refused_where_they_are_read() {
    let hosted = host(server()).await;
    let modern = [
        ACCEPT,
        JSON,
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "a"),
    ];
    let reply = hosted.client.post(&modern, deep("tools/call")).await;
    assert_eq!(outcome(&reply), (400, -32602));
    hosted.works("depth").await;
    for version in LEGACY {
        let session = hosted.client.legacy(version).await;
        let reply = post_in(&hosted, &session, deep("tools/call")).await;
        assert_eq!(outcome(&reply), (200, -32602), "{version}");
        // A parameter that the method does not know is not looked at.
        let reply = post_in(&hosted, &session, deep("tools/list")).await;
        assert!(reply.result()["tools"].is_array(), "{version}");
    }
    let mut client = piped(&server(), StdioOptions::default());
    client.send_raw(deep("tools/call") + "\n").await;
    assert_eq!(client.message().await["error"]["code"], -32602);
    ping(&mut client, "depth").await;
}

fn headers_of(session: &LegacySession<'_>) -> Vec<(String, String)> {
    let mut headers = vec![
        ("accept".to_owned(), ACCEPT.1.to_owned()),
        ("content-type".to_owned(), JSON.1.to_owned()),
        ("mcp-protocol-version".to_owned(), session.version.clone()),
    ];
    headers.extend(
        session
            .id
            .clone()
            .map(|id| ("mcp-session-id".to_owned(), id)),
    );
    headers
}

async fn post_in(
    hosted: &Hosted,
    session: &LegacySession<'_>,
    body: impl Into<Vec<u8>>,
) -> HttpReply {
    let headers = headers_of(session);
    let headers: Vec<_> = headers
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()))
        .collect();
    hosted.client.post(&headers, body.into()).await
}

#[tokio::test]
async fn what_cannot_be_read_is_400_and_the_next_request_works() {
    let hosted = host(server()).await;
    let modern = [
        ACCEPT,
        JSON,
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
    ];
    for (what, body, code) in unreadable() {
        let reply = hosted.client.post(&modern, body).await;
        assert_eq!(outcome(&reply), (400, code), "{what}");
        assert_eq!(
            reply.header("content-type"),
            Some("application/json"),
            "{what}"
        );
        hosted.works(what).await;
    }
    for version in LEGACY {
        let session = hosted.client.legacy(version).await;
        for (what, body, code) in unreadable() {
            let reply = post_in(&hosted, &session, body).await;
            assert_eq!(outcome(&reply), (400, code), "{version}: {what}");
            let next = session.request("tools/list", json!({})).await;
            assert!(next.result()["tools"].is_array(), "{version}: after {what}");
        }
    }
}

/// Requests whose parameters are of the wrong type, in either era.
fn mistyped() -> Vec<(&'static str, Value)> {
    let reference = json!({"type": "ref/prompt", "name": "a"});
    let argument = json!({"name": "x", "value": "y"});
    vec![
        ("tools/list", json!({"cursor": 7})),
        ("tools/list", json!({"cursor": ["x"]})),
        ("tools/call", json!({})),
        ("tools/call", json!({"name": null})),
        ("tools/call", json!({"name": 7})),
        ("tools/call", json!({"name": ["a"]})),
        ("tools/call", json!({"name": "a", "arguments": "x"})),
        ("tools/call", json!({"name": "a", "arguments": []})),
        ("tools/call", json!({"name": "a", "arguments": [1]})),
        ("tools/call", json!({"name": "a", "arguments": 7})),
        ("tools/call", json!({"name": "nobody", "arguments": {}})),
        ("resources/read", json!({})),
        ("resources/read", json!({"uri": {}})),
        ("prompts/get", json!({"name": "a", "arguments": []})),
        ("prompts/get", json!({"name": "a", "arguments": {"x": 1}})),
        ("prompts/get", json!({"name": "nobody"})),
        ("completion/complete", json!({})),
        (
            "completion/complete",
            json!({"ref": ["ref/prompt", "a"], "argument": argument}),
        ),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/x"}, "argument": argument}),
        ),
        (
            "completion/complete",
            json!({"ref": reference, "argument": ["x", "y"]}),
        ),
        (
            "completion/complete",
            json!({"ref": reference, "argument": {"name": "x", "value": 1}}),
        ),
        (
            "completion/complete",
            json!({"ref": reference, "argument": argument, "context": []}),
        ),
        (
            "completion/complete",
            json!({"ref": reference, "argument": argument, "context": [{}]}),
        ),
    ]
}

#[tokio::test]
async fn parameters_of_the_wrong_type_are_invalid_params() {
    let hosted = host(server()).await;
    let session = hosted.client.legacy("2025-11-25").await;
    for (method, params) in mistyped() {
        let reply = hosted.client.modern(method, params.clone()).send().await;
        assert_eq!(outcome(&reply), (200, -32602), "{method} {params}");
        hosted.works(method).await;
        let reply = session.request(method, params.clone()).await;
        assert_eq!(outcome(&reply), (200, -32602), "{method} {params}");
    }
    for (method, params) in [
        ("resources/subscribe", json!({})),
        ("resources/subscribe", json!({"uri": 7})),
        ("resources/subscribe", json!({"uri": "x".repeat(10_000)})),
        ("resources/unsubscribe", json!({"uri": []})),
        ("logging/setLevel", json!({})),
        ("logging/setLevel", json!({"level": "loud"})),
        ("logging/setLevel", json!({"level": 3})),
    ] {
        let reply = session.request(method, params.clone()).await;
        assert_eq!(outcome(&reply), (200, -32602), "{method} {params}");
    }
    // Arguments that break the schema are an error that a model can read, and
    // before 2025-11-25 one of the protocol.
    let wrong = json!({"name": "counted", "arguments": {"n": "x"}});
    let answer = hosted
        .client
        .modern("tools/call", wrong.clone())
        .result()
        .await;
    assert_eq!(answer["isError"], true);
    assert_eq!(
        session.request("tools/call", wrong.clone()).await.result()["isError"],
        true
    );
    let older = hosted.client.legacy("2025-06-18").await;
    assert_eq!(
        outcome(&older.request("tools/call", wrong).await),
        (200, -32602)
    );
    hosted.works("wrong parameters").await;
}

#[tokio::test]
async fn a_filter_of_the_wrong_type_is_refused() {
    let hosted = host(server()).await;
    for notifications in [
        json!(null),
        json!([]),
        json!([true]),
        json!("toolsListChanged"),
        json!(true),
        json!({"toolsListChanged": "yes"}),
        json!({"toolsListChanged": 1}),
        json!({"toolsListChanged": null}),
        json!({"resourceSubscriptions": "r://a"}),
        json!({"resourceSubscriptions": {"r://a": true}}),
        json!({"resourceSubscriptions": [1]}),
    ] {
        let params = json!({"notifications": notifications});
        let reply = hosted
            .client
            .modern("subscriptions/listen", params)
            .send()
            .await;
        assert_eq!(outcome(&reply), (200, -32602), "{notifications}");
    }
    let reply = hosted
        .client
        .modern("subscriptions/listen", json!({}))
        .send()
        .await;
    assert_eq!(outcome(&reply), (200, -32602));
    hosted.works("a filter").await;
}

#[tokio::test]
async fn methods_that_are_not_there_are_not_found() {
    let hosted = host(server()).await;
    for method in [
        "unknown",
        "",
        "tools/",
        "TOOLS/LIST",
        "tools/list/",
        "rpc.discover",
        // Of the other era.
        "ping",
        "resources/subscribe",
        "logging/setLevel",
    ] {
        let reply = hosted.client.modern(method, json!({})).send().await;
        assert_eq!(outcome(&reply), (404, -32601), "{method}");
        hosted.works(method).await;
    }
    for version in LEGACY {
        let session = hosted.client.legacy(version).await;
        for method in [
            "unknown",
            "",
            "TOOLS/LIST",
            "server/discover",
            "subscriptions/listen",
        ] {
            let reply = session.request(method, json!({})).await;
            assert_eq!(outcome(&reply), (200, -32601), "{version}: {method}");
        }
        // A notification that nobody knows is no reason to complain.
        let reply = session.notify("notifications/unknown", json!({})).await;
        assert_eq!((reply.status, reply.body.len()), (202, 0), "{version}");
        let cancelled = [
            json!({}),
            json!({"requestId": []}),
            json!({"requestId": 99}),
        ];
        for params in cancelled {
            let reply = session.notify("notifications/cancelled", params).await;
            assert_eq!((reply.status, reply.body.len()), (202, 0), "{version}");
        }
        let next = session.request("ping", json!({})).await;
        assert_eq!(next.result(), json!({}), "{version}");
    }
}

#[tokio::test]
async fn a_modern_request_says_who_it_is() {
    let hosted = host(server()).await;
    let meta = |name: &str| format!("io.modelcontextprotocol/{name}");
    let list = || hosted.client.modern("tools/list", json!({}));
    let cases = [
        (list().without_meta(&meta("protocolVersion")), 400, -32602),
        (
            list().without_meta(&meta("clientCapabilities")),
            400,
            -32602,
        ),
        (
            list().meta(&meta("clientCapabilities"), json!([])),
            400,
            -32602,
        ),
        (
            list().meta(&meta("clientCapabilities"), json!(null)),
            400,
            -32602,
        ),
        (list().meta(&meta("clientInfo"), json!("me")), 400, -32602),
        (
            list().meta(&meta("clientInfo"), json!(["me", "1"])),
            400,
            -32602,
        ),
        (list().meta(&meta("logLevel"), json!("loud")), 400, -32602),
        (
            list().meta(&meta("protocolVersion"), json!(20_260_728)),
            400,
            -32602,
        ),
        (list().meta("progressToken", json!({})), 400, -32602),
        (list().version("2999-01-01"), 400, -32022),
        (list().version("2025-11-25"), 400, -32022),
        (list().version(""), 400, -32022),
    ];
    for (request, status, code) in cases {
        let what = request.message().to_string();
        let reply = request.send().await;
        assert_eq!(outcome(&reply), (status, code), "{what}");
        assert!(reply.json()["id"].is_i64(), "{what}");
    }
    let reply = list().version("2999-01-01").send().await;
    let data = reply.error()["data"].clone();
    assert_eq!(data["requested"], "2999-01-01");
    assert_eq!(data["supported"][0], "2026-07-28");
    // `_meta` that is no object, or not there at all.
    for params in [
        "",
        r#","params":{}"#,
        r#","params":{"_meta":{}}"#,
        r#","params":{"_meta":[]}"#,
        r#","params":{"_meta":"x"}"#,
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":9,"method":"tools/list"{params}}}"#);
        let headers = [
            ACCEPT,
            JSON,
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/list"),
        ];
        let reply = hosted.client.post(&headers, body.clone()).await;
        assert_eq!(outcome(&reply), (400, -32602), "{body}");
        assert_eq!(reply.json()["id"], 9);
    }
    hosted.works("a request without an identity").await;
}

#[tokio::test]
async fn headers_that_contradict_the_body_are_refused() {
    let hosted = host(server()).await;
    let list = || hosted.client.modern("tools/list", json!({}));
    let call = || hosted.client.modern("tools/call", json!({"name": "a"}));
    let cases = [
        (list().without_header("mcp-protocol-version"), 400, -32020),
        (
            list().header("mcp-protocol-version", "2025-11-25"),
            400,
            -32020,
        ),
        (
            list().header("mcp-protocol-version", "2026-07-28, 2025-11-25"),
            400,
            -32020,
        ),
        (list().without_header("mcp-method"), 400, -32020),
        (list().header("mcp-method", "tools/call"), 400, -32020),
        (list().header("mcp-method", "Tools/List"), 400, -32020),
        (list().header("mcp-method", ""), 400, -32020),
        (call().without_header("mcp-name"), 400, -32020),
        (call().header("mcp-name", "b"), 400, -32020),
        (call().header("mcp-name", "=?base64?Yg==?="), 400, -32020),
        (call().header("mcp-name", "=?base64?!!!?="), 400, -32020),
        (list().without_header("content-type"), 415, -32600),
        (list().header("content-type", "text/plain"), 415, -32600),
        (
            list().header("content-type", "application/json, text/plain"),
            415,
            -32600,
        ),
        (list().header("content-encoding", "gzip"), 415, -32600),
        (list().header("accept", "text/html"), 406, -32600),
        (list().header("accept", "application/json"), 406, -32600),
        (list().header("origin", "https://evil.example"), 403, -32600),
        (list().header("origin", "null"), 403, -32600),
        (list().header("host", "evil.example"), 403, -32600),
        (list().header("host", "127.0.0.1.evil.example"), 403, -32600),
    ];
    for (request, status, code) in cases {
        let what = format!("{request:?}");
        assert_eq!(outcome(&request.send().await), (status, code), "{what}");
        hosted.works(&what).await;
    }
    // What is as good.
    for request in [
        call().header("mcp-name", "=?base64?YQ==?="),
        list().header("content-type", "Application/JSON; charset=utf-8"),
        list().header("accept", "*/*"),
        list().without_header("accept"),
        list().header("origin", "http://localhost:1234"),
    ] {
        let what = format!("{request:?}");
        assert_eq!(request.send().await.status, 200, "{what}");
    }
    // In a session, the version is the one that was agreed on.
    let session = hosted.client.legacy("2025-06-18").await;
    let id = session.id.as_deref().expect("a session");
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (version, code) in [("2025-11-25", -32600), ("1999-01-01", -32022)] {
        let headers = [
            ACCEPT,
            JSON,
            ("mcp-session-id", id),
            ("mcp-protocol-version", version),
        ];
        let reply = hosted.client.post(&headers, ping).await;
        assert_eq!(outcome(&reply), (400, code), "{version}");
    }
    let reply = hosted.client.post(&[ACCEPT, JSON], ping).await;
    assert_eq!(outcome(&reply), (400, -32600), "no session");
    assert_eq!(session.request("ping", json!({})).await.result(), json!({}));
}

const BATCH: &str = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},
    {"jsonrpc":"2.0","method":"notifications/x"}, 7,
    {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a"}},
    {"jsonrpc":"2.0","id":3,"method":"nothing"},
    ["2.0",4,"ping"]]"#;

/// A batch is legal in 2025-03-26 alone, and answered there.
#[tokio::test]
async fn a_batch_is_answered_in_the_one_version_that_has_it() {
    let hosted = host(server()).await;
    for version in LEGACY {
        let session = hosted.client.legacy(version).await;
        let reply = post_in(&hosted, &session, BATCH).await;
        if version == "2025-03-26" {
            assert_eq!(reply.status, 200);
            let answers = reply.json();
            check_batch(&answers);
            // Nothing but notifications: nothing is owed.
            let quiet = r#"[{"jsonrpc":"2.0","method":"notifications/x"}]"#;
            let reply = post_in(&hosted, &session, quiet).await;
            assert_eq!((reply.status, reply.body.len()), (202, 0));
        } else {
            assert_eq!(outcome(&reply), (400, -32600), "{version}");
        }
        let next = session.request("ping", json!({})).await;
        assert_eq!(next.result(), json!({}), "{version}");
    }
    let modern = [
        ACCEPT,
        JSON,
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
    ];
    for body in [
        BATCH.to_owned(),
        format!(
            "[{}]",
            hosted.client.modern("tools/list", json!({})).message()
        ),
    ] {
        let reply = hosted.client.post(&modern, body).await;
        assert_eq!(outcome(&reply), (400, -32600));
    }
    hosted.works("a batch").await;
}

fn check_batch(answers: &Value) {
    let answers = answers.as_array().expect("an array of answers");
    let of = |id: Value| answers.iter().find(|a| a["id"] == id).expect("an answer");
    assert_eq!(of(json!(1))["result"], json!({}));
    assert_eq!(of(json!(2))["result"]["content"][0]["text"], "a {}");
    assert_eq!(of(json!(3))["error"]["code"], -32601);
    let unreadable: Vec<_> = answers.iter().filter(|a| a.get("id").is_none()).collect();
    assert!(unreadable.iter().all(|a| a["error"]["code"] == -32600));
    assert!(!unreadable.is_empty());
}

/// A batch cannot ask for more than its size lets expect.
#[tokio::test]
async fn a_batch_is_bounded() {
    let hosted = host(server()).await;
    let session = hosted.client.legacy("2025-03-26").await;
    let list = |id: usize| json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"});
    let batch = |size: usize| Value::from((0..size).map(list).collect::<Vec<_>>()).to_string();
    let reply = post_in(&hosted, &session, batch(64)).await;
    assert_eq!(reply.json().as_array().map(Vec::len), Some(64));
    for size in [65, 40_000] {
        let reply = post_in(&hosted, &session, batch(size)).await;
        assert_eq!(outcome(&reply), (400, -32600), "{size}");
    }
    assert_eq!(session.request("ping", json!({})).await.result(), json!({}));
}

#[tokio::test]
async fn a_body_that_is_too_long_is_413() {
    let options = HttpOptions::default().body_limit(10_000);
    let hosted = host_with(server(), options).await;
    let session = hosted.client.legacy("2025-11-25").await;
    let arguments = json!({"name": "a", "arguments": {"x": "x".repeat(20_000)}});
    let reply = hosted
        .client
        .modern("tools/call", arguments.clone())
        .send()
        .await;
    assert_eq!(outcome(&reply), (413, -32600));
    hosted.works("a long body").await;
    let reply = session.request("tools/call", arguments).await;
    assert_eq!(outcome(&reply), (413, -32600));
    assert_eq!(session.request("ping", json!({})).await.result(), json!({}));
    // One that only says how long it will be is not waited for.
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
        Content-Type: application/json\r\nAccept: */*\r\nContent-Length: 99999999999\r\n\r\n{";
    let answer = hosted.client.send_raw(head).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    hosted.works("a promise").await;
}

#[tokio::test]
async fn what_is_not_http_hurts_nobody() {
    let hosted = host(server()).await;
    for bytes in [
        &b"\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n",
    ] {
        let sending = hosted.client.send_raw(bytes);
        // Some of it is the beginning of a request, which the server waits for.
        let _ = tokio::time::timeout(std::time::Duration::from_millis(50), sending).await;
        hosted.works("no HTTP").await;
    }
}

fn piped(server: &Server, options: StdioOptions) -> LineClient {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(theirs);
    let (output, input) = tokio::io::split(ours);
    let server = server.clone();
    tokio::spawn(async move { server.serve_stdio_with(reader, writer, options).await });
    LineClient::new(output, input)
}

async fn ping(client: &mut LineClient, after: &str) {
    client
        .send(json!({"jsonrpc": "2.0", "id": "ping", "method": "ping"}))
        .await;
    let expected = json!({"jsonrpc": "2.0", "id": "ping", "result": {}});
    assert_eq!(client.message().await, expected, "after {after}");
}

#[tokio::test]
async fn lines_that_cannot_be_read_are_answered_and_the_next_is_served() {
    let server = server();
    let mut client = piped(&server, StdioOptions::default());
    for (what, mut line, code) in unreadable() {
        line.push(b'\n');
        client.send_raw(&line).await;
        let answer = client.message().await;
        assert_eq!(answer["error"]["code"], code, "{what}");
        assert_eq!(answer.get("method"), None);
        ping(&mut client, what).await;
    }
    // Blank lines are nothing; carriage returns are blank.
    client.send_raw("\n\r\n   \n").await;
    ping(&mut client, "blank lines").await;
    client
        .send_raw("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r\n")
        .await;
    assert_eq!(client.message().await["id"], 1);
    for (method, params) in mistyped() {
        client.request(json!(1), method, params.clone()).await;
        assert_eq!(
            client.message().await["error"]["code"],
            -32602,
            "{method} {params}"
        );
    }
    client
        .request(
            json!(1),
            "subscriptions/listen",
            json!({"notifications": []}),
        )
        .await;
    assert_eq!(client.message().await["error"]["code"], -32602);
    client.request(json!(1), "unknown", json!({})).await;
    assert_eq!(client.message().await["error"]["code"], -32601);
    // Without `_meta`, and without a handshake.
    client
        .send(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))
        .await;
    assert_eq!(client.message().await["error"]["code"], -32602);
    ping(&mut client, "all that").await;
}

#[tokio::test]
async fn a_batch_of_lines_is_answered_in_the_one_version_that_has_it() {
    let server = server();
    for version in LEGACY {
        let mut client = piped(&server, StdioOptions::default());
        client
            .send(
                json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"}}}),
            )
            .await;
        assert_eq!(client.message().await["result"]["protocolVersion"], version);
        client
            .send_raw(format!("{}\n", BATCH.replace('\n', "")))
            .await;
        let answer = client.message().await;
        if version == "2025-03-26" {
            check_batch(&answer);
            let pings = (0..65).map(|id| json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
            client.send(Value::from(pings.collect::<Vec<_>>())).await;
            assert_eq!(client.message().await["error"]["code"], -32600);
        } else {
            assert_eq!(answer["error"]["code"], -32600, "{version}");
        }
        ping(&mut client, version).await;
    }
    let mut client = piped(&server, StdioOptions::default());
    client
        .send_raw(format!("{}\n", BATCH.replace('\n', "")))
        .await;
    assert_eq!(client.message().await["error"]["code"], -32600);
    ping(&mut client, "a batch").await;
}
