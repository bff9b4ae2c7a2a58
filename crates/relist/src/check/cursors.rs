//! Cursors that nobody handed out, and cursors of a version that is gone.

use std::collections::BTreeSet;

use relist_catalog::Snapshot;
use relist_client::connection::Connection;
use relist_client::error::RequestError;
use relist_protocol::error::code;

use super::report::Report;
use super::rule::Rule;
use super::walk::{self, Walked};

/// No server hands this out.
const MADE_UP: &str = "relist-check:no-such-cursor";

/// Whether a cursor that was never handed out is refused.
pub(super) async fn made_up(report: &mut Report, connection: &Connection, walked: &Walked) {
    let kind = Some(walked.kind);
    let rule = Rule::CursorsRefused;
    report.judged(rule);
    match walk::page(connection, walked.kind, Some(MADE_UP)).await {
        Err(RequestError::Rpc(error)) if error.code == code::INVALID_PARAMS => {}
        Err(error) => {
            let text = format!("a made-up cursor is not refused with -32602: {error}");
            report.advice(rule, kind, text);
        }
        Ok(_) if walked.pages.len() > 1 => {
            let text = "a made-up cursor gets a page: a client whose cursor has expired \
                        joins pages that do not belong together";
            report.fault(rule, kind, text.to_owned());
        }
        // On one page there is nothing to join.
        Ok(_) => {
            let text = "a made-up cursor gets a page; -32602 is what a client can act upon";
            report.advice(rule, kind, text.to_owned());
        }
    }
}

/// Whether the cursor of a list that has changed since leads into the new one.
pub(super) async fn survived(
    report: &mut Report,
    connection: &Connection,
    before: &Walked,
    after: &Snapshot,
) {
    let rule = Rule::CursorsVersion;
    let Some(cursor) = before.second_cursor() else {
        report.skip(rule, "no list that changed has more than one page");
        return;
    };
    report.judged(rule);
    let mut joined = before.clone();
    joined.pages.truncate(1);
    match walk::walk_from(connection, before.kind, Some(cursor)).await {
        // Refused: the client starts over.
        Err(_) => return,
        Ok(rest) => joined.pages.extend(rest.pages),
    }
    let (old, joined) = (before.snapshot(), joined.snapshot());
    if joined.same_content(&old) || joined.same_content(after) {
        return;
    }
    let keys = |s: &Snapshot| -> BTreeSet<String> {
        s.items().iter().map(|i| i.key().to_string()).collect()
    };
    let missing: Vec<String> = keys(after).difference(&keys(&joined)).cloned().collect();
    let doubled = joined.duplicate_keys();
    let text = format!(
        "the cursor of a list that has changed is followed into the new one: the joined list is \
         of neither version ({} missing, {} doubled)",
        missing.len(),
        doubled.len()
    );
    report.fault(rule, Some(before.kind), text);
}
