//! Conditional lists between our client and our server, and on the raw wire.

use std::net::SocketAddr;

use relist_behaviour::{PATIENCE, tool, tools, wait_for_names};
use relist_catalog::Item;
use relist_client::client::{Client, Options};
use relist_client::config::{ClientConfig, Target};
use relist_fixture::RecordingClient;
use relist_freshness::catalog::Phase;
use relist_freshness::record::Outcome;
use relist_protocol::message::Implementation;
use relist_protocol::{CatalogKind, Switch, Switches};
use relist_server::{CatalogOptions, HttpOptions, Server};
use serde_json::{Value, json};

const EXTENSION: &str = "experimental.relist/lists";

fn items(names: &[&str]) -> Vec<Item> {
    names
        .iter()
        .map(|n| Item::from_value(CatalogKind::Tools, &tool(n, "")).expect("a tool"))
        .collect()
}

async fn serve(switches: Switches, page_size: usize, names: &[&str]) -> (Server, SocketAddr) {
    let mut builder = Server::builder(Implementation::new("pair", "1"))
        .enable(switches)
        .catalog(
            CatalogKind::Tools,
            CatalogOptions::default()
                .page_size(page_size)
                .list_changed(true),
        );
    for item in items(names) {
        builder = builder.item(CatalogKind::Tools, &item);
    }
    let server = builder.build().expect("a server");
    let listener =
        relist_server::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a loopback port");
    let address = listener.local_addr().expect("bound");
    let serving = server.clone();
    tokio::spawn(async move {
        serving
            .serve_http(listener, HttpOptions::default(), std::future::pending())
            .await
    });
    (server, address)
}

fn conditional() -> Switches {
    Switches::NONE.with(Switch::Conditional)
}

/// The result of a list request that says what the client has.
async fn list(address: SocketAddr, params: Value, declares: bool) -> Value {
    let client = RecordingClient::at(address);
    let mut request = client.modern("tools/list", params);
    if declares {
        request = request.capabilities(json!({"extensions": {EXTENSION: {"conditional": true}}}));
    }
    request.result().await
}

fn knowing(tag: &Value) -> Value {
    json!({"_meta": {"io.modelcontextprotocol/knownTags": {"tools/list": tag}}})
}

async fn connect(address: SocketAddr, switches: Switches) -> Client {
    let target = Target::http(&format!("http://{address}/mcp")).expect("a URL");
    let config = ClientConfig::new("pair", "1").switches(switches);
    Client::connect(Options::new(target, config))
        .await
        .expect("a connection")
}

#[tokio::test]
async fn the_extension_is_declared_when_it_is_on_and_not_otherwise() {
    for (switches, declared) in [
        (Switches::NONE, Value::Null),
        (Switches::NONE.with(Switch::Tags), Value::Null),
        (conditional(), json!({"conditional": true})),
    ] {
        let (_server, address) = serve(switches, 10, &["a"]).await;
        let discovered = RecordingClient::at(address)
            .modern("server/discover", json!({}))
            .result()
            .await;
        assert_eq!(
            discovered["capabilities"]["extensions"][EXTENSION], declared,
            "{switches}"
        );
    }
}

#[tokio::test]
async fn not_modified_carries_tag_and_lifetime_and_no_items() {
    let (_server, address) = serve(conditional(), 10, &["a", "b"]).await;
    let full = list(address, json!({}), true).await;
    assert_eq!(full["resultType"], "complete");
    let answer = list(address, knowing(&full["tag"]), true).await;
    assert_eq!(answer["resultType"], "not_modified");
    assert_eq!(answer["tag"], full["tag"]);
    assert_eq!(answer["ttlMs"], full["ttlMs"]);
    assert_eq!(answer["cacheScope"], full["cacheScope"]);
    assert_eq!(answer.get("tools"), None);
    assert_eq!(answer.get("nextCursor"), None);
}

