//! A person's rows are a function of that person's rows and public tables: random descriptions over a real PostgreSQL, one person changed in every way, and
//! the rows of all others compared.
//!
//! `DP_PVI_DESCRIPTIONS` is the number of pairs of a description and a neighbouring database; 300 unless given.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use dp_pvi_client::config::{Config, Database};
use dp_pvi_client::database::write_rows;
use dp_pvi_tests::place::root;
use dp_pvi_tests::postgres::Postgres;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

const NEIGHBOURS: u64 = 4;
const PERSONS: u64 = 8;
/// Types of the persons' key and of the other tables' keys.
const KEYS: [(&str, &str); 3] = [("bigint", "int"), ("text", "varchar"), ("uuid", "uuid")];

/// SplitMix64: the same descriptions in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[usize::try_from(self.below(list.len() as u64)).unwrap()]
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

fn key(kind: &str, person: u64) -> String {
    match kind {
        "bigint" => person.to_string(),
        "uuid" => format!("'{:08x}-0000-4000-8000-0000000000{:02x}'", person.wrapping_mul(0x9e37_79b9) & 0xffff_ffff, person),
        _ => format!("'{}'", ["a", "A", "a ", "ä", "it''s", "\"q\"", "10", "9", "Ω", "z\\", "0"][usize::try_from(person).unwrap()]),
    }
}

const DAYS: [&str; 9] = [
    "'2020-01-01'",
    "'2020-01-02'",
    "'2020-01-02'",
    "'2020-03-01'",
    "'2019-12-31'",
    "'2021-06-30'",
    "'infinity'",
    "'0044-03-15 BC'",
    "NULL",
];
const NUMBERS: [&str; 9] = ["0.1", "0.2", "0.3", "1e15", "-1e15", "7", "'NaN'", "'Infinity'", "NULL"];
const DECIMALS: [&str; 8] = ["0.1", "0.2", "0.3", "1e17", "-1e17", "7.0", "'NaN'", "NULL"];
const WORDS: [&str; 8] = ["'x'", "'X'", "'ä'", "''", "' pad '", "'it''s'", "'x'", "NULL"];
const CODES: [&str; 6] = ["1", "2", "3", "12", "99", "NULL"];

fn person(dice: &mut Dice, key: &str) -> String {
    let (born, year, sex) = (dice.of(&DAYS), dice.of(&["1950", "1980", "NULL"]), dice.of(&WORDS));
    let (score, weight, vip) = (dice.of(&NUMBERS), dice.of(&DECIMALS), dice.of(&["true", "false", "NULL"]));
    format!("INSERT INTO person VALUES ({key}, {born}, {year}, {sex}, {score}, {weight}, {vip}, {});", dice.of(&CODES))
}

fn others(dice: &mut Dice, key: &str) -> String {
    let mut sql = String::new();
    for _ in 0..dice.below(8) {
        let (at, day, code) =
            (dice.of(&["'2020-01-01 10:00'", "'2020-01-01 10:00:00.5'", "'infinity'", "NULL"]), dice.of(&DAYS), dice.of(&CODES));
        write!(sql, "INSERT INTO event VALUES ({key}, {at}, {day}, {code}, {}, {});", dice.of(&DECIMALS), dice.of(&WORDS)).unwrap();
    }
    for _ in 0..dice.below(6) {
        let (day, till, ward) = (dice.of(&DAYS), dice.of(&DAYS), dice.of(&["'a'", "'a   '", "'B'", "NULL"]));
        let (code, size, mood) = (dice.of(&CODES), dice.of(&NUMBERS[..4]), dice.of(&["'good'", "'bad'", "NULL"]));
        write!(sql, "INSERT INTO stay VALUES ({key}, {day}, {till}, {ward}, {code}, {size}, {mood});").unwrap();
    }
    sql
}

