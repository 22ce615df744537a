//! Looks of the report and of the status page: one style sheet, light and dark, for screens of 420 pixels and more, and for paper.
//!
//! Colours have names; each name has a value for light and for dark, and no rule names a colour itself. Every text colour has a contrast of at
//! least 4.5 : 1 on both grounds, and every line that carries meaning 3 : 1 (WCAG 2.2, criteria 1.4.3 and 1.4.11). Colours are never the only
//! difference: series have dashes and marks of their own.

/// Looks of a page.
pub const PAGE_STYLE: &str = "\
:root{color-scheme:light dark;--paper:#ffffff;--panel:#f3f6f9;--ink:#1c2430;--muted:#525c69;--rule:#d5dbe3;--axis:#7a8593;--accent:#1f5fa8;\
--s0:#1f5fa8;--s1:#b04a12;--s2:#3b7a2c;--s3:#7c4a9c;--s4:#75651a;--good:#256b2e;--warn:#9a3b00}\
@media screen and (prefers-color-scheme:dark){:root{--paper:#12171e;--panel:#1b222c;--ink:#e6eaf0;--muted:#a6b0bd;--rule:#333d4a;--axis:#7d8896;\
--accent:#7db4f5;--s0:#7db4f5;--s1:#f0a06a;--s2:#8fcf7a;--s3:#c9a2e8;--s4:#d6c46a;--good:#86d48f;--warn:#ffb077}}\
*{box-sizing:border-box}\
body{font:16px/1.5 system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;\
margin:0 auto;padding:1.5rem 1rem 4rem;overflow-wrap:break-word}\
h1{font-size:1.7rem;line-height:1.25;margin:0 0 .2rem}h2{font-size:1.25rem;margin:2.6rem 0 .5rem;padding-top:.5rem;border-top:1px solid var(--rule)}\
h3{font-size:1rem;margin:1.4rem 0 .3rem}p{margin:.5rem 0}ul{margin:.4rem 0;padding-left:1.3rem}\
table{border-collapse:collapse;margin:.6rem 0}\
th,td{text-align:left;padding:.25rem .9rem .25rem 0;border-bottom:1px solid var(--rule);vertical-align:top}th{font-weight:600}\
td.n,th.n{text-align:right}td.n{font-variant-numeric:tabular-nums;white-space:nowrap}.nb{white-space:nowrap;font-variant-numeric:tabular-nums}\
code{font-size:.85em;overflow-wrap:anywhere}pre{white-space:pre-wrap;background:var(--panel);padding:.7rem;border-radius:.3rem}\
.note,.lead{color:var(--muted)}.note,th small{font-size:.92em}th small{display:block;font-weight:400;color:var(--muted)}.lead{margin-top:0}a{color:var(--accent)}\
.scroll{overflow-x:auto}.scroll:focus-visible,summary:focus-visible,a:focus-visible{outline:2px solid var(--accent);outline-offset:2px}\
.short{background:var(--panel);border-radius:.4rem;padding:.5rem 1.1rem;margin:1.2rem 0;display:grid;grid-template-columns:max-content 1fr;gap:0 1.2rem}\
.short dt{font-weight:600;padding:.35rem 0}.short dd{margin:0;padding:.35rem 0;min-width:0;overflow-wrap:anywhere}\
.good{color:var(--good);font-weight:600}.warn{color:var(--warn);font-weight:600}\
details{margin:.6rem 0}summary{cursor:pointer;color:var(--accent)}\
figure{margin:1rem 0}figcaption{font-weight:600;margin-bottom:.3rem}figcaption small{font-weight:400;font-size:.92em;color:var(--muted);display:block}\
svg{display:block;font:12px system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif;overflow:visible}\
svg text{fill:var(--muted);font-variant-numeric:tabular-nums}svg text.ink{fill:var(--ink)}\
svg .grid{stroke:var(--rule)}svg .axis{stroke:var(--axis)}svg .ref{stroke:var(--muted);stroke-width:1.5}svg .dash{stroke-dasharray:5 4}\
.k0{--k:var(--s0)}.k1{--k:var(--s1)}.k2{--k:var(--s2)}.k3{--k:var(--s3)}.k4{--k:var(--s4)}\
svg .line{stroke:var(--k);fill:none}svg .band{fill:var(--k);fill-opacity:.18;stroke:none}svg .full{fill:var(--k);stroke:var(--k)}svg circle.full{stroke:var(--paper);stroke-width:1.5}svg .hollow{fill:var(--paper);stroke:var(--k);stroke-width:2}\
svg .k1.line{stroke-dasharray:7 4}svg .k2.line{stroke-dasharray:2 3}svg .k3.line{stroke-dasharray:9 3 2 3}svg .k4.line{stroke-dasharray:12 4}\
svg.curve{margin:0 1rem 0 4rem;width:calc(100% - 5rem)}\
.pair{display:flex;flex-wrap:wrap;gap:0 2.5rem}.pair figure{flex:0 1 21rem}.pair svg{max-width:100%}\
.small{display:flex;flex-wrap:wrap;gap:0 1.5rem}.small figure{flex:0 1 12rem;margin:.4rem 0}.small figcaption{overflow-wrap:anywhere}\
td.shade{text-align:right;position:relative;isolation:isolate;padding-left:.9rem}td.shade::before{content:\"\";position:absolute;inset:0;z-index:-1;background:var(--accent);\
opacity:calc(var(--share)*.3)}td small,th.n small{display:block;font-size:.92em;font-weight:400}\
table.rows{width:100%}table.rows th,table.rows td{vertical-align:middle;padding-top:.1rem;padding-bottom:.1rem}table.rows th.n{white-space:nowrap}table.rows tbody th{font-weight:400;min-width:9rem;overflow-wrap:anywhere}\
table.rows td.pic{width:38%;min-width:12rem;padding:0 1.2rem 0 .6rem;border-bottom:0}table.rows td.pic svg{width:100%}table.rows svg.row{height:2.1rem}\
table.rows tfoot td,table.rows tfoot th,table.rows .ticks td,table.rows .ticks th{border-bottom:0}\
@media screen and (max-width:40rem){body{padding:1rem .8rem 3rem}.short{display:block}.short dt{padding-bottom:0}.short dd{padding-top:0}\
table.rows,table.rows tbody,table.rows tfoot{display:block}table.rows thead{display:none}\
table.rows tr{display:grid;grid-template-columns:minmax(4rem,1fr) auto auto;border-bottom:1px solid var(--rule);padding:.3rem 0}\
table.rows th,table.rows td{border-bottom:0;padding:0 .9rem 0 0}table.rows tbody th{min-width:0}table.rows td.n{padding:0 0 0 .9rem}\
table.rows td.pic{order:9;grid-column:1/-1;width:auto;min-width:0;padding:0 1.2rem 0 .6rem}table.rows td.empty{display:none}table.rows svg.row{height:1.5rem}\
svg.curve{margin:0 .6rem 0 3.4rem;width:calc(100% - 4rem)}}\
@media print{:root{color-scheme:light}body{max-width:none;padding:0;font-size:10.5pt}h2,h3,figcaption,summary{break-after:avoid}\
figure,tr,.short{break-inside:avoid}.rowsfig{break-inside:auto}thead{display:table-header-group}.scroll{overflow:visible}\
details::details-content{display:block;content-visibility:visible;height:auto}summary{color:var(--muted);list-style:none}\
svg,.short,pre,td.shade{print-color-adjust:exact;-webkit-print-color-adjust:exact}}";

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::PAGE_STYLE;

    /// Colours of the n-th block of names.
    fn palette(block: usize) -> BTreeMap<&'static str, [f64; 3]> {
        let block = PAGE_STYLE.split(":root{").filter(|part| part.contains("--paper")).nth(block).unwrap().split('}').next().unwrap();
        let colours = block.split(';').filter_map(|rule| rule.trim().strip_prefix("--")?.split_once(":#"));
        let part = |text: &str, at: usize| f64::from(u8::from_str_radix(&text[at..at + 2], 16).unwrap()) / 255.0;
        colours.map(|(name, text)| (name, [part(text, 0), part(text, 2), part(text, 4)])).collect()
    }

    /// Relative luminance and contrast ratio of WCAG 2.2.
    fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
        let linear = |c: f64| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
        let luminance = |c: [f64; 3]| 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn the_contrast_of_black_and_white_is_21() {
        assert!((contrast([0.0; 3], [1.0; 3]) - 21.0).abs() < 1e-12);
    }

    #[test]
    fn every_text_and_every_line_that_carries_meaning_stands_out_in_light_and_dark() {
        for mode in 0..2 {
            let colours = palette(mode);
            assert_eq!(colours.len(), 14, "{colours:?}");
            for ground in ["paper", "panel"] {
                for (name, colour) in colours.iter().filter(|(name, _)| !["paper", "panel", "rule"].contains(*name)) {
                    // Texts and series; an axis is a line.
                    let least = if *name == "axis" { 3.0 } else { 4.5 };
                    let contrast = contrast(*colour, colours[ground]);
                    assert!(contrast >= least, "mode {mode}: {name} on {ground} has {contrast:.2} : 1");
                }
            }
        }
    }

    /// A cell is shaded with at most so much of the accent.
    #[test]
    fn texts_stand_out_from_the_darkest_shade() {
        assert!(PAGE_STYLE.contains("opacity:calc(var(--share)*.3)"));
        for mode in 0..2 {
            let colours = palette(mode);
            let (paper, accent) = (colours["paper"], colours["accent"]);
            let shade = [0, 1, 2].map(|part| 0.7 * paper[part] + 0.3 * accent[part]);
            assert!(contrast(colours["ink"], shade) >= 4.5, "mode {mode}: {}", contrast(colours["ink"], shade));
        }
    }

    /// No rule names a colour outside of the two palettes.
    #[test]
    fn colours_have_names() {
        let outside: String = PAGE_STYLE.split(":root{").map(|part| part.split_once('}').map_or("", |(_, rest)| rest)).collect();
        assert!(!outside.contains('#') && !outside.contains("rgb"), "{outside}");
    }
}
