//! What a request's answer may be, and what becomes of a wrong one.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod raw;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use raw::*;
use relist_client::config::ClientHandler;
use relist_client::connection::{Answer as Answered, HintEvent, RequestOptions};
use relist_client::error::RequestError;
use relist_protocol::{CatalogKind, RequestId, RpcError};
use serde_json::{Map, Value, json};

async fn ask(server: &RawServer) -> Result<Answered, RequestError> {
    let connection = server.open(config().body_limit(64 << 10)).await;
    let first = connection
        .request("tools/list", Map::new(), RequestOptions::default())
        .await;
    // Whatever came, the next request works.
    connection
        .request("ping", Map::new(), RequestOptions::default())
        .await
        .expect("the connection lives on");
    first
}

/// A modern server that answers `tools/list` so, and everything else well.
async fn answering(answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> RawServer {
    modern(move |seen, _| match seen.method() {
        "tools/list" => answer(seen),
        _ => result(seen, json!({})),
    })
    .await
}

#[tokio::test]
async fn html_is_named_with_status_type_and_first_bytes() {
    for status in [200, 502] {
        let server = answering(move |_| {
            http(
                status,
                &[("content-type", "text/html; charset=utf-8")],
                b"<!doctype html>\n<title>Welcome</title>",
            )
        })
        .await;
        let error = ask(&server).await.expect_err("no answer");
        let text = error.to_string();
        for part in [
            &status.to_string(),
            "text/html",
            "<!doctype html>\\n<title>",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[tokio::test]
async fn html_that_calls_itself_json_is_not_json() {
    let server = answering(|_| {
        http(
            200,
            &[("content-type", "application/json")],
            b"<!doctype html>",
        )
    })
    .await;
    assert!(matches!(
        ask(&server).await,
        Err(RequestError::NotJson { status: 200, .. })
    ));
}

#[tokio::test]
async fn bytes_that_are_not_utf8_are_refused() {
    let server = answering(|_| {
        http(
            200,
            &[("content-type", "application/json")],
            b"{\"a\":\"\xff\"}",
        )
    })
    .await;
    let error = ask(&server).await.expect_err("no answer");
    assert!(error.to_string().contains("\\xff"), "{error}");
}

#[tokio::test]
async fn an_id_echoed_as_a_double_is_matched() {
    let server = answering(|seen| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{}.0,"result":{{"tools":[]}}}}"#,
            seen.id()
        );
        http(
            200,
            &[("content-type", "application/json")],
            body.as_bytes(),
        )
    })
    .await;
    assert!(ask(&server).await.is_ok());
}

