//! The server that the official conformance suite judges. `FIXTURES.md` says
//! what the suite expects of it.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Parser;
use relist_conformance::input::{Given, Round, round};
use relist_conformance::seal::Seal;
use relist_conformance::{content, definitions, questions};
use relist_protocol::message::Implementation;
use relist_protocol::meta::LogLevel;
use relist_protocol::{CatalogKind, RpcError};
use relist_server::{
    CompletionOutput, Context, HttpOptions, InputRequired, PromptCall, PromptOutput, ReadCall,
    ReadOutput, Server, ToolCall, ToolOutput,
};
use serde_json::{Value, json};

/// Serves the fixtures of the conformance suite.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
}

/// What handlers share.
#[derive(Debug, Clone, Default)]
struct Shared {
    seal: Seal,
    server: Arc<OnceLock<Server>>,
    extra_tool: Arc<AtomicBool>,
    extra_prompt: Arc<AtomicBool>,
}

enum Input {
    NotAsked,
    Ask(InputRequired),
    Done(String),
}

fn input(shared: &Shared, name: &str, context: &Context) -> Result<Input, RpcError> {
    let given = Given {
        responses: Some(context.input_responses()),
        state: context.request_state(),
        capabilities: context.client_capabilities(),
    };
    Ok(match round(name, given, &shared.seal) {
        None => Input::NotAsked,
        Some(Round::Done(text)) => Input::Done(text),
        Some(Round::Tampered) => {
            return Err(RpcError::invalid_params("the request state was changed"));
        }
        Some(Round::Ask { requests, state }) => {
            let mut asked = InputRequired::new();
            asked.input_requests = requests;
            asked.request_state = state;
            Input::Ask(asked)
        }
    })
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

async fn asked(context: &Context, params: Value) -> Result<ToolOutput, RpcError> {
    let answer = context.request("elicitation/create", params).await?;
    Ok(ToolOutput::text(format!("the user answered: {answer}")))
}

async fn tool(shared: Shared, call: ToolCall, context: Context) -> Result<ToolOutput, RpcError> {
    match input(&shared, &call.name, &context)? {
        Input::NotAsked => {}
        Input::Ask(asked) => return Ok(asked.into()),
        Input::Done(text) => return Ok(ToolOutput::text(text)),
    }
    let embedded = || content::resource("test://embedded", "text/plain", "an embedded resource");
    Ok(match call.name.as_str() {
        "test_image_content" => ToolOutput::content(vec![content::image()]),
        "test_audio_content" => ToolOutput::content(vec![content::audio()]),
        "test_embedded_resource" => ToolOutput::content(vec![embedded()]),
        "test_multiple_content_types" => ToolOutput::content(vec![
            content::text("three kinds"),
            content::image(),
            embedded(),
        ]),
        "test_error_handling" => ToolOutput::error("this tool always fails"),
        "test_tool_with_progress" => {
            for progress in [0.0, 50.0, 100.0] {
                context.progress(progress, Some(100.0), None).await;
                pause().await;
            }
            ToolOutput::text("done")
        }
        "test_tool_with_logging" | "test_logging_tool" => {
            for step in ["began", "went on", "ended"] {
                context
                    .log(LogLevel::Info, None, format!("the tool {step}"))
                    .await;
                pause().await;
            }
            ToolOutput::text("done")
        }
        "test_sampling" => {
            let prompt = call.text("prompt").unwrap_or_default();
            let params = questions::sampling(prompt, 100);
            let answer = context.request("sampling/createMessage", params).await?;
            ToolOutput::text(format!("the model answered: {}", answer["content"]["text"]))
        }
        "test_elicitation" => {
            let message = call.text("message").unwrap_or_default();
            asked(&context, questions::username_and_email(message)).await?
        }
        "test_elicitation_sep1034_defaults" => asked(&context, questions::with_defaults()).await?,
        "test_elicitation_sep1330_enums" => asked(&context, questions::choices()).await?,
        "test_reconnection" => {
            context.close_stream();
            tokio::time::sleep(Duration::from_millis(100)).await;
            ToolOutput::text("reconnected")
        }
        "test_missing_capability" => {
            context.require_capability("sampling")?;
            ToolOutput::text("sampling is there")
        }
        "test_trigger_tool_change" => {
            let there = shared.extra_tool.fetch_xor(true, Ordering::SeqCst);
            change(&shared, |c| {
                if there {
                    c.remove(CatalogKind::Tools, name_of(&definitions::extra_tool()));
                } else {
                    c.upsert_tool(definitions::extra_tool(), tool_plain);
                }
            })?;
            ToolOutput::text("the list of tools changed")
        }
        "test_trigger_prompt_change" => {
            let there = shared.extra_prompt.fetch_xor(true, Ordering::SeqCst);
            change(&shared, |c| {
                if there {
                    c.remove(CatalogKind::Prompts, name_of(&definitions::extra_prompt()));
                } else {
                    c.upsert_prompt(definitions::extra_prompt(), prompt_plain);
                }
            })?;
            ToolOutput::text("the list of prompts changed")
        }
        name => ToolOutput::text(format!("the answer of {name}")),
    })
}

fn name_of(item: &Value) -> &str {
    item["name"].as_str().unwrap_or_default()
}

fn change(shared: &Shared, edit: impl FnOnce(&mut relist_server::Edit)) -> Result<(), RpcError> {
    let server = shared
        .server
        .get()
        .ok_or_else(|| RpcError::internal("not started"))?;
    server
        .commit(edit)
        .map_err(|e| RpcError::internal(e.to_string()))?;
    Ok(())
}

async fn tool_plain(_: ToolCall, _: Context) -> Result<ToolOutput, RpcError> {
    Ok(ToolOutput::text("a tool that comes and goes"))
}

async fn prompt_plain(_: PromptCall, _: Context) -> Result<PromptOutput, RpcError> {
    Ok(PromptOutput::text("a prompt"))
}

async fn prompt(
    shared: Shared,
    call: PromptCall,
    context: Context,
) -> Result<PromptOutput, RpcError> {
    match input(&shared, &call.name, &context)? {
        Input::NotAsked => {}
        Input::Ask(asked) => return Ok(asked.into()),
        Input::Done(text) => return Ok(PromptOutput::text(text)),
    }
    let user = |content: Value| json!({ "role": "user", "content": content });
    let argument = |name: &str| call.arguments.get(name).cloned().unwrap_or_default();
    Ok(match call.name.as_str() {
        "test_prompt_with_arguments" => PromptOutput::text(format!(
            "arg1 is '{}' and arg2 is '{}'",
            argument("arg1"),
            argument("arg2")
        )),
        "test_prompt_with_embedded_resource" => PromptOutput::messages(vec![
            user(content::resource(
                &argument("resourceUri"),
                "text/plain",
                "embedded",
            )),
            user(content::text("look at the resource above")),
        ]),
        "test_prompt_with_image" => PromptOutput::messages(vec![
            user(content::image()),
            user(content::text("look at the image above")),
        ]),
        _ => PromptOutput::text("a simple prompt"),
    })
}

async fn read(call: ReadCall, _: Context) -> Result<ReadOutput, RpcError> {
    Ok(match call.uri.as_str() {
        "test://static-binary" => ReadOutput::contents(vec![json!({
            "uri": call.uri, "mimeType": "image/png", "blob": content::PNG,
        })]),
        uri => match call.variables.get("id") {
            Some(id) => ReadOutput::text(uri, "text/plain", &format!("the data of {id}")),
            None => ReadOutput::text(uri, "text/plain", "a static text"),
        },
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { listen } = Arguments::parse();
    let shared = Shared::default();
    let mut builder = Server::builder(Implementation::new("relist-conformance-server", "0.1.0"))
        .completion(|_, _| async { Ok(CompletionOutput::new(["a value"])) });
    for definition in definitions::tools() {
        let shared = shared.clone();
        builder = builder.tool(definition, move |call, context| {
            tool(shared.clone(), call, context)
        });
    }
    for definition in definitions::prompts() {
        let shared = shared.clone();
        builder = builder.prompt(definition, move |call, context| {
            prompt(shared.clone(), call, context)
        });
    }
    for definition in definitions::resources() {
        builder = builder.resource(definition, read);
    }
    for definition in definitions::resource_templates() {
        builder = builder.resource_template(definition, read);
    }
    let server = builder.build()?;
    let _ = shared.server.set(server.clone());
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    server
        .serve_http(listener, HttpOptions::default(), std::future::pending())
        .await?;
    Ok(())
}
