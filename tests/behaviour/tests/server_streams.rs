//! The life of our server's streams: opened, kept alive, replaced, ended.

mod server_support;

use std::time::Duration;

use relist_fixture::{FakeProxy, LineClient, RecordingClient};
use relist_protocol::{CatalogKind, RpcError};
use relist_server::{CatalogOptions, Context, HttpOptions, ToolCall, ToolOutput};
use serde_json::{Value, json};
use server_support::*;
use tokio::sync::mpsc;

const LISTEN: &str = "subscriptions/listen";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const TOOLS: &str = ALL_HINTS[0];
const RESOURCES: &str = ALL_HINTS[1];
const UPDATED: &str = "notifications/resources/updated";
const HOUR: Duration = Duration::from_secs(3600);

async fn plain() -> Hosted {
    host(builder().build().expect("a server")).await
}

/// Case 10: a stream that is not offered is 405, with what may be done
/// instead, whatever else the request lacks.
#[tokio::test]
async fn a_stream_that_is_not_offered_is_405_with_allow() {
    let hosted = plain().await;
    for headers in [
        &[][..],
        &[("accept", "text/event-stream")],
        &[("accept", "text/html")],
        &[("mcp-protocol-version", "2026-07-28")],
        &[("authorization", "Bearer nonsense")],
        &[("last-event-id", "0-1")],
    ] {
        let reply = hosted.client.get(headers).await;
        assert_eq!(outcome(&reply), (405, -32600), "{headers:?}");
        assert_eq!(reply.header("allow"), Some("POST"));
        assert_eq!(reply.header("www-authenticate"), None);
        let reply = hosted.client.delete(headers).await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    }
    let reply = hosted.client.options(&[]).await;
    assert_eq!(reply.status, 405);
    assert_eq!(reply.header("allow"), Some("GET, POST, DELETE"));

    // Switched off for sessions too.
    let options = HttpOptions::default().legacy_stream(false);
    let hosted = host_with(builder().build().expect("a server"), options).await;
    let session = hosted.client.legacy("2025-11-25").await;
    let id = session.id.as_deref().expect("a session");
    let get = [("accept", "text/event-stream"), ("mcp-session-id", id)];
    let reply = hosted.client.get(&get).await;
    assert_eq!(
        (reply.status, reply.header("allow")),
        (405, Some("POST, DELETE"))
    );
    hosted.works("405").await;
}

/// Case 11, the server's half: a session that is gone is 404, for every kind
/// of request, and a new one works.
#[tokio::test]
async fn a_session_that_is_gone_is_404() {
    let hosted = plain().await;
    let session = hosted.client.legacy("2025-11-25").await;
    let mut stream = session.open_stream().await;
    assert_eq!(session.delete().await.status, 204);
    assert_eq!(stream.rest().await, [json!(null); 0]);
    let reply = session.request("tools/list", json!({})).await;
    assert_eq!(outcome(&reply), (404, -32600));
    assert_eq!(
        session.notify("notifications/x", json!({})).await.status,
        404
    );
    assert_eq!(session.delete().await.status, 404);
    assert_eq!(session.open_stream().await.status, 404);
    let never = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-session-id", "never"),
    ];
    let list = r#"{"jsonrpc":"2.0","id":"a","method":"tools/list"}"#;
    let reply = hosted.client.post(&never, list).await;
    assert_eq!(outcome(&reply), (404, -32600));
    assert_eq!(reply.json()["id"], "a");
    let again = hosted.client.legacy("2025-11-25").await;
    assert_ne!(again.id, session.id);
    assert_eq!(again.request("tools/list", json!({})).await.status, 200);
}

/// Case 14 and row F6: acknowledged with nothing, ended with a result; and
/// where no server of the kind could ever hint, there is no such method.
#[tokio::test]
async fn a_listen_request_of_which_nothing_is_honoured_ends_at_once() {
    let quiet = CatalogOptions::default().list_changed(false);
    let server = builder().catalog(CatalogKind::Tools, quiet.clone()).build();
    let hosted = host(server.expect("a server")).await;
    for filter in [
        json!({}),
        json!({"toolsListChanged": true}),
        json!({"toolsListChanged": false, "promptsListChanged": false}),
        json!({"resourceSubscriptions": []}),
        json!({"somethingElse": true}),
    ] {
        let mut stream = hosted.client.listen(filter.clone()).await;
        let messages = stream.rest().await;
        assert!(stream.ended_cleanly());
        assert_eq!(messages.len(), 2, "{filter}: {messages:?}");
        assert_eq!(messages[0]["method"], ACKNOWLEDGED);
        assert_eq!(messages[0]["params"]["notifications"], json!({}));
        assert_eq!(messages[1]["result"]["resultType"], "complete");
    }
    let nothing = bare()
        .catalog(CatalogKind::Tools, quiet)
        .tool(tool("a", ""), echo);
    let hosted = host(nothing.build().expect("a server")).await;
    let params = json!({"notifications": all()});
    let reply = hosted.client.modern(LISTEN, params).send().await;
    assert_eq!(outcome(&reply), (404, -32601));
}

