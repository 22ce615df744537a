//! `dp-pvi-server ca …`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Subcommand;
use dp_pvi_names::ClientId;
use dp_pvi_programs::problem::Problem;

use super::output::Output;
use crate::ca::{Authority, Enrolled, NewFederation};
use crate::clock;
use crate::error::{Result, ServerError};

#[derive(Debug, Subcommand)]
pub(super) enum CaCommand {
    /// Make a new federation: authority, server certificate, keys and an empty list of clients.
    Init {
        /// Its name: 1 to 64 of the characters a-z 0-9 - _ .
        #[arg(long, value_name = "NAME")]
        federation: String,
        /// A DNS name by which sites reach the server (repeat for several).
        #[arg(long, value_name = "NAME")]
        dns: Vec<String>,
        /// An address by which sites reach the server (repeat for several).
        #[arg(long, value_name = "ADDRESS")]
        ip: Vec<IpAddr>,
        /// Directory for the authority's files.
        #[arg(short, long, value_name = "DIR", default_value = "tls")]
        output: PathBuf,
        /// Days that the server's certificate is valid.
        #[arg(long, default_value_t = 90, allow_hyphen_values = true, value_parser = clap::value_parser!(u16).range(1..=3650))]
        days: u16,
        /// Days that a revocation list is valid: without a newer one (`ca renew`, or any other change) no one is let in afterwards.
        #[arg(long, default_value_t = 30, allow_hyphen_values = true, value_parser = clap::value_parser!(u16).range(1..=366))]
        crl_days: u16,
    },
    /// Enrol a site, evaluator or summer: sign the request that `dp-pvi-client csr` or `dp-pvi-server summer csr` made. Also renews certificates.
    Sign {
        /// The client's request, NAME.csr.pem.
        file: PathBuf,
        /// The authority's directory.
        #[arg(long, value_name = "DIR", default_value = "tls")]
        ca: PathBuf,
        /// Directory for what goes back to the client: NAME.pem and ca.pem. They replace earlier ones of this authority, and no other file.
        #[arg(short, long, value_name = "DIR", default_value = ".")]
        output: PathBuf,
        /// Days that the certificate is valid.
        #[arg(long, default_value_t = 90, allow_hyphen_values = true, value_parser = clap::value_parser!(u16).range(1..=3650))]
        days: u16,
    },
    /// Take a client's certificates back; running servers follow within seconds.
    Revoke {
        /// Its name.
        name: String,
        /// The authority's directory.
        #[arg(long, value_name = "DIR", default_value = "tls")]
        ca: PathBuf,
    },
    /// Write a new server certificate and revocation list before the old ones expire.
    Renew {
        /// The authority's directory.
        #[arg(long, value_name = "DIR", default_value = "tls")]
        ca: PathBuf,
        /// Days that the server's certificate is valid.
        #[arg(long, default_value_t = 90, allow_hyphen_values = true, value_parser = clap::value_parser!(u16).range(1..=3650))]
        days: u16,
        /// Days that revocation lists are valid from now on (default: as before).
        #[arg(long, allow_hyphen_values = true, value_parser = clap::value_parser!(u16).range(1..=366))]
        crl_days: Option<u16>,
    },
    /// Show who is enrolled.
    List {
        /// The authority's directory.
        #[arg(long, value_name = "DIR", default_value = "tls")]
        ca: PathBuf,
    },
}

pub(super) fn execute(command: CaCommand, output: &Output) -> Result<()> {
    let now = clock::date(clock::now());
    match command {
        CaCommand::Init { federation, dns, ip, output: directory, days, crl_days } => {
            let new = NewFederation { name: federation, dns, addresses: ip, days, revocation_list_days: crl_days };
            Authority::init(&directory, &new, now)?;
            output.files("the authority's files", &[directory.join("ca.pem"), directory.join("server.pem")])
        }
        CaCommand::Sign { file, ca, output: directory, days } => {
            let (client, files) = Authority::open(&ca)?.sign_into(&file, &directory, now, days)?;
            output.files(&format!("for {client}"), &files)
        }
        CaCommand::Revoke { name, ca } => {
            let client = ClientId::new(name).map_err(|e| ServerError::Usage(Problem::of(e)))?;
            Authority::open(&ca)?.revoke(&client, now)?;
            output.files(&format!("{client} is revoked"), &[ca.join("crl.pem"), ca.join("enrolled.json")])
        }
        CaCommand::Renew { ca, days, crl_days } => {
            Authority::open(&ca)?.renew(now, days, crl_days)?;
            output.files("renewed", &[ca.join("server.pem"), ca.join("crl.pem")])
        }
        CaCommand::List { ca } => output.enrolled(&Enrolled::load(&ca.join("enrolled.json"))?),
    }
}
