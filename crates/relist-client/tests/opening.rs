//! How a connection is opened: era, version, credentials, redirects.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod raw;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use raw::*;
use relist_client::config::{ClientConfig, TokenError, TokenProvider, TokenReason};
use relist_client::connection::{Connection, EraCache, RequestOptions};
use relist_client::error::{ConnectError, RequestError};
use relist_protocol::{Era, ProtocolVersion};
use serde_json::{Map, Value, json};

async fn try_open(server: &RawServer, config: ClientConfig) -> Result<Connection, ConnectError> {
    Connection::open(&server.target(), Arc::new(config), &EraCache::new()).await
}

#[tokio::test]
async fn whatever_is_no_modern_answer_leads_to_initialize() {
    type Make = fn(&Seen) -> Answer;
    let refusals: [(&str, Make); 11] = [
        ("400 with text", |_| http(400, &[], b"Bad Request")),
        ("400 without a body", |_| http(400, &[], b"")),
        ("404", |_| {
            http(404, &[("content-type", "text/html")], b"<html>")
        }),
        ("405", |_| http(405, &[("allow", "GET")], b"")),
        ("400, the TypeScript SDK's", |s| {
            error(
                s,
                400,
                -32000,
                "Bad Request: Server not initialized",
                Value::Null,
            )
        }),
        ("404 with -32601", |s| {
            error(s, 404, -32601, "Method not found", Value::Null)
        }),
        ("200 with -32601", |s| {
            error(s, 200, -32601, "Method not found", Value::Null)
        }),
        ("200 with -32602", |s| {
            error(s, 200, -32602, "Invalid params", Value::Null)
        }),
        ("an empty result, as to every method", |s| {
            result(s, json!({}))
        }),
        ("500", |_| http(500, &[], b"oops")),
        ("202 without a body", |_| http(202, &[], b"")),
    ];
    for (what, refuse) in refusals {
        let server = RawServer::start(move |seen, _| match seen.method() {
            "server/discover" => refuse(seen),
            "initialize" => initialized(seen),
            "notifications/initialized" => http(202, &[], b""),
            _ => result(seen, json!({"tools": []})),
        })
        .await;
        let connection = try_open(&server, config()).await.expect(what);
        assert_eq!(connection.era(), Era::Legacy, "{what}");
        assert_eq!(connection.version(), ProtocolVersion::V2025_11_25);
        connection
            .request("tools/list", Map::new(), RequestOptions::default())
            .await
            .expect(what);
        let seen = server.seen();
        let list = seen.last().expect("a request");
        assert_eq!(list.header("mcp-session-id"), Some("session-1"));
        assert_eq!(list.header("mcp-protocol-version"), Some("2025-11-25"));
        assert_eq!(list.header("mcp-method"), None);
        assert_eq!(list.body["params"], Value::Null, "plain legacy");
        let opening = seen
            .iter()
            .find(|s| s.method() == "initialize")
            .expect("sent");
        assert_eq!(opening.header("mcp-session-id"), None);
    }
}

