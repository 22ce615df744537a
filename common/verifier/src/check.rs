//! The check itself. Proof: [`crate::proof`].

use crate::format::{Certificate, Event, Noise, Part, Proof, Relation, Sampling};
use crate::fourier::{STAGE, roots, times, transform};
use crate::{Refusal, interval::Interval, interval::point, normal::upper, pair::Grid, pair::Kind, pair::Pair, require};

/// Checks a certificate, and answers what it says: that what ran are its events, and that it is about its binding, the caller compares.
///
/// # Errors
/// Any claim that is not proved, and every file that is not in canonical form.
pub fn verify(bytes: &[u8]) -> Result<Certificate, Refusal> {
    let certificate = Certificate::read(bytes)?;
    let Certificate { format, relation, delta, epsilon, slack, binding, events, proofs, .. } = &certificate;
    require(format == "dp-pvi-certificate-1" && (1e-100..=1.0).contains(delta), "the format, or delta")?;
    require((0.0..=600.0).contains(epsilon) && (0.0..=*epsilon).contains(slack), "epsilon or slack")?;
    let hash = |text: &String| text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    require(binding.iter().flatten().all(hash), "a hash of the binding")?;
    let ascend = events.windows(2).all(|two| (two[0].noise, two[0].sampling) < (two[1].noise, two[1].sampling));
    require((1..=1000).contains(&events.len()) && ascend, "events or their order")?;
    require(events.iter().all(|event| fits(event, *relation)), "an event, or its sampling under this relation")?;
    let each = |event: &Event| if let Noise::FineDiscreteGaussian(.., n) | Noise::FineCells(.., n) = event.noise { n.into() } else { 0 };
    let releases = |event: &Event| if let Sampling::RandomAllocation(t) = event.sampling { t.into() } else { 1 };
    let numbers = events.iter().map(|event| event.count.saturating_mul(each(event) * releases(event))).fold(0, u64::saturating_add);
    require(numbers == 0 || (numbers <= 1 << 36 && *epsilon <= 100.0), "numbers with discrete noise, 2^36 at most for epsilon up to 100")?;
    // What discrete noise that is accounted as continuous adds to δ.
    let addition = if numbers == 0 { 0.0 } else { (point(numbers as f64) * point(2e-20) + point(1e-30)).mass() };
    // Terms that change move a sum by twice their bound; cells by √2 of it.
    let factor = if *relation == Relation::ReplaceOne { 2.0 } else { 1.0 };
    let (plain, sampled) = (events.iter().all(is_plain), events.iter().any(|event| event.sampling != Sampling::None));
    let directions = if plain { 0 } else { 1 + usize::from(sampled && *relation != Relation::ReplaceOne) };
    require(proofs.len() == directions, "proofs, one for each direction")?;
    let unsampled = if plain { closed_form(gaussian(events, factor), *epsilon).mass() } else { 0.0 };
    let mut all = proofs.iter().zip([Kind::Remove, Kind::Add]).map(|(proof, way)| composed(proof, &steps(events, factor, way), *epsilon));
    let worst = all.try_fold(unsampled, |worst, direction| Ok(worst.max(direction?)))?;
    let at_most = (worst + addition).next_up();
    // What is no number is not below δ either.
    if at_most <= *delta { Ok(certificate) } else { Err(Refusal::Claim(at_most)) }
}

/// Whether there is a pair for an event, and its numbers are within what the proof covers.
fn fits(event: &Event, relation: Relation) -> bool {
    let within = |from: f64, to: f64, terms: f64| (from..=to).contains(&shift(event.noise, terms));
    let noise = match event.noise {
        Noise::Gaussian(_) => within(1e-9, 1e3 + 1.0, 1.0),
        Noise::DiscreteGaussian(s, bound) => (1e-2..=1e4).contains(&s) && (1..=1_000_000).contains(&bound),
        Noise::FineDiscreteGaussian(s, .., h, n) | Noise::FineCells(s, _, h, n) => s >> 20 > 0 && h.min(n) > 0 && within(1e-9, 16.0, 2.0),
    };
    let sampling = match (event.sampling, event.noise, relation) {
        (Sampling::None, ..) => true,
        (_, Noise::DiscreteGaussian(..) | Noise::FineCells(..), _) | (Sampling::FixedBatch(_), _, Relation::ZeroOut) => false,
        (Sampling::Poisson(q) | Sampling::FixedBatch(q), ..) => (1e-12..=1.0).contains(&q),
        (Sampling::RandomAllocation(t), ..) => relation != Relation::ReplaceOne && (2..=1 << 20).contains(&t) && within(1e-3, 8.0, 1.0),
    };
    noise && sampling && (1..=1 << 50).contains(&event.count)
}

