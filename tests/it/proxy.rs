//! Something between a server and its Redis that cuts, delays or swallows what passes.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering},
        mpsc,
    },
    thread::sleep,
    time::{Duration, Instant},
};

use crate::redis_server::RedisServer;

/// A TCP proxy before one Redis, on a port of its own. Everything passes until told otherwise.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    redis: AtomicU16,
    delay_ms: AtomicU64,
    is_cut: AtomicBool,
    is_blocked: AtomicBool,
    is_over: AtomicBool,
    /// Connections made so far, and how many of them lead nowhere any more.
    made: AtomicU64,
    stranded: AtomicU64,
    /// So many of them are slow, by so much.
    slowed: AtomicU64,
    slow_ms: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub(crate) fn before(redis: &RedisServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let shared = Arc::new(Shared {
            redis: AtomicU16::new(redis.port()),
            delay_ms: AtomicU64::new(0),
            is_cut: AtomicBool::new(false),
            is_blocked: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            made: AtomicU64::new(0),
            stranded: AtomicU64::new(0),
            slowed: AtomicU64::new(0),
            slow_ms: AtomicU64::new(0),
            open: Mutex::default(),
        });
        let of_listener = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if of_listener.is_over.load(Ordering::SeqCst) {
                    return;
                }
                // A connection that cannot be made is dropped, and so closed.
                if !of_listener.is_cut.load(Ordering::SeqCst) {
                    let _ = join(&of_listener, client);
                }
            }
        });
        Self { port, shared }
    }

    /// How `redis.url` names it.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends every connection; new ones lead to this Redis.
    pub(crate) fn lead_to(&self, redis: &RedisServer) {
        self.lead_new_ones_to(redis);
        self.shared.end_all();
    }

    /// New connections lead to this Redis; those that there are stay where they are: a name that is another server's now.
    pub(crate) fn lead_new_ones_to(&self, redis: &RedisServer) {
        self.shared.redis.store(redis.port(), Ordering::SeqCst);
    }

    /// From now on every answer comes so much later: a round trip that is this slow.
    pub(crate) fn delay(&self, by: Duration) {
        self.shared.delay_ms.store(by.as_millis() as u64, Ordering::SeqCst);
    }

    /// Ends every connection, and lets none be made.
    pub(crate) fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::SeqCst);
        self.shared.end_all();
    }

    /// Holds back everything, with connections left open: a network that leads nowhere.
    pub(crate) fn block(&self) {
        self.shared.is_blocked.store(true, Ordering::SeqCst);
    }

    /// Forgets the connections there are, without ending them: nothing passes over them any more. New ones work.
    pub(crate) fn strand(&self) {
        self.shared.stranded.store(self.shared.made.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Over the connections that there are, every answer comes so much later. Over new ones it does not.
    pub(crate) fn slow_down_old(&self, by: Duration) {
        self.shared.slow_ms.store(by.as_millis() as u64, Ordering::SeqCst);
        self.shared.slowed.store(self.shared.made.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Takes all that back, but does not find again what is stranded.
    pub(crate) fn heal(&self) {
        self.delay(Duration::ZERO);
        self.shared.is_cut.store(false, Ordering::SeqCst);
        self.shared.is_blocked.store(false, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.shared.is_blocked.store(false, Ordering::SeqCst);
        self.shared.end_all();
        // Wakes the listener, which then sees that it is over.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn end_all(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn join(shared: &Arc<Shared>, client: TcpStream) -> std::io::Result<()> {
    let redis = TcpStream::connect(("127.0.0.1", shared.redis.load(Ordering::SeqCst)))?;
    for stream in [&client, &redis] {
        stream.set_nodelay(true)?;
        shared.open.lock().unwrap().push(stream.try_clone()?);
    }
    let number = shared.made.fetch_add(1, Ordering::SeqCst);
    pass_on(shared, number, client.try_clone()?, redis.try_clone()?, false);
    pass_on(shared, number, redis, client, true);
    Ok(())
}

/// One direction: what is read now is written when its time has come, and does not wait for what was read before it.
fn pass_on(shared: &Arc<Shared>, number: u64, mut from: TcpStream, mut to: TcpStream, is_answer: bool) {
    let (send, receive) = mpsc::channel::<(Instant, Vec<u8>)>();
    let of_reader = shared.clone();
    std::thread::spawn(move || {
        let mut chunk = [0; 16 * 1024];
        while let Ok(read @ 1..) = from.read(&mut chunk) {
            let is_slow = number < of_reader.slowed.load(Ordering::SeqCst);
            let slow_by = if is_slow { &of_reader.slow_ms } else { &of_reader.delay_ms };
            let delay = if is_answer { slow_by.load(Ordering::SeqCst) } else { 0 };
            if send.send((now() + Duration::from_millis(delay), chunk[..read].to_vec())).is_err() {
                return;
            }
        }
    });
    let of_writer = shared.clone();
    std::thread::spawn(move || {
        for (due, bytes) in receive {
            sleep(due.saturating_duration_since(now()));
            while of_writer.is_blocked.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(5));
            }
            if number >= of_writer.stranded.load(Ordering::SeqCst) && to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

#[expect(clippy::disallowed_methods, reason = "a thread of the test's own, on no runtime")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn the_proxy_delays_blocks_strands_and_cuts() {
    let redis = RedisServer::start();
    let proxy = Proxy::before(&redis);
    let client = redis::Client::open(proxy.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let ping = |connection: &mut redis::Connection| {
        let began = now();
        redis::cmd("PING").query::<String>(connection).map(|_| began.elapsed())
    };
    assert!(ping(&mut connection).unwrap() < Duration::from_millis(100));
    proxy.delay(Duration::from_millis(150));
    assert!(ping(&mut connection).unwrap() >= Duration::from_millis(150));
    proxy.heal();
    proxy.block();
    connection.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(ping(&mut connection).unwrap_err().is_timeout());
    proxy.heal();
    proxy.strand();
    let mut stranded = client.get_connection().unwrap();
    assert!(ping(&mut stranded).is_ok(), "a new one");
    proxy.strand();
    stranded.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(ping(&mut stranded).unwrap_err().is_timeout());
    proxy.cut();
    assert!(client.get_connection_with_timeout(Duration::from_secs(1)).is_err());
    proxy.heal();
    assert!(ping(&mut client.get_connection().unwrap()).is_ok());

    let other = RedisServer::start();
    let () = redis::cmd("SET").arg("who").arg("other").query(&mut other.connection()).unwrap();
    let mut old = client.get_connection().unwrap();
    proxy.lead_new_ones_to(&other);
    let who = |connection: &mut redis::Connection| redis::cmd("GET").arg("who").query::<Option<String>>(connection);
    assert_eq!(who(&mut old).unwrap(), None);
    proxy.lead_to(&other);
    assert!(who(&mut old).is_err());
    let who: String = redis::cmd("GET").arg("who").query(&mut client.get_connection().unwrap()).unwrap();
    assert_eq!(who, "other");
}
