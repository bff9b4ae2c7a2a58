//! The client and its stream of hints: refused, lost, ended, silent, opened
//! again; and what it costs meanwhile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use relist_behaviour::{
    CELLS, PATIENCE, Peer, Wire, at_rest, names, options, settled, tool, tools, wait_for_names,
    within,
};
use relist_client::call::CallOptions;
use relist_client::client::{Client, Options};
use relist_client::config::{ClientConfig, Target, TokenError, TokenProvider, TokenReason};
use relist_client::host::Host;
use relist_fixture::{
    Ending, Era, FakeProxy, FakeServer, Fault, GetBehaviour, ListenBehaviour, RpcError, WireLog,
};
use relist_freshness::policy::Backoff;
use relist_freshness::record::Trigger;
use relist_freshness::stream::StreamState;
use relist_protocol::CatalogKind;
use serde_json::{Map, json};

const LISTEN: &str = "subscriptions/listen";

fn quick(millis: u64) -> Backoff {
    Backoff {
        first: Duration::from_millis(millis),
        cap: Duration::from_millis(8 * millis),
        jitter: 0,
    }
}

/// Streams are opened again after 20, 40, 80 and then 160 ms, whatever happened.
fn impatient(mut options: Options) -> Options {
    options.stream_policy.retry = quick(20);
    options.stream_policy.slow_retry = quick(20);
    options
}

fn with_config(mut options: Options, change: impl FnOnce(ClientConfig) -> ClientConfig) -> Options {
    options.config = Arc::new(change((*options.config).clone()));
    options
}

/// The time from each attempt to the next grows as it should.
fn check_growth(log: &WireLog, method: &str) {
    let attempts = log.requests(method);
    for (n, pair) in attempts.windows(2).enumerate() {
        let least = Duration::from_millis(20 << n.min(3));
        let pause = pair[1].at - pair[0].at;
        assert!(
            pause >= least,
            "pause {n} is {pause:?}, less than {least:?}\n{log}"
        );
    }
}

/// A catalog that is empty and unwatched never rests: it is looked at again.
fn tools_only(mut options: Options) -> Options {
    options.kinds = vec![CatalogKind::Tools];
    options
}

async fn still_lists(client: &Client, server: &Peer) {
    server.set_catalog("tools", vec![tool("later", "")]);
    let view = tools(client).refresh(PATIENCE).await.expect("a list");
    assert!(view.get("later").is_some());
}

/// Case 8, field report E2: no stream is no fault.
#[tokio::test]
async fn a_server_without_a_stream_is_not_asked_again() {
    for status in [400, 404, 405, 406, 501] {
        let server = Peer::start(Era::Legacy, Wire::Http, |s| {
            s.set_catalog("tools", vec![tool("a", "")]);
            s.set_get(GetBehaviour::Status(status));
        })
        .await;
        let client = settled(tools_only(server.options())).await;
        assert_eq!(client.stream(), StreamState::Unavailable, "{status}");
        assert_eq!(names(tools(&client)), ["a"]);
        assert_eq!(tools(&client).status().failures, 0);
        still_lists(&client, &server).await;
        // The state has no timer: nothing but a new connection asks again.
        assert_eq!(server.log().count("GET"), 1, "{status}");
        assert_eq!(server.log().count("initialize"), 1);
        client.close().await;
    }
}

/// Case 9, field report E2: what is no event stream, or an empty one, is asked
/// for again with pauses that keep growing.
#[tokio::test]
async fn what_never_was_a_stream_is_asked_for_ever_more_rarely() {
    for behaviour in [GetBehaviour::Html, GetBehaviour::EmptyStream] {
        let server = Peer::start(Era::Legacy, Wire::Http, |s| {
            s.set_catalog("tools", vec![tool("a", "")]);
            s.set_get(behaviour.clone());
        })
        .await;
        let client = Client::connect(impatient(server.options()))
            .await
            .expect("a connection");
        server.log().wait_for_count("GET", 6).await;
        check_growth(server.log(), "GET");
        wait_for_names(tools(&client), &["a"]).await;
        // It recovers: so does the client.
        server.set_get(GetBehaviour::Hold);
        let live = client.wait_for_stream(|s| matches!(s, StreamState::Live { .. }));
        within("a stream", live).await;
        server.set_catalog("tools", vec![tool("b", "")]);
        server.notify("tools");
        wait_for_names(tools(&client), &["b"]).await;
        client.close().await;
    }
}