/// What one unit, in so many terms, moves a sum by, over the noise, rounded up. The continuous noise that is rounded to discrete noise is narrower by a
/// share of 4e-14, and the few operations here err by less than 1e-15.
fn shift(noise: Noise, terms: f64) -> f64 {
    let fine = |moved: f64, s: u64, h: u32| moved / (s as f64 * f64::from(h).sqrt()) * (1.0 + 1e-13);
    match noise {
        Noise::Gaussian(sigma) => terms * (1.0 / sigma).next_up(),
        Noise::DiscreteGaussian(s, bound) => terms * bound as f64 / s,
        Noise::FineDiscreteGaussian(s, squared, excess, h, _) => fine(terms * (squared as f64).sqrt() + excess as f64, s, h),
        // ‖x − y‖² is at most 2B where the term changes, and ‖x‖² at most B.
        Noise::FineCells(s, squared, h, _) => fine((terms * squared as f64).sqrt(), s, h),
    }
}

/// An unsampled Gaussian.
fn is_plain(event: &Event) -> bool {
    event.sampling == Sampling::None && !matches!(event.noise, Noise::DiscreteGaussian(..))
}

/// The shift of all unsampled Gaussians as one, rounded up; 0 without any.
fn gaussian(events: &[Event], factor: f64) -> f64 {
    let shifts = events.iter().filter(|event| is_plain(event)).map(|event| (point(shift(event.noise, factor)), point(event.count as f64)));
    let squared = shifts.fold(point(0.0), |sum, (shift, count)| sum + shift * shift * count).hi;
    if squared > 0.0 { squared.sqrt().next_up() } else { 0.0 }
}

/// The pair of every event and how often it runs, all unsampled Gaussians last, as one.
fn steps(events: &[Event], factor: f64, one_sided: Kind) -> Vec<(Pair, i64)> {
    let replaces = factor > 1.0;
    let pair = |event: &Event| match (event.noise, event.sampling) {
        (Noise::DiscreteGaussian(s, bound), _) => Some(Pair(Kind::Lattice, s, factor * bound as f64)),
        (noise, Sampling::FixedBatch(q)) => Some(Pair(if replaces { Kind::Symmetrised } else { one_sided }, shift(noise, 2.0), q)),
        (noise, Sampling::Poisson(q)) => Some(Pair(if replaces { Kind::Replace } else { one_sided }, shift(noise, 1.0), q)),
        (noise, Sampling::RandomAllocation(t)) => Some(Pair(Kind::Epoch(one_sided == Kind::Remove), shift(noise, 1.0), t.into())),
        (_, Sampling::None) => None,
    };
    let r = gaussian(events, factor);
    let plain = (r > 0.0).then_some((Pair(Kind::Remove, r, 1.0), 1));
    events.iter().filter_map(|event| Some((pair(event)?, event.count as i64))).chain(plain).collect()
}

/// Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).
fn closed_form(mu: f64, epsilon: f64) -> Interval {
    let (half, share) = (point(0.5 * mu), point(epsilon) * point(mu).reciprocal());
    upper(share + -half) + -(point(epsilon).exp() * upper(share + half))
}

/// z^n by squaring.
fn power(z: (f64, f64), n: i64) -> (f64, f64) {
    let half = if n < 2 { (1.0, 0.0) } else { power(times(z, z), n / 2) };
    if n % 2 == 1 { times(half, z) } else { half }
}

