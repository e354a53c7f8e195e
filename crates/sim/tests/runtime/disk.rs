//! The simulated disk: its promises, its faults, and what it finds in programs.

mod contents;
mod crashes;
mod faults;
mod ledger;
mod names;
mod recovery;
mod support;