#[derive(Default)]
struct Counting(Mutex<usize>);

impl TokenProvider for Counting {
    fn token<'a>(
        &'a self,
        _: TokenReason<'a>,
    ) -> BoxFuture<'a, Result<Option<String>, TokenError>> {
        let mut asked = self.0.lock().expect("no panic");
        *asked += 1;
        let token = format!("token-{asked}");
        Box::pin(async move { Ok(Some(token)) })
    }
}

/// Field report E2: a 401 to the stream asks for credentials, once.
#[tokio::test]
async fn a_challenge_to_the_stream_asks_for_credentials_once() {
    let server = Peer::start(Era::Legacy, Wire::Http, |s| {
        s.set_catalog("tools", vec![tool("a", "")]);
        s.set_get(GetBehaviour::Unauthorized);
    })
    .await;
    let provider = Arc::new(Counting::default());
    let options = with_config(tools_only(server.options()), |c| {
        c.token_provider(provider.clone())
    });
    let client = settled(options).await;
    assert_eq!(client.stream(), StreamState::Unavailable);
    assert_eq!(*provider.0.lock().expect("no panic"), 2);
    let tried = server.log().requests("GET");
    let tokens: Vec<_> = tried.iter().map(|e| e.header("authorization")).collect();
    assert_eq!(tokens, [Some("Bearer token-1"), Some("Bearer token-2")]);
    still_lists(&client, &server).await;
    client.close().await;
}

/// Cases 12 and 13: a subscription that is not acknowledged fails promptly, and
/// is tried again slowly.
#[tokio::test]
async fn a_stream_without_acknowledgment_is_tried_again_slowly() {
    for behaviour in [
        ListenBehaviour::ResultOnly,
        ListenBehaviour::ResultAsJson,
        ListenBehaviour::CancelledOnly,
        ListenBehaviour::EndBeforeAcknowledgment,
    ] {
        let server = Peer::start(Era::Modern, Wire::Http, |s| {
            s.set_catalog("tools", vec![tool("a", "")]);
            s.set_listen(behaviour.clone());
        })
        .await;
        let client = settled(tools_only(server.options())).await;
        assert_eq!(names(tools(&client)), ["a"], "{behaviour:?}");
        let StreamState::Waiting { until } = client.stream() else {
            panic!("{behaviour:?}: {:?}", client.stream());
        };
        // 30 s, less a fifth of jitter; counted from the client's start.
        assert!(until.as_millis() >= 24_000, "{behaviour:?}: {until:?}");
        assert_eq!(server.log().count(LISTEN), 1);
        still_lists(&client, &server).await;
        client.close().await;
    }
}

/// Case 12: slowly, and ever more so.
#[tokio::test]
async fn a_stream_that_is_never_acknowledged_is_tried_ever_more_rarely() {
    let server = Peer::start(Era::Modern, Wire::Http, |s| {
        s.set_listen(ListenBehaviour::ResultOnly);
    })
    .await;
    let client = Client::connect(impatient(server.options()))
        .await
        .expect("a connection");
    server.log().wait_for_count(LISTEN, 6).await;
    check_growth(server.log(), LISTEN);
    client.close().await;
}

/// Case 13: a stream that stays silent does not hold the first list, and is
/// given up.
#[tokio::test]
async fn a_stream_that_stays_silent_holds_nothing_up() {
    for wire in [Wire::Http, Wire::Stdio] {
        let server = Peer::start(Era::Modern, wire, |s| {
            s.set_catalog("tools", vec![tool("a", "")]);
            s.set_listen(ListenBehaviour::Silent);
        })
        .await;
        let options = with_config(tools_only(server.options()), |c| {
            c.request_timeout(Duration::from_millis(1500))
        });
        let client = settled(options).await;
        assert_eq!(names(tools(&client)), ["a"], "{wire:?}");
        assert!(matches!(client.stream(), StreamState::Waiting { .. }));
        client.close().await;
    }
}

