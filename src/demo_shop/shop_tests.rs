use std::{path::Path, time::Duration};

use async_trait::async_trait;
use futures_util::future::join_all;

use super::*;
use crate::{
    clock::FakeClock,
    demo_shop::{EmbeddedStockGate, GateAway, RedisStockGate},
    redis::test_server::TestServer,
};

const NOW_S: u64 = 1_790_000_000;

/// For tests that are not about time: a busy machine is no Redis that is away.
const PATIENT: Duration = Duration::from_secs(30);

fn user(id: u64) -> UserId {
    UserId::try_from(id).unwrap()
}

fn seats(ids: &[&str]) -> Vec<SeatId> {
    ids.iter().map(|id| SeatId::parse(id).unwrap()).collect()
}

/// A gate that is never there.
struct Away;

#[async_trait]
impl StockGate for Away {
    async fn reserve(&self, _: u64, _: Option<u64>) -> Result<Reservation, GateAway> {
        Err(GateAway("as told".to_owned()))
    }
    async fn release(&self, _: u64) -> Result<(), GateAway> {
        Err(GateAway("as told".to_owned()))
    }
    async fn lock_seats(&self, _: u64, _: UserId, _: &[SeatId], _: Duration) -> Result<bool, GateAway> {
        Err(GateAway("as told".to_owned()))
    }
    async fn unlock_seats(&self, _: u64, _: UserId, _: &[SeatId]) -> Result<(), GateAway> {
        Err(GateAway("as told".to_owned()))
    }
}

/// A gate that says yes to everything.
struct Yes;

#[async_trait]
impl StockGate for Yes {
    async fn reserve(&self, _: u64, _: Option<u64>) -> Result<Reservation, GateAway> {
        Ok(Reservation::Reserved)
    }
    async fn release(&self, _: u64) -> Result<(), GateAway> {
        Ok(())
    }
    async fn lock_seats(&self, _: u64, _: UserId, _: &[SeatId], _: Duration) -> Result<bool, GateAway> {
        Ok(true)
    }
    async fn unlock_seats(&self, _: u64, _: UserId, _: &[SeatId]) -> Result<(), GateAway> {
        Ok(())
    }
}

fn shop(file: Option<&Path>, gate: Arc<dyn StockGate>, clock: &StoreClock, stock: u64) -> ShopService {
    ShopService::new(Database::open(file).unwrap(), gate, clock.clone(), stock)
}

fn clocks() -> (Arc<FakeClock>, StoreClock) {
    let fake = FakeClock::at(NOW_S * 1000);
    (fake.clone(), StoreClock::new(fake))
}

