//! Spans for an OpenTelemetry collector: OTLP over HTTP, to where `OTEL_EXPORTER_OTLP_ENDPOINT` says. The other variables of OpenTelemetry's exporter
//! and batches hold too. Without TLS: a collector is on the machine, or behind something that encrypts.

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracerProvider, Tracer};
use tracing::Subscriber;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::registry::LookupSpan;

const VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Where spans go. Dropped, those that have ended are sent first.
pub(super) struct Exporting(SdkTracerProvider);

impl Exporting {
    /// Begins, if a collector is named.
    pub(super) fn begin() -> Result<Option<Exporting>, String> {
        let Some(endpoint) = std::env::var(VARIABLE).ok().filter(|endpoint| !endpoint.is_empty()) else {
            return Ok(None);
        };
        if endpoint.starts_with("https:") {
            return Err(format!(
                "{VARIABLE} {endpoint}: spans are sent without TLS; give an http:// address, of this machine or of what encrypts"
            ));
        }
        let exporter = SpanExporter::builder().with_http().build();
        let exporter = exporter.map_err(|error| {
            format!("{VARIABLE} {endpoint}: {error}; give a collector's address, as http://127.0.0.1:4318")
        })?;
        let resource = Resource::builder().with_service_name("kvstrata").build();
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource);
        Ok(Some(Exporting(provider.build())))
    }

    /// Takes spans out of `tracing`.
    pub(super) fn layer<S: Subscriber + for<'s> LookupSpan<'s>>(&self) -> OpenTelemetryLayer<S, Tracer> {
        tracing_opentelemetry::layer().with_tracer(self.0.tracer("kvstrata"))
    }
}

impl Drop for Exporting {
    fn drop(&mut self) {
        // Batches that failed before were logged by the exporter, as warnings and errors.
        if let Err(error) = self.0.shutdown() {
            eprintln!(
                "kvstrata: {VARIABLE}: the last spans were not sent ({error}); see whether the collector is there"
            );
        }
    }
}
