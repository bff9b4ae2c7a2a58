//! The sequences of catalog versions that a demo replays.

use std::path::Path;

use relist_catalog::{Item, Snapshot};
use relist_protocol::CatalogKind;
use serde_json::{Value, json};

use crate::connect::Failed;
use crate::file;

/// One version of every catalog, in the order of [`CatalogKind::ALL`].
pub(super) type Version = Vec<Snapshot>;

/// Recorded versions, oldest first: every `*.json` of a folder, sorted as
/// version numbers.
pub(super) fn recorded(folder: &Path) -> Result<Vec<Version>, Failed> {
    let failed = |reason: String| Failed::File {
        path: folder.to_owned(),
        reason,
    };
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .map_err(|e| failed(e.to_string()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    if files.len() < 2 {
        return Err(failed(format!(
            "a history is a folder with at least two recorded versions; this one has {}",
            files.len()
        )));
    }
    files.sort_by_cached_key(|path| number(path));
    files.iter().map(|path| file::read(path)).collect()
}

/// `1.10.0` comes after `1.9.0`.
fn number(path: &Path) -> (Vec<u64>, String) {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let parts = stem
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect();
    (parts, stem.into_owned())
}

/// A made sequence: `items` tools, of which `change` differ from version to version.
pub(super) fn made(items: usize, change: usize, versions: usize) -> Vec<Version> {
    let tool = |n: usize, revision: usize| {
        let value = json!({
            "name": format!("tool_{n:05}"),
            "title": format!("Tool number {n}"),
            "description": format!(
                "Does what tool number {n} does, in its revision {revision}. Takes a path, \
                 reads at most the given number of lines, and says what it found there."
            ),
            "inputSchema": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Where to look"},
                    "limit": {"type": "integer", "minimum": 1, "description": "How many lines"},
                },
                "required": ["path"],
            },
            "annotations": {"readOnlyHint": n.is_multiple_of(3)},
        });
        item(&value)
    };
    let mut revisions = vec![0; items];
    let mut sequence = Vec::with_capacity(versions);
    for version in 0..versions {
        if version > 0 {
            for step in 0..change {
                let changed = (version * 7919 + step) % items;
                revisions[changed] = version;
            }
        }
        let tools = revisions.iter().enumerate().map(|(n, r)| tool(n, *r));
        sequence.push(tools_only(tools.collect()));
    }
    sequence
}

fn item(value: &Value) -> Item {
    // Values made here always name themselves.
    #[allow(clippy::expect_used, reason = "a value of our own making")]
    Item::from_value(CatalogKind::Tools, value).expect("a named tool")
}

fn tools_only(tools: Vec<Item>) -> Version {
    let mut version: Version = CatalogKind::ALL.into_iter().map(Snapshot::empty).collect();
    version[0] = Snapshot::new(CatalogKind::Tools, tools);
    version
}

/// The bundled sequence: a small server for notes, as it might have grown.
pub(super) fn bundled() -> Vec<Version> {
    let tool = |name: &str, about: &str, fields: &[(&str, &str)]| {
        let properties: serde_json::Map<String, Value> = fields
            .iter()
            .map(|(field, about)| {
                let schema = json!({"type": "string", "description": about});
                ((*field).to_owned(), schema)
            })
            .collect();
        item(&json!({
            "name": name,
            "description": about,
            "inputSchema": {"type": "object", "properties": properties},
        }))
    };
    let id = ("id", "The note, as `list_notes` gives it");
    let text = ("text", "The new text, in Markdown");
    let query = ("query", "Words that must all appear, in any order");
    let list = tool("list_notes", "Lists notes, newest first.", &[]);
    let read = tool("read_note", "Reads one note in full.", &[id]);
    let write = tool(
        "write_note",
        "Creates a note, or replaces one.",
        &[id, text],
    );
    let search = tool("search_notes", "Finds notes by their words.", &[query]);
    let delete = tool("delete_note", "Deletes one note for good.", &[id]);
    let trash = tool(
        "delete_note",
        "Moves one note to the trash, from which it can be restored for 30 days.",
        &[id],
    );
    let restore = tool("restore_note", "Brings a note back from the trash.", &[id]);
    let label = ("label", "Only notes with this label");
    let labelled = tool(
        "list_notes",
        "Lists notes, newest first, or those of one label.",
        &[label],
    );
    let tag = tool("label_note", "Puts a label on a note.", &[id, label]);
    let link = tool(
        "link_notes",
        "Links two notes to each other.",
        &[id, ("to", "The other note")],
    );
    let export = tool(
        "export_notes",
        "Exports notes as one Markdown file.",
        &[label],
    );
    [
        vec![&list, &read, &write],
        vec![&list, &read, &write, &search],
        vec![&list, &read, &write, &search, &delete],
        vec![&list, &read, &write, &search, &trash, &restore],
        vec![&labelled, &read, &write, &search, &trash, &restore, &tag],
        vec![
            &labelled, &read, &write, &search, &trash, &restore, &tag, &link, &export,
        ],
        vec![
            &labelled, &read, &write, &search, &trash, &restore, &tag, &export,
        ],
    ]
    .into_iter()
    .map(|tools| tools_only(tools.into_iter().cloned().collect()))
    .collect()
}

#[cfg(test)]
mod tests {
    use relist_catalog::Change;

    use super::*;

    #[test]
    fn versions_are_sorted_as_numbers() {
        let mut files: Vec<_> = [
            "1.10.0.json",
            "1.9.0.json",
            "0.13.0.json",
            "1.9.0-rc.1.json",
        ]
        .map(std::path::PathBuf::from)
        .to_vec();
        files.sort_by_cached_key(|p| number(p));
        let names: Vec<_> = files.iter().filter_map(|p| p.to_str()).collect();
        assert_eq!(
            names,
            [
                "0.13.0.json",
                "1.9.0.json",
                "1.9.0-rc.1.json",
                "1.10.0.json"
            ]
        );
    }

    #[test]
    fn a_made_sequence_changes_as_many_items_as_it_says() {
        let sequence = made(50, 3, 6);
        for pair in sequence.windows(2) {
            let change = Change::between(&pair[0][0], &pair[1][0]);
            assert_eq!(change.changed.len(), 3);
            assert!(change.added.is_empty() && change.removed.is_empty());
        }
    }

    #[test]
    fn every_bundled_version_differs_from_the_one_before() {
        for pair in bundled().windows(2) {
            assert!(!Change::between(&pair[0][0], &pair[1][0]).is_content_empty());
        }
    }
}
