//! The demo shop, where it is built in.

use std::sync::Arc;

use super::{StartError, listen::Shop};
use crate::{clock::StoreClock, config::Config, redis::Masters};

/// The shop that this configuration asks for. It counts its stock where the queue is.
#[cfg(feature = "demo-shop")]
pub(super) fn shop(config: &Config, masters: Option<Arc<Masters>>, clock: &StoreClock) -> Result<Shop, StartError> {
    use std::time::Duration;

    use actix_web::web::Data;

    use crate::demo_shop::{Database, EmbeddedStockGate, RedisStockGate, ShopService, StockGate};

    let database = Database::open(config.demo_shop.database.as_deref())?;
    let stock: Arc<dyn StockGate> = match masters {
        Some(masters) => {
            let limit = Duration::from_millis(config.redis.command_timeout_ms);
            Arc::new(RedisStockGate::new(masters, clock.clone(), limit))
        }
        None => Arc::new(EmbeddedStockGate::new(clock.clone())),
    };
    let shop = ShopService::new(database, stock, clock.clone(), config.demo_shop.stock);
    Ok(Shop::Demo(Data::new(shop.ids(config.identity.ids))))
}

/// There is none.
#[cfg(not(feature = "demo-shop"))]
pub(super) fn shop(_: &Config, _: Option<Arc<Masters>>, _: &StoreClock) -> Result<Shop, StartError> {
    Err(StartError::NoDemoShop)
}
