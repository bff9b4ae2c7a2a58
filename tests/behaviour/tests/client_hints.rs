//! The client and hints: repeated, early, late, undeclared, lost in a handshake.

use std::time::Duration;

use relist_behaviour::{
    CELLS, PATIENCE, Peer, Wire, at_rest, names, settled, tool, tools, wait_for_names, within,
};
use relist_client::call::CallOptions;
use relist_client::client::Client;
use relist_client::host::Host;
use relist_fixture::{Era, GetBehaviour, HintStyle, Reply, Script};
use relist_freshness::policy::Backoff;
use relist_freshness::record::{RefreshRecord, Trigger};
use relist_protocol::CatalogKind;
use serde_json::{Map, Value, json};

const CHANGED: &str = "notifications/tools/list_changed";

fn resource(uri: &str) -> Value {
    json!({"uri": uri, "name": uri})
}

fn records(client: &Client, kind: CatalogKind) -> Vec<RefreshRecord> {
    let entries = client.trail().entries();
    let mine = entries.into_iter().filter(|e| e.kind == kind);
    mine.map(|e| e.record).collect()
}

/// Field report A1: each kind of hint is acted upon, over each transport.
#[tokio::test]
async fn a_hint_about_one_list_does_not_hide_one_about_another() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, |s| {
            s.set_catalog("tools", vec![tool("trigger", "")]);
            s.set_catalog("resources", vec![resource("r://r")]);
            s.on_call("trigger", |call| {
                let server = call.server();
                server.set_catalog("tools", vec![tool("trigger", ""), tool("b", "")]);
                server.set_catalog("resources", vec![resource("r://r"), resource("r://s")]);
                server.notify("tools");
                server.notify("resources");
                json!({"resultType": "complete", "content": []})
            });
        })
        .await;
        let client = settled(server.options()).await;
        let mark = server.log().mark();
        let call = client.call_tool("trigger", Map::new(), CallOptions::default());
        within("the call", call).await.expect("a result");
        wait_for_names(tools(&client), &["trigger", "b"]).await;
        let resources = client.catalog(CatalogKind::Resources).expect("kept");
        wait_for_names(resources, &["r://r", "r://s"]).await;
        for method in ["tools/list", "resources/list"] {
            assert_eq!(
                server.log().count_since(mark, method),
                1,
                "{era:?} {wire:?} {method}"
            );
        }
        assert_eq!(server.log().count_since(mark, "prompts/list"), 0);
        client.close().await;
    }
}

/// Field report A3: a tool that a call adds is offered at the next turn; the
/// turn that made the call keeps its list.
#[tokio::test]
async fn a_tool_that_a_call_adds_is_there_at_the_next_turn() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, |s| {
            s.set_catalog("tools", vec![tool("grow", "")]);
            s.on_call("grow", |call| {
                call.server()
                    .set_catalog("tools", vec![tool("grow", ""), tool("grown", "")]);
                call.server().notify("tools");
                json!({"resultType": "complete", "content": []})
            });
        })
        .await;
        let client = settled(server.options()).await;
        let mut host = Host::new(client.clone());
        let first = host.begin_turn().await;
        first
            .call("grow", Map::new(), CallOptions::default())
            .await
            .expect("a result");
        assert_eq!(first.tools.tools.len(), 1);
        wait_for_names(tools(&client), &["grow", "grown"]).await;
        let second = host.begin_turn().await;
        assert!(second.tools.get("grown").is_some(), "{era:?} {wire:?}");
        assert_eq!(
            second.note.as_deref(),
            Some("The available tools changed: 1 added (grown).")
        );
        client.close().await;
    }
}

/// Case 18, field report A4: a hint that the server never declared is one.
#[tokio::test]
async fn a_hint_that_was_not_declared_is_taken_as_one() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, |s| {
            s.set_capabilities(json!({"tools": {}, "prompts": {"listChanged": true}}));
            s.set_catalog("tools", vec![tool("a", "")]);
            s.set_hint_style(HintStyle {
                ignore_filter: true,
                ..HintStyle::default()
            });
        })
        .await;
        let client = settled(server.options()).await;
        server.set_catalog("tools", vec![tool("b", "")]);
        assert_eq!(server.notify("tools"), 1, "{era:?} {wire:?}");
        wait_for_names(tools(&client), &["b"]).await;
        client.close().await;
    }
}

