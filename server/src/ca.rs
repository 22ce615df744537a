//! The federation's certificate authority: a directory that an operator keeps, and a few commands on it.
//!
//! | file | what |
//! |---|---|
//! | `ca.key` | the authority's key (0600); only these commands need it |
//! | `ca.pem` | its certificate, and the server's public identity key: what every site needs and no one has to hide |
//! | `server.pem`, `server.key`, `server-identity.key` | the server's certificate and keys |
//! | `crl.pem` | revoked certificates; expires, and is written anew by every command that changes something |
//! | `enrolled.json` | clients with their identity keys |
//!
//! The key of a site never leaves the site. Of its certificate request only the public key is used: the authority itself writes
//! the name, the validity and the usage.

mod enrolled;
mod handover;

use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use dp_pvi_names::ClientId;
use dp_pvi_programs::files::FileLock;
use dp_pvi_programs::identity::{
    Enrolment, IdentityError, PeerName, check_federation, generate_identity, identity_to_pem, move_all, public_identity_to_pem, spki_hash,
    write_new, write_secret,
};
use dp_pvi_programs::problem::Problem;
use dp_pvi_proto::names::{check_address, check_client, check_server};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData, RevokedCertParams, SanType,
    SerialNumber,
};
use rustls_pki_types::CertificateSigningRequestDer;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};
use zeroize::Zeroizing;

pub use self::enrolled::{Enrolled, IssuedCertificate, Member};
use self::handover::Handover;
use crate::clock::rfc3339;
use crate::error::{Result, ServerError};
use crate::files::secret;
use crate::files::{self, replace};

const CA_KEY: &str = "ca.key";
const CA_PEM: &str = "ca.pem";
const SERVER_PEM: &str = "server.pem";
const SERVER_KEY: &str = "server.key";
const SERVER_IDENTITY: &str = "server-identity.key";
const CRL: &str = "crl.pem";
const ENROLLED: &str = "enrolled.json";
/// Where a new authority is made.
const MAKING: &str = ".making";

/// Validity of the authority's own certificate.
const CA_DAYS: i64 = 3650;
/// Certificates start this much earlier than now, for machines whose clocks are behind, or in another zone than they believe.
const SKEW: Duration = Duration::days(1);

/// What a new federation is made from.
#[derive(Debug, Clone)]
pub struct NewFederation {
    /// Its name.
    pub name: String,
    /// DNS names of the server.
    pub dns: Vec<String>,
    /// Addresses of the server.
    pub addresses: Vec<IpAddr>,
    /// Validity of the server's certificate, in days.
    pub days: u16,
    /// Validity of every revocation list, in days: a server that gets no newer one lets no one in afterwards.
    pub revocation_list_days: u16,
}

/// What a client asks for, and may have.
struct Asked {
    enrolment: Enrolment,
    name: PeerName,
    request: CertificateSigningRequestParams,
}

/// An authority's directory, opened for a change.
pub struct Authority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    enrolled: Enrolled,
    _lock: FileLock,
}

impl Authority {
    /// Makes a new federation in an empty or missing directory.
    ///
    /// # Errors
    /// There is an authority already, a name is not one, or the directory cannot be written.
    pub fn init(directory: &Path, new: &NewFederation, now: OffsetDateTime) -> Result<Self> {
        let federation = check_federation(&new.name).map_err(|e| ServerError::Usage(Problem::of(e)))?;
        if new.dns.is_empty() && new.addresses.is_empty() {
            return Err(ServerError::Usage("name the server by at least one --dns NAME or --ip ADDRESS: sites check it".into()));
        }
        new.dns.iter().try_for_each(|name| check_server(name)).map_err(|problem| ServerError::Usage(format!("--dns: {problem}").into()))?;
        new.addresses
            .iter()
            .try_for_each(|address| check_address(*address))
            .map_err(|problem| ServerError::Usage(format!("--ip: {problem}").into()))?;
        crate::files::create_private_directory(directory)?;
        let lock = lock(directory)?;
        for name in [CA_KEY, CA_PEM, SERVER_PEM, SERVER_KEY, SERVER_IDENTITY, CRL, ENROLLED] {
            let file = directory.join(name);
            // Of a link, not of what it leads to: one that leads to nothing now would be replaced, and what it led to is someone's.
            match std::fs::symlink_metadata(&file) {
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(ServerError::unavailable(&file, e)),
                Ok(about) => {
                    let what = if about.is_symlink() { "is a link already" } else { "exists already" };
                    let message = format!("{what}; nothing was changed. A new federation needs another directory");
                    return Err(ServerError::file(&file, message));
                }
            }
        }
        // Made beside its place: there is a whole authority or none, also where the disk is full.
        let making = directory.join(MAKING);
        let failed = |e| ServerError::unavailable(&making, e);
        if making.exists() {
            std::fs::remove_dir_all(&making).map_err(failed)?;
        }
        crate::files::create_private_directory(&making)?;
        let made = Self::make(&making, new, federation, now, lock)
            .and_then(|made| move_all(&making, directory).map(|()| made).map_err(|e| ServerError::unavailable(directory, e)));
        let removed = std::fs::remove_dir_all(&making).map_err(failed);
        let made = made?;
        removed?;
        Ok(Self { directory: directory.to_owned(), ..made })
    }

