//! Pictures of results: an SVG or a PNG, by the ending of the file's name.
//!
//! ```text
//!   ┌──────────────────────────┬──────────┐
//!   │ a panel: axes, lines     │ its      │     a drawing is panels, one below the other;
//!   │                          │ legend   │     a legend has its own column and covers no line
//!   ├──────────────────────────┼──────────┤
//! ```
//!
//! The colours are those of Okabe and Ito, which colour-blind people can tell apart. Lines
//! also differ in strokes and marks. A PNG uses the bundled font (`async/cli/data/`), so no
//! font of the system is needed.
//!
//! | file | contents |
//! |---|---|
//! | `panel.rs` | axes, lines, legend |
//! | `curves.rs` | hits by capacity, of `kvstrata policies` |
//! | `flow.rs` | fill, hits and bandwidth over time, of `kvstrata replay` |

mod curves;
mod flow;
mod panel;

pub(super) use curves::curves;
pub(super) use flow::flow;

use kvstrata::shared::files;
use kvstrata_ffi::shown::shown_path;
use panel::Panel;
use plotters::backend::{BitMapBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::style::{FontStyle, WHITE, register_font};
use plotters_backend::DrawingBackend;
use std::path::{Path, PathBuf};

/// Under the licence of Bitstream Vera, which permits this: `async/cli/data/DejaVuSans-subset.LICENSE`.
static FONT: &[u8] = include_bytes!("../../../data/DejaVuSans-subset.ttf");

/// The target of `--plot`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    path: PathBuf,
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
}

/// A picture.
pub(super) struct Drawing {
    /// The name of the trace, which may be a long path.
    trace: String,
    title: String,
    panels: Vec<Panel>,
}

/// Width of each panel, in pixels like all sizes here.
const WIDTH: u32 = 1000;
const TITLE: u32 = 44;
const MARGIN: u32 = 16;

impl Drawing {
    fn size(&self) -> (u32, u32) {
        (WIDTH, TITLE + self.panels.iter().map(|panel| panel.height).sum::<u32>())
    }

    fn on<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        area.fill(&WHITE)?;
        let (title, mut rest) = area.split_vertically(TITLE);
        panel::text(&title, &self.fitting_title(&title)?, panel::Size::Title, (MARGIN as i32, 16))?;
        for panel in &self.panels {
            let (this, below) = rest.split_vertically(panel.height);
            panel.on(&this)?;
            rest = below;
        }
        area.present()
    }

    /// The title, with the beginning of a long path left out: its end tells traces apart.
    fn fitting_title<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<String, DrawingAreaErrorKind<B::ErrorType>> {
        let (mut shown, mut left_out) = (self.trace.as_str(), "");
        loop {
            let title = format!("{left_out}{shown}: {}", self.title);
            let mut rest = shown.chars();
            if panel::width(area, &title, panel::Size::Title)? <= WIDTH - 2 * MARGIN || rest.next().is_none()
            {
                return Ok(title);
            }
            (shown, left_out) = (rest.as_str(), "...");
        }
    }
}

impl Target {
    pub(super) fn parse(text: &str) -> Result<Target, String> {
        let path = PathBuf::from(text);
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        let format = match ending.as_deref() {
            Some("svg") => Format::Svg,
            Some("png") => Format::Png,
            _ => return Err("the name of a picture must end in .svg or .png".to_owned()),
        };
        Ok(Target { path, format })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses a file that cannot be written, before a minute's work is lost.
    pub(super) fn check(&self) -> Result<(), String> {
        files::check("--plot", &self.path)
    }

    /// Draws into the file. After an error, the file is as it was before.
    pub(super) fn write(&self, drawing: &Drawing) -> Result<(), String> {
        let named = |what: String| format!("--plot {}: {what}", shown_path(&self.path));
        let picture = match self.format {
            Format::Svg => svg(drawing),
            Format::Png => png(drawing),
        };
        let picture = picture.map_err(|error| named(format!("cannot be drawn: {error}")))?;
        files::replace(&self.path, &picture)
            .map_err(|error| named(format!("cannot be written: {error}; name another file")))
    }
}

fn svg(drawing: &Drawing) -> Result<Vec<u8>, String> {
    let mut text = String::new();
    load_font()?;
    let area = SVGBackend::with_string(&mut text, drawing.size()).into_drawing_area();
    drawing.on(&area).map_err(|error| error.to_string())?;
    drop(area);
    Ok(text.into_bytes())
}

fn png(drawing: &Drawing) -> Result<Vec<u8>, String> {
    let (width, height) = drawing.size();
    let mut pixels = vec![0; 3 * width as usize * height as usize];
    load_font()?;
    let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
    drawing.on(&area).map_err(|error| error.to_string())?;
    drop(area);
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels));
    written.map_err(|error| error.to_string())?;
    Ok(file)
}

fn load_font() -> Result<(), String> {
    register_font(panel::FAMILY, FontStyle::Normal, FONT)
        .map_err(|_| "the bundled font is damaged".to_owned())
}
