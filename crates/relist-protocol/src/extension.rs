//! The list extension: its identifier, its switches, and the results that it adds.

use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value};

/// The identifier under which client and server declare the extension.
pub const EXTENSION: &str = "experimental.relist/lists";

/// The `resultType` of an answer that says: what you have is what there is.
pub const NOT_MODIFIED: &str = "not_modified";

/// The `resultType` of an ordinary, complete result.
pub const COMPLETE: &str = "complete";

/// The `resultType` of a result that asks the client for more input.
pub const INPUT_REQUIRED: &str = "input_required";

/// One part of the opt-in layer. A switch has one name everywhere: in code, on
/// the command line, in the RFC and in reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Switch {
    /// A tag on lists and discovery, and known tags in requests (draft:
    /// Definition Tags). Needs no negotiation.
    Tags,
    /// List requests that say what the client has; `not_modified` (ours).
    Conditional,
}

impl Switch {
    /// All switches.
    pub const ALL: [Self; 2] = [Self::Tags, Self::Conditional];

    /// The name of the switch.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tags => "tags",
            Self::Conditional => "conditional",
        }
    }

    /// Whether the switch is negotiated through [`EXTENSION`].
    #[must_use]
    pub const fn is_negotiated(self) -> bool {
        matches!(self, Self::Conditional)
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of switches. Empty by default: plain protocol.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Switches(u32);

impl Switches {
    /// No switch: plain protocol.
    pub const NONE: Self = Self(0);

    /// Every switch.
    #[must_use]
    pub fn all() -> Self {
        Switch::ALL.into_iter().collect()
    }

    /// The set with one switch more. `conditional` brings `tags` along, since
    /// it asks by tag.
    #[must_use]
    pub fn with(self, switch: Switch) -> Self {
        let implied = match switch {
            Switch::Tags => 0,
            Switch::Conditional => Switch::Tags.bit(),
        };
        Self(self.0 | switch.bit() | implied)
    }

    /// Whether the switch is on.
    #[must_use]
    pub const fn contains(self, switch: Switch) -> bool {
        self.0 & switch.bit() != 0
    }

    /// Whether every switch is off.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The switches that are on in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The switches that are on, in their order of declaration.
    pub fn iter(self) -> impl Iterator<Item = Switch> {
        Switch::ALL.into_iter().filter(move |s| self.contains(*s))
    }

    /// The settings that are declared under [`EXTENSION`], for example
    /// `{"conditional": true}`; `None` when no negotiated switch is on.
    #[must_use]
    pub fn settings(self) -> Option<Value> {
        let map: Map<String, Value> = self
            .iter()
            .filter(|s| s.is_negotiated())
            .map(|s| (s.name().to_owned(), Value::Bool(true)))
            .collect();
        (!map.is_empty()).then_some(Value::Object(map))
    }

    /// Reads declared settings; what is unknown, or not `true`, is off.
    #[must_use]
    pub fn from_settings(settings: &Value) -> Self {
        Switch::ALL
            .into_iter()
            .filter(|s| s.is_negotiated() && settings.get(s.name()) == Some(&Value::Bool(true)))
            .fold(Self::NONE, |set, s| Self(set.0 | s.bit()))
    }

    /// Reads the `extensions` field of capabilities.
    #[must_use]
    pub fn from_extensions(extensions: Option<&Value>) -> Self {
        extensions
            .and_then(|e| e.get(EXTENSION))
            .map_or(Self::NONE, Self::from_settings)
    }
}

impl FromIterator<Switch> for Switches {
    fn from_iter<I: IntoIterator<Item = Switch>>(iter: I) -> Self {
        iter.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl fmt::Display for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let names: Vec<&str> = self.iter().map(Switch::name).collect();
        f.write_str(&names.join(","))
    }
}

/// A switch name that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown switch `{0}`; the switches are: tags, conditional, all, none")]
pub struct UnknownSwitch(String);

impl FromStr for Switches {
    type Err = UnknownSwitch;

    /// Reads a comma-separated list of names; `all` and `none` are names too.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut set = Self::NONE;
        for name in text.split(',').map(str::trim).filter(|n| !n.is_empty()) {
            match name {
                "all" => set = Self::all(),
                "none" => {}
                name => {
                    let switch = Switch::ALL
                        .into_iter()
                        .find(|s| s.name() == name)
                        .ok_or_else(|| UnknownSwitch(name.to_owned()))?;
                    set = set.with(switch);
                }
            }
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conditional_brings_tags_along() {
        let set: Switches = "conditional".parse().expect("known");
        assert!(set.contains(Switch::Tags));
    }

    #[test]
    fn tags_alone_declare_no_extension() {
        let set: Switches = "tags".parse().expect("known");
        assert_eq!(set.settings(), None);
        assert_eq!(
            Switches::all().settings(),
            Some(json!({"conditional": true}))
        );
    }

    #[test]
    fn unknown_settings_are_off() {
        let read = Switches::from_settings(&json!({"conditional": "yes", "warp": true}));
        assert_eq!(read, Switches::NONE);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = "tags,etag".parse::<Switches>().expect_err("unknown");
        assert!(error.to_string().contains("`etag`"));
    }
}
