//! Cases by proptest.

use crate::copy_cases::Picks;
use proptest::prelude::*;

pub fn picks() -> impl Strategy<Value = Picks> {
    let sides = (any::<[u8; 2]>(), any::<[u8; 2]>(), any::<[bool; 2]>(), any::<[bool; 2]>());
    let places = (any::<[bool; 2]>(), any::<[u8; 2]>());
    let blocks = (any::<u8>(), proptest::collection::vec(any::<(u8, u8)>(), 1..7));
    let slices = (any::<[bool; 2]>(), any::<[[u8; 3]; 2]>());
    (any::<[u8; 6]>(), any::<u8>(), sides, places, blocks, slices).prop_map(
        |(
            sizes,
            dtype,
            (arrangements, alignments, hnd, scales_apart),
            (at_end, shifts),
            (of, blocks),
            (all, slices),
        )| {
            Picks {
                sizes,
                dtype,
                arrangements,
                alignments,
                hnd,
                scales_apart,
                at_end,
                shifts,
                of,
                blocks,
                all,
                slices,
                tame: true,
            }
        },
    )
}
