//! The client and the lists themselves: pages, lifetimes, ids, order, names.

use std::collections::BTreeSet;
use std::time::Duration;

use relist_behaviour::{
    CELLS, PATIENCE, Peer, Wire, at_rest, names, settled, tool, tools, wait_for_names, within,
};
use relist_client::call::CallOptions;
use relist_client::client::{Client, Options};
use relist_client::host::Host;
use relist_fixture::{CursorPolicy, Era, FakeServer, Fault, Field, Reply};
use relist_freshness::catalog::{Phase, Unavailable};
use relist_freshness::record::{Failure, Outcome, RefreshRecord};
use relist_freshness::walk::WalkFault;
use relist_protocol::CatalogKind;
use relist_protocol::list::CacheScope;
use serde_json::{Map, Value, json};

fn tools_only(mut options: Options) -> Options {
    options.kinds = vec![CatalogKind::Tools];
    options
}

fn two_pages(script: &relist_fixture::Script) {
    script.set_catalog("tools", vec![tool("a", ""), tool("b", "")]);
    script.set_page_size("tools", 1);
}

fn last(client: &Client) -> RefreshRecord {
    let entries = client.trail().entries();
    let mine = entries.into_iter().filter(|e| e.kind == CatalogKind::Tools);
    mine.last().expect("a record").record
}

/// Case 22: the shortest lifetime, the strictest scope, nonsense is zero.
#[tokio::test]
async fn lifetime_and_scope_of_several_pages() {
    let pages = |a: Value, b: Value| Field::from(vec![Some(a), Some(b)]);
    let cases = [
        (
            pages(json!(9000), json!(5000)),
            pages(json!("public"), json!("public")),
            5000,
            CacheScope::Public,
        ),
        (
            pages(json!(5000), json!(9000)),
            pages(json!("public"), json!("private")),
            5000,
            CacheScope::Private,
        ),
        (
            pages(json!(5000), json!(9000)),
            pages(json!("private"), json!("public")),
            5000,
            CacheScope::Private,
        ),
        (
            Field::from(vec![Some(json!(5000)), None]),
            Field::from(vec![Some(json!("public")), None]),
            0,
            CacheScope::Private,
        ),
        (Field::Absent, Field::Absent, 0, CacheScope::Private),
        (
            json!(-1).into(),
            json!("public").into(),
            0,
            CacheScope::Public,
        ),
        (
            json!(1.5).into(),
            json!("Public").into(),
            0,
            CacheScope::Private,
        ),
        (
            json!("60000").into(),
            json!("shared").into(),
            0,
            CacheScope::Private,
        ),
        (json!(null).into(), json!(7).into(), 0, CacheScope::Private),
        (
            pages(json!(60_000), json!("x")),
            json!("public").into(),
            0,
            CacheScope::Public,
        ),
        (
            json!(86_400_001).into(),
            json!("public").into(),
            86_400_000,
            CacheScope::Public,
        ),
        (
            json!(u64::MAX).into(),
            json!("").into(),
            86_400_000,
            CacheScope::Private,
        ),
    ];
    for (ttl, scope, millis, expected) in cases {
        let what = format!("{ttl:?} {scope:?}");
        let server = Peer::start(Era::Modern, Wire::Http, |s| {
            two_pages(s);
            s.set_field("tools", "ttlMs", ttl.clone());
            s.set_field("tools", "cacheScope", scope.clone());
        })
        .await;
        let client = settled(tools_only(server.options())).await;
        let view = tools(&client).view().expect("a list");
        assert_eq!(view.snapshot.len(), 2, "{what}");
        assert_eq!(view.hints.ttl, Duration::from_millis(millis), "{what}");
        assert_eq!(view.hints.scope, expected, "{what}");
        client.close().await;
    }
}

