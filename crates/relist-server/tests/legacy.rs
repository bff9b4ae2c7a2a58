//! The era of sessions, over HTTP.

mod support;

use std::time::Duration;

use http::{StatusCode, header};
use relist_protocol::CatalogKind;
use relist_server::{Context, HttpOptions, ToolCall, ToolOutput};
use serde_json::{Value, json};
use support::*;

const V: &str = "2025-11-25";

fn call(id: i64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn with(headers: &[(String, String)], name: &str, value: &str) -> Vec<(String, String)> {
    let mut list: Vec<_> = headers.iter().filter(|(n, _)| n != name).cloned().collect();
    list.push((name.to_owned(), value.to_owned()));
    list
}

#[tokio::test]
async fn a_session_begins_is_checked_and_ends() {
    let router = server().router(HttpOptions::default());
    let session = session(&router, V, json!({})).await;
    let list = call(1, "tools/list", json!({})).to_string();
    let send_with = async |headers: &[(String, String)]| {
        json_of(send(&router, http("POST", headers, list.clone())).await).await
    };
    let (status, _, body) = send_with(&session).await;
    assert_eq!(status, StatusCode::OK);
    for modern in ["resultType", "ttlMs", "cacheScope", "_meta", "tag"] {
        assert_eq!(body["result"].get(modern), None, "{modern}");
    }
    assert_eq!(
        send_with(&with(&session, "mcp-protocol-version", "2025-06-18"))
            .await
            .0,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        send_with(&with(&session, "mcp-protocol-version", "1999-01-01"))
            .await
            .0,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        send_with(&with(&session, "mcp-session-id", "nobody"))
            .await
            .0,
        StatusCode::NOT_FOUND
    );
    let none: Vec<_> = session
        .iter()
        .filter(|(n, _)| n != "mcp-session-id")
        .cloned()
        .collect();
    assert_eq!(send_with(&none).await.0, StatusCode::BAD_REQUEST);
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    assert_eq!(
        send(&router, http("POST", &session, note)).await.status(),
        StatusCode::ACCEPTED
    );
    assert_eq!(
        send(&router, http("DELETE", &session, "")).await.status(),
        StatusCode::NO_CONTENT
    );
    assert_eq!(send_with(&session).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn legacy_errors_are_answers_and_have_their_own_codes() {
    let router = server().router(HttpOptions::default());
    let session = session(&router, V, json!({})).await;
    for (method, params, code) in [
        ("unknown", json!({}), -32601),
        ("server/discover", json!({}), -32601),
        ("resources/read", json!({"uri": "b://1"}), -32002),
        ("tools/call", json!({"name": "gone"}), -32602),
        ("logging/setLevel", json!({"level": "loud"}), -32602),
    ] {
        let body = call(1, method, params).to_string();
        let (status, _, answer) = json_of(send(&router, http("POST", &session, body)).await).await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (StatusCode::OK, &json!(code)),
            "{method}"
        );
    }
    for (method, params) in [
        ("ping", json!({})),
        ("logging/setLevel", json!({"level": "error"})),
        ("resources/subscribe", json!({"uri": "a://1"})),
        ("resources/unsubscribe", json!({"uri": "a://1"})),
    ] {
        let body = call(1, method, params).to_string();
        let (_, _, answer) = json_of(send(&router, http("POST", &session, body)).await).await;
        assert_eq!(answer["result"], json!({}), "{method}");
    }
}

#[tokio::test]
async fn a_version_that_is_unknown_is_answered_with_the_newest_of_the_era() {
    let router = server().router(HttpOptions::default());
    for asked in ["2999-01-01", "2026-07-28", "2024-11-05"] {
        let body = call(
            0,
            "initialize",
            json!({"protocolVersion": asked, "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"}}),
        );
        let (_, _, answer) = json_of(post(&router, &body).await).await;
        assert_eq!(answer["result"]["protocolVersion"], V);
        assert_eq!(answer["result"]["capabilities"].get("extensions"), None);
    }
}

#[tokio::test]
async fn batches_are_answered_in_2025_03_26_and_nowhere_else() {
    let router = server().router(HttpOptions::default());
    let batch = json!([call(1, "ping", json!({})), {"jsonrpc": "2.0", "method": "notifications/x"},
        call(2, "tools/call", json!({"name": "echo"})), 7])
    .to_string();
    let old = session(&router, "2025-03-26", json!({})).await;
    let (status, _, answers) =
        json_of(send(&router, http("POST", &old, batch.clone())).await).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answers.as_array().map(Vec::len), Some(3), "{answers}");
    let notes = json!([{"jsonrpc": "2.0", "method": "notifications/x"}]).to_string();
    assert_eq!(
        send(&router, http("POST", &old, notes)).await.status(),
        StatusCode::ACCEPTED
    );
    let new = session(&router, V, json!({})).await;
    let (status, _, answer) = json_of(send(&router, http("POST", &new, batch)).await).await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["code"]),
        (400, &json!(-32600))
    );
}

#[tokio::test(start_paused = true)]
async fn sessions_are_counted_and_silent_ones_end() {
    let options = HttpOptions::default()
        .max_sessions(1)
        .session_idle(Duration::from_secs(60));
    let router = server().router(options);
    let first = session(&router, V, json!({})).await;
    let body = call(
        0,
        "initialize",
        json!({"protocolVersion": V, "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"}}),
    );
    let refused = post(&router, &body).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key(header::RETRY_AFTER));
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(post(&router, &body).await.status(), StatusCode::OK);
    let ping = call(1, "ping", json!({})).to_string();
    assert_eq!(
        send(&router, http("POST", &first, ping)).await.status(),
        StatusCode::NOT_FOUND
    );
}

