//! Several real Redis servers that belong together: a master, its replica and three Sentinels; or a Cluster.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use redis::{Connection, FromRedisValue};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::{
    redis_process::free_port,
    redis_server::{Authority, RedisServer, connect},
};

/// What the Sentinels call the master.
pub(crate) const MASTER_NAME: &str = "the-queue";
/// Of the Sentinels that want a password: that of their own, and that of a user who may ask where the master is.
pub(crate) const SENTINEL_PASSWORDS: [&str; 2] = ["hunter2-of-the-sentinels", "hunter2-of-those-who-ask"];

/// What a user of the Sentinels must be allowed to do.
pub(crate) const SENTINEL_RIGHTS: &str = "+sentinel|get-master-addr-by-name";

/// Runs one command.
pub(crate) fn ask<T: FromRedisValue>(connection: &mut Connection, words: &[&str]) -> T {
    redis::cmd(words[0]).arg(&words[1..]).query(connection).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// Waits, at most 20 s.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A field of INFO; nothing where the server does not tell: one that changes its role cuts all connections.
pub(crate) fn info(server: &RedisServer, field: &str) -> String {
    let all: String = server
        .try_connection()
        .and_then(|mut connection| redis::cmd("INFO").query(&mut connection))
        .unwrap_or_default();
    all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap_or_default().to_owned()
}

/// A master, its replica, and three Sentinels that take it for down after a second.
pub(crate) struct Watched {
    /// In the beginning the first is the master.
    pub(crate) servers: [RedisServer; 2],
    sentinels: Vec<Sentinel>,
}

struct Sentinel {
    port: u16,
    /// Where it speaks TLS, and wants a password.
    tls: Option<[PathBuf; 3]>,
    child: Child,
    _dir: TempDir,
}

impl Watched {
    pub(crate) fn start() -> Self {
        let master = RedisServer::start_here(&[], &[]);
        let of = master.port().to_string();
        let replica = RedisServer::start_here(&["--replicaof", "127.0.0.1", &of], &[]);
        Self::watch(master, replica, None)
    }

    /// All with TLS alone and a certificate on both sides, servers with these arguments, Sentinels with passwords.
    pub(crate) fn start_secured(authority: &Authority, arguments: &[&str]) -> Self {
        let arguments = [arguments, &["--tls-replication", "yes"]].concat();
        let master = RedisServer::start_with_tls(authority, &arguments);
        let of = master.port().to_string();
        let replica =
            RedisServer::start_with_tls(authority, &[&arguments[..], &["--replicaof", "127.0.0.1", &of]].concat());
        Self::watch(master, replica, Some(authority.server_files()))
    }

    fn watch(master: RedisServer, replica: RedisServer, tls: Option<[PathBuf; 3]>) -> Self {
        until("the replica follows", || info(&replica, "master_link_status") == "up");
        let sentinels: Vec<Sentinel> = (0..3).map(|_| Sentinel::watch(master.port(), tls.clone())).collect();
        let watched = Self { servers: [master, replica], sentinels };
        until("the sentinels know each other and the replica", || {
            watched.sentinels.iter().all(|sentinel| {
                let told: Vec<String> = ask(&mut sentinel.connection(), &["SENTINEL", "MASTER", MASTER_NAME]);
                let field = |name: &str| told.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone());
                (field("num-slaves"), field("num-other-sentinels")) == (Some("1".into()), Some("2".into()))
            })
        });
        watched
    }

    /// The settings of a server that asks them.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        let nodes = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect::<Vec<_>>();
        vec![
            ("VQ_REDIS__MODE", "sentinel".to_owned()),
            ("VQ_REDIS__NODES", nodes.join(",")),
            ("VQ_REDIS__SENTINEL_MASTER", MASTER_NAME.to_owned()),
        ]
    }

    /// Makes the other one the master, while the one there is lives on.
    pub(crate) fn fail_over(&self) {
        let () = ask(&mut self.sentinels[0].connection(), &["SENTINEL", "FAILOVER", MASTER_NAME]);
    }

    /// Kills a Sentinel.
    pub(crate) fn kill_sentinel(&mut self, which: usize) {
        self.sentinels[which].kill();
    }
}

