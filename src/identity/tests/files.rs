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
    ];
    for other in &others {
        assert!(KeySet::from_jwks(&jwks(std::slice::from_ref(other)), BOTH).is_err(), "{other}");
    }
    let mut with_a_good_one = others.to_vec();
    with_a_good_one.push(RSA.published("good"));
    let identify = by_jwks(&with_a_good_one);
    assert_eq!(user_of(&identify, &RSA.sign(Some("good"), &good())), Ok(42));
    assert_eq!(user_of(&identify, &RSA.sign(Some("x"), &good())), Err(Unidentified::NoToken));
}
