//! The arithmetic of tuning. `ffi/tests/cuda/tune.rs` tests its measurements over the double.

use super::super::route::Fragments;
use super::*;
use kvstrata_core::BlockId;
use kvstrata_core::layout::Region;
use kvstrata_core::plan::CopyPlan;
use machine::layouts;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn fewest_ctas_near_the_best_time_are_chosen() {
    assert_eq!(fewest(&[(8, ms(400)), (16, ms(207)), (32, ms(206)), (64, ms(200))]), Some(32));
    assert_eq!(
        fewest(&[(8, ms(207)), (16, ms(206)), (32, ms(200)), (64, ms(300))]),
        Some(16),
        "the best is 32's"
    );
    assert_eq!(fewest(&[(8, ms(0))]), Some(8));
    assert_eq!(fewest(&[]), None);
}

#[test]
fn narrow_factor_applies_above_the_least_time() {
    assert_eq!(factor(ms(50), ms(30), ms(10)), 2.0);
    assert_eq!(factor(ms(20), ms(30), ms(10)), 1.0, "never cheaper");
    assert_eq!(factor(ms(50), ms(10), ms(10)), 1.0, "nothing to compare with");
}

#[test]
fn median_of_times_is_the_middle_one() {
    assert_eq!(median(&mut [ms(9), ms(1), ms(5)]), Some(ms(5)));
    assert_eq!(median(&mut [ms(9), ms(1)]), Some(ms(1)));
    assert_eq!(median(&mut []), None);
    let counts = [10, 1_000, 100_000].map(|us| repetitions(Duration::from_micros(us)));
    assert_eq!(counts, [9, 5, 3]);
}

#[test]
fn coarse_cells_and_small_ones_are_measured_first() {
    let bytes = |cell: &(usize, usize)| CopyCosts::SIZES[cell.0] * CopyCosts::COUNTS[cell.1];
    let order = cells(256 << 20);
    assert_eq!((order.len(), order[0]), (82, (0, 0)));
    let between = order.iter().position(|cell| cell.0 % 2 == 1).expect("some");
    for part in [&order[..between], &order[between..]] {
        assert!(part.iter().map(bytes).is_sorted());
        assert!(part.iter().all(|cell| cell.0 % 2 == part[0].0 % 2));
    }
    assert!(cells(64 << 10).iter().all(|cell| bytes(cell) <= 64 << 10));
}

/// With reasoned costs, not measured ones.
#[test]
fn measuring_the_grid_takes_seconds() {
    for (card, most) in [("NVIDIA H100 80GB HBM3", 4), ("an unknown one", 6)] {
        let costs = CopyCosts::reasoned(card);
        let mut all = Duration::ZERO;
        for (size, count) in cells(256 << 20) {
            let (size, pieces) = (CopyCosts::SIZES[size], CopyCosts::COUNTS[count]);
            let families = pieces.div_ceil(CopyCosts::FAMILY);
            let fragments = Fragments { pieces, bytes: size * pieces, families, width: 16 };
            for direction in Direction::ALL {
                let time = |route| costs.estimate(direction, route, fragments);
                let times: Vec<_> = Route::ALL.into_iter().filter_map(time).collect();
                let slowest = times.iter().copied().max().expect("some");
                let once: Duration = times.iter().sum();
                all += once * (1 + repetitions(slowest)) as u32;
            }
        }
        assert!((Duration::from_secs(1)..Duration::from_secs(most)).contains(&all), "{card}: {all:?}");
    }
}

#[test]
fn utc_date_of_seconds_is_the_calendars() {
    for (seconds, date) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_400 - 1, "2000-02-28T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (951_868_800, "2000-03-01T00:00:00Z"),
        (1_767_225_599, "2025-12-31T23:59:59Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
    ] {
        assert_eq!(utc(seconds), date);
    }
}

#[test]
fn shape_has_its_count_of_pieces_of_its_size() {
    let plan = |shape: Shape, up: bool| {
        let strewn = Region::system(1 << 40, shape.strewn_bytes());
        let [strewn, dense] = layouts(shape, strewn, Region::system(4096, shape.bytes())).expect("it can be");
        let (from, to) = if up { (dense, strewn) } else { (strewn, dense) };
        CopyPlan::new(&from, &[BlockId(0)], &to, &[BlockId(0)], .., 0..1).expect("it can be")
    };
    for (size, count) in cells(256 << 20) {
        let (size, count) = (CopyCosts::SIZES[size], CopyCosts::COUNTS[count]);
        for up in [false, true] {
            let plan = plan(Shape::new(size, count), up);
            assert_eq!((plan.smallest_piece(), plan.largest_piece()), (size, size));
            assert_eq!((plan.pieces_count(), plan.alignment()), (count, 16), "{count} of {size}");
            assert_eq!(
                plan.families().count() as u64,
                count.div_ceil(CopyCosts::FAMILY),
                "{count} of {size}"
            );
        }
    }
    for shift in CopyCosts::NARROW {
        let plan = plan(Shape { shift, ..Shape::new(8192, 64) }, true);
        assert_eq!((plan.pieces_count(), plan.alignment()), (64, shift));
    }
}
