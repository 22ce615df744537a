//! A share of one step's outcomes: those that are far out, or all others. Between them it fades over a small range, so that both shares have
//! densities without a jump and their transforms decay.

use super::pair::{Map, Segment};

/// Outcomes at y are far with probability ½erfc((at − y)/width).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fade {
    pub(crate) at: f64,
    pub(crate) width: f64,
}

/// Widths beyond which a share is cut off: ½erfc(8) < 10^−29.
const REACH: f64 = 8.0;
/// ½erfc(8), rounded up.
const BEYOND: f64 = 6e-30;

/// The outcomes that a transform is of. Far outcomes are those of the segment whose losses have no largest value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Share {
    /// All of them.
    All,
    /// Those that are not far; if none is, none beyond `end`. `far` is the mass of those that are, and `missing` how far that may be off.
    Near { fade: Option<Fade>, end: f64, far: f64, missing: f64 },
    /// The far ones, none beyond `end`.
    Far { fade: Fade, end: f64 },
}

/// Whether the losses of this segment rise without end.
fn rises(segment: &Segment) -> bool {
    matches!(segment.map, Map::Remove | Map::Replace) && segment.high == f64::INFINITY
}

impl Fade {
    fn scaled(self, y: f64) -> f64 {
        (y - self.at) / self.width
    }

    /// ln of the probability of not being far where `sign` is 1, of being far where it is −1.
    pub(crate) fn log(self, y: f64, sign: f64) -> f64 {
        (0.5 * libm::erfc(sign * self.scaled(y))).ln()
    }

    /// The derivative of that.
    fn slope(self, y: f64, sign: f64) -> f64 {
        let x = sign * self.scaled(y);
        -sign * std::f64::consts::FRAC_2_SQRT_PI / self.width * (-x * x).exp() / libm::erfc(x)
    }
}

impl Share {
    fn fade(self, segment: &Segment) -> Option<(Fade, f64)> {
        match self {
            Self::Near { fade: Some(fade), .. } if rises(segment) => Some((fade, 1.0)),
            Self::Far { fade, .. } if rises(segment) => Some((fade, -1.0)),
            _ => None,
        }
    }

    /// Atoms are never far.
    pub(crate) fn has_atoms(self) -> bool {
        !matches!(self, Self::Far { .. })
    }

    /// The part of a segment's range that there is, and a bound on the mass of the share that fades beyond it; none at all: `None`.
    pub(crate) fn range(self, segment: &Segment, (low, high): (f64, f64)) -> Option<(f64, f64, f64)> {
        let rises = rises(segment);
        match self {
            Self::Near { fade: Some(fade), .. } if rises => Some((low, fade.at + REACH * fade.width, BEYOND)),
            Self::Near { fade: None, end, .. } if rises => Some((low, end, 0.0)),
            Self::Far { fade, end } if rises => Some((low.max(fade.at - REACH * fade.width), end, BEYOND)),
            Self::Far { .. } => None,
            _ => Some((low, high, 0.0)),
        }
    }

    /// Whether the outcomes below and above the range are cut off, and have to be counted as left out.
    pub(crate) fn cuts(self, segment: &Segment) -> (bool, bool) {
        match self.fade(segment) {
            None => (true, true),
            Some((_, sign)) if sign > 0.0 => (true, false),
            Some(_) => (false, true),
        }
    }

    /// ln of the share at y.
    pub(crate) fn log(self, segment: &Segment, y: f64) -> f64 {
        self.fade(segment).map_or(0.0, |(fade, sign)| fade.log(y, sign))
    }

    /// The derivative of that.
    pub(crate) fn slope(self, segment: &Segment, y: f64) -> f64 {
        self.fade(segment).map_or(0.0, |(fade, sign)| fade.slope(y, sign))
    }

    /// Nats by which the share grows from the real axis within `high` of it, over `range` of real parts: as
    /// erfc(z) = e^{−z²}·2/√π·∫ e^{−u² − 2zu} du over u > 0, |erfc(x + iv)| ≤ e^{v²}erfc(x); and as erfc(z) = 2 − erfc(−z), ½erfc is
    /// at most 1 + ½e^{v² − x²} ≤ 3/2 there where x ≤ −v, and at least ½ on the axis.
    pub(crate) fn growth(self, segment: &Segment, range: (f64, f64), high: f64) -> f64 {
        let Some((fade, sign)) = self.fade(segment) else { return 0.0 };
        let v = high / fade.width;
        let x = (sign * fade.scaled(range.0)).max(sign * fade.scaled(range.1));
        if x <= -v { (v * v).min(1.1) } else { v * v }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_have_their_slopes() {
        let segment = Segment { map: Map::Remove, low: f64::NEG_INFINITY, high: f64::INFINITY };
        let fade = Fade { at: 4.0, width: 0.1 };
        let (near, far) = (Share::Near { fade: Some(fade), end: 9.0, far: 0.0, missing: 0.0 }, Share::Far { fade, end: 9.0 });
        for y in [3.4, 3.9, 4.0, 4.05, 4.5] {
            assert!((near.log(&segment, y).exp() + far.log(&segment, y).exp() - 1.0).abs() < 1e-15);
            for share in [near, far] {
                let slope = (share.log(&segment, y + 1e-6) - share.log(&segment, y - 1e-6)) / 2e-6;
                assert!((share.slope(&segment, y) - slope).abs() < 1e-5 * (1.0 + slope.abs()), "{share:?} {y}");
            }
        }
        assert_eq!(
            (near.range(&segment, (-9.0, 20.0)), far.range(&segment, (-9.0, 20.0))),
            (Some((-9.0, 4.8, BEYOND)), Some((3.2, 9.0, BEYOND)))
        );
        assert!(0.5 * libm::erfc(REACH) <= BEYOND);
    }
}
