//! Purchases in another spelling than the canonical one: none passes.

use super::*;

/// Other spellings of the purchase of drop 42, with a canonical id.
const ODD_DROP_PATHS: &[&str] = &[
    // Too many slashes.
    "/limited-drops/42/orders/",
    "/limited-drops/42/orders//",
    "//limited-drops/42/orders",
    "///limited-drops/42/orders",
    "/limited-drops//42/orders",
    "/limited-drops/42//orders",
    "/limited-drops/42///orders//",
    "limited-drops/42/orders",
    // Dot segments.
    "/./limited-drops/42/orders",
    "/limited-drops/./42/orders",
    "/limited-drops/42/./orders",
    "/limited-drops/42/orders/.",
    "/limited-drops/42/orders/x/..",
    "/x/../limited-drops/42/orders",
    "/../limited-drops/42/orders",
    "/../../limited-drops/42/orders",
    "/limited-drops/x/../42/orders",
    "/limited-drops/42/x/../orders",
    "/limited-drops/42/seats/..//orders",
    "/limited-drops//../limited-drops/42/orders",
    "/x//../limited-drops/42/orders",
    "/a/b/../../limited-drops/42/orders",
    "/limited-drops/42/orders/../orders",
    "/limited-drops/42/orders/x/y/../..",
    "/limited-drops//../42/orders",
    "/limited-drops/%00/../42/orders",
    "/limited-drops%2F%00%2F%2F..%2F42/orders",
    // Encoded dots.
    "/x/%2e%2e/limited-drops/42/orders",
    "/x/%2E./limited-drops/42/orders",
    "/x/.%2e/limited-drops/42/orders",
    "/%2e/limited-drops/42/orders",
    "/x/%252e%252e/limited-drops/42/orders",
    "/x/%c0%ae%c0%ae/limited-drops/42/orders",
    "/x/%u002e%u002e/limited-drops/42/orders",
    "/x/..;/limited-drops/42/orders",
    "/x/..;a=b/limited-drops/42/orders",
    "/x/..%00/limited-drops/42/orders",
    "/x/..%09/limited-drops/42/orders",
    "/limited-drops/x/..;/42/orders",
    // Encoded slashes.
    "/limited-drops%2F42/orders",
    "/limited-drops%2f42%2forders",
    "%2Flimited-drops%2F42%2Forders",
    "/limited-drops%252F42%252Forders",
    "/limited-drops%25252F42%25252Forders",
    "/limited-drops%2525252F42/orders",
    "/limited-drops%25%32%4642/orders",
    "/limited-drops%c0%af42%c0%aforders",
    "/limited-drops%u002f42%u002forders",
    "/limited-drops%EF%BC%8F42/orders",
    "/x/..%2Flimited-drops/42/orders",
    "/x%2F..%2Flimited-drops/42/orders",
    "/x/..%252flimited-drops/42/orders",
    "/static/..%5Climited-drops/42/orders",
    // Backslashes.
    "\\limited-drops\\42\\orders",
    "/limited-drops\\42\\orders",
    "/limited-drops\\42/orders",
    "/limited-drops%5C42%5Corders",
    "/limited-drops%255C42/orders",
    "/x\\..\\limited-drops/42/orders",
    "/\\limited-drops/42/orders",
    // Encoded letters.
    "/limited%2Ddrops/42/orders",
    "/limited-drops/42/order%73",
    "/limited-drops/42/order%2573",
    "/%6cimited-drops/42/orders",
    "/%6c%69%6d%69%74%65%64%2d%64%72%6f%70%73/42/orders",
    "/limited-drops/42/%u006frders",
    "/limited-drops/42/%c1%afrders",
    "/limited-drops%e0%80%af42/orders",
    "/Limited-Drops/42/orders",
    "/LIMITED-DROPS/42/ORDERS",
    "/limited-drops/42/Orders",
    "/limited-drops/42/order%53",
    "/limited-drops/42/order%C5%BF",
    "/l%C4%B0mited-drops/42/orders",
    "/l%C4%B1mited-drops/42/orders",
    "/LIM%C4%B0TED-DROPS/42/orders",
    "/limited-drops/42/orders+",
    "/limited-drops/42/%EF%BD%8Frders",
    // Suffixes, parameters, tails.
    "/limited-drops/42/orders.json",
    "/limited-drops/42/orders.xml",
    "/limited-drops/42/orders.",
    "/limited-drops/42/orders..",
    "/limited-drops/42/orders%2Ejson",
    "/limited-drops/42/ORDERS.JSON",
    "/limited-drops/42/orders.json/",
    "/limited-drops./42/orders",
    "/limited-drops/42/orders;",
    "/limited-drops/42/orders;jsessionid=1",
    "/limited-drops;a=b/42/orders",
    "/limited-drops;a=b;c/42/orders;d",
    "/;x/limited-drops/42/orders",
    "/limited-drops/42/orders%3Bx=1",
    "/limited-drops%2F42/orders;%252Fx",
    "/limited-drops%2F42/orders.%252Fjson",
    "/limited-drops/42/orders%3Fx=1",
    "/limited-drops/42/orders%253Fx=1",
    "/limited-drops/42/orders%23x",
    "/limited-drops/42/orders%3Fx=/../..",
    // Characters that C, logs and terminals read in their own way.
    "/limited-drops/42/orders%00",
    "/limited-drops/42/orders%00.png",
    "/limited-drops/42/orders%00/x",
    "/limited-drops/42/orders%0a",
    "/limited-drops/42/orders%0d%0aX-User-Id:%208",
    "/limited-drops/42/orders%20",
    "/limited-drops/42/%20orders",
    "/limited-drops/42/orders%09",
    "/limited-drops/42/orders%7f",
    "/limited-%00drops/42/orders",
    "/limited-drops/42/orders%C2%A0",
    "/limited-drops/42/orders%E2%80%8B",
    "/limited-drops/42/orders%EF%BB%BF",
    "/%00/limited-drops/42/orders",
    // Hosts.
    "//x/limited-drops/42/orders",
    "///x/limited-drops/42/orders",
    "////x//limited-drops/42/orders",
    "/\\x/limited-drops/42/orders",
    "\\\\x/limited-drops/42/orders",
    "//x:80@y/limited-drops/42/orders",
    "//x%2Fy/limited-drops/42/orders",
    "/%2Fx/limited-drops/42/orders",
    "/%09/x/limited-drops/42/orders",
    "/.//x/limited-drops/42/orders",
    "/y/..//x/limited-drops/42/orders",
    "//x/limited%2Ddrops;%2Fy/42/orders",
    "//x//y/limited-drops/42/orders",
    "//limited-drops/limited-drops/42/orders",
    // One part decoded, another not.
    "/a%2Fb/../limited-drops/42/orders",
    "/a%2Fb/%2e%2e/limited-drops/42/orders",
    "/a%2Fb/../limited%2Ddrops/42/orders",
    "/a%2Fb/.%2E/limited%252Ddrops/42/orders",
    "/a%5Cb/../limited-drops/42/orders",
    "/a%2Fb/..%3Bx/limited-drops/42/orders",
    "/a%252Fb/%2e%2e/limited%2Ddrops/42/orders",
    "/limited%2Ddrops;%2Fx/42/orders",
    "/limited%2Ddrops;x/42/orders;%2F",
    "/limited-drops/42/orders%3Ba%2Fb",
    "/limited-drops%3Ba/42/orders%3Bb",
    "/limited-drops/42/orders;/x",
    "/limited-drops/42/orders%3B/x",
    "/limited-drops/%2e%2e/../42/orders",
    "/limited-drops%2Fb%c0%afc/../42/orders",
    "/limited-drops/42/x%23/..%2Forders%3Fz",
    "/limited-drops/42/orders%2F..%2F..%2F42/orders",
    "/.../limited-drops/42/orders",
    // Front controllers.
    "/index.php/limited-drops/42/orders",
    "/app_dev.php/limited-drops/42/orders",
    "/shop/index.php/limited-drops/42/orders",
    "/INDEX.PHP/limited-drops/42/orders",
    "/index%2Ephp/limited-drops/42/orders",
    "/index.php;x//limited-drops/42/orders/",
    "/limited-drops/index.php/42/orders",
    "/index.php5/limited-drops/42/orders",
    "/cgi-bin/shop.cgi/limited-drops/42/orders",
    // A lone or cut `%`, invalid escapes, and what a sanitising front end drops.
    "/limited-drops/42/orders%",
    "/limited-drops/42/orders%7",
    "/limited-drops/42/orders%zz",
    "/limited-drops/42/orde%rs",
    "/limited-drops/42/or%ders",
    "/limited-drops/42/or%25ders",
    "/limited-drops/42/or%2525ders",
    "/limited-drops/42/or%252525ders",
    "/limited-dro%7zs/42/orders",
    "/limited%%drops/42/orders",
    "/limi..ted-drops/42/orders",
    "/limi../ted-drops/42/orders",
    "/limi~ted-drops/42/orders",
    "/limi%E2%80%8Dted-drops/42/orders",
    "/limi%F3%A0%80%81ted-drops/42/orders",
    "/limi%CC%88ted-drops/42/orders",
    // One punctuation character instead of another.
    "/limited.drops/42/orders",
    "/limited!drops/42/orders",
    "/limited%20drops/42/orders",
    "/limited+drops/42/orders",
    "/limited%7Edrops/42/orders",
    "/limited%E2%80%90drops/42/orders",
    // Characters that some comparison takes for other letters.
    "/limited-dr%C3%B6ps/42/orders",
    "/limited-dr%F6ps/42/orders",
    "/l%EF%BD%89mited-drops/42/orders",
    "/limited-drops/42/%E2%93%9Erders",
    "/limited-drops/42/%F0%9D%90%A8rders",
    "/l%C2%A1mited-drops/42/orders",
    // A word removed and added again; words of another path in front.
    "/limited-drops/42/orders/../../../limited-drops/42/orders",
    "/limited-drops/../limited-drops/42/orders",
    "/orders/42/..%2F..%2Flimited-drops/42/orders",
    "/x/..%2F%2e%2e/limited-drops;a/42;b/orders;c",
    "/VirtualHostBase/http/shop:80/VirtualHostRoot/limited-drops/42/orders",
    "/limited-drops/42/orders%2F7%2F..",
    // Several at once.
    "//limited-drops/./42//orders/;x",
    "/x/%252e%252e%252fLimited-Drops%252f42%252fORDERS.json",
    "/x/..%5c..;/limited-drops;v=1/42/orders%00",
];