/// Row F7: what was not asked for does not come.
#[tokio::test]
async fn nothing_outside_the_filter_is_delivered() {
    let hosted = plain().await;
    let mut tools = hosted
        .client
        .listen(json!({"toolsListChanged": true}))
        .await;
    let watching = json!({"resourceSubscriptions": ["r://a", "r://nobody"]});
    let mut watch = hosted.client.listen(watching.clone()).await;
    tools.message().await;
    // A URI that nobody serves is granted like any other: the acknowledgment
    // does not tell which exist.
    let granted = watch.message().await["params"]["notifications"].clone();
    assert_eq!(granted, watching);
    commit(&hosted.server, |c| {
        c.upsert_tool(tool("c", ""), echo);
        c.upsert_resource(resource("r://c", ""), read);
        c.upsert_prompt(prompt("c", ""), say);
    });
    hosted.server.resource_updated("r://a");
    hosted.server.resource_updated("r://b");
    hosted.server.shutdown();
    let told = tools.rest().await;
    assert_eq!(methods(&told), [TOOLS]);
    let told = watch.rest().await;
    assert_eq!(methods(&told), [UPDATED]);
    assert_eq!(told[0]["params"]["uri"], "r://a");
}

/// Row F8: one client's unsubscribe is its own; a new resource is a change of
/// the list, an edit of its content is none.
#[tokio::test]
async fn watching_is_each_clients_own() {
    let hosted = plain().await;
    let a = hosted.client.legacy("2025-11-25").await;
    let b = hosted.client.legacy("2025-11-25").await;
    let uri = json!({"uri": "r://a"});
    for session in [&a, &b] {
        let answer = session.request("resources/subscribe", uri.clone()).await;
        assert_eq!(answer.result(), json!({}));
    }
    let (mut at_a, mut at_b) = (a.open_stream().await, b.open_stream().await);
    let watch = json!({"resourceSubscriptions": ["r://a"], "resourcesListChanged": true});
    let mut modern = hosted.client.listen(watch.clone()).await;
    let mut dropped = hosted.client.listen(watch).await;
    modern.message().await;
    dropped.message().await;
    drop(dropped);
    let answer = b.request("resources/unsubscribe", uri).await;
    assert_eq!(answer.result(), json!({}));

    hosted.server.resource_updated("r://a");
    assert_eq!(at_a.message().await["method"], UPDATED);
    assert_eq!(modern.message().await["method"], UPDATED);
    commit(&hosted.server, |c| {
        c.upsert_resource(resource("r://new", ""), read);
    });
    assert_eq!(at_a.message().await["method"], RESOURCES);
    assert_eq!(modern.message().await["method"], RESOURCES);

    hosted.server.shutdown();
    assert_eq!(methods(&at_b.rest().await), [RESOURCES]);
    assert_eq!(methods(&at_a.rest().await), [""; 0]);
    assert_eq!(methods(&modern.rest().await), [""; 0]);
}

