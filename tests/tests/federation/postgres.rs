//! Sites whose records are in PostgreSQL: the same posterior as from files, bit for bit; what goes wrong with the database ends the program before its
//! first message; rows that change later change nothing. Real processes, one real server, TLS.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use dp_pvi_accounting::PrivacyUnit;
use dp_pvi_tests::federation::{Federation, Party, complete, outcome};
use dp_pvi_tests::place::root;
use dp_pvi_tests::postgres::Postgres;
use dp_pvi_tests::regression::{Records, Schedule, Task};

/// Tables of the OMOP common data model 5.4, as far as the sample reads them, filled from a table `truth` of what it must find. Around
/// it stand records that it must not take: other kinds of visits, visits outside the years, conditions on the wrong side of a date, other conditions,
/// persons who were not seen for a year, or who had heart failure before.
const OMOP: &str = "
CREATE TABLE person (person_id bigint PRIMARY KEY, gender_concept_id int NOT NULL, year_of_birth int NOT NULL);
CREATE TABLE visit_occurrence (visit_occurrence_id bigserial PRIMARY KEY, person_id bigint NOT NULL, visit_concept_id int NOT NULL, visit_start_date date NOT NULL);
CREATE TABLE condition_occurrence (condition_occurrence_id bigserial PRIMARY KEY, person_id bigint NOT NULL, condition_concept_id int NOT NULL, condition_start_date date NOT NULL);
CREATE TABLE observation_period (observation_period_id bigserial PRIMARY KEY, person_id bigint NOT NULL, observation_period_start_date date NOT NULL, observation_period_end_date date NOT NULL);
CREATE TABLE concept_ancestor (ancestor_concept_id int NOT NULL, descendant_concept_id int NOT NULL);
INSERT INTO concept_ancestor VALUES (201820, 201820), (201820, 201826), (316866, 320128), (316139, 319835), (4028741, 320129);
CREATE FUNCTION of(person bigint, what text, sides int) RETURNS int IMMUTABLE LANGUAGE sql AS
  'SELECT ((''x'' || substr(md5(SEED || what || person), 1, 7))::bit(28)::int % sides)';
CREATE TABLE truth AS SELECT n AS person_id, 18 + of(n, 'age', 80) AS age, CASE of(n, 'sex', 2) WHEN 0 THEN 'female' ELSE 'male' END AS sex,
  of(n, 'diabetes', 4) = 0 AS diabetes, of(n, 'hypertension', 3) = 0 AS hypertension, of(n, 'stays', 4) AS prior_stays,
  of(n, 'failure', 6) < 1 + (of(n, 'diabetes', 4) = 0)::int * 2 AS heart_failure, DATE '2018-01-01' + of(n, 'index', 1800) AS index_date
  FROM generate_series(1, 600) n;
INSERT INTO person SELECT person_id, CASE sex WHEN 'male' THEN 8507 ELSE 8532 END, extract(year FROM index_date) - age FROM truth;
INSERT INTO visit_occurrence (person_id, visit_concept_id, visit_start_date) SELECT person_id, 9201, index_date FROM truth
  UNION ALL SELECT person_id, 9201, index_date + 40 FROM truth WHERE of(person_id, 'again', 2) = 0
  UNION ALL SELECT person_id, 9202, index_date - 90 FROM truth;
UPDATE truth SET prior_stays = 0 WHERE index_date >= DATE '2018-04-01';
INSERT INTO visit_occurrence (person_id, visit_concept_id, visit_start_date)
  SELECT person_id, 9201, DATE '2017-12-31' - k FROM truth, generate_series(1, 3) k WHERE k <= prior_stays
  UNION ALL SELECT person_id, 9201, index_date - 1826 FROM truth;
