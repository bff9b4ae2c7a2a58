//! A server that is a program: its start, its lines, its end.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use relist_client::config::{ClientConfig, Command, Target};
use relist_client::connection::{
    Connection, EraCache, HintEnd, HintEvent, HintStream, RequestOptions,
};
use relist_client::error::{ConnectError, RequestError};
use relist_fixture::{Ending, Era, FakeStdioServer, ListenBehaviour, Refusal, RpcError, Script};
use relist_protocol::message::ListenFilter;
use relist_protocol::{CatalogKind, Era as Spoken};
use serde_json::{Map, json};

fn config() -> ClientConfig {
    ClientConfig::new("test", "0").request_timeout(Duration::from_secs(20))
}

fn target(server: &FakeStdioServer) -> Target {
    Target::Stdio(Command {
        program: server.program().display().to_string(),
        args: server.args(),
        ..Command::default()
    })
}

async fn start(era: Era) -> FakeStdioServer {
    let script = Script::new();
    script.set_era(era);
    FakeStdioServer::start(&script).await
}

async fn open(server: &FakeStdioServer, config: ClientConfig) -> Connection {
    Connection::open(&target(server), Arc::new(config), &EraCache::new())
        .await
        .unwrap()
}

fn tools() -> ListenFilter {
    let mut filter = ListenFilter::default();
    filter.set(CatalogKind::Tools, true);
    filter
}

async fn next(hints: &mut HintStream) -> HintEvent {
    tokio::time::timeout(Duration::from_secs(20), hints.next())
        .await
        .expect("an event in time")
        .expect("not over")
}

async fn list(connection: &Connection) -> Result<(), RequestError> {
    connection
        .request("tools/list", Map::new(), RequestOptions::default())
        .await
        .map(|_| ())
}

#[tokio::test]
async fn the_era_is_found_out_by_a_probe() {
    for (era, spoken) in [
        (Era::Modern, Spoken::Modern),
        (Era::Dual, Spoken::Modern),
        (Era::Legacy, Spoken::Legacy),
    ] {
        let server = start(era).await;
        let connection = open(&server, config()).await;
        assert_eq!(connection.era(), spoken);
        list(&connection).await.expect("answered");
        assert_eq!(server.launches(), 1);
    }
}

#[tokio::test]
async fn silence_and_any_odd_error_mean_legacy() {
    for refusal in [
        Refusal::Silent,
        Refusal::Rpc(RpcError::new(-32602, "Invalid request parameters")),
        Refusal::Rpc(RpcError::new(-32000, "Server not initialized")),
        Refusal::Rpc(RpcError::new(0, "huh")),
    ] {
        let server = start(Era::Legacy).await;
        server.set_refusal(refusal.clone());
        let connection = open(&server, config().probe_timeout(Duration::from_millis(300))).await;
        assert_eq!(connection.era(), Spoken::Legacy, "{refusal:?}");
        list(&connection).await.expect("answered");
        assert_eq!(server.log().count("notifications/cancelled"), 0);
    }
}

#[tokio::test]
async fn a_modern_program_that_is_slow_to_start_is_still_modern() {
    let server = start(Era::Modern).await;
    let gate = server.gate("server/discover", 1);
    let opening = open(&server, config().probe_timeout(Duration::from_millis(50)));
    let (connection, ()) = tokio::join!(opening, async {
        server.log().wait_for_count("initialize", 1).await;
        gate.release();
    });
    assert_eq!(connection.era(), Spoken::Modern);
}

#[tokio::test]
async fn hints_before_the_result_of_initialize_are_skipped() {
    let server = start(Era::Legacy).await;
    server.set_before_initialize(vec![
        json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "hi"}}),
    ]);
    let connection = open(&server, config()).await;
    assert_eq!(connection.era(), Spoken::Legacy);
}

#[tokio::test]
async fn a_verdict_saves_the_probe() {
    let server = start(Era::Legacy).await;
    let eras = EraCache::new();
    for _ in 0..2 {
        let config = Arc::new(config());
        Connection::open(&target(&server), config, &eras)
            .await
            .expect("opened")
            .close()
            .await;
    }
    assert_eq!(server.log().count("server/discover"), 1);
    assert_eq!(server.log().count("initialize"), 2);
}

