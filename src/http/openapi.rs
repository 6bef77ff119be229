//! The OpenAPI description of the API, generated from the handlers so that both agree.
//!
//! Here: the description of every route. `selection` selects the routes that a configuration has. Not here: bodies and
//! parameters; the handlers read and write the same types that describe them.

mod exact;
mod selection;

use actix_web::{
    HttpResponse,
    http::header::{CONTENT_TYPE, HeaderValue},
    web,
};
use serde_json::Value;
use utoipa::{
    Modify, OpenApi,
    openapi::{
        self, Content, HeaderBuilder, ObjectBuilder, Ref, RefOr,
        schema::Type,
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};

use self::exact::with_exact_ids;
use super::{admin::flag, health, no_shop, paths::OPENAPI, queue, state::HttpState, verify};
use crate::{domain::QueueTargetType, problem::ProblemBody};

/// The OpenAPI description of all routes that any configuration can have, as JSON.
pub fn openapi_json() -> String {
    to_json(&description())
}

fn description() -> Value {
    let mut api = serde_json::to_value(Api::openapi()).expect(IS_JSON);
    with_exact_ids(&mut api);
    api
}

fn to_json(description: &Value) -> String {
    serde_json::to_string_pretty(description).expect(IS_JSON)
}

const IS_JSON: &str = "a description made of strings and maps is JSON";

/// This description: the routes that exist with this process's configuration.
#[utoipa::path(get, path = OPENAPI.path, operation_id = "openapi", tag = "queue",
    responses((status = 200, description = "OpenAPI 3.1.", body = Object, content_type = "application/json")))]
pub(super) async fn serve(state: web::Data<HttpState>) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_TYPE, HeaderValue::from_static("application/json")));
    response.body(state.options.served.description(|served| to_json(&served.select_from(description()))))
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Virtual Queue", description = "A waiting room: fixed numbers, exact batches, signed passes."),
    paths(
        queue::enter, queue::poll, queue::leave, queue::stats,
        no_shop::order, no_shop::select_seats, no_shop::buy_tickets,
        serve, health::live, health::ready, health::metrics,
        flag::get, flag::put, flag::audit,
        verify::verify, verify::settle,
    ),
    components(schemas(ProblemBody, QueueTargetType)),
    modifiers(&EveryErrorIsAProblem, &Tokens),
    tags(
        (name = "queue", description = "For buyers and their apps."),
        (name = "purchase", description = "The shop, behind the gate."),
        (name = "gate", description = "For proxies before the shop, and for the shop; buyers never call it."),
        (name = "management", description = "For operators and their machines."),
        (name = "admin", description = "For operators; there only with `admin.token`."),
    )
)]
struct Api;

/// Every answer of 400 and above has the same form, and every 429 and 503 has `Retry-After`.
struct EveryErrorIsAProblem;

impl Modify for EveryErrorIsAProblem {
    fn modify(&self, api: &mut openapi::OpenApi) {
        let operations = api.paths.paths.values_mut().flat_map(|path| {
            [&mut path.get, &mut path.post, &mut path.put, &mut path.patch, &mut path.delete].into_iter().flatten()
        });
        for operation in operations {
            for (status, response) in &mut operation.responses.responses {
                let RefOr::T(response) = response else { continue };
                if status.as_str() < "400" || status == "default" {
                    continue;
                }
                let problem = Content::new(Some(Ref::from_schema_name("Problem")));
                response.content.insert("application/problem+json".to_owned(), RefOr::T(problem));
                if matches!(status.as_str(), "429" | "503") {
                    let seconds = ObjectBuilder::new().schema_type(Type::Integer).build();
                    let header = HeaderBuilder::new().schema(Some(seconds)).description(Some("Seconds.")).build();
                    response.headers.insert("Retry-After".to_owned(), RefOr::T(header));
                }
            }
        }
    }
}

/// The tokens of operators and of the shop.
struct Tokens;

impl Modify for Tokens {
    fn modify(&self, api: &mut openapi::OpenApi) {
        let components = api.components.get_or_insert_default();
        for name in ["adminToken", "settleToken"] {
            components.add_security_scheme(name, SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
        }
    }
}