impl Sentinel {
    fn watch(master: u16, tls: Option<[PathBuf; 3]>) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let conf = dir.path().join("sentinel.conf");
        let port = free_port();
        let own = match &tls {
            None => format!("port {port}\n"),
            Some([ca, cert, key]) => {
                let [among_them, of_those_who_ask] = SENTINEL_PASSWORDS;
                format!(
                    "port 0\ntls-port {port}\ntls-replication yes\n\
                     tls-ca-cert-file {}\ntls-cert-file {}\ntls-key-file {}\n\
                     requirepass {among_them}\nsentinel sentinel-pass {among_them}\n\
                     user virtual-queue on >{of_those_who_ask} {SENTINEL_RIGHTS}\n",
                    ca.display(),
                    cert.display(),
                    key.display()
                )
            }
        };
        let text = format!(
            "{own}bind 127.0.0.1\ndir {}\n\
             sentinel monitor {MASTER_NAME} 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds {MASTER_NAME} 1000\n\
             sentinel failover-timeout {MASTER_NAME} 4000\n",
            dir.path().display()
        );
        std::fs::write(&conf, text).expect("its configuration");
        let child = Command::new("redis-server")
            .arg(&conf)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("install redis-server (Debian: apt-get install redis-server)");
        let mut sentinel = Self { port, tls, child, _dir: dir };
        while sentinel.try_connection().is_none() {
            if sentinel.child.try_wait().expect("a child").is_some() {
                // Somebody else has taken the port.
                return Self::watch(master, sentinel.tls.take());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        sentinel
    }

    fn try_connection(&self) -> Option<Connection> {
        let scheme =
            if self.tls.is_some() { format!("rediss://:{}@", SENTINEL_PASSWORDS[0]) } else { "redis://".into() };
        connect(&format!("{scheme}127.0.0.1:{}", self.port), self.tls.as_ref()).ok()
    }

    fn connection(&self) -> Connection {
        self.try_connection().expect("the sentinel answers")
    }

    fn kill(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A node that knows no others and has no slots, and the port by which nodes talk to it.
pub(crate) fn cluster_node(start: impl Fn(&[&str]) -> RedisServer) -> (RedisServer, u16) {
    let bus = free_port();
    let arguments = [
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        &bus.to_string(),
        "--cluster-node-timeout",
        "1500",
        // One master away is no reason for the others to refuse.
        "--cluster-require-full-coverage",
        "no",
    ];
    (start(&arguments), bus)
}

/// Three masters with a third of the slots each, and a replica of each.
pub(crate) struct Cluster {
    /// Masters in the beginning.
    pub(crate) masters: Vec<RedisServer>,
    /// In the same order.
    pub(crate) replicas: Vec<RedisServer>,
}

/// The slots of the three masters.
pub(crate) const RANGES: [(u16, u16); 3] = [(0, 5460), (5461, 10_922), (10_923, 16_383)];

impl Cluster {
    /// With `replicas` or without.
    pub(crate) fn start(replicas: bool) -> Self {
        Self::start_with(replicas, |arguments| RedisServer::start_here(arguments, &[]))
    }

    /// Without replicas; everything with TLS alone and a certificate on both sides, also what goes between nodes.
    pub(crate) fn start_secured(authority: &Authority) -> Self {
        Self::start_with(false, |arguments| {
            RedisServer::start_with_tls(authority, &[arguments, &["--tls-cluster", "yes"]].concat())
        })
    }

    fn start_with(replicas: bool, start: impl Fn(&[&str]) -> RedisServer) -> Self {
        let node = || cluster_node(&start);
        let masters: Vec<(RedisServer, u16)> = (0..3).map(|_| node()).collect();
        let replicas: Vec<(RedisServer, u16)> = (0..if replicas { 3 } else { 0 }).map(|_| node()).collect();
        for ((master, _), (first, last)) in masters.iter().zip(RANGES) {
            let (first, last) = (first.to_string(), last.to_string());
            let () = ask(&mut master.connection(), &["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
        }
        let all = || masters.iter().chain(&replicas);
        for (at, (one, _)) in all().enumerate() {
            let () = ask(&mut one.connection(), &["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
        }
        for (at, (one, _)) in all().enumerate() {
            let mut connection = one.connection();
            for (other, bus) in all().skip(at + 1) {
                let words = ["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string(), &bus.to_string()];
                let () = ask(&mut connection, &words);
            }
        }
        until("everybody knows everybody", || {
            all().all(|(one, _)| cluster_info(one, "cluster_known_nodes") == all().count().to_string())
        });
        for ((replica, _), (master, _)) in replicas.iter().zip(&masters) {
            let id: String = ask(&mut master.connection(), &["CLUSTER", "MYID"]);
            // Known by its address before it is known by its name.
            until("the replica takes its master", || {
                let words = ["CLUSTER", "REPLICATE", &id];
                redis::cmd(words[0]).arg(&words[1..]).exec(&mut replica.connection()).is_ok()
            });
        }
        until("it is whole", || all().all(|(one, _)| cluster_info(one, "cluster_state") == "ok"));
        until("the replicas follow", || replicas.iter().all(|(one, _)| info(one, "master_link_status") == "up"));
        let servers = |nodes: Vec<(RedisServer, u16)>| nodes.into_iter().map(|(server, _)| server).collect();
        Self { masters: servers(masters), replicas: servers(replicas) }
    }

    /// The settings of a server that uses it; one node is named, the rest is found.
    pub(crate) fn settings(&self, seed: usize) -> Vec<(&'static str, String)> {
        vec![
            ("VQ_REDIS__MODE", "cluster".to_owned()),
            ("VQ_REDIS__NODES", format!("127.0.0.1:{}", self.masters[seed].port())),
        ]
    }

    /// A drop whose keys are at this master: the first one from `from` on.
    pub(crate) fn drop_at(&self, master: usize, from: u64) -> u64 {
        let mut connection = self.masters[0].connection();
        let (first, last) = RANGES[master];
        let mut slot = |drop: u64| -> u16 {
            ask(&mut connection, &["CLUSTER", "KEYSLOT", &format!("queue:{{LIMITED_DROP:{drop}}}:seq")])
        };
        (from..).find(|drop| (first..=last).contains(&slot(*drop))).expect("one of some")
    }
}

/// A field of CLUSTER INFO.
pub(crate) fn cluster_info(server: &RedisServer, field: &str) -> String {
    let all: String = ask(&mut server.connection(), &["CLUSTER", "INFO"]);
    all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap_or_default().to_owned()
}
