//! Places on a map, the ways of what is sent between them, and what fills each of them.

use std::f64::consts::{FRAC_PI_2, TAU};
use std::fmt::Write as _;

use crate::Look;
use crate::coasts::{Part, coasts};
use crate::frame::{Frame, WIDTH, fill, label};

/// Box of the map.
const BOX: (f64, f64, f64, f64) = (60.0, 90.0, 560.0, 430.0);
/// Part of it that a ring takes, where places have no coordinates.
const RING: f64 = 0.38;
/// Degrees around the outermost places, and between two lines.
const MARGIN: f64 = 12.0;
const LINES: f64 = 30.0;
/// Degrees north that are shown where no place is beyond them.
const POLES: (f64, f64) = (-58.0, 75.0);
const DOT: f64 = 8.0;
/// Distance of two corners of a coast, below which one of them is left out.
const COARSE: f64 = 1.0;
/// Grey, and so faint that every colour shows above it.
const LAND: Look = Look { colour: 1, dashes: 0 };
/// Width of the line of the largest rate.
const WIDEST: f64 = 12.0;
/// Of the bars.
const TOP: f64 = 110.0;
const LEFT: f64 = 650.0;
const RIGHT: f64 = WIDTH - 16.0;
const BAR: f64 = 16.0;
const PITCH: f64 = 42.0;
/// Distance at which names of two places would overlap.
const NEAR: f64 = 60.0;
/// Letters of a name.
const NAME: usize = 12;

/// A place with what fills it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Degrees north and east. Where one place has none, all of them are on a ring.
    pub at: Option<(f64, f64)>,
    /// Amounts that fill it, each with the place in whose colour it is.
    pub fill: Vec<(usize, f64)>,
    /// Amount that may be filled, and all that there is.
    pub room: (f64, f64),
    /// Words about it.
    pub note: String,
}

/// Flow from one place to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    /// From one place to the other.
    pub ends: (usize, usize),
    /// Place in whose colour it is.
    pub of: usize,
    /// Its width.
    pub rate: f64,
    /// A strong line, above the faint ones.
    pub is_strong: bool,
}

/// A map of these. `words` say what the lines are, and what the bars beside the map are.
pub fn map(title: &str, words: [&str; 2], places: &[Place], ways: &[Way]) -> String {
    let height = (BOX.3 + 40.0).max(TOP + PITCH * places.len() as f64 + 20.0);
    let mut frame = Frame::page(title, height);
    frame.push(&label((16.0, 50.0), "start", 12, words[0]));
    let at: Option<Vec<(f64, f64)>> = places.iter().map(|place| place.at).collect();
    let at = at.filter(|at| !at.is_empty());
    let (lines, at) = at.map_or_else(|| (String::new(), ring(places.len())), |at| grid(&at));
    frame.push(&lines);
    let widest = ways.iter().map(|way| way.rate).fold(f64::MIN_POSITIVE, f64::max);
    for is_strong in [false, true] {
        for way in ways.iter().filter(|way| way.is_strong == is_strong) {
            if let (Some(from), Some(to)) = (at.get(way.ends.0), at.get(way.ends.1)) {
                frame.push(&drawn(way, *from, *to, widest));
            }
        }
    }
    for (index, (place, (x, y))) in places.iter().zip(&at).enumerate() {
        let fill = fill(Look::of(index));
        frame
            .push(&format!("<circle class=\"{fill}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{DOT}\"/>\n"));
        let (dx, anchor) = if *x > BOX.2 - 80.0 { (-12.0, "end") } else { (12.0, "start") };
        // Where another one is just above, its name would be in the way.
        let is_near =
            |other: &(f64, f64)| (other.0 - x).abs() < NEAR && (1.0..NEAR).contains(&(y - other.1));
        let dy = if at.iter().any(is_near) { 20.0 } else { -10.0 };
        frame.push(&label((x + dx, y + dy), anchor, 13, &short(&place.name)));
    }
    frame.push(&label((RIGHT, TOP - 20.0), "end", 12, words[1]));
    bars(&mut frame, places);
    frame.finish()
}

