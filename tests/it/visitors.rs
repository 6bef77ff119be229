//! Anonymous visitors: known by a cookie that entering sets, from the queue to the shop.

use std::{cell::RefCell, time::Duration};

use reqwest::{Method, RequestBuilder};
use tokio::time::sleep;

use crate::{
    gateway::gateway,
    redis_server::RedisServer,
    server::{DROP, Reply, SECRET, Server},
    upstream::Upstream,
};

const ENTRIES: &str = "/virtual-queues/limited-drop/42/entries";
const ME: &str = "/virtual-queues/limited-drop/42/entries/me";
const ORDERS: &str = "/limited-drops/42/orders";
const VISITOR: (&str, &str) = ("VQ_IDENTITY__MODE", "visitor");
const FAST: (&str, &str) = ("VQ_QUEUE__TICK_MS", "500");

/// A browser that keeps the one cookie, and claims to be somebody.
#[derive(Default)]
struct Browser {
    cookie: RefCell<Option<String>>,
}

impl Browser {
    async fn asks(&self, request: RequestBuilder) -> Reply {
        let request = request.header("X-User-Id", "7");
        let request = match &*self.cookie.borrow() {
            Some(cookie) => request.header("Cookie", format!("theme=dark; {cookie}")),
            None => request,
        };
        let reply = Reply::of(request).await;
        if let Some(set) = reply.header("set-cookie") {
            let (pair, attributes) = set.split_once("; ").unwrap();
            assert_eq!(attributes, "HttpOnly; Secure; SameSite=Lax; Path=/; Max-Age=604800");
            *self.cookie.borrow_mut() = Some(pair.to_owned());
        }
        reply
    }

    async fn enters(&self, server: &Server) -> Reply {
        self.asks(server.request(Method::POST, ENTRIES)).await
    }

    async fn polls(&self, server: &Server) -> Reply {
        self.asks(server.request(Method::GET, ME)).await
    }

    async fn buys(&self, server: &Server, pass: &str) -> Reply {
        self.asks(server.request(Method::POST, ORDERS).header("X-Entry-Token", pass)).await
    }