#[tokio::test]
async fn an_answer_with_a_foreign_id_is_refused() {
    type Make = fn(&Seen) -> Answer;
    let cases: [(&str, Make); 3] = [
        ("a string", |seen| {
            json_body(
                200,
                &json!({"jsonrpc": "2.0", "id": seen.id().to_string(), "result": {}}),
            )
        }),
        ("another number", |_| {
            json_body(200, &json!({"jsonrpc": "2.0", "id": 999, "result": {}}))
        }),
        ("on a stream", |_| {
            events("data: {\"jsonrpc\":\"2.0\",\"id\":999,\"result\":{}}\n\n")
        }),
    ];
    for (what, answer) in cases {
        let server = answering(answer).await;
        let error = ask(&server).await.expect_err(what);
        assert!(
            matches!(
                &error,
                RequestError::ForeignId {
                    expected: RequestId::Number(_),
                    ..
                }
            ),
            "{what}: {error}"
        );
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_is_no_answer() {
    type Make = fn(&Seen) -> Answer;
    let cases: [(&str, Make, &str); 5] = [
        (
            "a body shorter than announced",
            |_| {
                vec![Part::Bytes(
                    b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{\"jsonrpc\"".to_vec(),
                )]
            },
            "cut short",
        ),
        (
            "a stream without the answer",
            |_| events(": hello\n\n"),
            "before the answer",
        ),
        (
            "a stream cut inside an event",
            |seen| {
                events(&format!(
                    "data: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{}}}}\n",
                    seen.id()
                ))
            },
            "inside an event",
        ),
        (
            "a stream cut inside a character",
            |_| {
                let mut parts = events("data: {\"text\":\"");
                parts.push(Part::Bytes(b"\xe4\xb8".to_vec()));
                parts
            },
            "inside an event",
        ),
        (
            "a chunked stream cut inside a chunk",
            |_| {
                vec![Part::Bytes(
                    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/event-stream\r\n\r\n50\r\ndata: {".to_vec(),
                )]
            },
            "cut short",
        ),
    ];
    for (what, answer, says) in cases {
        let server = answering(answer).await;
        let error = ask(&server).await.expect_err(what);
        assert!(matches!(error, RequestError::Cut { .. }), "{what}: {error}");
        assert!(error.to_string().contains(says), "{what}: {error}");
    }
}

#[tokio::test]
async fn odd_event_streams_are_read_correctly() {
    for end in ["\n", "\r\n", "\r"] {
        let server = answering(move |seen| {
            let text = format!(
                "\u{feff}: hello{end}{end}event: message{end}id: 1{end}\
                 data: {{\"jsonrpc\":\"2.0\",{end}data: \"id\":{},{end}\
                 : between{end}data:\"result\":{{\"tools\":[],\"x\":\"é世😀\"}}}}{end}{end}",
                seen.id()
            );
            // Byte by byte: every character is split.
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\nContent-Type: Text/Event-Stream;Charset=UTF-8\r\n\r\n";
            let mut parts = vec![Part::Bytes(head.as_bytes().to_vec())];
            for byte in text.bytes() {
                parts.push(Part::Bytes(vec![byte]));
            }
            parts
        })
        .await;
        let answer = ask(&server).await.expect("read");
        let value: Value = answer.read().expect("an object");
        assert_eq!(value["x"], "é世😀", "{end:?}");
    }
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_refused() {
    type Make = fn(&Seen) -> Answer;
    let cases: [(&str, Make); 3] = [
        ("a document", |seen| {
            result(seen, json!({"x": "y".repeat(100_000)}))
        }),
        ("an event", |_| {
            events(&format!("data: {}", "y".repeat(100_000)))
        }),
        ("a bomb", |seen| {
            let body =
                json!({"jsonrpc": "2.0", "id": seen.id(), "result": {"x": "y".repeat(10_000_000)}});
            gzip(&body.to_string())
        }),
    ];
    for (what, answer) in cases {
        let server = answering(answer).await;
        let error = ask(&server).await.expect_err(what);
        assert_eq!(error, RequestError::TooLarge { limit: 64 << 10 }, "{what}");
    }
}

fn gzip(text: &str) -> Answer {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    http(
        200,
        &[
            ("content-type", "application/json"),
            ("content-encoding", "gzip"),
        ],
        &encoder.finish().unwrap(),
    )
}

#[tokio::test]
async fn compressed_answers_are_counted_as_they_came() {
    let server = answering(|seen| {
        assert_eq!(seen.header("accept-encoding"), Some("zstd, br, gzip"));
        let body = json!({"jsonrpc": "2.0", "id": seen.id(), "result": {"x": "y".repeat(10_000)}});
        gzip(&body.to_string())
    })
    .await;
    let connection = server.open(config()).await;
    let before = connection.traffic();
    let answer = connection
        .request("tools/list", Map::new(), RequestOptions::default())
        .await
        .expect("answered");
    assert!(answer.bytes_received > 10_000, "{}", answer.bytes_received);
    assert!(answer.bytes_on_wire < 200, "{}", answer.bytes_on_wire);
    let after = connection.traffic();
    assert_eq!(after.received - before.received, answer.bytes_on_wire);
    assert_eq!(after.sent - before.sent, answer.bytes_sent);
    let sent = server.saw("tools/list").await;
    assert_eq!(
        sent.header("content-length"),
        Some(answer.bytes_sent.to_string().as_str())
    );
}

#[tokio::test]
async fn compression_can_be_declined() {
    let server = answering(|seen| {
        assert_eq!(seen.header("accept-encoding"), Some("identity"));
        result(seen, json!({}))
    })
    .await;
    let connection = server.open(config().accept_compression(false)).await;
    let answer = connection
        .request("tools/list", Map::new(), RequestOptions::default())
        .await
        .expect("answered");
    assert_eq!(answer.bytes_on_wire, answer.bytes_received);
}

#[tokio::test]
async fn a_server_may_ask_to_wait() {
    let server = answering(|_| http(429, &[("retry-after", "3")], b"slow down")).await;
    assert_eq!(
        ask(&server).await.expect_err("busy"),
        RequestError::RetryAfter {
            status: 429,
            after: Duration::from_secs(3)
        }
    );
    let server = answering(|_| http(429, &[], b"slow down")).await;
    assert!(matches!(
        ask(&server).await,
        Err(RequestError::Http { status: 429, .. })
    ));
}

#[tokio::test]
async fn errors_of_the_server_keep_their_code_whatever_the_status() {
    for (status, code) in [(400, -32020), (404, -32601), (200, -32602), (500, -32603)] {
        let server = answering(move |seen| error(seen, status, code, "no", Value::Null)).await;
        let refused = ask(&server).await.expect_err("refused");
        assert_eq!(
            refused,
            RequestError::Rpc(RpcError::new(code, "no")),
            "{status}"
        );
    }
}

#[tokio::test]
async fn a_session_that_is_gone_is_told_apart() {
    type Make = fn(&Seen) -> Answer;
    let gone: [(&str, Make); 4] = [
        ("404", |_| http(404, &[], b"")),
        ("404 with -32001", |_| {
            json_body(
                404,
                &json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "Session not found"}}),
            )
        }),
        ("400 of the example servers", |seen| {
            error(
                seen,
                400,
                -32000,
                "Bad Request: No valid session ID provided",
                Value::Null,
            )
        }),
        ("404 with HTML", |_| {
            http(404, &[("content-type", "text/html")], b"<html>")
        }),
    ];
    for (what, answer) in gone {
        let server = legacy(move |seen, _| answer(seen)).await;
        let connection = server.open(config()).await;
        let error = connection
            .request("tools/list", Map::new(), RequestOptions::default())
            .await
            .expect_err(what);
        assert!(error.ends_connection(), "{what}: {error}");
    }
    let server = legacy(|seen, _| error(seen, 404, -32601, "Method not found", Value::Null)).await;
    let connection = server.open(config()).await;
    let refused = connection
        .request("x/y", Map::new(), RequestOptions::default())
        .await
        .expect_err("unknown");
    assert!(matches!(refused, RequestError::Rpc(_)), "{refused}");
}

#[tokio::test]
async fn running_out_of_time_closes_the_stream() {
    let server = modern(|_, _| {
        let mut parts = events(": working\n\n");
        parts.push(Part::Hold);
        parts
    })
    .await;
    let connection = server.open(config()).await;
    let options = RequestOptions::default().timeout(Duration::from_millis(100));
    let error = connection
        .request("tools/call", params(json!({"name": "slow"})), options)
        .await
        .expect_err("too slow");
    assert!(matches!(error, RequestError::Timeout { .. }), "{error}");
    server.client_gone().await;
    assert_eq!(server.count("notifications/cancelled"), 0);
}

#[tokio::test]
async fn a_legacy_server_is_told_of_a_cancellation() {
    let server = legacy(|seen, _| match seen.method() {
        "tools/call" => vec![Part::Hold],
        _ => http(202, &[], b""),
    })
    .await;
    let connection = server.open(config()).await;
    let options = RequestOptions::default();
    let cancel = options.cancel.clone();
    let (outcome, ()) = tokio::join!(
        connection.request("tools/call", params(json!({"name": "slow"})), options),
        async {
            server.saw("tools/call").await;
            cancel.cancel();
        }
    );
    assert_eq!(outcome.expect_err("cancelled"), RequestError::Cancelled);
    let told = server.saw("notifications/cancelled").await;
    let call = server.saw("tools/call").await;
    assert_eq!(told.body["params"]["requestId"], call.id());
    assert_eq!(told.header("mcp-session-id"), Some("session-1"));
}

#[tokio::test]
async fn progress_keeps_a_request_alive_and_is_passed_on() {
    let server = modern(|seen, _| {
        let token = seen.body["params"]["_meta"]["progressToken"].clone();
        let mut parts = events("");
        for step in 0..6 {
            let report = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": token, "progress": step, "total": 6}});
            parts.push(Part::Bytes(format!("data: {report}\n\n").into_bytes()));
            parts.push(Part::Pause(Duration::from_millis(200)));
        }
        let answer = json!({"jsonrpc": "2.0", "id": seen.id(), "result": {}});
        parts.push(Part::Bytes(format!("data: {answer}\n\n").into_bytes()));
        parts
    })
    .await;
    let connection = server.open(config()).await;
    let (sender, mut reports) = tokio::sync::mpsc::channel(16);
    let options = RequestOptions::default()
        .timeout(Duration::from_millis(900))
        .limit(Duration::from_secs(20))
        .progress(sender);
    connection
        .request("tools/call", params(json!({"name": "slow"})), options)
        .await
        .expect("slow, but alive");
    let mut seen = 0;
    while let Ok(report) = reports.try_recv() {
        assert_eq!(report.total, Some(6.0));
        seen += 1;
    }
    assert_eq!(seen, 6);
}

#[tokio::test]
async fn a_legacy_answer_is_resumed_after_the_delay_that_the_server_gave() {
    let call = Arc::new(std::sync::Mutex::new(Value::Null));
    let pending = Arc::clone(&call);
    let server = legacy(move |seen, _| match seen.method() {
        "tools/call" => {
            *pending.lock().unwrap() = seen.id();
            events("id: event-1\nretry: 300\ndata: \n\n")
        }
        "GET" => {
            let id = pending.lock().unwrap().clone();
            let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}});
            let mut parts = events(&format!(
                "id: event-2\ndata: \n\nevent: message\nid: event-3\ndata: {answer}\n\n"
            ));
            parts.push(Part::Hold);
            parts
        }
        _ => http(202, &[], b""),
    })
    .await;
    let connection = server.open(config()).await;
    connection
        .request(
            "tools/call",
            params(json!({"name": "x"})),
            RequestOptions::default(),
        )
        .await
        .expect("resumed");
    let (called, resumed) = (server.saw("tools/call").await, server.saw("GET").await);
    assert_eq!(resumed.header("last-event-id"), Some("event-1"));
    assert_eq!(resumed.header("mcp-session-id"), Some("session-1"));
    assert!(resumed.at - called.at >= Duration::from_millis(300));
}