/// Case 16: the application sees that the server ended the stream, and the
/// client opens a new one after a pause.
#[tokio::test]
async fn a_stream_that_the_server_ends_is_opened_again_after_a_pause() {
    for wire in [Wire::Http, Wire::Stdio] {
        for ending in [
            Ending::Result,
            Ending::Cancelled,
            Ending::ResultThenCancelled,
            Ending::CancelledThenResult,
        ] {
            let server = Peer::start(Era::Modern, wire, |s| {
                s.set_catalog("tools", vec![tool("a", "")]);
            })
            .await;
            let mut options = server.options();
            options.stream_policy.retry = quick(300);
            let client = settled(options).await;
            let mark = server.log().mark();
            assert_eq!(server.end_listens(ending), 1);
            let seen = client.wait_for_stream(|s| matches!(s, StreamState::Waiting { .. }));
            within("the end to be seen", seen).await;
            assert!(!tools(&client).status().watched, "{wire:?} {ending:?}");
            // Nobody is told of this one.
            server.set_catalog("tools", vec![tool("b", "")]);
            wait_for_names(tools(&client), &["b"]).await;
            let live = client.wait_for_stream(|s| matches!(s, StreamState::Live { .. }));
            within("a new stream", live).await;
            at_rest(tools(&client)).await;
            let last = client.trail().entries();
            let last = last.iter().rfind(|e| e.kind == CatalogKind::Tools);
            assert_eq!(last.map(|e| e.record.trigger), Some(Trigger::StreamOpened));
            assert_eq!(server.log().count_since(mark, LISTEN), 1);
            assert_eq!(server.log().count_since(mark, "tools/list"), 1);
            client.close().await;
        }
    }
}

/// Field report F4: a bare close is a stream that was lost, and is opened again.
#[tokio::test]
async fn a_stream_that_breaks_is_opened_again_in_both_eras() {
    for (era, method) in [(Era::Modern, LISTEN), (Era::Legacy, "GET")] {
        for ending in [Ending::Close, Ending::Cut] {
            let server = Peer::start(era, Wire::Http, |s| {
                s.set_catalog("tools", vec![tool("a", "")]);
            })
            .await;
            let client = settled(impatient(server.options())).await;
            server.log().wait_for_streams(method, 1).await;
            let ended = match era {
                Era::Legacy => server.end_gets(ending),
                _ => server.end_listens(ending),
            };
            assert_eq!(ended, 1);
            server.set_catalog("tools", vec![tool("b", "")]);
            wait_for_names(tools(&client), &["b"]).await;
            server.log().wait_for_streams(method, 1).await;
            assert_eq!(server.log().count(method), 2, "{era:?} {ending:?}");
            client.close().await;
        }
    }
}

/// Case 28: where the server sends keep-alives, a stream that a proxy dropped
/// without a word is found out by their absence.
#[tokio::test]
async fn a_stream_that_a_proxy_dropped_is_found_out_by_missing_keep_alives() {
    for era in [Era::Modern, Era::Legacy] {
        let server = FakeServer::builder()
            .era(era)
            .catalog("tools", vec![tool("a", "")])
            .with(|s| s.set_keep_alive(Duration::from_millis(20)))
            .start()
            .await;
        let proxy = FakeProxy::start(&[server.address()]).await;
        let client = settled(through(&proxy, |c| {
            c.silence_limit(Duration::from_millis(300))
        }))
        .await;
        let live = client.wait_for_stream(|s| matches!(s, StreamState::Live { .. }));
        within("a stream", live).await;
        // A keep-alive has to have been there to be missed.
        let passed = proxy.bytes_down();
        proxy.wait_until(|p| p.bytes_down() > passed + 20).await;
        assert!(proxy.kill_without_fin() > 0);
        server.set_catalog("tools", vec![tool("b", "")]);
        server.notify("tools");
        wait_for_names(tools(&client), &["b"]).await;
        client.close().await;
    }
}

/// Case 28: where there are none, by the lifetime and the next turn.
#[tokio::test]
async fn a_stream_that_a_proxy_dropped_does_not_hide_a_change_from_the_next_turn() {
    let server = FakeServer::builder()
        .catalog("tools", vec![tool("a", "")])
        .ttl_ms(1)
        .start()
        .await;
    let proxy = FakeProxy::start(&[server.address()]).await;
    let mut options = through(&proxy, |c| c.request_timeout(Duration::from_millis(500)));
    options.policy.need_spacing = Duration::ZERO;
    let client = settled(options).await;
    assert!(proxy.kill_without_fin() > 0);
    server.set_catalog("tools", vec![tool("b", "")]);
    server.notify("tools");
    let mut host = Host::new(client.clone());
    within("a turn with the new tool", async {
        while host.begin_turn().await.tools.get("b").is_none() {}
    })
    .await;
    client.close().await;
}

