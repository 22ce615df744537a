//! A TCP relay between a client and the server that counts what the client says and can cut the line: a witness that sees only what
//! leaves.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A running relay. It ends with the process.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    said_by_client: AtomicU64,
    cut: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Relays to `server` from a free port.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let shared = Arc::new(Shared::default());
        let (server, inner) = (server.to_owned(), Arc::clone(&shared));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                inner.relay(client, &server);
            }
        });
        Self { address, shared }
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Bytes that clients sent so far (TLS records, handshakes included).
    #[must_use]
    pub fn said_by_client(&self) -> u64 {
        self.shared.said_by_client.load(Ordering::SeqCst)
    }

    /// Cuts all connections and refuses new ones, or lets them through again.
    ///
    /// # Panics
    /// When a relay thread panicked.
    pub fn cut(&self, line: Line) {
        self.shared.cut.store(line == Line::Cut, Ordering::SeqCst);
        if line == Line::Cut {
            for stream in self.shared.open.lock().expect("no relay panics").drain(..) {
                // Closed already is as good.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

/// State of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// Nothing passes.
    Cut,
    /// Everything passes.
    Whole,
}

impl Shared {
    fn relay(self: &Arc<Self>, client: TcpStream, server: &str) {
        if self.cut.load(Ordering::SeqCst) {
            return;
        }
        let Ok(server) = TcpStream::connect(server) else { return };
        let (Ok(client_2), Ok(server_2), Ok(client_3)) = (client.try_clone(), server.try_clone(), client.try_clone()) else { return };
        self.open.lock().expect("no relay panics").push(client_3);
        let counter = Arc::clone(self);
        thread::spawn(move || copy(client, server, |n| _ = counter.said_by_client.fetch_add(n, Ordering::SeqCst)));
        thread::spawn(move || copy(server_2, client_2, |_| ()));
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, count: impl Fn(u64)) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        count(n as u64);
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    // The other direction learns it too.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
