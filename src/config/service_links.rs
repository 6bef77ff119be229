//! The variables that Kubernetes puts into every pod for each Service of its namespace (`enableServiceLinks`).
//!
//! A Service named `vq-redis`, or just `vq`, gets variables that begin as ours do. They are none of ours, and no mistake.

/// Whether Kubernetes sets this variable, without `VQ_`, for a Service: `SERVICE_HOST` for `vq`, `REDIS_SERVICE_HOST` for
/// `vq-redis`. Settings have two underscores between section and key, and these have one everywhere.
pub(super) fn is_one(name: &str, value: &str) -> bool {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    let is_single = !name.starts_with('_') && !name.contains("__");
    is_plain && is_single && (is_shape(name, value) || after_the_name(name).any(|rest| is_shape(rest, value)))
}

/// What follows the Service's name, however many of the words are its name.
fn after_the_name(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('_').filter(|(at, _)| *at > 0).map(|(at, _)| &name[at + 1..])
}

/// `SERVICE_HOST`, `SERVICE_PORT`, `SERVICE_PORT_<NAME>`, `PORT`, `PORT_<n>_<PROTO>` and that with `_PROTO`, `_PORT` or
/// `_ADDR`.
fn is_shape(rest: &str, value: &str) -> bool {
    match rest {
        "SERVICE_HOST" | "SERVICE_PORT" => true,
        // Always an address there: `VQ_SERVER_PORT=8080` is somebody's mistake for `VQ_SERVER__PORT`.
        "PORT" => value.contains("://"),
        _ => {
            rest.strip_prefix("SERVICE_PORT_").is_some_and(|port| !port.is_empty())
                || rest.strip_prefix("PORT_").is_some_and(is_port_and_protocol)
        }
    }
}

/// `6379_TCP`, `6379_TCP_ADDR`.
fn is_port_and_protocol(text: &str) -> bool {
    let mut words = text.split('_');
    let port = words.next().is_some_and(|port| port.parse::<u16>().is_ok());
    let protocol = words.next().is_some_and(|protocol| matches!(protocol, "TCP" | "UDP" | "SCTP"));
    let what = words.next().is_none_or(|what| matches!(what, "PROTO" | "PORT" | "ADDR"));
    port && protocol && what && words.next().is_none()
}
