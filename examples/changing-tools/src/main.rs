//! A server whose tools come and go. A book that is closed can be opened; one
//! that is open can be read and closed. Every client is told of each change.
//!
//! ```text
//! cargo run -p example-changing-tools                     a client tries it, then both end
//! cargo run -p example-changing-tools -- 127.0.0.1:8080   serves http://127.0.0.1:8080/mcp until Ctrl-C
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use relist_client::call::CallOptions;
use relist_client::client::{Client, Options};
use relist_client::config::{ClientConfig, Target};
use relist_client::handle::Need;
use relist_protocol::message::Implementation;
use relist_protocol::{CatalogKind, RpcError};
use relist_server::{
    CatalogOptions, CommitError, Context, HttpOptions, Server, ToolCall, ToolOutput, bind,
};
use serde_json::{Map, Value, json};

fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

/// One commit: both tools go and the third comes at the same instant.
fn close(server: &Server) -> Result<(), CommitError> {
    let owner = server.clone();
    server.commit(|edit| {
        edit.remove(CatalogKind::Tools, "read");
        edit.remove(CatalogKind::Tools, "close");
        edit.upsert_tool(
            tool("open", "Opens the book."),
            move |_: ToolCall, _: Context| {
                let server = owner.clone();
                async move { done(open(&server), "The book is open.") }
            },
        );
    })?;
    Ok(())
}

fn open(server: &Server) -> Result<(), CommitError> {
    let owner = server.clone();
    server.commit(|edit| {
        edit.remove(CatalogKind::Tools, "open");
        edit.upsert_tool(
            tool("read", "Reads the book."),
            async |_: ToolCall, _: Context| Ok::<_, RpcError>(ToolOutput::text("Once upon a time")),
        );
        edit.upsert_tool(
            tool("close", "Closes the book."),
            move |_: ToolCall, _: Context| {
                let server = owner.clone();
                async move { done(close(&server), "The book is closed.") }
            },
        );
    })?;
    Ok(())
}

fn done(committed: Result<(), CommitError>, said: &str) -> Result<ToolOutput, RpcError> {
    committed.map_err(|e| RpcError::internal(e.to_string()))?;
    Ok(ToolOutput::text(said))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::builder(Implementation::new("changing-tools", "0.1.0"))
        .catalog(CatalogKind::Tools, CatalogOptions::default())
        .build()?;
    close(&server)?;

    let address: Option<SocketAddr> = std::env::args().nth(1).map(|a| a.parse()).transpose()?;
    let listener = bind(address.unwrap_or(([127, 0, 0, 1], 0).into()))?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    let serving = async {
        server
            .serve_http(listener, HttpOptions::default(), stop)
            .await
    };
    if address.is_some() {
        println!("serving {url}; Ctrl-C ends it");
        return Ok(serving.await?);
    }
    tokio::select! {
        served = serving => Ok(served?),
        tried = use_the_book(&url) => tried,
    }
}

/// Calls what the tools allow, and prints each version that the client adopts.
async fn use_the_book(url: &str) -> Result<(), Box<dyn Error>> {
    let config = ClientConfig::new("changing-tools", "0.1.0");
    let client = Client::connect(Options::new(Target::http(url)?, config)).await?;
    let tools = client
        .catalog(CatalogKind::Tools)
        .ok_or("the client keeps no tools")?;
    let first = tools.fresh(Need::Turn, Duration::from_secs(10)).await?;
    let names: Vec<String> = first.items().map(|tool| tool.key().to_string()).collect();
    println!("tools: {}", names.join(", "));

    let mut changes = tools.changes();
    for name in ["open", "read", "close"] {
        let answer = client
            .call_tool(name, Map::new(), CallOptions::default())
            .await?;
        let result: Value = serde_json::from_str(answer.result.get())?;
        println!("{name}: {}", result["content"][0]["text"]);
        if name != "read" {
            let changed = changes.next().await.ok_or("the client closed")?;
            println!("tools: {}", changed.change);
        }
    }
    client.close().await;
    Ok(())
}
