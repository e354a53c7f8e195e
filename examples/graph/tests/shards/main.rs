//! Shards in virtual time and as processes, the program, and the official data; in one program that
//! is linked once.

mod command_line;
mod hosts;
mod official_data;
mod processes;
mod virtual_time;