INSERT INTO condition_occurrence (person_id, condition_concept_id, condition_start_date)
  SELECT person_id, 201826, index_date - 1 - of(person_id, 'when', 400) FROM truth WHERE diabetes
  UNION ALL SELECT person_id, 201820, index_date FROM truth WHERE NOT diabetes
  UNION ALL SELECT person_id, 320128, index_date - 7 FROM truth WHERE hypertension
  UNION ALL SELECT person_id, 320129, index_date - 7 FROM truth
  UNION ALL SELECT person_id, 319835, index_date + 1 + of(person_id, 'late', 365) FROM truth WHERE heart_failure
  UNION ALL SELECT person_id, 319835, index_date + 366 FROM truth WHERE NOT heart_failure;
INSERT INTO observation_period (person_id, observation_period_start_date, observation_period_end_date)
  SELECT person_id, index_date - 2000, index_date + 365 + of(person_id, 'seen', 500) FROM truth;
INSERT INTO person SELECT n, 8532, 1950 FROM generate_series(1001, 1100) n;
INSERT INTO visit_occurrence (person_id, visit_concept_id, visit_start_date) SELECT n, 9201, DATE '2020-05-05' FROM generate_series(1001, 1100) n;
INSERT INTO observation_period (person_id, observation_period_start_date, observation_period_end_date)
  SELECT n, DATE '2010-01-01', CASE WHEN n <= 1050 THEN DATE '2021-05-04' ELSE DATE '2022-01-01' END FROM generate_series(1001, 1100) n;
INSERT INTO condition_occurrence (person_id, condition_concept_id, condition_start_date)
  SELECT n, 319835, DATE '2020-05-05' FROM generate_series(1051, 1100) n;
GRANT SELECT ON person, visit_occurrence, condition_occurrence, observation_period, concept_ancestor TO reader;
";

const PASSWORD: &str = "correct horse";
const COLUMNS: &str = "x0, x1, x2, y";

/// Without noise: then every bit of the result follows from the records.
fn task(schedule: Schedule) -> Task {
    Task { epsilon: None, damping: Some(0.5), schedule, ..Task::default() }
}

fn federation(task: &Task) -> (Federation, Vec<Party>) {
    let sites = Records::generated(60, 3, 0).sites(&[25, 20, 15], task.likelihood);
    (Federation::new(&task.toml(), &task.schema(3), &sites), sites)
}

/// A server with a database of records for each site, and a user who may read them.
fn server(federation: &Federation, sites: &[Party]) -> Option<Postgres> {
    let postgres = Postgres::start(&federation.home("server").join("tls"))?;
    postgres.sql("postgres", &format!("CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'"));
    for site in sites {
        let database = site.name.replace('-', "_");
        postgres.sql("postgres", &format!("CREATE DATABASE {database}"));
        postgres.sql(&database, "CREATE TABLE records (number bigserial PRIMARY KEY, x0 float8, x1 float8, x2 numeric, y int)");
        postgres.sql(
            &database,
            &format!("\\copy records ({COLUMNS}) FROM '{}' CSV HEADER", federation.home(&site.name).join("data/records.csv").display()),
        );
        postgres.sql(&database, "GRANT SELECT ON records TO reader");
        describe(federation, &postgres, site, RECORDS);
    }
    Some(postgres)
}

/// Every record is a row of one table.
const RECORDS: &str = "
[persons]
table = \"records\"
key = \"number\"
[[columns]]
name = \"x0\"
value = \"x0\"
[[columns]]
name = \"x1\"
value = \"x1\"
[[columns]]
name = \"x2\"
value = \"x2\"
[[columns]]
name = \"y\"
value = \"y\"
";

/// Gives a site a description in place of its file.
fn describe(federation: &Federation, postgres: &Postgres, site: &Party, description: &str) {
    configure(federation, postgres, site, ("records", "cohort.toml", description), "");
}

/// Gives a site a query that it vouches for, or does not.
fn query(federation: &Federation, postgres: &Postgres, site: &Party, text: &str, more: &str) {
    configure(federation, postgres, site, ("query", "query.sql", text), more);
}

