//! The tables for people.

use super::copy::CopyFacts;
use super::facts::{Facts, Offset, RankFacts};
use super::side::Side;
use super::units::{both, bytes, count, plural, rounded};
use kvstrata_core::layout::LayoutConfig;
use std::fmt::Write;

/// Where the second column begins.
const INDENT: usize = 13;

/// All tables, without the picture.
pub(super) fn layout(side: &Side, facts: &Facts) -> String {
    let mut text = String::new();
    head(&mut text, facts);
    text.push('\n');
    sums(&mut text, side.layout.config(), facts);
    text.push('\n');
    dims(&mut text, facts);
    text.push('\n');
    places(&mut text, facts);
    text.push('\n');
    text
}

fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "{name:<INDENT$}{value}");
}

fn head(text: &mut String, facts: &Facts) {
    let model = &facts.model;
    let inner = match model.outer_dim {
        1 => format!("one latent of {}", count(model.head_size.into())),
        _ => format!("{} of {}", plural(model.kv_heads.into(), "KV head"), count(model.head_size.into())),
    };
    let layers = plural(model.layers.into(), "layer");
    let drawn = facts.layers.len() as u64;
    line(text, "model", &format!("{}: {layers}, {inner}, {}", model.name, facts.dtype));
    for more in [&model.source, &model.note].into_iter().flatten() {
        line(text, "", more);
    }
    groups(text, facts);
    stages(text, facts);
    if drawn != u64::from(model.layers) {
        line(text, "layers", &format!("{} of {layers}: {}", count(drawn), some_of(&facts.layers)));
    }
    if !facts.windowed_layers.is_empty() {
        let windowed = plural(facts.windowed_layers.len() as u64, "layer");
        line(
            text,
            "windows",
            &format!("{windowed} of {}: {}", count(drawn), some_of(&facts.windowed_layers)),
        );
    }
    line(text, "rank", &rank(facts));
    let scales = facts.scales.as_ref().map_or(String::new(), |place| format!(", scales after each {place}"));
    let alignment = bytes(facts.alignment_bytes);
    let order = facts.head_order.to_uppercase();
    line(text, "arrangement", &format!("{}, {order}{scales}, aligned to {alignment}", facts.arrangement));
}

fn rank(facts: &Facts) -> String {
    let RankFacts { degree, rank, first_head, heads } = facts.tensor_parallel;
    let of_model = facts.model.kv_heads;
    let which = match heads {
        _ if facts.model.outer_dim == 1 => "the latent, as on every rank".to_owned(),
        1 => format!("head {first_head} of {of_model}"),
        _ => format!("heads {first_head} to {} of {of_model}", first_head + heads - 1),
    };
    format!("{rank} of {degree}: {which}")
}

/// The numbers of layers, with the middle left out if there are many.
fn some_of(layers: &[u32]) -> String {
    let all = |layers: &[u32]| layers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match layers {
        [first, .., last] if layers.len() > 2 && (*last - *first) as usize + 1 == layers.len() => {
            format!("{first} to {last}")
        }
        [some @ .., last] if layers.len() > 6 => format!("{}, …, {last}", all(&some[..4])),
        all_of_them => all(all_of_them),
    }
}

fn groups(text: &mut String, facts: &Facts) {
    if facts.groups.len() < 2 {
        return;
    }
    for (i, group) in facts.groups.iter().enumerate() {
        let layers = plural(group.layers.len() as u64, "layer");
        let bytes = match (group.state_bytes, group.window) {
            (Some(state), _) => format!("{} of state a layer", bytes(state)),
            (None, Some(window)) => {
                format!("{} a token, of the last {}", bytes(group.token_bytes), count(window.into()))
            }
            (None, None) => format!("{} a token", bytes(group.token_bytes)),
        };
        let drawn = if group.drawn { "" } else { ", not drawn" };
        line(
            text,
            if i == 0 { "groups" } else { "" },
            &format!("{:<8} {layers:>10}, {bytes}{drawn}", group.name),
        );
    }
}