#[tokio::test]
async fn an_answer_that_cannot_be_resumed_is_cut() {
    let server = legacy(|seen, _| match seen.method() {
        "tools/call" => events("id: 1\nretry: 1\ndata: \n\n"),
        _ => http(405, &[], b""),
    })
    .await;
    let connection = server.open(config()).await;
    let error = connection
        .request(
            "tools/call",
            params(json!({"name": "x"})),
            RequestOptions::default(),
        )
        .await
        .expect_err("cut");
    assert!(error.to_string().contains("HTTP 405"), "{error}");
}

#[tokio::test]
async fn a_hint_on_another_answers_stream_is_not_lost() {
    let server = legacy(|seen, _| {
        let hint = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        let answer = json!({"jsonrpc": "2.0", "id": seen.id(), "result": {"content": []}});
        events(&format!("data: {hint}\n\ndata: {answer}\n\n"))
    })
    .await;
    let connection = server.open(config()).await;
    let mut stray = connection.stray_hints();
    connection
        .request(
            "tools/call",
            params(json!({"name": "grow"})),
            RequestOptions::default(),
        )
        .await
        .expect("answered");
    assert_eq!(
        stray.next().await,
        Some(HintEvent::Changed {
            kind: CatalogKind::Tools,
            tag: None
        })
    );
    drop(connection);
    assert!(matches!(stray.next().await, Some(HintEvent::Ended(_))));
}

