//! Peers that misbehave, over raw sockets: each is closed, and nobody else notices.

mod frames;
mod handshake;
mod life;
mod raw;
mod shares;
