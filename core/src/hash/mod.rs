//! STUB by the lead, to typecheck the pool: the owner of this module overwrites it.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
/// x
pub struct SequenceHash(u128);
impl SequenceHash {
    /// x
    pub const fn from_u128(v: u128) -> Self {
        Self(v)
    }
    /// x
    pub const fn to_u128(self) -> u128 {
        self.0
    }
}
/// x
pub struct BlockHash(u128);
/// x
#[derive(Clone, Copy, Default)]
pub struct Salt(SequenceHash);
impl From<Salt> for SequenceHash {
    fn from(s: Salt) -> Self {
        s.0
    }
}
