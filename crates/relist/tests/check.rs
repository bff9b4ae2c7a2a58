//! `relist check` against servers with one fault each, and against one without.

use std::process::Output;

use relist_fixture::{CursorPolicy, Era, FakeServer, Field, GetBehaviour, ListenBehaviour, Reply};
use serde_json::{Value, json};
use tokio::process::Command;

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

async fn relist(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_relist"))
        .args(args)
        .output()
        .await
        .expect("the program runs")
}

async fn check(server: &FakeServer, args: &[&str]) -> (bool, Value) {
    let url = server.url();
    let mut all = vec!["check", "--json", "--observe", "1", &url];
    all.extend(args);
    let output = relist(&all).await;
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.success(), report)
}

fn rule<'a>(report: &'a Value, id: &str) -> &'a Value {
    let rules = report["rules"].as_array().expect("rules");
    rules.iter().find(|r| r["rule"] == id).expect("the rule")
}

fn outcome<'a>(report: &'a Value, id: &str) -> &'a str {
    rule(report, id)["outcome"].as_str().expect("an outcome")
}

/// Everything that was found under a rule.
fn said(report: &Value, id: &str) -> String {
    let findings = rule(report, id)["findings"].as_array().expect("findings");
    let texts: Vec<&str> = findings.iter().filter_map(|f| f["text"].as_str()).collect();
    texts.join("\n")
}

/// The rules that a report finds broken.
fn broken(report: &Value) -> Vec<&str> {
    let rules = report["rules"].as_array().expect("rules");
    let faults = rules.iter().filter(|r| r["outcome"] == "fault");
    faults.filter_map(|r| r["rule"].as_str()).collect()
}

async fn three_tools() -> FakeServer {
    let server = FakeServer::builder()
        .catalog("tools", vec![tool("a"), tool("b"), tool("c")])
        .page_size(2)
        .capabilities(json!({"tools": {"listChanged": true}}))
        .start()
        .await;
    server.set_cursor_policy("tools", CursorPolicy::GenerationBound);
    server
}

#[tokio::test]
async fn a_server_without_a_fault_has_none() {
    for era in [Era::Modern, Era::Legacy] {
        let server = three_tools().await;
        server.set_era(era);
        server.on_call("a", |call| {
            call.server()
                .set_catalog("tools", vec![tool("a"), tool("b"), tool("d")]);
            call.server().notify("tools");
            json!({"resultType": "complete", "content": []})
        });
        let (good, report) = check(&server, &["--change", "a"]).await;
        assert_eq!(broken(&report), Vec::<&str>::new(), "{era:?} {report:#}");
        assert!(good);
        assert_eq!(report["advice"], 0, "{report:#}");
        let judged = [
            "lists",
            "order",
            "cursors-advance",
            "cursors-refused",
            "cursors-version",
            "names",
            "definitions",
            "param-headers",
            "hint-stream",
            "hints-declared",
            "hints-true",
            "hints-complete",
            "http-headers",
        ];
        for id in judged {
            assert_eq!(outcome(&report, id), "ok", "{era:?} {id}: {report:#}");
        }
        let fields = if era == Era::Modern {
            "ok"
        } else {
            "not checked"
        };
        assert_eq!(outcome(&report, "cache-fields"), fields);
        assert_eq!(
            server.log().count("tools/call"),
            1 + usize::from(era == Era::Modern)
        );
    }
}

type Prepare = fn(&FakeServer);

