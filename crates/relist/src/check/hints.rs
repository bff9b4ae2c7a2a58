//! Hints: whether they are declared, true and complete.

use std::time::Duration;

use relist_catalog::Snapshot;
use relist_client::connection::{Connection, HintEnd, HintEvent, HintStream, RequestOptions};
use relist_protocol::message::ListenFilter;
use relist_protocol::{CatalogKind, Era};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::report::Report;
use super::rule::Rule;
use super::walk::{self, Walked};
use super::{cursors, offered};

/// How long a stream may take to open.
const OPENING: Duration = Duration::from_secs(5);
/// How long a change may lag behind its hint, or a hint behind its change.
const LAG: Duration = Duration::from_secs(1);

/// A catalog that is being observed.
struct Watched<'a> {
    before: &'a Walked,
    current: Snapshot,
    hints: usize,
    idle: usize,
}

/// Waits for hints and changes, and judges them.
pub(super) async fn observe(
    report: &mut Report,
    connection: &Connection,
    baseline: &[Walked],
    change: Option<(&str, &Map<String, Value>)>,
    time: Duration,
) {
    let mut watched: Vec<Watched<'_>> = baseline
        .iter()
        .map(|before| Watched {
            current: before.snapshot(),
            before,
            hints: 0,
            idle: 0,
        })
        .collect();
    let mut hints = open(report, connection).await;
    let mut strays = connection.stray_hints();
    // A server that hints whenever it is listed does so now.
    look(connection, &mut watched, |_| true).await;
    if let Some((tool, arguments)) = change {
        call(report, connection, tool, arguments).await;
    }
    let deadline = Instant::now() + time;
    loop {
        let event = tokio::select! {
            event = next(&mut hints) => event,
            event = strays.next() => event,
            () = tokio::time::sleep_until(deadline) => break,
        };
        match event {
            Some(HintEvent::Changed { kind, .. }) => {
                hinted(report, connection, &mut watched, kind).await;
            }
            Some(HintEvent::Ended(end)) => {
                if !matches!(end, HintEnd::Closed { .. }) {
                    let text = format!("the stream of hints ended: {}", said(&end));
                    report.advice(Rule::HintStream, None, text);
                }
                hints = None;
            }
            None => break,
            Some(_) => {}
        }
    }
    unhinted(report, connection, &mut watched, hints).await;
    for one in &watched {
        verdict(report, one);
        if one.before.snapshot().same_content(&one.current) {
            report.skip(
                Rule::CursorsVersion,
                "nothing changed meanwhile; name a tool with --change, or observe longer",
            );
        } else {
            cursors::survived(report, connection, one.before, &one.current).await;
        }
    }
}

async fn next(hints: &mut Option<HintStream>) -> Option<HintEvent> {
    match hints {
        Some(hints) => hints.next().await,
        None => std::future::pending().await,
    }
}

async fn call(
    report: &mut Report,
    connection: &Connection,
    tool: &str,
    arguments: &Map<String, Value>,
) {
    let mut params = Map::new();
    params.insert("name".to_owned(), tool.into());
    params.insert("arguments".to_owned(), arguments.clone().into());
    let called = connection
        .request("tools/call", params, RequestOptions::default())
        .await;
    if let Err(error) = called {
        let reason = format!("the tool {tool:?} could not be called: {error}");
        report.skip(Rule::HintsComplete, &reason);
        report.skip(Rule::CursorsVersion, &reason);
    }
}

/// Opens the stream of hints, if the server has one.
async fn open(report: &mut Report, connection: &Connection) -> Option<HintStream> {
    let capabilities = &connection.server().capabilities;
    let mut filter = ListenFilter::default();
    for kind in offered(connection) {
        if capabilities.hints(kind) {
            filter.set(kind, true);
        }
    }
    if filter.is_empty() && connection.era() == Era::Modern {
        report.skip(Rule::HintStream, "the server declares no hints");
        return None;
    }
    let declared = !filter.is_empty();
    let mut hints = connection.hints(filter.clone());
    let opened = tokio::time::timeout(OPENING, async {
        loop {
            match hints.next().await {
                Some(HintEvent::Opened { granted }) => return Ok(granted),
                Some(HintEvent::Ended(end)) => return Err(Some(end)),
                None => return Err(None),
                Some(_) => {}
            }
        }
    });
    let rule = Rule::HintStream;
    match opened.await {
        Ok(Ok(granted)) => {
            report.judged(rule);
            if connection.era() == Era::Modern && granted != filter {
                let text = "the acknowledgment grants less than what the server declares";
                report.advice(rule, None, text.to_owned());
            }
            Some(hints)
        }
        Ok(Err(end)) => {
            let why = end.as_ref().map_or_else(|| "it ended".to_owned(), said);
            if declared {
                let text = format!("hints are declared, and there is no stream for them: {why}");
                report.fault(rule, None, text);
            } else {
                report.skip(rule, &why);
            }
            None
        }
        Err(_) => {
            let text = format!("the stream did not open in {} s", OPENING.as_secs());
            report.fault(rule, None, text);
            None
        }
    }
}

