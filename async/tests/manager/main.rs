//! The manager from outside, over a simulated device: the life of blocks, and the bytes that come back.

mod acquire;
mod ahead;
mod begins;
mod behind;
mod below;
mod below_faults;
mod by_layers;
mod calls;
mod classes;
mod closing;
#[path = "../common/mod.rs"]
mod common;
mod counted;
mod disk_room;
mod dropped;
mod extremes;
mod few_threads;
mod flooding;
mod flying;
mod forked;
#[expect(dead_code, reason = "this test uses some of it")]
#[path = "../tenants/gated.rs"]
mod gated;
mod ground;
mod group;
mod groups;
mod iteration;
mod last_owner;
mod late;
mod life;
mod own_runtime;
mod panics;
mod parents;
mod parts;
mod policies;
mod preempt;
mod prefetch;
mod put_off;
mod ready;
mod runtime_gone;
mod schedule;
mod secret;
mod several_lists;
mod shapes;
#[path = "../common/sim/mod.rs"]
mod sim;
mod slow;
mod staged;
mod threads;
#[path = "../common/tokio_time.rs"]
mod time;
mod unwritten;
mod urgency;
mod waiting_for_host;
mod wakers;
mod whole;
