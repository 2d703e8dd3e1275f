//! Monitoring: figures that are right, text that Prometheus reads, an endpoint that no client stalls,
//! and a dashboard that names existing metrics.

mod dashboard;
mod endpoint;
mod exposition;
mod figures;
#[expect(dead_code, reason = "this test uses some of it")]
#[path = "../tenants/gated.rs"]
mod gated;
#[expect(dead_code, reason = "this test uses some of it")]
#[path = "../manager/ground.rs"]
mod ground;
mod promql;
mod reference;
