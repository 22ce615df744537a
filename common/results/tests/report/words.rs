//! What the page says.

use std::sync::mpsc;
use std::time::Duration;

use crate::sample;

/// A page's text without markup: every run of white space is one space.
fn text(page: &str) -> String {
    let body = page.split_once("<body>").unwrap().1;
    let mut text = String::new();
    for part in body.split('<') {
        text.push_str(part.split_once('>').map_or(part, |(_, after)| after));
        text.push(' ');
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_board_reads_answers_first() {
    let page = sample::usual();
    let order = [
        "<dl class=\"short\">",
        "<h2>What makes a difference",
        "<h2>How good predictions are",
        "<h2>Did the run converge?",
        "<h2>Was it as forecast?",
        "<h2>Do the sites agree?",
        "<h2>What it cost in privacy",
        "<h2>Who took part",
        "<h2>Technical details",
    ];
    let places: Vec<usize> = order.iter().map(|part| page.find(part).unwrap_or_else(|| panic!("{part}"))).collect();
    assert!(places.is_sorted(), "{places:?}");
    let text = text(&page);
    for part in [
        "How likely is cardiac_event = yes, given age, male, smoker",
        "over the records of 3 sites with 16,800 records",
        "Of 10 effects, 8 exclude 1 (no difference), at 5 % for all of them together (Holm's method). By most",
        // exp of 0.9 and of 0.9 ± 1.96 · 0.08, per 10 of the 20 years of the scale.
        "age, per 10 1.57 1.45 to 1.70",
        "Sites No. More than noise, chance and ordinary differences between sites explain: hospital-2",
        "Left of the line at 5.0 % a site differs",
        "hospital-2 &lt; 1e-6 hospital-3 0.24",
        "becomes at most 2.72 times what it was, plus one in 100,000",
        "in at most 2.8 %",
        "Without the run he is right in 1 % of cases",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

/// Intervals that know no correlations are not counted without a word.
#[test]
fn what_differs_in_a_mean_field_may_not() {
    let text = text(&sample::mean_field());
    let said = "Of 10 effects, 8 exclude 1 (no difference), at 5 % for all of them together (Holm's method). Where columns are correlated it may be fewer";
    assert!(text.contains(said), "{text}");
}

/// An interval that is not known contains nothing and excludes nothing, an intercept is no difference, and what depends on another column is named.
#[test]
fn what_is_counted_compares_something_and_has_an_interval() {
    let natural = "update = \"natural-gradient\"";
    for (formula, update, said) in [
        ("died ~ g", "update = \"dp-optimisation\"", "Result No interval is known of the 2 effects."),
        (
            "died ~ smoker + g",
            "update = \"dp-optimisation\"",
            "The 95 % interval of the one effect does not contain 1 (no difference). Of 2 more no interval is known.",
        ),
        ("died ~ 1", natural, "Result The formula compares nothing: there is no coefficient."),
        ("died ~ age*male", natural, "Result Of 3 coefficients, 3 exclude 0 (no difference)"),
        (
            "died ~ smoker + age*male",
            natural,
            "does not contain 1 (no difference). Not counted: age, male, whose effect depends on another column or is a curve.",
        ),
    ] {
        let text = text(&sample::asks(formula, update));
        assert!(text.contains(said), "{formula}: {}", text.split("Result").nth(1).unwrap_or(&text).chars().take(300).collect::<String>());
    }
}

/// A curve with its band, the scale of the sites with its interval, and every site beside it.
#[test]
fn curves_and_sites_are_drawn_and_said() {
    let page = sample::curved();
    assert!(page.contains("class=\"band\"") && page.contains("preserveAspectRatio"), "the band of a curve");
    let text = text(&page);
    for part in [
        "Curves, and how groups differ",
        "What age adds to the log odds, centred over the range. The band holds the curve at each single value with probability 95 %.",
        "The curve as a table age mean 95 % interval 18 -1.08 -1.39 to -0.77",
        "(Intercept) of (1 | site): standard deviation τ = ",
        // exp of 0.3 and of 0.3 ± 1.96 · 0.12.
        "hospital-1 1.35 1.07 to 1.71",
        "ratio to the middle",
        "the formula has effects of sites: how far sites differ is what they and their common scale say",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // By their means: the second site is the lowest.
    let places: Vec<usize> = ["hospital-2 0.70", "hospital-3 1.05", "hospital-1 1.35"].iter().map(|row| text.find(row).unwrap()).collect();
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn every_class_has_its_row_its_column_and_its_picture() {
    let page = sample::classes();
    let text = text(&page);
    for part in [
        "area under the ROC curve, mean of each class against the others",
        "mean deviance lower is better 1.25",
        "ranked probability score lower is better 0.375",
        "Which class was taken for which, after round 10",
        // 1,200 of 1,500; an error of (800 · 0.05 + 1600 · 0.1)/2400.
        "no 1,200 80.0 % 300 20.0 % 0 0.0 % 1,500 0.0833",
        "soon 0 – 0 – 0 – 0 0.01",
        "Reliability of every class after round 10",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let shades: Vec<&str> = page.split("--share:").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(shades, ["0.80", "0.20", "0.00", "0.67", "0.33", "0.00", "0.00", "0.00", "0.00"]);
    let small = page.split("<div class=\"small\">").nth(1).unwrap().split("</div>").next().unwrap();
    assert_eq!((small.matches("<figure>").count(), small.matches("<circle").count()), (3, 4));
    assert!(small.contains("<title>no. expected calibration error 0.0833</title>") && !page.contains("<another>"), "{small}");
}

/// One file that can be kept: nothing runs in it, and nothing is fetched.
#[test]
fn a_page_stands_alone() {
    for page in [sample::usual(), sample::aggregated(), sample::unprotected(), sample::diverged(), sample::classes()] {
        for part in
            ["<script", "<link", "<img", "<iframe", " href=", " src=", "@import", "url(", "http:", "https:", " onclick", "javascript"]
        {
            assert!(!page.contains(part), "{part}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf%"), "a coordinate that is no number");
        for element in ["table", "figure", "svg", "details", "div", "p", "dl", "ul", "span", "tr", "td", "th"] {
            let opened = page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count();
            assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element}");
        }
    }
}

#[test]
fn what_is_not_protected_is_said_at_the_top() {
    let text = text(&sample::unprotected());
    assert!(text.contains("Privacy No guarantee. At least one site took part without protection"), "{text}");
    assert!(text.contains("At least one site has no guarantee: its ε is infinite.") && !text.contains("times what it was"), "{text}");
}

#[test]
fn behind_a_summer_both_epsilons_are_stated() {
    let text = text(&sample::aggregated());
    for part in [
        "as long as coordinator and summer do not work together",
        "ε if all others collude",
        "If all others work together, the larger ε",
        "Do the sites agree? Whether the sites agree was not tested: under aggregated trust no site&#39;s vector is known to anybody",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn a_run_without_a_posterior_has_a_page_that_says_so() {
    let text = text(&sample::diverged());
    assert!(text.contains("There is no posterior: the run left no distribution"), "{text}");
    assert!(text.contains("What it cost in privacy") && text.contains("No evaluator reported."), "{text}");
    assert!(!text.contains("What makes a difference") && !text.contains("Did the run converge?"), "{text}");
}

/// Enough for a page on any machine; a loop up to such a number would take years.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_page_of_any_released_numbers_is_there_at_once() {
    for value in [1e99, -1e99, 1e308, -1e308, f64::MAX, 1e-300, 5e-324, f64::INFINITY] {
        let (page, pages) = mpsc::channel();
        std::thread::spawn(move || page.send(sample::released(value)));
        let page = pages.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{value:e}: there is no page after {PATIENCE:?}"));
        assert!(page.ends_with("</html>") && page.len() < 400_000, "{value:e}: {} bytes", page.len());
        assert!(!page.contains("NaN") && !page.contains("inf%") && !page.contains("\"inf\""), "{value:e}: a coordinate that is no number");
    }
}
