//! The four catalogs of a server, and the words each of them has on the wire.

use std::fmt;

/// One of the four catalogs that a server may offer.
///
/// Everything that differs between the catalogs on the wire is a method of this
/// type, so that no other place spells a method name or a field name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CatalogKind {
    /// Tools, keyed by `name`.
    Tools,
    /// Resources, keyed by `uri`.
    Resources,
    /// Resource templates, keyed by `uriTemplate`.
    ResourceTemplates,
    /// Prompts, keyed by `name`.
    Prompts,
}

impl CatalogKind {
    /// All catalogs, in the order in which reports show them.
    pub const ALL: [Self; 4] = [
        Self::Tools,
        Self::Resources,
        Self::ResourceTemplates,
        Self::Prompts,
    ];

    /// The method that lists the catalog.
    #[must_use]
    pub const fn list_method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }

    /// The field of a list result that holds the items.
    #[must_use]
    pub const fn items_field(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    /// The field of an item that names it within the catalog.
    #[must_use]
    pub const fn key_field(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::ResourceTemplates => "uriTemplate",
        }
    }

    /// The notification that hints at a change of the catalog.
    ///
    /// A change of the templates is announced as a change of the resources:
    /// the specification has no notification of its own for them.
    #[must_use]
    pub const fn changed_notification(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Resources | Self::ResourceTemplates => "notifications/resources/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
        }
    }

    /// The field of a listen filter that asks for [`Self::changed_notification`].
    #[must_use]
    pub const fn filter_field(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Resources | Self::ResourceTemplates => "resourcesListChanged",
            Self::Prompts => "promptsListChanged",
        }
    }

    /// The capability that a server declares for the catalog.
    #[must_use]
    pub const fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources | Self::ResourceTemplates => "resources",
            Self::Prompts => "prompts",
        }
    }

    /// The catalog that a list method lists.
    #[must_use]
    pub fn from_list_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.list_method() == method)
    }

    /// The word for one item, for messages to people.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Resources => "resource",
            Self::ResourceTemplates => "resource template",
            Self::Prompts => "prompt",
        }
    }
}

impl fmt::Display for CatalogKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resource templates",
            Self::Prompts => "prompts",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_method_finds_its_own_catalog() {
        for kind in CatalogKind::ALL {
            assert_eq!(
                CatalogKind::from_list_method(kind.list_method()),
                Some(kind)
            );
        }
        assert_eq!(CatalogKind::from_list_method("skills/list"), None);
    }
}
