//! Layers: blocks that rest on others, each below all that rest on it.

use crate::Look;
use crate::frame::{Frame, WIDTH, label, stroke};

/// Left edge, and sizes of a block, a row and the legend.
const LEFT: f64 = 16.0;
const BLOCK: (f64, f64) = (148.0, 34.0);
const ROW: f64 = 84.0;
const LEGEND: f64 = 40.0;

/// Top of the first row.
const TOP: f64 = 52.0;

/// Looks of what a block rests on.
const ALWAYS: Look = Look { colour: 2, dashes: 0 };
const SOMETIMES: Look = Look { colour: 4, dashes: 1 };

/// A block, and those that it rests on by their indices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Its name.
    pub name: String,
    /// Those that it always rests on.
    pub on: Vec<usize>,
    /// Those that it rests on where that is asked for.
    pub sometimes_on: Vec<usize>,
}

/// A picture of these blocks. What a block rests on through another one has no line of its own.
pub fn layers(title: &str, sometimes: &str, blocks: &[Block]) -> String {
    let ranks = ranks(blocks);
    let count = ranks.iter().max().map_or(0, |most| most + 1);
    let bottom = TOP + ROW * count as f64;
    let mut frame = Frame::page(title, bottom + LEGEND - (ROW - BLOCK.1) + 14.0);
    let places = places(&ranks, count);
    for (index, block) in blocks.iter().enumerate() {
        let on = block.on.iter().map(|to| (*to, ALWAYS));
        for (to, look) in on.chain(block.sometimes_on.iter().map(|to| (*to, SOMETIMES))) {
            let is_below = ranks.get(to).is_some_and(|rank| *rank < ranks[index]);
            let through = |other| other != to && reaches(blocks, other, to, look);
            if is_below && !below(block, look).any(through) {
                frame.push(&line(look, places[index], places[to]));
            }
        }
    }
    for (block, (x, y)) in blocks.iter().zip(&places) {
        let (width, height) = BLOCK;
        frame.push(&format!(
            "<rect class=\"page\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width}\" \
             height=\"{height}\"/>\n\
             <rect class=\"line1\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width}\" height=\"{height}\" \
             rx=\"4\"/>\n"
        ));
        frame.push(&label((x + width / 2.0, y + 21.5), "middle", 13, &block.name));
    }
    let y = bottom - (ROW - BLOCK.1) + LEGEND;
    for (left, look, name) in [(LEFT, ALWAYS, "depends on"), (LEFT + 190.0, SOMETIMES, sometimes)] {
        let stroke = stroke(look);
        frame.push(&format!("<path {stroke} stroke-width=\"1.5\" d=\"M{left} {y:.1}h30\"/>\n"));
        frame.push(&label((left + 38.0, y + 4.0), "start", 12, name));
    }
    frame.finish()
}

/// Height of each block: above all that it rests on. Blocks that rest on each other end somewhere.
fn ranks(blocks: &[Block]) -> Vec<usize> {
    let mut ranks = vec![0; blocks.len()];
    for _ in blocks {
        for (index, block) in blocks.iter().enumerate() {
            let others = below(block, SOMETIMES).filter(|to| *to != index);
            let below = others.filter_map(|to| ranks.get(to));
            ranks[index] = below.max().map_or(0, |most| (most + 1).min(blocks.len() - 1));
        }
    }
    ranks
}

/// Places of the blocks: each row is spread over the width, the highest one at the top.
fn places(ranks: &[usize], count: usize) -> Vec<(f64, f64)> {
    let of = |rank: usize| ranks.iter().filter(move |one| **one == rank).count() as f64;
    let place = |(index, rank): (usize, &usize)| {
        let before = ranks[..index].iter().filter(|one| *one == rank).count() as f64;
        let pitch = (WIDTH - 2.0 * LEFT) / of(*rank);
        let x = LEFT + pitch * (before + 0.5) - BLOCK.0 / 2.0;
        (x, TOP + ROW * (count - 1 - rank) as f64)
    };
    ranks.iter().enumerate().map(place).collect()
}

/// Those that a block rests on always, or at all.
fn below(block: &Block, look: Look) -> impl Iterator<Item = usize> {
    let sometimes = block.sometimes_on.iter().filter(move |_| look == SOMETIMES);
    block.on.iter().chain(sometimes).copied()
}

/// True where one block rests on another through whatever lies between, always or at all.
fn reaches(blocks: &[Block], from: usize, to: usize, look: Look) -> bool {
    let (mut seen, mut next) = (vec![false; blocks.len()], vec![from]);
    while let Some(index) = next.pop() {
        let Some(block) = blocks.get(index).filter(|_| !std::mem::replace(&mut seen[index], true))
        else {
            continue;
        };
        if below(block, look).any(|one| one == to) {
            return true;
        }
        next.extend(below(block, look));
    }
    false
}

fn line(look: Look, from: (f64, f64), to: (f64, f64)) -> String {
    let half = BLOCK.0 / 2.0;
    let (x1, y1, x2, y2) = (from.0 + half, from.1 + BLOCK.1, to.0 + half, to.1);
    let middle = f64::midpoint(y1, y2);
    let stroke = stroke(look);
    format!(
        "<path {stroke} stroke-width=\"1.5\" \
         d=\"M{x1:.1} {y1:.1}C{x1:.1} {middle:.1} {x2:.1} {middle:.1} {x2:.1} {y2:.1}\"/>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(name: &str, on: &[usize], sometimes_on: &[usize]) -> Block {
        Block { name: name.into(), on: on.to_vec(), sometimes_on: sometimes_on.to_vec() }
    }

    #[test]
    fn what_is_implied_by_another_line_is_not_drawn() {
        let blocks = [
            block("top", &[1, 2, 4], &[3]),
            block("a < b", &[2], &[4]),
            block("c", &[], &[]),
            block("d", &[], &[]),
            block("e", &[], &[]),
        ];
        assert_eq!(ranks(&blocks), [2, 1, 0, 0, 0]);
        let svg = layers("title", "with a feature", &blocks);
        // From the top to `a` and `e`, from `a` to `c`, and a sample. That `a` sometimes rests on
        // `e` does not say that the top always does.
        assert_eq!(svg.matches("class=\"line2\" stroke-dasharray").count(), 4);
        // To `d`, from `a` to `e`, and a sample.
        assert_eq!(svg.matches("class=\"line4\" stroke-dasharray").count(), 3);
        assert_eq!(svg.matches("class=\"line1\" x=").count(), 5);
        assert!(svg.contains("a &lt; b") && svg.contains("with a feature"));
    }

    #[test]
    fn circles_strangers_and_nothing_are_drawn_too() {
        let circle = [block("a", &[1], &[]), block("b", &[0, 1, 7], &[])];
        let svg = layers("title", "x", &circle);
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"));
        assert!(layers("title", "x", &[]).ends_with("</svg>\n"));
    }
}
