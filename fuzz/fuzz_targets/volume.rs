//! A volume's file after arbitrary damage, forged checksums included: it is opened and read to
//! the last slot. Every byte is the one that its record stands for; no panic, and no memory or
//! disk beyond the file's own size.
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use kvstrata_ffi::disk::sim::{Case, Edit, folder};
use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::OnceLock;

#[derive(Debug)]
struct Input(Case);

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Input> {
        let (slots, slot_bytes, how) =
            (input.arbitrary::<u8>()?, input.arbitrary()?, input.arbitrary::<u8>()?);
        let mut case = Case {
            slots: u16::from(slots),
            slot_bytes,
            reinitialize: how % 16 == 0,
            encrypted: how / 16 % 2 == 1,
            more_slots: if input.ratio(1, 16)? { input.arbitrary()? } else { 0 },
            ..Case::default()
        };
        let blocks = input.arbitrary_len::<u8>()?.min(200);
        case.blocks = (0..blocks).map(|_| input.arbitrary()).collect::<Result<_>>()?;
        while !input.is_empty() && case.edits.len() < 20 {
            case.edits.push(edit(input)?);
        }
        Ok(Input(case))
    }
}

fn edit(input: &mut Unstructured<'_>) -> Result<Edit> {
    let few = |input: &mut Unstructured<'_>| -> Result<Vec<u8>> {
        let length = input.int_in_range(1..=24)?;
        Ok(input.bytes(length.min(input.len()))?.to_vec())
    };
    // The place of the damage: the superblock's fields, the table, anywhere.
    let place = |input: &mut Unstructured<'_>| -> Result<u32> {
        match input.int_in_range(0..=2)? {
            0 => Ok(u32::from(input.arbitrary::<u8>()?)),
            1 => Ok(4096 + u32::from(input.arbitrary::<u16>()?) % (200 * 64)),
            _ => input.arbitrary(),
        }
    };
    Ok(match input.int_in_range(0..=4)? {
        0 => Edit::Bytes { at: place(input)?, bytes: few(input)? },
        1 => Edit::Copy { from: place(input)?, to: place(input)?, bytes: input.arbitrary()? },
        2 => Edit::Superblock {
            last: input.arbitrary()?,
            at: u16::from(input.arbitrary::<u8>()?),
            bytes: few(input)?,
        },
        3 => Edit::Record {
            slot: input.arbitrary()?,
            block: input.arbitrary()?,
            sequence: input.arbitrary()?,
            payload_bytes: input.arbitrary()?,
            sealed: input.arbitrary()?,
        },
        _ => Edit::Length { bytes: input.arbitrary()? },
    })
}

/// Returns a folder of this process's own, for one file that is made anew for each input.
fn own_folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        // A forged length must not take more disk than this: exceeding it is an error, and a finding.
        let limit = libc::rlimit { rlim_cur: 256 << 20, rlim_max: 256 << 20 };
        // SAFETY: it only reads the limit.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
        folder().join(format!("kvstrata-fuzz-{}", std::process::id()))
    })
}

fuzz_target!(|input: Input| {
    let folder = own_folder();
    std::fs::create_dir_all(folder).expect("a folder in memory");
    let _ = input.0.check(folder);
    let _ = std::fs::remove_dir_all(folder);
});
