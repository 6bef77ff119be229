//! A hundred kinds of requests that are no order.

use super::wire::Request;

/// Methods, to the echo.
const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT"];

/// What follows `/echo` in the target: paths that are odd, and queries.
const TARGETS: &[&str] = &[
    "/a%2Fb",
    "/a%2fb%5Cc",
    "/a%252Fb",
    "/a%20b",
    "/a+b",
    "/%ED%95%9C%EA%B8%80",
    "/caf%C3%A9",
    "/caf%E9",
    "/100%25",
    "/a;v=1/b;w=2,3",
    "/a;jsessionid=0123456789",
    "//a",
    "/a//b///c/",
    "/a/",
    "/a/./b",
    "/a/../echo/b",
    "/a.",
    "/a..",
    "/a.tar.gz",
    "/.hidden",
    "/~user/!$&'()*+,;=:@-._",
    "/a|b",
    "/%7Ea%2E%2E",
    "/limited-drops",
    "/orders/42",
    "?",
    "?a=b&c=d",
    "?a=b&a=c&a=",
    "?a[]=1&a[]=2&b[x][y]=z",
    "?q=%20+%2B",
    "?q=%26%3D%23",
    "?q=%ED%95%9C%EA%B8%80",
    "?next=/limited-drops/42/orders",
    "?next=https://shop.example/a?b=c",
    "?json={%22a%22:1}",
    "?a=b;c=d",
    "?&&a&=b&",
    "?a?b??c",
    "?method=POST&id=42",
    "?id=42&dropId=42",
];

