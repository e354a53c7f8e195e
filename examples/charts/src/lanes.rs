//! Lanes over time: how long each of several is busy, and the messages between them. Panels of one
//! picture have one scale of time, so that their lengths compare.

use crate::Look;
use crate::frame::{Frame, WIDTH, fill, label, stroke};

/// Edges of the lanes, and the heights of a panel's title, of a lane and of the legend.
const LEFT: f64 = 110.0;
const RIGHT: f64 = WIDTH - 70.0;
const TITLE: f64 = 34.0;
const LANE: f64 = 30.0;
const LEGEND: f64 = 40.0;

/// Top of the first panel.
const TOP: f64 = 44.0;

/// Looks of what is drawn.
const BUSY: Look = Look { colour: 0, dashes: 0 };
const REQUEST: Look = Look { colour: 2, dashes: 0 };
const REPLY: Look = Look { colour: 3, dashes: 1 };
const CAST: Look = Look { colour: 4, dashes: 2 };

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A full line.
    Request,
    /// A dashed one.
    Reply,
    /// A dotted one: a message that nobody answers.
    Cast,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Reply => "reply",
            Self::Cast => "cast",
        }
    }

    fn look(self) -> Look {
        match self {
            Self::Request => REQUEST,
            Self::Reply => REPLY,
            Self::Cast => CAST,
        }
    }
}

/// A message from one lane to another. Lanes are named by their index, times count from the begin
/// of the panel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Message {
    /// Its kind.
    pub kind: Kind,
    /// Lane that sends it, and when.
    pub left: (usize, f64),
    /// Lane that gets it, and when.
    pub came: (usize, f64),
}

/// Lanes, and what happens in them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// Its title.
    pub title: String,
    /// Names of the lanes, from the top.
    pub lanes: Vec<String>,
    /// For how long a lane is busy: its index, begin and end.
    pub busy: Vec<(usize, f64, f64)>,
    /// Messages between lanes.
    pub messages: Vec<Message>,
    /// Time at which all of it is over.
    pub end: f64,
}

impl Panel {
    fn height(&self) -> f64 {
        TITLE + LANE * self.lanes.len() as f64 + 14.0
    }
}

/// A picture of these panels, one below the other. `unit` is that of all times; `busy` says what
/// the thick lines are.
pub fn lanes(title: &str, unit: &str, busy: &str, panels: &[Panel]) -> String {
    let height = panels.iter().map(Panel::height).sum::<f64>() + TOP + LEGEND;
    let mut frame = Frame::page(title, height);
    let end = panels.iter().map(|panel| panel.end).fold(f64::MIN_POSITIVE, f64::max);
    let mut top = TOP;
    for panel in panels {
        draw(&mut frame, top, panel, |time| LEFT + (RIGHT - LEFT) * time / end, unit);
        top += panel.height();
    }
    let all = panels.iter().flat_map(|panel| &panel.messages);
    let has_casts = all.into_iter().any(|message| message.kind == Kind::Cast);
    let kinds = [Kind::Request, Kind::Reply, Kind::Cast];
    let kinds = kinds.into_iter().filter(|kind| *kind != Kind::Cast || has_casts);
    let names = std::iter::once((None, busy)).chain(kinds.map(|kind| (Some(kind), kind.name())));
    for ((kind, name), index) in names.zip(0_u8..) {
        let left = LEFT + 190.0 * f64::from(index);
        let (from, to) = ((left, top + 14.0), (left + 30.0, top + 14.0));
        frame.push(
            &kind.map_or_else(|| line(BUSY, 8.0, from, to), |kind| arrow(kind.look(), from, to)),
        );
        frame.push(&label((left + 38.0, top + 18.0), "start", 12, name));
    }
    frame.finish()
}

