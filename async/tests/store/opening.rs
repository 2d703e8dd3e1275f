//! Refusals of settings, with the setting and the remedy; and the figures.

use crate::ground::{BYTES, FINGERPRINT, aligned, close, config, folder, load, on_disk, open, store};
use kvstrata::ManagerConfig;
use kvstrata::store::KvStore;
use std::io::{Read, Write};
use std::net::TcpStream;

fn refusal(text: &str) -> String {
    let config = ManagerConfig::builder().toml("store.toml", text).build().expect("possible settings");
    KvStore::open(&config).expect_err("refused").to_string()
}

#[test]
fn store_without_a_fingerprint_does_not_open() {
    let text = refusal("disk.bytes = \"1M\"");
    for part in ["store.model", "store.revision", "store.dtype", "store.layout", "store.span", "store.ranks"]
    {
        assert!(text.contains(part), "{text}");
    }
    let one = FINGERPRINT.replace("revision = \"1\"\n", "");
    assert_eq!(
        refusal(&format!("{one}[disk]\nbytes = \"1M\"")),
        "store.revision: none; a store needs each of them, so that it never serves bytes of another model"
    );
}

#[test]
fn impossible_sizes_are_refused_by_name() {
    assert_eq!(refusal(FINGERPRINT), "disk.bytes, host.bytes: none; give the store at least one of them");
    assert_eq!(
        refusal(&format!("{FINGERPRINT}sizes = [\"1M\", \"64K\"]\n[disk]\nbytes = \"1M\"")),
        "disk.bytes = 1M (store.toml:10): less than 1114112 bytes, a block of each of store.sizes; raise it"
    );
    let large = refusal(&format!("{FINGERPRINT}sizes = [\"64K\"]\n[host]\nbytes = \"100T\""));
    assert!(
        large.starts_with("host.bytes = 100T (store.toml:10): needs ") && large.ends_with("use less"),
        "{large}"
    );
    let twice = ManagerConfig::builder().toml("store.toml", "[store]\nsizes = [\"64K\", \"64K\"]").build();
    assert!(twice.unwrap_err().to_string().contains("different sizes"));
}

#[test]
fn volume_in_use_or_of_another_shape_is_refused() {
    let folder = folder();
    let config = on_disk(&folder, "");
    let of = open(&config);
    let text = KvStore::open(&config).expect_err("in use").to_string();
    assert!(text.starts_with("disk.paths = ") && text.contains("has the file open"), "{text}");
    close(&of);
    drop(of);
    let text = KvStore::open(&on_disk(&folder, "policy = \"lru\"\nreinitialize = false\n").clone());
    close(&text.expect("the same shape"));
    let other = on_disk(&folder, "").to_toml().replace("bytes = \"1M\"", "bytes = \"2M\"");
    let other = ManagerConfig::builder().toml("other.toml", other.replace("blocks = 16\n", "")).build();
    let text = KvStore::open(&other.expect("possible")).expect_err("another size").to_string();
    assert!(text.contains("slots") && text.contains("disk.reinitialize"), "{text}");
}

#[test]
fn figures_are_served_as_prometheus_text() {
    let of = open(&config("sizes = [\"16K\"]\n[disk]\nbytes = \"1M\"\n[metrics]\nlisten = \"127.0.0.1:0\""));
    store(&of, &[1], aligned(&[1], BYTES));
    load(&of, &[1, 2], &aligned(&[9, 9], BYTES));
    let mut stream = TcpStream::connect(of.metrics_address().expect("an address")).expect("connected");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    for line in [
        "kvstrata_store_stored_keys_total 1",
        "kvstrata_store_loaded_keys_total{tier=\"disk\"} 1",
        "kvstrata_store_absent_keys_total 1",
        "kvstrata_store_transfers_total{way=\"straight\"} 2",
        "kvstrata_store_blocks{tier=\"disk\",bytes=\"16384\"} 1",
        "# TYPE kvstrata_store_batches gauge",
    ] {
        assert!(text.lines().any(|of| of == line), "{line}\n{text}");
    }
    close(&of);
    assert!(of.metrics_address().is_none());
}
