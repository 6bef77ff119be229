//! Which tokens are believed, and which are not.

mod any;
mod files;
mod signer;
mod visitors;

use std::time::Duration;

use jsonwebtoken::{Algorithm, Header, jwk::Jwk};
use serde_json::{Value, json};

use self::signer::{EC, OTHER_RSA, RSA, Signer, put_together, sign_with_secret};
use super::*;
use crate::{
    clock::FakeClock,
    config::{Config, JwtAlgorithm},
};

const NOW: u64 = 1_790_000_000;
const SECRET: &[u8] = b"a secret of 32 bytes or more, of the tests alone";
const BOTH: &[JwtAlgorithm] = &[JwtAlgorithm::Rs256, JwtAlgorithm::Es256];

fn config() -> IdentityConfig {
    IdentityConfig { mode: IdentityMode::Jwt, ..Config::parse_default().identity }
}

fn identify(keys: KeySet, config: &IdentityConfig) -> Identify {
    let clock = StoreClock::new(FakeClock::at(NOW * 1000 + 500));
    let tokens = Tokens { rules: Rules::from_config(config), keys: Keys::Fixed(keys), clock };
    Identify { source: Source::Token(Arc::new(tokens)), form: config.ids }
}

fn by_pem(signer: &Signer) -> Identify {
    identify(KeySet::from_pem(&signer.public_pem, BOTH).unwrap(), &config())
}

fn by_jwks(keys: &[Value]) -> Identify {
    identify(KeySet::from_jwks(json!({ "keys": keys }).to_string().as_bytes(), BOTH).unwrap(), &config())
}

fn by_secret() -> Identify {
    identify(KeySet::from_secret(SECRET).unwrap(), &config())
}

/// These headers, doubled ones too.
pub(crate) fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    map
}

fn user_of(identify: &Identify, token: &str) -> Result<u64, Unidentified> {
    identify.user(&headers(&[("authorization", &format!("Bearer {token}"))])).map(UserId::get)
}

fn good() -> Value {
    json!({ "sub": "42", "exp": NOW + 60 })
}

#[test]
fn a_token_of_each_algorithm_is_believed() {
    let (rsa, ec) = (RSA.sign(Some("r"), &good()), EC.sign(Some("e"), &good()));
    assert_eq!(user_of(&by_pem(&RSA), &rsa), Ok(42));
    assert_eq!(user_of(&by_pem(&EC), &ec), Ok(42));
    let both = by_jwks(&[RSA.published("r"), EC.published("e")]);
    assert_eq!((user_of(&both, &rsa), user_of(&both, &ec)), (Ok(42), Ok(42)));
    assert_eq!(user_of(&by_secret(), &sign_with_secret(Algorithm::HS256, SECRET, &good())), Ok(42));
}

