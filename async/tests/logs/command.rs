//! What the command logs, and sends to a collector.

use crate::directory;
use crate::ears::OF_FILE_SYSTEMS;
use std::process::{Command, Stdio};

/// What the command logs at a level, by lines, of so many sequences of so many blocks each, which are all asked for twice.
fn replayed(level: &str, sequences: u64, blocks: u64) -> Vec<String> {
    let folder = directory();
    let line = |number: u64| {
        let first = number % sequences * blocks;
        let ids: Vec<u64> = (first..first + blocks).collect();
        let tokens = blocks * 512;
        format!(
            "{{\"timestamp\": {number}, \"input_length\": {tokens}, \"output_length\": 1, \"hash_ids\": {ids:?}}}\n"
        )
    };
    let trace: String = (0..2 * sequences).map(line).collect();
    std::fs::write(folder.path().join("t.jsonl"), trace).expect("a file");
    // A tier has what is asked for at once and not much more, so that blocks move.
    let some = |times: u64| (times * blocks).to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_kvstrata"))
        .args(["replay", "--trace", "t.jsonl", "--block-bytes", "4K", "--log", level])
        .args(["--device-blocks", &some(8), "--host-blocks", &some(16), "--disk-blocks", &some(64)])
        .env_remove("KVSTRATA_LOG")
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("the command runs");
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(0), "{text}");
    // But for what this machine's file system lacks.
    text.lines().filter(|line| !line.contains(OF_FILE_SYSTEMS)).map(str::to_owned).collect()
}

/// Sixteen times the blocks, or twice the requests: an operator is told as much.
#[test]
fn a_replay_at_info_says_nothing_by_the_block_or_by_the_request() {
    let told = |sequences, blocks| replayed("info", sequences, blocks);
    let few = told(25, 4);
    assert!(few.iter().all(|line| line.contains(" INFO ")), "{few:#?}");
    for (many, what) in [(told(25, 64), "more blocks"), (told(50, 4), "more requests")] {
        assert!(many.len() <= few.len(), "{what}: {} lines more: {many:#?}", many.len() - few.len());
    }
    let all = replayed("debug", 25, 4);
    assert!(all.iter().any(|line| line.contains("onboard") && line.contains("request=")), "{all:#?}");
    assert!(all.iter().any(|line| line.contains("blocks=[")), "at debug there are numbers");
    assert_eq!(replayed("warn", 25, 4), Vec::<String>::new());
}

#[test]
fn a_level_that_is_none_is_refused_by_its_name() {
    let command =
        Command::new(env!("CARGO_BIN_EXE_kvstrata")).args(["--log", "kvstrata=loud", "metrics"]).output();
    let output = command.expect("the command runs");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true));
    assert!(
        message.starts_with("kvstrata: --log kvstrata=loud: ") && message.contains("give a level"),
        "{message}"
    );
}

#[cfg(feature = "otel")]
#[test]
fn spans_go_to_a_collector_where_one_is_named() {
    use std::io::{Read, Write};
    use std::time::Duration;
    // As much of one as takes what it is sent first.
    let collector = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = collector.local_addr().expect("bound");
    let taken = std::thread::spawn(move || {
        let (mut connection, _) = collector.accept().expect("a sender");
        // Half of what it sends is a failure, not a wait for the rest.
        connection.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        let (mut sent, mut part) = (Vec::new(), [0; 4096]);
        let has = |sent: &[u8], what: &[u8]| sent.windows(what.len()).any(|bytes| bytes == what);
        // Requests that waited for blocks, and whose they are.
        while !has(&sent, b"allocate") || !has(&sent, b"service.name") {
            let read = connection.read(&mut part).expect("more of it");
            assert!(read > 0, "{}", String::from_utf8_lossy(&sent));
            sent.extend_from_slice(&part[..read]);
        }
        connection
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        String::from_utf8_lossy(&sent).into_owned()
    });
    let folder = directory();
    let output = Command::new(env!("CARGO_BIN_EXE_kvstrata"))
        .args(["replay", "--requests", "60", "--block-bytes", "4K", "--disk-blocks", "0"])
        .args(["--device-blocks", "256"])
        .env("NO_PROXY", "*")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("the command runs");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    // If nothing has come, this ends the wait for it.
    drop(std::net::TcpStream::connect(address));
    let sent = taken.join().expect("it is sent");
    assert!(sent.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{sent}");
}
