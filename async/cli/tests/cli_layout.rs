//! `kvstrata layout`, end to end: numbers, picture, JSON, errors.
//! Past 500 lines because it has whole pictures.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

const ARRANGEMENTS: [&str; 7] = [
    "fully-contiguous",
    "cross-layer",
    "cross-layer-packed",
    "outer-first",
    "block-first",
    "packed",
    "token-major",
];

fn run_in_locale(locale: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvstrata"))
        .arg("layout")
        .args(arguments)
        .env("LC_ALL", locale)
        .stdin(Stdio::null())
        .output()
        .expect("the command runs")
}

/// The output of a run that must succeed.
fn printed(arguments: &[&str]) -> String {
    let output = run_in_locale("C.UTF-8", arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{arguments:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(&[arguments, &["--json"]].concat())).expect("JSON")
}

/// The message of a run that must end with exit code 2 and print nothing else.
fn refusal(arguments: &[&str]) -> String {
    let output = run_in_locale("C.UTF-8", arguments);
    let message = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(message.starts_with("kvstrata: ") || message.starts_with("error: "), "{message}");
    message
}

/// The well-known sizes, and their factors.
#[test]
fn block_of_llama_3_70b_has_5_242_880_bytes() {
    let text = printed(&[]);
    for part in [
        "model        llama-3-70b: 80 layers, 8 KV heads of 128, bfloat16\n",
        "a block      80 layers × 2 × 16 tokens × 8 heads × 128 × 2 bytes\n             = 5,242,880 bytes = 5.24 MB\n",
        "= 327,680 bytes = 328 kB\n",
        "regions      1 of 5,368,709,120 bytes = 5.37 GB\n",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let facts = json(&["--preset", "llama-3-70b", "--tp", "4"]);
    assert_eq!(facts["bytes"]["block"], 1_310_720);
    assert_eq!(facts["bytes"]["block_of_the_model"], 5_242_880);
    let facts = json(&["--preset", "deepseek-v3", "--tp", "8", "--rank", "3"]);
    assert_eq!(
        (&facts["bytes"]["token"], &facts["bytes"]["token_of_the_model"]),
        (&70_272.into(), &70_272.into())
    );
}

/// Two ranks with the same head both store it, so it counts twice in the bytes of all ranks.
#[test]
fn replicated_heads_count_once_for_each_rank() {
    let text = printed(&["--preset", "qwen2.5-7b", "--tp", "8"]);
    assert!(text.contains("= 1,835,008 bytes = 1.84 MB\n"), "{text}");
    assert!(text.contains("4 KV heads, replicated over 8 ranks"), "{text}");
    for (preset, degree, of_rank, of_all) in [
        ("qwen2.5-7b", "8", 28 * 2 * 16 * 128 * 2, 1_835_008_u64),
        ("llama-3-70b", "4", 1_310_720, 5_242_880),
        // Three ranks share eight heads; no head is replicated.
        ("llama-3-70b", "3", 2 * 655_360, 5_242_880),
        ("deepseek-v3", "8", 61 * 16 * 576 * 2, 8 * 61 * 16 * 576 * 2),
    ] {
        let facts = json(&["--preset", preset, "--tp", degree]);
        assert_eq!(facts["bytes"]["block"], of_rank, "{preset} {degree}");
        assert_eq!(facts["bytes"]["block_of_all_ranks"], of_all, "{preset} {degree}");
    }
}

#[test]
fn picture_is_drawn_as_expected() {
    let text = printed(&["--preset", "llama-3-70b", "--tp", "4"]);
    let picture = &text[text.find('┌').expect("a picture")..];
    let expected = "\
┌ region 0 ─────────────────────────────────────────────── 1,342,177,280 bytes ┐
│ ┌ block 0 ──────────────────────────────────────────────── 1,310,720 bytes ┐ │
│ │ ┌ layer 0 ─────────────────────────────────────────────── 16,384 bytes ┐ │ │
│ │ │ ┌ K ────────────────────────────────────────────────── 8,192 bytes ┐ │ │ │
│ │ │ │ ┌ token 0 ────────────────────────────────────────── 512 bytes ┐ │ │ │ │
│ │ │ │ │ ┌ head 0 ─────────────────────┬ head 1 ────────────────────┐ │ │ │ │ │
│ │ │ │ │ │ +0                          │ +256                       │ │ │ │ │ │
│ │ │ │ │ └─────────────────────────────┴────────────────────────────┘ │ │ │ │ │
│ │ │ │ │ a row: 128 × bfloat16, 256 bytes                             │ │ │ │ │
│ │ │ │ └──────────────────────────────────────────────────────────────┘ │ │ │ │
│ │ │ │ ┌ token 1 ─────────┬ token 2 ─────────┬ ··· ┬ token 15 ────────┐ │ │ │ │
│ │ │ │ │ +512             │ +1,024           │     │ +7,680           │ │ │ │ │
│ │ │ │ └──────────────────┴──────────────────┴─────┴──────────────────┘ │ │ │ │
│ │ │ └──────────────────────────────────────────────────────────────────┘ │ │ │
│ │ │ ┌ V ───────────────────────────────────────────────────────────────┐ │ │ │
│ │ │ │ +8,192                                                           │ │ │ │
│ │ │ └──────────────────────────────────────────────────────────────────┘ │ │ │
│ │ └──────────────────────────────────────────────────────────────────────┘ │ │
│ │ ┌ layer 1 ────────────┬ layer 2 ────────────┬ ··· ┬ layer 79 ──────────┐ │ │
│ │ │ +16,384             │ +32,768             │     │ +1,294,336         │ │ │
│ │ └─────────────────────┴─────────────────────┴─────┴────────────────────┘ │ │
│ └──────────────────────────────────────────────────────────────────────────┘ │
│ ┌ block 1 ─────────────┬ block 2 ─────────────┬ ··· ┬ block 1,023 ─────────┐ │
│ │ +1,310,720           │ +2,621,440           │     │ +1,340,866,560       │ │
│ └──────────────────────┴──────────────────────┴─────┴──────────────────────┘ │
└──────────────────────────────────────────────────────────────────────────────┘
";
    assert_eq!(picture, expected);
}

/// Scales after the page, padding after the block, a region a layer; and the same in ASCII, column by column.
#[test]
fn scales_padding_and_regions_are_drawn() {
    let arguments =
        ["--layers", "3", "--heads", "2", "--head-size", "32", "--dtype", "nvfp4", "--scales", "page"];
    let arguments = [
        &arguments[..],
        &["--arrangement", "block-first", "--page", "2", "--blocks", "2", "--alignment", "256"],
    ]
    .concat();
    let text = printed(&arguments);
    let picture = &text[text.find('┌').expect("a picture")..];
    let expected = "\
┌ region 0: layer 0 ──────────────────────────────────────────────── 512 bytes ┐
│ ┌ block 0 ────────────────────────────────────────────────────── 256 bytes ┐ │
│ │ ┌ K ───────────────────────────────────────────────────────── 72 bytes ┐ │ │
│ │ │ ┌ token 0 ─────────────────────────────────────────────── 32 bytes ┐ │ │ │
│ │ │ │ ┌ head 0 ───────────────────────┬ head 1 ──────────────────────┐ │ │ │ │
│ │ │ │ │ +0                            │ +16                          │ │ │ │ │
│ │ │ │ └───────────────────────────────┴──────────────────────────────┘ │ │ │ │
│ │ │ │ a row: 32 × nvfp4, 16 bytes                                      │ │ │ │
│ │ │ └──────────────────────────────────────────────────────────────────┘ │ │ │
│ │ │ ┌ token 1 ─────────────────────────────────────────────────────────┐ │ │ │
│ │ │ │ +32                                                              │ │ │ │
│ │ │ └──────────────────────────────────────────────────────────────────┘ │ │ │
│ │ │ ┌ scales ──────────────────────────────────────────────────────────┐ │ │ │
│ │ │ │ +64, 8 bytes                                                     │ │ │ │
│ │ │ └──────────────────────────────────────────────────────────────────┘ │ │ │
│ │ └──────────────────────────────────────────────────────────────────────┘ │ │
│ │ ┌ V ───────────────────────────────────────────────────────────────────┐ │ │
│ │ │ +72                                                                  │ │ │
│ │ └──────────────────────────────────────────────────────────────────────┘ │ │
│ │ ┌ padding ─────────────────────────────────────────────────────────────┐ │ │
│ │ │ +144, 112 bytes                                                      │ │ │
│ │ └──────────────────────────────────────────────────────────────────────┘ │ │
│ └──────────────────────────────────────────────────────────────────────────┘ │
│ ┌ block 1 ─────────────────────────────────────────────────────────────────┐ │
│ │ +256                                                                     │ │
│ └──────────────────────────────────────────────────────────────────────────┘ │
└──────────────────────────────────────────────────────────────────────────────┘
┌ region 1: layer 1 ────────────────────┬ region 2: layer 2 ───────────────────┐
│ 512 bytes                             │ 512 bytes                            │
└───────────────────────────────────────┴──────────────────────────────────────┘
";
    assert_eq!(picture, expected);
    let lengths = |text: &str| text.lines().map(|line| line.chars().count()).collect::<Vec<_>>();
    let plain = printed(&[&arguments[..], &["--ascii"]].concat());
    assert!(plain.is_ascii() && lengths(&plain) == lengths(&text), "{plain}");
    let output = run_in_locale("C", &arguments);
    assert_eq!(output.stdout, plain.as_bytes(), "a locale that is not UTF-8");
}

/// Every model in every arrangement: as a table in 80 columns, and as JSON whose numbers agree.
#[test]
fn every_preset_is_laid_out_in_every_arrangement() {
    let help = String::from_utf8(run_in_locale("C.UTF-8", &["--help"]).stdout).expect("UTF-8");
    let list = help.split("[possible values: llama-2-7b").nth(1).and_then(|rest| rest.split(']').next());
    let others = list.expect("the presets").split(',').map(str::trim).filter(|name| !name.is_empty());
    let presets: Vec<&str> = std::iter::once("llama-2-7b").chain(others).collect();
    assert!(presets.len() > 10 && presets.contains(&"deepseek-v3"), "{presets:?}");
    for preset in presets {
        for arrangement in ARRANGEMENTS {
            let arguments = ["--preset", preset, "--arrangement", arrangement, "--to", "fully-contiguous"];
            let text = printed(&arguments);
            let too_long = text.lines().find(|line| line.chars().count() > 80);
            assert_eq!(too_long, None, "{preset} {arrangement}");
            let facts = json(&arguments);
            let number = |value: &Value| value.as_u64().expect("a number");
            let block = number(&facts["bytes"]["block"]);
            let pieces = &facts["pieces"];
            assert_eq!(
                number(&pieces["count"]) * number(&pieces["largest_bytes"]),
                block,
                "{preset} {arrangement}"
            );
            assert_eq!(facts["plan"]["bytes"], block);
            assert_eq!(number(&facts["regions"]["total_bytes"]), 1024 * block);
            let of_dims: u64 =
                facts["dims"].as_array().expect("a list").iter().map(|dim| number(&dim["count"])).product();
            assert_eq!(of_dims * number(&facts["bytes"]["row"]), 1024 * block);
        }
    }
}

#[test]
fn json_has_the_stable_keys() {
    let facts = json(&[
        "--tp",
        "4",
        "--rank",
        "1",
        "--dtype",
        "mxfp4",
        "--scales",
        "page",
        "--to",
        "block-first",
        "--to-tp",
        "8",
    ]);
    for pointer in [
        "model/layers",
        "model/outer_dim",
        "model/kv_heads",
        "model/head_size",
        "tensor_parallel/degree",
        "tensor_parallel/rank",
        "tensor_parallel/first_head",
        "tensor_parallel/heads",
        "alignment_bytes",
        "bytes/row",
        "bytes/token",
        "bytes/block",
        "bytes/token_of_the_model",
        "bytes/block_of_the_model",
        "bytes/padding",
        "dims/0/count",
        "dims/0/stride_bytes",
        "regions/count",
        "regions/bytes",
        "regions/total_bytes",
        "block",
        "pieces/count",
        "pieces/smallest_bytes",
        "pieces/largest_bytes",
        "pieces/first/0/region",
        "pieces/first/0/offset",
        "pieces/first/0/bytes",
        "offsets/0/block",
        "offsets/0/layer",
        "offsets/0/outer",
        "offsets/0/token",
        "offsets/0/head",
        "offsets/0/region",
        "offsets/0/offset",
        "offsets/0/scales_offset",
        "plan/tensor_parallel/rank",
        "plan/heads/src",
        "plan/heads/dst",
        "plan/heads/count",
        "plan/bytes",
        "plan/pieces",
        "plan/smallest_piece_bytes",
        "plan/largest_piece_bytes",
        "plan/alignment_bytes",
        "plan/families/0/families",
        "plan/families/0/pieces",
        "plan/families/0/piece_bytes",
        "plan/families/0/src_stride_bytes",
        "plan/families/0/dst_stride_bytes",
        "plan/first/0/bytes",
        "plan/first/0/src_region",
        "plan/first/0/src_offset",
        "plan/first/0/dst_region",
        "plan/first/0/dst_offset",
    ] {
        let value = facts.pointer(&format!("/{pointer}")).unwrap_or_else(|| panic!("{pointer} is missing"));
        assert!(value.is_u64(), "{pointer} is {value}");
    }
    for (pointer, wanted) in [
        ("model/name", "llama-3-70b"),
        ("arrangement", "fully-contiguous"),
        ("head_order", "nhd"),
        ("scales", "page"),
        ("dtype", "mxfp4"),
        ("dims/0/dim", "block"),
        ("plan/arrangement", "block-first"),
        ("plan/head_order", "nhd"),
    ] {
        assert_eq!(facts.pointer(&format!("/{pointer}")), Some(&Value::from(wanted)), "{pointer}");
    }
    assert_eq!(facts["plan"]["families_complete"], true);
    assert_eq!(facts["plan"]["tensor_parallel"]["rank"], 2, "the first of 8 that has a head of rank 1 of 4");
    let facts = json(&["--layers", "2", "--heads", "2", "--head-size", "64", "--blocks", "1"]);
    assert!(facts["plan"].is_null() && facts["scales"].is_null() && facts["model"]["source"].is_null());
    assert_eq!(facts["model"]["name"], "custom");
}

/// The pieces of copies that can be counted by hand.
#[test]
fn copy_plan_has_the_pieces_counted_by_hand() {
    let base = ["--tp", "4", "--blocks", "8", "--block", "5"];
    let with = |more: &[&str]| json(&[&base[..], more].concat())["plan"].clone();
    // The keys and values of a layer lie apart: 80 × 2 pages of 16 tokens × 2 heads × 256 bytes.
    let plan = with(&["--arrangement", "outer-first", "--to", "fully-contiguous"]);
    assert_eq!((&plan["pieces"], &plan["largest_piece_bytes"]), (&160.into(), &8192.into()));
    let first = &plan["first"][1];
    assert_eq!((&first["src_region"], &first["src_offset"]), (&0.into(), &((8 + 5) * 8192).into()));
    assert_eq!((&first["dst_region"], &first["dst_offset"]), (&0.into(), &(5 * 80 * 16_384 + 8192).into()));
    let family = &plan["families"][0];
    assert_eq!((&family["families"], &family["pieces"]), (&80.into(), &2.into()));
    assert_eq!(
        (&family["src_stride_bytes"], &family["dst_stride_bytes"]),
        (&(8 * 8192).into(), &8192.into()),
        "values lie behind the keys of all blocks here, and behind the block's keys there"
    );
    // The destination has heads before tokens: every row is a piece.
    let plan = with(&["--to", "fully-contiguous", "--to-head-order", "hnd"]);
    assert_eq!((&plan["pieces"], &plan["largest_piece_bytes"]), (&(80 * 2 * 16 * 2).into(), &256.into()));
    assert_eq!(
        plan["families"][0]["families"]
            .as_u64()
            .zip(plan["families"][0]["pieces"].as_u64())
            .map(|(a, b)| a * b),
        Some(5120)
    );
    // One of two heads goes to rank 1 of 8: a row of each token.
    let plan = with(&["--to", "fully-contiguous", "--to-tp", "8", "--to-rank", "1"]);
    assert_eq!(
        (&plan["heads"]["src"], &plan["heads"]["dst"], &plan["heads"]["count"]),
        (&1.into(), &0.into(), &1.into())
    );
    assert_eq!((&plan["pieces"], &plan["bytes"]), (&(80 * 2 * 16).into(), &655_360.into()));
    assert_eq!(plan["first"][0]["src_offset"], 5 * 1_310_720 + 256);
    // From one tensor for all layers to a tier: the same bytes in the same order.
    let plan = with(&["--arrangement", "cross-layer", "--to", "fully-contiguous"]);
    assert_eq!(plan["pieces"], 1);
}

#[test]
fn layout_refuses_impossible_options_by_name_and_value() {
    let cases: [(&[&str], &[&str]); 24] = [
        (&["--preset", "gpt-5"], &["--preset", "gpt-5", "llama-3-70b", "deepseek-v3"]),
        (&["--arrangement", "diagonal"], &["--arrangement", "diagonal", "token-major"]),
        (&["--dtype", "int5"], &["--dtype", "int5", "bfloat16", "nvfp4"]),
        (&["--head-order", "dnh"], &["--head-order", "dnh", "nhd"]),
        (&["--layers", "3"], &["--heads: missing", "--preset NAME"]),
        (&["--mla", "--layers", "3"], &["--head-size: missing"]),
        (&["--mla", "--heads", "3"], &["--mla", "--heads"]),
        (&["--preset", "deepseek-v3", "--heads", "8"], &["--heads 8: deepseek-v3 has one latent (MLA)"]),
        (&["--preset", "llama-3-8b", "--heads", "0"], &["--heads 0: must be at least 1"]),
        (&["--preset", "llama-3-8b", "--layers", "0"], &["--layers 0: must be at least 1"]),
        (&["--preset", "llama-3-8b", "--layers", "70000"], &["--layers 70000: must be at most 65536"]),
        (&["--page", "0"], &["--page 0: must be at least 1"]),
        (&["--blocks", "0"], &["--blocks", "0", "must be"]),
        (&["--page", "8G"], &["--page", "8G", "at most 4,294,967,295"]),
        (&["--page", "4294967295", "--blocks", "4294967295"], &["--blocks 4294967295", "64 bits"]),
        (&["--alignment", "24"], &["--alignment 24: must be a power of two"]),
        (&["--alignment", "1"], &["--alignment 1: must be at least the 2 bytes of a bfloat16 element"]),
        (
            &["--arrangement", "token-major", "--alignment", "1M"],
            &["--alignment 1048576: a block's 32768 bytes would be padded"],
        ),
        (&["--scales", "page"], &["--scales page: bfloat16 has no scales"]),
        (
            &["--dtype", "nvfp4", "--scales", "page", "--arrangement", "packed"],
            &["--scales page: a page is not in one piece"],
        ),
        (&["--tp", "0"], &["--tp 0: must be from 1 to 65,536"]),
        (&["--tp", "4", "--rank", "4"], &["--rank 4: must be below --tp 4"]),
        (&["--block", "1024"], &["--block 1024: must be below --blocks 1024"]),
        (&["--to-tp", "8"], &["--to", "required"]),
    ];
    for (options, wanted) in cases {
        let message = refusal(options);
        assert!(wanted.iter().all(|part| message.contains(part)), "{options:?}: {message}");
    }
    let to = |more: &[&str]| refusal(&[&["--tp", "4", "--to", "token-major"], more].concat());
    let message = to(&["--to-tp", "8", "--to-rank", "5"]);
    let wanted = "--to-rank 5: rank 0 of 4 has heads 0 to 1, but rank 5 of 8 has head 5: nothing to copy; use --to-rank 0";
    assert!(message.contains(wanted), "{message}");
    assert!(to(&["--to-rank", "4"]).contains("--to-rank 4: must be below --to-tp 4"));
    assert!(
        to(&["--alignment", "64K"])
            .contains("--to token-major: --alignment 65536: a block's 8192 bytes would be padded")
    );
}

#[test]
fn layout_help_has_examples_units_and_exit_codes() {
    let help = String::from_utf8(run_in_locale("C.UTF-8", &["--help"]).stdout).expect("UTF-8");
    for part in [
        "Examples:",
        "--tp 4",
        "5,242,880",
        "--to-rank",
        "Exit codes:",
        "[default: fully-contiguous]",
        "SGLang",
    ] {
        assert!(help.contains(part), "{part}");
    }
    for arrangement in ARRANGEMENTS {
        assert!(help.contains(&format!("- {arrangement}:")), "{arrangement}");
    }
    let output =
        Command::new(env!("CARGO_BIN_EXE_kvstrata")).args(["completions", "bash"]).output().expect("runs");
    let script = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(script.contains("cross-layer-packed") && script.contains("gpt-oss-120b"));
}

/// Extreme sizes are refused or printed; the command neither hangs nor overflows.
#[test]
fn extreme_sizes_are_printed_without_hanging() {
    let huge = ["--layers", "65536", "--heads", "1", "--head-size", "1", "--dtype", "fp8", "--page", "65536"];
    for arrangement in ARRANGEMENTS {
        let arguments = [
            &huge[..],
            &["--arrangement", arrangement, "--to", "fully-contiguous", "--to-head-order", "hnd"],
        ]
        .concat();
        assert_eq!(json(&arguments)["plan"]["bytes"], 65_536u64 * 65_536 * 2, "{arrangement}");
        assert!(printed(&arguments).lines().all(|line| line.chars().count() < 100), "{arrangement}");
    }
    let facts = json(&[
        "--layers",
        "1",
        "--head-size",
        "1",
        "--mla",
        "--dtype",
        "fp8",
        "--page",
        "1",
        "--blocks",
        "1",
    ]);
    assert_eq!((&facts["bytes"]["block"], &facts["pieces"]["count"]), (&1.into(), &1.into()));
    // Every row is a piece, and no two of four loops merge: more families than are
    // examined, which the command says.
    let many = ["--layers", "2048", "--heads", "1024", "--head-size", "2", "--page", "1024", "--blocks", "1"];
    let to = ["--arrangement", "cross-layer-packed", "--to", "fully-contiguous", "--to-head-order", "hnd"];
    let arguments = [&many[..], &to].concat();
    let plan = &json(&arguments)["plan"];
    assert_eq!((&plan["pieces"], &plan["families_complete"]), (&(1u64 << 32).into(), &false.into()));
    assert!(printed(&arguments).contains("\n             and more\n"));
}

/// A layer with a window is marked in the picture, in words and in JSON.
#[test]
fn windowed_layers_are_drawn_with_their_window() {
    let text = printed(&["--preset", "GPT-OSS-20b"]);
    for part in [
        "windows      12 layers of 24: 0, 2, 4, 6, …, 22\n",
        "┌ layer 0, last 128 tokens ─",
        "│ all tokens ",
        "│ last 128 tokens ",
        "groups       full      12 layers, 24,576 bytes a token\n",
        "window    12 layers, 24,576 bytes a token, of the last 128\n",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let facts = json(&["--preset", "gpt-oss-20b", "--group", "window"]);
    assert_eq!(facts["layers"], serde_json::json!((0..24).step_by(2).collect::<Vec<_>>()));
    assert_eq!((&facts["bytes"]["block"], &facts["groups"][1]["window"]), (&393_216.into(), &128.into()));
    let text = printed(&["--preset", "gemma-3-4b", "--arrangement", "block-first"]);
    assert!(text.contains("region 0: layer 0, last 1,024 tokens"), "{text}");
    assert!(!printed(&[]).contains("all tokens"), "a model without windows");
}

fn file(name: &str) -> String {
    format!("{}/../config/tests/models/{name}.json", env!("CARGO_MANIFEST_DIR"))
}

/// A model by its own file has the numbers of the preset; of a hybrid, one of the groups is drawn.
#[test]
fn config_json_is_laid_out_like_the_preset() {
    for name in ["llama-3-70b", "deepseek-v3", "gpt-oss-20b"] {
        let of = |arguments: &[&str]| json(&[arguments, &["--tp", "4", "--rank", "1"]].concat());
        let (config, preset) = (of(&["--config", &file(name)]), of(&["--preset", name]));
        for key in ["bytes", "dims", "layers", "windowed_layers", "groups", "pieces"] {
            assert_eq!(config[key], preset[key], "{name} {key}");
        }
    }
    let next = file("qwen3-next-80b");
    let text = printed(&["--config", &next]);
    for part in [
        "full      12 layers, 24,576 bytes a token\n",
        "1,097,728 bytes of state a layer, not drawn\n",
        "layers       12 of 48",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let state = json(&["--config", &next, "--group", "state", "--tp", "2", "--page", "64"]);
    assert_eq!(state["bytes"]["block"], 36 * 1_097_728 / 2);
    let message = refusal(&["--config", &next, "--group", "latent"]);
    assert!(
        message.contains("--group latent: qwen3_next has 2 groups of layers; choose from: full, state"),
        "{message}"
    );
    let message = refusal(&["--config", "/none"]);
    assert!(message.contains("--config /none: /none: cannot be read"), "{message}");
    assert!(refusal(&["--config", &next, "--layers", "3"]).contains("--layers"));
}

/// Stages divided as in vLLM, or listed; the chosen one is drawn.
#[test]
fn pipeline_stages_have_layers_and_bytes() {
    let text = printed(&["--preset", "deepseek-v3", "--pp", "2"]);
    for part in [
        "stages       0: layers 0 to 30, 35,712 bytes a token, 571,392 bytes a block  (drawn)\n",
        "             1: layers 31 to 60, 34,560 bytes a token, 552,960 bytes a block\n",
        "layers       31 of 61 layers: 0 to 30\n",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let layers = |arguments: &[&str]| -> Vec<u64> {
        let facts = json(arguments);
        let stages = facts["stages"].as_array().expect("stages").clone();
        stages.iter().map(|stage| stage["layers"].as_u64().expect("a number")).collect()
    };
    assert_eq!(layers(&["--layers", "22", "--pp", "4", "--preset", "llama-3-8b"]), [5, 6, 6, 5]);
    assert_eq!(layers(&["--layers", "5", "--pp", "3", "--preset", "llama-3-8b"]), [2, 2, 1]);
    assert_eq!(layers(&["--preset", "deepseek-v3", "--layer-partition", "33,28"]), [33, 28]);
    let facts = json(&["--preset", "deepseek-v3", "--layer-partition", "33,28", "--stage", "1"]);
    assert_eq!((&facts["bytes"]["block"], &facts["layers"][0]), (&(28 * 16 * 1152).into(), &33.into()));
    for (arguments, wanted) in [
        (&["--layer-partition", "33,27"][..], "--layer-partition 33,27: has 60 layers, and the model has 80"),
        (&["--layer-partition", "80,0"], "--layer-partition 80,0: each stage needs at least one layer"),
        (&["--layer-partition", "40,40", "--pp", "3"], "--layer-partition 40,40: has 2 stages, not --pp 3"),
        (&["--pp", "81"], "--pp 81: must be from 1 to the model's 80 layers"),
        (&["--pp", "2", "--stage", "2"], "--stage 2: must be from 0 to 1"),
    ] {
        let message = refusal(arguments);
        assert!(message.contains(wanted), "{message}");
    }
}

/// Four blocks of 16 tokens as one of 64, and back; also with another tensor-parallel degree.
#[test]
fn copy_to_another_page_size_has_the_pieces_by_hand() {
    let with =
        |more: &[&str]| json(&[&["--tp", "4", "--to", "fully-contiguous"], more].concat())["plan"].clone();
    let plan = with(&["--to-page", "64"]);
    assert_eq!((&plan["pieces"], &plan["largest_piece_bytes"]), (&(4 * 160).into(), &8192.into()));
    assert_eq!((&plan["bytes"], &plan["pages"]["prefix_tokens"]), (&(4 * 1_310_720).into(), &64.into()));
    let back = with(&["--page", "64", "--to-page", "16"]);
    assert_eq!((&back["pieces"], &back["bytes"]), (&plan["pieces"], &plan["bytes"]));
    // Consecutive blocks of an engine are one piece for the keys of each layer, and one for its values.
    let plan = with(&["--arrangement", "outer-first", "--to-page", "64"]);
    assert_eq!((&plan["pieces"], &plan["largest_piece_bytes"]), (&160.into(), &(4 * 8192).into()));
    let plan = with(&["--to-page", "64", "--to-tp", "8", "--to-rank", "1"]);
    assert_eq!((&plan["pieces"], &plan["bytes"]), (&(160 * 64).into(), &(4 * 655_360).into()));
    let plan = with(&["--to-page", "24"]);
    assert_eq!((&plan["pages"]["src_blocks"], &plan["pages"]["dst_blocks"]), (&3.into(), &2.into()));
    let text = printed(&["--to", "fully-contiguous", "--to-page", "64"]);
    assert!(
        text.contains("pages        4 blocks of 16 tokens here → 1 block of 64 tokens there\n"),
        "{text}"
    );
    assert!(text.contains("prefix hits are multiples of 64 tokens, whole blocks on both sides\n"), "{text}");
    let message = refusal(&["--to", "fully-contiguous", "--to-page", "64", "--block", "1021"]);
    assert!(
        message.contains("--to-page 64: 4 blocks of 16 tokens become 1 of 64, and --blocks 1024 is too few"),
        "{message}"
    );
}

#[test]
fn preset_names_are_matched_without_case() {
    assert_eq!(json(&["--preset", "LLAMA-3-70B"])["model"]["name"], "llama-3-70b");
    let message = refusal(&["--preset", "qwen3-3b"]);
    assert!(message.contains("similar value") && message.contains("qwen3-30b-a3b"), "{message}");
}
