//! Both eras on one pipe.

mod support;

use std::time::Duration;

use relist_server::{Context, Server, StdioOptions, ToolCall, ToolOutput};
use serde_json::{Value, json};
use support::*;
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};

struct Client {
    input: WriteHalf<DuplexStream>,
    output: Lines<BufReader<ReadHalf<DuplexStream>>>,
    served: tokio::task::JoinHandle<std::io::Result<()>>,
}

fn connect(server: &Server) -> Client {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(theirs);
    let (output, input) = tokio::io::split(ours);
    let server = server.clone();
    let served = tokio::spawn(async move {
        let options = StdioOptions::default().line_limit(1 << 20);
        server.serve_stdio_with(reader, writer, options).await
    });
    Client {
        input,
        output: BufReader::new(output).lines(),
        served,
    }
}

impl Client {
    async fn write(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).await.expect("writes");
        self.input.write_all(b"\n").await.expect("writes");
    }

    async fn send(&mut self, message: &Value) {
        self.write(&message.to_string()).await;
    }

    async fn next(&mut self) -> Value {
        let line = self
            .output
            .next_line()
            .await
            .expect("reads")
            .expect("a line");
        serde_json::from_str(&line).expect("nothing but messages")
    }

    async fn ask(&mut self, message: &Value) -> Value {
        self.send(message).await;
        self.next().await
    }

    async fn initialize(&mut self, version: &str) {
        let opened = self
            .ask(
                &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"}}}),
            )
            .await;
        assert_eq!(opened["result"]["protocolVersion"], version);
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
    }
}

#[tokio::test]
async fn both_eras_are_served_on_one_pipe() {
    let mut client = connect(&server());
    let discovered = client
        .ask(&request(
            json!("d"),
            "server/discover",
            json!({}),
            json!({}),
        ))
        .await;
    assert!(discovered["result"]["supportedVersions"].is_array());
    client.initialize("2025-11-25").await;
    let legacy = client
        .ask(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))
        .await;
    assert_eq!(legacy["result"].get("ttlMs"), None);
    let modern = client
        .ask(&request(json!(2), "tools/list", json!({}), json!({})))
        .await;
    assert!(modern["result"]["ttlMs"].is_u64());
    assert_eq!(modern["result"]["tools"], legacy["result"]["tools"]);
}

#[tokio::test]
async fn bad_lines_are_answered_and_the_connection_goes_on() {
    let mut client = connect(&server());
    for (line, code) in [
        ("{", -32700),
        ("[]", -32600),
        ("7", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, -32602),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
    ] {
        client.write(line).await;
        assert_eq!(client.next().await["error"]["code"], code, "{line}");
    }
    client
        .input
        .write_all(b"\xff\xfe\n\n")
        .await
        .expect("writes");
    assert_eq!(client.next().await["error"]["code"], -32700);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(client.ask(&ping).await["result"], json!({}));
}

#[tokio::test]
async fn a_line_of_64_mib_is_refused_and_not_kept() {
    let mut client = connect(&server());
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..64 {
        client.input.write_all(&chunk).await.expect("writes");
    }
    client.write("").await;
    let refused = client.next().await;
    assert_eq!(refused["error"]["code"], -32700);
    assert_eq!(refused.get("id"), None);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(client.ask(&ping).await["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn requests_run_beside_each_other_and_can_be_given_up() {
    let server = builder()
        .tool(tool("wait"), |_: ToolCall, context: Context| async move {
            context.cancelled().await;
            Ok(ToolOutput::text("too late"))
        })
        .build()
        .expect("a server");
    let mut client = connect(&server);
    client
        .send(&request(
            json!(1),
            "tools/call",
            json!({"name": "wait"}),
            json!({}),
        ))
        .await;
    let beside = client
        .ask(&request(
            json!(2),
            "tools/call",
            json!({"name": "echo"}),
            json!({}),
        ))
        .await;
    assert_eq!(beside["id"], 2);
    let again = client
        .ask(&request(
            json!(1),
            "tools/call",
            json!({"name": "echo"}),
            json!({}),
        ))
        .await;
    assert_eq!(again["error"]["code"], -32600, "the id is taken");
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})).await;
    let after = client
        .ask(&request(json!(3), "tools/list", json!({}), json!({})))
        .await;
    assert_eq!(
        after["id"], 3,
        "the answer to what was given up is not sent"
    );
}

#[tokio::test(start_paused = true)]
async fn hints_follow_the_handshake_and_the_acknowledgment() {
    let server = server();
    let mut client = connect(&server);
    client.initialize("2025-11-25").await;
    let listen = request(
        json!("L"),
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
        json!({}),
    );
    let acknowledged = client.ask(&listen).await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    server
        .commit(|c| c.upsert_tool(tool("x"), echo))
        .expect("a commit");
    let told = [client.next().await, client.next().await];
    for hint in &told {
        assert_eq!(hint["method"], "notifications/tools/list_changed");
    }
    assert_eq!(
        told.iter()
            .filter(|h| h["params"]["_meta"].is_object())
            .count(),
        1
    );
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "L"}})).await;
    // Answered behind the cancellation.
    client
        .ask(&json!({"jsonrpc": "2.0", "id": 8, "method": "ping"}))
        .await;
    server
        .commit(|c| c.upsert_tool(tool("y"), echo))
        .expect("a commit");
    assert_eq!(
        client.next().await.get("params"),
        None,
        "the legacy hint alone"
    );
    let ping = client
        .ask(&json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}))
        .await;
    assert_eq!(ping["id"], 9);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_ends_its_listeners_with_a_result() {
    let server = server();
    let mut client = connect(&server);
    let listen = request(
        json!(4),
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
        json!({}),
    );
    client.ask(&listen).await;
    server.shutdown();
    let end = client.next().await;
    assert_eq!(
        (&end["id"], &end["result"]["resultType"]),
        (&json!(4), &json!("complete"))
    );
}

#[tokio::test]
async fn the_end_of_the_input_ends_the_server() {
    let server = builder()
        .tool(tool("slow"), |_: ToolCall, _: Context| async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok(ToolOutput::text("in time"))
        })
        .tool(tool("never"), |_: ToolCall, _: Context| {
            std::future::pending()
        })
        .build()
        .expect("a server");
    let mut client = connect(&server);
    client
        .send(&request(
            json!(1),
            "tools/call",
            json!({"name": "slow"}),
            json!({}),
        ))
        .await;
    client
        .send(&request(
            json!(2),
            "tools/call",
            json!({"name": "never"}),
            json!({}),
        ))
        .await;
    client.input.shutdown().await.expect("closes");
    assert_eq!(client.next().await["id"], 1);
    let served = tokio::time::timeout(Duration::from_secs(5), &mut client.served).await;
    served
        .expect("in time")
        .expect("no panic")
        .expect("no error");
}

#[tokio::test]
async fn a_batch_is_answered_on_one_line_in_2025_03_26() {
    let mut client = connect(&server());
    client.initialize("2025-03-26").await;
    client.write(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo"}},7]"#).await;
    assert_eq!(client.next().await.as_array().map(Vec::len), Some(3));
}