/// Headers, to the echo.
const HEADERS: &[(&str, &[(&str, &str)])] = &[
    ("an empty value", &[("X-Empty", "")]),
    ("a repeated header", &[("X-A", "1"), ("X-B", "2"), ("X-A", "3")]),
    ("a long list of kinds", &[("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")]),
    ("encodings", &[("Accept-Encoding", "gzip, deflate, br, zstd")]),
    ("languages", &[("Accept-Language", "ko-KR,ko;q=0.9,en;q=0.8")]),
    ("basic authorization", &[("Authorization", "Basic dXNlcjpwYXNz")]),
    ("bearer authorization", &[("Authorization", "Bearer aaaa.bbbb.cccc")]),
    ("a cookie", &[("Cookie", "session=0123; theme=dark")]),
    ("two lines of cookies", &[("Cookie", "a=1"), ("Cookie", "b=2")]),
    ("odd cookies", &[("Cookie", "a=\"1 2\"; b; c==; =d; vq_other=1")]),
    ("an origin", &[("Origin", "https://shop.example"), ("Sec-Fetch-Mode", "cors"), ("Sec-Fetch-Site", "same-origin")]),
    ("a preflight", &[("Origin", "https://other.example"), ("Access-Control-Request-Method", "PUT")]),
    ("a referrer", &[("Referer", "https://shop.example/limited-drops/42/orders")]),
    ("letters of Latin 1", &[("X-Name", "Andr\u{e9}")]),
    ("spaces and tabs within a value", &[("X-Spaces", "a  b\tc")]),
    ("a trace", &[("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("baggage", "a=b")]),
    ("a request id", &[("X-Request-Id", "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed")]),
    ("a name in odd case", &[("x-ODD-case", "1")]),
    ("digits and punctuation in a name", &[("X-1!#$%&'*+.^`|~", "1")]),
    ("no caching", &[("Cache-Control", "no-cache"), ("Pragma", "no-cache")]),
    ("an upgrade of pages", &[("Upgrade-Insecure-Requests", "1"), ("DNT", "1")]),
    ("a user agent", &[("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)")]),
    ("a kept connection", &[("Connection", "keep-alive")]),
    ("a closed connection", &[("Connection", "close")]),
    ("a header of this connection", &[("Connection", "X-Mine"), ("X-Mine", "1")]),
    ("an offer of trailers", &[("TE", "trailers")]),
    ("an idempotency key", &[("Idempotency-Key", "\"8e03978e-40d5-43dd-bc93-6894a57f9324\"")]),
    ("a digest", &[("Digest", "sha-256=X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=")]),
];

/// Answers made to order.
const ANSWERS: &[(&str, &str)] = &[
    ("no content", r#"{"status":204}"#),
    ("not modified", r#"{"status":304,"headers":[["ETag","\"x\""]]}"#),
    ("moved", r#"{"status":301,"headers":[["Location","/elsewhere?a=%2F"]]}"#),
    ("see other", r#"{"status":303,"headers":[["Location","https://shop.example/x"]],"body":"go there"}"#),
    ("not found", r#"{"status":404,"headers":[["Content-Type","text/html"]],"body":"<p>no</p>"}"#),
    ("gone", r#"{"status":410,"body":"gone"}"#),
    ("not authorized", r#"{"status":401,"headers":[["WWW-Authenticate","Basic realm=\"shop\""]],"body":"who?"}"#),
    ("too many", r#"{"status":429,"headers":[["Retry-After","7"]],"body":"later"}"#),
    ("broken", r#"{"status":500,"body":"broken"}"#),
    ("unavailable", r#"{"status":503,"headers":[["Retry-After","120"]],"body":"closed"}"#),
    ("a status of its own", r#"{"status":299,"body":"fine"}"#),
    ("partial", r#"{"status":206,"headers":[["Content-Range","bytes 0-1/9"]],"body":"ab"}"#),
    (
        "two cookies",
        r#"{"headers":[["Set-Cookie","a=1; Path=/; HttpOnly"],["Set-Cookie","b=2; SameSite=Lax"]],"body":"ok"}"#,
    ),
    ("packed", r#"{"body":"hello ","times":500,"gzip":true,"headers":[["Vary","Accept-Encoding"]]}"#),
    ("big", r#"{"body":"0123456789abcdef","times":20000}"#),
    ("streamed", r#"{"body":"piece ","pieces":20}"#),
    ("streamed and big", r#"{"body":"0123456789abcdef","times":500,"pieces":20}"#),
    ("streamed and packed", r#"{"body":"hello ","times":10,"pieces":1,"gzip":true}"#),
    ("an empty body", r#"{"body":""}"#),
    ("an empty header", r#"{"headers":[["X-Empty",""]],"body":"ok"}"#),
    ("caching", r#"{"headers":[["Cache-Control","public, max-age=60"],["ETag","W/\"1\""],["Age","3"]],"body":"ok"}"#),
    (
        "policies",
        r#"{"headers":[["Content-Security-Policy","default-src 'self'"],["Strict-Transport-Security","max-age=1"]],"body":"ok"}"#,
    ),
    ("a date of its own", r#"{"headers":[["Expires","Thu, 01 Jan 1970 00:00:00 GMT"]],"body":"ok"}"#),
    ("a download", r#"{"headers":[["Content-Disposition","attachment; filename=\"a b.txt\""]],"body":"ok"}"#),
];

/// Headers of a request for a file.
const FILES: &[(&str, &[(&str, &str)])] = &[
    ("whole", &[]),
    ("its beginning", &[("Range", "bytes=0-9")]),
    ("its middle", &[("Range", "bytes=10-19")]),
    ("its end", &[("Range", "bytes=-5")]),
    ("beyond its end", &[("Range", "bytes=100000-")]),
    ("if it has changed", &[("If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT")]),
    ("if it is the same", &[("If-Match", "\"other\"")]),
    ("if it is another", &[("If-None-Match", "\"other\", W/\"x\"")]),
    ("a range of the same", &[("Range", "bytes=0-9"), ("If-Range", "\"other\"")]),
];

fn bodies() -> Vec<(String, Request)> {
    let post = || Request::new("POST", "/echo");
    let form = "application/x-www-form-urlencoded";
    let parts = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b\r\nContent-Disposition: form-data; \
                 name=\"f\"; filename=\"x.bin\"\r\nContent-Type: application/octet-stream\r\n\r\n\0\x01\x02\r\n--b--\r\n";
    let big = "0123456789abcdef".repeat(4096);
    let mut zeros = post().with("Content-Type", "application/octet-stream");
    zeros.body = (0..=255).collect();
    [
        ("a form", post().body(form, "a=b&c=%20+%2B&_charset_=utf-8")),
        ("a form with odd fields", post().body(form, "a[]=1&a[]=2&=&&b")),
        ("JSON", post().body("application/json", "{\"a\": [1, 2, {\"b\": null}]}")),
        ("text", post().body("text/plain; charset=utf-8", "\u{ed55}\u{ae00}\r\n")),
        ("an upload in parts", post().body("multipart/form-data; boundary=b", parts)),
        ("an upload in parts, in chunks", post().body("multipart/form-data; boundary=b", parts).chunked()),
        ("every byte", zeros),
        ("a big upload", post().body("application/octet-stream", &big)),
        ("a big upload in chunks", post().body("application/octet-stream", &big).chunked()),
        ("an empty upload", post()),
        ("an empty upload in chunks", post().chunked()),
        ("a PUT in chunks", Request::new("PUT", "/echo/x").body("text/plain", "abc").chunked()),
        ("a PATCH", Request::new("PATCH", "/echo/x").body("application/merge-patch+json", "{}")),
        ("a DELETE with a body", Request::new("DELETE", "/echo/x").body("application/json", "{\"why\":1}")),
        ("a GET with a body", Request::new("GET", "/echo/x").body("application/json", "{\"q\":1}")),
        ("an upload that asks first", post().body("text/plain", "abc").with("Expect", "100-continue")),
        ("a packed upload", post().with("Content-Encoding", "gzip").body("text/plain", "\x1fnot really")),
    ]
    .map(|(name, request)| (name.to_owned(), request))
    .into()
}

/// All kinds, each with a name.
pub(super) fn kinds() -> Vec<(String, Request)> {
    let mut all = Vec::new();
    for method in METHODS {
        all.push(((*method).to_owned(), Request::new(method, "/echo/a?b=c")));
    }
    for target in TARGETS {
        all.push((format!("GET {target}"), Request::new("GET", &format!("/echo{target}"))));
    }
    let long = format!("/echo?q={}", "0123456789".repeat(600));
    all.push(("a long query".to_owned(), Request::new("GET", &long)));
    for (name, headers) in HEADERS {
        let request =
            headers.iter().fold(Request::new("GET", "/echo"), |request, (name, value)| request.with(name, value));
        all.push(((*name).to_owned(), request));
    }
    let many = (0..60).fold(Request::new("GET", "/echo"), |request, n| request.with(&format!("X-Header-{n}"), "1"));
    all.push(("sixty headers".to_owned(), many));
    let long = Request::new("GET", "/echo").with("X-Long", &"a".repeat(6000));
    all.push(("a long header".to_owned(), long));
    let cookies: String = (0..100).map(|n| format!("cookie_{n}=value{n}; ")).collect();
    all.push((
        "a hundred cookies".to_owned(),
        Request::new("GET", "/echo").with("Cookie", cookies.trim_end_matches("; ")),
    ));
    all.extend(bodies());
    for (name, spec) in ANSWERS {
        let escaped: String = spec.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let target = format!("/answer?spec={escaped}");
        all.push((format!("answers: {name}"), Request::new("GET", &target)));
        if ["packed", "not found", "streamed"].contains(name) {
            all.push((format!("answers to HEAD: {name}"), Request::new("HEAD", &target)));
        }
    }
    for (name, headers) in FILES {
        let request =
            headers.iter().fold(Request::new("GET", "/file"), |request, (name, value)| request.with(name, value));
        all.push((format!("a file, {name}"), request));
    }
    all.push(("the head of a file".to_owned(), Request::new("HEAD", "/file")));
    all.push(("nothing there".to_owned(), Request::new("GET", "/nothing/there")));
    all.push(("OPTIONS of nothing".to_owned(), Request::new("OPTIONS", "/nothing/there")));
    all.push(("looking at orders".to_owned(), Request::new("GET", "/limited-drops/42/orders")));
    all.push(("deleting an order".to_owned(), Request::new("DELETE", "/limited-drops/42/orders/7")));
    all
}
