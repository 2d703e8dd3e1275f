//! The dashboard for Grafana: it is JSON that Grafana takes, and names only metrics of a manager's text.

use crate::exposition::read;
use crate::figures::busy;
use crate::promql::{Known, Labels, Reader};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

fn dashboard() -> Value {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/grafana/kvstrata.json"));
    let text = std::fs::read(path).expect("docs/grafana/kvstrata.json");
    serde_json::from_slice(&text).expect("JSON")
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("no {pointer} in {value}"))
}

/// The metrics of a manager at work, by the names of their samples.
async fn known() -> Known {
    let manager = busy().await;
    let families = read(&manager.metrics().to_prometheus());
    manager.shutdown().await;
    let mut known = Known::new();
    for (name, family) in families {
        for sample in family.samples {
            // Buckets, sums and counts are counters.
            let kind = if sample.name == name { family.kind.clone() } else { "counter".to_owned() };
            let (_, labels): &mut (String, Labels) =
                known.entry(sample.name).or_insert_with(|| (kind, Labels::new()));
            for (label, value) in sample.labels {
                labels.entry(label).or_default().insert(value);
            }
        }
    }
    known
}

#[tokio::test]
async fn dashboard_names_only_metrics_and_labels_of_a_manager() {
    let (dashboard, known) = (dashboard(), known().await);
    let mut reader = Reader::new(&known);
    let mut panels = 0;
    for panel in list(&dashboard, "panels").iter().filter(|panel| panel["type"] != "row") {
        panels += 1;
        let title = text(panel, "/title");
        assert!(!list(panel, "targets").is_empty(), "{title} shows nothing");
        for target in list(panel, "targets") {
            let expression = text(target, "/expr");
            let labels = reader.read(expression);
            // A block of a window or a state is not worth one of all tokens.
            assert!(
                !expression.contains("lookup_blocks") || labels.contains("group"),
                "{title}: groups are added up"
            );
            // A legend names the labels that tell the lines apart, and no others.
            let legend = text(target, "/legendFormat");
            let shown: BTreeSet<String> = legend
                .split("{{")
                .skip(1)
                .map(|rest| rest.split("}}").next().unwrap_or_default().trim().to_owned())
                .collect();
            assert_eq!(shown, labels, "{title}: legend {legend:?}");
        }
    }
    // Metrics that an operator has to see.
    assert!(panels >= 12, "{panels}");
    for metric in [
        "kvstrata_hit_blocks_total",
        "kvstrata_lookup_blocks_total",
        "kvstrata_blocks",
        "kvstrata_transfer_bytes_total",
        "kvstrata_transfer_seconds_bucket",
        "kvstrata_queue_transfers",
        "kvstrata_aside_transfers",
        "kvstrata_evicted_blocks_total",
        "kvstrata_dropped_blocks_total",
        "kvstrata_transfer_failures_total",
        "kvstrata_verification_failures_total",
    ] {
        assert!(reader.named.contains(metric), "no panel has {metric}");
    }
    // All figures that a router asks for, under the names that it knows.
    for figure in [
        "request_active_slots",
        "request_total_slots",
        "kv_active_blocks",
        "kv_total_blocks",
        "num_requests_waiting",
        "gpu_cache_usage_perc",
        "gpu_prefix_cache_hit_rate",
    ] {
        let name = format!("kvstrata_worker_{figure}");
        assert!(known.contains_key(&name) && reader.named.contains(&name), "no panel has {name}");
    }
}

#[tokio::test]
async fn dashboard_variables_are_existing_labels_and_used() {
    let (dashboard, known) = (dashboard(), known().await);
    let expressions: Vec<&str> = list(&dashboard, "panels")
        .iter()
        .flat_map(|panel| list(panel, "targets"))
        .map(|target| text(target, "/expr"))
        .collect();
    let variables = dashboard.pointer("/templating").expect("variables");
    for variable in list(variables, "list") {
        let name = text(variable, "/name");
        if text(variable, "/type") == "datasource" {
            assert_eq!((name, text(variable, "/query")), ("datasource", "prometheus"));
            continue;
        }
        let query = text(variable, "/query/query");
        let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let (metric, label) =
            inside.and_then(|inside| inside.split_once(", ")).unwrap_or_else(|| panic!("{query}"));
        let (_, labels) = known.get(metric).unwrap_or_else(|| panic!("{query}"));
        assert!(labels.contains_key(label) || label == "instance", "{query}");
        // Choosing all values by hand leaves out nothing that a panel would show.
        for (metric, (_, of)) in known.iter().filter(|_| label != "instance") {
            let filtered = format!("{metric}{{");
            let by_it = |text: &&&str| text.contains(&format!("{label}=~\"${name}\""));
            if expressions.iter().filter(by_it).any(|text| text.contains(&filtered))
                && let Some(values) = of.get(label)
            {
                assert!(values.is_subset(&labels[label]), "{name} leaves out some {label} of {metric}");
            }
        }
        let used = format!("=~\"${name}\"");
        assert!(expressions.iter().any(|expression| expression.contains(&used)), "{name} is not used");
    }
    // No variable is used that is not declared.
    let declared: BTreeSet<&str> =
        list(variables, "list").iter().map(|variable| text(variable, "/name")).collect();
    for expression in expressions {
        for used in expression.split('$').skip(1) {
            let end = used.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(used.len());
            assert!(used.starts_with("__") || declared.contains(&used[..end]), "{expression}");
        }
    }
}

#[test]
fn dashboard_panels_have_ids_places_and_the_datasource() {
    let dashboard = dashboard();
    // For Grafana 10.
    assert!(
        dashboard["schemaVersion"].as_u64().is_some_and(|version| version >= 38),
        "{}",
        dashboard["schemaVersion"]
    );
    assert_eq!((&dashboard["id"], text(&dashboard, "/uid")), (&Value::Null, "kvstrata"));
    let (mut ids, mut places) = (BTreeSet::new(), Vec::new());
    for panel in list(&dashboard, "panels") {
        let title = text(panel, "/title");
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "{title}: its id is another's");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a place"));
        assert!(x + w <= 24, "{title}: a row has 24 columns");
        let meets = |(ox, oy, ow, oh): &(u64, u64, u64, u64)| {
            x < ox + ow && *ox < x + w && y < oy + oh && *oy < y + h
        };
        assert!(!places.iter().any(meets), "{title} is over another");
        places.push((x, y, w, h));
        if panel["type"] != "row" {
            assert_eq!(text(panel, "/datasource/uid"), "${datasource}", "{title}");
            assert!(!text(panel, "/description").is_empty(), "{title}");
        }
    }
}
