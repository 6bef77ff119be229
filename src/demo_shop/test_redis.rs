//! A real Redis for one test, on a socket of its own: no port to be taken by another test.

use std::process::{Child, Command, Stdio};

use bb8_redis::{RedisConnectionManager, bb8::Pool};
use tempfile::TempDir;

pub(super) struct TestRedis {
    server: Child,
    dir: TempDir,
}

impl TestRedis {
    pub(super) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let redis = Self { server: Self::run(&dir), dir };
        redis.until_ready().await;
        redis
    }

    fn run(dir: &TempDir) -> Child {
        Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(dir.path().join("redis.sock"))
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("these tests need redis-server: install it (Debian: apt-get install redis-server)")
    }

    async fn until_ready(&self) {
        let client = redis::Client::open(self.url()).unwrap();
        for _ in 0..1000 {
            if let Ok(mut connection) = client.get_multiplexed_async_connection().await
                && redis::cmd("PING").query_async::<String>(&mut connection).await.is_ok()
            {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("redis-server did not start");
    }

    fn url(&self) -> String {
        format!("redis+unix://{}", self.dir.path().join("redis.sock").display())
    }

    pub(super) async fn pool(&self) -> Pool<RedisConnectionManager> {
        Pool::builder().max_size(4).build(RedisConnectionManager::new(self.url()).unwrap()).await.unwrap()
    }

    pub(super) async fn query<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        let mut connection = redis::Client::open(self.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
        let mut cmd = redis::cmd(command[0]);
        for arg in &command[1..] {
            cmd.arg(*arg);
        }
        cmd.query_async(&mut connection).await.unwrap()
    }

    pub(super) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.server.id().to_string()]).status().unwrap();
        assert!(sent.success(), "kill {signal}");
    }

    /// Killed, and a new and empty one in its place.
    pub(super) async fn restart_empty(&mut self) {
        self.kill();
        self.server = Self::run(&self.dir);
        self.until_ready().await;
    }

    pub(super) fn kill(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

impl Drop for TestRedis {
    fn drop(&mut self) {
        // It may have been killed by the test already.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
