use super::*;
use crate::layout::fingerprint::tests::layouts;
use crate::layout::tensors::{Axis, Tensor};
use crate::layout::tests::rows;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use proptest::prelude::*;

/// Two regions on a device, keys and values apart on the wire's far side: one of each kind of layout.
fn examples() -> [Layout; 3] {
    let pages = LayoutConfig::new().num_blocks(2).num_layers(2).outer_dim(2).page_size(4);
    let hnd = pages.heads(2, 8).dtype(DType::BF16).alignment(256).head_order(HeadOrder::Hnd);
    let device = StorageKind::Device { ordinal: 1 };
    let region = Region { address: 0x7f00_0000_0000, size_bytes: 2048, kind: device };
    let contiguous = Layout::fully_contiguous(hnd, region).unwrap();

    let nvfp4 = pages.heads(2, 32).dtype(DType::NvFp4);
    let data = [0x1_0000, 0x2_0000].map(|address| Tensor {
        region: Region { address, size_bytes: 512, kind: StorageKind::Pinned },
        dims: &[Axis::Block, Axis::Outer, Axis::Token, Axis::Head, Axis::Element],
        shape: &[2, 2, 4, 2, 16],
        strides: &[256, 128, 32, 16, 1],
    });
    let scales = Tensor {
        region: Region { address: 0x3_0000, size_bytes: 128, kind: StorageKind::Pinned },
        dims: &[Axis::Layer, Axis::Block, Axis::Outer, Axis::Head, Axis::Token, Axis::Element],
        shape: &[2, 2, 2, 2, 4, 2],
        strides: &[64, 32, 16, 8, 2, 1],
    };
    let tensors = Layout::from_tensors(nvfp4, &data, &[scales]).unwrap();

    let mla = LayoutConfig::new().num_blocks(3).num_layers(2).page_size(4).inner_dim(576).dtype(DType::BF16);
    let regions = [0, 1 << 20].map(|address| Region {
        address,
        size_bytes: 3 * 4 * 1152,
        kind: StorageKind::Disk { volume: 7 },
    });
    let mla = Layout::new(mla.alignment(2), Arrangement::BlockFirst, &regions).unwrap();
    [contiguous, tensors, mla]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| alloc::format!("{byte:02x}")).collect()
}

/// Made from the table in the module's header by another program.
const VECTORS: [&str; 3] = [
    "4b564c41594f555401000000020000000200000002000000040000000200000008000000030100010001000000000000\
     010000000100000000000000007f00000008000000000000000000000100000010000000000000000002000000000000\
     000100000000000080000000000000001000000000000000400000000000000000000000000000000000000000000000\
     0000000000000000779f115704e7548d54e3a4a3c8eae804",
    "4b564c41594f555401000000020000000200000002000000040000000200000020000000080000000100000000000000\
     030000000200000000000100000000000002000000000000010000000000000000000200000000000002000000000000\
     010000000000000000000300000000008000000000000000010000000000000010000000000000000001000000000000\
     000000000000000080000000000000002000000000000000100000000000000000000000000000000000000001000000\
     000000000000000002000000000000002000000000000000400000000000000010000000000000000200000000000000\
     08000000000000000000000000000000020000000000000000000000000000008bbdf34c6f17b73a10343a905c1c21c8",
    "4b564c41594f555401000000030000000200000001000000040000000100000040020000030000050200000000000000\
     020000000100000000000000000000000036000000000000030000000700000000001000000000000036000000000000\
     030000000700000080040000000000000012000000000000000000000000000000000000000000008004000000000000\
     0000000000000000000000000000000000000000010000000000000000000000c944c350eaf1197f3fdfd4542b72e1a9",
];

#[test]
fn description_matches_the_fixed_vectors() {
    for (layout, vector) in examples().iter().zip(VECTORS) {
        let bytes = layout.to_bytes();
        assert_eq!(hex(&bytes), vector);
        assert_eq!(Layout::from_bytes(&bytes).unwrap().to_bytes(), bytes);
    }
}

/// A region's kind and number: 56 + 16 and 56 + 20.
#[test]
fn description_of_each_region_kind_has_its_code() {
    for (kind, code) in [
        (StorageKind::Device { ordinal: 258 }, [0, 0, 0, 0, 2, 1, 0, 0]),
        (StorageKind::Pinned, [1, 0, 0, 0, 0, 0, 0, 0]),
        (StorageKind::System, [2, 0, 0, 0, 0, 0, 0, 0]),
        (StorageKind::Disk { volume: 3 }, [3, 0, 0, 0, 3, 0, 0, 0]),
        (StorageKind::Remote { peer: 1 << 31 }, [4, 0, 0, 0, 0, 0, 0, 0x80]),
    ] {
        let region = Region { address: 64, size_bytes: 8, kind };
        let bytes = Layout::fully_contiguous(LayoutConfig::new(), region).unwrap().to_bytes();
        assert_eq!(bytes[72..80], code);
        assert_eq!(Layout::from_bytes(&bytes).unwrap().regions(), [region]);
    }
}

