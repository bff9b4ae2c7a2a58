//! A page of a list, serialised once and compressed once.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use relist_catalog::Snapshot;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::options::CatalogOptions;
use crate::prepared::{Encoding, PreparedBody, Spliced};

/// The start of every answer; the id stands behind the result.
pub(crate) const OPENING: &str = r#"{"jsonrpc":"2.0","result":"#;

/// Pages longer than this are compressed away from the runtime's threads.
const LONG: usize = 64 << 10;

/// Which fields a page carries.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form<'a> {
    /// Items and cursor.
    Legacy,
    /// The fields of 2026-07-28 too.
    Modern {
        /// Name and version of the server, as they stand in `_meta`.
        server_info: &'a Value,
        /// Whether the tag of the whole list is given.
        tags: bool,
    },
}

/// A page, ready to be sent.
#[derive(Debug)]
pub(crate) struct PageBody {
    head: Bytes,
    prepared: PreparedBody,
    compressed: [OnceCell<()>; 3],
}

impl PageBody {
    pub(crate) fn new(
        snapshot: &Snapshot,
        position: usize,
        options: &CatalogOptions,
        form: Form<'_>,
    ) -> Self {
        let page = snapshot.page(position, options.page_size);
        let bytes: usize = page.items.iter().map(|i| i.text().len() + 1).sum();
        let mut text = String::with_capacity(bytes + 512);
        text.push_str(OPENING);
        text.push('{');
        if matches!(form, Form::Modern { .. }) {
            text.push_str(r#""resultType":"complete","#);
        }
        let _ = write!(text, r#""{}":["#, snapshot.kind().items_field());
        for (at, item) in page.items.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            compact_into(&mut text, item.text());
        }
        text.push(']');
        if let Some(next) = &page.next {
            let _ = write!(text, r#","nextCursor":"{}""#, next.encode());
        }
        if let Form::Modern { server_info, tags } = form {
            let tag = tags.then(|| snapshot.tag().as_str());
            write_hints(&mut text, options, tag, server_info);
        }
        text.push('}');
        Self::from_head(text)
    }

    /// `not_modified`: what the client has is what there is.
    pub(crate) fn not_modified(
        snapshot: &Snapshot,
        options: &CatalogOptions,
        server_info: &Value,
    ) -> Self {
        let mut text = format!(
            r#"{OPENING}{{"resultType":"{}""#,
            relist_protocol::extension::NOT_MODIFIED
        );
        write_hints(
            &mut text,
            options,
            Some(snapshot.tag().as_str()),
            server_info,
        );
        text.push('}');
        Self::from_head(text)
    }

    /// A result that never changes.
    pub(crate) fn fixed(result: &Value) -> Self {
        Self::from_head(format!("{OPENING}{result}"))
    }

    fn from_head(text: String) -> Self {
        let head = Bytes::from(text);
        Self {
            prepared: PreparedBody::new(head.clone()),
            head,
            compressed: Default::default(),
        }
    }

    /// The answer without compression, in parts.
    pub(crate) fn plain(&self, tail: &[u8]) -> [Bytes; 2] {
        [self.head.clone(), Bytes::copy_from_slice(tail)]
    }

    /// The answer in the encoding. Many may ask at one time for a page that
    /// nobody has asked for before: one thread compresses it, and nobody's
    /// runtime waits for that.
    pub(crate) async fn respond(self: Arc<Self>, encoding: Encoding, tail: &[u8]) -> Spliced {
        let cell = match encoding {
            Encoding::Identity => None,
            Encoding::Gzip => Some(&self.compressed[0]),
            Encoding::Brotli => Some(&self.compressed[1]),
            Encoding::Zstd => Some(&self.compressed[2]),
        };
        if let Some(cell) = cell.filter(|_| self.head.len() > LONG) {
            let prepared = &self.prepared;
            cell.get_or_init(|| async {
                let prepared = prepared.clone();
                let warm = move || drop(prepared.respond(encoding, b"}"));
                // Fails only when the runtime ends, and then nobody waits.
                let _ = tokio::task::spawn_blocking(warm).await;
            })
            .await;
        }
        self.prepared.respond(encoding, tail)
    }
}

fn write_hints(text: &mut String, options: &CatalogOptions, tag: Option<&str>, info: &Value) {
    let _ = write!(
        text,
        r#","ttlMs":{},"cacheScope":"{}""#,
        options.ttl.as_millis(),
        options.scope.as_str()
    );
    if let Some(tag) = tag {
        let _ = write!(text, r#","tag":{}"#, Value::from(tag));
    }
    let _ = write!(
        text,
        r#","_meta":{{"{}":{info}}}"#,
        relist_protocol::meta::key::SERVER_INFO
    );
}

/// Appends JSON without the white space between its tokens: an answer has to
/// fit on one line, and items are kept as they were written.
fn compact_into(out: &mut String, json: &str) {
    if !json.contains(['\n', '\r', '\t', ' ']) {
        out.push_str(json);
        return;
    }
    let (mut quoted, mut escaped, mut from) = (false, false, 0);
    for (at, byte) in json.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b' ' | b'\n' | b'\r' | b'\t' if !quoted => {
                out.push_str(&json[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    out.push_str(&json[from..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use relist_catalog::Item;
    use relist_protocol::CatalogKind;
    use relist_protocol::list::CacheScope;
    use serde_json::json;
    use std::time::Duration;

    fn snapshot() -> Snapshot {
        let text = "{ \"name\": \"a b\",\n \"x\": \"\\\" \\\\\" , \"n\": 1e400 }";
        let item = |t| Item::parse(CatalogKind::Tools, t).expect("a tool");
        Snapshot::new(
            CatalogKind::Tools,
            vec![item(text), item(r#"{"name":"c"}"#)],
        )
    }

    fn text(page: &PageBody) -> String {
        let mut bytes = page.plain(br#","id":7}"#).concat();
        bytes.push(b'\n');
        String::from_utf8(bytes).expect("UTF-8")
    }

    #[test]
    fn a_legacy_page_carries_items_and_cursor_on_one_line() {
        let page = PageBody::new(&snapshot(), 0, &CatalogOptions::default(), Form::Legacy);
        assert_eq!(
            text(&page),
            concat!(
                r#"{"jsonrpc":"2.0","result":{"tools":[{"name":"a b","x":"\" \\","n":1e400},{"name":"c"}]},"id":7}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_modern_page_carries_lifetime_scope_and_the_server() {
        let options = CatalogOptions::default()
            .page_size(1)
            .ttl(Duration::from_secs(5))
            .scope(CacheScope::Public);
        let info = json!({"name": "s", "version": "1"});
        let form = |tags| Form::Modern {
            server_info: &info,
            tags,
        };
        let value = |page: PageBody| serde_json::from_str::<Value>(&text(&page)).expect("JSON");
        let small = Snapshot::new(CatalogKind::Tools, snapshot().items()[1..].to_vec());
        assert_eq!(
            value(PageBody::new(&small, 0, &options, form(false))),
            json!({"jsonrpc": "2.0", "id": 7, "result": {
                "resultType": "complete", "tools": [{"name": "c"}],
                "ttlMs": 5000, "cacheScope": "public",
                "_meta": {"io.modelcontextprotocol/serverInfo": info}}})
        );
        let tagged = value(PageBody::new(&small, 0, &options, form(true)));
        assert_eq!(tagged["result"]["tag"], small.tag().as_str());
        let unmodified = value(PageBody::not_modified(&small, &options, &info));
        assert_eq!(unmodified["result"]["resultType"], "not_modified");
        assert_eq!(unmodified["result"]["ttlMs"], 5000);
    }
}
