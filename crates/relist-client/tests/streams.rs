//! The streams on which a server tells of changes: how they open, what they
//! bring, how they end.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod raw;

use std::sync::Arc;
use std::time::Duration;

use raw::{Part, config, events, eventually, http, legacy, modern};
use relist_client::config::{ClientConfig, Target};
use relist_client::connection::{
    Connection, EraCache, HintEnd, HintEvent, HintStream, RequestOptions,
};
use relist_fixture::{
    Ending, Era, FakeServer, Fault, GetBehaviour, HintStyle, ListenBehaviour, RpcError, SseStyle,
};
use relist_protocol::CatalogKind;
use relist_protocol::message::ListenFilter;
use serde_json::{Map, json};

async fn connect(server: &FakeServer, config: ClientConfig) -> Connection {
    let target = Target::http(&server.url()).unwrap();
    Connection::open(&target, Arc::new(config), &EraCache::new())
        .await
        .unwrap()
}

fn tools() -> ListenFilter {
    let mut filter = ListenFilter::default();
    filter.set(CatalogKind::Tools, true);
    filter
}

/// The next event that is more than a sign of life.
async fn next(hints: &mut HintStream) -> HintEvent {
    tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            match hints.next().await {
                Some(HintEvent::Alive) => {}
                Some(event) => return event,
                None => panic!("the stream is over"),
            }
        }
    })
    .await
    .expect("an event in time")
}

fn changed(kind: CatalogKind) -> HintEvent {
    HintEvent::Changed { kind, tag: None }
}

fn opened(granted: ListenFilter) -> HintEvent {
    HintEvent::Opened { granted }
}

#[tokio::test]
async fn a_subscription_opens_brings_hints_and_ends_gracefully() {
    let server = FakeServer::start().await;
    let connection = connect(&server, config()).await;
    let mut hints = connection.hints(tools());
    assert_eq!(next(&mut hints).await, opened(tools()));
    server.notify("tools");
    assert_eq!(next(&mut hints).await, changed(CatalogKind::Tools));
    server.end_listens(Ending::Result);
    assert_eq!(next(&mut hints).await, HintEvent::Ended(HintEnd::Graceful));
    assert_eq!(hints.next().await, None);
}

#[tokio::test]
async fn every_ending_is_told_apart() {
    for (ending, graceful) in [
        (Ending::Result, true),
        (Ending::Cancelled, true),
        (Ending::ResultThenCancelled, true),
        (Ending::CancelledThenResult, true),
        (Ending::Close, false),
        (Ending::Cut, false),
    ] {
        let server = FakeServer::start().await;
        let connection = connect(&server, config()).await;
        let mut hints = connection.hints(tools());
        assert_eq!(next(&mut hints).await, opened(tools()));
        server.end_listens(ending);
        let end = next(&mut hints).await;
        match end {
            HintEvent::Ended(HintEnd::Graceful) => assert!(graceful, "{ending:?}"),
            HintEvent::Ended(HintEnd::Lost { .. }) => assert!(!graceful, "{ending:?}"),
            other => panic!("{ending:?}: {other:?}"),
        }
        assert_eq!(hints.next().await, None, "{ending:?}");
    }
}

#[tokio::test]
async fn a_subscription_that_does_not_open_says_why() {
    let refused = |code| RpcError::new(code, "no").status(if code == -32601 { 404 } else { 400 });
    type Check = fn(&HintEnd) -> bool;
    let cases: [(ListenBehaviour, Check); 9] = [
        (ListenBehaviour::ResultAsJson, |e| {
            *e == HintEnd::NoAcknowledgment
        }),
        (ListenBehaviour::ResultOnly, |e| {
            *e == HintEnd::NoAcknowledgment
        }),
        (ListenBehaviour::CancelledOnly, |e| {
            *e == HintEnd::NoAcknowledgment
        }),
        (ListenBehaviour::EndBeforeAcknowledgment, |e| {
            *e == HintEnd::NoAcknowledgment
        }),
        (
            ListenBehaviour::Error(refused(-32601)),
            |e| matches!(e, HintEnd::Refused(e) if e.code == -32601),
        ),
        (
            ListenBehaviour::Error(refused(-32602)),
            |e| matches!(e, HintEnd::Refused(e) if e.code == -32602),
        ),
        (ListenBehaviour::Status(403), |e| {
            matches!(e, HintEnd::Forbidden { .. })
        }),
        (ListenBehaviour::Status(401), |e| {
            matches!(e, HintEnd::Unauthorized { .. })
        }),
        (ListenBehaviour::Status(405), |e| {
            matches!(e, HintEnd::NoStream { .. })
        }),
    ];
    for (behaviour, check) in cases {
        let server = FakeServer::start().await;
        server.set_listen(behaviour.clone());
        let connection = connect(&server, config()).await;
        let mut hints = connection.hints(tools());
        let HintEvent::Ended(end) = next(&mut hints).await else {
            panic!("{behaviour:?}: it opened");
        };
        assert!(check(&end), "{behaviour:?}: {end:?}");
        assert_eq!(server.log().count("subscriptions/listen"), 1);
        connection
            .request("tools/list", Map::new(), RequestOptions::default())
            .await
            .expect("requests are not affected");
    }
}

