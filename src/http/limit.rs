//! Limits how often one address may enter.
//!
//! Only entering is limited. Polling never is: people keep their place by polling. The limit makes a flood from one
//! address small; it does not decide who waits or buys.

use std::{
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use actix_web::{
    HttpRequest,
    http::header::{HeaderMap, HeaderName, HeaderValue},
};
use governor::{Quota, RateLimiter, clock::Clock, middleware::NoOpMiddleware, state::keyed::HashMapStateStore};
use ipnet::IpNet;

use super::error::ApiError;
use crate::{clock::StoreClock, config::RateLimitConfig};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Addresses remembered at a time. Beyond that, new addresses are not limited until others are forgotten: a limit by
/// address cannot stop a flood from so many addresses.
const MAX_ADDRESSES: usize = 200_000;

/// Forgetting visits every address, so it runs at most this often, in milliseconds.
const FORGET_EVERY_MS: u64 = 1000;

/// The limit on entering, one for each process.
pub struct EnterLimit {
    limiter: RateLimiter<IpAddr, HashMapStateStore<IpAddr>, Monotonic, NoOpMiddleware<Duration>>,
    trusted: Vec<IpNet>,
    max_addresses: usize,
    forgotten_at_ms: AtomicU64,
}

/// The monotonic side of the store's clock.
#[derive(Debug, Clone)]
struct Monotonic(StoreClock);

impl Clock for Monotonic {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.monotonic()
    }
}

impl EnterLimit {
    /// From the configuration; `None`: there is no limit.
    pub fn from_config(config: &RateLimitConfig, clock: &StoreClock) -> Option<Self> {
        let rate = config.enter_per_second.and_then(NonZeroU32::new)?;
        let burst = config.enter_burst.and_then(NonZeroU32::new).unwrap_or(rate);
        let limiter = RateLimiter::new(
            Quota::per_second(rate).allow_burst(burst),
            HashMapStateStore::default(),
            Monotonic(clock.clone()),
        );
        Some(Self {
            limiter,
            trusted: config.trusted_proxies.clone(),
            max_addresses: MAX_ADDRESSES,
            forgotten_at_ms: AtomicU64::new(0),
        })
    }

    /// Counts one more entry.
    ///
    /// # Errors
    /// [`ApiError::RateLimited`] if the request's address has entered too often.
    pub(super) fn check(&self, request: &HttpRequest) -> Result<(), ApiError> {
        // Without a peer address there is nothing to count by.
        let Some(peer) = request.peer_addr() else { return Ok(()) };
        self.check_address(client(peer.ip(), request.headers(), &self.trusted))
    }

    fn check_address(&self, address: IpAddr) -> Result<(), ApiError> {
        if !self.has_room() {
            return Ok(());
        }
        self.limiter.check_key(&network_of(address)).map_err(|until| {
            let wait = until.wait_time_from(self.limiter.clock().now());
            ApiError::RateLimited { retry_after: wait.as_millis().div_ceil(1000).max(1) as u64 }
        })
    }

    /// Whether one more address may be remembered. If there is no room, forgets addresses that have not entered for
    /// long enough.
    fn has_room(&self) -> bool {
        if self.limiter.len() < self.max_addresses {
            return true;
        }
        let now_ms = self.limiter.clock().now().as_millis() as u64;
        let before = self.forgotten_at_ms.load(Ordering::Relaxed);
        let is_time = now_ms.saturating_sub(before) >= FORGET_EVERY_MS;
        if is_time
            && self.forgotten_at_ms.compare_exchange(before, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.limiter.retain_recent();
        }
        self.limiter.len() < self.max_addresses
    }
}

/// The address of a request: the peer, or, if the peer is a trusted proxy, the last address in `X-Forwarded-For` that
/// is not one. Anybody may have written the entries before it.
fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: &IpAddr| trusted.iter().any(|network| network.contains(address));
    let mut client = peer.to_canonical();
    if !is_trusted(&client) {
        return client;
    }
    // Bytes: a buyer may have sent non-text before the entries that our proxies append to the same line.
    let lines: Vec<&[u8]> = headers.get_all(FORWARDED_FOR).map(HeaderValue::as_bytes).collect();
    for hop in lines.iter().rev().flat_map(|line| line.rsplit(|byte| *byte == b',')) {
        // A trusted proxy wrote something that is no address: use the address of that proxy.
        let Some(address) = str::from_utf8(hop).ok().and_then(|hop| address_of(hop.trim())) else { break };
        client = address;
        if !is_trusted(&client) {
            break;
        }
    }
    client
}

/// `1.2.3.4`, `1.2.3.4:5`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:5`.
fn address_of(hop: &str) -> Option<IpAddr> {
    let bare = hop.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse().ok().or_else(|| hop.parse::<std::net::SocketAddr>().ok().map(|at| at.ip()))?;
    Some(address.to_canonical())
}

