//! The other end of the line in `socket_sink.rs`, when nobody else plays it.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::{TcpListener, TcpStream};

/// Reads lines, prints them and confirms them. Hangs up behind the third line of the first connection, and takes the next.
///
/// # Errors
/// What is wrong with a connection.
pub async fn play_peer(listener: TcpListener) -> io::Result<()> {
    let first = read_lines(listener.accept().await?.0, 3).await?;
    println!("peer: hangs up");
    drop(first);
    loop {
        read_lines(listener.accept().await?.0, u32::MAX).await?;
    }
}

/// Returns the connection, which is still open.
async fn read_lines(connection: TcpStream, most: u32) -> io::Result<BufStream<TcpStream>> {
    let mut stream = BufStream::new(connection);
    let mut line = String::new();
    for _ in 0..most {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            break;
        }
        // The time of the write differs from run to run.
        println!("peer: {}", line.split(" now=").next().unwrap_or_default().trim_end());
        if line == "confirm\n" {
            stream.write_all(b"ok\n").await?;
            stream.flush().await?;
        }
    }
    Ok(stream)
}
