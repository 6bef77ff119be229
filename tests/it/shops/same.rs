//! What a request and its answer are directly and through the gateway, and how the two may differ.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{start::Framework, wire::Request};
use crate::upstream::RawAnswer;

/// Where a header differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum In {
    /// Among what the shop gets.
    Request,
    /// Among what the client gets.
    Answer,
}

/// Every way in which a request or an answer may differ for having come through the gateway: where, which header, why.
pub(super) const DIFFERENCES: &[(In, &str, &str)] = &[
    (In::Request, "via", "the gateway says that the request came through it"),
    (In::Request, "x-forwarded-for", "the gateway says from where the request came"),
    (In::Request, "x-forwarded-host", "the gateway says for which host the request was"),
    (In::Request, "x-forwarded-proto", "the gateway says by which scheme the request came"),
    (In::Request, "connection", "each connection has its own"),
    (In::Request, "te", "the gateway passes on no trailers"),
    (In::Request, "x-mine", "`Connection` names it: it is about the client's connection"),
    (In::Answer, "date", "the gateway adds it where the shop sends none"),
    (In::Answer, "connection", "each connection has its own"),
    (In::Answer, "keep-alive", "each connection has its own"),
    (In::Answer, "transfer-encoding", "a body that ends with the shop's connection goes on in chunks"),
];

impl In {
    /// As the documentation names it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Answer => "answer",
        }
    }
}

type Headers = BTreeMap<String, Vec<String>>;

/// What was seen at both ends.
#[derive(Debug)]
struct Seen {
    status: u16,
    headers: Headers,
    /// `None`: the answer broke off.
    body: Option<Vec<u8>>,
    /// What the echo says of the request: method, target and body, and the headers.
    request: Option<(Vec<String>, Headers)>,
}

fn group(pairs: impl Iterator<Item = (String, String)>) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in pairs {
        headers.entry(name.to_ascii_lowercase()).or_default().push(value.trim().to_owned());
    }
    headers
}

impl Seen {
    fn of(answer: &RawAnswer) -> Self {
        let lines = answer.head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        let headers = group(lines.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let mut seen =
            Self { status: answer.status, headers, body: answer.whole.then(|| answer.body.clone()), request: None };
        if let Ok(echo) = serde_json::from_slice::<Value>(&answer.body)
            && let (Some(pairs), Some(body)) = (echo["headers"].as_array(), echo["body"].as_str())
        {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let body = String::from_utf8_lossy(&STANDARD.decode(body).expect("base64")).into_owned();
            let rest = vec![text(&echo["method"]), text(&echo["target"]), body];
            seen.request = Some((rest, group(pairs.iter().map(|pair| (text(&pair[0]), text(&pair[1]))))));
            // What the request looked like is in there, and makes it longer.
            seen.body = Some(Vec::new());
            seen.headers.remove("content-length");
            seen.headers.remove("etag");
        }
        seen
    }
}

/// Compares headers but for the known differences, of which it takes note.
fn compare(place: In, direct: &Headers, ours: &Headers, noted: &mut Vec<(In, &'static str)>, faults: &mut Vec<String>) {
    let names: std::collections::BTreeSet<&String> = direct.keys().chain(ours.keys()).collect();
    for name in names {
        if direct.get(name) == ours.get(name) {
            continue;
        }
        match DIFFERENCES.iter().find(|(there, known, _)| *there == place && known == name) {
            Some((_, known, _)) => noted.push((place, known)),
            None => faults.push(format!("{place:?}: {name} is {:?} and was {:?}", ours.get(name), direct.get(name))),
        }
    }
}

/// How a request through the gateway (`ours`) and its answer differ from the same one sent directly.
pub(super) fn differences(
    framework: Framework,
    (name, request): &(String, Request),
    [shop, gateway]: [&str; 2],
    noted: &mut Vec<(In, &'static str)>,
) -> Vec<String> {
    let mut faults = Vec::new();
    match [shop, gateway].map(|url| request.ask(url)) {
        [None, None] => {}
        [Some(direct), Some(ours)] => {
            let (mut direct, mut ours) = (Seen::of(&direct), Seen::of(&ours));
            if request.method == "HEAD" && request.target.starts_with("/echo") {
                // As long as the request, which differs.
                for seen in [&mut direct, &mut ours] {
                    seen.headers.remove("content-length");
                    seen.headers.remove("etag");
                }
            }
            if direct.status == ours.status {
                compare(In::Answer, &direct.headers, &ours.headers, noted, &mut faults);
            } else {
                faults.push(format!("the status is {} and was {}", ours.status, direct.status));
            }
            if direct.body != ours.body {
                faults.push("the body differs".to_owned());
            }
            match (&direct.request, &ours.request) {
                (None, None) => {}
                (Some((direct, directly)), Some((ours, through_us))) => {
                    if direct != ours {
                        faults.push(format!("the shop saw {ours:?} instead of {direct:?}"));
                    }
                    compare(In::Request, directly, through_us, noted, &mut faults);
                }
                _ => faults.push("only one was echoed".to_owned()),
            }
        }
        [direct, ours] => faults.push(format!("the answer is {ours:?} and was {direct:?}")),
    }
    faults.into_iter().map(|fault| format!("{framework:?}, {name}: {fault}")).collect()
}
