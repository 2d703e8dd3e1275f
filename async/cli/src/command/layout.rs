//! `kvstrata layout`: where the bytes of a model's KV cache lie, in numbers and as a picture.
//!
//! | file | what |
//! |---|---|
//! | `subject.rs` | which layers of which model: a group's, a stage's |
//! | `side.rs` | a geometry in regions of its own; refusals by option |
//! | `facts.rs`, `copy.rs` | what is printed, as JSON has it: the layout, the copy plan to another |
//! | `text.rs` | the same as tables |
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
      Llama-3-70B as a tier has it: how the 5,242,880 bytes of a block come about.
  kvstrata layout --preset llama-3-70b --tp 4
      The same on one of four ranks: 1,310,720 bytes.
  kvstrata layout --preset llama-3-70b --arrangement outer-first
      As vLLM with FlashAttention has it: a region a layer, [2][blocks][page][heads][size].
  kvstrata layout --preset llama-3-70b --arrangement outer-first --to fully-contiguous
      What a copy from there to a tier takes: pieces, sizes, strides.
  kvstrata layout --preset qwen3-32b --tp 4 --rank 1 --to fully-contiguous --to-tp 8 --to-rank 2
      What rank 1 of 4 gives to rank 2 of 8.
  kvstrata layout --config path/to/config.json --group state
      A model by the file that it is published with, and one of its groups of layers.
  kvstrata layout --preset deepseek-v3 --pp 2
      Two stages of a pipeline: layers and bytes of each, and the first one's layout.
  kvstrata layout --to fully-contiguous --to-page 64
      Four blocks of 16 tokens as one of 64.
  kvstrata layout --layers 61 --head-size 576 --mla --dtype fp8 --page 64 --json
      A geometry of your own, for a program.

Bytes are counted in powers of ten (5.24 MB), as models are; numbers you type take K, M and G, powers of 1024.
Exit codes: 0 all well; 2 something asked for is impossible, and the message says what.";