fn stages(text: &mut String, facts: &Facts) {
    if facts.stages.len() < 2 {
        return;
    }
    for (i, stage) in facts.stages.iter().enumerate() {
        let layers = format!("layers {} to {}", stage.first_layer, stage.first_layer + stage.layers - 1);
        let drawn = if stage.drawn { "  (drawn)" } else { "" };
        let bytes = format!("{} a token, {} a block", bytes(stage.token_bytes), bytes(stage.block_bytes));
        line(text, if i == 0 { "stages" } else { "" }, &format!("{i}: {layers}, {bytes}{drawn}"));
    }
}

/// The factors of a row's, a token's and a block's bytes.
fn sums(text: &mut String, config: &LayoutConfig, facts: &Facts) {
    let factors = |heads: u32, page: Option<u32>| {
        let mut factors = vec![plural(config.num_layers.into(), "layer")];
        factors.extend((config.outer_dim > 1).then(|| config.outer_dim.to_string()));
        factors.extend(page.map(|tokens| plural(tokens.into(), "token")));
        factors.extend((facts.model.outer_dim > 1).then(|| plural(heads.into(), "head")));
        factors.push(row(config));
        factors.join(" × ")
    };
    let (of, page) = (&facts.bytes, Some(config.page_size));
    line(text, "a row", &format!("{} = {}", row(config), both(of.row)));
    line(text, "a token", &factors(config.num_heads, None));
    line(text, "", &format!("= {}", both(of.token)));
    line(text, "a block", &factors(config.num_heads, page));
    line(text, "", &format!("= {}", both(of.block)));
    let degree = facts.tensor_parallel.degree;
    if degree > 1 {
        let (kv_heads, latent) = (facts.model.kv_heads, facts.model.outer_dim == 1);
        let all = match latent {
            true => format!("{} × {}", plural(degree.into(), "rank"), factors(1, page)),
            false => factors(kv_heads.max(degree), page),
        };
        line(text, "all ranks", &all);
        line(text, "", &format!("= {}", both(of.block_of_all_ranks)));
        if degree > kv_heads && !latent {
            let heads = plural(kv_heads.into(), "KV head");
            line(text, "", &format!("{heads}, replicated over {degree} ranks: one on each"));
        }
    }
    if of.padding > 0 {
        line(text, "padding", &format!("{} a block in each region", both(of.padding)));
    }
}

fn row(config: &LayoutConfig) -> String {
    match (config.row_scale_bytes(), config.dtype.bits() / 8) {
        (0, 1) => format!("{} × 1 byte", config.head_size),
        (0, width) => format!("{} × {width} bytes", config.head_size),
        (scales, _) => format!("({} + {scales}) bytes", config.row_data_bytes()),
    }
}

fn dims(text: &mut String, facts: &Facts) {
    let _ = writeln!(text, "{:<INDENT$}{:>13}   {:>20}", "dimension", "count", "stride in bytes");
    for dim in &facts.dims {
        let (stride, short) = match dim.stride_bytes {
            Some(stride) => (count(stride), rounded(stride).unwrap_or_default()),
            None if dim.count == 1 => ("–".to_owned(), String::new()),
            None => ("another region".to_owned(), String::new()),
        };
        let written = format!("{:<INDENT$}{:>13}   {stride:>20}   {short}", dim.dim, count(dim.count.into()));
        let _ = writeln!(text, "{}", written.trim_end());
    }
}

fn places(text: &mut String, facts: &Facts) {
    let regions = &facts.regions;
    let each = both(regions.bytes);
    match regions.count {
        1 => line(text, "regions", &format!("1 of {each}")),
        many => {
            line(text, "regions", &format!("{} of {each}", count(many.into())));
            line(text, "", &format!("total {}", both(regions.total_bytes)));
        }
    }
    let (pieces, block) = (&facts.pieces, facts.block);
    let what = format!("block {} is in {}", count(block.into()), plural(pieces.count, "piece"));
    let sizes = match pieces.count {
        1 => bytes(pieces.largest_bytes),
        _ if pieces.smallest_bytes == pieces.largest_bytes => format!("{} each", bytes(pieces.largest_bytes)),
        _ => format!("{} to {}", count(pieces.smallest_bytes), bytes(pieces.largest_bytes)),
    };
    line(text, "pieces", &format!("{what}, {sizes}"));
    text.push('\n');
    offsets(text, facts);
}

