//! The addresses of a layout's rows: five strides and a base for each (layer, outer).
//!
//! ```text
//!   address of row (block, layer, outer, token, head) = base(layer, outer)
//!       + block × strides[0] + layer × strides[1] + outer × strides[2]
//!       + token × strides[3] + head × strides[4]
//! ```
//!
//! A layout has one plane of rows, or two: elements, and scales if these lie apart from them.
//!
//! I1. The strides are *nested*: sorted by size, each is at least the bytes that the ones below
//!     it span. So no two rows overlap.
//! I2. A dimension in the bases (layers, outer indices, or both) has no stride: it is 0.
//! I3. Every row ends within 64 bits, so plain arithmetic on indices in bounds cannot overflow.

use super::{Dim, Field, Index, LayoutError};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Rows, and their addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plane {
    pub(crate) row_bytes: u64,
    /// Bytes from one index to the next, in the order of [`Dim::ALL`]; 0 if the dimension is 1 (one form
    /// for one meaning).
    pub(crate) strides: [u64; 5],
    pub(crate) bases: Bases,
    /// Outer indices per layer.
    outers: u32,
}

/// Addresses of the first row of each (layer, outer).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Bases {
    /// The first row of all; the others follow by stride.
    One(u64),
    /// One per layer; its outer indices follow by stride.
    Layers(Arc<[u64]>),
    /// One per outer index; its layers follow by stride.
    Outers(Arc<[u64]>),
    /// One per pair, layer by layer.
    Each(Arc<[u64]>),
}

