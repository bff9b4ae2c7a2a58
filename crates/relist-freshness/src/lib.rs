//! Keeping one copy of one catalog right, as a pure state machine.
//!
//! No sockets, no clock, no tasks: events go in together with the time, actions
//! come out. The client drives it with a runtime, a simulator with virtual
//! time, the model checker exhaustively: the same code in all three.
//!
//! | module | what it holds |
//! |---|---|
//! | [`catalog`] | [`catalog::Freshness`]: the machine for one catalog |
//! | [`walk`] | one whole walk over the pages of a list |
//! | [`stream`] | [`stream::StreamKeeper`]: when to open the stream of hints again |
//! | [`policy`] | every bound and delay, with its default and unit |
//! | [`record`] | the trail: one record for each refresh |
//! | [`time`] | time as it is handed in, epochs, and jitter |
//!
//! # The loop of a driver
//!
//! After every input, take actions until there are none, then sleep until
//! [`catalog::Freshness::next_timeout`] or the next input:
//!
//! ```
//! use relist_freshness::catalog::{Action, Freshness, Offer};
//! use relist_freshness::policy::Policy;
//! use relist_freshness::time::{Epoch, Time};
//! use relist_freshness::walk::Page;
//! # #[derive(Clone, Debug, PartialEq)] struct Tool(&'static str);
//! # impl relist_freshness::walk::Listed for Tool { fn key(&self) -> &str { self.0 } }
//!
//! let mut machine = Freshness::new(Policy::default(), 7);
//! let now = Time::from_millis(0);
//! machine.connected(now, Epoch(1), Offer::modern().hints(false));
//! let Some(Action::Fetch(fetch)) = machine.poll_action() else { panic!("a list request") };
//! // … send `tools/list`, read the answer, and hand it in:
//! machine.page(now, fetch.ticket, Page::only(vec![Tool("search")]));
//! let Some(Action::Adopt(adoption)) = machine.poll_action() else { panic!("a snapshot") };
//! assert_eq!(adoption.items.len(), 1);
//! ```

pub mod catalog;
#[cfg(test)]
mod model;
pub mod policy;
pub mod record;
pub mod stream;
pub mod time;
pub mod walk;
