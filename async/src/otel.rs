//! Spans for an OpenTelemetry collector: OTLP over HTTP, to where `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or
//! `OTEL_EXPORTER_OTLP_ENDPOINT` says. The other variables of OpenTelemetry's exporter, resources and batches
//! hold too. Without TLS: a collector is on the machine, or behind something that encrypts.
//!
//! The exporter leaves out what it cannot read, and sends to where a collector usually is; so what says where
//! and how is read here, and refused. What it logs of itself, under targets that begin with `opentelemetry`,
//! it says of each batch: leave them out. The first batch that is not sent is told here.
//!
//! An engine adds the layer to a subscriber of its own, and keeps what it begins with as long as there are
//! spans to be sent:
//!
//! ```no_run
//! use tracing_subscriber::prelude::*;
//!
//! let spans = kvstrata::otel::Exporting::begin()?;
//! let layer = spans.as_ref().map(|spans| spans.layer());
//! tracing_subscriber::registry().with(layer).try_init()?;
//! // … and at the end, outside of what must not wait: drop(spans).
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! One that has an exporter already needs none of this: spans are `tracing`'s, at debug, of targets that
//! begin with `kvstrata`.

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

/// The one of spans goes before the one of all signals, to which their path is added.
const ENDPOINTS: [(&str, &str); 2] =
    [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ""), ("OTEL_EXPORTER_OTLP_ENDPOINT", "/v1/traces")];
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const PROTOCOL: &str = "http/protobuf";
const COMPRESSIONS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];

/// Where spans go. Dropped, those that have ended are sent first, which takes as long as the exporter waits
/// for an answer at most.
#[derive(Debug)]
pub struct Exporting {
    spans: SdkTracerProvider,
    /// The variable that says so.
    named_by: &'static str,
    /// That some were not sent. Relaxed: it publishes nothing.
    told: Arc<AtomicBool>,
}

/// A variable of OpenTelemetry's is wrong, or says what is not here: which, its value, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ExportError(String);

/// Tells of the first batch that is not sent.
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
    /// Begins, if a collector is named, and nothing says that spans are not to be sent. A thread of its own
    /// sends them, so that this may be called on one of an executor.
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
        // Empty ones too: the exporter takes them for the name of one that it does not know.
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

    /// Takes kvstrata's spans out of `tracing`, whatever is printed, and without the small print in them;
    /// others' are left alone, those that the exporter makes of itself too.
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
            // Nothing is left to be done where even this cannot be written.
            let _ = writeln!(
                std::io::stderr(),
                "kvstrata: {}: the last spans were not sent: {error}; check that a collector listens there, or unset it",
                self.named_by
            );
        }
    }
}

/// Whose spans they are: `kvstrata`'s, unless the variables of resources name a service.
fn resource() -> Resource {
    let said = Resource::builder().build();
    let name = said.get(&"service.name".into());
    match name.is_some_and(|name| !name.as_str().starts_with("unknown_service")) {
        true => said,
        false => Resource::builder().with_service_name("kvstrata").build(),
    }
}
