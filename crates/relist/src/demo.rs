//! The main job: the same changes under each strategy, and what each costs.

mod run;
mod socket;
mod strategy;
mod table;
mod versions;

use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::connect::Failed;
use strategy::Strategy;
use versions::Version;

/// Everything that a demo may be told.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Clients, all on this machine.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=4096))]
    clients: u16,
    /// How often each client reconnects after each change.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(..=1000))]
    reconnects: u16,
    /// The strategies to compare, separated by commas.
    #[arg(long, value_delimiter = ',', default_values = ["poll", "list_changed", "ttl", "conditional"])]
    strategies: Vec<Strategy>,
    /// Compresses answers, on both sides.
    #[arg(long)]
    compression: bool,
    /// Replays the recorded versions in a folder, instead of the bundled ones.
    #[arg(long, value_name = "DIR", conflicts_with = "items")]
    catalog: Option<PathBuf>,
    /// Replays a made sequence of this many tools, instead of the bundled one.
    #[arg(long, value_name = "N", requires = "change", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    items: Option<u32>,
    /// How many tools of a made sequence change from version to version.
    #[arg(long, value_name = "K", requires = "items", value_parser = clap::value_parser!(u32).range(1..))]
    change: Option<u32>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// What every run plays.
struct Scene {
    clients: usize,
    reconnects: usize,
    compression: bool,
    versions: Vec<Version>,
}

/// Versions of a made sequence: the first, and ten changes.
const MADE_VERSIONS: usize = 11;
/// Descriptors that one client and its side of the server need at the most:
/// both ends of a stream, of a request, and of one that is just being opened.
const PER_CLIENT: u64 = 8;
/// Descriptors that the process needs besides.
const BESIDES: u64 = 64;

impl Demo {
    fn scene(&self) -> Result<Scene, Failed> {
        let versions = match (&self.catalog, self.items, self.change) {
            (Some(folder), ..) => versions::recorded(folder)?,
            (None, Some(items), Some(change)) if change > items => {
                return Err(Failed::Demo(format!(
                    "--change {change} is more than the {items} tools of --items"
                )));
            }
            (None, Some(items), Some(change)) => {
                versions::made(items as usize, change as usize, MADE_VERSIONS)
            }
            _ => versions::bundled(),
        };
        let scene = Scene {
            clients: usize::from(self.clients),
            reconnects: usize::from(self.reconnects),
            compression: self.compression,
            versions,
        };
        check_descriptors(scene.clients as u64 * PER_CLIENT + BESIDES)?;
        Ok(scene)
    }
}

/// Better said before than met in the middle.
fn check_descriptors(needed: u64) -> Result<(), Failed> {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let soft = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    match soft {
        Some(soft) if soft < needed => Err(Failed::Demo(format!(
            "the clients need up to {needed} file descriptors and this process may open {soft}; \
             raise the limit (ulimit -n {needed}) or ask for fewer (--clients {})",
            soft.saturating_sub(BESIDES) / PER_CLIENT
        ))),
        _ => Ok(()),
    }
}

/// Plays the scene once for each strategy and prints what it cost; `false`
/// when a client did not end with what the server has.
pub(crate) async fn demo(demo: &Demo) -> Result<bool, Failed> {
    let scene = demo.scene()?;
    let mut runs = Vec::new();
    for strategy in &demo.strategies {
        let steps = scene.versions.len() as u64 - 1;
        let progress = ProgressBar::new(steps).with_message(strategy.name());
        // A template of our own making is valid, and the default is fine too.
        if let Ok(style) =
            ProgressStyle::with_template("{msg:13} {bar:30} {pos}/{len} changes {elapsed}")
        {
            progress.set_style(style);
        }
        let measured = run::run(*strategy, &scene, &progress).await;
        progress.finish_and_clear();
        runs.push(measured?);
    }
    if demo.json {
        crate::show::json(&table::as_json(&scene, &runs));
    } else {
        table::print(&scene, &runs);
    }
    Ok(runs.iter().all(|r| r.converged))
}