fn offsets(text: &mut String, facts: &Facts) {
    let apart = facts.offsets.iter().any(|row| row.scales_offset.is_some());
    let scales = if apart { format!("{:>17}", "scales at") } else { String::new() };
    let _ = writeln!(
        text,
        "{:>9} {:>6} {:>5} {:>6} {:>5} {:>7} {:>17}{scales}",
        "block", "layer", "outer", "token", "head", "region", "offset"
    );
    for row in &facts.offsets {
        let Offset { block, layer, outer, token, head, region, offset, scales_offset } = *row;
        let scales = scales_offset.map_or(String::new(), |offset| format!("{:>17}", count(offset)));
        let outer = outer_name(outer, facts.model.outer_dim);
        let _ = writeln!(
            text,
            "{:>9} {layer:>6} {outer:>5} {token:>6} {head:>5} {region:>7} {:>17}{scales}",
            count(block.into()),
            count(offset)
        );
    }
}

/// The name of an outer index: keys, values, or neither.
pub(super) fn outer_name(outer: u32, outer_dim: u32) -> &'static str {
    match (outer_dim, outer) {
        (1, _) => "–",
        (_, 0) => "K",
        _ => "V",
    }
}

/// The table of a copy plan.
pub(super) fn copy(copy: &CopyFacts) -> String {
    let mut text = String::from("\n");
    let RankFacts { degree, rank, .. } = copy.tensor_parallel;
    let order = copy.head_order.to_uppercase();
    let what = if copy.pages.is_some() { "blocks" } else { "a block" };
    line(&mut text, "copy", &format!("{what} to {}, {order}, on rank {rank} of {degree}", copy.arrangement));
    let heads = &copy.heads;
    let range = |first: u32| match heads.count {
        1 => first.to_string(),
        many => format!("{first} to {}", first + many - 1),
    };
    let which = format!("{} here → {} there, numbered on each side", range(heads.src), range(heads.dst));
    line(&mut text, "heads", &which);
    if let Some(pages) = &copy.pages {
        let [here, there] =
            [(pages.src_blocks, pages.src_page), (pages.dst_blocks, pages.dst_page)].map(|(blocks, page)| {
                format!("{} of {}", plural(blocks.into(), "block"), plural(page.into(), "token"))
            });
        line(&mut text, "pages", &format!("{here} here → {there} there"));
        let hits = plural(pages.prefix_tokens, "token");
        line(&mut text, "", &format!("prefix hits are multiples of {hits}, whole blocks on both sides"));
    }
    let (least, most) = (copy.smallest_piece_bytes, copy.largest_piece_bytes);
    let sizes = match least == most {
        true => bytes(most),
        false => format!("{} to {}", count(least), bytes(most)),
    };
    line(&mut text, "pieces", &format!("{} of {sizes}, total {}", count(copy.pieces), both(copy.bytes)));
    line(&mut text, "aligned to", &bytes(copy.alignment_bytes));
    for (i, kind) in copy.families.iter().enumerate() {
        let (times, piece) = (count(kind.families), bytes(kind.piece_bytes));
        let (here, there) = (count(kind.src_stride_bytes), count(kind.dst_stride_bytes));
        let family = match kind.pieces {
            1 => format!("{times} × {piece}"),
            many => format!("{times} × ({} × {piece}, {here} apart here, {there} there)", count(many.into())),
        };
        line(&mut text, if i == 0 { "strided" } else { "" }, &family);
    }
    if !copy.families_complete {
        line(&mut text, "", "and more");
    }
    let header = ["bytes", "region here", "offset", "region there", "offset"];
    let [bytes, here, offset, there, at] = header;
    let _ = writeln!(text, "\n{bytes:>15} {here:>12} {offset:>17} {there:>14} {at:>17}");
    for piece in &copy.first {
        let _ = writeln!(
            text,
            "{:>15} {:>12} {:>17} {:>14} {:>17}",
            count(piece.bytes),
            piece.src_region,
            count(piece.src_offset),
            piece.dst_region,
            count(piece.dst_offset)
        );
    }
    text
}
