//! The picture: boxes within boxes, in the nesting order of memory.
//!
//! ```text
//!   ┌ block 0 ───────── 64 bytes ┐      the first index of each dimension is an open box;
//!   │ ┌ layer 0 ───── 32 bytes ┐ │      the indices of the innermost dimension stand side by side
//!   │ │ ┌ head 0 ─┬ head 1 ──┐ │ │
//!   │ │ │ +0      │ +16      │ │ │
//!   │ │ └─────────┴──────────┘ │ │
//!   │ └────────────────────────┘ │
//!   │ ┌ layer 1 ───────────────┐ │      the next and the last index are closed boxes with their offsets
//!   │ │ +32                    │ │
//!   │ └────────────────────────┘ │
//!   └────────────────────────────┘
//! ```
//!
//! Offsets count from the start of the region, where each open box starts too.

use super::side::{Level, Side};
use super::text::outer_name;
use super::units::{bytes, count};
use kvstrata_core::layout::Dim;

/// One box of a row of boxes.
struct Cell {
    name: String,
    below: String,
    /// One more line, drawn if any box of the row has one.
    note: String,
}

struct Picture<'s> {
    side: &'s Side,
    width: usize,
    text: String,
}

/// Stands for the indices left out.
const DOTS: &str = "···";

/// The picture, `width` characters wide.
pub(super) fn picture(side: &Side, width: usize) -> String {
    // A dimension of one index has no box, unless it is the block or has scales.
    let has_box = |level: &Level| level.count > 1 || level.dim == Dim::Block || level.scales > 0;
    let drawn: Vec<Level> = side.levels().into_iter().filter(has_box).collect();
    let mut picture = Picture { side, width, text: String::new() };
    picture.open(0, &region_name(side, 0), &bytes(side.need.bytes));
    picture.levels(1, &drawn);
    picture.close(0);
    let regions = side.need.count;
    if regions > 1 {
        let cell = |number: u32| Cell {
            name: region_name(side, number),
            below: bytes(side.need.bytes),
            note: side.region_layer(number).map_or(String::new(), |layer| attends(side, layer)),
        };
        picture.strip(0, neighbours(1, regions, &cell));
    }
    picture.text
}

fn region_name(side: &Side, region: u32) -> String {
    let config = side.layout.config();
    let mut name = format!("region {}", count(region.into()));
    let note = side.region_layer(region).map_or(String::new(), |layer| opened(side, layer));
    // Regions are ordered by layer and, if keys and values are apart, keys first.
    let apart = side.spread();
    let outers = if apart.iter().any(|(dim, _)| *dim == Dim::Outer) { config.outer_dim } else { 1 };
    for (dim, _) in apart.iter().filter(|(_, count)| *count > 1) {
        let index = if *dim == Dim::Layer { region / outers } else { region % outers };
        name += if *dim == Dim::Layer { ": " } else { ", " };
        name += &index_name(side, *dim, index);
    }
    if region == 0 { name + &note } else { name }
}

/// The tokens that a layer attends to; empty for a model without windows.
fn attends(side: &Side, layer: u32) -> String {
    match (side.drawn.has_windows(), side.drawn.window(layer)) {
        (false, _) => String::new(),
        (true, Some(window)) => format!("last {} tokens", count(window.into())),
        (true, None) => "all tokens".to_owned(),
    }
}

/// [`attends`] as a suffix of an open box's name.
fn opened(side: &Side, layer: u32) -> String {
    let attends = attends(side, layer);
    if attends.is_empty() { attends } else { format!(", {attends}") }
}

fn index_name(side: &Side, dim: Dim, index: u32) -> String {
    match dim {
        Dim::Outer => outer_name(index, side.layout.config().outer_dim).to_owned(),
        Dim::Layer => format!("layer {}", count(side.drawn.layer(index).into())),
        _ => format!("{dim} {}", count(index.into())),
    }
}

/// The first, the next and the last of `first..of`; `None` stands for those between.
fn neighbours(first: u32, of: u32, cell: &dyn Fn(u32) -> Cell) -> Vec<Option<Cell>> {
    match of - first {
        0 => Vec::new(),
        1..=3 => (first..of).map(|index| Some(cell(index))).collect(),
        _ => vec![Some(cell(first)), Some(cell(first + 1)), None, Some(cell(of - 1))],
    }
}

