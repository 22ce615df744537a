//! A horizontal or vertical axis: where a value stands, and which round numbers are written beside it.
//!
//! Values are what a run released, and may be any number. An axis ends at bounds of its own, and nothing here counts up to a value.

use std::f64::consts::LN_10;

/// An axis goes no further from 0: differences of what is on it are finite.
const FARTHEST: f64 = 1e300;
/// The same for logarithms of ratios: a factor of 10^100.
const FARTHEST_RATIO: f64 = 100.0 * LN_10;
/// Values that differ by less than this share of their size are drawn as one.
const NARROWEST: f64 = 1e-12;

/// What is written at a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Labels {
    /// The value.
    Plain,
    /// exp of the value: equal steps of the axis are equal factors.
    Exp,
}

impl Labels {
    fn farthest(self) -> f64 {
        match self {
            Self::Plain => FARTHEST,
            Self::Exp => FARTHEST_RATIO,
        }
    }
}

/// An axis from one value to another.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    labels: Labels,
    most: u32,
    /// Whether values lie beyond the ends.
    cut: bool,
}

impl Axis {
    /// An axis that holds all finite values up to a bound, with some room at both ends and about `most` ticks; none without values.
    pub(crate) fn around(values: impl IntoIterator<Item = f64>, labels: Labels, most: u32) -> Option<Self> {
        let farthest = labels.farthest();
        let mut cut = false;
        let (lowest, highest) = range(values.into_iter().inspect(|value| cut |= value.abs() > farthest))?;
        let (low, high) = (lowest.clamp(-farthest, farthest), highest.clamp(-farthest, farthest));
        let size = low.abs().max(high.abs());
        let space = if high - low > NARROWEST * size { 0.04 * (high - low) } else { 0.1 * size.max(1.0) };
        Some(Self { low: low - space, high: high + space, labels, most, cut })
    }

    /// An axis of exactly this range, up to a bound.
    pub(crate) fn exact(low: f64, high: f64, most: u32) -> Self {
        let cut = low.abs().max(high.abs()) > FARTHEST;
        let (low, high) = (low.clamp(-FARTHEST, FARTHEST), high.clamp(-FARTHEST, FARTHEST));
        let high = if high - low > NARROWEST * low.abs().max(high.abs()) { high } else { low + (NARROWEST * low.abs()).max(1.0) };
        Self { low, high, labels: Labels::Plain, most, cut }
    }

    /// What a picture says where values lie beyond the ends.
    pub(crate) fn remark(&self) -> &'static str {
        if self.cut { " Some values lie beyond the axis, and stand at its edge." } else { "" }
    }

    /// The position of a value in percent of the axis; 0 to 100 inside.
    pub(crate) fn percent(&self, value: f64) -> f64 {
        100.0 * ((value - self.low) / (self.high - self.low))
    }

    /// The same, and at the edge for what lies beyond it.
    pub(crate) fn inside(&self, value: f64) -> f64 {
        let at = self.percent(value);
        if at.is_nan() { 0.0 } else { at.clamp(0.0, 100.0) }
    }

    /// Round numbers inside: value, and the number to write.
    pub(crate) fn ticks(&self) -> Vec<(f64, f64)> {
        let mut ticks: Vec<(f64, f64)> = match self.labels {
            Labels::Plain => ticks(self.low, self.high, self.most).into_iter().map(|tick| (tick, tick)).collect(),
            Labels::Exp => ratios(self.low, self.high, self.most).into_iter().map(|ratio| (ratio.ln(), ratio)).collect(),
        };
        ticks.retain(|(at, _)| (-1e-6..=100.0 + 1e-6).contains(&self.percent(*at)));
        ticks
    }
}

/// Smallest and largest finite value.
pub(crate) fn range(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().filter(|v| v.is_finite()).fold(None, |range, v| match range {
        None => Some((v, v)),
        Some((low, high)) => Some((f64::min(low, v), f64::max(high, v))),
    })
}

/// Round numbers inside a range, at most `most` and a few.
fn ticks(low: f64, high: f64, most: u32) -> Vec<f64> {
    let raw = (high - low) / f64::from(most);
    if !(raw.is_finite() && raw > 0.0) {
        return vec![low];
    }
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| *step >= raw).unwrap_or(10.0 * power);
    if !(step.is_finite() && step > 0.0) {
        return vec![low];
    }
    let first = (low / step).ceil();
    (0..=most).map(|i| (first + f64::from(i)) * step).map(|t| if t.abs() < step * 1e-9 { 0.0 } else { t }).filter(|t| *t <= high).collect()
}

