//! Recorded catalogs on disk.

use std::path::Path;

use relist_catalog::{Item, Snapshot};
use relist_protocol::CatalogKind;
use serde_json::Value;

use crate::connect::Failed;

fn failed(path: &Path, reason: impl ToString) -> Failed {
    Failed::File {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// Reads the four catalogs of a recording; one that is absent is empty.
pub(crate) fn read(path: &Path) -> Result<Vec<Snapshot>, Failed> {
    let text = std::fs::read_to_string(path).map_err(|e| failed(path, e))?;
    let document: Value = serde_json::from_str(&text).map_err(|e| failed(path, e))?;
    if !document.is_object() {
        return Err(failed(
            path,
            "a recording is a JSON object, as `relist record` writes it",
        ));
    }
    CatalogKind::ALL
        .into_iter()
        .map(|kind| {
            let items = match document.get(kind.items_field()) {
                None | Some(Value::Null) => &Vec::new(),
                Some(Value::Array(items)) => items,
                Some(_) => {
                    return Err(failed(
                        path,
                        format!("`{}` is not an array", kind.items_field()),
                    ));
                }
            };
            let items = items
                .iter()
                .enumerate()
                .map(|(n, value)| {
                    Item::from_value(kind, value)
                        .map_err(|e| failed(path, format!("{}[{n}]: {e}", kind.items_field())))
                })
                .collect::<Result<Vec<Item>, Failed>>()?;
            Ok(Snapshot::new(kind, items))
        })
        .collect()
}

/// Writes a recording: beside the file first, then in its place, so that an
/// interrupted command leaves the old file whole.
pub(crate) fn write(path: &Path, document: &Value) -> Result<(), Failed> {
    let mut text = format!("{document:#}");
    text.push('\n');
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    std::fs::write(&beside, text).map_err(|e| failed(path, e))?;
    std::fs::rename(&beside, path).map_err(|e| failed(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_recording_is_refused_with_its_place() {
        let path = std::env::temp_dir().join(format!("relist-file-{}.json", std::process::id()));
        for (text, place) in [
            ("{", "line 1"),
            ("[]", "a JSON object"),
            (r#"{"tools":{}}"#, "`tools` is not an array"),
            (r#"{"prompts":[{"name":"a"},{}]}"#, "prompts[1]"),
        ] {
            std::fs::write(&path, text).expect("writes");
            let error = read(&path).expect_err(text).to_string();
            assert!(error.contains(place), "{error}");
        }
        std::fs::remove_file(&path).expect("removes");
    }

    #[test]
    fn what_is_written_is_read_back() {
        let path = std::env::temp_dir().join(format!("relist-back-{}.json", std::process::id()));
        let document = serde_json::json!({"tools": [{"name": "a"}]});
        write(&path, &document).expect("writes");
        let snapshots = read(&path).expect("reads");
        assert_eq!(snapshots[0].len(), 1);
        assert!(snapshots[1].is_empty());
        std::fs::remove_file(&path).expect("removes");
    }
}