impl Picture<'_> {
    /// Draws the indices of the outermost of `levels`; the first is an open box.
    fn levels(&mut self, depth: usize, levels: &[Level]) {
        let side = self.side;
        let Some((level, inner)) = levels.split_first() else { return self.row(depth) };
        let cell = |index: u32| Cell {
            name: index_name(side, level.dim, index),
            below: format!("+{}", count(u64::from(index) * level.bytes)),
            note: if level.dim == Dim::Layer { attends(side, index) } else { String::new() },
        };
        let behind = behind(level);
        if inner.is_empty() && behind.is_empty() {
            self.strip(depth, neighbours(0, level.count, &cell));
            return self.row(depth);
        }
        let note = if level.dim == Dim::Layer { opened(side, 0) } else { String::new() };
        self.open(depth, &(index_name(side, level.dim, 0) + &note), &bytes(level.bytes));
        self.levels(depth + 1, inner);
        self.strip(depth + 1, behind);
        self.close(depth);
        self.strip(depth, neighbours(1, level.count, &cell));
    }

    /// Describes the row in the innermost box.
    fn row(&mut self, depth: usize) {
        let (config, layout) = (self.side.layout.config(), &self.side.layout);
        let apart = matches!(layout.scales_address([0; 5]), Ok(Some(_)));
        let scales = match config.row_scale_bytes() {
            0 => String::new(),
            _ if apart => String::new(),
            scales => format!(" and {} of scales", bytes(scales)),
        };
        let row =
            format!("a row: {} × {}{scales}, {}", config.head_size, config.dtype, bytes(layout.row_bytes()));
        self.line(depth, &row);
    }

    /// The characters of a line within `depth` boxes.
    fn room(&self, depth: usize) -> usize {
        self.width.saturating_sub(4 * depth)
    }

    /// Draws a line within `depth` boxes.
    fn line(&mut self, depth: usize, inside: &str) {
        let room = self.room(depth);
        let (left, right) = ("│ ".repeat(depth), " │".repeat(depth));
        self.text += &format!("{left}{:<room$}{right}\n", cut(inside, room));
    }

    fn open(&mut self, depth: usize, name: &str, size: &str) {
        let room = self.room(depth).saturating_sub(6);
        let (name, size) = (cut(name, room), cut(size, room.saturating_sub(name.chars().count() + 1)));
        let bar = "─".repeat(room.saturating_sub(name.chars().count() + size.chars().count()));
        self.line(depth, &format!("┌ {name} {bar} {size} ┐"));
    }

    fn close(&mut self, depth: usize) {
        let bar = "─".repeat(self.room(depth).saturating_sub(2));
        self.line(depth, &format!("└{bar}┘"));
    }

    /// Draws boxes side by side over the whole width within `depth` boxes; `None` is drawn as dots.
    fn strip(&mut self, depth: usize, cells: Vec<Option<Cell>>) {
        if cells.is_empty() {
            return;
        }
        let dots = DOTS.chars().count() + 2;
        let left_out = cells.iter().filter(|cell| cell.is_none()).count();
        let named = cells.len() - left_out;
        let room = self.room(depth).saturating_sub(cells.len() + 1 + left_out * dots);
        let mut wider = room % named;
        let noted = cells.iter().flatten().any(|cell| !cell.note.is_empty());
        let mut lines = [String::new(), String::new(), String::new(), String::new()];
        for (i, cell) in cells.iter().enumerate() {
            let [top, middle, notes, bottom] = &mut lines;
            let [above, corner] = if i == 0 { ["┌", "└"] } else { ["┬", "┴"] };
            let (width, name, inside, note) = match cell {
                None => (dots, DOTS, "", ""),
                Some(cell) => {
                    let width = room / named + usize::from(wider > 0);
                    wider = wider.saturating_sub(1);
                    (width, cell.name.as_str(), cell.below.as_str(), cell.note.as_str())
                }
            };
            let name = cut(name, width.saturating_sub(2));
            let bar = "─".repeat(width.saturating_sub(2 + name.chars().count()));
            *top += &format!("{above} {name} {bar}");
            let below =
                |text: &str| format!("│ {:<1$}", cut(text, width.saturating_sub(1)), width.saturating_sub(1));
            *middle += &below(inside);
            *notes += &below(note);
            *bottom += &format!("{corner}{}", "─".repeat(width));
        }
        for (line, (end, drawn)) in lines.iter().zip([("┐", true), ("│", true), ("│", noted), ("┘", true)])
        {
            if drawn {
                self.line(depth, &format!("{line}{end}"));
            }
        }
    }
}

/// Scales and padding at the end of a box.
fn behind(level: &Level) -> Vec<Option<Cell>> {
    let at = |size: u64, behind: u64| format!("+{}, {}", count(level.bytes - behind - size), bytes(size));
    let scales = (level.scales > 0).then(|| Cell {
        name: "scales".to_owned(),
        below: at(level.scales, level.padding),
        note: String::new(),
    });
    let padding = (level.padding > 0).then(|| Cell {
        name: "padding".to_owned(),
        below: at(level.padding, 0),
        note: String::new(),
    });
    scales.into_iter().chain(padding).map(Some).collect()
}

/// The text, cut to `room` characters.
fn cut(text: &str, room: usize) -> String {
    match text.chars().count() <= room {
        true => text.to_owned(),
        false => text.chars().take(room.saturating_sub(1)).chain("·".chars().take(room)).collect(),
    }
}
