//! Models, geometries and groups of layers.

use super::{good, refusal};
use crate::settings::{DeviceKind, Group, GroupKind};
use kvstrata_core::layout::{DType, Model};
use kvstrata_tiers::Tier;

/// A preset has the core's layout, for ranks, page sizes and types.
#[test]
fn presets_are_those_of_the_core() {
    for model in Model::ALL {
        let config = good(&format!("model = \"{}\"", model.name));
        let [group] = config.groups() else {
            assert!(model.window.is_some(), "{}", model.name);
            continue;
        };
        assert_eq!((group.layout, model.window), (model.config(16), None), "{}", model.name);
        assert_eq!(group.layers.len() as u32, model.layers);
    }
    let config =
        good("model = \"LLAMA-3-70b\"\n[geometry]\ntp = 4\nrank = 3\npage_size = 64\ndtype = \"fp8\"");
    let [group] = config.groups() else { panic!("one group") };
    assert_eq!((group.block_bytes(), group.page_size), (80 * 2 * 64 * 2 * 128, 64));
    assert_eq!((group.layout.dtype, group.kind), (DType::F8E4M3, GroupKind::Full));
    // Every rank has the whole latent.
    let config = good("model = \"deepseek-v3\"\ngeometry.tp = 8\ngeometry.rank = 7");
    assert_eq!(
        (config.groups()[0].block_bytes(), config.groups()[0].kind),
        (61 * 16 * 576 * 2, GroupKind::Mla)
    );
}

/// Layers 0, 2, 4 … of gpt-oss attend to the last 128 tokens and form a group of their own.
#[test]
fn preset_with_windows_has_a_group_for_them() {
    for (name, layers) in [("gpt-oss-20b", 24), ("gpt-oss-120b", 36)] {
        let config = good(&format!("model = \"{name}\"\n[device]\nblocks = 8\n[geometry]\ntp = 2"));
        let [full, window] = config.groups() else { panic!("two groups") };
        assert_eq!((full.name.as_str(), full.kind, full.window), ("full", GroupKind::Full, None));
        assert_eq!(
            (window.name.as_str(), window.kind, window.window),
            ("window", GroupKind::Window, Some(128))
        );
        assert_eq!(full.layers, (1..layers).step_by(2).collect::<Vec<_>>());
        assert_eq!(window.layers, (0..layers).step_by(2).collect::<Vec<_>>());
        let half = u64::from(layers) / 2 * 2 * 16 * 4 * 64 * 2;
        assert_eq!((full.block_bytes(), window.block_bytes()), (half, half));
        // A window of 128 tokens and one page, per 4,096 tokens, is below the smallest share, an eighth.
        assert_eq!((full.share, window.share, config.tier_bytes(Tier::Device)), (1.0, 0.125, 9 * half));
        assert_eq!(good(&config.to_toml()).groups(), config.groups());
    }
    // Given layers and listed groups override those of the model.
    let config = good("model = \"gpt-oss-20b\"\ngeometry.layers = 4");
    assert_eq!(config.groups().len(), 1);
    let config = good("model = \"gpt-oss-20b\"\n[[group]]\nlayers = \"0-23\"");
    assert_eq!((config.groups().len(), config.groups()[0].layers.len()), (1, 24));
}

#[test]
fn geometry_can_be_given_key_by_key() {
    let config = good(
        "[geometry]\nlayers = 2\nkv_heads = 4\nhead_size = 64\nalignment = \"4K\"\nhead_order = \"HND\"",
    );
    let layout = config.groups()[0].layout;
    assert_eq!((layout.num_heads, layout.outer_dim, layout.alignment), (4, 2, 4096));
    assert_eq!(layout.block_bytes(), Ok(2 * 2 * 16 * 4 * 64 * 2));
    let config = good("[geometry]\nlayers = 2\nhead_size = 576\nouter_dim = 1");
    assert_eq!(config.groups()[0].block_bytes(), 2 * 16 * 576 * 2);
    // A block in host memory takes whole pages.
    let config = good("[geometry]\nblock_bytes = 100\npage_size = 512\n[device]\nbytes = 41000");
    assert_eq!(
        (config.groups()[0].block_bytes(), config.device.blocks, config.groups()[0].page_size),
        (100, 10, 512)
    );
}