    /// Makes all files of a federation in an empty directory.
    fn make(directory: &Path, new: &NewFederation, federation: String, now: OffsetDateTime, lock: FileLock) -> Result<Self> {
        let at = |name: &str| directory.join(name);

        let key = KeyPair::generate().map_err(rcgen_error)?;
        let mut params = base_params(&format!("dp-pvi {federation} authority"), now, CA_DAYS)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(rcgen_error)?;
        let identity = generate_identity().map_err(identity_error)?;
        let public = public_identity_to_pem(&identity.verifying_key()).map_err(identity_error)?;

        let server_names = new.dns.iter().cloned().chain(new.addresses.iter().map(ToString::to_string)).collect();
        let enrolled = Enrolled {
            federation,
            server_names,
            revocation_list_days: new.revocation_list_days,
            server_certificates: Vec::new(),
            clients: Default::default(),
        };
        write_secret(&at(CA_KEY), Zeroizing::new(key.serialize_pem()).as_bytes()).map_err(identity_error)?;
        write_secret(&at(SERVER_IDENTITY), identity_to_pem(&identity).map_err(identity_error)?.as_bytes()).map_err(identity_error)?;
        write_new(&at(CA_PEM), format!("{}{public}", certificate.pem()).as_bytes()).map_err(identity_error)?;
        let issuer = Issuer::new(params, key);
        let mut authority = Self { directory: directory.to_owned(), issuer, enrolled, _lock: lock };
        authority.issue_server_certificate(now, new.days)?;
        authority.save(now)?;
        Ok(authority)
    }

    /// Opens an existing authority.
    ///
    /// # Errors
    /// A file is missing or unreadable, or another command is at work.
    pub fn open(directory: &Path) -> Result<Self> {
        if !directory.join(CA_KEY).exists() {
            return Err(ServerError::file(&directory.join(CA_KEY), "there is no authority here; make one with `dp-pvi-server ca init`"));
        }
        let lock = lock(directory)?;
        // They are written anew, and what a link leads to may be another's.
        if let Some(link) = [SERVER_PEM, CRL, ENROLLED].map(|name| directory.join(name)).iter().find(|file| file.is_symlink()) {
            return Err(ServerError::file(link, "is a link: put the file itself there, and link from the other place to it"));
        }
        let read = |name: &str| {
            let path = directory.join(name);
            std::fs::read_to_string(&path).map_err(|e| ServerError::file(&path, e))
        };
        let key = key_pair(&directory.join(CA_KEY))?;
        let issuer =
            Issuer::from_ca_cert_pem(&first_certificate(&read(CA_PEM)?), key).map_err(|e| ServerError::file(&directory.join(CA_PEM), e))?;
        let enrolled = Enrolled::load(&directory.join(ENROLLED))?;
        Ok(Self { directory: directory.to_owned(), issuer, enrolled, _lock: lock })
    }

    /// Enrols the client of an enrolment file, or renews the certificate of one that is enrolled already under the same keys'
    /// identity. Returns its name and its certificate (PEM).
    ///
    /// # Errors
    /// Not an enrolment file of this federation, or a name that someone else has.
    pub fn sign(&mut self, file: &Path, now: OffsetDateTime, days: u16) -> Result<(ClientId, String)> {
        let asked = self.read(file)?;
        self.certify(asked, now, days)
    }

    /// Signs, and writes what goes back to the client into a directory: its certificate as NAME.pem, and ca.pem. Returns its name and these files.
    ///
    /// # Errors
    /// Those of [`Authority::sign`]; or another file lies at one of these places. Then nothing is signed.
    pub fn sign_into(&mut self, file: &Path, directory: &Path, now: OffsetDateTime, days: u16) -> Result<(ClientId, [PathBuf; 2])> {
        let asked = self.read(file)?;
        let ca = self.directory.join(CA_PEM);
        let authority = std::fs::read(&ca).map_err(|e| ServerError::file(&ca, e))?;
        let handover = Handover::of(&asked.enrolment.client, directory);
        handover.check(&asked.name, &authority)?;
        std::fs::create_dir_all(directory).map_err(|e| ServerError::unavailable(directory, e))?;
        let (client, certificate) = self.certify(asked, now, days)?;
        Ok((client, handover.write(certificate.as_bytes(), &authority)?))
    }