impl Plane {
    /// Makes a plane from the address of each (layer, outer)'s first row: by stride,
    /// if they are evenly spaced.
    ///
    /// # Errors
    ///
    /// Rows overlap, or exceed 64 bits.
    pub(super) fn new(
        row_bytes: u64,
        mut strides: [u64; 5],
        starts: Vec<u64>,
        shape: Index,
    ) -> Result<Plane, LayoutError> {
        let [_, layers, outers, ..] = shape;
        debug_assert_eq!(starts.len(), layers as usize * outers as usize);
        let each = outers as usize;
        let (layer, outer) = (even_step(&starts, each, true), even_step(&starts, each, false));
        // The fewest bases first. One form may fail to show that rows are apart while another shows it:
        // the keys of all layers may lie before the values of all, or two rows of one
        // layer in a gap of another's.
        let forms: [&dyn Fn() -> Option<(Bases, u64, u64)>; 4] = [
            &|| Some((Bases::One(starts[0]), layer?, outer?)),
            &|| Some((Bases::Layers(starts.iter().copied().step_by(each).collect()), 0, outer?)),
            &|| Some((Bases::Outers(starts[..each].into()), layer?, 0)),
            &|| Some((Bases::Each(starts.as_slice().into()), 0, 0)),
        ];
        let mut refused = None;
        for (bases, layer, outer) in forms.into_iter().filter_map(|form| form()) {
            (strides[Dim::Layer as usize], strides[Dim::Outer as usize]) = (layer, outer);
            for (stride, count) in strides.iter_mut().zip(shape) {
                if count == 1 {
                    *stride = 0;
                }
            }
            let plane = Plane { row_bytes, strides, bases, outers };
            match plane.nested_span(shape).and_then(|span| plane.check_bases(span, shape)) {
                Ok(()) => return Ok(plane),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(refused.unwrap_or(LayoutError::Dims { list: Field::Tensors, tensor: 0 })) // the last form is always tried
    }

    /// Makes a plane with evenly spaced (layer, outer), from the address of the first.
    ///
    /// # Errors
    ///
    /// Rows overlap, or exceed 64 bits.
    pub(super) fn even(
        row_bytes: u64,
        strides: [u64; 5],
        start: u64,
        shape: Index,
    ) -> Result<Plane, LayoutError> {
        debug_assert!(strides.iter().zip(shape).all(|(stride, count)| count > 1 || *stride == 0));
        let plane =
            Plane { row_bytes, strides, bases: Bases::One(start), outers: shape[Dim::Outer as usize] };
        let span = plane.nested_span(shape)?;
        plane.check_bases(span, shape)?;
        Ok(plane)
    }

    /// Bytes from the first row of a base to the end of the last (I1).
    fn nested_span(&self, shape: Index) -> Result<u64, LayoutError> {
        let mut dims = Dim::ALL.map(|dim| (self.strides[dim as usize], shape[dim as usize], dim));
        dims.sort_unstable_by_key(|(stride, ..)| *stride);
        let mut span = self.row_bytes;
        let mut inner = None;
        for (stride, count, dim) in dims {
            if count == 1 || self.bases.hold(dim) {
                continue;
            }
            if stride < span {
                return Err(LayoutError::Interleaved { dim, stride, inner, span });
            }
            let grown = stride.checked_mul(u64::from(count - 1)).and_then(|start| start.checked_add(span));
            span = grown.ok_or(LayoutError::Overflow { field: Field::Strides, value: stride })?;
            inner = Some(dim);
        }
        Ok(span)
    }

    /// Checks that no two bases' spans overlap (I1), and that all end within 64 bits (I3).
    fn check_bases(&self, span: u64, shape: Index) -> Result<(), LayoutError> {
        let overflow = |address| LayoutError::Overflow { field: Field::Address, value: address };
        match &self.bases {
            Bases::One(base) => base.checked_add(span).map(drop).ok_or(overflow(*base)),
            Bases::Layers(bases) | Bases::Outers(bases) | Bases::Each(bases) => {
                let mut sorted: Vec<(u64, u32)> = bases.iter().copied().zip(0..).collect();
                sorted.sort_unstable();
                let last = sorted[sorted.len() - 1].0;
                last.checked_add(span).ok_or(overflow(last))?;
                match sorted.windows(2).find(|pair| pair[1].0 - pair[0].0 < span) {
                    None => Ok(()),
                    Some(pair) => {
                        let each = if self.bases.hold(Dim::Outer) { shape[Dim::Outer as usize] } else { 1 };
                        let which = |number: u32| [number / each, number % each];
                        Err(LayoutError::LayersOverlap { a: which(pair[0].1), b: which(pair[1].1), span })
                    }
                }
            }
        }
    }

    /// Address of the first row of a (layer, outer).
    #[inline]
    pub(crate) fn base(&self, layer: u32, outer: u32) -> u64 {
        match &self.bases {
            Bases::One(base) => {
                base + u64::from(layer) * self.strides[1] + u64::from(outer) * self.strides[2]
            }
            Bases::Layers(bases) => bases[layer as usize] + u64::from(outer) * self.strides[2],
            Bases::Outers(bases) => bases[outer as usize] + u64::from(layer) * self.strides[1],
            Bases::Each(bases) => bases[layer as usize * self.outers as usize + outer as usize],
        }
    }

    /// Address of a row within bounds.
    #[inline]
    pub(crate) fn address(&self, index: Index) -> u64 {
        let [block, layer, outer, token, head] = index;
        self.base(layer, outer)
            + u64::from(block) * self.strides[0]
            + u64::from(token) * self.strides[3]
            + u64::from(head) * self.strides[4]
    }

    /// Address of the first row of each (layer, outer).
    pub(super) fn starts(&self, shape: Index) -> Vec<u64> {
        let [_, layers, outers, ..] = shape;
        let pairs = (0..layers).flat_map(|layer| (0..outers).map(move |outer| (layer, outer)));
        pairs.map(|(layer, outer)| self.base(layer, outer)).collect()
    }

    /// Bytes from the first row of a (layer, outer) to the end of its last: all blocks, tokens and heads.
    pub(super) fn span_of_base(&self, shape: Index) -> u64 {
        let reach = |dim: Dim| u64::from(shape[dim as usize] - 1) * self.strides[dim as usize];
        reach(Dim::Block) + reach(Dim::Token) + reach(Dim::Head) + self.row_bytes
    }
}

impl Bases {
    /// Returns whether a dimension is in the table, and has no stride.
    #[inline]
    pub(crate) fn hold(&self, dim: Dim) -> bool {
        match self {
            Bases::One(_) => false,
            Bases::Layers(_) => dim == Dim::Layer,
            Bases::Outers(_) => dim == Dim::Outer,
            Bases::Each(_) => matches!(dim, Dim::Layer | Dim::Outer),
        }
    }
}

/// The distance between layers, or between outer indices, if it is constant and never negative.
fn even_step(starts: &[u64], outers: usize, of_layers: bool) -> Option<u64> {
    let (step, count) = if of_layers { (outers, starts.len() / outers) } else { (1, outers) };
    if count == 1 {
        return Some(0);
    }
    let distance = starts[step].checked_sub(starts[0])?;
    let last_of = |i: usize| if of_layers { i + step >= starts.len() } else { i % outers == outers - 1 };
    let even = |i: &usize| starts[*i].checked_add(distance) == Some(starts[*i + step]);
    (0..starts.len()).filter(|i| !last_of(*i)).all(|i| even(&i)).then_some(distance)
}
