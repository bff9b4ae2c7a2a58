//! The era without a handshake, over HTTP.

mod support;

use std::time::Duration;

use http::{StatusCode, header};
use relist_protocol::{CatalogKind, Switches};
use relist_server::{Allowed, CatalogOptions, HttpOptions, Server};
use serde_json::{Value, json};
use support::*;

fn router() -> axum::Router {
    server().router(HttpOptions::default())
}

async fn code(router: &axum::Router, request: http::Request<axum::body::Body>) -> (u16, Value) {
    let (status, _, body) = json_of(send(router, request).await).await;
    (status.as_u16(), body["error"]["code"].clone())
}

#[tokio::test]
async fn what_is_wrong_with_a_request_decides_status_and_code() {
    let router = router();
    let list = request(json!(1), "tools/list", json!({}), json!({}));
    let good = headers(&list);
    let without =
        |name: &str| -> Vec<_> { good.iter().filter(|(n, _)| n != name).cloned().collect() };
    let with = |name: &str, value: &str| {
        let mut list = without(name);
        list.push((name.to_owned(), value.to_owned()));
        list
    };
    let text = list.to_string();
    let cases = [
        (without("content-type"), 415, -32600),
        (with("content-type", "text/plain"), 415, -32600),
        (with("accept", "application/json"), 406, -32600),
        (with("origin", "http://evil.example"), 403, -32600),
        (with("host", "evil.example"), 403, -32600),
        (without("mcp-method"), 400, -32020),
        (with("mcp-method", "TOOLS/LIST"), 400, -32020),
        (without("mcp-protocol-version"), 400, -32020),
        (with("mcp-protocol-version", "2025-11-25"), 400, -32020),
    ];
    for (headers, status, error) in cases {
        let answer = code(&router, http("POST", &headers, text.clone())).await;
        assert_eq!(answer, (status, json!(error)), "{headers:?}");
    }
    let bodies: &[(&[u8], u16, i64)] = &[
        (b"{", 400, -32700),
        (b"\xff", 400, -32700),
        (b"[]", 400, -32600),
        (
            br#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#,
            400,
            -32600,
        ),
        (
            br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
            400,
            -32602,
        ),
        (
            br#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":7}}"#,
            400,
            -32602,
        ),
    ];
    for (body, status, error) in bodies {
        let answer = code(&router, http("POST", &good, body.to_vec())).await;
        assert_eq!(
            answer,
            (*status, json!(error)),
            "{:?}",
            String::from_utf8_lossy(body)
        );
    }
    for (method, params, status, error) in [
        ("unknown/method", json!({}), 404, -32601),
        ("ping", json!({}), 404, -32601),
        ("prompts/list", json!({}), 404, -32601),
        ("prompts/get", json!({"name": "x"}), 404, -32601),
        ("tools/list", json!({"cursor": "bogus"}), 200, -32602),
        ("tools/list", json!({"cursor": 7}), 200, -32602),
        ("tools/call", json!({"name": "gone"}), 200, -32602),
        ("tools/call", json!({"name": "fail"}), 200, -32603),
        ("resources/read", json!({"uri": "b://1"}), 200, -32602),
    ] {
        let body = request(json!(1), method, params, json!({}));
        let answer = code(&router, http("POST", &headers(&body), body.to_string())).await;
        assert_eq!(answer, (status, json!(error)), "{body}");
    }
    let future = request(
        json!(1),
        "tools/list",
        json!({}),
        json!({"io.modelcontextprotocol/protocolVersion": "2999-01-01"}),
    );
    let (status, _, body) = json_of(post(&router, &future).await).await;
    assert_eq!(
        (status.as_u16(), &body["error"]["code"]),
        (400, &json!(-32022))
    );
    assert_eq!(body["error"]["data"]["requested"], "2999-01-01");
    assert_eq!(body["id"], 1);
}

#[tokio::test]
async fn a_long_body_is_refused_and_the_next_request_is_served() {
    let router = server().router(HttpOptions::default().body_limit(4096));
    let body = request(
        json!(1),
        "tools/call",
        json!({"name": "echo", "arguments": {"x": "x".repeat(5000)}}),
        json!({}),
    );
    let (status, _, answer) = json_of(post(&router, &body).await).await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["code"]),
        (413, &json!(-32600))
    );
    let body = request(json!(2), "tools/list", json!({}), json!({}));
    assert_eq!(json_of(post(&router, &body).await).await.0, StatusCode::OK);
}

#[tokio::test]
async fn there_is_no_stream_to_get() {
    let router = router();
    for (method, allow) in [
        ("GET", "POST"),
        ("DELETE", "POST"),
        ("PUT", "GET, POST, DELETE"),
    ] {
        let response = send(&router, http(method, &[], "")).await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(response.headers()[header::ALLOW], allow);
    }
}

