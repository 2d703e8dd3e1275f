//! Every kind of error once, word by word, as users read it.

use super::{from_toml, good, refusal};
use crate::settings::kind::{Kind, LayerList};
use crate::settings::raw::Raw;
use crate::settings::{GroupSettings, ManagerConfig, TenantSettings};

#[test]
fn wrong_value_is_named_with_its_place_and_the_allowed_ones() {
    let blocks = "must be a number from 1 to 268435456 blocks, such as 64K";
    let cases = [
        ("device.blocks = 0", format!("device.blocks = 0 (k.toml:1): {blocks}")),
        ("\n\n[device]\nblocks = \"12Q\"", format!("device.blocks = 12Q (k.toml:4): {blocks}")),
        ("device.blocks = -1", format!("device.blocks = -1 (k.toml:1): {blocks}")),
        ("device.blocks = 1.5", format!("device.blocks = 1.5 (k.toml:1): {blocks}")),
        ("device.blocks = true", format!("device.blocks = true (k.toml:1): {blocks}")),
        ("device.blocks = [1, \"a b\"]", format!("device.blocks = [1, \"a b\"] (k.toml:1): {blocks}")),
        ("device.blocks = 2024-01-01", format!("device.blocks = a date (k.toml:1): {blocks}")),
        ("device.blocks.more = 1", format!("device.blocks = a table (k.toml:1): {blocks}")),
        (
            "device.blocks = 99999999999999999999999999999999999999999",
            format!("device.blocks = 99999999999999999999999999999999999999999 (k.toml:1): {blocks}"),
        ),
        (
            "geometry.page_size = 0",
            "geometry.page_size = 0 (k.toml:1): must be a number from 1 to 65536 tokens".to_owned(),
        ),
        ("geometry.tp = \"\"", "geometry.tp = \"\" (k.toml:1): must be a number from 1 to 65536 ranks".to_owned()),
        (
            "host.bytes = \"2000T\"",
            "host.bytes = 2000T (k.toml:1): must be none, or bytes from 0 to 1024T, such as 4096, 64K or 4G".to_owned(),
        ),
        (
            "watermark.device = \"140%\"",
            "watermark.device = 140% (k.toml:1): must be a fraction from 0 to 1, such as 0.85 or 85%".to_owned(),
        ),
        ("watermark.device = nan", "watermark.device = NaN (k.toml:1): must be a fraction from 0 to 1, such as 0.85 or 85%".to_owned()),
        (
            "deadline.allocate = \"250\"",
            "deadline.allocate = 250 (k.toml:1): must be a time from 1ms to 24h, such as 250ms, 10s or 1m".to_owned(),
        ),
        ("device.policy = \"fifo\"", "device.policy = fifo (k.toml:1): must be lru, lfu, sieve, s3fifo, arc, 2q or reuse".to_owned()),
        ("disk.trim = \"maybe\"", "disk.trim = maybe (k.toml:1): must be true or false".to_owned()),
        (
            "disk.key_file = \"\"",
            "disk.key_file = \"\" (k.toml:1): must be none, or a UTF-8 path that is not empty".to_owned(),
        ),
        ("disk.key_env = \"\"", "disk.key_env = \"\" (k.toml:1): must be none, or text that is not empty".to_owned()),
        (
            "disk.paths = [\"/a\", 5]",
            "disk.paths = [/a, 5] (k.toml:1): must be a list of UTF-8 paths, none of them empty (in a variable: separated by commas)".to_owned(),
        ),
        (
            "[[group]]\nlayers = \"3-1\"",
            "group[0].layers = 3-1 (k.toml:2): must be layers below 65536, at least one, such as \"0-31\", \"1-35/2\" or [0, 5, 7]\n\
             group[0].layers = \"\" (k.toml:1): must be layers below 65536, at least one, such as \"0-31\", \"1-35/2\" or [0, 5, 7]"
                .to_owned(),
        ),
        ("[[tenant]]", "tenant[0].name = \"\" (k.toml:1): must be text that is not empty".to_owned()),
        ("device = 5", "device = 5 (k.toml:1): must be a table of settings, [device]".to_owned()),
        ("group = 5", "group = 5 (k.toml:1): must be a list of tables, [[group]]".to_owned()),
        ("group = [5]", "group[0] = 5 (k.toml:1): must be a table, [[group]]".to_owned()),
        ("[group]\nlayers = \"1\"", "group = a table (k.toml:1): must be a list of tables, [[group]]".to_owned()),
        ("[[device]]", "device = [a table] (k.toml:1): must be a table of settings, [device]".to_owned()),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(text), expected, "{text}");
    }
    let error = from_toml("model = \"llama\"").expect_err("refused").to_string();
    assert!(
        error.starts_with("model = llama (k.toml:1): must be none, or llama-2-7b, llama-2-70b, "),
        "{error}"
    );
}

