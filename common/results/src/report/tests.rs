//! Pictures of degenerate data.

use crate::report::axis::{Axis, Labels};
use crate::report::curves;
use crate::report::curves::{Curve, Line};
use crate::report::rows::{Full, Mark, Row, Rows};

/// Every picture is one element, carries its title, escapes names, and has no coordinate that is not a number.
fn check(figure: &str, title: &str) {
    assert!(figure.starts_with("<figure") && figure.ends_with("</figure>"));
    assert!(figure.contains(title));
    assert!(!figure.contains("NaN") && !figure.contains("inf"), "{figure}");
    assert!(!figure.contains("<b>"), "names are escaped");
    assert_eq!(figure.matches('<').count(), figure.matches('>').count());
    assert_eq!(figure.matches("<svg").count(), figure.matches("</svg>").count());
}

fn rows(marks: &[Mark]) -> String {
    rows_over(&Axis::around([0.0, 1.0], Labels::Plain, 5).unwrap(), marks)
}

fn rows_over(axis: &Axis, marks: &[Mark]) -> String {
    let rows: Vec<Row<'_>> = marks.iter().map(|mark| Row { name: "<b>", mark: Some(*mark), values: vec!["1".into()] }).collect();
    Rows { title: "rows", note: "n", heads: ("name", "", &["value"]), axis, reference: Some(0.0), rows: &rows }.render()
}

#[test]
fn pictures_survive_degenerate_data() {
    let line = |points: &[(f64, f64)]| Line { name: "<b>", points: points.to_vec() };
    check(&curves::lines("one point", "rounds", &[line(&[(1.0, -0.5)])]), "one point");
    check(&curves::lines("constant", "rounds", &[line(&[(1.0, 1.0), (2.0, 1.0)]), line(&[(3.0, 1.0)])]), "constant");
    assert_eq!(curves::lines("nothing", "rounds", &[]), "");
    check(&curves::reliability("empty", "", &[]), "empty");
    check(&curves::reliability("one bin", "", &[(0.5, 0.4, 10)]), "one bin");
    check(&curves::roc("roc", "", &[(0.0, 0.0), (1.0, 1.0)], None), "roc");
    assert_eq!(rows(&[]), "");
    let point = Mark::Interval { centre: 0.0, inner: Some((0.0, 0.0)), outer: None, full: Full::No };
    check(&rows(&[point, Mark::Bar(0.0), Mark::Range { forecast: (0.0, 0.0, 0.0), outcome: 0.0 }]), "rows");
}

#[test]
fn an_interval_that_leaves_the_axis_ends_in_an_arrow() {
    let wide = |low: f64, high: f64| Mark::Interval { centre: 0.5, inner: None, outer: Some((low, high)), full: Full::No };
    let arrows = |mark: Mark| rows(&[mark]).matches("<path").count();
    assert_eq!((arrows(wide(0.2, 0.8)), arrows(wide(-9.0, 0.8)), arrows(wide(-9.0, 9.0))), (0, 1, 2));
    let all = rows(&[wide(-9.0, 9.0)]);
    assert!(all.contains("x1=\"0.00%\" x2=\"100.00%\""), "{all}");
}

#[test]
fn a_first_round_that_would_flatten_the_curve_is_named_and_not_drawn() {
    let points: Vec<(f64, f64)> =
        [-0.693, -0.489, -0.488, -0.487, -0.488, -0.487].into_iter().zip(1..).map(|(y, x): (f64, i32)| (f64::from(x), y)).collect();
    let figure = curves::lines("way", "rounds", &[Line { name: "e", points: points.clone() }]);
    assert!(figure.contains("Not in the picture: -0.693 at 1."), "{figure}");
    assert_eq!(figure.matches("<path").count(), 5);
    let slow: Vec<(f64, f64)> = points.iter().map(|p| (p.0, 0.1 * p.0)).collect();
    assert!(!curves::lines("way", "rounds", &[Line { name: "e", points: slow }]).contains("Not in the picture"));
}

/// What a run may have released.
static ANY: [f64; 10] = [1e99, -1e99, 1e308, -1e308, f64::MAX, f64::INFINITY, 1e-300, -1e-300, 5e-324, 0.0];

#[test]
fn a_picture_of_any_numbers_is_drawn_and_is_short() {
    let pairs = ANY.iter().flat_map(|a| ANY.iter().map(move |b| (*a, *b)));
    for (a, b) in pairs {
        for labels in [Labels::Plain, Labels::Exp] {
            let axis = Axis::around([a, b, 0.0], labels, 7).unwrap();
            let interval = Mark::Interval { centre: a, inner: Some((a, b)), outer: Some((b, f64::NAN)), full: Full::Yes };
            let range = Mark::Range { forecast: (a, b, f64::INFINITY), outcome: f64::NAN };
            drawn(&rows_over(&axis, &[interval, range, Mark::Bar(a), Mark::Bar(f64::NAN)]), "rows");
        }
        drawn(&curves::lines("way", "rounds", &[Line { name: "<b>", points: vec![(1.0, a), (2.0, b), (3.0, 0.0)] }]), "way");
        let x = |value: f64| value.min(f64::MAX);
        let points = vec![(x(a.min(b)), a, Some((a, b))), (x(a.max(b)), b, None), (x(a.max(b)), f64::NAN, Some((f64::NAN, a)))];
        drawn(&curves::banded("curve", "n", ("x", "y"), &[Curve { name: "<b>", points }]), "curve");
        drawn(&curves::roc("roc", "", &[(a, b), (f64::NAN, a)], Some(a)), "roc");
        drawn(&curves::reliability("bins", "", &[(a, b, u64::MAX), (b, f64::NAN, 0)]), "bins");
    }
}

fn drawn(figure: &str, title: &str) {
    check(figure, title);
    assert!(figure.len() < 20_000, "{title}: {} bytes", figure.len());
}

#[test]
fn what_lies_beyond_an_axis_is_an_arrow_at_its_edge_and_is_said() {
    let far = Mark::Interval { centre: 1e99, inner: None, outer: None, full: Full::Yes };
    let figure = rows_over(&Axis::around([0.0, 1e99], Labels::Exp, 7).unwrap(), &[far]);
    assert!(figure.contains("Some values lie beyond the axis") && !figure.contains("<circle"), "{figure}");
    assert!(figure.contains("<svg x=\"100%\" y=\"50%\" class=\"k0\"><path"), "{figure}");
    assert!(!rows(&[far]).contains("Some values lie beyond the axis"), "the axis was made for other values");
}
