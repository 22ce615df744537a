//! What a run came to, for people and for programs that read it: the file that a run leaves behind ([`document`]) with its [`certificate`]s, whether the sites
//! [agree](agreement), whether the run has [settled](convergence), and the posterior [without a site](divided); the page that shows it ([`report`]); what a run will be
//! worth before it runs ([`forecast`]); what its formula makes of a record ([`coefficients`]); and the accountant's answers as commands ([`account`]). All of it comes from released values and costs no privacy.

pub mod account;
pub mod agreement;
pub mod certificate;
pub mod coefficients;
pub mod convergence;
pub mod divided;
pub mod document;
pub mod forecast;
pub mod picture;
pub mod report;
