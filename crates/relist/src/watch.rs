//! Stays with a server, and prints what happens.

use std::collections::HashMap;
use std::sync::Arc;

use relist_catalog::{Change, Snapshot};
use relist_client::handle::View;
use relist_client::trail::TrailEntry;
use relist_freshness::stream::StreamState;
use relist_protocol::CatalogKind;
use tokio::sync::broadcast::error::RecvError;

use crate::connect::Session;
use crate::show;

/// Prints every refresh, and what it changed, until the user interrupts.
pub(crate) async fn watch(session: &Session, json: bool) {
    let client = &session.client;
    let mut trail = client.trail().subscribe();
    let mut seen = HashMap::new();
    // What happened before the subscription is on the record.
    for entry in client.trail().entries() {
        refreshed(session, &mut seen, &entry, json);
    }
    let (mut epoch, mut stream) = (client.epoch().map_or(0, |e| e.0), StreamState::Off);
    loop {
        tokio::select! {
            entry = trail.recv() => match entry {
                Ok(entry) => refreshed(session, &mut seen, &entry, json),
                Err(RecvError::Lagged(missed)) => {
                    show::warning(&format!("{missed} refreshes were not printed"));
                }
                Err(RecvError::Closed) => return,
            },
            open = client.wait_for_epoch(epoch + 1) => {
                if !open {
                    return;
                }
                epoch = client.epoch().map_or(epoch + 1, |e| e.0);
                show::notice(&format!("connected again, for the {epoch}. time"));
            }
            open = client.wait_for_stream(|s| !same(s, stream)) => {
                if !open {
                    return;
                }
                stream = client.stream();
                show::notice(said(stream));
            }
            interrupted = tokio::signal::ctrl_c() => {
                if interrupted.is_err() {
                    show::warning("interrupts cannot be caught; stopping");
                }
                return;
            }
        }
    }
}

fn same(a: StreamState, b: StreamState) -> bool {
    std::mem::discriminant(&a) == std::mem::discriminant(&b)
}

const fn said(stream: StreamState) -> &'static str {
    match stream {
        StreamState::Off => "hints: no stream",
        StreamState::Opening => "hints: the stream is being opened",
        StreamState::Live { .. } => "hints: the stream is open",
        StreamState::Waiting { .. } => "hints: the stream was lost, and is opened again later",
        StreamState::Unavailable => "hints: the server offers no stream",
    }
}

fn refreshed(
    session: &Session,
    seen: &mut HashMap<CatalogKind, Arc<View>>,
    entry: &TrailEntry,
    json: bool,
) {
    let kind = entry.kind;
    let current = session.client.catalog(kind).and_then(|c| c.view());
    let change = current.and_then(|after| {
        let before = seen.insert(kind, after.clone());
        let empty = Snapshot::empty(kind);
        let old = before.as_ref().map_or(&empty, |view| &view.snapshot);
        let change = Change::between(old, &after.snapshot);
        (!change.is_empty()).then_some(change)
    });
    show::refreshed(entry, change.as_ref(), json);
}
