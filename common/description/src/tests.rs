use super::*;

const SMALLEST: &str = "[persons]\ntable = \"p\"\nkey = \"id\"\n";

fn parsed(more: &str) -> Result<Description, String> {
    Description::parse(more)
}

/// Before the persons' table, after it, and what the error says.
fn refused(top: &str, rest: &str, words: &str) {
    let text = format!("{top}\n{SMALLEST}{rest}");
    let error = parsed(&text).expect_err(&text);
    assert!(error.contains(words), "{text}\n{error}");
}

#[test]
fn the_smallest_description_has_a_row_a_person() {
    let description = parsed(&format!("{SMALLEST}[[columns]]\nname = \"x\"\nvalue = \"x\"\n")).unwrap();
    assert_eq!(description.columns().collect::<Vec<_>>(), ["x"]);
    assert_eq!((description.base, description.sources.len()), (0, 1));
    assert!(description.own_rows_only());
}

#[test]
fn rows_made_of_several_rows_are_told_from_a_row_s_own() {
    let events = "[sources.events]\ntable = \"e\"\n";
    let own = "[[columns]]\nname = \"x\"\nvalue = \"x\"\n";
    let of = |top: &str, rest: &str| parsed(&format!("{top}\n{SMALLEST}{events}{rest}")).unwrap().own_rows_only();
    assert!(of("", own));
    assert!(!of("rows = \"events\"", own), "the person's row decides, too");
    assert!(!of("", "[[columns]]\nname = \"n\"\ncount = \"events\"\n"));
    assert!(!of("rows = \"events\"", "[[columns]]\nname = \"b\"\nperson = \"born\"\n"));
    assert!(!of("rows = \"events\"", &format!("[[keep]]\nany = \"events\"\n{own}")));
    assert!(!of("rows = \"events\"", &format!("[index]\nfirst = \"day\"\nof = \"events\"\n{own}")));
    assert!(of("", &format!("[index]\nvalue = \"day\"\n{own}")));
}

#[test]
fn one_column_of_one_source_is_read_once() {
    let text = format!(
        "{SMALLEST}[sources.e]\ntable = \"e\"\n[[columns]]\nname = \"a\"\nmin = \"v\"\nof = \"e\"\n[[columns]]\nname = \"b\"\nsum = \"v\"\nof = \"e\"\n"
    );
    let description = parsed(&text).unwrap();
    assert_eq!(description.sources[1].fetched.len(), 1);
    assert_eq!(description.sources[1].fetched[0].need, [Need::Ordered, Need::Number]);
}

/// A number is one whatever its size: a type's own text of it may have hundreds of digits.
#[test]
fn large_and_small_constants_are_spelled_in_few_characters() {
    for (written, constant) in [
        ("1e300", "1e300"),
        ("1e-300", "1e-300"),
        ("-2.5e200", "-2.5e200"),
        ("1e30", "1000000000000000000000000000000"),
        ("40.0", "40"),
        ("0.1", "0.1"),
    ] {
        let text = format!("{SMALLEST}where = [{{ column = \"n\", to = {written} }}]\n[[columns]]\nname = \"x\"\nvalue = \"x\"\n");
        let Test::Between { to, .. } = parsed(&text).unwrap().sources[0].filters[0].test.clone() else { panic!("{written}") };
        assert_eq!(to.as_deref(), Some(constant));
    }
}

