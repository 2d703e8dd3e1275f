//! Spans for an OpenTelemetry collector: OTLP over HTTP, to the address in
//! `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT`. The other variables of
//! OpenTelemetry's exporter, resources and batches apply, too. There is no TLS: the collector is on this
//! machine, or behind an encrypting proxy.
//!
//! The exporter ignores variables that it cannot read, and then sends to the usual address. So the
//! address and the protocol are read and checked here. The exporter logs each batch that it cannot send,
//! under targets that begin with `opentelemetry`: filter these out. The first batch that is not sent is
//! logged here.
//!
//! An engine adds the layer to its own subscriber, and keeps the [`Exporting`] for as long as it has
//! spans to send:
//!
//! ```no_run
//! use tracing_subscriber::prelude::*;
//!
//! let spans = kvstrata::otel::Exporting::begin()?;
//! let layer = spans.as_ref().map(|spans| spans.layer());
//! tracing_subscriber::registry().with(layer).try_init()?;
//! // … and at the end, on a thread that may wait: drop(spans).
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An engine with an exporter of its own does not need this: the spans are `tracing`'s, at debug, under
//! targets that begin with `kvstrata`.

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{self, SdkTracerProvider, SpanData};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use thiserror::Error;
use tracing::{Level, Subscriber, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

/// The variable for spans takes precedence. To the address for all signals, the path of spans is
/// appended.
const ENDPOINTS: [(&str, &str); 2] =
    [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ""), ("OTEL_EXPORTER_OTLP_ENDPOINT", "/v1/traces")];
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const PROTOCOL: &str = "http/protobuf";
const COMPRESSIONS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];

/// Sends spans to a collector. Its drop sends the remaining spans first, which takes at most as long as
/// the exporter waits for an answer.
#[derive(Debug)]
pub struct Exporting {
    spans: SdkTracerProvider,
    /// The variable with the address.
    named_by: &'static str,
    /// Whether a failure to send was logged. Relaxed: it publishes nothing.
    told: Arc<AtomicBool>,
}

/// A variable of OpenTelemetry is wrong or not supported: its name, its value, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ExportError(String);

/// Logs the first batch that is not sent.
#[derive(Debug)]
struct Telling {
    exporter: SpanExporter,
    named_by: &'static str,
    told: Arc<AtomicBool>,
}

impl trace::SpanExporter for Telling {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let outcome = self.exporter.export(batch).await;
        if let Err(error) = &outcome
            && !self.told.swap(true, Relaxed)
        {
            let remedy = "check that a collector listens there, or unset the variable";
            warn!(variable = self.named_by, remedy, "spans are not sent: {error}");
        }
        outcome
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.exporter.shutdown()
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Exporting {
    /// Starts the exporter, if a variable names a collector and none disables spans. The exporter has
    /// its own thread, so this may be called on a thread of an executor.
    pub fn begin() -> Result<Option<Exporting>, ExportError> {
        let says = |name, what: &str| variable(name).is_some_and(|value| value.eq_ignore_ascii_case(what));
        if says("OTEL_SDK_DISABLED", "true") || says("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let said = |(name, path)| Some((name, path, variable(name)?));
        let Some((named_by, path, endpoint)) = ENDPOINTS.into_iter().find_map(said) else {
            return Ok(None);
        };
        let refused = |why: &str| {
            ExportError(format!(
                "{named_by} {endpoint}: {why}; give a collector's address, such as http://127.0.0.1:4318"
            ))
        };
        if endpoint.starts_with("https:") {
            return Err(refused(
                "TLS is not supported: use a collector on this machine, or an encrypting proxy",
            ));
        }
        if !endpoint.starts_with("http://") {
            return Err(refused("the address does not begin with http://"));
        }
        let protocol = PROTOCOLS.into_iter().find_map(|name| Some((name, variable(name)?)));
        if let Some((name, protocol)) = protocol.filter(|(_, protocol)| protocol != PROTOCOL) {
            return Err(ExportError(format!("{name} {protocol}: only {PROTOCOL} is supported; unset it")));
        }
        // Empty values too: the exporter takes an empty value for an unknown method.
        let compression = COMPRESSIONS.into_iter().find_map(|name| Some((name, std::env::var(name).ok()?)));
        if let Some((name, compression)) = compression.filter(|(_, compression)| compression != "gzip") {
            return Err(ExportError(format!(
                "{name} \"{compression}\": not supported; set it to gzip, or unset it"
            )));
        }
        let at =
            if path.is_empty() { endpoint.clone() } else { endpoint.trim_end_matches('/').to_owned() + path };
        let exporter = SpanExporter::builder().with_http().with_endpoint(at).build();
        let exporter = exporter.map_err(|error| refused(&error.to_string()))?;
        let told = Arc::new(AtomicBool::new(false));
        let exporter = Telling { exporter, named_by, told: Arc::clone(&told) };
        let spans = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource());
        Ok(Some(Exporting { spans: spans.build(), named_by, told }))
    }

    /// Returns a layer that exports kvstrata's spans, at debug and above, and their events at info and
    /// above, whatever is printed. It ignores other spans, including those of the exporter itself.
    pub fn layer<S: Subscriber + for<'s> LookupSpan<'s>>(&self) -> impl Layer<S> + use<S> {
        let ours = filter_fn(|what| {
            let most = if what.is_span() { Level::DEBUG } else { Level::INFO };
            what.target().starts_with("kvstrata") && *what.level() <= most
        });
        tracing_opentelemetry::layer().with_tracer(self.spans.tracer("kvstrata")).with_filter(ours)
    }
}

impl Drop for Exporting {
    fn drop(&mut self) {
        if let Err(error) = self.spans.shutdown()
            && !self.told.load(Relaxed)
        {
            // If even this fails, nothing is left to do.
            let _ = writeln!(
                std::io::stderr(),
                "kvstrata: {}: the last spans were not sent: {error}; check that a collector listens there, or unset it",
                self.named_by
            );
        }
    }
}

/// Returns the resource of the spans: the service `kvstrata`, unless a variable names another.
fn resource() -> Resource {
    let said = Resource::builder().build();
    let name = said.get(&"service.name".into());
    match name.is_some_and(|name| !name.as_str().starts_with("unknown_service")) {
        true => said,
        false => Resource::builder().with_service_name("kvstrata").build(),
    }
}
