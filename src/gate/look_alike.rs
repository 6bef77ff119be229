//! Headers that the shop may take for ours. PHP, CGI and WSGI make one variable of `X-User-Id`, `X_User_Id` and
//! `X.User.Id`; the last one wins.
//!
//! The middleware removes them. With forward auth the gate cannot remove them, so it refuses the request.

use actix_web::http::header::{HeaderMap, HeaderName};

use super::request::{ENTRY_TOKEN_HEADER, USER_ID_HEADER};
use crate::identity::folded;

/// Prefix of the headers in which the proxy tells the shop who buys. No buyer sends it.
const TOLD_PREFIX: &str = "x-virtual-queue-";

/// Whether a shop may take one of the headers for the buyer's id, the pass, or a header of the proxy.
pub(super) fn any(headers: &HeaderMap) -> bool {
    headers.keys().any(is_one)
}

fn is_one(name: &HeaderName) -> bool {
    let text = name.as_str();
    // A cheap test that ends here for almost every header: folding keeps the first letter and the length.
    if !text.starts_with('x') || name == USER_ID_HEADER || name == ENTRY_TOKEN_HEADER {
        return false;
    }
    let as_long = |ours: &HeaderName| ours.as_str().len() == text.len();
    if !(as_long(&USER_ID_HEADER) || as_long(&ENTRY_TOKEN_HEADER) || text.len() >= TOLD_PREFIX.len()) {
        return false;
    }
    let folded = folded(name);
    folded == USER_ID_HEADER.as_str() || folded == ENTRY_TOKEN_HEADER.as_str() || folded.starts_with(TOLD_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_folds_to_our_names_is_one_and_our_own_names_are_none() {
        let is_one = |name: &str| is_one(&HeaderName::from_bytes(name.as_bytes()).unwrap());
        for name in [
            "X_User_Id",
            "X-User_Id",
            "x.user.id",
            "X-USER~ID",
            "X_Entry_Token",
            "X-Entry.Token",
            "X-Virtual-Queue-User",
            "X_Virtual_Queue_Target",
            "X.Virtual.Queue.Claim",
            "x-virtual-queue-",
            "X-Virtual-Queue-Anything",
        ] {
            assert!(is_one(name), "{name}");
        }
        for name in [
            "X-User-Id",
            "x-user-id",
            "X-ENTRY-TOKEN",
            "X-User-Ids",
            "X-UserId",
            "X-Virtual-Queue",
            "User-Id",
            "Cookie",
        ] {
            assert!(!is_one(name), "{name}");
        }
    }
}
