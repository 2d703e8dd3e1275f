//! Spans for an OpenTelemetry collector: OTLP over HTTP, to where `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT` says. The other
//! variables of OpenTelemetry's exporter, resources and batches hold too. Without TLS: a collector is on the machine, or behind something that encrypts.
//!
//! The exporter leaves out what it cannot read, and sends to where a collector usually is; so what says where and how is read here, and refused.

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracerProvider, Tracer};
use tracing::Subscriber;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::registry::LookupSpan;

/// The one of spans goes before the one of all signals, to which their path is added.
const ENDPOINTS: [(&str, &str); 2] =
    [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ""), ("OTEL_EXPORTER_OTLP_ENDPOINT", "/v1/traces")];
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const PROTOCOL: &str = "http/protobuf";
const COMPRESSIONS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];

/// Where spans go. Dropped, those that have ended are sent first.
pub(super) struct Exporting {
    spans: SdkTracerProvider,
    /// The variable that says so.
    named_by: &'static str,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Exporting {
    /// Begins, if a collector is named, and nothing says that spans are not to be sent.
    pub(super) fn begin() -> Result<Option<Exporting>, String> {
        let says = |name, what: &str| variable(name).is_some_and(|value| value.eq_ignore_ascii_case(what));
        if says("OTEL_SDK_DISABLED", "true") || says("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let said = |(name, path)| Some((name, path, variable(name)?));
        let Some((named_by, path, endpoint)) = ENDPOINTS.into_iter().find_map(said) else {
            return Ok(None);
        };
        let refused = |why: &str| {
            format!("{named_by} {endpoint}: {why}; give a collector's address, as http://127.0.0.1:4318")
        };
        if endpoint.starts_with("https:") {
            return Err(refused("spans are sent without TLS, to this machine or to what encrypts"));
        }
        if !endpoint.starts_with("http://") {
            return Err(refused("no address that begins with http://"));
        }
        let protocol = PROTOCOLS.into_iter().find_map(|name| Some((name, variable(name)?)));
        if let Some((name, protocol)) = protocol.filter(|(_, protocol)| protocol != PROTOCOL) {
            return Err(format!("{name} {protocol}: spans are sent by {PROTOCOL} alone; leave it out"));
        }
        // Empty ones too: the exporter takes them for the name of one that it does not know.
        let compression = COMPRESSIONS.into_iter().find_map(|name| Some((name, std::env::var(name).ok()?)));
        if let Some((name, compression)) = compression.filter(|(_, compression)| compression != "gzip") {
            return Err(format!(
                "{name} \"{compression}\": spans are sent by gzip, or as they are; give gzip, or unset it"
            ));
        }
        let at =
            if path.is_empty() { endpoint.clone() } else { endpoint.trim_end_matches('/').to_owned() + path };
        let exporter = SpanExporter::builder().with_http().with_endpoint(at).build();
        let exporter = exporter.map_err(|error| refused(&error.to_string()))?;
        let spans = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource());
        Ok(Some(Exporting { spans: spans.build(), named_by }))
    }

    /// Takes spans out of `tracing`.
    pub(super) fn layer<S: Subscriber + for<'s> LookupSpan<'s>>(&self) -> OpenTelemetryLayer<S, Tracer> {
        tracing_opentelemetry::layer().with_tracer(self.spans.tracer("kvstrata"))
    }
}

impl Drop for Exporting {
    fn drop(&mut self) {
        // Batches that failed before were logged by the exporter, as warnings and errors.
        if let Err(error) = self.spans.shutdown() {
            eprintln!(
                "kvstrata: {}: the last spans were not sent ({error}); see whether the collector is there",
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
