//! Serves catalogs from files, and reloads them when they change on disk.
//!
//! A reload is one commit: readers see the old catalogs or the new ones. Files
//! that cannot be read or served are reported, and the last good catalogs stay.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use notify::{RecursiveMode, Watcher};
use relist_catalog::{Change, Item};
use relist_protocol::message::Implementation;
use relist_protocol::{CatalogKind, RpcError, Switches};
use relist_server::{
    CacheScope, CatalogOptions, Context, HttpOptions, PromptCall, PromptOutput, ReadCall,
    ReadOutput, Server, ToolCall, ToolOutput,
};
use tokio::sync::mpsc;

use crate::connect::Failed;
use crate::{file, show};

/// What is served, and how.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// A file of catalogs as `relist record` writes it, JSON or YAML, or a folder of such files.
    #[arg(long, value_name = "FILE_OR_DIR")]
    catalog: PathBuf,
    /// Where to listen; the endpoint is /mcp.
    #[arg(long, default_value = "127.0.0.1:8931", conflicts_with = "stdio")]
    listen: SocketAddr,
    /// Speaks over standard input and output instead.
    #[arg(long)]
    stdio: bool,
    /// Switches of the opt-in layer, separated by commas: tags, conditional, all.
    #[arg(long, default_value = "none")]
    enable: Switches,
    /// Items on one page of a list.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    page_size: u32,
    /// How long clients may take a list to be fresh, in milliseconds.
    #[arg(long, default_value_t = 0, value_name = "MS")]
    ttl: u64,
    /// Who may share a list.
    #[arg(long, value_enum, default_value_t = Scope::Private)]
    scope: Scope,
    /// Does not announce changes.
    #[arg(long)]
    no_hints: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Scope {
    Public,
    Private,
}

/// How long changes of files are gathered into one reload.
const GATHER: Duration = Duration::from_millis(100);

fn without_program(noun: &str, name: &str) -> String {
    format!(
        "this server serves the definition of the {noun} {name:?} from a file; there is no program behind it"
    )
}

async fn call(call: ToolCall, _: Context) -> Result<ToolOutput, RpcError> {
    Ok(ToolOutput::error(without_program("tool", &call.name)))
}

async fn read(call: ReadCall, _: Context) -> Result<ReadOutput, RpcError> {
    Err(RpcError::internal(without_program("resource", &call.uri)))
}

async fn prompt(call: PromptCall, _: Context) -> Result<PromptOutput, RpcError> {
    Err(RpcError::internal(without_program("prompt", &call.name)))
}

fn build(options: &Serve, catalogs: &[(CatalogKind, Vec<Item>)]) -> Result<Server, Failed> {
    let info = Implementation::new("relist", env!("CARGO_PKG_VERSION"));
    let mut builder = Server::builder(info)
        .enable(options.enable)
        .on_unhandled_tool(call)
        .on_unhandled_resource(read)
        .on_unhandled_prompt(prompt);
    let scope = match options.scope {
        Scope::Public => CacheScope::Public,
        Scope::Private => CacheScope::Private,
    };
    for (kind, items) in catalogs {
        let settings = CatalogOptions::default()
            .page_size(options.page_size as usize)
            .ttl(Duration::from_millis(options.ttl))
            .scope(scope)
            .list_changed(!options.no_hints);
        builder = builder.catalog(*kind, settings);
        for item in items {
            builder = builder.item(*kind, item);
        }
    }
    builder.build().map_err(|e| Failed::Serve(e.to_string()))
}

/// Serves until interrupted, or until standard input ends.
pub(crate) async fn serve(options: Serve) -> Result<(), Failed> {
    let catalogs = file::read_all(&options.catalog)?;
    if catalogs.is_empty() {
        return Err(Failed::Serve(format!(
            "{} names no catalog: one of `tools`, `resources`, `resourceTemplates`, `prompts`",
            options.catalog.display()
        )));
    }
    let server = build(&options, &catalogs)?;
    let (changed, changes) = mpsc::channel(1);
    let _watcher = watch(&options.catalog, changed)?;
    let reloading = tokio::spawn(reload(server.clone(), options.catalog.clone(), changes));
    let served = if options.stdio {
        server
            .serve_stdio(tokio::io::stdin(), tokio::io::stdout())
            .await
    } else {
        let listener = relist_server::bind(options.listen)
            .map_err(|e| Failed::Serve(format!("cannot listen on {}: {e}", options.listen)))?;
        let address = listener.local_addr().unwrap_or(options.listen);
        show::notice(&format!("serving http://{address}/mcp, interrupt to end"));
        let interrupted = async {
            // Without a signal handler the server runs until it is killed.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        server
            .serve_http(listener, HttpOptions::default(), interrupted)
            .await
    };
    reloading.abort();
    served.map_err(|e| Failed::Serve(e.to_string()))
}

/// Watches the folder, since editors replace files instead of writing them.
fn watch(place: &Path, changed: mpsc::Sender<()>) -> Result<notify::RecommendedWatcher, Failed> {
    let failed = |e: notify::Error| Failed::Serve(format!("cannot watch for changes: {e}"));
    let folder = if place.is_dir() {
        place
    } else {
        match place.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    };
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let relevant = event.is_ok_and(|e| {
            !e.kind.is_access() && e.paths.iter().any(|path| file::is_catalog(path))
        });
        if relevant {
            // One pending change stands for all: the reload reads everything.
            let _ = changed.try_send(());
        }
    })
    .map_err(failed)?;
    watcher
        .watch(folder, RecursiveMode::NonRecursive)
        .map_err(failed)?;
    Ok(watcher)
}

async fn reload(server: Server, place: PathBuf, mut changes: mpsc::Receiver<()>) {
    while changes.recv().await.is_some() {
        tokio::time::sleep(GATHER).await;
        while changes.try_recv().is_ok() {}
        let from = place.clone();
        let read = tokio::task::spawn_blocking(move || file::read_all(&from)).await;
        let Ok(read) = read else { continue };
        if let Err(error) = read.and_then(|catalogs| commit(&server, catalogs)) {
            show::error(&error);
            show::notice("the last good catalogs stay");
        }
    }
}

/// Makes the files' catalogs the current ones; a catalog that no file names
/// any more becomes empty.
fn commit(server: &Server, mut catalogs: Vec<(CatalogKind, Vec<Item>)>) -> Result<(), Failed> {
    if let Some((kind, _)) = catalogs.iter().find(|(kind, _)| !server.has(*kind)) {
        return Err(Failed::Serve(format!(
            "the files now name {kind}, which this server did not declare when it started; restart it"
        )));
    }
    for kind in CatalogKind::ALL {
        if server.has(kind) && !catalogs.iter().any(|(k, _)| *k == kind) {
            catalogs.push((kind, Vec::new()));
        }
    }
    let commit = server
        .commit(|edit| {
            for (kind, items) in catalogs {
                // Unchanged items keep their digests.
                let next = server.snapshot(kind).successor(items);
                edit.replace(kind, next.items().to_vec());
            }
        })
        .map_err(|e| Failed::Serve(e.to_string()))?;
    for changed in &commit.changed {
        let change = Change::between(&changed.before, &changed.after);
        show::notice(&format!("{}: {change}", changed.kind));
    }
    Ok(())
}
