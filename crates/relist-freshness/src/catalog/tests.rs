//! Behaviour of the machine, rule by rule.

use std::time::Duration;

use relist_catalog::EntityTag;
use relist_protocol::list::{CacheHints, CacheScope};

use super::*;
use crate::record::Outcome;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Tool(String, u8);

impl Listed for Tool {
    fn key(&self) -> &str {
        &self.0
    }
}

/// A driver that answers nothing by itself.
struct Bench {
    machine: Freshness<Tool>,
    now: Time,
    epoch: Epoch,
    adopted: Vec<Adoption<Tool>>,
    records: Vec<RefreshRecord>,
    cancelled: Vec<Ticket>,
    fetches: Vec<Fetch>,
}

fn steady() -> Policy {
    let mut policy = Policy::default();
    policy.retry.jitter = 0;
    policy.idle_hint_spacing.jitter = 0;
    policy.empty_look.jitter = 0;
    policy.poll_jitter = 0;
    policy
}

fn tag(text: &str) -> EntityTag {
    EntityTag::new(text).expect("a tag")
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn page(version: u8) -> Page<Tool> {
    Page::only(vec![Tool("a".into(), version)])
}

fn lifetime(page: Page<Tool>, seconds: u64) -> Page<Tool> {
    Page {
        hints: CacheHints {
            ttl: secs(seconds),
            stated: true,
            scope: CacheScope::Private,
        },
        ..page
    }
}

impl Bench {
    fn with(policy: Policy) -> Self {
        Self {
            machine: Freshness::new(policy, 1),
            now: Time::default(),
            epoch: Epoch(0),
            adopted: Vec::new(),
            records: Vec::new(),
            cancelled: Vec::new(),
            fetches: Vec::new(),
        }
    }

    fn new() -> Self {
        Self::with(steady())
    }

    fn drain(&mut self) {
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Fetch(fetch) => self.fetches.push(fetch),
                Action::Cancel(ticket) => self.cancelled.push(ticket),
                Action::Adopt(adoption) => self.adopted.push(adoption),
                Action::Record(record) => self.records.push(record),
            }
        }
    }

    /// Runs timers up to the given time from now.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.machine.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.machine.timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    fn connect(&mut self, offer: Offer) -> &mut Self {
        self.epoch = Epoch(self.epoch.0 + 1);
        self.machine.connected(self.now, self.epoch, offer);
        self.drain();
        self
    }

    fn open_stream(&mut self) -> &mut Self {
        self.machine.stream_opened(self.now, self.epoch);
        self.drain();
        self
    }

    fn hint(&mut self) {
        self.machine.hint(self.now, self.epoch, None);
        self.drain();
    }

    fn pending(&self) -> Ticket {
        self.fetches.last().expect("a request").ticket
    }

    fn answer(&mut self, page: Page<Tool>) {
        let ticket = self.pending();
        self.machine.page(self.now, ticket, page);
        self.drain();
    }

    fn fail(&mut self, failure: Failure) {
        let ticket = self.pending();
        self.machine.failed(self.now, ticket, failure);
        self.drain();
    }

    fn phase(&self) -> Phase {
        self.machine.status(self.now).phase
    }

    fn version(&self) -> u8 {
        self.adopted.last().expect("an adoption").items[0].1
    }

    /// Connected, watched, and holding version 1.
    fn settled() -> Self {
        let mut bench = Self::new();
        bench.connect(Offer::modern()).open_stream();
        bench.answer(page(1));
        bench
    }
}

#[test]
fn the_first_list_waits_for_the_stream_and_not_for_ever() {
    let mut bench = Bench::new();
    bench.connect(Offer::modern());
    assert!(bench.fetches.is_empty());
    bench.pass(secs(1));
    assert_eq!(bench.fetches.len(), 1);
    // The stream opens late: what it did not carry is looked for.
    bench.open_stream();
    bench.answer(page(1));
    assert_eq!(bench.fetches.len(), 2);
}

