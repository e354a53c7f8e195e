//! `tcp-blocking`: frames over a blocking stream of the standard library, a thread at each end.
//! It shows the cost of a round trip without any runtime.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Bytes, BytesMut};

use super::frames::{HEADER_BYTES, first_frame, put_frame, room};
use crate::bencher::{Bencher, Sample};
use crate::control::Control;
use crate::drive::Pipe;

/// Answers every connection on a thread of its own.
pub(crate) async fn serve(control: Control) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    control.listening(&listener.local_addr()?.to_string())?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // It ends when the client does, however that looks from here.
            thread::spawn(move || answer(stream));
        }
    });
    std::future::pending().await
}

fn answer(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut input = Input::default();
    loop {
        input.read(&mut stream)?;
        let mut echoed = 0;
        while let Some((len, ..)) = first_frame(&input.filled()[echoed..]) {
            echoed += len;
        }
        stream.write_all(&input.filled()[..echoed])?;
        input.consume(echoed);
    }
}

/// Bytes that were read and not used yet.
#[derive(Debug, Default)]
struct Input {
    buffer: Vec<u8>,
    filled: usize,
}

impl Input {
    fn filled(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    fn read(&mut self, stream: &mut TcpStream) -> Result<()> {
        let wanted = self.filled + room(self.filled());
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        let read = stream.read(&mut self.buffer[self.filled..])?;
        if read == 0 {
            bail!("the other end has closed the connection");
        }
        self.filled += read;
        Ok(())
    }

    fn consume(&mut self, bytes: usize) {
        self.buffer.copy_within(bytes..self.filled, 0);
        self.filled -= bytes;
    }
}

/// Keeps one connection busy.
pub(crate) async fn measure(bencher: Bencher<'_>) -> Result<Sample> {
    let stream = TcpStream::connect(&bencher.servers.addresses()[0])?;
    stream.set_nodelay(true)?;
    let payload = bencher.work.payload.clone();
    let (out, input) = (BytesMut::new(), Input::default());
    // Timers of the runtime do not run while its thread waits, and a timeout of the socket would
    // cost every operation a timer of the kernel.
    let (watched, longest) = (stream.try_clone()?, bencher.effort.longest());
    let (_measuring, over) = mpsc::channel::<()>();
    thread::spawn(move || {
        if over.recv_timeout(longest) == Err(RecvTimeoutError::Timeout) {
            let _ = watched.shutdown(Shutdown::Both); // It fails when the server has ended.
        }
    });
    bencher.windowed(BlockingPipe { stream, payload, out, input }).await
}

/// Never waits for the runtime, but in the system calls themselves: nothing else runs on its
/// thread.
#[derive(Debug)]
struct BlockingPipe {
    stream: TcpStream,
    payload: Bytes,
    out: BytesMut,
    input: Input,
}

impl Pipe for BlockingPipe {
    async fn send(&mut self, ids: &[u64]) -> Result<()> {
        self.out.clear();
        for id in ids {
            put_frame(&mut self.out, 0, *id, &self.payload);
        }
        self.stream.write_all(&self.out).context("cannot write")
    }

    async fn receive(&mut self, ids: &mut Vec<u64>) -> Result<()> {
        while ids.is_empty() {
            self.input.read(&mut self.stream)?;
            let mut taken = 0;
            while let Some((len, _, id)) = first_frame(&self.input.filled()[taken..]) {
                ensure!(len == HEADER_BYTES + self.payload.len(), "an answer of {len} bytes");
                taken += len;
                ids.push(id);
            }
            self.input.consume(taken);
        }
        Ok(())
    }
}