#[tokio::test]
async fn a_stream_that_never_acknowledges_is_given_up() {
    let server = FakeServer::start().await;
    server.set_listen(ListenBehaviour::Silent);
    let connection = connect(
        &server,
        config().request_timeout(Duration::from_millis(300)),
    )
    .await;
    let mut hints = connection.hints(tools());
    assert_eq!(
        next(&mut hints).await,
        HintEvent::Ended(HintEnd::NoAcknowledgment)
    );
    server
        .log()
        .wait_for_streams("subscriptions/listen", 0)
        .await;
}

#[tokio::test]
async fn a_subscription_to_nothing_is_not_kept() {
    let server = FakeServer::start().await;
    server.set_listen(ListenBehaviour::AcknowledgeAs(json!({})));
    let connection = connect(&server, config()).await;
    let mut hints = connection.hints(tools());
    assert_eq!(next(&mut hints).await, opened(ListenFilter::default()));
    assert_eq!(
        next(&mut hints).await,
        HintEvent::Ended(HintEnd::NothingGranted)
    );
    server
        .log()
        .wait_for_streams("subscriptions/listen", 0)
        .await;
}

#[tokio::test]
async fn a_hint_counts_outside_the_filter_and_untagged_but_not_for_another() {
    let changed = |kind| Some(HintEvent::Changed { kind, tag: None });
    let styles = [
        (
            HintStyle {
                ignore_filter: true,
                ..HintStyle::default()
            },
            "prompts",
            changed(CatalogKind::Prompts),
        ),
        (
            HintStyle {
                untagged: true,
                ..HintStyle::default()
            },
            "tools",
            changed(CatalogKind::Tools),
        ),
        (
            HintStyle {
                tag: Some(json!(4711)),
                ..HintStyle::default()
            },
            "tools",
            None,
        ),
    ];
    for (style, hinted, expected) in styles {
        let server = FakeServer::start().await;
        let connection = connect(&server, config()).await;
        let mut hints = connection.hints(tools());
        assert_eq!(next(&mut hints).await, opened(tools()));
        server.set_hint_style(style.clone());
        assert_eq!(server.notify(hinted), 1, "{style:?}");
        server.set_hint_style(HintStyle::default());
        server.end_listens(Ending::Result);
        if let Some(expected) = expected {
            assert_eq!(next(&mut hints).await, expected, "{style:?}");
        }
        assert_eq!(
            next(&mut hints).await,
            HintEvent::Ended(HintEnd::Graceful),
            "{style:?}"
        );
    }
}

#[tokio::test]
async fn nothing_is_delivered_before_the_acknowledgment() {
    let server = modern(|seen, _| {
        let id = seen.id();
        let tagged = |method: &str, rest: serde_json::Value| {
            let mut params = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": id}});
            if let Some(map) = rest.as_object() {
                for (name, value) in map {
                    params[name] = value.clone();
                }
            }
            let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
            format!("data: {message}\n\n")
        };
        let early = tagged("notifications/tools/list_changed", json!({}));
        let ack = tagged(
            "notifications/subscriptions/acknowledged",
            json!({"notifications": {"toolsListChanged": true}}),
        );
        let result = json!({"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete"}});
        events(&format!("{early}{ack}data: {result}\n\n{early}"))
    })
    .await;
    let connection = server.open(config()).await;
    let mut hints = connection.hints(tools());
    assert_eq!(next(&mut hints).await, opened(tools()));
    assert_eq!(next(&mut hints).await, HintEvent::Ended(HintEnd::Graceful));
}

