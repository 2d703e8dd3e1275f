//! Strides for another shape of the same elements.
//!
//! Neighbouring dimensions that lie like one (the outer's stride is the inner's stride × size)
//! are merged. A new shape has strides exactly if its dimensions cut each merged one into whole
//! pieces (torch's rule for `view`).

/// Strides of a row-major tensor, in elements. A size of 0 counts as 1, as in torch. A stride that
/// exceeds 64 bits is 0: no view has that many elements, and a view with none uses no stride.
pub(super) fn row_major<const D: usize>(shape: [u64; D]) -> [u64; D] {
    let mut strides = [0; D];
    let mut next = Some(1u64);
    for (stride, size) in strides.iter_mut().zip(shape).rev() {
        *stride = next.unwrap_or(0);
        next = next.and_then(|next| next.checked_mul(size.max(1)));
    }
    strides
}

/// Strides of `wanted`, which has as many elements as `shape`; none if there are none.
pub(super) fn strides<const E: usize>(shape: &[u64], strides: &[u64], wanted: [u64; E]) -> Option<[u64; E]> {
    if shape.contains(&0) {
        return Some(row_major(wanted));
    }
    // Sizes and strides from the innermost on; a dimension of one does not count.
    let mut old = shape.iter().zip(strides).rev().filter(|(size, _)| **size > 1).peekable();
    let mut made = [0; E];
    let mut new = made.iter_mut().zip(wanted).rev().peekable();
    let mut last = 1;
    while let Some((size, stride)) = old.next() {
        let (mut elements, stride) = (*size, u128::from(*stride));
        while let Some((size, _)) =
            old.next_if(|(_, outer)| u128::from(**outer) == u128::from(elements) * stride)
        {
            elements *= size; // the number of elements at most, as is `filled`
        }
        let mut filled = 1;
        while let Some((made, size)) = new.next_if(|(_, size)| filled < elements || *size == 1) {
            *made = match u64::try_from(u128::from(filled) * stride) {
                Ok(stride) => stride,
                Err(_) if size == 1 => 0,
                Err(_) => return None,
            };
            filled *= size;
        }
        if filled != elements {
            return None;
        }
        last = u64::try_from(u128::from(elements) * stride).unwrap_or(0);
    }
    // Dimensions of one are left over only if all dimensions are.
    for (made, _) in new {
        *made = last;
    }
    Some(made)
}
