use proptest::prelude::*;

use super::*;
use dp_pvi_accounting::Delta;

/// Printed by `dp_accounting` 0.6.0.
const PRINTED: &str = "ComposedDpEvent(events=[SelfComposedDpEvent(event=PoissonSampledDpEvent(sampling_probability=0.01, \
    event=GaussianDpEvent(noise_multiplier=1.0)), count=1000), LaplaceDpEvent(noise_multiplier=2.0), NoOpDpEvent(), \
    SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier=4.0), count=20)])";

fn add_remove(text: &str) -> Result<Plan, EventsError> {
    read_plan(text, Neighbours::AddRemove)
}

fn by_hand() -> Plan {
    let mut plan = Plan::new(Neighbours::AddRemove);
    plan.append(Phase::gaussian(1.0, Sampling::Poisson(0.01), 1000)).unwrap();
    plan.append(Phase { mechanism: Mechanism::Laplace { scale: 2.0 }, sampling: Sampling::None, steps: 1 }).unwrap();
    plan.append(Phase::gaussian(4.0, Sampling::None, 20)).unwrap();
    plan
}

#[test]
fn what_python_prints_is_read_and_written_again() {
    let read = add_remove(PRINTED).unwrap();
    assert_eq!(read, by_hand());
    assert_eq!(add_remove(&printed(&written(&read).unwrap())).unwrap(), read);
    // By position, over lines, with the module's name.
    let other = "dp_accounting.ComposedDpEvent([\n  dp_accounting.SelfComposedDpEvent(PoissonSampledDpEvent(1e-2, GaussianDpEvent(1)), 500),\n\
        SelfComposedDpEvent(SelfComposedDpEvent(PoissonSampledDpEvent(.01, GaussianDpEvent(1.)), 250), count=2),\n  LaplaceDpEvent(2.0),\n\
        SelfComposedDpEvent(GaussianDpEvent(noise_multiplier=4.0), 20),\n])";
    assert_eq!(add_remove(other).unwrap(), read);
    // Numbers of numpy.
    let typed = PRINTED.replace("0.01", "np.float64(0.01)").replace("=20)", "=numpy.int64(20))");
    assert_eq!(add_remove(&typed).unwrap(), read);
}

