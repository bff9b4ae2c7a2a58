//! When our server hints, of what, and to whom.

mod server_support;

use std::io;
use std::time::Duration;

use relist_fixture::{EventReader, LineClient};
use relist_protocol::{CatalogKind, RpcError};
use relist_server::{CatalogOptions, Context, Edit, Server, ToolCall, ToolOutput};
use serde_json::{Value, json};
use server_support::*;
use tokio::task::JoinHandle;

const TOOLS: &str = ALL_HINTS[0];
const RESOURCES: &str = ALL_HINTS[1];
const PROMPTS: &str = ALL_HINTS[2];

type Change = fn(&mut Edit);

/// Every way in which a catalog can change: what it is called, the lists that
/// differ afterwards, the hints that are owed.
const MUTATIONS: &[(&str, &[&str], &[&str], Change)] = &[
    ("a tool is added", &["tools/list"], &[TOOLS], |c| {
        c.upsert_tool(tool("c", "1"), echo);
    }),
    ("a tool is removed", &["tools/list"], &[TOOLS], |c| {
        assert!(c.remove(CatalogKind::Tools, "a"));
    }),
    ("a tool is updated", &["tools/list"], &[TOOLS], |c| {
        c.upsert_tool(tool("a", "2"), echo);
    }),
    (
        "a tool is updated, its handler kept",
        &["tools/list"],
        &[TOOLS],
        |c| {
            c.upsert(
                CatalogKind::Tools,
                item(CatalogKind::Tools, &tool("a", "2")),
            );
        },
    ),
    ("a tool is renamed", &["tools/list"], &[TOOLS], |c| {
        c.remove(CatalogKind::Tools, "a");
        c.upsert_tool(tool("z", "1"), echo);
    }),
    ("tools are reordered", &["tools/list"], &[TOOLS], |c| {
        let tools = [tool("b", "1"), tool("a", "1")];
        let tools = tools.iter().map(|t| item(CatalogKind::Tools, t)).collect();
        c.replace(CatalogKind::Tools, tools);
    }),
    ("all tools are removed", &["tools/list"], &[TOOLS], |c| {
        c.replace(CatalogKind::Tools, vec![]);
    }),
    (
        "a resource is added",
        &["resources/list"],
        &[RESOURCES],
        |c| c.upsert_resource(resource("r://c", "1"), read),
    ),
    (
        "a resource is removed",
        &["resources/list"],
        &[RESOURCES],
        |c| assert!(c.remove(CatalogKind::Resources, "r://a")),
    ),
    (
        "a resource is updated",
        &["resources/list"],
        &[RESOURCES],
        |c| c.upsert_resource(resource("r://a", "2"), read),
    ),
    (
        "a resource is renamed",
        &["resources/list"],
        &[RESOURCES],
        |c| {
            c.remove(CatalogKind::Resources, "r://a");
            c.upsert_resource(resource("r://z", "1"), read);
        },
    ),
    (
        "resources are reordered",
        &["resources/list"],
        &[RESOURCES],
        |c| {
            let kind = CatalogKind::Resources;
            let items = [resource("r://b", "1"), resource("r://a", "1")];
            c.replace(kind, items.iter().map(|r| item(kind, r)).collect());
        },
    ),
    (
        "a template is added",
        &["resources/templates/list"],
        &[RESOURCES],
        |c| c.upsert_resource_template(template("t://c/{x}", "1"), read),
    ),
    (
        "a template is removed",
        &["resources/templates/list"],
        &[RESOURCES],
        |c| assert!(c.remove(CatalogKind::ResourceTemplates, "t://a/{x}")),
    ),
    (
        "a template is updated",
        &["resources/templates/list"],
        &[RESOURCES],
        |c| c.upsert_resource_template(template("t://a/{x}", "2"), read),
    ),
    (
        "templates are reordered",
        &["resources/templates/list"],
        &[RESOURCES],
        |c| {
            let kind = CatalogKind::ResourceTemplates;
            let items = [template("t://b/{x}", "1"), template("t://a/{x}", "1")];
            c.replace(kind, items.iter().map(|r| item(kind, r)).collect());
        },
    ),
    ("a prompt is added", &["prompts/list"], &[PROMPTS], |c| {
        c.upsert_prompt(prompt("c", "1"), say);
    }),
    ("a prompt is removed", &["prompts/list"], &[PROMPTS], |c| {
        assert!(c.remove(CatalogKind::Prompts, "a"));
    }),
    ("a prompt is updated", &["prompts/list"], &[PROMPTS], |c| {
        c.upsert_prompt(prompt("a", "2"), say);
    }),
    ("a prompt is renamed", &["prompts/list"], &[PROMPTS], |c| {
        c.remove(CatalogKind::Prompts, "a");
        c.upsert_prompt(prompt("z", "1"), say);
    }),
    (
        "prompts are reordered",
        &["prompts/list"],
        &[PROMPTS],
        |c| {
            let kind = CatalogKind::Prompts;
            let items = [prompt("b", "1"), prompt("a", "1")];
            c.replace(kind, items.iter().map(|p| item(kind, p)).collect());
        },
    ),
    (
        "a resource and a template, one list of hints",
        &["resources/list", "resources/templates/list"],
        &[RESOURCES],
        |c| {
            c.upsert_resource(resource("r://c", "1"), read);
            c.upsert_resource_template(template("t://c/{x}", "1"), read);
        },
    ),
    (
        "everything at once",
        &[
            "tools/list",
            "resources/list",
            "resources/templates/list",
            "prompts/list",
        ],
        &[TOOLS, RESOURCES, PROMPTS],
        |c| {
            c.upsert_tool(tool("c", "1"), echo);
            c.remove(CatalogKind::Tools, "a");
            c.upsert_resource(resource("r://c", "1"), read);
            c.remove(CatalogKind::ResourceTemplates, "t://a/{x}");
            c.upsert_prompt(prompt("b", "2"), say);
        },
    ),
];

