//! The clock and its waiters, against a set of the layers done; the message of each misuse.

use super::{Call, Clock, Gate};
use crate::scheduler::{Full, Gated, Key};
use proptest::prelude::*;
use std::collections::BTreeSet;

const LAYERS: u32 = 4;

#[test]
fn misuse_names_its_call_and_changes_nothing() {
    let mut clock = Clock::new(3);
    let state = |clock: &Clock| (clock.iteration(), clock.gate(Some(1)), clock.due());
    let between = state(&clock);
    let none = "no iteration is running (the last was 0); call begin_iteration first";
    assert_eq!(clock.end().expect_err("not begun").to_string(), format!("end: {none}"));
    assert_eq!(clock.layer_done(2).expect_err("not begun").to_string(), format!("layer_done(2): {none}"));
    assert_eq!(state(&clock), between);

    assert_eq!(clock.begin(), Ok(1));
    assert_eq!(clock.layer_done(1), Ok(2), "with the one before");
    let running = state(&clock);
    for (error, words) in [
        (clock.begin().expect_err("runs"), "begin_iteration: iteration 1 is running; end it first"),
        (clock.step().expect_err("runs"), "step: iteration 1 is running; end it first"),
        (
            clock.layer_done(1).expect_err("twice"),
            "layer_done(1): layers of iteration 1 done already: 2; call it once per layer, in order",
        ),
        (
            clock.layer_done(0).expect_err("backwards"),
            "layer_done(0): layers of iteration 1 done already: 2; call it once per layer, in order",
        ),
        (
            clock.layer_done(3).expect_err("none"),
            "layer_done(3): no such layer; layers of the model: 3, numbered from 0",
        ),
    ] {
        assert_eq!(error.to_string(), words);
    }
    assert_eq!(state(&clock), running);
    assert_eq!((clock.layer_done(2), clock.end()), (Ok(3), Ok(1)));
    assert_eq!(clock.end().expect_err("twice").call, Call::End);
}

#[test]
fn engine_that_reports_less_keeps_no_gate_shut() {
    let mut clock = Clock::new(LAYERS);
    let mut gated = Gated::new(10);
    clock.begin().expect("none runs");
    for (gate, item) in
        [(clock.gate(None), 2), (clock.gate(Some(3)), 1), (clock.gate(Some(99)), 3), (Gate::Open, 0)]
    {
        gated.hold(gate, item).expect("room");
    }
    let mut seen = Vec::new();
    assert_eq!(gated.released(&clock, |item| seen.push(item)), 1);
    clock.end().expect("it runs");
    // A layer beyond the last is due after the last, and no later than the whole.
    assert_eq!(gated.released(&clock, |item| seen.push(item)), 3);
    assert_eq!(seen, [0, 1, 3, 2]);

    // From here on, steps alone.
    assert_eq!(clock.gate(Some(1)), Gate::Open);
    gated.hold(Gate::Layer { iteration: 3, layer: 0 }, 4).expect("room");
    gated.hold(Gate::Iteration(2), 5).expect("room");
    assert_eq!(clock.step(), Ok(2));
    assert_eq!(gated.released(&clock, |item| seen.push(item)), 1);
    assert_eq!(clock.step(), Ok(3));
    assert_eq!(gated.released(&clock, |item| seen.push(item)), 1);
    assert_eq!(seen, [0, 1, 3, 2, 5, 4]);
}

#[test]
fn gated_item_beyond_the_limit_is_given_back() {
    let mut gated = Gated::new(1);
    gated.hold_beyond(Gate::Open, 'a');
    gated.hold(Gate::Open, 'b').expect("room: what has begun takes none");
    let full = gated.hold(Gate::Open, 'c').expect_err("full");
    assert_eq!(full, Full { waiting: 1, limit: 1, item: 'c' });
    assert_eq!(full.to_string(), "the queue of waiting items is full (1 of 1); retry when one has left");
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Begin,
    LayerDone(u32),
    End,
    Step,
    /// At an iteration so many ahead; a layer of it, or the whole.
    Hold {
        ahead: u64,
        layer: Option<u32>,
    },
    /// Beyond the limit.
    HoldBeyond {
        ahead: u64,
        layer: u32,
    },
    HoldOpen,
    /// By any key ever given.
    Remove {
        which: u8,
    },
    Release,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => Just(Operation::Begin),
        5 => (0..LAYERS + 1).prop_map(Operation::LayerDone),
        3 => Just(Operation::End),
        1 => Just(Operation::Step),
        12 => (0u64..4, prop::option::weighted(0.8, 0..LAYERS + 2)).prop_map(|(ahead, layer)| Operation::Hold { ahead, layer }),
        2 => (0u64..4, 0..LAYERS + 2).prop_map(|(ahead, layer)| Operation::HoldBeyond { ahead, layer }),
        1 => Just(Operation::HoldOpen),
        4 => any::<u8>().prop_map(|which| Operation::Remove { which }),
        4 => Just(Operation::Release),
    ]
}

/// The layers done, one by one: `(iteration, layer)`, and `(iteration, u32::MAX)` when it is over.
#[derive(Default)]
struct Naive {
    done: BTreeSet<(u64, u32)>,
    iteration: u64,
    running: bool,
}

impl Naive {
    fn over(&mut self) {
        self.done.extend((0..LAYERS + 2).chain([u32::MAX]).map(|layer| (self.iteration, layer)));
        self.running = false;
    }