/// Pieces of valid texts, and what may go wrong between them.
fn pieces() -> impl Strategy<Value = String> {
    const PIECES: [&str; 24] = [
        "GaussianDpEvent",
        "LaplaceDpEvent",
        "SelfComposedDpEvent",
        "ComposedDpEvent",
        "PoissonSampledDpEvent",
        "noise_multiplier=",
        "event=",
        "events=",
        "count=",
        "(",
        ")",
        "[",
        "]",
        ",",
        " ",
        "\n",
        "1.0",
        "0.01",
        "-3",
        "1e400",
        "np.float64",
        "None",
        "é",
        "{\"class_name\": ",
    ];
    proptest::collection::vec(proptest::sample::select(PIECES.to_vec()), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// Whatever the bytes are, they become a plan or an error with words.
    #[test]
    fn any_bytes_are_a_plan_or_a_refusal(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in pieces()) {
        for text in [String::from_utf8_lossy(&bytes).into_owned(), text] {
            if let Err(error) = add_remove(&text) {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }

    /// One sign that is changed, left out or doubled in what Python prints.
    #[test]
    fn a_damaged_text_is_a_plan_or_a_refusal(at in 0..PRINTED.len(), byte in any::<u8>(), how in 0..3u8) {
        let mut bytes = PRINTED.as_bytes().to_vec();
        match how {
            0 => bytes[at] = byte,
            1 => { bytes.remove(at); }
            _ => bytes.insert(at, byte),
        }
        if let Ok(plan) = add_remove(&String::from_utf8_lossy(&bytes)) {
            prop_assert!(plan.phases().len() <= 4);
        }
    }

    /// What is written is read as the same plan, to the last bit of every number.
    #[test]
    fn what_is_written_is_read_again(sigma in 1e-2f64..1e3, scale in 1e-2f64..1e3, rate in 1e-9f64..1.0, rho in 0.0f64..9.0, steps in 1..1_000_000u64) {
        let mut plan = Plan::new(Neighbours::ReplaceOne);
        plan.append(Phase::gaussian(sigma, Sampling::Poisson(rate), steps)).unwrap();
        plan.append(Phase { mechanism: Mechanism::Laplace { scale }, sampling: Sampling::None, steps }).unwrap();
        plan.append(Phase { mechanism: Mechanism::Zcdp { rho }, sampling: Sampling::None, steps: 1 }).unwrap();
        let event = written(&plan).unwrap();
        for text in [printed(&event), event.to_string()] {
            prop_assert_eq!(read_plan(&text, Neighbours::ReplaceOne).unwrap(), plan.clone());
        }
    }
}

#[test]
fn json_has_the_same_names() {
    let json = r#"[{"module_name": "dp_accounting.dp_event", "class_name": "SelfComposedDpEvent", "count": 1000,
        "event": {"class_name": "PoissonSampledDpEvent", "sampling_probability": 0.01, "event": {"class_name": "GaussianDpEvent", "noise_multiplier": 1.0}}},
        {"class_name": "LaplaceDpEvent", "noise_multiplier": 2.0},
        {"class_name": "SelfComposedDpEvent", "count": 20, "event": {"class_name": "GaussianDpEvent", "noise_multiplier": 4.0}}]"#;
    assert_eq!(add_remove(json).unwrap(), by_hand());
}

/// `PLDAccountant` of `dp_accounting` 0.6.0 says 2.08214 at a grid of 1e-4, and 2.08279 at 1e-3: upper bounds.
#[test]
fn mixed_mechanisms_are_one_composition() {
    let text = "ComposedDpEvent([SelfComposedDpEvent(PoissonSampledDpEvent(0.01, GaussianDpEvent(1.0)), 1000), GaussianDpEvent(4.0)])";
    let epsilon = add_remove(text).unwrap().epsilon(Delta::new(1e-5).unwrap());
    assert!(epsilon.lower > 2.081 && epsilon.upper < 2.083 && epsilon.lower < 2.082_15, "{epsilon:?}");
}

#[test]
fn measures_of_opendp_are_read() {
    let plan =
        add_remove(r#"[{"measure": "MaxDivergence", "loss": 0.5}, {"measure": "Approximate<MaxDivergence>", "loss": [0.25, 1e-7]}]"#)
            .unwrap();
    let black_box = |epsilon, delta| Phase { mechanism: Mechanism::Approximate { epsilon, delta }, sampling: Sampling::None, steps: 1 };
    let mut expected = Plan::new(Neighbours::AddRemove);
    expected.append(black_box(0.5, 0.0)).unwrap();
    expected.append(black_box(0.25, 1e-7)).unwrap();
    assert_eq!(plan, expected);
    let rho = add_remove(r#"{"measure": "ZeroConcentratedDivergence", "loss": 0.125}"#).unwrap();
    assert_eq!(rho, add_remove("ZCDpEvent(0.125)").unwrap());
    let both = add_remove(r#"{"measure": "Approximate(ZeroConcentratedDivergence)", "loss": [0.125, 1e-7]}"#).unwrap();
    assert_eq!(both, add_remove("ComposedDpEvent([ZCDpEvent(0.125), EpsilonDeltaDpEvent(0.0, 1e-7)])").unwrap());
    let (epsilon, delta) = (dp_pvi_accounting::Epsilon::new(0.5).unwrap(), Delta::new(1e-6).unwrap());
    let again = add_remove(&measure(epsilon, delta).to_string()).unwrap();
    assert_eq!(again, add_remove("EpsilonDeltaDpEvent(0.5, 1e-6)").unwrap());
    assert_eq!((written(&plan), written(&add_remove("UnivariateDiscreteGaussianDpEvent(3.0, 1)").unwrap())), (None, None));
}

/// They are accounted by their pure ε: the largest loss that an output can have.
#[test]
fn what_is_purely_private_costs_its_largest_loss() {
    for (text, relation, epsilon) in [
        ("DiscreteLaplaceDpEvent(noise_parameter=0.25, sensitivity=3)", Neighbours::AddRemove, 0.75),
        ("DiscreteLaplaceDpEvent(0.25, 3)", Neighbours::ReplaceOne, 1.5),
        // Three of four tell the truth.
        ("RandomizedResponseDpEvent(noise_parameter=0.5, num_buckets=2)", Neighbours::ReplaceOne, 3f64.ln()),
        ("RandomizedResponseDpEvent(0.5, 10)", Neighbours::ZeroOut, 11f64.ln()),
        ("RandomizedResponseDpEvent(1.0, 10)", Neighbours::ReplaceOne, 0.0),
        ("RandomizedResponseDpEvent(0.0, 1)", Neighbours::ReplaceOne, 0.0),
    ] {
        let found = read_plan(text, relation).unwrap().epsilon(Delta::new(1e-300).unwrap()).upper;
        assert!(found >= epsilon && found <= epsilon * (1.0 + 1e-9) + 1e-12, "{text}: {found}");
    }
    let refused = |text, relation| read_plan(text, relation).unwrap_err().to_string();
    assert!(
        refused("RandomizedResponseDpEvent(0.5, 2)", Neighbours::AddRemove).contains("RandomizedResponseDpEvent: every record answers")
    );
    assert!(refused("RandomizedResponseDpEvent(0.0, 2)", Neighbours::ReplaceOne).contains("without protection"));
    assert!(refused("RandomizedResponseDpEvent(1.5, 2)", Neighbours::ReplaceOne).contains("noise_parameter"));
    assert!(refused("DiscreteLaplaceDpEvent(0.0, 2)", Neighbours::ReplaceOne).contains("noise_parameter"));
    assert!(refused("DiscreteLaplaceDpEvent(10.0, 2000)", Neighbours::ReplaceOne).contains("the epsilon of a step"));
}

/// Each says which event or place is meant.
#[test]
fn what_cannot_be_accounted_is_refused_by_name() {
    for (text, part) in [
        ("SingleEpochTreeAggregationDpEvent(noise_multiplier=1.0, step_counts=4)", "SingleEpochTreeAggregationDpEvent: no proved bound"),
        ("RepeatAndSelectDpEvent(event=GaussianDpEvent(1.0), mean=2.0, shape=1.0)", "RepeatAndSelectDpEvent: no proved bound"),
        ("PoissonSampledDpEvent(0.1, LaplaceDpEvent(2.0))", "PoissonSampledDpEvent: no proved bound"),
        ("PoissonSampledDpEvent(0.1, SelfComposedDpEvent(GaussianDpEvent(2.0), 2))", "SelfComposedDpEvent: a sampler"),
        ("PoissonSampledDpEvent(1.5, GaussianDpEvent(2.0))", "PoissonSampledDpEvent: the sampling rate"),
        ("NonPrivateDpEvent()", "NonPrivateDpEvent: a release without protection"),
        ("ZCDpEvent(rho=0.1, xi=0.2)", "ZCDpEvent: only xi = 0"),
        ("GaussianDpEvent()", "GaussianDpEvent needs noise_multiplier"),
        ("GaussianDpEvent(noise_multiplier=0.0)", "GaussianDpEvent: sigma"),
        ("SelfComposedDpEvent(GaussianDpEvent(1.0), -3)", "SelfComposedDpEvent needs count"),
        ("SampledWithoutReplacementDpEvent(10, 11, GaussianDpEvent(1.0))", "needs sample_size"),
        ("GaussianDpEvent(1.0", "line 1, column 20"),
        ("ComposedDpEvent([\n GaussianDpEvent(1.0) LaplaceDpEvent(1.0)])", "line 2, column 23"),
        ("GaussianDpEvent(nan)", "line 1, column 17"),
        ("GaussianDpEvent(1.0) GaussianDpEvent(1.0)", "nothing more"),
        ("GaussianDpEvent(1.0, noise_multiplier=2.0)", "twice"),
        ("", "expected"),
        ("{\"class_name\": 3}", "an event is an object"),
        ("{\"measure\": \"RenyiDivergence\", \"loss\": 1.0}", "RenyiDivergence: no proved bound"),
        ("{\"measure\": \"Approximate<MaxDivergence>\", \"loss\": [1.0]}", "[loss, delta]"),
    ] {
        let error = add_remove(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    let deep = format!("{}GaussianDpEvent(1.0){}", "ComposedDpEvent([".repeat(5000), "])".repeat(5000));
    assert!(matches!(add_remove(&deep), Err(EventsError::TooMany)));
    let shuffled = "SampledWithoutReplacementDpEvent(100, 10, GaussianDpEvent(1.0))";
    assert!(read_plan(shuffled, Neighbours::ZeroOut).unwrap_err().to_string().contains("zero-out"));
    assert!(read_plan(shuffled, Neighbours::ReplaceOne).is_ok());
}

/// Zero steps cost nothing.
/// A field that is not known could mean less protection, and noise on a vector is not noise on one number.
#[test]
fn fields_that_are_not_known_are_refused() {
    for text in [
        "GaussianDpEvent(noise_multiplier=10.0, foo=3)",
        "PoissonSampledDpEvent(0.1, GaussianDpEvent(noise_multiplier=1.0, foo=3))",
        "DiscreteGaussianDpEvent(sigma=0.6, sensitivity=2.0, dimension=100)",
        "DiscreteGaussianDpEvent(0.6, 2)",
        r#"{"class_name": "GaussianDpEvent", "noise_multiplier": 1.0, "measure": "MaxDivergence", "loss": 0.0}"#,
        r#"{"measure": "MaxDivergence", "loss": 0.5, "delta": 0.1}"#,
    ] {
        let refused = add_remove(text);
        assert!(refused.is_err(), "{text}: {refused:?}");
    }
    assert!(add_remove(r#"{"class_name": "GaussianDpEvent", "module_name": "dp_accounting.dp_event", "noise_multiplier": 1.0}"#).is_ok());
}

/// Readers of JSON differ in which of two fields of one name they take; in text such an event is refused, too.
#[test]
fn a_field_that_is_there_twice_is_refused() {
    for text in [
        r#"{"class_name": "GaussianDpEvent", "noise_multiplier": 1.0, "noise_multiplier": 100.0}"#,
        r#"{"class_name": "GaussianDpEvent", "noise_multiplier": 1.0, "noise_\u006dultiplier": 100.0}"#,
        r#"{"class_name": "GaussianDpEvent", "class_name": "NoOpDpEvent", "noise_multiplier": 1.0}"#,
        r#"[{"measure": "MaxDivergence", "loss": 0.5, "loss": 0.5}]"#,
        r#"{"class_name": "SelfComposedDpEvent", "count": 3, "event": {"class_name": "GaussianDpEvent", "noise_multiplier": 1.0, "noise_multiplier": 1.0}}"#,
        r#"{"class_name": "ComposedDpEvent", "events": [], "events": [{"class_name": "NoOpDpEvent"}]}"#,
        "GaussianDpEvent(noise_multiplier=1.0, noise_multiplier=100.0)",
    ] {
        let error = add_remove(text).unwrap_err().to_string();
        assert!(error.contains("there twice"), "{text}: {error}");
    }
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(add_remove(&deep).is_err());
}

#[test]
fn numbers_that_are_not_finite_are_named() {
    for text in [
        "GaussianDpEvent(noise_multiplier=inf)",
        "GaussianDpEvent(noise_multiplier=-inf)",
        "GaussianDpEvent(noise_multiplier=nan)",
        "GaussianDpEvent(noise_multiplier=np.inf)",
        "GaussianDpEvent(noise_multiplier=float.nan)",
        r#"{"class_name": "GaussianDpEvent", "noise_multiplier": Infinity}"#,
        r#"{"class_name": "GaussianDpEvent", "noise_multiplier": NaN}"#,
    ] {
        let error = add_remove(text).unwrap_err().to_string();
        assert!(error.contains("finite number"), "{text}: {error}");
    }
    // A mark at the beginning is no part of a text.
    assert!(add_remove("\u{feff}GaussianDpEvent(1.0)").is_ok() && add_remove("\u{feff}{\"class_name\": \"NoOpDpEvent\"}").is_ok());
}

#[test]
fn nothing_is_an_empty_plan() {
    for text in [
        "NoOpDpEvent()",
        "ComposedDpEvent([])",
        "SelfComposedDpEvent(GaussianDpEvent(1.0), 0)",
        "PoissonSampledDpEvent(0.0, GaussianDpEvent(1.0))",
    ] {
        assert!(add_remove(text).unwrap().phases().is_empty(), "{text}");
    }
}

#[test]
fn an_epoch_of_random_allocation_has_a_name() {
    let by_hand = |count| Plan::of(Neighbours::AddRemove, Phase::gaussian(1.0, Sampling::RandomAllocation(100), count)).unwrap();
    for text in [
        "SelfComposedDpEvent(RandomAllocationDpEvent(num_batches=100, event=GaussianDpEvent(noise_multiplier=1.0)), 3)",
        r#"[{"class_name": "SelfComposedDpEvent", "count": 3, "event":
            {"class_name": "RandomAllocationDpEvent", "num_batches": 100, "event": {"class_name": "GaussianDpEvent", "noise_multiplier": 1.0}}}]"#,
    ] {
        assert_eq!(add_remove(text).unwrap(), by_hand(3));
    }
    assert_eq!(written(&by_hand(1)), None, "that library has no such event");
    let refused = |text: &str, words: &str| {
        let error = add_remove(text).unwrap_err().to_string();
        assert!(error.starts_with("RandomAllocationDpEvent") && error.contains(words), "{error}");
    };
    refused("RandomAllocationDpEvent(0, GaussianDpEvent(1.0))", "at least 1");
    refused("RandomAllocationDpEvent(10, LaplaceDpEvent(1.0))", "anything but Gaussian noise");
    refused("RandomAllocationDpEvent(event=GaussianDpEvent(1.0))", "num_batches");
}
