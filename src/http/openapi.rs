//! The OpenAPI description of the API, generated from the handlers so that both agree.
//!
//! Here: the description of every route. `served` selects the routes that a configuration has.

mod exact;
mod served;

use actix_web::{
    HttpResponse,
    http::header::{CONTENT_TYPE, HeaderValue},
    web,
};
use serde_json::Value;
use utoipa::{
    IntoParams, Modify, OpenApi, ToSchema,
    openapi::{
        self, ArrayBuilder, Content, HeaderBuilder, ObjectBuilder, Ref, RefOr,
        schema::Type,
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};

use self::exact::with_exact_ids;
pub use self::served::Served;
use super::{admin, health, purchase, queue, state::HttpState, verify};

/// The OpenAPI description of all routes that any configuration can have, as JSON.
pub fn openapi_json() -> String {
    to_json(&description())
}

fn description() -> Value {
    let mut api = serde_json::to_value(Api::openapi()).expect(IS_JSON);
    with_exact_ids(&mut api);
    for body in ["FlagChange", "Settlement"] {
        // The handlers refuse unknown members.
        api["components"]["schemas"][body]["additionalProperties"] = Value::from(false);
    }
    api
}

fn to_json(description: &Value) -> String {
    serde_json::to_string_pretty(description).expect(IS_JSON)
}

const IS_JSON: &str = "a description made of strings and maps is JSON";

/// This description: the routes that exist with this process's configuration.
#[utoipa::path(get, path = "/openapi.json", operation_id = "openapi", tag = "queue",
    responses((status = 200, description = "OpenAPI 3.1.", body = Object, content_type = "application/json")))]
pub(super) async fn serve(state: web::Data<HttpState>) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_TYPE, HeaderValue::from_static("application/json")));
    response.body(state.options.served.json())
}

/// The kinds of target.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
#[expect(dead_code, reason = "names the values of a path segment for the documentation")]
pub(super) enum TargetType {
    LimitedDrop,
    TicketingEvent,
}

/// What a purchase did with its pass.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "names the values of a field for the documentation")]
pub(super) enum Outcome {
    Spent,
    GivenBack,
}

/// Why a purchase is refused.
#[derive(ToSchema)]
#[schema(as = RefusalReason, rename_all = "snake_case")]
#[expect(dead_code, reason = "names the values of a field for the documentation")]
pub(super) enum Reason {
    /// There is no pass.
    NoPass,
    /// The user is unknown.
    NoUser,
    /// Not in the form of a pass, or two passes.
    Malformed,
    /// Signed with none of the secrets.
    Forged,
    /// The pass has expired.
    Expired,
    /// The pass of another person.
    OtherUser,
    /// A pass for another target.
    OtherTarget,
    /// The pass is spent or revoked.
    Spent,
    /// Not the canonical spelling of the purchase's path.
    OddPath,
}

/// The target in a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "names path parameters for the documentation")]
pub(super) struct TargetPath {
    /// The kind of target.
    r#type: TargetType,
    /// Canonical decimal, 1..=9223372036854775807.
    #[param(rename = "targetId", pattern = "^[1-9][0-9]{0,18}$")]
    target_id: String,
}

/// The person who calls.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "names a header for the documentation")]
pub(super) struct UserHeader {
    /// The user id, exactly once: canonical decimal, 1..=9223372036854775807; with `identity.ids = "any"` 1 to 128
    /// visible ASCII characters. Ignored if buyers are identified by tokens or are anonymous visitors: then
    /// `Authorization: Bearer` is needed, or the cookie `vq_visitor`, which entering sets.
    #[param(rename = "X-User-Id", pattern = "^[1-9][0-9]{0,18}$", nullable = false)]
    user_id: Option<String>,
}

/// The pass of the person who buys.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "names a header for the documentation")]
pub(super) struct PassHeader {
    /// The pass, as `entryToken` gave it. If passes also come in cookies, the header wins.
    #[param(rename = "X-Entry-Token", nullable = false)]
    entry_token: Option<String>,
}

/// The operator who makes a change.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "names a header for the documentation")]
pub(super) struct OperatorHeader {
    /// Who makes the change, for the audit: 1 to 100 visible characters; default `admin`.
    #[param(rename = "X-Operator", max_length = 100, pattern = "^[ -~]*[!-~][ -~]*$", nullable = false)]
    operator: Option<String>,
}

