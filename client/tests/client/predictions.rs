//! What `predict` says of rows that it changes, cannot cut, or would write under a name of its own.

use dp_pvi_results::document::PosteriorDocument;

use super::common::{Outcome, Site, open_task, program, write};

/// A file of rows and a posterior that predicts them.
struct Prediction(Site);

impl Prediction {
    fn of(rows: &str) -> Self {
        let site = Site::new();
        let document = PosteriorDocument::new(&open_task(), 0, 3, &[37.5, -40.0, 25.0, 100.0], Vec::new(), Vec::new()).unwrap();
        write(&site.path("posterior.json"), document.to_json());
        write(&site.path("new.csv"), rows);
        Self(site)
    }

    fn run(&self, more: &[&str]) -> Outcome {
        let (posterior, data) = (self.0.path("posterior.json"), self.0.path("new.csv"));
        let arguments = ["predict", "--posterior", posterior.to_str().unwrap(), "--data", data.to_str().unwrap()];
        Outcome::of(program().args(arguments).args(more).output().unwrap())
    }
}

/// The schema clamps ages to 0 to 110.
#[test]
fn numbers_outside_of_the_range_are_told_by_row_and_column_and_never_by_value() {
    let prediction = Prediction::of("age\n50\n8714\n110\n-7193\n");
    let outcome = prediction.run(&[]).expect(0, "2 of 4 rows have numbers outside of the schema's range (age in 2)");
    let lines: Vec<&str> = outcome.stdout.lines().skip(1).collect();
    assert!(lines[0].ends_with(',') && lines[2].ends_with(','), "{lines:?}");
    for changed in [lines[1], lines[3]] {
        assert!(changed.ends_with("\"outside of its range, whose end is taken: `age`\""), "{changed}");
    }
    let numbers = |line: &str| line.split(',').skip(1).take(3).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(numbers(lines[1]), numbers(lines[2]), "the end of the range");
    let said = outcome.stderr + &outcome.stdout;
    assert!(!said.contains("8714") && !said.contains("7193"), "{said}");

    let json = prediction.run(&["--format", "json"]).expect(0, "2 of 4 rows").stdout;
    let objects: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(objects[0].get("outside_range").is_none());
    assert_eq!(objects[1]["outside_range"], serde_json::json!(["age"]));

    // Nothing is said of rows that are used as they are.
    write(&prediction.0.path("new.csv"), "age\n50\n110\n");
    assert!(!prediction.run(&[]).expect(0, "").stderr.contains("rows"));
}

#[test]
fn a_row_with_a_wrong_number_of_cells_keeps_an_id_that_stands_first() {
    let prediction = Prediction::of("patient,age\nP-7,50\nP-8,50,60\nP-9\n\"P-10,50\n");
    let lines: Vec<String> = prediction.run(&["--id", "patient"]).expect(0, "3 of 4 rows").stdout.lines().map(str::to_owned).collect();
    for (line, start) in lines[1..].iter().zip(["1,P-7,0.", "2,P-8,,,,\"", "3,P-9,,,,\"", "4,,,,,\""]) {
        assert!(line.starts_with(start), "{line}");
    }
    // Behind another column no one knows which cell is missing or too many.
    write(&prediction.0.path("new.csv"), "age,patient\n50,P-7\n5,5,P-8\n");
    let text = prediction.run(&["--id", "patient"]).expect(0, "1 of 2 rows").stdout;
    assert!(text.contains("\n2,,,,,\"") && !text.contains("P-8"), "{text}");
}

/// A site's own files stay, whichever of them an output is named like. Where the configuration has a mistake it is not known which they are, and nothing is written.
#[test]
fn predictions_take_the_place_of_nothing_that_a_configuration_names() {
    let prediction = Prediction::of("age\n50\n");
    let site = &prediction.0;
    let (config, free) = (site.path("client.toml"), site.path("predictions.csv"));
    let own = ["client.toml", "schema.toml", "data/ledger.db", "state/lung-2024.head", "state/anything"];
    let predict = |file: &std::path::Path| prediction.run(&["--config", config.to_str().unwrap(), "-o", file.to_str().unwrap()]);
    for (damaged, words) in [(false, "name another file"), (true, "misspelt")] {
        if damaged {
            write(&config, std::fs::read_to_string(&config).unwrap().replace("[site]", "[site]\nmisspelt = 1"));
        }
        for name in own {
            let (file, before) = (site.path(name), std::fs::read(site.path(name)).ok());
            predict(&file).expect(2, words);
            assert_eq!(std::fs::read(&file).ok(), before, "{name}");
        }
        let (code, words) = if damaged { (2, "misspelt") } else { (0, "") };
        predict(&free).expect(code, words);
    }
    std::fs::remove_file(&config).unwrap();
    predict(&free).expect(0, "");
}

#[test]
fn an_id_may_not_have_the_name_of_a_column_of_the_result() {
    let prediction = Prediction::of("row,lower,age\n7,8,50\n");
    for name in ["row", "lower", "problem"] {
        prediction.run(&["--id", name]).expect(2, &format!("the result has a column {name} of its own"));
    }
    let schema = "row,age\n7,50\n";
    write(&prediction.0.path("new.csv"), schema);
    let json = prediction.run(&["--id", "row", "--format", "json"]).expect(0, "").stdout;
    let object: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
    assert_eq!((object["row"].as_u64(), object["id"].as_str()), (Some(1), Some("7")));
}
