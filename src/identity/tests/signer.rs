//! Keys made for the run, and tokens signed with them.

use std::{
    io::Write,
    process::{Command, Stdio},
    sync::LazyLock,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, jwk::Jwk};
use serde_json::{Value, json};

pub(super) static RSA: LazyLock<Signer> =
    LazyLock::new(|| Signer::make(Algorithm::RS256, &["RSA", "-pkeyopt", "rsa_keygen_bits:2048"]));
pub(super) static OTHER_RSA: LazyLock<Signer> =
    LazyLock::new(|| Signer::make(Algorithm::RS256, &["RSA", "-pkeyopt", "rsa_keygen_bits:2048"]));
pub(super) static SHORT_RSA: LazyLock<Signer> =
    LazyLock::new(|| Signer::make(Algorithm::RS256, &["RSA", "-pkeyopt", "rsa_keygen_bits:1024"]));
pub(super) static EC: LazyLock<Signer> =
    LazyLock::new(|| Signer::make(Algorithm::ES256, &["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]));
pub(super) static P384: LazyLock<Signer> =
    LazyLock::new(|| Signer::make(Algorithm::ES384, &["EC", "-pkeyopt", "ec_paramgen_curve:P-384"]));

/// Who signs tokens.
pub(super) struct Signer {
    algorithm: Algorithm,
    pub(super) private_pem: Vec<u8>,
    pub(super) public_pem: Vec<u8>,
}

impl Signer {
    fn make(algorithm: Algorithm, how: &[&str]) -> Self {
        let private_pem = openssl(&[&["genpkey", "-algorithm"], how].concat(), b"");
        let public_pem = openssl(&["pkey", "-pubout"], &private_pem);
        Self { algorithm, private_pem, public_pem }
    }

    fn key(&self) -> EncodingKey {
        match self.algorithm {
            Algorithm::RS256 => EncodingKey::from_rsa_pem(&self.private_pem),
            _ => EncodingKey::from_ec_pem(&self.private_pem),
        }
        .unwrap()
    }

    pub(super) fn sign(&self, id: Option<&str>, claims: &Value) -> String {
        let header = Header { kid: id.map(str::to_owned), ..Header::new(self.algorithm) };
        self.sign_with(&header, claims)
    }

    pub(super) fn sign_with(&self, header: &Header, claims: &Value) -> String {
        encode(header, claims, &self.key()).unwrap()
    }

    /// As it is published.
    pub(super) fn published(&self, id: &str) -> Value {
        let mut jwk = json!(Jwk::from_encoding_key(&self.key(), self.algorithm).unwrap());
        jwk["kid"] = id.into();
        jwk
    }
}

pub(super) fn sign_with_secret(algorithm: Algorithm, secret: &[u8], claims: &Value) -> String {
    encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(secret).unwrap()).unwrap()
}

/// A token of these parts, whatever they are.
pub(super) fn put_together(header: &str, claims: &str, signature: &str) -> String {
    let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part));
    format!("{header}.{claims}.{signature}")
}

fn openssl(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is installed");
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "openssl {arguments:?}");
    output.stdout
}