    /// Reads an enrolment file, and checks that its client may be certified.
    fn read(&self, file: &Path) -> Result<Asked> {
        let text = std::fs::read_to_string(file).map_err(|e| ServerError::file(file, e))?;
        let (enrolment, _, request) = Enrolment::read(&text).map_err(|e| ServerError::file(file, e))?;
        if enrolment.federation != self.enrolled.federation {
            let message = format!("it asks to join {:?}, this is {:?}", enrolment.federation, self.enrolled.federation);
            return Err(ServerError::file(file, message));
        }
        // Checks the request's own signature, by which the TLS key agrees.
        let request = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(request))
            .map_err(|e| ServerError::file(file, format!("the certificate request is not valid: {e}")))?;
        let client = &enrolment.client;
        check_client(client, enrolment.role).map_err(|problem| ServerError::file(file, problem))?;
        if let Some(member) = self.enrolled.clients.get(client) {
            let same = member.identity == enrolment.identity && member.role == enrolment.role;
            if member.revoked.is_none() && !same {
                let message =
                    format!("{client} is enrolled with another identity key or role; `ca revoke {client}` first if that is intended");
                return Err(ServerError::file(file, message));
            }
            if member.revoked.is_some() && member.identity == enrolment.identity {
                let message = format!("this identity key of {client} was revoked; the site must make new keys");
                return Err(ServerError::file(file, message));
            }
        }
        let name = PeerName::client(&self.enrolled.federation, enrolment.role, client.clone()).map_err(identity_error)?;
        Ok(Asked { enrolment, name, request })
    }

    fn certify(&mut self, asked: Asked, now: OffsetDateTime, days: u16) -> Result<(ClientId, String)> {
        let Asked { enrolment, name, request } = asked;
        let client = enrolment.client;
        let mut params = base_params(client.as_str(), now, days.into())?;
        params.subject_alt_names = vec![uri(&name)?];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (certificate, issued) = self.issue(&mut params, &request.public_key)?;

        let member = self.enrolled.clients.entry(client.clone()).or_insert_with(|| Member {
            role: enrolment.role,
            identity: enrolment.identity,
            revoked: None,
            certificates: Vec::new(),
        });
        (member.role, member.identity, member.revoked) = (enrolment.role, enrolment.identity, None);
        member.certificates.push(issued);
        self.save(now)?;
        Ok((client, certificate.pem()))
    }

    /// Revokes a client: its certificates go onto the revocation list and its name speaks no more.
    ///
    /// # Errors
    /// No such client.
    pub fn revoke(&mut self, client: &ClientId, now: OffsetDateTime) -> Result<()> {
        let Some(member) = self.enrolled.clients.get_mut(client) else {
            return Err(ServerError::Usage(format!("{client} is not enrolled; `dp-pvi-server ca list` shows who is").into()));
        };
        let at = rfc3339(now);
        for certificate in &mut member.certificates {
            certificate.revoked.get_or_insert_with(|| at.clone());
        }
        member.revoked.get_or_insert(at);
        self.save(now)
    }

    /// Issues a new certificate for the server and a fresh revocation list, which keeps its validity unless another is given.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn renew(&mut self, now: OffsetDateTime, days: u16, revocation_list_days: Option<u16>) -> Result<()> {
        self.enrolled.revocation_list_days = revocation_list_days.unwrap_or(self.enrolled.revocation_list_days);
        self.issue_server_certificate(now, days)?;
        self.save(now)
    }

    /// Enrolled names.
    #[must_use]
    pub fn enrolled(&self) -> &Enrolled {
        &self.enrolled
    }

    fn issue_server_certificate(&mut self, now: OffsetDateTime, days: u16) -> Result<()> {
        let path = self.directory.join(SERVER_KEY);
        let key = if path.exists() {
            key_pair(&path)?
        } else {
            let key = KeyPair::generate().map_err(rcgen_error)?;
            write_secret(&path, Zeroizing::new(key.serialize_pem()).as_bytes()).map_err(identity_error)?;
            key
        };
        // Also where someone wrote into the list.
        self.enrolled.server_names.iter().try_for_each(|name| check_server(name)).map_err(|problem| {
            let message = format!("server_names: {problem}. Correct the list, then `dp-pvi-server ca renew` again");
            ServerError::file(&self.directory.join(ENROLLED), message)
        })?;
        let mut params = CertificateParams::new(self.enrolled.server_names.clone())
            .map_err(|e| ServerError::Usage(Problem::said(format!("--dns or --ip: not a name for a certificate: {e}"), e)))?;
        set_validity(&mut params, &format!("dp-pvi {} server", self.enrolled.federation), now, days.into())?;
        params.subject_alt_names.push(uri(&PeerName::server(&self.enrolled.federation).map_err(identity_error)?)?);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (certificate, issued) = self.issue(&mut params, &key)?;
        self.enrolled.server_certificates.push(issued);
        replace(&self.directory.join(SERVER_PEM), certificate.pem().as_bytes())
    }

    fn issue(&self, params: &mut CertificateParams, key: &impl PublicKeyData) -> Result<(Certificate, IssuedCertificate)> {
        let serial = random_serial()?;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(key, &self.issuer).map_err(rcgen_error)?;
        let issued = IssuedCertificate {
            serial: hex::encode(serial),
            tls_key: spki_hash(certificate.der()).map_err(identity_error)?,
            issued: rfc3339(params.not_before + SKEW),
            expires: rfc3339(params.not_after),
            revoked: None,
        };
        Ok((certificate, issued))
    }

    /// Writes the list of members and a revocation list that fits it. The revocation list comes first: a crash in between
    /// leaves a certificate revoked whose name still is in the list, never the other way round.
    fn save(&self, now: OffsetDateTime) -> Result<()> {
        let all = self.enrolled.clients.values().flat_map(|member| &member.certificates).chain(&self.enrolled.server_certificates);
        let revoked = all.filter_map(|certificate| certificate.revoked.as_ref().map(|at| (certificate, at)));
        let revoked_certs = revoked.map(|(certificate, at)| {
            let serial = hex::decode(&certificate.serial).map_err(|e| ServerError::file(&self.directory.join(ENROLLED), e))?;
            let revocation_time = OffsetDateTime::parse(at, &Rfc3339).map_err(|e| ServerError::file(&self.directory.join(ENROLLED), e))?;
            Ok(RevokedCertParams {
                serial_number: SerialNumber::from_slice(&serial),
                revocation_time,
                reason_code: None,
                invalidity_date: None,
            })
        });
        let params = CertificateRevocationListParams {
            this_update: whole_second(now - SKEW)?,
            next_update: whole_second(now + Duration::days(self.enrolled.revocation_list_days.into()))?,
            crl_number: SerialNumber::from(u64::try_from(now.unix_timestamp_nanos() / 1000).unwrap_or(1)),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect::<Result<_>>()?,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let crl = params.signed_by(&self.issuer).and_then(|crl| crl.pem()).map_err(rcgen_error)?;
        replace(&self.directory.join(CRL), crl.as_bytes())?;
        self.enrolled.save(&self.directory.join(ENROLLED))
    }
}