#[tokio::test]
async fn mirrored_parameters_have_to_match() {
    let router = router();
    let body = request(
        json!(1),
        "tools/call",
        json!({"name": "region", "arguments": {"region": "eu"}}),
        json!({}),
    );
    let call = |value: Option<&str>| {
        let mut headers = headers(&body);
        headers.extend(value.map(|v| ("Mcp-Param-Region".to_owned(), v.to_owned())));
        http("POST", &headers, body.to_string())
    };
    assert_eq!(
        send(&router, call(Some("=?base64?ZXU=?="))).await.status(),
        StatusCode::OK
    );
    for wrong in [None, Some("us"), Some("=?base64?ZXU?=")] {
        assert_eq!(
            code(&router, call(wrong)).await,
            (400, json!(-32020)),
            "{wrong:?}"
        );
    }
}

#[tokio::test]
async fn arguments_and_results_are_checked() {
    let router = router();
    let call = async |name: &str, arguments: Value| {
        let body = request(
            json!(1),
            "tools/call",
            json!({"name": name, "arguments": arguments}),
            json!({}),
        );
        json_of(post(&router, &body).await).await.2
    };
    assert_eq!(
        call("count", json!({"n": 1})).await["result"]["content"][0]["text"],
        r#"{"n":1}"#
    );
    let refused = call("count", json!({"n": "x"})).await;
    assert_eq!(refused["result"]["isError"], true);
    let lie = call("lie", json!({})).await;
    assert_eq!(lie["error"]["code"], -32603);
    assert!(
        lie["error"]["message"]
            .as_str()
            .is_some_and(|m| m.contains("outputSchema"))
    );
    // The server survives a handler that panics.
    assert_eq!(call("fail", json!({})).await["error"]["code"], -32603);
    assert!(call("echo", json!({})).await["result"].is_object());
}

async fn walk(router: &axum::Router, between: impl Fn()) -> Vec<String> {
    let mut names = Vec::new();
    let mut params = json!({});
    loop {
        let body = request(json!(1), "tools/list", params, json!({}));
        let (_, _, answer) = json_of(post(router, &body).await).await;
        let tools = answer["result"]["tools"]
            .as_array()
            .cloned()
            .expect("a page");
        names.extend(
            tools
                .iter()
                .filter_map(|t| t["name"].as_str().map(str::to_owned)),
        );
        match answer["result"].get("nextCursor") {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => return names,
        }
        between();
    }
}

#[tokio::test]
async fn a_walk_stays_inside_the_version_that_it_began_with() {
    let server = server();
    let router = server.router(HttpOptions::default());
    let before = walk(&router, || {}).await;
    assert_eq!(before.len(), 7);
    let during = walk(&router, || {
        server
            .commit(|c| {
                c.remove(CatalogKind::Tools, "lie");
            })
            .expect("a commit");
        server
            .commit(|c| c.upsert_tool(tool("new"), echo))
            .expect("a commit");
    })
    .await;
    assert_eq!(during, before);
    let after = walk(&router, || {}).await;
    assert!(after.contains(&"new".to_owned()) && !after.contains(&"lie".to_owned()));
    // What has left the catalog is refused at call time.
    let body = request(json!(1), "tools/call", json!({"name": "lie"}), json!({}));
    assert_eq!(
        json_of(post(&router, &body).await).await.2["error"]["code"],
        -32602
    );
}

#[tokio::test]
async fn nothing_of_the_layer_shows_unless_it_is_switched_on() {
    let known = |tag: &Value| {
        json!({
            "io.modelcontextprotocol/knownTags": {"tools/list": tag},
            "io.modelcontextprotocol/clientCapabilities":
                {"extensions": {"experimental.relist/lists": {"conditional": true}}},
        })
    };
    let list = async |server: &Server, extra: Value| {
        let router = server.router(HttpOptions::default());
        let body = request(json!(1), "tools/list", json!({}), extra);
        json_of(post(&router, &body).await).await.2["result"].clone()
    };
    let off = server();
    let tag = json!(off.snapshot(CatalogKind::Tools).tag().as_str());
    assert_eq!(list(&off, json!({})).await, list(&off, known(&tag)).await);
    assert_eq!(list(&off, json!({})).await.get("tag"), None);

    let on = server_with(Switches::all());
    let first = list(&on, json!({})).await;
    assert_eq!(first["tag"], tag);
    // Who does not declare the extension gets the list.
    let undeclared = json!({"io.modelcontextprotocol/knownTags": {"tools/list": tag}});
    assert_eq!(list(&on, undeclared).await, first);
    let unmodified = list(&on, known(&tag)).await;
    assert_eq!(unmodified["resultType"], "not_modified");
    assert_eq!(unmodified["tag"], tag);
    assert!(unmodified["ttlMs"].is_u64() && unmodified["cacheScope"].is_string());
    let several = json!({
        "experimental.relist/lists": {"known": ["sha256:other", tag]},
        "io.modelcontextprotocol/clientCapabilities":
            {"extensions": {"experimental.relist/lists": {"conditional": true}}},
    });
    assert_eq!(list(&on, several).await["resultType"], "not_modified");
    on.commit(|c| c.upsert_tool(tool("new"), echo))
        .expect("a commit");
    assert_eq!(list(&on, known(&tag)).await["resultType"], "complete");
}

