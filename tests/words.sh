#!/usr/bin/env bash
# Renames the project's own words to the field's. Run from the root of a tree; a second run changes nothing.
#   words.sh            renames files and text, then formats
# Text rules are Perl substitutions with a scope (a regular expression over paths). Files move first, rules then see the new paths.
set -euo pipefail
cd "$(git rev-parse --show-toplevel)"

mvs() { # mvs PATH_REGEX OLD_BASENAME NEW_BASENAME: git mv of the files and folders of that name below a matching path
    git ls-files | perl -e '
        my ($scope, $old, $new) = @ARGV; my %seen;
        while (<STDIN>) { chomp; next unless m{$scope};
            if (m{^(.*?(?:^|/))\Q$old\E(/.*)?$}) { my $from = "$1$old"; my $to = "$1$new"; next if $seen{$from}++; print "$from\t$to\n"; } }' "$1" "$2" "$3" |
    while IFS=$'\t' read -r from to; do
        [ -e "$from" ] || continue
        mkdir -p "$(dirname "$to")"; git mv "$from" "$to"
    done
}

# --- files -----------------------------------------------------------------------------------------------------------
mvs 'noise_aware/looks' looks.rs measurements.rs
mvs 'noise_aware/looks/' looks measurements
mvs 'noise_aware/levels' levels.rs separation.rs
mvs 'own_eyes' own_eyes.rs local_only.rs
mvs 'own_eyes' own_eyes.stderr local_only.stderr
mvs '^client/' rehearsal.rs dry_run.rs
mvs '^common/' rehearsal.rs prior_predictive.rs
mvs '^common/' worth.rs run_forecast.rs
mvs 'outlook' outlook.rs forecast_table.rs
mvs 'common/.*/world\.rs' world.rs drawn_federation.rs
mvs 'papers/src/worlds' worlds synthetic
mvs 'secagg' world harness
mvs 'secagg/benches' t2_6.rs processor_time.rs
mvs '^server/' crowd.rs connection_limiter.rs
mvs '^server/' shortage.rs resource_backoff.rs
mvs '^tests/' shortage.rs resource_exhaustion.rs
mvs '^server/src/export' standing.rs convergence.rs
mvs '^server/src/standing' standing.rs convergence_status.rs
mvs 'coordinator/unhurried' unhurried.rs asynchronous.rs
mvs 'coordinator/unhurried/' unhurried asynchronous
mvs 'common/privacy/src/parts' parts.rs partial_sums.rs
mvs 'mechanism/tests/parts' parts.rs partial_sums.rs
mvs 'inference/src/methods/parts' parts.rs partial_sums.rs
mvs 'common/protocol/src/parts' parts.rs codec.rs
mvs 'inference/src/methods/asked' asked.rs public_job.rs
mvs 'engine/src/asked' asked.rs answered.rs
mvs 'src/planted|audit/planted' planted.rs injected.rs
mvs 'tests/planted' planted.rs injected.rs
mvs 'common/privacy/src/inside' inside.rs panic_redaction.rs
mvs 'ledger/(file/)?second' second.rs rollback_guard.rs
mvs 'accounting/proofs/pair_b' pair_b.md poisson_replace.md
mvs 'tests/tidy/floors' floors.rs layers.rs
mvs 'tests/tidy/rooms' rooms.rs modules.rs
mvs 'tests/report/looks' looks.rs appearance.rs

# --- sentences: whole comments, exactly as they stand; where one has changed it stays as it is -----------------------------
cat > "${TMPDIR:-/tmp}/sentences.$$.txt" <<'EOT'
@@
    /// Hands over these visits in order, as they are one by one. Where visits share a budget, the shares are added up once for all of
    /// them: a plan of thousands of visits is read many times.
==
    /// Calls `take` for each of these visits, in order. Where visits share a budget, the shares are computed once for all of them, because a plan of thousands
    /// of visits is read many times.
@@
/// The same task with at most so many passes over the records in a visit, for whoever wants to know how long one takes; the noise is what it was. `None`: its update has
/// one pass, or cannot be done with fewer.
==
/// A copy of the task whose visits make at most `most` passes over the records, with the same noise: for measuring the time of a pass. `None` if the update has
/// one pass, or cannot run with fewer.
@@
/// What of a unit is kept follows from its own records and public numbers. A limit on all units together, or on their number, would let one unit push another out or
/// let it in, and a sum would move by two terms.
==
/// Whether a record of a unit is kept depends only on that unit's records and on public constants. A limit on all units together, or on their number, would let
/// one unit push another one out, and a sum would change by two terms.
@@
    /// That run is over. Other records may come when all are. The fingerprint of the run's records stays, for [`Snapshot::check_is_of`].
==
    /// Marks the run as finished. Data files may change once no run is open. The fingerprint of the run's records stays, for [`Snapshot::check_is_of`].
@@
/// The schema of a text with a `kind`; `None` if it has none, or `kind = "table"` stands alone for what has always been.
==
/// The schema of a text with a `kind`; `None` for an ordinary table (no `kind`, or only `kind = "table"`).
@@
/// What one site's releases tell of the coefficients.
==
/// A site's likelihood of the coefficients, as its releases estimate it.
@@
//! Site m tells the gradient s_m and the curvature H_m of its likelihood at a public point. The gradient's expectation is H_m φ_m, φ_m the way from that point to
//! the site's own coefficients.
==
//! Site m releases the gradient s_m and the curvature H_m of its likelihood at a public point. The gradient's expectation is H_m φ_m, φ_m the distance from that
//! point to the site's own coefficients.
@@
//! precision is added, so that P exists where nobody has a signal).
==
//! precision is added, so that P exists where no site has a signal).
@@
//! where H is that of the records' own scores, N that of the gradient's noise, and E that of the errors of H on δ ([`error`]). The last term depends on θ, so
//! that the size of the residual tells something too: a large distance from μ with errors of H on it would leave a large residual.
//! [`UncertainCurvature::mode`] looks for the maximum of
==
//! where H is that of the records' own scores, N that of the gradient's noise, and E that of the errors of H on δ ([`error`]). E grows with the distance from μ,
//! so the size of the residual carries information on θ as well. [`UncertainCurvature::mode`] maximises
@@
/// A θ, and how well it goes with what is known.
==
/// A θ with its log density.
@@
    /// ℓ there. With ½ log det Λ0 and without ½ log det of the [`precision`](UncertainCurvature::precision) it is the logarithm of what was released's density under this
    /// prior, by Laplace's method and up to a constant.
==
    /// ℓ(θ). Plus ½ log det Λ0, minus ½ log det of the [`precision`](UncertainCurvature::precision), it is Laplace's approximation of the log marginal likelihood
    /// of the released values under this prior, up to a constant.
@@
/// ℓ at a θ, with what a step from there needs.
==
/// ℓ at a θ, with the factor that the next step uses.
@@
    /// Λ0 + H S⁻¹ H for an S: what the residual alone tells, with its covariance known.
==
    /// Λ0 + H S⁻¹ H for a given S: the precision if the covariance of the residual were known.
@@
//! **With noise.** Noise on m_k would count as spread, and τ come out too large. For a likelihood part (h, H) that was released with noise of covariance N on h the
//! same ascent is done for the model of what was released ([`NoisyScales`]):
==
//! **With noise.** Noise on m_k would be taken for variation between coefficients, and τ be estimated too large. For a likelihood part (h, H) released with noise of
//! covariance N on h the same ascent is done for the model of the released values ([`NoisyScales`]):
@@
/// What is known of a scale τ where its distribution has no short name: its median and its central intervals.
==
/// Summary of the posterior of a scale τ without a named distribution: median and central intervals.
@@
    /// P: what the released part says, noise considered, as a precision.
==
    /// P: the precision of the released part, with its noise accounted for.
@@
//! Where the noise-aware posterior is made of looks at the likelihood, it is made anew of the looks of the others (`noise_aware`, file `sites.rs`).
==
//! A noise-aware posterior is computed again from the measurements of the other sites (`noise_aware`, file `sites.rs`).
@@
//! received. Where the noise-aware posterior is made of looks at the likelihood, it is made anew of the looks of the others (`noise_aware`, file `sites.rs`).
==
//! received. A noise-aware posterior is computed again from the measurements of the other sites (`noise_aware`, file `sites.rs`).
@@
/// What a run says without one site.
==
/// The posterior of a run without one site.
@@
    /// Of the noise-aware posterior: what is known of the scale of every group of the prior.
==
    /// Of the noise-aware posterior: summary of the scale of every group of the prior.
