//! Requests by somebody who wants drop 42 without a pass for it, made from kinds: every part of an order is written in
//! many ways, each by itself, and then many at once.

use std::collections::HashSet;

use super::wire::Request;
use crate::smuggling::SPELLINGS;

/// What may stand before the path of the order.
const PREFIXES: &[&str] = &[
    "",
    "/",
    "//",
    "/.",
    "/./.",
    "/x/..",
    "/..",
    "/%2e",
    "/%2e%2e",
    "/x/%2e%2e",
    "/x/..;",
    "/x/..%2f",
    "/;",
    "/;x",
    "/;x=y",
    "//x",
    "///x",
    "/\\",
    "/\\x",
    "\\",
    "/%5c",
    "/%2f",
    "/%2fx",
    "/%00",
    "/%09",
    "/%20",
    "/%",
    "/index.php",
    "/index.html",
    "/x.php",
    "/~",
    "/_",
    "/*",
    "/...",
    "/x%2f..",
    "/x/%252e%252e",
    "/@",
    "/:",
    "/%3b",
    "/%23",
    "http://shop.example",
    "http://shop.example/",
    "http://shop.example/x/..",
    "HTTP://shop.example",
    "//shop.example",
    "/x",
    "/app",
    "/shop/..",
];

/// What may stand between two words.
const BETWEEN: &[&str] = &[
    "/",
    "//",
    "///",
    "/./",
    "/x/../",
    "/.//",
    "/;/",
    "/;x/",
    ";x/",
    ";/",
    "%2F",
    "%2f",
    "%252F",
    "%25252f",
    "\\",
    "%5C",
    "%5c",
    "/%2e/",
    "/x/%2e%2e/",
    "/x/..;/",
    "/%2F",
    "%2F/",
    "%2f%2f",
    "%c0%af",
    "%e0%80%af",
    "%u002f",
    "%ef%bc%8f",
    "\u{ff0f}",
    "%e2%88%95",
    "/%20/",
    "%20/",
    "/%00/",
    "%00/",
    "%0a/",
    "%0d%0a/",
    "%09/",
    "/?/",
    "/#/",
    "#/",
    "%23/",
    "%3f/",
    "./",
    ".../",
    "/_/",
    "/-/",
    "%/",
    "%2/",
    "%2",
    "/%",
    ":/",
    "/*",
    "|",
    ",",
    "/+",
    "+/",
    "/~/",
    "%c1%9c",
    "%255c",
    "%bg%qf",
];

/// Ways to write `limited-drops`.
const DROPS: &[&str] = &[
    "limited-drops",
    "limited_drops",
    "limited.drops",
    "limited~drops",
    "limited+drops",
    "limited%20drops",
    "limited%2Ddrops",
    "limited%2ddrops",
    "limited%252Ddrops",
    "limited:drops",
    "limited@drops",
    "limited!drops",
    "limited$drops",
    "limited&drops",
    "limited'drops",
    "limited(drops",
    "limited*drops",
    "limited,drops",
    "limited;drops",
    "limited=drops",
    "limited|drops",
    "limited%7cdrops",
    "limited%22drops",
    "limited%5edrops",
    "limited%60drops",
    "limited%7bdrops",
    "limited[drops",
    "limited%5fdrops",
    "limited--drops",
    "limiteddrops",
    "limited\u{ad}-drops",
    "limited%C2%AD-drops",
    "limited%E2%80%90drops",
    "limited%E2%80%8B-drops",
    "limited%EF%BC%8Ddrops",
    "limited%EF%B9%A3drops",
    "Limited-Drops",
    "LIMITED-DROPS",
    "limited-DROPS",
    "%6cimited-drops",
    "%6Cimited-drops",
    "%256cimited-drops",
    "%u006cimited-drops",
    "%4Cimited-drops",
    "l%69mited-drops",
    "limited-drop%73",
    "limited-drop\u{17f}",
    "limited-drop%C5%BF",
    "l\u{131}mited-drops",
    "l%C4%B1mited-drops",
    "l%C4%B0mited-drops",
    "limited-%EF%BD%84rops",
    "limited-drops%00",
    "limited-drops%20",
    "limited-drops.",
    "limited-drops;",
    "limited-drops;v=1",
    "limited-drops%3bv=1",
    "limited-drops+",
    "limited-drops%0a",
    "limited-drops%",
    "limited-drops%2",
    "limited%-drops",
    "limited%c0%addrops",
    "limited-drops%E2%80%AE",
    "%EF%BB%BFlimited-drops",
    "limit%C3%A9d-drops",
    "(limited-drops)",
    "'limited-drops'",
    "limited-drops*",
    "limited-drops:",
    "limited-drops!",
];

