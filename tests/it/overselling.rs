//! However many passes there are, and whatever happens to Redis, no more is sold than there is: counted in the shop's own
//! database, which nothing of the queue's writes to.

use std::{collections::HashMap, path::Path, time::Duration};

use futures_util::{StreamExt, stream};
use rusqlite::Connection;
use tokio::time::{Instant, sleep};
use virtual_queue::{
    clock::StoreClock,
    domain::{QueueTarget, QueueTargetType},
    token::{EntryTokenIssuer, Keyring},
};

use crate::{
    invariants,
    redis_server::RedisServer,
    server::{DROP, Reply, SECRET, Server, shop_file},
    store_fixture::{target, user},
};

const BUYERS: u64 = 2_000;
/// Buyers at the counter at a time: below what load shedding allows, so that this is about selling.
const AT_ONCE: usize = 100;
/// Longer than anybody's purchase takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two servers on one Redis, before one shop with a hundred pieces of everything.
struct Sale {
    servers: [Server; 2],
    redis: RedisServer,
    dir: tempfile::TempDir,
}

impl Sale {
    fn open(settings: &[(&str, &str)]) -> Self {
        Self::open_on(RedisServer::start(), settings)
    }

    fn open_on(redis: RedisServer, settings: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = shop_file(dir.path());
        let shop =
            [("VQ_DEMO_SHOP__DATABASE", file.as_str()), ("VQ_DEMO_SHOP__STOCK", "100"), ("VQ_LOG__LEVEL", "info")];
        let settings = [&shop[..], settings].concat();
        Self { servers: [Server::serve(&redis, &settings), Server::serve(&redis, &settings)], redis, dir }
    }

    fn server(&self, buyer: u64) -> &Server {
        &self.servers[buyer as usize % self.servers.len()]
    }

    fn database(&self) -> Connection {
        Connection::open(Path::new(&shop_file(self.dir.path()))).unwrap()
    }

    /// Orders of drop 42, and people who have one.
    fn orders(&self) -> (u32, u32) {
        orders(&self.database())
    }
}

