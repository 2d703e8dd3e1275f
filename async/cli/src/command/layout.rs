//! `kvstrata layout`: where the bytes of a model's KV cache lie, in numbers and as a picture.
//!
//! | file | contents |
//! |---|---|
//! | `subject.rs` | the model, and the layers to draw: those of a group, of a pipeline stage |
//! | `side.rs` | a geometry laid out in regions; errors by option |
//! | `facts.rs`, `copy.rs` | the JSON: the layout, the copy plan to another layout |
//! | `text.rs` | the same facts as tables |
//! | `draw.rs` | the picture |
//! | `units.rs` | numbers for people |

mod copy;
mod draw;
mod facts;
mod side;
mod subject;
mod text;
mod units;

use super::choice::choice;
use super::screen::Screen;
use super::{EXIT_OK, number};
use clap::{Args, ValueEnum};
use copy::CopyFacts;
use facts::Facts;
use kvstrata_core::layout::{Arrangement, DType, HeadOrder, Model, ScalePlace};
use side::{Geometry, Side};
use std::path::PathBuf;
use std::rc::Rc;
use subject::Subject;

const EXAMPLES: &str = "\
Examples:
  kvstrata layout
      Llama-3-70B as a tier stores it: where the 5,242,880 bytes of a block come from.
  kvstrata layout --preset llama-3-70b --tp 4
      The same on one of four ranks: 1,310,720 bytes.
  kvstrata layout --preset llama-3-70b --arrangement outer-first
      The layout of vLLM with FlashAttention: one region a layer, [2][blocks][page][heads][size].
  kvstrata layout --arrangement outer-first --to fully-contiguous
      The copy from that layout to a tier: pieces, sizes, strides.
  kvstrata layout --tp 4 --rank 1 --to fully-contiguous --to-tp 8 --to-rank 2
      The copy from rank 1 of 4 to rank 2 of 8.
  kvstrata layout --config path/to/config.json --group state
      A model by its published config.json, and one of its groups of layers.
  kvstrata layout --preset deepseek-v3 --pp 2
      Two pipeline stages: the layers and bytes of each, and the layout of the first.
  kvstrata layout --to fully-contiguous --to-page 64
      Four blocks of 16 tokens as one of 64.
  kvstrata layout --layers 61 --head-size 576 --mla --dtype fp8 --page 64 --json
      A geometry of your own, for a program.

Units:
  Printed bytes are in powers of ten: 5.24 MB is 5,240,000 bytes, rounded.
  Numbers you type take K, M and G, powers of 1024: 64K is 65,536.

Exit codes:
  0  success
  2  the request cannot be carried out; the message names the option, its value and the remedy";