/// Accepts everything, and counts.
#[derive(Default)]
struct Willing(AtomicUsize);

impl ClientHandler for Willing {
    fn capabilities(&self) -> Map<String, Value> {
        params(json!({"elicitation": {"form": {}}}))
    }

    fn elicit(&self, _: Map<String, Value>) -> BoxFuture<'_, Result<Value, RpcError>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(json!({"action": "accept", "content": {"age": 7}})) })
    }
}

fn question() -> Value {
    json!({"message": "?", "requestedSchema": {"type": "object", "properties": {
        "age": {"type": "integer", "default": 30},
        "name": {"type": "string", "default": "John"}}}})
}

#[tokio::test]
async fn a_question_on_a_legacy_stream_is_answered_by_post() {
    let server = legacy(|seen, _| match seen.method() {
        "tools/call" => {
            let ask = json!({"jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": question()});
            let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
            let roots = json!({"jsonrpc": "2.0", "id": "q2", "method": "roots/list"});
            let answer = json!({"jsonrpc": "2.0", "id": seen.id(), "result": {"content": []}});
            let mut parts = events(&format!("data: {ask}\n\ndata: {ping}\n\ndata: {roots}\n\n"));
            parts.push(Part::Pause(Duration::from_millis(300)));
            parts.push(Part::Bytes(format!("data: {answer}\n\n").into_bytes()));
            parts
        }
        _ => http(202, &[], b""),
    })
    .await;
    let connection = server
        .open(config().user_input(Arc::new(Willing::default())))
        .await;
    let opening = server.saw("initialize").await;
    assert_eq!(
        opening.body["params"]["capabilities"],
        json!({"elicitation": {"form": {}}})
    );
    connection
        .request(
            "tools/call",
            params(json!({"name": "ask"})),
            RequestOptions::default(),
        )
        .await
        .expect("answered");
    let response = |id: Value| eventually_response(&server, id);
    assert_eq!(
        response(json!("q1")).await["result"],
        json!({"action": "accept", "content": {"age": 7, "name": "John"}})
    );
    assert_eq!(response(json!(1)).await["result"], json!({}));
    assert_eq!(response(json!("q2")).await["error"]["code"], -32601);
}

