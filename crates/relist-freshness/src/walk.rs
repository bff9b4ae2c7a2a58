//! One whole walk over the pages of a list, and what stops it.
//!
//! The collection is the unit: pages are joined in order, the lifetime is the
//! shortest of any page and counts from the arrival of the first, the scope is
//! the strictest. A walk never yields part of a list.

use std::collections::BTreeSet;

use relist_catalog::EntityTag;
use relist_protocol::list::CacheHints;

use crate::policy::Policy;
use crate::time::Time;

/// An item of a list, as far as a walk needs to know it.
pub trait Listed {
    /// What names the item within its catalog.
    fn key(&self) -> &str;
}

impl Listed for relist_catalog::Item {
    fn key(&self) -> &str {
        relist_catalog::Item::key(self).as_ref()
    }
}

/// One page as it arrived.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Page<I> {
    /// The items, in the server's order.
    pub items: Vec<I>,
    /// The cursor of the next page; an empty one is a cursor like any other.
    pub next: Option<String>,
    /// The tag of the collection, where the server gives one.
    pub tag: Option<EntityTag>,
    /// Lifetime and scope.
    pub hints: CacheHints,
    /// Bytes received for the page.
    pub bytes: u64,
}

impl<I> Page<I> {
    /// The only page of a list without tag and lifetime.
    #[must_use]
    pub fn only(items: Vec<I>) -> Self {
        Self {
            items,
            next: None,
            tag: None,
            hints: CacheHints::default(),
            bytes: 0,
        }
    }
}

/// A fault of the server that ends a walk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WalkFault {
    /// A cursor came back that the walk had already followed.
    #[error("the server repeats the cursor {cursor:?} on page {page}: the list would never end")]
    RepeatedCursor {
        /// The repeated cursor.
        cursor: String,
        /// The page that carried it, counted from one.
        page: usize,
    },
    /// Pages keep coming and bring nothing new.
    #[error(
        "{pages} pages in a row repeat items that were already listed: the list would never end"
    )]
    NothingNew {
        /// How many pages in a row.
        pages: usize,
    },
    /// More pages than the policy allows.
    #[error("the list has more than {limit} pages")]
    TooManyPages {
        /// The limit.
        limit: usize,
    },
    /// More items than the policy allows.
    #[error("the list has more than {limit} items")]
    TooManyItems {
        /// The limit.
        limit: usize,
    },
}

/// A complete list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Collection<I> {
    /// All items, in the server's order.
    pub items: Vec<I>,
    /// The tag that every page carried, where every page carried one.
    pub tag: Option<EntityTag>,
    /// Shortest lifetime, strictest scope.
    pub hints: CacheHints,
    /// When the first page arrived: the lifetime counts from here.
    pub first_page: Time,
}

/// What a page meant for the walk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<I> {
    /// There is more: fetch this cursor.
    More(String),
    /// That was the last page.
    Done(Collection<I>),
    /// The page belongs to another version than those before it.
    Changed,
    /// The server does not play by the rules.
    Fault(WalkFault),
}

/// Pages in a row without a new item that count as a loop. More than one, since
/// a page may be empty for honest reasons.
const MAX_PAGES_WITHOUT_NEWS: usize = 8;

/// The pages gathered so far.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Walk<I> {
    gathered: Option<Gathered<I>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Gathered<I> {
    collection: Collection<I>,
    pages: usize,
    cursors: BTreeSet<String>,
    keys: BTreeSet<String>,
    without_news: usize,
}

impl<I: Listed> Walk<I> {
    pub(crate) const fn new() -> Self {
        Self { gathered: None }
    }

    /// Pages gathered so far.
    pub(crate) fn pages(&self) -> usize {
        self.gathered.as_ref().map_or(0, |g| g.pages)
    }

    /// Whether a change during the walk could go unnoticed: several pages, and
    /// no tag to hold them together.
    pub(crate) fn is_unprotected(&self) -> bool {
        self.gathered
            .as_ref()
            .is_some_and(|g| g.collection.tag.is_none())
    }

    /// Takes the next page.
    pub(crate) fn take(&mut self, now: Time, page: Page<I>, policy: &Policy) -> Step<I> {
        let next = page.next.clone();
        match &mut self.gathered {
            None => {
                self.gathered = Some(Gathered {
                    collection: Collection {
                        items: page.items,
                        tag: page.tag,
                        hints: page.hints,
                        first_page: now,
                    },
                    pages: 1,
                    cursors: BTreeSet::new(),
                    keys: BTreeSet::new(),
                    without_news: 0,
                });
            }
            Some(gathered) => {
                if gathered.collection.tag != page.tag {
                    return Step::Changed;
                }
                gathered.add(page);
            }
        }
        let Some(gathered) = &mut self.gathered else {
            return Step::Changed;
        };
        if gathered.collection.items.len() > policy.max_items {
            return Step::Fault(WalkFault::TooManyItems {
                limit: policy.max_items,
            });
        }
        let Some(cursor) = next else {
            return match self.gathered.take() {
                Some(gathered) => Step::Done(gathered.collection),
                None => Step::Changed,
            };
        };
        if !gathered.cursors.insert(cursor.clone()) {
            return Step::Fault(WalkFault::RepeatedCursor {
                cursor,
                page: gathered.pages,
            });
        }
        if gathered.without_news >= MAX_PAGES_WITHOUT_NEWS {
            return Step::Fault(WalkFault::NothingNew {
                pages: gathered.without_news,
            });
        }
        if gathered.pages >= policy.max_pages {
            return Step::Fault(WalkFault::TooManyPages {
                limit: policy.max_pages,
            });
        }
        Step::More(cursor)
    }
}

