//! What a person sees: tables and lines, in colour where it is a terminal.

use std::error::Error;

use anstream::{eprintln, println};
use anstyle::{AnsiColor, Style};
use relist_catalog::Change;
use relist_client::trail::TrailEntry;
use relist_protocol::CatalogKind;
use serde_json::{Value, json};

use crate::connect::Session;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const RED: Style = AnsiColor::Red.on_default().bold();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();

pub(crate) fn json(value: &Value) {
    println!("{value:#}");
}

/// Prints an error and what caused it.
pub(crate) fn error(error: &dyn Error) {
    eprintln!("{RED}error{RED:#}: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprintln!("  because {error}");
        cause = error.source();
    }
}

/// Says on a terminal what is going on; says nothing elsewhere.
pub(crate) fn spinner() -> indicatif::ProgressBar {
    let spinner = indicatif::ProgressBar::new_spinner();
    spinner.enable_steady_tick(std::time::Duration::from_millis(100));
    spinner
}

pub(crate) fn warning(text: &str) {
    eprintln!("{YELLOW}warning{YELLOW:#}: {text}");
}

/// Says something on standard error, so that standard output stays data.
pub(crate) fn notice(text: &str) {
    eprintln!("{text}");
}

pub(crate) fn catalogs(session: &Session) {
    if let Some(connection) = session.client.current() {
        let name = connection.server().info.as_ref().map_or_else(
            || "a server that does not say its name".to_owned(),
            |i| format!("{} {}", i.name, i.version),
        );
        println!("{BOLD}{name}{BOLD:#}, protocol {}", connection.version());
    }
    for catalog in session.client.catalogs() {
        let Some(view) = catalog.view() else { continue };
        println!();
        println!(
            "{BOLD}{} {}{BOLD:#} {DIM}({} bytes){DIM:#}",
            view.snapshot.len(),
            catalog.kind(),
            view.snapshot.text_bytes()
        );
        let width = view
            .snapshot
            .items()
            .iter()
            .map(|i| i.key().as_str().chars().count())
            .max()
            .unwrap_or(0)
            .min(40);
        for item in view.snapshot.items() {
            let value = item.value();
            let about = ["description", "title"]
                .into_iter()
                .find_map(|f| value.get(f)?.as_str().map(first_line))
                .unwrap_or_default();
            println!(
                "  {:width$}  {DIM}{about}{DIM:#}",
                printable(item.key().as_str())
            );
        }
        for (key, reason) in &view.rejected {
            warning(&format!(
                "{} is left out: {reason}",
                printable(key.as_str())
            ));
        }
    }
    println!();
    for entry in session.client.trail().entries() {
        println!("{DIM}{}{DIM:#}", entry.line());
    }
}

/// A server's text must not steer the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let mut short: String = printable(line).chars().take(72).collect();
    if short.chars().count() < line.chars().count() {
        short.push('…');
    }
    short
}

fn change_as_json(kind: CatalogKind, change: &Change) -> Value {
    let keys = |list: &[relist_catalog::ItemKey]| -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    };
    json!({
        "catalog": kind.items_field(),
        "added": keys(&change.added),
        "removed": keys(&change.removed),
        "changed": change.changed.iter().map(|c| json!({
            "key": c.key.as_str(), "fields": c.fields,
        })).collect::<Vec<_>>(),
        "reordered": change.reordered,
    })
}

pub(crate) fn changes(changes: &[(CatalogKind, Change)], as_json: bool) {
    if as_json {
        let list = changes.iter().map(|(k, c)| change_as_json(*k, c)).collect();
        return json(&Value::Array(list));
    }
    for (kind, change) in changes {
        if change.is_empty() {
            continue;
        }
        println!("{BOLD}{kind}{BOLD:#}: {change}");
        details(change);
    }
    if changes.iter().all(|(_, c)| c.is_empty()) {
        println!("no change");
    }
}

fn details(change: &Change) {
    for key in &change.added {
        println!("  + {}", printable(key.as_str()));
    }
    for key in &change.removed {
        println!("  - {}", printable(key.as_str()));
    }
    for item in &change.changed {
        println!(
            "  ~ {}: {}",
            printable(item.key.as_str()),
            item.fields.join(", ")
        );
    }
}

/// One refresh, and what it changed.
pub(crate) fn refreshed(entry: &TrailEntry, change: Option<&Change>, as_json: bool) {
    if as_json {
        let unchanged = Change::default();
        let mut line = change_as_json(entry.kind, change.unwrap_or(&unchanged));
        let record = &entry.record;
        line["refresh"] = json!({
            "number": record.number,
            "trigger": record.trigger.to_string(),
            "hints": record.hints,
            "outcome": record.outcome.word(),
            "pages": record.pages,
            "bytes": record.bytes,
            "ms": (record.finished - record.started).as_millis(),
            "line": entry.line(),
        });
        println!("{line}");
        return;
    }
    println!("{DIM}{}{DIM:#}", printable(&entry.line()));
    if let Some(change) = change {
        println!("{BOLD}{}{BOLD:#}: {change}", entry.kind);
        details(change);
    }
}