async fn eventually_response(server: &RawServer, id: Value) -> Value {
    eventually(|| {
        server
            .seen()
            .into_iter()
            .map(|s| s.body)
            .find(|b| b["method"].is_null() && b["id"] == id && !id.is_null())
    })
    .await
}

fn input_required(seen: &Seen, state: Option<&str>) -> Answer {
    let mut wanted = json!({"resultType": "input_required", "inputRequests": {
        "confirm": {"method": "elicitation/create", "params": question()}}});
    if let Some(state) = state {
        wanted["requestState"] = state.into();
    }
    result(seen, wanted)
}

#[tokio::test]
async fn more_input_is_given_and_the_state_echoed_exactly() {
    const STATE: &str = "{ \"nonce\":1.0, \"ü\": \"\\u00e9\" }";
    let server = modern(|seen, _| {
        let call = &seen.body["params"];
        match (call["name"].as_str(), call["inputResponses"].is_null()) {
            (Some("with"), true) => input_required(seen, Some(STATE)),
            (Some("without"), true) => input_required(seen, None),
            _ => result(seen, json!({"content": []})),
        }
    })
    .await;
    let connection = server
        .open(config().user_input(Arc::new(Willing::default())))
        .await;
    for (name, state) in [("with", json!(STATE)), ("without", Value::Null)] {
        let from = server.seen().len();
        let call = params(json!({"name": name, "arguments": {"a": 1}}));
        connection
            .call_with_input("tools/call", call, RequestOptions::default())
            .await
            .expect("answered");
        let seen = server.seen().split_off(from);
        assert_eq!(seen.len(), 2);
        assert_ne!(seen[0].id(), seen[1].id());
        let (first, second) = (&seen[0].body["params"], &seen[1].body["params"]);
        assert_eq!(first["requestState"], Value::Null);
        assert_eq!(second["requestState"], state);
        assert_eq!(second["arguments"], json!({"a": 1}));
        assert_eq!(
            second["inputResponses"]["confirm"],
            json!({"action": "accept", "content": {"age": 7, "name": "John"}})
        );
        assert_eq!(seen[1].header("mcp-name"), Some(name));
    }
}

#[tokio::test]
async fn a_server_that_keeps_asking_is_stopped() {
    let server = modern(|seen, _| input_required(seen, None)).await;
    let handler = Arc::new(Willing::default());
    let connection = server
        .open(config().user_input(handler.clone()).input_rounds(3))
        .await;
    let error = connection
        .call_with_input(
            "tools/call",
            params(json!({"name": "x"})),
            RequestOptions::default(),
        )
        .await
        .expect_err("stopped");
    assert_eq!(error, RequestError::TooManyRounds { rounds: 3 });
    assert_eq!(server.count("tools/call"), 4);
}

#[tokio::test]
async fn input_that_nobody_gives_is_an_error_of_ours() {
    let server = modern(|seen, _| input_required(seen, None)).await;
    let connection = server.open(config()).await;
    let error = connection
        .call_with_input(
            "tools/call",
            params(json!({"name": "x"})),
            RequestOptions::default(),
        )
        .await
        .expect_err("nobody");
    assert!(
        matches!(&error, RequestError::InputUnavailable { method, .. } if method == "elicitation/create"),
        "{error}"
    );
    assert_eq!(server.count("tools/call"), 1);
}

#[tokio::test]
async fn parameters_are_mirrored_into_headers() {
    let server = modern(|seen, _| result(seen, json!({"content": []}))).await;
    let connection = server.open(config()).await;
    let options = RequestOptions::default()
        .param_header("Region", "us-west1")
        .param_header("CrLf", "line1\r\nX-Evil: 1");
    connection
        .request("tools/call", params(json!({"name": "x"})), options)
        .await
        .expect("answered");
    let call = server.saw("tools/call").await;
    assert_eq!(call.header("mcp-param-region"), Some("us-west1"));
    assert_eq!(
        call.header("mcp-param-crlf"),
        Some("=?base64?bGluZTENClgtRXZpbDogMQ==?=")
    );
    assert_eq!(call.header("x-evil"), None);
}

#[tokio::test]
async fn a_batch_answer_is_read() {
    let server = legacy(|seen, _| {
        json_body(
            200,
            &json!([
                {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
                {"jsonrpc": "2.0", "id": seen.id(), "result": {"tools": []}}
            ]),
        )
    })
    .await;
    let connection = server.open(config()).await;
    connection
        .request("tools/list", Map::new(), RequestOptions::default())
        .await
        .expect("answered");
}
