//! The client against a scripted server: the faults of the field.

use std::time::Duration;

use relist_behaviour::{PATIENCE, options, tool, tools, wait_for_names};
use relist_client::call::{CallError, CallOptions};
use relist_client::client::Client;
use relist_client::host::Host;
use relist_fixture::{CursorPolicy, Era, FakeServer, Fault};
use relist_freshness::catalog::{Need, Phase};
use relist_freshness::record::{Failure, Outcome};
use relist_freshness::walk::WalkFault;
use relist_protocol::CatalogKind;
use serde_json::{Map, json};

async fn connected(server: &FakeServer) -> Client {
    let client = Client::connect(options(server))
        .await
        .expect("a connection");
    tokio::time::timeout(
        PATIENCE,
        tools(&client).wait_for(|s| matches!(s.phase, Phase::Fresh | Phase::Stale)),
    )
    .await
    .expect("a first list");
    client
}

#[tokio::test]
async fn a_hint_is_followed_by_one_list_in_both_eras() {
    for era in [Era::Modern, Era::Legacy] {
        let server = FakeServer::builder()
            .era(era)
            .catalog("tools", vec![tool("a", "")])
            .start()
            .await;
        let client = connected(&server).await;
        wait_for_names(tools(&client), &["a"]).await;
        let stream = match era {
            Era::Legacy => "GET",
            _ => "subscriptions/listen",
        };
        server.log().wait_for_streams(stream, 1).await;
        server.set_catalog("tools", vec![tool("a", ""), tool("b", "")]);
        server.notify("tools");
        wait_for_names(tools(&client), &["a", "b"]).await;
        client.close().await;
    }
}

/// Case 1: an empty cursor is a cursor like any other.
#[tokio::test]
async fn an_empty_cursor_is_sent_back() {
    let server = FakeServer::builder()
        .catalog("tools", vec![tool("a", ""), tool("b", "")])
        .page_size(1)
        .start()
        .await;
    server.set_cursor_policy("tools", CursorPolicy::Empty);
    let client = connected(&server).await;
    wait_for_names(tools(&client), &["a", "b"]).await;
    assert_eq!(
        server.log().cursors("tools/list"),
        [None, Some(String::new())]
    );
}

/// Case 2, field report D3: a list that never ends is stopped, and nothing of it is adopted.
#[tokio::test]
async fn a_list_that_never_ends_is_stopped_and_nothing_is_adopted() {
    for policy in [
        CursorPolicy::Constant("c".to_owned()),
        CursorPolicy::EmptyForever,
        CursorPolicy::Cycle(vec!["a".to_owned(), "b".to_owned()]),
    ] {
        let server = FakeServer::builder()
            .catalog("tools", vec![tool("a", ""), tool("b", "")])
            .page_size(1)
            .start()
            .await;
        server.set_cursor_policy("tools", policy);
        let client = Client::connect(options(&server))
            .await
            .expect("a connection");
        tokio::time::timeout(PATIENCE, tools(&client).wait_for(|s| s.failures > 0))
            .await
            .expect("a failure");
        assert!(tools(&client).view().is_none());
        let entries = client.trail().entries();
        let entry = entries
            .iter()
            .find(|e| e.kind == CatalogKind::Tools)
            .expect("a record");
        assert!(matches!(
            entry.record.outcome,
            Outcome::Failed(Failure::Walk(WalkFault::RepeatedCursor { .. }))
        ));
        client.close().await;
    }
}

/// Field report H1: a failed refresh is not an empty list.
#[tokio::test]
async fn a_failed_refresh_keeps_the_copy_and_an_empty_list_does_not() {
    let server = FakeServer::builder()
        .catalog("tools", vec![tool("a", "")])
        .start()
        .await;
    let client = connected(&server).await;
    for fault in [
        Fault::Reset,
        Fault::status(500),
        Fault::invalid_json(),
        Fault::html(),
        Fault::Truncated,
    ] {
        server.fail("tools/list", 1, fault);
        assert!(tools(&client).refresh(PATIENCE).await.is_err());
        let view = tools(&client).view().expect("the old copy");
        assert_eq!(view.snapshot.len(), 1);
    }
    server.set_catalog("tools", vec![]);
    let view = tools(&client).refresh(PATIENCE).await.expect("a list");
    assert!(view.snapshot.is_empty());
}

/// Case 24: an unknown `resultType` is an invalid answer.
#[tokio::test]
async fn an_unknown_result_type_is_refused() {
    let server = FakeServer::builder()
        .catalog("tools", vec![tool("a", "")])
        .start()
        .await;
    let client = connected(&server).await;
    server.fail("tools/list", 1, Fault::ResultType(json!("not_modified")));
    let error = tools(&client).refresh(PATIENCE).await.expect_err("invalid");
    assert!(error.to_string().contains("resultType"), "{error}");
    assert_eq!(
        tools(&client).view().expect("the old copy").snapshot.len(),
        1
    );
}

/// Case 17: another order on every list changes nothing that the model sees.
#[tokio::test]
async fn another_order_on_every_list_changes_nothing_for_the_model() {
    let items = (0..20).map(|n| tool(&format!("t{n:02}"), "")).collect();
    let server = FakeServer::builder().catalog("tools", items).start().await;
    server.set_shuffled("tools", true);
    let client = connected(&server).await;
    let mut host = Host::new(client.clone());
    let first = host.begin_turn().await;
    for _ in 0..5 {
        tools(&client).refresh(PATIENCE).await.expect("a list");
        let turn = host.begin_turn().await;
        assert_eq!(turn.tools.block(), first.tools.block());
        assert_eq!(turn.tools.version, first.tools.version);
        assert_eq!(turn.note, None);
    }
}

