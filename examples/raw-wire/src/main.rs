//! Conditional lists on the raw wire: what is sent and what comes back, byte
//! for byte, without any client library. RFC.md explains the exchange.
//!
//! ```text
//! cargo run -p example-raw-wire
//! ```

use std::error::Error;
use std::net::SocketAddr;

use relist_protocol::message::Implementation;
use relist_protocol::{RpcError, Switches};
use relist_server::{Context, HttpOptions, Server, ToolCall, ToolOutput, bind};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

async fn answer(_: ToolCall, _: Context) -> Result<ToolOutput, RpcError> {
    Ok(ToolOutput::text("done"))
}

/// A `tools/list` of 2026-07-28. With a tag it says which list is held, and
/// that an answer without the list is understood.
fn list(id: u64, held: Option<&str>) -> Value {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "raw-wire", "version": "0.1.0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    if let Some(tag) = held {
        meta["io.modelcontextprotocol/clientCapabilities"] =
            json!({"extensions": {"experimental.relist/lists": {"conditional": true}}});
        meta["io.modelcontextprotocol/knownTags"] = json!({"tools/list": tag});
    }
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/list", "params": {"_meta": meta}})
}

/// Sends one request on a connection of its own, prints both sides, and
/// returns the result.
async fn exchange(server: SocketAddr, body: &Value) -> Result<Value, Box<dyn Error>> {
    let body = body.to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\n\
         Host: {server}\r\n\
         Connection: close\r\n\
         Content-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n\
         MCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: tools/list\r\n\
         Content-Length: {}\r\n\
         \r\n\
         {body}",
        body.len(),
    );
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    for (arrow, text) in [("→", &request), ("←", &response)] {
        for line in text.split("\r\n") {
            println!("{arrow} {line}");
        }
    }
    println!(
        "({} bytes up, {} bytes down)\n",
        request.len(),
        response.len()
    );
    let (_, json) = response
        .split_once("\r\n\r\n")
        .ok_or("an answer without a body")?;
    Ok(serde_json::from_str::<Value>(json)?["result"].take())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::builder(Implementation::new("raw-wire", "0.1.0"))
        .enable(Switches::all())
        .tool(tool("fetch"), answer)
        .tool(tool("search"), answer)
        .build()?;
    let listener = bind(([127, 0, 0, 1], 0).into())?;
    let address = listener.local_addr()?;
    let serving = server.clone();
    tokio::spawn(async move {
        serving
            .serve_http(listener, HttpOptions::default(), std::future::pending())
            .await
    });

    println!("A first list: the whole of it, with its tag.\n");
    let first = exchange(address, &list(1, None)).await?;
    let held = first["tag"].as_str().ok_or("a list without a tag")?;

    println!("The same list again, by a client that holds it: it is still current.\n");
    exchange(address, &list(2, Some(held))).await?;

    println!("A tool is added. The tag no longer names the list: the whole of it again.\n");
    server.commit(|edit| edit.upsert_tool(tool("find"), answer))?;
    let second = exchange(address, &list(3, Some(held))).await?;
    assert_ne!(second["tag"], held, "a changed list has another tag");
    Ok(())
}