@@
//! What every site released under local trust, and why sites are not compared. The mathematics of the comparison is [`crate::numerics::agreement`]; what a site's
//! releases say of the coefficients is told by the rooms of the methods.
==
//! What every site released under local trust, and why sites are not compared. The mathematics of the comparison is [`crate::numerics::agreement`]; each method
//! turns a site's releases into its likelihood of the coefficients.
@@
/// Why sites were not compared, as a reader is told.
==
/// Why sites were not compared, as a sentence for the reader.
@@
//! The sites of a run one by one, under local trust: what each says of the coefficients, and what is left without one of them.
//!
//! The looks of a site at the likelihood are combined with the weights that the noise-aware posterior gives to visits ([`looks`](super::looks)), so that the
//! sites' parts add up to the run's likelihood:
==
//! Each site's part of the likelihood under local trust, and the posterior without one of the sites.
//!
//! The measurements of a site are combined with the weights that the noise-aware posterior gives to visits ([`looks`](super::looks)), so that the sites' parts
//! add up to the run's likelihood:
@@
//! * **Without a site**: the noise-aware posterior of what the others showed. For a quadratic likelihood it is that of a run without the site, up to noise. Otherwise a
//!   site that was different has drawn the points away from where the others lead. By how much the curvature changes with the distance was seen on the way of
//!   the run, and a gradient that bends that much over the rest of the way is in the intervals.
==
//! * **Without a site**: the noise-aware posterior of the other sites' measurements. For a quadratic likelihood it is that of a run without the site, up to noise.
//!   Otherwise the points of the run were drawn towards the site that is left out. The change of the curvature with distance is estimated from the run, and the
//!   resulting linearisation error over the remaining distance is in the intervals.
@@
//! What the model expects of gradients where the curvature changes between their points μ and θ.
==
//! Expected gradient and its variance at a point μ if the truth is θ, for models whose curvature changes between the two.
@@
//! * what the gradient changes by with θ J = E ωD p′ xxᵀ,
//! * what it varies by from draw to draw of the labels S = E (ωD)² p(1 − p) xxᵀ, and of several looks with weights w, whose Σ w ωD has at most the square Σ w (ωD)², the mean at most.
==
//! * the derivative of the gradient by θ is J = E ωD p′ xxᵀ,
//! * its variance over the draw of the labels is S = E (ωD)² p(1 − p) xxᵀ; for several measurements with weights w it is at most the weighted mean, since
//!   (Σ w ωD)² ≤ Σ w (ωD)².
@@
//! Rows are taken for normal given the two predictors. Their moments follow from the diagonal of H and the schema, in which records are weighted by c; whoever asks takes c out. A residual
//! has to be linear in the label, as that of two classes always is.
==
//! Rows are assumed normal given the two predictors. Their moments follow from the diagonal of H and the schema, in which records are weighted by c; the caller removes c. The residual
//! must be linear in the label, as it is for two classes.
@@
//! How many records a level of a category has, and how many ones among them, from noised looks at a likelihood of two classes; and what that says of their predictor.
==
//! Estimates the number of a level's records and of its ones from noisy measurements of a likelihood of two classes, and the likelihood of its predictor given them.
@@
//! g_j/D = ω (Y − N p(m_t)), H_jj = ω N c(m_t), each with its noise: N and Y by least squares. All are expectations over what a look is one of, and over the rows of the level.
==
//! g_j/D = ω (Y − N p(m_t)), H_jj = ω N c(m_t), each with its noise: N and Y by least squares. All are expectations over q_t and over the rows of the level.
@@
/// Error of a chance, or of a curvature, that the model gives for the records of a level, relative to what is left of it and to what it has changed by: predictors are not normal, and their moments are guessed.
==
/// Relative error of a probability or curvature that the model predicts for the records of a level: predictors are not normal, and their moments are estimates.
@@
/// The same, and nowhere wider than the prior: in a direction of which what is left says less than the prior, the spread is the prior's, and so is the mean where it is farther from it than
/// [`FARTHEST`]. A scale that was learned counts as large
/// as it is likely to be. `None` for numbers that cannot be computed with.
==
/// The same posterior, nowhere wider than the prior: in a direction in which the remaining sites carry less information than the prior, the standard deviation is
/// the prior's, and so is the mean where it is farther from the prior's than [`FARTHEST`]. A learned scale is taken at its upper likely value. `None` for numbers
/// that cannot be computed with.
@@
//! Who is waited for, who has refused, and what that means for the run.
//!
//! * A site that said nothing for [`SILENT_ROUNDS`] rounds that asked it is still asked and still heard, and a round does not wait for it. How a
//!   round closed stands in its entry ([`RoundOutcome::WithoutSilent`]), and that a site was silent follows from the records alone, so a
//!   restarted server waits for the same sites.
==
//! Attendance: which sites a round waits for, which have refused, and when the run ends for lack of sites.
//!
//! * A site that missed [`SILENT_ROUNDS`] rounds is still asked and still heard, but no round waits for it. The round's entry records this
//!   ([`RoundOutcome::WithoutSilent`]). Silence is a function of the records alone, so a restarted server waits for the same sites.
@@
//! * Where so many sites refused for good that too few are left, nobody waits for a deadline: the run ends ([`RunOutcome::Refused`]), and their
//!   public reasons stand in the records.
==
//! * If so many sites refused for good that too few are left, the run ends at once ([`RunOutcome::Refused`]), and the records have their public reasons.
@@
    /// Whether nobody waits for it.
==
    /// Whether rounds do not wait for it.
@@
    /// Whether nobody waits for this site.
==
    /// Whether rounds do not wait for this site.
@@
    /// Who was asked and has neither sent nor refused.
==
    /// Sites that were asked and have neither sent nor refused.
@@
    /// Sites that missed a deadline and have not answered since: nobody waits for them (asynchronous).
==
    /// Sites that missed a deadline and have not answered since; rounds do not wait for them (asynchronous).
@@
/// Who is at the other end of a connection, as the transport authenticated it.
==
/// The authenticated peer of a connection.
@@
/// Where a run stands, for people.
==
/// State of a run, for people.
@@
//! Where a run stands, for people and programs.
==
//! State of a run, for people and programs.
@@
/// Where a run stands. Everything in it is public.
==
/// State of a run. Everything in it is public.
@@
    /// Where the run stands.
==
    /// State of the run.
@@
//! How a run ends, and how everybody is told.
==
//! The end of a run and its signed announcement.
@@
//! Who a client is, what it accepts, and the first exchange with the server.
==
//! Identity and policy of a client, and its first exchange with the server.
@@
/// Who a client is and whom it trusts.
==
/// Identity of a client, and the identities that it trusts.
@@
    /// Who sent it.
==
    /// The sender.
@@
        /// Who sent it.
==
        /// The sender.
@@
    /// Who sends it.
==
    /// The sender.
@@
    /// Who is enrolled, and as what.
==
    /// Enrolled names with their roles.
@@
    /// Who is enrolled.
==
    /// Enrolled names.
@@
    /// Who waits for work on an open stream.
==
    /// Clients that wait for work on an open stream.
@@
    /// Who joined.
==
    /// Clients that joined.
@@
        /// Who was asked and has not answered.
==
        /// Sites that were asked and have not answered.
@@
//! Who is who: names in certificates, identity keys, and the file by which a site asks to be enrolled.
==
//! Identities: names in certificates, identity keys, and the request file for enrolment.
@@
//! What stops being valid, and when: told weeks before, and refused by its name afterwards.
==
//! Expiry of certificates and revocation lists: reported weeks before, refused by name afterwards.
@@
/// The end of something's validity is told from so long before it.
==
/// How long before an expiry it is reported.
@@
/// Shortages of the system are told at most this often.
==
/// Exhausted resources are reported at most this often.
@@
/// What ends soon is told this often.
==
/// Interval between two reports of an expiry.
@@
/// Whether what a run told was lost. A run goes on all the same, and says so at its end.
==
/// Whether output of a run was lost because standard output took no more. The run goes on and reports it at its end.
@@
    /// Last round whose refusal came too late and was told, by site: each is told once, however often it comes.
==
    /// Last round whose late refusal was reported, by site: each is reported once, however often it comes.
@@
    /// Last round whose update was not taken and was told, by site.
==
    /// Last round whose rejected update was reported, by site.
@@
    /// A payload was refused: told once a round, however often it comes.
==
    /// A payload was refused: reported once a round, however often it comes.
@@
//! Accepts connections: one task per handshake, with a deadline, so that nobody who stalls can hold up another.
==
//! Accepts connections: one task per handshake, with a deadline, so that a stalled peer delays no other.
@@
//! What a run leaves behind: `posterior.json`, `report.html`, and the transcript for whoever wants to check it.
==
//! Output of a run: `posterior.json`, `report.html`, and the transcript for checking it.
@@
/// Where the last run stands after its last closed round.
==
/// Convergence status of the last run after its last closed round.
@@
    /// What is known after so many closed rounds. Who asks while it is being computed for somebody else gets none: nobody waits in a queue for it.
==
    /// The status after so many closed rounds; `None` while it is being computed for another caller.
@@
/// The numbers that a payload stands for. What is masked is no site's vector, and nobody asks for it.
==
/// The numbers of a payload. A masked payload is no site's vector and is never asked for.
@@
/// A hello that was refused. The client was told the same.
==
/// A refused hello, with the reason that the client got.
@@
/// Resolves when the terminal closes; never where nobody listens for that.
==
/// Resolves when the terminal closes; never if the signal is ignored.
@@
//! What a panic may say when the code that panics looks at private values: nothing that is not paid for.
==
//! Redacts panics of code that handles private values: no message or payload leaves without a charge.
@@
//! What the other sites of a run say, as one of them can tell it from released values: the public half of a site's personal posterior.
//!
//! A site may replace what it released, with its noise, by the exact likelihood of its records: for itself alone. For that it needs the posterior
//! without its own part, the *cavity*. Where what it released is known, this is post-processing ([`others`]). Where it is not, only
//! somebody who sees the records can take their part out, and that is `personal` in `dp-pvi-inference`.
==
//! The posterior of the other sites, computed by one site from released values: the public half of its personal posterior.
//!
//! A personal posterior replaces the site's noisy releases by the exact likelihood of its records. It starts from the posterior without the site's own part, the
//! *cavity*. If its releases are known, the cavity is post-processing ([`others`]); otherwise it is computed from the records, by `personal` in `dp-pvi-inference`.
@@
//! The task is rehearsed with every number of a short ladder, always over the same drawn federations. A run arrives whose own posterior ends within
//! `ARRIVES` standard deviations of where the released sums lead, overall. Of the numbers with which it does, the smallest that is as good as the
//! best is taken: intervals at most `AS_WIDE` times as wide as the narrowest, and at least `AS_MUCH` of what is learned, ln(prior's width/width),
//! which tells where noise leaves little. Where none arrives all compete: the noise decides there, and not the way.
==
//! The task is simulated with every number of rounds of a short ladder, always over the same drawn federations. A run has converged if its own posterior ends
//! within `ARRIVES` standard deviations of the point to which the released sums extrapolate, overall. Of the numbers with which runs converge, the smallest is
//! taken that is as good as the best: intervals at most `AS_WIDE` times as wide as the narrowest, and at least `AS_MUCH` of the information gained,
//! ln(prior's width/width). If none converges, all numbers compete, because noise decides then.
@@
//! What a site's part of a round can be, beside the norm of its sum ([`SumBound`](dp_pvi_privacy::mechanism::SumBound)): more than its length is known of it.
//!
//! A receiver knows the task, N, the units that the site declared, and the state with which the round began. It knows nothing of records. What no records of N units
//! give, noise included, is refused where it arrives; nothing is ever cut to fit.
==
//! Validity region of a site's part of a round, beyond the bound on its norm ([`SumBound`](dp_pvi_privacy::mechanism::SumBound)).
//!
//! A receiver knows the task, the number N of units that the site declared, and the state with which the round began, and nothing of the records. A part that no
//! records of N units can give, noise included, is refused on arrival; no part is changed to fit.
@@
/// What is known where a part is asked for.
==
/// Public values that bound a part.
@@
/// Whether the states between the rounds of a run tell something of its intervals: its noise, or without noise whether it has settled.
==
/// Whether the states between rounds determine the intervals: through the noise, or, without noise, through whether the run has settled.
@@
//! Where a site's rows come from, as the site declares it: its own word, which nobody else can check.
==
//! Origin of a site's rows, as the site declares it; no other party can check it.
@@
    /// Or nobody can tell.
==
    /// Or it is unknown.
