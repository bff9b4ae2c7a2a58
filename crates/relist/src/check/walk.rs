//! A list as it comes over the wire, page by page, with all its faults.

use std::collections::HashSet;

use relist_catalog::{Item, Snapshot};
use relist_client::connection::{Connection, RequestOptions};
use relist_client::error::RequestError;
use relist_protocol::CatalogKind;
use serde_json::{Map, Value};

/// Pages of one walk.
const MAX_PAGES: usize = 1_000;
/// Pages in a row that bring nothing new before a walk is given up.
const MAX_IDLE_PAGES: usize = 3;

/// One result.
#[derive(Debug, Clone)]
pub(super) struct Page {
    /// The cursor that was sent for it.
    pub(super) cursor: Option<String>,
    pub(super) result: Value,
}

/// One walk.
#[derive(Debug, Clone)]
pub(super) struct Walked {
    pub(super) kind: CatalogKind,
    pub(super) pages: Vec<Page>,
    /// Why it has no end, if it was given up.
    pub(super) endless: Option<String>,
}

impl Walked {
    /// The items, whatever they look like.
    pub(super) fn values(&self) -> impl Iterator<Item = &Value> {
        let field = self.kind.items_field();
        self.pages
            .iter()
            .filter_map(move |page| page.result.get(field)?.as_array())
            .flatten()
    }

    /// The items that can be read.
    pub(super) fn snapshot(&self) -> Snapshot {
        let items = self
            .values()
            .filter_map(|value| Item::from_value(self.kind, value).ok());
        Snapshot::new(self.kind, items.collect())
    }

    /// The cursor behind the first page.
    pub(super) fn second_cursor(&self) -> Option<&str> {
        self.pages.get(1)?.cursor.as_deref()
    }
}

/// Asks for one page.
pub(super) async fn page(
    connection: &Connection,
    kind: CatalogKind,
    cursor: Option<&str>,
) -> Result<Value, RequestError> {
    let mut params = Map::new();
    if let Some(cursor) = cursor {
        params.insert("cursor".to_owned(), cursor.into());
    }
    let answer = connection
        .request(kind.list_method(), params, RequestOptions::default())
        .await?;
    answer.read()
}

/// Walks a list from its beginning.
pub(super) async fn walk(
    connection: &Connection,
    kind: CatalogKind,
) -> Result<Walked, RequestError> {
    walk_from(connection, kind, None).await
}

/// Walks a list from a cursor.
pub(super) async fn walk_from(
    connection: &Connection,
    kind: CatalogKind,
    from: Option<&str>,
) -> Result<Walked, RequestError> {
    let mut walked = Walked {
        kind,
        pages: Vec::new(),
        endless: None,
    };
    let mut cursor = from.map(str::to_owned);
    let mut followed: HashSet<String> = cursor.iter().cloned().collect();
    let mut keys = HashSet::new();
    let mut idle = 0;
    loop {
        let result = page(connection, kind, cursor.as_deref()).await?;
        let mut news = false;
        let items = result.get(kind.items_field()).and_then(Value::as_array);
        for item in items.into_iter().flatten() {
            news |= keys.insert(item.get(kind.key_field()).cloned());
        }
        idle = if news { 0 } else { idle + 1 };
        let next = result.get("nextCursor").and_then(Value::as_str);
        let next = next.map(str::to_owned);
        walked.pages.push(Page { cursor, result });
        let Some(next) = next else { return Ok(walked) };
        let pages = walked.pages.len();
        walked.endless = if !followed.insert(next.clone()) {
            Some(format!("the cursor {next:?} comes back on page {pages}"))
        } else if idle >= MAX_IDLE_PAGES {
            Some(format!("{idle} pages in a row bring nothing new"))
        } else if pages >= MAX_PAGES {
            Some(format!("it has more than {MAX_PAGES} pages"))
        } else {
            None
        };
        if walked.endless.is_some() {
            return Ok(walked);
        }
        cursor = Some(next);
    }
}
