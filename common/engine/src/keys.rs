//! The site's key, and certificates of an authority that is for this cluster alone.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use dp_pvi_privacy::SecureNoise;
use rand_core::Rng;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use zeroize::Zeroizing;

use crate::tls::Role;

/// A certificate is one for clients, for servers, or for both.
fn usages(role: Role) -> Vec<ExtendedKeyUsagePurpose> {
    match role {
        Role::Scheduler => vec![ExtendedKeyUsagePurpose::ServerAuth],
        Role::Executor => vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth],
        Role::Head => vec![ExtendedKeyUsagePurpose::ClientAuth],
    }
}

/// Makes a folder with `site.key`, `ca.pem`, and certificate and key for each role. The authority's own key is forgotten: new certificates are a new folder.
///
/// # Errors
/// The folder exists or cannot be written. In words.
pub fn write(out: &Path) -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", out.display());
    fs::DirBuilder::new().mode(0o700).create(out).map_err(|e| failed(&e))?;
    let put = |name: &str, text: &str| {
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(out.join(name));
        file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| failed(&e))
    };
    let mut key = Zeroizing::new([0; 32]);
    SecureNoise::fresh().map_err(|e| failed(&e))?.fill_bytes(&mut *key);
    put("site.key", &Zeroizing::new(hex::encode(*key)))?;
    let authority = KeyPair::generate().map_err(|e| failed(&e))?;
    let mut params = CertificateParams::new(Vec::new()).map_err(|e| failed(&e))?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    put("ca.pem", &params.self_signed(&authority).map_err(|e| failed(&e))?.pem())?;
    let issuer = Issuer::new(params, authority);
    for role in Role::ALL {
        let key = KeyPair::generate().map_err(|e| failed(&e))?;
        let mut params = CertificateParams::new(vec![role.name().to_owned()]).map_err(|e| failed(&e))?;
        params.extended_key_usages = usages(role);
        put(&format!("{}.pem", role.file()), &params.signed_by(&key, &issuer).map_err(|e| failed(&e))?.pem())?;
        put(&format!("{}.key", role.file()), &Zeroizing::new(key.serialize_pem()))?;
    }
    Ok(())
}
