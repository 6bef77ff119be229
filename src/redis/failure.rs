//! Why a call failed, sorted by what follows from it (`docs/design.md`, "Circuit breaker").

use std::time::Duration;

use ::redis::{ErrorKind, RedisError};

/// Why Redis gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Redis is unavailable, or takes no writes. The breaker is open.
    #[error("{0}")]
    Away(String),
    /// Redis did not answer in time. This alone does not mean that it is unavailable.
    #[error("no answer in time")]
    TimedOut,
    /// Redis refused the request, or the reply makes no sense: a fault in our code, not an outage.
    #[error("{0}")]
    Broken(String),
    /// The keys are moving from one master of a Cluster to another: no outage, and soon over.
    #[error("its keys are on their way to another master")]
    Moving(Moving),
    /// The call was not made because the master was lost too recently. Wait this long, then call again.
    #[error("lost a moment ago")]
    JustLost(Duration),
}

/// What a master of a Cluster says about keys that it does not have, or has only in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moving {
    /// They are at this address from now on.
    Moved(String),
    /// They may be at this address already. Ask there for this call only.
    Ask(String),
    /// Some keys have moved, some have not.
    TryAgain,
}

/// Error codes of a server that takes no writes now.
const AWAY_CODES: [&str; 10] = [
    "OOM",
    "READONLY",
    "LOADING",
    "MISCONF",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "NOREPLICAS",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
];

impl Failure {
    /// Classifies an error. The text never contains a URL or a password: both stay in the client.
    pub(super) fn of(error: &RedisError) -> Self {
        if error.is_timeout() {
            return Self::TimedOut;
        }
        let text = error.to_string();
        match error.kind() {
            // The reply has an unexpected type. (A protocol error also cuts the connection, and so is noticed.)
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => return Self::Broken(text),
            ErrorKind::Io => return Self::Away(text),
            _ if error.is_unrecoverable_error() => return Self::Away(text),
            _ => {}
        }
        if let Some(moving) = Moving::of(error) {
            return Self::Moving(moving);
        }
        let codes = codes(error);
        // A script ran for too long: the answer would have come late.
        if codes.iter().any(|code| code == "BUSY") {
            return Self::TimedOut;
        }
        // Redis 6 wraps an error inside a script: `ERR Error running script … -OOM command not allowed`.
        let away = |code: &&str| codes.iter().any(|own| own == *code) || text.contains(&format!("-{code} "));
        if AWAY_CODES.iter().any(away) { Self::Away(text) } else { Self::Broken(text) }
    }
}

impl Moving {
    fn of(error: &RedisError) -> Option<Self> {
        let errors = error.clone().into_server_errors()?;
        errors.iter().find_map(|(_, error)| {
            // `MOVED 3999 127.0.0.1:6381`
            let address = || error.details()?.split_ascii_whitespace().nth(1).map(str::to_owned);
            match error.code() {
                "MOVED" => address().map(Self::Moved),
                "ASK" => address().map(Self::Ask),
                "TRYAGAIN" => Some(Self::TryAgain),
                _ => None,
            }
        })
    }
}

/// The error codes from the server, for example `NOSCRIPT`. Empty if the error does not come from a server.
pub(super) fn codes(error: &RedisError) -> Vec<String> {
    let errors = error.clone().into_server_errors();
    errors.map_or_else(Vec::new, |errors| errors.iter().map(|(_, error)| error.code().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(line: &str) -> RedisError {
        ::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap().extract_error().unwrap_err()
    }

    #[test]
    fn a_server_that_takes_no_writes_is_away() {
        for line in [
            "OOM command not allowed when used memory > 'maxmemory'. script: abc, on @user_script:3.",
            "READONLY You can't write against a read only replica.",
            "LOADING Redis is loading the dataset in memory",
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
            "CLUSTERDOWN The cluster is down",
            "MASTERDOWN Link with MASTER is down",
            "NOREPLICAS Not enough good replicas to write.",
            "NOAUTH Authentication required.",
            "ERR Error running script (call to f_ab): @user_script:1: -OOM command not allowed",
        ] {
            assert!(matches!(Failure::of(&server(line)), Failure::Away(_)), "{line}");
        }
    }

    #[test]
    fn a_fault_of_ours_does_not_count_as_an_outage() {
        for line in ["ERR user_script:3: bad argument", "WRONGTYPE Operation against a key", "NOSCRIPT No matching"] {
            assert!(matches!(Failure::of(&server(line)), Failure::Broken(_)), "{line}");
        }
    }

    #[test]
    fn keys_on_their_way_are_no_outage() {
        let moving = |line: &str| match Failure::of(&server(line)) {
            Failure::Moving(moving) => moving,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(moving("MOVED 3999 127.0.0.1:6381"), Moving::Moved("127.0.0.1:6381".to_owned()));
        assert_eq!(moving("ASK 3999 [::1]:6381"), Moving::Ask("[::1]:6381".to_owned()));
        assert_eq!(moving("TRYAGAIN Multiple keys request during rehashing of slot"), Moving::TryAgain);
    }

    #[test]
    fn a_reply_of_another_shape_is_a_fault_of_ours() {
        let shape = ::redis::from_redis_value::<Vec<i64>>(::redis::Value::Int(1)).unwrap_err();
        assert!(matches!(Failure::of(&shape.into()), Failure::Broken(_)));
    }

    #[test]
    fn slow_is_not_away() {
        let slow = RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
        assert_eq!(Failure::of(&slow), Failure::TimedOut);
        assert_eq!(Failure::of(&server("BUSY Redis is busy running a script.")), Failure::TimedOut);
        for kind in [std::io::ErrorKind::ConnectionRefused, std::io::ErrorKind::ConnectionReset] {
            assert!(matches!(Failure::of(&RedisError::from(std::io::Error::from(kind))), Failure::Away(_)), "{kind}");
        }
    }
}
