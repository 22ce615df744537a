//! What the database's server may send: messages of bounded length, and no question for a password in the clear where the line is not encrypted.
//!
//! The protocol library reads a message whole before it looks at it. So its length is looked at here, while it comes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// Longest message: a row with all its cells is one.
pub(super) const LONGEST: u32 = 1 << 26;
/// Types of messages that come unasked, and how many bytes of them a connection may bring.
const UNASKED: [u8; 3] = *b"SNA";
const MOST_UNASKED: u64 = 1 << 20;
/// Type of the message that asks for a login.
const AUTHENTICATION: u8 = b'R';
/// It asks for the password itself, or for its MD5 with a salt, which is as good as the password to anyone who can try many.
const IN_THE_CLEAR: [[u8; 4]; 2] = [[0, 0, 0, 3], [0, 0, 0, 5]];

/// A stream of messages from a server.
pub(super) struct Frames<S> {
    stream: S,
    watch: Watch,
}

/// Follows the messages: a byte of type, four of length, the rest.
struct Watch {
    /// Whether passwords in the clear are refused.
    clear: bool,
    head: [u8; 9],
    have: usize,
    rest: u32,
    /// Bytes of messages that no one asked for: settings, notices, notifications. The protocol library keeps what they say.
    unasked: u64,
}

impl<S> Frames<S> {
    /// Over an encrypted stream (`encrypted`), or one on this machine.
    pub(super) fn new(stream: S, encrypted: bool) -> Self {
        Self { stream, watch: Watch { clear: !encrypted, head: [0; 9], have: 0, rest: 0, unasked: 0 } }
    }
}

impl Watch {
    fn see(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some((first, others)) = bytes.split_first() {
            if self.rest > 0 {
                let passed = bytes.len().min(self.rest as usize);
                // It is at most `rest`.
                self.rest -= u32::try_from(passed).unwrap_or(self.rest);
                bytes = bytes.get(passed..).unwrap_or_default();
                continue;
            }
            if let Some(place) = self.head.get_mut(self.have) {
                *place = *first;
            }
            self.have += 1;
            bytes = others;
            if self.have >= 5 {
                self.head()?;
            }
        }
        Ok(())
    }

    /// After the head of a message, which for a login has the kind of it, too.
    fn head(&mut self) -> io::Result<()> {
        let [kind, a, b, c, d, login @ ..] = self.head;
        // The length counts itself.
        let length = u32::from_be_bytes([a, b, c, d]);
        if !(4..=LONGEST).contains(&length) {
            return Err(io::Error::other(format!(
                "the server sends a message of {length} bytes, and at most {LONGEST} are taken: is a cell that long?"
            )));
        }
        if UNASKED.contains(&kind) && self.have == 5 {
            self.unasked += u64::from(length);
            if self.unasked > MOST_UNASKED {
                return Err(io::Error::other("the server sends more notices and settings than anybody reads"));
            }
        }
        let whole = if kind == AUTHENTICATION && length >= 8 { 9 } else { 5 };
        if self.have < whole {
            return Ok(());
        }
        if whole == 9 && self.clear && IN_THE_CLEAR.contains(&login) {
            return Err(io::Error::other(
                "the server asks for the password in the clear over a line that is not encrypted: set scram-sha-256 in its pg_hba.conf, or use TLS",
            ));
        }
        // `whole` is 5 or 9, and the length at least 4 or 8.
        self.rest = length - if whole == 9 { 8 } else { 4 };
        self.have = 0;
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Frames<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let this = &mut *self;
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if let Poll::Ready(Ok(())) = read {
            this.watch.see(buffer.filled().get(before..).unwrap_or_default())?;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Frames<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: TlsStream + Unpin> TlsStream for Frames<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.stream.channel_binding()
    }
}

/// Encrypts as `T` does, and watches what comes out.
pub(super) struct Encrypted<T>(pub(super) T);

impl<S, T: MakeTlsConnect<S>> MakeTlsConnect<S> for Encrypted<T>
where
    T::TlsConnect: Send + 'static,
    <T::TlsConnect as TlsConnect<S>>::Future: Send + 'static,
    <T::TlsConnect as TlsConnect<S>>::Error: 'static,
    T::Stream: 'static,
{
    type Stream = Frames<T::Stream>;
    type TlsConnect = Encrypted<T::TlsConnect>;
    type Error = T::Error;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Self::TlsConnect, Self::Error> {
        self.0.make_tls_connect(domain).map(Encrypted)
    }
}

impl<S, T: TlsConnect<S>> TlsConnect<S> for Encrypted<T>
where
    T::Future: Send + 'static,
    T::Error: 'static,
    T::Stream: 'static,
{
    type Stream = Frames<T::Stream>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, Self::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connecting = self.0.connect(stream);
        Box::pin(async move { connecting.await.map(|stream| Frames::new(stream, true)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(clear: bool) -> Watch {
        Frames::new((), !clear).watch
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&u32::try_from(body.len() + 4).unwrap().to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn messages_pass_in_pieces_of_any_length() {
        let all: Vec<u8> = [message(b'R', &[0, 0, 0, 0]), message(b'Z', b"I"), message(b'D', &[7; 1000]), message(b'1', &[])].concat();
        for piece in 1..40 {
            let mut watch = watch(true);
            all.chunks(piece).for_each(|piece| watch.see(piece).unwrap());
            assert_eq!((watch.have, watch.rest), (0, 0), "pieces of {piece}");
        }
    }

    #[test]
    fn a_message_that_is_too_long_or_has_no_length_is_refused_at_its_head() {
        for length in [0, 3, LONGEST + 1, u32::MAX] {
            let head = [&[b'D'][..], &length.to_be_bytes()].concat();
            assert!(watch(false).see(&head).is_err(), "{length}");
        }
        let head = [&[b'D'][..], &LONGEST.to_be_bytes()].concat();
        assert!(watch(false).see(&head).is_ok());
    }

    #[test]
    fn notices_without_end_are_refused() {
        let mut watch = watch(false);
        let notice = message(b'N', &[7; 1 << 10]);
        assert!((0..1000).all(|_| watch.see(&notice).is_ok()));
        assert!((0..100).any(|_| watch.see(&notice).is_err()));
    }

    #[test]
    fn a_password_is_not_sent_in_the_clear() {
        for (code, refused) in [(0, false), (3, true), (5, true), (10, false)] {
            let login = message(b'R', &[0, 0, 0, code, 1, 2, 3, 4]);
            assert_eq!(watch(true).see(&login).is_err(), refused, "{code}");
            assert!(watch(false).see(&login).is_ok(), "{code}");
        }
    }
}
