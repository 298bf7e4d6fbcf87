//! A backend on a thread of its own: answers, slow downloads, WebSockets that echo.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// Pieces of a slow download, and the pause before each.
pub const PIECES: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);
pub const PIECE: usize = 1000;

/// Serves for as long as the test runs.
pub fn start() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
    });
    address
}

/// Ends with the connection, whichever side closes it.
async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    loop {
        let Some(head) = read_head(&mut stream).await? else { return Ok(()) };
        if head.to_ascii_lowercase().contains("upgrade: websocket") {
            stream
                .write_all(
                    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
                )
                .await?;
            return echo(stream).await;
        }
        if head.starts_with("GET /slow ") {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
            for _ in 0..PIECES {
                sleep(PAUSE).await;
                let piece = "x".repeat(PIECE);
                stream.write_all(format!("{PIECE:x}\r\n{piece}\r\n").as_bytes()).await?;
            }
            stream.write_all(b"0\r\n\r\n").await?;
            continue;
        }
        if head.starts_with("GET /wait ") {
            sleep(Duration::from_millis(200)).await;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await?;
    }
}

async fn read_head(stream: &mut TcpStream) -> std::io::Result<Option<String>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).await? == 0 {
            return Ok(None);
        }
        head.push(byte[0]);
    }
    Ok(Some(String::from_utf8_lossy(&head).into_owned()))
}

async fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n]).await?,
        }
    }
}