/// The bounds apply before memory is allocated for the layers.
#[test]
fn layer_lists_are_bounded_and_written_as_read() {
    for text in [
        "\"1-5/0\"",
        "\"0-65536\"",
        "\"0-4294967295\"",
        "65536",
        "\"1-\"",
        "\"\"",
        "\"a\"",
        "[1.5]",
        "[]",
        "-1",
        "true",
    ] {
        let error = refusal(&format!("[[group]]\nkv_heads = 1\nhead_size = 8\nlayers = {text}"));
        assert!(
            error.starts_with("group[0].layers = ")
                && error.contains("(k.toml:4): must be layers below 65536"),
            "{error}"
        );
    }
    // The bound applies while layers are read, not after all of them.
    let many = vec!["0-65535"; 100].join(",");
    assert_eq!(LayerList.read(&Raw::text(&many)), None);
    let cases = [
        ("7", "7", vec![7]),
        ("\"0-2, 5\"", "0-2,5", vec![0, 1, 2, 5]),
        ("[\"1-7/2\", 4]", "1-7/2,4", vec![1, 3, 5, 7, 4]),
        ("\"2,1,0\"", "2,1,0", vec![2, 1, 0]),
    ];
    for (given, written, layers) in cases {
        let raw = toml::de::DeValue::parse(given).expect("TOML");
        let read = LayerList.read(&Raw::of(raw.get_ref()));
        assert_eq!(read.as_ref(), Some(&layers), "{given}");
        assert_eq!(LayerList.toml(&layers), format!("\"{written}\""));
    }
}

#[test]
fn wrong_variables_and_calls_are_named_as_such() {
    let build = |name: &'static str, value: &'static str| {
        ManagerConfig::builder().variables([(name, value)]).build().expect_err("must be refused").to_string()
    };
    assert_eq!(
        build("KVSTRATA_DEVICE_BLOCKS", "0x10"),
        "device.blocks = 0x10 (variable KVSTRATA_DEVICE_BLOCKS): must be a number from 1 to 268435456 blocks, such as 64K"
    );
    let error =
        ManagerConfig::builder().device_blocks(0).watermark_host(f64::NAN).build().expect_err("refused");
    assert_eq!(error.faults().len(), 2);
    assert_eq!(
        error.to_string(),
        "device.blocks = 0 (builder): must be a number from 1 to 268435456 blocks, such as 64K\n\
         watermark.host = NaN (builder): must be a fraction from 0 to 1, such as 0.85 or 85%"
    );
    // Text that a file would read as none is not allowed.
    let error = ManagerConfig::builder()
        .disk_key_env(Some(" NONE".to_owned()))
        .build()
        .expect_err("refused")
        .to_string();
    assert!(error.starts_with("disk.key_env = \" NONE\" (builder): must be none, or "), "{error}");
    // A wrong value is an error even if a stronger origin overrides it.
    let error = ManagerConfig::builder()
        .device_blocks(5)
        .toml("k.toml", "device.blocks = 0")
        .build()
        .expect_err("refused");
    assert!(error.to_string().starts_with("device.blocks = 0 (k.toml:1): must be"), "{error}");
}

#[cfg(unix)]
#[test]
fn text_outside_utf8_is_refused_and_shown() {
    use std::os::unix::ffi::OsStrExt;
    let value = std::ffi::OsStr::from_bytes(b"/a/\xff");
    let error = ManagerConfig::builder()
        .variables([("KVSTRATA_DISK_PATHS", value)])
        .build()
        .expect_err("refused")
        .to_string();
    assert!(
        error.starts_with(
            "disk.paths = \"/a/\\xFF\" (variable KVSTRATA_DISK_PATHS): must be a list of UTF-8 paths"
        ),
        "{error}"
    );
    let builder = ManagerConfig::builder().disk_blocks(1).disk_paths(vec![value.into()]);
    assert!(
        builder
            .build()
            .expect_err("refused")
            .to_string()
            .contains("(builder): must be a list of UTF-8 paths")
    );
    let error =
        ManagerConfig::builder().toml("k.toml", b"\n# \xff").build().expect_err("refused").to_string();
    assert_eq!(error, "k.toml:2: not TOML: not UTF-8");
}

