//! What a run will be worth, as files and for the programs that ask.

use crate::forecast::{CoefficientForecast, Forecast, ForecastResult, ForecastTable, sizes};
use clap::Args;
use dp_pvi_posterior::task::{ResolvedTask, TaskError, Trust};

use crate::picture::{Chart, Picture, Row, Scale, Series};

/// Records of the sites of a forecast.
#[derive(Debug, Clone, Default, Args)]
pub struct Sizes {
    /// Declared records of every site (4000,5200,3100), or one number for all of them: forecasts widths of intervals and the loss of quality.
    #[arg(long, value_delimiter = ',', value_name = "N,…", value_parser = crate::forecast::records, allow_hyphen_values = true)]
    units: Vec<u64>,
    /// Number of sites, where --units is one number (default: as many as the task counts on).
    #[arg(long, requires = "units", allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sites: Option<u32>,
}

impl Sizes {
    /// The forecast of a task, where someone asked for it. `known` is the number of sites where the flags do not say it.
    ///
    /// # Errors
    /// Flags that do not belong together.
    pub fn forecast(&self, task: &ResolvedTask, known: Option<u32>) -> Result<Option<ForecastResult>, TaskError> {
        if self.units.is_empty() {
            return Ok(None);
        }
        let sites = self.sites.or(known.filter(|_| self.units.len() == 1));
        Ok(Some(ForecastResult::of(task, &sizes(task, &self.units, sites)?)))
    }
}

/// A drawing of a forecast, as SVG; nothing where there is none.
#[must_use]
pub fn draw(predicted: &ForecastResult) -> Option<String> {
    let ForecastResult::Table(forecast_table) = predicted else { return None };
    #[allow(clippy::cast_precision_loss, reason = "at most DRAWN")]
    let height = f64::max(140.0 + 18.0 * forecast_table.task.coefficients.len().min(DRAWN) as f64, 480.0);
    let mut picture = Picture::new(1200.0, height);
    widths(&mut picture, height, &forecast_table.task);
    losses(&mut picture, forecast_table);
    Some(picture.to_svg())
}

/// Coefficients that are drawn.
const DRAWN: usize = 80;

/// A line for each of the first [`DRAWN`] coefficients: the range of its width, the median, and without protection.
fn widths(picture: &mut Picture, height: f64, forecast: &Forecast) {
    let all = forecast.coefficients.len();
    let drawn = &forecast.coefficients[..all.min(DRAWN)];
    let part = if drawn.len() < all { format!(" (the first {DRAWN} of {all})") } else { String::new() };
    let title = format!("width of 90 % intervals: drawn federations, and without protection (red){part}");
    picture.rows((0.0, 0.0, 700.0, height), &title, "width", &drawn.iter().map(row).collect::<Vec<_>>());
}

fn row(of: &CoefficientForecast) -> Row<'_> {
    Row { name: &of.name, ends: (of.width.low, of.width.high), dot: of.width.median, mark: of.unprotected }
}