/// Draw where the bytes of a model's KV cache lie: shape, strides, pieces, offsets
#[derive(Debug, Args)]
#[command(
    long_about = "Draw where the bytes of a model's KV cache lie: how many bytes a block has and why, shape and strides, \
                  regions, offsets of the first rows, and a picture. With --to, what a copy of a block to another \
                  arrangement, another page size or another tensor-parallel degree takes.\n\n\
                  A row is the elements of one (block, layer, outer, token, head), and never torn apart. Outer is 0 for keys and \
                  1 for values; a latent (MLA) has no such dimension. A region is a stretch of memory, such as a tensor. \
                  No memory is touched: these are calculations.",
    after_long_help = EXAMPLES
)]
pub(super) struct LayoutArgs {
    /// The model [default: llama-3-70b, unless a geometry is given]
    #[arg(long, value_name = "NAME", value_parser = presets(), ignore_case = true)]
    preset: Option<&'static Model>,
    /// A model's config.json, or the folder that has it, instead of a preset
    #[arg(long, value_name = "PATH", conflicts_with_all = ["preset", "layers", "heads", "head_size", "mla"])]
    config: Option<PathBuf>,
    /// Of a model whose layers differ, the group that is drawn: full, window, latent, indexer or state [default: all that are alike, else the first]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Layers, instead of the model's
    #[arg(long, value_name = "N", value_parser = number::count)]
    layers: Option<u32>,
    /// KV heads of the whole model, instead of the model's
    #[arg(long, value_name = "N", value_parser = number::count)]
    heads: Option<u32>,
    /// Elements a head and token, instead of the model's; with --mla the latent's size
    #[arg(long, value_name = "N", value_parser = number::count)]
    head_size: Option<u32>,
    /// One latent instead of keys and values of each head, with --layers and --head-size
    #[arg(long, conflicts_with_all = ["heads", "preset"])]
    mla: bool,
    /// The elements' type: float32, float16, bfloat16, fp8, fp8_e5m2, int8, uint8, nvfp4 or mxfp4, as torch or vLLM spell them [default: the model's]
    #[arg(long, value_name = "TYPE", value_parser = dtype)]
    dtype: Option<DType>,
    /// Tokens a block
    #[arg(long, value_name = "N", value_parser = number::count, default_value = "16")]
    page: u32,
    /// Blocks that there are
    #[arg(long, value_name = "N", value_parser = number::count, default_value = "1024")]
    blocks: u32,
    /// Blocks start at multiples of this many bytes, a power of two [default: an element's]
    #[arg(long, value_name = "N", value_parser = number::scaled)]
    alignment: Option<u64>,
    /// What a region holds, and in which order
    #[arg(long, value_name = "NAME", value_parser = arrangements(), default_value = "fully-contiguous")]
    arrangement: Arrangement,
    /// What comes first within a page: tokens (nhd) or heads (hnd)
    #[arg(long, value_name = "ORDER", default_value = "nhd")]
    head_order: Order,
    /// Where a block-scaled type has its scales: behind each row, or behind each page
    #[arg(long, value_name = "PLACE", default_value = "row")]
    scales: Scales,
    /// Ranks that share the model's heads (tensor parallelism)
    #[arg(long, value_name = "N", value_parser = number::count, default_value = "1")]
    tp: u32,
    /// Which rank, from 0
    #[arg(long, value_name = "R", value_parser = number::count, default_value = "0")]
    rank: u32,
    /// Stages of a pipeline that share the model's layers, as vLLM divides them
    #[arg(long, value_name = "N", value_parser = number::count)]
    pp: Option<u32>,
    /// Layers of each stage, as 33,28 (VLLM_PP_LAYER_PARTITION)
    #[arg(long, value_name = "N,N…", value_delimiter = ',', value_parser = number::count)]
    layer_partition: Option<Vec<u32>>,
    /// The stage that is drawn, from 0
    #[arg(long, value_name = "S", value_parser = number::count, default_value = "0")]
    stage: u32,
    /// The block whose offsets and pieces are printed
    #[arg(long, value_name = "N", value_parser = number::count, default_value = "0")]
    block: u32,
    /// Plan a copy of a block to this arrangement, one of those of --arrangement
    #[arg(long, value_name = "NAME", value_parser = arrangements(), hide_possible_values = true)]
    to: Option<Arrangement>,
    /// What comes first within a page there [default: as here]
    #[arg(long, value_name = "ORDER", requires = "to")]
    to_head_order: Option<Order>,
    /// Ranks there [default: as here]
    #[arg(long, value_name = "N", value_parser = number::count, requires = "to")]
    to_tp: Option<u32>,
    /// Tokens a block there; as few blocks as have as many tokens on both sides are planned [default: as here]
    #[arg(long, value_name = "N", value_parser = number::count, requires = "to")]
    to_page: Option<u32>,
    /// Which rank there [default: the first that has a head of this one's]
    #[arg(long, value_name = "R", value_parser = number::count, requires = "to")]
    to_rank: Option<u32>,
    /// Draw with ASCII characters only; the default where the locale is not UTF-8
    #[arg(long)]
    ascii: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    /// A token's heads side by side
    Nhd,
    /// A head's tokens side by side
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
    /// Behind the elements of each head and token
    Row,
    /// Behind the elements of each page
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
            "One region, a block in one piece: the tiers here, and with --head-order hnd TensorRT-LLM's pools"
        }
        Arrangement::CrossLayer => "One region, a tensor for all layers: vLLM 0.12",
        Arrangement::CrossLayerPacked => "The same with a head's key beside its value: vLLM since #44455",
        Arrangement::OuterFirst => "A region a layer, all keys before all values: vLLM with FlashAttention",
        Arrangement::BlockFirst => {
            "A region a layer, a block's keys beside its values: vLLM with FlashInfer or MLA"
        }
        Arrangement::Packed => "A region a layer, a head's key beside its value: vLLM since #44455",
        Arrangement::TokenMajor => "A region for the keys of each layer, and one for its values: SGLang",
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
            .map_err(|error| format!("--json: cannot be encoded: {error}"))?;
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

/// The model, with what was asked for instead of its own.
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
                    "{option}: missing; a geometry of your own takes --layers, --heads and --head-size, a latent \
                     --layers, --head-size and --mla, and --preset NAME has all of them"
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
        return Err(format!("--heads {heads}: {} has one latent (MLA), and no heads to count", known.name));
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
        Scales::Page => return Err(format!("--scales page: {dtype} has no scales; nvfp4 and mxfp4 have")),
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
        return Err(format!("--to-page {page}: a state has no tokens that a page could count"));
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
