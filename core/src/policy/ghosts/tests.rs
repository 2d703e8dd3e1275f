use super::*;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

fn key(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// Against plain queues: the same lengths and the same answers, over many rounds of the numbers.
#[test]
fn ghost_queues_match_plain_queues() {
    let ghosts = Ghosts::new(2, 200, Placement::new(1));
    let mut queues = [VecDeque::new(), VecDeque::new()];
    let mut state = 0x1234_5678_9abc_def1u64;
    let (mut next, mut taken) = (0, 0);
    for _ in 0..200_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let queue = state as usize >> 40 & 1;
        match state % 8 {
            0..=4 => {
                ghosts.insert(queue, key(next), || queue);
                queues[queue].push_back(next);
                next += 1;
            }
            5 | 6 => {
                let asked = next.saturating_sub(1 + (state >> 20) % 300);
                let found = (0..2).find(|queue| queues[*queue].contains(&asked));
                if let Some(queue) = found {
                    queues[queue].retain(|other| *other != asked);
                    taken += 1;
                }
                assert_eq!(ghosts.take(key(asked)), found);
            }
            _ => {}
        }
        for (queue, most) in [(0, 120), (1, 70)] {
            ghosts.trim(queue, most);
            while queues[queue].len() > most {
                queues[queue].pop_front();
            }
        }
        assert_eq!([ghosts.len(0), ghosts.len(1)], [0, 1].map(|queue: usize| queues[queue].len()));
    }
    assert!(taken > 10_000, "{taken} came back");
}

/// With no room left the oldest goes, and the youngest is there.
#[test]
fn ghost_queue_when_full_drops_the_oldest() {
    let ghosts = Ghosts::new(1, 50, Placement::new(1));
    for number in 0..10_000 {
        ghosts.insert(0, key(number), || 0);
        assert!(ghosts.len(0) <= 50);
        assert_eq!(ghosts.take(key(number)), Some(0));
        ghosts.insert(0, key(number), || 0);
    }
    let there = (0..10_000).filter(|number| ghosts.take(key(*number)).is_some());
    assert_eq!(there.collect::<Vec<_>>(), (9950..10_000).collect::<Vec<_>>());
}

/// A ghost that is never requested neither keeps the numbers from wrapping, nor is taken for its
/// number's next ghost.
#[test]
fn old_ghost_gives_up_its_number_when_numbers_wrap() {
    let ghosts = Ghosts::new(1, 32, Placement::new(1));
    ghosts.insert(0, key(0), || 0);
    for number in 1..256 {
        ghosts.insert(0, key(number), || 0);
        assert_eq!(ghosts.take(key(number)), Some(0));
    }
    ghosts.insert(0, key(256), || 0);
    assert_eq!([0, 256].map(|number| ghosts.take(key(number))), [None, Some(0)]);
    assert_eq!(ghosts.len(0), 0);
}