#[tokio::test]
async fn a_tag_that_is_not_the_current_one_gets_the_list() {
    let (server, address) = serve(conditional(), 10, &["a", "b"]).await;
    let before = list(address, json!({}), true).await;
    server
        .commit(|c| c.replace(CatalogKind::Tools, items(&["a", "c"])))
        .expect("a commit");
    for tag in [&before["tag"], &json!("v1"), &json!(7), &json!("")] {
        let answer = list(address, knowing(tag), true).await;
        assert_eq!(answer["resultType"], "complete", "{tag}");
        assert_eq!(answer["tools"][1]["name"], "c");
        assert_ne!(answer["tag"], before["tag"]);
    }
}

#[tokio::test]
async fn a_client_that_did_not_declare_the_extension_gets_the_list() {
    let (_server, address) = serve(conditional(), 10, &["a"]).await;
    let full = list(address, json!({}), false).await;
    let answer = list(address, knowing(&full["tag"]), false).await;
    assert_eq!(answer, full);
}

#[tokio::test]
async fn a_request_with_a_cursor_gets_its_page() {
    let (_server, address) = serve(conditional(), 1, &["a", "b"]).await;
    let first = list(address, json!({}), true).await;
    let mut params = knowing(&first["tag"]);
    params["cursor"] = first["nextCursor"].clone();
    let second = list(address, params, true).await;
    assert_eq!(second["resultType"], "complete");
    assert_eq!(second["tools"][0]["name"], "b");
    assert_eq!(second["tag"], first["tag"]);
}

#[tokio::test]
async fn several_known_versions_may_be_offered_and_no_more_than_64_are_read() {
    let (_server, address) = serve(conditional(), 10, &["a"]).await;
    let tag = list(address, json!({}), true).await["tag"].clone();
    let offering = |others: usize| {
        let mut known: Vec<Value> = (0..others).map(|n| json!(format!("v{n}"))).collect();
        known.push(tag.clone());
        json!({"_meta": {EXTENSION: {"known": known}}})
    };
    let answer = list(address, offering(63), true).await;
    assert_eq!(answer["resultType"], "not_modified");
    let answer = list(address, offering(64), true).await;
    assert_eq!(answer["resultType"], "complete");
}

#[tokio::test]
async fn a_reconnect_to_an_unchanged_catalog_costs_one_small_answer() {
    let (_server, address) = serve(conditional(), 10, &["a", "b"]).await;
    let client = connect(address, conditional()).await;
    wait_for_names(tools(&client), &["a", "b"]).await;
    let before = tools(&client).view().expect("adopted").number;
    client.reconnect().await;
    let verified = tools(&client)
        .wait_for(|s| s.verified.is_some_and(|e| e.0 == 2) && s.phase != Phase::Refreshing);
    tokio::time::timeout(PATIENCE, verified)
        .await
        .expect("verified");
    let last = client
        .trail()
        .entries()
        .into_iter()
        .rfind(|e| e.kind == CatalogKind::Tools)
        .expect("a record");
    assert_eq!(last.record.outcome, Outcome::NotModified);
    assert_eq!(tools(&client).view().expect("kept").number, before);
}

#[tokio::test]
async fn a_change_is_adopted_whichever_side_has_the_layer_on() {
    for (server_side, client_side) in [
        (Switches::NONE, Switches::NONE),
        (conditional(), Switches::NONE),
        (Switches::NONE, conditional()),
        (Switches::NONE.with(Switch::Tags), conditional()),
        (conditional(), Switches::NONE.with(Switch::Tags)),
        (conditional(), conditional()),
    ] {
        let (server, address) = serve(server_side, 2, &["a", "b", "c"]).await;
        let client = connect(address, client_side).await;
        wait_for_names(tools(&client), &["a", "b", "c"]).await;
        let watched = tools(&client).wait_for(|s| s.watched);
        tokio::time::timeout(PATIENCE, watched)
            .await
            .expect("a stream");
        server
            .commit(|c| c.replace(CatalogKind::Tools, items(&["c", "d"])))
            .expect("a commit");
        wait_for_names(tools(&client), &["c", "d"]).await;
        let view = tools(&client).view().expect("adopted");
        let tagged = server_side.contains(Switch::Tags) && client_side.contains(Switch::Tags);
        assert_eq!(
            view.tag.as_ref(),
            tagged
                .then(|| server.snapshot(CatalogKind::Tools).tag().clone())
                .as_ref(),
            "{server_side} and {client_side}"
        );
        client.close().await;
    }
}