#[test]
fn the_claims_decide() {
    let config =
        IdentityConfig { jwt_audience: Some("shop".into()), jwt_issuer: Some("https://login/".into()), ..config() };
    let identify = identify(KeySet::from_secret(SECRET).unwrap(), &config);
    let base = json!({ "sub": "42", "exp": NOW + 60, "aud": "shop", "iss": "https://login/" });
    let with = |changes: &Value| {
        let mut claims = base.clone();
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        user_of(&identify, &sign_with_secret(Algorithm::HS256, SECRET, &claims))
    };
    let without = |name: &str| {
        let mut claims = base.clone();
        claims.as_object_mut().unwrap().remove(name);
        user_of(&identify, &sign_with_secret(Algorithm::HS256, SECRET, &claims))
    };
    for fine in [
        json!({}),
        json!({ "sub": 42 }),
        json!({ "exp": NOW - 29 }),
        json!({ "exp": NOW as f64 + 0.5 }),
        json!({ "exp": u64::MAX }),
        json!({ "nbf": NOW + 30 }),
        json!({ "nbf": 0 }),
        json!({ "aud": ["bank", "shop"] }),
        json!({ "iat": "nonsense", "jti": null, "roles": ["a"] }),
    ] {
        assert_eq!(with(&fine), Ok(42), "{fine}");
    }
    assert_eq!(with(&json!({ "sub": i64::MAX })), Ok(i64::MAX as u64));
    assert_eq!(with(&json!({ "sub": "9223372036854775807" })), Ok(i64::MAX as u64));
    for bad in [
        json!({ "exp": NOW - 30 }),
        json!({ "exp": NOW - 31 }),
        json!({ "exp": 0 }),
        json!({ "exp": -1 }),
        json!({ "exp": "9999999999" }),
        json!({ "exp": null }),
        json!({ "nbf": NOW + 31 }),
        json!({ "nbf": "0" }),
        json!({ "nbf": null }),
        json!({ "aud": "bank" }),
        json!({ "aud": ["bank"] }),
        json!({ "aud": [] }),
        json!({ "aud": { "shop": 1 } }),
        json!({ "aud": "Shop" }),
        json!({ "iss": "https://login" }),
        json!({ "iss": ["https://login/"] }),
        json!({ "sub": "" }),
        json!({ "sub": "0" }),
        json!({ "sub": 0 }),
        json!({ "sub": "042" }),
        json!({ "sub": "+42" }),
        json!({ "sub": " 42" }),
        json!({ "sub": -42 }),
        json!({ "sub": 42.0 }),
        json!({ "sub": 42.5 }),
        json!({ "sub": "42.0" }),
        json!({ "sub": 1e300 }),
        json!({ "sub": 9_223_372_036_854_775_808_u64 }),
        json!({ "sub": "9223372036854775808" }),
        json!({ "sub": u64::MAX }),
        json!({ "sub": ["42"] }),
        json!({ "sub": { "id": 42 } }),
        json!({ "sub": true }),
        json!({ "sub": null }),
    ] {
        assert_eq!(with(&bad), Err(Unidentified::NoToken), "{bad}");
    }
    for needed in ["sub", "exp", "aud", "iss"] {
        assert_eq!(without(needed), Err(Unidentified::NoToken), "without {needed}");
    }
}

#[test]
fn the_id_is_in_the_claim_that_is_configured() {
    let config = IdentityConfig { jwt_claim: "https://shop/user_id".into(), jwt_leeway_seconds: 0, ..config() };
    let identify = identify(KeySet::from_secret(SECRET).unwrap(), &config);
    let user = |claims: Value| user_of(&identify, &sign_with_secret(Algorithm::HS256, SECRET, &claims));
    assert_eq!(user(json!({ "sub": "auth0|7", "https://shop/user_id": 42, "exp": NOW + 1 })), Ok(42));
    assert_eq!(user(json!({ "sub": "7", "exp": NOW + 1 })), Err(Unidentified::NoToken));
    assert_eq!(user(json!({ "https://shop/user_id": 42, "exp": NOW })), Err(Unidentified::NoToken), "no leeway");
    assert_eq!(user(json!({ "https://shop/user_id": 42, "exp": NOW + 60, "aud": "anybody" })), Ok(42), "not asked");
}