#[tokio::test]
async fn a_modern_server_is_recognised_and_described() {
    let server =
        modern(|seen, _| result(seen, json!({"resultType": "complete", "tools": []}))).await;
    let connection = server.open(config()).await;
    assert_eq!(connection.era(), Era::Modern);
    assert_eq!(
        connection.server().info.as_ref().map(|i| i.name.as_str()),
        Some("raw")
    );
    connection
        .request("tools/list", Map::new(), RequestOptions::default())
        .await
        .expect("answered");
    let list = server.saw("tools/list").await;
    assert_eq!(list.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(list.header("mcp-method"), Some("tools/list"));
    assert_eq!(
        list.header("accept"),
        Some("application/json, text/event-stream")
    );
    assert_eq!(list.header("content-type"), Some("application/json"));
    assert_eq!(list.header("mcp-session-id"), None);
    assert_eq!(server.count("initialize"), 0);
}

#[tokio::test]
async fn a_refused_version_is_retried_once_with_an_offered_one() {
    let server = RawServer::start(|seen, nth| match (seen.method(), nth) {
        ("server/discover", 1) => error(
            seen,
            400,
            -32022,
            "Unsupported protocol version",
            json!({"supported": ["2026-07-28"], "requested": "2026-07-28"}),
        ),
        ("server/discover", _) => discovered(seen),
        _ => http(500, &[], b""),
    })
    .await;
    let connection = try_open(&server, config()).await.expect("opened");
    assert_eq!(connection.era(), Era::Modern);
    assert_eq!(server.methods(), ["server/discover", "server/discover"]);
}

#[tokio::test]
async fn a_modern_server_that_keeps_refusing_is_an_error_and_no_legacy_one() {
    let server = RawServer::start(|seen, _| {
        error(
            seen,
            400,
            -32022,
            "no",
            json!({"supported": ["2026-07-28"]}),
        )
    })
    .await;
    let failed = try_open(&server, config()).await.expect_err("refused");
    assert!(matches!(failed.request(), Some(RequestError::Rpc(e)) if e.code == -32022));
    assert_eq!(server.count("server/discover"), 2);
    assert_eq!(server.count("initialize"), 0);

    let server = RawServer::start(|seen, _| {
        error(
            seen,
            400,
            -32022,
            "no",
            json!({"supported": ["2099-01-01"]}),
        )
    })
    .await;
    let failed = try_open(&server, config()).await.expect_err("refused");
    assert!(
        matches!(&failed, ConnectError::NoCommonVersion { theirs, .. } if theirs == &["2099-01-01"]),
        "{failed}"
    );
}

#[tokio::test]
async fn a_header_mismatch_is_a_modern_error() {
    let server =
        RawServer::start(|seen, _| error(seen, 400, -32020, "Header mismatch", Value::Null)).await;
    let failed = try_open(&server, config()).await.expect_err("refused");
    assert!(matches!(failed.request(), Some(RequestError::Rpc(e)) if e.code == -32020));
    assert_eq!(server.count("initialize"), 0);
}

#[tokio::test]
async fn a_modern_server_that_offers_legacy_versions_alone_is_initialized() {
    let server = RawServer::start(|seen, _| match seen.method() {
        "server/discover" => error(
            seen,
            400,
            -32022,
            "no",
            json!({"supported": ["2025-11-25"]}),
        ),
        "initialize" => initialized(seen),
        _ => http(202, &[], b""),
    })
    .await;
    let connection = try_open(&server, config()).await.expect("opened");
    assert_eq!(connection.era(), Era::Legacy);
}

#[tokio::test]
async fn the_verdict_is_remembered_and_dropped_when_it_fails() {
    let server = legacy(|seen, _| result(seen, json!({}))).await;
    let eras = EraCache::new();
    let config = Arc::new(config());
    for _ in 0..2 {
        Connection::open(&server.target(), Arc::clone(&config), &eras)
            .await
            .expect("opened");
    }
    assert_eq!(server.count("server/discover"), 1, "asked once");
    assert_eq!(server.count("initialize"), 2);

    let modern = modern(|_, _| http(400, &[], b"no such method")).await;
    eras.set(&modern.target(), ProtocolVersion::V2025_11_25);
    let connection = Connection::open(&modern.target(), config, &eras)
        .await
        .expect("asked again");
    assert_eq!(connection.era(), Era::Modern);
    assert_eq!(
        eras.get(&modern.target()),
        Some(ProtocolVersion::V2026_07_28)
    );
}

#[tokio::test]
async fn a_busy_server_is_no_verdict() {
    let server = RawServer::start(|_, _| http(503, &[("retry-after", "7")], b"")).await;
    let failed = try_open(&server, config()).await.expect_err("busy");
    assert_eq!(
        failed.request().and_then(RequestError::retry_after),
        Some(Duration::from_secs(7))
    );
    assert_eq!(server.methods(), ["server/discover"]);
}

#[tokio::test]
async fn a_legacy_server_chooses_the_version() {
    let choose = |version: &'static str| {
        RawServer::start(move |seen, _| match seen.method() {
            "initialize" => result(
                seen,
                json!({"protocolVersion": version, "capabilities": {}}),
            ),
            "server/discover" => http(400, &[], b""),
            _ => http(202, &[], b""),
        })
    };
    let server = choose("2025-06-18").await;
    let connection = try_open(&server, config()).await.expect("opened");
    assert_eq!(connection.version(), ProtocolVersion::V2025_06_18);
    let server = choose("1999-01-01").await;
    let failed = try_open(&server, config()).await.expect_err("unknown");
    assert!(failed.to_string().contains("1999-01-01"), "{failed}");
    assert_eq!(server.count("notifications/initialized"), 0);
}

#[tokio::test]
async fn a_notification_before_the_result_of_initialize_is_skipped() {
    let server = RawServer::start(|seen, _| match seen.method() {
        "server/discover" => http(400, &[], b""),
        "initialize" => {
            let answer = json!({"jsonrpc": "2.0", "id": seen.id(), "result": {
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "eager", "version": "1"}}});
            events(&format!(
                "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}}\n\ndata: {answer}\n\n"
            ))
        }
        _ => http(202, &[], b""),
    })
    .await;
    let connection = try_open(&server, config()).await.expect("opened");
    assert_eq!(connection.era(), Era::Legacy);
}

/// Gives out numbered tokens, and remembers why it was asked.
#[derive(Default)]
struct Numbered(Mutex<Vec<Option<String>>>);

impl TokenProvider for Numbered {
    fn token<'a>(
        &'a self,
        reason: TokenReason<'a>,
    ) -> BoxFuture<'a, Result<Option<String>, TokenError>> {
        let mut asked = self.0.lock().unwrap();
        asked.push(match reason {
            TokenReason::Refused {
                www_authenticate, ..
            } => Some(www_authenticate.unwrap_or_default().to_owned()),
            _ => None,
        });
        let token = format!("s3cret-{}", asked.len());
        Box::pin(async move { Ok(Some(token)) })
    }
}