/// Case 16 and row F4: the server ends with a result that carries the id, and
/// nothing comes behind it.
#[tokio::test]
async fn a_subscription_that_the_server_ends_ends_with_its_result() {
    let hosted = plain().await;
    let filter = json!({"toolsListChanged": true});
    let listen = hosted
        .client
        .modern(LISTEN, json!({"notifications": filter}));
    let mut stream = listen.id(json!("the id")).open().await;
    stream.message().await;
    put_tool(&hosted.server, "c", "");
    hosted.server.shutdown();
    put_tool(&hosted.server, "d", "");
    let told = stream.rest().await;
    assert!(stream.ended_cleanly());
    assert_eq!(methods(&told), [TOOLS]);
    let last = told.last().expect("a result");
    assert_eq!(last["id"], "the id");
    let meta = &last["result"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/subscriptionId"], "the id");
    // Requests are answered all the same, and a new subscription ends at once.
    hosted.works("the end of a stream").await;
    let mut late = hosted.client.listen(filter).await;
    let messages = late.rest().await;
    assert_eq!(messages.len(), 2);
    assert_eq!(messages[0]["method"], ACKNOWLEDGED);
}

/// Row F4 over lines: a subscription that the client gave up is silent, and
/// the others go on.
#[tokio::test]
async fn a_subscription_that_the_client_gave_up_is_silent() {
    let server = builder().coalesce(Duration::ZERO).build();
    let server = server.expect("a server");
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(theirs);
    let (output, input) = tokio::io::split(ours);
    let served = tokio::spawn({
        let server = server.clone();
        async move { server.serve_stdio(reader, writer).await }
    });
    let mut client = LineClient::new(output, input);
    let filter = json!({"notifications": {"toolsListChanged": true}});
    for id in ["one", "two"] {
        client.request(json!(id), LISTEN, filter.clone()).await;
        assert_eq!(client.message().await["method"], ACKNOWLEDGED);
    }
    let given_up = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": "one"}});
    client.send(given_up).await;
    client
        .request(json!("fence"), "server/discover", json!({}))
        .await;
    assert_eq!(client.message().await["id"], "fence");
    put_tool(&server, "c", "");
    let id = "io.modelcontextprotocol/subscriptionId";
    let told = client.message().await;
    assert_eq!(
        (&told["method"], &told["params"]["_meta"][id]),
        (&json!(TOOLS), &json!("two"))
    );
    server.shutdown();
    let last = client.message().await;
    assert_eq!(last["id"], "two");
    client.close().await;
    assert_eq!(client.line().await, None);
    served.await.expect("no panic").expect("no error");
}

/// Row E4: a proxy that holds the head back until the first byte of the body.
/// Keep-alives are far off, so that only a byte of its own opens each stream.
#[tokio::test]
async fn every_stream_has_a_first_byte() {
    let options = HttpOptions::default()
        .keep_alive(HOUR)
        .stream_after(Duration::from_millis(20));
    let (started, mut running) = mpsc::unbounded_channel();
    let wait = move |_: ToolCall, context: Context| {
        let started = started.clone();
        async move {
            let _ = started.send(());
            context.cancelled().await;
            Err::<ToolOutput, _>(RpcError::internal("given up"))
        }
    };
    let server = builder().tool(tool("wait", ""), wait).build();
    let hosted = host_with(server.expect("a server"), options).await;
    let proxy = FakeProxy::start(&[hosted.host.address()]).await;
    proxy.set_buffering(true);
    let client = RecordingClient::new(&proxy.url());
    let listen = client.listen(json!({"toolsListChanged": true})).await;
    assert_eq!(listen.header("x-accel-buffering"), Some("no"));
    assert_eq!(listen.header("content-type"), Some("text/event-stream"));
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = client.legacy(version).await;
        let stream = session.open_stream().await;
        assert_eq!(stream.status, 200, "{version}");
        assert_eq!(stream.header("x-accel-buffering"), Some("no"));
        let answer = session.open("tools/call", json!({"name": "wait"})).await;
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        running.recv().await;
    }
    let call = client.modern("tools/call", json!({"name": "wait"}));
    let answer = call.open().await;
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
}

/// Rows E3 and E4: a proxy that cuts what is silent finds nothing to cut.
#[tokio::test]
async fn a_silent_stream_is_kept_alive() {
    let options = HttpOptions::default().keep_alive(Duration::from_millis(5));
    let hosted = host_with(builder().build().expect("a server"), options).await;
    let proxy = FakeProxy::start(&[hosted.host.address()]).await;
    let client = RecordingClient::new(&proxy.url());
    let session = client.legacy("2025-06-18").await;
    let mut get = session.open_stream().await;
    let mut listen = client.listen(json!({"toolsListChanged": true})).await;
    listen.message().await;
    proxy.wait_until(|proxy| proxy.open() == 2).await;
    for _ in 0..3 {
        proxy.mark();
        for _ in 0..2 {
            get.comment().await;
            listen.comment().await;
        }
        assert_eq!(proxy.cut_idle(), 0);
    }
    put_tool(&hosted.server, "c", "");
    assert_eq!(get.message().await["method"], TOOLS);
    assert_eq!(listen.message().await["method"], TOOLS);
}

