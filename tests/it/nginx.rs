//! Forward auth with a real nginx, set up as `docs/integrations/nginx.md` says, before a small shop.

mod away;
mod buying;
mod connections;
mod ingress;
mod tokens;

use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    forward_shop::Shop,
    server::Server,
    wire::{self, Answer},
};

const PAGE: &str = include_str!("../../docs/integrations/nginx.md");
const FAST: &[(&str, &str)] = &[("VQ_QUEUE__TICK_MS", "500"), ("VQ_REDIS__COMMAND_TIMEOUT_MS", "1000")];
const ORDERS: &str = "/limited-drops/42/orders";

/// The page's blocks of nginx configuration: the whole, and the map for shops that stay open.
fn blocks() -> Vec<&'static str> {
    let after_fences = PAGE.split("```nginx\n").skip(1);
    after_fences.map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Replaces what must be there exactly once.
pub(crate) fn replaced(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from:?} in the page");
    text.replace(from, to)
}

pub(crate) fn closed() -> String {
    blocks()[0].to_owned()
}

fn open() -> String {
    let whole = closed();
    let begins = "map $vq_status $vq_unanswered {\n";
    let (before, rest) = whole.split_once(begins).expect("the map");
    let (_, after) = rest.split_once("\n}\n").expect("its end");
    assert!(blocks()[1].starts_with(begins), "{}", blocks()[1]);
    format!("{before}{}{after}", blocks()[1])
}

/// A running nginx on a socket in a directory of its own.
pub(crate) struct Nginx {
    child: Child,
    socket: PathBuf,
    dir: TempDir,
}

impl Nginx {
    fn start(page: &str, waiting_room: &Server, shop: &Shop) -> Self {
        Self::before(page, &[waiting_room.host_and_port()], shop)
    }

    /// Before these replicas.
    pub(crate) fn before(page: &str, replicas: &[&str], shop: &Shop) -> Self {
        let line = "server 127.0.0.1:8080 fail_timeout=1s;";
        let lines: String = replicas.iter().map(|address| line.replace("127.0.0.1:8080", address)).collect();
        let page = replaced(page, line, &lines);
        let server = "server 127.0.0.1:3000;";
        assert_eq!(page.matches(server).count(), 2, "the shop, twice");
        Self::run(&page.replace(server, &format!("server {};", shop.address)))
    }

    /// With this inside `http { … }`; it listens at a socket.
    fn run(http: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("nginx.sock");
        let http = replaced(http, "listen 80;", &format!("listen unix:{};", socket.display()));
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("{what}_temp_path {}/{what};\n", dir.path().display()))
            .concat();
        let text = format!(
            "daemon off; master_process off; error_log stderr; error_log {0}/error.log; pid {0}/pid;\nevents {{ worker_connections 512; }}\n\
             http {{ access_log off;\n{temporary}{http} }}",
            dir.path().display()
        );
        let file = dir.path().join("nginx.conf");
        std::fs::write(&file, text).unwrap();
        let mut child = launch(&file, dir.path());
        while UnixStream::connect(&socket).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "nginx refuses the page's configuration, see above");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, socket, dir }
    }

    /// Sends these bytes on a connection of their own and reads the answer to its end.
    fn send(&self, request: &[u8]) -> Answer {
        Answer::to(self.connect(), request)
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(wire::PATIENCE)).unwrap();
        stream
    }

    /// What it complained about so far.
    pub(crate) fn errors(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("error.log")).unwrap()
    }

    pub(crate) fn request(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.send(&wire::request(method, target, headers, body))
    }

    /// `POST` by this person, with this pass.
    fn buy(&self, target: &str, user: &str, pass: &str) -> Answer {
        self.request("POST", target, &[("X-User-Id", user), ("X-Entry-Token", pass)], "{\"piece\":1}")
    }
}

/// Some put it where only root looks.
fn launch(file: &Path, dir: &Path) -> Child {
    for program in ["nginx", "/usr/sbin/nginx"] {
        let mut command = Command::new(program);
        command.arg("-p").arg(dir).arg("-c").arg(file).stdin(Stdio::null()).stdout(Stdio::null());
        if let Ok(child) = command.spawn() {
            return child;
        }
    }
    panic!("nginx is missing; please install it (on Debian and Ubuntu: apt-get install nginx)");
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A pass for this person.
async fn pass(server: &Server, target: &str, user: u64) -> String {
    server.enter(target, user).await;
    server.await_pass(target, user, Duration::from_secs(10)).await
}

fn denied() -> (u16, String) {
    (403, "QUEUE_BYPASS_DENIED".to_owned())
}