fn through(proxy: &FakeProxy, change: impl FnOnce(ClientConfig) -> ClientConfig) -> Options {
    let target = Target::http(&proxy.url()).expect("the proxy's URL");
    let config = change(ClientConfig::new("relist-behaviour", "1"));
    impatient(Options::new(target, config))
}

/// Field report E3: a refusal of the stream that is opened again leaves calls
/// in flight alone.
#[tokio::test]
async fn a_stream_that_may_not_yet_be_opened_again_disturbs_no_call() {
    let server = Peer::start(Era::Legacy, Wire::Http, |s| {
        s.set_catalog("tools", vec![tool("slow", "")]);
    })
    .await;
    let client = settled(impatient(server.options())).await;
    server.log().wait_for_streams("GET", 1).await;
    let gate = server.gate("tools/call", 1);
    let calling = tokio::spawn({
        let client = client.clone();
        async move {
            client
                .call_tool("slow", Map::new(), CallOptions::default())
                .await
        }
    });
    within("the call", gate.reached()).await;
    server.fail("GET", 3, Fault::status(409));
    assert_eq!(server.end_gets(Ending::Cut), 1);
    server.log().wait_for_count("GET", 5).await;
    server.log().wait_for_streams("GET", 1).await;
    gate.release();
    let result = within("the result", calling).await.expect("no panic");
    result.expect("a result");
    assert_eq!(server.log().count("tools/call"), 1);
    assert_eq!(server.log().count("initialize"), 1);
    client.close().await;
}

/// Field report E4: our server's stream stands a proxy that holds a response
/// back until its first byte and cuts what is idle.
#[tokio::test]
async fn a_stream_outlives_a_proxy_that_buffers_and_cuts_what_is_idle() {
    use relist_protocol::message::Implementation;
    use relist_server::{CatalogOptions, HttpOptions, Server};
    let item = |name: &str| {
        relist_catalog::Item::from_value(CatalogKind::Tools, &tool(name, "")).expect("a tool")
    };
    let server = Server::builder(Implementation::new("pair", "1"))
        .catalog(CatalogKind::Tools, CatalogOptions::default())
        .item(CatalogKind::Tools, &item("a"))
        .build()
        .expect("a server");
    let listener = relist_server::bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let address = listener.local_addr().expect("bound");
    let options = HttpOptions::default().keep_alive(Duration::from_millis(100));
    let serving = server.clone();
    tokio::spawn(async move {
        serving
            .serve_http(listener, options, std::future::pending())
            .await
    });
    for era in [relist_protocol::Era::Modern, relist_protocol::Era::Legacy] {
        let proxy = FakeProxy::start(&[address]).await;
        proxy.set_buffering(true);
        proxy.set_idle_cut(Duration::from_secs(1));
        let mut options = through(&proxy, |c| c.only_era(era));
        options.kinds = vec![CatalogKind::Tools];
        // The first list would otherwise not wait for a stream that is held back.
        let client = settled(options).await;
        let live = client.wait_for_stream(|s| matches!(s, StreamState::Live { .. }));
        within("a stream", live).await;
        let opened = client.stream();
        // Longer than the proxy lets anything idle: told by the comments.
        let (passed, comment) = (proxy.bytes_down(), 3);
        let thirty = passed + 30 * comment;
        proxy.wait_until(|p| p.bytes_down() > thirty).await;
        assert_eq!(client.stream(), opened, "{era:?}: the same stream");
        let name = format!("for-{era:?}");
        let added = item(&name);
        server
            .commit(|edit| edit.upsert(CatalogKind::Tools, added))
            .expect("a commit");
        let known = tools(&client);
        within("the change", async {
            let mut changes = known.changes();
            while !names(known).contains(&name) {
                changes.next().await.expect("open");
            }
        })
        .await;
        assert_eq!(client.stream(), opened, "{era:?}: the same stream");
        client.close().await;
    }
}