/// Ways to write the id 42.
const IDS: &[&str] = &[
    "42",
    "042",
    "0042",
    "+42",
    "%2B42",
    "-42",
    "%2042",
    "42%20",
    "+42+",
    "%0942",
    "%0a42",
    "42%0a",
    "42%0d%0a",
    "42%00",
    "%0042",
    "42.0",
    "42.",
    "42.00",
    "4_2",
    "4%5f2",
    "4,2",
    "42,",
    "0x2a",
    "0X2A",
    "0b101010",
    "0o52",
    "052",
    "4.2e1",
    "42e0",
    "42E0",
    "420e-1",
    "%34%32",
    "4%32",
    "%2534%2532",
    "%u0034%u0032",
    "%D9%A4%D9%A2",
    "%EF%BC%94%EF%BC%92",
    "\u{ff14}\u{ff12}",
    "%E0%A5%AA%E0%A5%A8",
    "%F0%9D%9F%B0%F0%9D%9F%AE",
    "%E2%91%A3%E2%91%A1",
    "4%C2%B2",
    "42n",
    "42L",
    "42l",
    "42a",
    "42abc",
    "42-",
    "42-x",
    "42_",
    "42;",
    "42;x",
    "42;jsessionid=1",
    "42%3bx",
    "42#",
    "42%23",
    "42%23x",
    "42%3f",
    "42?",
    "42!",
    "42'",
    "42\"",
    "42%22",
    "%2242%22",
    "[42]",
    "%5B42%5D",
    "{42}",
    "%7B42%7D",
    "(42)",
    "42)",
    "42:",
    "42@x",
    "x@42",
    "42&",
    "42%26",
    "42=",
    "42%3D",
    "42|",
    "42%7C",
    "42%5C",
    "42\\",
    "42%2F",
    "42%252F",
    "%2F42",
    "42%2Fx",
    "42%2C43",
    "43%2C42",
    "42,43",
    "43,42",
    "4294967338",
    "18446744073709551658",
    "42%E2%80%8B",
    "%E2%80%8B42",
    "42%C2%A0",
    "%C2%A042",
    "%E3%80%8042",
    "42%C2%AD",
    "42%EF%BB%BF",
    "42%",
    "%42",
    "%4%32",
    "42%2",
    "~42",
    "$42",
    "*42",
    "42*",
    "42%0b",
    "%1f42",
    "42%7f",
    "42%C0%80",
    "42%FF",
    "true",
];

