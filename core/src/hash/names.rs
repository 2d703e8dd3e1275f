//! The two names of a block, 128 bits each.

use core::fmt;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(u128);

        impl $name {
            /// The name with this value.
            #[inline]
            #[must_use]
            pub const fn from_u128(value: u128) -> $name {
                $name(value)
            }

            /// Its value.
            #[inline]
            #[must_use]
            pub const fn to_u128(self) -> u128 {
                self.0
            }

            /// The name stored as these bytes, least significant first.
            #[inline]
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> $name {
                $name(u128::from_le_bytes(bytes))
            }

            /// Its 16 bytes, least significant first, on every architecture.
            #[inline]
            #[must_use]
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.to_le_bytes()
            }
        }

        /// 32 hexadecimal digits, most significant first.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:032x})"), self.0)
            }
        }
    };
}

name! {
    /// Names a block and all blocks before it: h(i) = H(h(i-1) ‖ tokens(i)), h(-1) = salt.
    ///
    /// ```
    /// use kvstrata_core::SequenceHash;
    /// let hash = SequenceHash::from_u128(0xcafe);
    /// assert_eq!(hash.to_string(), "0000000000000000000000000000cafe");
    /// assert_eq!(SequenceHash::from_bytes(hash.to_bytes()), hash);
    /// ```
    SequenceHash
}

name! {
    /// Names the tokens of one block, independent of the blocks before it: H(tokens).
    /// Field's word: local hash.
    BlockHash
}

impl SequenceHash {
    /// Takes over an engine's own 64-bit hash, as the lower half; the upper one is 0.
    ///
    /// As collision-prone as the engine's: expect one from 2³² (4 × 10⁹) different blocks on.
    #[inline]
    #[must_use]
    pub const fn from_u64(hash: u64) -> SequenceHash {
        SequenceHash(hash as u128)
    }

    /// Takes over an engine's own SHA-256 hash (vLLM's `sha256` and `sha256_cbor`): its
    /// first 16 bytes, in order.
    ///
    /// The other 16 are dropped. Half of a SHA-256 is still uniform; collisions are to be expected
    /// at 2⁶⁴ blocks rather than 2¹²⁸.
    #[inline]
    #[must_use]
    pub const fn from_sha256(digest: &[u8; 32]) -> SequenceHash {
        let mut first = [0; 16];
        let mut i = 0;
        while i < first.len() {
            first[i] = digest[i];
            i += 1;
        }
        SequenceHash::from_bytes(first)
    }
}