/// Loss of held-out log-likelihood over ε, with and without a summer.
fn losses(picture: &mut Picture, forecast_table: &ForecastTable) {
    let of = |name, trust: Trust| {
        let found = forecast_table.settings.iter().filter(|setting| setting.trust == trust).filter_map(|s| Some((s.epsilon, s.loss?)));
        let (points, intervals) = found.map(|(e, loss)| ((e, loss.median), (e, loss.low, loss.high))).unzip();
        Series { name, points, intervals, dots: true }
    };
    let series = vec![of("local", Trust::Local), of("aggregated", Trust::Aggregated)];
    let highest = series.iter().flat_map(|series| &series.intervals).map(|interval| interval.2).reduce(f64::max);
    let Some(highest) = highest else { return };
    let x = Scale { label: "epsilon", logarithmic: true, ..Scale::default() };
    let y = Scale { ends: Some((0.0, highest.max(1e-4) * 1.1)), ..Scale::default() };
    picture.chart((700.0, 0.0, 500.0, 480.0), &Chart { title: "held-out log-likelihood lost a record", x, y, series, named: true });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::disallowed_methods, reason = "a test of the files that a command writes")]

    use std::path::PathBuf;

    use crate::forecast::{CoefficientForecast, Range};
    use dp_pvi_posterior::task::{RawTask, ResolveContext};

    use super::{DRAWN, Forecast, ForecastResult, ForecastTable, Sizes, draw};
    use crate::account::{AccountError, Question};

    /// A folder with a resolved task, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("dp-pvi-worth-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let schema = "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"x\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n";
            let text = "[model]\nfamily = \"logistic-regression\"\noutcome = \"y\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 4\n\
                        update = \"natural-gradient\"\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n";
            let context = ResolveContext { name: "worth", update_deadline_seconds: 60, min_sites: 3, expected_sites: 3 };
            std::fs::write(folder.join("task.json"), RawTask::parse(text).unwrap().resolve(schema, context).unwrap().to_bytes()).unwrap();
            Self(folder)
        }

        fn plan(&self, units: &[u64], sites: Option<u32>, json: bool) -> Result<String, AccountError> {
            let question = Question::Plan {
                task: self.0.join("task.json"),
                epsilon: None,
                delta: None,
                booked: 0,
                sizes: Sizes { units: units.to_vec(), sites },
                output: (!units.is_empty()).then(|| self.0.join("out")),
            };
            let mut out = Vec::new();
            question.answer(&mut out, json, |file, bytes| std::fs::write(file, bytes))?;
            Ok(String::from_utf8(out).unwrap())
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// The text that is alone in an element of a drawing.
    fn is_written(drawing: &str, text: &str) -> bool {
        drawing.contains(&format!(">{text}</text>"))
    }

    #[test]
    fn a_drawing_names_every_coefficient_up_to_its_limit_and_says_where_it_stops() {
        let range = Range { low: 0.1, median: 0.2, high: 0.3 };
        for count in [1, 2, 3, 9, 10, 11, 25, DRAWN - 1, DRAWN, DRAWN + 1, 3 * DRAWN] {
            let coefficients: Vec<_> = (0..count)
                .map(|j| CoefficientForecast { name: format!("column_with_a_long_name={j}"), width: range, unprotected: 0.1 })
                .collect();
            let task =
                Forecast { records: 1, sites: 1, federations: 1, published: (0, 1), coefficients, width: range, loss: range, gain: None };
            let drawing = draw(&ForecastResult::Table(Box::new(ForecastTable { task, settings: Vec::new() }))).unwrap();
            for j in 0..count {
                assert_eq!(is_written(&drawing, &format!("column_with_a_long_name={j}")), j < DRAWN, "{j} of {count}");
            }
            assert_eq!(drawing.contains(&format!("the first {DRAWN} of {count}")), count > DRAWN);
        }
    }

    #[test]
    fn plan_states_the_forecast_and_draws_it() {
        let folder = Folder::new("draws");
        assert!(!folder.plan(&[], None, false).unwrap().contains("forecast"));
        let text = folder.plan(&[500], None, false).unwrap();
        assert!(text.contains("forecast  1500 records at 3 sites; 0 of 2 columns") && text.contains("(intercept)"), "{text}");
        let read = |name: &str| std::fs::read_to_string(folder.0.join("out").join(name)).unwrap();
        let (drawing, numbers) = (read("forecast.svg"), read("forecast.json"));
        assert!(drawing.contains("<svg") && drawing.contains("(intercept)") && drawing.contains("aggregated"));
        let json: serde_json::Value = serde_json::from_str(&folder.plan(&[500, 500, 500], None, true).unwrap()).unwrap();
        assert_eq!(json["forecast"], serde_json::from_str::<serde_json::Value>(&numbers).unwrap());
        assert_eq!((read("forecast.svg"), read("forecast.json")), (drawing, numbers), "the same bits twice");
        let refused = folder.plan(&[500, 600], Some(3), false).unwrap_err();
        assert!(refused.exit_code() == 2 && refused.to_string().contains("one for every site"), "{refused}");
    }
}
