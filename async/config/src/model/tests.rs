//! Published files with their known bytes per token, and errors that name a field.

use super::*;
use std::path::PathBuf;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/models/{name}.json"))
}

fn read(name: &str) -> ModelGeometry {
    ModelGeometry::read(&file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Bytes per token in all layers, without states.
fn token_bytes(model: &ModelGeometry) -> u64 {
    let bits = u64::from(model.dtype.expect("a type").bits());
    let of = |group: &LayerKind| {
        let layer = match group.keeps {
            Keeps::Heads { kv_heads, head_size, .. } => {
                2 * u64::from(kv_heads) * u64::from(head_size) * bits / 8
            }
            Keeps::Latent { size } => u64::from(size) * bits / 8,
            Keeps::Indexer { bytes } => bytes.into(),
            Keeps::State(_) => 0,
        };
        layer * group.layers.len() as u64
    };
    model.groups.iter().map(of).sum()
}

#[test]
fn published_model_files_have_the_known_bytes() {
    for (name, bytes, groups) in [
        ("llama-2-7b", 524_288, "all 32"),
        ("llama-3-70b", 327_680, "all 80"),
        ("llama-4-scout", 196_608, "full 12, window 36 of 8192"),
        ("qwen2.5-7b", 57_344, "all 28"),
        ("qwen3-30b-a3b", 98_304, "all 48"),
        ("mistral-7b-v0.1", 131_072, "all 32 of 4096"),
        ("mixtral-8x7b", 131_072, "all 32"),
        ("gemma-2-9b", 2 * 344_064, "full 21, window 21 of 4096"),
        ("gemma-3-4b", 139_264, "full 5, window 29 of 1024"),
        ("gpt-oss-20b", 49_152, "full 12, window 12 of 128"),
        ("deepseek-v3", 70_272, "all 61"),
        ("deepseek-v3.2", 70_272 + 61 * 132, "latent 61, indexer 61"),
        ("kimi-k2", 70_272, "all 61"),
        ("glm-4.5", 376_832, "all 92"),
        ("glm-4-9b", 40_960, "all 40"),
        ("qwen3-next-80b", 24_576, "full 12, state 36"),
    ] {
        let model = read(name);
        let words = |group: &LayerKind| match group.keeps {
            Keeps::Heads { window: Some(window), .. } => {
                format!("{} {} of {window}", group.name, group.layers.len())
            }
            _ => format!("{} {}", group.name, group.layers.len()),
        };
        let all: Vec<String> = model.groups.iter().map(words).collect();
        assert_eq!((token_bytes(&model), all.join(", ").as_str()), (bytes, groups), "{name}");
    }
}

/// The file of a model and its preset agree, layer by layer.
#[test]
fn model_files_and_presets_agree() {
    for name in [
        "llama-2-7b",
        "llama-3-70b",
        "llama-4-scout",
        "qwen2.5-7b",
        "qwen3-30b-a3b",
        "mixtral-8x7b",
        "gemma-3-4b",
        "gpt-oss-20b",
        "deepseek-v3",
        "kimi-k2",
        "glm-4.5",
        "glm-4-9b",
    ] {
        let (file, preset) = (read(name), ModelGeometry::from(Model::find(name).expect("a preset")));
        assert_eq!(
            ModelGeometry { name: String::new(), ..file },
            ModelGeometry { name: String::new(), ..preset },
            "{name}"
        );
    }
}

/// Three inputs of a convolution over 8,192 channels, and a matrix of 128 × 128 for each of 32 heads.
#[test]
fn states_are_shared_by_ranks() {
    let model = read("qwen3-next-80b");
    let Keeps::State(state) = model.groups[1].keeps else { panic!("a state") };
    assert_eq!(state.bytes(1).expect("bytes"), 8192 * 3 * 2 + 32 * 128 * 128 * 2);
    assert_eq!(state.bytes(4).expect("bytes"), (8192 * 3 * 2 + 32 * 128 * 128 * 2) / 4);
    let error = state.bytes(3).unwrap_err().to_string();
    assert_eq!(error, "linear_num_key_heads = 16: must be divisible by the number of ranks, 3");
    let text = std::fs::read_to_string(file("qwen3-next-80b")).expect("the file");
    let wider = text.replacen('{', "{\"mamba_ssm_dtype\": \"float32\",", 1);
    let model = ModelGeometry::from_json(wider.as_bytes()).expect("a model");
    let Keeps::State(state) = model.groups[1].keeps else { panic!("a state") };
    assert_eq!(state.bytes(1).expect("bytes"), 8192 * 3 * 2 + 32 * 128 * 128 * 4);
    assert_eq!(model.groups[0].layers, (3..48).step_by(4).collect::<Vec<_>>());
}

/// A file of llama in which these fields replace its own.
fn changed(fields: &str) -> Result<ModelGeometry, ModelError> {
    let text = format!(
        "{{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"hidden_size\": 64, \
         \"torch_dtype\": \"bfloat16\", {fields}}}"
    );
    ModelGeometry::from_json(text.as_bytes())
}

#[test]
fn quantized_cache_has_its_own_type() {
    let dtype = |fields: &str| changed(fields).expect("a model").dtype;
    let scheme = "\"quantization_config\": {\"kv_cache_scheme\": {\"num_bits\": 8, \"type\": \"float\"}}";
    assert_eq!(dtype(scheme), Some(DType::F8E4M3));
    assert_eq!(dtype("\"quantization_config\": {\"kv_cache_quant_algo\": \"NVFP4\"}"), Some(DType::NvFp4));
    assert_eq!(dtype("\"quantization_config\": {\"quant_method\": \"fp8\"}"), Some(DType::BF16));
    assert_eq!(dtype("\"torch_dtype\": null"), None);
}

#[test]
fn wrong_model_fields_are_refused_by_name() {
    for (fields, wanted) in [
        (
            "\"model_type\": \"mamba2\"",
            "model_type = \"mamba2\": not supported; supported are llama, llama4,",
        ),
        ("\"model_type\": 3", "model_type = 3: must be a string"),
        ("\"model_type\": \"\\u001b[2J\"", "model_type = \"\\u{1b}[2J\": not supported"),
        ("\"num_hidden_layers\": -3", "num_hidden_layers = -3: must be a whole number from 1 to 65536"),
        (
            "\"num_hidden_layers\": 1e300",
            "num_hidden_layers = 1e+300: must be a whole number from 1 to 65536",
        ),
        ("\"num_hidden_layers\": 99999999999999999999999", "num_hidden_layers = "),
        ("\"num_hidden_layers\": [2]", "num_hidden_layers = a list: must be"),
        ("\"num_hidden_layers\": null", "num_hidden_layers: missing"),
        ("\"num_key_value_heads\": 0", "num_key_value_heads = 0: must be a whole number from 1 to 65536"),
        ("\"hidden_size\": 63", "hidden_size = 63: must be a multiple of num_attention_heads = 4"),
        ("\"head_dim\": \"128\"", "head_dim = \"128\": must be a whole number from 1 to 16777216"),
        ("\"torch_dtype\": \"int5\"", "torch_dtype = \"int5\": unknown"),
        ("\"sliding_window\": 128", "sliding_window = 128: this field is not supported for this model_type"),
        (
            "\"layer_types\": [\"full_attention\"]",
            "layer_types = a list of length 1: must have an entry for each of the 2 layers",
        ),
        (
            "\"layer_types\": [\"full_attention\", \"conv\"]",
            "layer_types[1] = \"conv\": not supported for this model_type",
        ),
        ("\"num_kv_shared_layers\": 1", "num_kv_shared_layers = 1: this field is not supported"),
        ("\"text_config\": 7", "text_config = 7: must be an object"),
        ("\"text_config\": {\"model_type\": \"llama\"}", "text_config.num_hidden_layers: missing"),
        (
            "\"quantization_config\": {\"kv_cache_scheme\": {\"num_bits\": 4, \"type\": \"int\"}}",
            "quantization_config.kv_cache_scheme = an object: not supported",
        ),
        ("\"model_type\": \"qwen2\"", "num_key_value_heads: missing"),
        ("\"model_type\": \"deepseek_v3\"", "kv_lora_rank: missing"),
        ("\"model_type\": \"qwen3_next\", \"num_key_value_heads\": 2", "linear_conv_kernel_dim: missing"),
        (
            "\"model_type\": \"qwen2\", \"num_key_value_heads\": 2, \"use_sliding_window\": true, \"sliding_window\": 8",
            "max_window_layers: missing",
        ),
    ] {
        let error = changed(fields).expect_err(fields).to_string();
        assert!(error.starts_with(wanted), "{fields}: {error}");
    }
    let deep = format!("{{\"model_type\": {}", "[".repeat(100_000));
    for text in [&b"[]"[..], b"{", b"\xff\xfe{}", b"", deep.as_bytes(), b"{\"model_type\": NaN}"] {
        let error = ModelGeometry::from_json(text).expect_err("not an object").to_string();
        assert!(error.starts_with("not a JSON object: "), "{error}");
    }
    let error = ModelGeometry::read(&file("none")).expect_err("no file").to_string();
    assert!(error.contains("none.json: cannot be read: ") && error.contains("config.json"), "{error}");
}

/// The largest allowed numbers give a state that is refused, without an overflow.
#[test]
fn largest_model_numbers_do_not_overflow() {
    let fields = "\"model_type\": \"qwen3_next\", \"num_hidden_layers\": 65536, \"num_key_value_heads\": 65536, \
                  \"linear_conv_kernel_dim\": 65536, \"linear_num_key_heads\": 65536, \"linear_num_value_heads\": 65536, \
                  \"linear_key_head_dim\": 65536, \"linear_value_head_dim\": 65536";
    let error = changed(fields).expect_err("too large").to_string();
    assert!(error.starts_with("linear_value_head_dim = 65536: makes a state of "), "{error}");
}
