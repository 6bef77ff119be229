//! What `demo` tells a person who has just started it.

use std::io::{self, Write};

use crate::{app::Addresses, config::Config};

/// Prints what to open and what to type, ready to be pasted.
pub(super) fn say_what_to_type(config: &Config, addresses: &Addresses, out: &mut impl Write) -> io::Result<()> {
    let base = format!("http://{}", addresses.public[0]);
    let management = addresses.management.first().map_or(base.clone(), |address| format!("http://{address}"));
    let (batch, seconds) = (config.queue.batch_size, config.queue.tick_ms as f64 / 1000.0);
    write!(
        out,
        "
A waiting room with a small shop behind it, all in memory. {batch} people are let in every {seconds} s. In another terminal:

  # come: you get a number
  curl -X POST -H 'X-User-Id: 7' {base}/virtual-queues/limited-drop/42/entries
  # poll: after the next tick you are ADMITTED and get an entryToken
  curl -H 'X-User-Id: 7' {base}/virtual-queues/limited-drop/42/entries/me
  # buy, with the token in place of TOKEN; without it: 403
  curl -X POST -H 'X-User-Id: 7' -H 'X-Entry-Token: TOKEN' {base}/limited-drops/42/orders

The same for seats: …/virtual-queues/ticketing-event/7/entries, then select as often as you like, and buy
  curl -X POST -H 'X-User-Id: 7' -H 'X-Entry-Token: TOKEN' -H 'Content-Type: application/json' \\
       -d '{{\"seatIds\":[\"A1\"]}}' {base}/events/7/seats/select
  curl -X POST -H 'X-User-Id: 7' -H 'Content-Type: application/json' -d '{{\"seatIds\":[\"A1\"]}}' {base}/events/7/tickets

To open: {base}/virtual-queues/limited-drop/42/stats  {management}/metrics  {base}/openapi.json
Ctrl-C ends it.
"
    )
}