#[test]
fn unknown_key_is_named_with_the_nearest_one() {
    let cases = [
        (
            "[devise]\nblocks = 3",
            "devise.blocks (k.toml:2): unknown setting; did you mean device.blocks? `kvstrata config` lists all",
        ),
        (
            "device.polcy = 1",
            "device.polcy (k.toml:1): unknown setting; did you mean device.policy? `kvstrata config` lists all",
        ),
        (
            "[something.else]\nentirely = 1",
            "something.else.entirely (k.toml:2): unknown setting; `kvstrata config` lists all",
        ),
        ("[nothing]", "nothing (k.toml:1): unknown setting; `kvstrata config` lists all"),
        (
            "groups = []",
            "groups (k.toml:1): unknown setting; did you mean group? `kvstrata config` lists all",
        ),
        (
            "[[group]]\nlayer = \"0\"\nlayers = \"0\"",
            "group[0].layer (k.toml:2): unknown setting; did you mean group[0].layers? `kvstrata config` lists all",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(text), expected, "{text}");
    }
    let variables = |name: &'static str| ManagerConfig::builder().variables([(name, "1")]).build();
    let cases = [
        (
            "KVSTRATA_DEVICE_BLOKS",
            "KVSTRATA_DEVICE_BLOKS: unknown variable; did you mean KVSTRATA_DEVICE_BLOCKS? `kvstrata config` lists all",
        ),
        (
            "KVSTRATA_SED",
            "KVSTRATA_SED: unknown variable; did you mean KVSTRATA_SEED? `kvstrata config` lists all",
        ),
        ("KVSTRATA_", "KVSTRATA_: unknown variable; `kvstrata config` lists all"),
    ];
    for (name, expected) in cases {
        assert_eq!(variables(name).expect_err("refused").to_string(), expected);
    }
    for name in
        ["KVSTRATA_REQUIRE", "KVSTRATA_SEED", "KVSTRATA_DISK_DIR", "KVSTRATA_TEST_X", "KVSTRATA", "HOME"]
    {
        variables(name).expect(name);
    }
    // The variable with a key may have our prefix, in any order of the calls.
    let key = [("KVSTRATA_MY_KEY", "00")];
    ManagerConfig::builder().variables(key).build().expect_err("no setting names it");
    ManagerConfig::builder()
        .variables(key)
        .disk_key_env(Some("KVSTRATA_MY_KEY".to_owned()))
        .build()
        .expect("named");
}

