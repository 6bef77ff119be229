//! What must hold in Redis after every test: DESIGN section 3, read off the keys themselves.

use std::{
    collections::{BTreeMap, HashMap},
    io::{BufRead, BufReader, Write},
    net::{Shutdown, TcpStream},
    thread::JoinHandle,
};

use redis::Connection;

use crate::{redis_server::RedisServer, server::assert_tells_no_secret};

/// Reads every target's keys and asserts what must hold.
pub(crate) fn assert_hold(redis: &RedisServer) {
    let mut connection = redis.connection();
    let keys: Vec<String> = run(&mut connection, &["KEYS", "*"]);
    let mut targets: Vec<&str> = keys.iter().filter_map(|key| key.strip_prefix("queue:{")?.split('}').next()).collect();
    targets.sort_unstable();
    targets.dedup();
    for target in targets {
        assert_target(&mut connection, target);
    }
    for key in &keys {
        assert_tells_no_secret(key, &dump(&mut connection, key));
    }
}

/// A sorted set.
type Scores = BTreeMap<String, u64>;

fn assert_target(connection: &mut Connection, target: &str) {
    let key = |name: &str| format!("queue:{{{target}}}:{name}");
    let exists: u8 = run(connection, &["EXISTS", &key("seq")]);
    if exists == 0 {
        return;
    }
    // One moment: the pumps may be running.
    let (seq, mark, waiting, heartbeat, passes, stats): (u64, u64, Scores, Scores, Scores, HashMap<String, String>) =
        redis::pipe()
            .atomic()
            .cmd("GET")
            .arg(key("seq"))
            .cmd("GET")
            .arg(key("admitted_count"))
            .cmd("ZRANGE")
            .arg(key("waiting"))
            .arg(&["0", "-1", "WITHSCORES"])
            .cmd("ZRANGE")
            .arg(key("heartbeat"))
            .arg(&["0", "-1", "WITHSCORES"])
            .cmd("ZRANGE")
            .arg(key("passes"))
            .arg(&["0", "-1", "WITHSCORES"])
            .cmd("HGETALL")
            .arg(key("stats"))
            .query(connection)
            .expect("the keys have their kinds");
    let count = |name: &str| stats.get(name).map_or(0, |text| text.parse::<i64>().expect("a number"));
    let size = |members: usize| i64::try_from(members).expect("a size");

    assert!(mark <= seq, "{target}: the mark {mark} is beyond the last number {seq}");
    assert!(waiting.keys().eq(heartbeat.keys()), "{target}: who waits and who has a heartbeat differ");
    assert!(waiting.keys().all(|user| !passes.contains_key(user)), "{target}: somebody waits and has a pass");
    let mut numbers: Vec<u64> = waiting.values().copied().collect();
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{target}: a number given twice");
    assert!(numbers.last().is_none_or(|last| *last <= seq), "{target}: a number beyond the last");
    assert_eq!(
        count("entered"),
        size(waiting.len()) + count("issued") + count("left") + count("evicted"),
        "{target}: entered = waiting + issued + left + evicted; {stats:?}"
    );
    assert_eq!(
        count("issued"),
        size(passes.len()) + count("consumed") + count("expired") + count("revoked"),
        "{target}: issued = live + consumed + expired + revoked; {stats:?}"
    );
    assert!(count("admitted") <= i64::try_from(mark).expect("a mark"), "{target}: more people than numbers");
    for name in ["waiting", "heartbeat", "admitted_count", "seq", "passes", "floors", "claims", "marks", "stats"] {
        let ttl: i64 = run(connection, &["PTTL", &key(name)]);
        assert_ne!(ttl, -1, "{target}: {name} would stay for ever");
    }
}

fn dump(connection: &mut Connection, key: &str) -> String {
    let kind: String = run(connection, &["TYPE", key]);
    let words: &[&str] = match kind.as_str() {
        "string" => &["GET", key],
        "hash" => &["HGETALL", key],
        "set" => &["SMEMBERS", key],
        "zset" => &["ZRANGE", key, "0", "-1"],
        "stream" => &["XRANGE", key, "-", "+"],
        "list" => &["LRANGE", key, "0", "-1"],
        _ => return String::new(),
    };
    let value: redis::Value = run(connection, words);
    format!("{key} {value:?}")
}

fn run<T: redis::FromRedisValue>(connection: &mut Connection, words: &[&str]) -> T {
    redis::cmd(words[0]).arg(&words[1..]).query(connection).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// The moves of the marks, as Redis itself saw them: (its ms when the mark moved, people), by target.
pub(crate) struct Moves {
    stream: TcpStream,
    reader: JoinHandle<HashMap<String, Vec<(u64, u64)>>>,
}

impl Moves {
    /// Watches from now on, by what `admit.lua` writes into `recent`.
    pub(crate) fn watch(redis: &RedisServer) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", redis.port())).expect("a connection");
        stream.write_all(b"MONITOR\r\n").expect("asked");
        let mut lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
        assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("+OK"));
        let reader = std::thread::spawn(move || {
            let mut moves: HashMap<String, Vec<(u64, u64)>> = HashMap::new();
            for line in lines.map_while(Result::ok) {
                // … [0 lua] "HSET" "queue:{LIMITED_DROP:42}:stats" "recent" "1790000000000:100 1790000002000:100"
                let Some((before, recent)) = line.split_once(r#"" "recent" ""#) else { continue };
                let (Some(target), true) = (before.split(['{', '}']).nth(1), line.contains(r#""HSET""#)) else {
                    continue;
                };
                let last = recent.trim_end_matches('"').rsplit(' ').next().and_then(|last| last.split_once(':'));
                let (at, people) = last.expect("ms:people");
                let one = (at.parse().expect("ms"), people.parse().expect("people"));
                moves.entry(target.to_owned()).or_default().push(one);
            }
            moves
        });
        Self { stream, reader }
    }

    /// Ends the watch: the moves of one target.
    pub(crate) fn of(self, target: &str) -> Vec<(u64, u64)> {
        self.stream.shutdown(Shutdown::Both).expect("it was open");
        self.reader.join().expect("it reads to the end").remove(target).unwrap_or_default()
    }
}

/// Panics if some half-open window of a tick saw more than one batch of people (`docs/design.md`).
pub(crate) fn assert_never_more_than(moves: &[(u64, u64)], batch: u64, tick_ms: u64) {
    for (i, (start, _)) in moves.iter().enumerate() {
        let people: u64 = moves[i..].iter().take_while(|(at, _)| *at < start + tick_ms).map(|(_, people)| people).sum();
        assert!(people <= batch, "{people} people in the {tick_ms} ms from {start}: {moves:?}");
    }
}