/// Field report E5: push that is lost is said, and a change is noticed without
/// it; a session that is gone is replaced once.
#[tokio::test]
async fn lost_push_is_said_and_polling_takes_over() {
    let server = Peer::start(Era::Legacy, Wire::Http, |s| {
        s.set_catalog("tools", vec![tool("a", "")]);
    })
    .await;
    let mut options = impatient(server.options());
    options.policy.poll = Some(Duration::from_millis(50));
    let client = settled_polling(options).await;
    server.log().wait_for_streams("GET", 1).await;
    server.fail_always("GET", Fault::status(500));
    server.end_gets(Ending::Cut);
    server.log().wait_for_count("GET", 4).await;
    let waiting = client.wait_for_stream(|s| matches!(s, StreamState::Waiting { .. }));
    within("push to be lost", waiting).await;
    assert!(!tools(&client).status().watched);
    server.set_catalog("tools", vec![tool("b", "")]);
    wait_for_names(tools(&client), &["b"]).await;
    let mark = server.log().mark();
    server.set_catalog("tools", vec![tool("c", "")]);
    server.expire_session();
    wait_for_names(tools(&client), &["c"]).await;
    assert_eq!(server.log().count_since(mark, "initialize"), 1);
    assert_eq!(client.epoch().map(|e| e.0), Some(2));
    client.close().await;
}

async fn settled_polling(options: Options) -> Client {
    let client = Client::connect(options).await.expect("a connection");
    let listed = tools(&client).wait_for(|s| s.last_success.is_some());
    within("a first list", listed).await;
    client
}

/// Field report F3: a subscription that is refused, or of which nothing is
/// granted, is said to be none; connecting succeeds, polling takes over.
#[tokio::test]
async fn a_refused_subscription_is_visible_and_polling_takes_over() {
    for behaviour in [
        ListenBehaviour::Error(RpcError::new(-32601, "no")),
        ListenBehaviour::Error(RpcError::new(-32602, "no")),
        ListenBehaviour::Status(403),
        ListenBehaviour::AcknowledgeNothing,
        ListenBehaviour::AcknowledgeAs(json!({"promptsListChanged": true})),
    ] {
        for wire in [Wire::Http, Wire::Stdio] {
            if wire == Wire::Stdio && behaviour == ListenBehaviour::Status(403) {
                continue;
            }
            let server = Peer::start(Era::Modern, wire, |s| {
                s.set_catalog("tools", vec![tool("a", "")]);
                s.set_listen(behaviour.clone());
            })
            .await;
            let mut options = server.options();
            options.kinds = vec![CatalogKind::Tools, CatalogKind::Prompts];
            options.policy.poll = Some(Duration::from_millis(50));
            let client = settled_polling(options).await;
            let decided = client.wait_for_stream(|s| {
                matches!(s, StreamState::Unavailable | StreamState::Live { .. })
            });
            within("a decision", decided).await;
            assert!(!tools(&client).status().watched, "{behaviour:?} {wire:?}");
            server.set_catalog("tools", vec![tool("b", "")]);
            wait_for_names(tools(&client), &["b"]).await;
            assert_eq!(server.log().count(LISTEN), 1, "{behaviour:?} {wire:?}");
            client.close().await;
        }
    }
}

/// Field report F6: a server that hints at nothing is not asked to, and one
/// that grants nothing is not asked again.
#[tokio::test]
async fn a_server_that_hints_at_nothing_is_not_listened_to() {
    for wire in [Wire::Http, Wire::Stdio] {
        let server = Peer::start(Era::Modern, wire, |s| {
            s.set_capabilities(json!({"tools": {}, "prompts": {"listChanged": false}}));
        })
        .await;
        let client = settled_polling(server.options()).await;
        assert_eq!(client.stream(), StreamState::Off, "{wire:?}");
        assert_eq!(server.log().count(LISTEN), 0);
        client.close().await;

        let server = Peer::start(Era::Modern, wire, |s| {
            s.set_listen(ListenBehaviour::AcknowledgeNothing);
        })
        .await;
        let client = settled_polling(server.options()).await;
        let decided = client.wait_for_stream(|s| s == StreamState::Unavailable);
        within("a decision", decided).await;
        // The state has no timer: nothing but a new connection asks again.
        assert_eq!(server.log().count(LISTEN), 1, "{wire:?}");
        client.close().await;
    }
}

