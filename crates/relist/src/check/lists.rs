//! What several walks of one list say of it.

use std::collections::BTreeMap;

use relist_catalog::Item;
use relist_client::connection::Connection;
use relist_protocol::param_header::param_headers;
use relist_protocol::{CatalogKind, Era};
use serde_json::Value;

use super::report::Report;
use super::rule::Rule;
use super::walk::Walked;

pub(super) fn judge(report: &mut Report, connection: &Connection, walks: &[Walked]) {
    let Some(first) = walks.first() else { return };
    report.judged(Rule::Lists);
    report.judged(Rule::CursorsAdvance);
    for walked in walks {
        let kind = Some(walked.kind);
        let field = walked.kind.items_field();
        for (n, page) in walked.pages.iter().enumerate() {
            if !page.result.get(field).is_some_and(Value::is_array) {
                let text = format!("page {} has no array `{field}`", n + 1);
                report.fault(Rule::Lists, kind, text);
            }
        }
        if let Some(why) = &walked.endless {
            report.fault(Rule::CursorsAdvance, kind, why.clone());
        }
    }
    order(report, walks);
    match connection.era() {
        Era::Modern => cache_fields(report, first),
        Era::Legacy => report.skip(Rule::CacheFields, "the legacy protocol has none"),
    }
    names(report, first);
    definitions(report, first);
}

/// Whether the same content comes in the same order.
fn order(report: &mut Report, walks: &[Walked]) {
    let snapshots: Vec<_> = walks.iter().map(Walked::snapshot).collect();
    for pair in snapshots.windows(2) {
        if !pair[0].same_content(&pair[1]) {
            continue;
        }
        report.judged(Rule::Order);
        if !pair[0].same_order(&pair[1]) {
            let text = "the items come in another order each time: models get other bytes, \
                        and prompt caches miss";
            report.fault(Rule::Order, Some(pair[0].kind()), text.to_owned());
        }
    }
    if snapshots.len() < 2 {
        report.skip(Rule::Order, "no list came more than once");
    }
}

fn cache_fields(report: &mut Report, walked: &Walked) {
    let kind = Some(walked.kind);
    report.judged(Rule::CacheFields);
    let mut scopes = Vec::new();
    for (n, page) in walked.pages.iter().enumerate() {
        let at = format!("page {}", n + 1);
        match page.result.get("ttlMs") {
            None => report.fault(Rule::CacheFields, kind, format!("`ttlMs` is not on {at}")),
            Some(ttl) if ttl.as_u64().is_none() => {
                let text = format!("`ttlMs` on {at} is {ttl}, and no count of milliseconds");
                report.fault(Rule::CacheFields, kind, text);
            }
            Some(ttl) if ttl.as_u64().is_some_and(|ms| ms > DAY) => {
                let text = format!("`ttlMs` on {at} is {ttl}: more than a day is not believed");
                report.advice(Rule::CacheFields, kind, text);
            }
            Some(_) => {}
        }
        match page.result.get("cacheScope") {
            None => report.fault(
                Rule::CacheFields,
                kind,
                format!("`cacheScope` is not on {at}: it is read as private"),
            ),
            Some(scope) => {
                if scope != "public" && scope != "private" {
                    let text =
                        format!("`cacheScope` on {at} is {scope}, neither public nor private");
                    report.fault(Rule::CacheFields, kind, text);
                }
                scopes.push(scope);
            }
        }
    }
    if scopes.windows(2).any(|pair| pair[0] != pair[1]) {
        let text = "`cacheScope` differs between the pages of one list".to_owned();
        report.fault(Rule::CacheFields, kind, text);
    }
}

/// Milliseconds.
const DAY: u64 = 24 * 60 * 60 * 1000;

/// A name as interfaces to models write it, for comparison only.
fn flattened(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    name.chars().take(64).map(plain).collect()
}

fn names(report: &mut Report, walked: &Walked) {
    let kind = Some(walked.kind);
    let snapshot = walked.snapshot();
    report.judged(Rule::Names);
    for name in snapshot.duplicate_keys() {
        let noun = walked.kind.noun();
        let text = format!("more than one {noun} is called {:?}", name.as_str());
        report.fault(Rule::Names, kind, text);
    }
    if walked.kind != CatalogKind::Tools {
        return;
    }
    let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for item in snapshot.items() {
        let name = item.key().as_str();
        let legal = (1..=128).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
        if !legal {
            let text = format!(
                "{name:?} is not 1 to 128 letters, digits, `_`, `-` and `.`: hosts will rename it"
            );
            report.advice(Rule::Names, kind, text);
        }
        let alike = alike.entry(flattened(name)).or_default();
        if !alike.contains(&name) {
            alike.push(name);
        }
    }
    for names in alike.values().filter(|names| names.len() > 1) {
        let text = format!("{names:?} become one name where a host takes letters and digits only");
        report.advice(Rule::Names, kind, text);
    }
}

fn definitions(report: &mut Report, walked: &Walked) {
    let kind = Some(walked.kind);
    report.judged(Rule::Definitions);
    if walked.kind == CatalogKind::Tools {
        report.judged(Rule::ParamHeaders);
    }
    for (n, value) in walked.values().enumerate() {
        let item = match Item::from_value(walked.kind, value) {
            Ok(item) => item,
            Err(error) => {
                let text = format!("{} {n} cannot be read: {error}", walked.kind.noun());
                report.fault(Rule::Definitions, kind, text);
                continue;
            }
        };
        if walked.kind != CatalogKind::Tools {
            continue;
        }
        let name = item.key().as_str();
        let Some(schema) = value.get("inputSchema") else {
            let text = format!("{name:?} has no `inputSchema`");
            report.fault(Rule::Definitions, kind, text);
            continue;
        };
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            let text = format!("the `inputSchema` of {name:?} is not of type object");
            report.fault(Rule::Definitions, kind, text);
        }
        if let Err(error) = param_headers(schema) {
            let text = format!("{name:?}: {error}; clients leave the tool out");
            report.fault(Rule::ParamHeaders, kind, text);
        }
    }
}
