//! Redis over TLS: which certificates to trust, and which one to present.
//!
//! The files are read and checked once, at the start. A wrong file stops the start, and the error names its setting, so
//! it does not fail each connection later. The check of the server's certificate cannot be turned off.

use std::path::Path;

use ::redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::config::RedisTls;

/// Why TLS to Redis cannot be set up. Shows no content of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct BadTls {
    key: &'static str,
    what: String,
}

/// The same address, with TLS as configured if its URL asks for TLS. `key`: the setting that has the URL.
pub(super) fn secured(key: &'static str, info: ConnectionInfo, tls: &RedisTls) -> Result<ConnectionInfo, BadTls> {
    if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        return Ok(info);
    }
    let files = certificates(tls)?;
    let client = Client::build_with_tls(info, files).map_err(|error| bad(key, error.category()))?;
    Ok(client.get_connection_info().clone())
}

/// Reads and checks the configured files.
fn certificates(tls: &RedisTls) -> Result<TlsCertificates, BadTls> {
    // The client uses the crypto provider of the process. It panics if none is chosen and more than one is built in. If
    // one is chosen already, it stays.
    let _ = ring::default_provider().install_default();
    let (roots, root_cert) = match &tls.ca_file {
        Some(file) => {
            let pem = read("redis.ca_file", file)?;
            (roots(&pem).map_err(|what| bad_file("redis.ca_file", file, what))?, Some(pem))
        }
        None => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            (roots, None)
        }
    };
    if roots.is_empty() {
        let what = "must be set: this machine has no root certificates (ca-certificates, or SSL_CERT_FILE)";
        return Err(bad("redis.ca_file", what));
    }
    let client_tls = match (&tls.cert_file, &tls.key_file) {
        (Some(cert_file), Some(key_file)) => Some(identity(roots, cert_file, key_file)?),
        (None, _) | (_, None) => None,
    };
    Ok(TlsCertificates { client_tls, root_cert })
}

fn roots(pem: &[u8]) -> Result<RootCertStore, &'static str> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| "is no PEM")?;
        roots.add(certificate).map_err(|_| "holds a certificate that is none")?;
    }
    if roots.is_empty() { Err("holds no certificate in PEM") } else { Ok(roots) }
}

fn identity(roots: RootCertStore, cert_file: &Path, key_file: &Path) -> Result<ClientTlsConfig, BadTls> {
    let (cert, key) = (read("redis.cert_file", cert_file)?, read("redis.key_file", key_file)?);
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&cert).flatten().collect();
    if chain.is_empty() {
        return Err(bad_file("redis.cert_file", cert_file, "holds no certificate in PEM"));
    }
    let private = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|_| bad_file("redis.key_file", key_file, "holds no unencrypted private key in PEM"))?;
    // The client does this for each connection. Doing it once here shows whether it works.
    ClientConfig::builder()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, private)
        .map_err(|_| bad_file("redis.key_file", key_file, "is not the key of redis.cert_file"))?;
    Ok(ClientTlsConfig { client_cert: cert, client_key: key })
}

fn read(key: &'static str, file: &Path) -> Result<Vec<u8>, BadTls> {
    std::fs::read(file).map_err(|cause| bad_file(key, file, &format!("cannot be read: {cause}")))
}

fn bad_file(key: &'static str, file: &Path, what: &str) -> BadTls {
    bad(key, &format!("{} {what}", file.display()))
}

fn bad(key: &'static str, what: &str) -> BadTls {
    BadTls { key, what: what.to_owned() }
}
