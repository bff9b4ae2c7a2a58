//! What a demo prints.

use anstream::println;
use serde_json::{Value, json};

use super::Scene;
use super::run::Measured;
use crate::show::{BOLD, DIM, RED};

fn tenths(ms: f64) -> f64 {
    (ms * 10.0).round() / 10.0
}

/// Items and bytes of the last version, all catalogs together.
fn size(scene: &Scene) -> (usize, usize) {
    let last = scene.versions.last().map_or(&[][..], Vec::as_slice);
    (
        last.iter().map(relist_catalog::Snapshot::len).sum(),
        last.iter().map(relist_catalog::Snapshot::text_bytes).sum(),
    )
}

pub(super) fn as_json(scene: &Scene, runs: &[Measured]) -> Value {
    let (items, bytes) = size(scene);
    let runs: Vec<Value> = runs
        .iter()
        .map(|run| {
            json!({
                "strategy": run.strategy.name(),
                "clients": run.clients,
                "changes": run.changes,
                "reconnects": run.reconnects,
                "requests": run.requests,
                "list_requests": run.list_requests,
                "bytes_up": run.bytes_up,
                "bytes_down": run.bytes_down,
                "walks": run.walks,
                "not_modified": run.not_modified,
                "staleness_ms": {
                    "p50": tenths(run.staleness_at(0.5)),
                    "p99": tenths(run.staleness_at(0.99)),
                    "max": tenths(run.staleness_at(1.0)),
                },
                "converged": run.converged,
            })
        })
        .collect();
    json!({
        "catalog": {"items": items, "bytes": bytes, "versions": scene.versions.len()},
        "runs": runs,
    })
}

/// `1234567` as `1,234,567`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(super) fn print(scene: &Scene, runs: &[Measured]) {
    let (items, bytes) = size(scene);
    let Some(first) = runs.first() else { return };
    println!(
        "{BOLD}{} versions{BOLD:#} of a catalog of {items} items ({} bytes), {} clients, \
         {} changes, {} reconnects of each client after each change, {}",
        scene.versions.len(),
        grouped(bytes as u64),
        first.clients,
        first.changes,
        first.reconnects,
        if scene.compression {
            "compressed"
        } else {
            "not compressed"
        },
    );
    println!();
    println!(
        "{BOLD}{:13}{:>10}{:>10}{:>10}{:>13}{:>15}{:>15}{:>9}{:>9}{BOLD:#}",
        "strategy",
        "requests",
        "lists",
        "walks",
        "not modified",
        "bytes up",
        "bytes down",
        "p50 ms",
        "p99 ms"
    );
    for run in runs {
        let mark = if run.converged {
            String::new()
        } else {
            format!("  {RED}not converged{RED:#}")
        };
        println!(
            "{:13}{:>10}{:>10}{:>10}{:>13}{:>15}{:>15}{:>9.1}{:>9.1}{mark}",
            run.strategy.name(),
            grouped(run.requests),
            grouped(run.list_requests),
            grouped(run.walks as u64),
            grouped(run.not_modified as u64),
            grouped(run.bytes_up),
            grouped(run.bytes_down),
            run.staleness_at(0.5),
            run.staleness_at(0.99),
        );
    }
    println!();
    println!(
        "{DIM}Bytes are counted at the server's sockets, headers and first lists included; ms is the \
         time from a commit to its adoption by a client.{DIM:#}"
    );
    if runs.iter().all(|r| r.converged) {
        println!("Every client of every run ended with what its server has.");
    } else {
        println!("{RED}Some clients did not end with what their server has.{RED:#}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(n), text);
        }
    }
}
