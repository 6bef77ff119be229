//! The store from outside.

use super::*;

#[tokio::test]
async fn who_enters_gets_the_next_number_and_keeps_it() {
    let room = Room::open().await;
    for (id, number) in [(7, 1), (8, 2), (7, 1), (9, 3), (8, 2)] {
        let Some(Place::Waiting(position)) = room.enter(id).await else { panic!("{id} waits") };
        assert_eq!((position.seq, position.ahead), (number, number - 1));
        assert_eq!((position.next_tick_in_ms, position.moving, position.paused), (2000, true, false));
    }
}