/// Case 18: even where no stream of hints could be opened, on the answer to
/// something else or on a pipe.
#[tokio::test]
async fn a_hint_outside_any_stream_is_taken_as_one() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, |s| {
            s.set_capabilities(json!({"tools": {}}));
            s.set_get(GetBehaviour::Status(405));
            s.set_catalog("tools", vec![tool("change", "")]);
            s.on_call("change", |call| {
                call.server().set_catalog("tools", vec![tool("b", "")]);
                let hint = json!({"jsonrpc": "2.0", "method": CHANGED});
                let done = json!({"resultType": "complete", "content": []});
                Reply::events(vec![hint], done)
            });
        })
        .await;
        let client = settled(server.options()).await;
        client
            .call_tool("change", Map::new(), CallOptions::default())
            .await
            .expect("a result");
        wait_for_names(tools(&client), &["b"]).await;
        client.close().await;
    }
}

/// Case 3: hints that arrive inside one call cost at most two walks.
#[tokio::test]
async fn two_hundred_hints_inside_one_call_are_at_most_two_walks() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, |s| {
            s.set_catalog("tools", vec![tool("storm", "")]);
            s.on_call("storm", |call| {
                for n in 0..200 {
                    let name = format!("t{n:03}");
                    call.server()
                        .set_catalog("tools", vec![tool("storm", ""), tool(&name, "")]);
                    call.server().notify("tools");
                }
                json!({"resultType": "complete", "content": []})
            });
        })
        .await;
        let client = settled(server.options()).await;
        let mark = server.log().mark();
        client
            .call_tool("storm", Map::new(), CallOptions::default())
            .await
            .expect("a result");
        wait_for_names(tools(&client), &["storm", "t199"]).await;
        at_rest(tools(&client)).await;
        let walks = server.log().count_since(mark, "tools/list");
        assert!((1..=2).contains(&walks), "{era:?} {wire:?}: {walks}");
        client.close().await;
    }
}

/// Field report C5: a burst during a list is one list more, begun after the
/// last of the burst.
#[tokio::test]
async fn a_burst_during_a_list_is_one_list_more() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, |s| {
            s.set_catalog("tools", vec![tool("a", "")]);
        })
        .await;
        let client = settled(server.options()).await;
        let mark = server.log().mark();
        let gate = server.gate("tools/list", 1);
        server.notify("tools");
        within("the first list", gate.reached()).await;
        for n in 0..200 {
            server.set_catalog("tools", vec![tool(&format!("t{n:03}"), "")]);
            server.notify("tools");
        }
        gate.release();
        wait_for_names(tools(&client), &["t199"]).await;
        at_rest(tools(&client)).await;
        // The held one, and one more that may itself have met the burst's end.
        let walks = server.log().count_since(mark, "tools/list");
        assert!((2..=3).contains(&walks), "{era:?} {wire:?}: {walks}");
        assert_eq!(server.log().max_in_flight("tools/list"), 1);
        client.close().await;
    }
}

/// Case 7: a hint that lands after the last page was read, and before the
/// snapshot is adopted, is one more walk.
#[tokio::test]
async fn a_hint_after_the_last_page_is_one_more_walk() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, |s| {
            s.set_catalog("tools", vec![tool("a", ""), tool("b", "")]);
            s.set_page_size("tools", 1);
        })
        .await;
        let client = settled(server.options()).await;
        let mark = server.log().mark();
        // The answer is made, and held: a commit now is not in it.
        let gate = server.gate_when("tools/list", |r| r["params"]["cursor"] == "offset:1");
        server.notify("tools");
        within("the last page", gate.reached()).await;
        server.set_catalog("tools", vec![tool("a", ""), tool("c", "")]);
        server.notify("tools");
        gate.release();
        wait_for_names(tools(&client), &["a", "c"]).await;
        at_rest(tools(&client)).await;
        let pages = server.log().count_since(mark, "tools/list");
        assert_eq!(pages, 4, "{era:?} {wire:?}: two walks of two pages");
        client.close().await;
    }
}

/// Case 6, field report C6: a hint that comes before the change is visible.
#[tokio::test]
async fn a_change_that_comes_after_its_hint_is_found_by_a_second_look() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, |s| {
            s.set_catalog("tools", vec![tool("a", "")]);
        })
        .await;
        let mut options = server.options();
        options.policy.second_look = Some(Duration::from_millis(300));
        let client = settled(options).await;
        let mark = server.log().mark();
        server.notify("tools");
        let answers = server.log().responses("tools/list").len();
        server
            .log()
            .wait_for_answers("tools/list", answers + 1)
            .await;
        server.set_catalog("tools", vec![tool("b", "")]);
        wait_for_names(tools(&client), &["b"]).await;
        at_rest(tools(&client)).await;
        assert_eq!(server.log().count_since(mark, "tools/list"), 2);
        let last = records(&client, CatalogKind::Tools)
            .pop()
            .expect("a record");
        assert_eq!(last.trigger, Trigger::SecondLook, "{era:?} {wire:?}");
        client.close().await;
    }
}

