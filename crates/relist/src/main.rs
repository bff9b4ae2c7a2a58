//! The command line: measures what keeping catalogs fresh costs, and looks at
//! a server's catalogs as a client would.

mod at;
mod check;
mod connect;
mod demo;
mod file;
mod serve;
mod show;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use relist_catalog::{Change, Snapshot};
use relist_client::call::CallOptions;
use relist_protocol::CatalogKind;
use serde_json::{Map, Value};

use at::At;
use connect::{Failed, Session};

/// Measures, checks, lists, calls, records, compares and watches catalogs of the Model Context Protocol.
///
/// A server is named by its URL, or by the command that starts it, after `--`:
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
    List(Shown),
    /// Calls a tool and prints its result.
    Call {
        /// The tool.
        #[arg(long)]
        tool: String,
        /// The arguments, as a JSON object.
        #[arg(long, default_value = "{}")]
        arguments: String,
        #[command(flatten)]
        shown: Shown,
    },
    /// Reads a resource and prints its contents.
    Read {
        /// The resource.
        #[arg(long)]
        uri: String,
        #[command(flatten)]
        shown: Shown,
    },
    /// Saves a server's catalogs as JSON.
    Record {
        /// The file; standard output when absent.
        #[arg(long, short)]
        output: Option<PathBuf>,
        #[command(flatten)]
        at: At,
    },
    /// Compares two catalogs, item by item: recorded files, or servers.
    Diff {
        /// The earlier one: a file, or a URL.
        before: String,
        /// The later one: a file, or a URL.
        #[arg(required_unless_present = "command", conflicts_with = "command")]
        after: Option<String>,
        /// The later one: a command that starts a server.
        #[arg(last = true, value_name = "COMMAND")]
        command: Vec<String>,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Stays connected, and prints each refresh and what changed, until interrupted.
    Watch(Shown),
    /// Looks at a server as a client would, and reports what will hurt its clients.
    Check(check::Check),
}

#[derive(Debug, clap::Args)]
struct Shown {
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
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
        Command::List(shown) => {
            let session = Session::open(&shown.at).await?;
            let failures = session.settle().await;
            if shown.json {
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
            shown,
        } => {
            let arguments: Map<String, Value> =
                serde_json::from_str(&arguments).map_err(|e| Failed::Arguments(e.to_string()))?;
            let session = Session::open(&shown.at).await?;
            let answer = session
                .client
                .call_tool(&tool, arguments, CallOptions::default())
                .await;
            session.close().await;
            let result: Value = serde_json::from_str(answer?.result.get()).unwrap_or_default();
            show::json(&result);
            Ok(exit(result.get("isError") != Some(&Value::Bool(true))))
        }
        Command::Read { uri, shown } => {
            let session = Session::open(&shown.at).await?;
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
            let session = Session::open(&at).await?;
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
            command,
            json,
        } => {
            let before = side(before).await?;
            let after = match after {
                Some(after) => side(after).await?,
                None => listed(&At::command(command)).await?,
            };
            let changes: Vec<(CatalogKind, Change)> = CatalogKind::ALL
                .into_iter()
                .zip(before.iter().zip(&after))
                .map(|(kind, (b, a))| (kind, Change::between(b, a)))
                .collect();
            show::changes(&changes, json);
            // As diff(1): 0 when nothing differs, 1 when something does.
            Ok(exit(changes.iter().all(|(_, c)| c.is_content_empty())))
        }
        Command::Watch(shown) => {
            let session = Session::open(&shown.at).await?;
            watch::watch(&session, shown.json).await;
            session.close().await;
            Ok(ExitCode::SUCCESS)
        }
        Command::Check(check) => Ok(exit(check::check(&check).await?)),
    }
}

/// The catalogs of a file or of a server.
async fn side(name: String) -> Result<Vec<Snapshot>, Failed> {
    if name.contains("://") {
        listed(&At::url(name)).await
    } else {
        file::read(&PathBuf::from(name))
    }
}

async fn listed(at: &At) -> Result<Vec<Snapshot>, Failed> {
    let session = Session::open(at).await?;
    let failures = session.settle().await;
    let snapshots = session.snapshots();
    session.close().await;
    match failures {
        0 => Ok(snapshots),
        failures => Err(Failed::Incomplete(failures)),
    }
}

fn exit(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