fn configure(federation: &Federation, postgres: &Postgres, site: &Party, (key, file, text): (&str, &str, &str), more: &str) {
    let home = federation.home(&site.name);
    let config = fs::read_to_string(home.join("client.toml")).unwrap();
    let config = config.split("[database]").next().unwrap().replace("uri = \"data/records.csv\"\n", "");
    let url = format!("postgresql://reader@localhost:{}/{}", postgres.port(), site.name.replace('-', "_"));
    let section =
        format!("url = \"{url}\"\n{key} = \"data/{file}\"\npassword_file = \"data/password\"\nca = \"data/database-ca.pem\"\n{more}");
    fs::write(home.join("client.toml"), format!("{config}[database]\n{section}")).unwrap();
    fs::write(home.join("data").join(file), text).unwrap();
    password(&home, PASSWORD);
    fs::copy(federation.home("server").join("tls/ca.pem"), home.join("data/database-ca.pem")).unwrap();
}

fn password(home: &Path, text: &str) {
    let file = home.join("data/password");
    fs::write(&file, format!("{text}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
}

/// The files in a site's state folder that hold its records.
fn rows_on_disk(federation: &Federation, site: &str) -> Vec<String> {
    let entries = fs::read_dir(federation.home(site).join("state")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).filter(|name| name.contains("parquet")).collect()
}

#[test]
fn three_databases_give_the_posterior_of_three_files_bit_for_bit() {
    for schedule in [Schedule::Synchronous(5), Schedule::Sequential(2)] {
        let task = task(schedule);
        let (of_files, sites) = federation(&task);
        let (of_databases, _) = federation(&task);
        let Some(_postgres) = server(&of_databases, &sites) else { return };
        complete(&of_files, &sites);
        complete(&of_databases, &sites);
        // Numbers are written in full: equal texts are equal bits.
        let coefficients = |federation: &Federation| federation.posterior()["coefficients"].to_string();
        assert_eq!(coefficients(&of_files), coefficients(&of_databases));
        assert!(sites.iter().all(|site| rows_on_disk(&of_databases, &site.name).is_empty()), "rows stay on the disk after the run");
    }
}

/// Columns of numbers have a point, whatever the schema says of texts; a column of texts has what the schema says, as a file has.
#[test]
fn numbers_of_a_database_have_a_point_and_its_texts_have_the_decimals_of_the_schema() {
    let task = task(Schedule::Synchronous(2));
    let sites = Records::generated(60, 3, 0).sites(&[25, 20, 15], task.likelihood);
    let schema = task.schema(3).replacen("[[columns]]", "[csv]\ndelimiter = \";\"\ndecimal = \",\"\n[[columns]]", 1);
    let [of_files, of_databases] = [(); 2].map(|()| Federation::new(&task.toml(), &schema, &sites));
    let Some(postgres) = server(&of_databases, &sites) else { return };
    for site in &sites {
        let comma = "ALTER TABLE records ALTER COLUMN x1 TYPE text USING replace(x1::text, '.', ',')";
        postgres.sql(&site.name.replace('-', "_"), comma);
        let file = of_files.home(&site.name).join("data/records.csv");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace(',', ";").replace('.', ",")).unwrap();
    }
    complete(&of_files, &sites);
    complete(&of_databases, &sites);
    let coefficients = |federation: &Federation| federation.posterior()["coefficients"].to_string();
    assert_eq!(coefficients(&of_files), coefficients(&of_databases));
}

/// A client that is started again in the middle of a run finds the rows as they were, whatever became of them in the database.
#[test]
fn rows_that_change_between_two_visits_change_nothing() {
    let task = task(Schedule::Synchronous(3));
    let (of_files, sites) = federation(&task);
    let (of_databases, _) = federation(&task);
    let Some(postgres) = server(&of_databases, &sites) else { return };
    complete(&of_files, &sites);
    let (first, others) = sites.split_first().unwrap();
    let mut server = of_databases.start_server();
    let mut client = of_databases.start_client(&first.name, &server.address);
    let kept = of_databases.home(&first.name).join(format!("state/records-{}.json", first.name));
    client.wait_until("it is in the run", |_| kept.exists().then_some(()));
    assert_eq!(rows_on_disk(&of_databases, &first.name).len(), 1);
    let database = first.name.replace('-', "_");
    postgres.sql(&database, "UPDATE records SET x0 = -x0, y = 1 - y; DELETE FROM records WHERE number = 3");
    client.kill();
    let mut clients = vec![of_databases.start_client(&first.name, &server.address)];
    clients.extend(others.iter().map(|site| of_databases.start_client(&site.name, &server.address)));
    clients.iter_mut().for_each(|client| client.expect(0));
    server.process.expect(0);
    assert_eq!(of_files.posterior()["coefficients"].to_string(), of_databases.posterior()["coefficients"].to_string());
    assert!(clients[0].log().contains("kept for it"), "{}", clients[0].log());
    assert!(rows_on_disk(&of_databases, &first.name).is_empty());
}

/// No one listens at the server's address: had a client come so far as to call it, it would wait there.
#[test]
fn what_is_wrong_with_a_database_ends_the_program_before_the_hello() {
    let task = task(Schedule::Synchronous(1));
    let (federation, sites) = federation(&task);
    let Some(postgres) = server(&federation, &sites) else { return };
    let site = &sites[0];
    let (home, database) = (federation.home(&site.name), site.name.replace('-', "_"));
    let fails = |arguments: &[&str], code: i32, words: &[&str]| {
        let (found, out, err) = outcome(&mut federation.client_command(&site.name, arguments));
        assert_eq!(found, code, "{out}{err}");
        words.iter().for_each(|words| assert!(format!("{out}{err}").contains(words), "no {words:?} in {out}{err}"));
        assert!(!format!("{out}{err}").contains(PASSWORD) && !format!("{out}{err}").contains("coelacanth"), "{out}{err}");
        assert!(rows_on_disk(&federation, &site.name).is_empty());
        assert!(outcome(&mut federation.client_command(&site.name, &["ledger", "verify"])).0 == 0);
    };
    let of = |description: &str| describe(&federation, &postgres, site, description);
    let asks = |text: &str, more: &str| query(&federation, &postgres, site, text, more);

    password(&home, "wrong");
    fails(&["run"], 10, &["refuses the login", "password_file"]);
    fs::set_permissions(home.join("data/password"), fs::Permissions::from_mode(0o644)).unwrap();
    fails(&["run"], 2, &["database.password_file", "chmod 600"]);

    // What the catalogue says of a table decides, and not what it holds.
    let (from, to) = ("table = \"records\"", "table = \"other\"");
    for (sql, words) in [
        ("CREATE VIEW other AS SELECT * FROM records", "is a view"),
        ("CREATE TABLE other (LIKE records INCLUDING ALL); ALTER TABLE other ENABLE ROW LEVEL SECURITY", "row security"),
        ("CREATE TABLE other (LIKE records INCLUDING ALL); CREATE TABLE heir () INHERITS (other)", "inherit from public.other"),
        ("CREATE TABLE other (LIKE records)", "must be NOT NULL and alone have a unique index"),
        (
            "CREATE TABLE other (LIKE records); CREATE UNIQUE INDEX ON other (number) WHERE x0 > 0",
            "must be NOT NULL and alone have a unique index",
        ),
        ("CREATE TABLE other (LIKE records); CREATE UNIQUE INDEX ON other (number, x0)", "must be NOT NULL and alone have a unique index"),
        ("CREATE TABLE other (number numeric PRIMARY KEY, x0 float8, x1 float8, x2 numeric, y int)", "is of type numeric"),
        (
            "CREATE COLLATION IF NOT EXISTS same (provider = icu, locale = 'und-u-ks-level1', deterministic = false); \
             CREATE TABLE other (number text COLLATE same PRIMARY KEY, x0 float8, x1 float8, x2 numeric, y int)",
            "different texts are equal",
        ),
        (
            "CREATE TABLE other (number int PRIMARY KEY, x1 float8, x2 numeric, y int, x0 float8 GENERATED ALWAYS AS (x1 + 1) STORED)",
            "is generated",
        ),
        ("CREATE TABLE other (number int PRIMARY KEY, x0 float8, x1 float8, x2 numeric, y jsonb)", "JSON documents"),
        (
            "CREATE TABLE other (LIKE records, PRIMARY KEY (number)) PARTITION BY RANGE (number); CREATE TABLE part (LIKE records INCLUDING ALL); \
             ALTER TABLE part DROP COLUMN x0, ADD COLUMN x0 float8 GENERATED ALWAYS AS (x1 + 1) STORED; ALTER TABLE other ATTACH PARTITION part DEFAULT",
            "is generated",
        ),
        (
            "CREATE TABLE whole (LIKE records, PRIMARY KEY (number)) PARTITION BY RANGE (number); CREATE TABLE other PARTITION OF whole DEFAULT",
            "is a part of a partitioned table",
        ),
    ] {
        postgres.sql(&database, &format!("{sql}; GRANT SELECT ON other TO reader"));
        of(&RECORDS.replace(from, to));
        fails(&["run"], if words.contains("JSON") { 10 } else { 8 }, &["cohort.toml", words]);
        let kind = if sql.starts_with("CREATE VIEW") { "VIEW" } else { "TABLE" };
        postgres.sql(&database, &format!("DROP {kind} other CASCADE; DROP TABLE IF EXISTS whole"));
    }
    of(&RECORDS.replace(from, "table = \"recodrs\""));
    fails(&["run"], 10, &["has no table", "public.recodrs"]);
    of(&RECORDS.replace("value = \"x1\"", "value = \"x9\""));
    fails(&["run"], 10, &["has no column `x9`"]);
    of(&RECORDS.replace("name = \"x1\"", "name = \"x9\""));
    fails(&["run"], 10, &["there is no column `x1`"]);
    postgres.sql(&database, "CREATE TABLE hidden (LIKE records INCLUDING ALL)");
    of(&RECORDS.replace(from, "table = \"hidden\""));
    fails(&["run"], 10, &["may not read", "hidden", "GRANT SELECT"]);
    // A word for a view is a word, and it is in the file.
    postgres.sql(&database, "CREATE VIEW seen AS SELECT * FROM records; GRANT SELECT ON seen TO reader");
    of(&format!("vouched = [\"seen\"]\n{}", RECORDS.replace(from, "table = \"seen\"")));
    assert_eq!(outcome(&mut federation.client_command(&site.name, &["check", "--offline"])).0, 0);

    // A query is the operator's word, for this text alone.
    let plain = format!("SELECT {COLUMNS} FROM records ORDER BY number");
    asks(&plain, "");
    let (code, _, err) = outcome(&mut federation.client_command(&site.name, &["run"]));
    let (_, hash) = err.split_once("sha256:").unwrap_or_else(|| panic!("{err}"));
    assert_eq!(code, 8);
    let vouched = format!("vouched = \"sha256:{}\"\n", &hash[..64]);
    asks(&plain, &vouched);
    assert_eq!(outcome(&mut federation.client_command(&site.name, &["check", "--offline"])).0, 0);
    asks(&plain.replace("x1,", "x1 + 0 AS x1,"), &vouched);
    fails(&["run"], 8, &["for another text"]);
    let vouching = |text: &str| asks(text, &format!("vouched = \"sha256:{}\"\n", dp_pvi_client::database::query::name(text, None)));
    vouching("SELECT x0, y FROM recodrs");
    fails(&["run"], 10, &["cannot answer", "recodrs"]);
    // The database would quote what it cannot read.
    postgres.sql(&database, "ALTER TABLE records ADD note text; UPDATE records SET note = 'coelacanth' WHERE number = 9");
    vouching("SELECT x0, x1, x2, CAST(coalesce(note, '1') AS int) AS y FROM records");
    fails(&["run"], 10, &["error 22P02", "by hand"]);
    vouching("SELECT x0, x1, x2, y, x1 AS x0 FROM records");
    fails(&["run"], 10, &["two columns are named `x0`"]);

    // A cell without a value: said by a look, with its row and column, and no reason for a site to stay away from a run.
    postgres.sql(&database, "UPDATE records SET x1 = NULL WHERE number = 7");
    of(RECORDS);
    fails(&["check", "--offline"], 10, &["cohort.toml: row 7, column `x1`", "missing"]);

    let other = home.join("data/database-ca.pem");
    fs::copy(home.join(format!("tls/{}.pem", site.name)), &other).unwrap();
    fails(&["run"], 12, &["cannot be reached", "certificate"]);
}

/// The line is cut while rows come.
#[test]
fn a_connection_that_is_lost_in_the_middle_leaves_nothing_behind() {
    let task = task(Schedule::Synchronous(1));
    let (federation, sites) = federation(&task);
    let Some(postgres) = server(&federation, &sites) else { return };
    let (site, database) = (&sites[0], sites[0].name.replace('-', "_"));
    postgres.sql(&database, &format!("INSERT INTO records ({COLUMNS}) SELECT 0.5, 0.5, 0.5, 1 FROM generate_series(1, 1500000)"));
    let mut client = federation.start_client(&site.name, "127.0.0.1:1");
    let reading = "FROM pg_stat_activity WHERE application_name = 'dp-pvi-client' AND query LIKE 'FETCH%'";
    client.wait_until("it reads", |_| (postgres.sql("postgres", &format!("SELECT count(*) {reading}")) == "1").then_some(()));
    postgres.sql("postgres", &format!("SELECT pg_terminate_backend(pid) {reading}"));
    client.expect(12);
    let log = client.log();
    assert!(log.contains("nothing was sent and nothing charged"), "{log}");
    assert!(rows_on_disk(&federation, &site.name).is_empty());
}

/// The sample's description finds in the tables what was put there, and its task runs to its end at three hospitals with such databases.
#[test]
fn the_samples_of_an_omop_database_run() {
    let sample = |name: &str| fs::read_to_string(root().join("deploy/omop").join(name)).unwrap();
    let sites: Vec<Party> =
        (1..=3).map(|n| Party::site_of(&format!("site-{n}"), String::new(), 600).protecting(PrivacyUnit::Person)).collect();
    let federation = Federation::new(&sample("task.toml"), &sample("schema.toml"), &sites);
    let Some(postgres) = Postgres::start(&federation.home("server").join("tls")) else { return };
    postgres.sql("postgres", &format!("CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'"));
    for site in &sites {
        let (home, database) = (federation.home(&site.name), site.name.replace('-', "_"));
        postgres.sql("postgres", &format!("CREATE DATABASE {database}"));
        postgres.sql(&database, &OMOP.replace("SEED", &format!("''{}''", site.name)));
        let truth = "SELECT person_id, age, sex, diabetes::text, hypertension::text, prior_stays, heart_failure::text FROM truth ORDER BY person_id";
        postgres.sql(&database, &format!("\\copy ({truth}) TO '{}' CSV HEADER", home.join("data/records.csv").display()));
        let look = || outcome(&mut federation.client_command(&site.name, &["data", "inspect", "--format", "json"]));
        let (code, of_file, err) = look();
        assert_eq!(code, 0, "{of_file}{err}");
        describe(&federation, &postgres, site, &sample("cohort.toml"));
        let (code, of_rows, err) = look();
        assert_eq!((code, of_rows), (0, of_file), "{err}");
    }
    complete(&federation, &sites);
    let statement = &federation.posterior()["privacy"][0];
    assert_eq!(
        (&statement["rows"]["by"], &statement["rows"]["public_tables"][0]),
        (&"description".into(), &"public.concept_ancestor".into())
    );
    let effects = federation.posterior()["coefficients"].as_array().unwrap().len();
    assert_eq!(effects, 6, "the intercept, age, sex, diabetes, hypertension and stays before");
}

/// One missing id, rows without an order, a limit: a trial shows that the operator's word is wrong. What holds passes, and the statement says whose word it is.
#[test]
fn what_can_be_tried_of_a_vouched_query_is_tried() {
    let sample = |name: &str| fs::read_to_string(root().join("deploy/omop").join(name)).unwrap();
    let sites: Vec<Party> =
        (1..=3).map(|n| Party::site_of(&format!("site-{n}"), String::new(), 400).protecting(PrivacyUnit::Person)).collect();
    let federation = Federation::new(&sample("task.toml"), &sample("schema.toml"), &sites);
    let Some(postgres) = Postgres::start(&federation.home("server").join("tls")) else { return };
    postgres.sql("postgres", &format!("CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'"));
    let of = |site: &Party, stays: &str, diabetes: &str, rest: &str| {
        let text = format!(
            "SELECT p.person_id, 40 + p.person_id % 9 AS age, 'male' AS sex, {diabetes} AS diabetes, false AS hypertension, {stays} AS prior_stays, \
             p.person_id % 3 = 0 AS heart_failure FROM person p {rest}"
        );
        let hash = dp_pvi_client::database::query::name(&text, Some("person_id"));
        query(&federation, &postgres, site, &text, &format!("vouched = \"sha256:{hash}\"\n"));
        outcome(&mut federation.client_command(&site.name, &["check", "--offline"]))
    };
    let ordered = "ORDER BY p.person_id";
    for site in &sites {
        let database = site.name.replace('-', "_");
        postgres.sql("postgres", &format!("CREATE DATABASE {database}"));
        postgres.sql(
            &database,
            "CREATE TABLE person (person_id bigint PRIMARY KEY); INSERT INTO person SELECT generate_series(1, 300);
             CREATE TABLE diabetics (person_id bigint REFERENCES person ON DELETE SET NULL); INSERT INTO diabetics SELECT n FROM generate_series(1, 300, 2) n;
             CREATE TABLE stay (person_id bigint, day date, length int);
             INSERT INTO stay SELECT n % 300 + 1, DATE '2020-01-01', n / 300 FROM generate_series(1, 1500) n; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader",
        );
        let (code, out, err) = of(site, "1", "EXISTS (SELECT 1 FROM diabetics d WHERE d.person_id = p.person_id)", ordered);
        assert!(code == 0 && out.contains("asked twice in a row") && out.contains("one person less"), "{code}: {out}{err}");
    }
    let last = "(SELECT s.length FROM stay s WHERE s.person_id = p.person_id ORDER BY s.day LIMIT 1)";
    let per_person = "EXISTS (SELECT 1 FROM diabetics d WHERE d.person_id = p.person_id)";
    for (stays, diabetes, rest, words) in [
        ("1", "(p.person_id IN (SELECT person_id FROM diabetics)) IS NULL", ordered, "whose other rows lose their id, the rows of"),
        (last, per_person, ordered, "with the rows of public.stay in another order"),
        ("1", per_person, "ORDER BY p.person_id LIMIT 200", "one person less, the rows of 1 other persons differ"),
        ("floor(random() * 9)", per_person, ordered, "asked twice in a row, the rows of"),
        ("rank() OVER (ORDER BY p.person_id) % 9", per_person, ordered, "one person less, the rows of"),
    ] {
        let (code, out, err) = of(&sites[0], stays, diabetes, rest);
        assert!(code == 8 && format!("{out}{err}").contains(words), "{stays}, {diabetes}, {rest}: {code}: {out}{err}");
        assert_eq!(postgres.sql("site_1", "SELECT count(*) FROM person"), "300");
    }
    // A table behind a view, or named with its schema, is told as not tried.
    let (code, out, err) = of(&sites[0], "1", "EXISTS (SELECT 1 FROM public.diabetics d WHERE d.person_id = p.person_id)", ordered);
    assert!(code == 0 && format!("{out}{err}").contains("not tried: public.diabetics"), "{code}: {out}{err}");
    complete(&federation, &sites);
    let posterior = federation.posterior();
    for statement in posterior["privacy"].as_array().unwrap() {
        assert_eq!(statement["rows"]["by"], "query");
    }
    let report = fs::read_to_string(federation.home("server").join("results/report.html")).unwrap();
    assert!(report.contains("Rows of site-3 by a query that its operator vouches for."));
}
