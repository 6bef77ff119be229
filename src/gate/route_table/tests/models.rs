//! Models of how servers and frameworks read a path. The gate must detect every path at which one of them would sell.

mod steps;

use self::steps::*;
use super::*;

/// Existing servers and the steps they take, according to their documentation and sources.
const SERVERS: [(&str, &[Step]); 32] = [
    ("Express: the path as it came, each parameter decoded", &[decode_segments]),
    ("Node: new URL", &[whatwg]),
    ("Node: new URL, decoded", &[whatwg, decode]),
    ("Node: new URL, each segment decoded", &[whatwg, decode_segments]),
    ("Node: decoded, new URL", &[decode, whatwg]),
    ("Node: path.normalize, decoded", &[clean, decode]),
    ("Node: decoded, path.normalize", &[decode, clean]),
    ("Django, Flask: decoded", &[decode]),
    ("Flask: decoded, merged", &[decode, merge]),
    ("Python: urlsplit, unquote", &[reference, decode]),
    ("Python: unquote, urlsplit, normpath", &[decode, reference, clean]),
    ("PHP: parse_url, rawurldecode", &[reference, decode]),
    ("PHP: a front controller", &[decode, merge, path_info]),
    ("Apache: decoded, dots, merged", &[decode, rfc_dots, merge]),
    ("Apache: AllowEncodedSlashes NoDecode", &[decode_segments, clean]),
    ("nginx: decoded, dots, merged", &[decode, clean]),
    ("Go: ServeMux", &[decode, clean]),
    ("Spring: PathPattern", &[cut_parameters, decode_segments]),
    ("Spring: AntPathMatcher", &[cut_parameters, decode, merge]),
    ("Tomcat", &[cut_parameters, decode, backslashes, clean]),
    ("Tomcat, the other way round", &[decode, cut_parameters, clean]),
    ("Jetty: dots first", &[cut_parameters, rfc_dots, decode]),
    ("Jetty, old: cut at the first ;", &[|path| cut_at(path, &[';']), decode, clean]),
    ("IIS", &[decode, backslashes, clean, windows_names]),
    ("twice decoded behind a proxy", &[decode, clean, decode, clean]),
    ("a proxy with dots first, then decoded twice", &[clean, decode, decode]),
    ("uWSGI", &[uwsgi]),
    ("CherryPy", &[decode, merge, punctuation_to_underscores]),
    ("a front that keeps what it knows, then decodes", &[sanitise, decode]),
    ("a front that decodes, then keeps what it knows", &[decode, sanitise]),
    ("a front that decodes twice, then keeps what it knows", &[decode, decode, sanitise]),
    ("C: up to NUL", &[decode, |path| cut_at(path, &['\0']), clean]),
];

/// Whether a server that has reached this path sells drop 42.
fn sells(path: &[char]) -> bool {
    let text = path.iter().collect::<String>().to_ascii_lowercase();
    let parts: Vec<&str> = text.trim_matches('/').split('/').filter(|part| !part.is_empty()).collect();
    let [word, id, last] = parts[..] else { return false };
    let last = last.split_once('.').map_or(last, |(last, _)| last);
    // C's `atoi` and JavaScript's `parseInt` read up to the first character that is no digit.
    let id: String = id.trim_start_matches(['+', '0', ' ']).chars().take_while(char::is_ascii_digit).collect();
    // Dispatchers that name functions and classes by paths compare so.
    let bare = |text: &str| text.replace(['-', '_'], "");
    bare(word) == "limiteddrops" && id == "42" && last.trim_end() == "orders"
}

fn assert_seen(path: &str, by: &str) -> Result<(), proptest::test_runner::TestCaseError> {
    let seen = classify(path);
    proptest::prop_assert!(is_guarded(&seen, drop_of(42)), "{by} sells at {path}: {seen:?}");
    Ok(())
}

