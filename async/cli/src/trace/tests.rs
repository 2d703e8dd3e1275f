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
fn archive_of_several_parts_is_read_to_the_end() {
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
fn truncated_archive_is_an_error() {
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
fn flipped_bit_in_an_archive_is_an_error() {
    let text = (0..400).map(|id| LINES.replace("1024", &(id * 7919).to_string()) + "\n").collect::<String>();
    for encode in [gzip, xz, zstd] {
        let mut archive = encode(text.as_bytes());
        let middle = archive.len() / 2;
        archive[middle] ^= 4;
        assert!(read(&archive).is_err());
    }
}

#[test]
fn bad_line_is_named_with_its_fault() {
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
        (
            "[0, 1, 1, [2]]",
            "line 3: the line is a JSON array, but a trace has one JSON object a line; convert it with jq -c '.[]'",
        ),
        (
            "{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 1, \"hash_ids\": [7, 4, 7]}",
            "line 3: hash_ids has 7 twice: a prompt has a block at most once",
        ),
        (
            "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [\"\\u001b]0;x\\u0007\"]}",
            "line 3: invalid type: string \"\\u{1b}]0;x\\u{7}\", expected u64",
        ),
    ];
    for (line, wanted) in cases {
        let message = bad(line);
        assert!(message.contains(wanted), "{line}: {message}");
        assert!(message.starts_with("--trace /"), "{message}");
    }
}

#[test]
fn trace_that_cannot_be_opened_is_named() {
    let missing =
        TraceReader::open(TraceSource::File("/nonexistent/trace.jsonl".into())).expect_err("not there");
    assert!(missing.to_string().starts_with("--trace /nonexistent/trace.jsonl: cannot be opened: "));
    assert!(TraceReader::open(TraceSource::File("/".into())).is_err());
}

#[test]
fn bundled_trace_is_whole() {
    let mut reader = TraceReader::open(TraceSource::Bundled).expect("bundled");
    assert_eq!(reader.encoding(), Encoding::Xz);
    let (mut requests, mut blocks, mut highest) = (0, 0, 0);
    while let Some(request) = reader.next_request().expect("good lines") {
        requests += 1;
        blocks += request.hash_ids.len();
        highest = highest.max(request.hash_ids.into_iter().max().unwrap_or(0));
    }
    assert_eq!((requests, blocks, highest), (BUNDLED_REQUESTS, 288_500, 182_789));
    assert_eq!(reader.warnings().list(), []);
    assert_eq!(Some(reader.consumed_bytes()), reader.input_bytes());
}

#[test]
fn byte_order_mark_is_no_part_of_the_first_line() {
    let expected = read(LINES.as_bytes()).expect("two good lines");
    assert_eq!(read(format!("\u{feff}{LINES}").as_bytes()).expect("the same"), expected);
    assert!(refusal(format!("{LINES}\n\u{feff}{LINES}").as_bytes()).contains("line 4: not a JSON object"));
}

#[test]
fn utf_16_array_and_empty_text_are_refused_by_name() {
    let wide = |mark: &[u8], unit: fn(u16) -> [u8; 2]| {
        mark.iter().copied().chain(LINES.encode_utf16().flat_map(unit)).collect::<Vec<u8>>()
    };
    let marked = [wide(&[0xff, 0xfe], u16::to_le_bytes), wide(&[0xfe, 0xff], u16::to_be_bytes)];
    for bytes in marked.into_iter().chain([wide(&[], u16::to_le_bytes), wide(&[], u16::to_be_bytes)]) {
        let message = refusal(&bytes);
        assert!(
            message.contains("line 1: the text is UTF-16 or UTF-32") && message.contains("iconv"),
            "{message}"
        );
    }
    for array in ["[", "[\n  {\n", &format!("[{}]", "1,".repeat(9 << 20))] {
        let message = refusal(array.as_bytes());
        assert!(message.contains("line 1: the line is a JSON array"), "{message}");
        assert!(message.contains("jq -c '.[]'"), "{message}");
    }
    for empty in ["", "\n \n", "\u{feff}"] {
        let message = refusal(empty.as_bytes());
        assert!(message.contains(": no requests; "), "{empty:?}: {message}");
    }
}

/// One line for each request, with its time, its length and a number of ids that no other line has.
fn lines(of: &[(f64, u64, u64)]) -> String {
    let line = |(nth, (time, length, ids)): (usize, &(f64, u64, u64))| {
        let ids: Vec<u64> = (0..*ids).map(|id| 1000 * nth as u64 + id).collect();
        format!(
            "{{\"timestamp\": {time}, \"input_length\": {length}, \"output_length\": 1, \"hash_ids\": {ids:?}}}\n"
        )
    };
    of.iter().enumerate().map(line).collect()
}

/// The warnings of a trace, or its error.
fn warned(text: &str, options: TraceOptions) -> Result<Vec<String>, String> {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(text.as_bytes()).expect("written");
    let mut reader = TraceReader::with(TraceSource::File(file.path().to_owned()), options)
        .map_err(|error| error.to_string())?;
    let warnings = reader.warnings();
    while reader.next_request().map_err(|error| error.to_string())?.is_some() {}
    Ok(warnings.list().iter().map(ToString::to_string).collect())
}

fn of_tokens(tokens: u32) -> TraceOptions {
    TraceOptions { block_tokens: NonZeroU32::new(tokens), ..TraceOptions::default() }
}

#[test]
fn contradicting_lengths_are_named_by_line() {
    let usual = TraceOptions::default();
    // The last block may be missing if it is not full.
    assert_eq!(
        warned(&lines(&[(0.0, 1023, 1), (0.0, 1023, 2), (0.0, 0, 0), (0.0, 1024, 2)]), usual),
        Ok(vec![])
    );
    let sixteen = lines(&[(0.0, 500, 1), (0.0, 521, 33), (0.0, 553, 35)]);
    assert_eq!(
        warned(&lines(&[(0.0, 16, 1), (0.0, 521, 33), (0.0, 553, 35)]), usual),
        Ok(vec![
            "line 2: hash_ids has 33 ids, but input_length = 521 needs 2, at 512 tokens a block; give the tokens of a block with \
             --trace-block-tokens (16 fits the lines read) [2 such lines]"
                .to_owned()
        ])
    );
    let all = warned(&sixteen, usual).expect("read");
    assert!(
        all[0].starts_with("line 2: ") && !all[0].contains("fits"),
        "the first line has blocks of 500: {all:?}"
    );
    assert_eq!(warned(&lines(&[(0.0, 521, 33), (0.0, 553, 35)]), of_tokens(16)), Ok(vec![]));
    let refused = warned(&sixteen, of_tokens(16)).expect_err("said, and contradicted");
    assert!(
        refused.contains("line 1: hash_ids has 1 id, but input_length = 500 needs 32, at 16 tokens a block"),
        "{refused}"
    );
    assert!(refused.contains("--trace-block-tokens 16 "), "{refused}");
    let none = warned(&lines(&[(0.0, 600, 0)]), usual).expect("read");
    assert!(none[0].contains("hash_ids has 0 ids"), "{none:?}");
}

#[test]
fn lines_out_of_order_are_named() {
    let times = [5000.0, 5000.0, 100.0, 9000.0, 8999.5];
    let warnings = warned(&lines(&times.map(|time| (time, 1, 1))), TraceOptions::default());
    assert_eq!(
        warnings,
        Ok(vec![
            "line 3: timestamp = 100 is before that of line 2, 5000: requests are served in the order of the lines; sort them first with \
             jq -sc 'sort_by(.timestamp)[]' [2 such lines]"
                .to_owned()
        ])
    );
}

#[test]
fn seconds_taken_for_milliseconds_are_noticed() {
    let unit = |time| TraceOptions { time, ..TraceOptions::default() };
    let every = |seconds: f64, requests: u32| {
        let times: Vec<_> = (0..requests).map(|nth| (f64::from(nth) * seconds, 1, 1)).collect();
        lines(&times)
    };
    for odd in [every(0.75, 4), every(0.75, 300), every(0.5, 100), every(1.0 / 3.0, 100)] {
        let warnings = warned(&odd, unit(None)).expect("read");
        assert!(warnings.len() == 1 && warnings[0].contains("in milliseconds give "), "{warnings:?}");
        assert!(
            warnings[0].starts_with("line 2: timestamps from 0 to ")
                && warnings[0].contains("--trace-time s")
        );
        for said in [TimeUnit::Seconds, TimeUnit::Milliseconds] {
            assert_eq!(warned(&odd, unit(Some(said))), Ok(vec![]), "it was said");
        }
    }
    // Whole seconds are noticed by their rate only: two requests a second.
    let whole: Vec<_> = (0..400_u32).map(|nth| (f64::from(nth / 2), 1, 1)).collect();
    let warnings = warned(&lines(&whole), unit(None)).expect("read");
    assert!(warnings[0].contains("from 0 to 49 in milliseconds give 2020 requests a second"), "{warnings:?}");
    for usual in [every(0.0, 300), every(20.5, 300), every(1.0, 300), every(250.0, 300), every(1.0, 2)] {
        assert_eq!(warned(&usual, unit(None)), Ok(vec![]));
    }
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(every(1.5, 3).as_bytes()).expect("written");
    let of = TraceSource::File(file.path().to_owned());
    let reader = TraceReader::with(of, unit(Some(TimeUnit::Seconds))).expect("there");
    let times: Vec<f64> = reader.map(|request| request.expect("good").timestamp).collect();
    assert_eq!(times, [0.0, 1500.0, 3000.0]);
    let refused =
        warned(&lines(&[(1e306, 1, 1)]), unit(Some(TimeUnit::Seconds))).expect_err("no clock has it");
    assert!(refused.contains("line 1: timestamp = 1000000"), "{refused}");
}
