//! The middleware stack around every request, and the reason for its order.

use actix_web::{
    App, Error, HttpMessage, HttpRequest, HttpResponse, ResponseError,
    body::{EitherBody, MessageBody},
    dev::{ServiceFactory, ServiceRequest, ServiceResponse},
    http::{
        ConnectionType, Method,
        header::{CONTENT_LANGUAGE, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    },
    middleware::{Next, from_fn},
    web,
};
use tracing::{Span, field};
use tracing_actix_web::{RequestId, RootSpanBuilder, TracingLogger};

use super::{
    connection::{LastsUntilWritten, UnderWay},
    error::ApiError,
    paths::{RouteTemplate, UNMATCHED},
    state::HttpState,
};
use crate::{
    problem::{PROBLEM_JSON, Problem},
    proxy::FromShop,
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A longer request id from the caller is replaced.
const MAX_REQUEST_ID_BYTES: usize = 64;

/// Wraps an application in the whole stack. The last `wrap` runs first, so read from the bottom.
pub fn with_middleware<T, B>(
    app: App<T>,
) -> App<
    impl ServiceFactory<
        ServiceRequest,
        Config = (),
        Response = ServiceResponse<impl MessageBody>,
        Error = Error,
        InitError = (),
    >,
>
where
    T: ServiceFactory<ServiceRequest, Config = (), Response = ServiceResponse<B>, Error = Error, InitError = ()>
        + 'static,
    B: MessageBody + 'static,
{
    app
        // 4. Innermost: turns actix's own errors into problems before they are counted or logged.
        .wrap(from_fn(problems_only))
        // 3. Answers preflights, and lets pages of other origins read the answers from below, including errors.
        .wrap(from_fn(cross_origin))
        // 2. Counts the final answers and adds the request id.
        .wrap(from_fn(observe))
        // 1. Outermost: everything below logs inside the request's span.
        .wrap(TracingLogger::<RequestSpan>::new())
}

/// The span of a request: id, method, route template, status. Never a path, a query or a header: they may contain a
/// pass or a secret.
struct RequestSpan;

impl RootSpanBuilder for RequestSpan {
    fn on_request_start(request: &ServiceRequest) -> Span {
        tracing::info_span!(
            "request",
            request_id = request_id(request.request()).to_str().unwrap_or_default(),
            method = method_label(request.method()),
            route = field::Empty,
            status = field::Empty,
        )
    }

    fn on_request_end<B: MessageBody>(span: Span, outcome: &Result<ServiceResponse<B>, Error>) {
        if span.is_disabled() {
            return;
        }
        match outcome {
            Ok(response) => {
                with_route(response.request(), |route| span.record("route", route));
                span.record("status", response.status().as_u16());
            }
            Err(error) => {
                span.record("status", error.as_response_error().status_code().as_u16());
            }
        }
        tracing::debug!("answered");
    }
}

async fn observe(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let begun = request.conn_data::<UnderWay>().map(|under_way| under_way.begin(request.head()));
    if let Some(begun) = &begun {
        begun.body_may_come().await;
    }
    let Some(state) = request.app_data::<web::Data<HttpState>>().cloned() else {
        return next
            .call(request)
            .await
            .map(|response| response.map_body(|_, body| LastsUntilWritten::new(body, begun)));
    };
    let arrived = state.clock.monotonic();
    let mut response = next.call(request).await?;
    let took = state.clock.monotonic().saturating_sub(arrived);
    let answered = response.request();
    with_route(answered, |route| {
        state.metrics.http_answered(method_label(answered.method()), route, response.status().as_u16(), took);
    });
    let id = request_id(answered);
    // The shop's own answers stay unchanged; an answer of the built-in shop may already have an id.
    if response.response().extensions().get::<FromShop>().is_none() && !response.headers().contains_key(REQUEST_ID) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    if !state.lifecycle.is_serving() {
        // Else a client that keeps this connection could send a request just when it is closed.
        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    Ok(response.map_body(|_, body| LastsUntilWritten::new(body, begun)))
}

async fn cross_origin(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let state = request.app_data::<web::Data<HttpState>>().cloned();
    match state.as_ref().and_then(|state| state.options.cors.as_ref()) {
        Some(cors) => cors.around(request, next).await.map(ServiceResponse::map_into_right_body),
        None => next.call(request).await.map(ServiceResponse::map_into_left_body),
    }
}

/// Replaces actix's error answers, and writes problems in the buyer's language. Problems of ours, of the gate and of
/// the built-in shop are otherwise unchanged.
async fn problems_only(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let response = match next.call(request).await {
        Ok(response) => response,
        Err(error) => return Err(ours(&error).into()),
    };
    let foreign = match response.response().error() {
        Some(error) if !is_problem(response.headers()) => Some(ours(error)),
        Some(_) | None => None,
    };
    match foreign {
        Some(problem) => Ok(response.into_response(problem.error_response()).map_into_right_body()),
        None => match in_their_language(&response) {
            None => Ok(response.map_into_left_body()),
            Some(told) => {
                let (told, body) = told.into_parts();
                let mut response = response.map_body(|_, _| EitherBody::right(body));
                if let Some(language) = told.headers().get(CONTENT_LANGUAGE) {
                    response.headers_mut().insert(CONTENT_LANGUAGE, language.clone());
                }
                Ok(response)
            }
        },
    }
}

/// A problem for buyers, written again in the language that the request asks for.
fn in_their_language<B>(response: &ServiceResponse<B>) -> Option<HttpResponse> {
    if response.status().as_u16() < 400 {
        return None;
    }
    let problem = response.response().extensions().get::<Problem>().cloned();
    problem.map(|problem| problem.answer(response.request().headers()))
}

fn is_problem(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind == PROBLEM_JSON)
}

/// The API error for any error. The cause is logged if the fault is ours.
fn ours(error: &Error) -> ApiError {
    if let Some(ours) = error.as_error::<ApiError>() {
        return ours.clone();
    }
    let problem = ApiError::from_foreign(error.as_response_error().status_code());
    if problem == ApiError::Internal {
        tracing::error!(%error, "unexpected error in a request");
    }
    problem
}

/// The caller's request id if it is valid, else our own.
fn request_id(request: &HttpRequest) -> HeaderValue {
    let theirs = request.headers().get(REQUEST_ID).filter(|id| {
        (1..=MAX_REQUEST_ID_BYTES).contains(&id.len())
            && id.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
    });
    if let Some(theirs) = theirs {
        return theirs.clone();
    }
    let ours = request.extensions().get::<RequestId>().copied();
    ours.and_then(|id| HeaderValue::try_from(id.to_string()).ok()).unwrap_or(HeaderValue::from_static("unknown"))
}

/// Calls `then` with the template of the route that answered. Our routes carry theirs; other routes are looked up.
fn with_route<R>(request: &HttpRequest, then: impl FnOnce(&str) -> R) -> R {
    match request.app_data::<&'static RouteTemplate>() {
        Some(template) => then(template.path),
        None => then(request.match_pattern().as_deref().unwrap_or(UNMATCHED.path)),
    }
}

/// A method as a label. Clients can invent methods; those must not become series.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::PATCH => "PATCH",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
