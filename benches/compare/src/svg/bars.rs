//! A bench as bars: latency where one operation runs at a time, else the rate.

use std::fmt::Write as _;

use super::panel::{Panel, TITLE_HEIGHT, colour, heading, number};
use crate::bench::Form;
use crate::report::Row;

const BAR_HEIGHT: f64 = 20.0;
/// Left end of the bars, and the length of the longest.
const LEFT: f64 = 200.0;
const LENGTH: f64 = 560.0;

/// All rows of one bench on one runtime; there is at least one.
pub(super) fn panel(rows: &[&Row]) -> Panel {
    let is_rate = rows[0].in_flight > 1;
    let value = |row: &Row| if is_rate { row.per_second } else { row.median_us };
    let unit = if is_rate { "operations a second" } else { "median latency, µs" };
    let most = rows.iter().map(|row| value(row)).fold(f64::MIN_POSITIVE, f64::max);
    let mut body = heading(&format!("{}, {}: {unit}", rows[0].bench, rows[0].runtime));
    for (index, row) in rows.iter().enumerate() {
        let (top, length) = (TITLE_HEIGHT + BAR_HEIGHT * index as f64, LENGTH * value(row) / most);
        let (middle, right) = (top + 13.0, LEFT + length + 6.0);
        let label = format!("{} {}", row.system, row.form.map_or("", Form::name));
        let _ = write!(
            body,
            "<text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>\n\
             <rect class=\"bar\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"16\" \
             fill=\"{}\"/>\n\
             <text x=\"{right:.1}\" y=\"{middle:.1}\">{}</text>\n",
            LEFT - 8.0,
            label.trim_end(),
            colour(row.system),
            number(value(row)),
        );
    }
    Panel { height: TITLE_HEIGHT + BAR_HEIGHT * rows.len() as f64 + 16.0, body }
}
