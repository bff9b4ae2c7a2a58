//! On real sockets: both HTTP versions, and how it ends.

mod support;

use std::time::Duration;

use axum::body::Body;
use http::{Request, Uri};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use relist_server::HttpOptions;
use serde_json::{Value, json};
use support::*;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

fn client(http2: bool) -> Client<HttpConnector, Body> {
    Client::builder(TokioExecutor::new())
        .http2_only(http2)
        .build_http()
}

fn to(uri: &Uri, body: &Value) -> Request<Body> {
    let mut request = http("POST", &headers(body), body.to_string());
    *request.uri_mut() = uri.clone();
    request
}

#[tokio::test]
async fn both_http_versions_are_served_and_a_stop_is_graceful() {
    let server = server();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("an address");
    let uri: Uri = format!("http://{address}/mcp").parse().expect("a URI");
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn({
        let server = server.clone();
        async move {
            let shutdown = async { drop(stopped.await) };
            server
                .serve_http(listener, HttpOptions::default(), shutdown)
                .await
        }
    });
    let list = request(json!(1), "tools/list", json!({}), json!({}));
    for http2 in [false, true] {
        let response = client(http2)
            .request(to(&uri, &list))
            .await
            .expect("an answer");
        assert_eq!(response.status(), 200);
        let bytes = response
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes();
        let value: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!(value["id"], 1);
    }
    let listen = request(
        json!("L"),
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
        json!({}),
    );
    let client = client(false);
    let response = client.request(to(&uri, &listen)).await.expect("a stream");
    let mut body = Body::new(response.into_body());
    assert!(
        chunk(&mut body)
            .await
            .is_some_and(|c| c.contains("acknowledged"))
    );
    server
        .commit(|c| c.upsert_tool(tool("new"), echo))
        .expect("a commit");
    assert!(
        chunk(&mut body)
            .await
            .is_some_and(|c| c.contains("list_changed"))
    );
    let _ = stop.send(());
    assert!(
        chunk(&mut body)
            .await
            .is_some_and(|c| c.contains(r#""resultType":"complete""#))
    );
    assert_eq!(chunk(&mut body).await, None);
    drop(client);
    let served = tokio::time::timeout(Duration::from_secs(10), serving).await;
    served
        .expect("in time")
        .expect("no panic")
        .expect("no error");
}

/// Inside the hint, the change is already there: asked on another connection.
#[tokio::test]
async fn a_commit_is_visible_before_its_hint() {
    let server = server();
    let router = server.router(HttpOptions::default());
    let listen = request(
        json!("L"),
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
        json!({}),
    );
    let mut body = post(&router, &listen).await.into_body();
    let _ = chunk(&mut body).await;
    for n in 0..20 {
        let name = format!("new-{n}");
        server
            .commit(|c| c.upsert_tool(tool(&name), echo))
            .expect("a commit");
        assert!(
            chunk(&mut body)
                .await
                .is_some_and(|c| c.contains("list_changed"))
        );
        let call = request(json!(1), "tools/call", json!({"name": name}), json!({}));
        assert!(json_of(post(&router, &call).await).await.2["result"].is_object());
    }
}

/// A hundred commits at once, and a hundred lists: one hint.
#[tokio::test(start_paused = true)]
async fn lists_cause_no_hints_and_a_burst_of_commits_causes_one() {
    let server = server();
    let router = server.router(HttpOptions::default());
    let listen = request(
        json!("L"),
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
        json!({}),
    );
    let mut body = post(&router, &listen).await.into_body();
    let _ = chunk(&mut body).await;
    for n in 0..100 {
        server
            .commit(|c| c.upsert_tool(tool(&format!("n{n}")), echo))
            .expect("a commit");
        let list = request(json!(1), "tools/list", json!({}), json!({}));
        let _ = post(&router, &list).await;
    }
    let hints = data(&chunk(&mut body).await.expect("a hint"));
    assert_eq!(hints.len(), 1);
    assert_eq!(chunk(&mut body).await.as_deref(), Some(":\n\n"));
}