/// Case 6: without a second look, the next turn after the lifetime sees it.
#[tokio::test]
async fn a_change_that_comes_after_its_hint_is_found_by_expiry_and_turn() {
    let server = Peer::start(Era::Modern, Wire::Http, |s| {
        s.set_catalog("tools", vec![tool("a", "")]);
        s.set_field("tools", "ttlMs", json!(1));
    })
    .await;
    let mut options = server.options();
    options.policy.second_look = None;
    options.policy.need_spacing = Duration::ZERO;
    let client = settled(options).await;
    let answers = server.log().responses("tools/list").len();
    server.notify("tools");
    server
        .log()
        .wait_for_answers("tools/list", answers + 1)
        .await;
    at_rest(tools(&client)).await;
    server.set_catalog("tools", vec![tool("b", "")]);
    let mut host = Host::new(client.clone());
    within("a turn with the new tool", async {
        while host.begin_turn().await.tools.get("b").is_none() {}
    })
    .await;
    client.close().await;
}

/// Field report C4: the list that follows a hint does not stand in the way of
/// an answer that is under way on the same pipe.
#[tokio::test]
async fn a_hint_during_a_call_holds_neither_the_call_nor_the_list() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, |s| {
            s.set_catalog("tools", vec![tool("slow", "")]);
        })
        .await;
        let client = settled(server.options()).await;
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
        server.set_catalog("tools", vec![tool("slow", ""), tool("b", "")]);
        server.notify("tools");
        wait_for_names(tools(&client), &["slow", "b"]).await;
        assert_eq!(server.log().in_flight("tools/call"), 1, "{era:?} {wire:?}");
        // And the other way round: a list that is held, and a call that ends.
        let held = server.gate("tools/list", 1);
        server.notify("tools");
        within("a list", held.reached()).await;
        gate.release();
        within("the result", calling)
            .await
            .expect("no panic")
            .expect("a result");
        held.release();
        at_rest(tools(&client)).await;
        client.close().await;
    }
}

/// Field report C7: a stray hint before the answer to `initialize` is skipped,
/// and the handshake succeeds.
#[tokio::test]
async fn a_hint_before_the_handshake_is_over_does_no_harm() {
    for wire in [Wire::Http, Wire::Stdio] {
        let server = Peer::start(Era::Legacy, wire, |s| {
            s.set_catalog("tools", vec![tool("a", "")]);
            let log = json!({"jsonrpc": "2.0", "method": "notifications/message",
                "params": {"level": "info", "data": "starting"}});
            s.set_before_initialize(vec![json!({"jsonrpc": "2.0", "method": CHANGED}), log]);
        })
        .await;
        let client = settled(server.options()).await;
        assert_eq!(names(tools(&client)), ["a"], "{wire:?}");
        assert_eq!(server.log().count("initialize"), 1);
        client.close().await;
    }
}

/// Field report C8: what a hint had set in motion does not reach over to the
/// next connection.
#[tokio::test]
async fn a_hint_that_waits_dies_with_its_connection() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, |s| {
            s.set_catalog("tools", vec![tool("old", "")]);
        })
        .await;
        let mut options = server.options();
        options.policy.hint_delay = Duration::from_secs(3600);
        let client = settled(options).await;
        server.notify("tools");
        let due = tools(&client).wait_for(|s| s.next_refresh.is_some());
        within("the hint to wait", due).await;
        server.set_catalog("tools", vec![tool("new", "")]);
        let mark = server.log().mark();
        client.reconnect().await;
        assert!(within("a new connection", client.wait_for_epoch(2)).await);
        wait_for_names(tools(&client), &["new"]).await;
        at_rest(tools(&client)).await;
        assert_eq!(
            server.log().count_since(mark, "tools/list"),
            1,
            "{era:?} {wire:?}"
        );
        let last = records(&client, CatalogKind::Tools)
            .pop()
            .expect("a record");
        assert_eq!((last.trigger, last.epoch.0), (Trigger::Connected, 2));
        client.close().await;
    }
}

/// The time from each start to the next, of refreshes that hints caused.
fn pauses(client: &Client) -> Vec<Duration> {
    let mut starts = records(client, CatalogKind::Tools);
    starts.retain(|r| r.trigger == Trigger::Hint);
    starts
        .windows(2)
        .map(|pair| pair[1].started - pair[0].started)
        .collect()
}