/// Ways to write `orders`.
const ORDERS: &[&str] = &[
    "orders",
    "Orders",
    "ORDERS",
    "order%73",
    "%6frders",
    "%6Frders",
    "%256frders",
    "%u006frders",
    "%4Frders",
    "order\u{17f}",
    "order%C5%BF",
    "order%EF%BD%93",
    "%EF%BD%8Frders",
    "orders%C2%AD",
    "o%C2%ADrders",
    "orders%E2%80%8B",
    "%E2%80%8Borders",
    "%EF%BB%BForders",
    "orders%00",
    "orders%00.png",
    "orders%01",
    "orders%09",
    "orders%0a",
    "orders%0d",
    "orders%0b",
    "orders%20",
    "orders%2520",
    "%20orders",
    "+orders",
    "orders+",
    "orders%7f",
    "orders%80",
    "orders%FF",
    "orders%C0%80",
    "orders%C2%A0",
    "or%ders",
    "orders%",
    "orders%%",
    "orders%2",
    "orders%2g",
    "orders%u",
    "orders%u00",
    "%orders",
    "orders%zz",
    "orders%25",
    "orders;",
    "orders;x",
    "orders;x=y",
    "orders;/",
    "orders%3b",
    "orders%3Bx",
    "orders,",
    "orders,x",
    "orders.",
    "orders..",
    "orders...",
    "orders.json",
    "orders.html",
    "orders.php",
    "orders.do",
    "orders.x",
    "orders%2Ejson",
    "orders%2e",
    "orders%2e%2e",
    "orders~",
    "orders~1",
    "orders!",
    "orders'",
    "orders%27",
    "orders%22",
    "orders(",
    "orders)",
    "orders*",
    "orders%2A",
    "orders:",
    "orders::$DATA",
    "orders:x",
    "orders@",
    "orders@x",
    "orders=",
    "orders&",
    "orders&x",
    "orders$",
    "orders|",
    "orders%7c",
    "orders[",
    "orders]",
    "orders%5b%5d",
    "orders{}",
    "orders%7b%7d",
    "orders^",
    "orders%5e",
    "orders\\",
    "orders%5C",
    "orders%5c..%5corders",
    "orders_",
    "orders-",
    "_orders",
    "-orders",
    ".orders",
    "~orders",
    "$orders",
    "*orders",
    ":orders",
    "@orders",
    "!orders",
    "'orders'",
    "(orders)",
    "orders%23",
    "orders%23x",
    "orders%3F",
    "orders%3Fx",
    "orders%3fx=y",
    "orders%2F",
    "orders%2f",
    "orders%252f",
    "orders%2Fx",
    "orders%2f..",
    "orders%2F..%2Forders",
    "orders%c0%af",
    "orders%ef%bc%8f",
    "orders\u{ff0f}",
];

/// What may stand behind the path of the order.
const SUFFIXES: &[&str] = &[
    "",
    "/",
    "//",
    "///",
    "/.",
    "/./",
    "/x/..",
    "/x/../",
    "/%2e",
    "/..;/orders",
    "/;",
    "/;x",
    ";",
    "?",
    "??",
    "?x",
    "?x=/../..",
    "?/",
    "/?",
    "#",
    "#x",
    "/#",
    "#/orders",
    "#?x",
    "?#",
    "?id=42",
    "?id=43",
    "?id=43&id=42",
    "?id[]=42",
    "?dropId=42",
    "?dropId=43",
    "?drop=43",
    "?drop_id=42",
    "?_method=POST",
    "?_method=GET",
    "?path=/limited-drops/42/orders",
    "?%69d=42",
    "?id%00=42",
    "?id=42%00",
    "?ID=42",
    "%",
    "/%",
    "/%20",
    "/%00",
    "%3f",
    "%3Fx",
    "%23",
    "%20",
    "%09",
    "%00",
    "/*",
    "/~",
    "/-",
    "/_",
    "?;id=42",
    ";id=42",
    "&id=42",
    "?&id=42",
];

