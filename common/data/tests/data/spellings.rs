//! One value in many spellings: what programs and people write for the same level, name, date or person.

use dp_pvi_data::{CellProblem, DataError, Inspection, Nothing, Place, Screen, inspect};
use dp_pvi_privacy::UnitTable;
use dp_pvi_schema::Schema;

use crate::text_files::read;

/// Programs write one truth value in many ways, and one whole number in two.
#[test]
fn levels_and_truth_values_are_found_as_programs_write_them() {
    let schema = Schema::asking("died ~ .", 
        "[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"smoker\"\nkind = \"boolean\"\n[[columns]]\nname = \"grade\"\nkind = \"category\"\ncoding = \"full\"\nvalues = [\"1\", \"2\", \"3.0\"]",
    )
    .unwrap();
    let rows = |text: &str| read(&schema, text).unwrap();
    let plain = rows("died,smoker,grade\n1,true,3\n0,false,2\n");
    for same in ["1.0,True,3.0\n0.0,False,2.00", "1,TRUE,3\n0,FALSE,2", "\u{a0}1 ,1.0,\u{feff}3\n0,0,2.0"] {
        assert_eq!(rows(&format!("died,smoker,grade\n{same}\n")), plain, "{same}");
    }
}

#[test]
fn letters_are_the_same_in_both_unicode_forms() {
    let composed = "[[columns]]\nname = \"dièd\"\nkind = \"boolean\"\ntrue_values = [\"oui\"]\nfalse_values = [\"non\"]\n[[columns]]\nname = \"wärd\"\nkind = \"category\"\ncoding = \"full\"\nvalues = [\"Gynäkologie\", \"é\"]";
    let apart = |text: &str| text.replace('ä', "a\u{308}").replace('è', "e\u{300}").replace('é', "e\u{301}");
    let file = "dièd,wärd\noui,Gynäkologie\nnon,é\n";
    let expected = read(&Schema::asking("dièd ~ .", composed).unwrap(), file).unwrap();
    for (schema, file) in [(composed.to_owned(), apart(file)), (apart(composed), file.to_owned()), (apart(composed), apart(file))] {
        let schema = Schema::asking("dièd ~ .", &schema).unwrap();
        assert_eq!(read(&schema, &file).unwrap(), expected);
        let with_formula = |formula: &str| schema.clone().with_formula(formula, &[]).unwrap().coefficient_names();
        assert_eq!(with_formula("dièd ~ wärd"), with_formula(&apart("dièd ~ wärd")));
    }
}

#[test]
fn a_time_with_a_zone_is_refused_in_a_text_file_too() {
    let schema = Schema::asking("y ~ .", "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"seen\"\nkind = \"date\"\nsince = \"2020-01-01\"\nlower = 0\nupper = 9\ncentre = 0\nscale = 1").unwrap();
    let found = |cell: &str| read(&schema, format!("seen,y\n{cell},1\n"));
    assert!(found("2020-01-02 08:30:00.5").is_ok());
    for zoned in ["2020-01-01T23:00:00Z", "2020-01-02 00:00:00+01:00"] {
        assert!(matches!(found(zoned), Err(DataError::Cell { problem: CellProblem::Zoned, .. })), "{zoned}");
    }
}

#[test]
fn and_30_marks_and_blanks_are_no_part_of_a_name_and_two_columns_never_share_one() {
    let schema = Schema::asking("y ~ .", "other_columns = \"ignore\"\n[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 0\nupper = 9\ncentre = 0\nscale = 1").unwrap();
    for header in ["\u{feff}\"age\",\"y\"", "\"\u{feff}age\",y", "\u{feff}\u{feff}age,y", "\" age\u{a0}\",y\u{200b}"] {
        assert!(read(&schema, format!("{header}\n1,1\n")).is_ok(), "{header:?}");
    }
    for header in ["age,age,y", "age,y,\" age \"", "age,y,\u{feff}age"] {
        let error = read(&schema, format!("{header}\n1,1,1\n")).unwrap_err();
        assert!(matches!(&error, DataError::RepeatedColumn { column, .. } if column == "age"), "{header:?} {error}");
    }
}

const PERSONS: &str = "unit_column = \"patient\"\n[missing]\ntokens = [\"\", \"99\"]\n[[columns]]\nname = \"sex\"\nkind = \"category\"\ncoding = \"full\"\nvalues = [\"m\", \"f\"]\n[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"yes\"]\nfalse_values = [\"no\"]\n";