/// An upper bound on δ(ε) of one direction.
fn composed(proof: &Proof, steps: &[(Pair, i64)], epsilon: f64) -> Result<f64, Refusal> {
    let Proof { width, points, first, tilt, truncation, rounding, ref parts } = *proof;
    require((1e-12..=1.0).contains(&width) && (1e-12..=1e9).contains(&tilt), "a grid's width or a tilt")?;
    require((0.0..=1.0).contains(&truncation) && (0.0..=1.0).contains(&rounding), "a budget")?;
    require(points.is_power_of_two() && (16..=1 << 22).contains(&points), "points, a power of two from 16 to 2^22")?;
    let near = |k: i64| k.unsigned_abs() < 1 << 40;
    require(near(first) && parts.iter().all(|&Part(_, l, h, f)| near(l) && near(h) && l < h && f < 40), "a window, or the grid of a step")?;
    require(parts.len() == steps.len() && parts.len() as u64 * points <= 1 << 26, "the grids of steps")?;
    let cells = parts.iter().zip(steps).map(|(part, step)| part.2 - part.1 + step.0.atoms()).sum::<i64>();
    require(cells <= 1 << 23, "the grids of steps, 2^23 points at most")?;
    let (n, half) = (points as usize, points as usize / 2);
    let place = |k: i64| k.rem_euclid(n as i64) as usize;
    let tilted = |k: i64| point(tilt) * point(width) * point(k as f64);
    let (roots, stage) = (roots(n), STAGE * f64::from(n.trailing_zeros()));
    // For each frequency: the product of the parts' transforms, of bounds on their moduli, and the relative errors of its factors, summed.
    let mut spectrum = vec![((1.0, 0.0), 1.0, 0.0); half + 1];
    // Logarithms of what the tilted laws were divided by, and of their sums after that; the losses at the indices 0; infinite losses; what masses are above 1.
    let [mut scale, mut excess, mut offset, mut infinite, mut more] = [point(0.0); 5];
    let mut total = 0.0;
    for (&(pair, repeated), &Part(start, low, high, fineness)) in steps.iter().zip(parts) {
        let (law, beyond) = pair.law(&Grid { offset: start, width, low, high, fineness })?;
        let masses = || law.iter().copied().zip(low..).filter(|(mass, _)| *mass > 0.0);
        // Any number serves; this one makes the sum near 1.
        let exponents = || masses().map(|(mass, k)| mass.ln() + tilt * width * k as f64);
        let top = exponents().fold(f64::NEG_INFINITY, f64::max);
        let log = point(top + exponents().map(|x| (x - top).exp()).sum::<f64>().ln());
        let (mut values, mut sum) = (vec![(0.0, 0.0); n], 0.0f64);
        for (mass, k) in masses() {
            let mass = (point(mass) * (tilted(k) + -log).exp()).mass();
            values[place(k)].0 = (values[place(k)].0 + mass).next_up();
            sum = (sum + mass).next_up();
        }
        transform(&mut values, &roots);
        let error = stage * sum;
        for ((product, moduli, errors), value) in spectrum.iter_mut().zip(values) {
            let modulus = (value.0 * value.0 + value.1 * value.1).sqrt() * (1.0 + 1e-15) + error;
            *product = times(*product, power(value, repeated));
            *moduli *= power((modulus, 0.0), repeated).0;
            *errors += repeated as f64 * error / modulus;
        }
        let repeated = point(repeated as f64);
        total += repeated.hi + 1.0;
        scale = scale + repeated * log;
        // ln x ≤ x − 1.
        excess = excess + repeated * (point(sum) + point(-1.0));
        offset = offset + repeated * point(start);
        infinite = infinite + repeated * point(beyond);
        more = more + repeated * point(law.iter().fold(point(-1.0), |sum, mass| sum + point(*mass)).mass());
    }
    require(total <= 1e11, "more than 1e11 steps")?;
    // All entries of the window share one bound on their error, the transform back included.
    let (roundings, mut bounded, mut wrong) = (1e-15 * total, 0.0, 0.0);
    let mut values = vec![(0.0, 0.0); n];
    for (f, (product, moduli, errors)) in spectrum.into_iter().enumerate() {
        let modulus = moduli * (1.0 + roundings) + 1e-300;
        let both = if f == 0 || f == half { 1.0 } else { 2.0 };
        bounded += both * modulus;
        wrong += both * (modulus * (errors + roundings) + 1e-300);
        values[(n - f) % n] = product;
        values[f] = (product.0, -product.1);
    }
    transform(&mut values, &roots);
    let each = 1.001 * (wrong + stage * bounded) / n as f64;
    // Losses below the window count for nothing only if they are not above ε.
    require((offset + point(width) * point(first as f64)).hi <= epsilon, "a window that begins above epsilon")?;
    let (mut main, mut lost, end) = (0.0f64, 0.0f64, first + n as i64);
    for (k, loss) in (first..end).map(|k| (k, offset + point(width) * point(k as f64))).filter(|(_, loss)| loss.hi > epsilon) {
        let weight = (-(point(epsilon) + -loss).exp_m1() * (scale + -tilted(k)).exp()).mass();
        main = (main + (point(weight) * point((values[place(k)].0 / n as f64).max(0.0))).mass()).next_up();
        lost = (lost + (point(weight) * point(each)).mass()).next_up();
    }
    let truncated = (infinite * more.exp() + (scale + excess + -tilted(end)).exp()).mass();
    require(truncated <= truncation && lost <= rounding, "more losses left out, or larger rounding errors, than it states")?;
    Ok((point(main) + point(truncation) + point(rounding)).mass())
}