/// Draw where the bytes of a model's KV cache lie: shape, strides, pieces, offsets
///
/// The command prints the bytes of a block and their factors, shape and strides, regions, offsets of the
/// first rows, and a picture. With --to, it also prints the copy of a block to another arrangement, page
/// size or tensor-parallel degree.
///
/// A row is the elements of one (block, layer, outer, token, head); it is never split. Outer is 0 for
/// keys and 1 for values; a latent (MLA) has no outer dimension. A region is a stretch of memory, for
/// example a tensor. The command only calculates: it allocates no cache.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct LayoutArgs {
    /// The model [default: llama-3-70b, unless a geometry is given]
    #[arg(long, value_name = "NAME", value_parser = presets(), ignore_case = true)]
    preset: Option<&'static Model>,
    /// A model's config.json or its folder, instead of a preset
    #[arg(long, value_name = "PATH", conflicts_with_all = ["preset", "layers", "heads", "head_size", "mla"])]
    config: Option<PathBuf>,
    /// Group of layers to draw, if layers differ: full, window, latent, indexer or state [default: all,
    /// if alike, else the first]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Layers of the model, instead of the preset's
    #[arg(long, value_name = "N", value_parser = number::count)]
    layers: Option<u32>,
    /// KV heads of the whole model, instead of the preset's
    #[arg(long, value_name = "N", value_parser = number::count)]
    heads: Option<u32>,
    /// Elements of a head and token, instead of the preset's; with --mla, of the latent
    #[arg(long, value_name = "N", value_parser = number::count)]
    head_size: Option<u32>,
    /// One latent instead of keys and values of each head; needs --layers and --head-size
    #[arg(long, conflicts_with_all = ["heads", "preset"])]
    mla: bool,
    /// Type of the elements, as torch or vLLM spell it [default: the model's]
    ///
    /// One of float32, float16, bfloat16, fp8, fp8_e5m2, int8, uint8, nvfp4 and mxfp4.
    #[arg(long, value_name = "TYPE", value_parser = dtype)]
    dtype: Option<DType>,
    /// Tokens of a block
    #[arg(long, value_name = "N", value_parser = number::count, default_value = "16")]
    page: u32,
    /// Number of blocks
    #[arg(long, value_name = "N", value_parser = number::count, default_value = "1024")]
    blocks: u32,
    /// Alignment of each block in bytes, a power of two [default: that of an element]
    #[arg(long, value_name = "N", value_parser = number::scaled)]
    alignment: Option<u64>,
    /// Contents of a region, and their order
    #[arg(long, value_name = "NAME", value_parser = arrangements(), default_value = "fully-contiguous")]
    arrangement: Arrangement,
    /// Order within a page: tokens first (nhd) or heads first (hnd)
    #[arg(long, value_name = "ORDER", default_value = "nhd")]
    head_order: Order,
    /// Place of the scales of a block-scaled type: after each row or after each page
    #[arg(long, value_name = "PLACE", default_value = "row")]
    scales: Scales,
    /// Ranks that share the model's heads (tensor parallelism)
    #[arg(long, value_name = "N", value_parser = number::count, default_value = "1")]
    tp: u32,
    /// Rank to draw, from 0
    #[arg(long, value_name = "R", value_parser = number::count, default_value = "0")]
    rank: u32,
    /// Pipeline stages that share the model's layers, divided as vLLM does
    #[arg(long, value_name = "N", value_parser = number::count)]
    pp: Option<u32>,
    /// Layers of each stage, for example 33,28 (VLLM_PP_LAYER_PARTITION)
    #[arg(long, value_name = "N,N…", value_delimiter = ',', value_parser = number::count)]
    layer_partition: Option<Vec<u32>>,
    /// Stage to draw, from 0
    #[arg(long, value_name = "S", value_parser = number::count, default_value = "0")]
    stage: u32,
    /// Block whose offsets and pieces are printed
    #[arg(long, value_name = "N", value_parser = number::count, default_value = "0")]
    block: u32,
    /// Plan a copy of a block to this arrangement (see --arrangement)
    #[arg(long, value_name = "NAME", value_parser = arrangements(), hide_possible_values = true)]
    to: Option<Arrangement>,
    /// Order within a page of the destination [default: that of the source]
    #[arg(long, value_name = "ORDER", requires = "to")]
    to_head_order: Option<Order>,
    /// Ranks of the destination [default: those of the source]
    #[arg(long, value_name = "N", value_parser = number::count, requires = "to")]
    to_tp: Option<u32>,
    /// Tokens of a block of the destination [default: that of the source]
    ///
    /// The plan covers the fewest blocks that have the same number of tokens on both sides.
    #[arg(long, value_name = "N", value_parser = number::count, requires = "to")]
    to_page: Option<u32>,
    /// Rank of the destination [default: the first that shares a head with this rank]
    #[arg(long, value_name = "R", value_parser = number::count, requires = "to")]
    to_rank: Option<u32>,
    /// Draw with ASCII characters only [default: if the locale is not UTF-8]
    #[arg(long)]
    ascii: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    /// The heads of a token are adjacent
    Nhd,
    /// The tokens of a head are adjacent
    Hnd,
}