/// A way bent to its right, so that the two directions lie beside each other.
fn drawn(way: &Way, (x1, y1): (f64, f64), (x2, y2): (f64, f64), widest: f64) -> String {
    let (dx, dy) = (x2 - x1, y2 - y1);
    let (x, y) = (f64::midpoint(x1, x2) - dy * 0.14, f64::midpoint(y1, y2) + dx * 0.14);
    let width = (WIDEST * way.rate / widest).max(0.7);
    let (class, opacity) = if way.is_strong { ("strong", 0.9) } else { ("faint", 0.2) };
    let colour = Look::of(way.of).colour;
    format!(
        "<path class=\"{class} line{colour}\" d=\"M{x1:.1} {y1:.1}Q{x:.1} {y:.1} {x2:.1} {y2:.1}\" \
         stroke-width=\"{width:.1}\" stroke-opacity=\"{opacity}\"/>\n"
    )
}

fn ring(count: usize) -> Vec<(f64, f64)> {
    let (left, top, right, bottom) = BOX;
    let (x, y) = (f64::midpoint(left, right), f64::midpoint(top, bottom));
    let radius = (bottom - top) * RING;
    let place = |index: usize| {
        let angle = TAU * index as f64 / count as f64 - FRAC_PI_2;
        (x + radius * angle.cos(), y + radius * angle.sin())
    };
    (0..count).map(place).collect()
}