#[tokio::test]
async fn a_hundred_thousand_unread_hints_are_one() {
    let server = FakeServer::start().await;
    let connection = connect(&server, config()).await;
    let mut hints = connection.hints(tools());
    assert_eq!(next(&mut hints).await, opened(tools()));
    let received = || connection.traffic().received;
    let before = received();
    server.notify("tools");
    assert_eq!(next(&mut hints).await, changed(CatalogKind::Tools));
    let one = received() - before;

    let before = received();
    for _ in 0..100 {
        // The reader is never blocked: it takes them all, though nobody asks.
        let so_far = received();
        server.notify_times("tools", 1000);
        eventually(|| (received() >= so_far + 1000 * one).then_some(())).await;
    }
    assert_eq!(received(), before + 100_000 * one);
    server.end_listens(Ending::Result);
    server
        .log()
        .wait_for_streams("subscriptions/listen", 0)
        .await;
    assert_eq!(next(&mut hints).await, changed(CatalogKind::Tools));
    assert_eq!(next(&mut hints).await, HintEvent::Ended(HintEnd::Graceful));
}

#[tokio::test]
async fn a_stream_that_stops_sending_keep_alives_is_silent() {
    let server = FakeServer::start().await;
    let connection = connect(&server, config().silence_limit(Duration::from_millis(300))).await;
    let mut hints = connection.hints(tools());
    assert_eq!(next(&mut hints).await, opened(tools()));
    server.comment();
    let end = next(&mut hints).await;
    assert!(
        matches!(end, HintEvent::Ended(HintEnd::Silent { .. })),
        "{end:?}"
    );
    server
        .log()
        .wait_for_streams("subscriptions/listen", 0)
        .await;
}

#[tokio::test]
async fn a_stream_that_never_sent_keep_alives_may_be_silent() {
    let server = FakeServer::start().await;
    let connection = connect(&server, config().silence_limit(Duration::from_millis(50))).await;
    let mut hints = connection.hints(tools());
    assert_eq!(next(&mut hints).await, opened(tools()));
    tokio::time::sleep(Duration::from_millis(400)).await;
    server.notify("tools");
    assert_eq!(next(&mut hints).await, changed(CatalogKind::Tools));
}

#[tokio::test]
async fn an_odd_stream_brings_the_same() {
    let server = FakeServer::start().await;
    server.set_sse_style(SseStyle::odd());
    let connection = connect(&server, config()).await;
    let mut hints = connection.hints(tools());
    assert_eq!(next(&mut hints).await, opened(tools()));
    server.notify("tools");
    assert_eq!(next(&mut hints).await, changed(CatalogKind::Tools));
}

#[tokio::test]
async fn dropping_the_stream_or_the_connection_ends_the_subscription() {
    let server = FakeServer::start().await;
    let connection = connect(&server, config()).await;
    let mut hints = connection.hints(tools());
    next(&mut hints).await;
    drop(hints);
    server
        .log()
        .wait_for_streams("subscriptions/listen", 0)
        .await;

    let mut hints = connection.hints(tools());
    next(&mut hints).await;
    drop(connection);
    assert!(matches!(
        next(&mut hints).await,
        HintEvent::Ended(HintEnd::Closed { .. })
    ));
    server
        .log()
        .wait_for_streams("subscriptions/listen", 0)
        .await;
}

async fn legacy_server() -> FakeServer {
    FakeServer::builder().era(Era::Legacy).start().await
}

#[tokio::test]
async fn the_legacy_stream_brings_hints() {
    let server = legacy_server().await;
    let connection = connect(&server, config()).await;
    let mut hints = connection.hints(tools());
    assert_eq!(next(&mut hints).await, opened(tools()));
    server.log().wait_for_streams("GET", 1).await;
    server.notify("prompts");
    assert_eq!(next(&mut hints).await, changed(CatalogKind::Prompts));
}

#[tokio::test]
async fn a_server_without_a_legacy_stream_says_so_and_works() {
    for behaviour in [
        GetBehaviour::Status(400),
        GetBehaviour::Status(404),
        GetBehaviour::Status(405),
        GetBehaviour::Status(406),
        GetBehaviour::Status(501),
    ] {
        let server = legacy_server().await;
        server.set_get(behaviour.clone());
        let connection = connect(&server, config()).await;
        let mut hints = connection.hints(tools());
        let event = next(&mut hints).await;
        assert!(
            matches!(event, HintEvent::Ended(HintEnd::NoStream { .. })),
            "{behaviour:?}: {event:?}"
        );
        connection
            .request("tools/list", Map::new(), RequestOptions::default())
            .await
            .expect("requests are not affected");
        assert_eq!(server.log().count("GET"), 1, "{behaviour:?}");
    }
}

