//! Fetches a document over HTTP or HTTPS.

use std::{future::poll_fn, pin::pin, sync::Arc, time::Duration};

use actix_web::web::Bytes;
use futures_util::future::Either;
use hyper::{
    Request, StatusCode, Uri,
    body::{Body, Incoming},
    client::conn::http1,
    header::{ACCEPT, CONNECTION, HOST},
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// A fetch may take this long in all.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A document may be this large: hundreds of keys.
const MAX_BYTES: usize = 256 * 1024;

const UNREACHABLE: &str = "it cannot be reached";
const CUT_SHORT: &str = "its answer breaks off, or is too large";

/// A document behind a URL. Redirects are not followed.
pub(super) struct Document {
    url: Uri,
    tls: Option<TlsConnector>,
}

impl Document {
    /// The document at `url`. Over TLS the certificates of the machine are trusted (`SSL_CERT_FILE` names others).
    ///
    /// # Errors
    /// Where the URL cannot be read, or TLS cannot be set up.
    pub(super) fn at(url: &str) -> Result<Self, &'static str> {
        let url: Uri = url.parse().map_err(|_| "it is no URL")?;
        let tls =
            if url.scheme_str() == Some("https") { Some(TlsConnector::from(Arc::new(tls_config()?))) } else { None };
        Ok(Self { url, tls })
    }

    /// What is there now.
    ///
    /// # Errors
    /// Why it cannot be had, in words for the log.
    pub(super) async fn fetch(&self) -> Result<Vec<u8>, &'static str> {
        timeout(TIMEOUT, self.fetch_whole()).await.unwrap_or(Err("it takes too long"))
    }

    async fn fetch_whole(&self) -> Result<Vec<u8>, &'static str> {
        let host = self.url.host().ok_or("it is no URL")?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = self.url.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let tcp = TcpStream::connect((host.as_str(), port)).await.map_err(|_| UNREACHABLE)?;
        match &self.tls {
            Some(tls) => {
                let name = ServerName::try_from(host).map_err(|_| "its host is no name")?;
                self.fetch_over(tls.connect(name, tcp).await.map_err(|_| UNREACHABLE)?).await
            }
            None => self.fetch_over(tcp).await,
        }
    }

    async fn fetch_over(&self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) -> Result<Vec<u8>, &'static str> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|_| UNREACHABLE)?;
        let answer = async move {
            let path = self.url.path_and_query().map_or("/", |path| path.as_str());
            let host =
                self.url.authority().map_or("", |authority| authority.as_str().rsplit('@').next().unwrap_or_default());
            let request = Request::get(path).header(HOST, host).header(ACCEPT, "application/json");
            let request = request.header(CONNECTION, "close").body(String::new()).map_err(|_| "it is no URL")?;
            let answer = sender.send_request(request).await.map_err(|_| UNREACHABLE)?;
            if answer.status() != StatusCode::OK {
                return Err("its answer is not 200");
            }
            whole(answer.into_body()).await
        };
        match futures_util::future::select(pin!(answer), pin!(connection)).await {
            Either::Left((fetched, _)) => fetched,
            // The connection has ended; the answer may have been read before.
            Either::Right((_, answer)) => answer.await,
        }
    }
}

/// The whole of a body, up to the limit.
async fn whole(mut body: Incoming) -> Result<Vec<u8>, &'static str> {
    let mut read: Vec<u8> = Vec::new();
    while let Some(frame) = poll_fn(|context| pin!(&mut body).poll_frame(context)).await {
        let piece: Bytes = frame.map_err(|_| CUT_SHORT)?.into_data().unwrap_or_default();
        if read.len() + piece.len() > MAX_BYTES {
            return Err(CUT_SHORT);
        }
        read.extend_from_slice(&piece);
    }
    Ok(read)
}

fn tls_config() -> Result<ClientConfig, &'static str> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("this machine has no root certificates: install ca-certificates, or set SSL_CERT_FILE");
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|_| "TLS cannot be set up")?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
