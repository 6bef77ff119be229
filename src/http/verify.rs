//! Forward auth for proxies before the shop: nginx `auth_request`, Traefik `forwardAuth`, Envoy `ext_authz` (DESIGN 1).
//!
//! Here: which request a proxy asks about, and the verdict as proxies understand it. Not here: the verdict itself, that
//! is [`crate::gate`]'s.

use std::fmt::Write;

use actix_web::{
    HttpRequest, HttpResponse,
    guard::GuardContext,
    http::{
        Method, StatusCode, Uri,
        header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE},
    },
    web,
};
use serde::Deserialize;

use super::{
    entry::DEGRADED,
    error::ApiError,
    extract::read_body,
    openapi::{PassHeader, SettlementBody, UserHeader},
    routes::VERIFY,
    state::HttpState,
};
use crate::{
    domain::{QueueTarget, UserId},
    gate::{Claim, Verdict},
    problem::Problem,
    store::Settlement,
};

/// Where proxies put the method and the target of the request they ask about: nginx as its documentation shows it, and
/// Traefik (and Caddy).
const ORIGINALS: [(HeaderName, HeaderName); 2] = [
    (HeaderName::from_static("x-original-method"), HeaderName::from_static("x-original-uri")),
    (HeaderName::from_static("x-forwarded-method"), HeaderName::from_static("x-forwarded-uri")),
];

const USER: HeaderName = HeaderName::from_static("x-virtual-queue-user");
const TARGET: HeaderName = HeaderName::from_static("x-virtual-queue-target");
const CLAIM: HeaderName = HeaderName::from_static("x-virtual-queue-claim");
const CODE: HeaderName = HeaderName::from_static("x-virtual-queue-code");

/// Room for a settlement, several times over.
const MAX_SETTLEMENT_BYTES: usize = 4096;

/// Whether a request may go on to the shop; asked by a proxy, in the buyer's name. The request asked about is named by
/// `X-Original-Method` and `X-Original-URI` (nginx), or by `X-Forwarded-Method` and `X-Forwarded-Uri` (Traefik).
#[utoipa::path(
    get, path = "/gate/verify", operation_id = "verify", tag = "gate",
    params(UserHeader, PassHeader),
    responses(
        (status = 204, description = "On to the shop. Of a purchase with a pass: `X-Virtual-Queue-User`, \
            `X-Virtual-Queue-Target` and, where the shop settles, `X-Virtual-Queue-Claim`."),
        (status = 403, description = "Not to the shop; `X-Virtual-Queue-Code` repeats the code: \
            `QUEUE_BYPASS_DENIED`, `PASS_IN_USE`, `UNKNOWN_TARGET`, `UNCLEAR_REQUEST`, `IDENTITY_UNAVAILABLE`."),
        (status = 401, description = "Not to the shop: buyers are known by tokens, and there is no valid one. \
            `X-Virtual-Queue-Code` is `INVALID_IDENTITY`."),
    )
)]
pub(super) async fn verify(state: web::Data<HttpState>, request: HttpRequest) -> HttpResponse {
    match Original::of_headers(request.headers(), None) {
        Ok(original) => answer(&state, &original, request.headers(), StatusCode::NO_CONTENT).await,
        Err(Unclear) => denied(unclear()),
    }
}

/// The same for Envoy, which appends the original path to this one, asks with the original method, and takes nothing but
/// 200 for a yes.
pub(super) async fn verify_path(state: web::Data<HttpState>, request: HttpRequest) -> HttpResponse {
    // As it came: actix decodes what it hands over as a parameter.
    let tail = request.uri().path_and_query().and_then(|all| all.as_str().strip_prefix(VERIFY.path));
    let here =
        tail.ok_or(Unclear).and_then(|target| Original::new(request.method().as_str().as_bytes(), target.as_bytes()));
    match here.and_then(|here| Original::of_headers(request.headers(), Some(here))) {
        Ok(original) => answer(&state, &original, request.headers(), StatusCode::OK).await,
        Err(Unclear) => denied(unclear()),
    }
}

/// The request a proxy asks about, as the buyer sent it.
#[derive(Debug, PartialEq, Eq)]
struct Original {
    method: Method,
    uri: Uri,
}

/// Nobody can say which request is meant.
#[derive(Debug, PartialEq, Eq)]
struct Unclear;