/// What is committed and changes nothing that a list shows.
const NOTHINGS: &[(&str, Change)] = &[
    ("an empty commit", |_| {}),
    ("a tool as it was", |c| c.upsert_tool(tool("a", "1"), echo)),
    ("all tools as they were", |c| {
        let tools = [tool("a", "1"), tool("b", "1")];
        let tools = tools.iter().map(|t| item(CatalogKind::Tools, t)).collect();
        c.replace(CatalogKind::Tools, tools);
    }),
    ("a tool that was not there, removed", |c| {
        assert!(!c.remove(CatalogKind::Tools, "nobody"));
    }),
    ("a tool that comes and goes in one commit", |c| {
        c.upsert_tool(tool("c", "1"), echo);
        c.remove(CatalogKind::Tools, "c");
    }),
    ("another handler behind the same definition", |c| {
        c.upsert_tool(tool("a", "1"), async |_, _| Ok(ToolOutput::text("new")));
    }),
    ("a prompt, a resource and a template as they were", |c| {
        c.upsert_prompt(prompt("a", "1"), say);
        c.upsert_resource(resource("r://a", "1"), read);
        c.upsert_resource_template(template("t://a/{x}", "1"), read);
    }),
];

const LISTS: [(&str, &str); 4] = [
    ("tools/list", "tools"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
    ("prompts/list", "prompts"),
];

/// The four lists, by method.
async fn lists(hosted: &Hosted) -> Vec<(&'static str, Value)> {
    let mut lists = Vec::new();
    for (method, field) in LISTS {
        let page = hosted.client.modern(method, json!({})).result().await;
        lists.push((method, page[field].clone()));
    }
    lists
}

/// Row A7, and C6: whatever changes, there is one hint of the right kind, and
/// a second connection that asks inside the hint already sees the new set.
#[tokio::test]
async fn every_mutation_is_hinted_at_once_and_is_there_by_then() {
    for (what, changed, hints, change) in MUTATIONS {
        let hosted = host(builder().build().expect("a server")).await;
        let session = hosted.client.legacy("2025-11-25").await;
        let mut legacy = session.open_stream().await;
        let mut modern = hosted.client.listen(all()).await;
        assert_eq!(modern.message().await["params"]["notifications"], all());
        let before = lists(&hosted).await;

        commit(&hosted.server, change);

        let mut told = vec![modern.message().await];
        let inside = lists(&hosted).await;
        let differ: Vec<&str> = before
            .iter()
            .zip(&inside)
            .filter(|(before, inside)| before.1 != inside.1)
            .map(|(before, _)| before.0)
            .collect();
        assert_eq!(differ, *changed, "{what}");

        // Ends the streams, when all that is pending has been told.
        hosted.server.shutdown();
        told.extend(modern.rest().await);
        assert_eq!(methods(&told), *hints, "{what}");
        assert_eq!(told.len(), hints.len() + 1, "{what}: {told:?}");
        assert_eq!(methods(&legacy.rest().await), *hints, "{what}");
        assert_eq!(lists(&hosted).await, inside, "{what}");
    }
}

/// Case 5: hints without a change.
#[tokio::test]
async fn a_commit_that_changes_nothing_gives_no_hint() {
    let hosted = host(builder().build().expect("a server")).await;
    let session = hosted.client.legacy("2025-06-18").await;
    let mut legacy = session.open_stream().await;
    let mut modern = hosted.client.listen(all()).await;
    modern.message().await;
    let before = lists(&hosted).await;
    for (what, change) in NOTHINGS {
        let commit = hosted.server.commit(change).expect(what);
        assert!(commit.is_empty(), "{what}");
    }
    assert_eq!(lists(&hosted).await, before);
    // The handler that came with the same definition answers all the same.
    let call = hosted.client.modern("tools/call", json!({"name": "a"}));
    assert_eq!(call.result().await["content"][0]["text"], "new");
    hosted.server.shutdown();
    assert_eq!(methods(&modern.rest().await), [""; 0]);
    assert_eq!(methods(&legacy.rest().await), [""; 0]);
}

/// Row C5, the server's half: 100 registrations, one notification.
#[tokio::test]
async fn a_hundred_commits_in_a_burst_give_one_hint() {
    let hour = Duration::from_secs(3600);
    let hosted = host(builder().coalesce(hour).build().expect("a server")).await;
    let session = hosted.client.legacy("2025-03-26").await;
    let mut legacy = session.open_stream().await;
    let mut modern = hosted.client.listen(all()).await;
    modern.message().await;
    for n in 0..100 {
        put_tool(&hosted.server, &format!("n{n}"), "");
    }
    hosted.server.shutdown();
    assert_eq!(methods(&modern.rest().await), [TOOLS]);
    assert_eq!(methods(&legacy.rest().await), [TOOLS]);
    assert_eq!(hosted.tools().await.len(), 102);
}

/// Case 6: never a hint before the change is visible, however the two race.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_hint_is_ahead_of_its_change() {
    let server = builder().coalesce(Duration::ZERO).build();
    let hosted = host(server.expect("a server")).await;
    let mut stream = hosted.client.listen(all()).await;
    stream.message().await;
    for n in 0..100 {
        let name = format!("n{n}");
        let (server, committed) = (hosted.server.clone(), name.clone());
        let committing = tokio::task::spawn_blocking(move || put_tool(&server, &committed, ""));
        assert_eq!(stream.message().await["method"], TOOLS);
        assert!(hosted.tools().await.contains(&name), "{name}");
        committing.await.expect("committed");
    }
}