fn said(end: &HintEnd) -> String {
    match end {
        HintEnd::Graceful => "the server said goodbye".to_owned(),
        HintEnd::NothingGranted => "the server granted nothing".to_owned(),
        HintEnd::NoAcknowledgment => "the server did not acknowledge it".to_owned(),
        HintEnd::Lost { reason, .. }
        | HintEnd::NoStream { reason }
        | HintEnd::NotAStream { reason }
        | HintEnd::Closed { reason } => reason.clone(),
        HintEnd::Refused(error) => error.to_string(),
        HintEnd::Silent { waited } => {
            format!("its keep-alives stopped for {} s", waited.as_secs())
        }
        HintEnd::Unauthorized { .. } | HintEnd::Forbidden { .. } => {
            "the credentials were refused".to_owned()
        }
        HintEnd::SessionGone => "the session is gone".to_owned(),
        _ => "it ended".to_owned(),
    }
}

/// Looks whether a hint announced anything.
async fn hinted(
    report: &mut Report,
    connection: &Connection,
    watched: &mut [Watched<'_>],
    kind: CatalogKind,
) {
    let notification = kind.changed_notification();
    let capabilities = &connection.server().capabilities;
    if !capabilities.hints(kind) {
        let text = "a hint came that `listChanged` does not declare: some clients ignore it";
        report.fault(Rule::HintsDeclared, Some(kind), text.to_owned());
    } else {
        report.judged(Rule::HintsDeclared);
    }
    let concerned = |w: &Watched<'_>| w.before.kind.changed_notification() == notification;
    let mut news = look(connection, watched, concerned).await;
    if !news {
        tokio::time::sleep(LAG).await;
        news = look(connection, watched, concerned).await;
        if news {
            let text = "a hint came before its change was visible: a client that looks at once \
                        sees the old list, and does not look again";
            report.fault(Rule::HintsTrue, Some(kind), text.to_owned());
        }
    }
    // One notification speaks of resources and of resource templates.
    for one in watched.iter_mut().filter(|w| concerned(w)) {
        one.hints += 1;
        one.idle += usize::from(!news);
    }
}

/// Lists the catalogs again; whether any of them is another one now.
async fn look(
    connection: &Connection,
    watched: &mut [Watched<'_>],
    concerned: impl Fn(&Watched<'_>) -> bool,
) -> bool {
    let mut news = false;
    for one in watched.iter_mut().filter(|w| concerned(w)) {
        // What cannot be listed now was reported when it could not be listed.
        if let Ok(walked) = walk::walk(connection, one.before.kind).await {
            let now = walked.snapshot();
            news |= !now.same_content(&one.current);
            one.current = now;
        }
    }
    news
}

/// Looks for changes that no hint announced.
async fn unhinted(
    report: &mut Report,
    connection: &Connection,
    watched: &mut [Watched<'_>],
    mut hints: Option<HintStream>,
) {
    for one in watched.iter_mut() {
        let kind = one.before.kind;
        let changed = look(connection, std::slice::from_mut(one), |_| true).await;
        let seen = changed || !one.before.snapshot().same_content(&one.current);
        if !connection.server().capabilities.hints(kind) {
            if seen && one.hints == 0 {
                let text = "it changes, and `listChanged` is not declared: clients find out \
                            when a lifetime ends, or never";
                report.advice(Rule::HintsComplete, Some(kind), text.to_owned());
            }
            continue;
        }
        if !changed {
            if seen {
                report.judged(Rule::HintsComplete);
            }
            continue;
        }
        report.judged(Rule::HintsComplete);
        let late = tokio::time::timeout(LAG, async {
            loop {
                match next(&mut hints).await {
                    Some(HintEvent::Changed { kind: other, .. })
                        if other.changed_notification() == kind.changed_notification() =>
                    {
                        return;
                    }
                    None | Some(HintEvent::Ended(_)) => std::future::pending().await,
                    Some(_) => {}
                }
            }
        });
        if late.await.is_err() {
            let text = "it changed, and no hint came, although `listChanged` is declared";
            report.fault(Rule::HintsComplete, Some(kind), text.to_owned());
        }
    }
    report.skip(
        Rule::HintsComplete,
        "nothing changed meanwhile; name a tool with --change, or observe longer",
    );
}

fn verdict(report: &mut Report, one: &Watched<'_>) {
    if one.hints == 0 {
        report.skip(Rule::HintsDeclared, "no hint came meanwhile");
        report.skip(Rule::HintsTrue, "no hint came meanwhile");
        return;
    }
    report.judged(Rule::HintsTrue);
    if one.idle > 0 {
        let text = format!(
            "{} of {} hints announced nothing: each costs every client a list{}",
            one.idle,
            one.hints,
            if one.idle > 1 {
                " (do lists cause hints?)"
            } else {
                ""
            }
        );
        report.fault(Rule::HintsTrue, Some(one.before.kind), text);
    }
}
