//! Starting the shops of `tests/shops` and ending them.

use std::{
    io::ErrorKind,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use tempfile::TempDir;

use super::wire::Request;
use crate::{
    redis_process::free_port,
    upstream::{Raw, RawAnswer},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A framework on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framework {
    FlaskOnGunicorn,
    FlaskOnUwsgi,
    DjangoOnGunicorn,
    FastapiOnUvicorn,
    Aiohttp,
    CherryPy,
    Express,
    Hono,
    Php,
    Go,
}

impl Framework {
    pub(super) const ALL: [Self; 10] = [
        Self::FlaskOnGunicorn,
        Self::FlaskOnUwsgi,
        Self::DjangoOnGunicorn,
        Self::FastapiOnUvicorn,
        Self::Aiohttp,
        Self::CherryPy,
        Self::Express,
        Self::Hono,
        Self::Php,
        Self::Go,
    ];

    /// What starts it on this port.
    fn command(self, port: u16) -> Command {
        let (port, address) = (port.to_string(), format!("127.0.0.1:{port}"));
        match self {
            Self::FlaskOnGunicorn => python("gunicorn", &["--threads", "2", "-b", &address, "flask_shop:app"]),
            Self::DjangoOnGunicorn => python("gunicorn", &["--threads", "2", "-b", &address, "django_shop:app"]),
            Self::FlaskOnUwsgi => python(
                "uwsgi",
                &[
                    "--http-socket",
                    &address,
                    "--module",
                    "flask_shop:app",
                    "--pythonpath",
                    ".",
                    "--buffer-size",
                    "65535",
                ],
            ),
            Self::FastapiOnUvicorn => python("uvicorn", &["--port", &port, "--no-access-log", "fastapi_shop:app"]),
            Self::Aiohttp => python("python", &["aiohttp_shop.py", &port]),
            Self::CherryPy => python("python", &["cherrypy_shop.py", &port]),
            Self::Express => node("express.cjs", &port),
            Self::Hono => node("hono.cjs", &port),
            Self::Php => {
                let mut command = Command::new("php");
                command.args(["-n", "-S", &address, "index.php"]).current_dir(shops("php"));
                command
            }
            Self::Go => {
                let mut command = Command::new(go_program());
                command.arg(port).arg(shops("file.txt"));
                command
            }
        }
    }

    /// What it is known to take for an order of drop 42, without us: each was once sold past the gate by a framework
    /// of this kind, or would be if the gate did not know it.
    pub(super) fn honours(self) -> Vec<(&'static str, Request)> {
        let json = |target: &str| Request::new("POST", target).body("application/json", "{}");
        let form = |method: &str| {
            let order = Request::new(method, "/limited-drops/42/orders");
            order.body("application/x-www-form-urlencoded", "a=b&_method=POST")
        };
        let asking = |line: &str, method: &str| {
            Request::new(line, "/limited-drops/42/orders").with("X-HTTP-Method-Override", method)
        };
        let script_name = || ("SCRIPT_NAME", json("/x/limited-drops/42/orders").with_first("SCRIPT_NAME", "/x"));
        let in_header = ("a method in a header", asking("PUT", "POST"));
        let in_form = ("a method in a form", form("PUT"));
        let of_unicode = ("a method that Unicode folds", asking("GET", "po\u{17f}t"));
        let mut all = vec![("an order", json("/limited-drops/42/orders"))];
        all.extend(match self {
            Self::FlaskOnGunicorn => vec![script_name(), in_header, in_form],
            Self::FlaskOnUwsgi => vec![("a lone %", json("/limited-drops/42/orders%")), in_header, in_form],
            Self::DjangoOnGunicorn => vec![script_name(), in_header],
            Self::Aiohttp | Self::FastapiOnUvicorn => vec![in_header, in_form, of_unicode],
            Self::CherryPy => vec![("_ for -", json("/limited_drops/42/orders")), in_form],
            Self::Express | Self::Hono => vec![in_header, in_form],
            Self::Php => vec![
                in_header,
                ("X-Original-URL", json("/").with_first("X-Original-URL", "/limited-drops/42#/orders")),
                ("an id in the query", json("/limited-drops/43/orders?id=42")),
            ],
            Self::Go => vec![in_header, in_form, of_unicode],
        });
        all
    }

    /// What to do where it cannot be started.
    const fn advice(self) -> &'static str {
        match self {
            Self::Php => "install php-cli (Debian and Ubuntu: apt-get install php-cli)",
            Self::Go => "install Go (Debian and Ubuntu: apt-get install golang-go)",
            Self::Express | Self::Hono => "install nodejs and npm, and run ./test.sh, which installs the packages",
            _ => "run ./test.sh, which installs the packages under target/tools/venv",
        }
    }
}

fn shops(path: &str) -> PathBuf {
    Path::new(ROOT).join("tests/shops").join(path)
}

fn tools(path: &str) -> PathBuf {
    Path::new(ROOT).join("target/tools").join(path)
}

fn python(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(tools("venv/bin").join(program));
    command.args(arguments).current_dir(shops("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn node(program: &str, port: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(shops("node").join(program)).arg(port).env("NODE_PATH", tools("node/node_modules"));
    command
}

/// The shop in Go, built once a run.
fn go_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = tools("go-shop");
        let mut build = Command::new("go");
        build.arg("build").arg("-o").arg(&program).arg(shops("go/main.go")).env("GOCACHE", tools("go-cache"));
        let built = build.status().unwrap_or_else(|error| panic!("{error}: {}", Framework::Go.advice()));
        assert!(built.success(), "go build: {built}");
        program
    })
}

/// A running shop.
pub(super) struct Shop {
    child: Child,
    url: String,
    dir: TempDir,
}

impl Shop {
    /// Starts it and waits until it answers.
    pub(super) fn open(framework: Framework) -> Self {
        // Another process may take the port between our looking and the shop's binding: then the shop ends, and gets
        // another port.
        (0..5).find_map(|_| Self::open_on(framework, free_port())).unwrap_or_else(|| {
            panic!("{framework:?} ends as soon as it is started, see above; {}", framework.advice());
        })
    }

    fn open_on(framework: Framework, port: u16) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut command = framework.command(port);
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        command.env("SHOP_SALES", dir.path().join("sales")).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        // Some start workers: all of them are one group, and end together.
        let child = command.process_group(0).spawn();
        let child = child.unwrap_or_else(|error| match error.kind() {
            ErrorKind::NotFound => panic!("{framework:?} is missing: {}", framework.advice()),
            _ => panic!("{framework:?}: {error}"),
        });
        let mut shop = Self { child, url: format!("http://127.0.0.1:{port}"), dir };
        loop {
            if shop.child.try_wait().unwrap().is_some() {
                println!("{}", shop.log());
                return None;
            }
            if shop.answers() {
                return Some(shop);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn answers(&self) -> bool {
        std::net::TcpStream::connect(self.url.trim_start_matches("http://")).is_ok()
            && Raw::ask(&self.url, b"GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
                .is_some_and(|RawAnswer { status, .. }| status == 200)
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// What it sold since this was last asked: which request did it, and what it got.
    pub(super) fn sales(&self) -> Vec<(String, String)> {
        let book = self.dir.path().join("sales");
        let text = std::fs::read_to_string(&book).unwrap_or_default();
        let _ = std::fs::remove_file(&book);
        let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
        lines.map(|(case, drop)| (case.to_owned(), drop.to_owned())).collect()
    }

    /// What it said so far.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-9", "--", &group]).status();
        let _ = self.child.wait();
    }
}