/// Purchases of drop 42 at a shop that reads ids leniently.
const ODD_DROP_IDS: &[&str] = &[
    "042",
    "00042",
    "+42",
    "%2B42",
    "-42",
    "%2042",
    "42%20",
    "%0942",
    "42%0a",
    "42.0",
    "42.",
    "42,0",
    "42.json",
    "4.2e1",
    "42e0",
    "0x2a",
    "0X2A",
    "0b101010",
    "052",
    "0o52",
    "42abc",
    "42;v=1",
    "42;",
    "42%3Bv",
    "%34%32",
    "4%32",
    "%2534%32",
    "4_2",
    "\"42\"",
    "'42'",
    "%2242%22",
    "(42)",
    "[42]",
    "{42}",
    "$42",
    "42L",
    "42n",
    "42%00",
    "42%00x",
    "%0042",
    "42%2F",
    "42%5C",
    "42%2F.",
    "42%3F",
    "42%23",
    "42:1",
    "42-1",
    "42~",
    "42!",
    "42@x",
    "x42",
    "%D9%A4%D9%A2",
    "%EF%BC%94%EF%BC%92",
    "%E0%A5%AA%E0%A5%A8",
    "18446744073709551658",
    "04294967338",
    "42%2Fx",
    "42%2F..%2Fx",
    "x%2F..%2F42",
    "%E2%81%B4%C2%B2",
    "%EA%98%A4%EA%98%A2",
    "%E0%B7%AA%E0%B7%A8",
    "%E1%A5%8A%E1%A5%88",
    "%F0%9D%9F%B0%F0%9D%9F%AE",
    "%F0%9D%9F%BA%F0%9D%9F%B8",
    "%F0%9E%A5%94%F0%9E%A5%92",
    "0x2_a",
    "summer-sale",
    "%u0034%u0032",
    "%E2%80%8B42",
];