/// Same rows, regions, geometry, fingerprints.
fn same_layout(a: &Layout, b: &Layout) -> bool {
    a.config() == b.config()
        && a.arrangement() == b.arrangement()
        && a.regions() == b.regions()
        && a.fingerprint() == b.fingerprint()
        && rows(a.config()).all(|index| {
            a.address(index) == b.address(index) && a.scales_address(index) == b.scales_address(index)
        })
}

/// Decodes the bytes after giving them the fingerprint of their fields, so that it hides no other error.
fn sealed(bytes: &mut [u8]) -> Result<Layout, DescriptionError> {
    match Layout::from_bytes(bytes) {
        Err(DescriptionError::Fingerprint { made, .. }) => {
            let at = bytes.len() - FINGERPRINT;
            bytes[at..].copy_from_slice(&made.to_bytes());
            let layout = Layout::from_bytes(bytes);
            assert!(layout.is_ok(), "{layout:?}");
            layout
        }
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn description_round_trip_keeps_the_layout(layout in layouts()) {
        let bytes = layout.to_bytes();
        let again = Layout::from_bytes(&bytes).unwrap();
        prop_assert!(same_layout(&layout, &again));
        prop_assert_eq!(again.to_bytes(), bytes);
    }

    /// Wherever regions go, rows go with them.
    #[test]
    fn relocated_layout_moves_rows_with_their_regions(layout in layouts(), step in 1u64..9, down in any::<bool>()) {
        let (regions, largest) = (layout.regions(), layout.regions().iter().map(|region| region.size_bytes).max());
        let apart = (largest.unwrap() + step * 512).next_multiple_of(512);
        let place = |number: u64| if down { (regions.len() as u64 - number) * apart } else { number * apart };
        let addresses: Vec<u64> = (0..regions.len() as u64).map(place).collect();
        let moved = layout.relocated(&addresses).unwrap();
        prop_assert_eq!(moved.fingerprint(), layout.fingerprint());
        for index in rows(layout.config()) {
            let go = |from: u64| {
                let inside = |region: &Region| region.address <= from && from < region.address + region.size_bytes;
                let region = regions.iter().position(inside).unwrap();
                from - regions[region].address + addresses[region]
            };
            prop_assert_eq!(moved.address(index).unwrap(), go(layout.address(index).unwrap()));
            prop_assert_eq!(moved.scales_address(index).unwrap(), layout.scales_address(index).unwrap().map(go));
        }
        let back: Vec<u64> = regions.iter().map(|region| region.address).collect();
        prop_assert!(same_layout(&moved.relocated(&back).unwrap(), &layout));
    }

    /// A wrong byte is refused, or makes another layout with its own description; a missing
    /// or extra one is refused.
    #[test]
    fn description_with_wrong_bytes_is_refused_or_another_layout(layout in layouts(), changes in prop::collection::vec((any::<prop::sample::Index>(), 0u32..8), 1..4)) {
        let whole = layout.to_bytes();
        let mut bytes = whole.clone();
        for (at, bit) in changes {
            *at.get_mut(&mut bytes) ^= 1 << bit;
        }
        if bytes != whole {
            prop_assert!(Layout::from_bytes(&bytes).is_err() || sealed(&mut bytes.clone()).unwrap().to_bytes() == bytes);
        }
        if let Ok(other) = sealed(&mut bytes) {
            prop_assert_eq!(other.to_bytes(), bytes);
        }
    }
}

#[test]
fn description_cut_short_or_too_long_is_refused() {
    for layout in examples() {
        let mut bytes = layout.to_bytes();
        for length in 0..bytes.len() {
            assert!(matches!(Layout::from_bytes(&bytes[..length]), Err(DescriptionError::Length { .. })));
        }
        bytes.push(0);
        assert!(matches!(Layout::from_bytes(&bytes), Err(DescriptionError::Length { field: "regions", .. })));
    }
}

#[test]
fn description_with_a_wrong_field_is_refused_by_name() {
    let [contiguous, tensors, mla] = examples();
    let with = |layout: &Layout, at: usize, new: &[u8]| {
        let mut bytes = layout.to_bytes();
        bytes[at..at + new.len()].copy_from_slice(new);
        Layout::from_bytes(&bytes).unwrap_err().to_string()
    };
    let one = |at: usize, new: &[u8]| with(&contiguous, at, new);
    assert_eq!(one(0, b"K\0"), "magic = \"K\\x00LAYOUT\": must be the first bytes of a description");
    assert_eq!(one(8, &[2]), "version = 2: this library reads version 1");
    assert_eq!(one(12, &[0]), "num_blocks = 0: must be at least 1");
    assert_eq!(one(16, &[0, 0, 2]), "num_layers = 131072: must be at most 65536");
    assert_eq!(one(36, &[10]), "dtype = 10: must be one of 1 to 9");
    assert_eq!(one(37, &[2]), "head_order = 2: must be 0 (NHD) or 1 (HND)");
    assert_eq!(one(38, &[2]), "scales = 2: must be 0 (row) or 1 (page)");
    assert_eq!(one(39, &[8]), "arrangement = 8: must be 0 (tensors) to 7");
    assert_eq!(one(40, &[3]), "alignment = 259: must be a power of two");
    assert_eq!(one(48, &[9]), "regions = 9: must be at least 1, at most 2 × num_layers × outer_dim");
    assert_eq!(one(48, &[2]), "regions: 112 bytes are left, 136 are needed; pass the whole description");
    assert_eq!(one(52, &[3]), "planes = 3: must be 1, or 2 with scales apart");
    assert_eq!(one(56, &[1]), "regions[0].address = 0x7f0000000001: must be a multiple of alignment = 256");
    assert_eq!(one(65, &[3]), "regions[0].size_bytes = 768: must be at least 1024");
    assert_eq!(one(72, &[5]), "regions[0].kind = 5: must be one of 0 to 4");
    assert_eq!(one(72, &[2]), "regions[0].number = 1: must be 0 for pinned and system");
    assert_eq!(one(80, &[17]), "planes[0].row_bytes = 17: the geometry has 16");
    assert_eq!(one(112, &[17]), "planes[0].strides.token = 17: the geometry has 16");
    assert_eq!(one(148, &[1]), "planes[0].zero = 1: must be 0");
    let made = contiguous.fingerprint();
    let found = Fingerprint::from_u128(made.to_u128() ^ 1);
    assert_eq!(
        one(152, &[made.to_bytes()[0] ^ 1]),
        alloc::format!("fingerprint = {found}: the fields give {made}; ask for the description again")
    );
    // Another head order puts other bytes there, as would an arrangement.
    assert_eq!(one(37, &[0]), "planes[0].strides.token = 16: the geometry has 32");
    assert_eq!(one(39, &[2]), "planes[0].strides.layer = 256: the geometry has 128");

    // 56 + 3 × 24: planes of tensors.
    let some = |at: usize, new: &[u8]| with(&tensors, at, new);
    assert_eq!(some(128, &[17]), "planes[0].row_bytes = 17: the geometry has 16");
    assert_eq!(some(128 + 16, &[1]), "planes[0].strides.layer = 1: the geometry has 0");
    assert_eq!(some(128 + 48, &[1]), "regions[0].size_bytes = 512: must be at least 513");
    assert_eq!(
        some(128 + 40, &[15]),
        "strides: one head follows another after 15 bytes, but spans 16 (a row)"
    );
    assert_eq!(some(128 + 60, &[0]), "planes[1].first = 2: the geometry has 1");
    assert_eq!(some(200 + 56, &[1]), "planes[1].first = 1: the geometry has 2");
    assert_eq!(some(56 + 48, &[0, 1, 1]), "address: elements and scales overlap; place them apart");
    // 56 + 24 + 20: the second region's number.
    assert_eq!(
        with(&mla, 100, &[8]),
        "regions[1].kind = disk:8: a layout lies in one address space, and regions[0].kind = disk:7; make a layout for each"
    );
    let mut two = tensors.to_bytes();
    two[56 + 24 + 16] = 0;
    assert_eq!(
        Layout::from_bytes(&two).unwrap_err().to_string(),
        "regions[1].kind = device:0: a layout lies in one address space, and regions[0].kind = pinned; make a layout for each"
    );
    let odd = with(&mla, 56 + 48 + 48, &[1]);
    assert_eq!(odd, "planes[0].offset = 1: the geometry has 0");
}

#[test]
fn description_with_a_torn_element_is_refused() {
    let config = LayoutConfig::new().num_blocks(2).dtype(DType::BF16).alignment(2);
    let tensor = Tensor {
        region: Region::system(64, 64),
        dims: &[Axis::Block, Axis::Token, Axis::Element],
        shape: &[2, 1, 1],
        strides: &[2, 1, 1],
    };
    let layout = Layout::from_tensors(config, &[tensor], &[]).unwrap();
    let mut bytes = layout.to_bytes();
    bytes[80 + 8] = 3;
    let rule = "planes[0].strides.block = 3: must be a multiple of an element's bytes";
    assert_eq!(Layout::from_bytes(&bytes).unwrap_err().to_string(), rule);
    bytes[80 + 8] = 6;
    assert_eq!(sealed(&mut bytes).unwrap().address([1, 0, 0, 0, 0]), Ok(70));
    assert_eq!(
        layout.relocated(&[65]).unwrap_err().to_string(),
        "regions[0].address = 0x41: must be a multiple of the 2 bytes of a bfloat16 element"
    );
    assert_eq!(layout.relocated(&[]).unwrap_err().to_string(), "address: 0 given, this layout needs 1");
    assert!(layout.relocated(&[u64::MAX - 62]).is_err());
}