/// The rule that an operator sets.
#[derive(ToSchema)]
#[schema(as = FlagChange, rename_all = "camelCase")]
#[expect(dead_code, reason = "names the fields of a flag rule for the documentation")]
pub(super) struct FlagChangeBody {
    /// The switch.
    enabled: bool,
    /// The percentage of people for whom it is on, besides `users`.
    #[schema(minimum = 0, maximum = 100, default = 100, nullable = false)]
    rollout_percent: Option<u8>,
    /// The targets for which it is on, `limited-drop/42`; none: all.
    #[schema(schema_with = targets, required = false)]
    targets: Option<Vec<String>>,
    /// The people for whom it is on, whatever the percentage.
    #[schema(schema_with = users, required = false)]
    users: Option<Vec<String>>,
    /// The reason, for the audit: not blank.
    #[schema(min_length = 1, max_length = 500, pattern = "\\S")]
    reason: String,
}

fn targets() -> ArrayBuilder {
    list_of("^(limited-drop|ticketing-event)/[1-9][0-9]{0,18}$")
}

fn users() -> ArrayBuilder {
    list_of("^[1-9][0-9]{0,18}$")
}

fn list_of(pattern: &str) -> ArrayBuilder {
    ArrayBuilder::new().items(ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)))
}

/// The rule in force.
#[derive(ToSchema)]
#[schema(as = FlagRule, rename_all = "camelCase")]
#[expect(dead_code, reason = "names the fields of a flag rule for the documentation")]
pub(super) struct FlagRuleBody {
    /// The number of changes; 0: there was none.
    version: u64,
    /// The time of the last change, milliseconds since the epoch.
    #[schema(required)]
    updated_at_ms: Option<u64>,
    /// The switch.
    enabled: bool,
    /// The percentage of people for whom it is on, besides `users`.
    #[schema(minimum = 0, maximum = 100)]
    rollout_percent: u8,
    /// The targets for which it is on; none: all.
    targets: Vec<String>,
    /// The people for whom it is on, whatever the percentage.
    users: Vec<String>,
    /// The reason of the last change.
    reason: String,
}

/// One change of the rule.
#[derive(ToSchema)]
#[schema(as = FlagAuditEntry, rename_all = "camelCase")]
#[expect(dead_code, reason = "names the fields of an audit entry for the documentation")]
pub(super) struct AuditEntryBody {
    /// The operator; `restore` if a replica wrote a lost rule back.
    who: String,
    /// The time, milliseconds since the epoch.
    at_ms: u64,
    /// The rule before; null: there was none.
    #[schema(required, value_type = Option<Object>)]
    old: Option<FlagRuleBody>,
    /// The rule after.
    #[schema(required, value_type = Option<Object>)]
    new: Option<FlagRuleBody>,
    /// The reason given.
    why: String,
}

/// How a purchase ended.
#[derive(ToSchema)]
#[schema(as = Settlement, rename_all = "camelCase")]
#[expect(dead_code, reason = "names the fields of a settlement for the documentation")]
pub(super) struct SettlementBody {
    /// As `X-Virtual-Queue-Target` gave it, `LIMITED_DROP:42`, or `limited-drop/42`.
    #[schema(pattern = "^(LIMITED_DROP:|TICKETING_EVENT:|limited-drop/|ticketing-event/)[1-9][0-9]{0,18}$")]
    target: String,
    /// Who bought, as `X-Virtual-Queue-User` gave it.
    #[schema(pattern = "^[1-9][0-9]{0,18}$")]
    user_id: String,
    /// As `X-Virtual-Queue-Claim` gave it. Null or missing if the route needs no pass.
    #[schema(pattern = "^[1-9][0-9]{0,10}-[0-9a-f]{32}$")]
    claim: Option<String>,
    /// `spent`: the pass has bought. `given_back`: the pass works again.
    outcome: Outcome,
}

/// An error (RFC 9457).
#[derive(ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "names the fields of every error for the documentation")]
pub(super) struct ProblemBody {
    /// `about:blank`: the status says the kind of problem, the code says which one.
    r#type: String,
    /// The status in words.
    title: String,
    /// The HTTP status.
    status: u16,
    /// The problem, for programs: `QUEUE_FULL`.
    code: String,
    /// The reason, with `QUEUE_BYPASS_DENIED`.
    #[schema(nullable = false)]
    reason: Option<Reason>,
    /// The problem, for people. Texts for buyers are Korean, or English if `Accept-Language` prefers it;
    /// `Content-Language` says which.
    detail: String,
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Virtual Queue", description = "A waiting room: fixed numbers, exact batches, signed passes."),
    paths(
        queue::enter, queue::poll, queue::leave, queue::stats, purchase::order, purchase::select_seats, purchase::buy_tickets, serve, health::live, health::ready, health::metrics,
        admin::flag, admin::put_flag, admin::audit, verify::verify, verify::settle,
    ),
    components(schemas(ProblemBody, TargetType, Outcome, Reason)),
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
        let operations =
            api.paths.paths.values_mut().flat_map(|path| {
                [&mut path.get, &mut path.post, &mut path.put, &mut path.delete].into_iter().flatten()
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
