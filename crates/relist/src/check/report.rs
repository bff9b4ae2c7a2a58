//! What was found, for people and for programs.

use std::collections::BTreeMap;

use anstream::println;
use anstyle::{AnsiColor, Style};
use relist_client::connection::Connection;
use relist_protocol::CatalogKind;
use serde_json::{Value, json};

use super::rule::Rule;
use crate::show::{BOLD, DIM, RED, YELLOW, printable};

const GREEN: Style = AnsiColor::Green.on_default();

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// Clients will be wrong, or will have to defend themselves.
    Fault,
    /// Clients get by, at a cost.
    Advice,
}

#[derive(Debug)]
struct Finding {
    level: Level,
    catalog: Option<CatalogKind>,
    text: String,
}

/// Everything that was looked at.
#[derive(Debug)]
pub(super) struct Report {
    server: String,
    version: String,
    findings: BTreeMap<Rule, Vec<Finding>>,
    /// Rules that could not be judged, each with the reason.
    skipped: BTreeMap<Rule, String>,
    /// Rules that were judged.
    judged: Vec<Rule>,
}

impl Report {
    pub(super) fn new(connection: &Connection) -> Self {
        let info = connection.server().info.as_ref();
        Self {
            server: info.map_or_else(
                || "a server that does not say its name".to_owned(),
                |i| printable(&format!("{} {}", i.name, i.version)),
            ),
            version: connection.version().to_string(),
            findings: BTreeMap::new(),
            skipped: BTreeMap::new(),
            judged: Vec::new(),
        }
    }

    fn find(&mut self, rule: Rule, finding: Finding) {
        self.judged(rule);
        let findings = self.findings.entry(rule).or_default();
        // The same thing on every page, or on every walk, is said once.
        let known = |f: &Finding| f.catalog == finding.catalog && f.text == finding.text;
        if !findings.iter().any(known) {
            findings.push(finding);
        }
    }

    pub(super) fn fault(&mut self, rule: Rule, catalog: Option<CatalogKind>, text: String) {
        let level = Level::Fault;
        self.find(
            rule,
            Finding {
                level,
                catalog,
                text,
            },
        );
    }

    pub(super) fn advice(&mut self, rule: Rule, catalog: Option<CatalogKind>, text: String) {
        let level = Level::Advice;
        self.find(
            rule,
            Finding {
                level,
                catalog,
                text,
            },
        );
    }

    /// The rule was looked at, whatever comes of it.
    pub(super) fn judged(&mut self, rule: Rule) {
        if !self.judged.contains(&rule) {
            self.judged.push(rule);
        }
    }

    /// The rule cannot be judged, unless it is elsewhere.
    pub(super) fn skip(&mut self, rule: Rule, reason: &str) {
        self.skipped
            .entry(rule)
            .or_insert_with(|| reason.to_owned());
    }

    fn count(&self, level: Level) -> usize {
        let all = self.findings.values().flatten();
        all.filter(|f| f.level == level).count()
    }

    pub(super) fn faults(&self) -> usize {
        self.count(Level::Fault)
    }

    fn outcome(&self, rule: Rule) -> &'static str {
        let findings = self.findings.get(&rule).map_or(&[][..], Vec::as_slice);
        if findings.iter().any(|f| f.level == Level::Fault) {
            "fault"
        } else if !findings.is_empty() {
            "advice"
        } else if self.judged.contains(&rule) {
            "ok"
        } else {
            "not checked"
        }
    }

    fn reason(&self, rule: Rule) -> &str {
        self.skipped
            .get(&rule)
            .map_or("there was nothing to look at", String::as_str)
    }

    pub(super) fn as_json(&self) -> Value {
        let rules = Rule::ALL.into_iter().map(|rule| {
            let outcome = self.outcome(rule);
            let mut line = json!({
                "rule": rule.id(), "title": rule.title(), "outcome": outcome, "page": rule.page(),
            });
            if outcome == "not checked" {
                line["reason"] = self.reason(rule).into();
            }
            let findings = self.findings.get(&rule).map_or(&[][..], Vec::as_slice);
            let findings = findings.iter().map(|f| {
                json!({
                    "level": if f.level == Level::Fault { "fault" } else { "advice" },
                    "catalog": f.catalog.map(CatalogKind::items_field),
                    "text": f.text,
                })
            });
            line["findings"] = findings.collect();
            line
        });
        json!({
            "server": self.server,
            "protocolVersion": self.version,
            "faults": self.faults(),
            "advice": self.count(Level::Advice),
            "rules": rules.collect::<Vec<_>>(),
        })
    }

    pub(super) fn print(&self) {
        println!("{BOLD}{}{BOLD:#}, protocol {}", self.server, self.version);
        for rule in Rule::ALL {
            let (outcome, style) = match self.outcome(rule) {
                "fault" => ("FAULT", RED),
                "advice" => ("advice", YELLOW),
                "ok" => ("ok", GREEN),
                _ => ("-", DIM),
            };
            print_line(outcome, style, rule.title());
            if outcome == "-" {
                println!("          {DIM}not checked: {}{DIM:#}", self.reason(rule));
            }
            for finding in self.findings.get(&rule).into_iter().flatten() {
                let catalog = finding
                    .catalog
                    .map_or_else(String::new, |kind| format!("{kind}: "));
                println!("          {catalog}{}", printable(&finding.text));
            }
            if self.findings.contains_key(&rule) {
                println!("          {DIM}specification: {}{DIM:#}", rule.page());
            }
        }
        println!(
            "{}, {} of advice",
            counted(self.faults(), "fault"),
            counted(self.count(Level::Advice), "piece")
        );
    }
}

fn print_line(outcome: &str, style: Style, title: &str) {
    println!("  {style}{outcome:<6}{style:#}  {title}");
}

fn counted(n: usize, noun: &str) -> String {
    match n {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}