#[test]
fn what_is_no_description_is_refused_with_what_to_write() {
    let own = "[[columns]]\nname = \"x\"\nvalue = \"x\"\n";
    let events = "[sources.events]\ntable = \"e\"\n";
    refused("", "", "columns");
    refused("columns = []", "", "no columns");
    refused("", &format!("{own}{own}"), "two columns `x`");
    refused("", "[[columns]]\nname = \"x\"\n", "write one of value");
    refused("", "[[columns]]\nname = \"x\"\nvalue = \"x\"\nperson = \"x\"\n", "write one of value");
    refused("", "[[columns]]\nname = \"x\"\nvalue = \"x\"\nof = \"e\"\n", "the value of one row");
    refused("", "[[columns]]\nname = \"x\"\ncount = \"e\"\n", "no [sources.e]");
    refused("", &format!("{events}[[columns]]\nname = \"x\"\nmin = \"v\"\n"), "`of` is missing");
    refused("", &format!("{events}[[columns]]\nname = \"x\"\nmin = \"v\"\nof = \"events\"\nby = \"d\"\n"), "`by` and `lookup`");
    refused("", &format!("{events}[[columns]]\nname = \"x\"\ncount = \"events\"\nwhen = {{ d = {{ to = 0 }} }}\n"), "no [index]");
    refused("", "[[columns]]\nname = \"x\"\nvalue = \"b\"\ngive = \"days-after-index\"\n", "no [index]");
    refused(
        "",
        &format!("{events}[index]\nfirst = \"d\"\nof = \"events\"\n[[columns]]\nname = \"x\"\ncount = \"events\"\nwhen = {{ d = {{}} }}\n"),
        "window of `d`",
    );
    refused(
        "",
        &format!(
            "{events}[index]\nfirst = \"d\"\nof = \"events\"\n[[columns]]\nname = \"x\"\ncount = \"events\"\ngive = \"days-after-index\"\n"
        ),
        "needs a date",
    );
    refused("rows = \"events\"", own, "no [sources.events]");
    refused("public = [\"p\"]", own, "holds nothing of any person");
    refused("public = [\"c\"]\nvouched = [\"c\"]", own, "in `public` and in `vouched`");
    refused("vouched = [\"c\"]", own, "no source reads public.c");
    refused(
        "",
        "[[columns]]\nname = \"x\"\nvalue = \"x\"\nlookup = { table = \"c\", key = \"k\", column = \"v\" }\n",
        "name it in `public`",
    );
    refused("", &format!("[sets.s]\ndescendants_of = [1]\n{own}"), "name it in `public`");
    refused("", &format!("[sources.events]\ntable = \"e\"\nwhere = [{{ column = \"c\", set = \"s\" }}]\n{own}"), "no [sets.s]");
    refused("", &format!("[sources.events]\ntable = \"e\"\nwhere = [{{ column = \"c\", in = [] }}]\n{own}"), "is not one of");
    refused("", &format!("[sources.events]\ntable = \"e\"\nwhere = [{{ column = \"c\", in = [nan] }}]\n{own}"), "a constant is");
    refused("", &format!("[sources.events]\ntable = \"pg_catalog.pg_class\"\n{own}"), "of the database's own");
    refused(
        "",
        &format!(
            "{events}[index]\nfirst = \"d\"\nof = \"events\"\n[[columns]]\nname = \"x\"\ncount = \"events\"\nwhen = {{ d = {{ from = {} }} }}\n",
            i32::MIN
        ),
        "window of `d`",
    );
    refused("", &format!("[sources.events]\ntable = \"a.b.c\"\n{own}"), "SCHEMA.TABLE");
    refused("", &format!("[sources.events]\ntable = \"{}\"\n{own}", "e".repeat(64)), "1 to 63 bytes");
    refused("sql = \"SELECT 1\"", own, "unknown field `sql`");
}

/// Removing one person must change that person's rows alone: a row that two columns give to two persons would be a record of both.
#[test]
fn every_table_has_one_column_that_says_whose_a_row_is() {
    let column = "[[columns]]\nname = \"n\"\ncount = \"m\"\n";
    for sources in [
        "[sources.m]\ntable = \"p\"\nperson = \"mother\"\n",
        "[sources.a]\ntable = \"tx\"\nperson = \"donor\"\n[sources.m]\ntable = \"tx\"\nperson = \"recipient\"\n",
    ] {
        refused("", &format!("{sources}{column}"), "a record of two persons");
    }
    for sources in [
        "[sources.m]\ntable = \"p\"\n",
        "[sources.a]\ntable = \"tx\"\nperson = \"donor\"\n[sources.m]\ntable = \"tx\"\nperson = \"donor\"\n",
    ] {
        parsed(&format!("{SMALLEST}{sources}{column}")).unwrap();
    }
}