fn tables((persons, others): (&str, &str)) -> String {
    format!(
        "CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE DOMAIN word AS varchar; \
         CREATE TABLE person (k {persons} PRIMARY KEY, born date, year int, sex text, score float8, weight numeric, vip bool, code int); \
         CREATE TABLE event (k {others}, at timestamp, day date, code smallint, amount numeric, word word); \
         CREATE TABLE stay (k {others}, day date, till date, ward char(4), code int, size float4, mood mood) PARTITION BY LIST (code); \
         CREATE TABLE stay_1 PARTITION OF stay FOR VALUES IN (1); CREATE TABLE stay_2 PARTITION OF stay DEFAULT; \
         CREATE TABLE code (code int PRIMARY KEY, name text); CREATE TABLE under (ancestor int, descendant bigint); \
         INSERT INTO code VALUES (1, 'one'), (2, 'two'), (12, NULL); INSERT INTO under VALUES (1, 1), (1, 12), (3, 3), (3, NULL);"
    )
}

fn filled(dice: &mut Dice, kind: &str) -> String {
    let mut sql = "TRUNCATE person, event, stay;".to_owned();
    for number in 0..PERSONS {
        if dice.chance(90) {
            sql += &person(dice, &key(kind, number));
        }
        sql += &others(dice, &key(kind, number));
    }
    sql + &others(dice, "NULL")
}

/// Changes one person, or nothing but the places where rows are stored.
fn changed(dice: &mut Dice, kind: &str, of: u64) -> String {
    let key = key(kind, of);
    let gone = |table: &str| format!("DELETE FROM {table} WHERE k = {key};");
    let all = ["person", "event", "stay"].map(gone).concat();
    // All rows move to other places on the disk.
    let seed = dice.below(1 << 40);
    let moved = ["event", "stay"].map(|table| {
        format!(
            "CREATE TEMP TABLE moved AS SELECT * FROM {table} t ORDER BY md5(t::text || '{seed}'); TRUNCATE {table}; INSERT INTO {table} SELECT * FROM moved; \
             DROP TABLE moved; UPDATE {table} SET k = k WHERE code = 1;"
        )
    });
    let moved = moved.concat();
    match dice.below(7) {
        0 => all,
        1 => format!("{}UPDATE event SET k = NULL WHERE k = {key}; UPDATE stay SET k = NULL WHERE k = {key};", gone("person")),
        2 => gone("person") + &moved,
        3 => all + &person(dice, &key) + &others(dice, &key) + &others(dice, &key),
        4 => format!("INSERT INTO event SELECT * FROM event WHERE k = {key}; INSERT INTO stay SELECT * FROM stay WHERE k = {key}; {moved}"),
        5 => format!(
            "CREATE TEMP TABLE kept AS SELECT * FROM event WHERE k = {key}; {}INSERT INTO event SELECT * FROM kept ORDER BY word DESC, amount; DROP TABLE kept;{moved}",
            gone("event")
        ),
        _ => format!("{}INSERT INTO event VALUES ({key}, 'infinity', 'infinity', 1, 'NaN', repeat('x', 3000));{moved}", gone("stay")),
    }
}

fn filters(dice: &mut Dice, table: &str) -> String {
    let mut list = Vec::new();
    for _ in 0..dice.below(6) / 3 {
        let common = [
            "{ column = \"code\", in = [1, 12] }",
            "{ column = \"code\", set = \"few\" }",
            "{ column = \"code\", from = 2 }",
            "{ column = \"code\", missing = false }",
            "{ column = \"day\", from = 2020-01-01, to = 2020-12-31 }",
            "{ column = \"day\", missing = true }",
        ];
        let own: &[&str] = match table {
            "event" => &[
                "{ column = \"word\", in = [\"x\", \"it's\", \"\"] }",
                "{ column = \"amount\", to = 7 }",
                "{ column = \"at\", from = \"2020-01-01 10:00:00.2\" }",
            ],
            _ => &["{ column = \"ward\", in = [\"a\"] }", "{ column = \"size\", from = 0.2 }"],
        };
        list.push(if dice.chance(60) { dice.of(&common) } else { dice.of(own) });
    }
    format!("where = [{}]\n", list.join(", "))
}

