//! Names for the model. Model interfaces take letters, digits, `_` and `-`, at
//! most 64 of them; servers may use anything.

use std::collections::HashSet;

use relist_catalog::{Digest, Item};

use super::ModelTool;

const MAX: usize = 64;
/// Hexadecimal digits of a suffix.
const SUFFIX: usize = 8;

fn is_plain(name: &str) -> bool {
    (1..=MAX).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// A name that needs mending gets a suffix made from the original, so that it
/// does not depend on which other tools there are or how they are ordered.
fn mended(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
                c
            } else {
                '_'
            }
        })
        .take(MAX - SUFFIX - 1)
        .collect();
    let text = serde_json::Value::String(name.to_owned()).to_string();
    let digest = Digest::of(&text);
    let suffix: String = digest
        .bytes()
        .iter()
        .take(SUFFIX / 2)
        .map(|b| format!("{b:02x}"))
        .collect();
    format!("{plain}_{suffix}")
}

/// Gives every tool its public name, sorted by it. Of tools that share a name
/// the first is kept: a call could not tell them apart.
pub(super) fn assign(items: &[&Item]) -> (Vec<ModelTool>, Vec<(String, String)>) {
    let mut tools = Vec::with_capacity(items.len());
    let mut left_out = Vec::new();
    let mut taken = HashSet::new();
    for item in items {
        let name = item.key().as_str();
        let public_name = if is_plain(name) {
            name.to_owned()
        } else {
            mended(name)
        };
        if !taken.insert(public_name.clone()) {
            let reason = format!("the server lists another tool under the name {public_name:?}");
            tracing::warn!(tool = name, %reason, "a tool is left out");
            left_out.push((name.to_owned(), reason));
            continue;
        }
        tools.push(ModelTool {
            public_name,
            item: (*item).clone(),
        });
    }
    tools.sort_by(|a, b| a.public_name.cmp(&b.public_name));
    (tools, left_out)
}

#[cfg(test)]
mod tests {
    use relist_protocol::CatalogKind;
    use serde_json::json;

    use super::*;

    fn publish(names: &[&str]) -> (Vec<String>, usize) {
        let items: Vec<Item> = names
            .iter()
            .map(|n| Item::from_value(CatalogKind::Tools, &json!({"name": n})).expect("a tool"))
            .collect();
        let refs: Vec<&Item> = items.iter().collect();
        let (tools, left_out) = assign(&refs);
        let names = tools.into_iter().map(|t| t.public_name).collect();
        (names, left_out.len())
    }

    /// Field report L2.
    #[test]
    fn names_that_look_alike_stay_apart() {
        let long = "x".repeat(65);
        let longer = "x".repeat(66);
        let names = [
            "search-a",
            "search_a",
            "repo/search",
            "repo_search",
            "caf\u{e9}",
            "cafe\u{301}",
            &long,
            &longer,
            "",
        ];
        let (public, left_out) = publish(&names);
        assert_eq!(left_out, 0);
        let distinct: HashSet<&String> = public.iter().collect();
        assert_eq!(distinct.len(), names.len());
        assert!(public.iter().all(|n| is_plain(n)));
        assert!(public.contains(&"search-a".to_owned()));
    }

    #[test]
    fn a_public_name_does_not_depend_on_the_company() {
        let (alone, _) = publish(&["repo/search"]);
        let (together, _) = publish(&["repo_search", "a", "repo/search"]);
        assert!(together.contains(&alone[0]));
    }

    #[test]
    fn exact_duplicates_leave_one_and_a_word_about_the_other() {
        assert_eq!(publish(&["a", "a"]), (vec!["a".to_owned()], 1));
    }
}