impl Original {
    fn new(method: &[u8], target: &[u8]) -> Result<Self, Unclear> {
        // A path, or the one target that has none. Proxies turn `http://host/path` into `/path` themselves.
        if !(target.starts_with(b"/") || target == b"*") {
            return Err(Unclear);
        }
        let method = Method::from_bytes(method).map_err(|_| Unclear)?;
        let uri = Uri::try_from(printable(target)).map_err(|_| Unclear)?;
        Ok(Self { method, uri })
    }

    /// What the headers say, all of them that say something; `also` is what the request itself says. A buyer can send
    /// these headers, too: what a proxy does not overwrite must not contradict what it says.
    fn of_headers(headers: &HeaderMap, also: Option<Self>) -> Result<Self, Unclear> {
        let mut found = also;
        for (method, target) in &ORIGINALS {
            let said = match (only(headers, method)?, only(headers, target)?) {
                (None, None) => continue,
                (Some(method), Some(target)) => Self::new(method.as_bytes(), target.as_bytes())?,
                (Some(_), None) | (None, Some(_)) => return Err(Unclear),
            };
            match &found {
                Some(before) if *before != said => return Err(Unclear),
                Some(_) | None => found = Some(said),
            }
        }
        found.ok_or(Unclear)
    }
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Unclear> {
    let mut values = headers.get_all(name);
    let first = values.next();
    if values.next().is_some() { Err(Unclear) } else { Ok(first) }
}

/// With the encoding of each byte that has no place in a target, as which a shop reads it: some proxies pass them on.
fn printable(target: &[u8]) -> String {
    let mut text = String::with_capacity(target.len());
    for byte in target {
        match byte {
            b'"' | b'#' | b'<' | b'>' | b'`' => write!(text, "%{byte:02X}").expect("a string takes everything"),
            b if b.is_ascii_graphic() => text.push(char::from(*b)),
            b => write!(text, "%{b:02X}").expect("a string takes everything"),
        }
    }
    text
}

async fn answer(state: &HttpState, original: &Original, headers: &HeaderMap, yes: StatusCode) -> HttpResponse {
    let shop_settles = state.options.settle.is_some();
    let passage = match state.gate.judge(&original.method, &original.uri, headers, shop_settles).await {
        Verdict::Denied(problem) => return denied(problem),
        Verdict::Free => None,
        Verdict::Granted(passage) => Some(passage),
    };
    let mut response = HttpResponse::build(yes);
    response.insert_header((CACHE_CONTROL, HeaderValue::from_static("no-store")));
    if let Some(passage) = passage {
        response.insert_header((USER, passage.user.to_string()));
        response.insert_header((TARGET, passage.target.to_string()));
        if let Some(claim) = passage.claim {
            response.insert_header((CLAIM, claim.to_string()));
        }
        if passage.degraded {
            response.insert_header((DEGRADED, HeaderValue::from_static("redis")));
        }
    }
    response.finish()
}

fn denied(problem: Problem) -> HttpResponse {
    let code = problem.code;
    let mut response = problem.into_response();
    response.headers_mut().insert(CODE, HeaderValue::from_static(code));
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn unclear() -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "UNCLEAR_REQUEST",
        "Unclear which request is meant",
        "the original method and path are missing, doubled or contradict each other",
    )
}

