//! Reads the caller and the target from a request, once, into validated types.

use std::{
    borrow::Cow,
    future::{Ready, ready},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{
    FromRequest, HttpRequest, HttpResponse, ResponseError,
    body::{BodySize, BoxBody, MessageBody},
    dev::Payload,
    http::header::CONTENT_LENGTH,
    web::{self, Bytes, BytesMut},
};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use utoipa::{
    IntoParams, PartialSchema, ToSchema,
    openapi::{
        Object, ObjectBuilder, Ref, RefOr, Required, Schema,
        path::{Parameter, ParameterBuilder, ParameterIn},
        schema::Type,
    },
};

use super::{error::ApiError, state::HttpState};
use crate::{
    domain::{QueueTarget, QueueTargetType},
    identity::Asker,
};

/// The longest time for a body to arrive, so that a slow body does not occupy a handler.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The target in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target(pub(super) QueueTarget);

impl FromRequest for Target {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(read_target(request).map(Self))
    }
}

impl IntoParams for Target {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let parameter =
            |name| ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
        let kind = Ref::from_schema_name(<QueueTargetType as ToSchema>::name());
        let id = text("^[1-9][0-9]{0,18}$");
        vec![
            parameter("type").description(Some("The kind of target.")).schema(Some(kind)).build(),
            parameter("targetId")
                .description(Some("Canonical decimal, 1..=9223372036854775807."))
                .schema(Some(id))
                .build(),
        ]
    }
}

impl PartialSchema for QueueTargetType {
    fn schema() -> RefOr<Schema> {
        let slugs = Self::ALL.map(Self::slug);
        let schema = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(slugs));
        schema.description(Some("The kinds of target.")).into()
    }
}

impl ToSchema for QueueTargetType {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("TargetType")
    }
}

/// Describes the header with the user id. [`crate::identity`] reads it.
pub(super) struct UserHeader;

impl IntoParams for UserHeader {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![header(
            "X-User-Id",
            text("^[1-9][0-9]{0,18}$"),
            "The user id, exactly once: canonical decimal, 1..=9223372036854775807; with `identity.ids = \"any\"` 1 to 128 \
             visible ASCII characters. Ignored if buyers are identified by tokens or are anonymous visitors: then \
             `Authorization: Bearer` is needed, or the cookie `vq_visitor`, which entering sets.",
        )]
    }
}

/// Describes the header with the pass of the person who buys. [`crate::gate`] reads it.
pub(super) struct PassHeader;

impl IntoParams for PassHeader {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let description = "The pass, as `entryToken` gave it. If passes also come in cookies, the header wins.";
        vec![header("X-Entry-Token", ObjectBuilder::new().schema_type(Type::String).build(), description)]
    }
}

/// Describes a header that may be left out.
pub(super) fn header(name: &str, schema: Object, description: &str) -> Parameter {
    let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Header).required(Required::False);
    parameter.description(Some(description)).schema(Some(schema)).build()
}

/// A text of this pattern.
fn text(pattern: &str) -> Object {
    ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).build()
}

/// A person and the target they ask about. The path is checked first: if the target does not exist, the user id is not
/// checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) target: QueueTarget,
    pub(super) asker: Asker,
}

impl FromRequest for Caller {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(read_caller(request))
    }
}

fn read_target(request: &HttpRequest) -> Result<QueueTarget, ApiError> {
    // actix matches the decoded path, where `%34%32` is `42`: that would be a second spelling of the same target.
    if request.match_info().as_str() != request.uri().path() {
        return Err(ApiError::UnknownTarget);
    }
    let segments = request.match_info();
    let (Some(slug), Some(id)) = (segments.get("type"), segments.get("targetId")) else {
        return Err(ApiError::UnknownTarget);
    };
    let target = QueueTarget::from_path(slug, id)?;
    let state = request.app_data::<web::Data<HttpState>>().ok_or(ApiError::Internal)?;
    match target.kind() {
        QueueTargetType::LimitedDrop if !state.options.limited_drops => Err(ApiError::UnknownTarget),
        QueueTargetType::LimitedDrop | QueueTargetType::TicketingEvent => Ok(target),
    }
}

fn read_caller(request: &HttpRequest) -> Result<Caller, ApiError> {
    let target = read_target(request)?;
    let state = request.app_data::<web::Data<HttpState>>().ok_or(ApiError::Internal)?;
    Ok(Caller { target, asker: state.identity.polling(request.headers())? })
}

/// Reads a whole body, at most `limit` bytes and for at most five seconds. Without a body it costs nothing.
///
/// # Errors
/// The answer to send: [`ApiError::PayloadTooLarge`], as early as possible; [`ApiError::RequestTimeout`];
/// [`ApiError::BadRequest`] for a body that ends early or is framed wrongly.
pub(super) async fn read_body(
    request: &HttpRequest,
    payload: web::Payload,
    limit: usize,
) -> Result<Bytes, HttpResponse> {
    read_within(BODY_TIMEOUT, request, payload, limit).await
}

/// Reads a whole body as JSON, as [`read_body`] does.
///
/// # Errors
/// The answer to send: those of [`read_body`]; [`ApiError::BadRequest`] for another JSON than that of `T`.
pub(super) async fn read_json<T: DeserializeOwned>(
    request: &HttpRequest,
    payload: web::Payload,
    limit: usize,
) -> Result<T, HttpResponse> {
    let body = read_body(request, payload, limit).await?;
    serde_json::from_slice(&body).map_err(|_| ApiError::BadRequest.error_response())
}

async fn read_within(
    time: Duration,
    request: &HttpRequest,
    payload: web::Payload,
    limit: usize,
) -> Result<Bytes, HttpResponse> {
    let mut payload = match payload.into_inner() {
        Payload::None => return Ok(Bytes::new()),
        payload => payload,
    };
    let read = tokio::time::timeout(time, collect(request, &mut payload, limit)).await;
    read.unwrap_or(Err(ApiError::RequestTimeout)).map_err(|error| Unread::answer(&error, payload))
}

async fn collect(request: &HttpRequest, payload: &mut Payload, limit: usize) -> Result<Bytes, ApiError> {
    let announced = request.headers().get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(ApiError::PayloadTooLarge);
    }
    let mut body = BytesMut::new();
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|_| ApiError::BadRequest)?;
        if body.len() + chunk.len() > limit {
            return Err(ApiError::PayloadTooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// The answer to a request whose body is not read to its end.
///
/// It keeps the rest of the body until the answer is sent; then the server closes the connection. If the rest of a
/// chunked body were dropped, the server would read and discard it for as long as it comes.
struct Unread {
    answer: BoxBody,
    _rest: Payload,
}

impl Unread {
    fn answer(error: &ApiError, rest: Payload) -> HttpResponse {
        error.error_response().map_body(|_, answer| BoxBody::new(Self { answer, _rest: rest }))
    }
}

impl MessageBody for Unread {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.answer.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.answer).poll_next(context)
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use futures_util::stream;

    use super::*;

    #[actix_web::test]
    async fn a_body_that_does_not_come_ends_in_a_timeout() {
        let request = TestRequest::post().to_http_request();
        let mut never: Payload = Payload::Stream { payload: Box::pin(stream::pending()) };
        let payload = web::Payload::from_request(&request, &mut never).await.unwrap();
        let refusal = read_within(Duration::ZERO, &request, payload, 10).await.unwrap_err();
        assert_eq!(refusal.status(), 408);
    }
}
