//! The subscriber of an LLM engine, with the layer that exports kvstrata's spans. The layer begins
//! and ends on an executor's thread.

use crate::collector::Collector;
use kvstrata::otel::Exporting;
use std::process::Command;
use tracing_subscriber::prelude::*;

/// The variable that names the engine to the collector. The test sets it for a child process, which then
/// acts as the engine: variables belong to a process, and other tests run in this one.
const SERVICE: (&str, &str) = ("OTEL_SERVICE_NAME", "an-engine");

fn be_the_engine() {
    let executor =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("an executor");
    executor.block_on(async {
        let engine = tokio::spawn(async {
            let spans = Exporting::begin().expect("the variables are right").expect("one is named");
            let subscriber = tracing_subscriber::registry().with(spans.layer());
            tracing::subscriber::with_default(subscriber, || {
                drop(
                    tracing::debug_span!(target: "kvstrata::manager", "of_the_manager", request = 7)
                        .entered(),
                );
                drop(tracing::trace_span!(target: "kvstrata::manager", "small_print").entered());
                drop(tracing::info_span!(target: "engine", "of_the_engine").entered());
            });
            drop(spans);
        });
        engine.await.expect("neither the beginning nor the end panics there");
    });
}

#[test]
fn engine_subscriber_with_layer_sends_only_kvstrata_spans() {
    if std::env::var(SERVICE.0).is_ok_and(|name| name == SERVICE.1) {
        return be_the_engine();
    }
    // The service comes first, then the spans.
    let collector = Collector::until(&[SERVICE.1, "of_the_manager"]);
    let mut engine = Command::new(std::env::current_exe().expect("this test"));
    let others = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("OTEL_"));
    others.for_each(|(name, _)| _ = engine.env_remove(name));
    let name = std::thread::current().name().map(str::to_owned).expect("that of the test");
    engine.args([&name, "--exact"]).env("NO_PROXY", "*").env(SERVICE.0, SERVICE.1);
    let output = engine.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", collector.address)).output();
    let output = output.expect("it runs");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    let sent = collector.sent();
    assert!(!sent.contains("of_the_engine") && !sent.contains("small_print"), "{sent}");
}