pub(super) const HYBRID: &str = "
[device]
blocks = 10
[[group]]
kind = \"full\"
layers = \"3-11/4\"
kv_heads = 2
head_size = 64
[[group]]
kind = \"state\"
layers = [\"0-2\", \"4-6\", \"8-10\"]
state_bytes = 1000
page_size = 512
share = 0.25
[[group]]
name = \"latent\"
kind = \"mla\"
layers = [12]
head_size = 576
page_size = 64
dtype = \"fp8\"
[[group]]
kind = \"window\"
layers = \"13\"
kv_heads = 2
head_size = 64
window = 128
share = 0.0
";

#[test]
fn groups_have_blocks_of_their_own() {
    let config = good(HYBRID);
    let groups = config.groups();
    let names: Vec<_> = groups.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(names, ["full-0", "state-1", "latent", "window-3"]);
    let bytes: Vec<_> = groups.iter().map(Group::block_bytes).collect();
    assert_eq!(bytes, [3 * 2 * 16 * 2 * 64 * 2, 9 * 1000, 64 * 576, 2 * 16 * 2 * 64 * 2]);
    let strides: Vec<_> =
        groups.iter().map(|group| group.stride_bytes(Tier::Device, config.device.kind)).collect();
    assert_eq!(strides, [bytes[0], 12_288, bytes[2], bytes[3]]);
    assert_eq!(groups[1].layers, [0, 1, 2, 4, 5, 6, 8, 9, 10]);
    let pages: Vec<_> = groups.iter().map(|group| group.page_size).collect();
    assert_eq!(pages, [16, 512, 64, 16]);
    let blocks: Vec<_> = groups.iter().map(|group| group.blocks(10)).collect();
    // The latent has no given share: pages of 64 tokens, next to pages of 16.
    assert_eq!(blocks, [10, 3, 3, 1]);
    assert_eq!(groups.iter().map(|group| group.blocks(0)).sum::<u32>(), 0);
    let all = 10 * strides[0] + 3 * strides[1] + 3 * strides[2] + strides[3];
    assert_eq!(config.tier_bytes(Tier::Device), all);
    // Exactly as many as fit.
    for (given, blocks) in [(all, 10), (all - 1, 9)] {
        assert_eq!(good(&HYBRID.replace("blocks = 10", &format!("bytes = {given}"))).device.blocks, blocks);
    }
    assert_eq!((groups[3].window, groups[0].window), (Some(128), None));
}

#[test]
fn geometries_that_do_not_go_together_are_refused() {
    let without = "without a model, set layers, kv_heads and head_size (latent: outer_dim = 1, no kv_heads)";
    let group = "[[group]]\nlayers = \"0-1\"\nkv_heads = 1\nhead_size = 8\n";
    let cases = [
        ("geometry.layers = 2".to_owned(), format!("geometry.kv_heads = none (default): {without}")),
        ("geometry.dtype = \"fp8\"".to_owned(), format!("geometry.layers = none (default): {without}")),
        (
            "model = \"llama-3-8b\"\ngeometry.rank = 4\ngeometry.tp = 4".to_owned(),
            "geometry.rank = 4 (k.toml:2): must be below geometry.tp = 4 (k.toml:3)".to_owned(),
        ),
        (
            "model = \"deepseek-v3\"\ngeometry.kv_heads = 8".to_owned(),
            "geometry.kv_heads = 8 (k.toml:2): a latent (MLA, geometry.outer_dim = 1) has no KV heads; remove it"
                .to_owned(),
        ),
        (
            "model = \"llama-3-8b\"\ngeometry.block_bytes = \"64K\"".to_owned(),
            "geometry.block_bytes = 64K (k.toml:2): conflicts with model (k.toml:1): opaque blocks have no layers; \
             remove one of them"
                .to_owned(),
        ),
        (
            format!("geometry.block_bytes = \"64K\"\n{group}"),
            "geometry.block_bytes = 64K (k.toml:1): conflicts with group (k.toml:2): opaque blocks have no layers; \
             remove one of them"
                .to_owned(),
        ),
        (
            "model = \"llama-3-8b\"\ngeometry.alignment = 100".to_owned(),
            "geometry.alignment = 100 (k.toml:2): alignment = 100: must be a power of two".to_owned(),
        ),
        (
            format!("{group}window = 8"),
            "group[0].window = 8 (k.toml:5): groups of kind full do not have it; remove it, or change group[0].kind".to_owned(),
        ),
        (
            format!("{group}kind = \"state\""),
            "group[0].kv_heads = 1 (k.toml:3): groups of kind state do not have it; remove it, or change group[0].kind".to_owned(),
        ),
        (
            format!("{group}kind = \"window\""),
            "group[0].window = none (k.toml:1): missing; groups of kind window need it, here or (heads only) in geometry"
                .to_owned(),
        ),
        (
            format!("{group}[[group]]\nlayers = \"1-3\"\nkv_heads = 1\nhead_size = 8"),
            "group[1].layers = \"1-3\" (k.toml:6): layer 1 is in groups[0] and in groups[1]; each layer must be in one group; \
             geometry.layers, if unset, is the number of listed layers"
                .to_owned(),
        ),
        (
            format!("geometry.layers = 4\n{group}"),
            "group = 2 of 4 layers (k.toml:2): layer 2 is in no group; each layer must be in one group".to_owned(),
        ),
        (
            format!("geometry.layers = 1\n{group}"),
            "group[0].layers = \"0,1\" (k.toml:3): groups[0] has layer 1: the model has 1; each layer must be in one group".to_owned(),
        ),
        (
            format!("{group}name = \"a\"\n[[group]]\nname = \"a\"\nlayers = \"2\"\nkv_heads = 1\nhead_size = 8"),
            "group[1].name = a (k.toml:7): another group has this name; rename one of them".to_owned(),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(&text), expected, "{text}");
    }
}

/// Pages of 16 tokens next to states of 1,024. With equal numbers of blocks, one group covered 1,952 tokens
/// and the other 124,928.
#[test]
fn groups_given_no_share_cover_the_same_tokens() {
    let text = include_str!("hybrid-bytes.toml");
    let config = good(text);
    let [full, first, second, state] = config.groups() else { panic!("four groups") };
    assert_eq!([full.share, state.share], [1.0, 16.0 / 1024.0]);
    // A window of 1,024 tokens and one page, once per 4,096 tokens.
    assert_eq!([first.share, second.share], [1040.0 / 4096.0; 2]);
    let tokens = |group| config.tokens_of(group, Tier::Host);
    assert!((tokens(full)..tokens(full) + 1024).contains(&tokens(state)), "{}", tokens(state));
    assert!(tokens(full) > 30_000, "{} tokens of 256 MiB", tokens(full));
    // As many blocks as fit, padding included.
    let used = config.tier_bytes(Tier::Host);
    assert!(used <= 256 << 20 && used > 253 << 20, "{used}");
    // A given share does not change the shares of the others.
    let given = good(&text.replace("state_bytes = 1000000", "state_bytes = 1000000\nshare = 0.5"));
    let shares: Vec<_> = given.groups().iter().map(|group| group.share).collect();
    assert_eq!(shares, [1.0, first.share, second.share, 0.5]);
    // The group with the smallest page has the most blocks. A very long window needs as many as full
    // attention.
    let swapped = good(
        "geometry.kv_heads = 1\ngeometry.head_size = 64\n[[group]]\nlayers = [0]\npage_size = 64\n[[group]]\nkind = \"window\"\n\
         window = 8192\nlayers = [1]\npage_size = 16",
    );
    let shares: Vec<_> = swapped.groups().iter().map(|group| group.share).collect();
    assert_eq!(shares, [0.25, 1.0]);
}

/// Striped volumes are equal: the number of a group's blocks is a multiple of their number.
#[test]
fn blocks_of_a_group_spread_evenly_over_the_paths() {
    let text = HYBRID.replace("[device]", "disk.blocks = 9\ndisk.paths = [\"a\", \"b\", \"c\"]\n[device]");
    let config = good(&text);
    let blocks: Vec<_> = config.groups().iter().map(|group| config.blocks_of(group, Tier::DISK)).collect();
    assert_eq!(blocks, [9, 3, 3, 3]);
    let strides = config.groups().iter().map(|group| group.stride_bytes(Tier::DISK, DeviceKind::Sim));
    let bytes: u64 = strides.zip(&blocks).map(|(bytes, blocks)| bytes * u64::from(*blocks)).sum();
    assert_eq!(config.tier_bytes(Tier::DISK), bytes);
    assert_eq!(good(&text.replace("disk.blocks = 9", &format!("disk.bytes = {bytes}"))).disk.blocks, 9);
    assert_eq!(good(&text.replace("disk.blocks = 9", &format!("disk.bytes = {}", bytes - 1))).disk.blocks, 6);
}

/// A block too large for a volume is refused by the settings, not later by the manager.
#[test]
fn block_larger_than_a_slot_goes_without_a_disk() {
    let text = "model = \"llama-3-70b\"\ngeometry.page_size = 16384\ndevice.blocks = 1\nhost.blocks = 1\n";
    good(text);
    assert_eq!(
        refusal(&format!("{text}disk.blocks = 4")),
        "disk.blocks = 4 (k.toml:5): 16384 tokens of group all make a block of 5368709120 bytes, above the \
         4294963200 of a disk; lower geometry.page_size, or set disk.blocks = 0"
    );
}

/// The config.json of a model gives the same groups as its preset, or as a list of groups.
#[test]
fn config_json_is_read_as_a_model() {
    let file = |name: &str| format!("{}/tests/models/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let of = |name: &str, more: &str| good(&format!("geometry.config = \"{}\"\n{more}", file(name)));
    for name in ["llama-3-70b", "qwen2.5-7b", "deepseek-v3", "gemma-3-4b", "gpt-oss-20b"] {
        let preset = good(&format!("model = \"{name}\"\ngeometry.tp = 2"));
        let config = of(name, "geometry.tp = 2");
        assert_eq!(config.groups(), preset.groups(), "{name}");
        assert_eq!(good(&config.to_toml()).groups(), config.groups());
    }
    let config = of("qwen3-next-80b", "geometry.tp = 2\ngeometry.dtype = \"fp8\"");
    let [full, state] = config.groups() else { panic!("two groups") };
    assert_eq!((full.block_bytes(), full.layers.len()), (12 * 2 * 16 * 256, 12));
    assert_eq!((state.kind, state.block_bytes()), (GroupKind::State, 36 * (1_097_728 / 2)));
    let config = of("deepseek-v3.2", "geometry.tp = 8");
    let [latent, indexer] = config.groups() else { panic!("two groups") };
    assert_eq!((latent.block_bytes(), indexer.block_bytes()), (61 * 16 * 576 * 2, 61 * 16 * 132));
    let refused = |more: &str| refusal(&format!("geometry.config = \"{}\"\n{more}", file("qwen3-next-80b")));
    assert!(
        refused("geometry.tp = 3")
            .contains("linear_num_key_heads = 16: must be divisible by the number of ranks, 3")
    );
    assert!(
        refused("model = \"llama-3-8b\"")
            .contains("the file conflicts with model (k.toml:2); remove one of them")
    );
    assert!(refusal("geometry.config = \"/none/config.json\"").contains("/none/config.json: cannot be read"));
}