/// `when`, or nothing.
fn when(dice: &mut Dice, index: bool) -> String {
    if !index || dice.chance(50) {
        return String::new();
    }
    let window = dice.of(&["{ from = 0 }", "{ to = -1 }", "{ from = -400, to = 400 }", "{ from = 1, to = 1 }"]);
    format!("when = {{ day = {window} }}\n")
}

fn description(dice: &mut Dice) -> String {
    let rows = dice.chance(30);
    let index = dice.chance(40);
    let of = [dice.of(&["event", "stay"]), dice.of(&["event", "stay"])];
    let mut text = "public = [\"code\", \"under\"]\n".to_owned();
    if rows {
        text += "rows = \"one\"\n";
    }
    text += "[persons]\ntable = \"person\"\nkey = \"k\"\n";
    if dice.chance(20) {
        text += "where = [{ column = \"vip\", in = [true] }]\n";
    }
    text += "[sets.few]\ntable = \"under\"\ncolumn = \"descendant\"\nwhere = [{ column = \"ancestor\", in = [1, 3] }]\n";
    for (name, table) in ["one", "two"].iter().zip(of) {
        write!(text, "[sources.{name}]\ntable = \"{table}\"\n{}", filters(dice, table)).unwrap();
    }
    if index {
        text += dice.of(&[
            "[index]\nperson = \"born\"\n",
            "[index]\nfirst = \"day\"\nof = \"one\"\n",
            "[index]\nlast = \"day\"\nof = \"two\"\n",
        ]);
    }
    for _ in 0..dice.below(6) / 4 {
        write!(text, "[[keep]]\n{} = \"{}\"\n{}", dice.of(&["any", "none"]), dice.of(&["one", "two"]), when(dice, index)).unwrap();
    }
    for number in 0..=dice.below(8) {
        write!(text, "[[columns]]\nname = \"c{number}\"\n").unwrap();
        let source = usize::from(dice.chance(50));
        let (name, own) = (["one", "two"][source], if of[source] == "event" { ["amount", "word", "at"] } else { ["size", "ward", "mood"] });
        match dice.below(9) {
            0 => {
                text += dice.of(&[
                    "person = \"sex\"\n",
                    "person = \"score\"\n",
                    "person = \"weight\"\n",
                    "person = \"vip\"\ntexts = { true = \"1\" }\n",
                ])
            }
            1 => text += "person = \"code\"\nlookup = { table = \"code\", key = \"code\", column = \"name\" }\n",
            2 if index => {
                text += dice.of(&["person = \"born\"\ngive = \"days-after-index\"\n", "person = \"year\"\ngive = \"years-before-index\"\n"])
            }
            3 if rows => text += dice.of(&["value = \"day\"\n", "value = \"code\"\n"]),
            4 => write!(text, "{} = \"{name}\"\n{}", dice.of(&["count", "any"]), when(dice, index)).unwrap(),
            5 => write!(text, "{} = \"{}\"\nof = \"{name}\"\n{}", dice.of(&["sum", "mean", "min", "max"]), own[0], when(dice, index))
                .unwrap(),
            6 => write!(text, "{} = \"day\"\nof = \"{name}\"\n{}", dice.of(&["min", "max"]), when(dice, index)).unwrap(),
            7 => write!(
                text,
                "{} = \"code\"\nof = \"{name}\"\nby = \"day\"\nlookup = {{ table = \"code\", key = \"code\", column = \"name\" }}\n{}",
                dice.of(&["first", "last"]),
                when(dice, index)
            )
            .unwrap(),
            _ => write!(
                text,
                "{} = \"{}\"\nof = \"{name}\"\nby = \"{}\"\n{}",
                dice.of(&["first", "last"]),
                dice.of(&own),
                dice.of(&["day", own[0], own[1]]),
                when(dice, index)
            )
            .unwrap(),
        }
    }
    text
}