    async fn await_pass(&self, server: &Server) -> String {
        loop {
            match self.polls(server).await.pass() {
                Some(pass) => return pass,
                None => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    fn cookie(&self) -> String {
        self.cookie.borrow().clone().expect("a cookie")
    }

    fn with(cookie: &str) -> Self {
        Self { cookie: RefCell::new(Some(cookie.to_owned())) }
    }
}

/// Neither the log nor the metrics tell who somebody is.
async fn assert_tells_nobody(server: &Server, browser: &Browser) {
    let cookie = browser.cookie();
    let (id, signature) = cookie.strip_prefix("vq_visitor=").unwrap().split_once('.').unwrap();
    let metrics = server.get("/metrics").await.text;
    for part in [id, signature] {
        assert!(!server.log().contains(part) && !metrics.contains(part), "a visitor is told of");
    }
}

#[tokio::test]
async fn a_visitor_enters_waits_and_buys_and_nobody_else_does_with_that_pass() {
    let server = Server::demo(&[VISITOR, FAST]);
    let (one, other, nobody) = (Browser::default(), Browser::default(), Browser::default());
    assert_eq!(one.polls(&server).await.refusal(), (404, "NOT_IN_QUEUE"), "a page enters again");
    assert!(one.cookie.borrow().is_none(), "only entering sets a cookie");
    let place = one.enters(&server).await.position();
    let cookie = one.cookie();
    assert_eq!((one.enters(&server).await.position(), one.cookie()), (place, cookie), "one visitor, one place");
    assert_eq!(other.enters(&server).await.position(), Some(place.unwrap() + 1), "the header counts for nothing");
    assert_ne!(one.cookie(), other.cookie());
    let polled = one.polls(&server).await;
    assert_eq!((polled.status, polled.header("set-cookie")), (200, None));

    let pass = one.await_pass(&server).await;
    assert_eq!(nobody.buys(&server, &pass).await.refusal(), (403, "QUEUE_BYPASS_DENIED"), "without the cookie");
    assert_eq!(other.buys(&server, &pass).await.refusal(), (403, "QUEUE_BYPASS_DENIED"), "with another's");
    let mut tampered = one.cookie();
    let last = if tampered.pop() == Some('A') { 'Q' } else { 'A' };
    tampered.push(last);
    assert_eq!(Browser::with(&tampered).buys(&server, &pass).await.refusal(), (403, "QUEUE_BYPASS_DENIED"));
    let both = Browser::with(&format!("{tampered}; {}", one.cookie()));
    assert_eq!(both.buys(&server, &pass).await.status, 201, "of two cookies the one that holds counts");

    let stranger = Browser::with(&tampered);
    assert_eq!(stranger.polls(&server).await.refusal(), (404, "NOT_IN_QUEUE"));
    assert_eq!(stranger.enters(&server).await.status, 200);
    assert!(![tampered, one.cookie()].contains(&stranger.cookie()), "a forged cookie is none: somebody new");
    assert_eq!(nobody.asks(server.request(Method::DELETE, ME)).await.status, 204);
    assert_eq!(other.asks(server.request(Method::DELETE, ME)).await.status, 204);
    assert_eq!(other.polls(&server).await.refusal(), (404, "NOT_IN_QUEUE"));
    assert_eq!(server.stats(DROP).await["entered"], 3);
    assert_tells_nobody(&server, &one).await;
}

#[tokio::test]
async fn a_page_of_another_site_cannot_make_its_guest_somebody_else() {
    let server = Server::demo(&[VISITOR]);
    let guest = Browser::default();
    let reply = guest.asks(server.request(Method::POST, ENTRIES).header("Sec-Fetch-Site", "cross-site")).await;
    assert_eq!(reply.refusal(), (403, "OTHER_SITE"));
    assert_eq!(reply.header("set-cookie"), None);
    assert_eq!(server.stats(DROP).await["entered"], 0);
}

#[tokio::test]
async fn nobody_loses_the_place_when_the_secret_changes() {
    const NEW: &str = "another secret of the tests, and of nobody else: 0123456789";
    let redis = RedisServer::start();
    let serve = |secret: &str, also: &[&str]| {
        // A list in a variable, since one of them has a comma.
        let also = format!("{also:?}");
        let secrets = [("VQ_TOKEN__SECRET", secret), ("VQ_TOKEN__ALSO_ACCEPTED", also.as_str())];
        // Nobody's turn comes meanwhile.
        Server::serve(&redis, &[&[VISITOR, ("VQ_QUEUE__TICK_MS", "10000")], &secrets[..]].concat())
    };
    let (old, both, new) = (serve(SECRET, &[]), serve(NEW, &[SECRET]), serve(NEW, &[]));
    let browser = Browser::default();
    let place = browser.enters(&old).await.position();
    let before = browser.cookie();
    assert_eq!(browser.polls(&both).await.position(), place);
    assert_ne!(browser.cookie(), before, "made anew with the secret that stays");
    assert_eq!(browser.polls(&new).await.position(), place);
    assert_eq!(Browser::with(&before).polls(&new).await.refusal(), (404, "NOT_IN_QUEUE"));
}

#[tokio::test]
async fn the_shop_and_proxies_are_told_the_number_and_the_cookie_goes_no_further() {
    let shop = Upstream::friendly();
    let server = gateway(shop.url(), &[VISITOR, FAST]);
    let browser = Browser::default();
    browser.enters(&server).await;
    let pass = browser.await_pass(&server).await;
    let cookie = browser.cookie();
    let id = cookie.strip_prefix("vq_visitor=").unwrap().split_once('.').unwrap().0;

    assert_eq!(browser.asks(server.request(Method::GET, "/a/page")).await.status, 201);
    let seen = shop.only();
    assert_eq!((seen.all("X-User-Id"), seen.all("Cookie")), (vec![id], vec!["theme=dark"]));
    let stranger = server.request(Method::GET, "/a/page").header("X-User-Id", "7").header("X_User_Id", "7");
    assert_eq!(Reply::of(stranger).await.status, 201);
    let seen = shop.only();
    assert!(seen.all("X-User-Id").is_empty() && seen.all("X_User_Id").is_empty(), "{}", seen.head);

    let ask = |browser: Browser| {
        let question = server.request(Method::GET, "/gate/verify").header("X-Entry-Token", &pass);
        let question = question.header("X-Original-Method", "POST").header("X-Original-URI", ORDERS);
        async move { browser.asks(question).await }
    };
    assert_eq!(ask(Browser::default()).await.refusal(), (403, "QUEUE_BYPASS_DENIED"));
    assert_eq!(browser.buys(&server, &pass).await.status, 201);
    let seen = shop.only();
    assert_eq!((seen.all("X-User-Id"), seen.all("Cookie")), (vec![id], vec!["theme=dark"]));

    let other = Browser::default();
    other.enters(&server).await;
    let pass = other.await_pass(&server).await;
    let question = server.request(Method::GET, "/gate/verify").header("X-Entry-Token", &pass);
    let granted = other.asks(question.header("X-Original-Method", "POST").header("X-Original-URI", ORDERS)).await;
    let cookie = other.cookie();
    let id = cookie.strip_prefix("vq_visitor=").unwrap().split_once('.').unwrap().0;
    assert_eq!((granted.status, granted.header("x-virtual-queue-user")), (204, Some(id)));
    assert_tells_nobody(&server, &other).await;
}

#[tokio::test]
async fn visitors_of_one_address_are_limited_without_being_asked() {
    let server = Server::demo(&[VISITOR]);
    let enter = || async { Browser::default().enters(&server).await.status };
    let mut statuses = Vec::new();
    // The burst is 200, and 20 a second come to it.
    while !statuses.contains(&429) && statuses.len() < 5000 {
        statuses.extend(futures_util::future::join_all((0..50).map(|_| enter())).await);
    }
    assert!(statuses[..200].iter().all(|status| *status == 200), "{statuses:?}");
    assert!(statuses.contains(&429), "a new cookie is a new person, and nothing counted");
}