#[test]
fn a_stream_that_opens_in_time_costs_no_second_list() {
    let mut bench = Bench::settled();
    bench.pass(secs(60));
    assert_eq!(bench.fetches.len(), 1);
    assert_eq!(bench.phase(), Phase::Fresh);
}

#[test]
fn two_hundred_hints_cost_at_most_two_walks() {
    let mut bench = Bench::settled();
    for _ in 0..200 {
        bench.hint();
        bench.pass(Duration::from_micros(250));
    }
    bench.pass(secs(1));
    bench.answer(page(2));
    bench.pass(secs(300));
    assert_eq!(bench.fetches.len(), 2);
    assert_eq!(bench.records[1].hints, 200);
}

#[test]
fn a_hint_during_a_refresh_causes_exactly_one_more() {
    let mut bench = Bench::settled();
    bench.hint();
    bench.pass(secs(1));
    for _ in 0..50 {
        bench.hint();
    }
    bench.answer(page(2));
    bench.pass(secs(1));
    assert_eq!(bench.fetches.len(), 3);
    assert_eq!(bench.phase(), Phase::Refreshing);
    bench.answer(page(3));
    bench.pass(secs(600));
    assert_eq!(bench.fetches.len(), 3);
    assert_eq!(bench.version(), 3);
}

#[test]
fn a_storm_of_hints_does_not_push_the_refresh_back() {
    let mut bench = Bench::settled();
    let began = bench.now;
    bench.pass(secs(10));
    for _ in 0..1000 {
        bench.hint();
        bench.pass(Duration::from_millis(3));
        if bench.fetches.len() > 1 {
            assert!(bench.now - began < secs(11));
            return;
        }
    }
    panic!("starved");
}

#[test]
fn hints_that_announce_nothing_are_spaced_out_and_a_real_one_still_counts() {
    let mut bench = Bench::settled();
    // The server hints whenever it is listed.
    let mut starts = Vec::new();
    bench.hint();
    for _ in 0..8 {
        let before = bench.fetches.len();
        while bench.fetches.len() == before {
            bench.pass(Duration::from_millis(10));
        }
        starts.push(bench.now.as_millis());
        bench.hint();
        bench.answer(page(1));
    }
    let pauses: Vec<u64> = starts.windows(2).map(|w| (w[1] - w[0]) / 1000).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60]);
    bench.pass(secs(60));
    bench.answer(page(2));
    assert_eq!(bench.version(), 2);
    // News make the pauses short again.
    bench.hint();
    bench.pass(secs(1));
    assert_eq!(bench.phase(), Phase::Refreshing);
}

#[test]
fn after_a_hint_without_news_one_second_look_follows() {
    let mut bench = Bench::settled();
    bench.hint();
    bench.pass(secs(1));
    bench.answer(page(1));
    bench.pass(secs(3));
    assert_eq!(bench.fetches.len(), 3);
    bench.answer(page(2));
    assert_eq!(bench.records[2].trigger, Trigger::SecondLook);
    bench.pass(secs(3600));
    assert_eq!(bench.fetches.len(), 3);
}

#[test]
fn the_tail_of_a_burst_whose_change_was_found_needs_no_second_look() {
    let mut bench = Bench::settled();
    bench.hint();
    bench.pass(secs(1));
    bench.hint();
    bench.answer(page(2));
    bench.hint();
    bench.pass(secs(1));
    bench.answer(page(2));
    bench.pass(secs(3600));
    let triggers: Vec<Trigger> = bench.records.iter().map(|r| r.trigger).collect();
    assert_eq!(triggers, [Trigger::Connected, Trigger::Hint, Trigger::Hint]);
}

#[test]
fn nothing_of_an_old_connection_is_adopted() {
    let mut bench = Bench::settled();
    bench.hint();
    bench.pass(secs(1));
    let old = bench.pending();
    bench.connect(Offer::modern()).open_stream();
    assert_eq!(bench.cancelled, [old]);
    bench.machine.page(bench.now, old, page(9));
    bench.machine.hint(bench.now, Epoch(1), None);
    bench.machine.stream_lost(bench.now, Epoch(1));
    bench.machine.disconnected(bench.now, Epoch(1));
    bench.drain();
    assert_eq!(bench.version(), 1);
    assert_eq!(bench.phase(), Phase::Refreshing);
    assert_eq!(bench.records[1].outcome, Outcome::Abandoned);
}