/// Every person's rows, sorted.
fn rows(database: &Database) -> BTreeMap<String, Vec<String>> {
    let mut file = tempfile::tempfile().unwrap();
    let text = || fs::read_to_string(database.rows.file()).unwrap();
    write_rows(database, Some("unit"), &mut file).unwrap_or_else(|e| panic!("{e}\n{}", text()));
    let reader = SerializedFileReader::new(file).unwrap();
    let mut persons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in reader.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        persons.entry(row.get_string(0).unwrap().clone()).or_default().push(row.to_string());
    }
    persons.values_mut().for_each(|rows| rows.sort());
    persons
}

fn database(folder: &Path, postgres: &Postgres, name: &str) -> Database {
    let config = fs::read_to_string(root().join("deploy/omop/client.toml")).unwrap();
    let url = format!("postgresql:///{name}?host={}&port={}&user=owner", postgres.socket().display(), postgres.port());
    let config = format!("{}[database]\nurl = \"{url}\"\nrecords = \"cohort.toml\"\n", config.rsplit_once("[database]").unwrap().0);
    Config::parse(&config, folder, []).unwrap().data.database.unwrap()
}

#[test]
fn another_person_s_records_change_nothing_in_a_person_s_rows() {
    let folder = tempfile::tempdir().unwrap();
    let Some(postgres) = Postgres::start_plain() else { return };
    let pairs: u64 = std::env::var("DP_PVI_DESCRIPTIONS").ok().map_or(300, |text| text.parse().unwrap());
    let mut dice = Dice(7);
    let databases = KEYS.map(|kinds| {
        let name = format!("of_{}", kinds.0);
        postgres.sql("postgres", &format!("CREATE DATABASE {name}"));
        postgres.sql(&name, &tables(kinds));
        (kinds.0, database(folder.path(), &postgres, &name), name)
    });
    let (mut done, mut with_rows, mut felt) = (0, 0, 0);
    while done < pairs {
        let (kind, database, name) = &databases[usize::try_from(done / NEIGHBOURS % 3).unwrap()];
        let text = description(&mut dice);
        fs::write(folder.path().join("cohort.toml"), &text).unwrap();
        let filling = filled(&mut dice, kind);
        postgres.sql(name, &filling);
        let mut before = rows(database);
        assert_eq!(before, rows(database), "two readings differ\n{text}");
        for _ in 0..NEIGHBOURS {
            let of = dice.below(PERSONS + 2);
            let change = changed(&mut dice, kind, of);
            postgres.sql(name, &change);
            let after = rows(database);
            let own = key(kind, of);
            let own = own.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).unwrap_or(&own).replace("''", "'");
            let (mut others_before, mut others_after) = (before.clone(), after.clone());
            felt += u64::from(others_before.remove(&own) != others_after.remove(&own));
            with_rows += u64::from(!others_after.is_empty());
            assert_eq!(others_before, others_after, "pair {done}: person {own}\n{text}\n{filling}\n{change}");
            before = after;
            done += 1;
        }
    }
    // The test would see a difference: most descriptions give rows, and the changed person's often change.
    assert!(with_rows * 2 > done && felt * 10 > done, "{with_rows} with rows and {felt} changed of {done}");
    eprintln!("{done} pairs, {with_rows} with rows of others, {felt} with other rows of the changed person: no other person's rows differ");
}

const COUNTED: &str = "[persons]\ntable = \"person\"\nkey = \"k\"\n[sources.event]\ntable = \"event\"\nwhere = [{ column = \"code\", in = [1] }]\n\
                       [sources.seen]\ntable = \"seen\"\nwhere = [{ column = \"code\", in = [2] }]\n\
                       [[columns]]\nname = \"events\"\ncount = \"event\"\n[[columns]]\nname = \"seen\"\nany = \"seen\"\n";

