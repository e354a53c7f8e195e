//! Coasts of the Earth, cut to what a map shows.

/// One ring a line, behind lines that say where they are from.
const COASTS: &str = include_str!("coasts.txt");

/// Part of the Earth between two parallels and two meridians, in degrees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) south: f64,
    pub(crate) north: f64,
    pub(crate) west: f64,
    pub(crate) east: f64,
}

/// Rings of corners, in degrees east and north, around land within a part. A lake's is like any
/// other: inside of an odd number of rings is land. A map that goes beyond the antimeridian has
/// what is there, too.
pub(crate) fn coasts(part: Part) -> Vec<Vec<(f64, f64)>> {
    let rings = COASTS.lines().filter(|line| !line.starts_with('#')).map(ring);
    let turned = rings.flat_map(|ring| {
        [-360.0, 0.0, 360.0]
            .map(|by| ring.iter().map(|(east, north)| (east + by, *north)).collect::<Vec<_>>())
    });
    turned.map(|ring| part.cut(ring)).filter(|ring| ring.len() > 2).collect()
}

fn ring(line: &str) -> Vec<(f64, f64)> {
    let corner = |corner: &str| {
        let (east, north) = corner.split_once(',')?;
        Some((east.parse::<f64>().ok()? / 10.0, north.parse::<f64>().ok()? / 10.0))
    };
    line.split(' ').filter_map(corner).collect()
}

impl Part {
    /// The rest of a ring within each of the four sides, by the method of Sutherland and
    /// Hodgman: a ring that leaves a side and comes back goes along it.
    fn cut(self, ring: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
        let east = |(east, _): (f64, f64)| east;
        let north = |(_, north): (f64, f64)| north;
        let ring = beyond(&ring, |at| east(at) - self.west);
        let ring = beyond(&ring, |at| self.east - east(at));
        let ring = beyond(&ring, |at| north(at) - self.south);
        beyond(&ring, |at| self.north - north(at))
    }
}

/// The part of a ring where `inside`, which is linear, is not below 0.
fn beyond(ring: &[(f64, f64)], inside: impl Fn((f64, f64)) -> f64) -> Vec<(f64, f64)> {
    let mut kept = Vec::with_capacity(ring.len());
    let Some(mut before) = ring.last().copied() else { return kept };
    for &at in ring {
        let (was, is) = (inside(before), inside(at));
        if (was < 0.0) != (is < 0.0) {
            let share = was / (was - is);
            let between = |from: f64, to: f64| from + share * (to - from);
            kept.push((between(before.0, at.0), between(before.1, at.1)));
        }
        if is >= 0.0 {
            kept.push(at);
        }
        before = at;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARTH: Part = Part { south: -90.0, north: 90.0, west: -180.0, east: 180.0 };

    /// True when a point is within an odd number of rings.
    fn is_land(rings: &[Vec<(f64, f64)>], north: f64, east: f64) -> bool {
        let crossings = rings.iter().flat_map(|ring| {
            ring.iter().zip(ring.iter().cycle().skip(1)).filter(|((x1, y1), (x2, y2))| {
                (*y1 > north) != (*y2 > north) && east < x1 + (north - y1) / (y2 - y1) * (x2 - x1)
            })
        });
        crossings.count() % 2 == 1
    }

    #[test]
    fn cities_far_from_the_sea_are_on_land_and_oceans_are_not() {
        let rings = coasts(EARTH);
        for (north, east) in [(39.0, -105.0), (48.0, 16.0), (55.8, 37.6), (-23.7, 133.9)] {
            assert!(is_land(&rings, north, east), "{north} {east}");
        }
        for (north, east) in [(45.0, -30.0), (0.0, -140.0), (42.0, 51.0), (-20.0, 80.0)] {
            assert!(!is_land(&rings, north, east), "{north} {east}");
        }
    }

    #[test]
    fn every_line_of_the_file_is_a_ring_and_all_of_it_is_on_earth() {
        let lines = COASTS.lines().filter(|line| !line.starts_with('#'));
        for line in lines {
            let ring = ring(line);
            assert_eq!(ring.len(), line.split(' ').count(), "{line}");
            assert!(ring.len() > 3, "{line}");
            let is_there = |(east, north): &(f64, f64)| east.abs() <= 360.0 && north.abs() <= 90.0;
            assert!(ring.iter().all(is_there), "{line}");
        }
    }

    #[test]
    fn nothing_is_left_outside_and_nothing_is_lost_inside() {
        let part = Part { south: 30.0, north: 60.0, west: -20.0, east: 30.0 };
        let (all, cut) = (coasts(EARTH), coasts(part));
        let is_within = |(east, north): &(f64, f64)| {
            (-20.001..=30.001).contains(east) && (29.999..=60.001).contains(north)
        };
        assert!(cut.iter().flatten().all(is_within));
        for step in 0..50 {
            let (north, east) = (30.3 + 0.59 * f64::from(step), -19.7 + 0.97 * f64::from(step));
            assert_eq!(is_land(&cut, north, east), is_land(&all, north, east), "{north} {east}");
        }
    }

    #[test]
    fn beyond_the_antimeridian_the_other_side_goes_on() {
        let rings = coasts(Part { south: 50.0, north: 75.0, west: 150.0, east: 220.0 });
        // Chukotka, and Alaska.
        assert!(is_land(&rings, 67.0, 178.0) && is_land(&rings, 65.0, 205.0));
        assert!(coasts(Part { south: 40.0, north: 45.0, west: -35.0, east: -30.0 }).is_empty());
    }
}
