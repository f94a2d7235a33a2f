//! The reference of the relay benchmark: a plain pass-through proxy with hyper and hyper-util.
//!
//! `bare_proxy HOST:PORT` relays every request to that address, and the response body as it arrives, on a free
//! loopback port. It writes its own address as the first line of stdout. Two worker threads; `TCP_NODELAY` and
//! keep-alive on both sides. It uses the allocator of `agentd`, so that a ratio does not compare allocators.
#![allow(clippy::print_stdout, reason = "the address on stdout is this program's interface")]

use std::{convert::Infallible, io};

use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, combinators::BoxBody};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::net::{TcpListener, TcpStream};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

type Upstream = Client<HttpConnector, Incoming>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> io::Result<()> {
    let authority = std::env::args().nth(1).ok_or_else(|| io::Error::other("usage: bare_proxy HOST:PORT"))?;
    let host = HeaderValue::from_str(&authority).map_err(io::Error::other)?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Upstream =
        Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);

    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(serve(stream, client.clone(), host.clone()));
    }
}

async fn serve(stream: TcpStream, client: Upstream, host: HeaderValue) {
    let service = service_fn(move |request| {
        let (client, host) = (client.clone(), host.clone());
        async move { Ok::<_, Infallible>(relay(request, &client, &host).await) }
    });
    // A client that disconnects in the middle of a stream is an expected error.
    let _ =
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
}

async fn relay(
    mut request: Request<Incoming>,
    client: &Upstream,
    host: &HeaderValue,
) -> Response<BoxBody<Bytes, hyper::Error>> {
    if redirect(&mut request, host).is_err() {
        return status(StatusCode::BAD_REQUEST);
    }
    match client.request(request).await {
        Ok(mut response) => {
            // Hop-by-hop headers, which must not be forwarded.
            response.headers_mut().remove(header::CONNECTION);
            response.headers_mut().remove(header::TRANSFER_ENCODING);
            response.map(BodyExt::boxed)
        }
        Err(_) => status(StatusCode::BAD_GATEWAY),
    }
}

fn redirect(request: &mut Request<Incoming>, host: &HeaderValue) -> Result<(), http::Error> {
    let path = request.uri().path_and_query().cloned();
    let mut uri = Uri::builder().scheme("http").authority(host.as_bytes());
    if let Some(path) = path {
        uri = uri.path_and_query(path);
    }
    *request.uri_mut() = uri.build()?;
    request.headers_mut().insert(header::HOST, host.clone());
    request.headers_mut().remove(header::CONNECTION);
    Ok(())
}

fn status(code: StatusCode) -> Response<BoxBody<Bytes, hyper::Error>> {
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed());
    *response.status_mut() = code;
    response
}
