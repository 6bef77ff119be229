//! Which key files are usable.

use super::{
    signer::{P384, SHORT_RSA},
    *,
};

fn read(content: &[u8], algorithms: &[JwtAlgorithm]) -> Result<KeySet, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    KeySet::from_file(file.path(), algorithms).map_err(|error| {
        let text = format!("{error} {error:?}");
        let secret = str::from_utf8(content).unwrap_or_default().lines().nth(1).unwrap_or("\0");
        assert!(!text.contains(secret), "{text}");
        text
    })
}

fn jwks(keys: &[Value]) -> Vec<u8> {
    json!({ "keys": keys }).to_string().into_bytes()
}

#[test]
fn a_public_key_a_jwks_document_or_a_secret_is_read() {
    let keys = read(&RSA.public_pem, BOTH).ok().unwrap();
    assert_eq!(user_of(&identify(keys, &config()), &RSA.sign(Some("any"), &good())), Ok(42));
    let keys = read(&jwks(&[EC.published("e")]), &[JwtAlgorithm::Es256]).ok().unwrap();
    assert_eq!(user_of(&identify(keys, &config()), &EC.sign(Some("e"), &good())), Ok(42));
    let token = sign_with_secret(Algorithm::HS256, SECRET, &good());
    for end in [&b""[..], b"\n", b"\r\n"] {
        let keys = read(&[SECRET, end].concat(), &[JwtAlgorithm::Hs256]).ok().unwrap();
        assert_eq!(user_of(&identify(keys, &config()), &token), Ok(42));
    }
}

#[test]
fn a_file_that_is_not_what_it_should_be_is_refused_by_name_and_not_shown() {
    let hs = &[JwtAlgorithm::Hs256][..];
    let two = [RSA.public_pem.clone(), EC.public_pem.clone()].concat();
    for (content, algorithms, what) in [
        (&b"a\nshort one"[..], hs, "32 bytes"),
        (&RSA.public_pem, hs, "HS256 is the wrong algorithm"),
        (&jwks(&[RSA.published("r")]), hs, "HS256 is the wrong algorithm"),
        (&jwks(&[json!({ "kid": 7, "kty": "a key that nobody can read" })]), hs, "HS256 is the wrong algorithm"),
        (SECRET, BOTH, "one PUBLIC KEY"),
        (b"", BOTH, "one PUBLIC KEY"),
        (b"\xff\xfe\x00", BOTH, "neither"),
        (&RSA.private_pem, BOTH, "private key"),
        (&two, BOTH, "one PUBLIC KEY"),
        (&SHORT_RSA.public_pem, BOTH, "2048 bits"),
        (&P384.public_pem, BOTH, "P-256"),
        (&RSA.public_pem, &[JwtAlgorithm::Es256], "does not name"),
        (&EC.public_pem, &[JwtAlgorithm::Rs256], "does not name"),
        (b"{\"keys\": [", BOTH, "not a JWKS document"),
        (b"{}", BOTH, "not a JWKS document"),
        (br#"{"keys": {"kid": "r"}}"#, BOTH, "not a JWKS document"),
        (&jwks(&[]), BOTH, "no key"),
        (&jwks(&[EC.published("e")]), &[JwtAlgorithm::Rs256], "no key"),
    ] {
        let text = read(content, algorithms).err().unwrap();
        assert!(text.contains(what) && text.contains("identity.jwt_key_file"), "{what}: {text}");
    }
    let missing = KeySet::from_file("/nowhere/at/all".as_ref(), BOTH).err().unwrap().to_string();
    assert!(missing.contains("/nowhere/at/all"), "{missing}");
}

#[test]
fn keys_for_other_ends_are_passed_over() {
    let changed = |changes: Value| {
        let mut jwk = RSA.published("x");
        for (name, value) in changes.as_object().unwrap() {
            jwk[name] = value.clone();
        }
        jwk
    };
    let others = [
        changed(json!({ "use": "enc" })),
        changed(json!({ "alg": "RSA-OAEP" })),
        changed(json!({ "alg": "RS512" })),
        changed(json!({ "alg": "XYZ" })),
        changed(json!({ "kty": "ABC" })),
        SHORT_RSA.published("short"),
        P384.published("p384"),
        json!({ "kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "k1" }),
        json!({ "kty": "EC", "crv": "P-256", "x": "!", "y": "!", "kid": "k2" }),
        json!({ "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "ed" }),
        json!({ "kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA", "kid": "oct" }),
        json!({ "kid": "nothing" }),
        changed(json!({ "kid": 7 })),
        changed(json!({ "kid": ["x"] })),
        changed(json!({ "kty": 7 })),
        changed(json!({ "kty": null })),
        changed(json!({ "use": 7 })),
        changed(json!({ "use": "mac" })),
        changed(json!({ "alg": 7 })),
        changed(json!({ "n": null })),
        changed(json!({ "n": 7 })),
        changed(json!({ "e": null })),
        changed(json!({ "x5c": "no list" })),
        json!({ "kty": "EC", "crv": 256, "x": "AA", "y": "AA", "kid": "k3" }),
        json!({ "kty": "oct", "kid": "oct without k" }),
        json!({}),
        json!(7),
        json!(null),
        json!("text"),
        json!([RSA.published("in a list")]),
    ];
    for other in &others {
        assert!(KeySet::from_jwks(&jwks(std::slice::from_ref(other)), BOTH).is_err(), "{other}");
    }
    for other in others.iter().map(std::slice::from_ref).chain([&others[..]]) {
        for with_a_good_one in [[other, &[RSA.published("good")]].concat(), [&[RSA.published("good")], other].concat()]
        {
            let identify = by_jwks(&with_a_good_one);
            assert_eq!(user_of(&identify, &RSA.sign(Some("good"), &good())), Ok(42), "{other:?}");
            assert_eq!(user_of(&identify, &RSA.sign(None, &good())), Ok(42), "{other:?}");
            assert_eq!(user_of(&identify, &RSA.sign(Some("x"), &good())), Err(Unidentified::NoToken));
        }
    }
}

#[test]
fn what_is_passed_over_is_named_with_the_reason_and_nothing_more() {
    let passed_over =
        |keys: &[Value], algorithms| super::super::jwks::read(&jwks(keys), algorithms).unwrap().passed_over;
    assert_eq!(passed_over(&[RSA.published("r"), EC.published("e")], BOTH), "");
    let odd = [
        json!({ "kty": "oct", "kid": "the secret", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQ" }),
        RSA.published("r"),
        json!({ "kid": 7, "kty": "RSA" }),
        json!({ "kid": "line\nbreak", "kty": "RSA", "n": 7 }),
        json!("c2VjcmV0"),
    ];
    assert_eq!(
        passed_over(&odd, &[JwtAlgorithm::Es256]),
        "\"the secret\" is a secret; \"r\" is for an algorithm that identity.jwt_algorithms does not name; keys[2] has a \
         kid that is no text; \"line\\nbreak\" is malformed, or of a kind that is none of ours; keys[4] is no object"
    );
    let long = json!({ "kid": "k".repeat(1000) });
    let told = passed_over(&vec![long; 1000], BOTH);
    assert!(told.ends_with("; 992 more") && told.len() < 1200, "{told}");
}
