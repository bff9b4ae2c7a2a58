//! Properties of catalogs, over random items and edits.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::collection::vec;
use proptest::prelude::*;
use relist_catalog::{Change, Cursor, History, HistoryLimits, Item, PageSize, Snapshot};
use relist_protocol::CatalogKind;
use serde_json::{Value, json};

fn odd_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i32>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(Value::from),
        ".{0,8}".prop_map(Value::String),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            vec((".{0,4}", inner), 0..4).prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

fn tools(max: usize) -> impl Strategy<Value = Vec<Item>> {
    vec(odd_json(), 0..max).prop_map(|values| {
        values
            .into_iter()
            .enumerate()
            .map(|(n, v)| {
                let value = json!({"name": format!("t{n}"), "x": v});
                Item::from_value(CatalogKind::Tools, &value).expect("a tool")
            })
            .collect()
    })
}

/// Few names and few contents, so that repetitions and agreement are common.
fn with_repeated_names() -> impl Strategy<Value = Vec<Item>> {
    vec((0u8..3, 0u8..2), 0..5).prop_map(|items| {
        items
            .into_iter()
            .map(|(name, v)| {
                let value = json!({"name": format!("t{name}"), "v": v});
                Item::from_value(CatalogKind::Tools, &value).expect("a tool")
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn the_tag_is_the_same_in_any_order(items in tools(12), seed in any::<u64>()) {
        let one = Snapshot::new(CatalogKind::Tools, items.clone());
        let mut shuffled = items;
        let len = shuffled.len();
        for at in (1..len).rev() {
            shuffled.swap(at, (seed.rotate_left(at as u32) as usize) % (at + 1));
        }
        let other = Snapshot::new(CatalogKind::Tools, shuffled);
        prop_assert_eq!(one.tag(), other.tag());
        prop_assert!(Change::between(&one, &other).is_content_empty());
    }

    #[test]
    fn an_edited_catalog_has_the_tag_of_one_built_from_nothing(
        items in tools(8), new in odd_json(), at in 0usize..8,
    ) {
        let before = Snapshot::new(CatalogKind::Tools, items);
        let _ = before.tag();
        let mut edit = before.edit();
        edit.remove(&format!("t{}", at + 1));
        let value = json!({"name": format!("t{at}"), "x": new});
        edit.upsert(Item::from_value(CatalogKind::Tools, &value).expect("a tool"));
        let after = edit.finish().expect("unique");
        let rebuilt = after
            .items()
            .iter()
            .map(|i| Item::parse(CatalogKind::Tools, i.text()).expect("a tool"))
            .collect();
        let rebuilt = Snapshot::new(CatalogKind::Tools, rebuilt);
        prop_assert_eq!(after.tag(), rebuilt.tag());
        let change = Change::between(&before, &after);
        prop_assert_eq!(change.is_content_empty(), before.tag() == after.tag());
    }

    #[test]
    fn walking_all_pages_yields_the_snapshot(items in tools(20), size in 1usize..7) {
        let snapshot = Snapshot::new(CatalogKind::Tools, items);
        let history = History::new(snapshot.clone(), HistoryLimits::default());
        let size = PageSize::new(size).expect("not zero");
        let (mut at, mut walked) = (0, Vec::new());
        loop {
            let page = snapshot.page(at, size);
            walked.extend_from_slice(page.items);
            let Some(next) = page.next else { break };
            let cursor = Cursor::decode(&next.encode()).expect("ours");
            prop_assert_eq!(&cursor, &next);
            at = cursor.resolve(CatalogKind::Tools, &history).expect("kept").1;
        }
        prop_assert_eq!(walked.as_slice(), snapshot.items());
    }

    #[test]
    fn no_change_is_named_exactly_where_the_content_is_the_same(
        before in with_repeated_names(), after in with_repeated_names(),
    ) {
        let before = Snapshot::new(CatalogKind::Tools, before);
        let after = Snapshot::new(CatalogKind::Tools, after);
        let change = Change::between(&before, &after);
        prop_assert_eq!(change.is_content_empty(), before.same_content(&after));
        prop_assert_eq!(change.is_empty(), before.same_order(&after));
    }

    #[test]
    fn canonical_text_is_canonical_and_spelling_does_not_count(items in tools(4)) {
        for item in items {
            let spelled = serde_json::to_string_pretty(&item.value()).expect("JSON");
            for text in [spelled, item.canonical_text()] {
                let other = Item::parse(CatalogKind::Tools, &text).expect("a tool");
                prop_assert!(other.digest().is_canonical());
                prop_assert_eq!(other.digest(), item.digest());
                prop_assert_eq!(other.canonical_text(), item.canonical_text());
            }
        }
    }

    #[test]
    fn a_list_read_anew_is_the_list(before in with_repeated_names(), after in with_repeated_names()) {
        let before = Snapshot::new(CatalogKind::Tools, before);
        let shared = before.successor(after.clone());
        let anew = Snapshot::new(CatalogKind::Tools, after);
        prop_assert_eq!(shared.items(), anew.items());
        prop_assert_eq!(shared.tag(), anew.tag());
        prop_assert_eq!(shared.order(), anew.order());
    }

    #[test]
    fn any_text_and_any_bytes_are_read_without_panic(
        text in ".{0,80}", bytes in vec(any::<u8>(), 0..120),
    ) {
        let _ = Item::parse(CatalogKind::Tools, &text);
        prop_assert!(Cursor::decode(&URL_SAFE_NO_PAD.encode(bytes)).is_err());
        prop_assert!(Cursor::decode(&text).is_err());
    }

    #[test]
    fn an_altered_cursor_is_never_followed(flip in 0usize..120) {
        let items = vec![
            Item::parse(CatalogKind::Tools, r#"{"name":"a"}"#).expect("a tool"),
            Item::parse(CatalogKind::Tools, r#"{"name":"b"}"#).expect("a tool"),
        ];
        let snapshot = Snapshot::new(CatalogKind::Tools, items);
        let size = PageSize::new(1).expect("one");
        let mut forged = snapshot.page(0, size).next.expect("more").encode().into_bytes();
        let at = flip % forged.len();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).expect("ASCII");
        prop_assert!(Cursor::decode(&forged).is_err());
    }
}