/// Cases 19 and 29: the model gets the new tools at the next turn, and a call to a tool that is gone is refused before it is sent.
#[tokio::test]
async fn the_next_turn_has_the_new_tools_and_the_old_ones_are_refused() {
    let server = FakeServer::builder()
        .catalog("tools", vec![tool("old", "")])
        .start()
        .await;
    let client = connected(&server).await;
    let mut host = Host::new(client.clone());
    let first = host.begin_turn().await;
    server.set_catalog("tools", vec![tool("new", "")]);
    tools(&client).refresh(PATIENCE).await.expect("a list");
    let refused = first.call("old", Map::new(), CallOptions::default()).await;
    assert!(
        matches!(refused, Err(CallError::Gone { .. })),
        "{refused:?}"
    );
    assert_eq!(server.log().count("tools/call"), 0);
    let second = host.begin_turn().await;
    assert_eq!(
        second.note.as_deref(),
        Some("The available tools changed: 1 added (new), 1 removed (old).")
    );
    let adoptions = host.adoptions();
    assert_eq!(adoptions.len(), 2);
    assert!(adoptions[1].is_new && adoptions[1].tools == 1);
}

/// Case 25: a tool with an illegal annotation is left out, the rest are used.
#[tokio::test]
async fn a_tool_with_an_illegal_annotation_is_left_out() {
    let bad = json!({"name": "bad", "inputSchema": {"type": "object", "properties": {
        "p": {"type": "number", "x-mcp-header": "P"}}}});
    let server = FakeServer::builder()
        .catalog("tools", vec![tool("good", ""), bad])
        .start()
        .await;
    let client = connected(&server).await;
    let turn = Host::new(client).begin_turn().await;
    let names: Vec<&str> = turn
        .tools
        .tools
        .iter()
        .map(|t| t.public_name.as_str())
        .collect();
    assert_eq!(names, ["good"]);
    assert_eq!(turn.tools.left_out.len(), 1);
}

/// Case 11: a legacy session that is gone means a new epoch.
#[tokio::test]
async fn a_lost_session_is_replaced_and_the_catalog_listed_again() {
    let server = FakeServer::builder()
        .era(Era::Legacy)
        .catalog("tools", vec![tool("a", "")])
        .start()
        .await;
    let client = connected(&server).await;
    server.set_catalog("tools", vec![tool("b", "")]);
    server.expire_session();
    // The refresh meets the lost session; whether it is reported as failed
    // does not matter, what follows does.
    let _ = tools(&client).refresh(PATIENCE).await;
    let reconnected = tokio::time::timeout(PATIENCE, client.wait_for_epoch(2)).await;
    assert_eq!(reconnected, Ok(true));
    wait_for_names(tools(&client), &["b"]).await;
    assert_eq!(server.log().count("initialize"), 2);
}

/// Case 21: a catalog that the server does not have costs no request.
#[tokio::test]
async fn a_catalog_that_is_not_offered_is_not_asked_for() {
    let server = FakeServer::builder().start().await;
    server.set_capabilities(json!({"prompts": {}}));
    let client = Client::connect(options(&server))
        .await
        .expect("a connection");
    tokio::time::timeout(
        PATIENCE,
        tools(&client).wait_for(|s| s.phase == Phase::Unavailable),
    )
    .await
    .expect("unavailable");
    assert!(
        tools(&client)
            .fresh(Need::Turn, Duration::from_secs(5))
            .await
            .is_err()
    );
    server.log().wait_for_count("prompts/list", 1).await;
    assert_eq!(server.log().count("tools/list"), 0);
}

/// Case 23, field report H3: refused credentials do not loop.
#[tokio::test]
async fn refused_credentials_do_not_loop() {
    let server = FakeServer::builder()
        .catalog("tools", vec![tool("a", "")])
        .start()
        .await;
    let client = connected(&server).await;
    let before = server.log().count("tools/list");
    server.fail_always("tools/list", Fault::unauthorized());
    assert!(tools(&client).refresh(PATIENCE).await.is_err());
    assert_eq!(tools(&client).status().phase, Phase::Unavailable);
    for _ in 0..10 {
        assert!(tools(&client).fresh(Need::Turn, PATIENCE).await.is_err());
    }
    assert!(server.log().count("tools/list") - before <= 3);
    server.heal("tools/list");
    client.reauthenticated().await;
    tokio::time::timeout(
        PATIENCE,
        tools(&client).wait_for(|s| s.unavailable.is_none() && s.failures == 0),
    )
    .await
    .expect("back");
}

/// A connection that was replaced is let go, with its sockets and buffers.
#[tokio::test]
async fn a_connection_that_was_replaced_is_let_go() {
    let server = FakeServer::builder()
        .catalog("tools", vec![tool("a", "")])
        .start()
        .await;
    let client = connected(&server).await;
    let old = std::sync::Arc::downgrade(&client.current().expect("connected"));
    client.reconnect().await;
    assert!(client.wait_for_epoch(2).await);
    let released = async {
        while old.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, released)
        .await
        .expect("nobody holds the old connection");
}