impl From<Order> for HeadOrder {
    fn from(order: Order) -> HeadOrder {
        match order {
            Order::Nhd => HeadOrder::Nhd,
            Order::Hnd => HeadOrder::Hnd,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scales {
    /// After the elements of each head and token
    Row,
    /// After the elements of each page
    Page,
}

fn presets() -> impl clap::builder::TypedValueParser<Value = &'static Model> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    PossibleValuesParser::new(Model::ALL.iter().map(|model| model.name))
        .try_map(|name| Model::find(&name).map_err(|error| error.to_string()))
}

fn arrangements() -> impl clap::builder::TypedValueParser<Value = Arrangement> {
    choice(&Arrangement::ALL, Arrangement::name, |arrangement| match arrangement {
        Arrangement::FullyContiguous => {
            "One region, a block in one piece: kvstrata's tiers; with --head-order hnd, TensorRT-LLM's pools"
        }
        Arrangement::CrossLayer => "One region, one tensor for all layers: vLLM 0.12",
        Arrangement::CrossLayerPacked => {
            "Like cross-layer, the key of a head next to its value: vLLM since pull request #44455"
        }
        Arrangement::OuterFirst => "One region a layer, all keys before all values: vLLM with FlashAttention",
        Arrangement::BlockFirst => {
            "One region a layer, the keys of a block before its values: vLLM with FlashInfer or MLA"
        }
        Arrangement::Packed => {
            "One region a layer, the key of a head next to its value: vLLM since pull request #44455"
        }
        Arrangement::TokenMajor => "One region for the keys of each layer, one for its values: SGLang",
    })
}

fn dtype(name: &str) -> Result<DType, String> {
    name.parse::<DType>().map_err(|error| error.to_string())
}

pub(super) fn run(arguments: &LayoutArgs) -> Result<u8, String> {
    let side = source(arguments)?;
    let block = arguments.block;
    if block >= arguments.blocks {
        return Err(format!("--block {block}: must be below --blocks {}", arguments.blocks));
    }
    let facts = Facts::new(&side, block);
    let copy = match arguments.to {
        Some(arrangement) => {
            Some(CopyFacts::new(&side, &destination(arguments, &side, arrangement)?, block)?)
        }
        None => None,
    };
    if arguments.json {
        let value = facts::Document { layout: &facts, plan: copy.as_ref() };
        let text = serde_json::to_string_pretty(&value)
            .map_err(|error| format!("--json: the result cannot be encoded: {error}; please report this"))?;
        super::print((text + "\n").as_bytes())?;
        return Ok(EXIT_OK);
    }
    let screen = Screen::of_stdout(arguments.ascii);
    let mut text = text::layout(&side, &facts);
    text += &draw::picture(&side, screen.width);
    if let Some(copy) = &copy {
        text += &text::copy(copy);
    }
    super::print_shown(&screen.spell(text))?;
    Ok(EXIT_OK)
}

/// The model, with the values of the options in place of its own.
fn model(arguments: &LayoutArgs) -> Result<Model, String> {
    let LayoutArgs { preset, layers, heads, head_size, mla, .. } = *arguments;
    let changed = layers.is_some() || heads.is_some() || head_size.is_some() || mla;
    let known = match preset {
        Some(model) => *model,
        None if !changed => *Model::find("llama-3-70b").map_err(|error| error.to_string())?,
        None => {
            let needed = [("--layers", layers.is_some()), ("--heads", heads.is_some() || mla)];
            let needed = needed.into_iter().chain([("--head-size", head_size.is_some())]);
            if let Some((option, _)) = needed.into_iter().find(|(_, given)| !given) {
                return Err(format!(
                    "{option}: missing; a geometry of your own needs --layers, --heads and --head-size, a latent needs \
                     --layers, --head-size and --mla; --preset NAME gives all of them"
                ));
            }
            let (outer_dim, dtype) = (if mla { 1 } else { 2 }, DType::BF16);
            Model {
                name: "",
                layers: 1,
                outer_dim,
                kv_heads: 1,
                head_size: 1,
                dtype,
                window: None,
                full_every: 1,
                source: "",
                note: "",
            }
        }
    };
    if let (1, Some(heads)) = (known.outer_dim, heads) {
        return Err(format!(
            "--heads {heads}: {} has one latent (MLA) and no heads; leave it out",
            known.name
        ));
    }
    if heads == Some(0) {
        return Err("--heads 0: must be at least 1".to_owned());
    }
    let model = Model {
        layers: layers.unwrap_or(known.layers),
        kv_heads: heads.unwrap_or(known.kv_heads),
        head_size: head_size.unwrap_or(known.head_size),
        ..known
    };
    Ok(if model == known { model } else { Model { name: "custom", source: "", note: "", ..model } })
}

fn source(arguments: &LayoutArgs) -> Result<Side, String> {
    let Subject { model, dtype, paged, drawn } = Subject::new(arguments)?;
    let scales = match arguments.scales {
        Scales::Row => ScalePlace::Row,
        Scales::Page if dtype.scale().is_some() => ScalePlace::Page,
        Scales::Page => {
            return Err(format!("--scales page: {dtype} has no scales; use --dtype nvfp4 or mxfp4"));
        }
    };
    let alignment = arguments.alignment.unwrap_or(dtype.alignment());
    let (arrangement, head_order) = (arguments.arrangement, arguments.head_order.into());
    let (page, blocks) = (if paged { arguments.page } else { 1 }, arguments.blocks);
    let geometry = Geometry { model, dtype, page, blocks, alignment, head_order, scales, arrangement };
    let shard = side::shard(&model, ["--tp", "--rank"], arguments.tp, arguments.rank)?;
    Side::new(geometry, shard, Rc::new(drawn))
}

fn destination(arguments: &LayoutArgs, src: &Side, arrangement: Arrangement) -> Result<Side, String> {
    let head_order = arguments.to_head_order.map_or(src.geometry.head_order, HeadOrder::from);
    let page = arguments.to_page.unwrap_or(src.geometry.page);
    if arguments.to_page.is_some()
        && src.drawn.groups.iter().any(|group| group.drawn && group.state_bytes.is_some())
    {
        return Err(format!("--to-page {page}: a group of states has no tokens; leave it out"));
    }
    let geometry = Geometry { arrangement, head_order, page, ..src.geometry };
    let degree = arguments.to_tp.unwrap_or(arguments.tp);
    let rank = match arguments.to_rank {
        Some(rank) => rank,
        None => side::first_with(src, degree),
    };
    let shard = side::shard(&src.geometry.model, ["--to-tp", "--to-rank"], degree, rank)?;
    Side::new(geometry, shard, Rc::clone(&src.drawn)).map_err(|error| format!("--to {arrangement}: {error}"))
}