#[tokio::test]
async fn progress_and_log_messages_turn_the_answer_into_a_stream() {
    let router = router();
    let quiet = request(json!(1), "tools/call", json!({"name": "talk"}), json!({}));
    let (_, headers, _) = json_of(post(&router, &quiet).await).await;
    assert_eq!(headers[header::CONTENT_TYPE], "application/json");
    let wanted = json!({"progressToken": "p", "io.modelcontextprotocol/logLevel": "warning"});
    let body = request(json!(1), "tools/call", json!({"name": "talk"}), wanted);
    let response = post(&router, &body).await;
    assert_eq!(
        response.headers()[header::CONTENT_TYPE],
        "text/event-stream"
    );
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    let messages = messages(response.into_body()).await;
    // Progress that does not grow is not sent, nor a message below the level.
    let progress: Vec<&Value> = messages
        .iter()
        .filter_map(|m| m["params"].get("progress"))
        .collect();
    assert_eq!(progress, [&json!(1), &json!(2)]);
    assert_eq!(messages[2]["params"]["data"], "large");
    assert_eq!(messages.len(), 4);
    assert_eq!(messages[3]["id"], 1);
}

#[tokio::test]
async fn a_question_is_an_answer_and_its_answer_comes_with_a_retry() {
    let router = router();
    let call = async |declared: Value, extra: Value| {
        let mut params = json!({"name": "ask"});
        if let (Some(params), Value::Object(mut extra)) = (params.as_object_mut(), extra) {
            params.append(&mut extra);
        }
        let body = request(
            json!(1),
            "tools/call",
            params,
            json!({"io.modelcontextprotocol/clientCapabilities": declared}),
        );
        json_of(post(&router, &body).await).await
    };
    let (status, _, refused) = call(json!({}), json!({})).await;
    assert_eq!(
        (status.as_u16(), &refused["error"]["code"]),
        (400, &json!(-32021))
    );
    assert_eq!(
        refused["error"]["data"]["requiredCapabilities"],
        json!({"elicitation": {}})
    );
    let (_, _, asked) = call(json!({"elicitation": {}}), json!({})).await;
    assert_eq!(asked["result"]["resultType"], "input_required");
    assert_eq!(
        asked["result"]["inputRequests"]["who"]["method"],
        "elicitation/create"
    );
    let answers =
        json!({"inputResponses": {"who": {"action": "accept", "content": {"name": "Ann"}}}});
    let (_, _, done) = call(json!({"elicitation": {}}), answers).await;
    assert_eq!(done["result"]["content"][0]["text"], r#""Ann""#);
}

fn listen(filter: Value) -> Value {
    request(
        json!("L"),
        "subscriptions/listen",
        json!({"notifications": filter}),
        json!({}),
    )
}

#[tokio::test(start_paused = true)]
async fn a_listener_is_told_what_it_asked_for_and_the_end() {
    let server = server();
    let router = server.router(HttpOptions::default());
    let filter = json!({"toolsListChanged": true, "promptsListChanged": true,
        "resourceSubscriptions": ["a://1"]});
    let response = post(&router, &listen(filter)).await;
    // Between the subscription and its acknowledgment: not lost, and not before it.
    server
        .commit(|c| c.upsert_tool(tool("new"), echo))
        .expect("a commit");
    let mut body = response.into_body();
    let acknowledged = &data(&chunk(&mut body).await.expect("a chunk"))[0];
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(
        acknowledged["params"]["notifications"],
        json!({"toolsListChanged": true, "resourceSubscriptions": ["a://1"]})
    );
    let id = |m: &Value| m["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone();
    assert_eq!(id(acknowledged), "L");
    let hint = &data(&chunk(&mut body).await.expect("a chunk"))[0];
    assert_eq!(hint["method"], "notifications/tools/list_changed");
    assert_eq!(id(hint), "L");

    // Not asked for, or no change: nothing but keep-alive.
    server
        .commit(|c| {
            c.remove(CatalogKind::Resources, "a://1");
        })
        .expect("a commit");
    server
        .commit(|c| c.upsert_tool(tool("new"), echo))
        .expect("a commit");
    server.resource_updated("a://2");
    assert_eq!(chunk(&mut body).await.as_deref(), Some(":\n\n"));
    server.resource_updated("a://1");
    server.resource_updated("a://1");
    let updated = data(&chunk(&mut body).await.expect("a chunk"));
    assert_eq!(updated.len(), 1);
    assert_eq!(updated[0]["params"]["uri"], "a://1");

    server.shutdown();
    let end = &data(&chunk(&mut body).await.expect("a chunk"))[0];
    assert_eq!(end["result"]["resultType"], "complete");
    assert_eq!(end["id"], "L");
    assert_eq!(chunk(&mut body).await, None);
}

#[tokio::test]
async fn a_listener_of_nothing_is_acknowledged_and_ended() {
    let router = router();
    let messages = messages(
        post(&router, &listen(json!({"promptsListChanged": true})))
            .await
            .into_body(),
    )
    .await;
    assert_eq!(messages.len(), 2);
    assert_eq!(messages[0]["params"]["notifications"], json!({}));
    assert_eq!(messages[1]["result"]["resultType"], "complete");

    let silent = Server::builder(relist_protocol::message::Implementation::new("s", "1"))
        .catalog(
            CatalogKind::Tools,
            CatalogOptions::default().list_changed(false),
        )
        .build()
        .expect("a server");
    let router = silent.router(HttpOptions::default());
    let response = post(&router, &listen(json!({"toolsListChanged": true}))).await;
    let (status, _, body) = json_of(response).await;
    assert_eq!(
        (status.as_u16(), &body["error"]["code"]),
        (404, &json!(-32601))
    );
}

#[tokio::test]
async fn listen_streams_are_counted() {
    let server = server();
    let router = server.router(HttpOptions::default().max_listen_streams(1));
    let first = post(&router, &listen(json!({"toolsListChanged": true}))).await;
    let second = post(&router, &listen(json!({"toolsListChanged": true}))).await;
    assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(first);
    let third = post(&router, &listen(json!({"toolsListChanged": true}))).await;
    assert_eq!(third.status(), StatusCode::OK);
}

#[tokio::test]
async fn pages_are_compressed_as_the_client_likes_and_say_their_length() {
    use tokio::io::AsyncReadExt as _;
    let mut long = builder();
    for n in 0..100 {
        long = long.tool(tool(&format!("tool-with-a-long-name-{n}")), echo);
    }
    let server = long
        .catalog(CatalogKind::Tools, CatalogOptions::default())
        .build()
        .expect("a server");
    let router = server.router(HttpOptions::default());
    let body = request(json!("id"), "tools/list", json!({}), json!({}));
    let plain = json_of(post(&router, &body).await).await.2;
    for encoding in ["gzip", "br", "zstd"] {
        let mut headers = headers(&body);
        headers.push(("accept-encoding".into(), encoding.into()));
        let response = send(&router, http("POST", &headers, body.to_string())).await;
        assert_eq!(response.headers()[header::CONTENT_ENCODING], encoding);
        assert_eq!(response.headers()[header::VARY], "accept-encoding");
        let length: usize = response.headers()[header::CONTENT_LENGTH]
            .to_str()
            .expect("ASCII")
            .parse()
            .expect("a number");
        use http_body_util::BodyExt as _;
        let bytes = response
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes();
        assert_eq!(bytes.len(), length);
        let mut text = String::new();
        use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZstdDecoder};
        match encoding {
            "gzip" => GzipDecoder::new(&bytes[..]).read_to_string(&mut text).await,
            "br" => {
                BrotliDecoder::new(&bytes[..])
                    .read_to_string(&mut text)
                    .await
            }
            _ => ZstdDecoder::new(&bytes[..]).read_to_string(&mut text).await,
        }
        .expect("decodes");
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), plain);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_gone_cancels_its_request() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let seen = Arc::new(AtomicBool::new(false));
    let flag = seen.clone();
    let server = builder()
        .tool(tool("wait"), move |_, context: relist_server::Context| {
            let flag = flag.clone();
            async move {
                context.cancelled().await;
                flag.store(true, Ordering::SeqCst);
                Ok(relist_server::ToolOutput::text("never read"))
            }
        })
        .build()
        .expect("a server");
    let router = server.router(HttpOptions::default().hosts(Allowed::Any));
    let body = request(json!(1), "tools/call", json!({"name": "wait"}), json!({}));
    let response = post(&router, &body).await;
    // It takes long, so that the client sees the headers of a stream.
    assert_eq!(
        response.headers()[header::CONTENT_TYPE],
        "text/event-stream"
    );
    drop(response);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(seen.load(Ordering::SeqCst));
}
