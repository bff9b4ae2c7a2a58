//! A host that runs turns. Each turn begins with the tools that the model is
//! given, which stay the same until the next one; every version that was
//! handed out is on record, and so is every refresh behind it.
//!
//! ```text
//! cargo run -p example-host-turns
//! ```

use std::error::Error;

use relist_client::call::CallOptions;
use relist_client::client::{Client, Options};
use relist_client::config::{ClientConfig, Target};
use relist_client::host::{Host, Turn};
use relist_protocol::message::Implementation;
use relist_protocol::{CatalogKind, RpcError};
use relist_server::{Context, HttpOptions, Server, ToolCall, ToolOutput, bind};
use serde_json::{Map, Value, json};

fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

async fn answer(call: ToolCall, _: Context) -> Result<ToolOutput, RpcError> {
    Ok(ToolOutput::text(format!("{} was called", call.name)))
}

/// What a model would be given, and what a person would see.
fn show(turn: &Turn) {
    let names: Vec<&str> = turn
        .tools
        .tools
        .iter()
        .map(|t| t.public_name.as_str())
        .collect();
    println!(
        "turn {}: {} in version {}",
        turn.number,
        names.join(", "),
        turn.tools.version
    );
    if let Some(note) = &turn.note {
        println!("  note for the model: {note}");
    }
    if let Some(reason) = &turn.stale {
        println!("  may be out of date: {reason}");
    }
}

/// Stands in for a model that wants a tool of its list.
async fn call(turn: &Turn, name: &str) {
    match turn.call(name, Map::new(), CallOptions::default()).await {
        Ok(answer) => println!("  {name}: {}", answer.result),
        Err(refused) => println!("  {name}: {refused}"),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::builder(Implementation::new("host-turns", "0.1.0"))
        .tool(tool("fetch", "Fetches a page."), answer)
        .tool(tool("search", "Searches pages."), answer)
        .build()?;
    let listener = bind(([127, 0, 0, 1], 0).into())?;
    let target = Target::http(&format!("http://{}/mcp", listener.local_addr()?))?;
    let serving = server.clone();
    tokio::spawn(async move {
        serving
            .serve_http(listener, HttpOptions::default(), std::future::pending())
            .await
    });

    let client = Client::connect(Options::new(target, ClientConfig::new("host", "0.1.0"))).await?;
    let mut host = Host::new(client);

    let first = host.begin_turn().await;
    show(&first);
    call(&first, "search").await;

    // The server changes in the middle of the turn. The model keeps its list;
    // a call to the tool that has gone is refused without asking the server.
    let tools = host
        .client()
        .catalog(CatalogKind::Tools)
        .ok_or("the client keeps no tools")?;
    let mut changes = tools.changes();
    server.commit(|edit| {
        edit.remove(CatalogKind::Tools, "search");
        edit.upsert_tool(tool("find", "Finds pages."), answer);
    })?;
    changes.next().await.ok_or("the client closed")?;
    call(&first, "search").await;

    let second = host.begin_turn().await;
    show(&second);
    call(&second, "find").await;
    show(&host.begin_turn().await);

    println!("\nadopted:");
    for record in host.adoptions() {
        let what = if record.is_new {
            "a new version"
        } else {
            "the same version"
        };
        println!("  turn {}: {} tools, {what}", record.turn, record.tools);
    }
    println!("refreshes:");
    for entry in host.client().trail().entries() {
        println!("  {}", entry.line());
    }
    host.client().close().await;
    Ok(())
}
