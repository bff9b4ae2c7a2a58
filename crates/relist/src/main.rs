//! The command line: measures what keeping catalogs fresh costs, and looks at
//! a server's catalogs as a client would.

mod connect;
mod demo;
mod file;
mod serve;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use relist_catalog::Change;
use relist_client::call::CallOptions;
use relist_protocol::{CatalogKind, Switches};
use serde_json::{Map, Value};

use connect::{Failed, Session};

/// Measures, lists, calls, records, compares and watches catalogs of the Model Context Protocol.
///
/// TARGET is a URL (http://127.0.0.1:3000/mcp), or a command after `--`:
///
///   relist list http://127.0.0.1:3000/mcp
///   relist list -- npx -y @modelcontextprotocol/server-everything stdio
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Replays catalog changes to a few hundred clients, once for each strategy, and says what each costs.
    Demo(demo::Demo),
    /// Serves catalogs from files, and reloads them when they change.
    Serve(serve::Serve),
    /// Lists every catalog of a server, and how each refresh went.
    List(At),
    /// Calls a tool and prints its result.
    Call {
        /// The tool.
        #[arg(long)]
        tool: String,
        /// The arguments, as a JSON object.
        #[arg(long, default_value = "{}")]
        arguments: String,
        #[command(flatten)]
        at: At,
    },
    /// Reads a resource and prints its contents.
    Read {
        /// The resource.
        #[arg(long)]
        uri: String,
        #[command(flatten)]
        at: At,
    },
    /// Saves a server's catalogs as JSON.
    Record {
        /// The file; standard output when absent.
        #[arg(long, short)]
        output: Option<PathBuf>,
        #[command(flatten)]
        at: At,
    },
    /// Compares two recorded files, item by item.
    Diff {
        /// The earlier file.
        before: PathBuf,
        /// The later file.
        after: PathBuf,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Stays connected, and prints each refresh and what changed, until interrupted.
    Watch(At),
}

#[derive(Debug, Args)]
struct At {
    /// Switches of the opt-in layer, separated by commas: tags, conditional, all.
    #[arg(long, default_value = "none")]
    enable: Switches,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    /// A URL, or a command after `--`.
    #[arg(required = true, num_args = 1.., trailing_var_arg = true, value_name = "TARGET")]
    target: Vec<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    match run(Cli::parse().command).await {
        Ok(code) => code,
        Err(error) => {
            show::error(&error);
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<ExitCode, Failed> {
    match command {
        Command::Demo(demo) => Ok(exit(demo::demo(&demo).await?)),
        Command::Serve(options) => {
            serve::serve(options).await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::List(at) => {
            let session = Session::open(&at.target, at.enable).await?;
            let failures = session.settle().await;
            if at.json {
                show::json(&session.recording());
            } else {
                show::catalogs(&session);
            }
            session.close().await;
            Ok(exit(failures == 0))
        }
        Command::Call {
            tool,
            arguments,
            at,
        } => {
            let arguments: Map<String, Value> =
                serde_json::from_str(&arguments).map_err(|e| Failed::Arguments(e.to_string()))?;
            let session = Session::open(&at.target, at.enable).await?;
            let answer = session
                .client
                .call_tool(&tool, arguments, CallOptions::default())
                .await;
            session.close().await;
            let result: Value = serde_json::from_str(answer?.result.get()).unwrap_or_default();
            show::json(&result);
            Ok(exit(result.get("isError") != Some(&Value::Bool(true))))
        }
        Command::Read { uri, at } => {
            let session = Session::open(&at.target, at.enable).await?;
            let answer = session
                .client
                .read_resource(&uri, CallOptions::default())
                .await;
            session.close().await;
            let result: Value = serde_json::from_str(answer?.result.get()).unwrap_or_default();
            show::json(&result);
            Ok(ExitCode::SUCCESS)
        }
        Command::Record { output, at } => {
            let session = Session::open(&at.target, at.enable).await?;
            let failures = session.settle().await;
            let recording = session.recording();
            session.close().await;
            if failures > 0 {
                return Err(Failed::Incomplete(failures));
            }
            match output {
                Some(path) => file::write(&path, &recording)?,
                None => show::json(&recording),
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Diff {
            before,
            after,
            json,
        } => {
            let (before, after) = (file::read(&before)?, file::read(&after)?);
            let changes: Vec<(CatalogKind, Change)> = CatalogKind::ALL
                .into_iter()
                .zip(before.iter().zip(&after))
                .map(|(kind, (b, a))| (kind, Change::between(b, a)))
                .collect();
            show::changes(&changes, json);
            // As diff(1): 0 when nothing differs, 1 when something does.
            Ok(exit(changes.iter().all(|(_, c)| c.is_content_empty())))
        }
        Command::Watch(at) => {
            let session = Session::open(&at.target, at.enable).await?;
            connect::watch(&session, at.json).await;
            session.close().await;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn exit(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
