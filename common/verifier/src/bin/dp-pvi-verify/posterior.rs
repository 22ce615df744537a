//! `posterior.json`, as far as its certificates are about it.

use serde::Deserialize;

use dp_pvi_verifier::{Certificate, Refusal, Relation, digest, verify};

/// What is read of a posterior. Each of these fields is there once.
#[derive(Deserialize)]
struct Posterior {
    task_hash: String,
    run: u32,
    privacy: Vec<Statement>,
    certificate: Option<Certified>,
    fallback_certificate: Option<Certified>,
}

/// What is claimed for one site.
#[derive(Deserialize)]
struct Statement {
    relation: String,
    trust: String,
    epsilon: Option<f64>,
    fallback_epsilon: Option<f64>,
    delta: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Certified {
    Text(String),
    Absent(String),
}

/// Why a file is not accepted.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum Unproved {
    /// No certificate, or one that does not hold.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is none, and the file says why.
    #[error("its epsilon has no certificate ({0}): nothing can be checked")]
    Absent(String),
    /// A posterior that its certificates do not cover.
    #[error("{0}: do not rely on the posterior, and export it again")]
    Posterior(&'static str),
}

/// What is claimed, in words; and its certificate, or why it has none.
pub(crate) type Finding = (&'static str, Result<Certificate, String>);

/// Checks a certificate, or a `posterior.json`: that its certificates hold and are bound to the run and the task that the file names, that no site's
/// statement claims more, and that there is a second one, about other events, where noise is whole only in a sum over sites. That one may be missing where nothing is
/// claimed, or an ε above 100, up to which discrete noise is proved. That the events are those that were charged, a site compares with its ledger.
///
/// # Errors
/// Other files, a posterior without a certificate, and every claim that is not proved.
pub(crate) fn verify_file(bytes: &[u8]) -> Result<Vec<Finding>, Unproved> {
    if bytes.starts_with(b"{\"format\":\"") {
        return Ok(vec![("epsilon", Ok(verify(bytes)?))]);
    }
    let file: Posterior = serde_json::from_slice(bytes).map_err(|_| Refusal::Form("no posterior.json that has each field once"))?;
    let sites = &file.privacy;
    let demand = |ok: bool, what| if ok { Ok(()) } else { Err(Unproved::Posterior(what)) };
    demand(!sites.is_empty(), "it states nothing for any site")?;
    let run = digest(&format!("{}/{}", file.task_hash, file.run));
    let check = |text: &str, claim: fn(&Statement) -> Option<f64>| {
        let certificate = verify(text.as_bytes())?;
        let bound = certificate.binding.iter().any(|to| to[0] == run && to[1] == file.task_hash);
        demand(bound, "a certificate is of another run or task than the posterior")?;
        let covers = |site: &Statement| {
            let relation = site.relation == "add-remove" || site.relation == "replace-one" && certificate.relation == Relation::ReplaceOne;
            relation && site.delta >= certificate.delta && claim(site) >= Some(certificate.epsilon)
        };
        demand(sites.iter().all(covers), "it states more than is proved")?;
        Ok::<_, Unproved>(certificate)
    };
    let text = match &file.certificate {
        Some(Certified::Text(text)) => text,
        Some(Certified::Absent(why)) => return Err(Unproved::Absent(why.clone())),
        None => return Err(Unproved::Posterior("its epsilon has no certificate")),
    };
    let joint = check(text, |site| site.epsilon)?;
    let local = sites.iter().all(|site| site.trust == "local" && site.fallback_epsilon.is_none());
    let worst = match file.fallback_certificate {
        None if local => return Ok(vec![("epsilon", Ok(joint))]),
        Some(Certified::Absent(why)) if !local && sites.iter().all(|site| site.fallback_epsilon.unwrap_or(f64::MAX) > 100.0) => Err(why),
        Some(Certified::Text(text)) => Ok(check(&text, |site| site.fallback_epsilon)?),
        _ => return Err(Unproved::Posterior("its fallback epsilon has no certificate")),
    };
    // One share of the noise is another event than the sum of all.
    let events = |one: &Certificate| one.binding.as_ref().map(|to| to[2].clone());
    demand(worst.as_ref().ok().map(events) != Some(events(&joint)), "both certificates are about the same events")?;
    Ok(vec![("epsilon", Ok(joint)), ("fallback epsilon", worst)])
}
