-- A cohort in the OMOP common data model, version 5.4: everybody's first inpatient stay of five years, what was known at its first day, and whether
-- heart failure was recorded within a year after it. One row a person. Table and column names are those of the model; put the name of your schema
-- before them, or set the database user's search_path.
WITH stay AS (
    SELECT person_id, min(visit_start_date) AS index_date
    FROM visit_occurrence
    WHERE visit_concept_id = 9201                                   -- inpatient visit
      AND visit_start_date BETWEEN DATE '2018-01-01' AND DATE '2022-12-31'
    GROUP BY person_id
)
SELECT
    p.person_id,
    extract(year FROM s.index_date) - p.year_of_birth AS age,
    CASE p.gender_concept_id WHEN 8507 THEN 'male' WHEN 8532 THEN 'female' END AS sex,
    EXISTS (
        SELECT 1 FROM condition_occurrence c JOIN concept_ancestor a ON a.descendant_concept_id = c.condition_concept_id
        WHERE c.person_id = p.person_id AND a.ancestor_concept_id = 201820          -- diabetes mellitus
          AND c.condition_start_date < s.index_date
    ) AS diabetes,
    EXISTS (
        SELECT 1 FROM condition_occurrence c JOIN concept_ancestor a ON a.descendant_concept_id = c.condition_concept_id
        WHERE c.person_id = p.person_id AND a.ancestor_concept_id = 316866          -- hypertensive disorder
          AND c.condition_start_date < s.index_date
    ) AS hypertension,
    (
        SELECT count(*) FROM visit_occurrence v
        WHERE v.person_id = p.person_id AND v.visit_concept_id = 9201
          AND v.visit_start_date < s.index_date AND v.visit_start_date >= s.index_date - 1825
    ) AS prior_stays,
    EXISTS (
        SELECT 1 FROM condition_occurrence c JOIN concept_ancestor a ON a.descendant_concept_id = c.condition_concept_id
        WHERE c.person_id = p.person_id AND a.ancestor_concept_id = 316139          -- heart failure
          AND c.condition_start_date > s.index_date AND c.condition_start_date <= s.index_date + 365
    ) AS heart_failure
FROM person p JOIN stay s ON s.person_id = p.person_id
WHERE EXISTS (                                                      -- seen for the whole year after it
        SELECT 1 FROM observation_period o
        WHERE o.person_id = p.person_id
          AND o.observation_period_start_date <= s.index_date AND o.observation_period_end_date >= s.index_date + 365
    )
  AND NOT EXISTS (                                                  -- without heart failure before
        SELECT 1 FROM condition_occurrence c JOIN concept_ancestor a ON a.descendant_concept_id = c.condition_concept_id
        WHERE c.person_id = p.person_id AND a.ancestor_concept_id = 316139
          AND c.condition_start_date <= s.index_date
    )
ORDER BY p.person_id
