//! Names that a certificate of the federation may carry, those of its server and those of its clients; and whether a site accepts the server's.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use dp_pvi_names::ClientId;
use dp_pvi_programs::identity::Party;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// Whether a client accepts a server under this name or address, by the rule by which it looks for it in a certificate; or else what is wrong.
///
/// # Errors
/// What is wrong, and what to write.
pub fn check_server(name: &str) -> Result<(), String> {
    let accepted = match name.parse::<IpAddr>() {
        Ok(address) => return check_address(address),
        // The point at the end is no part of the name in a certificate. A star stands for one first part of a name, and for no whole domain.
        Err(_) => {
            let part = name.strip_prefix("*.").filter(|rest| rest.contains('.')).unwrap_or(name);
            !part.ends_with('.') && matches!(ServerName::try_from(part), Ok(ServerName::DnsName(_)))
        }
    };
    if accepted {
        return Ok(());
    }
    if !name.is_ascii() {
        return Err(format!(
            "{name:?} has letters that a certificate cannot hold: write the name as DNS has it, in its form with xn--, like xn--mnchen-3ya.example.org"
        ));
    }
    Err(format!(
        "{name:?} is no name of a server, and no site would accept it: write the name alone, like fed.example.org or *.example.org, without https://, port, \
         blanks or a point at its end"
    ))
}

/// The same of an address.
///
/// # Errors
/// It is the address of no server.
pub fn check_address(address: IpAddr) -> Result<(), String> {
    if address.is_unspecified() || address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Err(format!("{address} is the address of no server: write the one by which sites reach it, like 192.0.2.7"));
    }
    Ok(())
}

/// Whether a client may have this name. Its certificate is NAME.pem, which must not be one of the federation's own files.
///
/// # Errors
/// The name is taken by a file of the federation.
pub fn check_client(client: &ClientId, party: Party) -> Result<(), String> {
    let taken = match client.as_str() {
        "ca" | "crl" | "server" => true,
        "summer" => party != Party::Summer,
        _ => false,
    };
    if taken {
        return Err(format!(
            "nobody can be called {client}: {client}.pem is a file of the federation itself. The client must ask again under another name"
        ));
    }
    Ok(())
}

/// Whether a site that trusts our authority accepts this certificate, by its own rule, under any name that the certificate has; or else what to do. Of time it says
/// nothing: when a certificate begins and ends is told by its days.
///
/// # Errors
/// Why no site would.
pub fn acceptable(
    chain: &[CertificateDer<'_>],
    names: &[ServerName<'_>],
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    now: UnixTime,
) -> Result<(), String> {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext};
    const REMEDY: &str = "`dp-pvi-server ca renew` writes one that sites accept";
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build().map_err(|e| e.to_string())?;
    let accepted = |name: &ServerName<'_>| match verifier.verify_server_cert(&chain[0], &chain[1..], name, &[], now) {
        Err(rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })) => Ok(true),
        Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => Ok(false),
        Err(error) => Err(format!("no site accepts this certificate ({error}): {REMEDY}")),
        Ok(_) => Ok(true),
    };
    // Also without a name it is told what else is wrong.
    let any = ServerName::try_from("dp-pvi.invalid").map_err(|e| e.to_string())?;
    for name in names.iter().chain([&any]) {
        if accepted(name)? {
            return Ok(());
        }
    }
    Err(format!(
        "no site accepts this certificate: it has no DNS name and no address by which a server could be called. Write the server's names into server_names of \
         enrolled.json; {REMEDY}"
    ))
}