@@
/// Why a task is not worth a run, where its own forecast says so: with as many records at each of its sites as its author expects, or else as the task admits,
/// in most of the federations that might be, by more than is gained in the best ones. `None` where it is worth one, its author wants it anyway, or nobody can tell.
==
/// The reason to refuse a task whose forecast is worse than a constant: with the expected records at each site, or else the most that the task admits, in most of
/// the drawn federations, and by more than is gained in the best ones. `None` if it is not worse, if its author wants it anyway, or if there is no forecast.
@@
    /// Time that does not count: whoever waits for a deadline begins anew.
==
    /// Time that does not count: every open deadline begins anew.
@@
//! What a function over records is told: the public half of a job.
==
//! The public half of a job, passed to functions over records.
@@
//! path a small search looks for the λ that tells the worlds apart best.
==
//! path a small search maximises over λ the distance between the two data sets.
@@
/// Looks for the λ of a visit at which the worlds differ most.
==
/// Searches for the λ of a visit at which the two data sets differ most.
@@
    /// The sum, which the site's client can open and nobody else.
==
    /// The sum, which only the site's client can open.
@@
//! * A fit that fails contributes 0, and nobody learns of it. Fits have a fixed largest number of iterations.
==
//! * A fit that fails contributes 0 and gives no error. Fits have a fixed largest number of iterations.
@@
/// Draws and buffers of a batch. They hold what records say: whoever makes them drops them with the records' sum.
==
/// Draws and buffers of a batch. They hold values of records, so their owner drops them with the sum.
@@
    /// Weight of xxᵀ in a sum that shall be above the sum of all curvatures whatever the predictors are: `bound`, or less where the target tells. `bound` is that
==
    /// Weight of xxᵀ in a sum that shall be above the sum of all curvatures whatever the predictors are: `bound`, or less if the target implies it. `bound` is that
@@
    /// About how many exponentials or the like one evaluation takes: who has a choice evaluates a dear one less often.
==
    /// Cost of an evaluation, in exponentials: callers with a choice evaluate an expensive one less often.
@@
/// The forward pass of a batch, kept for whoever goes back through it. A *column* is one sample of one row: S columns a row.
==
/// The forward pass of a batch, kept for the backward pass. A *column* is one sample of one row: S columns a row.
@@
//! record and of a q, whoever's they are: sites evaluate it on records.
==
//! record and of a q: sites evaluate it on records.
@@
//! Numbers of aggregated trust: how many sites there are, whom the noise counts on, and what a site may add to a sum.
==
//! Parameters of aggregated trust: number of sites, number of honest shares of noise, and bounds of a site's part.
@@
    /// Numbers with which aggregation protects nobody.
==
    /// Parameters with which aggregation gives no protection.
@@
    /// Refuses numbers with which aggregation protects nobody.
==
    /// Refuses parameters with which aggregation gives no protection.
@@
/// Refuses clipping norms that nobody can mean, see [`positive`].
==
/// Refuses clipping norms outside of a plausible range, see [`positive`].
@@
/// The words for who writes the task.
==
/// The error's words for the author of the task.
@@
    /// The words for who writes the task.
==
    /// The error's words for the author of the task.
@@
    /// Nobody to compare with.
==
    /// There is no other site to compare with.
@@
    /// Nobody else is in it, or not the site.
==
    /// There is no other site in it, or this site is not in it.
@@
    /// Processor time of this thread in seconds, where the system tells it: what else runs on the machine does not count.
==
    /// Processor time of this thread in seconds, where the system has it: other work on the machine does not count.
@@
    /// Whether sites send what tells the scale of an observation's noise, so that it can be learned.
==
    /// Whether sites send the statistics from which the scale of an observation's noise is learned.
@@
    /// Weights of what tells the scale of the observations, where it is learned.
==
    /// Weights of the statistics of a learned scale of the observations.
@@
/// Weights of the two numbers of a record that tell a learned scale, against the gradient block.
==
/// Weights of the two statistics of a record for a learned scale, against the gradient block.
@@
/// Standard deviation of the error of a correlation that nothing tells, and of one of a Gram matrix, which lacks the weights c.
==
/// Standard deviation of the error of an unknown correlation, and of one from a Gram matrix, which lacks the weights c.
@@
    /// Ω: variances of the errors of entries off the diagonal of [`Self::matrix`]; 0 where the schema tells them.
==
    /// Ω: variances of the errors of entries off the diagonal of [`Self::matrix`]; 0 where the schema determines them.
@@
    /// Whether the schema tells an entry: two levels of a category, or an indicator beside the intercept.
==
    /// Whether the schema determines an entry: two levels of a category, or an indicator beside the intercept.
@@
    /// Natural parameters of the posterior with what the looks tell of such levels. `around` gives every look's q_t, and is asked where there are any.
==
    /// Natural parameters of the posterior, corrected for separated levels. `around` gives q_t of every measurement; it is called only if there are such levels.
@@
/// The likelihood that a weighted mean of the looks tells.
==
/// The likelihood estimated by a weighted mean of the measurements.
@@
    /// What these looks tell together, if the posterior is about `theta`.
==
    /// The likelihood estimated by all measurements together, linearised about `theta`.
@@
/// A round that was closed, as its public record tells it.
==
/// A closed round, from its public record.
@@
    /// The state after it; empty where whoever asks does not know it ([`Contribution`]).
==
    /// The state after it; empty where the caller does not know it ([`Contribution`]).
@@
/// Standard deviation of a correlation that nothing tells.
==
/// Standard deviation of an unknown correlation.
@@
/// What a round tells of the likelihood with its noise considered, [p; P] as [`NoisyScales::new`] takes it, from the rule's state.
==
/// The likelihood that a round estimates, with its noise accounted for: [p; P] as [`NoisyScales::new`] takes it, from the rule's state.
@@
    /// Absent where nothing was noised: then the posterior itself tells τ.
==
    /// Absent without noise: τ then follows from the posterior itself.
@@
/// A visit's sum of clipped terms, before anybody says who adds the noise.
==
/// A visit's sum of clipped terms, before it is decided who adds the noise.
@@
    /// What models and methods are told of this task.
==
    /// The part of this task that models and methods read.
@@
    /// What a reader is told, in one or two sentences.
==
    /// One or two sentences for the reader.
@@
    /// Nobody made one, or it was taken out.
==
    /// None was made, or it was removed.
@@
    /// noise together, their share in the whole width. Absent where the update does not tell them apart.
==
    /// noise together, their share in the whole width. Absent if the update does not separate the two.
@@
    /// They do not; the released sums tell where the run leads, and the noise-aware posterior stands there.
==
    /// They do not; the noise-aware posterior is where the released sums extrapolate to.
@@
    /// The released sums were taken too far away to tell it well: the intervals are wide for that reason.
==
    /// The released sums were taken too far away for a good extrapolation, and the intervals are wide for that reason.
@@
/// Whether a run arrived.
==
/// Whether a run has converged.
@@
//! Whether a run arrived: how far its own posterior is from where its released sums place it.
==
//! Convergence of a run: the distance of its own posterior from the one to which its released sums extrapolate.
@@
    /// Why released values do not tell it.
==
    /// Why it does not follow from released values.
@@
/// Why released values do not tell it.
==
/// Why it does not follow from released values.
@@
    /// In words, for whoever reads the result.
==
    /// In words, for the reader of the result.
@@
    /// Nothing, or nothing that tells its part.
==
    /// Nothing from which its part follows.
@@
/// Whether a site of this task should keep the states that it is shown and the sums that it sends: the others can be told from them.
==
/// Whether a site of this task should keep the states that it receives and the sums that it sends: the others' part follows from them.
@@
/// The same at a state, beside what the site told at its first visit.
==
/// The same at a state, given the site's first visit.
@@
    /// What the site told of its records at its first visit.
==
    /// Statistics of the site's records from its first visit.
@@
/// What a site told of its records at its first visit.
==
/// Statistics of a site's records from its first visit.
@@
    /// Whoever joined.
==
    /// Parties that joined.
@@
//! For whoever wants to check it: what was computed, every coefficient, and the task.
==
//! Details for checking: settings, every coefficient, and the task.
@@
    /// A number that is wrong is spoken of by its name, not as a flag that nobody knows.
==
    /// An error about a number names the number, not its flag.
@@
/// Curves of a picture: looks that can be told apart.
==
/// Most curves of a picture: so many line styles can be told apart.
@@
/// Resolves when the terminal closes; never where nobody listens for that.
==
/// Resolves when the terminal closes; never if the signal is ignored.
@@
/// What went wrong, in words for the operator. What may quote a cell is told by its kind.
==
/// The operator's message about an error. An error that may quote a cell is reported by its kind only.
@@
/// The same for the operator's own look, after which nothing is sent and nothing charged: a query needs nobody's word.
==
/// The same for an inspection by the operator, which sends and charges nothing: a query need not be vouched for.
@@
/// Checks that nobody else can change this program's own folder, where approvals and the ledger's highest head are.
==
/// Checks that only this user can change this program's own folder, which holds approvals and the ledger's highest head.
@@
/// Writes to stdout. What could not be written is told when the program ends ([`lost`]): a run goes on meanwhile.
==
/// Writes to stdout. A failed write is reported when the program ends ([`lost`]); a run goes on meanwhile.
@@
    /// Reads a file that nobody but its owner can read.
==
    /// Reads a file that only its owner can read.
@@
/// A server that this process has not reached yet is tried for this long: whoever starts both waits no longer for one that ended with an error.
==
/// How long a server that was never reached is tried, so that a client started together with a server that failed ends soon.
@@
/// The run is over: what this site's ledger booked for it must be what the task states. The run cannot be undone, so a difference is told.
==
/// Checks at the end of a run that the ledger booked what the task states. The run cannot be undone, so a difference is reported.
@@
    /// A start found too many records that contribute nothing, and nobody has confirmed since.
==
    /// A start found too many records that contribute nothing, and no confirmation has come since.
@@
/// The end of a certificate is told from so long before it.
==
/// How long before its expiry a certificate is reported.
@@
    /// Whoever checks did not accept the last one that was tried.
==
    /// The verifier did not accept the last one that was tried.
@@
/// Whether a distribution of losses told δ to a factor of two.
==
/// Whether a distribution of losses bounded δ within a factor of two.
@@
    /// them δ is told well.
==
    /// them δ is bounded closely.
@@
    /// Upper bound on ε(δ) by the number of far outcomes, the worse direction; `None` where that is not told well.
==
    /// Upper bound on ε(δ) by the number of far outcomes, the worse direction; `None` if it is not close.
@@
    /// A number out of range is no event, whoever wrote the bytes.
==
    /// Bytes with a number out of range are no event.
@@
/// ln of values beyond which nothing is told apart: only next to no noise has them.
==
/// ln of values beyond which they are not distinguished: they occur with almost no noise only.
@@
    /// The tilt at which a bound near this δ is best told.
