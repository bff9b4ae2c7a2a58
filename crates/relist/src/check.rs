//! Looks at a server as a client would, and reports what will hurt its clients.
//!
//! Everything is found out with requests that any client may send. Nothing is
//! changed, unless `--change` names a tool to call for it.

mod cursors;
mod headers;
mod hints;
mod lists;
mod report;
mod rule;
mod walk;

use std::time::Duration;

use clap::Args;
use relist_client::connection::{Connection, EraCache};
use relist_protocol::CatalogKind;
use serde_json::{Map, Value};

use crate::at::At;
use crate::connect::Failed;
use crate::show;
use report::Report;
use rule::Rule;
use walk::Walked;

/// What is looked at, and for how long.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    /// How many seconds to wait for hints and changes.
    #[arg(long, default_value_t = 3, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=3600))]
    observe: u64,
    /// A tool that changes the catalogs: it is called once, so that changes can be judged.
    #[arg(long, value_name = "TOOL")]
    change: Option<String>,
    /// The arguments of that tool, as a JSON object.
    #[arg(long, default_value = "{}", requires = "change")]
    arguments: String,
    #[command(flatten)]
    at: At,
}

/// Lists of each catalog that are compared with each other.
const WALKS: usize = 3;

/// Looks at the server and prints the report; whether no fault was found.
pub(crate) async fn check(check: &Check) -> Result<bool, Failed> {
    let arguments: Map<String, Value> =
        serde_json::from_str(&check.arguments).map_err(|e| Failed::Arguments(e.to_string()))?;
    let target = check.at.target()?;
    let config = check.at.config();
    let eras = EraCache::default();
    let connection = Connection::open(&target, config, &eras).await?;
    let progress = show::spinner();
    let mut report = Report::new(&connection);
    let mut baseline = Vec::new();
    for kind in offered(&connection) {
        progress.set_message(format!("listing {kind}"));
        let mut walks: Vec<Walked> = Vec::new();
        for _ in 0..WALKS {
            match walk::walk(&connection, kind).await {
                Ok(walked) => walks.push(walked),
                Err(error) => {
                    report.fault(Rule::Lists, Some(kind), error.to_string());
                    break;
                }
            }
        }
        lists::judge(&mut report, &connection, &walks);
        if let Some(last) = walks.pop() {
            progress.set_message(format!("{kind}: made-up cursors"));
            cursors::made_up(&mut report, &connection, &last).await;
            baseline.push(last);
        }
    }
    progress.set_message("waiting for hints and changes");
    let change = check.change.as_deref().map(|tool| (tool, &arguments));
    let time = Duration::from_secs(check.observe);
    hints::observe(&mut report, &connection, &baseline, change, time).await;
    progress.set_message("HTTP headers");
    headers::judge(&mut report, &connection).await;
    connection.close().await;
    progress.finish_and_clear();
    if check.json {
        show::json(&report.as_json());
    } else {
        report.print();
    }
    Ok(report.faults() == 0)
}

fn offered(connection: &Connection) -> Vec<CatalogKind> {
    let capabilities = &connection.server().capabilities;
    let kinds = CatalogKind::ALL.into_iter();
    kinds.filter(|kind| capabilities.has(*kind)).collect()
}
