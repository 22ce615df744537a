//! A client that may lie: real keys and certificates of a party, but every frame is made by hand.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_client::{keys, tls};
use dp_pvi_names::{ClientId, Hash, PayloadKind, ReleaseId, RunId};
use dp_pvi_privacy::ledger::LedgerHead;
use dp_pvi_proto::client::{self as frames, Answer, NextReader, WelcomeReader};
use dp_pvi_proto::v1::federation_client::FederationClient;
use dp_pvi_proto::v1::{SignedMessage, SiteFrame, site_frame};
use dp_pvi_protocol::message::{Body, Hello, Intent, Next, PROTOCOL_VERSIONS, Role, RoundHeader, Signed, Update, Welcome, payload_hash};
use ed25519_dalek::SigningKey;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// Longest that an answer may take. A call on a connection that the other side has closed may never end by itself.
const SOON: Duration = Duration::from_secs(30);

/// What `answer` gives, or an error where it takes too long.
///
/// # Errors
/// Those of `answer`, and `DeadlineExceeded`.
pub async fn soon<T>(answer: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    tokio::time::timeout(SOON, answer).await.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer came")))
}

/// A connection with the files of one party.
pub struct Liar {
    /// The generated client.
    pub grpc: FederationClient<Channel>,
    /// The channel below it.
    pub channel: Channel,
    name: ClientId,
    role: Role,
    federation: String,
    key: SigningKey,
    tls_key: Hash,
}

/// What is changed in an otherwise right update.
#[derive(Debug, Clone)]
pub struct Lie {
    /// Payload bytes.
    pub payload: Vec<u8>,
    /// Coordinates that the message announces.
    pub coordinates: u64,
    /// Name of the release.
    pub release: ReleaseId,
    /// Header that it answers.
    pub header: Hash,
}

impl Liar {
    /// Connects with the keys and certificate in `home` to `address`.
    ///
    /// # Errors
    /// The connection is refused.
    ///
    /// # Panics
    /// When the files are not those of a client.
    pub async fn connect(home: &Path, address: &str) -> io::Result<Self> {
        tokio::time::timeout(SOON, Self::connecting(home, address)).await?
    }

    async fn connecting(home: &Path, address: &str) -> io::Result<Self> {
        let config = dp_pvi_client::config::Config::load(&home.join("client.toml")).expect("a configuration");
        let identity = tls::load(&config).expect("keys and a certificate");
        let tcp = TcpStream::connect(address).await?;
        let stream = TlsConnector::from(Arc::clone(&identity.client)).connect(identity.server_name.clone(), tcp).await?;
        let mut once = Some(TokioIo::new(stream));
        let connector = tower::service_fn(move |_: tonic::codegen::http::Uri| {
            let stream = once.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
            async move { stream }
        });
        let channel = Endpoint::from_static("http://liar.invalid").connect_with_connector(connector).await.map_err(io::Error::other)?;
        Ok(Self {
            grpc: FederationClient::new(channel.clone()),
            channel,
            name: config.site.name.clone(),
            role: config.site.role,
            federation: config.site.federation.clone(),
            key: keys::identity(&config.tls.identity).expect("an identity key"),
            tls_key: identity.key_hash,
        })
    }

    /// A right hello, which a test may change before it is signed. A site's ledger head in it is made up: the server remembers it.
    #[must_use]
    pub fn hello(&self) -> Hello {
        let site = self.role == Role::Site;
        Hello {
            versions: PROTOCOL_VERSIONS.to_vec(),
            federation: self.federation.clone(),
            client: self.name.clone(),
            role: self.role,
            intent: Intent::Join,
            tls_key: self.tls_key,
            task: None,
            nominal_units: site.then_some(20),
            ledger: site.then_some((PrivacyUnit::Record, Relation::ReplaceOne)),
            ledger_head: site.then_some(LedgerHead { seq: 0, hash: Hash::default() }),
            rows: Some(dp_pvi_protocol::origin::Origin::default()),
            software: "liar".into(),
        }
    }

    /// Signs a body with this party's identity.
    #[must_use]
    pub fn sign<B: Body>(&self, body: &B) -> SignedMessage {
        let signed = Signed::seal(body, &self.key);
        SignedMessage { body: signed.body.into(), signature: signed.signature.into() }
    }

    /// Sends a hello.
    ///
    /// # Errors
    /// The server refuses it.
    ///
    /// # Panics
    /// When the answer is no welcome.
    pub async fn say_hello(&mut self, hello: &Hello) -> Result<Welcome, Status> {
        let message = self.sign(hello);
        let mut answer = soon(self.grpc.join(message)).await?.into_inner();
        let mut reader = WelcomeReader::default();
        while let Some(frame) = soon(answer.message()).await? {
            reader.frame(frame).expect("frames in order");
        }
        Ok(reader.finish().expect("a whole welcome").welcome.peek().expect("a welcome"))
    }

    /// Waits for the open round: its header, the header's hash, and the length of λ.
    ///
    /// # Errors
    /// The server refuses.
    ///
    /// # Panics
    /// When the answer cannot be read, or the run is over.
    pub async fn round(&mut self) -> Result<(RoundHeader, Hash, usize), Status> {
        loop {
            let mut stream = soon(self.grpc.work(futures_util::stream::iter([frames::next(0)]))).await?.into_inner();
            let mut reader = NextReader::new(1 << 20);
            while let Some(frame) = soon(stream.message()).await? {
                if reader.frame(frame).expect("frames in order") == Answer::Complete {
                    break;
                }
            }
            match reader.finish().expect("a whole answer") {
                Next::Wait | Next::Charter(_) | Next::Entries(_) => (),
                Next::Round(start) => {
                    return Ok((start.header.peek().expect("a header"), start.header.hash(), start.lambda.len()));
                }
                Next::Finished(_) => panic!("the run is over"),
            }
        }
    }

    /// The update that an honest client would name in this round, with the given numbers.
    #[must_use]
    pub fn update(&self, run: RunId, round: u32, header: Hash, values: &[f64]) -> Lie {
        Lie {
            payload: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            coordinates: values.len() as u64,
            release: ReleaseId { run, client: self.name.clone(), round },
            header,
        }
    }

    /// Sends an update.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn submit(&mut self, lie: &Lie) -> Result<SignedMessage, Status> {
        let update = Update {
            release: lie.release.clone(),
            header: lie.header,
            kind: PayloadKind::Values,
            coordinates: lie.coordinates,
            payload: payload_hash(PayloadKind::Values, &lie.payload),
            ledger_head: LedgerHead { seq: 1, hash: Hash::default() },
            upload: None,
        };
        let frames = std::iter::once(site_frame::Frame::Update(self.sign(&update)))
            .chain(lie.payload.chunks(1 << 20).map(|c| site_frame::Frame::Payload(c.to_vec().into())))
            .map(|frame| SiteFrame { frame: Some(frame) });
        let frames = futures_util::stream::iter(frames.collect::<Vec<_>>());
        let answer = soon(async { self.grpc.work(frames).await?.into_inner().message().await }).await?;
        let receipt = answer.ok_or_else(|| Status::unknown("the stream ended without an answer"))?;
        Ok(dp_pvi_proto::client::receipt(receipt)
            .map(|r| SignedMessage { body: r.body.into(), signature: r.signature.into() })
            .expect("a receipt"))
    }
}
