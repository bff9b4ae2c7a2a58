//! Calls in a catalog that changes, and the ids that tie answers to them.

mod server_support;

use relist_fixture::LineClient;
use relist_protocol::{CatalogKind, RpcError};
use relist_server::{Context, ToolCall, ToolOutput};
use serde_json::{Value, json};
use server_support::*;
use tokio::sync::{mpsc, oneshot};

/// Case 29: what has left the catalog is refused when it is called, in both
/// eras, and works again when it is back.
#[tokio::test]
async fn what_has_left_the_catalog_is_refused() {
    let hosted = host(builder().build().expect("a server")).await;
    let session = hosted.client.legacy("2025-11-25").await;
    let calls = [
        ("tools/call", json!({"name": "a"}), -32602),
        ("prompts/get", json!({"name": "a"}), -32602),
        ("resources/read", json!({"uri": "r://a"}), -32002),
        ("resources/read", json!({"uri": "t://a/1"}), -32002),
    ];
    for (method, params, _) in &calls {
        let reply = hosted.client.modern(method, params.clone()).send().await;
        assert!(reply.result().is_object(), "{method}");
    }
    let removed = hosted.server.commit(|c| {
        c.remove(CatalogKind::Tools, "a");
        c.remove(CatalogKind::Prompts, "a");
        c.remove(CatalogKind::Resources, "r://a");
        c.remove(CatalogKind::ResourceTemplates, "t://a/{x}");
    });
    assert_eq!(removed.expect("a commit").changed.len(), 4);
    for (method, params, legacy) in &calls {
        let reply = hosted.client.modern(method, params.clone()).send().await;
        assert_eq!(outcome(&reply), (200, -32602), "{method} {params}");
        let name = params["name"].as_str().or(params["uri"].as_str());
        let message = reply.error()["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(message.contains(name.expect("a name")), "{message}");
        let reply = session.request(method, params.clone()).await;
        assert_eq!(outcome(&reply), (200, *legacy), "{method} {params}");
    }
    put_tool(&hosted.server, "a", "back");
    let call = hosted.client.modern("tools/call", json!({"name": "a"}));
    assert!(call.result().await["content"].is_array());
    hosted.works("a refused call").await;
}

/// A call that runs while its tool is removed is answered.
#[tokio::test]
async fn a_call_in_flight_outlives_its_tool() {
    let (started, mut running) = mpsc::unbounded_channel::<oneshot::Sender<()>>();
    let wait = move |_: ToolCall, _: Context| {
        let started = started.clone();
        async move {
            let (go, gone) = oneshot::channel();
            let _ = started.send(go);
            let _ = gone.await;
            Ok::<_, RpcError>(ToolOutput::text("done"))
        }
    };
    let server = builder().tool(tool("wait", ""), wait).build();
    let hosted = host(server.expect("a server")).await;
    let call = hosted.client.modern("tools/call", json!({"name": "wait"}));
    let (answer, ()) = tokio::join!(call.send(), async {
        let go = running.recv().await.expect("it runs");
        commit(&hosted.server, |c| {
            assert!(c.remove(CatalogKind::Tools, "wait"));
        });
        assert!(!hosted.tools().await.contains(&"wait".to_owned()));
        let _ = go.send(());
    });
    assert_eq!(answer.result()["content"][0]["text"], "done");
}

/// Case 27: ids are echoed as what they are, and never crossed.
#[tokio::test]
async fn ids_are_echoed_and_never_crossed() {
    let hosted = host(builder().build().expect("a server")).await;
    for (id, echoed) in [
        (json!(1), json!(1)),
        (json!("1"), json!("1")),
        (json!(1.0), json!(1)),
        (json!(0), json!(0)),
        (json!(-7), json!(-7)),
        (
            json!(9_007_199_254_740_993_i64),
            json!(9_007_199_254_740_993_i64),
        ),
        (json!(""), json!("")),
        (json!("\u{1f600}\n"), json!("\u{1f600}\n")),
    ] {
        let list = hosted.client.modern("tools/list", json!({}));
        assert_eq!(
            list.id(id.clone()).send().await.json()["id"],
            echoed,
            "{id}"
        );
        let call = hosted.client.modern("tools/call", json!({"name": "a"}));
        assert_eq!(
            call.id(id.clone()).send().await.json()["id"],
            echoed,
            "{id}"
        );
    }
    for id in [
        json!(null),
        json!(1.5),
        json!(true),
        json!([1]),
        json!({}),
        json!(1e300),
    ] {
        let list = hosted.client.modern("tools/list", json!({}));
        let reply = list.id(id.clone()).send().await;
        assert_eq!(outcome(&reply), (400, -32600), "{id}");
        assert_eq!(reply.json().get("id"), None);
    }

    // On one pipe, a number and the same digits in quotes are two requests.
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(theirs);
    let (output, input) = tokio::io::split(ours);
    let server = hosted.server.clone();
    let _served = tokio::spawn(async move { server.serve_stdio(reader, writer).await });
    let mut client = LineClient::new(output, input);
    for round in 0..50 {
        for id in [json!(round), json!(round.to_string())] {
            let arguments = json!({"id": id.to_string()});
            let params = json!({"name": "a", "arguments": arguments});
            client.request(id, "tools/call", params).await;
        }
    }
    for _ in 0..100 {
        let answer = client.message().await;
        let said = answer["result"]["content"][0]["text"]
            .as_str()
            .expect("text");
        let arguments: Value = serde_json::from_str(&said[2..]).expect("arguments");
        assert_eq!(arguments["id"], answer["id"].to_string());
    }
}

/// URI templates: what is covered, which variables, and in which order.
#[tokio::test]
async fn a_template_covers_what_it_can_cover() {
    let mut builder = bare();
    for uri in [
        "blob://{+path}/at/{name}",
        "pair://{a}-{b}.txt",
        "tree://{+first}/x/{+second}/y",
    ] {
        builder = builder.resource_template(template(uri, ""), read);
    }
    let hosted = host(builder.build().expect("a server")).await;
    let cases = [
        ("blob://a/at/b", Some(json!({"path": "a", "name": "b"}))),
        (
            "blob://a/at/b/at/c",
            Some(json!({"path": "a/at/b", "name": "c"})),
        ),
        ("pair://1-2.txt", Some(json!({"a": "1", "b": "2"}))),
        ("pair://1-2.txt.txt", Some(json!({"a": "1", "b": "2.txt"}))),
        ("tree://a/x/b/y", Some(json!({"first": "a", "second": "b"}))),
        ("blob://a/b", None),
        ("pair://1.txt", None),
        ("pair://1-2/3.txt", None),
        ("blob:///at/", None),
    ];
    for (uri, variables) in cases {
        let read = hosted.client.modern("resources/read", json!({"uri": uri}));
        let answer = read.send().await.json();
        let text = answer["result"]["contents"][0]["text"].as_str();
        let found: Option<Value> = text.map(|t| serde_json::from_str(t).expect("variables"));
        assert_eq!(found, variables, "{uri}");
        if variables.is_none() {
            assert_eq!(answer["error"]["code"], -32602, "{uri}");
        }
    }
    // A long URI of many near misses is answered like any other.
    let uri = format!("blob://{}", "/at/".repeat(1900));
    let read = hosted.client.modern("resources/read", json!({"uri": uri}));
    assert_eq!(read.send().await.error_code(), -32602);
    hosted.works("a long URI").await;
}