#[test]
fn invalid_toml_is_named_with_its_line() {
    for (text, line) in [("a = 1\na = 2", 2), ("\n\nx = [", 3), ("= 5", 1), ("x = \"a\nb\"", 1)] {
        let error = refusal(text);
        assert!(error.starts_with(&format!("k.toml:{line}: not TOML: ")), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

/// Conflicts between settings. One rule per entry: the file, and the whole message.
#[test]
fn contradicting_numbers_are_both_named() {
    let cases = [
        (
            "watermark.device_low = 0.95",
            "watermark.device_low = 0.95 (k.toml:1): must be below watermark.device = 0.9 (default)",
        ),
        (
            "watermark.host_low = 0.5\nwatermark.host = 0.5",
            "watermark.host_low = 0.5 (k.toml:1): must be below watermark.host = 0.5 (k.toml:2)",
        ),
        (
            "watermark.device = 0",
            "watermark.device = 0.0 (k.toml:1): must be above 0: copying continues down to a fraction below it",
        ),
        (
            "host.headroom = 8\nhost.blocks = 8",
            "host.headroom = 8 (k.toml:1): must be below host.blocks = 8 (k.toml:2); other copies need the rest",
        ),
        (
            "device.bytes = \"1M\"\ndevice.blocks = 15",
            "device.bytes = 1M (k.toml:1): gives device.blocks = 16 (a block: 65536 bytes), not 15 (k.toml:2); set one of them",
        ),
        (
            "device.bytes = \"32K\"",
            "device.bytes = 32K (k.toml:1): less than the smallest tier, 65536 bytes; raise it, or set device.blocks",
        ),
        (
            "disk.bytes = \"64K\"\ndisk.paths = [\"a\", \"b\"]",
            "disk.bytes = 64K (k.toml:1): less than the smallest tier, 131072 bytes; raise it, or set disk.blocks",
        ),
        (
            "geometry.block_bytes = \"1G\"\nhost.blocks = \"2M\"\ntransfer.in_flight = \"1G\"",
            "host.blocks = 2097152 (k.toml:2): takes 2251799813685248 bytes, above the maximum of 1024T; use fewer or smaller blocks",
        ),
        (
            "disk.paths = [\"a\"]",
            "disk.paths = a (k.toml:1): unused, since disk.blocks = 0 (default); set disk.blocks or disk.bytes, or remove the paths",
        ),
        (
            "disk.blocks = 99\ndisk.paths = [\"a\", \"b\"]",
            "disk.blocks = 99 (k.toml:1): must be a multiple of the number of disk.paths, 2; use 98 or 100",
        ),
        (
            "disk.blocks = 1\ndisk.paths = [\"a\", \"b\"]",
            "disk.blocks = 1 (k.toml:1): must be a multiple of the number of disk.paths, 2; use 2",
        ),
        (
            "disk.blocks = 2\ndisk.paths = [\"a\", \"a\"]",
            "disk.paths = a (k.toml:2): listed twice; each volume needs its own path",
        ),
        (
            "disk.blocks = 99\ndisk.staging = 1",
            "disk.staging = 1 (k.toml:2): must be at least 2 with a disk tier: one block is copied while the next is read",
        ),
        (
            "disk.key_file = \"k\"\ndisk.key_env = \"K\"",
            "disk.key_file = k (k.toml:1): conflicts with disk.key_env = K (k.toml:2); remove one of them",
        ),
        (
            "idle.disk_after = 5",
            "idle.disk_after = 5 (k.toml:1): must not be below idle.host_after = 100 (default): blocks reach the host first",
        ),
        (
            "prefetch.blocks = 3000",
            "prefetch.blocks = 3000 (k.toml:1): must not be above device.blocks = 2048 (default)",
        ),
        (
            "transfer.in_flight = \"1K\"",
            "transfer.in_flight = 1K (k.toml:1): smaller than one block, 65536 bytes; set at least 64K",
        ),
        (
            "iteration.bytes = 65535",
            "iteration.bytes = 65535 (k.toml:1): smaller than one block, 65536 bytes; set at least 64K",
        ),
        (
            "disk.write_budget = \"1K\"",
            "disk.write_budget = 1K (k.toml:1): smaller than one block, 65536 bytes; set at least 64K",
        ),
        (
            "[[tenant]]\nname = \"a\"\n[[tenant]]\nname = \"a\"",
            "tenant[1].name = a (k.toml:4): another tenant has this name; rename one of them",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(text), expected, "{text}");
    }
    for path in ["device_to_host", "host_to_disk", "host_to_device", "disk_to_device"] {
        let error = refusal(&format!("transfer.in_flight_{path} = 1"));
        assert!(
            error.starts_with(&format!("transfer.in_flight_{path} = 1 (k.toml:1): smaller than one block")),
            "{error}"
        );
    }
}

/// No default causes an error: defaults follow the given values.
#[test]
fn defaults_follow_the_given_settings() {
    let config = good(
        "device.blocks = 8\nhost.blocks = 16\ndisk.blocks = 1\nwatermark.device = 0.5\nidle.host_after = 5000",
    );
    assert_eq!((config.prefetch.blocks, config.host.headroom), (8, 2));
    assert_eq!((config.watermark.device_low, config.idle.disk_after), (0.45, Some(5000)));
    assert_eq!(config.origin("host.headroom").to_string(), "from host.blocks");
    assert_eq!(good("geometry.block_bytes = \"1G\"").transfer.in_flight, 1 << 30);
    // Of blocks and bytes, the stronger origin wins.
    let both = ManagerConfig::builder().toml("k.toml", "device.blocks = 5");
    let config = both.variables([("KVSTRATA_DEVICE_BYTES", "1M")]).build().expect("possible");
    assert_eq!((config.device.blocks, config.device.bytes), (16, Some(1 << 20)));
    let config = ManagerConfig::builder()
        .toml("k.toml", "device.bytes = \"1M\"")
        .device_blocks(5)
        .build()
        .expect("possible");
    assert_eq!((config.device.blocks, config.device.bytes), (5, None));
    // Zero bytes leave a tier out; volumes share the bytes.
    assert_eq!(good("host.bytes = 0").host.blocks, 0);
    assert_eq!(good("disk.bytes = \"320K\"\ndisk.paths = [\"a\", \"b\"]").disk.blocks, 4);
}

#[test]
fn builder_lists_are_checked() {
    let group = GroupSettings { layers: vec![70_000], ..GroupSettings::default() };
    let tenant = TenantSettings { name: "a".to_owned(), device: Some(1.5), ..TenantSettings::default() };
    let error =
        ManagerConfig::builder().groups([group]).tenants([tenant]).build().expect_err("refused").to_string();
    assert_eq!(
        error,
        "group[0].layers = \"70000\" (builder): must be layers below 65536, at least one, such as \"0-31\", \"1-35/2\" or [0, 5, 7]\n\
         tenant[0].device = 1.5 (builder): must be none, or a fraction from 0 to 1, such as 0.85 or 85%"
    );
}