/// Coasts, lines of longitude and latitude, and the places between them: in the middle of the map
/// distances are the same in every direction.
fn grid(at: &[(f64, f64)]) -> (String, Vec<(f64, f64)>) {
    let (left, top, right, bottom) = BOX;
    let range = |of: fn(&(f64, f64)) -> f64| {
        let low = at.iter().map(of).fold(f64::INFINITY, f64::min);
        let high = at.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
        (low - MARGIN, high + MARGIN)
    };
    let ((south, north), (west, east)) = (range(|at| at.0), range(|at| at.1));
    // Degrees of longitude are closer together there; far north the map would be a line.
    let tall = 1.0 / f64::midpoint(south, north).to_radians().cos().clamp(0.3, 1.0);
    let scale = ((right - left) / (east - west)).min((bottom - top) / (north - south) / tall);
    // The rest of the height shows more of the Earth, but for the poles.
    let spare = ((bottom - top) / scale / tall - (north - south)) / 2.0;
    let (south, north) =
        ((south - spare).max(POLES.0).min(south), (north + spare).min(POLES.1).max(north));
    let x =
        |degrees: f64| f64::midpoint(left, right) + scale * (degrees - f64::midpoint(west, east));
    let y = |degrees: f64| {
        f64::midpoint(top, bottom) - scale * tall * (degrees - f64::midpoint(south, north))
    };
    let part = Part { south, north, west, east };
    let mut lines = land(part, |(east, north)| (x(east), y(north)));
    let marks = |low: f64, high: f64| {
        let first = (low / LINES).ceil();
        (0_u32..13)
            .map(move |index| (first + f64::from(index)) * LINES)
            .filter(move |at| *at <= high)
    };
    for degrees in marks(west, east) {
        let x = x(degrees);
        let (top, bottom) = (y(north), y(south));
        let _ = writeln!(lines, "<path class=\"mark\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"/>");
        lines += &label((x, bottom + 16.0), "middle", 11, &format!("{degrees}°"));
    }
    for degrees in marks(south, north) {
        let y = y(degrees);
        let (left, right) = (x(west), x(east));
        let _ = writeln!(lines, "<path class=\"mark\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>");
        lines += &label((left - 6.0, y + 4.0), "end", 11, &format!("{degrees}°"));
    }
    (lines, at.iter().map(|(north, east)| (x(*east), y(*north))).collect())
}

/// The land of a part, faint, where `to_page` has it.
fn land(part: Part, to_page: impl Fn((f64, f64)) -> (f64, f64)) -> String {
    let mut outline = String::new();
    for ring in coasts(part) {
        let mut drawn: Option<(f64, f64)> = None;
        for (x, y) in ring.into_iter().map(&to_page) {
            let is_near = |(x0, y0): (f64, f64)| (x - x0).hypot(y - y0) < COARSE;
            if !drawn.is_some_and(is_near) {
                let _ = write!(outline, "{}{x:.1} {y:.1}", if drawn.is_none() { 'M' } else { 'L' });
                drawn = Some((x, y));
            }
        }
        outline.push('Z');
    }
    let fill = fill(LAND);
    format!(
        "<path class=\"land {fill}\" fill-opacity=\"0.1\" fill-rule=\"evenodd\" \
         d=\"{outline}\"/>\n"
    )
}

fn bars(frame: &mut Frame, places: &[Place]) {
    let whole = places.iter().map(|place| place.room.1).fold(f64::MIN_POSITIVE, f64::max);
    let scale = (RIGHT - LEFT) / whole;
    for (index, place) in places.iter().enumerate() {
        let y = TOP + PITCH * index as f64;
        frame.push(&label((LEFT - 10.0, y + BAR - 3.0), "end", 13, &short(&place.name)));
        let room = place.room.1 * scale;
        frame.push(&format!(
            "<rect class=\"room axis\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{room:.1}\" \
             height=\"{BAR}\"/>\n"
        ));
        let mut x = LEFT;
        for (of, amount) in &place.fill {
            let (width, fill) = (amount * scale, fill(Look::of(*of)));
            frame.push(&format!(
                "<rect class=\"{fill}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
                 height=\"{BAR}\"/>\n"
            ));
            x += width;
        }
        let (may, top) = (LEFT + place.room.0 * scale, y - 3.0);
        frame.push(&format!(
            "<path class=\"interval\" d=\"M{may:.1} {top:.1}v{:.1}\"/>\n",
            BAR + 6.0
        ));
        frame.push(&label((LEFT, y + BAR + 13.0), "start", 11, &place.note));
    }
}

/// As much of a name as there is room for.
fn short(name: &str) -> String {
    if name.chars().count() <= NAME {
        return name.to_owned();
    }
    name.chars().take(NAME - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str, at: Option<(f64, f64)>) -> Place {
        let (fill, note) = (vec![(0, 1.0), (1, 2.0)], "3 of 4".to_owned());
        Place { name: name.into(), at, fill, room: (4.0, 5.0), note }
    }

    fn way(ends: (usize, usize), is_strong: bool) -> Way {
        Way { ends, of: 0, rate: 1.0, is_strong }
    }

    #[test]
    fn places_are_where_they_are_on_earth() {
        let places = [place("west", Some((0.0, -60.0))), place("north", Some((60.0, 0.0)))];
        let svg = map("title", ["ways", "bars"], &places, &[way((0, 1), true), way((1, 0), false)]);
        assert!(svg.contains(">-60°</text>") && svg.contains(">60°</text>"), "{svg}");
        let dots: Vec<f64> = svg
            .split("<circle ")
            .skip(1)
            .flat_map(|dot| ["cx=\"", "cy=\""].map(|key| dot.split(key).nth(1)))
            .filter_map(|after| after?.split('"').next()?.parse().ok())
            .collect();
        assert!(dots[0] < dots[2] && dots[1] > dots[3], "{dots:?}");
        assert_eq!(svg.matches("class=\"land ").count(), 1);
        assert_eq!(svg.matches("class=\"strong line0\"").count(), 1);
        assert_eq!(svg.matches("class=\"room axis\"").count(), 2);
    }

    #[test]
    fn places_without_coordinates_are_on_a_ring() {
        let places = [place("a", Some((0.0, 0.0))), place("a name that is long", None)];
        let svg = map("title", ["ways", "bars"], &places, &[way((0, 7), true)]);
        assert!(
            !svg.contains('°')
                && !svg.contains("class=\"land ")
                && !svg.contains("NaN")
                && svg.contains(">a name that…</text>")
        );
        let nothing = map("title", ["ways", "bars"], &[], &[]);
        assert!(nothing.ends_with("</svg>\n") && !nothing.contains("NaN"));
        let one = map("title", ["ways", "bars"], &[place("a", Some((10.0, 10.0)))], &[]);
        assert!(!one.contains("NaN") && !one.contains("inf"));
    }
}