/// Case 30: a definition that changes under its name is a change, and said
/// field by field.
#[tokio::test]
async fn a_definition_that_changes_under_its_name_is_a_change() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, |s| {
            s.set_catalog("tools", vec![tool("a", "reads"), tool("b", "")]);
        })
        .await;
        let client = settled(server.options()).await;
        let mut host = Host::new(client.clone());
        let before = host.begin_turn().await.tools.version;
        let mut changes = tools(&client).changes();
        let mut deletes = tool("a", "deletes");
        deletes["annotations"] = json!({"readOnlyHint": true});
        server.set_catalog("tools", vec![deletes, tool("b", "")]);
        server.notify("tools");
        let changed = within("the change", changes.next()).await.expect("open");
        assert!(changed.change.added.is_empty() && changed.change.removed.is_empty());
        let [item] = changed.change.changed.as_slice() else {
            panic!("{era:?} {wire:?}: {:?}", changed.change);
        };
        assert_eq!(item.key.as_str(), "a");
        assert_eq!(item.fields, ["annotations", "description"]);
        let turn = host.begin_turn().await;
        assert_ne!(turn.tools.version, before);
        assert_eq!(
            turn.note.as_deref(),
            Some("The available tools changed: 1 changed (a: annotations, description).")
        );
        client.close().await;
    }
}

/// Case 27: an id that comes back as a double is the same id; one that comes
/// back as a string is refused, and never meets another request.
#[tokio::test]
async fn ids_that_come_back_in_another_form_cross_nothing() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, |s| {
            s.set_catalog("tools", vec![tool("a", "")]);
        })
        .await;
        let client = settled(server.options()).await;
        server.fail("tools/list", 1, Fault::IdAsFloat);
        tools(&client).refresh(PATIENCE).await.expect("a list");
        // The other list in flight keeps its own answer.
        let gate = server.gate("prompts/list", 1);
        let prompts = client.catalog(CatalogKind::Prompts).expect("kept").clone();
        let other = tokio::spawn(async move { prompts.refresh(PATIENCE).await });
        within("the other request", gate.reached()).await;
        server.fail("tools/list", 1, Fault::IdAsText);
        let error = tools(&client).refresh(PATIENCE).await.expect_err("refused");
        assert!(
            error.to_string().contains("id"),
            "{era:?} {wire:?}: {error}"
        );
        assert_eq!(names(tools(&client)), ["a"]);
        gate.release();
        let list = within("the other list", other).await.expect("no panic");
        assert!(list.expect("its own answer").snapshot.is_empty());
        client.close().await;
    }
}

/// Case 2, field report D3: cursors that are always new do not keep a client
/// busy for ever, and what was good stays.
#[tokio::test]
async fn cursors_that_are_always_new_end_in_an_error() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, two_pages).await;
        let client = settled(server.options()).await;
        assert_eq!(names(tools(&client)), ["a", "b"]);
        server.set_cursor_policy("tools", CursorPolicy::AlwaysNew);
        let mark = server.log().mark();
        tools(&client).refresh(PATIENCE).await.expect_err("no end");
        assert_eq!(names(tools(&client)), ["a", "b"]);
        let outcome = last(&client).outcome;
        let Outcome::Failed(Failure::Walk(WalkFault::NothingNew { pages })) = outcome else {
            panic!("{era:?} {wire:?}: {outcome:?}");
        };
        assert!(server.log().count_since(mark, "tools/list") <= pages + 1);
        assert!(pages <= 10, "{pages}");
        client.close().await;
    }
}

/// Field report D3: a list without end whose items are new as well.
#[tokio::test]
async fn a_list_that_grows_without_end_is_bounded() {
    let server = Peer::start(Era::Modern, Wire::Http, |s| {
        s.respond("tools/list", |request| {
            let page: u64 = request["params"]["cursor"]
                .as_str()
                .map_or(0, |c| c.parse().unwrap_or(0));
            let next = (page + 1).to_string();
            Some(
                json!({"resultType": "complete", "tools": [tool(&format!("t{page}"), "")],
                "nextCursor": next, "ttlMs": 0, "cacheScope": "private"}),
            )
        });
    })
    .await;
    let mut options = tools_only(server.options());
    options.policy.max_pages = 25;
    let client = Client::connect(options).await.expect("a connection");
    let failed = tools(&client).wait_for(|s| s.failures > 0);
    within("a failure", failed).await;
    assert!(tools(&client).view().is_none());
    assert_eq!(
        last(&client).outcome,
        Outcome::Failed(Failure::Walk(WalkFault::TooManyPages { limit: 25 }))
    );
    client.close().await;
}

