//! Charts as SVG, in one style: lines and bars of measurements, with intervals, lanes over time,
//! layers of things that rest on each other, and maps of what is sent between places.
//!
//! ```
//! use charts::{Axis, Point, Series, lines};
//!
//! let acceptors = |count: f64, ms: f64| Point::new(count, ms).within(0.1);
//! let points = vec![acceptors(3.0, 1.2), acceptors(5.0, 1.5), acceptors(7.0, 1.9)];
//! let series = [Series::new("ram", points)];
//! let axes = [Axis::linear("acceptors"), Axis::linear("milliseconds")];
//! let svg = lines("Time until a value is chosen", axes, &series);
//! assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
//! ```
//! A chart is a file of its own without a script. Its colours follow the page it is on: one set is
//! for light pages, the other for dark ones. Series are told apart by colour and, where there are
//! more of them or the caller says so, by dashes.
//!
//! Whatever is measured can be drawn. A value that is not a number is left out, and so is one that
//! a logarithmic axis does not have; without any value the chart says so.

#![forbid(unsafe_code)]

mod bars;
mod coasts;
mod frame;
mod lanes;
mod layers;
mod lines;
mod map;
mod ranks;
mod scale;
mod stack;

pub use self::bars::{Bar, Bars, bars};
pub use self::frame::{escaped, variables};
pub use self::lanes::{Kind, Message, Panel, lanes};
pub use self::layers::{Block, layers};
pub use self::lines::{Point, Series, by_name, lines};
pub use self::map::{Place, Way, map};
pub use self::ranks::{Rank, ranks};
pub use self::scale::Axis;
pub use self::stack::stack;

/// Look of a series: one of six colours, and one of four kinds of dashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Index of its colour; beyond the last it begins again.
    pub colour: usize,
    /// Index of its dashes; 0 is a full line.
    pub dashes: usize,
}

impl Look {
    /// Look of the series of this index, where the caller does not say: first all colours, then
    /// all with dashes.
    fn of(index: usize) -> Self {
        Self { colour: index % frame::COLOURS.len(), dashes: index / frame::COLOURS.len() }
    }
}