#[tokio::test(start_paused = true)]
async fn the_get_stream_carries_hints_and_a_new_one_replaces_the_old() {
    let server = server();
    let router = server.router(HttpOptions::default());
    let session = session(&router, V, json!({})).await;
    // Watched by a request, told on the stream.
    let watch = call(1, "resources/subscribe", json!({"uri": "a://1"})).to_string();
    send(&router, http("POST", &session, watch)).await;
    let mut old = send(&router, http("GET", &session, "")).await.into_body();
    assert!(
        chunk(&mut old)
            .await
            .is_some_and(|c| c.starts_with("id: 0-0\nretry: "))
    );
    let mut new = send(&router, http("GET", &session, "")).await.into_body();
    assert_eq!(chunk(&mut old).await, None);
    let _ = chunk(&mut new).await;
    server
        .commit(|c| c.upsert_tool(tool("x"), echo))
        .expect("a commit");
    server
        .commit(|c| c.upsert_tool(tool("y"), echo))
        .expect("a commit");
    let text = chunk(&mut new).await.expect("a hint");
    assert_eq!(
        text,
        "id: 0-1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n"
    );
    server.resource_updated("a://1");
    assert!(chunk(&mut new).await.expect("an update").contains("a://1"));
    drop(new);
    // Nobody reads: what changes is told once, to whoever comes.
    server
        .commit(|c| {
            c.remove(CatalogKind::Tools, "x");
        })
        .expect("a commit");
    server
        .commit(|c| {
            c.remove(CatalogKind::Tools, "y");
        })
        .expect("a commit");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let resumed = with(&session, "last-event-id", "0-1");
    let mut body = send(&router, http("GET", &resumed, "")).await.into_body();
    let mut seen = String::new();
    while !seen.contains("list_changed") {
        seen.push_str(&chunk(&mut body).await.expect("a chunk"));
    }
    assert!(
        seen.contains("a://1"),
        "what was missed is sent again: {seen}"
    );
    assert_eq!(seen.matches("list_changed").count(), 1);
}

#[tokio::test]
async fn questions_travel_on_the_stream_of_their_request() {
    let router = server().router(HttpOptions::default());
    let session = session(&router, V, json!({"elicitation": {}})).await;
    let body = call(5, "tools/call", json!({"name": "ask"})).to_string();
    let response = send(&router, http("POST", &session, body)).await;
    let mut stream = response.into_body();
    let mut text = String::new();
    while !text.contains("elicitation/create") {
        text.push_str(&chunk(&mut stream).await.expect("a chunk"));
    }
    let question = data(&text).pop().expect("a question");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"],
        "result": {"action": "accept", "content": {"name": "Ann"}}})
    .to_string();
    assert_eq!(
        send(&router, http("POST", &session, answer)).await.status(),
        StatusCode::ACCEPTED
    );
    let rest = messages(stream).await;
    assert_eq!(rest[0]["result"]["content"][0]["text"], r#""Ann""#);
    assert_eq!(rest[0]["id"], 5);
}

async fn drop_out(_: ToolCall, context: Context) -> Result<ToolOutput, relist_protocol::RpcError> {
    context.close_stream();
    tokio::time::sleep(Duration::from_millis(100)).await;
    Ok(ToolOutput::text("back"))
}

#[tokio::test(start_paused = true)]
async fn a_client_comes_back_for_the_rest_of_an_answer() {
    let server = builder()
        .tool(tool("drop"), drop_out)
        .build()
        .expect("a server");
    let router = server.router(HttpOptions::default());
    let session = session(&router, V, json!({})).await;
    let body = call(9, "tools/call", json!({"name": "drop"})).to_string();
    let mut stream = send(&router, http("POST", &session, body))
        .await
        .into_body();
    let priming = chunk(&mut stream).await.expect("a priming event");
    assert_eq!(priming, "id: 1-0\nretry: 1000\ndata: \n\n");
    assert_eq!(chunk(&mut stream).await, None);
    let back = with(&session, "last-event-id", "1-0");
    let rest = messages(send(&router, http("GET", &back, "")).await.into_body()).await;
    assert_eq!(rest[0]["result"]["content"][0]["text"], "back");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_is_not_answered() {
    let server = builder()
        .tool(tool("wait"), |_: ToolCall, context: Context| async move {
            context.cancelled().await;
            Ok(ToolOutput::text("too late"))
        })
        .build()
        .expect("a server");
    let router = server.router(HttpOptions::default());
    let session = session(&router, V, json!({})).await;
    let body = call(3, "tools/call", json!({"name": "wait"})).to_string();
    let stream = send(&router, http("POST", &session, body))
        .await
        .into_body();
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 3}})
    .to_string();
    assert_eq!(
        send(&router, http("POST", &session, cancel)).await.status(),
        StatusCode::ACCEPTED
    );
    assert_eq!(messages(stream).await, Vec::<Value>::new());
}

#[tokio::test]
async fn arguments_are_a_protocol_error_before_2025_11_25() {
    let router = server().router(HttpOptions::default());
    let bad = call(1, "tools/call", json!({"name": "count", "arguments": {}})).to_string();
    let old = session(&router, "2025-06-18", json!({})).await;
    let (_, _, answer) = json_of(send(&router, http("POST", &old, bad.clone())).await).await;
    assert_eq!(answer["error"]["code"], -32602);
    let new = session(&router, V, json!({})).await;
    let (_, _, answer) = json_of(send(&router, http("POST", &new, bad)).await).await;
    assert_eq!(answer["result"]["isError"], true);
}
