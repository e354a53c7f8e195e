//! The generator: what it writes, what its settings change, and its errors; in one program that is
//! linked once.

mod errors;
mod golden;
mod settings;
