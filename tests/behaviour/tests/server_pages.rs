//! Walks of our server's lists: pages of one version, and cursors that are
//! worth something only there.

mod server_support;

use std::collections::BTreeSet;
use std::time::Duration;

use relist_catalog::HistoryLimits;
use relist_fixture::HttpReply;
use relist_protocol::CatalogKind;
use relist_server::{CacheScope, CatalogOptions, Server};
use serde_json::{Value, json};
use server_support::*;

fn kept(count: usize) -> HistoryLimits {
    let mut limits = HistoryLimits::default();
    limits.count = count;
    limits
}

/// Ten tools of version `v0`, three on a page.
fn ten(options: CatalogOptions) -> Server {
    let mut builder = bare().catalog(CatalogKind::Tools, options.page_size(3));
    for n in 0..10 {
        builder = builder.tool(tool(&format!("t{n}"), "v0"), echo);
    }
    builder.build().expect("a server")
}

/// Every tool says which version it belongs to.
fn advance(server: &Server, version: usize) {
    commit(server, |c| {
        let tools = (0..10).map(|n| tool(&format!("t{n}"), &format!("v{version}")));
        let tools = tools.map(|t| item(CatalogKind::Tools, &t)).collect();
        c.replace(CatalogKind::Tools, tools);
    });
}

async fn page(hosted: &Hosted, cursor: Option<&Value>) -> HttpReply {
    let params = cursor.map_or(json!({}), |cursor| json!({"cursor": cursor}));
    hosted.client.modern("tools/list", params).send().await
}

/// Names and versions of what a walk found; `None` when its cursor was refused.
async fn walk(
    hosted: &Hosted,
    mut between: impl FnMut(),
) -> Option<(Vec<String>, BTreeSet<String>)> {
    let (mut found, mut versions) = (Vec::new(), BTreeSet::new());
    let mut cursor = None;
    loop {
        let reply = page(hosted, cursor.as_ref()).await;
        if reply.json().get("error").is_some() {
            assert_eq!(outcome(&reply), (200, -32602));
            return None;
        }
        let result = reply.result();
        found.extend(names(&result["tools"]));
        let tools = result["tools"].as_array().expect("tools");
        let version = |t: &Value| t["description"].as_str().expect("text").to_owned();
        versions.extend(tools.iter().map(version));
        match result.get("nextCursor") {
            Some(next) => cursor = Some(next.clone()),
            None => return Some((found, versions)),
        }
        between();
    }
}

fn ten_names() -> Vec<String> {
    (0..10).map(|n| format!("t{n}")).collect()
}

/// Row D8, the server's half: no walk mixes two versions, however much is
/// committed between its pages.
#[tokio::test]
async fn a_thousand_commits_during_one_walk_yield_one_version() {
    let hosted = host(ten(CatalogOptions::default().history(kept(2000)))).await;
    let mut version = 0;
    let (found, versions) = walk(&hosted, || {
        for _ in 0..334 {
            version += 1;
            advance(&hosted.server, version);
        }
    })
    .await
    .expect("every version is kept");
    assert_eq!(version, 1002);
    assert_eq!(found, ten_names());
    assert_eq!(versions, BTreeSet::from(["v0".to_owned()]));

    // By default 64 versions are kept: the walk is refused, and begins again.
    let hosted = host(ten(CatalogOptions::default())).await;
    let mut version = 0;
    let refused = walk(&hosted, || {
        for _ in 0..1000 {
            version += 1;
            advance(&hosted.server, version);
        }
    });
    assert_eq!(refused.await, None);
    let again = walk(&hosted, || {
        for _ in 0..20 {
            version += 1;
            advance(&hosted.server, version);
        }
    });
    let (found, versions) = again.await.expect("kept");
    assert_eq!(found, ten_names());
    assert_eq!(versions, BTreeSet::from(["v1000".to_owned()]));
}

/// Commits from another thread, at any point of many walks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn walks_beside_a_writer_see_one_version_each() {
    let hosted = host(ten(CatalogOptions::default().history(kept(100_000)))).await;
    let server = hosted.server.clone();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let writing = tokio::task::spawn_blocking(move || {
        let mut version = 0;
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            version += 1;
            advance(&server, version);
        }
    });
    for _ in 0..30 {
        let (found, versions) = walk(&hosted, || {}).await.expect("kept");
        assert_eq!(found, ten_names());
        assert_eq!(versions.len(), 1, "{versions:?}");
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writing.await.expect("no panic");
}

fn changed_in_one_place(cursor: &str) -> Vec<String> {
    let all: Vec<char> = cursor.chars().collect();
    (0..all.len())
        .map(|at| {
            let mut altered = all.clone();
            altered[at] = if altered[at] == 'A' { 'B' } else { 'A' };
            altered.into_iter().collect::<String>()
        })
        .filter(|altered| altered != cursor)
        .collect()
}

