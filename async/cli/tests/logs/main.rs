//! What the command logs, and sends to a collector.

use std::process::{Command, Stdio};

#[cfg(feature = "otel")]
#[path = "../../../tests/logs/collector.rs"]
mod collector;

/// What a folder that is memory, or not ext4 or xfs, is warned of with.
const OF_FILE_SYSTEMS: &str = "file system does not suit a disk tier";

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

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
        .args(["replay", "--trace", "t.jsonl", "--block-bytes", "4K", "--patience", "1h", "--log", level])
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
mod otel {
    use crate::collector::Collector;
    use crate::directory;
    use std::io::{BufRead, BufReader};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Output, Stdio};
    use std::time::Duration;

    const REPLAY: [&str; 7] = ["replay", "--requests", "5", "--block-bytes", "4K", "--disk-blocks", "0"];

    /// The command with these variables of OpenTelemetry's, and no others.
    fn run(arguments: &[&str], variables: &[(&str, String)]) -> Output {
        let folder = directory();
        let mut command = command(arguments, variables);
        command.current_dir(folder.path()).output().expect("the command runs")
    }

    fn command(arguments: &[&str], variables: &[(&str, String)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvstrata"));
        let others = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("OTEL_"));
        others.for_each(|(name, _)| _ = command.env_remove(name));
        command
            .args(arguments)
            .env_remove("KVSTRATA_LOG")
            .env("NO_PROXY", "*")
            .envs(variables.iter().cloned());
        command.stdin(Stdio::null());
        command
    }

    /// Batch after batch is not sent: it is said once, with its remedy, and where nobody listens to that either it is no panic.
    #[test]
    fn a_collector_that_is_not_there_is_said_once() {
        let nobody = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{nobody}")),
            ("OTEL_BSP_SCHEDULE_DELAY", "1".to_owned()),
        ];
        let replay = ["replay", "--requests", "300", "--block-bytes", "4K", "--disk-blocks", "0"];
        let said = |log: &[&str]| {
            let output = run(&[&replay[..], log].concat(), &variables);
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{text}");
            text
        };
        let text = said(&[]);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("spans are not sent")).collect();
        assert!(matches!(lines[..], [line] if line.contains("OTEL_EXPORTER_OTLP_ENDPOINT")), "{text}");
        assert!(lines[0].contains("check that a collector listens there"), "{text}");
        assert!(!text.contains("BatchSpanProcessor"), "{text}");
        let asked = said(&["--log", "warn,opentelemetry_sdk=error"]);
        assert!(asked.matches("BatchSpanProcessor").count() > 1, "batch after batch: {asked}");
        let (folder, (closed, stderr)) = (directory(), UnixStream::pair().expect("sockets"));
        drop(closed);
        let mut command = command(&replay, &variables);
        let command = command.current_dir(folder.path()).stderr(OwnedFd::from(stderr)).stdout(Stdio::null());
        assert_eq!(command.status().expect("the command runs").code(), Some(0));
    }

    /// What a collector is sent first, by requests that wait for blocks.
    fn sent(variables: impl Fn(SocketAddr) -> Vec<(&'static str, String)>) -> String {
        // Requests that waited for blocks, which, and whose they are.
        let collector = Collector::until(&["allocate", "block_ids", "service.name"]);
        let replay = ["replay", "--requests", "60", "--block-bytes", "4K", "--disk-blocks", "0"];
        let output = run(&[&replay[..], &["--device-blocks", "256"]].concat(), &variables(collector.address));
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        collector.sent()
    }

    #[test]
    fn spans_go_to_a_collector_where_one_is_named() {
        let of_all = sent(|address| vec![("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}/"))]);
        assert!(of_all.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{of_all}");
        assert!(of_all.contains("\u{8}kvstrata"), "the service's name, with its length: {of_all}");
        // The one for spans goes before the one for all signals, and is taken as it is.
        let of_spans = sent(|address| {
            vec![
                ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("http://{address}/spans")),
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "127.0.0.1:1".to_owned()),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf".to_owned()),
                ("OTEL_SERVICE_NAME", "worker-3".to_owned()),
            ]
        });
        assert!(of_spans.starts_with("POST /spans HTTP/1.1\r\n"), "{of_spans}");
        assert!(of_spans.contains("\u{8}worker-3"), "{of_spans}");
        let attributed = sent(|address| {
            vec![
                ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")),
                ("OTEL_RESOURCE_ATTRIBUTES", "service.name=worker-4,zone=a".to_owned()),
            ]
        });
        assert!(attributed.contains("\u{8}worker-4") && attributed.contains("zone"), "{attributed}");
    }

    #[test]
    fn spans_are_compressed_where_that_is_asked_for() {
        let collector = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = collector.local_addr().expect("bound");
        let head = std::thread::spawn(move || {
            let (connection, _) = collector.accept().expect("a sender");
            connection.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
            let lines = BufReader::new(connection).lines();
            lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect::<Vec<_>>()
        });
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip".to_owned()),
        ];
        let output = run(&REPLAY, &variables);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        drop(TcpStream::connect(address));
        let head = head.join().expect("it is sent");
        assert!(head.iter().any(|line| line.eq_ignore_ascii_case("content-encoding: gzip")), "{head:?}");
    }

    #[test]
    fn a_collector_that_spans_cannot_be_sent_to_is_refused_by_its_variable() {
        let [all, spans] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
        let refused = |variables: &[(&str, &str)]| {
            let variables: Vec<_> =
                variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            let output = run(&REPLAY, &variables);
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(
                (output.status.code(), output.stdout.is_empty()),
                (Some(2), true),
                "{variables:?}: {message}"
            );
            message
        };
        for variable in [all, spans] {
            for (value, why) in [
                ("127.0.0.1:4999", "http://127.0.0.1:4318"),
                ("collector", "http://127.0.0.1:4318"),
                ("http://", "http://127.0.0.1:4318"),
                ("http://a collector:4318", "http://127.0.0.1:4318"),
                ("https://collector:4318", "TLS is not supported"),
            ] {
                let message = refused(&[(variable, value)]);
                let front = format!("kvstrata: {variable} {value}: ");
                assert!(message.starts_with(&front) && message.contains(why), "{message}");
            }
        }
        for variable in ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] {
            let message = refused(&[(all, "http://127.0.0.1:4317"), (variable, "grpc")]);
            assert!(message.starts_with(&format!("kvstrata: {variable} grpc: ")), "{message}");
            assert!(message.contains("http/protobuf"), "{message}");
        }
        for variable in ["OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION"] {
            for value in ["zstd", "none", ""] {
                let message = refused(&[(all, "http://127.0.0.1:4318"), (variable, value)]);
                assert!(message.starts_with(&format!("kvstrata: {variable} \"{value}\": ")), "{message}");
                assert!(message.contains("set it to gzip, or unset it"), "{message}");
            }
        }
        // Without a collector it is nobody's.
        let unsaid = run(&REPLAY, &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc".to_owned())]);
        assert_eq!(unsaid.status.code(), Some(0), "{}", String::from_utf8_lossy(&unsaid.stderr));
        // And what has no spans has no use for one.
        let wrong = [(all, "https://collector:4318".to_owned())];
        for command in [&["completions", "bash"][..], &["metrics"], &["config"]] {
            let output = run(command, &wrong);
            assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        }
        for (variable, value) in [("OTEL_SDK_DISABLED", "True"), ("OTEL_TRACES_EXPORTER", "none")] {
            let output = run(&REPLAY, &[wrong[0].clone(), (variable, value.to_owned())]);
            assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