/// Row E3: a connection that died without a word does not keep its client out.
#[tokio::test]
async fn a_new_stream_takes_the_place_of_a_dead_one() {
    let hosted = plain().await;
    let proxy = FakeProxy::start(&[hosted.host.address()]).await;
    let client = RecordingClient::new(&proxy.url());
    let session = client.legacy("2025-11-25").await;
    let dead = session.open_stream().await;
    let filter = json!({"toolsListChanged": true});
    let mut dead_too = client.listen(filter.clone()).await;
    dead_too.message().await;
    assert!(proxy.kill_without_fin() >= 2);

    let mut stream = session.open_stream().await;
    assert_eq!(stream.status, 200);
    let mut listen = client.listen(filter).await;
    listen.message().await;
    put_tool(&hosted.server, "c", "");
    assert_eq!(stream.message().await["method"], TOOLS);
    assert_eq!(listen.message().await["method"], TOOLS);
    // The session is none the worse for it.
    assert_eq!(session.request("tools/list", json!({})).await.status, 200);
    drop((dead, dead_too));
}

/// Row E3: what a re-opened stream missed is told when it comes back.
#[tokio::test]
async fn a_hint_between_two_streams_is_not_lost() {
    let hosted = plain().await;
    for version in ["2025-06-18", "2025-11-25"] {
        let session = hosted.client.legacy(version).await;
        drop(session.open_stream().await);
        put_tool(&hosted.server, version, "");
        let mut stream = session.open_stream().await;
        assert_eq!(stream.message().await["method"], TOOLS);
    }
}

/// Streams are counted, and a stream too many is told when to come back.
#[tokio::test]
async fn streams_and_sessions_are_limited() {
    let options = HttpOptions::default().max_listen_streams(2).max_sessions(1);
    let hosted = host_with(builder().build().expect("a server"), options).await;
    let filter = json!({"toolsListChanged": true});
    let first = hosted.client.listen(filter.clone()).await;
    let _second = hosted.client.listen(filter.clone()).await;
    let listen = || {
        hosted
            .client
            .modern(LISTEN, json!({"notifications": filter}))
    };
    let reply = listen().send().await;
    assert_eq!(outcome(&reply), (503, -32603));
    assert_eq!(reply.header("retry-after"), Some("5"));
    // The next request works, and so does the next stream when one is over.
    hosted.works("too many streams").await;
    drop(first);
    loop {
        // When the server finds out is the network's business.
        let mut third = listen().open().await;
        if third.status == 200 {
            assert_eq!(third.message().await["method"], ACKNOWLEDGED);
            break;
        }
        tokio::task::yield_now().await;
    }
    let session = hosted.client.legacy("2025-11-25").await;
    let reply = hosted.client.initialize("2025-11-25").await;
    assert_eq!(outcome(&reply), (503, -32603));
    assert_eq!(session.delete().await.status, 204);
    assert_eq!(hosted.client.initialize("2025-11-25").await.status, 200);
}

/// A reader that does not read holds nothing up, and what waits for it does
/// not grow with what it misses.
#[tokio::test]
async fn a_slow_reader_holds_a_bounded_number_of_hints() {
    const COMMITS: usize = 5000;
    let server = builder().coalesce(Duration::ZERO).build();
    let server = server.expect("a server");
    // A pipe that holds less than one message.
    let (ours, theirs) = tokio::io::duplex(64);
    let (reader, writer) = tokio::io::split(theirs);
    let (output, input) = tokio::io::split(ours);
    let _served = tokio::spawn({
        let server = server.clone();
        async move { server.serve_stdio(reader, writer).await }
    });
    let mut slow = LineClient::new(output, input);
    let filter = json!({"notifications": {"toolsListChanged": true}});
    slow.request(json!("L"), LISTEN, filter).await;
    assert_eq!(slow.message().await["method"], ACKNOWLEDGED);

    let hosted = host(server).await;
    let mut quick = hosted
        .client
        .listen(json!({"toolsListChanged": true}))
        .await;
    quick.message().await;
    for n in 0..COMMITS {
        put_tool(&hosted.server, "c", &n.to_string());
        if n % 100 == 0 {
            assert_eq!(quick.message().await["method"], TOOLS);
        }
        tokio::task::yield_now().await;
    }
    slow.request(json!("last"), "tools/list", json!({})).await;
    let (answer, hints) = slow.answer(&json!("last")).await;
    let text = (COMMITS - 1).to_string();
    assert_eq!(
        answer["result"]["tools"][2]["description"],
        Value::from(text)
    );
    assert!((1..1000).contains(&hints.len()), "{} hints", hints.len());
}
