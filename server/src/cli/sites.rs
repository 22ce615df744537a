//! Sites that a task's formula names, against those that are enrolled: for `check`.

use dp_pvi_posterior::task::ResolvedTask;

use crate::ca::Enrolled;

/// Where the list of sites that have effects is not that of the enrolled sites.
pub(super) fn unlisted(task: &ResolvedTask, enrolled: &Enrolled) -> Vec<String> {
    let listed: Vec<String> =
        task.parsed_schema().ok().and_then(|schema| schema.design().map(|design| design.sites().to_vec())).unwrap_or_default();
    if listed.is_empty() {
        return Vec::new();
    }
    let enrolled: Vec<&str> = enrolled.names_of_sites().collect();
    let outside = enrolled.iter().filter(|site| !listed.iter().any(|name| name == *site));
    let mut warnings: Vec<String> = outside
        .map(|site| {
            format!(
                "site {site} is enrolled, but not in `sites` of [model]: it will be refused; add it to the list, whose sites have effects"
            )
        })
        .collect();
    let absent: Vec<&str> = listed.iter().map(String::as_str).filter(|name| !enrolled.contains(name)).collect();
    if !absent.is_empty() && !enrolled.is_empty() {
        let names = absent.join(", ");
        warnings.push(format!("not enrolled, but in `sites` of [model]: {names}; their effects stay what the prior says unless they join"));
    }
    warnings
}
