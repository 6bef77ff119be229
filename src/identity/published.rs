//! Keys that the issuer publishes, and changes when it likes.
//!
//! They are fetched in the background, and no request waits for it. While they cannot be fetched, those known so far
//! hold.

use std::{
    sync::{Mutex, PoisonError, RwLock},
    time::Duration,
};

use jsonwebtoken::Algorithm;
use tokio::sync::Notify;

use super::{
    fetch::Document,
    keys::{Choice, KeySet},
};
use crate::{clock::StoreClock, config::JwtAlgorithm};

/// From one fetch to the next.
const EVERY: Duration = Duration::from_secs(300);

/// From a fetch that failed to the next.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// An unknown key is looked for at most this often: anybody can make up names.
const UNKNOWN_EVERY: Duration = Duration::from_secs(30);

/// The keys behind a URL.
pub(super) struct PublishedKeys {
    url: String,
    algorithms: Vec<JwtAlgorithm>,
    clock: StoreClock,
    known: RwLock<Option<KeySet>>,
    looking: Mutex<Looking>,
    wanted: Notify,
}

struct Looking {
    /// A fetch is under way, or about to be.
    now: bool,
    /// When an unknown key was last looked for, on the monotonic clock.
    asked: Option<Duration>,
}

impl PublishedKeys {
    pub(super) fn new(url: &str, algorithms: &[JwtAlgorithm], clock: StoreClock) -> Self {
        Self {
            url: url.to_owned(),
            algorithms: algorithms.to_vec(),
            clock,
            known: RwLock::new(None),
            looking: Mutex::new(Looking { now: true, asked: None }),
            wanted: Notify::new(),
        }
    }

    /// The key for a token that says this of itself. One that is not known is looked for, which may take a moment.
    pub(super) fn choose(&self, algorithm: Algorithm, id: Option<&str>) -> Choice {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        match known.as_ref().map(|keys| keys.choose(algorithm, id)) {
            Some(Choice::None) if id.is_some() && self.is_looking() => Choice::LookedFor,
            Some(choice) => choice,
            None => Choice::LookedFor,
        }
    }

    /// Whether an unknown key may be found any moment; begins to look if that was not done lately.
    fn is_looking(&self) -> bool {
        let mut looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.monotonic();
        let lately = looking.asked.is_some_and(|asked| now.saturating_sub(asked) < UNKNOWN_EVERY);
        if !looking.now && !lately {
            *looking = Looking { now: true, asked: Some(now) };
            self.wanted.notify_one();
        }
        looking.now
    }

    /// Fetches for ever.
    pub(super) async fn keep(&self) {
        let document = Document::at(&self.url);
        loop {
            let fetched = match &document {
                Ok(document) => document.fetch().await,
                Err(why) => Err(*why),
            };
            let pause = match fetched.and_then(|fetched| KeySet::from_jwks(&fetched, &self.algorithms)) {
                Ok(keys) => {
                    self.found(keys);
                    EVERY
                }
                Err(why) => {
                    tracing::warn!(
                        why,
                        "identity.jwks_url: the keys could not be fetched; the last known keys stay in use"
                    );
                    AFTER_FAILURE
                }
            };
            self.looked();
            // Either wakes it: the time, or somebody with an unknown key.
            let _ = tokio::time::timeout(pause, self.wanted.notified()).await;
            self.looking.lock().unwrap_or_else(PoisonError::into_inner).now = true;
        }
    }

    pub(super) fn found(&self, keys: KeySet) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        keys.log_passed_over("identity.jwks_url", known.as_ref());
        *known = Some(keys);
    }

    /// A look is over, whatever came of it.
    pub(super) fn looked(&self) {
        self.looking.lock().unwrap_or_else(PoisonError::into_inner).now = false;
    }
}
