//! What was found out about servers: the era, remembered per server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use relist_protocol::ProtocolVersion;

use crate::config::Target;

/// The most servers that are remembered.
const MOST: usize = 1024;

/// Remembers in which era each server speaks, so that it is asked once. Cheap
/// to clone: clones share what they remember.
///
/// A verdict that turns out wrong is dropped, and the server asked again.
#[derive(Debug, Clone, Default)]
pub struct EraCache(Arc<Mutex<HashMap<String, ProtocolVersion>>>);

impl EraCache {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The version that was last agreed upon with a server.
    #[must_use]
    pub fn get(&self, target: &Target) -> Option<ProtocolVersion> {
        self.lock().get(&target.key()).copied()
    }

    /// Remembers a verdict, for example one kept from an earlier run.
    pub fn set(&self, target: &Target, version: ProtocolVersion) {
        let mut verdicts = self.lock();
        if verdicts.len() >= MOST && !verdicts.contains_key(&target.key()) {
            // Any one will do: a forgotten server is merely asked again.
            if let Some(key) = verdicts.keys().next().cloned() {
                verdicts.remove(&key);
            }
        }
        verdicts.insert(target.key(), version);
    }

    /// Forgets a server.
    pub fn forget(&self, target: &Target) {
        self.lock().remove(&target.key());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, ProtocolVersion>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
