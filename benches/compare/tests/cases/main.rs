//! The cases by count, the servers that they need, and what pages say of them; in one program
//! that is linked once.

mod picture;
mod processes;
mod readme;
mod smoke;
