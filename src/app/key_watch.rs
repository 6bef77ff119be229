//! Whether all replicas accept each other's passes: secrets that differ show themselves only when a buyer who was let
//! in by one is refused by another.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

use crate::{
    metrics::Metrics,
    store::{Replica, ReplicaStore},
    token::KeyFingerprints,
};

/// How often replicas tell each other which secrets they have.
const EVERY: Duration = Duration::from_secs(1);

/// What this replica is called in front of the others: host, port, and what no other process shares.
pub(super) fn name(address: SocketAddr) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().replace(char::is_whitespace, "-");
    format!("{host}:{}/{:08x}", address.port(), rand::random::<u32>())
}

/// Compares the secrets of all replicas by their fingerprints, and says when that changes.
pub(super) struct KeyWatch {
    me: Replica,
    metrics: Arc<Metrics>,
    /// Whom this replica disagrees with.
    strangers: BTreeSet<String>,
}

impl KeyWatch {
    pub(super) fn new(name: String, keys: KeyFingerprints, metrics: Arc<Metrics>) -> Self {
        Self { me: Replica { name, keys }, metrics, strangers: BTreeSet::new() }
    }

    /// This replica, as the others see it.
    pub(super) fn me(&self) -> &Replica {
        &self.me
    }

    /// Looks once a second, for ever. While the store is away nothing is known, and nothing changes.
    pub(super) async fn run(mut self, store: Arc<dyn ReplicaStore>) {
        loop {
            match store.announce(&self.me).await {
                Ok(others) => self.compare(&others),
                Err(error) => tracing::debug!(%error, "the other replicas are not known"),
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    fn compare(&mut self, others: &[Replica]) {
        let mut strangers = BTreeSet::new();
        for other in others.iter().filter(|other| !self.me.keys.agrees_with(&other.keys)) {
            if !self.strangers.contains(&other.name) {
                tracing::warn!(
                    me = self.me.name,
                    other = other.name,
                    my_key = %self.me.keys.current,
                    its_key = %other.keys.current,
                    "another replica has another token.secret: one of us refuses the passes that the other gives"
                );
            }
            strangers.insert(other.name.clone());
        }
        if strangers.is_empty() && !self.strangers.is_empty() {
            tracing::info!(me = self.me.name, "all replicas accept each other's passes again");
        }
        self.metrics.token_keys_disagree(!strangers.is_empty());
        self.strangers = strangers;
    }
}
