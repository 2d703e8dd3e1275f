//! Criterion: copy plans by the CPU, memcpy over the same pieces, the machine's
//! limit, and the costs of plans.
#![allow(missing_docs, reason = "items of the benchmark macros have no documentation")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kvstrata_benches::copies::{Blocks, Copy, How, Memory, Way};
use kvstrata_benches::plans::{Iterate, Plan, Visit};
use kvstrata_benches::work::Timed;
use kvstrata_core::layout::HeadOrder::{Hnd, Nhd};
use kvstrata_ffi::copy::HostCopy;

fn operations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("copy");
    group.sample_size(10);
    let memory = Memory::default();
    let ours = HostCopy::new();
    let plain = memory.plan(Way::Out, Blocks::Scattered, Nhd);
    let ascending = memory.plan(Way::Out, Blocks::Ascending, Nhd);
    let to_hnd = memory.plan(Way::Out, Blocks::Scattered, Hnd);
    let from_hnd = memory.plan(Way::In, Blocks::Scattered, Hnd);
    let mut measure = |name: &str, work: &mut dyn Timed| {
        group.throughput(Throughput::Bytes(work.items()));
        group.bench_function(name, |bencher| bencher.iter_custom(|runs| work.time(runs)));
    };
    let copy = |plan, how| Copy { plan, how, memory: &memory };
    measure("limit", &mut memory.limit());
    measure("memcpy", &mut copy(&plain, How::Memcpy));
    measure("ours", &mut copy(&plain, How::Ours(ours)));
    measure("ours, ascending", &mut copy(&ascending, How::Ours(ours)));
    measure("ours, NHD to HND", &mut copy(&to_hnd, How::Ours(ours)));
    measure("ours, HND to NHD", &mut copy(&from_hnd, How::Ours(ours)));
    measure("ours, with checksum", &mut copy(&plain, How::Checked(ours)));
    measure("ours, 2 threads", &mut copy(&plain, How::Threads(ours, 2)));
    group.finish();

    let mut measure = |name: &str, work: &mut dyn Timed| {
        criterion.bench_function(name, |bencher| bencher.iter_custom(|runs| work.time(runs)));
    };
    for (name, mut plan) in Plan::all() {
        measure(&format!("replan/{name}"), &mut plan);
    }
    for even in [true, false] {
        for visit in [Visit::Next, Visit::ForEach] {
            measure(&format!("pieces/{visit:?}, even: {even}"), &mut Iterate::new(even, visit));
        }
    }
}

criterion_group!(benches, operations);
criterion_main!(benches);