==
    /// The tilt that gives the closest bound near this δ.
@@
/// An estimate this far below the upper bound, relative to it, is not told.
==
/// Relative gap to the upper bound above which an estimate is not reported.
@@
/// this returns; whoever calls this opens it, which verifies it.
==
/// this returns; the caller opens it, which verifies it.
@@
    /// Held by whoever keeps heads here: two copies of a ledger, each with a program of its own, would otherwise both spend.
==
    /// Lock on this file: without it two copies of a ledger, each with a program of its own, could both spend.
@@
    /// Nothing is written and the caller is told so (disk full).
==
    /// Nothing is written, and the caller gets an error (disk full).
@@
    /// The row is written, but the caller is told that it failed (power loss after the write, before the answer).
==
    /// The row is written, but the caller gets an error (power loss after the write, before the answer).
@@
    /// Hash of the first row, by which this ledger is told from every other.
==
    /// Hash of the first row, which identifies this ledger.
@@
//! Private words on disk: encrypted, so that a store, a copy of the file or whoever reads the disk sees none.
==
//! Encryption of private words at rest: neither a store, nor a copy of the file, nor a reader of the disk sees them.
@@
/// η: how far a told norm may be from the norm of what is added, relative to it.
==
/// η: largest relative difference between a reported norm and the norm of the term that is added.
@@
/// Draws that can be taken again from the start: whoever starts twice, starts the same.
==
/// Draws that can be repeated from the start with the same result.
@@
//! The public bound of a noised sum: what a vector of integers can be if whoever sent it follows the protocol.
==
//! The public bound of a noised sum: which integer vectors a sender that follows the protocol can send.
@@
    /// Nobody takes any more visits: units could not be read.
==
    /// Stops the pass: units could not be read.
@@
/// The visits of a sum, of which whoever is free takes the next ones.
==
/// The work items of a sum; a free thread takes the next ones.
@@
/// A source of independent random streams. Sealed: a source that repeats itself, or tells somebody, protects nothing.
==
/// A source of independent random streams. Sealed: a source that repeats or leaks its stream gives no protection.
@@
    /// Terms are rounded to the nearest lattice point, and nobody looks at their norm afterwards.
==
    /// Terms are rounded to the nearest lattice point, without a check of their norm.
@@
    /// Puts a table behind the gate. Whoever builds the table has seen the records: only loaders do.
==
    /// Puts a table behind the gate. Only loaders call this, because building a table means seeing the records.
@@
    /// It is not in memory, and cannot be read: whoever wants the error asks [`Units::bring_into_memory`] first. It is about the disk and not about records.
==
    /// It is not in memory and cannot be read; [`Units::bring_into_memory`] gives the error, which is about the disk and not about records.
@@
/// What a site's own policy asks of any charter. A charter below a floor is refused, whoever signed it.
==
/// Minimums that a site's policy asks of every charter. A charter below one of them is refused.
@@
/// 32 fresh bytes for one commitment. They travel to the server beside the masked vector, and to nobody else.
==
/// 32 fresh bytes for one commitment. They go to the server beside the masked vector, and to no other party.
@@
    /// √(M/h): standard deviation of the noise if nobody is missing, over what is asked for.
==
    /// √(M/h): standard deviation of the noise with all sites present, over the required one.
@@
    /// Nobody contributes anything.
==
    /// All units contribute 0.
@@
//! Processor time of this process, where the system tells it (Linux).
==
//! Processor time of this process, on systems that report it (Linux).
@@
/// Nobody is watched for longer.
==
/// End of follow-up.
@@
    /// A failure of the server that nobody injected.
==
    /// A failure of the server that was not injected.