/// Field report K2: each era of the client's against each of the server's, and
/// what went over the wire.
#[tokio::test]
async fn each_era_meets_each() {
    use relist_protocol::Era as Speaks;
    let cells = [
        (None, Era::Modern, true),
        (None, Era::Legacy, true),
        (None, Era::Dual, true),
        (Some(Speaks::Modern), Era::Modern, true),
        (Some(Speaks::Modern), Era::Dual, true),
        (Some(Speaks::Modern), Era::Legacy, false),
        (Some(Speaks::Legacy), Era::Legacy, true),
        (Some(Speaks::Legacy), Era::Dual, true),
        (Some(Speaks::Legacy), Era::Modern, false),
    ];
    for wire in [Wire::Http, Wire::Stdio] {
        for (speaks, era, works) in cells {
            let what = format!("{speaks:?} against {era:?} over {wire:?}");
            let server = Peer::start(era, wire, |s| {
                s.set_catalog("tools", vec![tool("a", "")]);
            })
            .await;
            let mut options = with_config(server.options(), |c| match speaks {
                Some(era) => c.only_era(era),
                None => c,
            });
            options.kinds = vec![CatalogKind::Tools];
            if !works {
                let connected = within(&what, Client::connect(options)).await;
                let error = connected.expect_err(&what).to_string();
                let reason = match speaks {
                    Some(Speaks::Modern) => "`server/discover` failed",
                    _ => "no common protocol version: the server speaks 2026-07-28",
                };
                assert!(error.contains(reason), "{what}: {error}");
                continue;
            }
            let client = settled(options).await;
            let modern = match era {
                Era::Modern => true,
                Era::Legacy => false,
                Era::Dual => speaks != Some(Speaks::Legacy),
            };
            client
                .call_tool("a", Map::new(), CallOptions::default())
                .await
                .expect(&what);
            server.set_catalog("tools", vec![tool("b", "")]);
            server.notify("tools");
            wait_for_names(tools(&client), &["b"]).await;
            let sent = |method| server.log().count(method);
            if modern {
                assert_eq!((sent("initialize"), sent(LISTEN)), (0, 1), "{what}");
                assert_eq!(sent("server/discover"), 1, "{what}");
            } else {
                let probes = usize::from(speaks.is_none());
                assert_eq!(sent("server/discover"), probes, "{what}");
                assert_eq!(sent("initialize"), 1, "{what}");
                assert_eq!(sent("notifications/initialized"), 1, "{what}");
                assert_eq!(sent(LISTEN), 0, "{what}");
                assert_eq!(sent("GET"), usize::from(wire == Wire::Http), "{what}");
            }
            assert_eq!((sent("tools/list"), sent("tools/call")), (2, 1), "{what}");
            client.close().await;
        }
    }
}

/// The verdict about a server's era is remembered.
#[tokio::test]
async fn a_client_that_comes_back_needs_no_probe() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, |s| {
            s.set_catalog("tools", vec![tool("a", "")]);
        })
        .await;
        let client = settled(server.options()).await;
        let mark = server.log().mark();
        client.reconnect().await;
        assert!(within("a new connection", client.wait_for_epoch(2)).await);
        at_rest(tools(&client)).await;
        let probes = server.log().count_since(mark, "server/discover");
        assert_eq!(probes, usize::from(era == Era::Modern), "{era:?} {wire:?}");
        client.close().await;
    }
}

/// A server that comes up late is found.
#[tokio::test]
async fn a_server_that_comes_up_late_is_found() {
    let server = FakeServer::builder()
        .catalog("tools", vec![tool("a", "")])
        .start()
        .await;
    let proxy = FakeProxy::start(&[server.address()]).await;
    proxy.refuse(usize::MAX);
    let mut late = options(&server);
    late.target = Target::http(&proxy.url()).expect("the proxy's URL");
    late.reconnect = quick(20);
    let client = Client::start(late);
    proxy.wait_until(|p| p.refused() >= 3).await;
    assert!(tools(&client).view().is_none());
    proxy.refuse(0);
    wait_for_names(tools(&client), &["a"]).await;
    client.close().await;
}