/// Whether there is anything to settle: without a token the route is as if it were not there.
pub(super) fn shop_settles(context: &GuardContext<'_>) -> bool {
    context.app_data::<web::Data<HttpState>>().is_some_and(|state| state.options.settle.is_some())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SettlementRequest {
    target: String,
    user_id: String,
    claim: String,
    outcome: OutcomeWord,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutcomeWord {
    Spent,
    GivenBack,
}

/// How a purchase that was let through ended; told by the shop. May be repeated. Spending also works late; giving back
/// works while the pass is held.
#[utoipa::path(
    post, path = "/gate/settle", operation_id = "settle", tag = "gate",
    security(("settleToken" = [])),
    request_body = SettlementBody,
    responses(
        (status = 204, description = "Settled, now or before."),
        (status = 400, description = "`BAD_REQUEST`"),
        (status = 401, description = "`UNAUTHORIZED`"),
        (status = 413, description = "`PAYLOAD_TOO_LARGE`"),
        (status = 503, description = "`STORE_UNAVAILABLE`: not settled; say it again."),
    )
)]
pub(super) async fn settle(
    state: web::Data<HttpState>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    if !state.options.settle.as_ref().is_some_and(|key| key.is_carried_by(request.headers())) {
        return Err(ApiError::Unauthorized);
    }
    let body = match read_body(&request, payload, MAX_SETTLEMENT_BYTES).await {
        Ok(body) => body,
        Err(refusal) => return Ok(refusal),
    };
    let said: SettlementRequest = serde_json::from_slice(&body).map_err(|_| ApiError::BadRequest)?;
    let target = QueueTarget::from_label(&said.target).or_else(|_| QueueTarget::from_rule(&said.target));
    let target = target.map_err(|_| ApiError::BadRequest)?;
    let user = UserId::parse(&said.user_id).map_err(|_| ApiError::BadRequest)?;
    let claim: Claim = said.claim.parse().map_err(|_| ApiError::BadRequest)?;
    let how = match said.outcome {
        OutcomeWord::Spent => Settlement::Spent,
        OutcomeWord::GivenBack => Settlement::GivenBack,
    };
    state.gate.settle(target, user, &claim, how).await.map_err(|error| {
        tracing::warn!(target_id = %target, %error, "a shop's settlement failed");
        ApiError::StoreUnavailable { retry_after: 1 }
    })?;
    Ok(HttpResponse::NoContent().insert_header((CACHE_CONTROL, HeaderValue::from_static("no-store"))).finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Line = (&'static str, &'static [u8]);

    fn original(lines: &[Line], also: Option<(&str, &str)>) -> Result<Original, Unclear> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value).unwrap());
        }
        let also = also.map(|(method, target)| Original::new(method.as_bytes(), target.as_bytes())).transpose()?;
        Original::of_headers(&headers, also)
    }

    fn is(method: &str, target: &str) -> Result<Original, Unclear> {
        Ok(Original { method: method.parse().unwrap(), uri: target.parse().unwrap() })
    }

    #[test]
    fn every_proxy_names_the_original_in_its_own_way() {
        let nginx: &[Line] = &[("x-original-method", b"POST"), ("x-original-uri", b"/a//b%2Fc?d=/e")];
        let traefik: &[Line] = &[("x-forwarded-method", b"POST"), ("x-forwarded-uri", b"/a//b%2Fc?d=/e")];
        assert_eq!(original(nginx, None), is("POST", "/a//b%2Fc?d=/e"));
        assert_eq!(original(traefik, None), is("POST", "/a//b%2Fc?d=/e"));
        assert_eq!(original(&[], Some(("POST", "/a//b%2Fc?d=/e"))), is("POST", "/a//b%2Fc?d=/e"));
        assert_eq!(
            original(&[nginx, traefik].concat(), Some(("POST", "/a//b%2Fc?d=/e"))),
            is("POST", "/a//b%2Fc?d=/e")
        );
        assert_eq!(original(&[("x-original-method", b"OPTIONS"), ("x-original-uri", b"*")], None), is("OPTIONS", "*"));
    }

    #[test]
    fn what_is_missing_doubled_or_contradicted_is_unclear() {
        let (post, path): (Line, Line) = (("x-original-method", b"POST"), ("x-original-uri", b"/a"));
        let bad: &[&[Line]] = &[
            &[],
            &[post],
            &[path],
            &[post, ("x-forwarded-uri", b"/a")],
            &[post, path, path],
            &[post, post, path],
            &[post, path, ("x-forwarded-uri", b"/a")],
            &[post, path, ("x-forwarded-uri", b"/a"), ("x-forwarded-method", b"GET")],
            &[post, path, ("x-forwarded-uri", b"/b"), ("x-forwarded-method", b"POST")],
            &[post, ("x-original-uri", b"")],
            &[post, ("x-original-uri", b"a")],
            &[post, ("x-original-uri", b"http://host/a")],
            &[("x-original-method", b""), path],
            &[("x-original-method", b"P\xc3\xb6st"), path],
        ];
        for lines in bad {
            assert_eq!(original(lines, None), Err(Unclear), "{lines:?}");
        }
        assert_eq!(original(&[post, path], Some(("POST", "/b"))), Err(Unclear));
        assert_eq!(original(&[post, path], Some(("GET", "/a"))), Err(Unclear));
    }

    #[test]
    fn bytes_that_have_no_place_in_a_target_are_read_as_their_encoding() {
        for (raw, read) in [
            (&b"/x\xc0\xaf\xea\xb9\x80/%EA"[..], "/x%C0%AF%EA%B9%80/%EA"),
            (b"/a b\tc", "/a%20b%09c"),
            (b"/a#b?c", "/a%23b?c"),
            (b"/\"<>`", "/%22%3C%3E%60"),
            (b"//a\\b^c|d{e}[f]?", "//a\\b^c|d{e}[f]?"),
        ] {
            assert_eq!(printable(raw), read);
            let found = Original::new(b"GET", raw).expect("clear");
            assert_eq!(found.uri.to_string(), read);
        }
    }
}
