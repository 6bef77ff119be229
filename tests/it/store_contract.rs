//! How a queue store behaves: one list of behaviours that every store is held to (`docs/design.md`; TDD: 상태 전이 표).

mod adoption;
mod numbers;
mod pace;
mod passes;
mod silence;
mod targets;

/// Runs every behaviour named, each against every store.
macro_rules! behaviours {
    ($($name:ident,)+) => {
        mod embedded {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::store_fixture::StoreFixture::embedded(crate::store_fixture::default_rules()).await).await;
            })+
        }

        mod redis {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::store_fixture::StoreFixture::redis(crate::store_fixture::default_rules()).await).await;
            })+
        }
    };
}
use behaviours;
