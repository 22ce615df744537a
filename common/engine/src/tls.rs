//! Mutual TLS between scheduler, executors and head.
//!
//! Every process shows a certificate of the cluster's own authority, as client and as server. A certificate is for one name: that of its role in this program, and not of a
//! machine, because executors come and go.
//!
//! Who connects checks that the other side has the role that it looks for. Who listens hears a role only where it has something to say.

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ballista_core::extension::{EndpointOverrideFn, SessionConfigExt};
use datafusion::prelude::SessionConfig;
use rustls_pki_types::ServerName;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};
use tonic::transport::{Certificate, CertificateDer, ClientTlsConfig, Endpoint, Identity, ServerTlsConfig, Uri};
use webpki::EndEntityCert;
use zeroize::Zeroizing;

use crate::config::{Config, secret};

/// Largest message: a list of sealed sums.
pub const LARGEST: u32 = 1 << 30;

/// What a process is in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Shares out the work. It is spoken to, and speaks to no one.
    Scheduler,
    /// Sums.
    Executor,
    /// The site's client, by the program that it starts. No one speaks to it.
    Head,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Scheduler, Self::Executor, Self::Head];

    /// The name of its files.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Executor => "executor",
            Self::Head => "head",
        }
    }

    /// The name in its certificate.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler.dp-pvi-site-engine",
            Self::Executor => "executor.dp-pvi-site-engine",
            Self::Head => "head.dp-pvi-site-engine",
        }
    }

    /// The role of which a certificate is.
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let is =
            |role: &Self| ServerName::try_from(role.name()).is_ok_and(|name| certificate.verify_is_valid_for_subject_name(&name).is_ok());
        Self::ALL.into_iter().find(is)
    }
}

/// A process's part of mutual TLS.
#[derive(Clone)]
pub struct Mutual {
    ca: Certificate,
    identity: Identity,
    /// Host and port.
    scheduler: (String, u16),
}

impl Mutual {
    /// Reads the files.
    ///
    /// # Errors
    /// One of them cannot be read. In words.
    pub fn read(config: &Config) -> Result<Self, String> {
        let (tls, scheduler) = (&config.tls, &config.scheduler);
        let read = |path: &Path| fs::read(path).map(Zeroizing::new).map_err(|e| format!("{} cannot be read ({e})", path.display()));
        let identity = Identity::from_pem(&*read(&tls.cert)?, secret(&tls.key)?.as_str());
        Ok(Self { ca: Certificate::from_pem(&*read(&tls.ca)?), identity, scheduler: (scheduler.host.clone(), scheduler.port) })
    }

    /// For what listens: who has no certificate of the authority is not heard.
    #[must_use]
    pub fn server(&self) -> ServerTlsConfig {
        ServerTlsConfig::new().identity(self.identity.clone()).client_ca_root(self.ca.clone())
    }

    /// Makes every connection of the library one with mutual TLS, whatever address it has in mind: at the scheduler's address to the scheduler, at any other one to an executor.
    #[must_use]
    pub(crate) fn endpoints(&self) -> EndpointOverrideFn {
        let (client, scheduler) =
            (ClientTlsConfig::new().ca_certificate(self.ca.clone()).identity(self.identity.clone()), self.scheduler.clone());
        Arc::new(move |endpoint: Endpoint| {
            let uri = endpoint.uri();
            let is_scheduler = uri.host() == Some(&scheduler.0) && uri.port_u16() == Some(scheduler.1);
            let role = if is_scheduler { Role::Scheduler } else { Role::Executor };
            let mut parts = uri.clone().into_parts();
            parts.scheme = Some("https".parse()?);
            parts.path_and_query = Some("/".parse()?);
            let endpoint = Endpoint::from(Uri::from_parts(parts)?)
                .connect_timeout(Duration::from_secs(20))
                .tcp_nodelay(true)
                .http2_keep_alive_interval(Duration::from_secs(30))
                .keep_alive_timeout(Duration::from_secs(20))
                .keep_alive_while_idle(true);
            Ok(endpoint.tls_config(client.clone().domain_name(role.name()))?)
        })
    }

    /// The way to the scheduler.
    ///
    /// # Errors
    /// The configured host is none. In words.
    pub(crate) fn scheduler(&self) -> Result<Endpoint, String> {
        let (host, port) = &self.scheduler;
        let endpoint = Endpoint::from_shared(format!("http://{host}:{port}")).map_err(|e| format!("[scheduler] host = {host:?}: {e}"))?;
        (self.endpoints())(endpoint).map_err(|e| format!("[tls]: {e}"))
    }

    /// Settings of a session whose connections are these.
    #[must_use]
    pub fn session(&self) -> SessionConfig {
        SessionConfig::new_with_ballista()
            .with_ballista_override_create_grpc_client_endpoint(self.endpoints())
            .with_ballista_use_tls(true)
            .with_ballista_grpc_client_max_message_size(LARGEST as usize)
    }
}

/// A service that hears some roles only.
#[derive(Clone)]
pub(crate) struct Heard<S> {
    service: S,
    /// Who may say what: by the path of a call.
    who: fn(&str) -> &'static [Role],
}

impl<S> Heard<S> {
    pub(crate) fn new(service: S, who: fn(&str) -> &'static [Role]) -> Self {
        Self { service, who }
    }
}

/// The role that a call comes from.
fn caller(call: &http::Request<Body>) -> Option<Role> {
    let certificates = call.extensions().get::<TlsConnectInfo<TcpConnectInfo>>()?.peer_certs()?;
    Role::of(certificates.first()?)
}

impl<S> Service<http::Request<Body>> for Heard<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, call: http::Request<Body>) -> Self::Future {
        if caller(&call).is_some_and(|role| (self.who)(call.uri().path()).contains(&role)) {
            Box::pin(self.service.call(call))
        } else {
            Box::pin(async { Ok(Status::permission_denied("this is not for a certificate of your role").into_http()) })
        }
    }
}

impl<S: NamedService> NamedService for Heard<S> {
    const NAME: &'static str = S::NAME;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rustls_pki_types::pem::PemObject;

    use super::*;
    use crate::keys;

    /// Each certificate is for its role and for no other, and only an executor's is one for both sides.
    #[test]
    fn a_certificate_says_its_role() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("keys");
        keys::write(&out).unwrap();
        for role in Role::ALL {
            let certificate = CertificateDer::from_pem_file(out.join(format!("{}.pem", role.file()))).unwrap();
            assert_eq!(Role::of(&certificate), Some(role));
        }
        assert_eq!(Role::of(&CertificateDer::from_pem_file(out.join("ca.pem")).unwrap()), None);
        // A call that came without a certificate is of no role.
        assert_eq!(caller(&http::Request::new(Body::default())), None);
    }
}