fn orders(database: &Connection) -> (u32, u32) {
    let count = "SELECT COUNT(*), COUNT(DISTINCT user_id) FROM orders WHERE drop_id = 42";
    database.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

/// A pass made by the test, which knows the secret: valid as long as a waiting room's own, and not yet used.
fn pass(target: QueueTarget, holder: u64) -> String {
    let keyring = Keyring::new(&SECRET.into(), &[]).unwrap();
    keyring.mint(target, user(holder), StoreClock::system().now_seconds() + 300).raw().to_owned()
}

/// What a buyer does: tries on while the shop is busy, until there is a piece or an end. Gives whether there is one.
async fn buys(server: &Server, buyer: u64, pass: &str) -> bool {
    let began = Instant::now();
    loop {
        let reply = server.order(42, buyer, Some(pass)).await;
        match (reply.status, reply.code()) {
            (201, _) => return true,
            (409, "SOLD_OUT") => return false,
            (503, _) | (409, "PASS_IN_USE") => assert!(began.elapsed() < PATIENCE, "still {reply:?}"),
            _ => panic!("{buyer} got {reply:?}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Everybody buys with a pass the test has made; those who got a piece.
async fn everybody_buys(sale: &Sale) -> Vec<u64> {
    let outcomes = stream::iter(1..=BUYERS)
        .map(async |buyer| (buyer, buys(sale.server(buyer), buyer, &pass(target(42), buyer)).await))
        .buffer_unordered(AT_ONCE);
    outcomes.filter_map(async |(buyer, bought)| bought.then_some(buyer)).collect().await
}

/// How many of these get something with a pass of their own.
async fn more_buy(sale: &Sale, buyers: std::ops::Range<u64>) -> usize {
    let outcomes = stream::iter(buyers)
        .map(async |buyer| sale.server(buyer).order(42, buyer, Some(&pass(target(42), buyer))).await)
        .buffer_unordered(AT_ONCE);
    outcomes.filter(|reply| std::future::ready(reply.status < 400)).count().await
}

fn assert_a_hundred_sold(sale: &Sale, bought: &[u64]) {
    assert_eq!(sale.orders(), (100, 100), "orders in the database, and people who have one");
    assert_eq!(bought.len(), 100, "people who were told that they have a piece");
}

#[tokio::test]
async fn two_thousand_buyers_with_passes_get_the_hundred_pieces_there_are() {
    let sale = Sale::open(&[]);
    let bought = everybody_buys(&sale).await;
    assert_a_hundred_sold(&sale, &bought);
    assert_eq!(more_buy(&sale, 3_001..3_101).await, 0, "who comes later");
    assert_eq!(sale.orders(), (100, 100));
    invariants::assert_hold(&sale.redis);
}

#[tokio::test]
async fn the_same_while_redis_is_killed_and_comes_back() {
    let redis = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "no"]);
    let mut sale = Sale::open_on(redis, &[("VQ_REDIS__COMMAND_TIMEOUT_MS", "200")]);
    let database = sale.database();
    let sold = || orders(&database).0;
    let Sale { servers, redis, .. } = &mut sale;
    let servers = &*servers;
    let counter = stream::iter(1..=BUYERS)
        .map(async |buyer| (buyer, buys(&servers[buyer as usize % 2], buyer, &pass(target(42), buyer)).await))
        // Fewer at a time: the pieces last until after Redis's return.
        .buffer_unordered(8)
        .filter_map(async |(buyer, bought)| bought.then_some(buyer))
        .collect::<Vec<u64>>();
    let fault = async {
        let reached = async |pieces| {
            while sold() < pieces {
                sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reached(20)).await.expect("pieces are sold");
        redis.kill9();
        let killed_at = sold();
        tokio::time::timeout(PATIENCE, reached(60)).await.expect("and go on being sold while Redis is away");
        redis.restart();
        (killed_at, sold())
    };
    let (bought, (killed_at, back_at)) = tokio::join!(counter, fault);
    println!("Redis was killed when {killed_at} pieces were sold, and was back when {back_at} were");
    assert!(killed_at < 100 && back_at < 100, "in the middle of the sale: {killed_at}, {back_at}");
    assert_a_hundred_sold(&sale, &bought);
    invariants::assert_hold(&sale.redis);
}

/// Lets `batch` more people in than the pumps do, past everything that paces them. Gives how many.
fn let_in_by_hand(redis: &mut redis::Connection, batch: u64) -> u64 {
    let script = "
        local seq = tonumber(redis.call('GET', KEYS[1]) or 0)
        local mark = tonumber(redis.call('GET', KEYS[2]) or 0)
        local more = math.min(tonumber(ARGV[1]), seq - mark)
        if mark > 0 and more > 0 then
          redis.call('INCRBY', KEYS[2], more)
          return more
        end
        return 0";
    let keys = ["queue:{LIMITED_DROP:42}:seq", "queue:{LIMITED_DROP:42}:admitted_count"];
    redis::cmd("EVAL").arg(script).arg(2).arg(&keys[..]).arg(batch).query(redis).unwrap()
}

#[tokio::test]
async fn the_same_with_twice_the_people_let_in() {
    let sale = Sale::open(&[("VQ_QUEUE__TICK_MS", "500"), ("VQ_QUEUE__BATCH_SIZE", "50")]);
    let entries: Vec<(u64, Reply)> = stream::iter(1..=BUYERS)
        .map(async |buyer| (buyer, sale.server(buyer).enter(DROP, buyer).await))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let outcomes = stream::iter(&entries)
        .map(async |(buyer, entry)| {
            let server = sale.server(*buyer);
            // There at once where the machine is so busy that Redis seems to be away.
            let pass = match entry.pass() {
                Some(pass) => pass,
                None => server.await_pass(DROP, *buyer, PATIENCE).await,
            };
            buys(server, *buyer, &pass).await
        })
        .buffer_unordered(AT_ONCE)
        .filter(|bought| std::future::ready(*bought))
        .count();
    let through_before = sale.servers[0].stats(DROP).await["admittedThrough"].as_u64().unwrap();
    let mut connection = sale.redis.connection();
    let by_hand = async {
        let mut let_in = 0;
        let mut idle = 0;
        while idle < 4 {
            let more = let_in_by_hand(&mut connection, 50);
            let_in += more;
            idle = if more == 0 { idle + 1 } else { 0 };
            sleep(Duration::from_millis(500)).await;
        }
        let_in
    };
    let (bought, let_in) = tokio::join!(outcomes, by_hand);
    let rest = BUYERS - through_before;
    println!("of the last {rest} of {BUYERS}, {let_in} were let in by hand, beside the pumps");
    assert!(rest > 0 && let_in * 5 >= rest * 2, "admission was about doubled: {let_in} of {rest}");
    assert_eq!(sale.orders(), (100, 100));
    assert_eq!(bought, 100);
    invariants::assert_hold(&sale.redis);
}

/// Tries some seats until one is free, and buys it. `None`: all were taken.
async fn finds_a_seat(server: &Server, buyer: u64) -> Option<String> {
    let event = QueueTarget::new(QueueTargetType::TicketingEvent, 7).unwrap();
    let pass = pass(event, buyer);
    // Ten buyers begin at each seat, so that all are wanted.
    for step in 0..5 {
        let seat = format!("A{}", (buyer * 7 + step) % 50 + 1);
        let began = Instant::now();
        let reply = loop {
            let reply = server.select(7, buyer, Some(&pass), &[&seat]).await;
            if reply.status != 503 {
                break reply;
            }
            assert!(began.elapsed() < PATIENCE, "still {reply:?}");
            sleep(Duration::from_millis(20)).await;
        };
        match (reply.status, reply.code()) {
            (409, "SEAT_TAKEN") => {}
            (200, _) => return Some(pays(server, buyer, seat).await),
            _ => panic!("{buyer} got {reply:?}"),
        }
    }
    None
}

async fn pays(server: &Server, buyer: u64, seat: String) -> String {
    let began = Instant::now();
    loop {
        let reply: Reply = server.buy_tickets(7, buyer, &[&seat]).await;
        match reply.status {
            201 => return seat,
            503 => assert!(began.elapsed() < PATIENCE, "still {reply:?}"),
            _ => panic!("{buyer} has locked {seat} and got {reply:?}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn five_hundred_buyers_on_fifty_seats_share_none_and_leave_none() {
    let sale = Sale::open(&[]);
    let found: Vec<Option<String>> = stream::iter(1..=500)
        .map(async |buyer| finds_a_seat(sale.server(buyer), buyer).await)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let mut owners: HashMap<String, u32> = HashMap::new();
    for seat in found.into_iter().flatten() {
        *owners.entry(seat).or_default() += 1;
    }
    assert!(owners.values().all(|owners| *owners == 1), "{owners:?}");
    assert_eq!(owners.len(), 50);
    let count = "SELECT COUNT(*), COUNT(DISTINCT seat_id), COUNT(DISTINCT user_id) FROM seats
                 WHERE event_id = 7 AND ticket_id IS NOT NULL";
    let sold: (u32, u32, u32) =
        sale.database().query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    assert_eq!(sold, (50, 50, 50), "tickets, seats, people in the database");
    invariants::assert_hold(&sale.redis);
}