/// Where the id comes from when the path says another.
const OTHER_IDS: &[&str] = &[
    "?id=42",
    "?id=43&id=42",
    "?id=42&id=43",
    "?x=y&id=42",
    "?id=%34%32",
    "?%69d=42",
    "?i%64=42",
    "?id=+42",
    "?id=%2042",
    "?id=42a",
    "?id=42.0",
    "?id=042",
    "?id[]=42",
    "?id[0]=42",
    "?id%5B%5D=42",
    "?ID=42",
    "?Id=42",
    "?id=42#x",
    "?&&id=42",
    "?id;id=42",
    "?x;id=42",
    "?id=x&id=42",
    "?id=&id=42",
    "?id==42",
    "?id=42%00",
    "?id%00=42",
    "?%20id=42",
    "?+id=42",
    "? id=42",
    "?dropId=42",
    "?dropid=42",
    "?drop=42",
    "?drop_id=42",
    "?drop-id=42",
    "?drop.id=42",
    "?dropId[]=42",
    "?id=42&dropId=42",
    "?%u0069d=42",
    "?%2569d=42",
    "?id%3D42",
    "?id=42%26x",
    "?i%C3%8Cd=42",
    "?id=%D9%A4%D9%A2",
    "?id=%EF%BC%94%EF%BC%92",
    "?id%5B=42",
    "?%EF%BD%89d=42",
    "?\u{131}d=42",
    "?id=42;id=43",
    "?id=43;id=42",
    "?id=43%26id=42",
    "?id=43%26id%3D42",
    "?id=43%2526id=42",
];

/// Names of headers that name a method.
const METHOD_HEADERS: &[&str] = &[
    "X-HTTP-Method-Override",
    "X-HTTP-Method",
    "X-Method-Override",
    "x-http-method-override",
    "X_HTTP_Method_Override",
    "X-HTTP_Method_Override",
    "X.HTTP.Method.Override",
    "X-Http-Method-Override",
    "X_HTTP_METHOD",
    "X_METHOD_OVERRIDE",
    "_method",
    "X-Method",
    "Method",
    "Method-Override",
    "HTTP-Method-Override",
    "X-HTTP-Verb",
    "X-Original-Method",
    "X-Forwarded-Method",
    "X-Requested-Method",
    "X-REST-Method",
    "X-HTTP~Method~Override",
    "X-HTTP-Method-Override-",
    "HTTP_X_HTTP_METHOD_OVERRIDE",
];

/// Ways to write `POST` where no request line holds it.
const METHODS: &[&str] = &[
    "POST",
    "post",
    "Post",
    "pOST",
    " POST ",
    "POST ",
    "\tPOST",
    "POST,GET",
    "GET,POST",
    "GET, POST",
    "POST;q=1",
    "\"POST\"",
    "'POST'",
    "POST\u{a0}",
    "P\u{2c}OST",
    "po\u{17f}t",
    "PO\u{17f}T",
    "po%C5%BFt",
    "%50OST",
    "P%4FST",
    "POST%00",
    "POST%20",
    "%20POST",
    "POST+",
    "\u{ff30}\u{ff2f}\u{ff33}\u{ff34}",
    "\u{ff50}\u{ff4f}\u{ff53}\u{ff54}",
    "POST\u{ad}",
    "\u{feff}POST",
    "PO\u{200b}ST",
    "POST/",
    "/POST",
    "(POST)",
    "[POST]",
    "POST\\",
    "P-O-S-T",
    "POST:",
    "POST#",
    "POST?x",
];

/// Parameters that name a method.
const METHOD_PARAMETERS: &[&str] = &[
    "_method",
    "_Method",
    "_METHOD",
    "%5Fmethod",
    "%5fmethod",
    ".method",
    "[method",
    "%20_method",
    "+_method",
    "_method[]",
    "_method[0]",
    "_method%5B%5D",
    "_method%00",
    "_met%68od",
    "x-http-method-override",
    "X-HTTP-Method-Override",
    "X_HTTP_Method_Override",
    "http_method",
    "__method",
    "%EF%BC%BFmethod",
    "%2Emethod",
    "%5Bmethod",
    "&_method",
    ";_method",
    "a;_method",
    "_method;a",
    "%255fmethod",
    "%u005fmethod",
];

