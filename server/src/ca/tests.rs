#![allow(clippy::unwrap_used)]
use std::os::unix::fs::PermissionsExt;

use dp_pvi_programs::identity::{Party, PeerRole, public_identity_from_pem};
use dp_pvi_protocol::message::Role;
use rcgen::KeyPair;
use tempfile::TempDir;
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use super::*;

fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_790_000_000).unwrap()
}

fn federation(name: &str) -> NewFederation {
    NewFederation {
        name: name.into(),
        dns: vec!["fed.example.org".into()],
        addresses: vec!["127.0.0.1".parse().unwrap()],
        days: 90,
        revocation_list_days: 30,
    }
}

fn id(name: &str) -> ClientId {
    ClientId::new(name).unwrap()
}

/// A client's enrolment file in `directory`.
fn request(directory: &Path, federation: &str, name: &str, identity: &ed25519_dalek::SigningKey) -> PathBuf {
    request_of(Party::Site, directory, federation, name, identity)
}

fn request_of(party: Party, directory: &Path, federation: &str, name: &str, identity: &ed25519_dalek::SigningKey) -> PathBuf {
    let tls = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["something.else".to_owned()]).unwrap();
    // A request may ask for whatever it wants.
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let csr = params.serialize_request(&tls).unwrap();
    let file = directory.join(format!("{name}.csr.pem"));
    std::fs::write(&file, Enrolment::file(federation, id(name), party, csr.der(), identity)).unwrap();
    file
}

