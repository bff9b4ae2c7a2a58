//! The client that the official conformance suite judges. `FIXTURES.md` says
//! what it does in which scenario.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use futures::future::BoxFuture;
use relist_client::config::{ClientConfig, ClientHandler, Target};
use relist_client::connection::{Connection, EraCache, HintEvent, RequestOptions};
use relist_protocol::message::{ListenFilter, method};
use relist_protocol::param_header::param_headers;
use relist_protocol::{CatalogKind, ProtocolVersion, RpcError};
use serde::Deserialize;
use serde_json::{Map, Value, json};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Acts out one scenario of the conformance suite against its test server.
///
/// The suite says the rest in variables: MCP_CONFORMANCE_SCENARIO,
/// MCP_CONFORMANCE_PROTOCOL_VERSION and, where a scenario has something to say,
/// MCP_CONFORMANCE_CONTEXT.
#[derive(Debug, Parser)]
struct Arguments {
    /// The URL of the test server.
    url: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Context {
    tool_calls: Vec<ToolCall>,
}

#[derive(Debug, Deserialize)]
struct ToolCall {
    name: String,
    arguments: Map<String, Value>,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    match run(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                eprintln!("because: {cause}");
                source = cause.source();
            }
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Outcome {
    let scenario = variable("MCP_CONFORMANCE_SCENARIO")?;
    if scenario.starts_with("auth/") {
        return Err("OAuth is not implemented, so this scenario cannot pass".into());
    }
    let version = variable("MCP_CONFORMANCE_PROTOCOL_VERSION")?;
    let connection = connect(&arguments.url, &version).await?;
    let outcome = act(&connection, &scenario).await;
    connection.close().await;
    outcome
}

fn variable(name: &str) -> Outcome<String> {
    std::env::var(name).map_err(|error| format!("{name}: {error}").into())
}

async fn connect(url: &str, version: &str) -> Outcome<Connection> {
    let version = ProtocolVersion::parse(version)
        .ok_or_else(|| format!("{version:?} is no version that is spoken here"))?;
    let config = ClientConfig::new("relist-conformance-client", env!("CARGO_PKG_VERSION"))
        .only_era(version.era())
        .user_input(Arc::new(Agreeable));
    let target = Target::http(url)?;
    Ok(Connection::open(&target, Arc::new(config), &EraCache::new()).await?)
}

async fn act(connection: &Connection, scenario: &str) -> Outcome {
    match scenario {
        "initialize" | "request-metadata" => {
            // These servers declare no tools; then there is nothing to ask for.
            if connection.server().capabilities.has(CatalogKind::Tools) {
                list(connection, CatalogKind::Tools).await?;
            }
        }
        "json-schema-ref-no-deref" => {
            list(connection, CatalogKind::Tools).await?;
        }
        "tools_call" => {
            call(connection, "add_numbers", json!({ "a": 2, "b": 3 })).await?;
        }
        "elicitation-sep1034-client-defaults" => {
            // The server asks on the stream that belongs to no call.
            let mut stream = connection.hints(ListenFilter::default());
            match stream.next().await {
                Some(HintEvent::Opened { .. }) => {}
                other => return Err(format!("the stream did not open: {other:?}").into()),
            }
            call(connection, "test_client_elicitation_defaults", json!({})).await?;
        }
        "sse-retry" => {
            call(connection, "test_reconnection", json!({})).await?;
        }
        "sep-2322-client-request-state" => {
            // At the same time, so that one call's state has a chance to get
            // into another.
            let calls = [
                "test_mrtr_echo_state",
                "test_mrtr_no_state",
                "test_mrtr_unrelated",
            ]
            .map(|name| call(connection, name, json!({})));
            futures::future::try_join_all(calls).await?;
            call(connection, "test_mrtr_no_result_type", json!({})).await?;
        }
        "http-standard-headers" => {
            for tool in usable_tools(connection).await? {
                call_tool(connection, &tool, Map::new()).await?;
            }
            for resource in list(connection, CatalogKind::Resources).await? {
                let params = json!({ "uri": resource["uri"] });
                ask(connection, method::READ_RESOURCE, params).await?;
            }
            for prompt in list(connection, CatalogKind::Prompts).await? {
                let params = json!({ "name": prompt["name"] });
                ask(connection, method::GET_PROMPT, params).await?;
            }
        }
        "http-custom-headers" => {
            let context: Context = serde_json::from_str(&variable("MCP_CONFORMANCE_CONTEXT")?)?;
            for tool in context.tool_calls {
                call(connection, &tool.name, Value::Object(tool.arguments)).await?;
            }
        }
        "http-invalid-tool-headers" => {
            for tool in usable_tools(connection).await? {
                let arguments = Map::from_iter([("region".to_owned(), "us-west1".into())]);
                call_tool(connection, &tool, arguments).await?;
            }
        }
        "json-schema-2020-12-preservation" => {
            let tool = find_tool(connection, "json_schema_2020_12_tool").await?;
            let arguments = json!({ "schema": tool["inputSchema"] });
            call(connection, "json_schema_echo", arguments).await?;
        }
        other => return Err(format!("there is no scenario {other:?} here").into()),
    }
    Ok(())
}

/// The items of a catalog, which the test servers give on one page.
async fn list(connection: &Connection, kind: CatalogKind) -> Outcome<Vec<Value>> {
    let answer = connection
        .request(kind.list_method(), Map::new(), RequestOptions::default())
        .await?;
    let mut result: Map<String, Value> = answer.read()?;
    match result.remove(kind.items_field()) {
        Some(Value::Array(items)) => Ok(items),
        other => Err(format!("the server's list of {kind} is {other:?}").into()),
    }
}

/// The tools without those whose annotations forbid their use.
async fn usable_tools(connection: &Connection) -> Outcome<Vec<Value>> {
    let mut tools = list(connection, CatalogKind::Tools).await?;
    tools.retain(|tool| match param_headers(&tool["inputSchema"]) {
        Ok(_) => true,
        Err(error) => {
            eprintln!("left out {}: {error}", tool["name"]);
            false
        }
    });
    Ok(tools)
}

async fn find_tool(connection: &Connection, name: &str) -> Outcome<Value> {
    let tools = usable_tools(connection).await?;
    let tool = tools.into_iter().find(|tool| tool["name"] == name);
    tool.ok_or_else(|| format!("the server lists no tool {name}").into())
}

async fn call(connection: &Connection, name: &str, arguments: Value) -> Outcome {
    let Value::Object(arguments) = arguments else {
        return Err("arguments are an object".into());
    };
    let tool = find_tool(connection, name).await?;
    call_tool(connection, &tool, arguments).await
}

async fn call_tool(
    connection: &Connection,
    tool: &Value,
    arguments: Map<String, Value>,
) -> Outcome {
    let mut options = RequestOptions::default();
    for header in param_headers(&tool["inputSchema"])? {
        if let Some(value) = header.value_in(&arguments) {
            options = options.param_header(header.name, value);
        }
    }
    let params = Map::from_iter([
        ("name".to_owned(), tool["name"].clone()),
        ("arguments".to_owned(), arguments.into()),
    ]);
    connection
        .call_with_input(method::CALL_TOOL, params, options)
        .await?;
    Ok(())
}

async fn ask(connection: &Connection, method: &str, params: Value) -> Outcome {
    let Value::Object(params) = params else {
        return Err("parameters are an object".into());
    };
    connection
        .call_with_input(method, params, RequestOptions::default())
        .await?;
    Ok(())
}

/// Says yes to everything. What it leaves out the library fills in.
struct Agreeable;

impl ClientHandler for Agreeable {
    fn capabilities(&self) -> Map<String, Value> {
        ["elicitation", "sampling", "roots"]
            .map(|name| (name.to_owned(), json!({})))
            .into_iter()
            .collect()
    }

    fn elicit(&self, params: Map<String, Value>) -> BoxFuture<'_, Result<Value, RpcError>> {
        let confirms = params
            .get("requestedSchema")
            .is_some_and(|schema| schema["properties"].get("confirmed").is_some());
        let content = if confirms {
            json!({ "confirmed": true })
        } else {
            json!({})
        };
        Box::pin(async move { Ok(json!({ "action": "accept", "content": content })) })
    }

    fn sample(&self, _params: Map<String, Value>) -> BoxFuture<'_, Result<Value, RpcError>> {
        Box::pin(async {
            Ok(json!({
                "role": "assistant",
                "content": { "type": "text", "text": "An answer" },
                "model": "none",
                "stopReason": "endTurn",
            }))
        })
    }

    fn roots(&self) -> BoxFuture<'_, Result<Value, RpcError>> {
        Box::pin(async { Ok(json!({ "roots": [{ "uri": "file:///", "name": "everything" }] })) })
    }
}
