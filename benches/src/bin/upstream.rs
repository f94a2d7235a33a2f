//! The mock model vendor as a process: one thread, on a free loopback port, with its address on the first line of
//! stdout.
#![allow(clippy::print_stdout, reason = "the address on stdout is this program's interface")]

use tokio::net::TcpSocket;

/// Backlog for thousands of streams opened at once; with the default, connection attempts would wait for a
/// retransmission.
const BACKLOG: u32 = 4096;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    let listener = socket.listen(BACKLOG)?;
    println!("{}", listener.local_addr()?);
    benches::upstream::serve(listener).await
}