/// Orders of all the shops at once: how many were sold, the rest sold out.
async fn rush(shops: &[ShopService], drop_id: u64, people: u64) -> usize {
    let orders = (1..=people).map(|id| shops[id as usize % shops.len()].order(drop_id, user(id)));
    let mut order_ids = Vec::new();
    for outcome in join_all(orders).await {
        match outcome {
            Ok(order_id) => order_ids.push(order_id),
            Err(ShopError::SoldOut) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let sold = order_ids.len();
    order_ids.sort_unstable();
    order_ids.dedup();
    assert_eq!(order_ids.len(), sold, "every order has an id of its own");
    sold
}

#[actix_web::test]
async fn exactly_the_stock_is_sold_with_the_gate_in_memory_without_a_gate_and_with_one_that_lies() {
    let (_, clock) = clocks();
    let gates: [Arc<dyn StockGate>; 3] =
        [Arc::new(EmbeddedStockGate::new(clock.clone())), Arc::new(Away), Arc::new(Yes)];
    for gate in gates {
        let shops = [shop(None, gate, &clock, 30)];
        assert_eq!(rush(&shops, 42, 100).await, 30);
        assert_eq!(shops[0].sold(42).await.unwrap(), 30);
        assert_eq!((rush(&shops, 42, 5).await, rush(&shops, 43, 5).await), (0, 5), "and another drop has its own");
    }
}

#[actix_web::test]
async fn replicas_on_one_file_sell_exactly_the_stock_even_without_a_gate() {
    let (_, clock) = clocks();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shop.db");
    let shops: Vec<_> = (0..3).map(|_| shop(Some(&file), Arc::new(Away), &clock, 50)).collect();
    assert_eq!(rush(&shops, 42, 150).await, 50);
    for shop in &shops {
        assert_eq!(shop.sold(42).await.unwrap(), 50);
    }
}

#[actix_web::test]
async fn replicas_with_redis_sell_exactly_the_stock() {
    let redis = TestServer::start();
    let (_, clock) = clocks();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shop.db");
    let mut shops = Vec::new();
    for _ in 0..2 {
        let gate = Arc::new(RedisStockGate::new(redis.masters().await, clock.clone(), PATIENT));
        shops.push(shop(Some(&file), gate, &clock, 50));
    }
    assert_eq!(rush(&shops, 42, 120).await, 50);
    assert_eq!(redis.command::<u64>(&["GET", "shop:{drop:42}:stock"]).await, 0);
    let lifetime: i64 = redis.command(&["PTTL", "shop:{drop:42}:stock"]).await;
    assert!((1..=60_000).contains(&lifetime), "a piece lost in a crash comes back: {lifetime}");
}

#[actix_web::test]
async fn without_redis_the_database_sells_on_within_a_short_time() {
    let mut redis = TestServer::start();
    let (fake, clock) = clocks();
    let gate = Arc::new(RedisStockGate::new(redis.masters().await, clock.clone(), Duration::from_millis(200)));
    let shops = [shop(None, gate.clone(), &clock, 30)];
    assert_eq!(rush(&shops, 42, 10).await, 10);

    redis.freeze();
    let watch = StoreClock::system();
    assert!(shops[0].order(42, user(1)).await.is_ok());
    assert!(watch.monotonic() < Duration::from_secs(1), "a frozen Redis holds nobody up for long");
    assert_eq!(
        gate.reserve(42, None).await,
        Err(GateAway("it was a moment ago".to_owned())),
        "and the next not at all"
    );
    assert!(shops[0].order(42, user(1)).await.is_ok());
    redis.thaw();

    redis.kill();
    fake.advance(Duration::from_secs(2));
    assert!(shops[0].select_seats(7, user(1), seats(&["A1"])).await.is_ok(), "killed");
    assert_eq!(rush(&shops, 42, 30).await, 18, "to the last piece");

    redis.restart();
    fake.advance(Duration::from_secs(2));
    assert!(matches!(shops[0].order(42, user(1)).await, Err(ShopError::SoldOut)), "empty, it knows no better");
    assert!(matches!(shops[0].select_seats(7, user(2), seats(&["A1"])).await, Err(ShopError::SeatTaken)));
    assert_eq!(shops[0].sold(42).await.unwrap(), 30);
}

#[actix_web::test]
async fn once_the_gate_has_nothing_left_the_database_is_spared() {
    let redis = TestServer::start();
    let (_, clock) = clocks();
    let gates: [Arc<dyn StockGate>; 2] = [
        Arc::new(EmbeddedStockGate::new(clock.clone())),
        Arc::new(RedisStockGate::new(redis.masters().await, clock.clone(), PATIENT)),
    ];
    for gate in gates {
        assert_eq!(gate.reserve(42, Some(0)).await, Ok(Reservation::SoldOut));
        let shop = shop(None, gate, &clock, 30);
        assert!(matches!(shop.order(42, user(1)).await, Err(ShopError::SoldOut)));
    }
}

#[actix_web::test]
async fn the_gates_lock_seats_all_or_none() {
    let redis = TestServer::start();
    let (_, clock) = clocks();
    let gates: [Arc<dyn StockGate>; 2] = [
        Arc::new(EmbeddedStockGate::new(clock.clone())),
        Arc::new(RedisStockGate::new(redis.masters().await, clock.clone(), PATIENT)),
    ];
    for gate in gates {
        let lock = async |id, wanted: &[&str]| gate.lock_seats(7, user(id), &seats(wanted), SEAT_LOCK).await;
        assert_eq!(lock(1, &["A1", "A2"]).await, Ok(true));
        assert_eq!(lock(2, &["A3", "A2"]).await, Ok(false));
        assert_eq!(lock(3, &["A3"]).await, Ok(true));
        assert_eq!(gate.unlock_seats(7, user(3), &seats(&["A1", "A3"])).await, Ok(()));
        assert_eq!((lock(2, &["A1"]).await, lock(2, &["A3"]).await), (Ok(false), Ok(true)), "only one's own are freed");
        assert_eq!(lock(1, &["A1", "A4"]).await, Ok(true), "one's own again, and more");
    }
}

#[actix_web::test]
async fn seats_are_locked_for_one_person_all_or_none() {
    let redis = TestServer::start();
    let (_, clock) = clocks();
    let gates: [Arc<dyn StockGate>; 4] = [
        Arc::new(EmbeddedStockGate::new(clock.clone())),
        Arc::new(RedisStockGate::new(redis.masters().await, clock.clone(), PATIENT)),
        Arc::new(Away),
        Arc::new(Yes),
    ];
    for gate in gates {
        let shop = shop(None, gate, &clock, 0);
        assert_eq!(shop.select_seats(7, user(1), seats(&["A1", "A2"])).await.unwrap(), NOW_S + 300);
        assert!(matches!(shop.select_seats(7, user(2), seats(&["A3", "A2"])).await, Err(ShopError::SeatTaken)));
        assert!(shop.select_seats(7, user(3), seats(&["A3"])).await.is_ok(), "what was refused in part is not locked");
        assert!(shop.select_seats(7, user(1), seats(&["A1"])).await.is_ok(), "one's own can be selected again");
        assert!(shop.select_seats(8, user(2), seats(&["A1"])).await.is_ok(), "another event has its own seats");
    }
}

#[actix_web::test]
async fn of_many_who_want_one_seat_one_gets_it() {
    let (_, clock) = clocks();
    let gates: [Arc<dyn StockGate>; 2] = [Arc::new(EmbeddedStockGate::new(clock.clone())), Arc::new(Yes)];
    for gate in gates {
        let shop = shop(None, gate, &clock, 0);
        let calls = (1..=50).map(|id| shop.select_seats(7, user(id), seats(&["A1"])));
        assert_eq!(join_all(calls).await.into_iter().filter(Result::is_ok).count(), 1);
    }
}

#[actix_web::test]
async fn a_lock_is_the_right_to_tickets_until_it_ends() {
    let (fake, clock) = clocks();
    let shop = shop(None, Arc::new(EmbeddedStockGate::new(clock.clone())), &clock, 0);
    assert!(matches!(shop.buy_tickets(7, user(1), seats(&["A1"])).await, Err(ShopError::SeatNotLocked)));
    shop.select_seats(7, user(1), seats(&["A1", "A2"])).await.unwrap();
    shop.select_seats(7, user(2), seats(&["B1"])).await.unwrap();
    assert!(matches!(shop.buy_tickets(7, user(2), seats(&["B1", "A1"])).await, Err(ShopError::SeatNotLocked)));
    assert_eq!(shop.tickets_sold(7).await.unwrap(), 0, "all or none");

    fake.advance(Duration::from_secs(299));
    let tickets = shop.buy_tickets(7, user(1), seats(&["A1"])).await.unwrap();
    assert_eq!(shop.buy_tickets(7, user(1), seats(&["A1"])).await.unwrap(), tickets, "repeating changes nothing");
    fake.advance(Duration::from_secs(1));
    assert!(matches!(shop.buy_tickets(7, user(1), seats(&["A2"])).await, Err(ShopError::SeatNotLocked)), "too late");
    assert_eq!(shop.buy_tickets(7, user(1), seats(&["A1"])).await.unwrap(), tickets, "and what is bought is bought");

    assert!(shop.select_seats(7, user(2), seats(&["A2"])).await.is_ok(), "a lock that ended frees the seat");
    for buyer in [1, 2] {
        let again = shop.select_seats(7, user(buyer), seats(&["A1"])).await;
        assert!(matches!(again, Err(ShopError::SeatTaken)), "a sold seat is taken for good");
    }
    assert!(shop.select_seats(7, user(3), seats(&["A1"])).await.is_err());
    assert_eq!(shop.tickets_sold(7).await.unwrap(), 1);
}

#[actix_web::test]
async fn a_refusal_by_the_database_leaves_nothing_locked_at_the_gate() {
    let redis = TestServer::start();
    let (_, clock) = clocks();
    let shop = shop(None, Arc::new(RedisStockGate::new(redis.masters().await, clock.clone(), PATIENT)), &clock, 0);
    shop.select_seats(7, user(1), seats(&["A1"])).await.unwrap();
    assert_eq!(redis.command::<String>(&["GET", "shop:{event:7}:seat:A1"]).await, "1");
    let lifetime: i64 = redis.command(&["PTTL", "shop:{event:7}:seat:A1"]).await;
    assert!((290_000..=300_000).contains(&lifetime), "{lifetime}");
    let _: () = redis.command(&["FLUSHALL"]).await;
    assert!(shop.select_seats(7, user(2), seats(&["A1"])).await.is_err());
    assert_eq!(redis.command::<Vec<String>>(&["KEYS", "shop:*"]).await, [""; 0]);
    assert!(shop.select_seats(7, user(1), seats(&["A1"])).await.is_ok(), "else its holder would be locked out");
}

#[actix_web::test]
async fn a_piece_reserved_for_a_sale_that_failed_is_free_again() {
    let redis = TestServer::start();
    let (_, clock) = clocks();
    let gate = RedisStockGate::new(redis.masters().await, clock.clone(), PATIENT);
    assert_eq!(gate.release(42).await, Ok(()), "of an unknown drop nothing comes back");
    assert_eq!(gate.reserve(42, None).await, Ok(Reservation::Unknown));
    assert_eq!(redis.command::<Vec<String>>(&["KEYS", "shop:*"]).await, [""; 0]);
    assert_eq!(gate.reserve(42, Some(1)).await, Ok(Reservation::Reserved));
    assert_eq!(gate.reserve(42, Some(9)).await, Ok(Reservation::SoldOut), "what is known is not overwritten");
    assert_eq!(gate.release(42).await, Ok(()));
    assert_eq!(gate.reserve(42, None).await, Ok(Reservation::Reserved));
    assert_eq!(gate.reserve(43, Some(0)).await, Ok(Reservation::SoldOut));
}

#[actix_web::test]
async fn replicas_that_start_together_open_a_new_file_together() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shop.db");
    let openers: Vec<_> = (0..8)
        .map(|_| {
            let file = file.clone();
            std::thread::spawn(move || Database::open(Some(&file)).map(drop).map_err(|error| error.to_string()))
        })
        .collect();
    for opener in openers {
        assert_eq!(opener.join().unwrap(), Ok(()));
    }
}