#[tokio::test]
async fn a_program_that_ends_fails_whatever_waits() {
    let server = start(Era::Modern).await;
    let connection = open(&server, config()).await;
    let mut hints = connection.hints(tools());
    assert!(matches!(next(&mut hints).await, HintEvent::Opened { .. }));
    let gate = server.gate("tools/list", 1);
    let begun = Instant::now();
    let (outcome, ()) = tokio::join!(list(&connection), async {
        gate.reached().await;
        server.exit_all();
    });
    let error = outcome.expect_err("it ended");
    assert!(error.ends_connection(), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    let end = next(&mut hints).await;
    assert!(
        matches!(end, HintEvent::Ended(HintEnd::Closed { .. })),
        "{end:?}"
    );
    assert!(connection.is_closed());
    assert!(
        list(&connection)
            .await
            .expect_err("closed")
            .ends_connection()
    );
}

#[tokio::test]
async fn a_line_that_is_too_long_fails_its_request_and_nothing_else() {
    let server = start(Era::Modern).await;
    let connection = open(&server, config().line_limit(100_000)).await;
    server.respond("tools/call", |_| {
        Some(json!({"content": [], "x": "y".repeat(200_000)}))
    });
    let mut params = Map::new();
    params.insert("name".to_owned(), "big".into());
    let error = connection
        .request("tools/call", params, RequestOptions::default())
        .await
        .expect_err("too long");
    assert_eq!(error, RequestError::TooLarge { limit: 100_000 });
    list(&connection).await.expect("the connection lives on");

    // Not an answer at all, while exactly one request waits.
    let gate = server.gate("tools/list", 1);
    let (outcome, ()) = tokio::join!(list(&connection), async {
        gate.reached().await;
        server.write_line(vec![b'x'; 64 << 20]);
        tokio::time::sleep(Duration::from_millis(10)).await;
    });
    assert_eq!(
        outcome.expect_err("too long"),
        RequestError::TooLarge { limit: 100_000 }
    );
    gate.release();
    list(&connection).await.expect("the connection lives on");
}

#[tokio::test]
async fn lines_that_are_no_messages_are_skipped() {
    let server = start(Era::Modern).await;
    let connection = open(&server, config()).await;
    let gate = server.gate("tools/list", 1);
    let (outcome, ()) = tokio::join!(list(&connection), async {
        gate.reached().await;
        for line in [
            "Listening on port 3000",
            "",
            "{\"jsonrpc\":\"2.0\"",
            "[]",
            "{\"jsonrpc\":\"2.0\",\"id\":4711,\"result\":{}}",
            "{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"roots/list\"}",
        ] {
            server.write_line(line);
        }
        server.write_line(b"\xff\xfe".to_vec());
        gate.release();
    });
    outcome.expect("answered");
}

#[tokio::test]
async fn an_id_echoed_as_a_string_is_refused_clearly() {
    let server = start(Era::Modern).await;
    let connection = open(&server, config()).await;
    let gate = server.gate("tools/list", 1);
    let (outcome, ()) = tokio::join!(list(&connection), async {
        gate.reached().await;
        let id = server.log().last_request("tools/list").unwrap().body["id"].clone();
        server.write_line(format!(
            r#"{{"jsonrpc":"2.0","id":"{id}","result":{{"tools":[]}}}}"#
        ));
        tokio::time::sleep(Duration::from_millis(50)).await;
    });
    assert!(
        matches!(outcome, Err(RequestError::ForeignId { .. })),
        "{outcome:?}"
    );
    gate.release();
}

#[tokio::test]
async fn a_request_that_runs_out_of_time_is_cancelled() {
    let server = start(Era::Modern).await;
    let connection = open(&server, config()).await;
    let gate = server.gate("tools/list", 1);
    let options = RequestOptions::default().timeout(Duration::from_millis(100));
    let error = connection
        .request("tools/list", Map::new(), options)
        .await
        .expect_err("too slow");
    assert!(matches!(error, RequestError::Timeout { .. }), "{error}");
    server
        .log()
        .wait_for_count("notifications/cancelled", 1)
        .await;
    // The late answer finds nobody, and harms nobody.
    gate.release();
    list(&connection).await.expect("answered");
}

#[tokio::test]
async fn subscriptions_are_told_apart_by_their_ids() {
    let server = start(Era::Modern).await;
    let connection = open(&server, config()).await;
    let mut prompts = ListenFilter::default();
    prompts.set(CatalogKind::Prompts, true);
    let mut first = connection.hints(tools());
    let mut second = connection.hints(prompts.clone());
    assert_eq!(
        next(&mut first).await,
        HintEvent::Opened { granted: tools() }
    );
    assert_eq!(
        next(&mut second).await,
        HintEvent::Opened { granted: prompts }
    );
    server.notify("prompts");
    assert_eq!(
        next(&mut second).await,
        HintEvent::Changed {
            kind: CatalogKind::Prompts,
            tag: None
        }
    );
    drop(second);
    server
        .log()
        .wait_for_count("notifications/cancelled", 1)
        .await;
    server.end_listens(Ending::CancelledThenResult);
    assert_eq!(next(&mut first).await, HintEvent::Ended(HintEnd::Graceful));
}

#[tokio::test]
async fn a_subscription_that_does_not_open_says_why() {
    for (behaviour, refused) in [
        (ListenBehaviour::ResultOnly, None),
        (ListenBehaviour::CancelledOnly, None),
        (
            ListenBehaviour::Error(RpcError::new(-32601, "no")),
            Some(-32601),
        ),
        (ListenBehaviour::Silent, None),
    ] {
        let server = start(Era::Modern).await;
        server.set_listen(behaviour.clone());
        let patient = config().request_timeout(Duration::from_secs(1));
        let connection = open(&server, patient).await;
        let mut hints = connection.hints(tools());
        match (next(&mut hints).await, refused) {
            (HintEvent::Ended(HintEnd::NoAcknowledgment), None) => {}
            (HintEvent::Ended(HintEnd::Refused(error)), Some(code)) => assert_eq!(error.code, code),
            other => panic!("{behaviour:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn legacy_hints_come_over_the_pipe() {
    let server = start(Era::Legacy).await;
    let connection = open(&server, config()).await;
    let mut hints = connection.hints(tools());
    assert_eq!(
        next(&mut hints).await,
        HintEvent::Opened { granted: tools() }
    );
    server.notify("tools");
    assert_eq!(
        next(&mut hints).await,
        HintEvent::Changed {
            kind: CatalogKind::Tools,
            tag: None
        }
    );
    drop(hints);
    let mut stray = connection.stray_hints();
    server.notify("prompts");
    assert_eq!(
        next(&mut stray).await,
        HintEvent::Changed {
            kind: CatalogKind::Prompts,
            tag: None
        }
    );
}

#[tokio::test]
async fn hints_during_a_request_do_not_delay_its_answer() {
    let server = start(Era::Modern).await;
    let connection = open(&server, config()).await;
    let mut hints = connection.hints(tools());
    assert_eq!(
        next(&mut hints).await,
        HintEvent::Opened { granted: tools() }
    );
    let gate = server.gate("tools/list", 1);
    let (outcome, ()) = tokio::join!(list(&connection), async {
        gate.reached().await;
        server.notify_times("tools", 10_000);
        gate.release();
    });
    outcome.expect("answered, though nobody reads the hints");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error_that_names_it() {
    let target = Target::stdio(["/nonexistent/server", "--flag"]).unwrap();
    let failed = Connection::open(&target, Arc::new(config()), &EraCache::new())
        .await
        .expect_err("no such program");
    assert!(
        matches!(&failed, ConnectError::Spawn { program, .. } if program == "/nonexistent/server"),
        "{failed}"
    );
}

#[cfg(unix)]
mod shell {
    use super::*;

    fn sh(script: &str, env: &[(&str, &str)]) -> Target {
        Target::Stdio(Command {
            program: "sh".to_owned(),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: env
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>(),
            cwd: None,
        })
    }

    #[tokio::test]
    async fn a_program_that_dies_is_quoted_with_its_last_words() {
        let target = sh("echo \"no key: $WHY\" >&2; exit 3", &[("WHY", "unset")]);
        let failed = Connection::open(&target, Arc::new(config()), &EraCache::new())
            .await
            .expect_err("it died");
        let text = failed.to_string();
        assert!(text.contains("exit status: 3"), "{text}");
        assert!(text.contains("no key: unset"), "{text}");
    }

    /// Some servers end when the first message is not `initialize`.
    #[tokio::test]
    async fn a_program_that_the_probe_kills_is_started_again() {
        let target = sh(
            r#"read line; case "$line" in *server/discover*) exit 1;; esac
            echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"touchy","version":"1"}}}'
            cat >/dev/null"#,
            &[],
        );
        let connection = Connection::open(&target, Arc::new(config()), &EraCache::new())
            .await
            .expect("started again");
        assert_eq!(connection.era(), Spoken::Legacy);
        connection.close().await;
    }

    /// Neither a closed input nor a request to end moves it: it is killed, and
    /// what it started is killed with it.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_program_that_will_not_end_is_killed_and_leaves_no_zombie() {
        let target = sh(
            r#"trap "" TERM
            read line
            echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'
            read line
            echo "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\"serverInfo\":{\"name\":\"stubborn\",\"version\":\"$$\"}}}"
            while :; do sleep 1; done"#,
            &[],
        );
        let config = config().shutdown_timeout(Duration::from_millis(100));
        let connection = Connection::open(&target, Arc::new(config), &EraCache::new())
            .await
            .expect("opened");
        let pid = connection.server().info.as_ref().unwrap().version.clone();
        let alive = || std::path::Path::new("/proc").join(&pid).exists();
        assert!(alive());
        let begun = Instant::now();
        connection.close().await;
        assert!(!alive(), "killed and reaped");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn dropping_the_connection_ends_the_program() {
        let target = sh(
            r#"read line
            echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'
            read line
            echo "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\"serverInfo\":{\"name\":\"meek\",\"version\":\"$$\"}}}"
            cat >/dev/null"#,
            &[],
        );
        let connection = Connection::open(&target, Arc::new(config()), &EraCache::new())
            .await
            .expect("opened");
        let pid = connection.server().info.as_ref().unwrap().version.clone();
        drop(connection);
        let begun = Instant::now();
        while std::path::Path::new("/proc").join(&pid).exists() {
            assert!(begun.elapsed() < Duration::from_secs(10), "it lives on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
