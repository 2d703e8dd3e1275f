//! The check whether one geometry can become another, and which slice of it.

use super::{PlanError, Side};
use crate::layout::{Dim, LayoutConfig};
use crate::layout::{Slice, Span};

/// The slices of layers, outer indices, tokens and heads.
pub(super) fn spans(
    src: &LayoutConfig,
    dst: &LayoutConfig,
    layers: Slice,
    heads: Slice,
) -> Result<[Span; 4], PlanError> {
    let [layers, outers, _, heads] = spans_but_tokens(src, dst, layers, heads)?;
    Ok([layers, outers, span(Dim::Token, Slice::All, src.page_size, dst.page_size)?, heads])
}

/// The same without the tokens, whose slice is empty.
pub(super) fn spans_but_tokens(
    src: &LayoutConfig,
    dst: &LayoutConfig,
    layers: Slice,
    heads: Slice,
) -> Result<[Span; 4], PlanError> {
    if src.dtype != dst.dtype {
        return Err(PlanError::DType { src: src.dtype, dst: dst.dtype });
    }
    let (of_src, of_dst) = heads_of(src, dst, &heads)?;
    Ok([
        span(Dim::Layer, layers, src.num_layers, dst.num_layers)?,
        span(Dim::Outer, Slice::All, src.outer_dim, dst.outer_dim)?,
        Span { src: 0, dst: 0, count: 0 },
        span(Dim::Head, heads, of_src, of_dst)?,
    ])
}

/// The heads of either side. One side may have them in one row, if the other knows their
/// number, or the slice gives it.
fn heads_of(src: &LayoutConfig, dst: &LayoutConfig, heads: &Slice) -> Result<(u32, u32), PlanError> {
    if src.head_size == dst.head_size {
        return Ok((src.num_heads, dst.num_heads));
    }
    let inside = |one: &LayoutConfig, some: &LayoutConfig| {
        let divides = one.num_heads == 1 && one.head_size.is_multiple_of(some.head_size);
        let known = some.num_heads > 1 || *heads != Slice::All;
        (divides && known && one.dtype.scale().is_none()).then(|| one.head_size / some.head_size)
    };
    match (inside(src, dst), inside(dst, src)) {
        (Some(heads), _) => Ok((heads, dst.num_heads)),
        (_, Some(heads)) => Ok((src.num_heads, heads)),
        _ => Err(PlanError::HeadSize { src: src.head_size, dst: dst.head_size }),
    }
}

/// The slice of one dimension, within both sides.
pub(super) fn span(dim: Dim, slice: Slice, of_src: u32, of_dst: u32) -> Result<Span, PlanError> {
    let span = match slice {
        Slice::All if of_src != of_dst => {
            return Err(PlanError::Shape { dim, src: of_src, dst: of_dst });
        }
        Slice::All => Span { src: 0, dst: 0, count: of_src },
        Slice::Same(range) => {
            Span { src: range.start, dst: range.start, count: range.end.saturating_sub(range.start) }
        }
        Slice::Moved { src, dst, count } => Span { src, dst, count },
    };
    for (side, first, of) in [(Side::Source, span.src, of_src), (Side::Destination, span.dst, of_dst)] {
        if span.count == 0 || u64::from(first) + u64::from(span.count) > u64::from(of) {
            return Err(PlanError::Slice { side, dim, first, count: span.count, of });
        }
    }
    Ok(span)
}
