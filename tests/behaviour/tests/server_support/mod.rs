//! A server of ours on a port, and a raw client of it.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses a part of it"
)]

use relist_catalog::Item;
use relist_fixture::{HttpReply, RecordingClient, RouterHost};
use relist_protocol::message::Implementation;
use relist_protocol::{CatalogKind, RpcError};
use relist_server::{
    Context, Edit, HttpOptions, PromptCall, PromptOutput, ReadCall, ReadOutput, Server,
    ServerBuilder, ToolCall, ToolOutput,
};
use serde_json::{Value, json};

/// The three hints, in the order in which a stream carries them.
pub const ALL_HINTS: [&str; 3] = [
    "notifications/tools/list_changed",
    "notifications/resources/list_changed",
    "notifications/prompts/list_changed",
];

/// A filter that asks for all three.
pub fn all() -> Value {
    json!({"toolsListChanged": true, "resourcesListChanged": true, "promptsListChanged": true})
}

pub fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

pub fn resource(uri: &str, description: &str) -> Value {
    json!({"uri": uri, "name": uri, "description": description})
}

pub fn template(uri: &str, description: &str) -> Value {
    json!({"uriTemplate": uri, "name": uri, "description": description})
}

pub fn prompt(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description})
}

/// Says which tool it is, and what it was given.
pub async fn echo(call: ToolCall, _: Context) -> Result<ToolOutput, RpcError> {
    let arguments = Value::Object(call.arguments);
    Ok(ToolOutput::text(format!("{} {arguments}", call.name)))
}

/// Says which resource it is, and the variables of its template.
pub async fn read(call: ReadCall, _: Context) -> Result<ReadOutput, RpcError> {
    let variables = serde_json::to_string(&call.variables).unwrap_or_default();
    Ok(ReadOutput::text(&call.uri, "text/plain", &variables))
}

/// Says which prompt it is.
pub async fn say(call: PromptCall, _: Context) -> Result<PromptOutput, RpcError> {
    Ok(PromptOutput::text(call.name))
}

pub fn bare() -> ServerBuilder {
    Server::builder(Implementation::new("behaviour", "1"))
}

/// Two items of each of the four kinds.
pub fn builder() -> ServerBuilder {
    bare()
        .tool(tool("a", "1"), echo)
        .tool(tool("b", "1"), echo)
        .resource(resource("r://a", "1"), read)
        .resource(resource("r://b", "1"), read)
        .resource_template(template("t://a/{x}", "1"), read)
        .resource_template(template("t://b/{x}", "1"), read)
        .prompt(prompt("a", "1"), say)
        .prompt(prompt("b", "1"), say)
}

/// An item as it is written.
pub fn item(kind: CatalogKind, value: &Value) -> Item {
    Item::from_value(kind, value).expect("an item")
}

/// Puts a tool that echoes.
pub fn put_tool(server: &Server, name: &str, description: &str) {
    server
        .commit(|c| c.upsert_tool(tool(name, description), echo))
        .expect("a commit");
}

pub fn commit(server: &Server, change: impl FnOnce(&mut Edit)) {
    server.commit(change).expect("a commit");
}

/// A server on a port. The client makes a new connection for each request.
pub struct Hosted {
    pub server: Server,
    pub host: RouterHost,
    pub client: RecordingClient,
}

pub async fn host(server: Server) -> Hosted {
    host_with(server, HttpOptions::default()).await
}

pub async fn host_with(server: Server, options: HttpOptions) -> Hosted {
    let host = RouterHost::start(server.router(options)).await;
    let client = RecordingClient::at(host.address());
    Hosted {
        server,
        host,
        client,
    }
}

impl Hosted {
    /// The names on the first page of the modern list of tools.
    pub async fn tools(&self) -> Vec<String> {
        let page = self.client.modern("tools/list", json!({})).result().await;
        names(&page["tools"])
    }

    /// The next request is served as ever.
    pub async fn works(&self, after: &str) {
        let discover = self.client.modern("server/discover", json!({}));
        let answer = discover.send().await;
        assert_eq!(answer.status, 200, "after {after}");
        assert!(answer.result()["capabilities"].is_object(), "after {after}");
    }
}

pub fn names(items: &Value) -> Vec<String> {
    let items = items.as_array().expect("a list of items");
    let name = |item: &Value| {
        let key = ["uriTemplate", "uri", "name"];
        let key = key.iter().find_map(|key| item.get(*key)?.as_str());
        key.expect("a name").to_owned()
    };
    items.iter().map(name).collect()
}

pub fn methods(messages: &[Value]) -> Vec<&str> {
    let method = |m: &'_ Value| m.get("method").is_some();
    let messages = messages.iter().filter(|m| method(m));
    messages.filter_map(|m| m["method"].as_str()).collect()
}

/// Status and error code of an answer.
pub fn outcome(reply: &HttpReply) -> (u16, i64) {
    (reply.status, reply.error_code())
}
