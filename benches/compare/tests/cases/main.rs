//! The cases by count, the servers that they need, and the picture of their figures; in one program
//! that is linked once.

mod picture;
mod processes;
mod smoke;