/// Row C3: lists cause no hints, and equal snapshots none either.
#[tokio::test]
async fn a_flapping_backend_is_hinted_at_once_for_each_real_change() {
    let server = builder().coalesce(Duration::ZERO).build();
    let hosted = host(server.expect("a server")).await;
    let mut stream = hosted.client.listen(all()).await;
    stream.message().await;
    for round in 0..100 {
        // Back as it was before anybody could look, but for every tenth time.
        commit(&hosted.server, |c| {
            c.remove(CatalogKind::Tools, "b");
            c.upsert_tool(tool("b", &format!("{}", round / 10)), echo);
        });
        hosted.tools().await;
        if round % 10 == 0 {
            assert_eq!(stream.message().await["method"], TOOLS);
        }
    }
    hosted.server.shutdown();
    assert_eq!(methods(&stream.rest().await), [""; 0]);
}

/// Row A4: what hints says so, and what does not say so does not hint.
#[tokio::test]
async fn only_declared_catalogs_hint() {
    let quiet = CatalogOptions::default().list_changed(false);
    let kinds = [
        (CatalogKind::Tools, "tools", TOOLS),
        (CatalogKind::Resources, "resources", RESOURCES),
        (CatalogKind::Prompts, "prompts", PROMPTS),
    ];
    for (silent, capability, hint) in kinds {
        let mut builder = builder().catalog(silent, quiet.clone());
        if silent == CatalogKind::Resources {
            // One notification stands for both.
            builder = builder.catalog(CatalogKind::ResourceTemplates, quiet.clone());
        }
        let hosted = host(builder.build().expect("a server")).await;
        let discovered = hosted.client.modern("server/discover", json!({}));
        let modern = discovered.result().await["capabilities"].clone();
        let session = hosted.client.legacy("2025-11-25").await;
        let legacy = session.initialize.result()["capabilities"].clone();
        for capabilities in [&modern, &legacy] {
            for (_, other, _) in kinds {
                let declared = &capabilities[other]["listChanged"];
                assert_eq!(*declared == true, other != capability, "{other}");
            }
        }
        let mut get = session.open_stream().await;
        let mut listen = hosted.client.listen(all()).await;
        let granted = listen.message().await["params"]["notifications"].clone();
        assert_eq!(granted.as_object().map(serde_json::Map::len), Some(2));
        assert_eq!(granted.get(format!("{capability}ListChanged")), None);
        commit(&hosted.server, |c| {
            c.upsert_tool(tool("c", "1"), echo);
            c.upsert_resource(resource("r://c", "1"), read);
            c.upsert_prompt(prompt("c", "1"), say);
        });
        hosted.server.shutdown();
        let expected: Vec<&str> = ALL_HINTS.into_iter().filter(|h| *h != hint).collect();
        assert_eq!(methods(&listen.rest().await), expected);
        assert_eq!(methods(&get.rest().await), expected);
    }
}

