//! The ledger on simulated disks: what survives, what is refused, and what damage does to it.

mod crashes;
mod damage;
mod groups;
mod names;
mod refusals;
mod snapshots;
mod support;