/// Field report D6: a cursor that is refused drops all pages and starts the
/// walk over, once.
#[tokio::test]
async fn a_refused_cursor_starts_the_walk_over_once() {
    for (era, wire) in CELLS {
        let server = Peer::start(era, wire, |s| {
            two_pages(s);
            s.set_cursor_policy("tools", CursorPolicy::GenerationBound);
        })
        .await;
        let client = settled(server.options()).await;
        let mark = server.log().mark();
        let gate = server.gate("tools/list", 1);
        let refreshing = tokio::spawn({
            let handle = tools(&client).clone();
            async move { handle.refresh(PATIENCE).await }
        });
        within("the first page", gate.reached()).await;
        server.set_catalog("tools", vec![tool("c", ""), tool("d", "")]);
        gate.release();
        let view = within("the list", refreshing).await.expect("no panic");
        assert_eq!(view.expect("a list").snapshot.len(), 2);
        // None of the dropped first page is left.
        assert_eq!(names(tools(&client)), ["c", "d"], "{era:?} {wire:?}");
        assert_eq!(last(&client).restarts, 1);
        assert_eq!(server.log().count_since(mark, "tools/list"), 4);

        // A server that never takes its own cursors is left alone for a while.
        server.respond("tools/list", |request| {
            let cursor = request["params"].get("cursor");
            cursor.map(|_| Reply::error(-32602, "unknown cursor"))
        });
        let mark = server.log().mark();
        let error = tools(&client).refresh(PATIENCE).await.expect_err("refused");
        assert!(error.to_string().contains("cursor"), "{error}");
        assert_eq!(server.log().count_since(mark, "tools/list"), 4);
        assert_eq!(names(tools(&client)), ["c", "d"]);
        client.close().await;
    }
}

/// Field report D8: pages that expire at different times never make a list of
/// two versions.
#[tokio::test]
async fn a_list_is_of_one_version_whatever_its_pages_lifetimes() {
    let server = Peer::start(Era::Modern, Wire::Http, |s| {
        two_pages(s);
        let pages = vec![Some(json!(60_000)), Some(json!(0))];
        s.set_field("tools", "ttlMs", pages);
    })
    .await;
    let client = settled(tools_only(server.options())).await;
    assert_eq!(names(tools(&client)), ["a", "b"]);
    // Joined to the old first page this would be a, a.
    server.set_catalog("tools", vec![tool("z", ""), tool("a", "")]);
    let mark = server.log().mark();
    let mut host = Host::new(client.clone());
    let turn = host.begin_turn().await;
    assert_eq!(turn.tools.tools.len(), 2);
    assert_eq!(names(tools(&client)), ["z", "a"]);
    let listed = server.log().requests("tools/list");
    let cursors: Vec<_> = listed
        .iter()
        .filter(|e| e.seq >= mark)
        .map(|e| e.cursor().map(str::to_owned))
        .collect();
    assert_eq!(cursors, [None, Some("offset:1".to_owned())]);
    client.close().await;
}