/// Row D6: made up, altered, of another list, of another server, outlived.
#[tokio::test]
async fn a_cursor_that_is_not_ours_is_refused() {
    let paged = || CatalogOptions::default().page_size(1);
    let mut builder = builder();
    for kind in CatalogKind::ALL {
        builder = builder.catalog(kind, paged());
    }
    let hosted = host(builder.build().expect("a server")).await;
    let other = host(ten(CatalogOptions::default())).await;
    let foreign = page(&other, None).await.result()["nextCursor"].clone();
    let lists = [
        ("tools/list", "tools"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ];
    let mut cursors = Vec::new();
    for (method, _) in lists {
        let first = hosted.client.modern(method, json!({})).result().await;
        cursors.push(first["nextCursor"].as_str().expect("a cursor").to_owned());
    }
    let session = hosted.client.legacy("2025-11-25").await;
    for (at, (method, field)) in lists.into_iter().enumerate() {
        let own = &cursors[at];
        let mut bad: Vec<Value> = ["bogus", "", "0", "1", "null", "../../etc", "\u{1f600}"]
            .iter()
            .map(|c| json!(c))
            .collect();
        bad.extend(cursors.iter().filter(|c| *c != own).map(|c| json!(c)));
        bad.extend(changed_in_one_place(own).into_iter().map(Value::from));
        bad.extend([
            own[1..].into(),
            format!("{own}A").into(),
            own.repeat(1000).into(),
        ]);
        bad.extend([
            foreign.clone(),
            json!(7),
            json!(true),
            json!([own]),
            json!({}),
        ]);
        for cursor in bad {
            let params = json!({"cursor": cursor});
            let reply = hosted.client.modern(method, params.clone()).send().await;
            assert_eq!(outcome(&reply), (200, -32602), "{method} {cursor}");
            let reply = session.request(method, params).await;
            assert_eq!(outcome(&reply), (200, -32602), "{method} {cursor}");
        }
        // The real one is as good as ever; null means the first page.
        let params = json!({"cursor": own});
        let second = hosted.client.modern(method, params).result().await;
        assert_eq!(second[field].as_array().map(Vec::len), Some(1));
        assert_eq!(second.get("nextCursor"), None);
        let params = json!({"cursor": null});
        let first = hosted.client.modern(method, params).result().await;
        assert_eq!(first["nextCursor"], **own);
    }
}

/// Row D6: what a cursor was bound to is gone, by count or by age.
#[tokio::test]
async fn a_cursor_that_outlived_its_version_is_refused() {
    let hosted = host(ten(CatalogOptions::default().history(kept(2)))).await;
    let cursor = page(&hosted, None).await.result()["nextCursor"].clone();
    advance(&hosted.server, 1);
    assert_eq!(page(&hosted, Some(&cursor)).await.status, 200);
    advance(&hosted.server, 2);
    let reply = page(&hosted, Some(&cursor)).await;
    assert_eq!(outcome(&reply), (200, -32602));
    let (found, _) = walk(&hosted, || {}).await.expect("a fresh walk");
    assert_eq!(found, ten_names());

    let mut limits = HistoryLimits::default();
    limits.age = Duration::ZERO;
    let hosted = host(ten(CatalogOptions::default().history(limits))).await;
    let cursor = page(&hosted, None).await.result()["nextCursor"].clone();
    assert_eq!(page(&hosted, Some(&cursor)).await.status, 200);
    advance(&hosted.server, 1);
    let reply = page(&hosted, Some(&cursor)).await;
    assert_eq!(outcome(&reply), (200, -32602));
}

/// Cases 1 and 2, from the server's side: a cursor is never empty, always
/// advances, and the last page has none, wherever the list ends.
#[tokio::test]
async fn cursors_advance_and_end() {
    for items in [0_usize, 1, 2, 3, 4, 6, 7] {
        let mut builder =
            bare().catalog(CatalogKind::Tools, CatalogOptions::default().page_size(3));
        for n in 0..items {
            builder = builder.tool(tool(&format!("t{n}"), ""), echo);
        }
        let hosted = host(builder.build().expect("a server")).await;
        let pages = hosted.client.walk("tools/list").await;
        assert_eq!(pages.len(), items.div_ceil(3).max(1), "{items}");
        let found: Vec<String> = pages.iter().flat_map(|p| names(&p["tools"])).collect();
        let expected: Vec<String> = (0..items).map(|n| format!("t{n}")).collect();
        assert_eq!(found, expected);
        let cursors: Vec<&Value> = pages.iter().filter_map(|p| p.get("nextCursor")).collect();
        assert_eq!(cursors.len(), pages.len() - 1);
        assert!(
            cursors
                .iter()
                .all(|c| c.as_str().is_some_and(|c| !c.is_empty()))
        );
        let distinct: BTreeSet<String> = cursors.iter().map(|c| c.to_string()).collect();
        assert_eq!(distinct.len(), cursors.len());
    }
}

/// Case 17 and row L1: the same catalog is the same bytes, request after
/// request, start after start.
#[tokio::test]
async fn the_same_catalog_is_the_same_bytes() {
    let properties: serde_json::Map<String, Value> = (0..12)
        .map(|n| (format!("p{}", (n * 7) % 12), json!({"type": "string"})))
        .collect();
    let mut bodies = BTreeSet::new();
    for _ in 0..5 {
        let mut builder = bare();
        for name in ["zeta", "alpha", "midway"] {
            let schema = json!({"type": "object", "properties": properties});
            builder = builder.tool(json!({"name": name, "inputSchema": schema}), echo);
        }
        let hosted = host(builder.build().expect("a server")).await;
        for _ in 0..50 {
            let list = hosted.client.modern("tools/list", json!({}));
            let reply = list.id(json!("same")).send().await;
            bodies.insert(String::from_utf8_lossy(&reply.body).into_owned());
        }
    }
    assert_eq!(bodies.len(), 1);
    let order = ["zeta", "alpha", "midway"].map(|n| bodies.iter().next().and_then(|b| b.find(n)));
    assert!(order.is_sorted(), "{order:?}: as the operator gave them");
}

/// Row L2: names that others would fold into one.
#[tokio::test]
async fn names_that_look_alike_are_two_tools() {
    let long = "x".repeat(65);
    let longer = format!("{}y", "x".repeat(65));
    let alike = [
        "search-a",
        "search_a",
        "repo/search",
        "repo_search",
        "Search-a",
        "caf\u{e9}",
        "cafe\u{301}",
        &long,
        &longer,
    ];
    let mut builder = bare();
    for name in alike {
        builder = builder.tool(tool(name, ""), echo);
    }
    let hosted = host(builder.build().expect("a server")).await;
    assert_eq!(hosted.tools().await, alike);
    for name in alike {
        let call = hosted.client.modern("tools/call", json!({"name": name}));
        let result = call.result().await;
        assert_eq!(result["content"][0]["text"], format!("{name} {{}}"));
    }
    // Two of one name: a typed error that names it, and nothing is changed.
    let twice = bare().tool(tool("x", "1"), echo).tool(tool("x", "2"), echo);
    let error = twice.build().expect_err("a duplicate").to_string();
    assert!(error.contains("\"x\""), "{error}");
    let twins = || {
        let twins = [tool("x", "1"), tool("x", "2")];
        twins.iter().map(|t| item(CatalogKind::Tools, t)).collect()
    };
    let refused = hosted
        .server
        .commit(|c| c.replace(CatalogKind::Tools, twins()));
    assert!(
        refused
            .expect_err("a duplicate")
            .to_string()
            .contains("\"x\"")
    );
    assert_eq!(hosted.tools().await, alike);
}

/// Case 22 and G2, the server's half: every page says the same of its cache
/// life, as the specification wants it; a legacy client is not told. Private
/// unless the operator says otherwise (case 31).
#[tokio::test]
async fn the_pages_of_a_list_agree_on_their_cache_life() {
    let public = CatalogOptions::default()
        .ttl(Duration::from_millis(1500))
        .scope(CacheScope::Public);
    for (options, ttl, scope) in [
        (CatalogOptions::default(), 0, "private"),
        (public, 1500, "public"),
    ] {
        let hosted = host(ten(options)).await;
        let pages = hosted.client.walk("tools/list").await;
        assert_eq!(pages.len(), 4);
        for page in &pages {
            assert_eq!(page["ttlMs"], ttl);
            assert_eq!(page["cacheScope"], scope);
            assert_eq!(page["resultType"], "complete");
        }
        let session = hosted.client.legacy("2025-11-25").await;
        let legacy = session.request("tools/list", json!({})).await.result();
        for field in ["ttlMs", "cacheScope", "resultType", "tag", "_meta"] {
            assert_eq!(legacy.get(field), None, "{field}");
        }
        assert_eq!(legacy["tools"], pages[0]["tools"]);
    }
}

/// Case 21: a list that the server does not have.
#[tokio::test]
async fn a_catalog_that_was_not_declared_does_not_exist() {
    let hosted = host(bare().tool(tool("a", ""), echo).build().expect("a server")).await;
    let session = hosted.client.legacy("2025-11-25").await;
    for method in ["resources/list", "resources/templates/list", "prompts/list"] {
        let reply = hosted.client.modern(method, json!({})).send().await;
        assert_eq!(outcome(&reply), (404, -32601), "{method}");
        let reply = session.request(method, json!({})).await;
        assert_eq!(outcome(&reply), (200, -32601), "{method}");
    }
    assert_eq!(hosted.tools().await, ["a"]);
}
