//! `tcp-tokio`: frames over a tokio TCP stream, one task at each end.

use anyhow::Result;
use tokio::net::{TcpListener, TcpStream};

use super::frames::{FramePipe, answer};
use crate::bench::{Bench, ITEMS};
use crate::bencher::{Bencher, Sample};
use crate::control::Control;

/// Answers every connection.
pub(crate) async fn serve(control: Control) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    control.listening(&listener.local_addr()?.to_string())?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let (input, output) = stream.split();
            // It ends when the client does, however that looks from here.
            let _ = answer(input, output).await;
        });
    }
}

/// Keeps one connection busy.
pub(crate) async fn measure(bencher: Bencher<'_>) -> Result<Sample> {
    let stream = TcpStream::connect(&bencher.servers.addresses()[0]).await?;
    stream.set_nodelay(true)?;
    let (input, output) = stream.into_split();
    let items = if bencher.work.bench == Bench::StreamItems { ITEMS } else { 0 };
    let pipe = FramePipe::new(input, output, bencher.work.payload.clone(), items);
    bencher.windowed(pipe).await
}
