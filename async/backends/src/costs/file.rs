//! The file of a device's costs: JSON, for people to read and for programs to plot.

use kvstrata_ffi::cuda::{CopyCosts, CostSource, Direction, DirectionCosts, Route};
use kvstrata_ffi::shown::shown;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The file's `format` field.
const FORMAT: &str = "kvstrata copy costs";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    version: u32,
    device: String,
    uuid: String,
    /// The driver's version: major and minor.
    cuda: (u32, u32),
    /// UTC.
    measured: String,
    costs: Grids,
}

/// Costs as numbers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grids {
    piece_bytes: Vec<u64>,
    pieces: Vec<u64>,
    directions: BTreeMap<String, Grid>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Grid {
    /// `None` without kernels.
    ctas: Option<u32>,
    /// By vector width in bytes.
    narrow: BTreeMap<u64, f64>,
    /// By route, then by size and count.
    nanoseconds: BTreeMap<String, Vec<Vec<Option<u64>>>>,
}

impl Grids {
    /// Returns the costs of a device.
    pub fn of(costs: &CopyCosts) -> Grids {
        let directions = Direction::ALL.iter().zip(costs.directions());
        let grid = |costs: &DirectionCosts| Grid {
            ctas: costs.ctas,
            narrow: CopyCosts::NARROW.into_iter().zip(costs.narrow).collect(),
            nanoseconds: Route::ALL
                .iter()
                .zip(&costs.cells)
                .map(|(route, cells)| {
                    (route.name().to_owned(), cells.iter().map(|row| row.to_vec()).collect())
                })
                .collect(),
        };
        Grids {
            piece_bytes: CopyCosts::SIZES.to_vec(),
            pieces: CopyCosts::COUNTS.to_vec(),
            directions: directions
                .map(|(direction, costs)| (direction.name().to_owned(), grid(costs)))
                .collect(),
        }
    }

    fn directions(mut self) -> Result<[DirectionCosts; 3], String> {
        if self.piece_bytes != CopyCosts::SIZES || self.pieces != CopyCosts::COUNTS {
            return Err("has other sizes or counts than this program".to_owned());
        }
        let mut found = [(); 3].map(|()| DirectionCosts::default());
        for (direction, found) in Direction::ALL.into_iter().zip(&mut found) {
            let name = direction.name();
            let mut grid = self.directions.remove(name).ok_or_else(|| format!("lacks {name:?}"))?;
            found.ctas = grid.ctas;
            for (width, factor) in CopyCosts::NARROW.iter().zip(&mut found.narrow) {
                *factor =
                    grid.narrow.remove(width).ok_or_else(|| format!("{name:?} lacks the width {width}"))?;
            }
            for (route, cells) in Route::ALL.into_iter().zip(&mut found.cells) {
                let route = route.name();
                let rows = grid.nanoseconds.remove(route);
                let rows = rows.ok_or_else(|| format!("{name:?} lacks the route {route:?}"))?;
                let rows: Vec<_> =
                    rows.into_iter().map(TryInto::try_into).collect::<Result<_, _>>().unwrap_or_default();
                *cells = rows.try_into().map_err(|_| {
                    format!(
                        "the table of times of {route:?}, {name:?}, is not {} by {}",
                        CopyCosts::SIZES.len(),
                        CopyCosts::COUNTS.len()
                    )
                })?;
            }
        }
        Ok(found)
    }
}

/// Returns the file's text; `None` unless the costs were measured.
pub(super) fn encode(uuid: &str, costs: &CopyCosts) -> Option<Vec<u8>> {
    let CostSource::Measured { card, cuda, when } = costs.source() else { return None };
    let document = Document {
        format: FORMAT.to_owned(),
        version: VERSION,
        device: card.clone(),
        uuid: uuid.to_owned(),
        cuda: *cuda,
        measured: when.clone(),
        costs: Grids::of(costs),
    };
    let mut text = serde_json::to_vec(&document).ok()?;
    text.push(b'\n');
    Some(text)
}

/// Parses the costs of the device with this UUID, or returns the fault.
pub(super) fn decode(text: &[u8], uuid: &str) -> Result<CopyCosts, String> {
    let value: serde_json::Value =
        serde_json::from_slice(text).map_err(|error| format!("is damaged: {}", shown(error)))?;
    if value["format"] != FORMAT {
        return Err("is not a file of copy costs".to_owned());
    }
    if value["version"] != VERSION {
        return Err(format!(
            "has version {}, but this program reads version {VERSION}",
            shown(&value["version"])
        ));
    }
    let document: Document =
        serde_json::from_value(value).map_err(|error| format!("is damaged: {}", shown(error)))?;
    if document.uuid != uuid {
        return Err(format!("belongs to device {}, not to {uuid}", shown(&document.uuid)));
    }
    let directions = document.costs.directions()?;
    CopyCosts::measured(&document.device, document.cuda, &document.measured, directions)
        .map_err(|error| format!("is damaged: {}", shown(error)))
}