/// Functions of the site's in conditions of tables, which a planner calls to leave out what cannot match.
#[test]
fn functions_of_the_site_s_do_not_decide_about_rows() {
    let folder = tempfile::tempdir().unwrap();
    let Some(postgres) = Postgres::start_plain() else { return };
    postgres.sql(
        "postgres",
        "CREATE TABLE audit (n int); CREATE FUNCTION g() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1 + count(*)::int FROM public.audit';
         CREATE TABLE person (k int PRIMARY KEY); INSERT INTO person SELECT generate_series(1, 3000);
         CREATE TABLE event (k int, code int) PARTITION BY LIST (code);
         CREATE TABLE event_1 PARTITION OF event (CHECK (code = g())) FOR VALUES IN (1);
         INSERT INTO event SELECT n, 1 FROM generate_series(1, 3000) n;
         CREATE TABLE seen (k int, code int); INSERT INTO seen SELECT n, n % 50 FROM generate_series(1, 3000) n;
         ALTER ROLE owner SET constraint_exclusion = on; ALTER ROLE owner SET enable_seqscan = off; ANALYZE",
    );
    fs::write(folder.path().join("cohort.toml"), COUNTED).unwrap();
    let database = database(folder.path(), &postgres, "postgres");
    let before = rows(&database);
    assert!(before["2"][0].contains("events: \"1\"") && before["2"][0].contains("seen: \"true\""), "{:?}", before["2"]);
    postgres.sql("postgres", "INSERT INTO audit VALUES (1)");
    assert_eq!(before, rows(&database));
}

/// A planner computes what is constant in indexes, statistics and partition keys. So what of the site's could be called there is refused, whatever the tables hold.
#[test]
fn tables_whose_planning_calls_functions_of_the_site_s_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(postgres) = Postgres::start_plain() else { return };
    let sql = |sql: &str| postgres.sql("postgres", sql);
    sql("CREATE TABLE audit (n int);
         CREATE FUNCTION odd(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN IF EXISTS (SELECT 1 FROM public.audit) THEN RAISE EXCEPTION 'audit'; END IF; RETURN 0; END $$;
         CREATE FUNCTION quiet(int, int) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN NOT EXISTS (SELECT 1 FROM public.audit); END $$;
         CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = quiet); CREATE DOMAIN small AS int CHECK (quiet(VALUE, 0));
         CREATE TYPE mood AS ENUM ('good', 'bad');
         CREATE FUNCTION below(varchar, varchar) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT $1::text < $2::text';
         CREATE FUNCTION ranked(varchar, varchar) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN IF EXISTS (SELECT 1 FROM public.audit) THEN RAISE EXCEPTION 'audit'; END IF; RETURN bttextcmp($1, $2); END $$;
         CREATE OPERATOR < (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = below);
         CREATE OPERATOR CLASS mine FOR TYPE varchar USING btree AS OPERATOR 1 <, FUNCTION 1 ranked(varchar, varchar);
         CREATE TYPE span AS RANGE (SUBTYPE = varchar, SUBTYPE_OPCLASS = mine); CREATE TYPE pair AS (of span);
         CREATE TABLE person (k int PRIMARY KEY); INSERT INTO person SELECT generate_series(1, 300);
         CREATE TABLE seen (k int, code int, word text, mood mood); INSERT INTO seen SELECT n, n % 50, 'w', 'good' FROM generate_series(1, 300) n;
         CREATE TABLE event (k int, code int); INSERT INTO event SELECT n, 1 FROM generate_series(1, 300) n;
         ALTER ROLE owner SET enable_seqscan = off; ALTER ROLE owner SET enable_sort = off; ALTER ROLE owner SET seq_page_cost = 1e9");
    fs::write(folder.path().join("cohort.toml"), COUNTED).unwrap();
    let database = database(folder.path(), &postgres, "postgres");
    // What PostgreSQL's own functions and an enumeration make is no matter.
    sql(
        "CREATE INDEX ON seen (lower(word)) WHERE mood = 'good'; CREATE INDEX ON seen (mood); CREATE INDEX ON seen (k) WHERE mood = ANY ('{good}'::mood[]); CREATE STATISTICS own ON (code + 1), k FROM seen; ANALYZE",
    );
    let before = rows(&database);
    for (make, undo) in [
        ("CREATE INDEX part ON person (k) WHERE quiet(0, 0)", "DROP INDEX part"),
        ("CREATE INDEX part ON seen (code) WHERE odd(0) = 0", "DROP INDEX part"),
        ("CREATE INDEX part ON seen ((code + odd(0)))", "DROP INDEX part"),
        ("CREATE INDEX part ON seen (k) WHERE 1 === 2", "DROP INDEX part"),
        ("CREATE INDEX part ON seen (k) WHERE (1::small) = 1", "DROP INDEX part"),
        ("CREATE INDEX part ON seen (k) WHERE '{\"[a,b)\"}'::span[] < '{\"[b,c)\"}'::span[]", "DROP INDEX part"),
        ("CREATE INDEX part ON seen (k) WHERE '(\"[a,b)\")'::pair < '(\"[b,c)\")'::pair", "DROP INDEX part"),
        ("CREATE STATISTICS st ON (code + odd(0)), k FROM seen", "DROP STATISTICS st"),
        (
            "ALTER TABLE event RENAME TO whole; CREATE TABLE event (k int, code int) PARTITION BY LIST ((code * 0 + odd(0))); \
             CREATE TABLE event_1 PARTITION OF event DEFAULT; INSERT INTO event SELECT * FROM whole",
            "DROP TABLE event; ALTER TABLE whole RENAME TO event",
        ),
        (
            "ALTER TABLE event RENAME TO whole; CREATE TABLE event (k int, code int, s span) PARTITION BY RANGE (s); \
             CREATE TABLE event_1 PARTITION OF event DEFAULT; CREATE TABLE event_2 PARTITION OF event FOR VALUES FROM ('[a,b)') TO ('[c,d)'); \
             INSERT INTO event SELECT * FROM whole",
            "DROP TABLE event; ALTER TABLE whole RENAME TO event",
        ),
        (
            "ALTER TABLE event RENAME TO whole; CREATE TABLE event (k int, code int) PARTITION BY LIST (code); \
             CREATE TABLE event_1 PARTITION OF event DEFAULT; INSERT INTO event SELECT * FROM whole; CREATE INDEX ON event_1 (k) WHERE quiet(0, 0)",
            "DROP TABLE event; ALTER TABLE whole RENAME TO event",
        ),
    ] {
        sql(make);
        let refused = || write_rows(&database, Some("unit"), &mut tempfile::tempfile().unwrap()).expect_err(make).to_string();
        let words = refused();
        assert!(words.contains("called while a question is planned"), "{make}: {words}");
        sql("INSERT INTO audit VALUES (1)");
        assert_eq!(refused(), words);
        sql(&format!("TRUNCATE audit; {undo}"));
        assert_eq!(rows(&database), before);
    }
}

