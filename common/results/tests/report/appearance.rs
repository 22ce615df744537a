//! The report in a browser: headless Chromium shows it light, dark, on a screen of 420 pixels and on paper, and what it lays out is measured.
//!
//! The report has no scripts. A page around it holds it in a frame and measures there: how wide it becomes, whether a number wraps, how much every
//! text stands out from its ground, and which tables can be seen. Pictures of all four stay in the target folder, for people to look at.
//!
//! It needs `chromium` (or `DP_PVI_CHROMIUM`); without it, the tests say what they leave out. With `pdftotext` the text of the printed pages is read.

use crate::chromium::{self, Browser, Look};
use crate::sample;

/// What the page around the report finds.
#[derive(Debug)]
struct Found(String);

impl Found {
    fn number(&self, name: &str) -> f64 {
        let line = self.0.lines().find_map(|line| line.strip_prefix(&format!("{name}="))).unwrap_or_else(|| panic!("{name} in {}", self.0));
        line.parse().unwrap_or_else(|_| panic!("{name} is {line}"))
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn whole(&self, name: &str) -> u32 {
        self.number(name).ceil() as u32
    }

    /// All values under a name.
    fn list(&self, name: &str) -> Vec<&str> {
        self.0.lines().filter_map(|line| line.strip_prefix(&format!("{name}="))).collect()
    }
}

#[test]
fn the_report_fits_every_screen_in_light_and_dark() {
    let Some(browser) = Browser::find() else { return };
    for (name, page) in sample::pages() {
        for look in [Look::Light, Look::Dark] {
            let widths = [1200, 420, 320];
            for (width, found) in widths.into_iter().zip(browser.measure(&page, &widths, look)) {
                let (found, what) = (Found(found), format!("{name} at {width} px, {look:?}"));
                check(&found, width, look, &what);
                if width > 320 {
                    browser.picture(&format!("{name}-{width}-{look:?}"), &page, (width, found.whole("height")), look);
                }
            }
        }
    }
}

fn check(found: &Found, width: u32, look: Look, what: &str) {
    let none = Vec::<&str>::new();
    assert_eq!(found.whole("width"), width, "{what}: {found:?}");
    assert_eq!(found.list("wide"), none, "{what}: beyond the margin");
    assert!(found.whole("scroll") <= width, "{what}: the page scrolls sideways");
    assert_eq!(found.list("wraps"), none, "{what}: numbers wrap");
    assert_eq!(found.list("faint"), none, "{what}: texts do not stand out (WCAG AA)");
    assert_eq!(found.list("small"), none, "{what}: texts are too small to read");
    assert_eq!(found.list("unnamed"), none, "{what}: pictures without a name for screen readers");
    assert!(found.whole("texts") > 100 && found.whole("numbers") > 20, "{what}: {found:?}");
    let light = found.number("ground");
    assert!(if look == Look::Dark { light < 0.05 } else { light > 0.95 }, "{what}: the ground has luminance {light}");
    assert!(found.whole("open") < found.whole("details"), "{what}: long tables are closed on a screen");
}

/// The ruler sees what it is there to see.
#[test]
fn faults_are_found() {
    let Some(browser) = Browser::find() else { return };
    let page = "<!doctype html><html><head><title>t</title></head><body style=\"background:#fff\"><p style=\"color:#888\">faint</p><p style=\"width:900px\">wide</p>\
                <p style=\"font-size:9px\">small</p><table><tr><td class=\"n\" style=\"width:20px\">-0.12 to 0.43</td></tr></table>\
                <svg width=\"9\" height=\"9\"><path d=\"M0 0h9\"/></svg><details><summary>s</summary><table><tr><td>1</td></tr></table></details></body></html>";
    let found = Found(browser.measure(page, &[420], Look::Light).remove(0));
    for name in ["faint", "wide", "small", "wraps", "unnamed", "hidden"] {
        assert_eq!(found.list(name).len(), 1, "{name}: {found:?}");
    }
    assert!(found.whole("scroll") > 900 && found.whole("open") == 0 && found.whole("details") == 1);
}

#[test]
fn every_table_is_open_on_paper() {
    let Some(browser) = Browser::find() else { return };
    for (name, page) in sample::pages() {
        for look in [Look::Light, Look::Dark] {
            // The rules of paper on a screen: what is laid out can be measured.
            let found = Found(browser.measure(&chromium::as_on_paper(&page), &[718], look).remove(0));
            assert!(found.whole("details") > 2);
            assert_eq!(found.whole("open"), found.whole("details"), "{name}: details that stay closed on paper");
            assert_eq!(found.list("hidden"), Vec::<&str>::new(), "{name}: tables that paper does not show");
            assert_eq!(found.list("wraps"), Vec::<&str>::new(), "{name}: numbers wrap on paper");
            assert!(found.number("ground") > 0.95, "{name}: paper is white, also where the screen is dark");
        }
        let Some(text) = browser.printed(&name, &page) else { continue };
        for part in [
            "All coefficients as a table",
            "90 % interval",
            "The whole task",
            "\"engine\":",
            "What it cost in privacy",
            "All rounds as a table",
            "Do the sites agree?",
        ] {
            assert!(text.contains(part), "{name}: the printed pages do not say {part:?}");
        }
    }
}
