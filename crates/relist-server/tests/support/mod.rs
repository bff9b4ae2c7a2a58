//! A small server, and requests to it without a socket.
#![allow(dead_code, reason = "each test file uses a part of it")]

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use relist_protocol::CatalogKind;
use relist_protocol::message::Implementation;
use relist_protocol::meta::LogLevel;
use relist_protocol::{RpcError, Switches};
use relist_server::{
    CatalogOptions, Context, ReadCall, ReadOutput, Server, ServerBuilder, ToolCall, ToolOutput,
};
use serde_json::{Value, json};
use tower::ServiceExt as _;

pub(crate) fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

pub(crate) async fn echo(call: ToolCall, _: Context) -> Result<ToolOutput, RpcError> {
    Ok(ToolOutput::text(Value::Object(call.arguments).to_string()))
}

async fn talk(_: ToolCall, context: Context) -> Result<ToolOutput, RpcError> {
    for progress in [1.0, 2.0, 2.0, 1.0] {
        context.progress(progress, Some(2.0), None).await;
    }
    context.log(LogLevel::Debug, None, "small").await;
    context.log(LogLevel::Error, Some("talk"), "large").await;
    Ok(ToolOutput::text("said"))
}

async fn ask(_: ToolCall, context: Context) -> Result<ToolOutput, RpcError> {
    let params =
        json!({"message": "who?", "requestedSchema": {"type": "object", "properties": {}}});
    let answer = context.elicit("who", params).await?;
    Ok(ToolOutput::text(answer["content"]["name"].to_string()))
}

async fn fail(_: ToolCall, _: Context) -> Result<ToolOutput, RpcError> {
    panic!("the handler panics")
}

async fn lie(_: ToolCall, _: Context) -> Result<ToolOutput, RpcError> {
    Ok(ToolOutput::structured(json!({"n": "not a number"})))
}

async fn read(call: ReadCall, _: Context) -> Result<ReadOutput, RpcError> {
    Ok(ReadOutput::text(
        &call.uri,
        "text/plain",
        &format!("{:?}", call.variables),
    ))
}

pub(crate) fn builder() -> ServerBuilder {
    let region = json!({"name": "region", "inputSchema": {"type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}});
    let count = json!({"name": "count", "inputSchema": {"type": "object",
        "properties": {"n": {"type": "integer"}}, "required": ["n"]}});
    let lies = json!({"name": "lie", "inputSchema": {"type": "object"}, "outputSchema":
        {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}});
    Server::builder(Implementation::new("test", "1"))
        .catalog(CatalogKind::Tools, CatalogOptions::default().page_size(4))
        .tool(tool("echo"), echo)
        .tool(tool("talk"), talk)
        .tool(tool("ask"), ask)
        .tool(tool("fail"), fail)
        .tool(region, echo)
        .tool(count, echo)
        .tool(lies, lie)
        .resource(json!({"uri": "a://1", "name": "one"}), read)
        .resource_template(json!({"uriTemplate": "t://{id}", "name": "t"}), read)
}

pub(crate) fn server() -> Server {
    builder().build().expect("a server")
}

pub(crate) fn server_with(switches: Switches) -> Server {
    builder().enable(switches).build().expect("a server")
}

pub(crate) fn meta(extra: Value) -> Value {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    if let (Some(meta), Value::Object(mut extra)) = (meta.as_object_mut(), extra) {
        meta.append(&mut extra);
    }
    meta
}

pub(crate) fn request(id: Value, method: &str, mut params: Value, extra: Value) -> Value {
    params["_meta"] = meta(extra);
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// The headers that belong to a modern request, and `Accept` and the like.
pub(crate) fn headers(body: &Value) -> Vec<(String, String)> {
    let mut list = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        (
            "accept".to_owned(),
            "application/json, text/event-stream".to_owned(),
        ),
    ];
    let mut add = |name: &str, value: Option<&str>| {
        list.extend(value.map(|v| (name.to_owned(), v.to_owned())));
    };
    let params = &body["params"];
    if let Some(version) = params["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str() {
        add("mcp-protocol-version", Some(version));
        add("mcp-method", body["method"].as_str());
        add(
            "mcp-name",
            params["name"].as_str().or(params["uri"].as_str()),
        );
    }
    list
}

pub(crate) fn http(
    method: &str,
    headers: &[(String, String)],
    body: impl Into<Body>,
) -> Request<Body> {
    let mut request = Request::builder().method(method).uri("/mcp");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.body(body.into()).expect("a request")
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> Response<Body> {
    router.clone().oneshot(request).await.expect("infallible")
}

pub(crate) async fn post(router: &Router, body: &Value) -> Response<Body> {
    send(router, http("POST", &headers(body), body.to_string())).await
}

pub(crate) async fn json_of(response: Response<Body>) -> (StatusCode, HeaderMap, Value) {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    (parts.status, parts.headers, value)
}

/// The next chunk of a stream, as text.
pub(crate) async fn chunk(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?.expect("a frame");
    let bytes = frame.into_data().expect("data");
    Some(String::from_utf8(bytes.to_vec()).expect("UTF-8"))
}

/// All messages of a stream that ends.
pub(crate) async fn messages(mut body: Body) -> Vec<Value> {
    let mut text = String::new();
    while let Some(chunk) = chunk(&mut body).await {
        text.push_str(&chunk);
    }
    data(&text)
}

pub(crate) fn data(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter_map(|json| serde_json::from_str(json).ok())
        .collect()
}

/// A session, and the headers of requests in it.
pub(crate) async fn session(
    router: &Router,
    version: &str,
    capabilities: Value,
) -> Vec<(String, String)> {
    let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": version, "capabilities": capabilities,
        "clientInfo": {"name": "c", "version": "1"}}});
    let response = post(router, &body).await;
    let id = response.headers()["mcp-session-id"]
        .to_str()
        .expect("ASCII")
        .to_owned();
    let (status, _, answer) = json_of(response).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answer["result"]["protocolVersion"], version);
    let mut list = headers(&json!({}));
    list.push(("mcp-session-id".to_owned(), id));
    list.push(("mcp-protocol-version".to_owned(), version.to_owned()));
    list
}