fn without_jitter(script: &Peer, first: u64) -> relist_client::client::Options {
    let mut options = script.options();
    options.policy.second_look = None;
    options.policy.hint_spacing = Duration::from_millis(first);
    options.policy.idle_hint_spacing = Backoff {
        first: Duration::from_millis(first),
        cap: Duration::from_millis(8 * first),
        jitter: 0,
    };
    options
}

/// Case 4: a server that hints whenever it is listed is not listed without
/// pause, and a change that is real is seen.
#[tokio::test]
async fn a_server_that_hints_whenever_it_is_listed_is_not_listed_without_pause() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, |s| {
            s.set_catalog("tools", vec![tool("a", "")]);
            s.set_notify_on_list("tools", true);
        })
        .await;
        let client = Client::connect(without_jitter(&server, 20))
            .await
            .expect("a connection");
        server.log().wait_for_count("tools/list", 7).await;
        server.set_catalog("tools", vec![tool("b", "")]);
        wait_for_names(tools(&client), &["b"]).await;
        check_growth(&pauses(&client), 20, &format!("{era:?} {wire:?}"));
        client.close().await;
    }
}

/// Pauses after hints that announced nothing are at least 20, 20, 40, 80, … ms.
fn check_growth(pauses: &[Duration], first: u64, what: &str) {
    assert!(pauses.len() >= 4, "{what}: {pauses:?}");
    for (n, pause) in pauses.iter().enumerate() {
        let least = first << u32::try_from(n).unwrap_or(0).min(3);
        assert!(
            *pause >= Duration::from_millis(least),
            "{what}: pause {n} of {pauses:?} is less than {least} ms"
        );
    }
}

/// Case 5: hints without any change, again and again, are looked into ever
/// more rarely.
#[tokio::test]
async fn hints_without_a_change_are_looked_into_ever_more_rarely() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, |s| {
            s.set_catalog("tools", vec![tool("a", "")]);
        })
        .await;
        let client = settled(without_jitter(&server, 20)).await;
        let script: Script = (*server).clone();
        let hinting = tokio::spawn(async move {
            loop {
                script.notify("tools");
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        });
        server.log().wait_for_count("tools/list", 7).await;
        hinting.abort();
        at_rest(tools(&client)).await;
        check_growth(&pauses(&client), 20, &format!("{era:?} {wire:?}"));
        client.close().await;
    }
}

/// Case 20: an empty list is adopted as what the server said, and looked at
/// again with growing pauses where no hint can come.
#[tokio::test]
async fn an_empty_list_is_looked_at_again_where_no_hint_can_come() {
    for era in [Era::Modern, Era::Legacy] {
        let server = Peer::start(era, Wire::Http, |s| {
            s.set_capabilities(json!({"tools": {}}));
            s.set_get(GetBehaviour::Status(405));
        })
        .await;
        let mut options = server.options();
        options.policy.empty_look = Backoff {
            first: Duration::from_millis(20),
            cap: Duration::from_millis(80),
            jitter: 0,
        };
        let client = Client::connect(options).await.expect("a connection");
        server.log().wait_for_answers("tools/list", 4).await;
        let view = tools(&client).view().expect("an empty list is a list");
        assert!(view.snapshot.is_empty());
        server.set_catalog("tools", vec![tool("a", "")]);
        wait_for_names(tools(&client), &["a"]).await;
        at_rest(tools(&client)).await;
        let looks = records(&client, CatalogKind::Tools);
        let looks: Vec<&RefreshRecord> = looks.iter().skip(1).collect();
        assert!(looks.iter().all(|r| r.trigger == Trigger::EmptyLook));
        for (n, pair) in looks.windows(2).enumerate() {
            let least = Duration::from_millis((40 << n.min(1)).min(80));
            let pause = pair[1].started - pair[0].finished;
            assert!(pause >= least, "{era:?}: pause {n} is {pause:?}");
        }
        client.close().await;
    }
}

/// Case 20: where hints can come, an empty list is not asked for again.
#[tokio::test]
async fn an_empty_list_that_is_watched_is_not_asked_for_again() {
    let server = Peer::start(Era::Modern, Wire::Http, |s| {
        s.set_field("tools", "ttlMs", json!(60_000));
    })
    .await;
    let client = settled(server.options()).await;
    assert_eq!(server.log().count("tools/list"), 1);
    assert_eq!(tools(&client).status().next_refresh, None);
    let view = tools(&client).fresh(relist_freshness::catalog::Need::Turn, PATIENCE);
    assert!(view.await.expect("fresh").snapshot.is_empty());
    assert_eq!(server.log().count("tools/list"), 1);
    client.close().await;
}
