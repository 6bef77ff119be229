//! The steps of the gate for one request, in their order.

use std::{
    future::{Ready, ready},
    rc::Rc,
};

use actix_web::{
    Error, HttpMessage,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform, forward_ready},
    error::InternalError,
    http::{
        StatusCode, Version,
        header::{HeaderName, HeaderValue},
    },
};
use futures_util::future::LocalBoxFuture;
use tokio::sync::oneshot;

use super::EntryTokenGate;
use crate::{
    gate::{
        body,
        decision::Decision,
        method::Body,
        refusal::Refusal,
        request,
        shedding::UnderWay,
        single_use::{NoAnswerFromShop, Purchase, ShopsStatus, SingleUse, settlement_of},
    },
    problem::Problem,
    store::Settlement,
};

/// Marks an answer that was given without the store.
const DEGRADED_HEADER: HeaderName = HeaderName::from_static("x-virtual-queue-degraded");

impl<S, B> Transform<S, ServiceRequest> for EntryTokenGate
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    S::Future: 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = EntryTokenGateMiddleware<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, Self::InitError>>;

    fn new_transform(&self, shop: S) -> Self::Future {
        ready(Ok(EntryTokenGateMiddleware { gate: self.clone(), shop: Rc::new(shop) }))
    }
}

/// The middleware service of an [`EntryTokenGate`].
pub struct EntryTokenGateMiddleware<S> {
    gate: EntryTokenGate,
    shop: Rc<S>,
}

type Answer<B> = Result<ServiceResponse<EitherBody<B>>, Error>;

impl<S, B> Service<ServiceRequest> for EntryTokenGateMiddleware<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    S::Future: 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = LocalBoxFuture<'static, Answer<B>>;

    forward_ready!(shop);

    fn call(&self, mut req: ServiceRequest) -> Self::Future {
        request::strip_path_headers(req.headers_mut(), &self.gate.kept_headers);
        let body = if req.version() < Version::HTTP_2 { Body::Declared } else { Body::Unknown };
        let wanted = match self.gate.decide(req.method(), req.uri(), req.headers(), body) {
            decision @ (Decision::Untouched | Decision::Unchecked) => {
                self.gate.identity.tell_shop(req.headers_mut());
                let call = self.shop.call(req);
                return Box::pin(async move {
                    let mut answer = call.await?.map_into_left_body();
                    if matches!(decision, Decision::Unchecked) {
                        mark_degraded(&mut answer);
                    }
                    Ok(answer)
                });
            }
            Decision::Refused(refusal) => {
                self.gate.count(refusal);
                return Box::pin(ready(Ok(refuse(req, refusal))));
            }
            Decision::Purchase(purchase) => purchase,
        };
        let Some(under_way) = self.gate.admit_call() else {
            self.gate.metrics.gate_shed();
            return Box::pin(ready(Ok(refuse(req, Refusal::Overloaded))));
        };
        self.gate.identity.tell_shop(req.headers_mut());
        request::strip(req.headers_mut(), self.gate.cookie);
        let body = body::in_time(req.take_payload(), self.gate.body_limit);
        req.set_payload(body);
        let purchase = purchase(self.shop.clone(), req, self.gate.single_use_of_passes(), wanted, under_way);
        // A separate task: a client that disconnects ends the request but not the purchase.
        let (answer, answered) = oneshot::channel();
        actix_rt::spawn(self.gate.purchases.track_future(async move {
            // After a disconnect there is no receiver.
            let _ = answer.send(purchase.await);
        }));
        Box::pin(async move { answered.await.unwrap_or_else(|_| Err(shop_panicked())) })
    }
}

async fn purchase<S, B>(
    shop: Rc<S>,
    req: ServiceRequest,
    single_use: Option<SingleUse>,
    wanted: Purchase,
    under_way: UnderWay,
) -> Answer<B>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
    B: MessageBody + 'static,
{
    let begun = match single_use {
        None => None,
        Some(single_use) => match single_use.begin(wanted).await {
            Ok(begun) => Some(begun),
            Err(refusal) => return Ok(refuse(req, refusal)),
        },
    };
    req.extensions_mut().insert(wanted);
    let answer = shop.call(req).await;
    drop(under_way);
    let Some(begun) = begun else { return Ok(answer?.map_into_left_body()) };
    let mut degraded = begun.degraded;
    match answer.as_ref().ok().and_then(shops_status) {
        Some(status) => {
            let told = begun.settle(settlement_of(wanted.rule, status)).await;
            // If the pass was claimed, the claim protects it until the settlement succeeds.
            degraded |= !told && wanted.pass.is_none();
        }
        // No answer from the shop: it is unknown whether it sold. If the route spends, the pass stays claimed until the
        // lease ends.
        None if wanted.rule.spends() => {}
        None => {
            begun.settle(Settlement::GivenBack).await;
        }
    }
    let mut answer = answer?.map_into_left_body();
    if degraded {
        mark_degraded(&mut answer);
    }
    Ok(answer)
}

/// The status that the shop decided, whatever the client gets; `None`: unknown.
fn shops_status<B>(answer: &ServiceResponse<B>) -> Option<StatusCode> {
    let extensions = answer.response().extensions();
    if extensions.get::<NoAnswerFromShop>().is_some() {
        return None;
    }
    Some(extensions.get().map_or(answer.status(), |ShopsStatus(status)| *status))
}

fn mark_degraded<B>(answer: &mut ServiceResponse<B>) {
    answer.headers_mut().insert(DEGRADED_HEADER, HeaderValue::from_static("redis"));
}

fn refuse<B>(req: ServiceRequest, refusal: Refusal) -> ServiceResponse<EitherBody<B>> {
    let answer = refusal.answer(req.headers());
    req.into_response(answer).map_into_right_body()
}

fn shop_panicked() -> Error {
    let problem = Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "INTERNAL_ERROR",
        "Internal error",
        "the purchase ended without an answer",
    );
    InternalError::from_response("the shop panicked", problem.into_response()).into()
}
