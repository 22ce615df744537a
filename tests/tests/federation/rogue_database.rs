//! A database's server that is silent, endless, or asks for the password in the clear: the client ends with a sentence, and in time.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use dp_pvi_client::config::{Config, Database};
use dp_pvi_client::database::write_rows;
use dp_pvi_tests::place::root;

/// A message of the server: type and body.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

/// One row of one text.
fn row(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap();
    message(b'D', &[&[0, 1][..], &length.to_be_bytes(), text.as_bytes()].concat())
}

fn column() -> Vec<u8> {
    // One column `c` of type text.
    message(b'T', &[&[0, 1][..], b"c\0", &[0; 4], &[0; 2], &25_u32.to_be_bytes(), &[0xff, 0xff], &[0xff; 4], &[0; 2]].concat())
}

fn done() -> Vec<u8> {
    [message(b'C', b"SELECT 1\0"), message(b'Z', b"T")].concat()
}

/// Reads the message that begins a connection, and lets the client in.
fn let_in(stream: &mut TcpStream) {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut rest = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut rest).unwrap();
    stream.write_all(&[message(b'R', &[0; 4]), message(b'Z', b"I")].concat()).unwrap();
}

/// The text of the next question.
fn question(stream: &mut TcpStream) -> String {
    let mut head = [0; 5];
    stream.read_exact(&mut head).unwrap();
    let mut text = vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
    stream.read_exact(&mut text).unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

/// What the client says of a server that behaves so.
fn said(server: impl FnOnce(&mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let played = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        server(&mut stream);
        // Silent until the client goes.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cohort.toml"), "[persons]\ntable = \"p\"\nkey = \"id\"\n[[columns]]\nname = \"x\"\nvalue = \"x\"\n")
        .unwrap();
    let config = std::fs::read_to_string(root().join("deploy/omop/client.toml")).unwrap();
    let section =
        format!("url = \"postgresql://reader@localhost:{port}/db\"\nrecords = \"cohort.toml\"\ntls = \"off\"\nanswer_seconds = 1\n");
    let config = format!("{}[database]\n{section}", config.rsplit_once("[database]").unwrap().0);
    let database: Database = Config::parse(&config, folder.path(), []).unwrap().data.database.unwrap();
    let error = write_rows(&database, Some("id"), &mut tempfile::tempfile().unwrap()).unwrap_err();
    played.join().unwrap();
    assert_eq!(error.exit_code(), 12, "{error}");
    error.to_string()
}

#[test]
fn a_server_that_says_nothing_is_left() {
    assert!(said(|_| ()).contains("has not let this program in within 1 seconds"));
    let error = said(let_in);
    assert!(error.contains("has not answered a question") && error.contains("answer_seconds"), "{error}");
}

#[test]
fn a_server_that_trickles_rows_is_left() {
    let error = said(|stream| {
        let_in(stream);
        for _ in ["BEGIN and SET", "LOCK"] {
            question(stream);
            stream.write_all(&[message(b'C', b"DONE\0"), message(b'Z', b"T")].concat()).unwrap();
        }
        assert!(question(stream).contains("server_encoding"));
        stream.write_all(&column()).unwrap();
        while stream.write_all(&row("UTF8")).is_ok() {
            thread::sleep(std::time::Duration::from_millis(300));
        }
    });
    assert!(error.contains("has not answered a question"), "{error}");
}

#[test]
fn a_server_that_sends_more_than_was_asked_for_is_left() {
    let error = said(|stream| {
        let_in(stream);
        for _ in ["BEGIN and SET", "LOCK"] {
            question(stream);
            stream.write_all(&[message(b'C', b"DONE\0"), message(b'Z', b"T")].concat()).unwrap();
        }
        question(stream);
        stream.write_all(&[column(), row("UTF8"), done()].concat()).unwrap();
        question(stream);
        stream.write_all(&column()).unwrap();
        while stream.write_all(&row("1")).is_ok() {}
    });
    assert!(error.contains("sends more than was asked for"), "{error}");
    // Two gigabytes in one message.
    let error = said(|stream| {
        let_in(stream);
        question(stream);
        let _ = stream.write_all(&[&[b'D'][..], &(1_u32 << 31).to_be_bytes()].concat());
    });
    assert!(error.contains("a message of 2147483648 bytes"), "{error}");
}

#[test]
fn a_password_is_not_sent_in_the_clear() {
    for code in [3, 5] {
        let error = said(move |stream| {
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            stream.write_all(&message(b'R', &[0, 0, 0, code, 1, 2, 3, 4])).unwrap();
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            assert_eq!(rest.len(), u32::from_be_bytes(length) as usize - 4, "something came after the question for a password");
        });
        assert!(error.contains("in the clear"), "{error}");
    }
}