fn der(pem_text: &str) -> Vec<u8> {
    rustls_pki_types::pem::PemObject::from_pem_slice(pem_text.as_bytes())
        .map(|certificate: rustls_pki_types::CertificateDer<'_>| certificate.to_vec())
        .unwrap()
}

fn revoked_serials(directory: &Path) -> Vec<String> {
    let text = std::fs::read(directory.join(CRL)).unwrap();
    let list: rustls_pki_types::CertificateRevocationListDer<'_> = rustls_pki_types::pem::PemObject::from_pem_slice(&text).unwrap();
    let (_, list) = CertificateRevocationList::from_der(&list).unwrap();
    list.iter_revoked_certificates().map(|certificate| hex::encode(certificate.raw_serial())).collect()
}

#[test]
fn a_new_federation_has_secret_keys_and_a_named_server() {
    let directory = TempDir::new().unwrap();
    Authority::init(directory.path(), &federation("lung-fed"), now()).unwrap();
    for secret in [CA_KEY, SERVER_KEY, SERVER_IDENTITY] {
        assert_eq!(std::fs::metadata(directory.path().join(secret)).unwrap().permissions().mode() & 0o777, 0o600, "{secret}");
    }
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let identity = crate::tls::load_identity(&directory.path().join(SERVER_IDENTITY)).unwrap();
    assert_eq!(public_identity_from_pem(&read(CA_PEM)).unwrap(), identity.verifying_key());

    let server = der(&read(SERVER_PEM));
    assert_eq!(PeerName::from_certificate(&server).unwrap(), PeerName::server("lung-fed").unwrap());
    let (_, certificate) = X509Certificate::from_der(&server).unwrap();
    assert!(!certificate.is_ca());
    let usage = certificate.extended_key_usage().unwrap().unwrap();
    assert!(usage.value.server_auth && !usage.value.client_auth);
    assert_eq!(certificate.validity().not_after.timestamp(), (now() + Duration::days(90)).unix_timestamp());
    certificate.verify_signature(Some(X509Certificate::from_der(&der(&read(CA_PEM))).unwrap().1.public_key())).unwrap();
}

#[test]
fn init_never_overwrites() {
    let directory = TempDir::new().unwrap();
    drop(Authority::init(directory.path(), &federation("lung-fed"), now()).unwrap());
    let before = std::fs::read(directory.path().join(CA_KEY)).unwrap();
    let error = Authority::init(directory.path(), &federation("other"), now()).err().unwrap();
    assert_eq!(error.code(), 4);
    assert_eq!(std::fs::read(directory.path().join(CA_KEY)).unwrap(), before);
    assert_eq!(Enrolled::load(&directory.path().join(ENROLLED)).unwrap().federation, "lung-fed");

    // Nor a link, wherever it leads.
    for name in [CA_KEY, CA_PEM, SERVER_PEM, SERVER_KEY, SERVER_IDENTITY, CRL, ENROLLED] {
        for target in ["gone", "there"] {
            let directory = TempDir::new().unwrap();
            std::fs::write(directory.path().join("there"), "somebody's").unwrap();
            std::os::unix::fs::symlink(directory.path().join(target), directory.path().join(name)).unwrap();
            let error = Authority::init(directory.path(), &federation("other"), now()).err().unwrap();
            assert!(error.code() == 4 && error.to_string().contains("is a link already"), "{name}: {error}");
            assert_eq!(std::fs::read_link(directory.path().join(name)).unwrap(), directory.path().join(target));
            assert!(!directory.path().join("gone").exists());
        }
    }

    // What is written anew later is no link either.
    drop(Authority::open(directory.path()).unwrap());
    for name in [SERVER_PEM, CRL, ENROLLED] {
        let (file, elsewhere) = (directory.path().join(name), directory.path().join("elsewhere"));
        std::fs::rename(&file, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
        let error = Authority::open(directory.path()).err().unwrap();
        assert!(error.code() == 4 && error.to_string().contains("is a link"), "{name}: {error}");
        std::fs::rename(&elsewhere, &file).unwrap();
    }
    drop(Authority::open(directory.path()).unwrap());

    let empty = TempDir::new().unwrap();
    let nameless = NewFederation { dns: Vec::new(), addresses: Vec::new(), ..federation("f") };
    assert_eq!(Authority::init(empty.path(), &nameless, now()).err().unwrap().code(), 2);
    assert_eq!(Authority::init(empty.path(), &federation("Not A Name"), now()).err().unwrap().code(), 2);
}

#[test]
fn sign_certifies_the_name_and_nothing_else() {
    let directory = TempDir::new().unwrap();
    drop(Authority::init(directory.path(), &federation("lung-fed"), now()).unwrap());
    let identity = generate_identity().unwrap();
    let file = request(directory.path(), "lung-fed", "hospital-1", &identity);
    let (client, pem_text) = Authority::open(directory.path()).unwrap().sign(&file, now(), 30).unwrap();
    assert_eq!(client, id("hospital-1"));
    let certificate = der(&pem_text);
    assert_eq!(PeerName::from_certificate(&certificate).unwrap().role, PeerRole::Site(id("hospital-1")));
    let (_, parsed) = X509Certificate::from_der(&certificate).unwrap();
    assert!(!parsed.is_ca(), "a request cannot make itself an authority");
    let names = parsed.subject_alternative_name().unwrap().unwrap();
    assert_eq!(names.value.general_names.len(), 1, "the names of the request are not taken over");
    let usage = parsed.extended_key_usage().unwrap().unwrap();
    assert!(usage.value.client_auth && !usage.value.server_auth);

    let enrolled = Enrolled::load(&directory.path().join(ENROLLED)).unwrap();
    let member = &enrolled.clients[&id("hospital-1")];
    assert_eq!(member.identity, identity.verifying_key().to_bytes());
    assert_eq!(member.certificates[0].tls_key, spki_hash(&certificate).unwrap());
    assert_eq!(enrolled.active().unwrap()[&id("hospital-1")].key, identity.verifying_key());
}

#[test]
fn a_name_belongs_to_one_identity() {
    let directory = TempDir::new().unwrap();
    drop(Authority::init(directory.path(), &federation("lung-fed"), now()).unwrap());
    let mut authority = Authority::open(directory.path()).unwrap();
    let (first, second) = (generate_identity().unwrap(), generate_identity().unwrap());
    authority.sign(&request(directory.path(), "lung-fed", "a", &first), now(), 30).unwrap();
    // Renewal under the same identity.
    authority.sign(&request(directory.path(), "lung-fed", "a", &first), now(), 30).unwrap();
    assert_eq!(authority.enrolled().clients[&id("a")].certificates.len(), 2);
    // Someone else under the same name, or for another federation.
    assert_eq!(authority.sign(&request(directory.path(), "lung-fed", "a", &second), now(), 30).unwrap_err().code(), 4);
    assert_eq!(authority.sign(&request(directory.path(), "other", "b", &second), now(), 30).unwrap_err().code(), 4);

    authority.revoke(&id("a"), now()).unwrap();
    let serials: Vec<String> = authority.enrolled().clients[&id("a")].certificates.iter().map(|c| c.serial.clone()).collect();
    assert_eq!(revoked_serials(directory.path()), serials);
    assert!(authority.enrolled().active().unwrap().is_empty());
    // A revoked key stays revoked; new keys may come back under the name, and the old certificates stay on the list.
    assert_eq!(authority.sign(&request(directory.path(), "lung-fed", "a", &first), now(), 30).unwrap_err().code(), 4);
    authority.sign(&request(directory.path(), "lung-fed", "a", &second), now(), 30).unwrap();
    assert_eq!(revoked_serials(directory.path()), serials);
    assert_eq!(authority.enrolled().active().unwrap()[&id("a")].key, second.verifying_key());
    assert_eq!(authority.revoke(&id("nobody"), now()).unwrap_err().code(), 2);
}

#[test]
fn a_damaged_request_is_refused() {
    let directory = TempDir::new().unwrap();
    drop(Authority::init(directory.path(), &federation("lung-fed"), now()).unwrap());
    let mut authority = Authority::open(directory.path()).unwrap();
    // A request that is not one, correctly enrolled by its hash.
    let file = directory.path().join("bad.csr.pem");
    let identity = generate_identity().unwrap();
    std::fs::write(&file, Enrolment::file("lung-fed", id("bad"), Role::Site, b"no request", &identity)).unwrap();
    assert_eq!(authority.sign(&file, now(), 30).unwrap_err().code(), 4);
    std::fs::write(&file, "").unwrap();
    assert_eq!(authority.sign(&file, now(), 30).unwrap_err().code(), 4);
    assert!(authority.enrolled().clients.is_empty());
}

/// How long clients are let in without a newer list is the federation's choice and no one's certificate's.
#[test]
fn the_revocation_list_has_its_own_validity() {
    let directory = TempDir::new().unwrap();
    let mut authority = Authority::init(directory.path(), &federation("lung-fed"), now()).unwrap();
    let expires = || {
        let text = std::fs::read(directory.path().join(CRL)).unwrap();
        let list: rustls_pki_types::CertificateRevocationListDer<'_> = rustls_pki_types::pem::PemObject::from_pem_slice(&text).unwrap();
        CertificateRevocationList::from_der(&list).unwrap().1.next_update().unwrap().timestamp()
    };
    let after = |days: i64| (now() + Duration::days(days)).unix_timestamp();
    assert_eq!(expires(), after(30));
    for days in [1, 3650] {
        let name = format!("site-{days}");
        authority.sign(&request(directory.path(), "lung-fed", &name, &generate_identity().unwrap()), now(), days).unwrap();
        assert_eq!(expires(), after(30), "signed for {days} days");
    }
    authority.renew(now(), 90, Some(7)).unwrap();
    assert_eq!(expires(), after(7));
    authority.revoke(&id("site-1"), now()).unwrap();
    assert_eq!(expires(), after(7));
}

#[test]
fn one_command_at_a_time() {
    let directory = TempDir::new().unwrap();
    let open = Authority::init(directory.path(), &federation("lung-fed"), now()).unwrap();
    assert_eq!(Authority::open(directory.path()).err().unwrap().code(), 12);
    drop(open);
    Authority::open(directory.path()).unwrap().renew(now(), 90, None).unwrap();
    assert_eq!(Enrolled::load(&directory.path().join(ENROLLED)).unwrap().server_certificates.len(), 2);
}

#[test]
fn nobody_is_called_like_a_file_of_the_federation() {
    let directory = TempDir::new().unwrap();
    let mut authority = Authority::init(directory.path(), &federation("lung-fed"), now()).unwrap();
    let read = |name: &str| std::fs::read(directory.path().join(name)).unwrap();
    let before = [read(CA_PEM), read(SERVER_PEM), read(CRL)];
    let identity = generate_identity().unwrap();
    for (name, party) in [("ca", Party::Site), ("crl", Party::Evaluator), ("server", Party::Summer), ("summer", Party::Site)] {
        let file = request_of(party, directory.path(), "lung-fed", name, &identity);
        let signed = authority.sign(&file, now(), 30).map(drop);
        let written = authority.sign_into(&file, directory.path(), now(), 30).map(drop);
        for error in [signed.unwrap_err(), written.unwrap_err()] {
            assert_eq!(error.code(), 4);
            assert!(error.to_string().contains(&format!("nobody can be called {name}")), "{error}");
        }
    }
    assert!(authority.enrolled().clients.is_empty());
    assert_eq!([read(CA_PEM), read(SERVER_PEM), read(CRL)], before);
    // A summer is usually called that.
    let file = request_of(Party::Summer, directory.path(), "lung-fed", "summer", &identity);
    authority.sign_into(&file, directory.path(), now(), 30).unwrap();
    assert_eq!([read(CA_PEM), read(SERVER_PEM)], before[..2]);
    let keys = TempDir::new().unwrap();
    let folder = keys.path().join("tls");
    assert_eq!(crate::summer::make_request("lung-fed", id("ca"), &folder).unwrap_err().code(), 2);
    assert!(!folder.exists());
}

#[test]
fn a_signature_replaces_an_earlier_one_and_no_other_file() {
    let (directory, out, other) = (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut authority = Authority::init(directory.path(), &federation("lung-fed"), now()).unwrap();
    let file = request(directory.path(), "lung-fed", "a", &generate_identity().unwrap());
    let (client, [certificate, ca]) = authority.sign_into(&file, out.path(), now(), 30).unwrap();
    assert_eq!(client, id("a"));
    assert_eq!((certificate.clone(), ca.clone()), (out.path().join("a.pem"), out.path().join("ca.pem")));
    let of_authority = std::fs::read(directory.path().join(CA_PEM)).unwrap();
    assert_eq!(std::fs::read(&ca).unwrap(), of_authority);
    let first = std::fs::read_to_string(&certificate).unwrap();
    authority.sign_into(&file, out.path(), now(), 30).unwrap();
    let second = std::fs::read_to_string(&certificate).unwrap();
    assert_ne!(first, second);

    // A link: to the other one of the two, or to the file of another authority.
    let elsewhere = out.path().join("elsewhere");
    for (place, target) in [(&certificate, &ca), (&ca, &certificate), (&ca, &directory.path().join(CA_PEM))] {
        std::fs::rename(place, &elsewhere).unwrap();
        std::os::unix::fs::symlink(target, place).unwrap();
        let before = std::fs::read(target).unwrap();
        let error = authority.sign_into(&file, out.path(), now(), 30).unwrap_err();
        assert!(error.code() == 4 && error.to_string().contains("is a link: nothing was signed"), "{error}");
        assert_eq!(std::fs::read(target).unwrap(), before);
        std::fs::rename(&elsewhere, place).unwrap();
    }

    // Of someone else, by another authority, beside a key, a key, a request, nothing.
    let (_, of_b) = authority.sign(&request(directory.path(), "lung-fed", "b", &generate_identity().unwrap()), now(), 30).unwrap();
    let (_, foreign) = Authority::init(other.path(), &federation("lung-fed"), now()).unwrap().sign(&file, now(), 30).unwrap();
    let key = std::fs::read_to_string(directory.path().join(SERVER_KEY)).unwrap();
    let asked = std::fs::read_to_string(&file).unwrap();
    let signed = authority.enrolled().clients[&id("a")].certificates.len();
    for text in [of_b, foreign, format!("{second}{key}"), key, asked, String::new()] {
        std::fs::write(&certificate, &text).unwrap();
        let error = authority.sign_into(&file, out.path(), now(), 30).unwrap_err();
        assert!(
            error.code() == 4 && error.to_string().contains("a.pem: is there") && error.to_string().contains("move it away"),
            "{error}"
        );
        assert_eq!(std::fs::read_to_string(&certificate).unwrap(), text);
    }
    std::fs::remove_file(&certificate).unwrap();
    std::fs::create_dir(&certificate).unwrap();
    assert_eq!(authority.sign_into(&file, out.path(), now(), 30).unwrap_err().code(), 4);
    std::fs::remove_dir(&certificate).unwrap();
    // The certificate of another authority, alone or with ours.
    let foreign = std::fs::read(other.path().join(CA_PEM)).unwrap();
    for text in [foreign.clone(), [of_authority.clone(), foreign].concat()] {
        std::fs::write(&ca, &text).unwrap();
        let error = authority.sign_into(&file, out.path(), now(), 30).unwrap_err();
        assert!(error.code() == 4 && error.to_string().contains("ca.pem: is there"), "{error}");
        assert_eq!(std::fs::read(&ca).unwrap(), text);
        assert!(!certificate.exists());
    }
    assert_eq!(authority.enrolled().clients[&id("a")].certificates.len(), signed, "nothing was signed");
    // Both files of an earlier authority of this federation: the client belongs to this one from here on. Not where that authority lives.
    let mut earlier = Authority::init(other.path().join("earlier").as_path(), &federation("lung-fed"), now()).unwrap();
    let (moved, own) = (other.path().join("moved"), other.path().join("earlier"));
    for folder in [&moved, &own] {
        earlier.sign_into(&file, folder, now(), 30).unwrap();
    }
    authority.sign_into(&file, &moved, now(), 30).unwrap();
    assert_eq!(std::fs::read(moved.join(CA_PEM)).unwrap(), of_authority);
    let before = std::fs::read(own.join(CA_PEM)).unwrap();
    assert_eq!(authority.sign_into(&file, &own, now(), 30).unwrap_err().code(), 4);
    assert_eq!(std::fs::read(own.join(CA_PEM)).unwrap(), before);
    // In the authority's own folder its file is there already.
    authority.sign_into(&file, directory.path(), now(), 30).unwrap();
    assert_eq!(std::fs::read(directory.path().join(CA_PEM)).unwrap(), of_authority);
}

#[test]
fn a_server_has_names_under_which_sites_accept_it() {
    let names = |dns: &[&str], addresses: &[&str]| NewFederation {
        dns: dns.iter().map(|name| (*name).to_owned()).collect(),
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        ..federation("lung-fed")
    };
    let long = "a".repeat(64);
    let wrong = [
        "https://fed.example.org",
        "fed.example.org:9092",
        "",
        " ",
        "fed example",
        " fed.example.org",
        "*",
        "*.org",
        "*.",
        "*.*.example.org",
        "a.*.example.org",
        "*example.org",
        "*.192.0.2.7",
        "fed.example.org.",
        "fed..example.org",
        "-fed.example.org",
        "fed.example.org/",
        "fëd.example.org",
        "[::1]",
        "127.0.0.1:9092",
        "1.2.3",
        "0.0.0.0",
        &long,
    ];
    let directory = TempDir::new().unwrap();
    for name in wrong {
        let error = Authority::init(directory.path(), &names(&["fed.example.org", name], &[]), now()).err().unwrap();
        assert_eq!(error.code(), 2, "{name}");
        assert!(error.to_string().starts_with("--dns: ") && error.to_string().contains(", like "), "{error}");
    }
    for address in ["0.0.0.0", "::", "224.0.0.1"] {
        let error = Authority::init(directory.path(), &names(&[], &[address]), now()).err().unwrap();
        assert!(error.code() == 2 && error.to_string().starts_with("--ip: "), "{error}");
    }
    assert!(std::fs::read_dir(directory.path()).unwrap().next().is_none(), "nothing was made");
    let right = ["localhost", "fed.example.org", "*.wild.example", "Fed_1.example.org", "xn--fd-fka.example.org", "192.0.2.7"];
    let mut authority = Authority::init(directory.path(), &names(&right, &["2001:db8::1", "::ffff:192.0.2.7"]), now()).unwrap();
    authority.renew(now(), 90, None).unwrap();
    drop(authority);

    // A list that someone wrote into.
    let (list, certificate) = (directory.path().join(ENROLLED), directory.path().join(SERVER_PEM));
    let text = std::fs::read_to_string(&list).unwrap();
    std::fs::write(&list, text.replace("fed.example.org", "https://fed.example.org")).unwrap();
    let before = std::fs::read(&certificate).unwrap();
    let error = Authority::open(directory.path()).unwrap().renew(now(), 90, None).unwrap_err();
    assert!(error.code() == 4 && error.to_string().contains("enrolled.json: server_names: "), "{error}");
    assert_eq!(std::fs::read(&certificate).unwrap(), before);
}
