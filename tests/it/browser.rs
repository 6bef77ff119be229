//! A real browser: a page of one origin, the queue and the shop on another.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use serde_json::{Value, json};

use crate::server::Server;

/// Enters, polls, and buys twice: with the cookie alone, and with the pass in its header. Then tells its own server.
const SCRIPT: &str = r#"
const api = "API";
const call = (method, path, headers = {}) =>
    fetch(api + path, { method, credentials: "include", headers: { "X-User-Id": "7", ...headers } });
const enter = async (target) => {
    let entry = await (await call("POST", `/virtual-queues/${target}/entries`)).json();
    while (entry.status === "WAITING") {
        await new Promise((done) => setTimeout(done, 100));
        entry = await (await call("GET", `/virtual-queues/${target}/entries/me`)).json();
    }
    return entry;
};
const run = async () => {
    const denied = await call("POST", "/limited-drops/42/orders");
    const first = await enter("limited-drop/42");
    const bought = await call("POST", "/limited-drops/42/orders");
    const second = await enter("limited-drop/43");
    const left = await call("DELETE", "/virtual-queues/limited-drop/43/entries/me");
    const tooLate = await call("POST", "/limited-drops/43/orders");
    const third = await enter("limited-drop/44");
    const withHeader = await call("POST", "/limited-drops/44/orders", { "X-Entry-Token": third.entryToken });
    return {
        denied: (await denied.json()).code,
        requestId: denied.headers.get("X-Request-Id") !== null,
        entered: [first.status, second.status, third.status],
        bought: bought.status,
        left: left.status,
        tooLate: tooLate.status,
        withHeader: withHeader.status,
        cookiesSeen: document.cookie,
    };
};
run().catch((error) => ({ error: error.name })).then((report) =>
    fetch("/report", { method: "POST", body: JSON.stringify(report) }));
"#;

/// Serves one page, and takes its report.
struct Page {
    origin: String,
    reports: Receiver<Value>,
}

impl Page {
    /// The page is made once its own origin is known.
    fn listen() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        (listener, origin)
    }

    fn serve(listener: TcpListener, origin: String, api: &str) -> Self {
        let html = format!("<!doctype html><title>shop</title><script>{}</script>", SCRIPT.replace("API", api));
        let (tell, reports) = channel();
        // Ends with the test: nobody listens for the report any more.
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(mut connection) = connection else { return };
                let mut reader = BufReader::new(connection.try_clone().unwrap());
                let (mut first, mut length) = (String::new(), 0);
                if reader.read_line(&mut first).is_err() {
                    continue;
                }
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).is_err() || line.trim().is_empty() {
                        break;
                    }
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                }
                let mut body = vec![0; length];
                let _ = reader.read_exact(&mut body);
                let content = if first.starts_with("GET / ") { html.as_str() } else { "" };
                let _ = write!(
                    connection,
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{content}",
                    content.len()
                );
                if first.starts_with("POST /report ") && tell.send(serde_json::from_slice(&body).unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { origin, reports }
    }

    /// Opens it in a browser and waits for what it reports.
    fn visit(&self) -> Value {
        let profile = tempfile::tempdir().unwrap();
        let _browser = Browser(
            Command::new("chromium")
                .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
                .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
                .arg("--disable-dev-shm-usage")
                .arg(format!("--user-data-dir={}", profile.path().display()))
                .arg(&self.origin)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("chromium is installed"),
        );
        self.reports.recv_timeout(Duration::from_secs(120)).expect("the page reports")
    }
}

/// Goes with the test.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_page_of_an_allowed_origin_queues_and_buys_and_another_page_can_do_nothing() {
    let ((mine, my_origin), (other, other_origin)) = (Page::listen(), Page::listen());
    let server = Server::demo(&[
        ("VQ_QUEUE__TICK_MS", "500"),
        ("VQ_TOKEN__COOKIE", "true"),
        ("VQ_CORS__ALLOWED_ORIGINS", &my_origin),
    ]);
    assert_eq!(Page::serve(other, other_origin, server.url()).visit(), json!({ "error": "TypeError" }));
    let report = Page::serve(mine, my_origin, server.url()).visit();
    let expected = json!({
        "denied": "QUEUE_BYPASS_DENIED",
        "requestId": true,
        "entered": ["ADMITTED", "ADMITTED", "ADMITTED"],
        "bought": 201,
        "left": 204,
        "tooLate": 403,
        "withHeader": 201,
        "cookiesSeen": "",
    });
    assert_eq!(report, expected);
}
