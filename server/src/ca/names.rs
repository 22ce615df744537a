//! Names that a certificate of the federation may carry: those of its server, and those of its clients.

use std::net::{IpAddr, Ipv4Addr};

use dp_pvi_names::ClientId;
use dp_pvi_programs::identity::Party;
use rustls_pki_types::ServerName;

/// Whether a client accepts a server under this name or address, by the rule by which it looks for it in a certificate; or else what is wrong.
pub(super) fn check_server(name: &str) -> Result<(), String> {
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
pub(super) fn check_address(address: IpAddr) -> Result<(), String> {
    if address.is_unspecified() || address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Err(format!("{address} is the address of no server: write the one by which sites reach it, like 192.0.2.7"));
    }
    Ok(())
}

/// Whether a client may have this name. Its certificate is NAME.pem, which must not be one of the federation's own files.
pub(crate) fn check_client(client: &ClientId, party: Party) -> Result<(), String> {
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