#[tokio::test]
async fn each_fault_is_found_and_nothing_else() {
    let cases: [(&str, &str, Prepare); 16] = [
        ("lists", "no array", |s| {
            s.respond("tools/list", |_| {
                Some(json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}))
            });
        }),
        ("order", "another order", |s| s.set_shuffled("tools", true)),
        ("cursors-advance", "comes back", |s| {
            s.set_cursor_policy("tools", CursorPolicy::Constant("c".to_owned()));
        }),
        ("cursors-advance", "nothing new", |s| {
            s.set_cursor_policy("tools", CursorPolicy::AlwaysNew);
        }),
        ("cursors-refused", "made-up cursor", |s| {
            s.respond("tools/list", |r| {
                let second = r["params"]["cursor"] == "2";
                let mut page = json!({"resultType": "complete", "ttlMs": 0,
                    "cacheScope": "private", "tools": [tool(if second {"b"} else {"a"})]});
                if !second {
                    page["nextCursor"] = "2".into();
                }
                Some(page)
            });
        }),
        ("cache-fields", "`ttlMs` is not on page 1", |s| {
            s.set_field("tools", "ttlMs", Field::Absent);
        }),
        ("cache-fields", "no count of milliseconds", |s| {
            s.set_field("tools", "ttlMs", json!("60000"));
        }),
        ("cache-fields", "differs between the pages", |s| {
            let scopes = vec![Some(json!("public")), Some(json!("private"))];
            s.set_field("tools", "cacheScope", scopes);
        }),
        ("names", "more than one tool is called \"a\"", |s| {
            s.set_catalog("tools", vec![tool("a"), tool("a")]);
        }),
        ("definitions", "has no `inputSchema`", |s| {
            s.set_catalog("tools", vec![json!({"name": "a"})]);
        }),
        ("definitions", "cannot be read", |s| {
            s.set_catalog("tools", vec![json!({"title": "a"})]);
        }),
        ("param-headers", "leave the tool out", |s| {
            s.set_catalog(
                "tools",
                vec![json!({"name": "a", "inputSchema": {"type": "object",
                    "properties": {"p": {"type": "number", "x-mcp-header": "P"}}}})],
            );
        }),
        ("hint-stream", "did not acknowledge", |s| {
            s.set_listen(ListenBehaviour::ResultOnly);
        }),
        ("hints-true", "announced nothing", |s| {
            s.set_notify_on_list("tools", true);
        }),
        ("http-headers", "not HTTP 400 and -32020", |s| {
            s.set_strict(false);
        }),
        ("http-headers", "a GET gets text/html", |s| {
            s.set_get(GetBehaviour::Html);
        }),
    ];
    for (id, text, prepare) in cases {
        let server = three_tools().await;
        prepare(&server);
        let (good, report) = check(&server, &[]).await;
        assert!(!good, "{id} {text}");
        let said = said(&report, id);
        assert!(said.contains(text), "{id} {text}: {report:#}");
        // A list that cannot be read, or never ends, has consequences elsewhere.
        if !["lists", "cursors-advance", "definitions"].contains(&id) {
            assert_eq!(broken(&report), [id], "{text}: {report:#}");
        }
    }
}

/// What only shows when something changes.
#[tokio::test]
async fn each_fault_of_a_change_is_found() {
    let cases: [(&str, &str, Prepare); 4] = [
        ("hints-complete", "no hint came", |s| {
            s.on_call("a", |call| {
                call.server()
                    .set_catalog("tools", vec![tool("a"), tool("z")]);
                json!({"resultType": "complete", "content": []})
            });
        }),
        ("hints-true", "before its change was visible", |s| {
            s.on_call("a", |call| {
                call.server().notify("tools");
                let server = call.server().clone();
                tokio::spawn(async move {
                    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                    server.set_catalog("tools", vec![tool("a"), tool("z")]);
                });
                json!({"resultType": "complete", "content": []})
            });
        }),
        ("hints-declared", "does not declare", |s| {
            s.set_capabilities(json!({"tools": {}}));
            s.on_call("a", |call| {
                call.server()
                    .set_catalog("tools", vec![tool("a"), tool("z")]);
                let hint = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                let done = json!({"resultType": "complete", "content": []});
                Reply::events(vec![hint], done)
            });
        }),
        ("cursors-version", "of neither version", |s| {
            // Positions: what was added in front pushes an item onto the next page.
            s.set_cursor_policy("tools", CursorPolicy::Offset);
            s.on_call("a", |call| {
                let tools = ["z", "a", "b", "c"].map(tool).to_vec();
                call.server().set_catalog("tools", tools);
                call.server().notify("tools");
                json!({"resultType": "complete", "content": []})
            });
        }),
    ];
    for (id, text, prepare) in cases {
        let server = three_tools().await;
        prepare(&server);
        let (good, report) = check(&server, &["--change", "a"]).await;
        assert!(!good, "{id} {text}");
        let said = said(&report, id);
        assert!(said.contains(text), "{id} {text}: {report:#}");
        assert_eq!(broken(&report), [id], "{text}: {report:#}");
    }
}

#[tokio::test]
async fn the_report_for_people_names_what_was_found() {
    let server = three_tools().await;
    server.set_shuffled("tools", true);
    let output = relist(&["check", "--observe", "0", &server.url()]).await;
    assert!(!output.status.success());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(
        text.starts_with("relist-fixture 0.1.0, protocol 2026-07-28\n"),
        "{text}"
    );
    assert!(
        text.contains("\n  FAULT   the same items come in the same order\n"),
        "{text}"
    );
    assert!(
        text.contains("\n  ok      every walk comes to an end\n"),
        "{text}"
    );
    assert!(text.ends_with("1 fault, no pieces of advice\n"), "{text}");
    // No terminal, no colour, no spinner.
    assert!(!text.contains('\u{1b}'), "{text}");
    assert_eq!(output.stderr, b"");
}

#[tokio::test]
async fn a_target_that_is_none_is_explained() {
    let output = relist(&["check", "npx"]).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(error.contains("goes after `--`"), "{error}");
    let output = relist(&["check", "http://127.0.0.1:9/mcp"]).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("127.0.0.1:9"), "{error}");
}
