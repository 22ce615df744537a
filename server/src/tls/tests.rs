#![allow(clippy::unwrap_used)]
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;
use time::Duration;

use super::*;
use crate::ca::{Authority, NewFederation};
use crate::clock;

fn files(directory: &Path) -> TlsFiles {
    let at = |name: &str| directory.join(name);
    TlsFiles {
        ca: at("ca.pem"),
        cert: at("server.pem"),
        key: at("server.key"),
        identity: at("server-identity.key"),
        crl: at("crl.pem"),
        enrolled: at("enrolled.json"),
    }
}

fn federation(directory: &Path) -> Authority {
    let new =
        NewFederation { name: "fed".into(), dns: vec!["localhost".into()], addresses: Vec::new(), days: 90, revocation_list_days: 30 };
    Authority::init(directory, &new, clock::date(clock::now())).unwrap()
}

#[test]
fn good_files_load_and_say_when_they_expire() {
    let directory = TempDir::new().unwrap();
    drop(federation(directory.path()));
    let credentials = Credentials::load(&files(directory.path()), "fed").unwrap();
    assert!(credentials.expires.revocation_list > clock::date(clock::now()) + Duration::days(29));
    assert_eq!(credentials.server.alpn_protocols, [b"h2".to_vec()]);
    assert_eq!(credentials.server.send_tls13_tickets, 0);
}

#[test]
fn every_wrong_file_is_named() {
    let directory = TempDir::new().unwrap();
    drop(federation(directory.path()));
    let good = files(directory.path());
    let wrong = directory.path().join("wrong.pem");
    std::fs::write(&wrong, "nothing").unwrap();
    std::fs::set_permissions(&wrong, std::fs::Permissions::from_mode(0o600)).unwrap();
    let missing = directory.path().join("missing.pem");
    type Field = fn(&mut TlsFiles) -> &mut std::path::PathBuf;
    let fields: [Field; 5] = [|f| &mut f.ca, |f| &mut f.cert, |f| &mut f.key, |f| &mut f.crl, |f| &mut f.enrolled];
    for field in fields {
        for bad in [&wrong, &missing] {
            let mut changed = good.clone();
            *field(&mut changed) = bad.clone();
            let error = Credentials::load(&changed, "fed").unwrap_err();
            assert_eq!(error.code(), 4);
            assert!(error.to_string().contains(bad.to_str().unwrap()), "{error}");
        }
    }
    // The certificate of the authority is not the server's, and another federation's name is not ours.
    let mut changed = good.clone();
    changed.cert = good.ca.clone();
    assert!(Credentials::load(&changed, "fed").is_err());
    assert!(Credentials::load(&good, "other").is_err());
    // A key that belongs to another certificate.
    let other = TempDir::new().unwrap();
    drop(federation(other.path()));
    changed = good.clone();
    changed.key = files(other.path()).key;
    assert!(Credentials::load(&changed, "fed").is_err());
}

#[test]
fn keys_that_others_may_read_are_refused() {
    let directory = TempDir::new().unwrap();
    drop(federation(directory.path()));
    let good = files(directory.path());
    for key in [&good.key, &good.identity] {
        std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o640)).unwrap();
    }
    assert!(Credentials::load(&good, "fed").unwrap_err().to_string().contains("chmod 600"));
    assert!(load_identity(&good.identity).unwrap_err().to_string().contains("chmod 600"));
}

#[test]
fn credentials_follow_their_files_and_survive_bad_ones() {
    let directory = TempDir::new().unwrap();
    let mut authority = federation(directory.path());
    let good = files(directory.path());
    let live = LiveCredentials::load(&good, "fed").unwrap();
    assert!(live.refresh().is_none(), "nothing changed");
    authority.renew(clock::date(clock::now()), 30, None).unwrap();
    let renewed = live.refresh().expect("the files changed");
    assert_eq!(renewed.enrolled.server_certificates.len(), 2);
    std::fs::write(&good.crl, "damaged").unwrap();
    assert!(live.refresh().is_none());
    assert_eq!(live.current().enrolled, renewed.enrolled, "the earlier files stay in force");
}

/// A certificate that the server could serve with and no site would take is refused, with what to do: by `check`, by `run`, and when files are read again.
#[test]
fn a_server_certificate_that_no_site_accepts_is_refused() {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
    let directory = TempDir::new().unwrap();
    drop(federation(directory.path()));
    let files = files(directory.path());
    let text = |path: &Path| std::fs::read_to_string(path).unwrap();
    let authority = text(&files.ca);
    let (first, _) = authority.split_at(authority.find("-----END CERTIFICATE-----").unwrap() + "-----END CERTIFICATE-----".len());
    let issuer = Issuer::from_ca_cert_pem(first, KeyPair::from_pem(&text(&directory.path().join("ca.key"))).unwrap()).unwrap();
    let key = KeyPair::from_pem(&text(&files.key)).unwrap();
    let serve = |names: &[&str], change: &dyn Fn(&mut CertificateParams)| {
        let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        params.subject_alt_names.push(SanType::URI(PeerName::server("fed").unwrap().to_string().try_into().unwrap()));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        change(&mut params);
        std::fs::write(&files.cert, params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        Credentials::load(&files, "fed")
    };
    for names in [&["localhost"][..], &["*.example.org"], &["192.0.2.7"], &["2001:db8::7", "fed.example.org"]] {
        serve(names, &|_| {}).unwrap();
    }
    let client = |params: &mut CertificateParams| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let ca = |params: &mut CertificateParams| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    for (names, change, word) in [
        (&["localhost"][..], &client as &dyn Fn(&mut CertificateParams), "no site accepts"),
        (&["localhost"], &ca, "no site accepts"),
        (&[], &|_: &mut CertificateParams| {}, "no DNS name"),
    ] {
        let refused = serve(names, change).unwrap_err();
        assert_eq!(refused.code(), 4);
        assert!(refused.to_string().contains(word) && refused.to_string().contains("ca renew"), "{refused}");
    }
    // Of another authority.
    let other = TempDir::new().unwrap();
    drop(federation(other.path()));
    std::fs::copy(other.path().join("server.pem"), &files.cert).unwrap();
    assert!(Credentials::load(&files, "fed").unwrap_err().to_string().contains("no site accepts"));
}