impl<I: Listed> Gathered<I> {
    fn add(&mut self, page: Page<I>) {
        if self.keys.is_empty() {
            // The keys of the first page are only needed once there is a second.
            self.keys = self
                .collection
                .items
                .iter()
                .map(|i| i.key().to_owned())
                .collect();
        }
        let mut news = page.items.is_empty() && self.without_news == 0;
        for item in &page.items {
            news |= self.keys.insert(item.key().to_owned());
        }
        self.without_news = if news { 0 } else { self.without_news + 1 };
        self.pages += 1;
        self.collection.hints = self.collection.hints.combine(page.hints);
        self.collection.items.extend(page.items);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use relist_protocol::list::CacheScope;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Named(String);
    impl Listed for Named {
        fn key(&self) -> &str {
            &self.0
        }
    }

    fn page(keys: &[&str], next: Option<&str>) -> Page<Named> {
        Page {
            next: next.map(str::to_owned),
            ..Page::only(keys.iter().map(|k| Named((*k).to_owned())).collect())
        }
    }

    fn tagged(keys: &[&str], next: Option<&str>, tag: &str) -> Page<Named> {
        Page {
            tag: Some(EntityTag::new(tag).expect("a tag")),
            ..page(keys, next)
        }
    }

    const T: Time = Time::from_millis(100);

    #[test]
    fn an_empty_cursor_is_followed() {
        let mut walk = Walk::new();
        let step = walk.take(T, page(&["a"], Some("")), &Policy::default());
        assert_eq!(step, Step::More(String::new()));
        let Step::Done(list) = walk.take(T, page(&["b"], None), &Policy::default()) else {
            panic!("the end");
        };
        assert_eq!(list.items.len(), 2);
    }

    #[test]
    fn a_repeated_cursor_ends_the_walk_on_its_second_appearance() {
        for cursors in [vec!["c", "c"], vec!["", ""], vec!["a", "b", "a"]] {
            let mut walk = Walk::new();
            let mut last = None;
            for (n, cursor) in cursors.iter().enumerate() {
                let key = n.to_string();
                last = Some(walk.take(T, page(&[&key], Some(cursor)), &Policy::default()));
            }
            assert!(
                matches!(
                    last,
                    Some(Step::Fault(WalkFault::RepeatedCursor { page, .. })) if page == cursors.len()
                ),
                "{cursors:?}"
            );
        }
    }

    #[test]
    fn new_cursors_with_old_items_end_the_walk() {
        let mut walk = Walk::new();
        for n in 0..100 {
            let step = walk.take(
                T,
                page(&["a", "b"], Some(&n.to_string())),
                &Policy::default(),
            );
            if let Step::Fault(fault) = step {
                assert_eq!(fault, WalkFault::NothingNew { pages: 8 });
                return;
            }
        }
        panic!("the walk went on");
    }

    #[test]
    fn a_page_with_another_tag_or_none_is_another_version() {
        for other in [tagged(&["b"], None, "B"), page(&["b"], None)] {
            let mut walk = Walk::new();
            walk.take(T, tagged(&["a"], Some("1"), "A"), &Policy::default());
            assert_eq!(walk.take(T, other, &Policy::default()), Step::Changed);
        }
    }

    #[test]
    fn the_lifetime_is_the_shortest_and_counts_from_the_first_page() {
        let hints = |secs, scope| CacheHints {
            stated: true,
            ttl: Duration::from_secs(secs),
            scope,
        };
        let mut walk = Walk::new();
        let first = Page {
            hints: hints(60, CacheScope::Public),
            ..page(&["a"], Some("1"))
        };
        let second = Page {
            hints: hints(10, CacheScope::Private),
            ..page(&["b"], None)
        };
        walk.take(T, first, &Policy::default());
        let later = T + Duration::from_secs(5);
        let Step::Done(list) = walk.take(later, second, &Policy::default()) else {
            panic!("the end");
        };
        assert_eq!(list.hints, hints(10, CacheScope::Private));
        assert_eq!(list.first_page, T);
    }

    #[test]
    fn pages_and_items_are_bounded() {
        let mut policy = Policy::default();
        policy.max_pages = 2;
        policy.max_items = 3;
        let mut walk = Walk::new();
        walk.take(T, page(&["a"], Some("1")), &policy);
        assert_eq!(
            walk.take(T, page(&["b"], Some("2")), &policy),
            Step::Fault(WalkFault::TooManyPages { limit: 2 })
        );
        let mut walk = Walk::new();
        assert_eq!(
            walk.take(T, page(&["a", "b", "c", "d"], None), &policy),
            Step::Fault(WalkFault::TooManyItems { limit: 3 })
        );
    }
}
