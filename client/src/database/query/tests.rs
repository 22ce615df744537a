#![allow(clippy::unwrap_used)]

use super::*;

fn of_persons(text: &str) -> Verdict {
    let public = ["concept".to_owned(), "vocab.concept_ancestor".to_owned()];
    judge(text, &Asked { unit_column: Some("patient"), unit_key: "person_id", public_tables: &public })
        .unwrap_or_else(|e| panic!("{text}: {e}"))
        .verdict
}

fn of_records(text: &str) -> Verdict {
    judge(text, &Asked { unit_column: None, unit_key: "person_id", public_tables: &["concept".to_owned()] })
        .unwrap_or_else(|e| panic!("{text}: {e}"))
        .verdict
}

#[track_caller]
fn kept(text: &str) {
    assert_eq!(of_persons(text), Verdict::Kept, "{text}");
}

#[track_caller]
fn broken(text: &str, words: &str) {
    match of_persons(text) {
        Verdict::Broken(why) => assert!(why.contains(words), "{text}: {why}"),
        other => panic!("{text}: {other:?}"),
    }
}

#[track_caller]
fn undecided(text: &str, words: &str) {
    match of_persons(text) {
        Verdict::Undecided(why) => assert!(why.iter().any(|why| why.contains(words)), "{text}: {why:?}"),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn rows_of_one_person_are_kept() {
    kept("SELECT person_id AS patient, age, sex FROM visits ORDER BY person_id, age;");
    kept("SELECT v.person_id AS patient, v.age, c.concept_name FROM visits v LEFT JOIN concept c ON c.concept_id = v.ward");
    kept("SELECT p.person_id AS patient FROM person p JOIN visits v ON v.person_id = p.person_id WHERE v.start >= DATE '2020-01-01'");
    kept("SELECT p.person_id AS patient FROM person p JOIN visits v USING (person_id)");
    kept(
        "SELECT p.person_id::text AS patient FROM person p, visits v WHERE p.year > 1950 AND (p.person_id = v.person_id AND v.ward IN (1, 2))",
    );
    kept("SELECT person_id AS patient, count(*) FILTER (WHERE ward = 3), max(start) FROM visits GROUP BY person_id HAVING count(*) > 1");
    kept("SELECT person_id AS patient, ward, count(*) FROM visits GROUP BY 1, ward");
    kept("SELECT person_id AS patient, rank() OVER (PARTITION BY person_id ORDER BY start) FROM visits");
    kept(
        "SELECT person_id AS patient, avg(x::numeric), sum((CASE WHEN x > 3 THEN 1 ELSE 0 END)), string_agg(note, ' ' ORDER BY note) FROM visits GROUP BY 1",
    );
    kept("SELECT DISTINCT person_id AS patient, ward FROM visits");
    kept("SELECT person_id AS patient, age FROM a UNION SELECT person_id, age FROM b");
    kept("SELECT person_id AS patient FROM a UNION ALL SELECT person_id FROM b");
    kept(
        "WITH first AS (SELECT person_id, min(start) AS start FROM visits GROUP BY person_id), old(id, year) AS (SELECT person_id, year FROM person) \
         SELECT o.id AS patient, extract(year FROM f.start) - o.year AS age, \
         CASE WHEN EXISTS (SELECT 1 FROM condition x WHERE x.person_id = o.id AND x.start < f.start) THEN 1 ELSE 0 END AS ill, \
         (SELECT count(*) FROM drug d WHERE d.person_id = o.id) AS drugs \
         FROM old o JOIN first f ON f.person_id = o.id WHERE o.id IN (SELECT person_id FROM insured)",
    );
    kept("SELECT s.patient, s.age FROM (SELECT person_id AS patient, age FROM visits) AS s");
    kept("SELECT person_id AS patient FROM visits WHERE ward IN (SELECT descendant FROM vocab.concept_ancestor WHERE ancestor = 5)");
    kept("SELECT \"person_id\" AS patient, coalesce(round(x / 10), 0) FROM visits WHERE note ILIKE 'a%' AND x BETWEEN 1 AND 9");
}

#[test]
fn what_lets_one_person_change_anothers_rows_is_refused() {
    broken("SELECT person_id AS patient FROM visits LIMIT 5", "LIMIT");
    broken("SELECT person_id AS patient FROM visits FETCH FIRST 5 ROWS ONLY", "LIMIT");
    broken("SELECT person_id AS patient FROM (SELECT person_id FROM visits ORDER BY start LIMIT 5) AS s", "LIMIT");
    broken("SELECT person_id AS patient FROM visits TABLESAMPLE SYSTEM (5)", "TABLESAMPLE");
    broken("SELECT person_id AS patient FROM visits FOR UPDATE", "only read");
    for function in ["random()", "now()", "current_date", "clock_timestamp()", "gen_random_uuid()", "age(birth)", "nextval('s')"] {
        broken(&format!("SELECT person_id AS patient FROM visits WHERE x < {function}"), "time, chance");
    }
    broken("SELECT person_id AS patient, x - avg(x) OVER () FROM visits", "several persons");
    broken("SELECT person_id AS patient, rank() OVER (PARTITION BY ward ORDER BY x) FROM visits", "several persons");
    broken("SELECT person_id AS patient, ctid FROM visits", "stored");
    broken("SELECT max(person_id) AS patient FROM visits", "GROUP BY");
    broken("SELECT 1 + (2 * count(*)) AS patient FROM visits", "GROUP BY");
    broken("SELECT array[max(x)] AS patient FROM visits", "GROUP BY");
    broken("SELECT ward AS patient, count(*) FROM visits GROUP BY ward", "GROUP BY");
    broken("SELECT person_id AS patient, count(*) FROM visits GROUP BY ROLLUP (person_id)", "ROLLUP");
    broken("SELECT ward AS patient FROM visits HAVING count(*) > 5", "GROUP BY");
    broken("SELECT DISTINCT ward AS patient FROM visits", "DISTINCT");
    broken("SELECT DISTINCT ON (ward) person_id AS patient FROM visits", "DISTINCT");
    broken("SELECT DISTINCT ON (person_id) person_id AS patient, ward AS person_id, age FROM visits", "DISTINCT");
    broken("SELECT DISTINCT ON (person_id) c.*, v.person_id AS patient FROM visits v JOIN concept c ON c.id = v.ward", "DISTINCT");
    broken("SELECT DISTINCT ON (2) v.*, person_id AS patient FROM visits v", "DISTINCT");
    broken("SELECT v.*, person_id AS patient FROM visits v GROUP BY 2", "GROUP BY");
    broken("SELECT concept_id AS patient FROM concept UNION ALL SELECT person_id FROM visits", "nobody's");
    broken("SELECT concept_id AS patient FROM concept EXCEPT SELECT person_id FROM visits", "nobody's");
    broken("SELECT ward AS patient FROM a INTERSECT SELECT ward FROM b", "UNION ALL");
    broken("SELECT a.person_id AS patient FROM visits a, visits b", "not joined");
    broken("SELECT a.person_id AS patient FROM visits a JOIN visits b ON a.person_id::bigint = b.person_id::bigint", "not joined");
    broken("SELECT a.person_id AS patient FROM visits a JOIN visits b ON a.ward = b.ward", "not joined");
    broken("SELECT a.person_id AS patient FROM visits a JOIN visits b ON a.person_id = b.person_id OR a.ward = b.ward", "not joined");
    broken("SELECT a.person_id AS patient FROM visits a JOIN visits b ON a.person_id = b.referred_by", "not joined");
    broken("SELECT person_id AS patient, x - (SELECT avg(x) FROM visits) FROM visits", "GROUP BY");
    broken("SELECT person_id AS patient FROM visits WHERE ward IN (SELECT ward FROM outbreaks)", "not about the person");
    broken(
        "SELECT person_id AS patient FROM visits v WHERE EXISTS (SELECT 1 FROM contact c WHERE c.other = v.person_id)",
        "not about the person",
    );
    broken("SELECT person_id AS patient FROM visits WHERE person_id NOT IN (SELECT person_id FROM dead)", "not about the person");
    broken("SELECT age AS patient FROM visits", "is not the person's id");
    broken("SELECT referred_by AS patient, person_id FROM visits", "is not the person's id");
}

/// An outer join keeps rows for which its condition does not hold: neither may they be about two persons, nor is an id there that may be missing.
#[test]
fn outer_joins_are_followed_by_what_they_keep() {
    kept("SELECT v.person_id AS patient, d.day FROM visits v LEFT JOIN death d ON d.person_id = v.person_id");
    kept("SELECT d.person_id AS patient, v.day FROM visits v RIGHT JOIN death d ON d.person_id = v.person_id");
    broken("SELECT d.person_id AS patient FROM visits v LEFT JOIN death d ON d.person_id = v.person_id", "is not the person's id");
    broken("SELECT v.person_id AS patient FROM visits v FULL JOIN death d USING (person_id)", "is not the person's id");
    broken(
        "SELECT a.person_id AS patient FROM a CROSS JOIN b LEFT JOIN c ON a.person_id = c.person_id AND b.person_id = c.person_id",
        "not joined",
    );
    broken(
        "SELECT v.person_id AS patient, count(*) OVER (PARTITION BY d.person_id) FROM visits v LEFT JOIN death d USING (person_id)",
        "several persons",
    );
    broken(
        "SELECT p.person_id AS patient, (SELECT count(*) FROM visits v LEFT JOIN w ON w.person_id = v.person_id AND v.person_id = p.person_id) FROM person p",
        "GROUP BY",
    );
}

#[test]
fn what_the_text_does_not_show_is_left_to_the_operator() {
    undecided("SELECT person_id AS patient, our_score(x) FROM visits", "our_score");
    undecided("SELECT person_id AS patient, ours.round(x) FROM visits", "ours.round");
    kept("SELECT person_id AS patient, pg_catalog.round(x) FROM visits");
    undecided("WITH v(person_id, age) AS (SELECT * FROM visits) SELECT person_id AS patient FROM v", "new names");
    undecided("SELECT person_id AS patient FROM (SELECT * FROM visits) AS v(person_id, age)", "new names");
    undecided("SELECT person_id AS patient FROM visits WHERE start < 'today'", "depend on time");
    undecided("SELECT person_id AS patient FROM visits WHERE start < DATE 'Yesterday '", "depend on time");
    undecided("SELECT person_id AS patient FROM visits WHERE start < 'now'::date", "depend on time");
    undecided("SELECT person_id AS patient FROM visits WHERE start < E'today 12:00' OR start < $$tomorrow$$", "depend on time");
    undecided("SELECT person_id AS patient FROM visits WHERE x ### 3", "operator");
    undecided("SELECT s.person_id AS patient, s.count FROM (SELECT person_id FROM visits) s", "may be a function");
    undecided("SELECT visits.person_id AS patient FROM a.visits JOIN vocab.concept_ancestor visits ON true", "two tables");
    undecided("WITH \"a.visits\" AS (SELECT 1) SELECT person_id AS patient, our_score(x) FROM a.visits", "our_score");
    undecided("SELECT person_id AS patient FROM visits NATURAL JOIN concept", "NATURAL");
    undecided("SELECT s.person_id AS patient FROM visits s, LATERAL (SELECT concept_name FROM concept) c", "LATERAL");
    undecided("SELECT person_id AS patient FROM visits ORDER BY our_order(x)", "ORDER BY");
    undecided("SELECT person_id AS patient, sum(x) OVER w FROM visits WINDOW w AS (PARTITION BY person_id)", "named windows");
    undecided("SELECT v.person_id AS patient FROM visits v JOIN generate_series(1, 2) g ON true", "generate_series");
}

/// Which of two equal rows comes first depends on where they are stored, and so on other rows.
#[test]
fn what_depends_on_the_order_of_equal_rows_is_left_to_the_operator() {
    for function in ["row_number()", "first_value(x)", "lag(x)", "ntile(4)"] {
        undecided(
            &format!("SELECT person_id AS patient, {function} OVER (PARTITION BY person_id ORDER BY start) FROM visits"),
            "orders equally",
        );
    }
    undecided("SELECT DISTINCT ON (person_id) person_id AS patient, start FROM visits ORDER BY person_id, start", "DISTINCT ON");
    undecided("SELECT person_id AS patient, avg(x) FROM visits GROUP BY person_id", "numeric");
    undecided("SELECT person_id AS patient, array_agg(ward) FROM visits GROUP BY person_id", "ORDER BY x");
    undecided("SELECT person_id AS patient, array_agg(ward ORDER BY start) FROM visits GROUP BY person_id", "ORDER BY x");
    kept("SELECT v.person_id AS patient FROM visits v JOIN (SELECT a, avg(b) AS m FROM concept GROUP BY a) c ON c.a = v.ward");
}

/// Each of them must have the column of ids: see [`Judged`].
#[test]
fn persons_tables_are_named_as_the_text_writes_them() {
    let asked = Asked { unit_column: Some("patient"), unit_key: "person_id", public_tables: &["concept".to_owned()] };
    let text = "WITH first AS (SELECT person_id FROM cdm.visits) SELECT f.person_id AS patient FROM first f JOIN concept c ON c.id = 1 \
                WHERE f.person_id IN (SELECT person_id FROM \"Cost\" x WHERE total > 5)";
    let judged = judge(text, &asked).unwrap();
    assert_eq!(judged.verdict, Verdict::Kept);
    assert_eq!(judged.tables.into_iter().collect::<Vec<_>>(), ["\"Cost\"", "cdm.visits"]);
    let column = |table: &str, column: &str| (table.to_owned(), column.to_owned());
    assert_eq!(judged.columns.into_iter().collect::<Vec<_>>(), [column("concept", "id")]);
    let judged = judge("WITH \"a.b\" AS (SELECT 1) SELECT v.person_id AS patient, v.rank_in_ward FROM a.b AS v", &asked).unwrap();
    assert_eq!(judged.tables.into_iter().collect::<Vec<_>>(), ["a.b"]);
    assert_eq!(judged.columns.into_iter().collect::<Vec<_>>(), [column("a.b", "person_id"), column("a.b", "rank_in_ward")]);
}

/// A word for a text with its doubts says nothing about the same text with others.
#[test]
fn a_word_is_for_one_text_and_its_doubts() {
    let public = ["b".to_owned(), "a".to_owned()];
    let asked = Asked { unit_column: Some("patient"), unit_key: "id", public_tables: &public };
    let doubts = ["a function".to_owned()];
    let hash = asked.named("SELECT", &doubts);
    assert_eq!(hash, Asked { public_tables: &["a".to_owned(), "b".to_owned()], ..asked }.named("SELECT", &doubts));
    assert_ne!(hash, asked.named("SELECT 1", &doubts));
    assert_ne!(hash, asked.named("SELECT", &["a join".to_owned()]));
    assert_ne!(hash, Asked { unit_column: None, ..asked }.named("SELECT", &doubts));
    assert_ne!(hash, Asked { unit_key: "patient", ..asked }.named("SELECT", &doubts));
    assert_ne!(hash, Asked { public_tables: &[], ..asked }.named("SELECT", &doubts));
}

/// Without persons every row is a unit: it must come from one row.
#[test]
fn rows_that_are_units_come_from_one_row() {
    assert_eq!(of_records("SELECT age, died FROM visits WHERE age > 17"), Verdict::Kept);
    assert_eq!(of_records("SELECT s.age FROM (SELECT age FROM visits) s"), Verdict::Kept);
    assert!(matches!(of_records("SELECT age FROM a UNION ALL SELECT age FROM a"), Verdict::Undecided(_)));
    assert!(matches!(of_records("SELECT (SELECT avg(v.x::numeric)) AS x FROM visits v"), Verdict::Undecided(_)));
    assert!(matches!(of_records("SELECT age FROM visits JOIN concept ON ward = concept_id"), Verdict::Undecided(_)));
    for text in [
        "SELECT person_id, count(*) FROM visits GROUP BY person_id",
        "SELECT a.age FROM visits a JOIN visits b ON a.person_id = b.person_id",
        "SELECT DISTINCT age FROM visits",
        "SELECT age, lag(age) OVER (PARTITION BY person_id ORDER BY day) FROM visits",
        "SELECT age FROM visits v WHERE EXISTS (SELECT 1 FROM death d WHERE d.person_id = v.person_id)",
        "SELECT age FROM a UNION SELECT age FROM b",
    ] {
        assert!(matches!(of_records(text), Verdict::Broken(_)), "{text}: {:?}", of_records(text));
    }
}

#[test]
fn one_select_and_nothing_else_is_read() {
    let asked = Asked { unit_column: None, unit_key: "person_id", public_tables: &[] };
    for text in ["", "SELECT 1; SELECT 2", "DELETE FROM visits", "SELEC 1", "DROP TABLE visits", "COPY visits TO '/tmp/x'"] {
        assert!(judge(text, &asked).is_err(), "{text}");
    }
    assert!(matches!(
        judge("WITH x AS (DELETE FROM visits RETURNING age) SELECT age FROM x", &asked),
        Ok(Judged { verdict: Verdict::Broken(_), .. }) | Err(_)
    ));
    assert!(matches!(judge("SELECT age INTO y FROM visits", &asked), Ok(Judged { verdict: Verdict::Broken(_), .. })));
}

/// Whatever a long chain of conditions is, it is followed on a small stack.
#[test]
fn a_long_chain_of_conditions_is_followed() {
    let text = format!("SELECT person_id AS patient FROM visits WHERE x > 0{}", " AND x > 0".repeat(3_000));
    assert!(text.len() as u64 <= LONGEST);
    kept(&text);
    broken(&text.replace("x > 0 AND x > 0 AND", "x > random() AND"), "chance");
}