/// Field report H2: a server that is busy with a call that was given up does
/// not lose its tools, and nothing is restarted.
#[tokio::test]
async fn a_busy_server_keeps_its_tools() {
    let server = Peer::start(Era::Legacy, Wire::Stdio, |s| {
        s.set_catalog("tools", vec![tool("slow", "")]);
        s.set_serial(true);
    })
    .await;
    let mut options = server.options();
    let config = (*options.config).clone();
    options.config = std::sync::Arc::new(config.request_timeout(Duration::from_millis(300)));
    let client = settled(options).await;
    let gate = server.gate("tools/call", 1);
    let call = client.call_tool("slow", Map::new(), CallOptions::default());
    call.await.expect_err("given up");
    within("the call", gate.reached()).await;
    tools(&client)
        .refresh(PATIENCE)
        .await
        .expect_err("it is busy");
    assert_eq!(names(tools(&client)), ["slow"]);
    let mut host = Host::new(client.clone()).patience(Duration::ZERO);
    assert_eq!(host.begin_turn().await.tools.tools.len(), 1);
    gate.release();
    server.set_catalog("tools", vec![tool("slow", ""), tool("more", "")]);
    wait_for_names(tools(&client), &["slow", "more"]).await;
    client
        .call_tool("slow", Map::new(), CallOptions::default())
        .await
        .expect("a result");
    assert_eq!(server.log().count("initialize"), 1);
    assert_eq!(client.epoch().map(|e| e.0), Some(1));
    client.close().await;
}

/// Case 23, field report H3: refused in the middle of a walk.
#[tokio::test]
async fn credentials_refused_in_the_middle_of_a_walk_end_the_retries() {
    for fault in [Fault::unauthorized(), Fault::forbidden()] {
        for era in [Era::Modern, Era::Legacy] {
            let server = Peer::start(era, Wire::Http, two_pages).await;
            let client = settled(server.options()).await;
            let mark = server.log().mark();
            let gate = server.gate("tools/list", 1);
            let refreshing = tokio::spawn({
                let handle = tools(&client).clone();
                async move { handle.refresh(PATIENCE).await }
            });
            within("the first page", gate.reached()).await;
            server.fail_always("tools/list", fault.clone());
            gate.release();
            let refused = within("the refusal", refreshing).await.expect("no panic");
            refused.expect_err("refused");
            let status = tools(&client).status();
            assert_eq!(status.phase, Phase::Unavailable, "{era:?} {fault:?}");
            assert_eq!(status.unavailable, Some(Unavailable::Unauthorized));
            assert_eq!(status.next_refresh, None, "no ordinary retry");
            for _ in 0..5 {
                server.notify("tools");
            }
            let mut host = Host::new(client.clone());
            assert!(host.begin_turn().await.tools.tools.is_empty());
            assert_eq!(server.log().count_since(mark, "tools/list"), 2);
            // The other catalogs are not concerned.
            let prompts = client.catalog(CatalogKind::Prompts).expect("kept");
            prompts.refresh(PATIENCE).await.expect("a list");
            client.close().await;
        }
    }
}

/// Case 23: who is told to wait, waits.
#[tokio::test]
async fn a_client_that_is_told_to_wait_waits() {
    for era in [Era::Modern, Era::Legacy] {
        let server = Peer::start(era, Wire::Http, |s| {
            s.set_catalog("tools", vec![tool("a", "")]);
        })
        .await;
        let client = settled(server.options()).await;
        server.fail("tools/list", 1, Fault::too_many_requests("1800"));
        let before = last(&client).finished;
        tools(&client).refresh(PATIENCE).await.expect_err("to wait");
        let due = tools(&client).status().next_refresh.expect("a retry");
        let waits = due - before;
        assert!(waits >= Duration::from_secs(1800), "{era:?}: {waits:?}");
        let mark = server.log().mark();
        let mut host = Host::new(client.clone()).patience(Duration::from_millis(50));
        assert_eq!(host.begin_turn().await.tools.tools.len(), 1);
        server.notify("tools");
        client
            .call_tool("a", Map::new(), CallOptions::default())
            .await
            .map_or_else(|e| panic!("{e}"), drop);
        assert_eq!(server.log().count_since(mark, "tools/list"), 0, "{era:?}");
        client.close().await;
    }
}

