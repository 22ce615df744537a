//! Mutual TLS between scheduler, executors and head.
//!
//! Every process shows a certificate of the cluster's own authority, as client and as server, and every certificate is for one name: that of this program, and not of a
//! machine, because executors come and go.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ballista_core::extension::{EndpointOverrideFn, SessionConfigExt};
use datafusion::prelude::SessionConfig;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, ServerTlsConfig, Uri};
use zeroize::Zeroizing;

use crate::config::{Tls, secret};

/// The name in every certificate.
pub const NAME: &str = "dp-pvi-site-engine";

/// Largest message: a list of sealed sums.
pub const LARGEST: u32 = 1 << 30;

/// A process's part of mutual TLS.
#[derive(Clone)]
pub struct Mutual {
    ca: Certificate,
    identity: Identity,
}

impl Mutual {
    /// Reads the files.
    ///
    /// # Errors
    /// One of them cannot be read. In words.
    pub fn read(tls: &Tls) -> Result<Self, String> {
        let read = |path: &Path| fs::read(path).map(Zeroizing::new).map_err(|e| format!("{} cannot be read ({e})", path.display()));
        let identity = Identity::from_pem(&*read(&tls.cert)?, secret(&tls.key)?.as_str());
        Ok(Self { ca: Certificate::from_pem(&*read(&tls.ca)?), identity })
    }

    /// For what listens: who has no certificate of the authority is not heard.
    #[must_use]
    pub fn server(&self) -> ServerTlsConfig {
        ServerTlsConfig::new().identity(self.identity.clone()).client_ca_root(self.ca.clone())
    }

    /// Makes every connection of the library one with mutual TLS, whatever address it has in mind.
    #[must_use]
    pub(crate) fn endpoints(&self) -> EndpointOverrideFn {
        let client = ClientTlsConfig::new().ca_certificate(self.ca.clone()).identity(self.identity.clone()).domain_name(NAME);
        Arc::new(move |endpoint: Endpoint| {
            let mut parts = endpoint.uri().clone().into_parts();
            parts.scheme = Some("https".parse()?);
            parts.path_and_query = Some("/".parse()?);
            let endpoint = Endpoint::from(Uri::from_parts(parts)?)
                .connect_timeout(Duration::from_secs(20))
                .tcp_nodelay(true)
                .http2_keep_alive_interval(Duration::from_secs(30))
                .keep_alive_timeout(Duration::from_secs(20))
                .keep_alive_while_idle(true);
            Ok(endpoint.tls_config(client.clone())?)
        })
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