/// In the schema pg_catalog there may stand what is not PostgreSQL's own.
#[test]
fn what_is_postgresql_s_own_is_told_by_more_than_its_schema() {
    let folder = tempfile::tempdir().unwrap();
    let Some(postgres) = Postgres::start_plain() else { return };
    let sql = |sql: &str| postgres.sql("postgres", sql);
    sql(
        "CREATE TABLE person (k text PRIMARY KEY, x int, c char(4)); INSERT INTO person SELECT 'p' || n, n, 'w' FROM generate_series(1, 9) n",
    );
    let text = "[persons]\ntable = \"person\"\nkey = \"k\"\nwhere = [{ column = \"c\", in = [\"w\"] }]\n[[columns]]\nname = \"x\"\nvalue = \"x\"\n";
    fs::write(folder.path().join("cohort.toml"), text).unwrap();
    let database = database(folder.path(), &postgres, "postgres");
    let refused = || write_rows(&database, Some("unit"), &mut tempfile::tempfile().unwrap()).unwrap_err().to_string();
    assert_eq!(rows(&database).len(), 9);
    // Its operators compare its own type alone.
    sql("CREATE EXTENSION citext SCHEMA pg_catalog");
    assert_eq!(rows(&database).len(), 9);
    sql("ALTER TABLE person ALTER k TYPE citext");
    let words = refused();
    assert!(words.contains("column `k`") && words.contains("citext"), "{words}");
    sql("INSERT INTO person VALUES ('P10', 10, 'w')");
    assert_eq!(refused(), words);
    sql("ALTER TABLE person ALTER k TYPE text; CREATE FUNCTION same(char, text) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT false'; \
         CREATE OPERATOR pg_catalog.= (LEFTARG = char, RIGHTARG = text, FUNCTION = same)");
    assert!(refused().contains("not PostgreSQL's own stand in the schema pg_catalog"), "{}", refused());
}