EOT
perl -e '
    open my $in, "<", $ARGV[0] or die; local $/; my @pairs;
    for my $block (split /^@@\n/m, <$in>) { my ($old, $new) = split /\n==\n/, $block; next unless defined $new; $new =~ s/\n\z//; push @pairs, [$old, $new]; }
    for my $path (split /\n/, `git ls-files "*.rs"`) {
        next unless -f $path; open my $f, "<", $path or next; my $text = <$f>; close $f; my $was = $text;
        for my $pair (@pairs) { my ($old, $new) = @$pair; $text =~ s/\Q$old\E(?=\n)/$new/g; }
        if ($text ne $was) { open my $out, ">", $path or die; print $out $text; close $out; }
    }' "${TMPDIR:-/tmp}/sentences.$$.txt"
rm -f "${TMPDIR:-/tmp}/sentences.$$.txt"

# The first comments of two modules, with the links that they have in this tree.
cat > "${TMPDIR:-/tmp}/heads.$$.txt" <<'EOT'
@@
//! A posterior from noised looks at the likelihood.
//! Posterior from noisy measurements of gradient and curvature.
//!
//! Measurement t is the gradient g(μ_t) and the curvature H_t at a public point μ_t, both with fresh noise of known variance. Given the point, it is an
//! unbiased measurement of the likelihood, whatever moved the point. Near the posterior g(μ) = g(μ_r) − H(μ − μ_r), so every measurement estimates the
//! gradient at a common point of reference:
//!
//! g̃ = Σ w_t g̃_t estimates the gradient at μ_r = Σ w_t μ_t, with noise of variance n = Σ w_t² v_t on every coordinate.
//!
//! There the error of H = Σ w_t H̃_t (its negative eigenvalues set to 0) acts on the distance θ − μ_r alone. The mean θ̄ is the mode that
//! [`uncertain_curvature`](LINK:uncertain_curvature) finds (with learned scales a mean of modes). For the mode, S(θ) has the errors of H on the
//! distance θ − μ_r. For the precision, S is averaged over the posterior of θ, so it also has the errors of H on the uncertainty of θ. If that uncertainty
//! adds more than [`MOST`] times the rest of S, it enters the mode too: otherwise −½ ln det S would draw the mode to μ_r. No measurement has to be near the
//! fixed point.
//!
//! **Weights.** The gradient is not linear over a distance on which the curvature changes. ρ_t is the relative change of the curvature at μ_t from that of the
//! later half of the measurements, beyond their noise. If every record's c changes by a factor of at most 1 ± ρ_t, coordinate j of the extrapolated gradient
//! has an error of at most ρ_t (H_jj b_t)^½, b_t = (μ_t − θ̄)ᵀH(μ_t − θ̄) (Cauchy and Schwarz). So w_t ∝ 1/v_t with v_t = s_t² + ρ_t² b_t tr H/d and s_t the
//! noise of the measurement: distant measurements count for little. While a run still moves, its later measurements share one error of the curvature at θ̄.
//! The bend of the gradient between them and θ̄ ([`Looks::bent_on`]) is therefore added to S for the precision. It is not added for the mean, which it would
//! pull back to the prior.
//!
//! **Between μ_t and θ.** If [`Looks::on_the_way`] names the model, the model predicts the gradient expected for a θ, its derivative and its variance
//! ([`expected`](LINK:expected)). The correction that this makes is given a relative standard deviation of [`BY_MODEL`].
//!
//! **Structure.** The released H is combined with what the schema and a Gram matrix imply ([`structure`](super::structure)). Otherwise the noise of entries
//! that are nearly 0 acts on all coefficients. The change of the weights c between μ_r and θ̄ is added to S for the precision.
//!
//! **Bounds.** If E log p is replaced by a bound, the released curvature is that of the bound. H is then multiplied by the model's
//! [`information_share`](LINK:information_share), which makes it the derivative of the gradient and the covariance of the scores.
//!
//! **Mean field.** Only the diagonal of H is released; [`Correlations`] estimates the rest. The error of that estimate is added to the error of the diagonal, so
//! that measurements far from θ̄ count for less. The result has the marginal variances.
//!
//! **Weighted records.** A record with weight w adds wc to H and w²c to the covariance of the scores, which is about κH, κ the mean weight of the curvature ([`weighted`](super::weighted)).
//!
//! **Assumption**: no term is shortened, which would bias the fit. Source: this project; Bayes' rule for noisy statistics follows Bernstein and Sheldon (2018).
@@
//! Levels whose curvature the last looks do not see.
//! Correction for (quasi-)separated levels.
//!
//! If nearly all records of a level have one label, its coefficient is large and its curvature near 0. The late measurements then carry almost no information
//! on that coefficient, and the posterior falls back to the prior; the early ones, where the curvature was different, have little weight. All measurements
//! together still estimate the number of the level's records and of its ones ([`level`](LINK:level)). The likelihood of these counts, as a function of
//! the level's predictor m, multiplies the posterior of m; the change of its mean and variance is carried over to all coefficients.
//!
//! Only levels are corrected on which the measurements carry less information than a known prior, because that little information is counted twice.
EOT
perl -e '
    open my $in, "<", $ARGV[0] or die; local $/; my %head;
    for my $block (split /^@@\n/m, <$in>) { my ($first, $rest) = split /\n/, $block, 2; $head{$first} = $rest if defined $rest; }
    for my $path (split /\n/, `git ls-files "*.rs"`) {
        next unless $path =~ /noise_aware/ && -f $path; open my $f, "<", $path or next; my $text = <$f>; close $f;
        my ($first) = $text =~ /\A(.*)\n/; my $new = $head{$first // ""} or next;
        my ($old) = $text =~ /\A((?:\/\/!.*\n)+)/; my %link; $link{$2} = $1 while $old =~ /\]\(([^()]*?(\w+))\)/g;
        $new =~ s/LINK:(\w+)/$link{$1} \/\/ $1/ge; substr($text, 0, length $old) = $new;
        open my $out, ">", $path or die; print $out $text; close $out;
    }' "${TMPDIR:-/tmp}/heads.$$.txt"
rm -f "${TMPDIR:-/tmp}/heads.$$.txt"

# --- text ------------------------------------------------------------------------------------------------------------
cat > "${TMPDIR:-/tmp}/words.$$.pl" <<'EOP'
use strict; use warnings;
my @rules; my $scope = qr{.};
sub in_($) { $scope = qr{$_[0]}; }
sub r(&) { push @rules, [$scope, $_[0]]; }
my $text = qr{\.(rs|md|toml|py|sh|yml|yaml|proto|stderr|html|js|css|svg|txt|json)$|\.ci/run$|Dockerfile$};
my $skip = qr{^tests/fuzz/corpus/|^Cargo\.lock$|/Cargo\.lock$|^LICENSE|^tests/vectors/|tests/golden/|^\.github/CHANGELOG\.md$};

# --- measurements (a noisy gradient and curvature at a public point) -------------------------------------------------
my $aware = qr{^common/(posterior|models|inference|papers|results|reading)/.*(noise_aware|dp_optimisation/|natural_gradient/|divided\.rs|models/src/(expected|level|scaled)|worlds|synthetic/|measurements|agreement)|^deploy/guide/src/(methods|posterior|intervals)\.md$|^common/posterior/src/|^common/models/src/(expected|level|scaled)|tests/tidy/(rooms|modules)\.rs|(math|numerics)/src/relinearised};
in_ $aware;
r { s/\bSiteLooks\b/SiteMeasurements/g; s/\bLevelLook\b/LevelMeasurement/g; s/\bLooks\b(?! (?:at|for|through|whether)\b)/Measurements/g; s/\bLook\b(?! (?:at|for)\b)/Measurement/g; };
r { s/\bLooks at a likelihood\b/Measurements of a likelihood/g; s/\b(look|looks) at (the|a|one) (likelihood|level)\b/($1 eq "look" ? "measurement" : "measurements")." of $2 $3"/ge;
    s/\[look\]\((\S+?)\) at the likelihood/[measurement]($1) of the likelihood/g; s/\[look\]\(/[measurement](/g; };
r { s/\bthe looks of the others\b/the measurements of the others/g; };
r { return if /\b(rule|function|search|mechanism|gradients?|who|whoever|column|test) looks?\b/; s/\blooks\b(?! (?:at|for|like|into|through|whether|as good)\b)/measurements/g; s/\blook\b(?! (?:at|for|like|into|as good|through)\b)/measurement/g; s/\ba measurement at points\b/a search over points/g; };
r { s/(?<=\w)_looks_(?=\w)/_measurements_/g; s/\bfn looks_/fn measurements_/g; s/_one_look\b/_one_measurement/g; s/_no_looks\b/_no_measurements/g; s/\bat_look\b/at_measurement/g; s/\brefuse_looks\b/refuse_measurements/g; s/\blast_look\b/last_measurement/g; };
r { s/\bnoised measurements\b/noisy measurements/g; };
in_ qr{tests/tests/vectors/}; r { s/\brelinearised::\{Look\b/relinearised::{Measurement/g; s/\bLook \{/Measurement {/g; s/<Look</<Measurement</g; s/: Look</: Measurement</g; };
in_ qr{common/(accounting/src/pld|simulation/src/audit)/|common/privacy/src/audit\.rs|server/src/store/wal}; # a number of comparisons, of tries
r { s/\bLOOKS\b/TRIES/g if $main::path =~ /wal/; s/\bLOOKS\b/COMPARISONS/g if $main::path =~ /judge/; s/\bLOOKS\b/SAMPLES/g if $main::path =~ /replace/; s/\bmeasurements?\b//g if 0; };
in_ qr{common/accounting/src/pld/.*replace\.rs}; r { s/\blook\b(?= in |\))/sample/g; };
in_ qr{common/privacy/src/audit\.rs|simulation/src/audit/judge\.rs}; r { s/a number of looks/a number of comparisons/g; s/\blooks: (usize)\b/comparisons: $1/g; s/\blooks\.max\(/comparisons.max(/g; s/shared_by\(looks\)/shared_by(comparisons)/g; s/^\/\/! # Looks$/\/\/! # Comparisons/; };
in_ qr{tests/report/}; r { s/\bmod looks;/mod appearance;/g; };
in_ $aware;
r { s/\bmod looks\b/mod measurements/g; s/\blooks::/measurements::/g; s/\bLOOKS\b/MEASUREMENTS/g; };

# --- converged, extrapolated ----------------------------------------------------------------------------------------
in_ qr{^(common/(reading|results|posterior|report|forecast|papers|verifier)/|client/|server/|tests/|deploy/guide/src/|README|common/inference/src/personal)};
r { s/\bNotArrived\b/NotConverged/g; s/\bVerdict::Arrived\b/Verdict::Converged/g; s/\bVerdict::Carried\b/Verdict::Extrapolated/g; s/\bConvergences::Arrived\b/Convergences::Converged/g; s/\bConvergences::Carried\b/Convergences::Extrapolated/g;
    s/(verdict\\*": ?\\*")arrived\b/$1converged/g; s/(verdict\\*": ?\\*")carried\b/$1extrapolated/g; s/(verdict\\*": ?\\*")not-arrived\b/$1not-converged/g;
    s/`not-arrived`/`not-converged`/g; s/"not-arrived"/"not-converged"/g; s/`arrived`/`converged`/g; s/\*\*arrived\*\*/**converged**/g; s/`carried`/`extrapolated`/g; s/`not-arriv/`not-converg/g; };
in_ qr{convergence\.rs$};
r { s/\bARRIVED\b/CONVERGED/g; s/\bSelf::Arrived\b/Self::Converged/g; s/\bSelf::Carried\b/Self::Extrapolated/g; s/^(\s+)Arrived,/$1Converged,/; s/^(\s+)Carried,/$1Extrapolated,/; };
in_ qr{noise_aware|divided\.rs};
r { s/\bCarried\b/Extrapolated/g; s/\bcarried\b(?= *[,;:.)(|}&?]| = |$)/extrapolated/g if $main::path =~ /\.rs$/; s/\bARRIVED\b/CONVERGED/g; s/\barrived\b(?= \|\|| &&| =|;)/converged/g; };
in_ qr{^(common/(reading|results|posterior|report|forecast|papers|models|verifier)/|client/src/commands/predict|tests/tests/federation/convergence|deploy/|server/src/(export|cli|http|convergence)|\.github/ISSUE|README)};
r { s/\b(has|have|had|having) (not |nearly |never |already |also |)arrived\b/$1 $2converged/g if !/\b(messages?|updates?|bytes|records?|frames?|parts?|packets?) (has|have|had) (not )?arrived/; s/_(has|have|had)_(not_|)arrived\b/_$1_$2converged/g; };
r { no warnings; s/\b(counts? as|takes? a run for) arrived\b/$1 converged/g; s/\b([Ww]hether (?:a|the|its|the whole|this) run) arrived\b/$1 converged/g; s/\b([Tt]he run|[Aa] run|runs) arrived\b/$1 converged/g; s/\b([Aa] run|[Tt]he run) arrives\b/$1 converges/g; s/\bcounted as arrived\b/counted as converged/g; s/\b([Dd])id the run arrive\b/$1id the run converge/g; s/\b(the run) did not arrive\b/$1 did not converge/g; s/\bnearly arrived, too\b/nearly converged, too/g; };

in_ qr{forecast/(src/)?rounds};
r { s/\bARRIVES\b/CONVERGES/g; s/\barrives\b/converges/g; s/\bdo not arrive\b/do not converge/g; s/\bcandidates?\(&\[\]\)//g if 0; s/\barrived\b(?= =)/converged/g; s/&arrived\b/&converged/g; };
in_ qr{common/(results|reading|posterior)/.*divided|posterior/src/methods/divided|tests/federation/agreement};
r { s/\bwhole_run_arrived\b/whole_run_converged/g; };
# --- the sum of a visit's messages ----------------------------------------------------------------------------------
in_ qr{\.(rs|md)$};
r { s/\bArrived\b(?=<'| \{|, | as |,$|\}|;)/VisitSum/g unless $main::path =~ /convergence|forecast\/src\/rounds/; s/([{:] ?)Arrived\b(?=[,};])/$1VisitSum/g unless $main::path =~ /convergence/; };
in_ qr{common/(posterior|inference|forecast|results|papers)/.*\.rs$};
r { s/\barrived: &VisitSum/received: &VisitSum/g; s/\barrived(\.(sum|visit|sites)\b)/received$1/g; };
in_ qr{common/posterior/src/methods/.*\.rs$};
r { s/([(,] ?)arrived\b(?=[,)])/${1}received/g; s/([(,] ?)&arrived\b(?=[,)])/${1}&received/g; s/\blet arrived = VisitSum/let received = VisitSum/g; };

# --- local-only results ---------------------------------------------------------------------------------------------
in_ qr{.};
r { s/\bOwnEyesOnly::look\b/LocalOnly::reveal/g; s/\bOwnEyesOnly\b/LocalOnly/g; s/\bOwnEyes\b/LocalAccess/g; s/\bfor_own_eyes_has_one_exit\b/local_only_has_one_exit/g; s/\bwhat_is_for_own_eyes\b/what_is_local_only/g; s/\bfor_own_eyes\b/into_local_only/g; s/\bown_eyes\b/local_only/g;
    s/\blooks at private values with its own eyes\b/has local access to private values/g; s/\bthis process looks with own eyes\b/this process has local access/g; s/\bit looks with own eyes\b/it has local access/g; s/for the eyes of the site's own people: what is/for local-only results: what is/g; s/with the eyes of the site's own people/by the site's own people/g; s/\btakes a value out for own eyes\b/takes a local-only value out/g; s/what is for own eyes is named/what is local-only is named/g;
    s/For your own eyes: the personal posterior/The personal posterior, for the site alone/g; s/#for-your-own-eyes-the-personal-posterior/#the-personal-posterior-for-the-site-alone/g; s/for (this|a) site's own eyes\b/for $1 site alone/g; };
in_ qr{privacy/src/local_only\.rs|inference/src/personal|client/src/commands/personalise|tests/compile_fail/};
r { s/\bpub fn look\(&self\)/pub fn reveal(&self)/g; s/\bseen\.look\(\)/seen.reveal()/g; s/\bPart::Looks\b/Part::LocalAccess/g; s/^(\s+)Looks,$/$1LocalAccess,/; s/\beyes\b(?=[,:;)]| =)/access/g; s/&eyes\b/&access/g; };

# --- dry run, prior-predictive simulation ---------------------------------------------------------------------------
in_ qr{^client/};
r { s/\brehearsal::/dry_run::/g; s/\bmod rehearsal\b/mod dry_run/g; s/\brehearse\(/dry_run(/g; s/\brehearse\b(?=\})/dry_run/g; s/\.rehearsal-/.dry-run-/g; s/_rehearsal_/_dry_run_/g; s/_be_rehearsed\b/_be_dry_run/g; s/_is_rehearsed_/_is_dry_run_/g; s/"rehearsed"/"dry-run"/g; s/\brehearsals\b/dry runs/g; s/\brehearsal\b/dry run/g; s/\bare rehearsed of\b/a dry run makes of/g; s/\bthat were rehearsed\b/that the dry run made/g; s/\bwere rehearsed\b/the dry run made/g; s/\brehearsed\b/tried/g; };
in_ qr{^common/};
r { s/\b(crate(?:::\w+)*)::rehearsal;/$1::simulated;/g; s/\brehearsal::/prior_predictive::/g; s/\bmod rehearsal\b/mod prior_predictive/g; s/\bRehearsal\b/Simulated/g; s/\bfn rehearse\b/fn simulate/g; s/(?<=[.:])rehearse\(/simulate(/g; s/\ba_rehearsal_without/a_simulation_without/g; s/([{, ])rehearsal(?=[,}])/$1simulated/g; s/\brehearsal\(/simulated(/g; s/\bcrate::rehearsal\b/crate::simulated/g; s/\blet rehearsal\b/let simulated/g; s/&?\brehearsal\.(?=\w)/my $m=$&; $m=~s{rehearsal}{simulated}; $m/ge; s/\bof a rehearsal\b/of a simulation/g; s/\bThe task is rehearsed\b/The task is simulated/g; s/\bRehearses the task\b/Simulates the task/g; s/\brehearsals\b/simulations/g; s/\brehearsal\b/simulation/g; };
in_ qr{^deploy/guide|^\.github/ISSUE};
r { s/^## Rehearse$/## Dry run/; s/#rehearse\b/#dry-run/g; s/\bthen rehearse the task with\b/then simulate the task with/g; s/What does a rehearsal show\?/What does a dry run show?/g; s/\brehearsals\b/simulations/g; s/\brehearsal\b/dry run/g; s/\brehearse\b/simulate/g; };

# --- forecasts ------------------------------------------------------------------------------------------------------
in_ qr{\.rs$};
r { s/\bmod worth\b/mod run_forecast/g; s/\bworth::/run_forecast::/g; s/plan_tells_what_a_run_will_be_worth_and_draws_it/plan_states_the_forecast_and_draws_it/g;
    s/\ban_outlook_compares/a_forecast_table_compares/g; s/a_prospect_is_an_outlook_or_says_why_not/a_forecast_is_a_table_or_says_why_not/g;
    s/\bProspect::Outlook\b/ForecastResult::Table/g; s/\bSelf::Outlook\(/Self::Table(/g; s/^(\s+)Outlook\(Box<Outlook>\)/$1Table(Box<ForecastTable>)/; s/\bProspect\b/ForecastResult/g; s/\bOutlook\b/ForecastTable/g; s/\boutlook\b/forecast_table/g; s/\bprospect\(/forecast(/g; s/\bprospect\b/predicted/g; };
in_ qr{common/(forecast|results|account|report)/|common/papers/src/(forecast|rounds)|tests/tests/federation/forecast};
r { s/\bmod world\b/mod drawn_federation/g; s/\bworld::World\b/drawn_federation::DrawnFederation/g; s/\bworld::/drawn_federation::/g; s/\bWorld\b/DrawnFederation/g; s/\bWORLDS\b/FEDERATIONS/g; s/\bWorlds\b/Federations/g; s/\bworlds\b(?!::)/federations/g; s/\bworld\b/federation/g; };
in_ qr{common/papers/|deploy/guide/src/results/|tests/|^\.ci|\.toml$|common/(inference|posterior|numerics|models)/};
r { s{\bpapers/src/worlds\b}{papers/src/synthetic}g; };
in_ qr{\.rs$}; r { s/\bEffort \{ worlds\b/Effort { federations/g; };
in_ qr{common/papers/}; r { s/\bworlds::/synthetic::/g; s/\bmod worlds\b/mod synthetic/g; };
in_ qr{common/secagg/};
r { s/\bmod world;/mod harness;/g; s/\bworld::/harness::/g; s{secagg/world/}{secagg/harness/}g; s/\bWorld\b/Harness/g; s/\bworlds\b/harnesses/g; s/\bworld\b/harness/g; s/\bt2_6\b/processor_time/g; s/\bT2\.6 in processor time\b/Processor time of a round/g; s/ \(T2\.6\)//g; s/^(\s*\/\/\/ )T2\.6, the part that is not time/$1Costs of a round that are not time/; };
in_ qr{common/simulator/|tests/src/fuzz/|common/simulation/src/federation}; r { s/\bWorld\b/Machines/g; s/\bworld\b/machines/g; };
in_ qr{common/(simulation/src/audit|inference/src/methods/carried|inference/src/methods/(propagation|vips)|privacy/src/(audit|mechanism))|common/simulation/(tests/simulation|src/main)};
r { s/\bworst_worlds\b/worst_neighbours/g; s/\bWorlds\b/Neighbours/g; s/\bneighbouring worlds\b/neighbouring data sets/g; s/\bboth_worlds\b/both_neighbours/g; s/\bboth worlds\b/both neighbours/g; s/\bworlds\b/neighbours/g; s/\bworld ([AB])\b/data set $1/g; s/\bWorld ([AB])\b/Data set $1/g; s/\b(the|a|one|other|each|every|either|first|second|silent|this|that) world\b/$1 data set/g; s/\bworld\b/data set/g if m{^\s*//}; s/\bworld\b/data_set/g if /\b(fn|let|for|in|&|\() ?world\b|\bworld[(.,:)\[]/; s/"world \{/"data set {/g; s/\{world\b/{data_set/g; };
in_ qr{common/simulation/src/audit/|common/simulation/tests};
r { s/\bCROWD\b/BACKGROUND/g; s/\bcrowds\b/backgrounds/g; s/\bcrowd\b/background/g; };

in_ qr{deploy/guide/src/results/audit|simulation/src/audit};
r { s/\bthese two worlds\b/these two neighbours/g; s/\bthe two worlds\b/the two neighbours/g; s/\bthe worlds\b/the neighbours/g; s/\beither world\b/either neighbour/g; };

# --- programs -------------------------------------------------------------------------------------------------------
in_ qr{^server/};
r { s/\bcrowd::Crowd\b/connection_limiter::ConnectionLimiter/g; s/\bmod crowd\b/mod connection_limiter/g; s/\bCrowd\b/ConnectionLimiter/g; s/\bAn empty crowd of at most\b/A limiter for at most/g; s/\bcrowd\b/limiter/g;
    s/\bshortage::Shortage\b/resource_backoff::ResourceBackoff/g; s/\bshortage::/resource_backoff::/g; s/\buse crate::shortage;/use crate::resource_backoff;/g; s/\bmod shortage\b/mod resource_backoff/g; s/\bServerError::Shortage\b/ServerError::ResourceExhausted/g; s/\bSelf::Shortage\b/Self::ResourceExhausted/g; s/^(\s+)Shortage\(/$1ResourceExhausted(/; s/\bShortage\b/ResourceBackoff/g; s/\bpatiently\b/with_backoff/g; s/\bis_shortage\b/is_resource_exhaustion/g; s/\ba_shortage_delays_and_does_not_end_work\b/resource_exhaustion_delays_and_does_not_end_work/g;
    s/\btelemetry\.shortages\b/telemetry.resource_exhaustions/g; s/\bself\.shortages\b/self.resource_exhaustions/g; s/\bshortages: /resource_exhaustions: /g; s/"shortages"/"resource_exhaustions"/g; s/\bShortages of the system\b/Exhausted resources/g; s/\btelemetry\.shortage\(/telemetry.resource_exhausted(/g; s/\bfn shortage\(/fn resource_exhausted(/g; s/\blet (\(.*?)mut shortage\b/let $1mut backoff/g; s/\bmut shortage\b/mut backoff/g; s/\bshortage\.pause\b/backoff.pause/g; s/\bshortage = ResourceBackoff/backoff = ResourceBackoff/g; s/\bsystem's other shortages\b/other exhausted resources/g; s/\bthan a shortage\b/than an exhausted resource/g; s/\bis a shortage like any other\b/is an exhausted resource like any other/g; s/\bSuch a shortage passes\b/Such a lack passes/g; s/\bwhen a shortage was told last\b/when an exhausted resource was reported last/g; s/\bshortages\b/exhausted resources/g; s/\bshortage\b/lack/g;
    s/\bstanding::Standings\b/convergence_status::ConvergenceCache/g; s/\bmod standing;/mod STANDING;/g; s/\bStandings\b/ConvergenceCache/g; s/\bself::standing::/self::convergence::/g; s/\bexport::standing\(/export::convergence(/g; s/\bStanding\b/ConvergenceStatus/g; s/`standing`/`convergence_status`/g; s/\bstandings\b/convergence/g; s/\bLast standing\b/Last convergence status/g; s/\bThe last standing\b/The last convergence status/g; s/\bstanding\b(?=[ .:;,)(?}{])/convergence/g if !/[Oo]utstanding|long-standing/; };
in_ qr{^server/src/lib\.rs$}; r { s/\bmod STANDING;/mod convergence_status;/g; };
in_ qr{^server/src/export\.rs$}; r { s/\bmod STANDING;/mod convergence;/g; };
in_ qr{^tests/|^deploy/}; r { s/\["standing"\]/["convergence"]/g; s/\bmod shortage;/mod resource_exhaustion;/g; s/\bshortages_total\b/resource_exhaustions_total/g; };
in_ qr{^client/}; r { s/\bscreen::standing\b/screen::admits_run/g; s/\bfn standing\(/fn admits_run(/g; s/\bstanding_of\b/admits_run_with/g; s/\bstanding\b(?= =| \{|[,)])/admitted/g; s/\bSome\(standing\)/Some(admitted)/g; };
in_ qr{^(proto|common/programs)/}; r { s/\bis_shortage\b/is_resource_exhaustion/g; s/\bshortages_pass_and_other_errors_do_not\b/exhausted_resources_pass_and_other_errors_do_not/g; };
in_ qr{^common/protocol/};
r { s/\bmod unhurried\b/mod asynchronous/g; s/\bself\.unhurried\(/self.asynchronous_verdict(/g; s/\bfn unhurried\(/fn asynchronous_verdict(/g; s/\b(upcoming|closed|settle)_unhurried\b/$1_asynchronous/g; s/\bunhurried\b/asynchronous/g; s/\bcrate::parts\b/crate::codec/g; s/\bmod parts;/mod codec;/g; };
in_ qr{common/protocol/src/aggregation|common/simulator|common/simulation/.*aggregated|server/src/(mailbox|summer)};
r { s/\bAsk\b(?!ed)(?! (?:again|the))/SummerCall/g; };
in_ qr{server/src/engine}; r { s/\bAsk\b/WorkRequest/g unless m{^\s*//}; };
in_ qr{.}; r { s/\bIntent::Look\b/Intent::Observe/g; };
in_ qr{protocol/src/message\.rs}; r { s/^    Look,$/    Observe,/; };
in_ qr{^server/}; r { s/\bUntold\b/LostOutput/g; s/\bTOLD_AGAIN\b/REPEAT_AFTER/g; s/\bSummerTold\b/SummerNotified/g; s/\btold_late\b/reported_late/g; s/\btold_wrong\b/reported_wrong/g; };
in_ qr{common/accounting/src/pld/mod\.rs}; r { s/\bTOLD\b/REPORTED_GAP/g; };

# --- sums by several processes --------------------------------------------------------------------------------------
in_ qr{\.rs$|tests/long\.sh$|\.md$|\.toml$};
r { s/\bdp_pvi_privacy::parts\b/dp_pvi_privacy::partial_sums/g; s/\bmethods::parts\b/methods::partial_sums/g; s{privacy/src/parts\.rs}{privacy/src/partial_sums.rs}g; s{inference/src/methods/parts\.rs}{inference/src/methods/partial_sums.rs}g; s{inference/src/methods/asked\.rs}{inference/src/methods/public_job.rs}g; s{noise_aware/looks}{noise_aware/measurements}g; s{noise_aware/levels}{noise_aware/separation}g; };
in_ qr{common/privacy/}; r { s/\bcrate::parts\b/crate::partial_sums/g; s/\bmod parts;/mod partial_sums;/g; };
in_ qr{common/inference/}; r { s/\bmod parts;/mod partial_sums;/g; s/\bmod asked;/mod public_job;/g; s/\b(super|methods)::asked\b/$1::public_job/g; s/\bcrate::methods::parts\b/crate::methods::partial_sums/g; s/\bAsked\b/PublicJob/g unless $main::path =~ /personal\.rs/; };
in_ qr{common/engine/}; r { s/\bcrate::asked\b/crate::answered/g; s/\bmod asked;/mod answered;/g; s/\bAsked\b/AnsweredQuestions/g; };
in_ qr{common/privacy/src/partial_sums|common/privacy/src/mechanism/tests/partial_sums|common/engine/|common/data/src/executors|client/src/engine|inference/src/methods/partial_sums};
r { s/\b(trait|impl|dyn) Ask\b/$1 ExecutorChannel/g; s/([{,] ?)Ask(?=[,}])/$1ExecutorChannel/g; s/\bstruct Asked\b/struct QuestionBody/g; s/\bimpl Asked\b/impl QuestionBody/g; s/: Asked\b/: QuestionBody/g; s/= Asked \{/= QuestionBody {/g; };

# --- fault injection, panic redaction, rollback guard ----------------------------------------------------------------
in_ qr{^(common/(accounting|privacy|simulation)/|tests/(long\.sh|tests/tidy)|deploy/guide/src/(accounting|for-reviewers|results/audit)|\.ci/|\.github/)};
r { s/planted-bugs\b/fault-injection/g; s/\bno_program_has_the_planted_bugs\b/no_program_has_fault_injection/g; s/\bevery_planted_bug_is_flagged\b/every_injected_fault_is_flagged/g; s/--planted\b/--injected-faults/g; s/--test planted\b/--test injected/g; s/^planted  ( *)\|/injected $1|/; s/^(\s+)planted\)/$1injected)/; s/name = "planted"/name = "injected"/; s{audit/planted\.rs}{audit/injected.rs}g; s/"planted (words|coins)"/"PLANTED $1"/g;
    s/\bplanted::/injected::/g; s/\b(crate|dp_pvi_privacy|audit)::planted\b/$1::injected/g; s/\bmod planted\b/mod injected/g; s/\bPlanted faults\b/Injected faults/g; s/\bplanted faults?\b/"injected ".substr($&,8)/ge; s/`planted`/`injected`/g; s/\bPlanted\b/Injected/g; s/\b([Aa]) planted\b/$1n injected/g; s/\bplanted\b(?!_topics)/injected/g; s/\bplants\b/injects/g; s/\bplant\b/inject/g; s/\bPLANTED\b(?! (words|coins))/INJECTED/g; s/"PLANTED (words|coins)"/"planted $1"/g; };
in_ qr{simulation/src/main\.rs}; r { s/^(\s+)injected: Option<u32>,/$1injected_faults: Option<u32>,/; s/\binjected: Some\(times\)/injected_faults: Some(times)/; };
in_ qr{common/privacy/|\.md$};
r { s/\bmod inside\b/mod panic_redaction/g; s/\bcrate::inside\b/crate::panic_redaction/g; s{privacy/src/inside\.rs}{privacy/src/panic_redaction.rs}g; };
in_ qr{common/privacy/|common/inference/src/error|^client/|common/(engine|data)/};
r { s/\bWithheld\b/PanicRedacted/g; };
in_ qr{tests/compile_fail/}; r { s/`eyes`/`access`/g; s{--> src/inside\.rs}{--> src/panic_redaction.rs}g; s/\binside::withheld\b/panic_redaction::redact_panics/g; s/\bwithheld</redact_panics</g; s{privacy/src/inside\.rs}{privacy/src/panic_redaction.rs}g; s/`inside`/`panic_redaction`/g; s/\bmod inside;/mod panic_redaction;/g; s/\bWithheld\b/PanicRedacted/g; s/`withheld`/`redact_panics`/g; };
in_ qr{common/privacy/src/}; r { s/\bwithheld(?=[(<])/redact_panics/g; s/`withheld`/`redact_panics`/g; s/\{(\w+), withheld\}/{$1, redact_panics}/g; s/::withheld;/::redact_panics;/g; };
in_ qr{.};
r { s/\bSecondPlace\b/RollbackGuard/g; s/\bcheck_second_place\b/check_rollback_guard/g; s/_second_place\b/_rollback_guard/g; s/\bfile::second::/file::rollback_guard::/g; s/\bself::second::/self::rollback_guard::/g; s/\bsecond places\b/rollback guards/g; s/\bsecond place\b(?! than)/rollback guard/g; s/\bSecond place\b/Rollback guard/g; s/\bis kept in a rollback guard\b/is kept in a second file, the rollback guard/g; s/\buntil the place is put back\b/until it is put back/g; s{(#[\w-]*)second-place}{$1rollback-guard}g; };
in_ qr{(privacy/src/ledger/file|programs/src/ledger)/mod\.rs}; r { s/\bmod second;/mod rollback_guard;/g; s/\bpub use second::/pub use rollback_guard::/g; s/\bin a second$/in the rollback guard/ if 0; s/^\/\/! place \(\[`RollbackGuard`\]\)/\/\/! file ([`RollbackGuard`])/; };

# --- work items of a pass; cumulative losses of a ledger --------------------------------------------------------------
in_ qr{privacy/src/mechanism/summation\.rs$}; r { s/\bvisits\b/items/g; s/\bvisit\b/item/g; };
in_ qr{common/privacy/src/ledger/|^client/src/commands/|deploy/guide/src/site\.md};
r { s/\bledger\.readings\(\)/ledger.cumulative_losses()/g; s/\bfn readings\(&self\)/fn cumulative_losses(&self)/g; s/\bprints every row with its reading: the certified/prints every row with its cumulative ε: the certified/g; s/: an odometer's readings, at/: the readings of an odometer, at/g; };

# --- between-site heterogeneity, summaries of scales -------------------------------------------------------------------
in_ qr{numerics/src/agreement|math/src/agreement|common/(reading|results|posterior)/src/.*(agreement|personal)|inference/src/personal|client/src/(personal|cli|commands/personalise|commands/predict)|papers/src/(personal|agreement)|report/.*(agreement|sites|sample)|tests/federation/personal};
r { return if /\bspread\b.*central_90|Spread \{ median|scales::Spread|Option<Spread>/; return if $main::path =~ m{commands/predict\.rs}; s/\bSpreadArg\b/HeterogeneityArg/g; s/\bSPREADS\b/HETEROGENEITIES/g; s/\bSpread\b/Heterogeneity/g; s/\bspreads\b/heterogeneities/g; s/\bwith_a_spread_/with_heterogeneity_/g; s/\ba spread between sites\b/heterogeneity between sites/g; s/\ba spread\b/heterogeneity/g; s/\bspread\b(?! (?:out|over|sheets?)\b)/heterogeneity/g; };
in_ qr{deploy/guide/src/|common/papers/src/personal|\.github/};
r { s/--spread\b/--heterogeneity/g; s/`(comparison|others)\.spread`/`$1.heterogeneity`/g; };
in_ qr{common/(numerics|math)/src/scales|models/src/(scaled|effects/)|common/(reading|results)/|common/posterior/|report/};
r { s/\bscales::Spread\b/scales::ScaleSummary/g; s/\bSpread::of_grid\b/ScaleSummary::of_grid/g; s/\bpub struct Spread\b/pub struct ScaleSummary/g; s/\bimpl Spread\b/impl ScaleSummary/g; s/\bSpread \{/ScaleSummary {/g; s/\bOption<Spread>/Option<ScaleSummary>/g; s/([{, ])Spread(?=[,}])/$1ScaleSummary/g; s/-> Spread\b/-> ScaleSummary/g; s/: &?Spread\b/my $m=$&; $m=~s{Spread}{ScaleSummary}; $m/ge; s/\bfn spreads\b/fn scale_summaries/g; s/\.spreads\(\)/.scale_summaries()/g; };
in_ qr{models/src/effects/scales|(numerics|math)/src/scales}; r { s/\bSpread\b/ScaleSummary/g; s/`spreads`/`summaries`/g; s/\bspreads\b/summaries/g; s/\bspread\b/summary/g if $main::path =~ /effects/; };
in_ qr{common/verifier/}; r { s/\bSpread\b/MassFunction/g; };

# --- what is told ---------------------------------------------------------------------------------------------------
in_ qr{methods/natural_gradient/(scale|rule)\.rs}; r { s/\bTold\b/ScaleSums/g; s/\btold: ScaleSums/sums: ScaleSums/g; s/\btold\.sums\b/sums.sums/g; s/\btold\.(gain|noise)\b/sums.$1/g; };
in_ qr{noise_aware/structure}; r { s/\bTold\b/Estimate/g; s/\btold\b(?=[.),;|:}]| =|\?)/estimate/g; };
in_ qr{methods/(scaled\.rs|natural_gradient|dp_optimisation)}; r { s/\btype Told\b/type NoisyLikelihood/g; s/Option<Told>/Option<NoisyLikelihood>/g; s/\btold: (&)?Told\b/told: $1NoisyLikelihood/g; };
in_ qr{/shape(/|\.rs)}; r { s/\bTold\b/FirstVisit/g; };
in_ qr{methods/natural_gradient/task\.rs}; r { s/\bTOLD_CURVATURE_SHARE\b/GRAM_CURVATURE_SHARE/g; };

# --- a model's options as they are written ---------------------------------------------------------------------------
in_ qr{common/models/src/.*(task|model|mod)\.rs$|common/models/src/\w+_regression|tests/tests/models/|deploy/guide/src/add-a-model\.md|common/inference/src/.*(guest|gamma)};
r { s/\bWritten\b(?=[ ;,:<>{}()]|$)/Raw/g if /\b(struct|type|impl|let|Self::|T::|M::|S::|as|->|:|for|const) ?Written\b|::Written\b|[<(]Written\b|: Written\b|Written \{|\bWritten;/; };

# --- dominating pairs by name ----------------------------------------------------------------------------------------
in_ qr{common/(accounting|verifier|account|results|exchange)/|tests/|deploy/guide/src/};
r { s/\bpair_b_dominates/the_replace_pair_dominates/g; s/_pair_b_/_the_replace_pair_/g; s/\bpair_b\b/poisson_replace/g; s/\bPoisson pair B\b/Poisson replace pair/g; s/\bdominating pair D\b/dominating symmetrised pair/g; s/\bpair A in both directions and of pair B\b/the remove and add pairs and of the replace pair/g; s/\bPair B\b/The replace pair/g; s/\bpair B\b/the replace pair/g; s/\bPair D\b/The symmetrised pair/g; s/\bpair D\b/the symmetrised pair/g; };
in_ qr{pld/mod\.rs}; r { s/\| B: \(1/| replace: (1/g; s/\| D: loss\b/| symmetrised: loss/g; };

# --- separation ------------------------------------------------------------------------------------------------------
in_ qr{common/posterior/}; r { s/\bmod levels;/mod separation;/g; s/\bwith_levels\b/with_separated_levels/g; s/\bnoise_aware::levels\b/noise_aware::separation/g; s/\bsuper::levels\b/super::separation/g; };

# --- modules and layers ----------------------------------------------------------------------------------------------
in_ qr{tests/tests/tidy/(rooms|modules)\.rs}; r { s/("common\/privacy\/src", "", "\w+", )"parts"/$1"partial_sums"/; s/("common\/privacy\/src", "", )"parts"/$1"partial_sums"/; };
in_ qr{tests/tests/tidy/sources\.rs}; r { s/Registry<Room>/Registry<ModelModule>/g; };
in_ qr{tests/tests/tidy/(rooms|modules|floors|layers|sources|main|tree|references|surface|proofs|links)\.rs};
r { s/\bmod floors;/mod layers;/g; s/\bmod rooms;/mod modules;/g; s/`floors\.rs`/`layers.rs`/g; s/`rooms\.rs`/`modules.rs`/g; s/\bFLOORS\b/LAYERS/g; s/\bfn houses\b/fn crates/g; s/\bhouses\(\)/crates()/g; s/\bhouses\b/crates/g; s/\ba_likelihood_has_one_room_and_a_method_one\b/a_likelihood_has_one_module_and_a_method_one/g; s/\bROOMS\b/MODULES/g; s/\b([Rr])ooms\b/($1 eq "R" ? "M" : "m")."odules"/ge; s/(?<!more )\b([Rr])oom\b(?! for (?!\{))/($1 eq "R" ? "M" : "m")."odule"/ge; s/\bhas no room for\b/has no module for/g; s/\bfloors\b/layers/g; s/\bfloor\b/layer/g; };
in_ qr{common/(models|posterior|inference|results|reading|math|names)/};
r { s/\[room\]\(super\)/[module](super)/g; s/\bone room for every\b/one module for every/g; s/\bhas a room (for|of)\b/has a module $1/g; s/\bwrite a room\b/write a module/g; s/\bis a room of\b/is a module of/g; s/\bof a room that this file\b/of a module that this file/g; s/\bthe rooms? of (the )?(models|methods|a method)\b/my $m=$&; $m=~s{room}{module}; $m/ge; s/\bthat the rooms\b/that the modules/g; s/\bwhat several rooms need\b/what several modules need/g; s/\bhalf of the room\b/half of the module/g; s/\bin the room of its method\b/in the module of its method/g; s/\bthe room of its\b/the module of its/g; s/\bThe room of a method\b/The module of a method/g; };
in_ qr{common/inference/src/models/mod\.rs|common/models/src/lib\.rs};
r { s/\bROOMS\b/MODULES/g; s/\broom\b(?=[ .|)(])/module/g unless /\b[Mm]akes? room|have room/; s/\bRoom\b/ModelModule/g; s/\brooms\b/modules/g; };
in_ qr{deploy/guide/src/(architecture|building-blocks|add-a-model)}; r { s/\brooms\b/modules/g; s/\broom\b(?! for)/module/g; };
in_ qr{.}; r { s{tests/tidy/floors}{tests/tidy/layers}g; s{tests/tidy/rooms}{tests/tidy/modules}g; };

# --- names of tests --------------------------------------------------------------------------------------------------
in_ qr{\.(rs|md|sh|toml)$};
r { s/\b(?:weakness|invariant)_\d+_(?=[a-z])//g unless /starts_with/; s/\bfn r5_the_/fn the_/g; s/\br5_the_/the_/g; };
in_ qr{tests/tidy/sources\.rs}; r { s/name\.starts_with\("finding_"\) \|\|/["finding_", "weakness_", "invariant_"].iter().any(|word| name.starts_with(word)) ||/; };
in_ qr{methods/conformance\.rs}; r { s/^\/\/! \| test plan \| here \|/\/\/! | what holds | test |/; s/^(\/\/! \| )16\.\d+ (.*)/$1$2/; s/ \(16\.2, 16\.10\)//; };

in_ qr{\.rs$};
r { return unless m{//} && /\b[TA]\d/;
    s{^(\s*//! What must be refused): T2\.2, T2\.3, and}{$1, and}; s{^(\s*//! Masks): T2\.4, T2\.5, and}{$1, and}; s{^(\s*//! The planner and the noise): T3\.1 to T3\.4\.}{$1.}; s/ refused in T2\.2\b/ refused/; s{^(\s*/// )T3\.1 is the gate's}{$1The bound of a term is the gate's}; s{^(\s*/// )T1\.3 with the server as only witness}{$1An old copy of the ledger, with the server as only witness}; s{^(\s*/// )T1\.3\.$}{$1A site refuses an old copy of its ledger.};
    s/\bT\d+\.\d+ \(([^)]*)\)/$1/g; s{^(\s*//[/!]? )T\d+\.\d+ and T\d+\.\d+: (\w)}{$1.uc $2}e; s{^(\s*//[/!]? )(?:Attack A\d+|T\d+\.\d+[a-z]?): (\w)}{$1.uc $2}e; s{^(\s*//[/!]? )(?:Attack A\d+|T\d+\.\d+[a-z]?): (?=[^\x00-\x7f])}{$1}; s{^(\s*/// )T\d+\.\d+, (z = 0: )}{$1$2}; s{^(\s*/// )Attack A\d+ \(\w\): (\w)}{$1.uc $2}e; s{^(\s*// )Attack A12\.$}{$1States that are no distribution.}; s{^(\s*//[/!]? )T\d+\.\d+, ([a-z])([^:]*: )}{$1.uc($2).$3}e; s{^(\s*//[/!]? )T\d+\.\d+ (with|for|in|without|on)\b}{$1.ucfirst $2}e; s/ \(T\d+\.\d+\)//g; };

# --- the same paths everywhere ---------------------------------------------------------------------------------------
in_ qr{.};
r { s{privacy/src/inside\.rs}{privacy/src/panic_redaction.rs}g; s{client/src/rehearsal\.rs}{client/src/dry_run.rs}g; s{src/own_eyes\.rs}{src/local_only.rs}g; s{compile_fail/own_eyes}{compile_fail/local_only}g; s{account/src/worth\.rs}{account/src/run_forecast.rs}g; s{\boutlook\.rs}{forecast_table.rs}g; s{forecast/src/world\.rs}{forecast/src/drawn_federation.rs}g; s{server/src/crowd\.rs}{server/src/connection_limiter.rs}g; s{server/src/shortage\.rs}{server/src/resource_backoff.rs}g; s{coordinator/unhurried}{coordinator/asynchronous}g; s{methods/(\w+/)?rehearsal\.rs}{methods/@{[$1 // ""]}prior_predictive.rs}g; s{proofs/pair_b\.md}{proofs/poisson_replace.md}g; s{\bpair_b\.md}{poisson_replace.md}g; };

# What the compiler prints below a line of code follows the words of that line.
sub underline {
    my ($old, $new) = @_;
    for my $i (0 .. $#$new - 1) {
        next if $old->[$i] eq $new->[$i] || $old->[$i] !~ /^\s*(\d+ )?\| /;
        my @was = split /\b/, $old->[$i]; my @is = split /\b/, $new->[$i]; next if @was != @is;
        my (%start, %end); my ($p, $q) = (0, 0);
        for my $k (0 .. $#was) { for my $c (0 .. length($was[$k]) - 1) { my $same = length($was[$k]) == length($is[$k]); $start{$p + $c} = $same ? $q + $c : $q; $end{$p + $c} = $same ? $q + $c : $q + length($is[$k]) - 1; } $p += length $was[$k]; $q += length $is[$k]; }
        next unless $old->[$i + 1] =~ /^(\s*\|)([ ^+-]+)(.*)$/s;
        my ($marks, $rest) = ($1 . $2, $3); next unless $marks =~ /[\^+-]/;
        $rest = substr($new->[$i + 1], index($new->[$i + 1], substr($rest, 0, 4))) if length($rest) > 4 && index($new->[$i + 1], substr($rest, 0, 4)) > 0;
        my $out = "";
        while ($marks =~ /(\^+|-+|\++)/g) { my ($from, $to) = ($-[1], $+[1] - 1); next unless defined $start{$from} && defined $end{$to}; my $at = $start{$from}; $at = $from if !$out && $from < 3; $out .= " " x ($at - length $out) if $at > length $out; $out .= substr($1, 0, 1) x ($end{$to} - $at + 1); }
        next unless $out; substr($out, index($old->[$i + 1], "|"), 1) = "|";
        $new->[$i + 1] = $out . ($rest =~ /^\n/ ? $rest : " $rest");
    }
}

for my $path (split /\n/, `git ls-files`) {
    next if $path =~ $skip || $path !~ $text || !-f $path || -l $path;
    my @mine = grep { $path =~ $_->[0] } @rules; next unless @mine;
    open my $in, '<', $path or next; my @lines = <$in>; close $in; my $changed = 0;
    $main::path = $path;
    my @before = @lines;
    for my $line (@lines) { my $old = $line; for my $rule (@mine) { local $_ = $line; $rule->[1]->(); $line = $_; } $changed = 1 if $old ne $line; }
    if ($changed && $path =~ /\.stderr$/) { underline(\@before, \@lines); }
    if ($changed) { open my $out, '>', $path or die; print $out @lines; close $out; }
}
EOP
perl "${TMPDIR:-/tmp}/words.$$.pl"
rm -f "${TMPDIR:-/tmp}/words.$$.pl"
cargo fmt --all
