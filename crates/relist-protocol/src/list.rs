//! List results, as a receiver reads them.
//!
//! Reading is forgiving where the specification tells a client to be
//! (nonsense in `ttlMs`, an absent `cacheScope`) and strict where a mistake
//! would put something wrong into a catalog.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::extension::{COMPLETE, NOT_MODIFIED, Switch, Switches};
use crate::kind::CatalogKind;

/// The longest lifetime that a client believes: 24 hours.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Who may share a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// Whoever has the same authorization. The reading of an absent or
    /// unknown scope: the one that leaks nothing.
    #[default]
    Private,
    /// Anybody.
    Public,
}

impl CacheScope {
    /// The scope of a collection: private if any page is.
    #[must_use]
    pub fn strictest(self, other: Self) -> Self {
        if self == Self::Private || other == Self::Private {
            Self::Private
        } else {
            Self::Public
        }
    }

    /// The scope as it is written on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Public => "public",
        }
    }
}

/// How long a result may be held, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CacheHints {
    /// `ttlMs`: nonsense read as zero, cut at [`MAX_TTL`].
    pub ttl: Duration,
    /// Whether the server stated a lifetime at all. Legacy servers do not, and
    /// a client may then rely on notifications; a stated zero means stale at once.
    pub stated: bool,
    /// `cacheScope`.
    pub scope: CacheScope,
}

impl CacheHints {
    /// Reads both fields as they stand in a result.
    #[must_use]
    pub fn read(ttl_ms: Option<&RawValue>, scope: Option<&RawValue>) -> Self {
        let stated = ttl_ms.is_some();
        // Only a plain, non-negative integer counts; "3", 1.5 and -1 are nonsense.
        let ttl = ttl_ms
            .map(|raw| raw.get())
            .filter(|t| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit()))
            .map_or(Duration::ZERO, |digits| {
                digits
                    .parse::<u64>()
                    .map_or(MAX_TTL, |ms| Duration::from_millis(ms).min(MAX_TTL))
            });
        let scope = match scope.map(RawValue::get) {
            Some("\"public\"") => CacheScope::Public,
            _ => CacheScope::Private,
        };
        Self { ttl, stated, scope }
    }

    /// The hints of a collection: shortest lifetime, strictest scope.
    #[must_use]
    pub fn combine(self, other: Self) -> Self {
        Self {
            ttl: self.ttl.min(other.ttl),
            stated: self.stated || other.stated,
            scope: self.scope.strictest(other.scope),
        }
    }
}

/// One page of a list.
#[derive(Debug)]
pub struct ListPage<'a> {
    /// The items as they stood in the message.
    pub items: Vec<&'a RawValue>,
    /// Present when there is more. An empty string is a cursor like any other.
    pub next_cursor: Option<String>,
    /// Lifetime and scope.
    pub hints: CacheHints,
    /// The tag of the whole collection, where the server gives one.
    pub tag: Option<String>,
}

/// The answer to a list request.
#[derive(Debug)]
pub enum ListAnswer<'a> {
    /// A page.
    Page(ListPage<'a>),
    /// What the client has is what there is.
    NotModified {
        /// The tag that the server confirms.
        tag: String,
        /// The renewed lifetime and scope.
        hints: CacheHints,
    },
}

