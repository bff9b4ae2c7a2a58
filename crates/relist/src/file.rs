//! Catalogs on disk: JSON as `relist record` writes it, or the same in YAML.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

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

/// The endings of files that hold catalogs.
pub(crate) fn is_catalog(path: &Path) -> bool {
    path.extension()
        .and_then(|e| e.to_str())
        .is_some_and(|e| matches!(e, "json" | "yaml" | "yml"))
}

fn parse(path: &Path) -> Result<Value, Failed> {
    let text = std::fs::read_to_string(path).map_err(|e| failed(path, e))?;
    let document: Value = match path.extension().and_then(|e| e.to_str()) {
        // Both parsers say in which line and column they stopped.
        Some("yaml" | "yml") => serde_saphyr::from_str(&text).map_err(|e| failed(path, e))?,
        _ => serde_json::from_str(&text).map_err(|e| failed(path, e))?,
    };
    if document.is_object() {
        Ok(document)
    } else {
        let reason = "a catalog file is an object with `tools`, `resources`, `resourceTemplates` \
                      or `prompts`, as `relist record` writes it";
        Err(failed(path, reason))
    }
}

/// Reads the catalogs that a file names; the others are `None`.
fn read_named(path: &Path) -> Result<Vec<Option<Vec<Item>>>, Failed> {
    let document = parse(path)?;
    CatalogKind::ALL
        .into_iter()
        .map(|kind| {
            let field = kind.items_field();
            let items = match document.get(field) {
                None | Some(Value::Null) => return Ok(None),
                Some(Value::Array(items)) => items,
                Some(_) => return Err(failed(path, format!("`{field}` is not an array"))),
            };
            let items = items.iter().enumerate().map(|(n, value)| {
                Item::from_value(kind, value)
                    .map_err(|e| failed(path, format!("{field}[{n}]: {e}")))
            });
            items.collect::<Result<Vec<Item>, Failed>>().map(Some)
        })
        .collect()
}

/// Reads the four catalogs of a recording; one that is absent is empty.
pub(crate) fn read(path: &Path) -> Result<Vec<Snapshot>, Failed> {
    let named = read_named(path)?;
    let kinds = CatalogKind::ALL.into_iter();
    Ok(kinds
        .zip(named)
        .map(|(kind, items)| Snapshot::new(kind, items.unwrap_or_default()))
        .collect())
}

/// Reads the catalogs that a file, or all files of a folder together, name.
pub(crate) fn read_all(place: &Path) -> Result<Vec<(CatalogKind, Vec<Item>)>, Failed> {
    let files = if place.is_dir() {
        let entries = std::fs::read_dir(place).map_err(|e| failed(place, e))?;
        let mut files: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.is_file() && is_catalog(path))
            .collect();
        files.sort();
        if files.is_empty() {
            return Err(failed(
                place,
                "the folder holds no .json, .yaml or .yml file",
            ));
        }
        files
    } else {
        vec![place.to_owned()]
    };
    let mut catalogs: Vec<(CatalogKind, Vec<Item>)> = Vec::new();
    let mut homes: HashMap<(CatalogKind, String), PathBuf> = HashMap::new();
    for file in files {
        for (kind, items) in CatalogKind::ALL.into_iter().zip(read_named(&file)?) {
            let Some(items) = items else { continue };
            for item in &items {
                let name = (kind, item.key().to_string());
                if let Some(home) = homes.insert(name, file.clone()) {
                    let reason = format!(
                        "the {} {:?} is already defined in {}",
                        kind.noun(),
                        item.key().as_str(),
                        home.display()
                    );
                    return Err(failed(&file, reason));
                }
            }
            match catalogs.iter_mut().find(|(k, _)| *k == kind) {
                Some((_, all)) => all.extend(items),
                None => catalogs.push((kind, items)),
            }
        }
    }
    Ok(catalogs)
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
            ("[]", "an object with `tools`"),
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
    fn yaml_is_read_like_json_and_faults_name_their_line() {
        let path = std::env::temp_dir().join(format!("relist-yaml-{}.yaml", std::process::id()));
        std::fs::write(&path, "tools:\n  - name: a\n    n: 1\n").expect("writes");
        assert_eq!(
            read(&path).expect("reads")[0].items()[0].text(),
            r#"{"name":"a","n":1}"#
        );
        std::fs::write(&path, "tools:\n  - name: a\n  - name: [\n").expect("writes");
        let error = read(&path).expect_err("unclosed").to_string();
        assert!(error.contains("line"), "{error}");
        std::fs::remove_file(&path).expect("removes");
    }

    #[test]
    fn two_files_with_one_name_are_refused_and_both_are_named() {
        let folder = std::env::temp_dir().join(format!("relist-two-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("a.json"), r#"{"tools":[{"name":"x"}]}"#).expect("writes");
        std::fs::write(folder.join("b.json"), r#"{"tools":[{"name":"x"}]}"#).expect("writes");
        let error = read_all(&folder).expect_err("twice").to_string();
        assert!(
            error.contains("a.json") && error.contains("b.json"),
            "{error}"
        );
        std::fs::remove_dir_all(&folder).expect("removes");
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
