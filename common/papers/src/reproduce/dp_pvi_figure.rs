//! The figures of the paper on differentially private partitioned variational inference, and their splits.

/// Records that a quick run keeps.
pub(super) const QUICK: u32 = 2000;

/// The figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Figure {
    /// Logistic regression, Adult, 10 sites, ε = 1.
    One,
    /// Logistic regression, a balanced health data set, 10 sites, ε = 1.
    Two,
    /// Logistic regression, Adult, 200 sites, ε = ½.
    Three,
    /// A network, Adult, 10 sites, ε = 2.
    Four,
}

/// How records are shared out (appendix B of the paper).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Split {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) rho: f64,
    pub(super) kappa: f64,
}

impl Figure {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::One => "dp-pvi-figure1",
            Self::Two => "dp-pvi-figure2",
            Self::Three => "dp-pvi-figure3",
            Self::Four => "dp-pvi-figure4",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::One => "UCI Adult, logistic regression, 10 sites, epsilon 1",
            Self::Two => "Diabetes 130 (mortality, balanced) in place of MIMIC-III, logistic regression, 10 sites, epsilon 1",
            Self::Three => "UCI Adult, logistic regression, 200 sites, epsilon 1/2",
            Self::Four => "UCI Adult, network with 50 hidden units, 10 sites, epsilon 2",
        }
    }

    /// Number of sites; a quick run of the large federation has 20.
    pub(super) fn sites(self, quick: bool) -> u32 {
        match (self, quick) {
            (Self::Three, false) => 200,
            (Self::Three, true) => 20,
            _ => 10,
        }
    }

    pub(super) fn epsilon(self) -> f64 {
        match self {
            Self::One | Self::Two => 1.0,
            Self::Three => 0.5,
            Self::Four => 2.0,
        }
    }

    /// Training records of an average site: the public number from which shards and batches follow. A quick run keeps [`QUICK`] records.
    pub(super) fn units(self, quick: bool) -> u32 {
        match self {
            _ if quick => QUICK * 4 / 5 / self.sites(quick),
            Self::One | Self::Four => 3907,
            // 80 % of 2 × 1652 stays.
            Self::Two => 264,
            Self::Three => 195,
        }
    }

    pub(super) fn is_network(self) -> bool {
        self == Self::Four
    }

    pub(super) fn splits(self) -> [Split; 3] {
        let second = if self == Self::Two { -0.5 } else { -3.0 };
        [
            Split { name: "balanced", title: "balanced", rho: 0.0, kappa: 0.0 },
            Split { name: "unbalanced-1", title: "unbalanced 1", rho: 0.75, kappa: 0.95 },
            Split { name: "unbalanced-2", title: "unbalanced 2", rho: 0.7, kappa: second },
        ]
    }
}