#[test]
fn what_a_token_says_of_its_algorithm_changes_nothing() {
    let both = by_jwks(&[RSA.published("r"), EC.published("e")]);
    let rsa = RSA.sign(Some("r"), &good());
    let (_, signature) = rsa.rsplit_once('.').unwrap();
    let body = good().to_string();
    let mut tokens = vec![
        // A secret that everybody knows: the public key.
        sign_with_secret(Algorithm::HS256, &RSA.public_pem, &good()),
        sign_with_secret(Algorithm::HS256, RSA.public_pem.trim_ascii(), &good()),
        // Another key of the same kind.
        OTHER_RSA.sign(Some("r"), &good()),
        OTHER_RSA.sign(None, &good()),
        // Algorithms that nobody configured, with the right key.
        RSA.sign_with(&Header { kid: Some("r".into()), ..Header::new(Algorithm::RS512) }, &good()),
        RSA.sign_with(&Header { kid: Some("r".into()), ..Header::new(Algorithm::PS256) }, &good()),
        // Parts that do not belong together.
        format!("{}.{signature}", put_together(r#"{"alg":"RS256","kid":"r"}"#, &body, "").trim_end_matches('.')),
        rsa.replacen('.', "..", 1),
        format!("{rsa}.{signature}"),
        format!("{rsa}="),
        rsa[..rsa.len() - 4].to_owned(),
        signature.to_owned(),
        "..".to_owned(),
    ];
    for algorithm in ["none", "None", "NONE", "nOnE", "", "HS256", "RS256", "ES256", "EdDSA", "rs256"] {
        for kid in ["", r#","kid":"r""#] {
            for end in ["", signature, "AA"] {
                let claims = json!({ "sub": "43", "exp": NOW + 60 }).to_string();
                tokens.push(put_together(&format!(r#"{{"alg":"{algorithm}"{kid}}}"#), &claims, end));
            }
        }
    }
    tokens.push(put_together(r#"{"typ":"JWT"}"#, &body, signature));
    tokens.push(put_together("[]", &body, signature));
    for (name, identify) in [("jwks", both), ("rsa", by_pem(&RSA)), ("ec", by_pem(&EC)), ("secret", by_secret())] {
        for token in &tokens {
            assert_eq!(user_of(&identify, token), Err(Unidentified::NoToken), "{name}: {token}");
        }
    }
}

#[test]
fn a_token_names_its_key_and_a_key_that_stands_alone_needs_no_name() {
    let (both, alone) = (by_jwks(&[RSA.published("r"), EC.published("e")]), by_pem(&RSA));
    for (name, by_name) in [
        ("r", Ok(42)),
        ("e", Err(Unidentified::NoToken)),
        ("R", Err(Unidentified::NoToken)),
        // As without a name.
        ("", Ok(42)),
    ] {
        let token = RSA.sign(Some(name), &good());
        assert_eq!((user_of(&both, &token), user_of(&alone, &token)), (by_name, Ok(42)), "{name:?}");
    }
}

#[test]
fn a_token_brings_no_key_of_its_own() {
    let theirs: Jwk = serde_json::from_value(OTHER_RSA.published("r")).unwrap();
    let header = Header {
        jwk: Some(theirs),
        jku: Some("http://127.0.0.1:1/jwks".into()),
        kid: Some("r".into()),
        ..Header::new(Algorithm::RS256)
    };
    let forged = OTHER_RSA.sign_with(&header, &good());
    for identify in [by_jwks(&[RSA.published("r")]), by_pem(&RSA)] {
        assert_eq!(user_of(&identify, &forged), Err(Unidentified::NoToken));
    }
    let critical = Header { crit: Some(vec!["exp".into()]), ..Header::new(Algorithm::RS256) };
    assert_eq!(user_of(&by_pem(&RSA), &RSA.sign_with(&critical, &good())), Err(Unidentified::NoToken));
}

#[test]
fn without_a_name_there_must_be_one_key_that_fits() {
    let one_each = by_jwks(&[RSA.published("r"), EC.published("e")]);
    assert_eq!(user_of(&one_each, &RSA.sign(None, &good())), Ok(42));
    let two = by_jwks(&[RSA.published("r"), OTHER_RSA.published("o")]);
    assert_eq!(user_of(&two, &RSA.sign(None, &good())), Err(Unidentified::NoToken));
    assert_eq!(user_of(&two, &OTHER_RSA.sign(Some("o"), &good())), Ok(42));
}

#[test]
fn there_is_one_authorization_and_it_is_a_bearer_token() {
    let token = sign_with_secret(Algorithm::HS256, SECRET, &good());
    let user = |lines: &[&str]| {
        let lines: Vec<_> = lines.iter().map(|line| ("authorization", *line)).collect();
        by_secret().user(&headers(&lines))
    };
    for good in [format!("Bearer {token}"), format!("bearer {token}"), format!("BEARER   {token} ")] {
        assert!(user(&[&good]).is_ok(), "{good}");
    }
    let bearer = format!("Bearer {token}");
    for bad in [
        &[] as &[&str],
        &[&*bearer, &bearer],
        &[&*bearer, "Basic dXNlcjpwYXNz"],
        &[&*format!("Basic {token}")],
        &[&*token],
        &[&*format!("Bearer{token}")],
        &[&*format!("Bearer {token}, {token}")],
        &[&*format!("Bearer {token} {token}")],
        &[&*format!("Bearer\t{token}")],
        &["Bearer "],
        &["Bearer"],
        &["Bearer 김.김.김"],
        &[&*format!("Bearer {}", "a".repeat(MAX_TOKEN_BYTES + 1))],
    ] {
        assert_eq!(user(bad), Err(Unidentified::NoToken), "{bad:?}");
    }
    let by_header_only = by_secret().user(&headers(&[("x-user-id", "42")]));
    assert_eq!(by_header_only, Err(Unidentified::NoToken), "the header counts for nothing");
}

#[test]
fn the_shop_learns_the_id_from_the_token_and_from_nothing_else() {
    let bearer = format!("Bearer {}", sign_with_secret(Algorithm::HS256, SECRET, &good()));
    let claimed = [("x-user-id", "7"), ("x-user-id", "8"), ("x_user_id", "9"), ("accept", "*/*")];
    for (authorization, expected) in [(bearer.as_str(), Some("42")), ("Bearer x", None)] {
        let mut map = headers(&claimed);
        map.append(header::AUTHORIZATION, HeaderValue::from_str(authorization).unwrap());
        by_secret().tell_shop(&mut map);
        let ids: Vec<_> = map.get_all("x-user-id").map(|id| id.to_str().unwrap()).collect();
        assert_eq!(ids, expected.into_iter().collect::<Vec<_>>());
        assert!(!map.contains_key("x_user_id") && map.contains_key("accept"));
        assert_eq!(map.get(header::AUTHORIZATION).unwrap(), authorization, "the shop may want to see for itself");
    }
    let mut map = headers(&claimed);
    Identify::by_header().tell_shop(&mut map);
    assert_eq!(map.len(), 4, "a believed header stays as it came");
}

#[test]
fn an_unknown_key_is_looked_for_at_most_every_thirty_seconds() {
    let machine = FakeClock::at(NOW * 1000);
    let keys = PublishedKeys::new("http://127.0.0.1:1/", BOTH, StoreClock::new(machine.clone()));
    let choose = |id: Option<&str>| match keys.choose(Algorithm::RS256, id) {
        Choice::Key(_) => "known",
        Choice::None => "none",
        Choice::LookedFor => "looked for",
    };
    assert_eq!(choose(Some("r")), "looked for", "at the start nothing is known");
    keys.found(KeySet::from_jwks(json!({ "keys": [RSA.published("r")] }).to_string().as_bytes(), BOTH).unwrap());
    keys.looked();
    assert_eq!(choose(Some("r")), "known");
    assert_eq!((choose(Some("new")), choose(Some("newer"))), ("looked for", "looked for"), "one look for both");
    keys.looked();
    assert_eq!((choose(Some("new")), choose(Some("r"))), ("none", "known"), "anybody can make up names");
    machine.advance(Duration::from_secs(29));
    assert_eq!(choose(Some("new")), "none");
    machine.advance(Duration::from_secs(1));
    assert_eq!(choose(Some("new")), "looked for");
}

#[test]
fn a_token_with_an_empty_key_name_is_never_a_reason_to_look_for_keys() {
    let clock = StoreClock::new(FakeClock::at(NOW * 1000 + 500));
    let two = [RSA.published("r"), OTHER_RSA.published("o")];
    for (published, expected) in [(&two[..1], Ok(42)), (&two, Err(Unidentified::NoToken))] {
        let keys = PublishedKeys::new("http://127.0.0.1:1/", BOTH, clock.clone());
        keys.found(KeySet::from_jwks(json!({ "keys": published }).to_string().as_bytes(), BOTH).unwrap());
        keys.looked();
        let (rules, clock) = (Rules::from_config(&config()), clock.clone());
        let tokens = Tokens { rules, keys: Keys::Published(keys), clock };
        let identify = Identify { source: Source::Token(Arc::new(tokens)), form: config().ids };
        assert_eq!(user_of(&identify, &RSA.sign(Some(""), &good())), expected);
        assert_eq!(user_of(&identify, &RSA.sign(None, &good())), expected);
    }
}
