//! The way to a server: straight, or through an HTTP proxy (`CONNECT`). TLS is spoken through the proxy, which sees who is called, and how much is sent.
//!
//! The environment names the proxy as it does for curl: `HTTPS_PROXY`, else `ALL_PROXY`; `NO_PROXY` lists hosts that are called straight. A loopback
//! address always is.

use std::fmt::Display;
use std::net::IpAddr;

use dp_pvi_protocol::transport::TransportError;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::codegen::Service as _;
use tonic::codegen::http::Uri;

use super::CONNECT;

/// What the environment may say.
const VARIABLES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

const NO: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// A connection, and the proxy that it goes through.
pub(super) struct Way {
    pub(super) stream: TcpStream,
    pub(super) proxy: Option<String>,
}

fn unreachable(what: &str, error: &dyn Display) -> TransportError {
    TransportError::Unreachable(format!("{what}: {error}"))
}

/// The first of these variables that says anything, and what it says.
fn said(variables: &[&'static str]) -> Option<(&'static str, String)> {
    variables.iter().find_map(|name| Some((*name, std::env::var(name).ok()?.trim().to_owned())).filter(|(_, value)| !value.is_empty()))
}

/// Connects to a host.
///
/// # Errors
/// Unreachable; what is said names the proxy where there is one, and never a password.
pub(super) async fn open(host: &str, port: u16) -> Result<Way, TransportError> {
    let no = said(&NO).map_or_else(String::new, |(_, hosts)| hosts);
    match said(&VARIABLES) {
        // As curl has it: all hosts, addresses too.
        Some(_) if no == "*" => straight(host, port).await,
        Some((variable, value)) if !is_loopback(host) => {
            // A site that must go out through its proxy is told that it does not: the library passes by what it cannot read.
            let matcher = Matcher::builder().all(value.clone()).no(no).build();
            if !is_address(&value) || Matcher::builder().all(value).build().intercept(&Uri::from_static("https://example.org")).is_none() {
                return Err(TransportError::Unreachable(format!(
                    "{variable} is no address of a proxy: write http://HOST:PORT, or http://NAME:PASSWORD@HOST:PORT with blanks and special characters as %20 and the like"
                )));
            }
            open_under(&matcher, variable, host, port).await
        }
        _ => straight(host, port).await,
    }
}

/// Whether all readers of an address agree on its host: nothing of a name or password may end it early, and a port is a number.
fn is_address(value: &str) -> bool {
    let rest = value.split_once("://").map_or(value, |(_, rest)| rest);
    let (who, place) = rest.rsplit_once('@').unwrap_or(("", rest));
    let place = place.strip_suffix('/').unwrap_or(place);
    let port = match place.rsplit_once(']') {
        Some((_, rest)) => rest.strip_prefix(':'),
        None => place.split_once(':').map(|(_, port)| port),
    };
    let ends = |text: &str| text.contains(['#', '/', '?', '@', '\\']) || text.contains(char::is_whitespace);
    !ends(who) && !ends(place) && !place.is_empty() && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

async fn straight(host: &str, port: u16) -> Result<Way, TransportError> {
    Ok(Way { stream: TcpStream::connect((host, port)).await.map_err(|e| unreachable("connect", &e))?, proxy: None })
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

async fn open_under(matcher: &Matcher, variable: &str, host: &str, port: u16) -> Result<Way, TransportError> {
    let name = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let target: Uri = format!("https://{name}").parse().map_err(|e| unreachable(&name, &e))?;
    let Some(found) = matcher.intercept(&target) else {
        let straight = TcpStream::connect((host, port)).await;
        let stream =
            straight.map_err(|e| TransportError::Unreachable(format!("connect: {e} (no proxy is used: NO_PROXY names this host)")))?;
        return Ok(Way { stream, proxy: None });
    };
    let uri = found.uri();
    let address = uri.authority().map_or_else(String::new, ToString::to_string);
    if uri.scheme_str() != Some("http") {
        return Err(TransportError::Unreachable(format!(
            "{variable} names a proxy of kind `{}`, and only http:// is spoken to proxies: TLS with the server goes through it in any case",
            uri.scheme_str().unwrap_or_default()
        )));
    }
    let (proxy_host, proxy_port) = (uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned(), uri.port_u16().unwrap_or(80));
    let dial = tower::service_fn(move |_: Uri| {
        let proxy_host = proxy_host.clone();
        async move { TcpStream::connect((proxy_host.as_str(), proxy_port)).await.map(TokioIo::new) }
    });
    let tunnel = Tunnel::new(uri.clone(), dial);
    let mut tunnel = match found.basic_auth() {
        Some(auth) => tunnel.with_auth(auth.clone()),
        None => tunnel,
    };
    let stream = match tokio::time::timeout(CONNECT, tunnel.call(target)).await {
        Ok(answer) => answer,
        Err(_) => {
            let words = format!("the proxy {address} that {variable} names does not answer. Is its address right and the proxy at work?");
            return Err(TransportError::Unreachable(words));
        }
    };
    let stream = stream.map_err(|e| {
        let cause = std::error::Error::source(&e).map_or_else(String::new, |cause| format!(" ({cause})"));
        TransportError::Unreachable(format!(
            "the proxy {address} that {variable} names does not connect to {name}: {e}{cause}. Is the proxy's address right and the proxy at work? If so, ask for {name} to be let through. A proxy that asks for a \
             password gets it by http://NAME:PASSWORD@{address}; one that asks for NTLM or Kerberos needs a helper such as cntlm or px"
        ))
    })?;
    Ok(Way { stream: stream.into_inner(), proxy: Some(address) })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A proxy that answers every request with this, and sends back what it was asked.
    async fn proxy(answer: &'static str) -> (u16, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(head).unwrap()
        });
        (port, asked)
    }

    async fn way(proxy: &str, no: &str, host: &str) -> Result<Way, String> {
        let matcher = Matcher::builder().all(proxy.to_owned()).no(no.to_owned()).build();
        open_under(&matcher, "HTTPS_PROXY", host, 9092).await.map_err(|e| e.to_string())
    }

    #[tokio::test]
    async fn a_proxy_is_asked_for_the_server_by_its_name() {
        let (port, asked) = proxy("HTTP/1.1 200 Connection established\r\n\r\n").await;
        let way = way(&format!("http://site:s%20cret@127.0.0.1:{port}"), "", "fed.example.org").await.unwrap();
        assert_eq!(way.proxy, Some(format!("127.0.0.1:{port}")));
        let asked = asked.await.unwrap();
        assert!(asked.starts_with("CONNECT fed.example.org:9092 HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("Proxy-Authorization: Basic c2l0ZTpzIGNyZXQ="), "{asked}");
    }

    #[tokio::test]
    async fn what_a_proxy_refuses_is_said_without_the_password() {
        for (answer, words) in [
            ("HTTP/1.1 407 Who are you\r\n\r\n", "authorization required"),
            ("HTTP/1.1 403 No\r\n\r\n", "unsuccessful"),
            ("", "end of file"),
        ] {
            let (port, _asked) = proxy(answer).await;
            let error = way(&format!("http://site:secret@127.0.0.1:{port}"), "", "::2").await.err().unwrap();
            assert!(error.contains(words) && error.contains("[::2]:9092") && !error.contains("secret"), "{error}");
        }
    }

    /// An unescaped character of a password must not make a part of it a host, which errors name.
    #[test]
    fn an_address_with_an_unescaped_password_is_none() {
        for right in
            ["http://127.0.0.1:1", "proxy", "proxy:3128/", "http://a:b%23@proxy:1", "http://[::1]:3128", "http://[::1]", "https://a@b"]
        {
            assert!(is_address(right), "{right}");
        }
        for wrong in [
            "http://site:topsec#ret1@proxy:3128",
            "http://site:top/sec@proxy:1",
            "http://site:top?sec@proxy:1",
            "http://site:top@sec@proxy:1",
            "http://site:topsec",
            "http://a b@proxy:1",
            "http://proxy:99999",
            "http://",
            "http://a@",
            "http://site:topsec#ret1",
            "http://proxy:1/path",
        ] {
            assert!(!is_address(wrong), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_kind_of_proxy_that_is_not_spoken_to_is_named() {
        let error = way("socks5://127.0.0.1:1", "", "fed.example.org").await.err().unwrap();
        assert!(error.contains("`socks5`"), "{error}");
    }

    #[tokio::test]
    async fn a_host_that_needs_no_proxy_is_called_straight() {
        let error = way("http://127.0.0.1:1", "127.0.0.9", "127.0.0.9").await.err().unwrap();
        assert!(error.contains("no proxy is used"), "{error}");
        assert!(is_loopback("LOCALHOST") && is_loopback("::1") && !is_loopback("fed.example.org"));
    }
}