#[test]
fn a_copy_is_not_trusted_on_a_new_connection_until_it_is_verified() {
    let mut bench = Bench::new();
    bench.connect(Offer::modern().hints(false));
    bench.answer(lifetime(page(1), 3600));
    assert_eq!(bench.phase(), Phase::Fresh);
    bench.machine.disconnected(bench.now, bench.epoch);
    assert_eq!(bench.phase(), Phase::Disconnected);
    bench.connect(Offer::modern().hints(false));
    assert_eq!(bench.phase(), Phase::Refreshing);
}

#[test]
fn a_failed_refresh_keeps_the_copy_and_retries_with_growing_pauses() {
    let mut bench = Bench::settled();
    bench.hint();
    bench.pass(secs(1));
    let mut pauses = Vec::new();
    for _ in 0..10 {
        bench.fail(Failure::Transient("reset".into()));
        assert_eq!(bench.phase(), Phase::Stale);
        let next = bench.machine.next_timeout().expect("a retry");
        pauses.push((next - bench.now).as_secs());
        bench.pass(next - bench.now);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
    assert_eq!(bench.adopted.len(), 1);
    bench.answer(page(2));
    assert_eq!(bench.version(), 2);
}

#[test]
fn hints_do_not_break_through_a_pause_after_failure() {
    let mut bench = Bench::settled();
    bench.hint();
    bench.pass(secs(1));
    for _ in 0..4 {
        bench.fail(Failure::Transient("500".into()));
        let next = bench.machine.next_timeout().expect("a retry");
        bench.hint();
        assert_eq!(bench.machine.next_timeout(), Some(next));
        bench.pass(next - bench.now);
    }
}

#[test]
fn reconnecting_does_not_make_the_pauses_short_again() {
    let mut bench = Bench::new();
    for expected in [1, 2, 4] {
        bench.connect(Offer::modern().hints(false));
        bench.fail(Failure::Transient("reset".into()));
        let next = bench.machine.next_timeout().expect("a retry");
        assert_eq!((next - bench.now).as_secs(), expected);
    }
}

#[test]
fn a_need_looks_again_after_a_failure_but_not_at_once() {
    let mut bench = Bench::settled();
    bench.hint();
    bench.pass(secs(1));
    for _ in 0..6 {
        bench.fail(Failure::Transient("reset".into()));
        let next = bench.machine.next_timeout().expect("a retry");
        bench.pass(next - bench.now);
    }
    bench.fail(Failure::Transient("reset".into()));
    let before = bench.fetches.len();
    assert!(!bench.machine.need(bench.now, Need::Call));
    bench.drain();
    assert_eq!(bench.fetches.len(), before);
    bench.pass(secs(2));
    bench.machine.need(bench.now, Need::Call);
    bench.drain();
    assert_eq!(bench.fetches.len(), before + 1);
}

#[test]
fn the_server_is_not_asked_before_the_time_it_named() {
    let mut bench = Bench::settled();
    bench.hint();
    bench.pass(secs(1));
    bench.fail(Failure::RetryAfter(secs(120)));
    let before = bench.fetches.len();
    bench.pass(secs(119));
    bench.hint();
    bench.machine.need(bench.now, Need::Turn);
    bench.drain();
    assert_eq!(bench.fetches.len(), before);
    bench.pass(secs(1));
    assert_eq!(bench.fetches.len(), before + 1);
}

#[test]
fn refused_credentials_end_ordinary_retries() {
    let mut bench = Bench::settled();
    bench.hint();
    bench.pass(secs(1));
    bench.fail(Failure::Unauthorized("401".into()));
    let before = bench.fetches.len();
    assert_eq!(bench.phase(), Phase::Unavailable);
    bench.pass(secs(36_000));
    bench.hint();
    bench.machine.need(bench.now, Need::Turn);
    bench.machine.refresh(bench.now);
    bench.drain();
    assert_eq!(bench.fetches.len(), before);
    bench.machine.reauthenticated(bench.now);
    bench.drain();
    bench.answer(page(2));
    assert_eq!(bench.fetches.len(), before + 1);
    assert_eq!(bench.version(), 2);
}

#[test]
fn a_catalog_that_is_not_offered_is_unavailable_without_a_request() {
    let mut bench = Bench::new();
    bench.connect(Offer::absent());
    bench.machine.need(bench.now, Need::Turn);
    bench.drain();
    bench.pass(secs(3600));
    assert!(bench.fetches.is_empty());
    assert_eq!(bench.phase(), Phase::Unavailable);
}

#[test]
fn without_hints_expiry_is_noticed_on_the_next_need_and_not_before() {
    let mut bench = Bench::new();
    bench.connect(Offer::modern().hints(false));
    bench.answer(lifetime(page(1), 2));
    bench.pass(Duration::from_millis(1500));
    assert!(bench.machine.need(bench.now, Need::Turn));
    bench.pass(secs(1));
    assert_eq!(bench.phase(), Phase::Stale);
    assert_eq!(bench.fetches.len(), 1);
    assert!(!bench.machine.need(bench.now, Need::Turn));
    bench.drain();
    assert_eq!(bench.fetches.len(), 2);
}

#[test]
fn the_lifetime_counts_from_the_first_page() {
    let mut bench = Bench::new();
    bench.connect(Offer::modern().hints(false));
    bench.answer(Page {
        next: Some("2".into()),
        ..lifetime(page(1), 10)
    });
    bench.pass(secs(8));
    bench.answer(lifetime(Page::only(vec![Tool("b".into(), 1)]), 10));
    assert_eq!(bench.machine.expires(), Some(Time::from_millis(10_000)));
}

#[test]
fn a_stated_lifetime_of_zero_is_stale_at_every_turn_and_will_do_for_the_calls_of_one() {
    let mut bench = Bench::new();
    bench.connect(Offer::modern().hints(false));
    bench.answer(lifetime(page(1), 0));
    bench.machine.need(bench.now, Need::Turn);
    bench.drain();
    assert_eq!(bench.fetches.len(), 2);
    bench.answer(lifetime(page(1), 0));
    for _ in 0..10 {
        bench.pass(secs(1));
        assert!(bench.machine.need(bench.now, Need::Call));
    }
    bench.pass(secs(1));
    assert!(!bench.machine.need(bench.now, Need::Turn));
}

#[test]
fn a_list_without_a_lifetime_is_fresh_while_it_is_watched_and_no_longer_than_stated() {
    let mut bench = Bench::settled();
    bench.pass(secs(299));
    assert!(bench.machine.need(bench.now, Need::Turn));
    bench.pass(secs(2));
    assert!(!bench.machine.need(bench.now, Need::Turn));
}

#[test]
fn a_stream_that_opens_again_is_followed_by_a_check() {
    let mut bench = Bench::settled();
    bench.machine.stream_lost(bench.now, bench.epoch);
    bench.pass(secs(5));
    bench.open_stream();
    assert_eq!(bench.fetches.len(), 2);
    bench.answer(page(2));
    assert_eq!(bench.records[1].trigger, Trigger::StreamOpened);
}

#[test]
fn pages_of_two_versions_are_never_joined() {
    let mut bench = Bench::new();
    bench.connect(Offer::modern().hints(false));
    let tagged = |v: u8, key: &str, next: Option<&str>| Page {
        tag: Some(tag(&format!("v{v}"))),
        next: next.map(str::to_owned),
        ..Page::only(vec![Tool(key.into(), v)])
    };
    bench.answer(tagged(1, "a", Some("2")));
    bench.answer(tagged(2, "b", None));
    assert!(bench.adopted.is_empty());
    assert_eq!(bench.fetches.last().expect("again").cursor, None);
    bench.answer(tagged(2, "a", Some("2")));
    bench.answer(tagged(2, "b", None));
    assert!(bench.adopted[0].items.iter().all(|t| t.1 == 2));
    assert_eq!(bench.records[0].restarts, 1);
}

#[test]
fn a_walk_that_is_never_left_alone_ends_with_an_error() {
    let mut bench = Bench::new();
    bench.connect(Offer::modern().hints(false));
    for v in 0..20u8 {
        let page = Page {
            tag: Some(tag(&format!("v{v}"))),
            next: Some(v.to_string()),
            ..page(v)
        };
        bench.answer(page);
    }
    assert!(bench.adopted.is_empty());
    assert!(matches!(
        bench.records[0].outcome,
        Outcome::Failed(Failure::Unsettled(6))
    ));
}

#[test]
fn a_hint_between_pages_without_tags_makes_the_walk_start_over() {
    let mut bench = Bench::settled();
    bench.hint();
    bench.pass(secs(1));
    let first = |v| Page {
        next: Some("2".into()),
        ..page(v)
    };
    let last = |v| Page::only(vec![Tool("b".into(), v)]);
    bench.answer(first(1));
    bench.hint();
    bench.answer(last(2));
    assert_eq!(bench.adopted.len(), 1, "the mix is not adopted");
    bench.answer(first(2));
    bench.answer(last(2));
    assert_eq!(bench.adopted.len(), 2);
    assert!(bench.adopted[1].items.iter().all(|t| t.1 == 2));
    bench.pass(secs(3600));
    assert_eq!(
        bench.records.len(),
        2,
        "the hint was answered by the second walk"
    );
}

#[test]
fn a_server_that_hints_on_every_page_is_still_read() {
    let mut bench = Bench::settled();
    bench.hint();
    bench.pass(secs(1));
    for _ in 0..2 {
        bench.answer(Page {
            next: Some("2".into()),
            ..page(5)
        });
        bench.hint();
        bench.answer(Page::only(vec![Tool("b".into(), 5)]));
    }
    assert_eq!(bench.version(), 5, "two walks gave the same list");
}

#[test]
fn a_refused_cursor_makes_the_walk_start_over() {
    let mut bench = Bench::new();
    bench.connect(Offer::modern().hints(false));
    bench.answer(Page {
        next: Some("2".into()),
        ..page(1)
    });
    bench.fail(Failure::CursorRefused("-32602".into()));
    assert_eq!(bench.fetches.last().expect("again").cursor, None);
    bench.answer(page(2));
    assert_eq!(bench.version(), 2);
}

#[test]
fn a_cursor_that_is_refused_twice_ends_the_refresh() {
    let mut bench = Bench::new();
    bench.connect(Offer::modern().hints(false));
    for _ in 0..2 {
        bench.answer(Page {
            next: Some("2".into()),
            ..page(1)
        });
        bench.fail(Failure::CursorRefused("-32602".into()));
    }
    assert_eq!(bench.fetches.len(), 4, "two walks of two pages");
    let outcome = &bench.records[0].outcome;
    assert!(
        matches!(outcome, Outcome::Failed(Failure::CursorRefused(_))),
        "{outcome:?}"
    );
}

#[test]
fn not_modified_renews_the_lifetime() {
    let mut bench = Bench::new();
    let offer = Offer::modern().hints(false).conditional(true);
    bench.connect(offer);
    bench.answer(Page {
        tag: Some(tag("A")),
        ..lifetime(page(1), 10)
    });
    bench.pass(secs(30));
    bench.machine.need(bench.now, Need::Turn);
    bench.drain();
    let fetch = bench.fetches.last().expect("a request").clone();
    assert_eq!(fetch.known, Some(tag("A")));
    let hints = CacheHints {
        ttl: secs(10),
        stated: true,
        scope: CacheScope::Private,
    };
    bench
        .machine
        .not_modified(bench.now, fetch.ticket, &tag("A"), hints, 90);
    bench.drain();
    assert_eq!(bench.phase(), Phase::Fresh);
    assert_eq!(bench.adopted.len(), 1);
    assert_eq!(bench.records[1].outcome, Outcome::NotModified);
}

#[test]
fn not_modified_for_another_tag_costs_one_full_list() {
    let mut bench = Bench::new();
    bench.connect(Offer::modern().hints(false).conditional(true));
    bench.answer(Page {
        tag: Some(tag("A")),
        ..page(1)
    });
    bench.machine.refresh(bench.now);
    bench.drain();
    let ticket = bench.pending();
    bench
        .machine
        .not_modified(bench.now, ticket, &tag("B"), CacheHints::default(), 90);
    bench.drain();
    bench.pass(secs(2));
    let fetch = bench.fetches.last().expect("a request");
    assert_eq!((fetch.known.clone(), bench.fetches.len()), (None, 3));
    bench.answer(Page {
        tag: Some(tag("B")),
        ..page(2)
    });
    assert_eq!(bench.version(), 2);
}

#[test]
fn a_hint_that_announces_the_tag_already_held_costs_nothing() {
    let mut bench = Bench::new();
    bench.connect(Offer::modern()).open_stream();
    bench.answer(Page {
        tag: Some(tag("A")),
        ..page(1)
    });
    bench.machine.hint(bench.now, bench.epoch, Some(&tag("A")));
    bench.drain();
    bench.pass(secs(60));
    assert_eq!(bench.fetches.len(), 1);
    bench.machine.hint(bench.now, bench.epoch, Some(&tag("B")));
    bench.drain();
    bench.pass(secs(1));
    assert_eq!(bench.fetches.len(), 2);
}

#[test]
fn another_order_is_no_change() {
    let mut bench = Bench::settled();
    let list = |keys: &[&str]| Page::only(keys.iter().map(|k| Tool((*k).into(), 1)).collect());
    bench.machine.refresh(bench.now);
    bench.drain();
    bench.answer(list(&["a", "b", "c"]));
    bench.machine.refresh(bench.now);
    bench.drain();
    bench.answer(list(&["c", "a", "b"]));
    assert!(!bench.adopted.last().expect("adopted").changed);
}

#[test]
fn an_empty_list_is_adopted_and_looked_at_again_where_nobody_hints() {
    let mut bench = Bench::new();
    bench.connect(Offer::modern().hints(false));
    let mut pauses = Vec::new();
    for _ in 0..4 {
        bench.answer(Page::only(vec![]));
        let next = bench.machine.next_timeout().expect("another look");
        pauses.push((next - bench.now).as_secs());
        bench.pass(next - bench.now);
    }
    assert_eq!(pauses, [2, 4, 8, 16]);
    assert!(bench.adopted[0].items.is_empty());
    bench.answer(page(1));
    bench.pass(secs(3600));
    assert_eq!(bench.fetches.len(), 5);
}

#[test]
fn polling_runs_only_where_asked_for_and_not_while_watched() {
    let mut policy = steady();
    policy.poll = Some(secs(60));
    let mut bench = Bench::with(policy);
    bench.connect(Offer::modern()).open_stream();
    bench.answer(page(1));
    bench.pass(secs(600));
    assert_eq!(bench.fetches.len(), 1);
    bench.machine.stream_lost(bench.now, bench.epoch);
    bench.pass(secs(61));
    assert_eq!(bench.fetches.len(), 2);
    assert_eq!(bench.phase(), Phase::Refreshing);
}

#[test]
fn a_refresh_by_hand_during_a_refresh_is_one_more() {
    let mut bench = Bench::settled();
    bench.machine.refresh(bench.now);
    bench.machine.refresh(bench.now);
    bench.machine.refresh(bench.now);
    bench.drain();
    bench.answer(page(2));
    bench.answer(page(3));
    bench.pass(secs(60));
    assert_eq!(bench.fetches.len(), 3);
}
