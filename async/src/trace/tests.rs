use super::*;
use std::io::Write;

const LINES: &str = "{\"timestamp\": 0, \"input_length\": 1024, \"output_length\": 5, \"hash_ids\": [1, 2]}\n\n\
                     {\"timestamp\": 9.5, \"input_length\": 600, \"output_length\": 0, \"hash_ids\": [1, 3], \"extra\": {}}";

fn read(bytes: &[u8]) -> Result<Vec<Request>, TraceError> {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("written");
    TraceReader::open(TraceSource::File(file.path().to_owned()))?.collect()
}

fn refusal(bytes: &[u8]) -> String {
    read(bytes).expect_err("must be refused").to_string()
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).expect("in memory");
    encoder.finish().expect("in memory")
}

fn xz(text: &[u8]) -> Vec<u8> {
    let options = lzma_rust2::XzOptions::with_preset(1);
    let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).expect("in memory");
    encoder.write_all(text).expect("in memory");
    encoder.finish().expect("in memory")
}

fn zstd(text: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn every_encoding_gives_the_same_requests() {
    let expected = read(LINES.as_bytes()).expect("two good lines");
    assert_eq!(expected.len(), 2);
    assert_eq!(
        expected[1],
        Request { timestamp: 9.5, input_length: 600, output_length: 0, hash_ids: vec![1, 3] }
    );
    for encode in [gzip, xz, zstd] {
        assert_eq!(read(&encode(LINES.as_bytes())).expect("the same"), expected);
    }
}

#[test]
fn archives_in_several_pieces_are_read_to_the_end() {
    let two = [LINES.as_bytes(), b"\n"].concat();
    for encode in [gzip, xz, zstd] {
        let mut archive = encode(&two);
        archive.extend(encode(LINES.as_bytes()));
        assert_eq!(read(&archive).expect("both pieces").len(), 4);
    }
    let mut archive = vec![0x5e, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9];
    archive.extend(zstd(&two));
    assert_eq!(read(&archive).expect("a skippable frame is skipped").len(), 2);
}

#[test]
fn a_truncated_archive_is_an_error_wherever_it_is_cut() {
    let text = (0..400).map(|id| LINES.replace("1024", &(id * 7919).to_string()) + "\n").collect::<String>();
    for encode in [gzip, xz, zstd] {
        let archive = encode(text.as_bytes());
        for cut in [7, 20, archive.len() / 2, archive.len() - 1] {
            let message = refusal(&archive[..cut]);
            assert!(
                message.contains("after line") && message.contains("--trace /"),
                "cut at {cut}: {message}"
            );
        }
    }
}

#[test]
fn a_flipped_bit_in_an_archive_is_an_error() {
    let text = (0..400).map(|id| LINES.replace("1024", &(id * 7919).to_string()) + "\n").collect::<String>();
    for encode in [gzip, xz, zstd] {
        let mut archive = encode(text.as_bytes());
        let middle = archive.len() / 2;
        archive[middle] ^= 4;
        assert!(read(&archive).is_err());
    }
}

#[test]
fn a_bad_line_is_named_with_what_is_wrong() {
    let bad = |line: &str| refusal(format!("{}\n{line}\n", LINES.replace("\n\n", "\n")).as_bytes());
    let cases = [
        ("{\"timestamp\": 0", "line 3: EOF while parsing an object at column 15"),
        ("{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}", "line 3: missing field `hash_ids`"),
        (
            "{\"timestamp\": 0, \"input_length\": -1, \"output_length\": 1, \"hash_ids\": []}",
            "line 3: invalid value: integer `-1`, expected u64",
        ),
        (
            "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [\"a\"]}",
            "line 3: invalid type: string \"a\", expected u64",
        ),
        (
            "{\"timestamp\": -4, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": []}",
            "line 3: timestamp = -4: must be 0 or more",
        ),
        ("\u{fffd}", "line 3: not a JSON object"),
        ("[0, 1, 1, [2]]", "line 3: not a JSON object"),
    ];
    for (line, wanted) in cases {
        let message = bad(line);
        assert!(message.contains(wanted), "{line}: {message}");
        assert!(message.starts_with("--trace /"), "{message}");
    }
}

#[test]
fn what_cannot_be_opened_is_named() {
    let missing =
        TraceReader::open(TraceSource::File("/nonexistent/trace.jsonl".into())).expect_err("not there");
    assert!(missing.to_string().starts_with("--trace /nonexistent/trace.jsonl: cannot be opened: "));
    assert!(TraceReader::open(TraceSource::File("/".into())).is_err());
}

#[test]
fn the_bundled_trace_is_whole() {
    let mut reader = TraceReader::open(TraceSource::Bundled).expect("bundled");
    assert_eq!(reader.encoding(), Encoding::Xz);
    let (mut requests, mut blocks, mut highest) = (0, 0, 0);
    while let Some(request) = reader.next_request().expect("good lines") {
        requests += 1;
        blocks += request.hash_ids.len();
        highest = highest.max(request.hash_ids.into_iter().max().unwrap_or(0));
    }
    assert_eq!((requests, blocks, highest), (BUNDLED_REQUESTS, 288_500, 182_789));
    assert_eq!(Some(reader.consumed_bytes()), reader.input_bytes());
}