#[tokio::test]
async fn a_legacy_stream_that_fails_otherwise_is_told_apart() {
    let end_for = async |prepare: &dyn Fn(&FakeServer)| {
        let server = legacy_server().await;
        prepare(&server);
        let connection = connect(&server, config()).await;
        let mut hints = connection.hints(tools());
        loop {
            if let HintEvent::Ended(end) = next(&mut hints).await {
                return end;
            }
        }
    };
    let end = end_for(&|s| s.set_get(GetBehaviour::Unauthorized)).await;
    assert!(matches!(end, HintEnd::Unauthorized { .. }), "{end:?}");
    let end = end_for(&|s| s.set_get(GetBehaviour::Html)).await;
    assert!(matches!(end, HintEnd::NotAStream { .. }), "{end:?}");
    let end = end_for(&|s| s.set_get(GetBehaviour::EmptyStream)).await;
    assert!(matches!(end, HintEnd::Lost { .. }), "{end:?}");
    let end = end_for(&|s| s.set_get(GetBehaviour::Status(409))).await;
    assert!(matches!(end, HintEnd::Lost { .. }), "{end:?}");
    let end = end_for(&|s| s.fail_always("GET", Fault::Reset)).await;
    assert!(matches!(end, HintEnd::Lost { .. }), "{end:?}");
}

#[tokio::test]
async fn a_legacy_stream_is_resumed_where_it_broke_off() {
    let server = legacy(|seen, nth| match (seen.method(), nth) {
        ("GET", 1) => {
            let hint = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            events(&format!(
                "id: a\nretry: 150\ndata: \n\nid: b\ndata: {hint}\n\n"
            ))
        }
        ("GET", 2) => {
            let mut parts = events("id: c\ndata: \n\n");
            parts.push(Part::Hold);
            parts
        }
        _ => http(202, &[], b""),
    })
    .await;
    let connection = server.open(config()).await;
    let mut hints = connection.hints(tools());
    assert_eq!(next(&mut hints).await, opened(tools()));
    assert_eq!(next(&mut hints).await, changed(CatalogKind::Tools));
    assert_eq!(next(&mut hints).await, HintEvent::Resumed);
    let gets: Vec<_> = server
        .seen()
        .into_iter()
        .filter(|s| s.method() == "GET")
        .collect();
    assert_eq!(gets[0].header("last-event-id"), None);
    assert_eq!(gets[1].header("last-event-id"), Some("b"));
    assert!(gets[1].at - gets[0].at >= Duration::from_millis(150));
}

#[tokio::test]
async fn a_legacy_stream_that_only_breaks_off_is_lost_in_the_end() {
    let server = legacy(|seen, _| match seen.method() {
        "GET" => events("id: a\nretry: 1\ndata: \n\n"),
        _ => http(202, &[], b""),
    })
    .await;
    let connection = server.open(config()).await;
    let mut hints = connection.hints(tools());
    let end = loop {
        if let HintEvent::Ended(end) = next(&mut hints).await {
            break end;
        }
    };
    assert!(matches!(end, HintEnd::Lost { .. }), "{end:?}");
    assert_eq!(server.count("GET"), 11);
}

#[tokio::test]
async fn legacy_resources_are_watched_one_by_one() {
    let server = legacy(|seen, _| match seen.method() {
        "resources/subscribe" if seen.body["params"]["uri"] == "file:///b" => {
            raw::error(seen, 200, -32002, "Resource not found", json!(null))
        }
        "resources/subscribe" | "resources/unsubscribe" => raw::result(seen, json!({})),
        "GET" => {
            let hint = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated",
                "params": {"uri": "file:///a"}});
            let mut parts = events(&format!("data: {hint}\n\n"));
            parts.push(Part::Hold);
            parts
        }
        _ => http(202, &[], b""),
    })
    .await;
    let connection = server.open(config()).await;
    let filter = |uris: &[&str]| ListenFilter {
        resource_subscriptions: uris.iter().map(|u| (*u).to_owned()).collect(),
        ..ListenFilter::default()
    };
    let mut hints = connection.hints(filter(&["file:///a", "file:///b"]));
    assert_eq!(next(&mut hints).await, opened(filter(&["file:///a"])));
    assert_eq!(
        next(&mut hints).await,
        HintEvent::Updated {
            uri: "file:///a".into()
        }
    );
    drop(hints);
    let mut hints = connection.hints(filter(&["file:///c"]));
    assert_eq!(next(&mut hints).await, opened(filter(&["file:///c"])));
    assert_eq!(server.count("resources/subscribe"), 3);
    let ended = server.saw("resources/unsubscribe").await;
    assert_eq!(ended.body["params"]["uri"], "file:///a");
}