/// What `inspect` counts of persons with these ids, in files of these many rows.
fn persons(files: &[&[&str]]) -> Inspection {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..files.len()).map(|number| folder.path().join(format!("{number}.csv"))).collect();
    for (path, ids) in paths.iter().zip(files) {
        let rows: String =
            ids.iter().enumerate().map(|(row, id)| format!("{id},{},m\n", if row % 2 == 0 { "yes" } else { "no" })).collect();
        std::fs::write(path, format!("patient,died,sex\n{rows}")).unwrap();
    }
    let inspection = inspect(&Schema::asking("died ~ .", PERSONS).unwrap(), &paths).unwrap();
    // The rows are those of a run.
    let table = dp_pvi_data::load_public(&Schema::asking("died ~ .", PERSONS).unwrap(), &paths, None).unwrap();
    assert_eq!(table.get().len() as u64, inspection.units);
    inspection
}

#[test]
fn a_person_is_one_unit_however_the_id_is_spelled() {
    for files in [
        &[&["12", "12"][..], &["12.0"], &["1.2e1", "+12"]][..],
        &[&["Mu\u{308}ller"], &["Müller\u{a0}"], &[" Müller"]],
        &[&["A7"], &["A7  ", "\u{feff}A7"]],
    ] {
        let inspection = persons(files);
        assert_eq!((inspection.units, inspection.near.units), (1, 0), "{files:?}");
    }
}

#[test]
fn ids_that_may_be_one_person_are_counted_with_their_places() {
    let inspection = persons(&[&["12", "7", "A1", "b", "012"], &["a1", "1 2", "70"]]);
    assert_eq!((inspection.units, inspection.near.units), (8, 5));
    let place = |file, row| Place { file, row };
    assert_eq!(inspection.near.places, [(place(1, 1), place(1, 5)), (place(1, 3), place(2, 1)), (place(1, 1), place(2, 2))]);
    let said = inspection.to_string();
    assert!(said.contains("5 units have an id") && said.contains("file 1, row 3 and file 2, row 1"), "{said}");
    assert!(!said.contains("A1") && !said.contains("012"), "{said}");
    assert!(persons(&[&["1", "2", "3"]]).near.is_empty());
}

/// The hospital that writes `Mann` and `Frau` where the schema lists `m` and `f`, and the one with a patient number 99 where 99 says that there is no value.
#[test]
fn what_contributes_nothing_is_counted_by_its_reason() {
    let schema = Schema::asking("died ~ .", PERSONS).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("north.csv");
    std::fs::write(&path, "patient,died,sex\n1,yes,Mann\n2,no,Frau\n99.0,no,m\n4,perhaps,Mann\n5,no\n\n7,yes,f\n").unwrap();
    let cell = |column: &str, problem| Nothing::Cell { column: column.into(), problem };
    let expected = Screen {
        records: 7,
        nothing: vec![
            (cell("sex", CellProblem::UnknownCategory), 3),
            (cell("patient", CellProblem::NoUnit), 1),
            (Nothing::Line, 1),
            (Nothing::Empty, 1),
        ],
    };
    assert_eq!(inspect(&schema, &[&path]).unwrap().screen, expected);
    assert_eq!(dp_pvi_data::load_for_run(&schema, &[&path], &[7; 32]).unwrap().screen, expected);
    assert_eq!(dp_pvi_data::load_to_disk(&schema, &[&path], &[7; 32], tempfile::tempfile().unwrap()).unwrap().screen, expected);
    assert!(expected.to_string().starts_with("6 of 7 records contribute nothing (85.7 %)\n  3: column `sex`: the category is not listed"));
    // What the schema drops is told as well.
    let dropping = Schema::asking("died ~ .", &PERSONS.replace("\"f\"]", "\"f\"]\ninvalid = \"drop\"")).unwrap();
    let dropped = Nothing::Dropped { column: "sex".into(), problem: CellProblem::UnknownCategory };
    assert_eq!(dropped.to_string(), "column `sex`: the category is not listed, and the schema drops such a record");
    assert_eq!(inspect(&dropping, &[&path]).unwrap().screen.nothing[0], (dropped, 2));
}