#[test]
fn every_other_spelling_of_a_gated_path_is_noticed() {
    for path in ODD_DROP_PATHS {
        let seen = classify(path);
        assert!(is_guarded(&seen, drop_of(42)) && !matches!(seen, RouteMatch::Gated(..)), "{path}: {seen:?}");
    }
}

#[test]
fn a_plain_path_with_a_canonical_id_is_about_that_target_alone() {
    for path in [
        "/limited-drops/42/orders/",
        "/Limited-Drops/42/ORDERS",
        "/limited_drops/42/orders",
        "/limited_drops/42/orders_/",
        "/limitedDrops/42/orders",
        "/limiteddrops/42/Orders",
        "/-limited--drops-/42/orders",
    ] {
        assert_eq!(classify(path), odd(drop_of(42)), "{path}");
    }
}

#[test]
fn an_odd_path_may_be_about_any_target_of_its_kind() {
    let any = RouteMatch::OddSpelling(vec![Suspect::AnyOf(QueueTargetType::LimitedDrop)]);
    for path in ["//limited-drops/42/orders", "/limited%2Ddrops/42/orders;x", "/x/../limited-drops/42/orders"] {
        assert_eq!(classify(path), any, "{path}");
    }
}

#[test]
fn an_id_that_only_a_shop_would_read_may_be_any() {
    let any = vec![Suspect::AnyOf(QueueTargetType::LimitedDrop)];
    let none = ["0", "9223372036854775808", "99999999999999999999999999", "%", "%zz", "-"];
    for id in ODD_DROP_IDS.iter().chain(&none) {
        let is_plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        let expected = if is_plain { RouteMatch::UnknownId(any.clone()) } else { RouteMatch::OddSpelling(any.clone()) };
        assert_eq!(classify(&format!("/limited-drops/{id}/orders")), expected, "{id}");
    }
}