/// Why a list result cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListFault {
    /// The result is not of the shape that the method promises.
    #[error("the result of {method} is malformed: {reason}")]
    Malformed {
        /// The list method.
        method: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A `resultType` that was not negotiated.
    #[error("the result of {method} has the unknown resultType {found:?}")]
    UnknownResultType {
        /// The list method.
        method: &'static str,
        /// The type found.
        found: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    #[serde(default)]
    result_type: Option<String>,
    #[serde(default, borrow)]
    tools: Option<Vec<&'a RawValue>>,
    #[serde(default, borrow)]
    resources: Option<Vec<&'a RawValue>>,
    #[serde(default, borrow)]
    resource_templates: Option<Vec<&'a RawValue>>,
    #[serde(default, borrow)]
    prompts: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    next_cursor: Option<String>,
    #[serde(default, borrow)]
    ttl_ms: Option<&'a RawValue>,
    #[serde(default, borrow)]
    cache_scope: Option<&'a RawValue>,
    #[serde(default)]
    tag: Option<String>,
}

impl<'a> ListAnswer<'a> {
    /// Reads a list result; `negotiated` are the switches that both sides have on.
    ///
    /// # Errors
    ///
    /// [`ListFault`] when the items are missing, when a field has the wrong
    /// type, or when the `resultType` is one that was not negotiated.
    pub fn read(
        kind: CatalogKind,
        result: &'a RawValue,
        negotiated: Switches,
    ) -> Result<Self, ListFault> {
        let method = kind.list_method();
        let malformed = |reason: String| ListFault::Malformed { method, reason };
        let fields: Fields<'a> =
            serde_json::from_str(result.get()).map_err(|e| malformed(e.to_string()))?;
        let hints = CacheHints::read(fields.ttl_ms, fields.cache_scope);
        match fields.result_type.as_deref() {
            None | Some(COMPLETE) => {}
            Some(NOT_MODIFIED) if negotiated.contains(Switch::Conditional) => {
                let tag = fields
                    .tag
                    .ok_or_else(|| malformed("`not_modified` without a tag".to_owned()))?;
                return Ok(Self::NotModified { tag, hints });
            }
            Some(other) => {
                return Err(ListFault::UnknownResultType {
                    method,
                    found: other.to_owned(),
                });
            }
        }
        let items = match kind {
            CatalogKind::Tools => fields.tools,
            CatalogKind::Resources => fields.resources,
            CatalogKind::ResourceTemplates => fields.resource_templates,
            CatalogKind::Prompts => fields.prompts,
        }
        .ok_or_else(|| malformed(format!("`{}` is missing", kind.items_field())))?;
        Ok(Self::Page(ListPage {
            items,
            next_cursor: fields.next_cursor,
            hints,
            tag: fields.tag,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).expect("JSON")
    }

    #[test]
    fn nonsense_lifetimes_are_zero_and_long_ones_are_cut() {
        let ttl = |text: &str| CacheHints::read(Some(&raw(text)), None).ttl;
        for nonsense in ["-1", "1.5", "\"60000\"", "null", "true", "{}", "1e3"] {
            assert_eq!(ttl(nonsense), Duration::ZERO, "{nonsense}");
        }
        assert_eq!(ttl("60000"), Duration::from_secs(60));
        assert_eq!(ttl("86400001"), MAX_TTL);
        assert_eq!(ttl("99999999999999999999999"), MAX_TTL);
        assert_eq!(CacheHints::read(None, None), CacheHints::default());
        assert!(CacheHints::read(Some(&raw("-1")), None).stated);
    }

    #[test]
    fn a_scope_that_is_absent_or_unknown_is_private() {
        let scope = |text: &str| CacheHints::read(None, Some(&raw(text))).scope;
        assert_eq!(scope("\"public\""), CacheScope::Public);
        assert_eq!(scope("\"\""), CacheScope::Private);
        assert_eq!(CacheHints::read(None, None).scope, CacheScope::Private);
    }

    #[test]
    fn an_empty_cursor_is_a_cursor_and_null_is_none() {
        let with = |text: &str| {
            let result = raw(text);
            match ListAnswer::read(CatalogKind::Tools, &result, Switches::NONE) {
                Ok(ListAnswer::Page(page)) => page.next_cursor,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(with(r#"{"tools":[],"nextCursor":""}"#), Some(String::new()));
        assert_eq!(with(r#"{"tools":[],"nextCursor":null}"#), None);
        assert_eq!(with(r#"{"tools":[]}"#), None);
    }

    #[test]
    fn not_modified_is_invalid_unless_negotiated() {
        let result = raw(r#"{"resultType":"not_modified","tag":"t","ttlMs":5}"#);
        assert!(matches!(
            ListAnswer::read(CatalogKind::Tools, &result, Switches::NONE),
            Err(ListFault::UnknownResultType { .. })
        ));
        assert!(matches!(
            ListAnswer::read(CatalogKind::Tools, &result, Switches::all()),
            Ok(ListAnswer::NotModified { .. })
        ));
    }

    #[test]
    fn the_items_of_another_catalog_do_not_count() {
        let result = raw(r#"{"prompts":[]}"#);
        assert!(matches!(
            ListAnswer::read(CatalogKind::Tools, &result, Switches::NONE),
            Err(ListFault::Malformed { .. })
        ));
    }
}