/// A key of the authority or the server.
fn key_pair(path: &Path) -> Result<KeyPair> {
    let text = secret(path)?;
    let text = std::str::from_utf8(&text).map_err(|_| ServerError::file(path, "not a PEM file"))?;
    KeyPair::from_pem(text).map_err(|e| ServerError::file(path, e))
}

fn lock(directory: &Path) -> Result<FileLock> {
    files::lock(&directory.join(".lock"), "another `dp-pvi-server ca` command is at work; try again when it is done")
}

fn base_params(common_name: &str, now: OffsetDateTime, days: i64) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    set_validity(&mut params, common_name, now, days)?;
    Ok(params)
}

fn set_validity(params: &mut CertificateParams, common_name: &str, now: OffsetDateTime, days: i64) -> Result<()> {
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = whole_second(now - SKEW)?;
    params.not_after = whole_second(now + Duration::days(days))?;
    Ok(())
}

fn whole_second(at: OffsetDateTime) -> Result<OffsetDateTime> {
    at.replace_nanosecond(0).map_err(|e| ServerError::Failed(Problem::of(e)))
}

fn uri(name: &PeerName) -> Result<SanType> {
    Ok(SanType::URI(name.to_string().try_into().map_err(rcgen_error)?))
}

/// 128 random bits, positive and without a leading zero byte, so that its encoding is unique.
fn random_serial() -> Result<[u8; 16]> {
    let mut serial = [0; 16];
    getrandom::fill(&mut serial).map_err(|_| ServerError::Failed("the operating system gave no random bytes".into()))?;
    serial[0] = (serial[0] & 0x7f) | 0x40;
    Ok(serial)
}

/// The first certificate of a PEM file that may hold other blocks too.
fn first_certificate(text: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    text.find(END).map_or_else(String::new, |end| text[..end + END.len()].to_owned())
}

fn rcgen_error(error: rcgen::Error) -> ServerError {
    ServerError::Failed(format!("the certificate could not be made: {error}").into())
}

fn identity_error(error: IdentityError) -> ServerError {
    match error {
        error @ IdentityError::Io { .. } => ServerError::Unavailable(Problem::of(error)),
        error => ServerError::Failed(Problem::of(error)),
    }
}

#[cfg(test)]
mod tests;