/// A shop that cuts ids to 32 bits would read these as 42. It would sell 42 to buyers of the other id, with or without
/// a queue.
#[test]
fn a_canonical_id_is_nothing_but_itself() {
    for id in [4_294_967_338, 1_u64 << 62 | 42] {
        assert_eq!(
            classify(&format!("/limited-drops/{id}/orders")),
            RouteMatch::Gated(drop_of(id), PassRule::NeedsAndSpends)
        );
        assert_eq!(classify(&format!("/limited-drops/{id}/orders/")), odd(drop_of(id)));
    }
}

#[test]
fn the_other_route_is_guarded_alike() {
    for path in [
        "/events/7/seats/select/",
        "/events/7//seats/select",
        "/EVENTS/7/seats/Select",
        "/events/7/seats%2Fselect",
        "/events/7%2Fseats/select",
        "/events/7/tickets/../seats/select",
        "/events/7/seats/select.json",
        "/events/7/seats;x/select",
        "/event%73/7/seats/select",
        "/events/7/seats%252fselect",
    ] {
        let seen = classify(path);
        assert!(is_guarded(&seen, event(7)) && !matches!(seen, RouteMatch::Gated(..)), "{path}: {seen:?}");
    }
    let any = RouteMatch::UnknownId(vec![Suspect::AnyOf(QueueTargetType::TicketingEvent)]);
    assert_eq!(classify("/events/07/seats/select"), any);
}

#[test]
fn a_path_that_may_mean_several_kinds_names_them_all() {
    let seen = classify("/limited-drops/42/orders%3F/../../../events/43/seats/select");
    let both = [QueueTargetType::LimitedDrop, QueueTargetType::TicketingEvent].map(Suspect::AnyOf);
    assert_eq!(seen, RouteMatch::OddSpelling(both.to_vec()));
}

#[test]
fn a_path_may_be_as_long_as_it_likes() {
    let any = RouteMatch::OddSpelling(vec![Suspect::AnyOf(QueueTargetType::LimitedDrop)]);
    let long = "/x/..".repeat(1000);
    assert_eq!(classify(&format!("{long}/limited-drops/42/orders")), any);
    assert_eq!(classify(&format!("{long}/limited-drops/42")), RouteMatch::NotGated);
    let padding = "a".repeat(600);
    for id in ["42", "0x2a", "%D9%A4%D9%A2"] {
        assert_eq!(classify(&format!("/limited-drops/{id}/orders;{padding}")), any, "{id}");
    }
    let many = "//x".repeat(100);
    assert_eq!(classify(&format!("{many}/limited-drops/42/orders")), any);
}

proptest::proptest! {
    /// No mixture of disguises makes a purchase pass.
    #[test]
    fn no_mixture_of_disguises_passes(
        slash in proptest::sample::select(vec!["/", "//", "/./", "/x/../", "\\", "%2F", "%252f", "/;/", "%5C", "/x/%2e%2e/"]),
        other in proptest::sample::select(vec!["/", "//", "/.//", "/y/..;/", "%2f", "\\.\\"]),
        id in proptest::sample::select(vec!["42", "042", "%34%32", "42;x", "+42", "42.0"]),
        end in proptest::sample::select(vec!["", "/", ".json", ";a=b", "%00", "%3Fq", "%20", "/.", "/z/.."]),
        word in proptest::sample::select(vec!["orders", "ORDERS", "order%73", "%6Frders"]),
    ) {
        let path = format!("/limited-drops{slash}{id}{other}{word}{end}");
        let seen = classify(&path);
        let is_canonical = path == "/limited-drops/42/orders";
        let noticed = is_guarded(&seen, drop_of(42)) && is_canonical == matches!(seen, RouteMatch::Gated(..));
        proptest::prop_assert!(noticed, "{path}: {seen:?}");
    }

    /// Every path gets an answer.
    #[test]
    fn no_path_makes_it_panic(path in "[%/.;\\\\?#a-fA-F0-9u\u{0}-\u{20}]{0,40}limited-drops[%/.;\\\\0-9]{0,20}orders.{0,20}") {
        let _ = classify(&path);
    }
}