/// Parts of the paths of disguised purchases.
fn disguised() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::{prelude::*, sample::select};
    let front = select(vec![
        "",
        "",
        "",
        "/x/..",
        "/a%2Fb/..",
        "/a%5Cb/..",
        "//h",
        "/\\h",
        "///h",
        "/;a",
        "/a;%2Fb/..",
        "/.",
        "/%2e",
        "/..",
        "/a/%2e%2e",
        "/a%2Fb/%2E.",
        "/%2F",
        "/%2Fh",
        "/index.php",
        "/a/..;x",
        "/a%2Fb/..%3B",
        "/...",
        "/%252F",
        "/.//h",
    ]);
    let between = || {
        select(vec![
            "/",
            "/",
            "/",
            "/",
            "//",
            "/./",
            "/x/../",
            "\\",
            "%2F",
            "%252F",
            "/;a/",
            "%5C",
            "/x/%2e%2e/",
            "/a%2Fb/../",
            ";%2Fx/",
            ";/",
            "/..;/",
            "/%2e/",
            "/a%2Fb/%2e%2e/",
            "/a;b%2Fc/../",
            "/.%00/",
            "/%2e%2e%2f",
            "/a%5Cb/../",
            "/../",
            "/x//../",
            "//../",
            "/%2e%2e/../",
            "/b%c0%afc/../",
            "%2Fb;c/../",
            "/x%23/..%2F",
        ])
    };
    let word = select(vec![
        "limited-drops",
        "limited-drops",
        "Limited-Drops",
        "limited%2Ddrops",
        "limited%252Ddrops",
        "%6Cimited-drops",
        "limited-drops;a",
        "limited-drops%3Ba",
        "limited-drops.",
        "limited-drops%2Fx%2F..",
        "limited-drops%20",
        "limited_drops",
        "limited.drops",
        "limited%drops",
        "limited-%25drops",
        "limi%2500ted-drops",
    ]);
    let id = select(vec![
        "42", "42", "42", "%34%32", "042", "42;x", "42%2Fx", "42%3Bx", "%2542", "+42", "42%3F", "42%23", "42%5C", "42.",
    ]);
    let last = select(vec![
        "orders",
        "orders",
        "ORDERS",
        "order%73",
        "orders;a",
        "orders%3Ba%2Fb",
        "orders;%2F",
        "orders.json",
        "orders%3Fx",
        "orders%23",
        "orders%00",
        "orders%2F",
        "orders.",
        "orders%2e",
        "orders/",
        "orders%252F",
        "orders/.",
        "orders/x/..",
        "orders;/x",
        "orders%3B/x",
        "orders/..;/orders",
        "orders//",
        "orders%0A/x",
        "orders%0d%0ax",
        "orders%3F/..",
        "orders%",
        "orders%2",
        "orders%0z",
        "or%ders",
        "or%25ders",
        "or~ders",
    ]);
    (front, between(), word, between(), id, between(), last).prop_map(|(front, a, word, b, id, c, last)| {
        let path = format!("{front}{a}{word}{b}{id}{c}{last}");
        if path.starts_with(['/', '\\']) { path } else { format!("/{path}") }
    })
}

#[test]
fn the_models_sell_under_disguise_what_they_are_known_to() {
    for (server, path) in [
        (1, "//x/limited-drops/42/orders"),
        (1, "/a%2Fb/%2e%2e/limited-drops/42/orders"),
        (5, "/a%2Fb/../limited%2Ddrops/42/orders"),
        (12, "/index.php/limited-drops/42/orders"),
        (14, "/a%2Fb/../limited-drops/42/orders"),
        (17, "/limited%2Ddrops;%2Fx/42/orders"),
        (22, "/limited-drops/42/orders;/x"),
        (26, "/limited-drops/42/orders%"),
        (27, "/limited.drops/42/orders"),
        (28, "/limited-drops/42/or%ders"),
        (29, "/limited-drops/42/or%25ders"),
    ] {
        let (name, steps) = SERVERS[server];
        assert!(sells(&steps.iter().fold(chars(path), |path, step| step(&path))), "{name}: {path}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(500))]

    /// The gate detects every path at which an existing server would sell.
    #[test]
    fn whatever_a_server_sells_the_gate_has_seen(path in disguised()) {
        for (name, steps) in SERVERS {
            if sells(&steps.iter().fold(chars(&path), |path, step| step(&path))) {
                assert_seen(&path, name)?;
            }
        }
    }

    /// The same for servers that take these steps in another order, or twice.
    #[test]
    fn whatever_any_chain_of_servers_sells_the_gate_has_seen(
        path in disguised(),
        chains in proptest::collection::vec(proptest::collection::vec(0..STEPS.len(), 1..6), 40),
    ) {
        for chain in chains {
            if sells(&chain.iter().fold(chars(&path), |path, step| STEPS[*step].1(&path))) {
                let names: Vec<&str> = chain.iter().map(|step| STEPS[*step].0).collect();
                assert_seen(&path, &names.join(", "))?;
            }
        }
    }
}
