//! The faults of a simulated device, and how often they occur.

use super::random::Random;

/// Each of these in 65536 pieces, unless it says otherwise.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::disk) struct Faults {
    // Loud: the engine is told.
    /// EIO, ENOSPC.
    pub(in crate::disk) error: u32,
    /// EINTR, EAGAIN.
    pub(in crate::disk) interrupted: u32,
    /// Fewer bytes than asked for, at least one.
    pub(in crate::disk) short: u32,
    /// No byte at all.
    pub(in crate::disk) nothing: u32,
    /// Takes seconds.
    pub(in crate::disk) stall: u32,
    /// ENODEV, ENXIO or EIO for a while, or from then on.
    pub(in crate::disk) gone: u32,
    /// Writes find no room for a while.
    pub(in crate::disk) full: u32,
    /// The ring breaks for good: in 65536 turns.
    pub(in crate::disk) broken: u32,
    // Silent: success is reported.
    /// Some sectors of a write arrive.
    pub(in crate::disk) torn: u32,
    /// A write arrives elsewhere, or a read comes from elsewhere.
    pub(in crate::disk) misdirected: u32,
    /// Nothing of a write arrives.
    pub(in crate::disk) lost: u32,
    /// A read finds the bytes of the last sync.
    pub(in crate::disk) stale: u32,
    /// A bit of the transfer is flipped.
    pub(in crate::disk) flip: u32,
    /// Of 65536 syncs and punches.
    pub(in crate::disk) lie: u32,
    /// In 65536 operations, a stretch of the file is damaged in place.
    pub(in crate::disk) rot: u32,
}

impl Faults {
    /// The faults of a seed: none, or one family, or all of them, seldom or often.
    pub(in crate::disk) fn of(random: &mut Random) -> Faults {
        let kind = random.below(8);
        let (loud, silent) = (matches!(kind, 1..=3 | 6 | 7), matches!(kind, 4..=7));
        let rate = |random: &mut Random, on: bool, most: u64| {
            // Each fault may be absent, since one can hide another: then another seed shows it.
            let on = on && random.below(3) > 0;
            if on { random.within(1, most) as u32 } else { 0 }
        };
        let mut faults = Faults::default();
        // Slow devices and cut transfers are loud faults that harm nothing: they also occur
        // by themselves.
        let harmless = loud || random.once_in(2);
        faults.interrupted = rate(random, harmless, 0x3000);
        faults.short = rate(random, harmless, 0x4000);
        faults.stall = rate(random, harmless, 0x800);
        let (most_errors, ends) = (random.pick(&[0x1000, 0x1000, 0x1000, 0xFFFF]), random.once_in(3));
        faults.error = rate(random, loud, most_errors);
        faults.nothing = rate(random, loud, 0x400);
        faults.gone = rate(random, loud && ends, 0x100);
        faults.broken = rate(random, loud && ends, 0x40);
        let fills = loud && random.once_in(2);
        faults.full = rate(random, fills, 0x100);
        faults.torn = rate(random, silent, 0xC00);
        faults.misdirected = rate(random, silent, 0xC00);
        faults.lost = rate(random, silent, 0xC00);
        faults.stale = rate(random, silent, 0xC00);
        faults.flip = rate(random, silent, 0xC00);
        faults.lie = rate(random, silent, 0x8000);
        faults.rot = rate(random, silent, 0x800);
        faults
    }
}
