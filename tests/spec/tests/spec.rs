//! The specification against the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use relist_protocol::extension::Switches;
use relist_protocol::list::ListAnswer;
use relist_protocol::meta::RequestMeta;
use relist_protocol::{CatalogKind, Switch};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Requirement {
    tests: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Identifiers that begin a normative sentence, in bold.
fn identifiers(text: &str) -> BTreeSet<String> {
    text.split("**")
        .filter(|part| part.starts_with("RL-") && !part.contains(' '))
        .map(str::to_owned)
        .collect()
}

fn requirements() -> BTreeMap<String, Requirement> {
    toml::from_str(&read("spec/requirements.toml")).expect("requirements.toml")
}

#[test]
fn every_identifier_has_a_test_and_every_requirement_an_identifier() {
    let written = identifiers(&read("spec/conditional-lists.md"));
    let proven: BTreeSet<String> = requirements().into_keys().collect();
    assert!(written.len() > 20, "the text has its identifiers in bold");
    assert_eq!(written, proven);
}

#[test]
fn every_sentence_with_a_key_word_has_an_identifier() {
    let text = read("spec/conditional-lists.md");
    let rules = text.split("## Negotiation").nth(1).expect("the rules");
    // A rule is a list item: it begins with "- " and goes on in indented lines.
    for block in rules.split("\n- ").flat_map(|b| b.split("\n\n")) {
        if ["MUST", "SHOULD", "MAY"]
            .iter()
            .any(|word| block.contains(word))
        {
            let block = block.trim_start_matches("- ");
            assert!(block.starts_with("**RL-"), "{block}");
        }
    }
}

#[test]
fn every_test_that_is_named_is_there() {
    for (identifier, requirement) in requirements() {
        assert!(!requirement.tests.is_empty(), "{identifier} has no test");
        for test in requirement.tests {
            let (file, name) = test.split_once("::").expect("file::test");
            let source = read(file);
            let at = source
                .find(&format!("fn {name}("))
                .unwrap_or_else(|| panic!("{identifier}: {file} has no test {name}"));
            let before = &source[source[..at].rfind("\n\n").unwrap_or(0)..at];
            assert!(before.contains("test]"), "{identifier}: {name} is no test");
            assert!(
                !before.contains("#[ignore"),
                "{identifier}: {name} is ignored"
            );
        }
    }
}

#[test]
fn every_schema_has_an_example_and_accepts_it() {
    let mut schemas = 0;
    for entry in fs::read_dir(root().join("spec/schemas")).expect("schemas") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy();
        let stem = name.strip_suffix(".schema.json").expect("*.schema.json");
        let schema: Value =
            serde_json::from_str(&read(&format!("spec/schemas/{name}"))).expect("a schema");
        let example: Value =
            serde_json::from_str(&read(&format!("spec/examples/{stem}.json"))).expect("an example");
        let validator = jsonschema::validator_for(&schema).expect("a valid schema");
        if let Err(error) = validator.validate(&example) {
            panic!("{stem}: {error}");
        }
        assert!(
            !validator.is_valid(&Value::Array(Vec::new())),
            "{stem} accepts anything"
        );
        schemas += 1;
    }
    assert_eq!(schemas, 3);
}

#[test]
fn the_examples_are_read_as_what_they_are() {
    let settings: Value = serde_json::from_str(&read("spec/examples/settings.json")).expect("JSON");
    let on = Switches::from_settings(&settings);
    assert!(on.contains(Switch::Conditional));
    assert_eq!(Switches::all().settings(), Some(settings));

    let meta: Value =
        serde_json::from_str(&read("spec/examples/list-request-meta.json")).expect("JSON");
    let params = serde_json::value::to_raw_value(&serde_json::json!({"_meta": meta})).expect("raw");
    let meta = RequestMeta::read(Some(&params)).expect("reads");
    assert!(meta.known_tags.contains_key("tools/list"));
    let declared = meta.extension(relist_protocol::extension::EXTENSION);
    assert!(declared.is_some_and(|s| Switches::from_settings(s).contains(Switch::Conditional)));

    let result: Box<RawValue> =
        serde_json::from_str(&read("spec/examples/not-modified-result.json")).expect("JSON");
    let answer = ListAnswer::read(CatalogKind::Tools, &result, on).expect("reads");
    assert!(
        matches!(answer, ListAnswer::NotModified { hints, .. } if hints.ttl.as_millis() == 60_000)
    );
}

#[test]
fn every_switch_names_its_source() {
    let drafts: toml::Table = toml::from_str(&read("spec/drafts.toml")).expect("drafts.toml");
    for switch in Switch::ALL {
        let draft = drafts
            .get(switch.name())
            .unwrap_or_else(|| panic!("{switch} is missing"));
        assert!(
            draft.get("whose").is_some() && draft.get("path").is_some(),
            "{switch}"
        );
    }
}