/// What counts as one address: in IPv6 each person has a whole /64.
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{clock::FakeClock, config::Config};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn limit(rate: u32, burst: Option<u32>) -> (EnterLimit, Arc<FakeClock>) {
        let clock = FakeClock::at(1_000_000);
        let config = RateLimitConfig { enter_per_second: Some(rate), enter_burst: burst, trusted_proxies: vec![] };
        (EnterLimit::from_config(&config, &StoreClock::new(clock.clone())).unwrap(), clock)
    }

    /// How many of `tries` are allowed.
    fn let_in(limit: &EnterLimit, from: &str, tries: usize) -> usize {
        (0..tries).filter(|_| limit.check_address(ip(from)).is_ok()).count()
    }

    #[test]
    fn an_address_enters_as_often_as_configured_and_others_do_not_count() {
        let (limit, clock) = limit(2, Some(5));
        assert_eq!(let_in(&limit, "192.0.2.1", 9), 5, "the burst");
        assert_eq!(let_in(&limit, "192.0.2.2", 9), 5, "another's own");
        clock.advance(Duration::from_secs(1));
        assert_eq!(let_in(&limit, "192.0.2.1", 9), 2, "the rate");
        clock.advance(Duration::from_secs(60));
        assert_eq!(let_in(&limit, "192.0.2.1", 9), 5, "the burst again, and no more");
    }

    #[test]
    fn who_is_refused_is_told_when_to_come_back() {
        let (limit, _) = limit(1, None);
        assert_eq!(let_in(&limit, "192.0.2.1", 1), 1);
        assert_eq!(limit.check_address(ip("192.0.2.1")), Err(ApiError::RateLimited { retry_after: 1 }));
    }

    #[test]
    fn a_whole_64_is_one_address_and_a_mapped_one_is_what_it_maps() {
        let (limit, _) = limit(1, None);
        assert_eq!(let_in(&limit, "2001:db8:0:1::1", 1), 1);
        assert_eq!(let_in(&limit, "2001:db8:0:1:ffff::2", 1), 0);
        assert_eq!(let_in(&limit, "2001:db8:0:2::1", 1), 1);
        let of = |peer| client(ip(peer), &HeaderMap::new(), &[]);
        assert_eq!(of("::ffff:192.0.2.1"), ip("192.0.2.1"));
    }

    #[test]
    fn memory_is_bounded_and_quiet_addresses_are_forgotten() {
        let (mut limit, clock) = limit(1, None);
        limit.max_addresses = 3;
        for host in 1..=9 {
            assert_eq!(let_in(&limit, &format!("192.0.2.{host}"), 1), 1);
        }
        assert_eq!(limit.limiter.len(), 3);
        assert_eq!(let_in(&limit, "192.0.2.9", 5), 5, "no room: not limited");
        clock.advance(Duration::from_secs(5));
        assert_eq!(let_in(&limit, "192.0.2.9", 5), 1, "there is room again");
        assert_eq!(limit.limiter.len(), 1);
    }

    #[test]
    fn only_our_own_proxies_are_believed_about_where_a_request_comes_from() {
        let trusted: Vec<IpNet> = ["10.0.0.0/8", "fd00::/8"].iter().map(|network| network.parse().unwrap()).collect();
        for (peer, forwarded, expected) in [
            ("192.0.2.1", &["198.51.100.7"][..], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            ("::ffff:10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            ("fd00::1", &["2001:db8::7"], "2001:db8::7"),
            ("10.0.0.1", &["1.2.3.4, 198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["1.2.3.4", "198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["1.2.3.4, 198.51.100.7, 10.9.9.9"], "198.51.100.7"),
            ("10.0.0.1", &["198.51.100.7", "10.9.9.9,10.8.8.8"], "198.51.100.7"),
            ("10.0.0.1", &["198.51.100.7:4711"], "198.51.100.7"),
            ("10.0.0.1", &["[2001:db8::7]:4711"], "2001:db8::7"),
            ("10.0.0.1", &["[2001:db8::7]"], "2001:db8::7"),
            ("10.0.0.1", &["1.2.3.4, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["1.2.3.4, "], "10.0.0.1"),
            ("10.0.0.1", &["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
            ("10.0.0.1", &["\u{e9}, 198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["\u{e9}", "198.51.100.7, 10.9.9.9"], "198.51.100.7"),
            ("10.0.0.1", &["198.51.100.7, \u{e9}"], "10.0.0.1"),
        ] {
            let mut headers = HeaderMap::new();
            for line in forwarded {
                headers.append(FORWARDED_FOR, HeaderValue::from_bytes(line.as_bytes()).unwrap());
            }
            assert_eq!(client(ip(peer), &headers, &trusted), ip(expected), "{peer} {forwarded:?}");
        }
    }

    #[test]
    fn nobody_is_limited_unless_configured() {
        let config = Config::parse_default();
        assert!(EnterLimit::from_config(&config.rate_limit, &StoreClock::new(FakeClock::at(0))).is_none());
    }
}