fn draw(frame: &mut Frame, top: f64, panel: &Panel, x: impl Fn(f64) -> f64, unit: &str) {
    let y = |lane: usize| top + TITLE + LANE * (lane as f64 + 0.5);
    frame.push(&label((16.0, top + 16.0), "start", 14, &panel.title));
    for (lane, name) in panel.lanes.iter().enumerate() {
        let y = y(lane);
        frame.push(&format!("<path class=\"mark\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>\n"));
        frame.push(&label((LEFT - 10.0, y + 4.0), "end", 12, name));
    }
    for (lane, from, to) in &panel.busy {
        // One that takes no time is seen, too.
        let (left, right) = (x(*from), x(*to).max(x(*from) + 6.0));
        frame.push(&line(BUSY, 8.0, (left, y(*lane)), (right, y(*lane))));
    }
    for Message { kind, left, came } in &panel.messages {
        let (from, to) = ((x(left.1), y(left.0)), (x(came.1), y(came.0)));
        frame.push(&arrow(kind.look(), from, to));
    }
    let (right, bottom) = (x(panel.end), y(panel.lanes.len()) - LANE / 2.0);
    let over = top + TITLE - 4.0;
    frame.push(&format!("<path class=\"axis\" d=\"M{right:.1} {over:.1}V{bottom:.1}\"/>\n"));
    let text = format!("{} {unit}", panel.end);
    frame.push(&label((right, over - 4.0), "middle", 13, &text));
}

fn line(look: Look, width: f64, from: (f64, f64), to: (f64, f64)) -> String {
    let (stroke, (x1, y1), (x2, y2)) = (stroke(look), from, to);
    format!("<path {stroke} stroke-width=\"{width}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>\n")
}

fn arrow(look: Look, from: (f64, f64), to: (f64, f64)) -> String {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = dx.hypot(dy).max(1.0);
    let (dx, dy) = (dx / length, dy / length);
    let at = |back: f64, side: f64| (to.0 - back * dx - side * dy, to.1 - back * dy + side * dx);
    let (neck, one, other) = (at(8.0, 0.0), at(9.0, 3.5), at(9.0, -3.5));
    let fill = fill(look);
    line(look, 1.8, from, neck)
        + &format!(
            "<path class=\"{fill}\" d=\"M{:.1} {:.1}L{:.1} {:.1}L{:.1} {:.1}Z\"/>\n",
            to.0, to.1, one.0, one.1, other.0, other.1
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_share_a_scale_and_all_of_them_is_drawn() {
        let panel = |end: f64| Panel {
            title: "a < b".into(),
            lanes: vec!["client".into(), "server".into()],
            busy: vec![(1, 1.0, end - 1.0), (0, 2.0, 2.0)],
            messages: vec![
                Message { kind: Kind::Request, left: (0, 0.0), came: (1, 1.0) },
                Message { kind: Kind::Reply, left: (1, end - 1.0), came: (0, end) },
            ],
            end,
        };
        let svg = lanes("title", "ms", "runs", &[panel(4.0), panel(8.0)]);
        assert!(!svg.contains(">cast<"), "there is none");
        assert!(svg.contains("a &lt; b") && svg.contains("4 ms") && svg.contains("8 ms"));
        assert_eq!(svg.matches("stroke-width=\"8\"").count(), 2 * 2 + 1);
        // Its longest panel ends at the right edge, one half as long in the middle.
        assert!(svg.contains(&format!("M{RIGHT:.1} ")));
        assert!(svg.contains(&format!("M{:.1} ", (LEFT + RIGHT) / 2.0)));
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn casts_are_named_where_there_are_some() {
        let cast = Message { kind: Kind::Cast, left: (0, 0.0), came: (1, 1.0) };
        let lanes = ["a", "b"].map(String::from).to_vec();
        let panel = Panel { lanes, messages: vec![cast], end: 1.0, ..Panel::default() };
        let svg = super::lanes("title", "ms", "runs", &[panel]);
        assert!(svg.contains(">cast</text>"));
        assert_eq!(svg.matches("class=\"line4\" stroke-dasharray=\"2 3\"").count(), 2);
    }

    #[test]
    fn nothing_and_no_time_at_all_are_drawn_too() {
        assert!(lanes("title", "ms", "runs", &[]).ends_with("</svg>\n"));
        let svg = lanes("title", "ms", "runs", &[Panel::default()]);
        assert!(svg.contains("0 ms") && !svg.contains("NaN") && !svg.contains("inf"));
    }
}