    /// Returns whether the call is in order, and carries it out if so.
    fn call(&mut self, call: Call) -> bool {
        let sense = match call {
            Call::Begin | Call::Step => !self.running,
            Call::End => self.running,
            Call::LayerDone(layer) => {
                self.running && layer < LAYERS && !self.done.contains(&(self.iteration, layer))
            }
        };
        if sense {
            match call {
                Call::Begin => (self.iteration, self.running) = (self.iteration + 1, true),
                Call::LayerDone(layer) => self.done.extend((0..=layer).map(|layer| (self.iteration, layer))),
                Call::End => self.over(),
                Call::Step => {
                    self.iteration += 1;
                    self.over();
                }
            }
        }
        sense
    }

    fn is_open(&self, gate: Gate) -> bool {
        match gate {
            Gate::Open | Gate::Iteration(0) | Gate::Layer { iteration: 0, .. } => true,
            Gate::Layer { iteration, layer } => self.done.contains(&(iteration, layer)),
            Gate::Iteration(iteration) => self.done.contains(&(iteration, u32::MAX)),
        }
    }
}

/// The place of a gate in the order of their opening.
fn rank(gate: Gate) -> (u64, u32) {
    match gate {
        Gate::Open => (0, 0),
        Gate::Layer { iteration, layer } => (iteration, layer + 1),
        Gate::Iteration(iteration) => (iteration, u32::MAX),
    }
}

proptest! {
    #[test]
    fn gates_open_with_their_layer_or_iteration(
        limit in 1u32..40,
        operations in prop::collection::vec(operation(), 0..300),
    ) {
        let (mut clock, mut gated) = (Clock::new(LAYERS), Gated::new(limit));
        let mut naive = Naive::default();
        // In the order of arrival.
        let mut waiting: Vec<(Gate, usize)> = Vec::new();
        let (mut keys, mut beyond): (Vec<Key>, Vec<usize>) = Default::default();
        for operation in operations {
            match operation {
                Operation::Begin => prop_assert_eq!(clock.begin().is_ok(), naive.call(Call::Begin)),
                Operation::LayerDone(layer) => {
                    prop_assert_eq!(clock.layer_done(layer).is_ok(), naive.call(Call::LayerDone(layer)));
                }
                Operation::End => prop_assert_eq!(clock.end().is_ok(), naive.call(Call::End)),
                Operation::Step => prop_assert_eq!(clock.step().is_ok(), naive.call(Call::Step)),
                Operation::Hold { .. } | Operation::HoldOpen => {
                    let gate = match operation {
                        Operation::Hold { ahead, layer: Some(layer) } => {
                            Gate::Layer { iteration: naive.iteration + ahead, layer }
                        }
                        Operation::Hold { ahead, layer: None } => Gate::Iteration(naive.iteration + ahead),
                        _ => Gate::Open,
                    };
                    let item = keys.len();
                    let counted = waiting.iter().filter(|(_, item)| !beyond.contains(item)).count() as u32;
                    match gated.hold(gate, item) {
                        Ok(key) => {
                            prop_assert!(counted < limit);
                            keys.push(key);
                            waiting.push((gate, item));
                        }
                        Err(full) => {
                            prop_assert_eq!(full, Full { waiting: counted, limit, item });
                            prop_assert!(counted >= limit);
                        }
                    }
                }
                Operation::HoldBeyond { ahead, layer } => {
                    let (gate, item) = (Gate::Layer { iteration: naive.iteration + ahead, layer }, keys.len());
                    keys.push(gated.hold_beyond(gate, item));
                    beyond.push(item);
                    waiting.push((gate, item));
                }
                Operation::Remove { which } if !keys.is_empty() => {
                    let item = usize::from(which) * keys.len() / 256;
                    let place = waiting.iter().position(|&(_, waits)| waits == item);
                    prop_assert_eq!(gated.remove(keys[item]), place.map(|place| waiting.remove(place).1));
                }
                Operation::Remove { .. } => {}
                Operation::Release => {
                    let mut expected: Vec<_> =
                        waiting.iter().filter(|&&(gate, _)| naive.is_open(gate)).copied().collect();
                    waiting.retain(|&(gate, _)| !naive.is_open(gate));
                    // Stable: at each gate in the order of arrival.
                    expected.sort_by_key(|&(gate, _)| rank(gate));
                    let mut released = Vec::new();
                    let count = gated.released(&clock, |item| released.push(item));
                    prop_assert_eq!(count as usize, released.len());
                    prop_assert_eq!(released, expected.into_iter().map(|(_, item)| item).collect::<Vec<_>>());
                }
            }
            prop_assert_eq!(clock.iteration(), naive.iteration);
            prop_assert_eq!(clock.is_running(), naive.running);
            prop_assert_eq!(gated.waiting() as usize, waiting.len());
            for iteration in naive.iteration.max(2) - 1..naive.iteration + 2 {
                let done = (0..LAYERS).filter(|layer| naive.done.contains(&(iteration, *layer))).count();
                prop_assert_eq!(clock.layers_done(iteration) as usize, done);
            }
            for &(gate, _) in &waiting {
                prop_assert_eq!(clock.passed(gate), naive.is_open(gate), "{:?}", gate);
            }
        }
    }
}
