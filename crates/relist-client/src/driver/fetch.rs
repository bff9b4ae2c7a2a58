//! One list request, from sending to a page of items.

use relist_catalog::{EntityTag, Item};
use relist_freshness::catalog::Fetch;
use relist_freshness::record::Failure;
use relist_freshness::walk::Page;
use relist_protocol::CatalogKind;
use relist_protocol::error::code;
use relist_protocol::list::{CacheHints, ListAnswer};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::connection::{Answer, Connection, RequestOptions};
use crate::error::RequestError;

pub(crate) enum Fetched {
    Page(Page<Item>),
    NotModified {
        tag: EntityTag,
        hints: CacheHints,
        bytes: u64,
    },
    Failed {
        failure: Failure,
        /// The connection is of no use any more.
        broken: bool,
    },
}

/// Sends a list request and reads its answer.
pub(super) async fn list(
    connection: &Connection,
    kind: CatalogKind,
    fetch: Fetch,
    cancel: CancellationToken,
) -> Fetched {
    let mut params = Map::new();
    let at_cursor = fetch.cursor.is_some();
    if let Some(cursor) = fetch.cursor {
        params.insert("cursor".to_owned(), Value::String(cursor));
    }
    let mut options = RequestOptions::default();
    options.cancel = cancel;
    // The extension's results are legal on the first page only, and only for
    // a request that says what it has.
    options.extension = fetch.known.is_some();
    if let Some(known) = &fetch.known {
        options
            .known_tags
            .insert(kind.list_method().to_owned(), known.as_str().to_owned());
    }
    let answer = match connection
        .request(kind.list_method(), params, options)
        .await
    {
        Ok(answer) => answer,
        Err(error) => return failed(error, at_cursor),
    };
    match read(connection, kind, &answer, fetch.known.is_some()) {
        Ok(fetched) => fetched,
        Err(reason) => Fetched::Failed {
            failure: Failure::Invalid(reason),
            broken: false,
        },
    }
}

fn read(
    connection: &Connection,
    kind: CatalogKind,
    answer: &Answer,
    conditional: bool,
) -> Result<Fetched, String> {
    let switches = if conditional {
        connection.switches()
    } else {
        relist_protocol::Switches::NONE
    };
    let bytes = answer.bytes_received;
    match ListAnswer::read(kind, &answer.result, switches).map_err(|e| e.to_string())? {
        ListAnswer::NotModified { tag, hints } => Ok(Fetched::NotModified {
            tag: EntityTag::new(tag).map_err(|e| e.to_string())?,
            hints,
            bytes,
        }),
        ListAnswer::Page(page) => {
            // One item that cannot be read makes the page invalid: leaving it
            // out would look like a removal.
            let items = page
                .items
                .iter()
                .enumerate()
                .map(|(n, raw)| {
                    Item::from_raw(kind, raw).map_err(|e| format!("{} {n}: {e}", kind.noun()))
                })
                .collect::<Result<Vec<Item>, String>>()?;
            let tagged = connection
                .config()
                .switches
                .contains(relist_protocol::Switch::Tags);
            let tag = match page.tag {
                Some(tag) if tagged => Some(EntityTag::new(tag).map_err(|e| e.to_string())?),
                _ => None,
            };
            Ok(Fetched::Page(Page {
                items,
                next: page.next_cursor,
                tag,
                hints: page.hints,
                bytes,
            }))
        }
    }
}

fn failed(error: RequestError, at_cursor: bool) -> Fetched {
    let broken = error.ends_connection();
    let failure = match error {
        RequestError::Rpc(e) if e.code == code::METHOD_NOT_FOUND => {
            Failure::NotOffered(e.to_string())
        }
        RequestError::Rpc(e) if at_cursor && e.code == code::INVALID_PARAMS => {
            Failure::CursorRefused(e.to_string())
        }
        RequestError::RetryAfter { after, .. } => Failure::RetryAfter(after),
        error @ (RequestError::Unauthorized { .. } | RequestError::Forbidden { .. }) => {
            Failure::Unauthorized(error.to_string())
        }
        error @ (RequestError::Malformed { .. } | RequestError::NotJson { .. }) => {
            Failure::Invalid(error.to_string())
        }
        error => Failure::Transient(error.to_string()),
    };
    Fetched::Failed { failure, broken }
}