/// Headers that name a path.
const PATH_HEADERS: &[&str] = &[
    "X-Original-URL",
    "X-Rewrite-URL",
    "X_Original_URL",
    "x-original-url",
    "X.Original.URL",
    "X-Original_URL",
    "X~Original~URL",
    "X_Rewrite_Url",
    "X-Original-URI",
    "X-Rewrite-URI",
    "X-Forwarded-URI",
    "X-Forwarded-Path",
    "X-Forwarded-Url",
    "X-Forwarded-Uri",
    "X-Request-URI",
    "Request-URI",
    "REQUEST_URI",
    "X-Path",
    "X-Url",
    "X-URL-Rewrite",
    "X-Envoy-Original-Path",
    "X-Replaced-Path",
    "PATH_INFO",
    "Path-Info",
    "PATH-INFO",
    "X-Path-Info",
    "SCRIPT_NAME",
    "Script-Name",
    "SCRIPT_URL",
    "SCRIPT_URI",
    "REDIRECT_URL",
    "Redirect-Url",
    "ORIG_PATH_INFO",
    "UNENCODED_URL",
    "HTTP_X_ORIGINAL_URL",
    "X-HTTP-Path-Override",
    "X-HTTP-DestinationURL",
    "Destination",
    "Base-Url",
    "Proxy-Url",
    "Uri",
    "Url",
    "Path",
    "X-Accel-Redirect",
    "X-Sendfile",
    "Referer",
    "RAW_URI",
    "X-Raw-Uri",
    "PATH_TRANSLATED",
    "DOCUMENT_URI",
    "X-Vhm-Root",
    "X-VirtualHost-Monster",
    "X-Forwarded-Request-Uri",
];

/// Headers that take something off the path, or put something before it.
const PREFIX_HEADERS: &[&str] = &[
    "SCRIPT_NAME",
    "Script-Name",
    "SCRIPT-NAME",
    "Script_Name",
    "script.name",
    "X-Script-Name",
    "X_Script_Name",
    "X-Forwarded-Prefix",
    "X_Forwarded_Prefix",
    "X-Forwarded-Path",
    "X-Root-Path",
    "Root-Path",
    "ROOT_PATH",
    "X-Base-Path",
    "X-Ingress-Path",
    "X-Request-Path",
    "X-Scheme",
    "X-Original-Prefix",
    "X-Envoy-Original-Path",
    "X-Forwarded-Script-Name",
    "HTTP_SCRIPT_NAME",
    "X-VHM-Root",
    "X-Vhost-Root",
    "X-Spring-Prefix",
    "Forwarded",
    "PATH_INFO",
    "Path-Info",
    "APPL_PATH",
];

/// Kinds of a body that carries a form.
const FORM_KINDS: &[&str] = &[
    "application/x-www-form-urlencoded",
    "application/x-www-form-urlencoded; charset=utf-8",
    "Application/X-WWW-Form-URLEncoded",
    "application/x-www-form-urlencoded ; a=b",
    "application/x-www-form-urlencoded;",
    "application/x-www-form-urlencoded,text/plain",
    "text/plain, application/x-www-form-urlencoded",
    "application/x-url-encoded",
    "application/x-www-form-urlencoded+x",
    "multipart/form-data; boundary=x",
    "Multipart/Form-Data; Boundary=x",
    "multipart/form-data; boundary=\"x\"",
    "multipart/form-data;boundary=x;charset=utf-8",
    "multipart/mixed; boundary=x",
    "",
    "\tapplication/x-www-form-urlencoded",
    "form",
    "text/x-www-form-urlencoded",
    "application/json",
];

/// Methods whose request line hides the order.
const OTHER_METHODS: &[&str] = &[
    "GET", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "PROPFIND", "REPORT", "post", "Post", "PoSt", "POSTX", "QUERY",
];

/// The path of an order, part by part.
#[derive(Clone, Copy)]
struct Path {
    prefix: &'static str,
    drops: &'static str,
    first: &'static str,
    id: &'static str,
    second: &'static str,
    orders: &'static str,
    suffix: &'static str,
}

const PLAIN: Path =
    Path { prefix: "", drops: "limited-drops", first: "/", id: "42", second: "/", orders: "orders", suffix: "" };