/// Rows A5 and A6: a call that changes the set, by POST, is told on every open
/// channel, of whoever opened it, watched resources or not; the bytes are
/// those of the specification.
#[tokio::test]
async fn a_call_that_grows_the_set_is_told_to_all() {
    let server = builder().build().expect("a server");
    let grow = {
        let server = server.clone();
        move |_: ToolCall, _: Context| {
            let server = server.clone();
            async move {
                put_tool(&server, "grown", "");
                Ok::<_, RpcError>(ToolOutput::text("grown"))
            }
        }
    };
    commit(&server, |c| c.upsert_tool(tool("grow", ""), grow));
    let hosted = host(server).await;
    let sessions = [
        hosted.client.legacy("2025-03-26").await,
        hosted.client.legacy("2025-06-18").await,
        hosted.client.legacy("2025-11-25").await,
    ];
    let mut streams: Vec<EventReader> = Vec::new();
    for session in &sessions {
        streams.push(session.open_stream().await);
    }
    let filter = json!({"toolsListChanged": true});
    let mut first = hosted.client.listen(filter.clone()).await;
    let mut second = hosted.client.listen(filter).await;
    let ids = [
        first.message().await["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone(),
        second.message().await["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone(),
    ];
    assert_ne!(ids[0], ids[1]);

    let call = sessions[0].request("tools/call", json!({"name": "grow"}));
    assert_eq!(call.await.result()["content"][0]["text"], "grown");

    for stream in &mut streams {
        let told = stream.message().await;
        let bytes = String::from_utf8_lossy(stream.raw()).into_owned();
        let expected = r#"data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert!(bytes.ends_with(&format!("{expected}\n\n")), "{bytes}");
        assert_eq!(told.get("params"), None);
    }
    for (stream, id) in [&mut first, &mut second].into_iter().zip(&ids) {
        let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
        let expected = json!({"jsonrpc": "2.0", "method": TOOLS, "params": {"_meta": meta}});
        assert_eq!(stream.message().await, expected);
    }
}

fn piped(server: &Server) -> (LineClient, JoinHandle<io::Result<()>>) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(theirs);
    let (output, input) = tokio::io::split(ours);
    let server = server.clone();
    let served = tokio::spawn(async move { server.serve_stdio(reader, writer).await });
    (LineClient::new(output, input), served)
}

/// Row C7: nothing comes before the answer to `initialize`, and no hint before
/// the client has said that it is ready.
#[tokio::test]
async fn nothing_precedes_the_answer_to_initialize() {
    let server = builder().coalesce(Duration::ZERO).build();
    let server = server.expect("a server");
    let (mut client, _served) = piped(&server);
    put_tool(&server, "before", "");
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"}}});
    client.send(initialize).await;
    assert_eq!(client.message().await["id"], 1);
    put_tool(&server, "between", "");
    client
        .send(json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}))
        .await;
    assert_eq!(
        client.message().await,
        json!({"jsonrpc": "2.0", "id": 2, "result": {}})
    );
    client
        .send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        .await;
    // What changed since the answer to `initialize` is told now.
    assert_eq!(client.message().await["method"], TOOLS);

    // Over HTTP the answer is one JSON body, whatever changes meanwhile.
    let hosted = host(server).await;
    let changing = async {
        for n in 0..50 {
            put_tool(&hosted.server, &format!("n{n}"), "");
            tokio::task::yield_now().await;
        }
    };
    let (answer, ()) = tokio::join!(hosted.client.initialize("2025-11-25"), changing);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.json()["id"], 1);
}

/// Case 15: a commit that races with the opening of a subscription is told, or
/// is in the list that is read after the acknowledgment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_around_the_acknowledgment() {
    let server = builder().coalesce(Duration::ZERO).build();
    let hosted = host(server.expect("a server")).await;
    for n in 0..100 {
        let name = format!("n{n}");
        let (server, committed) = (hosted.server.clone(), name.clone());
        let committing = tokio::task::spawn_blocking(move || put_tool(&server, &committed, ""));
        let mut stream = hosted
            .client
            .listen(json!({"toolsListChanged": true}))
            .await;
        let first = stream.message().await;
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
        if !hosted.tools().await.contains(&name) {
            assert_eq!(stream.message().await["method"], TOOLS);
            assert!(hosted.tools().await.contains(&name));
        }
        committing.await.expect("committed");
    }
}
