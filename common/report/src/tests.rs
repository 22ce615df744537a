use crate::plot::{self, Line, Row, number};

#[test]
fn numbers_are_short() {
    for (value, text) in [
        (0.0, "0"),
        (1.0, "1"),
        (-2.5, "-2.5"),
        (0.125, "0.125"),
        (0.333_333, "0.3333"),
        (12.345_678, "12.346"),
        (1234.56, "1234.6"),
        (1e-5, "1.00e-5"),
        (2e7, "2.00e7"),
    ] {
        assert_eq!(number(value), text);
    }
}

/// Every plot is one element, carries its title, escapes names, and has no coordinate that is not a number.
fn check(svg: &str, title: &str) {
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
    assert!(svg.contains(title));
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    assert!(!svg.contains("<b>"), "names are escaped");
    assert_eq!(svg.matches('<').count(), svg.matches('>').count());
}

#[test]
fn plots_survive_degenerate_data() {
    let line = |points: &[(f64, f64)]| Line { name: "<b>", points: points.to_vec() };
    check(&plot::lines("one point", "rounds", &[line(&[(0.0, -0.5)])]), "one point");
    check(&plot::lines("constant", "rounds", &[line(&[(0.0, 1.0), (1.0, 1.0)]), line(&[(3.0, 1.0)])]), "constant");
    assert_eq!(plot::lines("nothing", "rounds", &[]), "");
    let row = |centre: f64| Row { name: "<b>", centre, inner: (centre, centre), outer: (centre, centre), second: Some((centre, centre)) };
    check(&plot::intervals("zero width", &[row(0.0), row(0.0)]), "zero width");
    check(&plot::bars("nothing spent", &[("<b>", 0.0)], None), "nothing spent");
    check(&plot::bars("spent", &[("<b>", 0.5)], Some(("limit", 1.0))), "spent");
    check(&plot::reliability("empty", &[]), "empty");
    check(&plot::reliability("one bin", &[(0.5, 0.4, 10)]), "one bin");
}
