//! Small sequences by hand: nodes, connections that deliver when told, and the frames between them.

mod bounds;
mod callers;
mod chains;
mod cores;
mod cut_off;
mod decided;
mod dials;
mod failed_replies;
mod faults;
mod flow;
mod grants;
mod items;
mod mesh;
mod names;
mod owners;
mod partings;
mod relay;
mod rights;
mod settlement;
mod shares;
mod strangers;
mod tails;
mod words;
