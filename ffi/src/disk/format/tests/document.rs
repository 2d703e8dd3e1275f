//! `docs/disk-format.md` matches the code: its tables, its constants, its example.

use super::*;
use core::mem::offset_of;

const DOCUMENT: &str = include_str!("../../../../../docs/disk-format.md");

/// A field: offset, length, name.
type Field = (usize, usize, String);

/// All fields of a wire structure: one that is not named here does not compile.
macro_rules! fields {
    ($module:ident::Wire { $($field:ident)* }) => {{
        let wire = <$module::Wire as zerocopy::FromZeros>::new_zeroed();
        let $module::Wire { $($field),* } = &wire;
        vec![$((offset_of!($module::Wire, $field), size_of_val($field), stringify!($field).to_owned())),*]
    }};
}

/// The text from a heading to the next one of its rank.
fn section(heading: &str) -> &str {
    let start = DOCUMENT.find(heading).expect(heading) + heading.len();
    let text = &DOCUMENT[start..];
    &text[..text.find("\n## ").unwrap_or(text.len())]
}

/// The cells of the rows of a section's table, without its head.
fn rows(section: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect())
}

fn documented(heading: &str) -> Vec<Field> {
    let number = |cell: &str| cell.parse().expect(cell);
    rows(section(heading)).map(|cells| (number(cells[0]), number(cells[1]), cells[2].to_owned())).collect()
}

/// Checks that each field starts where the previous one ends. Returns the end of the last.
fn end(fields: &[Field]) -> usize {
    fields.iter().fold(0, |end, (offset, bytes, field)| {
        assert_eq!(*offset, end, "{field}");
        end + bytes
    })
}

/// The bytes of an example, in hexadecimal digits between its fences.
fn example(name: &str) -> Vec<u8> {
    let start = DOCUMENT.find(&format!("```{name}\n")).expect(name) + name.len() + 4;
    let text = &DOCUMENT[start..];
    let digits: Vec<u8> =
        text[..text.find("```").expect("an end")].bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |digit: u8| (digit as char).to_digit(16).expect("a digit") as u8;
    digits.as_chunks::<2>().0.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect()
}

#[test]
fn field_offsets_are_those_of_the_document() {
    let superblock = fields!(superblock::Wire {
        magic version header_bytes volume_id set_id layout_fingerprint model_fingerprint slots slot_bytes stride
        table_offset origin file_bytes alignment seal_kind writes flags stripe_index stripe_count reserved
        created_unix_seconds key_check salts zeros checksum
    });
    assert_eq!(documented("\n## Superblock\n"), superblock);
    assert_eq!(end(&superblock), SUPERBLOCK_BYTES);
    let record = fields!(record::Wire { hash parent owner sequence seal payload_bytes checksum });
    assert_eq!(documented("\n## Record\n"), record);
    assert_eq!(end(&record), RECORD_BYTES);
}

#[test]
fn constants_are_those_of_the_document() {
    let head = &DOCUMENT[..DOCUMENT.find("\n## Superblock\n").expect("a section")];
    let documented: Vec<_> =
        rows(head).map(|cells| (cells[0], cells[1].parse::<u64>().expect(cells[1]))).collect();
    let constants = [
        ("VERSION", u64::from(VERSION)),
        ("SUPERBLOCK_BYTES", SUPERBLOCK_BYTES as u64),
        ("PAGE_BYTES", PAGE_BYTES as u64),
        ("RECORD_BYTES", RECORD_BYTES as u64),
        ("RECORDS_A_PAGE", RECORDS_A_PAGE as u64),
        ("CHUNK_BYTES", CHUNK_BYTES as u64),
        ("SEAL_BYTES", SEAL_BYTES as u64),
        ("EPOCHS", EPOCHS as u64),
        ("COUNT_BITS", COUNT_BITS.into()),
        ("MAX_SEQUENCE", MAX_SEQUENCE),
    ];
    assert_eq!(documented, constants);
    assert_eq!((SealKind::Checksum.number(), SealKind::Tag.number()), (1, 2));
}

/// Bytes that must never change while the version is 2.
#[test]
fn example_of_the_document_is_written_byte_for_byte() {
    let bytes = superblock().to_bytes();
    assert_eq!(example("superblock"), [&bytes[..184], &bytes[4088..]].concat());
    assert!(bytes[184..4088].iter().all(|&byte| byte == 0));
    assert_eq!(example("record"), record().encode(superblock().volume_id, 17));
}

/// Sums made by the reference implementation for chunks of different lengths.
#[test]
fn seal_is_the_sum_of_its_chunks() {
    let payload: Vec<u8> = (0..2 * CHUNK_BYTES + 1000).map(|at| (at / 300) as u8).collect();
    let sum = u64::from_le_bytes(*seal_of_payload(&payload).first_chunk().expect("16 bytes"));
    assert_eq!(sum, 0xf1c9_f43a_c97b_ecf4);
    assert_eq!(seal_of_payload(&[]), [0; SEAL_BYTES]);
}