/// Round ratios between exp(low) and exp(high): of the lists of digits the fullest that stays below `most`; where even 1, 2, 5 is too little, equal
/// steps. Numbers whose labels would touch are left out. What lies further than an axis goes has none.
fn ratios(low: f64, high: f64, most: u32) -> Vec<f64> {
    // An axis has some room at both ends.
    let decade = |log: f64| log.clamp(-1.25 * FARTHEST_RATIO, 1.25 * FARTHEST_RATIO) / LN_10;
    let within = |digits: &[f64]| -> Vec<f64> {
        #[allow(clippy::cast_possible_truncation, reason = "between -125 and 125")]
        let decades = (decade(low).floor() as i32)..=(decade(high).ceil() as i32);
        let all = decades.flat_map(|decade| digits.iter().map(move |digit| digit * 10f64.powi(decade)));
        all.filter(|ratio| (low..=high).contains(&ratio.ln())).collect()
    };
    let lists: [&[f64]; 4] = [&[1.0], &[1.0, 3.0], &[1.0, 2.0, 5.0], &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0]];
    let fits = lists.iter().map(|digits| within(digits)).filter(|list| list.len() <= most as usize).max_by_key(Vec::len);
    match fits {
        Some(list) if list.len() >= 3 => list,
        // Less than a factor of a few: equal steps, as in 0.9, 1, 1.1.
        _ if high - low < 3.0 => ticks(low.exp(), high.exp(), most.min(5)).into_iter().filter(|ratio| *ratio > 0.0).collect(),
        // So many decades that every one is too much.
        _ => {
            let all = within(&[1.0]);
            let step = all.len().div_ceil(most.max(1) as usize).max(1);
            all.into_iter().step_by(step).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn values_stand_inside_and_ticks_are_round() {
        let axis = Axis::around([-1.0, 3.0, f64::NAN], Labels::Plain, 8).unwrap();
        assert!(axis.percent(-1.0) > 0.0 && axis.percent(3.0) < 100.0);
        assert!(axis.ticks().iter().map(|t| t.1).eq([-1.0, 0.0, 1.0, 2.0, 3.0]));
        assert!(Axis::around([f64::INFINITY], Labels::Plain, 8).is_none());
        let one = Axis::around([2.0], Labels::Plain, 8).unwrap();
        assert!((one.percent(2.0) - 50.0).abs() < 1e-9);
        assert_eq!(Axis::exact(1.0, 1.0, 4).percent(2.0), 100.0);
    }

    #[test]
    fn a_logarithmic_axis_has_round_ratios_and_never_too_many() {
        let labels = |low: f64, high: f64| -> Vec<f64> {
            Axis { low: low.ln(), high: high.ln(), labels: Labels::Exp, most: 7, cut: false }.ticks().into_iter().map(|t| t.1).collect()
        };
        let close = |found: Vec<f64>, expected: &[f64]| {
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(found.iter().zip(expected).all(|(a, b)| (a / b - 1.0).abs() < 1e-9), "{found:?}");
        };
        close(labels(0.4, 2.5), &[0.5, 0.7, 1.0, 1.5, 2.0]);
        close(labels(0.09, 11.0), &[0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]);
        close(labels(0.94, 1.07), &[0.95, 1.0, 1.05]);
        for (low, high) in [(1e-9, 1e9), (0.5, 0.501), (1e-3, 1.0), (0.999, 40.0)] {
            let found = labels(low, high);
            assert!(!found.is_empty() && found.len() <= 8 && found.iter().all(|r| (low * 0.999..=high * 1.001).contains(r)), "{found:?}");
        }
    }

    #[test]
    fn an_axis_of_any_numbers_has_a_few_ticks_on_it_and_a_place_for_every_value() {
        let sets: [&[f64]; 12] = [
            &[0.0, 1e99],
            &[-1e99, 0.0, 1.0],
            &[1e308],
            &[-1e308, 1e308],
            &[f64::MIN, f64::MAX, 0.0],
            &[f64::NEG_INFINITY, 1.0, f64::INFINITY],
            &[0.0, 1e-300],
            &[1e-300, 2e-300],
            &[0.0, 5e-324],
            &[1.0, 1.0 + f64::EPSILON],
            &[1e308, 1e308 * (1.0 - f64::EPSILON)],
            &[-700.0, 700.0],
        ];
        for values in sets {
            for labels in [Labels::Plain, Labels::Exp] {
                for most in [1, 7] {
                    let axis = Axis::around(values.iter().copied(), labels, most).unwrap();
                    let ticks = axis.ticks();
                    assert!(ticks.len() <= 12, "{values:?}: {ticks:?}");
                    assert!(ticks.iter().all(|(at, label)| at.is_finite() && label.is_finite()), "{values:?}: {ticks:?}");
                    assert!(values.iter().all(|value| (0.0..=100.0).contains(&axis.inside(*value))), "{values:?}: {axis:?}");
                    let far = values.iter().any(|value| value.abs() > labels.farthest());
                    assert_eq!(axis.remark().is_empty(), !far, "{values:?}");
                }
            }
            let axis = Axis::exact(values[0].max(f64::MIN), values[values.len() - 1].min(f64::MAX), 10);
            assert!(axis.ticks().len() <= 12 && values.iter().all(|value| (0.0..=100.0).contains(&axis.inside(*value))), "{axis:?}");
        }
        assert_eq!(Axis::around([0.0, 1.0], Labels::Plain, 5).unwrap().inside(f64::NAN), 0.0);
    }

    #[test]
    fn ratios_are_counted_between_bounds_whatever_the_ends_are() {
        for (low, high) in [(-1e99, 1e99), (f64::MIN, f64::MAX), (0.0, f64::INFINITY), (1e300, 1e308)] {
            assert!(ratios(low, high, 7).len() <= 12);
        }
    }
}
