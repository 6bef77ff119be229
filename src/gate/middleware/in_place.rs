//! The gate in place: what happens to a request in which order.

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
    domain::PassClaims,
    gate::{
        body,
        decision::Decision,
        method::Body,
        purchase::{NoAnswerFromShop, ShopsStatus, SingleUse, settlement_of},
        refusal::Refusal,
        request,
        shedding::UnderWay,
    },
    problem::Problem,
};

/// Says that an answer was given without the store.
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

/// An [`EntryTokenGate`] in place.
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
        let pass = match self.gate.decide(req.method(), req.uri(), req.headers(), body) {
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
            Decision::Verified(pass) => pass,
        };
        let Some(under_way) = self.gate.admit_call() else {
            self.gate.metrics.gate_shed();
            return Box::pin(ready(Ok(refuse(req, Refusal::Overloaded))));
        };
        self.gate.identity.tell_shop(req.headers_mut());
        request::strip(req.headers_mut(), self.gate.cookie);
        let body = body::in_time(req.take_payload(), self.gate.body_limit);
        req.set_payload(body);
        let purchase = purchase(self.shop.clone(), req, self.gate.single_use_of_passes(), pass, under_way);
        // A task of its own: a client that goes away ends the request, and not the purchase.
        let (answer, answered) = oneshot::channel();
        actix_rt::spawn(self.gate.purchases.track_future(async move {
            // Nobody is there to take the answer when the client has gone.
            let _ = answer.send(purchase.await);
        }));
        Box::pin(async move { answered.await.unwrap_or_else(|_| Err(shop_panicked())) })
    }
}

async fn purchase<S, B>(
    shop: Rc<S>,
    req: ServiceRequest,
    single_use: Option<SingleUse>,
    pass: PassClaims,
    under_way: UnderWay,
) -> Answer<B>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
    B: MessageBody + 'static,
{
    let claimed = match single_use {
        None => None,
        Some(single_use) => match single_use.claim(pass).await {
            Ok(claimed) => Some(claimed),
            Err(refusal) => return Ok(refuse(req, refusal)),
        },
    };
    req.extensions_mut().insert(pass);
    let answer = shop.call(req).await;
    drop(under_way);
    // Without an answer of the shop nobody knows whether it sold: the claim is left to its lease.
    let mut answer = answer?.map_into_left_body();
    if let Some(claimed) = claimed {
        if claimed.degraded {
            mark_degraded(&mut answer);
        }
        let shops_status = answer.response().extensions().get().map(|ShopsStatus(status)| *status);
        if answer.response().extensions().get::<NoAnswerFromShop>().is_none() {
            claimed.settle(settlement_of(shops_status.unwrap_or(answer.status()))).await;
        }
    }
    Ok(answer)
}

fn mark_degraded<B>(answer: &mut ServiceResponse<B>) {
    answer.headers_mut().insert(DEGRADED_HEADER, HeaderValue::from_static("redis"));
}

fn refuse<B>(req: ServiceRequest, refusal: Refusal) -> ServiceResponse<EitherBody<B>> {
    req.into_response(refusal.into_response()).map_into_right_body()
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