/// `varchar` has no order of its own until someone makes one, and no question is answered by it.
#[test]
fn an_order_of_the_site_s_own_decides_about_no_row() {
    let folder = tempfile::tempdir().unwrap();
    let Some(postgres) = Postgres::start_plain() else { return };
    let sql = |sql: &str| postgres.sql("postgres", sql);
    sql("CREATE TABLE person (k varchar PRIMARY KEY, day date, word varchar); INSERT INTO person SELECT 'p' || n, '2024-01-02', 'w' FROM generate_series(1, 9) n;
         CREATE TABLE audit (n int);
         CREATE FUNCTION below(varchar, varchar) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT $1::text < $2::text';
         CREATE FUNCTION upto(varchar, varchar) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT $1::text <= $2::text';
         CREATE FUNCTION same(varchar, varchar) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT $1::text = $2::text';
         CREATE FUNCTION ranked(varchar, varchar) RETURNS int LANGUAGE plpgsql AS $$ BEGIN IF EXISTS (SELECT 1 FROM public.audit) THEN PERFORM set_config('DateStyle', 'SQL, DMY', true); END IF; RETURN bttextcmp($1, $2); END $$;
         CREATE OPERATOR < (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = below, COMMUTATOR = >);
         CREATE OPERATOR > (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = upto);
         CREATE OPERATOR <= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = upto);
         CREATE OPERATOR >= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = upto);
         CREATE OPERATOR = (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = same);
         CREATE OPERATOR CLASS mine DEFAULT FOR TYPE varchar USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 ranked(varchar, varchar)");
    let text = "[persons]\ntable = \"person\"\nkey = \"k\"\nwhere = [{ column = \"word\", in = [\"w\"] }]\n[[columns]]\nname = \"day\"\nvalue = \"day\"\n";
    fs::write(folder.path().join("cohort.toml"), text).unwrap();
    let database = database(folder.path(), &postgres, "postgres");
    let before = rows(&database);
    assert_eq!(before.len(), 9);
    sql("INSERT INTO audit VALUES (1)");
    assert_eq!(rows(&database), before);
}

/// No one puts another table in the place of one between the look at the catalogue and the reading, and a table that is filled anew meanwhile is the old one or the new one.
#[test]
fn tables_stay_as_they_are_while_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let Some(postgres) = Postgres::start_plain() else { return };
    postgres.sql(
        "postgres",
        "CREATE TABLE person (k int PRIMARY KEY); INSERT INTO person VALUES (1); CREATE TABLE event (k int); INSERT INTO event VALUES (1)",
    );
    let text = "[persons]\ntable = \"person\"\nkey = \"k\"\n[sources.event]\ntable = \"event\"\n[[columns]]\nname = \"events\"\ncount = \"event\"\n";
    fs::write(folder.path().join("cohort.toml"), text).unwrap();
    let database = database(folder.path(), &postgres, "postgres");
    let [one, two] = ["1", "2"].map(|events| BTreeMap::from([("1".to_owned(), vec![format!("{{unit: \"1\", events: \"{events}\"}}")])]));
    assert_eq!(rows(&database), one);
    // A transaction empties and fills a table: the reading waits for it, and sees what it left; not the empty table that was never there for anyone.
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| {
            postgres.sql("postgres", "BEGIN; LOCK TABLE event IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(2); TRUNCATE event; INSERT INTO event VALUES (1), (1); COMMIT");
        });
        while postgres.sql(
            "postgres",
            "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted AND relation = 'event'::regclass",
        ) != "1"
        {}
        assert_eq!(rows(&database), two);
        loading.join().unwrap();
    });
}