/// A list answer with its tools, and the properties of each, in an order that
/// depends on the seed.
fn shuffled_answer(request: &Value, seed: usize) -> Reply {
    let rotated = |n: usize, by: usize| (0..n).map(move |i| (i + by) % n);
    let tools: Vec<String> = rotated(6, seed)
        .map(|t| {
            let properties: Vec<String> = rotated(12, seed * 5 + t)
                .map(|p| format!(r#""p{p:02}":{{"type":"string","title":"P{p}"}}"#))
                .collect();
            let schema = format!(
                r#""inputSchema":{{"properties":{{{}}},"type":"object"}}"#,
                properties.join(",")
            );
            let name = format!(r#""name":"tool-{t}""#);
            if seed.is_multiple_of(2) {
                format!("{{{name},{schema}}}")
            } else {
                format!("{{{schema}, {name}}}")
            }
        })
        .collect();
    let id = &request["id"];
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","tools":[{}],"ttlMs":0,"cacheScope":"private"}}}}"#,
        tools.join(",")
    );
    Reply::http(200, "application/json", body)
}

/// Case 17, field report L1: whatever the order of tools and properties, over
/// requests, restarts and reconnects, the model is given the same bytes.
#[tokio::test]
async fn the_model_is_given_the_same_bytes_over_requests_and_restarts() {
    let mut blocks = BTreeSet::new();
    let mut turns = 0;
    for restart in 0..5 {
        for era in [Era::Modern, Era::Legacy] {
            let server = Peer::start(era, Wire::Http, |s| {
                let counter = std::sync::atomic::AtomicUsize::new(restart * 7);
                s.respond("tools/list", move |request| {
                    let seed = counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    Some(shuffled_answer(request, seed))
                });
            })
            .await;
            let client = settled(tools_only(server.options())).await;
            let mut host = Host::new(client.clone());
            for turn in 0..5 {
                if turn == 3 {
                    client.reconnect().await;
                    assert!(within("a connection", client.wait_for_epoch(2)).await);
                }
                tools(&client).refresh(PATIENCE).await.expect("a list");
                let turn = host.begin_turn().await;
                assert_eq!(turn.tools.tools.len(), 6);
                assert_eq!(turn.note, None);
                blocks.insert(turn.tools.block());
                turns += 1;
            }
            client.close().await;
        }
    }
    assert_eq!((turns, blocks.len()), (50, 1));
}

/// Field report L2: names that a model interface would make one stay apart,
/// and a call reaches the tool that was meant.
#[tokio::test]
async fn names_that_look_alike_reach_their_own_tools() {
    let long = "x".repeat(65);
    let longer = format!("{long}y");
    let wanted = [
        "search-a",
        "search_a",
        "repo/search",
        "repo_search",
        "caf\u{e9}",
        "cafe\u{301}",
        &long,
        &longer,
    ];
    let server = FakeServer::builder()
        .catalog("tools", wanted.iter().map(|n| tool(n, "")).collect())
        .start()
        .await;
    let client = settled(relist_behaviour::options(&server)).await;
    let mut host = Host::new(client.clone());
    let turn = host.begin_turn().await;
    let public: BTreeSet<&str> = turn
        .tools
        .tools
        .iter()
        .map(|t| t.public_name.as_str())
        .collect();
    assert_eq!(public.len(), wanted.len());
    for tool in &turn.tools.tools {
        turn.call(&tool.public_name, Map::new(), CallOptions::default())
            .await
            .expect("a result");
        let call = server.log().last_request("tools/call").expect("a call");
        let sent = call.pointer("/params/name").and_then(Value::as_str);
        assert_eq!(sent, Some(tool.item.key().as_str()));
    }
    // Exact duplicates: one is offered, the other named, and nothing fails.
    let twins = vec![tool("twin", "1"), tool("twin", "2"), tool("other", "")];
    server.set_catalog("tools", twins);
    tools(&client).refresh(PATIENCE).await.expect("a list");
    let turn = host.begin_turn().await;
    assert_eq!(turn.tools.tools.len(), 2);
    assert_eq!(turn.tools.left_out.len(), 1);
    assert_eq!(turn.tools.left_out[0].0, "twin");
    at_rest(tools(&client)).await;
    client.close().await;
}