impl Path {
    fn text(self) -> String {
        let Self { prefix, drops, first, id, second, orders, suffix } = self;
        let slash = if prefix.ends_with(['/', '\\']) && prefix.len() > 1 { "" } else { "/" };
        format!("{prefix}{slash}{drops}{first}{id}{second}{orders}{suffix}")
    }
}

/// How the request says what it wants.
#[derive(Clone, Copy)]
enum Way {
    /// In its request line.
    Plainly,
    /// The request line has this method, a header the right one.
    MethodHeader(&'static str, &'static str, &'static str),
    /// The request line has this method, a parameter in the query the right one.
    MethodQuery(&'static str, &'static str, &'static str),
    /// The request line has this method, a form of this kind the right one.
    MethodForm(&'static str, &'static str, &'static str, &'static str),
    /// The request line has this method alone.
    Method(&'static str),
    /// A header has the path.
    PathHeader(&'static str),
    /// The path is after `/x`, and a header has the `/x`.
    PrefixHeader(&'static str),
    /// The path is cut in two; a header has the first part.
    Split(&'static str),
    /// The path has id 43, the query 42.
    OtherId(&'static str),
}

/// A stream of numbers that looks random and is the same for the same seed.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z >> 33) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.next() % all.len()]
    }

    /// Mostly the plain way, which is the first.
    fn mostly_plain<T: Copy>(&mut self, all: &[T]) -> T {
        if self.next().is_multiple_of(6) { self.of(all) } else { all[0] }
    }

    fn path(&mut self) -> Path {
        Path {
            prefix: self.mostly_plain(PREFIXES),
            drops: self.mostly_plain(DROPS),
            first: self.mostly_plain(BETWEEN),
            id: self.mostly_plain(IDS),
            second: self.mostly_plain(BETWEEN),
            orders: self.mostly_plain(ORDERS),
            suffix: self.mostly_plain(SUFFIXES),
        }
    }

    fn way(&mut self) -> Way {
        match self.next() % 12 {
            0..4 => Way::Plainly,
            4 => Way::MethodHeader(self.of(OTHER_METHODS), self.of(METHOD_HEADERS), self.of(METHODS)),
            5 => Way::MethodQuery(self.of(OTHER_METHODS), self.of(METHOD_PARAMETERS), self.of(METHODS)),
            6 => Way::MethodForm(
                self.of(OTHER_METHODS),
                self.of(FORM_KINDS),
                self.of(METHOD_PARAMETERS),
                self.of(METHODS),
            ),
            7 => Way::Method(self.of(OTHER_METHODS)),
            8 => Way::PathHeader(self.of(PATH_HEADERS)),
            9 => Way::PrefixHeader(self.of(PREFIX_HEADERS)),
            10 => Way::Split(self.of(PREFIX_HEADERS)),
            _ => Way::OtherId(self.of(OTHER_IDS)),
        }
    }
}

/// Where a space or a line end would end the line, the text is sent escaped.
fn in_a_line(text: &str) -> String {
    text.replace(' ', "%20").replace('\t', "%09")
}

fn request(path: Path, way: Way) -> Request {
    let text = path.text();
    let and = if text.contains('?') { '&' } else { '?' };
    let made = match way {
        Way::Plainly => Request::new("POST", &text).body("application/json", "{}"),
        Way::MethodHeader(line, name, method) => Request::new(line, &text).with(name, method),
        Way::MethodQuery(line, name, method) => Request::new(line, &format!("{text}{and}{name}={}", in_a_line(method))),
        Way::MethodForm(line, kind, name, method) => {
            let form = if kind.to_ascii_lowercase().contains("multipart") {
                format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{method}\r\n--x--\r\n")
            } else {
                format!("a=b&{name}={method}")
            };
            Request::new(line, &text).body(kind, &form)
        }
        Way::Method(line) => Request::new(line, &text),
        Way::PathHeader(name) => Request::new("POST", "/").with(name, &text).body("application/json", "{}"),
        Way::PrefixHeader(name) => {
            Request::new("POST", &format!("/x{text}")).with(name, "/x").body("application/json", "{}")
        }
        Way::Split(name) => {
            let (first, rest) = text.split_at(text[1..].find('/').map_or(1, |at| at + 1));
            Request::new("POST", if rest.is_empty() { "/" } else { rest })
                .with(name, first)
                .body("application/json", "{}")
        }
        Way::OtherId(query) => {
            let path = Path { id: "43", suffix: query, ..path };
            Request::new("POST", &in_a_line(&path.text())).body("application/json", "{}")
        }
    };
    Request { target: made.target, ..made }
}

/// Each part varied alone, and each way.
fn one_by_one() -> Vec<Request> {
    let mut all = Vec::new();
    let plainly = |path: Path| request(path, Way::Plainly);
    all.extend(PREFIXES.iter().map(|prefix| plainly(Path { prefix, ..PLAIN })));
    all.extend(DROPS.iter().map(|drops| plainly(Path { drops, ..PLAIN })));
    all.extend(BETWEEN.iter().map(|first| plainly(Path { first, ..PLAIN })));
    all.extend(IDS.iter().map(|id| plainly(Path { id, ..PLAIN })));
    all.extend(BETWEEN.iter().map(|second| plainly(Path { second, ..PLAIN })));
    all.extend(ORDERS.iter().map(|orders| plainly(Path { orders, ..PLAIN })));
    all.extend(SUFFIXES.iter().map(|suffix| plainly(Path { suffix, ..PLAIN })));
    let mut by = |way: Way| all.push(request(PLAIN, way));
    OTHER_METHODS.iter().for_each(|line| by(Way::Method(line)));
    for name in METHOD_HEADERS {
        ["GET", "PUT"].iter().for_each(|line| by(Way::MethodHeader(line, name, "POST")));
    }
    METHODS.iter().for_each(|method| by(Way::MethodHeader("GET", "X-HTTP-Method-Override", method)));
    METHOD_PARAMETERS.iter().for_each(|name| by(Way::MethodQuery("GET", name, "POST")));
    METHODS.iter().for_each(|method| by(Way::MethodQuery("GET", "_method", method)));
    for kind in FORM_KINDS {
        ["GET", "PUT", "DELETE", "PATCH"].iter().for_each(|line| by(Way::MethodForm(line, kind, "_method", "POST")));
    }
    METHOD_PARAMETERS.iter().for_each(|name| by(Way::MethodForm("PUT", FORM_KINDS[0], name, "POST")));
    METHODS.iter().for_each(|method| by(Way::MethodForm("PUT", FORM_KINDS[0], "_method", method)));
    PATH_HEADERS.iter().for_each(|name| by(Way::PathHeader(name)));
    PREFIX_HEADERS.iter().for_each(|name| by(Way::PrefixHeader(name)));
    PREFIX_HEADERS.iter().for_each(|name| by(Way::Split(name)));
    OTHER_IDS.iter().for_each(|query| by(Way::OtherId(query)));
    for suffix in ["#/orders", "?x#/orders", ";/orders", "%2Forders"] {
        all.push(request(Path { second: "", orders: "", suffix, ..PLAIN }, Way::PathHeader("X-Original-URL")));
    }
    all
}

/// `count` different requests: each part by itself, then as many at once as the numbers say.
pub(super) fn requests(count: usize, numbers: &mut Numbers) -> Vec<Request> {
    let mut all: Vec<Request> = SPELLINGS
        .iter()
        .map(|target| Request::new("POST", target).body("application/json", "{}"))
        .chain(one_by_one())
        .collect();
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    all.retain(|request| seen.insert(request.bytes()));
    while all.len() < count {
        let (path, way) = (numbers.path(), numbers.way());
        let next = request(path, way);
        if seen.insert(next.bytes()) {
            all.push(next);
        }
    }
    all
}