#[tokio::test]
async fn a_refused_token_is_renewed_once() {
    let server = RawServer::start(|seen, _| {
        if seen.header("authorization") == Some("Bearer s3cret-2") {
            discovered(seen)
        } else {
            http(401, &[("www-authenticate", "Bearer realm=\"x\"")], b"")
        }
    })
    .await;
    let provider = Arc::new(Numbered::default());
    let connection = try_open(&server, config().token_provider(provider.clone()))
        .await
        .expect("opened");
    assert_eq!(connection.era(), Era::Modern);
    assert_eq!(
        *provider.0.lock().unwrap(),
        [None, Some("Bearer realm=\"x\"".to_owned())]
    );
    assert_eq!(server.count("server/discover"), 2);
}

#[tokio::test]
async fn a_refusal_of_credentials_is_no_verdict_and_no_loop() {
    for status in [401, 403] {
        let server = RawServer::start(move |_, _| {
            http(status, &[("www-authenticate", "Bearer")], b"who are you?")
        })
        .await;
        let provider = Arc::new(Numbered::default());
        let config = config().token_provider(provider.clone());
        let failed = try_open(&server, config).await.expect_err("refused");
        match failed.request() {
            Some(RequestError::Unauthorized { www_authenticate }) if status == 401 => {
                assert_eq!(www_authenticate.as_deref(), Some("Bearer"));
            }
            Some(RequestError::Forbidden { excerpt, .. }) if status == 403 => {
                assert_eq!(excerpt, "who are you?");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(server.methods(), ["server/discover", "server/discover"]);
        assert!(!format!("{failed:?} {failed}").contains("s3cret"));
    }
}

#[tokio::test]
async fn many_refusals_at_once_renew_one_token() {
    let server = RawServer::start(|seen, _| match seen.header("authorization") {
        Some("Bearer s3cret-1") if seen.method() == "server/discover" => discovered(seen),
        Some("Bearer s3cret-2") => result(seen, json!({"tools": []})),
        _ => http(401, &[], b""),
    })
    .await;
    let provider = Arc::new(Numbered::default());
    let connection = try_open(&server, config().token_provider(provider.clone()))
        .await
        .expect("opened");
    let calls =
        (0..20).map(|_| connection.request("tools/list", Map::new(), RequestOptions::default()));
    for answer in futures::future::join_all(calls).await {
        answer.expect("answered");
    }
    assert_eq!(provider.0.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_redirect_is_followed_within_the_origin_only() {
    let elsewhere = RawServer::start(|seen, _| discovered(seen)).await;
    let place = format!("http://{}/mcp", elsewhere.address);
    let server = RawServer::start(move |seen, _| match seen.path.as_str() {
        "/mcp" => http(307, &[("location", "/moved")], b""),
        "/moved" if seen.method() == "server/discover" => discovered(seen),
        _ => http(307, &[("location", &place)], b""),
    })
    .await;
    let provider = Arc::new(Numbered::default());
    let connection = try_open(&server, config().token_provider(provider))
        .await
        .expect("followed");
    assert_eq!(
        server.seen()[1].header("authorization"),
        Some("Bearer s3cret-1")
    );
    let refused = connection
        .request("tools/list", Map::new(), RequestOptions::default())
        .await
        .expect_err("not followed");
    assert!(
        matches!(&refused, RequestError::Http { status: 307, excerpt, .. } if excerpt.contains("another origin")),
        "{refused}"
    );
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn nobody_there_is_an_error_that_says_so() {
    let server = RawServer::start(|_, _| Vec::new()).await;
    let target = server.target();
    drop(server);
    let failed = eventually_refused(&target).await;
    assert!(
        matches!(
            failed.request(),
            Some(RequestError::Io {
                connecting: true,
                ..
            })
        ),
        "{failed}"
    );
    assert!(failed.to_string().contains("no connection"), "{failed}");
}

async fn eventually_refused(target: &relist_client::config::Target) -> ConnectError {
    for _ in 0..100 {
        let opened = Connection::open(target, Arc::new(config()), &EraCache::new()).await;
        match opened {
            Err(failed)
                if matches!(
                    failed.request(),
                    Some(RequestError::Io {
                        connecting: true,
                        ..
                    })
                ) =>
            {
                return failed;
            }
            // The listener's task may not have been torn down yet.
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    panic!("the port stays open")
}

#[tokio::test]
async fn closing_ends_the_legacy_session() {
    let server = legacy(|_, _| http(200, &[], b"")).await;
    let connection = server.open(config()).await;
    connection.close().await;
    let last = server.saw("DELETE").await;
    assert_eq!(last.header("mcp-session-id"), Some("session-1"));

    let server = legacy(|_, _| http(405, &[], b"")).await;
    drop(server.open(config()).await);
    server.saw("DELETE").await;
}
